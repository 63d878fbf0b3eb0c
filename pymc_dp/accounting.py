"""What runs on confidential rows cost, and what a budget allows: before anything is spent."""

from pymc_dp.privacy.budgets import delta, epsilon, iterations, noise_multiplier
from pymc_dp.privacy.costs import GaussianCost, SubsampledGaussianCost

__all__ = [
    "GaussianCost",
    "SubsampledGaussianCost",
    "delta",
    "epsilon",
    "iterations",
    "noise_multiplier",
]
