"""Noisy means of orthonormal functions: the functions, their exact sensitivities, messages."""

import itertools
import math

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
import scipy.stats as st
from scipy.optimize import minimize_scalar

import pymc_dp as dp
from pymc_dp.mechanisms._bases import BASES
from pymc_dp.mechanisms.projection import projection_sensitivity
from pymc_dp.query.records import find_record_blocks
from pymc_dp.step_methods.sweeps.moves import lowered

TERMS = {"cosine": (1, 2, 3, 4, 7, 16), "fourier": (1, 2, 3, 4, 7, 16), "haar": (1, 3, 7, 15)}
each_basis = pytest.mark.parametrize(("basis", "n_terms"), [(b, n) for b, ns in TERMS.items() for n in ns])


def functions(basis, n_terms, u):
    """By formula, one column per function."""
    j = np.arange(1, n_terms + 1)
    if basis == "cosine":
        return np.sqrt(2) * np.cos(np.pi * j * u[:, None])
    if basis == "fourier":
        angle = 2 * np.pi * ((j + 1) // 2) * u[:, None]
        return np.sqrt(2) * np.where(j % 2 == 1, np.cos(angle), np.sin(angle))
    level = int(np.log2(n_terms + 1)) - 1
    return dp.WaveletMechanism.dist(u, level=level, scale=1).owner.op.coefficients(u)


def query_of(rv):
    return rv.owner.op.dist_params(rv.owner)[0].eval()


@each_basis
def test_functions_are_orthonormal_and_averaged(basis, n_terms):
    u = (np.arange(20_000) + 0.5) / 20_000
    value = pt.vector("u")
    phi = pytensor.function([value], BASES[basis].evaluate(value, n_terms), mode="FAST_COMPILE")(u)
    np.testing.assert_allclose(phi, functions(basis, n_terms, u), atol=1e-11)
    np.testing.assert_allclose(phi.T @ phi / len(u), np.eye(n_terms), atol=1e-7)
    np.testing.assert_allclose(phi.mean(0), 0, atol=1e-10)  # orthogonal to the constant
    y = np.array([-1.0, -0.4, 0.3, 2.9, 3.0, 7.0, -5.0])
    clamped = (np.clip(y, -1, 3) + 1) / 4
    rv = dp.ProjectionMechanism.dist(y, basis=basis, n_terms=n_terms, scale=1, bounds=(-1, 3))
    np.testing.assert_allclose(query_of(rv), functions(basis, n_terms, clamped).mean(0), atol=1e-12)


@each_basis
def test_sensitivity_on_a_grid(basis, n_terms):
    """The supremum over pairs is never exceeded, and reached (nearly, for trigonometric functions in L1)."""
    u = np.unique(np.concatenate([np.linspace(0, 1, 2001), np.arange(33) / 32, np.arange(64) / 63]))
    phi = functions(basis, n_terms, u)
    for order in (1, 2):
        worst = max(np.linalg.norm(phi - row, order, axis=1).max() for row in phi)
        stated = projection_sensitivity(basis, n_terms, 1, order)
        assert worst <= stated * (1 + 1e-12)
        tolerance = 3e-3 if (basis, order) == ("fourier", 1) else 2e-5  # the second is that of the grid
        assert worst >= stated * (1 - tolerance)
        assert projection_sensitivity(basis, n_terms, 50, order) == pytest.approx(stated / 50)


@pytest.mark.parametrize("n_terms", [1, 2, 5, 9, 40])
@pytest.mark.parametrize("order", [1, 2])
def test_cosines_to_many_digits(n_terms, order):
    """The supremum is attained with one point at an end: a search in one variable."""
    j = np.arange(1, n_terms + 1)

    def loss(u):
        return -np.linalg.norm(np.sqrt(2) * (np.cos(np.pi * j * u) - 1), order)

    steps = np.linspace(0, 1, 8 * n_terms + 1)
    searches = [
        minimize_scalar(loss, bounds=pair, method="bounded", options={"xatol": 1e-12})
        for pair in itertools.pairwise(steps)
    ]
    best = max(-min(s.fun for s in searches), -loss(1.0))
    stated = projection_sensitivity("cosine", n_terms, 1, order)
    assert best * (1 - 1e-13) <= stated <= best * (1 + 1e-9)


def test_noise_and_guarantee():
    y = np.linspace(0, 1, 40)
    for basis in BASES:
        change = [projection_sensitivity(basis, 7, 40, order) for order in (1, 2)]
        for kwargs, law, promise in (
            ({"epsilon": 0.5}, st.laplace(scale=change[0] / 0.5), {"epsilon": 0.5}),
            ({"scale": 2.0}, st.laplace(scale=2.0), {"epsilon": change[0] / 2}),
            ({"rho": 0.1}, st.norm(scale=change[1] / math.sqrt(0.2)), {"rho": 0.1}),
            ({"sigma": 2.0}, st.norm(scale=2.0), {"rho": (change[1] / 2) ** 2 / 2}),
        ):
            rv = dp.ProjectionMechanism.dist(y, basis=basis, n_terms=7, **kwargs)
            assert rv.type.shape == (7,)
            stated = dp.guarantee(rv)
            assert all(getattr(stated, k) == pytest.approx(v, rel=1e-12) for k, v in promise.items())
            z = np.linspace(-1, 2, 7)
            exact = law.logpdf(z - query_of(rv))
            np.testing.assert_allclose(pm.logp(rv, z).eval(mode="FAST_COMPILE"), exact, rtol=1e-9)
    both = dp.guarantee(dp.ProjectionMechanism.dist(y, n_terms=3, epsilon=1, delta=1e-5))
    classic = dp.ProjectionMechanism.dist(y, n_terms=3, epsilon=1, delta=1e-5, calibration="classic")
    assert (both.epsilon, both.delta) == (1, 1e-5) and dp.guarantee(classic).rho < both.rho


@pytest.mark.usefixtures("python_mode")
@pytest.mark.parametrize("noise", [{"epsilon": 2.0}, {"rho": 0.5}])
@pytest.mark.compiles(1)
def test_published_and_declared_again(noise, seeded_entropy):
    y = np.random.default_rng(3).beta(2, 5, 60)
    release = dp.ProjectionMechanism.release(y, n_terms=3, basis="fourier", bounds=(0, 2), **noise)
    again = dp.Release.from_json(release.to_json())
    with pm.Model(coords={"term": range(3)}) as model:
        x = pm.Beta("x", 2, 2, shape=60)
        z = dp.ProjectionMechanism("z", x, observed=again, dims="term")
        dp.ProjectionMechanism(
            "w", x, n_terms=3, basis="fourier", bounds=(0, 2), observed=again.value, **noise
        )
        with pytest.raises(ValueError, match="contradicts the release"):
            dp.ProjectionMechanism("v", x, observed=again, basis="cosine")
    assert dp.guarantee(z) == release.guarantee
    logps = model.point_logps()
    assert logps["z"] == pytest.approx(logps["w"], rel=1e-8)
    (block,) = find_record_blocks(model)
    assert [r.kind for r in block.releases] == ["central"] * 2
    _, moves = lowered(model, block, "independence", model.initial_point())
    assert moves[0].fused is not None
    # means of all functions at once: many draws of one release
    n = 1000
    many = dp.ProjectionMechanism.release(y, n_terms=n, **noise).value
    rv = dp.ProjectionMechanism.dist(y, n_terms=n, **noise)
    level = rv.owner.op.dist_params(rv.owner)[1].eval().item()
    law = st.laplace if "epsilon" in noise else st.norm
    for draws in (many, pm.draw(rv, random_seed=1)):
        assert st.kstest((draws - query_of(rv)) / level, law.cdf).pvalue > 1e-3
        for factor in (0.6, 1 / 0.6):
            assert st.kstest(factor * (draws - query_of(rv)) / level, law.cdf).pvalue < 1e-3


@pytest.mark.statistical  # records alone, and a parameter in full: tests/contract/test_imputation.py
def test_posterior_is_that_of_quadrature():
    """Two uniform records behind one noisy mean of a cosine."""
    z, scale = -0.7, 0.3
    u = (np.arange(800) + 0.5) / 800
    phi = functions("cosine", 1, u)[:, 0]
    weight = st.laplace(z, scale).pdf((phi[:, None] + phi) / 2)
    exact = np.array([(weight @ u).sum(), (weight * u[:, None] * u).sum()]) / weight.sum()
    with pm.Model():
        y = pm.Uniform("y", 0, 1, shape=2)
        dp.ProjectionMechanism("z", y, n_terms=1, scale=scale, observed=[z])
        idata = pm.sample(5000, tune=500, chains=2, cores=1, random_seed=2, progressbar=False)
    x = idata.posterior["y"].values
    for draws, mean in ((x.mean(-1), exact[0]), (x.prod(-1), exact[1])):
        assert abs(draws.mean() - mean) < 4.5 * draws.std() / math.sqrt(float(pm.stats.ess(draws)))


BAD = {
    "no noise level": ({"n_terms": 3}, ValueError, "got none. Choose epsilon="),
    "two noise levels": ({"n_terms": 3, "epsilon": 1, "sigma": 1}, ValueError, "got both sigma= and eps"),
    "epsilon zero": ({"n_terms": 3, "epsilon": 0}, ValueError, "epsilon must be a finite number > 0"),
    "rho nan": ({"n_terms": 3, "rho": math.nan}, ValueError, "rho must be a finite number > 0"),
    "scale negative": ({"n_terms": 3, "scale": -1}, ValueError, "scale must be finite and > 0"),
    "delta alone": ({"n_terms": 3, "delta": 1e-6}, ValueError, "delta was given without epsilon"),
    "no terms": ({"epsilon": 1}, ValueError, "needs n_terms="),
    "no term": ({"epsilon": 1, "n_terms": 0}, ValueError, "n_terms must be a whole number from 1"),
    "terms a tensor": ({"epsilon": 1, "n_terms": pt.scalar()}, TypeError, "n_terms must be a whole number"),
    "unknown basis": ({"epsilon": 1, "n_terms": 3, "basis": "db4"}, ValueError, "basis must be one of"),
    "haar terms": ({"epsilon": 1, "n_terms": 4, "basis": "haar"}, ValueError, r"1, 3, 7, 15, ...\), got 4"),
    "bounds reversed": ({"epsilon": 1, "n_terms": 3, "bounds": (1, 0)}, ValueError, "lo < hi"),
    "unknown calibration": (
        {"n_terms": 3, "epsilon": 1, "delta": 1e-6, "calibration": "best"}, ValueError, "calibration must be",
    ),
    "sensitivity": ({"epsilon": 1, "n_terms": 3, "sensitivity": 1}, TypeError, "sensitivity"),
    "unknown keyword": ({"epsilon": 1, "n_terms": 3, "level": 1}, TypeError, "unexpected keyword argument"),
}  # fmt: skip


@pytest.mark.parametrize(("kwargs", "error", "message"), BAD.values(), ids=BAD)
def test_bad_arguments(kwargs, error, message):
    with pytest.raises(error, match=message):
        dp.ProjectionMechanism.dist(np.array([0.5, 0.7]), **kwargs)


def test_bad_queries_and_observed():
    with pm.Model():
        y = pm.Beta("y", 2, 2, shape=4)
        pairs = pm.Beta("pairs", 2, 2, shape=(4, 2))
        for query in (pairs, pairs.sum(0), y.cumsum(), y.mean()):
            with pytest.raises(
                ValueError, match="ProjectionMechanism needs a query of one number per record"
            ):
                dp.ProjectionMechanism("z", query, n_terms=2, epsilon=1)
        with pytest.raises(ValueError, match="observed means a release of shape"):
            dp.ProjectionMechanism("z", y, n_terms=2, epsilon=1, observed=np.zeros(4))
        with pytest.raises(ValueError, match="observed has 1 missing"):
            dp.ProjectionMechanism("z", y, n_terms=2, epsilon=1, observed=[1, np.nan])
