"""Releases that were processed after the noise: the law of what is published, for any additive noise.

The operation :class:`ProcessedRV` holds the operation of the noise and what is done to its draws, and has the
parameters of the noise. A published value has the log mass of the interval of noisy values that it comes
from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.dist_math import check_parameters
from pymc.distributions.shape_utils import rv_size_is_none
from pymc.model.core import Model
from pytensor.configdefaults import config
from pytensor.graph.basic import Apply
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.variable import TensorVariable

from pymc_dp.lowering.compiling.keys import version_of
from pymc_dp.lowering.compiling.nopython import njit
from pymc_dp.lowering.functions.interval_mass import log_mass
from pymc_dp.lowering.functions.samplers import core_sampler
from pymc_dp.mechanisms._checks import as_query, held
from pymc_dp.mechanisms._postprocessed import Postprocessed, check_values, postprocessed
from pymc_dp.mechanisms.mechanism import MECHANISM_PROPS, Mechanism, MechanismOp
from pymc_dp.mechanisms.unknown_keys import add_listed, check_keys
from pymc_dp.privacy._operations import NONEMPTY, OF_SELECTION
from pymc_dp.privacy.processing import SUPPRESSED, Processing
from pymc_dp.privacy.release import Release
from pymc_dp.upstream.pymc_private import _logprob, _support_point
from pymc_dp.upstream.pytensor_private import numba_core_rv_funcify


class ProcessedRV(MechanismOp, RandomVariable):
    """Draws a release with additive noise, and processes it.

    Attributes
    ----------
    noise : MechanismOp
        Draws the release before it is processed; of the same parameters.
    processing : Processing
        What is then done to it.
    """

    __props__ = ("name", "signature", "dtype", "inplace", "noise", "processing", *MECHANISM_PROPS)

    def __init__(
        self,
        name: str = "processed_release",
        *,
        noise: Any,
        processing: Processing,
        signature: str = "(),()->()",
        **kwargs: Any,
    ) -> None:
        self.noise = noise
        self.processing = processing
        self.suppressed = SUPPRESSED if processing.suppresses and not processing.unknown_keys else None
        printed, latex = noise._print_name
        self._print_name = (f"Processed{printed}", latex.replace("{", "{Processed", 1))
        super().__init__(name, signature=signature, **kwargs)

    @property
    def whole(self) -> bool:
        """Whether noisy values are whole numbers."""
        return self.noise.dtype.startswith("int")

    @property
    def record_marginals(self) -> Mapping[type, Any]:  # type: ignore[override]
        """Laws of records with which the noise has a known law, from their prior's operation class."""
        return getattr(self.noise, "processed_marginals", {})

    @property
    def unknown_keys(self) -> bool | str:
        """Whether entries that are not published are not observed; "nonempty" if empty keys got no noise."""
        return self.processing.unknown_keys

    @property
    def why_unknown(self) -> str:  # type: ignore[override]
        """Why there may be no guarantee."""
        return OF_SELECTION if self.unknown_keys == NONEMPTY else MechanismOp.why_unknown

    def log_published(self, query: Any, level: Any) -> TensorVariable:
        """Return the log probability that an entry is published, given its query."""
        least = self.processing.least_published(self.whole)
        mass = log_mass(self.noise.family, pt.constant(least), pt.constant(np.inf), query, level)
        return mass - self.noise.log_total(level) if hasattr(self.noise, "log_total") else mass

    def fault(self, values: np.ndarray) -> str | None:
        """Say which of some published values nothing gives, and why; None if all are possible."""
        return self.processing.fault(values, self.whole)

    @property
    def bounded_above(self) -> bool:
        """Whether every published value tells a number that its noisy value is at most."""
        return self.processing.clip is None or self.processing.clip[1] == np.inf

    def near(
        self, value: TensorVariable, log_level: TensorVariable, *noise: TensorVariable
    ) -> tuple[TensorVariable, TensorVariable]:
        """Return ends beyond which a query gives a published value with a log probability below a level."""
        lower, upper = self.processing.preimage(pt, pt.cast(value, "float64"), self.whole)
        reach = self.noise.tail_reach(log_level, *noise)
        return lower - reach, upper + reach

    @property
    def unprocessed(self) -> MechanismOp:
        """The operation of the noise."""
        return self.noise  # type: ignore[no-any-return]

    def rng_fn(self, rng: Any, *args: Any, **kwargs: Any) -> np.ndarray:
        """Draw a noisy release and process it, for simulation."""
        noisy = np.asarray(self.noise.rng_fn(rng, *args, **kwargs), dtype=float)
        return np.asarray(
            self.processing.process(np, noisy), dtype=config.floatX if self.dtype == "floatX" else self.dtype
        )


def processed_op(noise: Any, processing: Processing, stated: Any = None) -> ProcessedRV:
    """Return the operation that processes the draws of another; `stated` is what a release guarantees."""
    props = {name: getattr(noise, name) for name in MECHANISM_PROPS}
    if processing.unknown_keys == NONEMPTY:
        props["guarantee"] = None if stated is None else replace(stated, stated=True)
    whole = noise.dtype.startswith("int")
    return ProcessedRV(
        noise=noise,
        processing=processing,
        dtype="int64" if whole and not processing.suppresses else "floatX",
        **props,
    )


@_logprob.register(ProcessedRV)
def _log_probability(
    op: Any, values: Any, rng: Any, size: Any, query: Any, level: Any, **kwargs: Any
) -> TensorVariable:
    """Return the log probability of each entry; its log density where the noisy value is known exactly."""
    (value,) = values
    value = pt.cast(value, "float64")
    lower, upper = op.processing.preimage(pt, value, op.whole)
    density = log_mass(op.noise.family, lower, upper, query, level)
    if hasattr(op.noise, "log_total"):
        density = density - op.noise.log_total(level)
    if op.unknown_keys:
        density = pt.switch(pt.gt(value, SUPPRESSED), density, -np.inf)
    conditions = [level > 0]
    named = "noise level > 0"
    if op.whole:
        density = pt.switch(pt.eq(value, pt.floor(value)), density, -np.inf)
        conditions.append(pt.eq(query, pt.floor(query)))
        named += ", query a whole number"
    density = check_parameters(density, *conditions, msg=named)
    return density if rv_size_is_none(size) else pt.broadcast_to(density, size)


@_support_point.register(ProcessedRV)
def _of_the_query(op: Any, rv: Any, rng: Any, size: Any, query: Any, level: Any) -> TensorVariable:
    """Return what is published if there is no noise."""
    point, _ = pt.broadcast_arrays(query, level)
    point = op.processing.process(pt, point)
    return pt.cast(point if rv_size_is_none(size) else pt.full(size, point), rv.dtype)


@numba_core_rv_funcify.register(ProcessedRV)
def _draw(op: Any, node: Apply) -> Any:
    noise, _ = core_sampler(op.noise, op.noise.make_node(*node.inputs))
    drawn = _processed(noise, op.processing, np.dtype(node.outputs[1].type.dtype).kind == "i")  # type: ignore[attr-defined]
    return drawn, version_of(drawn)


@lru_cache(maxsize=256)
def _processed(noise: Any, processing: Processing, whole: bool) -> Any:
    """Return a function that draws noise around a query and processes it."""
    p, q = (1.0, 1.0) if processing.round_to is None else processing.ratio
    process = _unchanged
    for name in processing.order:
        if name == "clip":
            assert processing.clip is not None
            process = _then_clipped(process, *processing.clip)
        elif name == "round_to":
            process = _then_rounded(process, p, q)
        else:
            process = _then_suppressed(process, processing.suppress_below)
    if whole:

        @njit
        def draw(rng, query, level):  # type: ignore[no-untyped-def]
            return np.int64(process(float(noise(rng, query, level))))

    else:

        @njit
        def draw(rng, query, level):  # type: ignore[no-untyped-def]
            return process(float(noise(rng, query, level)))

    return draw


@njit
def _unchanged(z):  # type: ignore[no-untyped-def]
    return z


def _then_clipped(before: Any, lo: float, hi: float) -> Any:
    @njit
    def clipped(z):  # type: ignore[no-untyped-def]
        y = before(z)
        return y if y == SUPPRESSED else min(max(y, lo), hi)

    return clipped


def _then_rounded(before: Any, p: float, q: float) -> Any:
    @njit
    def rounded(z):  # type: ignore[no-untyped-def]
        return np.rint(before(z) * q / p) * p / q + 0.0  # which is no -0

    return rounded


def _then_suppressed(before: Any, threshold: Any) -> Any:
    @njit
    def suppressed(z):  # type: ignore[no-untyped-def]
        y = before(z)
        return SUPPRESSED if y < threshold else y

    return suppressed


class AddedNoise(Mechanism):
    """Base of the mechanisms whose releases may be processed after the noise."""

    def __new__(  # type: ignore[misc]  # PyMC's distributions construct tensors
        cls, name: str, query: Any, *args: Any, observed: Any = None, **kwargs: Any
    ) -> TensorVariable:
        """Take what was done to the release from its observed value, then declare it."""
        if isinstance(observed, Release) and observed.processing is not None:
            given = postprocessed(observed.value, **observed.processing.arguments())
            observed = replace(observed, value=cls._published(given), processing=None)
            kwargs["processing"] = given.processing
        if isinstance(observed, Postprocessed):
            kwargs["processing"], observed = observed.processing, cls._published(observed)
        model = Model.get_context(error_if_none=False)
        if model is None or not getattr(kwargs.get("processing"), "unknown_keys", False):
            return super().__new__(cls, name, query, *args, observed=observed, **kwargs)
        check_keys(name, as_query(query), model, kwargs["processing"].unknown_keys == NONEMPTY)
        rv = super().__new__(cls, name, query, *args, observed=observed, **kwargs)
        add_listed(name, rv, model)
        return rv

    @classmethod
    def _published(cls, given: Postprocessed) -> Any:
        """Return published values, after a check that they go with the noise."""
        values = given.values
        if cls._whole() and isinstance(held(values), np.ndarray):
            _check_whole(cls.__name__, held(values), given.processing)
            if isinstance(values, np.ndarray) and not given.processing.suppresses:
                return values.astype(np.int64)
        return values

    @classmethod
    def _whole(cls) -> bool:
        return bool(np.dtype(cls.rv_op.dtype if cls.rv_op.dtype != "floatX" else float).kind == "i")

    @classmethod
    def _release(cls, *args: Any, processing: Processing | None = None, **kwargs: Any) -> Any:
        """Build the random variable, that of a processed release where that is asked for."""
        stated = None
        if getattr(processing, "unknown_keys", False) == NONEMPTY:
            stated = kwargs.pop("promised", None)  # which noise does not bear out
        built = super()._release(*args, **kwargs)
        if processing is None:
            return built
        if not isinstance(processing, Processing):
            raise TypeError(
                f"{cls.__name__} got an unexpected keyword argument 'processing': say what was done to the "
                "release by observed=dp.postprocessed(values, ...)."
            )
        if cls._whole():
            processing.check_whole(cls.__name__)
        node = (built[1] if isinstance(built, tuple) else built).owner
        next_rng, rv = processed_op(node.op, processing, stated).make_node(*node.inputs).outputs
        return (next_rng, rv) if isinstance(built, tuple) else rv


def _check_whole(mechanism: str, values: np.ndarray, processing: Processing) -> None:
    """Refuse published values that whole numbers do not give."""
    processing.check_whole(mechanism)
    shown = values[values != SUPPRESSED]
    broken = shown[np.floor(shown) != shown]
    if broken.size:
        raise ValueError(
            f"observed must be whole numbers, got {broken[0]:g}: {mechanism} releases nothing else. Pass the "
            "release as it was published."
        )
    check_values(values, processing, whole=True)
