"""The form of the contract table: what a row says of a mechanism, and how to read it.

A row describes one mechanism with one way of giving its noise level. Files ``rows_*.py`` beside this one
each hold a list ``ROWS``; the tests run over all of them (``table.py`` collects them).
"""

from __future__ import annotations

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
from pymc.pytensorf import compile, reseed_rngs
from pytensor.graph.replace import vectorize_graph
from pytensor.tensor.random.variable import RandomGeneratorSharedVariable

from pymc_dp.mechanisms import Mechanism
from pymc_dp.mechanisms._releases import evaluate
from pymc_dp.privacy import PrivacyGuarantee
from pymc_dp.privacy.entropy import draw_securely

Rule = tuple[np.ndarray, np.ndarray]

LEVELS = ("scale", "sigma", "theta", "p_truth", "smoothing")  # noise levels, in place of a budget


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
    told
        A ratio of noise levels, or of budgets, that 20,000 draws tell from 1.
    law_at
        From a budget to the law under it, where neither a noise level nor the largest log ratio tells
        whether the budget was turned into the right noise.
    own
        Of a mechanism of the user's own, which has no level and no budget, and releases nothing: from a
        factor to the arguments that declare so many times the noise.
    weak
        Why no attack on draws could come near the promise; by default one has to.
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
    told: float = 0.9
    law_at: Callable[[float], Callable[[Any, np.ndarray], np.ndarray]] | None = None
    own: Callable[[float], dict[str, Any]] | None = None
    weak: str = ""
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

    @property
    def level(self) -> str | None:
        """Name of the noise level of a mechanism that adds noise."""
        return next((key for key in ("scale", "sigma") if key in self.native), None)

    def noisier(self, factor: float) -> dict[str, Any]:
        """The noise arguments of another noise: `factor` times the level, or the budget over it."""
        if self.own is not None:
            return self.own(factor)
        return self.budget(1 / factor) if self.level is None else self.leveled(factor)

    def leveled(self, factor: float) -> dict[str, Any]:
        """The noise arguments of `factor` times the noise."""
        assert self.level is not None
        return self.native | {self.level: factor * self.native[self.level]}

    def budget(self, factor: float = 1.0) -> dict[str, Any]:
        """The noise arguments that ask for `factor` times the budget."""
        given = {k: v for k, v in self.noise.items() if k not in LEVELS}
        name = next((k for k in ("rho", "epsilon") if k in given), None)
        if name is None:
            name = "epsilon" if self.promise.is_pure else "rho"
        return given | {name: factor * getattr(self.promise, name)}

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
        values, noise = np.asarray(values, dtype=float), noise or self.noise
        rows = self.rows_of(query, len(values))
        # compiled once for all queries of a form
        key = (repr(sorted(noise.items())), rows.dtype, rows.shape[self.batch :])
        if key not in self._densities:
            data = pytensor.shared(rows)
            release = self.declare(data, **noise)
            value = pt.tensor("value", dtype="float64", shape=(None,) * release.type.ndim)
            logp = pm.logp(release, value)
            assert not self.batch or logp.ndim == 1, "a batch has one density per row"
            if not self.batch:
                many = pt.tensor("many", dtype="float64", shape=(None,) * (release.type.ndim + 1))
                value, logp = many, vectorize_graph(logp.sum(), {value: many})
            self._densities[key] = data, pytensor.function([value], logp, mode="FAST_COMPILE")
        data, fn = self._densities[key]
        data.set_value(rows)
        return fn(values)

    @cached_property
    def _densities(self) -> dict:
        return {}

    def draws(self, query: Any, n: int, seed: int = 1) -> np.ndarray:
        """Simulated releases (n, *shape), by the native sampler; compiled once for all queries of a form."""
        rows = self.rows_of(query, n)
        key = (rows.dtype, rows.shape[self.batch :])
        if key not in self._samplers:
            data = pytensor.shared(rows)
            self._samplers[key] = data, compile([], self.declare(data), random_seed=0)
        data, fn = self._samplers[key]
        data.set_value(rows)
        reseed_rngs([v for v in fn.get_shared() if isinstance(v, RandomGeneratorSharedVariable)], seed)
        return fn() if self.batch else np.stack([fn() for _ in range(n)])

    @cached_property
    def _samplers(self) -> dict:
        return {}

    def published(self, query: Any, n: int) -> np.ndarray:
        """Releases (n, *shape) as a custodian draws them.

        Releases of all records are drawn from statistics that are computed once. Where noise is added to
        them, they are given n times to the same drawing: it does not know whether a row is a release or an
        entry of one.
        """
        if self.batch:
            return self.release(self.rows_of(query, n)).value
        release = self.declare(np.asarray(query))
        op = release.owner.op
        statistics, *params = (evaluate(v) for v in op.dist_params(release.owner))
        if self.level is not None:
            return self.mechanism._draw_release(op, pt.constant(np.tile(statistics, (n, 1))), params)[0]
        assert self.mechanism._draw_release.__func__ is Mechanism._draw_release.__func__
        return draw_securely(lambda g: np.stack([op.secure_draw(g, statistics, *params) for _ in range(n)]))

    @property
    def n_draws(self) -> int:
        """Number of draws that are compared with the density."""
        return 20_000 if self.batch else 4000

    def others(self) -> list[dict[str, Any]]:
        """Noise arguments, for less and for more noise, that draws under the row's own do not fit."""
        factor = self.told if self.batch else 0.75
        return [self.noisier(factor), self.noisier(1 / factor)]


def release_logp(model: pm.Model) -> Callable[[Any], np.ndarray]:
    """Log densities of the release at many vectors of records x, one vector a row."""
    x = model.rvs_to_values[model["x"]]
    many = pt.tensor("many", dtype=x.dtype, shape=(None, *x.type.shape))
    logps = vectorize_graph(model.logp(vars=[model["z"]]), {x: many})
    fn = pytensor.function([many], logps, mode="FAST_COMPILE")  # nothing that is compiled for each model
    return lambda rows: fn(np.asarray(rows, dtype=x.dtype))


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


def goodness_of_fit(row: Row, draws: np.ndarray, query: Any, **noise: Any) -> float:
    """p-value of draws under the row's own density: chi-square, or Kolmogorov-Smirnov per coordinate."""
    values, weights = row.points
    mass = weights * np.exp(row.log_density(values, query, **noise))
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


def probability_bounds(count: int, n: int, level: float) -> tuple[float, float]:
    """Clopper-Pearson bounds on a probability from `count` of `n` draws, each missed at `level`."""
    lower = st.beta.ppf(level, count, n - count + 1) if count > 0 else 0.0
    upper = st.beta.ppf(1 - level, count + 1, n - count) if count < n else 1.0
    return float(lower), float(upper)
