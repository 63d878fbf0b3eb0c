"""The form of the contract table: what a row says of a mechanism, and how to read it.

A row describes one mechanism with one way of giving its noise level. Files ``rows_*.py`` beside this one
each hold a list ``ROWS``; the tests run over all of them (``table.py`` collects them).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import scipy.stats as st
from pytensor.graph.replace import vectorize_graph

from pymc_dp.mechanisms import Mechanism
from pymc_dp.privacy import PrivacyGuarantee

Rule = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True, eq=False)
class Imputation:
    """A small model of records behind a release, whose posterior can be enumerated.

    `query` turns the vector of records (symbolic, or an array of data) into the mechanism's query; it
    is called as query(x). The records have independent laws: Binomial(top, 0.4) on 0, ..., top, or for
    ``top=None`` Normal(0.4, 0.5). `observed` is the release. `rows_apart` says that row i of the
    release is drawn from record i alone (a local release), so that each record can be enumerated on
    its own. `honest` says that the records keep the sensitivity that `noise` states, without which
    nothing is promised. `noise` replaces some of the row's.
    """

    query: Callable[[Any], Any]
    observed: Any
    n: int = 2
    top: int | None = 3
    rows_apart: bool = False
    honest: bool = True
    noise: dict[str, Any] = field(default_factory=dict)

    def prior(self, p: Any = 0.4) -> Any:
        """Declare the records in the model of the context."""
        if self.top is None:
            return pm.Normal("x", 0.4, 0.5, shape=self.n)
        return pm.Binomial("x", self.top, p, shape=self.n)

    def data(self) -> np.ndarray:
        """Records to release."""
        if self.top is None:
            return np.linspace(0.1, 0.8, self.n)
        return np.arange(self.n) % (self.top + 1)

    def points(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Values that a record is enumerated at, their weights, and the cell that each is counted in."""
        if self.top is not None:
            x = np.arange(self.top + 1)
            return x, st.binom.pmf(x, self.top, 0.4), x
        size = 4000 if self.rows_apart else 200
        u = (np.arange(size) + 0.5) / size  # equally probable
        return st.norm.ppf(u, 0.4, 0.5), np.full(size, 1 / size), np.floor(8 * u).astype(int)


@dataclass(frozen=True, eq=False)
class Row:
    """One mechanism with one way of giving its noise level.

    Attributes
    ----------
    mechanism, noise
        The mechanism, and the keyword arguments of its noise level and settings.
    promise
        What that must promise.
    native
        The keyword arguments that give the same noise as a level instead of a budget.
    neighbours
        Pairs of queries computed from neighbouring data, the worst pair first. For a mechanism of
        rows (``batch``), of one row.
    rule
        Releases (N, *shape) and weights (N,) that integrate (or sum, over all possible releases) any
        function that matters: sum_i w_i g(z_i) is the integral of g. See :func:`line` and
        :func:`lattice`.
    law
        (query, values) -> log densities, by a formula that owes nothing to the mechanism's own code.
    discrete
        Whether the rule lists all possible releases (but for negligible ones).
    batch
        Whether a query of N rows is N independent releases of one row each.
    tight
        Whether less noise would break the promise.
    far
        Releases far from the query at which the log density must be finite.
    impossible
        Releases of density zero.
    extremes
        Other noise arguments under which all log densities must stay finite, too.
    slack
        Relative error of sums over the rule.
    imputations
        Models whose posterior is enumerated; also used for releasing and declaring again.
    arguments
        From a query to the mechanism's positional arguments, where they are several.
    bad, bad_observed, bad_query
        Bad input by name: (keyword arguments | observed | query), error, message. The keyword
        arguments replace `noise`; `observed` stands in the first imputation.
    """

    mechanism: type[Mechanism]
    noise: dict[str, Any]
    promise: PrivacyGuarantee
    native: dict[str, Any]
    neighbours: Sequence[tuple[Any, Any]]
    rule: Callable[[], Rule]
    law: Callable[[Any, np.ndarray], np.ndarray] | None = None
    discrete: bool = False
    batch: bool = True
    tight: bool = True
    far: Sequence[Any] = ()
    impossible: Sequence[Any] = ()
    extremes: Sequence[dict[str, Any]] = ()
    slack: float = 1e-6
    imputations: Sequence[Imputation] = ()
    arguments: Callable[[Any], tuple] = lambda query: (query,)
    bad: dict[str, tuple[dict[str, Any], type[Exception], str]] = field(default_factory=dict)
    bad_observed: dict[str, tuple[Any, type[Exception], str]] = field(default_factory=dict)
    bad_query: dict[str, tuple[Any, type[Exception], str]] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.mechanism.__name__}-{'-'.join(self.noise)}"

    @property
    def query(self) -> np.ndarray:
        return np.asarray(self.neighbours[0][0])

    @cached_property
    def points(self) -> Rule:
        values, weights = self.rule()
        return np.asarray(values), np.broadcast_to(weights, len(values))

    def rows_of(self, query: Any, n: int) -> np.ndarray:
        """The query of n releases, where one query can hold several."""
        query = np.asarray(query)
        return np.broadcast_to(query, (n, *query.shape)).copy() if self.batch else query

    def declare(self, query: Any, **noise: Any) -> Any:
        return self.declare_with(query, noise or self.noise)

    def declare_with(self, query: Any, noise: dict[str, Any]) -> Any:
        return self.mechanism.dist(*self.arguments(query), **noise)

    def release(self, query: Any, **noise: Any) -> Any:
        return self.mechanism.release(*self.arguments(query), **(noise or self.noise))

    def model(self, imputation: Imputation, observed: Any, *, p: Any = 0.4, **noise: Any) -> pm.Model:
        """The imputation's model, its release z declared with these arguments."""
        with pm.Model() as model:
            p = p() if callable(p) else p
            query = imputation.query(imputation.prior(p))
            self.mechanism("z", *self.arguments(query), observed=observed, **noise)
        return model

    def log_density(self, values: Any, query: Any, **noise: Any) -> np.ndarray:
        """Log density of many releases (N, *shape) of one query."""
        values = np.asarray(values, dtype=float)
        release = self.declare(pytensor.shared(self.rows_of(query, len(values))), **noise)
        value = pt.tensor("value", dtype="float64", shape=(None,) * release.type.ndim)
        logp = pm.logp(release, value)
        if self.batch:
            assert logp.ndim == 1, "a batch has one density per row"
            return pytensor.function([value], logp, mode="FAST_COMPILE")(values)
        many = pt.tensor("many", dtype="float64", shape=(None,) * (release.type.ndim + 1))
        logps = vectorize_graph(logp.sum(), {value: many})
        return pytensor.function([many], logps, mode="FAST_COMPILE")(values)

    def draws(self, query: Any, n: int, seed: int = 1) -> np.ndarray:
        """Simulated releases (n, *shape)."""
        if self.batch:
            return pm.draw(self.declare(self.rows_of(query, n)), random_seed=seed)
        return pm.draw(self.declare(np.asarray(query)), draws=n, random_seed=seed)

    def published(self, query: Any, n: int) -> np.ndarray:
        """Releases (n, *shape) as a custodian draws them."""
        if self.batch:
            return self.release(self.rows_of(query, n)).value
        return np.stack([self.release(np.asarray(query)).value for _ in range(n)])


def line(lo: float, hi: float, n: int = 100_001, shape: tuple[int, ...] = ()) -> Rule:
    """Trapezoidal rule on an interval, for releases of one number."""
    grid = np.linspace(lo, hi, n)
    weights = np.full(n, grid[1] - grid[0])
    weights[[0, -1]] /= 2
    return grid.reshape(n, *shape), weights


def panels(edges: Sequence[float], order: int = 8) -> Rule:
    """Gauss-Legendre points between neighbouring edges, which are where a density may have kinks."""
    node, weight = np.polynomial.legendre.leggauss(order)
    edges = np.unique(np.asarray(edges, dtype=float))
    half = 0.5 * np.diff(edges)[:, None]
    return (0.5 * (edges[1:] + edges[:-1])[:, None] + half * node).ravel(), (half * weight).ravel()


def midpoints(edges: Sequence[float]) -> Rule:
    """One point per piece, for densities of one number that are constant on each."""
    edges = np.asarray(edges, dtype=float)
    return 0.5 * (edges[1:] + edges[:-1]), np.diff(edges)


def lattice(*axes: Any) -> Rule:
    """All combinations of the given values; a single axis stands for releases of one number."""
    if len(axes) == 1:
        return np.asarray(axes[0]), np.array(1.0)
    return np.array(list(product(*axes))), np.array(1.0)


def combined(*rules: Rule) -> Rule:
    """Product of rules of one number each, for releases that are vectors."""
    grids = np.meshgrid(*(v for v, _ in rules), indexing="ij")
    weights = np.meshgrid(*(np.broadcast_to(w, len(v)) for v, w in rules), indexing="ij")
    return np.stack([g.ravel() for g in grids], axis=-1), np.prod([w.ravel() for w in weights], axis=0)


def goodness_of_fit(row: Row, draws: np.ndarray, query: Any) -> float:
    """p-value of draws under the row's own density: chi-square, or Kolmogorov-Smirnov per coordinate."""
    values, weights = row.points
    mass = weights * np.exp(row.log_density(values, query))
    assert draws.shape[1:] == values.shape[1:]
    if row.discrete:
        return chi_square(draws, values, mass)
    flat, points = draws.reshape(len(draws), -1), values.reshape(len(values), -1)
    sums = [(flat.sum(1), points.sum(1))] if flat.shape[1] > 1 else []
    columns = [(flat[:, j], points[:, j]) for j in range(flat.shape[1])] + sums
    p = [_kolmogorov(seen, at, mass) for seen, at in columns]
    return min(min(p) * len(p), 1.0)


def _kolmogorov(seen: np.ndarray, at: np.ndarray, mass: np.ndarray) -> float:
    grid, where = np.unique(np.round(at, 12), return_inverse=True)
    at_grid = np.bincount(where, weights=mass)
    edges = np.concatenate([grid[:1], 0.5 * (grid[1:] + grid[:-1]), grid[-1:]])
    cdf = np.concatenate([[0.0], np.cumsum(at_grid)])
    return st.kstest(seen, lambda x: np.interp(x, edges, cdf)).pvalue


def chi_square(draws: np.ndarray, values: np.ndarray, mass: np.ndarray) -> float:
    """Chi-square of draws among listed values; those with fewer than 8 expected are put together."""
    index = {tuple(np.ravel(v)): i for i, v in enumerate(values)}
    counts = np.zeros(len(values) + 1)
    for draw in draws:
        counts[index.get(tuple(np.ravel(draw)), -1)] += 1
    expected = np.append(mass, max(1 - mass.sum(), 0.0)) * len(draws)
    common = expected >= 8
    seen = np.append(counts[common], counts[~common].sum())
    meant = np.append(expected[common], expected[~common].sum())
    if meant[-1] < 1e-3:
        assert seen[-1] == 0, "an impossible release was drawn"
        seen, meant = seen[:-1], meant[:-1]
    return 1.0 if len(seen) == 1 else st.chisquare(seen, meant * seen.sum() / meant.sum()).pvalue


def log_ratio_bound(here: int, there: int, n: int, level: float) -> float:
    """Lower confidence bound on log(p/q) from counts of one event among n draws of each of two laws."""
    if here == 0:
        return -math.inf
    p = st.beta.ppf(level / 2, here, n - here + 1)
    q = st.beta.ppf(1 - level / 2, there + 1, n - there) if there < n else 1.0
    return math.log(p / q)
