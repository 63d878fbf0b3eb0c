"""Multivariate distributions, lowered to functions of one row."""

import functools

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import stats

from pymc_dp.lowering.errors import LoweringError
from pymc_dp.lowering.vector import lower_vector

COV = np.array([[1.0, 0.4, 0.0], [0.4, 2.0, -0.3], [0.0, -0.3, 0.5]])
SHIFT = np.array([0.0, 1.0, -1.0])


def _pvector(p):
    return pt.stack([p, 0.5 - p, 0.5])


# name: builder of one input, its value, a row, SciPy's law, log density of SciPy, a row off the
# support, mean
CASES = {
    "MvNormal": (
        lambda m: pm.MvNormal.dist(m + SHIFT, COV), 0.3, [0.2, 0.1, -0.4],
        lambda m: stats.multivariate_normal(m + SHIFT, COV).logpdf, None, lambda m: m + SHIFT,
    ),
    "MvStudentT": (
        lambda m: pm.MvStudentT.dist(nu=9.0, mu=m + SHIFT, scale=COV), 0.3, [0.2, 0.1, -0.4],
        lambda m: stats.multivariate_t(m + SHIFT, COV, df=9.0).logpdf, None, lambda m: m + SHIFT,
    ),
    "Dirichlet": (
        lambda a: pm.Dirichlet.dist(pt.stack([a, 2.0, 3.0])), 1.5, [0.2, 0.3, 0.5],
        lambda a: stats.dirichlet([a, 2.0, 3.0]).logpdf, [-0.2, 0.6, 0.6],
        lambda a: np.array([a, 2.0, 3.0]) / (a + 5.0),
    ),
    "Multinomial": (
        lambda p: pm.Multinomial.dist(n=6, p=_pvector(p)), 0.2, [1.0, 2.0, 3.0],
        lambda p: stats.multinomial(6, [p, 0.5 - p, 0.5]).logpmf, [1.5, 1.5, 3.0],
        lambda p: 6 * np.array([p, 0.5 - p, 0.5]),
    ),
    "DirichletMultinomial": (
        lambda a: pm.DirichletMultinomial.dist(n=6, a=pt.stack([a, 2.0, 3.0])), 1.5, [1.0, 2.0,
        3.0], lambda a: stats.dirichlet_multinomial([a, 2.0, 3.0], 6).logpmf, [1.0, 2.0, 4.0],
        lambda a: 6 * np.array([a, 2.0, 3.0]) / (a + 5.0),
    ),
}  # fmt: skip

# Compiled in every run; the others with the statistical suites only, for the time it takes.
CORE = {"Dirichlet", "Multinomial"}
everywhere = pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in CORE else pytest.mark.statistical) for n in CASES]
)


@functools.cache
def kernel(name):
    build = CASES[name][0]
    x = pt.dscalar("x")
    return lower_vector(build(x), [x])


@everywhere
def test_log_density_is_scipys(name):
    _, x, row, law, off, _ = CASES[name]
    found = kernel(name).logp(np.array(row), x)
    given = np.array(row) if not kernel(name).discrete else np.array(row, int)
    # PyMC takes the log gamma of a literal such as n=6 in single precision
    assert found == pytest.approx(float(law(x)(given)), rel=1e-6)
    expected = pm.logp(CASES[name][0](pt.constant(np.float64(x), dtype="float64")), given).eval()
    assert found == pytest.approx(float(expected), rel=1e-10)
    if off is not None:
        assert kernel(name).logp(np.array(off), x) == -np.inf


@everywhere
def test_draws_have_the_mean_and_covariance(name):
    _, x, _, _, _, mean = CASES[name]
    draw, rng = kernel(name).draw, np.random.default_rng(8)
    rows = np.empty((20_000, 3))
    for row in rows:
        draw(rng, row, x)
    error = rows.std(axis=0) / np.sqrt(len(rows))
    assert np.all(np.abs(rows.mean(axis=0) - mean(x)) < 5 * error)
    if name == "MvNormal":
        np.testing.assert_allclose(np.cov(rows.T), COV, atol=0.1)
    again = np.empty(3)
    draw(np.random.default_rng(8), again, x)
    np.testing.assert_array_equal(again, rows[0])


@everywhere
def test_nothing_goes_through_the_interpreter(name):
    assert not any("interpreter" in why for why in kernel(name).fallback.values())


def test_a_vector_of_scalars_is_refused_by_name():
    mu = pt.dscalar("mu")
    rv = pm.Normal.dist(mu, 1.0, shape=3)
    with pytest.raises(LoweringError, match=r"Normal.*1 dimension\(s\), 0 of them"):
        lower_vector(rv, [mu])
