"""Kernels of mixtures: labels, records and atoms."""
