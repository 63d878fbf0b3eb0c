"""One fit of a study, in whatever process it runs: a model prepared once, then sampled for each release."""

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import cloudpickle
import numpy as np
import pymc as pm
from pymc.model.core import Model

from pymc_dp.mixtures.structure import is_labels
from pymc_dp.runs.releases import Values, observe, observed_now, with_inputs
from pymc_dp.runs.steps import ARGUMENTS_OF_SAMPLE, chosen
from pymc_dp.runs.structures import frozen, same_computation
from pymc_dp.runs.summaries import acceptances, complaints, summarised, thinned
from pymc_dp.step_methods.discovery import record_blocks
from pymc_dp.upstream.pymc_private import ended_before_a_draw

# Models that a process keeps prepared: settings of a study may alternate between a few structures.
_MOST_PREPARED = 8
# What pm.sample is always called with: a fit is one job, and what it says would be said a thousand times.
_QUIETLY: dict[str, Any] = {
    "cores": 1,
    "progressbar": False,
    "quiet": True,
    "compute_convergence_checks": False,
    "nuts_sampler": "pymc",
}


@dataclass(frozen=True)
class Study:
    """What all fits of a study have in common, as bytes that any process can read.

    Attributes
    ----------
    pickled : bytes
        Model or function that builds one, names of what is kept, steps, and arguments of ``pm.sample``.
    key : str
        Digest of these bytes: a process that has prepared them finds them by it.
    """

    pickled: bytes
    key: str

    @classmethod
    def of(cls, what: "Shared") -> "Study":
        """Pickle what fits share."""
        pickled = cloudpickle.dumps(what)
        return cls(pickled, hashlib.sha256(pickled).hexdigest())


@dataclass(frozen=True)
class Shared:
    """What fits share, unpickled.

    Attributes
    ----------
    model : pymc.Model or callable
        The model, or a function that builds it from a setting.
    names : tuple of str
        Observed variables that differ between fits of one model.
    var_names : tuple of str or None
        Variables that are kept; None for all but records and labels.
    step : callable or None
        Function that makes steps for a model.
    kept : int or None
        Draws of each chain that are kept; 0 for none, None for all.
    arguments : dict
        Further arguments of ``pm.sample``.
    """

    model: Model | Callable[[Any], Model]
    names: tuple[str, ...]
    var_names: tuple[str, ...] | None
    step: Callable[[Model], Any] | None
    kept: int | None
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Case:
    """One fit that is to be made: which, its seed, and its release or its setting."""

    index: int
    seed: int
    given: Any


@dataclass
class Outcome:
    """What came of one fit.

    Attributes
    ----------
    index, seed : int
    status : {"done", "unconverged", "failed"}
    error : str
        Why it failed, or what speaks against convergence.
    seconds : float
        From the model to the summaries, compilation included where this fit was the first.
    acceptance : dict of float
        Rates of acceptance, by statistic of the steps.
    summaries, draws : dict of ndarray
        By variable, shapes (statistics, ...) and (chains, draws, ...).
    dims : dict of tuple of str
        Names of the dimensions of each variable.
    coords : dict
        Values of these dimensions, where the model has them.
    """

    index: int
    seed: int
    status: str
    error: str = ""
    seconds: float = np.nan
    acceptance: dict[str, float] = field(default_factory=dict)
    summaries: dict[str, np.ndarray] = field(default_factory=dict)
    draws: dict[str, np.ndarray] = field(default_factory=dict)
    dims: dict[str, tuple[str, ...]] = field(default_factory=dict)
    coords: dict[str, Any] = field(default_factory=dict)


def fit(study: Study, case: Case) -> Outcome:
    """Make one fit; what goes wrong with it is its outcome, and stops no other."""
    start = time.perf_counter()
    try:
        outcome = _outcome(_shared(study), study.key, case)
    except Exception as error:
        outcome = Outcome(case.index, case.seed, "failed", f"{type(error).__name__}: {error}")
    outcome.seconds = time.perf_counter() - start
    return outcome


def kept_names(model: Model, names: tuple[str, ...] | None) -> list[str]:
    """Return the names of the variables that are kept: those given, or all but records and labels."""
    if names is not None:
        return list(names)
    hidden = {rv for block in record_blocks(model) for rv in block.records}
    return [
        str(v.name) for v in [*model.free_RVs, *model.deterministics] if v not in hidden and not is_labels(v)
    ]


class Prepared:
    """A model whose functions compile once, with steps that were made once.

    Parameters
    ----------
    model : pymc.Model
        A copy of its own, whose observed values are inputs.
    shared : Shared
    """

    def __init__(self, model: Model, shared: Shared):
        self.model, self._shared = frozen(model), shared
        self.var_names = kept_names(self.model, shared.var_names)
        self._arguments = dict(shared.arguments)
        with self.model as of:  # functions that make steps, and ours, take the model from the context
            self._steps = chosen(of, None if shared.step is None else shared.step(of), self._arguments)
        if self._steps is not None:
            self._arguments = {k: v for k, v in self._arguments.items() if k in ARGUMENTS_OF_SAMPLE}
            self._begun = [step.sampling_state for step in self._steps]

    def sample(self, values: Values, seed: int) -> Any:
        """Return the draws of one fit, the same as those of ``pm.sample`` with its seed."""
        observe(self.model, values)
        given = {}
        if self._steps is not None:
            for step, state in zip(self._steps, self._begun, strict=True):
                step.sampling_state = state  # as it was made: adaptation of the last fit is none of this one
            given["step"] = list(self._steps)
        try:
            idata = pm.sample(
                model=self.model,
                random_seed=seed,
                var_names=self.var_names,
                **given,
                **self._arguments,
                **_QUIETLY,
            )
        except ValueError as error:
            if ended_before_a_draw(error):
                raise KeyboardInterrupt from None
            raise
        self._refuse_interrupted(idata)
        return idata

    def _refuse_interrupted(self, idata: Any) -> None:
        """PyMC returns what it has where it is interrupted, which is no fit."""
        sizes, asked = idata["posterior"].sizes, self._arguments
        if sizes["draw"] != asked["draws"] or sizes["chain"] != asked["chains"]:
            raise KeyboardInterrupt


def _outcome(shared: Shared, key: str, case: Case) -> Outcome:
    prepared, values = _prepared(shared, key, case.given)
    idata = prepared.sample(values, case.seed)
    posterior = idata["posterior"].dataset
    draws = {name: posterior[name].values for name in prepared.var_names}
    summaries = {name: summarised(values) for name, values in draws.items()}
    found = complaints(summaries, idata)
    dims = {name: tuple(map(str, posterior[name].dims[2:])) for name in draws}
    return Outcome(
        case.index,
        case.seed,
        "unconverged" if found else "done",
        found,
        acceptance=acceptances(idata),
        summaries=summaries,
        draws={} if shared.kept == 0 else {n: thinned(values, shared.kept) for n, values in draws.items()},
        dims=dims,
        coords={d: posterior[d].values for ds in dims.values() for d in ds if d in posterior.coords},
    )


# -- what a process keeps -----------------------------------------------------------------------------

_SHARED: OrderedDict[str, Shared] = OrderedDict()
_PREPARED: OrderedDict[str, list[Prepared]] = OrderedDict()


def _shared(study: Study) -> Shared:
    if study.key not in _SHARED:
        _SHARED.clear()  # one study at a time: compiled models of the last one are of no more use
        _PREPARED.clear()
        _SHARED[study.key] = cloudpickle.loads(study.pickled)
    return _SHARED[study.key]


def _prepared(shared: Shared, key: str, given: Any) -> tuple[Prepared, Values]:
    """Return a model prepared for a fit, and what the fit observes."""
    known = _PREPARED.setdefault(key, [])
    if not callable(shared.model):
        if not known:
            known.append(Prepared(with_inputs(shared.model, shared.names), shared))
        return known[0], given
    model = built(shared.model, given)
    values = observed_now(model)
    with_inputs(model, list(values))
    for prepared in known:
        if same_computation(prepared.model, model):
            return prepared, values
    known.append(Prepared(model, shared))
    del known[:-_MOST_PREPARED]
    return known[-1], values


def built(build: Callable[[Any], Model], setting: Any) -> Model:
    """Return the model of a setting.

    Raises
    ------
    TypeError
        The function returns something else.
    """
    model = build(setting)
    if not isinstance(model, Model):
        raise TypeError(
            f"model was called with the setting {setting!r} and returned {type(model).__name__}: a function "
            "in the place of a model must build and return a pm.Model."
        )
    return model


__all__ = ["Case", "Outcome", "Shared", "Study", "built", "fit", "kept_names"]
