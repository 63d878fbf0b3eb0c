"""Which parameters move apart from others, too, given the noise of records.

Whole-numbered records jump where their parameters move by little, so that the density given the noise is
rough in these: steps of all parameters at once would have to be as short as the roughest of them takes.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from pymc.model.core import Model
from pytensor.graph.basic import Variable

from pymc_dp.query.records import parameters_of
from pymc_dp.query.rowlocal import leaves_of

# Parts beside those of whole numbers, each of which is one.
_SMOOTH, _ROUGH = 0, 1


def parts_of(
    model: Model,
    records: Iterable[Variable],
    moving: Sequence[Variable],
    real: Iterable[Variable],
    lengths: Sequence[int],
) -> np.ndarray:
    """Return the part of each number that moves; none if all would be in one.

    Parameters
    ----------
    model : pymc.Model
    records : iterable of Variable
        Variables that move with the parameters given their noise.
    moving : sequence of Variable
        Parameters that move.
    real : iterable of Variable
        Those that are no whole numbers.
    lengths : sequence of int
        How many numbers each parameter has.

    Returns
    -------
    ndarray of int, shape (sum(lengths),) or (0,)
        Real parameters in the law of a whole-numbered record are a part, the other real ones another, and
        each whole number is one of its own. Without the first there are no parts.
    """
    variables, reals = set(model.basic_RVs), set(real)
    jumping = [rv for rv in records if not rv.type.dtype.startswith("float")]  # type: ignore[attr-defined]
    rough = set(leaves_of([p for rv in jumping for p in parameters_of(rv)], variables)) & reals
    if not rough or rough.issuperset(moving):
        return np.zeros(0, np.intp)
    found, whole = [], _ROUGH
    for rv in moving:
        whole += rv not in reals
        found.append(whole if rv not in reals else _ROUGH if rv in rough else _SMOOTH)
    # numbered without gaps
    return np.repeat(np.unique(found, return_inverse=True)[1], lengths).astype(np.intp)
