"""Noisy histograms: counts, sensitivities by enumeration, the law of every noise, messages."""

import math

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
import scipy.stats as st
from pymc.model.fgraph import clone_model

import pymc_dp as dp
from pymc_dp.mechanisms._bins import equal_edges
from pymc_dp.mechanisms.perturbed_histogram import histogram_sensitivity
from pymc_dp.query.records import find_record_blocks
from pymc_dp.step_methods.sweeps.moves import lowered
from tests.mechanisms.grids import check_histogram_posterior

NOISES = {
    "laplace": ({"epsilon": 0.8}, lambda count: st.laplace(count, 2 / 0.8), dp.PrivacyGuarantee(0.8)),
    "gaussian": ({"rho": 0.1}, lambda count: st.norm(count, math.sqrt(10)), None),
    "discrete_laplace": (
        {"epsilon": 0.8},
        lambda count: st.dlaplace(0.4, loc=count),
        dp.PrivacyGuarantee(0.8),
    ),
    "discrete_gaussian": ({"rho": 0.1}, None, None),
}
each_noise = pytest.mark.parametrize("noise", NOISES)


def counts_of(rv):
    return rv.owner.op.dist_params(rv.owner)[0].eval()


@pytest.mark.parametrize(
    "bins",
    [
        {"n_bins": 7},
        {"n_bins": 10, "bounds": (-1, 2)},
        {"edges": [0, 0.29, 0.3, 0.9]},
        {"edges": [-3, -1, 4]},
    ],
)
def test_counts_are_numpy_s(bins):
    """Values beyond the ends count in the end bins; the last bin is closed."""
    edges = np.asarray(bins.get("edges", equal_edges(*bins.get("bounds", (0, 1)), bins.get("n_bins", 2))))
    width = np.diff(edges)
    assert "edges" in bins or (len(width) == bins["n_bins"] and np.ptp(width) < 1e-12)
    rng = np.random.default_rng(1)
    y = np.concatenate([rng.normal(0.5, 1, 500), edges, np.nextafter(edges, -9), np.nextafter(edges, 9)])
    rv = dp.PerturbedHistogram.dist(y, epsilon=1, **bins)
    expected = np.histogram(np.clip(y, edges[0], edges[-1]), edges)[0]
    np.testing.assert_array_equal(counts_of(rv), expected)
    assert rv.owner.op.cells == tuple(edges)
    assert rv.type.shape == (len(edges) - 1,)


@pytest.mark.parametrize("values", [[0, 0, 1], [2, 1, 0, 1]])
def test_sensitivity_by_enumeration(values):
    """All neighbours of a small data set; both norms."""
    edges = np.array([-0.5, 0.5, 1.5, 2.5])

    def counts(y):
        return counts_of(dp.PerturbedHistogram.dist(np.array(y, dtype=float), epsilon=1, edges=edges))

    here = counts(values)
    replaced = [counts([*values[:i], v, *values[i + 1 :]]) for i in range(len(values)) for v in range(3)]
    removed = [counts([*values[:i], *values[i + 1 :]]) for i in range(len(values))]
    for order in (1, 2):
        assert max(np.linalg.norm(here - c, order) for c in replaced) == histogram_sensitivity(order)
        assert max(np.linalg.norm(here - c, order) for c in removed) == histogram_sensitivity(
            order, "add-remove"
        )


@each_noise
def test_density_and_draws(noise):
    level, law, _ = NOISES[noise]
    y = np.repeat([0.1, 0.4, 0.9], [3, 0, 5])
    rv = dp.PerturbedHistogram.dist(y, n_bins=3, noise=noise, **level)
    discrete = noise.startswith("discrete")
    values = np.arange(-40, 48) if discrete else np.linspace(-40.3, 48, 201)
    z = np.stack([values, values[::-1], np.roll(values, 9)], axis=1)
    value = pt.vector("value")
    density = pytensor.function([value], pm.logp(rv, value), mode="FAST_COMPILE")
    logp = np.array([density(row) for row in z[::8]])
    if law is not None:
        frozen = [law(c) for c in (3, 0, 5)]
        exact = np.stack(
            [(f.logpmf if discrete else f.logpdf)(z[::8, k]) for k, f in enumerate(frozen)], axis=1
        )
    else:
        k = np.arange(-400, 401)
        total = np.exp(-(k**2) / 20).sum()
        exact = -((z[::8] - [3, 0, 5]) ** 2) / 20 - np.log(total)
    np.testing.assert_allclose(logp, exact, rtol=1e-9)
    sd = {"laplace": math.sqrt(2) * 2.5, "gaussian": math.sqrt(10), "discrete_gaussian": math.sqrt(10)}.get(
        noise, math.sqrt(0.5) / math.sinh(0.2)
    )
    draws = pm.draw(rv, draws=4000, random_seed=2)
    error = sd / math.sqrt(len(draws))
    assert abs(draws.mean(0) - [3, 0, 5]).max() < 5 * error
    # the sd of a sample of Laplace noise has a relative error of about 1.12/sqrt(n)
    assert abs(draws.std(0) / sd - 1).max() < 5 * 1.2 / math.sqrt(len(draws))
    # what is published is compared with the exact sampler by tests/contract/test_releases.py
    published = dp.PerturbedHistogram.release(y, n_bins=3, noise=noise, **level).value
    assert not discrete or draws.dtype == published.dtype == np.int64


def test_guarantees():
    y = np.linspace(0, 1, 9)

    def promise(**kwargs):
        return dp.guarantee(dp.PerturbedHistogram.dist(y, n_bins=3, **kwargs))

    for noise, (level, _, stated) in NOISES.items():
        assert stated is None or promise(noise=noise, **level) == stated
    assert promise(rho=0.1).rho == pytest.approx(0.1)
    assert promise(sigma=3.0).rho == pytest.approx(2 / 18)
    assert promise(epsilon=1, delta=1e-5).delta == 1e-5
    assert promise(epsilon=1, delta=1e-5, calibration="classic").rho == pytest.approx(
        1 / (4 * math.log(1.25e5))
    )
    assert promise(scale=4.0).epsilon == pytest.approx(0.5)
    assert promise(scale=4.0, noise="discrete_laplace").epsilon == pytest.approx(0.5)
    assert promise(sigma=3.0, noise="discrete_gaussian").rho == pytest.approx(1 / 9)
    half = promise(scale=4.0, neighbours="add-remove")
    assert half.epsilon == pytest.approx(0.25) and half.neighbours == "add-remove"
    assert promise(epsilon=1, neighbours="add-remove") == dp.PrivacyGuarantee(1.0, neighbours="add-remove")
    rv = dp.PerturbedHistogram.dist(y, n_bins=3, epsilon=1, neighbours="add-remove")
    assert rv.owner.op.dist_params(rv.owner)[1].eval() == pytest.approx(1.0)


def test_kind_of_noise_is_guessed_from_its_level():
    def op(**kwargs):
        return type(dp.PerturbedHistogram.dist(np.zeros(4), n_bins=2, **kwargs).owner.op).__name__

    assert op(epsilon=1) == op(scale=1) == "HistogramLaplaceRV"
    assert op(rho=1) == op(sigma=1) == op(epsilon=1, delta=1e-5) == "HistogramGaussianRV"


@pytest.mark.usefixtures("python_mode")
@each_noise
def test_published_and_declared_again(noise):
    level = NOISES[noise][0]
    y = np.random.default_rng(2).beta(2, 3, 40)
    for bins, neighbours in (({"n_bins": 3}, "replace-one"), ({"edges": [0, 0.1, 2]}, "add-remove")):
        release = dp.PerturbedHistogram.release(y, noise=noise, neighbours=neighbours, **bins, **level)
        again = dp.Release.from_json(release.to_json())
        with pm.Model() as model:
            x = pm.Beta("x", 2, 2, shape=40)
            z = dp.PerturbedHistogram("z", x, observed=again)
            w = dp.PerturbedHistogram(
                "w", x, observed=release.value, noise=noise, neighbours=neighbours, **bins, **level
            )
        assert dp.guarantee(z) == dp.guarantee(w) == release.guarantee
        assert release.guarantee.neighbours == neighbours
        logps = model.point_logps()
        assert logps["z"] == pytest.approx(logps["w"], rel=1e-8)
    with pm.Model():
        x = pm.Beta("x", 2, 2, shape=40)
        with pytest.raises(ValueError, match="contradicts the release"):
            dp.PerturbedHistogram("z", x, observed=again, neighbours="replace-one")


@pytest.mark.parametrize("noise", ["laplace", "discrete_gaussian"])
@pytest.mark.compiles(1)
def test_steps_see_a_sum_over_records(noise):
    with pm.Model(coords={"bin": list("abcd")}) as model:
        mu = pm.Normal("mu", 0, 1)
        y = pm.Normal("y", mu, 1, shape=30)
        level = NOISES[noise][0]
        dp.PerturbedHistogram(
            "z", y, edges=[-2, -1, 0, 1, 2], noise=noise, **level, dims="bin", observed=[1, 9, 8, 2]
        )
    for copy in (clone_model(model), model):
        block = find_record_blocks(copy)[0]
        assert [r.kind for r in block.releases] == ["central"]
    _, moves = lowered(model, block, "independence", model.initial_point())
    assert moves[0].fused is not None
    prior = pm.sample_prior_predictive(20, model=model, random_seed=1)
    assert prior.prior_predictive["z"].dims == ("chain", "draw", "bin")


@pytest.mark.statistical  # records alone, and a parameter in full: tests/contract/test_imputation.py
def test_posterior_is_that_of_enumeration():
    """Discrete records, whose histograms can be listed."""
    observed, scale = np.array([2.4, -0.3, 1.9]), 1.1
    check_histogram_posterior(
        lambda x: dp.PerturbedHistogram("z", x, edges=[0, 1, 2, 3], scale=scale, observed=observed),
        lambda counts: np.exp(st.laplace(counts, scale).logpdf(observed).sum()),
    )


BAD = {
    "no noise level": ({"n_bins": 3}, ValueError, "got none. Choose epsilon="),
    "two noise levels": ({"n_bins": 3, "epsilon": 1, "rho": 1}, ValueError, "got both epsilon= and rho="),
    "scale and epsilon": ({"n_bins": 3, "epsilon": 1, "scale": 1}, ValueError, "got both scale= and eps"),
    "epsilon zero": ({"n_bins": 3, "epsilon": 0}, ValueError, "epsilon must be a finite number > 0"),
    "epsilon inf": ({"n_bins": 3, "epsilon": math.inf}, ValueError, "epsilon must be a finite number > 0"),
    "rho negative": ({"n_bins": 3, "rho": -1}, ValueError, "rho must be a finite number > 0"),
    "scale nan": ({"n_bins": 3, "scale": math.nan}, ValueError, "scale must be finite and > 0"),
    "delta alone": ({"n_bins": 3, "delta": 1e-6}, ValueError, "delta was given without epsilon"),
    "gaussian without delta": (
        {"n_bins": 3, "epsilon": 1, "noise": "gaussian"}, ValueError, "epsilon was given without delta",
    ),
    "laplace with rho": ({"n_bins": 3, "rho": 1, "noise": "laplace"}, ValueError, "'laplace' takes no rho="),
    "discrete gaussian with epsilon": (
        {"n_bins": 3, "epsilon": 1, "noise": "discrete_gaussian"}, ValueError, "no epsilon=: choose rho=",
    ),
    "unknown noise": ({"n_bins": 3, "epsilon": 1, "noise": "cauchy"}, ValueError, "noise must be one of"),
    "no bins": ({"epsilon": 1}, ValueError, "exactly one of n_bins= and edges=, got none"),
    "bins twice": ({"epsilon": 1, "n_bins": 2, "edges": [0, 1, 2]}, ValueError, "edges=, got both"),
    "edges and bounds": ({"epsilon": 1, "edges": [0, 1, 2], "bounds": (0, 2)}, ValueError, "bounds out"),
    "one bin": ({"epsilon": 1, "n_bins": 1}, ValueError, "n_bins must be a whole number from 2"),
    "fraction of a bin": ({"epsilon": 1, "n_bins": 2.5}, ValueError, "n_bins must be a whole number"),
    "one edge too few": ({"epsilon": 1, "edges": [0, 1]}, ValueError, "at least 3 numbers"),
    "edges unordered": ({"epsilon": 1, "edges": [0, 2, 1]}, ValueError, "got 2 followed by 1"),
    "edges infinite": ({"epsilon": 1, "edges": [-math.inf, 0, 1]}, ValueError, "edges must be finite"),
    "edges a tensor": ({"epsilon": 1, "edges": pt.vector()}, TypeError, "edges must be known numbers"),
    "bounds reversed": ({"epsilon": 1, "n_bins": 2, "bounds": (1, 0)}, ValueError, "lo < hi"),
    "neighbours": ({"epsilon": 1, "n_bins": 2, "neighbours": "swap"}, ValueError, "neighbours must be"),
    "unknown keyword": ({"epsilon": 1, "n_bins": 2, "sensitivity": 2}, TypeError, "sensitivity"),
}  # fmt: skip


@pytest.mark.parametrize(("kwargs", "error", "message"), BAD.values(), ids=BAD)
def test_bad_arguments(kwargs, error, message):
    with pytest.raises(error, match=message):
        dp.PerturbedHistogram.dist(np.array([0.5, 0.7]), **kwargs)


def test_bad_queries_and_observed():
    with pm.Model():
        y = pm.Beta("y", 2, 2, shape=4)
        pairs = pm.Beta("pairs", 2, 2, shape=(4, 2))
        for query in (pairs, pairs.sum(0), y.cumsum(), y.sum()):
            with pytest.raises(ValueError, match="PerturbedHistogram needs a query of one number per record"):
                dp.PerturbedHistogram("z", query, n_bins=2, epsilon=1)
        with pytest.raises(ValueError, match=r"observed means a release of shape \(4,\), but .* \(2,\)"):
            dp.PerturbedHistogram("z", y, n_bins=2, epsilon=1, observed=np.zeros(4))
        with pytest.raises(ValueError, match="observed has 1 missing"):
            dp.PerturbedHistogram("z", y, n_bins=2, epsilon=1, observed=[1, np.nan])
        with pytest.raises(ValueError, match=r"observed must be whole numbers, got 1\.5"):
            dp.PerturbedHistogram("z", y, n_bins=2, epsilon=1, noise="discrete_laplace", observed=[1, 1.5])
        dp.PerturbedHistogram("a", y, n_bins=2, epsilon=1, noise="discrete_laplace", observed=[1.0, 3.0])
        dp.PerturbedHistogram("b", y, n_bins=2, epsilon=1, observed=[1, 3])
