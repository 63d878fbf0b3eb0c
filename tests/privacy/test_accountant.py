"""Composition, against enumeration, quadrature and closed forms."""

import itertools
import math

import numpy as np
import pytest
import scipy.stats as st

from pymc_dp.privacy import ComposedGuarantee, PrivacyGuarantee, compose, compose_disjoint
from pymc_dp.privacy._responses import summed_losses
from pymc_dp.privacy.calibration import gaussian_delta, gaussian_epsilon
from pymc_dp.privacy.guarantee import zcdp_epsilon

INF = math.inf


def pure(*epsilons):
    return [PrivacyGuarantee(e) for e in epsilons]


def gaussian(*mus):
    return [PrivacyGuarantee(INF, mu=m) for m in mus]


def approximate(*pairs):
    return [PrivacyGuarantee(e, d) for e, d in pairs]


def enumerated_delta(epsilon, epsilons):
    """delta of composed randomized responses, over all their outcomes."""
    total = 0.0
    for signs in itertools.product((1, -1), repeat=len(epsilons)):
        loss = sum(s * e for s, e in zip(signs, epsilons))
        chance = math.prod(1 / (1 + math.exp(-s * e)) for s, e in zip(signs, epsilons))
        total += chance * max(0.0, -math.expm1(epsilon - loss))
    return total


def integrated_delta(epsilon, epsilons, mus, failures=()):
    """delta of randomized responses and Gaussian noise, by quadrature over the noise."""
    mu = math.sqrt(sum(m * m for m in mus))
    x = np.linspace(-12, 12, 400_001)
    total = 0.0
    for signs in itertools.product((1, -1), repeat=len(epsilons)):
        loss = sum(s * e for s, e in zip(signs, epsilons)) + mu * mu / 2 + mu * x
        chance = math.prod(1 / (1 + math.exp(-s * e)) for s, e in zip(signs, epsilons))
        excess = np.maximum(0.0, -np.expm1(np.minimum(epsilon - loss, 0)))
        total += chance * np.trapezoid(excess * st.norm.pdf(x), x)
    return 1 - math.prod(1 - d for d in failures) * (1 - total)


def test_sums():
    assert compose(pure(0.1, 0.2, 1.5)).epsilon == pytest.approx(1.8, rel=1e-15)
    assert compose(pure(0.1, 0.2)).delta == 0 and compose(pure(0.1, 0.2)).is_pure
    assert compose(gaussian(0.3, 0.4)).mu == pytest.approx(0.5, rel=1e-15)
    assert compose(gaussian(0.3, 0.4)).rho == pytest.approx(0.125, rel=1e-15)
    both = compose(pure(1.0) + gaussian(0.3))
    assert both.rho == pytest.approx(0.545) and both.mu is None and both.epsilon == INF
    assert compose(pure(1.0, 2.0)).rho is None and compose(pure(1.0, 2.0)).to_zcdp().rho == 2.5
    one = compose(pure(0.7))
    assert (one.epsilon, one.delta, one.rho) == (0.7, 0.0, None)


@pytest.mark.parametrize("epsilons", [(0.7,), (0.5, 0.5, 0.5), (0.1, 0.4, 1.3, 2.0), (0.3,) * 8])
@pytest.mark.parametrize("delta", [0.2, 1e-3, 1e-9])
def test_pure_releases_compose_optimally(epsilons, delta):
    epsilon = compose(pure(*epsilons), delta=delta).epsilon
    assert 0 <= epsilon <= sum(epsilons)
    assert enumerated_delta(epsilon, epsilons) <= delta * (1 + 1e-9)
    if epsilon > 0:
        assert enumerated_delta(epsilon - 1e-6, epsilons) > delta


def test_equal_pure_releases_agree_with_the_closed_form():
    """Kairouz, Oh and Viswanath (2015), theorem 3.3: (k - 2i) epsilon at its own delta."""
    k, e = 20, 0.3
    for i in range(k // 2):
        delta = (
            sum(math.comb(k, j) * (math.exp((k - j) * e) - math.exp((k - 2 * i + j) * e)) for j in range(i))
            / (1 + math.exp(e)) ** k
        )
        if delta > 0:
            assert compose(pure(*[e] * k), delta=delta).epsilon == pytest.approx((k - 2 * i) * e, rel=1e-8)


@pytest.mark.parametrize("mus", [(1.0,), (0.3, 0.4), (0.01, 0.02, 0.03), (2.0, 5.0)])
@pytest.mark.parametrize("delta", [0.3, 1e-4, 1e-10])
def test_gaussian_releases_compose_exactly(mus, delta):
    mu = math.sqrt(sum(m * m for m in mus))
    exact = gaussian_epsilon(delta, 1.0, mu)
    assert compose(gaussian(*mus), delta=delta).epsilon == pytest.approx(exact, rel=1e-8, abs=1e-12)


@pytest.mark.parametrize(
    ("epsilons", "mus", "failing"),
    [
        ((0.5, 1.0), (0.7,), ()),
        ((0.2,), (0.1, 0.05), ()),
        ((0.4, 0.1), (1.5,), ((0.3, 1e-4),)),
        ((), (0.5,), ((0.3, 1e-4), (0.2, 2e-4))),
    ],
)
@pytest.mark.parametrize("delta", [0.05, 1e-3])
def test_mixtures_compose_exactly(epsilons, mus, failing, delta):
    parts = pure(*epsilons) + gaussian(*mus) + approximate(*failing)
    epsilon = compose(parts, delta=delta).epsilon
    every = (*epsilons, *(e for e, _ in failing))
    failures = [d for _, d in failing]
    assert integrated_delta(epsilon, every, mus, failures) <= delta * (1 + 1e-4)
    if epsilon > 0:
        assert integrated_delta(epsilon - 1e-3, every, mus, failures) > delta


def test_default_delta_is_the_sum_and_never_worse_than_the_plain_sum():
    parts = [
        PrivacyGuarantee(1.0, 1e-6, mu=0.2367043),
        PrivacyGuarantee(0.5, 1e-7, mu=0.1111),
        PrivacyGuarantee(0.3),
    ]
    total = compose(parts)
    assert total.delta == pytest.approx(1.1e-6)
    assert total.epsilon < 1.5  # the plain sum would be 1.8
    plain = compose(approximate((1.0, 1e-6), (0.5, 1e-7)))
    assert plain.epsilon == pytest.approx(1.5, rel=1e-6) and plain.epsilon <= 1.5


def test_rho_without_a_worst_case():
    discrete = [PrivacyGuarantee(INF, rho=0.1), PrivacyGuarantee(INF, rho=0.2)]
    total = compose(discrete)
    assert total.rho == pytest.approx(0.3) and total.mu is None and total.epsilon == INF
    assert total.to_approximate(1e-6).epsilon == pytest.approx(zcdp_epsilon(0.3, 1e-6))
    # beside something that states no rho, the delta has to be shared
    mixed = compose([*discrete, PrivacyGuarantee(0.4, 1e-7)], delta=1e-6)
    assert zcdp_epsilon(0.3, 1e-6) + 0.3 < mixed.epsilon < zcdp_epsilon(0.3, 4e-7) + 0.4 + 1e-9
    for rest in (PrivacyGuarantee(0.4, 1e-7), PrivacyGuarantee(INF, mu=1.5)):
        found = compose([discrete[0], rest], delta=1e-6).epsilon
        shares = np.linspace(0.005, 0.85, 200)
        split = [zcdp_epsilon(0.1, s * 1e-6) + compose([rest], delta=(1 - s) * 1e-6).epsilon for s in shares]
        as_rho = zcdp_epsilon(0.1 + rest.rho, 1e-6) if rest.rho else INF
        # the best split of delta, or nearly so, and never better than that
        assert 1 - 1e-6 <= found / min(*split, as_rho) <= 1.02
    # and a large pure release is worse as rho than as what it is
    large = compose([*discrete, PrivacyGuarantee(9.0)], delta=1e-6).epsilon
    assert large < zcdp_epsilon(0.3 + 40.5, 1e-6)
    assert large <= zcdp_epsilon(0.3, 0.99e-6) + 9.0


def test_many_different_releases_are_never_understated(rng):
    epsilons = rng.uniform(0.01, 0.3, size=60)
    loss, chance = summed_losses(epsilons.tolist())
    assert chance.sum() == pytest.approx(1, rel=1e-12)
    true_mean = float(np.sum(epsilons * np.tanh(epsilons / 2)))
    assert true_mean - 1e-9 <= loss @ chance <= true_mean + 0.02 * epsilons.sum()
    assert loss.max() >= epsilons.sum() - 1e-9
    # Monte Carlo of the true loss
    signs = rng.random((200_000, 60)) < 1 / (1 + np.exp(-epsilons))
    sums = np.where(signs, epsilons, -epsilons).sum(1)
    epsilon = compose(pure(*epsilons), delta=1e-3).epsilon
    excess = np.maximum(0, -np.expm1(np.minimum(epsilon - sums, 0)))
    assert excess.mean() <= 1e-3 + 5 * excess.std() / math.sqrt(sums.size)
    assert excess.mean() >= 0.9e-3 - 5 * excess.std() / math.sqrt(sums.size)


def test_disjoint_releases_cost_the_dearest():
    total = compose_disjoint({"north": PrivacyGuarantee(1.0), "south": PrivacyGuarantee(0.4)})
    assert (total.epsilon, total.delta) == (1.0, 0.0)
    both = compose_disjoint([*pure(0.5), *gaussian(0.8)])
    assert both.rho == pytest.approx(0.32) and both.mu is None
    at = both.to_approximate(1e-6)
    assert at.epsilon == pytest.approx(gaussian_epsilon(1e-6, 1.0, 0.8))
    assert compose_disjoint(gaussian(0.3, 0.8)).mu == 0.8
    own = compose_disjoint([PrivacyGuarantee(1.0, 1e-6), PrivacyGuarantee(0.4, 1e-5)])
    assert (own.epsilon, own.delta) == (1.0, 1e-5)
    group = compose(pure(0.3, 0.3))
    nested = compose_disjoint({"a": group, "b": PrivacyGuarantee(0.5)}, delta=1e-4)
    assert nested.epsilon == pytest.approx(max(group.to_approximate(1e-4).epsilon, 0.5))


def test_different_neighbours_become_replace_one():
    parts = [PrivacyGuarantee(0.5, neighbours="add-remove"), PrivacyGuarantee(1.0)]
    total = compose(parts)
    assert total.neighbours == "replace-one" and total.epsilon == 2.0
    alike = compose([parts[0], parts[0]])
    assert alike.neighbours == "add-remove" and alike.epsilon == 1.0


def test_prints_as_a_sentence():
    assert str(compose({"a": PrivacyGuarantee(1.0), "b": PrivacyGuarantee(0.5)})) == (
        "The releases a and b together: pure differential privacy with epsilon = 1.5, for replace-one "
        "neighbours, the same people being behind all of them."
    )
    assert str(compose_disjoint({"a": PrivacyGuarantee(1.0), "b": PrivacyGuarantee(0.5)})).endswith(
        "epsilon = 1, for replace-one neighbours, each person being behind one of them only."
    )
    assert str(compose({"a": PrivacyGuarantee(1.0)})) == (
        "The release a: pure differential privacy with epsilon = 1, for replace-one neighbours."
    )


@pytest.mark.parametrize(
    ("act", "error", "message"),
    [
        (lambda: compose([]), ValueError, "nothing to compose"),
        (lambda: compose([1.0]), TypeError, "part 1 must be a PrivacyGuarantee, got float"),
        (lambda: compose(pure(1.0), delta=0.0), ValueError, "delta must be strictly between 0 and 1, got 0"),
        (lambda: compose(pure(1.0), delta=2), ValueError, "delta must be strictly between 0 and 1"),
        (lambda: compose(approximate((1, 0.6), (1, 0.6))), ValueError, "promise nothing together"),
        (
            lambda: compose(approximate((1, 1e-6), (1, 1e-6)), delta=1e-6),
            ValueError,
            "delta = 1e-06 is too small for what the releases promise",
        ),
        (
            lambda: compose(approximate((1, 1e-6)) + gaussian(0.1)),
            ValueError,
            "promise nothing together at the sum of their deltas: ask for a larger",
        ),
        (
            lambda: compose(approximate((1, 1e-6)) + gaussian(0.1), delta=1e-7),
            ValueError,
            "too small for what the releases promise",
        ),
    ],
)
def test_bad_input(act, error, message):
    with pytest.raises(error, match=message):
        act()


def test_is_a_guarantee_and_hashable():
    total = compose(pure(0.5, 0.5))
    assert isinstance(total, PrivacyGuarantee) and isinstance(total, ComposedGuarantee)
    assert hash(total) == hash(compose(pure(0.5, 0.5))) and total == compose(pure(0.5, 0.5))
    assert gaussian_delta(1.0, 1.0, 1.0) == pytest.approx(1 - (1 - gaussian_delta(1.0, 1.0, 1.0)), rel=1e-12)
