"""Whether the guarantee that is stated of a user's own mechanism is that of its density."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pymc.pytensorf import rvs_in_graph
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.variable import TensorVariable

from pymc_dp.mechanisms._arguments import DECLARING
from pymc_dp.mechanisms._custom_checks import release_shape
from pymc_dp.mechanisms._custom_points import Point, function_at, released_dtype, single_releases
from pymc_dp.mechanisms.mechanism import PreparedQuery
from pymc_dp.privacy.claims import GuaranteeCheck, NoDensity, compare
from pymc_dp.privacy.guarantee import PrivacyGuarantee
from pymc_dp.query.sums import read_sums

_ROUNDING = 1e-5  # relative, of integrals
_ENTRIES, _KINDS = 1 << 15, 1024  # that are looked at and, if each has its own noise, compared at most


def check_settled(op: Any, query: TensorVariable, params: Sequence[TensorVariable]) -> None:
    """Refuse the guarantee of a density that can be changed after it was looked at."""
    value = pt.tensor(dtype=released_dtype(op.dtype), shape=release_shape(op.signature, query))
    density = op.log_density(value, query.type(), *params)
    for v in ancestors([density], blockers=rvs_in_graph([density])):
        if isinstance(v, SharedVariable) and isinstance(v, TensorVariable):
            name = v.name or "a shared variable"
            raise ValueError(
                f"A guarantee is stated of a density that reads {name}, whose value can be set anew, so that "
                "the guarantee would be that of another density. Give logp its present value, which stays: "
                f"{v.name or 'shared'}.get_value()."
            )


def check_guarantee(op: Any, points: list[Point], stated: PrivacyGuarantee, prepared: PreparedQuery) -> None:
    """Compare densities before and after the largest change of the query, where it is known."""
    if not points or prepared.sensitivity is None or op.ndims_params[0] > 0:
        return
    if prepared.width is None and points[0][0].size > 1:
        return
    width = np.asarray(prepared.sensitivity if prepared.width is None else prepared.width, dtype=float)
    ends = None
    if prepared.bounds is not None and read_sums(prepared.query) is None:  # the query is the clamped records
        ends = tuple(np.broadcast_to(np.asarray(end, dtype=float), width.shape) for end in prepared.bounds)
    for point in points[:2]:
        people = _entries_by_person(op, point, stated, width, ends)
    if width.size > 1:
        _check_together(people, stated, width.size)


def _entries_by_person(
    op: Any, point: Point, stated: PrivacyGuarantee, width: np.ndarray, ends: Any
) -> list[list[GuaranteeCheck]]:
    """Compare each entry, changed by its own width; return the comparisons of what a person can change.

    That is all of a sum, or one row of a local query. Entries of equal noise and width are compared once.
    With `ends`, a query is a record between these, which becomes another one: it never leaves them.
    """
    value = pt.vector(dtype=released_dtype(op.dtype))
    density = function_at(op, value, point, op.ndims_params)
    kinds: dict[bytes, GuaranteeCheck] = {}
    people: dict[tuple[int, ...], list[GuaranteeCheck]] = {}
    for i, (query, *others) in itertools.islice(single_releases(op, point), _ENTRIES):
        own = len(i) - width.ndim
        change = width[i[own:]]
        within = [] if ends is None else [end[i[own:]] for end in ends]
        kind = b"".join(p.tobytes() for p in (*others, change, *within))

        def log_density(values: np.ndarray, at: np.ndarray, others: Point = others) -> np.ndarray:
            here = density(values.astype(value.dtype), at.astype(point[0].dtype), *others)
            return np.broadcast_to(here, values.shape)

        if kind not in kinds:
            if len(kinds) == _KINDS:
                break
            pairs = [(query, end) for end in within] + [tuple(within)] if within else []
            try:
                found = compare(log_density, pairs or [(query, query + change)], stated, dtype=value.dtype)
            except NoDensity as error:
                raise NoDensity(
                    f"{str(error).rstrip('.')}. There guarantee= is compared with logp, since sensitivity= "
                    f"or bounds= say that one record changes the query by {change:g}: let logp have a "
                    "density there (as by clipping the query), or leave these out, and give the queries "
                    "yourself to dp.testing.check_guarantee."
                ) from None
            if found.contradicted:
                raise ValueError(
                    f"guarantee = {stated._statements()[0]} is not what logp gives: {found.faults[0]}, "
                    f"which one record can cause by the sensitivity of {change:g}. State what it gives, or "
                    "add more noise."
                )
            kinds[kind] = found
        people.setdefault(i[:own], []).append(kinds[kind])
    return list(people.values())


def _check_together(people: list[list[GuaranteeCheck]], stated: PrivacyGuarantee, entries: int) -> None:
    """Warn where the entries that one record may change together cost more than is stated.

    What independent entries cost adds up. Bounds are of each entry alone, so that they allow such a record;
    but the user may know that there is none.
    """
    epsilon = max(sum(entry.log_ratio for entry in own) for own in people)
    least = "at least " if len(people[0]) < entries else ""
    # there are none where neither rho nor a curve is stated
    spent_at = {
        a: max(sum(entry.divergences.get(a, 0.0) for entry in own) for own in people)
        for a in people[0][0].divergences
    }
    rho = max((divergence / a for a, divergence in spent_at.items()), default=0.0)
    beyond = [a for a, bound in stated.renyi if spent_at.get(a, 0.0) > bound * (1 + _ROUNDING)]
    if stated.is_pure and epsilon > stated.epsilon * (1 + _ROUNDING):
        spent = f"epsilon = {least}{epsilon:g}"
    elif stated.rho is not None and rho > stated.rho * (1 + _ROUNDING):
        spent = f"rho = {least}{rho:g}"
    elif beyond:
        spent = f"a Renyi divergence of order {beyond[-1]:g} of {least}{spent_at[beyond[-1]]:g}"
    else:
        return
    warnings.warn(
        f"guarantee = {stated._statements()[0]} is what logp gives for each entry alone. Under bounds one "
        f"record may change all {entries} entries at once, for which logp gives {spent}: state that. If no "
        "record can, as in counts of categories, give sensitivity= instead of bounds.",
        UserWarning,
        skip_file_prefixes=DECLARING,
    )
