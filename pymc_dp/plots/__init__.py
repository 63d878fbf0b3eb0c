"""Plots of results: mixtures, and spending from a privacy budget."""
