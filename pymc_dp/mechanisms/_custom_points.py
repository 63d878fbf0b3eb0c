"""Where a density of the user's is looked at: queries that the model can have, one release at a time."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pymc.logprob.utils import ParameterValueError
from pymc.pytensorf import rvs_in_graph
from pytensor.compile.mode import Mode
from pytensor.tensor.variable import TensorVariable

from pymc_dp.privacy.claims import NoDensity

_DRAWS = 8  # of the query from its prior
PYTHON = Mode(linker="py", optimizer="fast_compile")

type Point = list[np.ndarray]


def released_dtype(dtype: str) -> str:
    """Return the dtype of a release, as PyTensor's configuration has it."""
    return pytensor.config.floatX if dtype == "floatX" else dtype


def points_of(graphs: list[TensorVariable]) -> list[Point]:
    """Return values of the query and the parameters: what they are, or draws from the prior."""
    if not rvs_in_graph(graphs):
        return [[np.asarray(v) for v in pytensor.function([], graphs, mode=PYTHON)()]]
    drawn = pm.draw(graphs, draws=_DRAWS, random_seed=0, mode=PYTHON)
    return [list(each) for each in zip(*map(np.asarray, drawn), strict=True)]


def function_at(op: Any, value: TensorVariable, point: Point, axes: Sequence[int]) -> Callable[..., Any]:
    """Return the log density as a function of values, and of a query and parameters of so many axes."""
    inputs = [pt.tensor(dtype=p.dtype, shape=(None,) * k) for p, k in zip(point, axes, strict=True)]
    compiled = pytensor.function([value, *inputs], op.log_density(value, *inputs), mode=PYTHON)

    def evaluated(*args: Any) -> np.ndarray:
        try:
            with np.errstate(all="ignore"):
                return np.asarray(compiled(*args))
        except ParameterValueError as error:
            raise NoDensity(
                f"logp has no density for the query {short(args[1])} ({str(error).splitlines()[0]})"
            ) from None

    return evaluated


def different_queries(op: Any, points: list[Point], most: int = 4) -> list[Point]:
    """Return queries and parameters of single releases, with different queries."""
    found: dict[bytes, Point] = {}
    for point in points:
        for _, single in itertools.islice(single_releases(op, point), 2):
            found.setdefault(single[0].tobytes(), single)
    return list(found.values())[:most]


def single_releases(op: Any, point: Point) -> Iterator[tuple[tuple[int, ...], Point]]:
    """Go through the releases that are drawn independently: the index, query and parameters of each."""
    cores = [p.shape[p.ndim - k :] for p, k in zip(point, op.ndims_params, strict=True)]
    batch = np.broadcast_shapes(*(p.shape[: p.ndim - k] for p, k in zip(point, op.ndims_params)))
    rows = [np.broadcast_to(p, (*batch, *core)) for p, core in zip(point, cores, strict=True)]
    for i in np.ndindex(*batch):
        yield i, [np.asarray(r[i]) for r in rows]


def short(what: Any) -> str:
    """Return numbers in a few characters."""
    return np.array2string(np.asarray(what), precision=6, threshold=8)
