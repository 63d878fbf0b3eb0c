"""Privacy mechanisms as PyMC distributions, one file per family."""

from pymc_dp.mechanisms.base import Mechanism, MechanismOp
from pymc_dp.mechanisms.cost import guarantee
from pymc_dp.mechanisms.gaussian import GaussianMechanism
from pymc_dp.mechanisms.laplace import LaplaceMechanism

__all__ = ["GaussianMechanism", "LaplaceMechanism", "Mechanism", "MechanismOp", "guarantee"]
