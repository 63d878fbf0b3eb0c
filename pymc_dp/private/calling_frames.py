"""What a step reads from the calling frames: here and nowhere else, since PyMC tells a step of no run.

``step.setup_chain(rng, tune, draws)`` is all that a step is told. Needed would be a public hook that is
called once for each ``pm.sample``, in the process that calls it, with the number of chains and all steps, or
a name of the run that ``setup_chain`` is given. Without it, three things are read:

* **Which call of pm.sample a chain belongs to**: ``t_start``, a local variable of ``pm.sample``, in the
  calling frames of this process or, in a fork, of the one that was forked. Steps without a ledger cannot do
  without: they are for one call, since nothing adds up the cost of two. In worker processes that were spawned
  no such frame exists, and chains are of one call if their steps come from one pickle. A chain that PyMC
  begins in any other way is *refused* before anything is released; a ledger needs nothing of this, and is
  the remedy. A chain begun by hand, without PyMC, is a run of its own.
* How many chains were asked for: ``chains``, an argument of ``pm.sample``.
* Which other steps move in the run: the first argument of ``CompoundStep.setup_chain``.

The last two refuse a run earlier, with nothing claimed, that does not get far in any case. If they are not
found, the ledger refuses the chains beyond its plan, a step refuses to go on where another one has moved its
parameters, and a copy of a step has no share to release anything from.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any

import numpy as np
import pymc
from pymc.step_methods.compound import CompoundStep
from pymc.step_methods.metropolis import DEMetropolis

# pm.sample, the variable that says when it began, and the argument that says how many chains it makes.
SAMPLE, BEGAN, CHAINS = ("pymc.sampling.mcmc", "sample"), "t_start", "chains"
# Where chains of spawned workers begin.
WORKERS = "pymc.sampling.parallel"


def refuse(step: Any) -> None:
    """Refuse a run in which another step moves the same parameters, or whose chains are not sampled alone.

    Raises
    ------
    ValueError
    """
    for frame in _frames():
        if frame.f_code is not CompoundStep.setup_chain.__code__:
            continue
        whole = frame.f_locals[frame.f_code.co_varnames[0]]
        others = [other for other in whole.methods if other is not step]
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
    """Return the chains that the ``pm.sample`` around this call was asked for, where that can be seen."""
    frame = _frame_of_sample()
    chains = None if frame is None else frame.f_locals.get(CHAINS)
    return int(chains) if isinstance(chains, int | np.integer) else None


def run_of(step: Any) -> str:
    """Return what all chains of one call of ``pm.sample`` have in common, in whatever process they run.

    Raises
    ------
    RuntimeError
        If PyMC begins the chain, and does not show of which call it is.
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
