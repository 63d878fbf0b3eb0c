"""What runs on confidential rows cost, and which runs a budget allows: before anything is spent."""

from pymc_dp.privacy.budgets import delta, epsilon, iterations, lower_bound, noise_multiplier, renyi_epsilon
from pymc_dp.privacy.costs import GaussianCost, SubsampledGaussianCost

__all__ = [
    "GaussianCost",
    "SubsampledGaussianCost",
    "delta",
    "epsilon",
    "iterations",
    "lower_bound",
    "noise_multiplier",
    "renyi_epsilon",
]
