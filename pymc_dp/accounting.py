"""What runs on confidential rows cost, and which runs a budget allows: before anything is spent.

Neighbours are replace-one, the number of rows being public; epsilon is in nats. A noise multiplier is the
standard deviation of the noise over the sensitivity of what is released when one row is exchanged.

Examples
--------
Two chains of 500 tuning and 2000 other draws, with one release each:

>>> import pymc_dp as dp
>>> releases = 2 * (500 + 2000)
>>> noise = dp.accounting.noise_multiplier(releases, epsilon=4, delta=1e-6)
>>> round(noise, 2)
84.39
>>> round(dp.accounting.epsilon(dp.accounting.GaussianCost(releases, 2 * noise), delta=1e-6), 2)
1.86
"""

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
