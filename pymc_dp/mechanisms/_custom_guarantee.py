"""Whether the guarantee that is stated of a user's own mechanism is that of its density."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pymc.pytensorf import rvs_in_graph
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.variable import TensorVariable

from pymc_dp.mechanisms._custom_checks import (
    Point,
    function_at,
    release_shape,
    released_dtype,
    single_releases,
)
from pymc_dp.mechanisms.mechanism import PreparedQuery
from pymc_dp.privacy.claims import compare
from pymc_dp.privacy.guarantee import PrivacyGuarantee


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
    """Compare densities of one entry before and after the largest change of the query, where it is known."""
    if not points or prepared.sensitivity is None or op.ndims_params[0] > 0:
        return
    query = points[0][0]
    per_entry = prepared.width is not None or query.size == 1
    if not per_entry:
        return
    value = pt.vector(dtype=released_dtype(op.dtype))
    width = np.max(prepared.sensitivity if prepared.width is None else prepared.width)
    density = function_at(op, value, points[0], [0] * len(points[0]))
    for single in single_releases(op, points, most=2):
        pairs = [(single[0], single[0] + width)]

        def log_density(values: np.ndarray, at: np.ndarray, single: Point = single) -> np.ndarray:
            found = density(values.astype(value.dtype), np.asarray(at, dtype=single[0].dtype), *single[1:])
            return np.broadcast_to(found, values.shape)

        found = compare(log_density, pairs, stated, dtype=value.dtype)
        if found.contradicted:
            raise ValueError(
                f"guarantee = {stated._statements()[0]} is not what logp gives: {found.faults[0]}, which one "
                f"record can cause by the sensitivity of {width:g}. State what it gives, or add more noise."
            )
