"""Haar wavelets: coefficients by hand, densities, the tight sensitivity, an exact posterior, messages."""

import itertools
import math

import cloudpickle
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
import scipy.stats as st
from pymc.model.fgraph import clone_model

import pymc_dp as dp
from pymc_dp.mechanisms.wavelet import butucea_sensitivity, haar_sensitivity
from pymc_dp.query.records import find_record_blocks
from tests.mechanisms.grids import check_posterior

each_level = pytest.mark.parametrize("level", [0, 1, 2, 4])


def haar(u, level):
    """Coefficients by the paper's formula, with the last half closed at 1."""
    rows = []
    for j in range(level + 1):
        for k in range(2**j):
            x = 2**j * u - k
            left = (0 <= x) & (x < 0.5)
            right = ((0.5 <= x) & (x < 1)) | ((x == 1) & (k == 2**j - 1))
            rows.append(2 ** (j / 2) * (left.astype(float) - right.astype(float)))
    return np.stack(rows, axis=-1)


def middles(level, lo=0.0, hi=1.0):
    cells = 2 ** (level + 1)
    return lo + (hi - lo) * (np.arange(cells) + 0.5) / cells


@each_level
def test_coefficients_and_density(level):
    edges = np.linspace(0, 1, 2 ** (level + 1) + 1)
    u = np.concatenate([edges, edges[1:] - 1e-9, middles(level), [0.1, 1 / 3]])
    z = np.random.default_rng(1).normal(0, 3, (len(u), 2 ** (level + 1) - 1))
    for lo, hi in ((0.0, 1.0), (-3.0, 5.0)):
        rv = dp.WaveletMechanism.dist(lo + (hi - lo) * u, level=level, scale=0.7, bounds=(lo, hi))
        inside = rv.owner.op.coefficients(lo + (hi - lo) * u)
        np.testing.assert_array_equal(inside, haar(u, level))
        exact = st.laplace(haar(u, level), 0.7).logpdf(z).sum(-1)
        np.testing.assert_allclose(pm.logp(rv, z).eval(), exact, rtol=1e-12)


@pytest.mark.parametrize("bounds", [(0, 1), (0, 0.7), (-1 / 3, 1e3), (1e6, 1e6 + 1)])
def test_values_at_edges_fall_in_the_same_cell_everywhere(bounds):
    """In the density, in both draws and in the cells that are told to the steps."""
    level = 3
    op = dp.WaveletMechanism.dist(np.zeros(1), level=level, scale=1, bounds=bounds).owner.op
    edges = np.array(op.cells)
    assert (edges[0], edges[-1]) == bounds and len(edges) == 17
    y = np.concatenate(
        [edges[:-1], np.nextafter(edges[1:], -np.inf), [bounds[1], bounds[0] - 1, bounds[1] + 1]]
    )
    cell = np.concatenate([np.arange(16), np.arange(16), [15, 0, 15]])
    expected = haar(middles(level), level)[cell]
    np.testing.assert_array_equal(op.coefficients(y), expected)
    rv = dp.WaveletMechanism.dist(y, level=level, scale=1e-9, bounds=bounds)
    np.testing.assert_allclose(pm.draw(rv, random_seed=1), expected, atol=1e-7)
    np.testing.assert_allclose(
        dp.WaveletMechanism.release(y, level=level, scale=1e-9, bounds=bounds).value, expected, atol=1e-7
    )
    best = -15 * math.log(2e-9)
    np.testing.assert_allclose(pm.logp(rv, expected).eval(), best, rtol=1e-12)


def test_density_of_one_number_and_of_many_releases():
    z = np.array([[0.3, -2.0, 1.0], [4.0, 0.0, -1.0]])
    one = dp.WaveletMechanism.dist(0.6, level=1, scale=2.0)
    assert one.type.shape == (3,)
    exact = st.laplace(haar(np.array(0.6), 1), 2.0).logpdf(z).sum(-1)
    np.testing.assert_allclose(pm.logp(one, z[0]).eval(), exact[0])
    np.testing.assert_allclose(pm.logp(one, z).eval(), exact)
    value = pt.tensor("value", shape=(None, None, 3))
    logp = pytensor.function(
        [value], pm.logp(dp.WaveletMechanism.dist(np.full(2, 0.6), level=1, scale=2.0), value)
    )
    np.testing.assert_allclose(logp(np.stack([z, z])), [exact, exact])


@each_level
def test_density_is_finite_far_out(level):
    z = np.array([[1e3], [-1e3], [1e9], [-1e100], [0.0]]) * np.ones(2 ** (level + 1) - 1)
    for scale in (1e-8, 1.0, 1e8):
        rv = dp.WaveletMechanism.dist(np.full(5, 0.3), level=level, scale=scale)
        assert np.isfinite(pm.logp(rv, z).eval()).all()


# -- privacy ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", range(7))
def test_sensitivity_is_that_of_the_worst_pair(level):
    """Over all pairs of cells: the coefficients are constant on each."""
    rows = haar(middles(level), level)
    changes = [np.abs(rows - row).sum(-1).max() for row in rows]
    assert max(changes) == pytest.approx(haar_sensitivity(level), rel=1e-12)
    halves = len(rows) // 2
    across = np.abs(rows[:halves, None] - rows[None, halves:]).sum(-1)
    np.testing.assert_allclose(across, haar_sensitivity(level))  # attained by any two in different halves


def test_published_constant_is_larger():
    ratio = [butucea_sensitivity(level) / haar_sensitivity(level) for level in (0, 2, 4, 6)]
    np.testing.assert_allclose(ratio, [20.49, 9.28, 7.29, 6.58], atol=0.006)


def worst_ratio(level, **noise):
    """Supremum over releases of the log ratio of densities, over all pairs of cells."""
    y = middles(level)
    one, other = np.array(list(itertools.permutations(range(len(y)), 2))).T
    # the ratio is largest where each coefficient is beyond the one it is drawn from
    z = np.sign(haar(y[one], level) - haar(y[other], level)) * 1e4
    here, there = (
        pm.logp(dp.WaveletMechanism.dist(y[which], level=level, **noise), z).eval() for which in (one, other)
    )
    return (here - there).max()


@pytest.mark.parametrize(("level", "epsilon"), [(0, 0.5), (1, 2.0), (2, 10.0)])
def test_tight_calibration_is_private_and_attained(level, epsilon):
    with pytensor.config.change_flags(mode="FAST_COMPILE"):
        assert worst_ratio(level, epsilon=epsilon) == pytest.approx(epsilon, rel=1e-9)
        loose = worst_ratio(level, epsilon=epsilon, calibration="butucea")
        # power: less noise than the tight calibration's breaks the promise
        less = worst_ratio(level, scale=0.9 * haar_sensitivity(level) / epsilon)
    assert loose == pytest.approx(epsilon * haar_sensitivity(level) / butucea_sensitivity(level), rel=1e-9)
    assert less > 1.1 * epsilon
    for calibration in ("haar", "butucea"):
        rv = dp.WaveletMechanism.dist(0.1, level=level, epsilon=epsilon, calibration=calibration)
        assert dp.guarantee(rv) == dp.PrivacyGuarantee(epsilon)
    scale = haar_sensitivity(level) / epsilon
    assert dp.guarantee(dp.WaveletMechanism.dist(0.1, level=level, scale=scale)).epsilon == pytest.approx(
        epsilon
    )


# -- draws --------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("error")  # numba would warn if it left native code
@pytest.mark.parametrize("level", [0, 2])
def test_draws_and_releases_follow_the_density(level, seeded_entropy):
    y = np.repeat([0.1, 0.6, 1.0], 8000)
    mean = haar(y, level)
    noise = {"level": level, "scale": 1.5}
    simulated = pm.draw(dp.WaveletMechanism.dist(y, **noise), random_seed=3)
    plain = dp.WaveletMechanism.dist(y, **noise).owner.op.rng_fn(np.random.default_rng(4), y, 1.5)
    published = dp.WaveletMechanism.release(y[:: 4 if level else 1], **noise).value
    for draws, at in ((simulated, mean), (plain, mean), (published, mean[:: 4 if level else 1])):
        for k in range(mean.shape[1]):
            noise_k = draws[:, k] - at[:, k]
            assert st.kstest(noise_k, st.laplace(scale=1.5).cdf).pvalue > 1e-4
            for factor in (1.2, 1 / 1.2):
                assert st.kstest(factor * noise_k, st.laplace(scale=1.5).cdf).pvalue < 1e-3
        assert abs(np.corrcoef(draws - at, rowvar=False) - np.eye(mean.shape[1])).max() < 6 / math.sqrt(
            len(at)
        )


@pytest.mark.statistical
def test_prior_predictive_dims_and_copies():
    with pm.Model(coords={"person": range(5), "coefficient": ["0", "10", "11"]}) as model:
        a = pm.Exponential("a", 1)
        y = pm.Beta("y", a, 2, dims="person")
        dp.WaveletMechanism(
            "z", y, level=1, epsilon=3, dims=("person", "coefficient"), observed=np.zeros((5, 3))
        )
        dp.WaveletMechanism("free", y, level=0, epsilon=3)
    prior = pm.sample_prior_predictive(50, model=model, random_seed=1)
    z = prior.prior_predictive["z"]
    assert z.dims == ("chain", "draw", "person", "coefficient") and prior.prior["free"].shape == (1, 50, 5, 1)
    noise = z.values - haar(prior.prior["y"].values, 1)
    assert st.kstest(noise.ravel(), st.laplace(scale=haar_sensitivity(1) / 3).cdf).pvalue > 1e-3
    point = model.initial_point()
    for copy in (clone_model(model), cloudpickle.loads(cloudpickle.dumps(model)), pm.do(model, {"a": 1.0})):
        assert copy["z"].owner.op == model["z"].owner.op
        assert dp.guarantee(copy["z"]) == dp.PrivacyGuarantee(3.0)
        kept = {k: v for k, v in point.items() if k in copy.initial_point()}
        assert copy.point_logps(kept)["z"] == model.point_logps(point)["z"]
    (block,) = find_record_blocks(model)
    assert [r.kind for r in block.releases] == ["local"] and block.names == ["y"]


# -- posterior ----------------------------------------------------------------------------------------


@pytest.mark.statistical
def test_posterior_is_that_of_quadrature():
    """Beta records, level 1: each record's likelihood is a sum over four cells."""
    z = np.array([[1.5, 2.0, -1.0], [0.2, -0.4, 3.0], [-2.0, 0.5, -1.1]])
    scale, grid = 0.9, np.linspace(0.01, 25, 4000)
    cdf = st.beta.cdf(np.linspace(0, 1, 5), grid[:, None], 2.0)
    cells = np.exp(st.laplace(haar(middles(1), 1)[:, None], scale).logpdf(z).sum(-1))  # (cell, record)
    posterior = np.exp(-0.3 * grid) * (np.diff(cdf, axis=1) @ cells).prod(1)
    with pm.Model() as model:
        a = pm.Exponential("a", 0.3)
        y = pm.Beta("y", a, 2.0, shape=3)
        dp.WaveletMechanism("z", y, level=1, scale=scale, observed=z)
    assert model["z"].type.shape == (3, 3)
    check_posterior(model, "a", grid, posterior)


# -- messages -----------------------------------------------------------------------------------------

BAD = {
    "no noise level": ({"level": 1}, ValueError, r"got none. Choose epsilon=, or scale="),
    "two noise levels": ({"level": 1, "epsilon": 1, "scale": 1}, ValueError, "got both scale= and epsilon="),
    "no level": ({"epsilon": 1}, ValueError, "needs level="),
    "level negative": ({"epsilon": 1, "level": -1}, ValueError, "level must be a whole number from 0 to 16"),
    "level a fraction": ({"epsilon": 1, "level": 1.5}, ValueError, "level must be a whole number .* got 1.5"),
    "level huge": ({"epsilon": 1, "level": 40}, ValueError, "level must be a whole number .* got 40"),
    "level a word": ({"epsilon": 1, "level": "fine"}, TypeError, "level must be a whole number"),
    "epsilon zero": ({"epsilon": 0, "level": 1}, ValueError, "epsilon must be a finite number > 0, got 0"),
    "epsilon nan": ({"epsilon": math.nan, "level": 1}, ValueError, "epsilon must be a finite number > 0"),
    "epsilon inf": ({"epsilon": math.inf, "level": 1}, ValueError, "epsilon must be a finite number > 0"),
    "epsilon a tensor": ({"epsilon": pt.scalar("e"), "level": 1}, TypeError, "epsilon must be one real"),
    "scale negative": ({"scale": -1, "level": 1}, ValueError, "scale must be a finite number > 0, got -1"),
    "scale random": ({"scale": pm.HalfNormal.dist(), "level": 1}, TypeError, "scale must be one real number"),
    "calibration": ({"epsilon": 1, "level": 1, "calibration": "db4"}, ValueError, "one of 'haar', 'butucea'"),
    "bounds reversed": ({"epsilon": 1, "level": 1, "bounds": (1, 0)}, ValueError, "lo < hi"),
    "bounds equal": ({"epsilon": 1, "level": 1, "bounds": (1, 1)}, ValueError, "lo < hi"),
    "intervals": ({"epsilon": 1, "level": 1, "bounds": [(0, 1), (0, 2), (0, 3)]}, ValueError, "one interval"),
    "sensitivity": ({"epsilon": 1, "level": 1, "sensitivity": 2}, TypeError, "unexpected keyword argument"),
    "too fine": ({"epsilon": 1, "level": 16, "bounds": (1, 1 + 1e-14)}, ValueError, "give ascending edges"),
}  # fmt: skip


@pytest.mark.parametrize(("kwargs", "error", "message"), BAD.values(), ids=BAD)
def test_bad_arguments(kwargs, error, message):
    with pytest.raises(error, match=message):
        dp.WaveletMechanism.dist(np.array([0.5, 0.7]), **kwargs)


def test_bad_queries_and_observed():
    with pm.Model():
        y = pm.Beta("y", 2, 2, shape=4)
        pairs = pm.Beta("pairs", 2, 2, shape=(4, 2))
        for query in (pairs, pairs.sum(0), y.cumsum(), pt.stack([y.sum(), y.sum()])):
            with pytest.raises(ValueError, match="WaveletMechanism needs a query of one number per record"):
                dp.WaveletMechanism("z", query, level=0, epsilon=1)
        for shape in ((4, 3), (3, 1), (4,), (4, 1, 1)):
            with pytest.raises(ValueError, match="observed means a release of shape"):
                dp.WaveletMechanism("z", y, level=0, epsilon=1, observed=np.zeros(shape))
        with pytest.raises(ValueError, match="observed has 1 missing or infinite entry"):
            dp.WaveletMechanism("z", y, level=0, epsilon=1, observed=[[0], [np.nan], [1], [2]])
        with pytest.raises(ValueError, match="depends on no random variable"):
            dp.WaveletMechanism("z", [0.1, 0.2], level=0, epsilon=1, observed=np.zeros((2, 1)))
