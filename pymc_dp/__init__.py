"""Bayesian inference under differential privacy, as an extension of PyMC."""

from importlib.metadata import PackageNotFoundError, version

from pymc.step_methods import STEP_METHODS

from pymc_dp import accounting, hooks, importers, testing
from pymc_dp.importers._models import unobserve
from pymc_dp.marginals.approximate import approximate_sums
from pymc_dp.marginals.marginalize import marginalize
from pymc_dp.marginals.recover import recover_records
from pymc_dp.mechanisms import (
    BinomialMechanism,
    CustomMechanism,
    DiscreteGaussianMechanism,
    DiscreteLaplaceMechanism,
    ExponentialMechanism,
    GaussianMechanism,
    Invariant,
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
from pymc_dp.mechanisms._postprocessed import postprocessed
from pymc_dp.mixtures.clusters import n_clusters
from pymc_dp.mixtures.partition import ChineseRestaurantProcess
from pymc_dp.plots.budget import plot_budget
from pymc_dp.plots.mixtures import plot_density, plot_informativeness, plot_similarity
from pymc_dp.plots.releases import plot_acceptance, plot_plan, plot_table
from pymc_dp.privacy.guarantee import PrivacyGuarantee
from pymc_dp.privacy.ledger import BudgetExceededError, PrivacyLedger
from pymc_dp.privacy.release import Release
from pymc_dp.privacy.renyi_guarantee import RenyiGuarantee
from pymc_dp.private.approximation import normal_approximation
from pymc_dp.private.barker import BarkerMetropolis
from pymc_dp.private.confidential import ConfidentialLikelihood
from pymc_dp.private.hmc import PrivateHMC
from pymc_dp.private.minibatch import MinibatchPenalty
from pymc_dp.private.normal import NormalApproximation
from pymc_dp.private.penalty import PenaltyMetropolis
from pymc_dp.private.report import with_privacy
from pymc_dp.query.contributions import clamp, record_sum
from pymc_dp.query.tablechanges import count_sensitivity
from pymc_dp.runs.blocks import sample_in_blocks
from pymc_dp.runs.replicate import replicate
from pymc_dp.stats.acceptance import acceptance_report
from pymc_dp.stats.density import mixture_density
from pymc_dp.stats.informativeness import informativeness
from pymc_dp.stats.mmd import mmd
from pymc_dp.stats.partitions import point_partition, similarity_matrix
from pymc_dp.stats.plan import plan
from pymc_dp.step_methods.ancillary import AncillaryUpdate
from pymc_dp.step_methods.atoms import AtomUpdate
from pymc_dp.step_methods.collapsed import CollapsedUpdate
from pymc_dp.step_methods.conjugate import ConjugateUpdate
from pymc_dp.step_methods.imputation import RecordImputation
from pymc_dp.step_methods.label_sweeps import Neal2, Neal3, Neal8
from pymc_dp.step_methods.neal import PrivateNeal5
from pymc_dp.step_methods.slice import PrivateSlice
from pymc_dp.step_methods.split_merge_step import SplitMerge
from pymc_dp.step_methods.table_imputation import TableImputation
from pymc_dp.tabulated_imputation import TabulatedImputation

try:
    __version__ = version("pymc-dp")
except PackageNotFoundError:  # running from a source tree that is not installed
    __version__ = "0+unknown"

__all__ = [
    "AncillaryUpdate",
    "AtomUpdate",
    "BarkerMetropolis",
    "BinomialMechanism",
    "BudgetExceededError",
    "ChineseRestaurantProcess",
    "CollapsedUpdate",
    "ConfidentialLikelihood",
    "ConjugateUpdate",
    "CustomMechanism",
    "DiscreteGaussianMechanism",
    "DiscreteLaplaceMechanism",
    "ExponentialMechanism",
    "GaussianMechanism",
    "Invariant",
    "KNormGradient",
    "LaplaceMechanism",
    "MinibatchPenalty",
    "Neal2",
    "Neal3",
    "Neal8",
    "NormalApproximation",
    "ObjectivePerturbation",
    "PenaltyMetropolis",
    "PerturbedHistogram",
    "PrivacyGuarantee",
    "PrivacyLedger",
    "PrivateHMC",
    "PrivateNeal5",
    "PrivateSlice",
    "ProjectionMechanism",
    "RandomizedResponse",
    "RecordImputation",
    "Release",
    "RenyiGuarantee",
    "SmoothedHistogramSample",
    "SplitMerge",
    "TableImputation",
    "TabulatedImputation",
    "UnaryEncoding",
    "WaveletMechanism",
    "acceptance_report",
    "accounting",
    "approximate_sums",
    "clamp",
    "count_sensitivity",
    "guarantee",
    "importers",
    "informativeness",
    "marginalize",
    "mixture_density",
    "mmd",
    "n_clusters",
    "normal_approximation",
    "plan",
    "plot_acceptance",
    "plot_budget",
    "plot_density",
    "plot_informativeness",
    "plot_plan",
    "plot_similarity",
    "plot_table",
    "point_partition",
    "postprocessed",
    "record_sum",
    "recover_records",
    "replicate",
    "sample_in_blocks",
    "similarity_matrix",
    "testing",
    "unobserve",
    "with_privacy",
]

# at the front, because PyMC takes the first of equally competent steps
for _step in (
    RecordImputation,
    TableImputation,
    ConjugateUpdate,
    AncillaryUpdate,
    CollapsedUpdate,
    TabulatedImputation,
    AtomUpdate,
    PrivateSlice,
    PrivateNeal5,
    Neal2,
    Neal3,
    Neal8,
    SplitMerge,
    PenaltyMetropolis,
):
    if _step not in STEP_METHODS:
        STEP_METHODS.insert(0, _step)
del _step
hooks.install()


def __dir__() -> list[str]:
    """Names to be relied on; rooms and what this module imports can be reached, and may change."""
    return [*__all__, "__version__"]
