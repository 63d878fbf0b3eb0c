"""Guarantees of every mechanism, checked on its density and on its draws."""

import math

import numpy as np
import pytest

from pymc_dp.mechanisms import guarantee
from tests.contract.form import log_ratio_bound
from tests.contract.table import each_mechanism, each_row

EXACT = 1e-9


def both_ways(row):
    """Pairs of log densities at the rule's points."""
    seen = {}

    def at(query):
        key = np.asarray(query).tobytes()
        if key not in seen:
            seen[key] = row.log_density(row.points[0], query)
        return seen[key]

    for one, other in row.neighbours:
        yield at(one), at(other)
        yield at(other), at(one)


@each_row
def test_states_its_guarantee(row):
    release = row.declare(row.rows_of(row.query, 2))
    for stated in (guarantee(release), release.owner.op.guarantee):
        assert stated.epsilon == pytest.approx(row.promise.epsilon, rel=EXACT)
        assert stated.delta == pytest.approx(row.promise.delta, rel=EXACT)
        assert stated.neighbours == row.promise.neighbours == "replace-one"
        if row.promise.rho is not None:
            assert stated.rho == pytest.approx(row.promise.rho, rel=EXACT)


@each_row
def test_guarantee_holds_and_is_tight(row):
    """Compare the releases of neighbouring data in both directions."""
    weights, promise = row.points[1], row.promise
    worst, excess, divergence = 0.0, 0.0, dict.fromkeys((1.5, 2.0, 8.0), 0.0)
    for here, there in both_ways(row):
        possible = here > -np.inf
        ratio = np.where(possible, here, 0.0) - np.where(possible, there, 0.0)
        assert (there[possible] > -np.inf).all() or promise.delta > 0
        worst = max(worst, ratio.max())
        mass = weights * np.exp(here)
        if math.isfinite(promise.epsilon):
            excess = max(excess, np.sum(mass * -np.expm1(np.minimum(promise.epsilon - ratio, 0))))
        for alpha in divergence:
            power = np.sum(weights * np.exp(here + (alpha - 1) * ratio))
            divergence[alpha] = max(divergence[alpha], np.log(power) / (alpha - 1))
    if promise.is_pure:
        assert worst <= promise.epsilon * (1 + EXACT) + EXACT
        assert not row.tight or worst >= promise.epsilon * (1 - EXACT)
    elif math.isfinite(promise.epsilon):
        # mass by which one release exceeds exp(epsilon) times the other
        assert excess <= promise.delta * (1 + 100 * row.slack)
        assert not row.tight or excess >= promise.delta * (1 - 100 * row.slack)
    if promise.rho is not None:
        for alpha, spent in divergence.items():
            assert spent <= promise.rho * alpha * (1 + row.slack)
        assert not row.tight or divergence[2.0] >= promise.rho * 2 * (1 - row.slack)


@each_row
def test_calibration_inverts_the_guarantee(row):
    """The noise that the budget buys, given as a noise level, costs that budget."""
    given = row.declare(row.rows_of(row.query, 2))
    native = row.declare(row.rows_of(row.query, 2), **row.native)
    for one, other in zip(*(rv.owner.op.dist_params(rv.owner)[1:] for rv in (given, native)), strict=True):
        np.testing.assert_allclose(one.eval(), other.eval(), rtol=EXACT)
    back = guarantee(native)
    if row.promise.is_pure:
        assert back.epsilon == pytest.approx(row.promise.epsilon, rel=EXACT)
    if row.promise.rho is not None:
        assert back.rho == pytest.approx(row.promise.rho, rel=EXACT)


@each_row
def test_draws_betray_no_more_than_promised(row):
    attack(row, "simulated")


@each_mechanism
@pytest.mark.statistical
def test_releases_betray_no_more_than_promised(row):
    attack(row, "published")


def attack(row, how):
    """An attacker's lower bound on epsilon from draws, with the best event that the density offers."""
    n = 40_000 if row.batch else (4000 if how == "simulated" else 1000)
    (one, other), (values, weights) = row.neighbours[0], row.points
    here, there = row.log_density(values, one), row.log_density(values, other)
    with np.errstate(invalid="ignore"):
        ratio = np.where(here > -np.inf, here - there, -np.inf)
    # events "the log ratio is at least t", judged by the bound that their exact probabilities promise
    level, best, threshold = 1e-4, -math.inf, 0.0
    for t in np.unique(np.quantile(ratio[here > -np.inf], np.linspace(0, 0.999, 40))):
        event = ratio >= t - 1e-9
        p, q = (min(np.sum(weights[event] * np.exp(d[event])), 1.0) for d in (here, there))
        bound = log_ratio_bound(round(n * p), round(n * q), n, level)
        if bound > best:
            best, threshold = bound, t
    draw = row.draws if how == "simulated" else lambda query, n, seed: row.published(query, n)
    counts = []
    for query, seed in ((one, 5), (other, 6)):
        z = draw(query, n, seed)
        difference = row.log_density(z, one) - row.log_density(z, other)
        counts.append(int(np.sum(difference >= threshold - 1e-9)))
    found = log_ratio_bound(*counts, n, level)
    if row.promise.is_pure:
        assert found <= row.promise.epsilon
    assert found >= 0.7 * best - 0.3  # power: the attack works as well as it should
