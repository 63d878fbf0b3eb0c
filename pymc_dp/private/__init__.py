"""Posterior draws from confidential rows, under a privacy budget."""
