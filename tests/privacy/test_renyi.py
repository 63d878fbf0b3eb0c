"""Renyi differential privacy: bounds at some orders, against divergences that are known exactly."""

import math
import pickle
import warnings
from decimal import Decimal, getcontext

import numpy as np
import pymc as pm
import pytest

import pymc_dp as dp
from pymc_dp.privacy import compose, compose_disjoint
from pymc_dp.privacy._conversions import curve_epsilon, exchanged_curve
from pymc_dp.privacy._plain import guarantee_from_plain, guarantee_to_plain
from pymc_dp.privacy.accountant import _SHARES, _worst_case_epsilon
from pymc_dp.privacy.calibration import gaussian_epsilon
from pymc_dp.privacy.claims import compare
from pymc_dp.privacy.guarantee import zcdp_epsilon
from tests.privacy.test_accountant import enumerated_delta, integrated_delta

INF = math.inf
G, R = dp.PrivacyGuarantee, dp.RenyiGuarantee
MANY = np.unique(np.concatenate([np.linspace(1.05, 10, 180), np.geomspace(10, 2000, 200)]))
FEW = np.array([1.5, 2.0, 4.0, 16.0, 64.0])


# -- closed forms (Mironov 2017, table II), for a sensitivity of 1 -------------------------------------


def gaussian(order, mu):
    return order * mu**2 / 2


def laplace(order, scale):
    first = math.log(order / (2 * order - 1)) + (order - 1) / scale
    second = math.log((order - 1) / (2 * order - 1)) - order / scale
    return float(np.logaddexp(first, second)) / (order - 1)


def response(order, epsilon):
    """Randomized response, whose sum of two powers is in exact arithmetic."""
    getcontext().prec = 60
    p = 1 / (1 + (-Decimal(epsilon)).exp())
    a = Decimal(order)
    return float((p**a * (1 - p) ** (1 - a) + (1 - p) ** a * p ** (1 - a)).ln() / (a - 1))


LAWS = {"gaussian": (gaussian, 0.7), "laplace": (laplace, 1.3), "response": (response, 1.1)}
EVERY_LAW = pytest.mark.parametrize(("law", "level"), LAWS.values(), ids=LAWS)


def stated(law, level, orders, **kwargs):
    return R(orders, [law(a, level) for a in orders], **kwargs)


def divergence(p, q, order):
    return math.log(p**order @ q ** (1 - order)) / (order - 1)


# -- one order -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [1e-8, 1e-3, 0.5, 3.0, 40.0])
@pytest.mark.parametrize("order", [1.0001, 1.5, 2.0, 17.0, 300.0])
def test_a_pure_guarantee_implies_the_divergence_of_randomized_response(epsilon, order):
    assert G(epsilon).divergence(order) == pytest.approx(response(order, epsilon), rel=1e-9)
    assert G(epsilon).divergence(order) <= epsilon
    if epsilon > 0.1:
        assert laplace(order, 1 / epsilon) <= G(epsilon).divergence(order) * (1 + 1e-9)


def test_what_other_guarantees_imply():
    assert G(0.0).divergence(3) == 0 and G(1e150).divergence(1e150) == 1e150
    assert G(INF, rho=0.3).divergence(5) == 1.5 and G(INF, mu=0.4).divergence(5) == pytest.approx(0.4)
    assert G(1.0, 1e-6).divergence(2) == INF
    assert G(0.1, rho=10.0).divergence(2) == G(0.1).divergence(2)  # the smallest of all
    for order in (1, 0.5, INF, math.nan):
        with pytest.raises(ValueError, match="order must be a finite number above 1"):
            G(1.0).divergence(order)


def test_stated_orders_are_returned_as_they_are():
    rng = np.random.default_rng(1)
    for _ in range(50):
        orders = 1 + np.sort(rng.exponential(5, 8))
        some = stated(gaussian, rng.uniform(0.01, 3), orders)
        assert [some.divergence(a) for a, _ in some.renyi] == [d for _, d in some.renyi]
    assert R([2, 3, 4], [0.1, 0.5, 0.2]).divergence(3) <= 0.2  # never above that of a larger order
    # one of two and three times the order less 1: halfway from 0.1 to 1.56, and half of that
    assert R([2, 3, 4], [0.1, 0.5, 0.52]).divergence(3) == pytest.approx(0.415, rel=1e-12)


@EVERY_LAW
def test_between_stated_orders(law, level):
    some = stated(law, level, FEW)
    for order in np.linspace(1.01, 64, 500):
        above = law(FEW[FEW >= order].min(), level)
        assert law(order, level) * (1 - 1e-12) <= some.divergence(order) <= above
    assert some.divergence(3.0) < 0.99 * law(4.0, level)
    assert some.divergence(64.0001) == INF


def test_divergences_themselves_are_not_convex():
    """A line between them, not between their multiples of the order less 1, would promise too much."""
    law, level = LAWS["response"]
    line = np.interp(3.0, FEW, [law(a, level) for a in FEW])
    assert line < law(3.0, level) <= stated(law, level, FEW).divergence(3.0)


# -- epsilon and delta ---------------------------------------------------------------------------------


def exact_epsilon(law, level, delta):
    """Return the smallest epsilon at a delta; that of Laplace noise from its curve (Balle et al. 2018)."""
    if law is gaussian:
        return gaussian_epsilon(delta, 1.0, level)
    if law is laplace:
        return max(0.0, 1 / level + 2 * math.log1p(-delta))
    left = 1 - delta * (1 + math.exp(-level))
    return max(0.0, level + math.log(left)) if left > 0 else 0.0


@EVERY_LAW
@pytest.mark.parametrize("orders", [FEW, MANY], ids=["few", "many"])
@pytest.mark.parametrize("delta", [0.9, 0.1, 1e-3, 1e-9])
def test_the_epsilon_of_a_curve_holds(law, level, orders, delta):
    found = stated(law, level, orders).to_approximate(delta)
    assert isinstance(found, G) and found.delta == delta and found.renyi == stated(law, level, orders).renyi
    assert exact_epsilon(law, level, delta) <= found.epsilon + 1e-12


@pytest.mark.parametrize("mu", [0.05, 0.7, 4.0])
@pytest.mark.parametrize("delta", [0.5, 1e-3, 1e-9])
def test_the_epsilon_of_many_orders_is_that_of_all(mu, delta):
    best = zcdp_epsilon(mu**2 / 2, delta)
    found = stated(gaussian, mu, MANY).to_approximate(delta).epsilon
    assert best * (1 - 1e-9) <= found <= best * 1.01 + 1e-4


def at_each_order(curve, delta):
    """Canonne, Kamath and Steinke (2020), proposition 12, at the stated orders alone."""
    return max(
        0.0, min(d + math.log((a - 1) / a) - (math.log(delta) + math.log(a)) / (a - 1) for a, d in curve)
    )


def test_orders_between_help():
    """The smallest of the bounds at all orders, by a fine grid of them."""
    rng, helped = np.random.default_rng(5), 0
    for _ in range(60):
        orders = 1 + np.exp(np.sort(rng.uniform(-3, 4, rng.integers(1, 5))))
        some = R(orders, rng.exponential(1, orders.size) * orders ** rng.uniform(0, 1))
        delta = 10 ** rng.uniform(-9, 0)
        grid = 1 + (orders[-1] - 1) * np.append(np.geomspace(1e-4, 1, 2001)[:-1], 1 - 1e-15)
        fine = at_each_order([(a, some.divergence(a)) for a in grid], delta)
        found, plain = curve_epsilon(some.renyi, delta), at_each_order(some.renyi, delta)
        assert found <= min(plain, fine) + 1e-12 and found == pytest.approx(min(plain, fine), abs=1e-4)
        helped += found < plain - 1e-3
    assert helped >= 5
    assert curve_epsilon(((4.0, 2.0),), 0.5) < at_each_order(((4.0, 2.0),), 0.5)  # 2 is better than 4
    for delta in (5e-324, 1e-300, 1 - 1e-16):
        assert 0 <= curve_epsilon(((2.0, 0.1), (1e150, 0.2)), delta) < 750
    assert curve_epsilon(((2.0, 0.0),), 0.9) == 0


@pytest.mark.parametrize(
    "wrong",
    [
        lambda curve, delta: curve_epsilon(curve, delta) - 0.05,
        lambda curve, delta: curve_epsilon(tuple((a, d / a) for a, d in curve), delta),
        lambda curve, delta: min(d - math.log(delta) / a for a, d in curve) - 0.4,
        lambda curve, delta: min(d + math.log((a - 1) / a) - math.log(delta) / a for a, d in curve),
    ],
    ids=["less", "the divergence over its order", "the order for the order less 1", "mixed"],
)
def test_planted_faults_of_the_conversion_are_seen(wrong):
    """By the exact curves above: what is planted promises less than some noise costs."""
    found = [
        wrong(stated(law, level, MANY).renyi, delta) < exact_epsilon(law, level, delta) - 1e-9
        for law, level in LAWS.values()
        for delta in (0.9, 0.1, 1e-3, 1e-9)
    ]
    assert any(found)


def test_a_curve_beside_other_statements():
    curve = stated(gaussian, 0.2, MANY).renyi
    both = G(3.0, 1e-6, renyi=curve)
    assert both.to_approximate(1e-6).epsilon == curve_epsilon(curve, 1e-6) < 3
    assert both.to_approximate(1e-9).epsilon == curve_epsilon(curve, 1e-9)
    assert G(0.01, renyi=curve).to_approximate(1e-6).epsilon == 0.01
    exact = gaussian_epsilon(1e-6, 1.0, 0.2)
    assert G(INF, mu=0.2, renyi=curve).to_approximate(1e-6).epsilon == exact
    assert G(1.0, renyi=curve).to_zcdp().rho == 0.5
    for guarantee in (stated(gaussian, 0.2, MANY), both):
        with pytest.raises(ValueError, match="of finitely many orders imply no finite rho"):
            guarantee.to_zcdp()


# -- neighbours ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mu", [0.1, 1.0])
def test_an_exchange_of_gaussian_noise_counts_four_times(mu):
    once = stated(gaussian, mu, FEW, neighbours="add-remove")
    twice = once.to_replace_one()
    assert type(twice) is G and twice.neighbours == "replace-one"
    orders = [a for a, _ in twice.renyi]
    assert orders == [1.25, 1.5, 2.0, 2.5, 8.0, 8.5, 32.0][: len(orders)] and orders[-1] == 32
    # exact where both orders that are needed are stated; elsewhere by the bound between them
    exact = exchanged_curve(MANY, lambda order: gaussian(order, mu))
    assert [d for _, d in exact] == pytest.approx([4 * gaussian(a, mu) for a, _ in exact], rel=1e-12)
    for order, bound in twice.renyi:
        assert bound >= 4 * gaussian(order, mu) * (1 - 1e-12)
    assert once.to_replace_one().to_replace_one() is not once
    assert twice.to_replace_one() is twice


def test_an_exchange_holds_for_discrete_laws():
    """Three laws in a row, the first and last of which are one exchange apart; also, planted faults."""
    rng = np.random.default_rng(3)
    orders = np.arange(1.5, 12.25, 0.25)
    same_order = twice_the_order = False
    for _ in range(300):
        p, r, q = rng.dirichlet(np.full(rng.integers(2, 5), rng.choice([0.5, 2, 20])), 3) + 1e-9
        p, r, q = (law / law.sum() for law in (p, r, q))

        def once(order, pairs=((p, r), (r, p), (r, q), (q, r))):
            return max(divergence(a, b, order) for a, b in pairs)

        twice = R(orders, [once(a) for a in orders], neighbours="add-remove").to_replace_one()
        for order, bound in twice.renyi:
            exact = max(divergence(p, q, order), divergence(q, p, order))
            assert exact <= bound * (1 + 1e-9) + 1e-12
            by_two = (order - 0.5) / (order - 1) * once(2 * order) + once(2 * order - 1)
            assert bound <= by_two * (1 + 1e-9)  # the exponents 2 of Mironov's are looser
            same_order |= exact > 2 * once(order) * 1.01
            twice_the_order |= exact > 1.01 * once(2 * order)
    assert same_order and twice_the_order


def test_exchanges_that_promise_nothing():
    with pytest.raises(ValueError, match="up to 2 under add-remove imply none under replace-one: state one"):
        R([1.5, 2], [0.1, 0.2], neighbours="add-remove").to_replace_one()
    assert G(1.0, renyi=((2, 0.1),), neighbours="add-remove").to_replace_one().epsilon == 2
    lost = G(20.0, 1e-3, renyi=((8, 0.1),), neighbours="add-remove").to_replace_one()
    assert (lost.epsilon, lost.delta) == (INF, 0.0) and lost.renyi[-1][0] == 4
    with pytest.raises(ValueError, match="promises nothing under replace-one"):
        G(20.0, 1e-3, renyi=((2, 0.1),), neighbours="add-remove").to_replace_one()


# -- composition ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 3, 40])
def test_gaussian_releases_add_up(k):
    together = compose([stated(gaussian, 0.3, MANY)] * k)
    assert together.epsilon == INF and together.delta == 0
    assert [d for _, d in together.renyi] == pytest.approx([k * gaussian(a, 0.3) for a in MANY], rel=1e-12)
    one = stated(gaussian, 0.3 * math.sqrt(k), MANY)
    for delta in (1e-3, 1e-9):
        found = together.to_approximate(delta).epsilon
        assert found == pytest.approx(one.to_approximate(delta).epsilon, rel=1e-9)
        assert found == compose([stated(gaussian, 0.3, MANY)] * k, delta=delta).epsilon
        assert found >= gaussian_epsilon(delta, 1.0, 0.3 * math.sqrt(k))


def test_disjoint_releases_cost_the_most_expensive():
    parts = [stated(gaussian, 0.3, FEW), R([2, 5], [0.5, 0.9])]
    together = compose_disjoint(parts)
    for order, bound in together.renyi:
        assert bound == max(p.divergence(order) for p in parts)
    assert [a for a, _ in together.renyi] == [1.5, 2, 4, 5]  # beyond 5 that of the second is not known
    assert together.to_approximate(1e-3).epsilon == max(p.to_approximate(1e-3).epsilon for p in parts)


@pytest.mark.parametrize("delta", [1e-2, 1e-5])
def test_pure_and_gaussian_releases_beside_a_curve(delta):
    """Of all kinds the divergences are added; the exact cost of the same noise is below."""
    parts = [stated(gaussian, 0.5, MANY), G(0.2), G(0.2), G(INF, mu=0.3)]
    together = compose(parts)
    for order, bound in together.renyi:
        exact = gaussian(order, 0.5) + 2 * response(order, 0.2) + gaussian(order, 0.3)
        assert bound == pytest.approx(exact, rel=1e-9) == together.divergence(order)
    assert together.divergence(5.5) <= sum(p.divergence(5.5) for p in parts) * (1 + 1e-12)
    epsilon = together.to_approximate(delta).epsilon
    assert integrated_delta(epsilon, [0.2, 0.2], [0.5, 0.3]) <= delta
    assert epsilon < 0.4 + compose([parts[0], parts[3]], delta=delta).epsilon


def test_randomized_responses_by_their_curve():
    curve = stated(response, 0.4, MANY)
    for delta in (1e-2, 1e-4):
        epsilon = compose([curve] * 8, delta=delta).epsilon
        assert enumerated_delta(epsilon, [0.4] * 8) <= delta * (1 + 1e-9)
        assert epsilon < 8 * 0.4
        assert compose([G(0.4)] * 8, delta=delta).epsilon <= epsilon * (1 + 1e-9)
    # never looser than what pure privacy alone gives
    both = G(0.4, renyi=curve.renyi)
    assert compose([both] * 8, delta=1e-4).epsilon <= compose([G(0.4)] * 8, delta=1e-4).epsilon


def test_approximate_releases_beside_a_curve():
    """They imply no divergence: delta is shared."""
    parts = [stated(gaussian, 0.5, MANY), G(0.3, 1e-6)]
    found = compose(parts, delta=1e-4)
    assert integrated_delta(found.epsilon, [0.3], [0.5], [1e-6]) <= 1e-4
    assert found.epsilon < 1.3 * compose([G(INF, mu=0.5), G(0.3, 1e-6)], delta=1e-4).epsilon
    assert found.renyi == ()
    shared = [
        parts[0].to_approximate(s * 1e-4).epsilon + compose(parts[1:], delta=(1 - s) * 1e-4).epsilon
        for s in _SHARES
    ]
    assert found.epsilon == pytest.approx(min(shared), rel=1e-12)
    assert _worst_case_epsilon(parts, 1e-4) == INF  # of divergences alone no worst release is known
    with pytest.raises(ValueError, match="promise nothing together at the sum of their deltas"):
        compose(parts)
    with pytest.raises(ValueError, match="is too small for what the releases promise"):
        compose(parts, delta=1e-7)
    by_rho = compose([*parts, G(INF, rho=0.02)], delta=1e-4).epsilon
    assert found.epsilon < by_rho < found.epsilon + zcdp_epsilon(0.02, 1e-4)


def test_guarantees_without_a_curve_are_composed_as_before():
    parts = [G(0.3), G(1.0, 1e-6), G(INF, rho=0.1), G(INF, mu=0.2)]
    assert compose(parts, delta=1e-3).renyi == ()
    with pytest.raises(ValueError, match="promise nothing together"):
        compose([R([2], [0.1]), R([1.5], [0.1]), G(0.1, 1e-6)])
    shared = compose([R([2], [0.1]), R([1.5], [0.1])])
    assert shared.renyi == ((1.5, 0.2),)
    mixed = compose([R([3, 4], [0.1, 0.2], neighbours="add-remove"), R([2], [0.1])])
    assert mixed.neighbours == "replace-one" and mixed.renyi[-1][0] == 2


def test_a_model_with_a_stated_curve():
    z = dp.CustomMechanism.dist(
        0.0,
        logp=lambda v, q: -0.5 * ((v - q) / 2) ** 2 - 0.5 * math.log(2 * math.pi) - math.log(2),
        guarantee=R([2, 8], [0.25, 1.0]),
        sensitivity=1,
    )
    assert dp.guarantee(z) == R([2, 8], [0.25, 1.0], stated=True)
    both = dp.guarantee([z, dp.LaplaceMechanism.dist(0.0, epsilon=0.1, sensitivity=1)])
    assert both.stated and both.renyi[0][1] == pytest.approx(0.25 + response(2, 0.1))
    assert "That of release is stated by the user, not proven." in str(both)


# -- statements that are checked -----------------------------------------------------------------------


def test_what_noise_implies_and_what_it_contradicts():
    noise = G(INF, mu=0.5)
    exact, less = (R([2, 8], [f * gaussian(2, 0.5), gaussian(8, 0.5)]) for f in (1.0, 0.999))
    assert noise.implies(exact) and noise.settled(exact) is exact
    assert noise.exceeds(less) and not noise.implies(less)
    with pytest.raises(ValueError, match="better than its own noise level"):
        noise.settled(less)
    pure = G(1.0)
    holds, unknown = R([2], [response(2, 1.0)]), R([2], [0.999 * response(2, 1.0)])
    assert pure.implies(holds) and not pure.implies(unknown) and not pure.exceeds(unknown)
    assert pure.settled(unknown) is pure
    assert G(INF, rho=0.1).implies(R([5], [0.5])) and not G(INF, rho=0.1).implies(R([5], [0.49]))
    assert not G(1.0, 1e-6).implies(R([5], [10.0])) and G(INF, mu=0.5).exceeds(
        R([2], [9.0], neighbours="add-remove")
    )
    curve = stated(gaussian, 0.5, MANY)
    assert curve.implies(R([7], [gaussian(7.1, 0.5)])) and not curve.implies(R([7], [gaussian(6.9, 0.5)]))
    assert curve.implies(curve.to_approximate(1e-6)) and not curve.implies(G(INF, rho=0.2))
    assert not curve.implies(G(0.1, 1e-6)) and not curve.implies(noise)


def test_a_published_release_with_a_curve():
    curve = R([2, 8], [gaussian(2, 0.5), gaussian(8, 0.5)])
    release = dp.Release(0.3, "GaussianMechanism", {"sigma": 2.0, "sensitivity": 1.0}, curve)
    assert dp.Release.from_json(release.to_json()) == release
    assert dp.guarantee(release) == curve
    wrong = dp.Release(0.3, "GaussianMechanism", {"sigma": 2.0, "sensitivity": 1.5}, curve)
    with pytest.raises(ValueError, match="better than its own noise level"):
        dp.guarantee(wrong)


check = dp.testing.check_guarantee


@pytest.mark.parametrize("orders", [(2.0,), (1.01, 1.3, 5.0, 40.0)])
@pytest.mark.parametrize("scale", [0.5, 3.0])
def test_curves_of_noise_are_not_contradicted(orders, scale):
    """Those that are a thousandth smaller at one order are, by its name."""
    noise = {
        laplace: dp.LaplaceMechanism.dist(0.0, scale=scale, sensitivity=1.0),
        lambda order, scale: gaussian(order, 1 / scale): dp.GaussianMechanism.dist(
            0.0, sigma=scale, sensitivity=1.0
        ),
    }
    for law, z in noise.items():
        exact = np.array([law(a, scale) for a in orders])
        found = check(z, [(0.0, 1.0)], guarantee=R(orders, exact * (1 + 1e-6)))
        assert not found.contradicted, found
        assert found.divergences == pytest.approx(dict(zip(orders, exact, strict=True)), rel=1e-5)
        for k, order in enumerate(orders):
            claim = exact * np.where(np.arange(exact.size) == k, 0.999, 1.001)
            found = check(z, [(0.0, 1.0)], guarantee=R(orders, claim))
            assert len(found.faults) == 1 and f"of order {order:g} is " in found.faults[0]


@pytest.mark.parametrize("order", [1.0001, 1.01, 5.0, 256.0])
def test_single_precision_contradicts_nothing(order):
    """What rounding makes of a log density is divided by the order less 1, and grows with the density."""

    def log_density(values, query):
        return -0.5 * ((values - query).astype("f4") / np.float32(0.3)) ** 2 - np.log(
            np.float32(0.3 * 2.5066283)
        )

    exact = gaussian(order, 1 / 0.3)
    assert not compare(log_density, [(0.0, 1.0)], R(order, exact * (1 + 1e-6)), dtype="float32").contradicted
    assert compare(log_density, [(0.0, 1.0)], R(order, exact * 0.99), dtype="float32").contradicted


def test_orders_whose_integral_is_lost_are_told():
    """The peak of the integrand lies between two points of the grid, thousands of deviations apart."""
    z = dp.GaussianMechanism.dist(0.0, sigma=1.0, sensitivity=1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = check(z, [(0.0, 1.0)], guarantee=R([2, 1e6], [0.9, 5e5]))
    assert set(found.divergences) == {2.0} and len(found.faults) == 1
    assert "Not compared: the divergence of order 1e+06, whose integral floating point lost" in str(found)


def test_a_curve_beside_rho_and_of_several_numbers():
    z = dp.GaussianMechanism.dist(0.0, sigma=1.0, sensitivity=1.0)
    both = check(z, [(0.0, 1.0)], guarantee=G(INF, rho=0.5, renyi=((3.0, 1.4),)), orders=(2.0,))
    assert set(both.divergences) == {2.0, 3.0} and len(both.faults) == 1 and "1.5 > 1.4" in both.faults[0]
    pure = dp.LaplaceMechanism.dist(0.0, scale=1.0, sensitivity=1.0)
    assert check(pure, [(0.0, 1.0)], guarantee=G(1.0, renyi=((3.0, 0.5),))).contradicted
    two = dp.GaussianMechanism.dist(np.zeros(2), sigma=1.0, sensitivity=1.0)
    found = check(two, [(np.zeros(2), np.ones(2))], guarantee=R(2, 1), values=np.zeros((3, 2)))
    assert "Not compared: rho, mu, delta and divergences" in str(found)


def logp(value, query):
    return -0.5 * (value - query) ** 2 - 0.5 * math.log(2 * math.pi)


def test_a_mechanism_of_ones_own():
    with pytest.raises(ValueError, match=r"divergence = 0.9 at order 2 is not what logp gives: the Renyi"):
        dp.CustomMechanism.dist(0.0, logp=logp, sensitivity=1, guarantee=R(2, 0.9))
    query = dp.record_sum(pm.Uniform.dist(0, 1, shape=(5, 2)))
    with pytest.warns(UserWarning, match="for which logp gives a Renyi divergence of order 2 of 2: state"):
        dp.CustomMechanism.dist(query, logp=logp, bounds=(0.0, 1.0), guarantee=R([2, 4], [1.0, 9.0]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dp.CustomMechanism.dist(query, logp=logp, bounds=(0.0, 1.0), guarantee=R(2, 2.0))


# -- the value -----------------------------------------------------------------------------------------


def test_is_a_value_equal_to_a_guarantee_of_its_curve():
    one = R([4, 2], np.array([0.4, 0.2]))
    same = G(INF, renyi=[(2, 0.2), (4.0, np.float32(0.4).item())])
    assert isinstance(one, G) and one.renyi == ((2.0, 0.2), (4.0, 0.4)) and one.epsilon == INF
    plain = G(INF, renyi=((2, 0.2), (4, 0.4)))
    assert one == plain and plain == one and hash(one) == hash(plain) and one != same and one != 3
    assert one == R((2, 4), (0.2, 0.4)) != R((2, 4), (0.2, 0.5))
    back = pickle.loads(pickle.dumps(one))
    assert back == one and type(back) is R and hash(back) == hash(one)
    assert R(2, 0.1).renyi == R([2], [0.1]).renyi == R(np.array(2), np.array([0.1])).renyi
    assert compose([one]) != one


@pytest.mark.parametrize(
    ("guarantee", "sentence"),
    [
        (
            R(2, 0.1),
            "Renyi differential privacy with divergence = 0.1 at order 2, for replace-one neighbours.",
        ),
        (
            R([2, 3, 8], [0.1, 0.2, 0.5], neighbours="add-remove", stated=True),
            "Stated by the user, not proven: Renyi differential privacy at 3 orders, with divergences from "
            "0.1 at order 2 to 0.5 at order 8, for add-remove neighbours.",
        ),
        (
            G(1.0, renyi=((2, 0.1),)),
            "Pure differential privacy with epsilon = 1 and Renyi differential privacy with divergence = 0.1 "
            "at order 2, for replace-one neighbours.",
        ),
    ],
)
def test_prints_as_a_sentence(guarantee, sentence):
    assert str(guarantee) == sentence


@pytest.mark.parametrize(
    ("args", "error", "message"),
    [
        (([1.0], [0.1]), ValueError, "orders must be finite numbers above 1, got 1:"),
        (([INF], [0.1]), ValueError, "got inf: state a bound of order infinity as a pure epsilon"),
        (([math.nan], [0.1]), ValueError, "orders must be finite numbers above 1, got nan"),
        (([2], [-0.1]), ValueError, r"divergences must be finite numbers >= 0, got -0\.1"),
        (([2], [INF]), ValueError, "divergences must be finite numbers >= 0, got inf"),
        (([2], [math.nan]), ValueError, "divergences must be finite numbers >= 0, got nan"),
        (([2, 2], [0.1, 0.2]), ValueError, "orders must be given once each, got 2 twice"),
        (([2, 3], [0.1]), ValueError, "equally many, and at least one, got 2 and 1"),
        (([], []), ValueError, "equally many, and at least one, got 0 and 0"),
        (([2], [1e200]), ValueError, r"at most 1e\+150, got 2 and 1e\+200: leave them out"),
        (([10**400], [1]), ValueError, r"orders must be at most 1e\+150, got a larger whole number"),
        ((["2"], [0.1]), TypeError, "orders must be numbers, got '2'"),
        (("23", [0.1, 0.1]), TypeError, "orders must be numbers, got '23'"),
        (([2], [True]), TypeError, "divergences must be numbers, got True"),
        (({2, 400, 3}, [0.1, 0.2, 9.0]), TypeError, "orders must be in the order of the others, which a set"),
        (([2], None), TypeError, "divergences must be numbers, got None"),
        (([[2]], [1.0]), TypeError, r"orders must be numbers, got \[2\]"),
    ],
)
def test_refuses_what_is_no_curve(args, error, message):
    with pytest.raises(error, match=message):
        R(*args)


@pytest.mark.parametrize(
    ("renyi", "error", "message"),
    [
        (2.0, TypeError, r"renyi must list pairs \(order, divergence\), got 2.0"),
        ((2.0, 0.1), TypeError, "renyi must list pairs"),
        ("ab", TypeError, "renyi must list pairs"),
        (((2.0, 0.1, 3.0),), TypeError, "renyi must list pairs"),
        (((0.5, 0.1),), ValueError, "orders of renyi must be finite numbers above 1"),
        (((2, -1),), ValueError, "divergences of renyi must be"),
        ((), ValueError, "give a finite epsilon, rho, mu, or renyi"),
    ],
)
def test_refuses_a_field_that_is_no_curve(renyi, error, message):
    with pytest.raises(error, match=message):
        G(INF, renyi=renyi)


def test_other_fields_are_checked_too():
    with pytest.raises(ValueError, match="neighbours must be one of"):
        R(2, 0.1, neighbours="friends")
    with pytest.raises(TypeError, match="stated must be True or False"):
        R(2, 0.1, stated=1)


def test_goes_through_json():
    for some in (R([2, 1 / 3 + 1], [0.1, 1 / 7]), G(1.0, 1e-6, renyi=((2, 0.1),))):
        assert guarantee_from_plain(guarantee_to_plain(some)) == some
    assert "renyi" not in guarantee_to_plain(G(1.0))
    release = dp.Release(1.0, "M", {}, R([2, 4], [0.1, 0.2]))
    text = release.to_json()
    assert dp.Release.from_json(text) == release and '"renyi"' in text
    for damage, message in (
        ("[]", "renyi of the guarantee must be a list of pairs"),
        ("3", "renyi of the guarantee must be a list of pairs"),
        ('"x"', "renyi of the guarantee must be a list of pairs"),
        ('["ab"]', "orders of renyi must be numbers"),
        ("[[2.0, 0.1, 3]]", "renyi must list pairs"),
        ("[[1.0, 0.1]]", "orders of renyi must be finite numbers above 1"),
        ('[[2.0, {"float": "inf"}]]', "divergences of renyi must be finite"),
        ('[[2.0, {"a": 1}]]', "renyi has an object that is not"),
        ("[[2.0, true]]", "divergences of renyi must be numbers"),
        ("[[2.0, 0.1], [2.0, 0.2]]", "orders of renyi must be given once each"),
        ("[" * 40 + "]" * 40, "lists nested more than 32 deep"),
    ):
        plain = text.replace("[[2.0, 0.1], [4.0, 0.2]]", damage)
        assert plain != text
        with pytest.raises(ValueError, match=f"damaged: .*{message}"):
            dp.Release.from_json(plain)
