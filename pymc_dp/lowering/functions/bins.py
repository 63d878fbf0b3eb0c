"""Bins of a histogram in scalar code: which one a number is in, draws from them, counts of them."""

from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op

from pymc_dp.lowering.compiling.keys import key_of
from pymc_dp.lowering.compiling.nopython import njit
from pymc_dp.lowering.functions.bits import random
from pymc_dp.upstream.pytensor_private import compile_numba_function_src, register_funcify_and_cache_key

# Spread of draws beyond the edges, as a part of the distance between them.
_TAIL = 0.125


@njit
def bin_of(edges, q):  # type: ignore[no-untyped-def]
    """Return the bin of a number; the outer bins take what is beyond the edges."""
    last = edges.size - 2
    if not q > edges[0]:  # or no number
        return 0
    guess = (q - edges[0]) * ((last + 1) / (edges[last + 1] - edges[0]))
    k = int(min(max(guess, 0.0), float(last)))
    while k > 0 and q < edges[k]:
        k -= 1
    while k < last and q >= edges[k + 1]:
        k += 1
    return k


@njit
def _bin_piece(edges, y):  # type: ignore[no-untyped-def]
    """Return the piece of the line that a value is in, from -1 (below), and the density of draws in it."""
    last = edges.size - 2
    if edges[0] <= y <= edges[last + 1]:
        k = bin_of(edges, y)
        return k, 1.0 / (edges[k + 1] - edges[k])
    spread = _TAIL * (edges[last + 1] - edges[0])
    below = y < edges[0]
    far = spread + (edges[0] - y if below else y - edges[last + 1])
    return (-1 if below else last + 1), spread / (far * far)


@njit
def draw_bin(rng, edges, y):  # type: ignore[no-untyped-def]
    """Draw a value near ``y`` or anywhere: from its own piece of the line, one beside it, or any of them."""
    last = edges.size - 2
    u = random(rng)
    if u < 0.5:
        k = _bin_piece(edges, y)[0]
    elif u < 0.75:
        k = _bin_piece(edges, y)[0] + (1 if u < 0.625 else -1)
        if k < -1 or k > last + 1:
            return np.nan
    else:
        k = int(4.0 * (u - 0.75) * (last + 3)) - 1
    u = random(rng)
    if 0 <= k <= last:
        return edges[k] + (edges[k + 1] - edges[k]) * u
    distance = _TAIL * (edges[last + 1] - edges[0]) * u / (1.0 - u)
    return edges[0] - distance if k < 0 else edges[last + 1] + distance


@njit
def log_preference(edges, y, drawn):  # type: ignore[no-untyped-def]
    """Return the log density of ``y`` drawn from ``drawn`` less that of the reverse."""
    return np.log(_bin_piece(edges, y)[1] / _bin_piece(edges, drawn)[1])


class CountBins(Op):
    """Number of values in each bin: (n,) -> (bins,)."""

    __props__ = ("edges",)

    def __init__(self, edges: tuple[float, ...]):
        self.edges = edges

    def make_node(self, values: Any) -> Apply:
        """Apply it to a vector."""
        values = pt.cast(values, "float64")
        return Apply(self, [values], [pt.vector(dtype="float64", shape=(len(self.edges) - 1,))])

    def perform(self, node: Apply, inputs: Any, outputs: Any) -> None:
        """Refuse: there is no interpreted form."""
        raise NotImplementedError("compiled by numba only")


_COUNT_SOURCE = """
def count_bins(values):
    counts = np.zeros(edges.size - 1)
    for i in range(values.size):
        counts[bin_of(edges, values[i])] += 1.0
    return counts
"""


@register_funcify_and_cache_key(CountBins)
def _funcify_count_bins(op: CountBins, node: Apply, **kwargs: Any) -> tuple[Any, str | None]:
    names = {"bin_of": bin_of, "edges": np.array(op.edges), "np": np, "__name__": __name__}
    count_bins = njit(compile_numba_function_src(_COUNT_SOURCE, "count_bins", names))
    return count_bins, key_of(count_bins)
