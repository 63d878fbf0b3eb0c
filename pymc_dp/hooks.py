"""Eight functions of PyMC that are wrapped, because it has no hook for what has to be known there.

* ``pymc.sampling.mcmc.assign_step_methods`` says which step of ``pm.sample`` moves which variable. A step
  that does not know of a mechanism must not get its records unasked, nor one that does not know of clusters
  their labels, and nobody's ``competence`` is asked where a step was given for all variables.
* ``pymc.sampling.mcmc.instantiate_steppers`` says in which order steps run. Steps that know records draw them
  from their law when a chain starts, before which they may have no density for the steps of others. Records
  whose parameters a step moves that PyMC chose, too, get no step of their own there. What is said
  there of options of NUTS, where no variable is left to it, names steps that nobody asked for.
* ``BlockedStep.__new__`` fills in all variables of the model where a step is made without their names. With
  and without look the same afterwards, so it is noted there which it was.
* ``pymc.sampling.forward.compile_forward_sampling_function`` says which variables predictive sampling draws
  anew. Records that were not stored are among them, and are then drawn as if nothing had been released.
* ``pymc.sampling.mcmc.make_initial_point_fns_per_chain`` gets ``initvals``, and nobody else sees them before
  atoms are looked up by labels that may be no slots.
* ``pymc.sampling.mcmc.run_convergence_checks`` warns of labels and atoms of a mixture, whose slots change
  places from draw to draw, in every good run; what else draws say of themselves is told there, and where they
  contradict a release.
* ``pymc.sampling.mcmc.init_traces`` compiles the function that records draws: in seconds less in a mode of
  ours where there are tables of probabilities.
* ``pymc.sampling.mcmc.init_nuts`` compiles the density with its gradient where NUTS moves all variables: in
  that mode, too, which takes less time.

All are looked up by these names when PyMC samples; were one renamed, importing this package would fail. The
wrappers pass all arguments on, and change nothing for models without a mechanism.
"""

import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any

import pytensor
from pymc.distributions.censored import CensoredRV
from pymc.model.core import BaseModel, Model, modelcontext
from pymc.sampling import forward, mcmc
from pymc.step_methods import NUTS, STEP_METHODS
from pymc.step_methods.compound import BlockedStep, CompoundStep, flatten_steps
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors

from pymc_dp.advice import (
    PARAMETER_STEPS,
    listed,
    tell_of_few_values,
    tell_of_parameters,
    tell_of_tables,
    tell_of_thresholds,
)
from pymc_dp.far_releases import told_far
from pymc_dp.flags import flags_lock
from pymc_dp.lowering.addresses.modes import default_mode
from pymc_dp.marginals.exactness import told_inexact
from pymc_dp.marginals.removal import removals
from pymc_dp.propriety import refuse_improper
from pymc_dp.query.recordrules import named
from pymc_dp.query.records import is_release
from pymc_dp.step_methods.ancillary import AncillaryUpdate
from pymc_dp.step_methods.behind import behind_mechanisms, known_to_steps
from pymc_dp.step_methods.claims import behind_records
from pymc_dp.step_methods.conjugate import ConjugateUpdate
from pymc_dp.step_methods.discovery import blocks_with
from pymc_dp.step_methods.imputation import RecordImputation
from pymc_dp.step_methods.record_step import PARALLEL_FROM, RecordStep
from pymc_dp.step_methods.slot_checks import of_slots
from pymc_dp.step_methods.starts import check_starting_labels
from pymc_dp.step_methods.stood_still import of_whole_numbers
from pymc_dp.tabulated_imputation import TabulatedImputation

_log = logging.getLogger("pymc.dp")  # below PyMC's own, which prints to the console


def install() -> None:
    """Wrap the functions, once."""
    for owner, name, wrapper in (
        (mcmc, "assign_step_methods", _checked),
        (mcmc, "instantiate_steppers", _records_first),
        (BlockedStep, "__new__", _noting_names),
        (mcmc, "make_initial_point_fns_per_chain", _of_slots),
        (mcmc, "init_nuts", _compiled_alike),
        (mcmc, "init_traces", _recording),
        (mcmc, "run_convergence_checks", _of_numbers_with_a_meaning),
        (forward, "compile_forward_sampling_function", _warning),
    ):
        function: Any = getattr(owner, name)
        if not hasattr(function, "_of_pymc_dp"):
            wrapped: Any = wraps(function)(wrapper(function))
            wrapped._of_pymc_dp = True
            setattr(owner, name, staticmethod(wrapped) if isinstance(owner, type) else wrapped)


# -- which step moves which variable --------------------------------------------------------------


def _checked(assign: Callable[..., Any]) -> Callable[..., Any]:
    def assign_step_methods(model: Model, step: Any = None, methods: Any = None) -> Any:
        given, choice = _steps_in(step), list(methods or STEP_METHODS)
        records_given = any(isinstance(s, RecordImputation) for s in given)
        if records_given:
            choice = [m for m in choice if m not in (*PARAMETER_STEPS, TabulatedImputation)]
        provided, selected = assign(model, step, choice)
        _refuse_unobserved_processed(model)
        takers = {model.values_to_rvs[v]: kind for kind, values in selected.items() for v in values}
        kept, hidden = known_to_steps(model), behind_mechanisms(model)
        if any(hasattr(getattr(rv.owner, "op", None), "guarantee") for rv in model.observed_RVs):
            refuse_improper(model)
        _refuse_unasked(given, model, kept)
        _refuse_selected(takers, hidden)
        if records_given:
            tell_of_parameters(model, takers)
        elif any(issubclass(kind, (RecordImputation, *PARAMETER_STEPS)) for kind in takers.values()):
            tell_of_few_values(model)
        tell_of_thresholds(model, takers)
        tell_of_tables(model, takers)
        return provided, selected

    return assign_step_methods


def _records_first(instantiate: Callable[..., Any]) -> Callable[..., Any]:
    def instantiate_steppers(model: Model, steps: Any, selected_steps: Any, **kwargs: Any) -> Any:
        options = kwargs.get("step_kwargs") or {}
        _refuse_options(model, steps, selected_steps, options)
        if RecordImputation.name not in options:
            selected_steps = swept_with_parameters(model, selected_steps)
        made = instantiate(model, steps, selected_steps, **kwargs)
        if not isinstance(made, list):
            return made
        return sorted(made, key=lambda step: not any(isinstance(s, RecordStep) for s in flatten_steps(step)))

    return instantiate_steppers


def swept_with_parameters(model: Model, selected: dict[Any, list[Any]]) -> dict[Any, list[Any]]:
    """Leave the sweeps over records to the step that moves their parameters, where PyMC chose both.

    Each cycle of that step sweeps over the records anyway. What a step of their own would cost beside, its
    sweep and the way from the point to arrays and back, was a quarter to a half of a draw. Records of which
    some have no such parameters keep one step for all: two steps would tell two rates of acceptance.
    """
    values = selected.get(RecordImputation)
    if not values:
        return selected
    blocks = blocks_with(model, values)
    parameters = [{model.rvs_to_values[rv] for rv in behind_records(model, block)} for block in blocks]
    for kind in (AncillaryUpdate, ConjugateUpdate):
        taken = set(selected.get(kind) or [])
        if all(taken & each for each in parameters) and all(block.n < PARALLEL_FROM for block in blocks):
            return {**selected, kind: [*selected[kind], *values], RecordImputation: []}
    return selected


def _noting_names(new: Callable[..., Any]) -> Callable[..., Any]:
    def __new__(cls: type[BlockedStep], *args: Any, **kwargs: Any) -> Any:
        made = new(cls, *args, **kwargs)
        given = kwargs["vars"] if "vars" in kwargs else args[0] if args else None
        for step in flatten_steps(made):
            step._variables_named = given is not None  # type: ignore[attr-defined]
        return made

    return __new__


def _was_named(step: BlockedStep) -> bool:
    """Whether a step was made with its variables; one that claims variables by itself cannot tell."""
    claims = type(step).__new__ is not BlockedStep.__new__
    return bool(getattr(step, "_variables_named", False)) and not claims


def _steps_in(step: Any) -> list[BlockedStep]:
    """Return the steps that a user gave, without compounds; what is no step is PyMC's to refuse."""
    given = step if isinstance(step, Sequence) else [step]
    return [s for g in given if isinstance(g, BlockedStep | CompoundStep) for s in flatten_steps(g)]


def _refuse_unasked(
    given: Sequence[BlockedStep], model: Model, kept: dict[Variable, Variable | None]
) -> None:
    """Refuse given steps that move records or labels without having been made with their variables."""
    found: dict[tuple[type[BlockedStep], bool], list[Variable]] = {}
    for step in given:  # one for each variable, where a step moves them one by one
        rvs = [model.values_to_rvs[v] for v in step.vars]
        if not isinstance(step, RecordStep):
            found.setdefault((type(step), _was_named(step)), []).extend(rv for rv in rvs if rv in kept)
    for (kind, was_named), moved in found.items():
        if moved:
            _refuse_or_confirm(kind.__name__, was_named, moved, model, kept)


def _refuse_or_confirm(
    name: str,
    was_named: bool,
    moved: Sequence[Variable],
    model: Model,
    kept: dict[Variable, Variable | None],
) -> None:
    """Refuse what steps of one kind move if nobody named it; otherwise say that they do."""
    clusters = [rv for rv in moved if kept[rv] is None]
    mechanisms = {kept[rv]: rv for rv in moved if kept[rv] is not None}
    records = [rv for rv in moved if rv not in clusters]
    behind = f"{named(records)} behind the mechanism {named(mechanisms)}" if records else ""
    of_clusters = f"{named(clusters)} of a random partition" if clusters else ""
    if was_named:
        if records:
            _log.info("%s moves %s, as it was asked to.", name, behind)
        if clusters:
            _log.warning(
                "%s moves %s, as it was asked to. It does not know of clusters, and their number may stand "
                "still: dp.SplitMerge and dp.Neal8 know them.", name, of_clusters,
            )  # fmt: skip
        return
    rest = listed([rv for rv in model.free_RVs if rv not in kept])
    remedies = [f"Leave {name} out"]
    if rest != "[]":
        remedies.append(f"make it for parameters alone, {name}({rest})")
    if clusters and rest != "[]":
        remedies.append(f"give clusters a step that knows them, step=[dp.Neal8(), pm.{name}({rest})]")
    if records:
        wanted = listed(rv for rv in model.free_RVs if rv not in kept or rv in moved)
        remedies.append(f"if it is meant to move them, name them: {name}({wanted})")
    raise ValueError(
        f"step: {name} was made without the names of its variables, so it would also move "
        f"{' and '.join(filter(None, (behind, of_clusters)))}, for which there are steps that know it. "
        f"{', or '.join(remedies)}."
    )


def _refuse_unobserved_processed(model: Model) -> None:
    """Refuse processed releases as variables to sample: steps of others do not see the values with mass."""
    for rv in model.free_RVs:
        if hasattr(rv.owner.op, "processing"):
            raise ValueError(
                f"{rv.name} is a processed release without observed values, whose law has values of positive "
                "probability among others, or gaps: no step moves it. Give the published values, observed="
                "dp.postprocessed(values, ...), or draw it with pm.sample_prior_predictive, which needs no "
                "steps."
            )


def _refuse_selected(takers: dict[Variable, type[BlockedStep]], hidden: dict[Variable, Variable]) -> None:
    """Refuse steps of others that PyMC chose for variables behind a mechanism."""
    wrong: dict[type[BlockedStep], list[Variable]] = {}
    for rv, kind in takers.items():
        if rv in hidden and not issubclass(kind, RecordStep):
            wrong.setdefault(kind, []).append(rv)
    if not wrong:
        return
    moved = [rv for found in wrong.values() for rv in found]
    mechanism = hidden[moved[0]]
    if not is_release(mechanism):
        reason = "has a mechanism inside another distribution, where the steps for records do not see it"
        remedy = "declare the mechanism itself, with observed="
        if isinstance(getattr(mechanism.owner, "op", None), CensoredRV):
            remedy += "dp.postprocessed(values, clip=(lower, upper)), which means the same"
    else:
        reason = "is a mechanism without an observed value, so that there is no release to condition on"
        remedy = (
            "give it the published value, observed=, or draw it with pm.sample_prior_predictive, which needs "
            "no steps"
        )
    kinds = " and ".join(kind.__name__ for kind in wrong)
    steps = ", ".join(f"pm.{kind.__name__}({listed(found)})" for kind, found in wrong.items())
    raise ValueError(
        f"{mechanism.name} {reason}: {named(moved)} would be moved by {kinds}, unaware of it. Either {remedy}"
        f"; or, if that is what you mean, name the variables in steps of your own: step=[{steps}]."
    )


def _refuse_options(model: Model, steps: Any, selected: dict[Any, list[Any]], options: Any) -> None:
    """Refuse options of NUTS where steps that PyMC chose leave nothing to it."""
    ours = {
        kind: [model.values_to_rvs[v] for v in values]
        for kind, values in selected.items()
        if values and issubclass(kind, RecordStep)
    }
    has_nuts = selected.get(NUTS) or any(isinstance(s, NUTS) for s in _steps_in(steps))
    if "nuts" not in options or has_nuts or not ours:
        return
    given = options["nuts"]
    moved = " and ".join(f"{kind.__name__} moves {named(rvs)}" for kind, rvs in ours.items())
    left_out = " and ".join(map(str, given)) if isinstance(given, dict) and given else "nuts"
    to_nuts = RecordImputation in ours and any(issubclass(kind, PARAMETER_STEPS) for kind in ours)
    raise ValueError(
        f"{left_out}: options of NUTS, to which no variable is left. {moved}. Leave out {left_out}"
        + (", or give step=[dp.RecordImputation()], which leaves the parameters to NUTS." if to_nuts else ".")
    )


# -- where labels start ---------------------------------------------------------------------------


def _of_slots(make: Callable[..., Any]) -> Callable[..., Any]:
    def make_initial_point_fns_per_chain(*, model: Model, overrides: Any, **kwargs: Any) -> Any:
        check_starting_labels(model, overrides)
        return make(model=model, overrides=overrides, **kwargs)

    return make_initial_point_fns_per_chain


# -- what is said of convergence ------------------------------------------------------------------


def _of_numbers_with_a_meaning(check: Callable[..., Any]) -> Callable[..., Any]:
    def run_convergence_checks(idata: Any, model: Model) -> list[Any]:
        told = check(idata, model)
        of_numbers = [*of_slots(check, idata, model, told), *of_whole_numbers(idata, model)]
        return [*told, *of_numbers, *told_inexact(idata, model), *told_far(idata, model)]

    return run_convergence_checks


# -- how densities and what records draws are compiled --------------------------------------------


@contextmanager
def _compiling_for(model: Model, step: Any = None) -> Iterator[None]:
    """Have functions that are given no mode compiled in one of ours, if it is for a model of ours.

    Sums are added up as they are written there: what the compiler may reorder would depend on whether data
    are constants of the program, and fits of many releases, for which they are none, would differ in last
    digits.
    """
    released = any(hasattr(getattr(rv.owner, "op", None), "guarantee") for rv in model.basic_RVs)
    ours = released or any(isinstance(s, RecordStep) for s in _steps_in(step))
    flags = {"mode": default_mode(), "numba__fastmath": False} if ours else {}
    with flags_lock, pytensor.config.change_flags(**flags):
        yield


def _compiled_alike(init: Callable[..., Any]) -> Callable[..., Any]:
    def init_nuts(*args: Any, model: Model | None = None, **kwargs: Any) -> Any:
        model = modelcontext(model)
        with _compiling_for(model):
            return init(*args, model=model, **kwargs)

    return init_nuts


def _recording(init_traces: Callable[..., Any]) -> Callable[..., Any]:
    def in_a_mode_of_ours(*, model: Model, step: Any, **kwargs: Any) -> Any:
        with _compiling_for(model, step):
            return init_traces(model=model, step=step, **kwargs)

    return in_a_mode_of_ours


# -- what predictive sampling draws anew ----------------------------------------------------------


def _warning(compile_function: Callable[..., Any]) -> Callable[..., Any]:
    def compile_forward_sampling_function(
        outputs: Sequence[Variable], vars_in_trace: Sequence[Variable], *args: Any, **kwargs: Any
    ) -> Any:
        function, anew = compile_function(outputs, vars_in_trace, *args, **kwargs)
        model = kwargs.get("model")
        if vars_in_trace and isinstance(model, BaseModel):  # with none in it, the prior is drawn
            kept, meant = (set(kwargs.get(name) or ()) for name in ("freeze_vars", "volatile_vars"))
            needed = set(ancestors(outputs, blockers=kept))
            _warn_of_redrawn(model, needed & anew - kept - meant)
        return function, anew

    return compile_forward_sampling_function


def _warn_of_redrawn(model: Model, anew: set[Variable]) -> None:
    """Warn where records of a release are drawn from their law, because there are no draws given it."""
    observed = set(model.observed_RVs)
    redrawn = {rv: m for rv, m in behind_mechanisms(model).items() if rv in anew and m in observed}
    if redrawn:
        names = sorted(str(rv.name) for rv in redrawn)
        warnings.warn(
            f"trace has no draws of the records {', '.join(names)}, so they are drawn from their law given "
            f"the parameters, as if {named(set(redrawn.values()))} had not been observed: they are those of "
            "other people. For the people of the release, sample again with var_names left out or with these "
            f"names in it{_or_recovered(model, names)}. If other people are meant, say so: "
            f"sample_vars={names}.",
            UserWarning,
            stacklevel=4,
        )


def _or_recovered(model: Model, names: Sequence[str]) -> str:
    """Say how to draw the records given the release, where that law is known."""
    try:
        removals(model, names, 1e-12)
    except (TypeError, ValueError, NotImplementedError):
        return ""
    return ", or add what dp.recover_records(idata, model) draws to idata.posterior"
