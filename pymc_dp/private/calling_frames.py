"""What a step reads from the calling frames, because PyMC does not tell a step which run it is part of.

A step learns of a chain only by ``step.setup_chain(rng, tune, draws)``. What is missing in PyMC is a public
hook that each ``pm.sample`` calls once, in its own process, with the number of chains and all steps; or a
name of the run as an argument of ``setup_chain``. Without it, this module, and no other, reads three things
from the frames:

* **Which call of pm.sample a chain belongs to**: ``t_start``, a local variable of ``pm.sample``, in the
  calling frames of this process or, in a fork, of the process that was forked. Steps without a ledger need
  it, because they are for one call only: nothing would add up the cost of two. Worker processes that were
  spawned have no such frame; there, chains belong to one call if their steps come from one pickle. If PyMC
  begins a chain in any other way, it is *refused* before anything is released; the remedy is a ledger, which
  needs none of this. A chain that is begun by hand, without PyMC, is a run of its own.
* How many chains were asked for: ``chains``, an argument of ``pm.sample``.
* Which other steps move in the run: the first argument of ``CompoundStep.setup_chain``.

The last two only refuse a bad run earlier, before anything is claimed; such a run would fail later anyway. If
they are not found, the ledger refuses the chains beyond its plan, a step refuses to go on where another step
has moved its parameters, and a copy of a step has no share of the budget to release anything from.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any

import numpy as np
import pymc
from pymc.step_methods.compound import CompoundStep, flatten_steps
from pymc.step_methods.metropolis import DEMetropolis

# pm.sample, its local variable with the time when it began, and its argument with the number of chains.
SAMPLE, BEGAN, CHAINS = ("pymc.sampling.mcmc", "sample"), "t_start", "chains"
# The module in which chains of spawned workers begin.
WORKERS = "pymc.sampling.parallel"


def refuse(step: Any) -> None:
    """Refuse a run in which another step moves the same parameters, or samples all chains together.

    Raises
    ------
    ValueError
    """
    for frame in _frames():
        if frame.f_code is not CompoundStep.setup_chain.__code__:
            continue
        whole = frame.f_locals[frame.f_code.co_varnames[0]]
        others = flatten_steps(whole)
        if step in others:
            others.remove(step)  # once: the same step given twice moves, and spends, twice
        shared = _shared(step, others)
        if shared:
            raise ValueError(
                f"{', '.join(shared)}: sampled by two steps of this run, each of which would spend "
                "budget on it. Nothing was spent: leave one of them out."
            )
        if any(isinstance(other, DEMetropolis) for other in others):
            raise ValueError(
                "DEMetropolis samples all chains together, and hands copies of the steps from process to "
                "process, where a private step has no noise. Nothing was spent: use DEMetropolisZ or another "
                "step for the public variables."
            )


def _shared(step: Any, others: Sequence[Any]) -> list[str]:
    return sorted({str(v.name) for other in others for v in other.vars if v in step.vars})


def chains_asked_for() -> int | None:
    """Return how many chains the calling ``pm.sample`` was asked for, or None if that cannot be seen."""
    frame = _frame_of_sample()
    chains = None if frame is None else frame.f_locals.get(CHAINS)
    return int(chains) if isinstance(chains, int | np.integer) else None


def run_of(step: Any) -> str:
    """Return a name that the chains of one call of ``pm.sample`` share, in whatever process they run.

    Raises
    ------
    RuntimeError
        If PyMC begins the chain, and the frames do not show to which call it belongs.
    """
    frame = _frame_of_sample()
    if frame is None:
        rooms = {_module(frame) for frame in _frames() if _module(frame).split(".")[0] == "pymc"}
        if not rooms:
            return secrets.token_hex(8)
        pickle = getattr(step, "_pickled_as", None)
        if WORKERS in rooms and SAMPLE[0] not in rooms and pickle is not None:
            return str(pickle)
        missing = f"{'.'.join(SAMPLE)} is not among its callers"
    else:
        began = frame.f_locals.get(BEGAN)
        if isinstance(began, float):
            return repr(began)
        missing = f"{'.'.join(SAMPLE)} has no variable {BEGAN} that is a time"
    raise RuntimeError(
        f"{type(step).__name__} without a ledger is for one call of pm.sample, and PyMC {pymc.__version__} "
        f"does not show of which call a chain is: {missing}. Nothing was spent: give the step ledger= with "
        "the plan draws=, tune= and chains=, which needs none of that."
    )


def _frames() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        yield frame
        frame = frame.f_back


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _frame_of_sample() -> FrameType | None:
    for frame in _frames():
        if frame.f_code.co_name == SAMPLE[1] and _module(frame) == SAMPLE[0]:
            return frame
    return None
