"""Points and weights at which the joint law of one record's variables is integrated, in PyTensor.

Each real number is its standard normal score: Gauss-Legendre points between the scores of the places where
what is integrated has a kink or a jump, and exact probabilities of the pieces between them. The points are
functions of the parameters, and so differentiable.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.polynomial.legendre import leggauss
from pymc.pytensorf import constant_fold
from pytensor.graph.basic import Variable
from pytensor.tensor.random.basic import MvNormalRV, NormalRV
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.type_other import NoneConst
from pytensor.tensor.variable import TensorVariable

from pymc_dp.marginals.cells import log_probabilities
from pymc_dp.marginals.groups import NotTogether
from pymc_dp.marginals.quantiles import AS_GRAPHS, chance_below, of_law, quantile
from pymc_dp.query.supports import finite_support
from pymc_dp.upstream.pymc_private import printed_name

# Scores beyond which a normal number is not looked at: 8e-11 of its probability.
_FARTHEST = 6.5
# Least probability of what is below a cut, and above: that of the scores that are not looked at.
_LEAST = 4.1e-11
# Probability that is left out where points are known.
_UNREACHED = 1e-9
# Largest number of points of all groups together.
MOST_POINTS = 300_000
# Most values of one variable that are points of their own.
_MOST_VALUES = 512


@dataclass(frozen=True)
class Cuts:
    """Where what is integrated has kinks in one number of a record.

    Attributes
    ----------
    at : tuple of float
        Places, in ascending order.
    flat : tuple of bool
        Whether it is constant below all places, and above them.
    """

    at: tuple[float, ...] = ()
    flat: tuple[bool, bool] = (False, False)


@dataclass
class Grid:
    """Points of one record's variables, one to a row.

    Attributes
    ----------
    values : dict
        From each variable to its values, shape (points, ...).
    weights : TensorVariable, shape (points,)
        Their probabilities, which add up to 1 in each group.
    group : ndarray of int, shape (points,)
        The public group that each belongs to.
    piece : ndarray of int, shape (points,)
        Within a group: which values of whole numbers each has, and between which cuts its real numbers are.
    places : list of ndarray of int, shape (points, 2)
        For each number: which point each is of those between two cuts, and how many there are.
    """

    values: dict[Variable, Any]
    weights: Any
    group: np.ndarray
    piece: np.ndarray
    places: list[np.ndarray] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Number of points."""
        return len(self.group)

    def spread(self, pieces: Sequence[int]) -> None:
        """Repeat each point, once for each point of some new pieces."""
        count = int(sum(pieces))
        if self.size * count > MOST_POINTS:
            raise NotTogether(
                f"integrating over one record takes more than {MOST_POINTS} points: it has too many numbers, "
                "or there are too many groups of people with public rows of their own"
            )
        self.values = {rv: _repeated(v, self.size, count) for rv, v in self.values.items()}
        self.weights = _repeated(self.weights, self.size, count)
        self.group = np.repeat(self.group, count)
        place = np.concatenate([np.stack([np.arange(k), np.full(k, k)], axis=1) for k in pieces])
        self.places = [np.repeat(known, count, axis=0) for known in self.places]
        self.places.append(np.tile(place, (len(self.piece), 1)))
        own = np.repeat(np.arange(len(pieces)), pieces)
        self.piece = np.repeat(self.piece * len(pieces), count) + np.tile(own, len(self.piece))

    def prune(self) -> None:
        """Leave out points that are hardly ever reached, if no parameter decides on that."""
        known = constant_fold([self.weights, *self.values.values()], raise_not_constant=False)
        if self.group.max(initial=0) > 0 or not all(isinstance(v, np.ndarray) for v in known):
            return
        weights: Any = known[0]
        order = np.argsort(weights)
        kept = np.sort(order[np.cumsum(weights[order]) > _UNREACHED])
        self.weights = pt.constant(weights[kept] / weights[kept].sum())
        self.values = {rv: pt.constant(v[kept]) for rv, v in zip(self.values, known[1:], strict=True)}
        self.group, self.piece = self.group[kept], self.piece[kept]
        self.places = [place[kept] for place in self.places]

    def rules(self) -> np.ndarray:
        """Return of each number and point its rule, the place in it (-1 to 1), and its points."""
        found = np.empty((len(self.places), 3, self.size))
        for k, own in enumerate(self.places):
            others = [place[:, 0] for place in self.places[:k] + self.places[k + 1 :]]
            lines = np.stack([self.group, self.piece, *others], axis=1)
            found[k, 0] = np.unique(lines, axis=0, return_inverse=True)[1].ravel()
            for count in np.unique(own[:, 1]):
                of = own[:, 1] == count
                found[k, 1, of], found[k, 2, of] = leggauss(count)[0][own[of, 0]], count
        return found[found[:, 2].max(axis=1, initial=0) > 1]


def record_grid(
    records: Sequence[TensorVariable],
    cuts: Mapping[tuple[Variable, int], Cuts],
    parameters: Callable[[TensorVariable, Grid], list[TensorVariable]],
    n_groups: int,
    nodes: Mapping[Variable, int],
) -> Grid:
    """Return points for the variables of one record.

    Parameters
    ----------
    records : sequence of TensorVariable, shapes (n,) or (n, k)
        Each after those that its law depends on.
    cuts : mapping
        From a variable and the position of a number in its row to where that number is cut.
    parameters : callable
        The parameters of a variable's law for the points so far, a row for each or none.
    n_groups : int
        Number of groups of people with public rows of their own.
    nodes : mapping
        From each variable of real numbers to how many points there are between two cuts.

    Raises
    ------
    NotTogether
        A law has neither a known quantile function nor few values, or there would be too many points.
    """
    grid = Grid({}, pt.ones(n_groups), np.arange(n_groups), np.zeros(n_groups, dtype=int))
    for record in records:
        width = _width(record)
        params = parameters(record, grid)
        if finite_support(record, _MOST_VALUES) is not None:
            _add_values(grid, record, params)
            continue
        columns: list[TensorVariable] = []
        for j in range(width):
            own = cuts.get((record, j), Cuts())
            coordinate = _mv_normal if isinstance(record.owner.op, MvNormalRV) else _univariate
            columns = coordinate(grid, record, params, columns, own, nodes[record])
            # the parameters, too, belong to points that are now repeated
            params = [_rows_again(p, core, grid) for p, core in zip(params, _cores(record), strict=True)]
        grid.values[record] = columns[0] if record.type.ndim == 1 else pt.stack(columns, axis=1)
        grid.prune()
    return grid


def check_law(record: TensorVariable) -> None:
    """Refuse a law of neither few values nor independent numbers with quantiles."""
    op: Any = record.owner.op
    if finite_support(record, _MOST_VALUES) is not None or isinstance(op, MvNormalRV):
        return
    if not isinstance(op, (RandomVariable, *AS_GRAPHS)) or any(op.ndims_params):
        raise NotTogether(f"the quantile function of {printed_name(op)} records is not known ({record.name})")
    if not record.type.dtype.startswith("float"):
        raise NotTogether(
            f"{record.name} has whole numbers that are not known to be few ({printed_name(op)}), to be "
            "summed over"
        )


def _cores(record: TensorVariable) -> list[int]:
    """Return the number of axes of each parameter that belong to one row."""
    op: Any = record.owner.op
    inner = record.type.ndim - 1 - op.ndim_supp
    return [core + inner for core in op.ndims_params]


def _rows_again(p: TensorVariable, core: int, grid: Grid) -> TensorVariable:
    """Repeat the rows of a parameter, if it has a row for each point."""
    rows = p.type.shape[0] if p.type.ndim > core else 1
    return p if rows in (1, grid.size) else _repeated(p, rows, grid.size // rows)


def _width(record: TensorVariable) -> int:
    if record.type.ndim > 2:
        raise NotTogether(f"{record.name} has several axes in each row")
    if record.type.ndim == 1:
        return 1
    width = record.type.shape[1]
    if width is None:
        raise NotTogether(f"how many numbers {record.name} has in each row may change with data")
    return width


def _repeated(v: Any, rows: int, count: int) -> TensorVariable:
    """Repeat each row; its gradient is a sum over an axis."""
    rest = v.type.shape[1:]
    return pt.broadcast_to(v[:, None], (rows, count, *rest)).reshape((rows * count, *rest))


def _add_values(grid: Grid, record: TensorVariable, params: list[TensorVariable]) -> None:
    """Add a variable with few values: these are the points."""
    support = finite_support(record, _MOST_VALUES)
    assert support is not None
    if record.type.ndim != 1:
        raise NotTogether(
            f"{record.name} has several whole numbers in each row: write them as variables of (n,)"
        )
    rows = grid.size
    law = record.owner.op.make_node(pt.random.shared_rng(seed=None), NoneConst, *params).outputs[1]
    chances = pt.exp(log_probabilities(law, support))
    weights = (grid.weights[:, None] * pt.broadcast_to(chances, (rows, len(support)))).ravel()
    grid.spread([1] * len(support))
    grid.weights = weights
    grid.values[record] = pt.constant(np.tile(support, rows).astype(record.type.dtype))


def _univariate(
    grid: Grid,
    record: TensorVariable,
    params: list[TensorVariable],
    columns: list[TensorVariable],
    cuts: Cuts,
    nodes: int,
) -> list[TensorVariable]:
    """Add one number of a variable whose numbers are independent, given their parameters."""
    op: Any = record.owner.op
    # constants are of shorter types, which do not stand for the numbers of a graph
    own = [pt.cast(_column(p, record, len(columns)), "float64") for p in params]
    if isinstance(op, NormalRV):
        mu, s = own[0], pt.switch(own[1] > 0, own[1], np.nan)
        return _add_scores(grid, columns, cuts, nodes, lambda c: (c - mu) / s, lambda w: mu + s * w)
    try:
        for function in (pm.icdf, pm.logcdf, pm.logp):
            of_law(function, op, own, pt.constant(0.5))
    except NotImplementedError:
        raise NotTogether(
            f"PyMC has no quantile function of {printed_name(op)} records ({record.name})"
        ) from None

    def score(cut: float) -> TensorVariable:
        """Return the normal score of a place."""
        inside = pt.clip(chance_below(op, own, cut), _LEAST, 1 - _LEAST)
        return -np.sqrt(2.0) * pt.erfcinv(2 * inside)

    return _add_scores(grid, columns, cuts, nodes, score, lambda w: quantile(op, own, _normal_cdf(w)))


def _mv_normal(
    grid: Grid,
    record: TensorVariable,
    params: list[TensorVariable],
    columns: list[TensorVariable],
    cuts: Cuts,
    nodes: int,
) -> list[TensorVariable]:
    """Add one number of a multivariate normal variable, given those before it."""
    j = len(columns)
    mu, cov = (p if p.type.ndim > core else p[None] for p, core in zip(params, (1, 2), strict=True))
    root = pt.linalg.cholesky(cov, lower=True)
    before: list[TensorVariable] = []
    mean = mu[:, j]
    for i, column in enumerate(columns):
        at = mu[:, i] + sum(root[:, i, k] * z for k, z in enumerate(before))
        before.append((column - at) / root[:, i, i])
        mean = mean + root[:, j, i] * before[-1]
    s = root[:, j, j][:, None]
    if j < record.type.shape[1] - 1:  # the numbers after it depend on it
        cuts = Cuts(cuts.at)
    mean = mean[:, None]
    return _add_scores(grid, columns, cuts, nodes, lambda c: (c - mean) / s, lambda w: mean + s * w)


def _column(p: TensorVariable, record: TensorVariable, j: int) -> TensorVariable:
    """Return a parameter of one number of each row, shape (points or 1, 1)."""
    if record.type.ndim == 1 or p.type.ndim == 0:
        return p[:, None] if p.type.ndim == 1 else p[None, None]
    if p.type.ndim == 1:
        p = p[None]
    return p[:, 0:1] if p.type.shape[1] == 1 else p[:, j : j + 1]


def _add_scores(
    grid: Grid,
    columns: list[TensorVariable],
    cuts: Cuts,
    nodes: int,
    score: Callable[[Any], TensorVariable],
    value: Callable[[TensorVariable], TensorVariable],
) -> list[TensorVariable]:
    """Add a number by its normal scores: points between cuts, with the exact probability of each piece."""
    rows = grid.size
    ends, reached = [pt.constant([[-_FARTHEST]])], [pt.constant([[0.0]])]
    for cut in cuts.at:
        at = pt.clip(score(cut), -_FARTHEST, _FARTHEST)
        ends.append(at)
        reached.append(_normal_cdf(at))
    ends.append(pt.constant([[_FARTHEST]]))
    reached.append(pt.constant([[1.0]]))
    scores, chances = [], []
    for k, (lo, hi) in enumerate(pairwise(ends)):
        chance = reached[k + 1] - reached[k]
        place, share = leggauss(_count(chance, cuts, k, nodes))
        w = 0.5 * (lo + hi) + 0.5 * (hi - lo) * place
        # relative to the score of the piece that is next to 0, since densities far out would be 0
        near = pt.clip(0.0, lo, hi)
        density = share * pt.exp(0.5 * (near * near - w * w))
        scores.append(_rows(w, rows))
        chances.append(_rows(chance * density / density.sum(axis=1, keepdims=True), rows))
    w, chance = pt.concatenate(scores, axis=1), pt.concatenate(chances, axis=1)
    count = w.type.shape[1]
    points = pt.broadcast_to(value(w), (rows, count)).ravel()
    weights = (grid.weights[:, None] * chance).ravel()
    grid.spread([int(part.type.shape[1]) for part in scores])
    grid.weights = weights
    return [*(_repeated(c, rows, count) for c in columns), points]


def _count(chance: TensorVariable, cuts: Cuts, piece: int, nodes: int) -> int:
    """Return how many points a piece has: one if all is flat there, few if its chance is small."""
    if cuts.at and ((piece == 0 and cuts.flat[0]) or (piece == len(cuts.at) and cuts.flat[1])):
        return 1
    (known,) = constant_fold([chance], raise_not_constant=False)
    largest = float(np.max(known)) if isinstance(known, np.ndarray) else 1.0
    return next(
        count for least, count in ((1e-3, nodes), (1e-6, -(-nodes // 3)), (0.0, 2)) if largest >= least
    )


def _rows(v: TensorVariable, rows: int) -> TensorVariable:
    """Return a row for each point so far."""
    return pt.broadcast_to(v, (rows, v.type.shape[1]))


def _normal_cdf(w: TensorVariable) -> TensorVariable:
    return 0.5 * pt.erfc(-w / np.sqrt(2.0))
