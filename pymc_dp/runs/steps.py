"""The steps that ``pm.sample`` would make for a model, made here so that they outlive one call of it."""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
from pymc.model.core import BaseModel
from pymc.pytensorf import resolve_backend_compile_kwargs
from pymc.sampling import mcmc
from pymc.step_methods import NUTS
from pymc.step_methods.compound import CompoundStep, flatten_steps
from pymc.util import get_random_generator

ARGUMENTS_OF_SAMPLE = frozenset(inspect.signature(pm.sample).parameters) - {"kwargs"}
# Of these, what is said to NUTS where it moves everything.
_OF_NUTS = ("init", "n_init", "jitter_max_retries")


@dataclass(frozen=True)
class Begun:
    """Steps, and where each chain starts.

    Attributes
    ----------
    step : BlockedStep or CompoundStep
    state : DataClassState
        Its state as it was made, which every chain begins with: setting up a chain does not undo all that
        the chain before has learnt (widths of slices, orders of coordinates).
    starts : list of dict
        Values of the model's variables, for each chain.
    generators : list of numpy.random.Generator
        For each chain.
    """

    step: Any
    state: Any
    starts: list[dict[str, np.ndarray]]
    generators: list[np.random.Generator]


def options_of_steps(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return those arguments of ``pm.sample`` that it hands on to steps, by the name of the step."""
    options = {name: value for name, value in arguments.items() if name not in ARGUMENTS_OF_SAMPLE}
    if "target_accept" in options:
        options["nuts"] = {**options.get("nuts", {}), "target_accept": options.pop("target_accept")}
    return options


def chosen(model: BaseModel, given: Any, arguments: dict[str, Any]) -> list[Any] | None:
    """Make the steps of a model, one by one; None where ``pm.sample`` would make NUTS for all variables."""
    provided, selected = mcmc.assign_step_methods(model, given)
    if not provided and list(selected) == [NUTS]:
        return None
    made = mcmc.instantiate_steppers(
        model, steps=provided, selected_steps=selected, step_kwargs=options_of_steps(arguments),
        initial_point=model.initial_point(), compile_kwargs=_compiled(arguments),
    )  # fmt: skip
    return [step for one in (made if isinstance(made, list) else [made]) for step in flatten_steps(one)]


def begun(
    model: BaseModel, given: Any, arguments: dict[str, Any], chains: int, tune: int, seed: int
) -> Begun:
    """Return what ``pm.sample`` begins with, for that seed."""
    generators = get_random_generator(seed).spawn(chains)
    seeds = [int(generator.integers(2**30)) for generator in generators]
    initvals = arguments.get("initvals")
    steps = chosen(model, given, arguments)
    if steps is None:
        options = options_of_steps(arguments).get("nuts", {})
        said = {name: arguments[name] for name in _OF_NUTS if name in arguments}
        starts, step = mcmc.init_nuts(
            chains=chains, model=model, random_seed=seeds, progressbar=False, quiet=True, tune=tune,
            initvals=initvals, compile_kwargs=_compiled(arguments), **said, **options,
        )  # fmt: skip
        return Begun(step, step.sampling_state, starts, generators)
    make: Any = mcmc.make_initial_point_fns_per_chain
    functions = make(model=model, overrides=initvals, jitter_rvs=set(), chains=chains)
    starts = [function(seed) for function, seed in zip(functions, seeds, strict=True)]
    one = steps[0] if len(steps) == 1 else CompoundStep(steps)
    return Begun(one, one.sampling_state, starts, generators)


def unknown(arguments: Sequence[str]) -> list[str]:
    """Return arguments that are none of ``pm.sample`` and no name of a step."""
    from pymc.step_methods import STEP_METHODS

    known = {getattr(method, "name", "") for method in STEP_METHODS} | {"target_accept"} | ARGUMENTS_OF_SAMPLE
    return sorted(set(arguments) - known)


def _compiled(arguments: dict[str, Any]) -> dict[str, Any]:
    return resolve_backend_compile_kwargs(arguments.get("backend"), arguments.get("compile_kwargs"))
