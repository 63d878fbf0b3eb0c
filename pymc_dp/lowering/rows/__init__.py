"""One row of a graph as functions of numbers: draws, log densities, and where they are defined."""
