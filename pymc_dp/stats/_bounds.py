"""The lower bound of the acceptance of records that follows from the guarantees of their releases."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pymc_dp.query.records import RecordBlock
from pymc_dp.query.tables import Tables

# The reason why there is no bound for the records of a mixture.
_MIXED = "they are moved with their labels, and the minimum is of the shares accepted in a draw"

_COUNTED = "it is a table of counts, and the minimum is of the shares of its moves that a draw made"


@dataclass(frozen=True)
class RecordBound:
    """Lower bound of the acceptance of records that are updated together.

    Attributes
    ----------
    records : tuple of str
        Names of the record variables.
    n : int
        Number of records.
    releases : tuple of str
        Names of the releases that contain them.
    epsilon : float
        Sum of the releases' budgets for replace-one neighbours, in nats; nan when one of them is
        not known or not pure.
    bound : float
        exp(-epsilon) where this bound holds, otherwise nan.
    reason : str
        The reason why there is no bound; empty where there is one.
    stated : tuple of str
        Those of the releases whose budget was stated by the user, not proven; the bound rests on it.
    """

    records: tuple[str, ...]
    n: int
    releases: tuple[str, ...]
    epsilon: float
    bound: float
    reason: str
    stated: tuple[str, ...] = ()


def bound_of(block: RecordBlock, proposals: str, mixed: bool) -> RecordBound:
    """Return the bound for the records of a block, of a mixture or not, that are proposed in some way."""
    guarantees = [getattr(r.rv.owner.op, "guarantee", None) for r in block.releases]  # type: ignore[union-attr]
    pure = all(g is not None and g.is_pure for g in guarantees)
    epsilon = (
        sum(g.epsilon * (2 if g.neighbours == "add-remove" else 1) for g in guarantees)  # type: ignore[union-attr]
        if pure
        else math.nan
    )
    reason = _MIXED if mixed else _why_not(block, guarantees, proposals)
    return RecordBound(
        records=tuple(block.names),
        n=block.n,
        releases=tuple(r.name for r in block.releases),
        epsilon=epsilon,
        bound=math.nan if reason else math.exp(-epsilon),
        reason=reason,
        stated=tuple(r.name for r, g in zip(block.releases, guarantees, strict=True) if g and g.stated),
    )


def _why_not(block: RecordBlock, guarantees: list, proposals: str) -> str:
    """Say which condition of the bound fails; return an empty string if none does."""
    for release, guarantee in zip(block.releases, guarantees, strict=True):
        if guarantee is None:
            return f"the guarantee of {release.name} is not known"
        if not guarantee.is_pure:
            return f"{release.name} does not promise pure privacy"
    others = [str(v.name) for v in (*block.terms, *block.potentials)]
    if others:
        return f"{', '.join(others)} depends on the records too"
    # This is the choice of proposals that RecordImputation makes, inferred from the model alone.
    may_look = len(block.records) == 1 and any(
        r.kind == "local" or getattr(r.rv.owner.op, "cells", None) is not None  # type: ignore[union-attr]
        for r in block.releases
    )
    if proposals == "informed" or (proposals == "auto" and may_look):
        return "the proposals look at the release instead of following the records' own law"
    return ""


def bound_of_table(tables: Tables) -> RecordBound:
    """Return that there is no bound for a table of counts."""
    return RecordBound(
        records=tuple(tables.names),
        n=tables.n_cells,
        releases=tuple(str(known.rv.name) for known in tables.releases),
        epsilon=math.nan,
        bound=math.nan,
        reason=_COUNTED,
    )
