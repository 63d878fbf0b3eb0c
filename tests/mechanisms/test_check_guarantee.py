"""Guarantees compared with densities, beside divergences that are known in closed form."""

import math
import warnings

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
import scipy.stats as st

import pymc_dp as dp
from pymc_dp.mechanisms._custom_checks import _MORE
from pymc_dp.privacy._line import integrate
from pymc_dp.privacy.claims import compare
from tests.custom_noise import EPSILON, GAMMA, huber_logpdf, staircase_pdf, staircase_pieces

check = dp.testing.check_guarantee


def test_laplace_noise_attains_its_epsilon():
    z = dp.LaplaceMechanism.dist(0.0, scale=2.0, sensitivity=1.0)
    found = check(z, [(0.0, 1.0), (3.0, 2.5)])
    assert not found.contradicted and found.log_ratio == pytest.approx(0.5, rel=1e-12)
    assert "This is no proof" in str(found) and "2 pairs" in str(found)
    less = check(z, [(0.0, 1.0)], guarantee=dp.PrivacyGuarantee(0.499))
    assert less.contradicted and "the log ratio is 0.5 > epsilon = 0.499" in str(less)


@pytest.mark.parametrize("sigma", [0.05, 2.0, 300.0])
def test_gaussian_noise_attains_its_rho_and_mu(sigma):
    z = dp.GaussianMechanism.dist(0.0, sigma=sigma, sensitivity=1.0)
    orders = (1.5, 2.0, 8.0)
    found = check(z, [(0.0, 1.0)], orders=orders)
    assert not found.contradicted
    for alpha in orders:  # Bun and Steinke (2016), lemma 2.4
        assert found.divergences[alpha] == pytest.approx(alpha / (2 * sigma**2), rel=1e-6)
    rho = 1 / (2 * sigma**2)
    assert check(z, [(0.0, 1.0)], guarantee=dp.PrivacyGuarantee(math.inf, rho=0.999 * rho)).contradicted
    assert check(z, [(0.0, 1.001)]).contradicted
    assert check(z, [(0.0, 1.0)], guarantee=dp.PrivacyGuarantee(1.0)).contradicted  # it has no pure one


def test_delta_of_gaussian_noise():
    z = dp.GaussianMechanism.dist(0.0, sigma=1.0)
    exact = st.norm.cdf(0.5 - 1.0) - math.e * st.norm.cdf(-0.5 - 1.0)  # Balle and Wang (2018), theorem 5
    for factor, contradicted in ((1.0001, False), (0.9999, True)):
        assert (
            check(z, [(0, 1)], guarantee=dp.PrivacyGuarantee(1.0, factor * exact)).contradicted
            is contradicted
        )


def test_whole_numbers_and_vectors():
    z = dp.DiscreteLaplaceMechanism.dist(3, scale=2.0, sensitivity=1)
    assert check(z, [(0, 1)]).log_ratio == pytest.approx(0.5, rel=1e-12)
    z = dp.GaussianMechanism.dist(np.zeros(2), sigma=2.0, sensitivity=1.0)
    found = check(z, [([0.0, 0.0], [0.6, 0.8])], values=np.random.default_rng(1).normal(0, 3, (50, 2)))
    assert found.not_covered and "Not compared: rho" in str(found)


def test_bad_input():
    z = dp.LaplaceMechanism.dist(0.0, scale=2.0, sensitivity=1.0)
    with pytest.raises(TypeError, match="release must be the variable that a mechanism returned, got float"):
        check(1.0, [(0, 1)])
    with pytest.raises(TypeError, match="guarantee must be a PrivacyGuarantee, got float"):
        check(z, [(0, 1)], guarantee=1.0)
    with pytest.raises(ValueError, match="neighbours must list pairs"):
        check(z, [])
    with pytest.raises(ValueError, match=r"neighbours has a query of shape \(2,\)"):
        check(z, [([0.0, 1.0], [1.0, 1.0])])
    many = dp.LaplaceMechanism.dist(np.zeros(3000), scale=2.0, sensitivity=1.0)
    with pytest.raises(ValueError, match=r"\(3000,\).*values=; or, .*LaplaceMechanism\.dist\(0, \.\.\.\)"):
        check(many, [(0, 1)])
    with pytest.raises(ValueError, match="is not known: give guarantee="):
        check(dp.LaplaceMechanism.dist(0.0, scale=2.0), [(0, 1)])
    noisy = dp.LaplaceMechanism.dist(0.0, scale=pm.HalfNormal.dist())
    with pytest.raises(ValueError, match="is random"):
        check(noisy, [(0, 1)], guarantee=dp.PrivacyGuarantee(1))
    two = dp.LaplaceMechanism.dist(np.zeros(2), scale=2.0, sensitivity=1.0)
    with pytest.raises(ValueError, match="releases several numbers: give values="):
        check(two, [(np.zeros(2), np.ones(2))])
    with pytest.raises(ValueError, match="values must have an axis more"):
        check(two, [(np.zeros(2), np.ones(2))], values=[1.0, 2.0])
    mine = dp.CustomMechanism.dist(0.0, logp=lambda v, q: -pt.abs(v - q) - math.log(2))
    assert check(mine, [(0.0, 1.0)], guarantee=dp.PrivacyGuarantee(1.0)).log_ratio == pytest.approx(1.0)


def test_bad_orders_values_and_queries():
    z = dp.LaplaceMechanism.dist(0.0, scale=2.0, sensitivity=1.0)
    claim = dp.PrivacyGuarantee(math.inf, rho=0.01)
    for orders in ([1.0], [0.5], [math.inf], [math.nan]):
        with pytest.raises(ValueError, match="orders must be finite numbers above 1"):
            check(z, [(0, 1)], guarantee=claim, orders=orders)
    with pytest.raises(TypeError, match="orders must list numbers"):
        check(z, [(0, 1)], guarantee=claim, orders=2.0)
    assert "Not compared: rho, since orders is empty" in str(check(z, [(0, 1)], guarantee=claim, orders=[]))
    for wrong in (math.nan, math.inf):
        with pytest.raises(
            ValueError, match=f"neighbours has the query {wrong}, but that of the release is of finite"
        ):
            check(z, [(wrong, 1)])
    for wrong in (None, "a", 1j, 10**400, [1.0, [2.0]]):
        with pytest.raises(TypeError, match=r"has the query .*, which is no array of real numbers"):
            check(z, [(1, wrong)])
    for wrong in (1.0, [0.0, 1.0], [(0.0, 1.0, 2.0)], None):
        with pytest.raises(ValueError, match="neighbours must list pairs"):
            check(z, wrong)
    three = dp.LaplaceMechanism.dist(np.zeros(3), scale=2.0, sensitivity=1.0)
    with pytest.raises(ValueError, match="values has no release"):
        check(three, [(np.zeros(3), np.ones(3))], values=np.zeros((0, 3)))
    with pytest.raises(ValueError, match=r"values has releases of shape \(2,\), but those of .* have \(3,\)"):
        check(three, [(np.zeros(3), np.ones(3))], values=np.zeros((5, 2)))
    whole = dp.DiscreteLaplaceMechanism.dist(3, scale=2.0, sensitivity=1)
    with pytest.raises(ValueError, match=r"neighbours has the query 3\.9"):
        check(whole, [(3, 3.9)], guarantee=dp.PrivacyGuarantee(0.5))


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_integrals_of_any_scale(scale):
    def f(x):
        u = (x - 3.0) / scale
        return np.array([st.norm.pdf(u), np.exp(huber_logpdf(u, 1.0)), st.cauchy.pdf(u)]) / scale

    total, error = integrate(f, [3.0, 0.0])
    np.testing.assert_allclose(total, 1, rtol=1e-7)
    assert (error < 1e-6).all()


def test_integrals_with_jumps():
    """Far better than what a density may miss the integral of one by."""
    total, _ = integrate(
        lambda x: (staircase_pdf(np.clip(x, -190, 190) - 0.3) * (np.abs(x) < 150))[None], [0.3]
    )
    assert abs(total[0] - 1) < _MORE / 100


# -- noise whose density is constant in pieces, of which all is known exactly --------------------------


def stepped_noise(rng):
    """Return edges and heights of uniform, staircase or any stepped noise, of a random scale."""
    kind, scale = rng.integers(3), math.exp(rng.uniform(-3, 6))
    if kind == 0:
        return np.array([-scale, scale]), np.array([1 / (2 * scale)])
    if kind == 1:
        edges, height = staircase_pieces(40)
        return scale * np.append(-edges[:0:-1], edges), np.append(height[::-1], height) / scale
    edges, height = np.sort(rng.normal(size=rng.integers(3, 16))) * scale, None
    height = rng.exponential(size=edges.size - 1)
    return edges, height / (height @ np.diff(edges))


def logpdf(edges, heights, u):
    with np.errstate(divide="ignore"):
        return np.log(np.concatenate([[0.0], heights, [0.0]]))[np.searchsorted(edges, u, side="right")]


def both_pieces(edges, heights, shift):
    """Return widths of the pieces of noise and of shifted noise together, and the density of each on them."""
    ends = np.unique(np.concatenate([edges, edges + shift]))
    middle = 0.5 * (ends[1:] + ends[:-1])
    return np.diff(ends), *(np.exp(logpdf(edges, heights, middle - s)) for s in (0.0, shift))


def exact_delta(edges, heights, shift, epsilon):
    width, p, q = both_pieces(edges, heights, shift)
    return max(width @ np.maximum(a - math.exp(epsilon) * b, 0) for a, b in ((p, q), (q, p)))


def test_exact_claims_of_noise_that_jumps_are_not_contradicted():
    """A claim that is off by a thousandth is."""
    rng = np.random.default_rng(20)
    for _ in range(60):
        edges, heights = stepped_noise(rng)
        query = rng.normal() * rng.choice([1, 10, 100, 1000])
        shift, epsilon = rng.uniform(0.05, 0.9) * (edges[-1] - edges[0]) / 4, rng.choice([0.0, 0.3])
        delta = exact_delta(edges, heights, shift, epsilon)

        def claimed(delta, noise=(edges, heights), query=query, shift=shift, epsilon=epsilon):
            pair, claim = (query, query + shift), dp.PrivacyGuarantee(epsilon, delta)
            return compare(lambda v, q: logpdf(*noise, v - q), [pair], claim).contradicted

        assert not claimed(delta * (1 + 1e-6) + 1e-15) and (claimed(0.999 * delta) or delta < 1e-9)


def test_exact_divergences_of_noise_that_jumps_are_not_contradicted():
    rng = np.random.default_rng(21)
    edges, heights = staircase_pieces(40)  # what lies beyond has a mass of exp(-32)
    edges, heights = np.append(-edges[:0:-1], edges), np.append(heights[::-1], heights)
    for _ in range(20):
        scale, query, shift = math.exp(rng.uniform(-3, 6)), rng.normal() * 100, rng.uniform(0.1, 1.0)
        width, p, q = (part[10:-10] for part in both_pieces(edges, heights, shift))
        spent = {a: math.log(width @ (p**a * q ** (1 - a))) / (a - 1) for a in (2.0, 8.0)}
        rho = max(d / a for a, d in spent.items())

        def found(rho, scale=scale, query=query, shift=shift, orders=tuple(spent)):
            def log_density(v, at):
                u = np.abs(v - at) / scale
                lower = np.floor(u) + (u - np.floor(u) >= GAMMA)
                return math.log(heights.max() / scale) - EPSILON * lower

            claim, pairs = dp.PrivacyGuarantee(math.inf, rho=rho), [(query, query + shift * scale)]
            return compare(log_density, pairs, claim, orders=orders)

        right = found(rho * (1 + 1e-6))
        assert not right.contradicted and found(0.999 * rho).contradicted
        assert right.divergences == pytest.approx(spent, rel=1e-4)


def test_exact_epsilons_of_noise_that_jumps_are_not_contradicted():
    """Where a jump lies on a value that is tried, rounding may put two queries on two sides of it."""
    rng = np.random.default_rng(22)
    for query in [*rng.normal(0, 10, 100), *rng.integers(-50, 50, 100) / 10]:
        z = dp.PrivacyGuarantee(EPSILON)

        def log_density(v, q):
            return math.log((1 - math.exp(-EPSILON)) / 2) - EPSILON * np.floor(np.abs(v - q))

        values = query + np.arange(-9.0, 10.0)
        assert not compare(log_density, [(query, query + 1)], z, values=values).contradicted
    less = dp.PrivacyGuarantee(0.999 * EPSILON)
    assert compare(log_density, [(query, query + 1)], less, values=values).contradicted


def test_densities_that_jump_are_declared_as_they_are():
    """Their integrals are one, and their exact guarantees are taken."""
    rng = np.random.default_rng(23)
    for _ in range(25):
        edges, heights = stepped_noise(rng)
        query, shift = rng.normal() * 100, 0.2 * (edges[-1] - edges[0])
        claim = dp.PrivacyGuarantee(0.0, exact_delta(edges, heights, shift, 0.0) * (1 + 1e-6))
        padded = np.concatenate([[0.0], heights, [0.0]])

        def logp(value, q, edges=edges, padded=padded):
            return pt.log(pt.constant(padded)[pt.searchsorted(pt.constant(edges), value - q, side="right")])

        with warnings.catch_warnings():
            warnings.simplefilter("error")
            dp.CustomMechanism.dist(query, logp=logp, sensitivity=shift, guarantee=claim)


def mixed_with_a_pole(value, query):
    """Laplace noise of scale 0.05 around the query or, half of the time, a public draw that has a pole."""
    noise = -pt.abs(value - query) / 0.05 - math.log(0.1)
    gamma = -0.5 * pt.log(value) - value - 0.5 * math.log(math.pi)
    public = pt.switch(pt.gt(value, 0), gamma, pt.switch(pt.eq(value, 0), np.inf, -np.inf))
    return pt.logaddexp(noise, public) - math.log(2)


def test_a_pole_of_both_densities_hides_nothing():
    z = dp.CustomMechanism.dist(0.0, logp=mixed_with_a_pole)
    found = check(z, [(0.0, 1.0)], guarantee=dp.PrivacyGuarantee(0.1))
    assert found.contradicted and found.log_ratio == pytest.approx(20, abs=0.01)
    with pytest.raises(ValueError, match="is not what logp gives: the log ratio is 20 "):
        dp.CustomMechanism.dist(
            0.0, logp=mixed_with_a_pole, sensitivity=1.0, guarantee=dp.PrivacyGuarantee(0.1)
        )


def test_a_pole_of_both_densities_refuses_nothing():
    """In NumPy, as PyTensor takes seconds for so many values where there is no compiler."""

    def log_density(v, q):
        with np.errstate(divide="ignore"):
            gamma = np.where(v < 0, -np.inf, -0.5 * np.log(np.abs(v)) - v - 0.5 * math.log(math.pi))
        return np.logaddexp(-np.abs(v - q) / 0.05 - math.log(0.1), gamma) - math.log(2)

    right, wrong = (dp.PrivacyGuarantee(epsilon, rho=201.0) for epsilon in (20.001, 19.99))
    assert not compare(log_density, [(0.0, 1.0)], right, orders=[2.0]).contradicted
    assert compare(log_density, [(0.0, 1.0)], wrong, orders=[2.0]).contradicted
