"""Slots for an unknown number of people: whether there are enough of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from pymc.model.core import Model

from pymc_dp.query.records import RecordBlock
from pymc_dp.query.supports import ends_of_support


def check_slots(model: Model, block: RecordBlock, point: dict[str, Any]) -> None:
    """Refuse slots that are too few for the starting value, or for a prior that ends beyond them.

    A prior without an end is taken: a chain that reaches more people than slots is stopped by
    :func:`refuse_beyond`.
    """
    if block.count is None:
        return
    name = str(block.count.name)
    value = str(model.rvs_to_values[model[name]].name)
    if value not in point:  # observed
        refuse_beyond(model, block, point)
        return

    ends = ends_of_support(model[name])
    if ends is not None and block.n < ends[1] < np.inf:
        raise ValueError(
            f"The prior of {block.count.name} allows more people than the {block.n} slots of "
            f"{', '.join(block.names)}, which would be in no sum. Give them as many rows as there can be "
            f"people (shape=), or let the prior end at {block.n}: {_remedy(block)}."
        )
    refuse_beyond(model, block, point)


def refuse_beyond(model: Model, block: RecordBlock, point: dict[str, Any]) -> None:
    """Refuse a point with more people than slots: their sums leave some people out."""
    if block.count is None:
        return
    value = model.rvs_to_values[model[str(block.count.name)]]
    number = point.get(str(value.name), getattr(value, "data", None))
    if number is not None and number > block.n:
        raise ValueError(
            f"{block.count.name} is {int(number)}, more people than the {block.n} slots of "
            f"{', '.join(block.names)}. Give them more rows (shape=): several posterior standard deviations "
            f"of {block.count.name} more than its mean. Or let its prior end at {block.n}, if you know that "
            f"there are no more: {_remedy(block)}; a starting value (initval=) is at most {block.n}."
        )


def _remedy(block: RecordBlock) -> str:
    name = block.count.name  # type: ignore[union-attr]
    return f"pm.Truncated({name!r}, pm.Poisson.dist(...), upper={block.n})"
