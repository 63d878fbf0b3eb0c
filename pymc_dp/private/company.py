"""What a step can know of the run around it: PyMC tells it little, but the calling frames do."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from pymc.step_methods.compound import CompoundStep
from pymc.step_methods.metropolis import DEMetropolis


def refuse(step: Any) -> None:
    """Refuse a run in which another step moves the same parameters, or whose chains are not sampled alone.

    Raises
    ------
    ValueError
    """
    for frame in _frames():
        whole = frame.f_locals.get("self")
        if not isinstance(whole, CompoundStep):
            continue
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
    """Return the chains that the ``pm.sample`` around this call was asked for; PyMC tells no step."""
    frame = _frame_of_sample()
    chains = None if frame is None else frame.f_locals.get("chains")
    return int(chains) if isinstance(chains, int | np.integer) else None


def run_of(step: Any) -> str:
    """Return what all chains of one call of ``pm.sample`` have in common, in whatever process they run.

    In one process, and in forked ones, that is when the call began; in others, from which pickle the step
    came, of which ``pm.sample`` makes one for all chains. Any other chain is a run of its own.
    """
    frame = _frame_of_sample()
    began = None if frame is None else frame.f_locals.get("t_start")
    if began is not None:
        return repr(began)
    return getattr(step, "_pickled_as", None) or secrets.token_hex(8)


def _frames() -> Any:
    frame: Any = sys._getframe(2)
    while frame is not None:
        yield frame
        frame = frame.f_back


def _frame_of_sample() -> Any:
    for frame in _frames():
        if frame.f_code.co_name == "sample" and frame.f_globals.get("__name__") == "pymc.sampling.mcmc":
            return frame
    return None
