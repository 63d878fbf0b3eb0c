"""Clipped sums over rows beside NumPy, for one law per way of evaluation; what one row can change."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from scipy import special, stats

import pymc_dp as dp
from pymc_dp.private.batches import BatchSums
from pymc_dp.private.clipped_ratios import bits_for
from pymc_dp.private.confidential import confidential_terms
from pymc_dp.private.density import RowDensity
from pymc_dp.private.sums import RowSums

RNG = np.random.default_rng(5)
N, MANY = 700, 5000  # more than a block, and than one where each column is read by itself
COV = np.array([[1.0, 0.5, 0.1], [0.5, 2.0, 0.3], [0.1, 0.3, 1.5]])
X = RNG.normal(size=(N, 2))
NORMAL = RNG.normal(1, 2, N)
VECTORS = RNG.multivariate_normal(np.zeros(3), COV, N)
COUNTS = RNG.poisson(2.0, N)
BITS = RNG.integers(0, 2, N)
GROUPS = RNG.integers(0, 3, N)
LONG = RNG.normal(size=(MANY, 20))  # fifteen columns at once, four, and one


def normal():
    mu, sigma = pm.Normal("mu"), pm.HalfNormal("sigma")
    dp.ConfidentialLikelihood("y", pm.Normal.dist(mu, sigma), NORMAL, clip=1)
    return lambda mu, sigma: stats.norm.logpdf(NORMAL, mu, sigma)


def many():
    mu = pm.Normal("mu", shape=20)
    dp.ConfidentialLikelihood("y", pm.Normal.dist(mu, 1.5), LONG, clip=1)
    return lambda mu: stats.norm.logpdf(LONG, mu, 1.5).sum(axis=1)


def known_covariance():
    mu = pm.Normal("mu", shape=3)
    dp.ConfidentialLikelihood("y", pm.MvNormal.dist(mu, COV), VECTORS, clip=1)
    return lambda mu: stats.multivariate_normal.logpdf(VECTORS - mu, cov=COV)


def covariance():
    mu, s = pm.Normal("mu", shape=3), pm.HalfNormal("s")
    dp.ConfidentialLikelihood("y", pm.MvNormal.dist(mu, s * pt.eye(3) + 0.1), VECTORS, clip=1)
    return lambda mu, s: stats.multivariate_normal.logpdf(VECTORS - mu, cov=s * np.eye(3) + 0.1)


def logistic():
    beta = pm.Normal("beta", shape=2)
    dp.ConfidentialLikelihood(
        "y", lambda x: pm.Bernoulli.dist(logit_p=x @ beta), BITS, covariates={"x": X}, clip=1
    )
    return lambda beta: np.where(BITS, 1, -1) * (X @ beta) / 2 - np.log(2 * np.cosh(X @ beta / 2))


def groups():
    level = pm.Normal("level", shape=3)
    dp.ConfidentialLikelihood(
        "y", lambda group: pm.Poisson.dist(pt.exp(level[group])), COUNTS, covariates={"group": GROUPS}, clip=1
    )
    return lambda level: stats.poisson.logpmf(COUNTS, np.exp(level[GROUPS]))


def choice():
    """Categories with probabilities of their own for each row."""
    beta = pm.Normal("beta", shape=(2, 2))

    def law(x):
        return pm.Categorical.dist(
            p=pm.math.softmax(pt.concatenate([0 * x[:, :1], x @ beta], axis=1), axis=1)
        )

    dp.ConfidentialLikelihood("y", law, GROUPS, covariates={"x": X}, clip=1)
    return lambda beta: special.log_softmax(np.column_stack([0 * X[:, 0], X @ beta]), axis=1)[
        range(N), GROUPS
    ]


def shares():
    level = pm.Normal("level", shape=2)
    p = pm.math.softmax(pt.concatenate([[0.0], level]))
    dp.ConfidentialLikelihood("y", pm.Categorical.dist(p=p), GROUPS, clip=1)
    return lambda level: special.log_softmax([0.0, *level])[GROUPS]


def zero_inflated():
    rate = pm.HalfNormal("rate")
    dp.ConfidentialLikelihood("y", pm.ZeroInflatedPoisson.dist(0.7, rate), COUNTS, clip=1)
    return lambda rate: np.log(0.7 * stats.poisson.pmf(COUNTS, rate) + 0.3 * (COUNTS == 0))


def mixture():
    mu = pm.Normal("mu")
    law = pm.NormalMixture.dist(w=[0.3, 0.7], mu=pt.stack([mu, mu + 2]), sigma=1.0)
    dp.ConfidentialLikelihood("y", law, NORMAL, clip=1)
    return lambda mu: np.log(0.3 * stats.norm.pdf(NORMAL, mu, 1) + 0.7 * stats.norm.pdf(NORMAL, mu + 2, 1))


def mixture_of_regressions():
    """PyMC takes the number of rows from a component that it replaces, which stays in the graph."""
    mu, slope = pm.Normal("mu"), pm.Normal("slope")

    def law(x):
        return pm.Mixture.dist([0.3, 0.7], [pm.Normal.dist(mu + slope * x, 1), pm.Normal.dist(mu, 2)])

    dp.ConfidentialLikelihood("y", law, NORMAL, covariates={"x": X[:, 0]}, clip=1)
    return lambda mu, slope: np.log(
        0.3 * stats.norm.pdf(NORMAL, mu + slope * X[:, 0], 1) + 0.7 * stats.norm.pdf(NORMAL, mu, 2)
    )


def censored_regression():
    slope, told = pm.Normal("slope"), np.maximum(NORMAL, 0)

    def law(x):
        return pm.Censored.dist(pm.Logistic.dist(slope * x, 1), 0, None)

    dp.ConfidentialLikelihood("y", law, told, covariates={"x": X[:, 0]}, clip=1)
    return lambda slope: np.where(
        told == 0, stats.logistic.logcdf(0, slope * X[:, 0]), stats.logistic.logpdf(told, slope * X[:, 0])
    )


LAWS = [
    normal, many, known_covariance, covariance, logistic, groups, choice, shares, zero_inflated, mixture,
    mixture_of_regressions, censored_regression,
]  # fmt: skip


class Lowered:
    """A law, lowered, with its log density by row in NumPy."""

    def __init__(self, build, batch_size=None):
        with pm.Model() as model:
            self.exact = build()
        ((term, inputs),) = confidential_terms(model)
        self.inputs = [v.type() for v in inputs]
        ratio = RowDensity(term).ratio(self.inputs)
        self.features = ratio.features
        self.sums = RowSums(term, ratio) if batch_size is None else BatchSums(term, ratio, batch_size)
        self.numbers = pytensor.function(
            self.inputs, ratio.numbers, mode="FAST_COMPILE", on_unused_input="ignore"
        )
        self.term = term

    def sum(self, new, old, bound):
        return self.sums.clipped(*self._numbers_at(new, old), bound)

    def count(self, new, old, bound):
        return self.sums.exceeding(*self._numbers_at(new, old), bound)

    def _numbers_at(self, *values):
        return [np.array(self.numbers(*v), dtype=float) for v in values]


def values(lowered, rng):
    return [np.abs(rng.normal(1, 0.3, v.type.shape)) for v in lowered.inputs]


@pytest.mark.compiles(2)
@pytest.mark.parametrize("build", [normal, logistic, *(b for b in LAWS if b not in (normal, logistic))])
def test_sums_beside_numpy(build, rng):
    lowered = Lowered(build)
    assert (lowered.features is not None) == (build in (normal, many, known_covariance, covariance))
    for _ in range(5):
        new, old = values(lowered, rng), values(lowered, rng)
        change = lowered.exact(*new) - lowered.exact(*old)
        for bound in (np.median(np.abs(change)), 10 * np.abs(change).max()):
            unit = bound * 2.0**-lowered.sums.bits
            found = lowered.sum(new, old, bound) * unit
            exact = np.clip(change, -bound, bound).sum()
            # half a unit for each row, and the rounding of densities of the size of hundreds
            n = len(change)
            assert abs(found - exact) <= n * (unit / 2 + 1e-12)
            assert abs(found - (exact + bound / 100)) > n * (unit / 2 + 1e-12)
            # a move back is minus the move, to the last bit
            assert lowered.sum(old, new, bound) == -lowered.sum(new, old, bound)
        if build in (normal, logistic, many):  # of each way of evaluation
            bound = np.quantile(np.abs(change), 0.8)
            assert lowered.count(new, old, bound) == (np.abs(change) > bound).sum() == n // 5


def test_one_row_changes_what_is_claimed():
    """Sums of neighbours differ by at most twice the bound, whatever the row; and by that much for some."""
    lowered = Lowered(normal)
    columns = lowered.term.rows.columns()
    kept, sums = columns[0, 0], []
    for row in (0.0, 1.0, -1e3, 1e3, 1e300, -1e300, np.inf, -np.inf, np.nan):
        columns[0, 0] = row
        sums.append(lowered.sum((0.3, 1.0), (0.1, 1.0), 0.37))
    columns[0, 0] = kept
    one = 2**lowered.sums.bits
    assert max(sums) - min(sums) == 2 * one
    others = sums[-1]  # no number: counts as 0, as does infinity times a coefficient that did not change
    assert [s - others for s in sums[2:-1]] == [-one, one, one, -one, 0, 0]


def test_one_row_changes_a_count_by_one():
    """What is no number is not clipped, and is not counted."""
    lowered = Lowered(normal)
    columns = lowered.term.rows.columns()
    kept, counts = columns[0, 0], []
    for row in (0.0, 1e3, -1e3, 1e300, np.inf, np.nan):
        columns[0, 0] = row
        counts.append(lowered.count((0.3, 1.0), (0.1, 1.0), 0.37))
    columns[0, 0] = kept
    assert [c - counts[0] for c in counts] == [0, 1, 1, 1, 0, 0]


def test_sums_of_many_rows_are_exact():
    """The largest sum of the most rows fits the numbers that float64 adds exactly."""
    for n in (1, 2, 3, 10**5, 2**22, 2**22 + 1, 10**9):
        assert n * 2 ** bits_for(n) <= 2**53
    assert bits_for(2**22) == 30


def test_parts_do_not_matter(monkeypatch):
    """Threads have no say in the sum."""
    from pymc_dp.private import sums

    monkeypatch.setattr(sums, "_n_cores", lambda: 3)
    law = Lowered(normal)
    at = ((0.3, 1.2), (0.1, 1.0), 0.2)
    whole = law.sum(*at), law.count(*at)
    monkeypatch.setattr(sums, "_PARALLEL_FROM", 1)
    submitted, pool = [], law.sums._pool.submit
    monkeypatch.setattr(law.sums._pool, "submit", lambda *args: submitted.append(args[1:]) or pool(*args))
    assert (law.sum(*at), law.count(*at)) == whole
    assert len(submitted) == 4 and 0 not in whole  # two sums, of which this thread does a third


def test_columns_that_count():
    """What a pass reads, which decides on threads: the columns whose coefficients change."""
    law = Lowered(normal).sums
    new, old = np.array([1.0, 2.0, 3.0]), np.array([1.0, 0.0, 0.0])
    assert law._width(new, old) == 2
    law._ratio.features = None
    assert law._width(new, old) >= 30
