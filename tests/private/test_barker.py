"""Barker's rule: the correction's error, decisions by enumeration, exact posteriors, what breaks it."""

import runpy
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit, ndtr

import pymc_dp as dp
from pymc_dp.private import barker, logistic
from tests.private import models
from tests.private.test_minibatch import ratios_of_batches
from tests.private.test_penalty import exact_normal
from tests.statistics.harness import mc_z

ROWS = models.normal_rows()
POINTS = np.array(logistic.POINTS)
WEIGHTS = np.array(logistic.WEIGHTS)


def stepped(model, noise_multiplier, batch_size, **kwargs):
    return models.driven(dp.BarkerMetropolis, model, noise_multiplier, batch_size=batch_size, **kwargs)


def largest_error(cdf, slope, curvature, top=60.0, step=1e-3):
    """Bound of |cdf(x) - logistic(x)| over all x >= 0, not only on the grid.

    Between points that are `step` apart a function is at most its value and half a step of its slope away,
    and an eighth of the step squared times the bound of its curvature.
    """
    x = np.arange(0, top, step)
    error = np.abs(cdf(x) - expit(x)).max()
    beyond = expit(-top) + 1 - cdf(np.array([top]))[0]
    return max(
        error + step / 2 * np.abs(slope(x) - expit(x) * expit(-x)).max() + step**2 / 8 * curvature, beyond
    )


def slope(x):
    sd = logistic.VARIANCE**0.5
    at = (x[:, None] - np.r_[POINTS, -POINTS]) / sd
    return np.exp(-0.5 * at**2) @ np.r_[WEIGHTS, WEIGHTS] / (2 * sd * np.sqrt(2 * np.pi))


def test_the_error_of_the_correction():
    """At most 1e-4 at every number; with its 19 points the same at minus that number, by symmetry."""
    assert np.isclose(WEIGHTS.sum(), 1, rtol=1e-14) and (WEIGHTS > 0).all() and (POINTS >= 0).all()
    # slopes of the two densities are at most .25 / variance and .1
    error = largest_error(logistic.corrected_cdf, slope, 0.5)
    assert 3.5e-5 < error < 4.5e-5
    x = np.linspace(0, 16, 16_001)
    tails = 1 - logistic.corrected_cdf(-x) - 0.0
    relative = logistic.corrected_cdf(-x) / expit(-x) - 1
    assert np.abs(relative).max() < 1.2e-4 and np.allclose(tails, logistic.corrected_cdf(x), atol=1e-15)
    # power: of normal noise with a variance that is one per cent more
    wrong = largest_error(lambda x: logistic.corrected_cdf(x, 1.01 * logistic.VARIANCE), slope, 0.5)
    assert wrong > 1e-4


@pytest.mark.reference
def test_closer_than_the_published_correction(reference):
    """A mixture of 100 normal laws on each side, for the variance 2."""
    published = np.load(reference / "vcorr_C2_heikkila.npz")
    x = np.linspace(0, 40, 4001)[:, None]
    sd = np.sqrt(published["sigma"] ** 2 + 2)
    weights = published["pi"] / published["pi"].sum()
    mu = published["mu"]
    found = 0.5 * (ndtr((x - mu) / sd) + ndtr((x + mu) / sd)) @ weights
    error = np.abs(found - expit(x[:, 0])).max()
    assert 2e-3 < error < 3e-3
    assert np.abs(logistic.corrected_cdf(x[:, 0]) - expit(x[:, 0])).max() < error / 50


@pytest.mark.statistical
def test_the_program_finds_the_same_law():
    """Or another one that is as close."""
    program = runpy.run_path(str(Path(__file__).parents[2] / "scripts" / "logistic_correction.py"))
    points, weights = program["solve"](logistic.VARIANCE)
    found = program["errors"](points, weights, logistic.VARIANCE)
    shipped = program["errors"](POINTS, WEIGHTS, logistic.VARIANCE)
    assert np.allclose(found, shipped, rtol=0.05) and found[0] < 1e-4


def test_draws_of_the_correction(rng):
    draws = np.array([logistic.draw_correction(rng) for _ in range(40_000)])
    expected, observed = 40_000 * WEIGHTS, [(np.abs(draws) == p).sum() for p in POINTS]
    kept = expected > 20
    pooled = [np.r_[v[kept], v[~kept].sum()] for v in (expected, np.array(observed))]
    assert stats.chisquare(pooled[1], pooled[0]).pvalue > 1e-3
    assert abs((draws > 0).sum() - (draws < 0).sum()) < 4 * np.sqrt((draws != 0).sum())
    total = draws + np.sqrt(logistic.VARIANCE) * rng.standard_normal(40_000)
    assert stats.kstest(total, "logistic").pvalue > 1e-3
    assert stats.kstest(1.1 * total, "logistic").pvalue < 1e-4  # power


NEW, OLD, NONE = np.array([0.7]), np.array([0.6]), np.zeros(0)


def test_decisions_by_enumeration():
    """How often a move is taken, over all batches of six of twelve rows and all that is released of each."""
    model = models.normal_model(ROWS, clip=3.0)
    step = stepped(model, 0.05, 6, variance_noise=4.0)
    ratio, variance = ratios_of_batches(NEW[0], OLD[0], ROWS, 6, 3.0)
    change = stats.norm.logpdf(NEW[0], 0, 2) - stats.norm.logpdf(OLD[0], 0, 2)
    moved = 2 * 2 * 3.0 * 0.1
    multiplier = 0.05 * np.sqrt(1 + 1 / 16)
    sd = multiplier * moved
    z, weight = np.polynomial.hermite_e.hermegauss(9)
    released = variance[:, None] + 4 * multiplier * 0.5 * moved**2 * z
    room = logistic.VARIANCE - sd**2 - released
    assert (room > 0).mean() > 0.95
    chance = 0.0
    for left, w in zip(room.T, weight / weight.sum()):
        # what is topped up makes up for all but the variance as it was released
        normal = sd**2 + np.maximum(left, 0)[:, None]
        chance += w * ((left >= 0) * logistic.corrected_cdf(ratio + change, normal)).mean()
    taken, draws = 0, 20_000
    for _ in range(draws):
        taken += step._decide(NEW, OLD, NONE)[0]
    z = (taken - draws * chance) / np.sqrt(draws * chance * (1 - chance))
    assert abs(z) < 4, (taken / draws, chance)


def test_noise_of_a_release():
    """Both numbers, against all batches."""
    step = stepped(models.normal_model(ROWS, clip=3.0), 0.4, 6)
    drawn = np.array([step.noisy_ratio_and_variance(NEW, OLD, NONE, 0.1) for _ in range(6000)])
    ratio, variance = ratios_of_batches(NEW[0], OLD[0], ROWS, 6, 3.0)
    moved, multiplier = 2 * 2 * 3.0 * 0.1, 0.4 * np.sqrt(1 + 1 / 9)
    sds = multiplier * moved, 3 * multiplier * 0.5 * moved**2
    assert np.allclose(drawn[:, 2], sds[0])
    # the two together cost what one of the planned multiplier does
    assert np.isclose(sum((s / sd) ** 2 for s, sd in zip((moved, 0.5 * moved**2), sds)), 0.4**-2)

    def p_value(column, middle, sd):
        return stats.kstest(column, lambda x: ndtr((x[:, None] - middle) / sd).mean(axis=1)).pvalue

    for column, middle, sd in zip(drawn.T, (ratio, variance), sds):
        assert p_value(column, middle, sd) > 1e-3
        assert p_value(column, middle, 1.3 * sd) < 1e-3  # power


@pytest.mark.statistical
@pytest.mark.parametrize("updates", ["joint", "component", "guided"])
def test_all_rows_follow_the_posterior(updates):
    rows = np.random.default_rng(2).normal([0.8, 0.5], 1.0, (6, 2))
    step = stepped(models.banana_model(rows), 0.004, 6, updates=updates, scale=[0.6, 0.8])
    drawn, _ = models.run(step, 100_000)
    for k, exact in enumerate(models.banana_posterior(rows)):
        found = mc_z(drawn[None, :, k], exact)
        assert found.passed, (k, found)


@pytest.mark.compiles(2)
@pytest.mark.parametrize("wrong", [None, "no correction", "nothing topped up", "moves of two lengths"])
def test_normal_posterior(wrong, monkeypatch):
    """Of all rows; and what breaks it is seen."""
    step = stepped(models.normal_model(ROWS), 0.05, len(ROWS), scale=0.4)
    draws = 15_000
    if wrong == "no correction":
        monkeypatch.setattr(barker, "draw_correction", lambda rng: 0.0)
    elif wrong == "nothing topped up":
        monkeypatch.setattr(barker, "VARIANCE", 0.05)
        draws = 40_000
    elif wrong == "moves of two lengths":
        real = step._proposed
        step._proposed = lambda: (lambda move, j: (np.where(move > 0, 1.5 * move, move) / 2, j))(*real())
    found = mc_z(models.run(step, draws)[0].T, exact_normal(*models.normal_posterior(ROWS)))
    assert found.passed if wrong is None else found.outcome == "rejected", found


def test_moves_are_no_longer_than_there_is_room_for():
    for size in (6, 12):
        step = stepped(models.normal_model(ROWS), 0.5, size, scale=50.0)
        moves = np.array([step._proposed()[0][0] for _ in range(200)])
        assert np.abs(moves).max() <= step.longest * (1 + 1e-12) and (moves > 0).any() and (moves < 0).any()
        _, _, sd = step.noisy_ratio_and_variance(np.full(1, step.longest), np.zeros(1), NONE, step.longest)
        assert sd**2 <= logistic.VARIANCE and sd**2 > 0.49 * logistic.VARIANCE


@pytest.mark.statistical
def test_the_bias_is_small_where_batches_vary_little():
    rows = models.normal_rows(1000)
    step = stepped(models.normal_model(rows, clip=4.0, temper=0.05), 0.2, 200, scale=0.1)
    found = mc_z(models.run(step, 60_000)[0].T, exact_normal(*models.normal_posterior(rows, 0.05)))
    assert found.passed, found


@pytest.mark.compiles(1)
@pytest.mark.parametrize("adapt", [True, False])
def test_tuning_shortens_moves_whose_batches_vary_too_much(adapt):
    step = stepped(models.normal_model(ROWS, clip=4.0), 0.01, 3, scale=5.0)
    step.adapt, step.tune = adapt, True
    point, refused = step.model.initial_point(), []
    for _ in range(800):
        point, (said,) = step.step(point)
        refused.append(said["private_unusable"])
    assert np.mean(refused[-400:]) < 0.15 if adapt else np.mean(refused) > 0.5
