"""What the steps share that move labels only, given records that are data or that other steps move."""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from pymc.model.core import Model
from pymc.step_methods.compound import Competence
from pytensor.graph.basic import Variable

from pymc_dp.mixtures.structure import Mixture
from pymc_dp.query.records import RecordBlock
from pymc_dp.step_methods.mixture.counters import CONSIDERED, MOVED, SPLIT, TRIED
from pymc_dp.step_methods.mixture.cycles import COLLAPSED, CONDITIONAL, SPLITS_ONLY, STICKS, Plan
from pymc_dp.step_methods.mixture.step import MixtureStep, plain_mixtures
from pymc_dp.step_methods.record_step import check_positive

# The cycle that runs a sweep: with atoms of free slots drawn before it, or not.
CYCLES = {"neal2": STICKS, "neal8": CONDITIONAL, "collapsed": COLLAPSED, "": SPLITS_ONLY}


class LabelStep(MixtureStep):
    """A step that moves the labels of mixtures whose kernel has values of its own."""

    _needs = (
        "found no mixture in this model whose records are known: declare labels with "
        "dp.ChineseRestaurantProcess and an observed variable whose law picks atoms by them, as in "
        "pm.Normal('y', mu[labels], 1, observed=y). Confidential records behind a release are for "
        "dp.PrivateNeal5 and dp.PrivateSlice."
    )
    stats_dtypes_shapes: ClassVar[dict[str, Any]] = {
        "n_clusters": (np.int64, []),
        "labels_moved": (np.float64, []),
        "splits_accepted": (np.float64, []),
    }

    @classmethod
    def _mixtures_in(cls, model: Model) -> list[tuple[Mixture, RecordBlock]]:
        return plain_mixtures(model)

    @classmethod
    def _taken(cls, mixture: Mixture, block: RecordBlock) -> list[Any]:
        return [mixture.labels]

    def _rates_of(self, tally: np.ndarray) -> dict[str, Any]:
        return {
            "labels_moved": tally[MOVED] / max(tally[CONSIDERED], 1.0),
            "splits_accepted": tally[SPLIT] / tally[TRIED] if tally[TRIED] else np.nan,
        }

    @staticmethod
    def competence(var: Variable, has_grad: bool) -> Competence:
        """Answer PyMC: whether this step can move the variable."""
        return Competence.COMPATIBLE if LabelStep._wants(var) else Competence.INCOMPATIBLE


class SweepStep(LabelStep):
    """A step that sweeps over the labels in one way."""

    _sweep: str
    n_auxiliary: int = 1

    def __init__(
        self,
        vars: Sequence[Variable] | None = None,
        *,
        n_cycles: int | None = None,
        model: Model | None = None,
        rng: Any = None,
        initial_point: dict[str, Any] | None = None,
        compile_kwargs: dict | None = None,
        blocked: bool = True,
    ):
        check_positive("n_cycles", n_cycles, or_none=True)
        self.n_cycles = n_cycles
        self._prepare(vars, model, rng, initial_point)

    @property
    def _kernels(self) -> dict[str, Any]:
        return {"n_auxiliary": 0, "conditional": self._sweep, "n_empty": self.n_auxiliary}

    def _plan(self, m: int, n_cycles: int) -> Plan:
        return Plan(np.full(n_cycles, CYCLES[self._sweep]))
