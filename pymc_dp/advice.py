"""What ``pm.sample`` says of a model before it samples: which step, or which other model, would do better.

Each function gets the model and which kind of step takes which variable, and logs a sentence or nothing. What
must not be sampled at all is refused in ``hooks.py``, which calls them.
"""

import logging
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from pymc.model.core import Model
from pymc.step_methods import NUTS, HamiltonianMC
from pymc.step_methods.compound import BlockedStep, Competence
from pytensor.graph.basic import Variable

from pymc_dp.marginals.removal import removals, split_up
from pymc_dp.marginals.tabulated import can_be_counted
from pymc_dp.query.recordrules import named
from pymc_dp.query.records import is_release, query_of
from pymc_dp.query.thresholds import behind_thresholds
from pymc_dp.step_methods.ancillary import AncillaryUpdate
from pymc_dp.step_methods.block.parents import ancestors_of_records
from pymc_dp.step_methods.claims import integrates_out, sums_over_few_values
from pymc_dp.step_methods.collapsed import CollapsedUpdate
from pymc_dp.step_methods.conjugate import ConjugateUpdate
from pymc_dp.step_methods.discovery import record_blocks
from pymc_dp.step_methods.record_step import RecordStep

_log = logging.getLogger("pymc.dp")  # below PyMC's own, which prints to the console

# People from which on a table in their place is told of: drawing and keeping them takes some milliseconds.
_MANY = 100_000
# The steps that take parameters behind records by themselves, unless records were given a step.
PARAMETER_STEPS = (CollapsedUpdate, AncillaryUpdate, ConjugateUpdate)


def listed(variables: Iterable[Variable]) -> str:
    """Return names as a list in a program."""
    return f"[{', '.join(str(v.name) for v in variables)}]"


def tell_of_parameters(model: Model, takers: dict[Variable, type[BlockedStep]]) -> None:
    """Say which parameters a step of ours would have taken."""
    preferred: dict[type[BlockedStep], list[Variable]] = {}
    for rv, kind in takers.items():
        if issubclass(kind, RecordStep):
            continue
        able = {k: k.competence(rv, True) for k in PARAMETER_STEPS}  # by the model of this frame
        best = max(able, key=lambda k: able[k])
        if able[best] is not Competence.INCOMPATIBLE:
            preferred.setdefault(best, []).append(rv)
    for best, rvs in preferred.items():
        _log.warning(
            "RecordImputation was given as a step, so %s %s left to %s, which sees the records as fixed. "
            "Expect slow mixing where privacy is strong; dp.%s() beside it, or no step at all, moves "
            "parameters and records together.",
            named(rvs), "is" if len(rvs) == 1 else "are",
            " and ".join(sorted({takers[v].__name__ for v in rvs})), best.__name__,
        )  # fmt: skip


def tell_of_thresholds(model: Model, takers: dict[Variable, type[BlockedStep]]) -> None:
    """Say which parameters are thresholds of a query that a step would move by slopes."""
    blind = {rv for rv, kind in takers.items() if issubclass(kind, NUTS | HamiltonianMC)}
    for release in filter(is_release, model.observed_RVs):
        found = behind_thresholds(query_of(release), model.basic_RVs) & blind
        if found:
            rvs = [rv for rv in model.free_RVs if rv in found]
            _log.info(
                "%s %s compared or rounded in the query of %s, whose density has no slope there: %s follows "
                "that of the prior alone, and is slow. step=[pm.Slice(%s)] needs no slopes, and all other "
                "variables keep the steps that they have by default.",
                named(rvs), "is" if len(rvs) == 1 else "are", release.name,
                " and ".join(sorted({takers[rv].__name__ for rv in rvs})), listed(rvs),
            )  # fmt: skip


def tell_of_few_values(model: Model) -> None:
    """Say which records could be summed out, if that would free what depends on them."""
    for block in record_blocks(model):
        held = bool(ancestors_of_records(model, block) or block.terms)
        if held and sums_over_few_values(model, block) and not integrates_out(model, block):
            with suppress(TypeError, ValueError, NotImplementedError):
                removals(model, block.names, 1e-12)
                _log.info(
                    "%s have few values, which hold parameters where they are: dp.marginalize(model, %s) "
                    "sums them out, and NUTS moves the parameters alone.",
                    ", ".join(block.names),
                    block.names,
                )


def tell_of_tables(model: Model, takers: dict[Variable, type[BlockedStep]]) -> None:
    """Say which categories of many people could be counted into a table."""
    for rv in takers:
        of_people: Any = rv
        n = of_people.type.shape[0] if can_be_counted(of_people) else None
        if n is not None and n >= _MANY:
            with suppress(ValueError):
                tables = split_up(model, [str(rv.name)], 1e-12)[1]
                if tables:
                    _log.info(
                        "%s has a variable for each of %d people, of whom sums are all that one sees. "
                        "pm.sample(model=dp.marginalize(model, [%r])) costs by categories, not by people, "
                        "and mixes well where their probabilities have a Dirichlet law, or the noise is "
                        "small beside the root of their number.",
                        rv.name, n, rv.name,
                    )  # fmt: skip
