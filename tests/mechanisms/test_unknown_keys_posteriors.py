"""Posteriors behind releases that list only the keys that passed a threshold, beside sums over counts."""

from __future__ import annotations

import math

import numpy as np
import pymc as pm
import pytest
import scipy.stats as st
from scipy.integrate import cumulative_trapezoid, trapezoid

import pymc_dp as dp
from tests.mechanisms.keys import LAWS, LEVEL, NOISES, REACH, share

GRID = np.exp(np.linspace(math.log(1e-4), math.log(80), 1500))
COUNTS = np.arange(250)
PRIOR = st.gamma(2, scale=1 / 0.3)
VALUES = {None: (8, 9, 11, 9, 14), 4: (8, 8, 12, 8, 16)}


def interval(noise, round_to, y):
    """Log mass of all noisy values that round to one, or the density of one, given each count."""
    if noise.startswith("discrete"):
        below, above = NOISES[noise][2], NOISES[noise][2]
        z = np.arange(-50, 200)
        same = z[(round_to * np.rint(z / round_to) if round_to else z) == y]
        return below(same.min(), COUNTS) - above(same.max() + 1, COUNTS)
    law = (st.laplace if noise == "laplace" else st.norm)(COUNTS, LEVEL)
    return law.cdf(y + round_to / 2) - law.cdf(y - round_to / 2) if round_to else law.pdf(y)


def posterior(law, noise, round_to, values, listed=True):
    """Log density of the rate on the grid, up to a constant; `listed` is whether it counts that keys are."""
    f = LAWS[law][1](GRID[:, None]).pmf(COUNTS)
    total = PRIOR.logpdf(GRID)
    for y in values:
        total += np.log(f @ interval(noise, round_to, y))
    if listed:
        processing = {"round_to": round_to, "suppress_below": 8} if round_to else {"suppress_below": 8}
        total -= len(values) * np.log(share(law, noise, processing, GRID))
    return total


def model_of(law, noise, round_to, values, **extra):
    mechanism, label, _ = NOISES[noise]
    with pm.Model() as model:
        rate = pm.Gamma("rate", 2, 0.3)
        people = LAWS[law][0](rate, shape=len(values))
        observed = dp.postprocessed(values, round_to=round_to, suppress_below=8, unknown_keys=True)
        mechanism("z", people, **{label: LEVEL}, observed=observed)
    return model


def z_values(draws, log_density):
    """Of the first two moments of the log rate, on Monte Carlo errors from the effective sample size."""
    weights = np.exp(log_density - log_density.max())
    weights /= trapezoid(weights, GRID)
    for power in (1, 2):
        exact = trapezoid(weights * np.log(GRID) ** power, GRID)
        x = np.log(draws) ** power
        yield (x.mean() - exact) / (x.std() / math.sqrt(float(pm.stats.ess(x))))


def sampled(model, step=None, draws=2000):
    with model:
        made = None if step is None else step()
        idata = pm.sample(
            draws, tune=500, chains=2, cores=1, random_seed=8, progressbar=False, step=made,
            compute_convergence_checks=False,
        )  # fmt: skip
    return idata.posterior["rate"].values


def nuts_beside_records():
    return [dp.RecordImputation()]


def interwoven():
    return [dp.RecordImputation(), dp.AncillaryUpdate(n_cycles=2)]


CASES = [
    ("Poisson", "discrete laplace", None, None),
    ("Poisson", "laplace", 4, None),
    ("Poisson", "gaussian", None, nuts_beside_records),
    ("negative binomial", "discrete gaussian", 4, None),
    ("negative binomial", "laplace", None, interwoven),
    ("geometric", "gaussian", 4, None),
    ("geometric", "discrete laplace", None, nuts_beside_records),
    ("binomial", "discrete laplace", 4, None),
    ("binomial", "laplace", None, nuts_beside_records),
]


@pytest.mark.parametrize(
    ("law", "noise", "round_to", "step"),
    [CASES[0], *(pytest.param(*c, marks=pytest.mark.statistical) for c in CASES[1:])],
)
def test_posterior_of_a_parameter(law, noise, round_to, step):
    values = VALUES[round_to]
    draws = sampled(model_of(law, noise, round_to, values), step)
    assert max(map(abs, z_values(draws, posterior(law, noise, round_to, values)))) < 5
    # the same draws tell this reading from the one in which these keys are all there are
    assert max(map(abs, z_values(draws, posterior(law, noise, round_to, values, listed=False)))) > 5


@pytest.mark.statistical
@pytest.mark.parametrize("noise", ["laplace", "discrete gaussian"])
def test_keys_that_are_not_empty(noise):
    """Noise on keys that count somebody only: counts from 1 on, unlike those of all keys."""
    values = (3, 3, 4, 3, 5)
    mechanism, label, _ = NOISES[noise]
    with pm.Model() as model:
        rate = pm.Gamma("rate", 2, 0.3)
        people = pm.Truncated("people", pm.Poisson.dist(rate), lower=1, shape=5)
        observed = dp.postprocessed(values, round_to=None, suppress_below=3, unknown_keys="nonempty")
        mechanism("z", people, **{label: LEVEL}, observed=observed)
    draws = sampled(model)
    f = st.poisson.pmf(COUNTS, GRID[:, None]) * (COUNTS > 0)
    all_there_are = PRIOR.logpdf(GRID) - 5 * np.log(f.sum(axis=1))
    for y in values:
        all_there_are += np.log(f @ interval(noise, None, y))
    log_density = all_there_are - 5 * np.log(f @ NOISES[noise][2](3, COUNTS) / f.sum(axis=1))
    assert max(map(abs, z_values(draws, log_density))) < 5
    assert max(map(abs, z_values(draws, all_there_are))) > 5


MARGINAL = [
    (law, noise)
    for law in ("Poisson", "negative binomial", "geometric")
    for noise in NOISES
    if "disc" in noise
]
MARGINAL += [("binomial", noise) for noise in NOISES]


@pytest.mark.statistical
@pytest.mark.parametrize(("law", "noise"), MARGINAL)
def test_counts_integrated_out(law, noise):
    model = model_of(law, noise, 4, VALUES[4])
    marginal = dp.marginalize(model, "people")
    draws = sampled(marginal)
    assert max(map(abs, z_values(draws, posterior(law, noise, 4, VALUES[4])))) < 5


@pytest.mark.statistical
def test_counts_drawn_back():
    """A count of a listed key given the rate has the law f q, undivided."""
    values = VALUES[4]
    model = model_of("Poisson", "discrete gaussian", 4, values)
    with dp.marginalize(model, "people"):
        idata = pm.sample(1000, tune=500, chains=2, cores=1, random_seed=3, progressbar=False)
    drawn = dp.recover_records(idata, model, random_seed=4)["people"].values.reshape(-1, len(values))
    rate = idata.posterior["rate"].values.reshape(-1, 1)
    for i, y in enumerate(values):
        weights = st.poisson.pmf(COUNTS, rate) * interval("discrete gaussian", 4, y)
        gap = drawn[:, i] - (weights @ COUNTS) / weights.sum(1)  # draws are independent given the rate
        assert abs(gap.mean()) < 5 * gap.std() / math.sqrt(len(gap))


@pytest.mark.statistical
def test_counts_in_a_table():
    """With a noisy total of the listed keys beside, counts are a table, which has a step of its own."""
    values, total, sigma = np.array([8, 11, 15]), 25, 3.0
    with pm.Model() as model:
        rate = pm.Gamma("rate", 2, 0.3)
        people = pm.Poisson("people", rate, shape=3)
        observed = dp.postprocessed(values, suppress_below=8, unknown_keys=True)
        dp.DiscreteLaplaceMechanism("z", people, scale=LEVEL, observed=observed)
        dp.DiscreteGaussianMechanism("total", people.sum(), sigma=sigma, observed=total)
        assert [type(s).__name__ for s in [dp.TableImputation()]] == ["TableImputation"]
    draws = sampled(model)
    weight = np.exp(-0.5 * (REACH / sigma) ** 2)
    log_density = PRIOR.logpdf(GRID) - 3 * np.log(
        share("Poisson", "discrete laplace", {"suppress_below": 8}, GRID)
    )
    k = np.arange(120)
    shown = [interval("discrete laplace", None, y)[:120] for y in values]
    for i, r in enumerate(GRID):
        law = np.ones(1)
        for each in shown:
            law = np.convolve(law, st.poisson.pmf(k, r) * each)
        noise = np.interp(total - np.arange(len(law)), REACH, weight / weight.sum(), left=0, right=0)
        log_density[i] += np.log(law @ noise)
    assert max(map(abs, z_values(draws, log_density))) < 5


# -- a universe of keys -----------------------------------------------------------------------------

UNIVERSE, RATE, THRESHOLD, SETS = 400, 6.0, 8, 50


def seen(rng):
    """Noisy counts of four hundred keys, of which those below the threshold are not listed."""
    counts = LAWS["geometric"][1](RATE).rvs(UNIVERSE, random_state=rng)
    up, down = rng.geometric(-np.expm1(-1 / LEVEL), (2, UNIVERSE))
    z = counts + up - down
    return z[z >= THRESHOLD]


def divided_by_count(values, shown, f):
    """The wrong reading in which each count's density is divided by the probability that it is listed."""
    return sum(np.log(f @ (interval("discrete laplace", None, y) / shown)) * n for y, n in values)


def test_a_universe_of_which_only_some_keys_are_seen(rng):
    """Posteriors cover the rate as often as they should; those of two wrong readings are far off."""
    grid = np.linspace(3.0, 16.0, 120)
    with pm.Model() as model:
        data = pm.Data("data", np.full(5, 9))
        rate = pm.Uniform("rate", 3.0, 16.0, default_transform=None)
        people = LAWS["geometric"][0](rate, shape=data.shape[0])
        observed = dp.postprocessed(data, suppress_below=THRESHOLD, unknown_keys=True)
        dp.DiscreteLaplaceMechanism("z", people, scale=LEVEL, observed=observed)
    marginal = dp.marginalize(model, "people")
    logp = marginal.compile_logp(vars=[marginal["z"]])
    f = LAWS["geometric"][1](grid[:, None]).pmf(COUNTS)
    shown = NOISES["discrete laplace"][2](THRESHOLD, COUNTS)
    log_share = np.log(share("geometric", "discrete laplace", {"suppress_below": THRESHOLD}, grid))
    found = {"ours": [], "all keys": [], "divided by count": []}
    for _ in range(SETS):
        z = seen(rng)
        assert 100 < len(z) < 200
        values = list(zip(*np.unique(z, return_counts=True), strict=True))
        with marginal:
            pm.set_data({"data": z})
        by_key = sum(np.log(f @ interval("discrete laplace", None, y)) * n for y, n in values)
        ours = np.array([float(logp({"rate": r})) for r in grid])
        # what the model says is the sum over counts, divided by the probability to be listed
        assert np.allclose(ours, by_key - len(z) * log_share, rtol=1e-9)
        for name, log_density in (
            ("ours", ours),
            ("all keys", by_key),
            ("divided by count", divided_by_count(values, shown, f)),
        ):
            density = np.exp(log_density - log_density.max())
            below = cumulative_trapezoid(density, grid, initial=0)
            density, below = density / below[-1], below / below[-1]
            found[name].append((trapezoid(density * grid, grid), np.interp(RATE, grid, below)))
    for name, results in found.items():
        mean, rank = np.array(results).T
        error = abs(mean.mean() - RATE) / (mean.std() / math.sqrt(SETS))
        covers = np.mean((rank > 0.05) & (rank < 0.95))
        if name == "ours":
            assert error < 4 and abs(covers - 0.9) < 4 * math.sqrt(0.09 / SETS), (error, covers)
        else:
            assert error > 20 and covers == 0, (name, error, covers)
