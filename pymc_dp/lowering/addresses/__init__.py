"""Graphs and kernels as addresses of machine code."""
