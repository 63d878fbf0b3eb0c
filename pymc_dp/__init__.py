"""Bayesian inference under differential privacy, as an extension of PyMC."""

from importlib.metadata import PackageNotFoundError, version

from pymc.step_methods import STEP_METHODS

from pymc_dp.mechanisms import (
    BinomialMechanism,
    DiscreteGaussianMechanism,
    DiscreteLaplaceMechanism,
    ExponentialMechanism,
    GaussianMechanism,
    KNormGradient,
    LaplaceMechanism,
    ObjectivePerturbation,
    PerturbedHistogram,
    ProjectionMechanism,
    RandomizedResponse,
    SmoothedHistogramSample,
    UnaryEncoding,
    WaveletMechanism,
    guarantee,
)
from pymc_dp.privacy.guarantee import PrivacyGuarantee
from pymc_dp.privacy.release import Release
from pymc_dp.records import clamp, record_sum
from pymc_dp.stats.acceptance import acceptance_report
from pymc_dp.stats.plan import plan
from pymc_dp.step_methods.ancillary import AncillaryUpdate
from pymc_dp.step_methods.collapsed import CollapsedUpdate
from pymc_dp.step_methods.conjugate import ConjugateUpdate
from pymc_dp.step_methods.imputation import RecordImputation

try:
    __version__ = version("pymc-dp")
except PackageNotFoundError:  # running from a source tree that is not installed
    __version__ = "0+unknown"

__all__ = [
    "AncillaryUpdate",
    "BinomialMechanism",
    "CollapsedUpdate",
    "ConjugateUpdate",
    "DiscreteGaussianMechanism",
    "DiscreteLaplaceMechanism",
    "ExponentialMechanism",
    "GaussianMechanism",
    "KNormGradient",
    "LaplaceMechanism",
    "ObjectivePerturbation",
    "PerturbedHistogram",
    "PrivacyGuarantee",
    "ProjectionMechanism",
    "RandomizedResponse",
    "RecordImputation",
    "Release",
    "SmoothedHistogramSample",
    "UnaryEncoding",
    "WaveletMechanism",
    "acceptance_report",
    "clamp",
    "guarantee",
    "plan",
    "record_sum",
]

# at the front, because PyMC takes the first of equally competent steps
for _step in (RecordImputation, ConjugateUpdate, AncillaryUpdate, CollapsedUpdate):
    if _step not in STEP_METHODS:
        STEP_METHODS.insert(0, _step)
del _step
