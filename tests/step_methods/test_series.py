"""Parameters that are autoregressions or random walks, with steps of an unknown scale."""

import dataclasses
import logging
from functools import cache

import numpy as np
import pymc as pm
import pytest
from scipy import stats

import pymc_dp as dp
from pymc_dp.step_methods import claims
from pymc_dp.step_methods.updates import noncentred
from pymc_dp.step_methods.updates import series as series_forms
from pymc_dp.step_methods.updates.conditionals import Conditionals
from tests.statistics import harness
from tests.statistics.marginal import from_panels, gauss_panels

# Times of a series, and of one whose scale holds it faster; people behind each release, and its noise.
T, LONG, N, NOISE = 6, 11, 20, 5.0
Z = np.array([19.68, -2.52, 4.88, -10.48, -1.85, 8.73, 3.1, -9.4, 12.2, 1.7, -6.3])
PEOPLE, PANEL_NOISE = 20, 10.0
PANEL_Z = np.array([3.0, -3.0, 6.0, 2.0, -5.0, 1.0])


def autoregression(rho, sigma, shape):
    return pm.AR("theta", rho, sigma=sigma, init_dist=pm.Normal.dist(0, 1), shape=shape)


def random_walk(rho, sigma, shape):
    return pm.GaussianRandomWalk("theta", rho, sigma=sigma, init_dist=pm.Normal.dist(0, 1), shape=shape)


def parameters():
    return pm.Normal("rho", 0.5, 0.3), pm.HalfNormal("sigma", 1)


def of_parameters(series, length):
    """A series of means, each of some people with a release of their sum."""
    with pm.Model() as model:
        theta = series(*parameters(), shape=length)
        y = pm.Normal("y", theta[np.repeat(np.arange(length), N)], 1, shape=length * N)
        for t in range(length):
            dp.GaussianMechanism(f"z{t}", y[t * N : (t + 1) * N].sum(), sigma=NOISE, observed=Z[t])
    return model


def of_records(series, length):
    """A panel: a series for each record, and a release of sums over people."""
    with pm.Model() as model:
        theta = series(*parameters(), shape=(PEOPLE, length))
        dp.GaussianMechanism("z", dp.record_sum(theta), sigma=PANEL_NOISE, observed=PANEL_Z[:length])
    return model


def law_of(series, length, rho, sigma):
    """Mean and covariance of the series, for arrays of rho and sigma that broadcast."""
    rho, sigma = (np.asarray(v)[..., None] for v in (rho, sigma))
    power = rho if series is autoregression else np.ones_like(rho)
    lag = np.subtract.outer(np.arange(length), np.arange(length))
    scale = np.where(np.arange(length) == 0, 1.0, sigma)
    steps = np.where(lag >= 0, power[..., None] ** np.maximum(lag, 0), 0.0) * scale[..., None, :]
    mean = np.zeros(length) if series is autoregression else rho * np.arange(length)
    return mean, steps @ np.swapaxes(steps, -1, -2)


def likelihood(model_of, series, length, rho, sigma):
    """Log density of the releases, which are jointly normal."""
    mean, covariance = law_of(series, length, rho, sigma)
    if model_of is of_parameters:
        mean, covariance, noise, z = N * mean, N**2 * covariance, N + NOISE**2, Z
    else:
        mean, covariance, noise, z = PEOPLE * mean, PEOPLE * covariance, PANEL_NOISE**2, PANEL_Z
    covariance, gap = covariance + noise * np.eye(length), z[:length] - mean
    square = np.einsum("...i,...ij,...j", gap, np.linalg.inv(covariance), gap)
    return -0.5 * (square + np.linalg.slogdet(covariance)[1] + length * np.log(2 * np.pi))


@cache
def exact_marginals(model_of, series, length):
    """Of rho and the logarithm of sigma."""
    edges = np.linspace(-1.5, 2.5, 15), np.linspace(-14, 2, 31)
    (rho, rho_weight), (log_sigma, sigma_weight) = (
        (v.ravel() for v in gauss_panels(edge, 6)) for edge in edges
    )
    r, s = rho[:, None], np.exp(log_sigma)
    prior = stats.norm.logpdf(r, 0.5, 0.3) + stats.halfnorm.logpdf(s) + log_sigma
    logp = likelihood(model_of, series, length, r, s) + prior
    mass = np.exp(logp - logp.max()) * rho_weight[:, None] * sigma_weight
    mass /= mass.sum()
    return {
        "rho": from_panels(edges[0], mass.sum(axis=1), rho_weight),
        "sigma": from_panels(edges[1], mass.sum(axis=0), sigma_weight),
    }


def verdicts(model_of, series, length=T, draws=2000, seed=1):
    with model_of(series, length):
        idata = pm.sample(
            draws, tune=1000, chains=4, cores=1, random_seed=seed, progressbar=False, quiet=True,
            compute_convergence_checks=False,
        )  # fmt: skip
    found = {"rho": idata.posterior["rho"].values, "sigma": np.log(idata.posterior["sigma"].values)}
    exact = exact_marginals(model_of, series, length)
    # the tails, too: what is never visited leaves R-hat and effective draws as they are
    probabilities = (0.01, 0.02, 0.05, 0.25, 0.5, 0.75, 0.95)
    return {
        name: harness.mc_z(found[name], exact[name], minimum_ess=150, probabilities=probabilities)
        for name in exact
    }


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("model_of", "series", "draws"),
    [
        (of_parameters, autoregression, 2000),
        (of_records, random_walk, 2000),
        # One of eight draws of its tail counts, in stretches of unequal length: the error of a few stretches
        # is not known, and with 2000 draws a chain four of 72 seeds were rejected (none of twelve with 8000).
        pytest.param(of_parameters, random_walk, 8000, marks=pytest.mark.statistical),
        pytest.param(of_records, autoregression, 2000, marks=pytest.mark.statistical),
    ],
)
def test_small_scales_are_visited(model_of, series, draws):
    """Their lower tail of .02 had .001 after 320,000 draws of autoregressions, with R-hat 1.003."""
    found = verdicts(model_of, series, draws=draws)
    assert all(verdict.passed for verdict in found.values()), found


@pytest.mark.statistical
def test_given_the_series_they_are_not(monkeypatch):
    """Without the form of a series, as it was, few draws of its scale count: whether they are off is chance.

    Of 8,000, some 4,000 count with it, and 530, 136 and 129 without (seeds 1 to 3).
    """
    with_form = verdicts(of_parameters, autoregression, LONG)["sigma"]
    monkeypatch.setattr(Conditionals, "_noncentred", lambda self: {})
    without = verdicts(of_parameters, autoregression, LONG)["sigma"]
    assert with_form.passed and without.effective_draws < with_form.effective_draws / 4, without


@pytest.mark.statistical
@pytest.mark.parametrize("series", [autoregression, random_walk])
def test_given_the_records_they_are_not(monkeypatch, series):
    """Without the form of records that are series, as it was, other steps have too few draws that count."""
    monkeypatch.setattr(claims, "noise_form", noncentred.family_form)
    monkeypatch.setattr(claims, "MOST_REDRAWN", 0)  # nor are they drawn anew with their parameters
    found = verdicts(of_records, series)
    assert not found["sigma"].passed, found


def as_if_entries_were_steps(patch):
    """Records that are moved without those before them in their series."""
    for form in ("_random_walk", "_autoregression"):
        original = getattr(series_forms, form)

        def broken(*args, original=original):
            right = original(*args)
            return dataclasses.replace(right, to_record=right.steps)

        patch.setattr(series_forms, form, broken)


@pytest.mark.statistical
@pytest.mark.parametrize("series", [autoregression, random_walk])
def test_wrong_noise_of_records_is_seen(monkeypatch, series):
    as_if_entries_were_steps(monkeypatch)
    found = verdicts(of_records, series)
    assert "rejected" in {verdict.outcome for verdict in found.values()}, found


def vectors(scale):
    return pm.MvNormal("theta", np.zeros(2), scale**2 * np.eye(2))


def of_a_skew(scale):
    return pm.SkewNormal("theta", mu=0, sigma=scale, alpha=1, shape=2)


def of_shares(scale):
    return pm.Beta("theta", scale, scale, shape=2)


def walk_of_vectors(scale):
    start, steps = pm.MvNormal.dist(np.zeros(1), np.eye(1)), pm.MvNormal.dist(np.zeros(1), np.eye(1) * scale)
    return pm.RandomWalk("theta", init_dist=start, innovation_dist=steps, shape=(2, 1))[:, 0]


def walk_of_skew_steps(scale):
    steps = pm.SkewNormal.dist(mu=0, sigma=scale, alpha=1)
    return pm.RandomWalk("theta", init_dist=pm.Normal.dist(), innovation_dist=steps, shape=2)


def normal(scale):
    return pm.Normal("theta", 0, scale, shape=2)


def positive(scale):
    return pm.HalfNormal("theta", scale, shape=2)


def walk(scale):
    return pm.GaussianRandomWalk("theta", sigma=scale, init_dist=pm.Normal.dist(), shape=2)


def by_hand(scale):
    return scale * pm.Normal("e", shape=2)


HELD = [vectors, of_a_skew, of_shares, walk_of_vectors, walk_of_skew_steps]


@pytest.mark.compiles(3)
@pytest.mark.usefixtures("built_only")
@pytest.mark.parametrize("declare", [*HELD, normal, positive, walk, by_hand])
def test_what_is_held_fast_is_told(declare, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("pymc"), "propagate", True)
    with pm.Model(), caplog.at_level("INFO", logger="pymc.dp"):
        theta = declare(pm.HalfNormal("scale"))
        y = pm.Normal("y", theta[np.arange(6) % 2], 1)
        dp.LaplaceMechanism("z", dp.record_sum(y), scale=1.0, observed=1.0)
        dp.AncillaryUpdate()
    told = [r.getMessage() for r in caplog.records if "hold each other fast" in r.getMessage()]
    assert len(told) == (declare in HELD)
    assert all("moves theta and" in message for message in told)
