"""Functions with machine code of this package: generators, laws, densities, look-up tables."""
