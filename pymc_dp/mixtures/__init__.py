"""Random partitions as PyMC distributions, and the mixtures that a model builds on them."""
