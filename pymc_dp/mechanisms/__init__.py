"""Privacy mechanisms as PyMC distributions, one file per family."""

from pymc_dp.mechanisms.binomial import BinomialMechanism
from pymc_dp.mechanisms.cost import guarantee
from pymc_dp.mechanisms.custom import CustomMechanism
from pymc_dp.mechanisms.discrete_gaussian import DiscreteGaussianMechanism
from pymc_dp.mechanisms.discrete_laplace import DiscreteLaplaceMechanism
from pymc_dp.mechanisms.exponential import ExponentialMechanism
from pymc_dp.mechanisms.gaussian import GaussianMechanism
from pymc_dp.mechanisms.invariant import Invariant
from pymc_dp.mechanisms.knorm_gradient import KNormGradient
from pymc_dp.mechanisms.laplace import LaplaceMechanism
from pymc_dp.mechanisms.mechanism import Mechanism, MechanismOp
from pymc_dp.mechanisms.objective_perturbation import ObjectivePerturbation
from pymc_dp.mechanisms.perturbed_histogram import PerturbedHistogram
from pymc_dp.mechanisms.projection import ProjectionMechanism
from pymc_dp.mechanisms.randomized_response import RandomizedResponse
from pymc_dp.mechanisms.smoothed_histogram import SmoothedHistogramSample
from pymc_dp.mechanisms.unary_encoding import UnaryEncoding
from pymc_dp.mechanisms.wavelet import WaveletMechanism

__all__ = [
    "BinomialMechanism",
    "CustomMechanism",
    "DiscreteGaussianMechanism",
    "DiscreteLaplaceMechanism",
    "ExponentialMechanism",
    "GaussianMechanism",
    "Invariant",
    "KNormGradient",
    "LaplaceMechanism",
    "Mechanism",
    "MechanismOp",
    "ObjectivePerturbation",
    "PerturbedHistogram",
    "ProjectionMechanism",
    "RandomizedResponse",
    "SmoothedHistogramSample",
    "UnaryEncoding",
    "WaveletMechanism",
    "guarantee",
]
