"""Guarantees of every mechanism, checked on its density and on its draws."""

import math

import numpy as np
import pytest
import scipy.stats as st

from pymc_dp.mechanisms import guarantee
from pymc_dp.mechanisms.exponential import Choice
from tests.contract.form import LEVELS, probability_bounds
from tests.contract.table import ROWS, drawn_row, each_row, over, released_row

EXACT = 1e-9


def both_ways(row, noise=None):
    """Pairs of log densities at the rule's points."""
    seen = {}

    def at(query):
        key = np.asarray(query).tobytes()
        if key not in seen:
            seen[key] = row.log_density(row.points[0], query, **(noise or {}))
        return seen[key]

    for one, other in row.neighbours:
        yield at(one), at(other)
        yield at(other), at(one)


@each_row
def test_states_its_guarantee(row):
    release = row.declare(row.rows_of(row.query, 2))
    # two rows are two people, but two choices from a table of numbers are about the same people
    times = 2 if issubclass(row.mechanism, Choice) else 1
    for stated in (guarantee(release), release.owner.op.guarantee):
        assert stated.epsilon == pytest.approx(times * row.promise.epsilon, rel=EXACT)
        assert stated.delta == pytest.approx(row.promise.delta, rel=EXACT)
        assert stated.neighbours == row.promise.neighbours == "replace-one"
        if row.promise.rho is not None:
            assert stated.rho == pytest.approx(times * row.promise.rho, rel=EXACT)


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
            reached = not row.discrete or alpha == 2.0  # by continuous noise at every alpha
            assert not (row.tight and reached) or spent >= promise.rho * alpha * (1 - row.slack)


def parameters(row, noise):
    release = row.declare(row.rows_of(row.query, 2), **noise)
    return guarantee(release), [v.eval() for v in release.owner.op.dist_params(release.owner)[1:]]


@over([row for row in ROWS if row.native.keys() & set(LEVELS)])
def test_calibration_inverts_the_guarantee(row):
    """A budget buys the noise level that costs it, where the mechanism takes both."""
    asked, bought = parameters(row, row.budget())
    back, level = parameters(row, row.native)
    for one, other in zip(bought, level, strict=True):
        np.testing.assert_allclose(one, other, rtol=EXACT)
    for name in ("epsilon", "rho"):
        promised = getattr(row.promise, name)
        if promised is None or (name == "epsilon" and not row.promise.is_pure):
            continue
        assert getattr(asked, name) == pytest.approx(promised, rel=EXACT)
        if row.tight or name == "rho":
            assert getattr(back, name) == pytest.approx(promised, rel=EXACT)
        else:  # more noise than the budget needs
            assert getattr(back, name) < promised
    # power: another level is not that of the budget
    other = parameters(row, row.budget(0.99))[1]
    assert not all(np.allclose(v, w, rtol=EXACT) for v, w in zip(other, level, strict=True))


@over([row for row in ROWS if not row.native.keys() & set(LEVELS) and row.own is None])
@pytest.mark.parametrize("factor", [1.5, 3.0])
def test_calibration_by_the_density(row, factor):
    """Mechanisms that take a budget only: their density is that of the noise which this budget buys."""
    epsilon, noise = factor * row.promise.epsilon, row.budget(factor)
    if row.law_at is not None:  # an inequality: no pair of data sets attains the budget
        law, values = row.law_at(epsilon), row.points[0][::10]
        for query in row.neighbours[0]:
            np.testing.assert_allclose(row.log_density(values, query, **noise), law(query, values), rtol=1e-9)
        return
    if not row.tight:
        pytest.skip("these neighbours are for the bound on rho: the other rows are for epsilon")
    assert max((here - there).max() for here, there in both_ways(row, noise)) == pytest.approx(
        epsilon, rel=EXACT
    )


@drawn_row
def test_draws_betray_no_more_than_promised(row):
    attack(row, row.draws(row.neighbours[0][0], many(row), 5), row.draws(row.neighbours[0][1], many(row), 6))


@released_row
@pytest.mark.statistical
def test_releases_betray_no_more_than_promised(row, seeded_entropy):
    attack(row, *(row.published(query, many(row)) for query in row.neighbours[0]))


LEVEL = 1e-5  # of each bound


def many(row):
    if not row.batch:
        return 4000
    return 40_000 if row.promise.is_pure else 200_000  # what rho promises shows in small probabilities


def claims(promise):
    """What is promised of every event, as (epsilon, delta): p <= exp(epsilon) q + delta."""
    if math.isfinite(promise.epsilon):
        yield promise.epsilon, promise.delta
    if promise.rho is not None:
        yield 0.0, math.sqrt(promise.rho / 2)  # Pinsker: rho bounds the Kullback-Leibler divergence


def bounds(here, there, n):
    """Confidence bounds: p from below, q from above."""
    return probability_bounds(here, n, LEVEL)[0], probability_bounds(there, n, LEVEL)[1]


def shown(claim, p, q):
    """How much of a claim is used up, 1 being all of it: of epsilon, or of delta where epsilon is 0."""
    epsilon, delta = claim
    if delta > 0:
        return (p - math.exp(epsilon) * q) / delta
    return math.log(p / q) / epsilon if p > 0 else -math.inf


def attack(row, one, other):
    """No event tells neighbours apart better than promised, and one tells them apart nearly as well.

    The events are "the log ratio of the densities is at least t", which are the best there are.
    """
    n, (values, weights) = len(one), row.points
    here, there = (row.log_density(values, query) for query in row.neighbours[0])
    ratio = np.where(here > -np.inf, here - np.where(here > -np.inf, there, 0), -np.inf)
    thresholds = np.unique(np.quantile(ratio[here > -np.inf], np.linspace(0, 0.999, 40))) - 1e-9
    seen = []
    for draws in (one, other):
        a, b = (row.log_density(draws, query) for query in row.neighbours[0])
        seen.append(a - b)
    power = {}
    for claim in claims(row.promise):
        surely = -math.inf
        for t in thresholds:
            found = shown(claim, *bounds(*(int(np.sum(s >= t)) for s in seen), n))
            assert found <= 1
            # what the event shows even in unlucky draws from the density
            p, q = (min(float(np.sum((weights * np.exp(d))[ratio >= t])), 1.0) for d in (here, there))
            unlucky = shown(
                claim, *bounds(int(st.binom.ppf(LEVEL, n, p)), int(st.binom.ppf(1 - LEVEL, n, q)), n)
            )
            assert found >= unlucky - 1e-12
            surely = max(surely, unlucky)
        power[claim] = surely
    assert (max(power.values()) >= 0.25) != bool(row.weak), power
