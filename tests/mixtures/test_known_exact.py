"""Samplers of mixtures whose records are known, beside posteriors by enumeration."""

from __future__ import annotations

import warnings
from functools import cache
from zlib import crc32

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import special, stats

import pymc_dp as dp
from pymc_dp.lowering.functions.gamma_functions import log_gamma_p
from pymc_dp.lowering.functions.truncated import truncated_inverse_gamma
from tests.mixtures import exact, small
from tests.mixtures.examples import every_block
from tests.mixtures.samplers import ALL_KNOWN, KNOWN_SAMPLERS
from tests.mixtures.small import NOISE, Urn, Z, verdict_on

# About 40 verdicts: this keeps the chance of a false alarm anywhere below one in a thousand.
ALPHA = 1e-5
DRAWS = 20_000

FEW, ONE, MANY = Urn(0.5), Urn(1.0), Urn(5.0)
PITMAN_YOR, NEGATIVE, THREE = Urn(1.0, 0.3), Urn(-0.2, 0.5), Urn(0.7, components=3)
# Kernel, samplers (all of them for the first, every second one for others), urns in turn. Behind noise: the
# law that a Gaussian release has given atoms, beside the answer that the samplers of confidential records are
# compared with.
MODELS = [
    ("NIG", ALL_KNOWN, (ONE, PITMAN_YOR, MANY)),
    ("NIG", ALL_KNOWN, (THREE,)),
    ("normal", ALL_KNOWN, (NEGATIVE, FEW)),
    ("NIG above", ALL_KNOWN, (PITMAN_YOR, ONE)),
    ("Poisson", ALL_KNOWN, (ONE, MANY)),
    ("NIG behind noise", KNOWN_SAMPLERS, (ONE, PITMAN_YOR)),
    ("Beta", KNOWN_SAMPLERS, (MANY, FEW)),
]


def _rows():
    for k, (kernel, samplers, urns) in enumerate(MODELS):
        for j, sampler in enumerate(samplers):
            if k > 0 and (j + k) % 2:
                continue
            urn = urns[(j + k) // 2 % len(urns)]
            yield pytest.param(sampler, kernel, urn, id=f"{kernel} {urn} {sampler}")


@pytest.mark.parametrize(("sampler", "kernel", "urn"), list(_rows()))
@pytest.mark.statistical
def test_posterior_is_exact(sampler, kernel, urn):
    seed = crc32(f"{sampler} {kernel} {urn}".encode())
    n = 3 if kernel == "Beta" else 5
    # errors of sweeps that test_known_joint.py plants are seen with half as many draws, errors of splits not
    draws = DRAWS if "split" in sampler else DRAWS // 2
    verdict = verdict_on(ALL_KNOWN[sampler], kernel, "known", urn, n=n, draws=draws, seed=seed)
    assert verdict.passed, verdict


@pytest.mark.statistical
def test_records_that_other_steps_move():
    """Behind noise that is part of the model: NUTS moves the records, the labels follow."""
    with pm.Model() as model:
        y = small.KERNELS["normal"].declare(ONE.labels(5, 7), 7)
        pm.Normal("z", y, small.CHANNELS["gaussian"].scale, observed=Z[:5])

    def sampler():
        return [dp.Neal8(n_cycles=1), dp.AtomUpdate(), pm.NUTS([model["y"]])]

    verdict = verdict_on(sampler, "normal", "gaussian", ONE, draws=DRAWS, seed=7, model=model)
    assert verdict.passed, verdict


@pytest.mark.statistical
@pytest.mark.parametrize("sampler", ["neal 2", "neal 8", "split-merge"])
def test_as_many_slots_as_records(sampler):
    """Nothing is free at times."""
    verdict = verdict_on(ALL_KNOWN[sampler], "normal", "known", ONE, n=4, draws=DRAWS, seed=3, slots=4)
    assert verdict.passed, verdict


@pytest.mark.statistical
@pytest.mark.parametrize("sampler", ["neal 2", "neal 3", "split-merge"])
def test_densities_beyond_the_range_of_numbers(sampler):
    """Records so far from each other that all products of densities underflow."""
    far = np.array([-300.0, -299.5, 0.0, 250.0, 251.0])
    with pm.Model() as model:
        _ = small.KERNELS["normal"].declare(ONE.labels(5, 7), 7, observed=far)
    chain = small.Chain(model, ALL_KNOWN[sampler], ONE, 5_000, 1)
    released = exact.posterior(5, lambda b: _far_log_marginal(far[list(b)]), 1.0)
    together = released.coclustering()
    same = chain.labels[:, :, None] == chain.labels[:, None, :]
    assert abs(same.mean(axis=0) - together).max() < 0.05


@pytest.mark.statistical
def test_degrees_of_freedom_that_nothing_bounds_away_from_zero():
    """Proposals try degrees of freedom that round to zero: these have no density, and end no chain."""
    y = np.array([1.0, 2.0, 0.1, 0.3])
    with pm.Model() as model:
        labels = dp.ChineseRestaurantProcess("labels", concentration=1, shape=4, max_components=4)
        a, mu = pm.HalfNormal("a", 1, shape=4), pm.Normal("mu", 0, 3, shape=4)
        pm.StudentT("y", nu=a[labels], mu=mu[labels], sigma=1.0, observed=y)
    chain = small.Chain(model, ALL_KNOWN["split-merge"], ONE, DRAWS, 2)
    each = cache(_of_one_record)
    coarse, fine = (
        cache(lambda block, f=f: _of_student_records([each(v, f) for v in y[list(block)]], f)) for f in (1, 2)
    )
    for block in every_block(4):
        assert coarse(block) == pytest.approx(fine(block), abs=2e-4)
    released = exact.posterior(4, lambda b: fine(b)[0], 1.0)
    same = chain.labels[:, :, None] == chain.labels[:, None, :]
    i, j = np.triu_indices(4, 1)
    checks = small.z_scores(same[:, i, j], released.coclustering()[i, j], "together")
    own = np.zeros((4, 2))
    for block, probability in released.block_probabilities().items():
        own[list(block)] += probability * np.array(fine(block)[1:])
    for k, of in enumerate((np.log(chain.atoms["a"]), chain.atoms["mu"])):
        checks |= small.z_scores(
            np.take_along_axis(of, chain.labels, 1), own[:, k], "log a, mu".split(", ")[k]
        )
    assert len(checks) == 14
    assert max(map(abs, checks.values())) < stats.norm.isf(ALPHA / 2 / len(checks)), checks


def _nodes(fineness):
    """Logarithms of the degrees of freedom, and locations."""
    return np.linspace(-30.0, 2.2, 160 * fineness), np.linspace(-27.0, 27.0, 4000 * fineness)


def _of_one_record(y, fineness):
    """Log density of one at the nodes."""
    log_a, mu = _nodes(fineness)
    return stats.t.logpdf(y, np.exp(log_a)[:, None], mu)


def _of_student_records(each, fineness):
    """Log density of records with one atom, and its means of log a and mu."""
    log_a, mu = _nodes(fineness)
    a = np.exp(log_a)[:, None]
    logs = sum(each, stats.halfnorm.logpdf(a) + log_a[:, None] + stats.norm.logpdf(mu, 0, 3))
    top = logs.max()
    mass = np.exp(logs - top)
    total = mass.sum()
    cell = (log_a[1] - log_a[0]) * (mu[1] - mu[0])
    return np.log(total * cell) + top, mass.sum(1) @ log_a / total, mass.sum(0) @ mu / total


def _far_log_marginal(y):
    """Of normal records of variance 1 whose mean has variance 9."""
    return stats.multivariate_normal.logpdf(y, np.zeros(len(y)), np.eye(len(y)) + 9.0)


# --- what the cut base rests on -----------------------------------------------------------------------------


def test_cut_clusters_by_two_ways():
    """Quadrature and closed form agree."""
    released = exact.normal_nig_above(Z[:4], NOISE)
    assert released.log_marginal(()) == pytest.approx(0, abs=1e-9)
    for block in every_block(4):
        expected = exact.nig_above_log_marginal(Z[list(block)], NOISE)
        assert released.log_marginal(block) == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize("a", [0.3, 1.0, 3.0, 47.5, 2000.0])
def test_mass_above_an_end(a):
    x = a * np.array([1e-6, 0.01, 0.5, 0.9, 1.0, 1.1, 2.0, 40.0])
    with np.errstate(divide="ignore"):
        expected = np.log(special.gammainc(a, x))
    found = [log_gamma_p.py_func(a, v) for v in x]
    known = np.isfinite(expected)
    assert np.array(found)[known] == pytest.approx(expected[known], rel=1e-10, abs=1e-13)


@pytest.mark.parametrize(
    ("shape", "scale", "end"),
    [
        (3.0, 3.0, 2.25),
        (0.4, 1.0, 30.0),
        (3.0, 1.0, 50.0),
        (60.0, 5.0, 0.2),
        (60.0, 50.0, 0.5),
        # just below the mode of the gamma law, and further below
        (4.0, 3.0 - 1e-9, 1.0),
        (60.0, 58.0, 1.0),
        (60.0, 51.0, 1.0),
        (1.5, 2.0, 0.0),
    ],
)
def test_draws_above_an_end(rng, shape, scale, end):
    draws = np.array([truncated_inverse_gamma(rng, shape, scale, end) for _ in range(20_000)])
    top = special.gammainc(shape, scale / end) if end else 1.0
    ranks = special.gammainc(shape, scale / draws) / top
    assert draws.min() >= end
    assert stats.kstest(ranks, "uniform").pvalue > 1e-5


@pytest.mark.compiles(2)
def test_noise_that_is_data_integrates_out(rng):
    """Section 4.3 of paper 000: the variance of a release is above that of its noise, which is data."""
    with pm.Model() as model:
        eta = pm.Data("eta", 1.0)
        labels = dp.ChineseRestaurantProcess("labels", concentration=1, shape=30, max_components=8)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "RandomVariables .* were found in the derived graph")
            tau2 = pm.Truncated("tau2", pm.InverseGamma.dist(3, 3), lower=eta**2, shape=8)
        mu = pm.Normal("mu", 0, pt.sqrt(10 * tau2), shape=8)
        y = pm.Normal("y", mu[labels], pt.sqrt(tau2[labels] - eta**2))
        # all of them are alike: the variances would be below that of the noise
        dp.GaussianMechanism("z", y, sigma=eta, observed=np.zeros(30))
    marginal = dp.marginalize(model, "y")
    with marginal:
        idata = pm.sample(
            20, tune=20, chains=1, step=[dp.Neal2(), dp.AtomUpdate()], random_seed=rng, progressbar=False,
            compute_convergence_checks=False,
        )  # fmt: skip
    assert (idata.posterior["tau2"] > 1).all()
    grid = np.linspace(-30, 30, 241)
    found = dp.mixture_density(idata, marginal, grid, n_draws=20, random_seed=1)
    assert np.trapezoid(found["mean"].values, grid) == pytest.approx(1, abs=0.02)
