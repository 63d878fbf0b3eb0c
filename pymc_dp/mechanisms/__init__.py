"""Privacy mechanisms as PyMC distributions, one file per family."""

from pymc_dp.mechanisms.base import Mechanism, MechanismOp, guarantee
from pymc_dp.mechanisms.gaussian import GaussianMechanism
from pymc_dp.mechanisms.laplace import LaplaceMechanism

__all__ = ["GaussianMechanism", "LaplaceMechanism", "Mechanism", "MechanismOp", "guarantee"]
