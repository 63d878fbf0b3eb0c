"""What a release taught: distances of known laws, and of priors and posteriors by simulation."""

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from scipy import stats

import pymc_dp as dp
from pymc_dp.stats._components import density_draws, prior_states
from pymc_dp.stats._convergence import effective_draws
from pymc_dp.stats._predictive import PredictiveMixture, mixture_of
from pymc_dp.stats.informativeness import hellinger, standard_error
from tests.stats.mixtures import normal_mixture, repeated, tree

GRID = np.linspace(-9, 9, 37)


@pytest.mark.parametrize("shift", [0.5, 1.0, 2.0])
def test_distances_of_normal_laws_in_bins(rng, shift):
    """Many points are many repetitions, which tell the error of one."""
    edges = np.linspace(-6, 8, 20001)
    both = stats.norm.cdf(edges) + stats.norm.cdf(edges, shift)
    ends = np.interp(np.arange(1, 16) / 8, both, edges)
    p, q = (np.diff(stats.norm.cdf(ends, m), prepend=0, append=1) for m in (0, shift))
    squares = hellinger(rng.normal(size=(8000, 40)), rng.normal(size=(12000, 40)) + shift, n_bins=16) ** 2
    assert abs(squares.mean() - (1 - np.sqrt(p * q).sum())) < 4.5 * squares.std() / np.sqrt(40)


@pytest.mark.parametrize(
    ("shift", "scale"), [(0.5, 1.0), (1.0, 1.0), (2.0, 1.0), (4.0, 1.0), (0.0, 0.25), (0.0, 0.1)]
)
def test_distances_by_default_are_right_to_some_hundredths(rng, shift, scale):
    """As the documentation says of a thousand draws."""
    found = hellinger(rng.normal(size=(1000, 50)), scale * rng.normal(size=(1000, 50)) + shift)
    variance = (1 + scale**2) / 2
    exact = np.sqrt(1 - np.sqrt(scale / variance) * np.exp(-(shift**2) / (8 * variance)))
    assert np.abs(found - exact).mean() < 0.03


def test_distance_of_equal_laws_has_no_bias_to_first_order(rng):
    """Without the correction it would be 0.1 everywhere."""
    squares = hellinger(rng.normal(size=(500, 200)), rng.normal(size=(500, 200))) ** 2
    # the correction is right on average, and what is below zero is cut
    assert np.median(squares) < 0.002
    assert squares.max() < 0.02


def test_distance_of_equal_laws_from_slow_chains(rng):
    chain = slow_chains(rng, 0.9)
    effective = effective_draws(chain[None])
    assert abs(np.median(effective) / (2000 * 0.1 / 1.9) - 1) < 0.3
    known = hellinger(rng.normal(size=(1000, 100)), chain, effective)
    naive = hellinger(rng.normal(size=(1000, 100)), chain)
    assert known.mean() < 0.6 * naive.mean()


def slow_chains(rng, correlation, points=100):
    """2000 standard normal draws at every point, of this autocorrelation."""
    steps = rng.normal(size=(2000, points))
    chain = np.empty_like(steps)
    chain[0] = steps[0]
    for t in range(1, 2000):
        chain[t] = correlation * chain[t - 1] + np.sqrt(1 - correlation**2) * steps[t]
    return chain


def test_distance_of_different_laws_from_very_slow_chains(rng):
    """Worth 50 draws: the correction of the bias left 0.23 of 0.34, and nothing in one case of ten."""
    chain = slow_chains(rng, 1950 / 2050) + 1
    effective = effective_draws(chain[None])
    found = hellinger(rng.normal(size=(1000, 100)), chain, effective)
    exact, error = np.sqrt(1 - np.exp(-1 / 8)), standard_error(found, 1000, effective)
    assert found.min() > 0
    assert abs(found.mean() - exact) < np.median(error)
    assert np.mean(np.abs(found - exact) < 2 * error) > 0.8


@pytest.mark.parametrize("size", [200, 1000])
@pytest.mark.parametrize("shift", [0.5, 1.0, 2.0, 3.0])
def test_standard_error_is_that_of_repetitions(rng, shift, size):
    """Up to terms of second order, of an eighth or so."""
    found = hellinger(rng.normal(size=(1000, 600)), rng.normal(size=(size, 600)) + shift)
    ratio = found.std() / standard_error(found, 1000, np.full(600, float(size))).mean()
    assert abs(ratio - 1) < 0.125 + 4.5 / np.sqrt(2 * 600)


def test_effective_draws_are_not_overstated(rng):
    """Chains that never moved, each elsewhere, are no draws; equal draws cannot be told from exact ones."""
    stuck = np.broadcast_to(np.array([0.0, 1.0, 2.0])[:, None, None], (3, 200, 1))
    assert effective_draws(stuck) < 4
    assert effective_draws(np.zeros((3, 200, 1))) == 600
    assert (
        effective_draws(rng.normal(size=(5, 3, 1))) == 5
    )  # too short for an estimate: the chains are independent


def test_too_few_draws_to_tell():
    """Where chains disagree, 0 said that nothing had been learnt."""
    model = normal_mixture(100, 2, concentration=2.0)
    size = (2, 1000)
    mu = np.zeros((*size, 2))
    mu[1, :, 0] = 4.0  # the second chain elsewhere, for ever
    labels = np.zeros((*size, 100), dtype=int)
    with pytest.warns(
        UserWarning, match=r"At \d+ of 37 points .* fewer than 20 independent ones \(at worst 2"
    ):
        found = dp.informativeness(tree(labels=labels, mu=mu), model, GRID, random_seed=1)
    few = found["ess"].values < 20
    assert 10 < few.sum() < 37 and found["r_hat"].values[few].min() > 1.1
    np.testing.assert_array_equal(np.isnan(found["distance"]), few)
    np.testing.assert_array_equal(np.isnan(found["distance_mcse"]), few)
    assert np.all(found["distance"].values[~few] > 0)
    assert np.isfinite(found["overall"])


def test_a_distance_does_not_depend_on_scale_or_numbers_of_draws(rng):
    first, second = rng.normal(size=(800, 5)), rng.normal(size=(2400, 5)) + 1
    np.testing.assert_allclose(
        hellinger(np.exp(first), np.exp(second), n_bins=12), hellinger(first, second, n_bins=12)
    )
    fewer = hellinger(first, second[::3], n_bins=12)
    np.testing.assert_allclose(fewer, hellinger(first, second, n_bins=12), atol=0.06)


def test_laws_apart_and_constants():
    assert hellinger(np.zeros((50, 1)), np.ones((70, 1))) == 1
    assert hellinger(np.zeros((50, 1)), np.zeros((70, 1))) == 0


@pytest.mark.statistical
@pytest.mark.parametrize(
    "partition",
    [
        {"concentration": 2.0},
        {"concentration": 0.5, "discount": 0.3},
        {"concentration": 0.7, "n_components": 5},
    ],
    ids=["dirichlet", "pitman-yor", "finite"],
)
def test_draws_from_the_prior_taught_nothing(partition):
    """Labels and atoms from the prior: weights given labels must bring the prior of the density back."""
    model = normal_mixture(30, partition.get("n_components", 30), **partition)
    found = dp.informativeness(prior_draws(model), model, GRID, n_prior=1500, random_seed=1)
    assert np.median(found["distance"]) < 0.05  # as documented
    base = np.array([stats.norm.pdf(GRID, 0, np.sqrt(10)), stats.norm.pdf(GRID, 0, np.sqrt(9.5))])
    variance = base[1] / (2 * np.sqrt(np.pi)) - base[0] ** 2
    # four atoms or more for each draw of a random measure
    assert np.all(np.abs(found["prior_mean"] - base[0]) < 4.5 * np.sqrt(variance / (4 * 1500)))
    assert smallest_p_value(model, model) > 1e-4


@pytest.mark.statistical
def test_a_wrong_law_of_the_weights_would_be_seen():
    """The same draws under a model of twice the concentration: the comparison has power."""
    model, other = (normal_mixture(30, 30, concentration=alpha) for alpha in (2.0, 4.0))
    assert smallest_p_value(model, other) < 1e-4


def prior_draws(model):
    labels, mu = pm.draw([model["labels"], model["mu"]], 1500, random_seed=3)
    return tree(labels=labels.reshape(3, 500, -1), mu=mu.reshape(3, 500, -1))


def smallest_p_value(model, other):
    """Densities given labels and atoms of the one model against densities from the prior of the other."""
    given = dp.mixture_density(prior_draws(model), other, GRID, random_seed=1)["density"].values
    mixture = PredictiveMixture(other, mixture_of(other, None), GRID)
    mixture.seed(5)
    prior, _, _ = density_draws(mixture, prior_states(mixture, 4, 1500), np.random.default_rng(5), 1e-3)
    return stats.ks_2samp(given.reshape(1500, -1), prior, method="asymp").pvalue.min()


def test_the_more_records_the_more_was_taught():
    """All records in one cluster, whose weight they make certain."""
    distances = []
    for n in (1, 10, 100):
        model = normal_mixture(n, 2, concentration=2.0)
        idata = repeated(1000, labels=np.zeros(n, int), mu=[2.0, 0.0])
        distances.append(dp.informativeness(idata, model, GRID, random_seed=1))
    for name in ("distance", "overall"):
        means = [float(d[name].mean()) for d in distances]
        assert means[0] < means[1] < means[2]
    # the means' distance, by quadrature
    own, base = stats.norm.pdf(GRID, 2), stats.norm.pdf(GRID, 0, np.sqrt(10))
    exact = np.sqrt(np.trapezoid((np.sqrt(base) - np.sqrt((100 * own + 2 * base) / 102)) ** 2, GRID) / 2)
    assert float(distances[2]["overall"]) == pytest.approx(exact, abs=0.03)


def test_parameters_are_drawn_from_their_prior():
    """A scale that all atoms share, and a random number of components: the mean is a mixture over both."""
    with pm.Model() as model:
        tau = pm.Exponential("tau", 1)
        more = pm.Poisson("more", 1)
        labels = dp.ChineseRestaurantProcess(
            "labels", concentration=1.0, n_components=1 + more, shape=4, max_components=6
        )
        mu = pm.Normal("mu", 0, tau, shape=6)
        pm.Normal("y", mu[labels], 1)
    idata = repeated(40, tau=1.0, more=1, labels=[0, 0, 1, 1], mu=np.arange(6.0))
    found = dp.informativeness(idata, model, GRID, n_prior=4000, random_seed=1)
    scales = stats.expon.ppf((np.arange(2000) + 0.5) / 2000)
    exact = stats.norm.pdf(GRID[:, None], 0, np.sqrt(1 + scales**2)).mean(axis=1)
    error = stats.norm.pdf(GRID[:, None], 0, np.sqrt(1 + scales**2)).std(axis=1) + 0.1
    assert np.all(np.abs(found["prior_mean"] - exact) < 4.5 * error / np.sqrt(4000))


def test_points_of_several_numbers_have_no_overall_distance():
    with pm.Model() as model:
        labels = dp.ChineseRestaurantProcess("labels", concentration=1, shape=3, max_components=3)
        mu = pm.Normal("mu", 0, 3, shape=(3, 2))
        pm.Normal("y", mu[labels], 1)
    idata = repeated(40, labels=[0, 0, 1], mu=np.zeros((3, 2)))
    found = dp.informativeness(idata, model, np.zeros((4, 2)), n_prior=50, random_seed=1)
    assert np.isnan(found["overall"])
    assert found["distance"].shape == (4,)


def test_a_potential_in_the_prior_is_refused():
    with pm.Model() as model:
        tau = pm.HalfNormal("tau", 1)
        pm.Potential("pull", -tau)
        labels = dp.ChineseRestaurantProcess("labels", concentration=1, shape=3, max_components=3)
        mu = pm.Normal("mu", 0, tau, shape=3)
        pm.Normal("y", mu[labels], 1)
    idata = repeated(40, labels=[0, 0, 1], mu=np.zeros(3), tau=1.0)
    with pytest.raises(ValueError, match="The potential pull is part of the prior of tau"):
        dp.informativeness(idata, model, GRID)


@pytest.mark.parametrize(
    ("grid", "more", "words"),
    [
        ([0.0, 2.0, 1.0], {}, "grid must increase"),
        ([0.0, 1.0], {"n_prior": 3}, "n_prior must be an integer of at least 10, got 3"),
        ([0.0, 1.0], {"tolerance": 2.0}, "tolerance must be between 0 and 1"),
        ([0.0, np.inf], {}, "grid must be finite"),
    ],
)
def test_bad_input(grid, more, words):
    idata = repeated(6, labels=[0, 0, 0], mu=np.zeros(4))
    with pytest.raises(ValueError, match=words):
        dp.informativeness(idata, normal_mixture(3), grid, **more)
    with pytest.raises(ValueError, match=r"idata\.posterior has no labels"):
        dp.informativeness(xr.DataTree.from_dict({"posterior": xr.Dataset()}), normal_mixture(3), GRID)
