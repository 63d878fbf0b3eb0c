"""Noise on whole numbers: normalisers at any scale, derivatives, which queries are whole, exact budgets."""

import math
from fractions import Fraction

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
import scipy.stats as st
from pymc.logprob.utils import ParameterValueError

import pymc_dp as dp
from pymc_dp.mechanisms import binomial, guarantee
from pymc_dp.mechanisms._integers import not_whole
from pymc_dp.mechanisms.binomial import binomial_epsilon, binomial_theta

SCALES = [1e-3, 0.01, 0.1, 0.3, 0.39, 0.3989, 0.41, 0.7, 1.0, 3.0, 40.0, 1e3, 1e5, 1e8]


def exact_log_pmf(kind, scale, k):
    """By summation in extended precision up to where nothing is left; beyond, by the integral."""
    k = np.abs(np.asarray(k, dtype=np.longdouble))
    scale = np.longdouble(scale)
    if scale > 2000:  # Euler-Maclaurin: the sum and the integral agree to 1 in exp(2 pi^2 scale^2)
        if kind is dp.DiscreteGaussianMechanism:
            return (-0.5 * (k / scale) ** 2 - np.log(scale * np.sqrt(2 * np.pi))).astype(float)
        return (np.log1p(-np.exp(-1 / scale)) - np.log1p(np.exp(-1 / scale)) - k / scale).astype(float)
    j = np.arange(0, 60 * math.ceil(scale) + 2, dtype=np.longdouble) / scale
    x = k / scale
    power = 2 if kind is dp.DiscreteGaussianMechanism else 1
    terms = np.exp(-(j**power) / power)
    return (-(x**power) / power - np.log(terms[0] + 2 * terms[1:].sum())).astype(float)


def level_of(kind):
    return "sigma" if kind is dp.DiscreteGaussianMechanism else "scale"


both = pytest.mark.parametrize("kind", [dp.DiscreteLaplaceMechanism, dp.DiscreteGaussianMechanism])


@pytest.fixture(scope="module")
def compiled():
    """(value, noise level) -> log probability and its derivative, at query 5; the level is symbolic."""
    out = {}
    for kind in (dp.DiscreteLaplaceMechanism, dp.DiscreteGaussianMechanism):
        value, level = pt.dvector("value"), pt.dvector("level")
        logp = pm.logp(kind.dist(pt.full_like(value, 5.0), **{level_of(kind): level}), value)
        slopes = pt.grad(logp.sum(), level)
        out[kind] = pytensor.function([value, level], [logp, slopes], mode="FAST_COMPILE")
    return out


@both
@pytest.mark.parametrize("scale", SCALES)
def test_log_probability_at_any_scale(kind, scale, compiled):
    k = np.array([0, 1, -1, 2, 7, -40, 1000, 10**6, 10**12])
    logp, slope = compiled[kind](k + 5.0, np.full(k.size, scale))
    np.testing.assert_allclose(logp, exact_log_pmf(kind, scale, k), rtol=1e-12, atol=1e-13)
    h = 1e-4 * scale
    near = k[:6]
    numeric = (exact_log_pmf(kind, scale + h, near) - exact_log_pmf(kind, scale - h, near)) / (2 * h)
    np.testing.assert_allclose(slope[:6], numeric, rtol=1e-6, atol=1e-6 / scale)


@both
def test_random_noise_level(kind):
    """A noise level with a prior: the density can be differentiated, the guarantee is not known."""
    with pm.Model() as model:
        level = pm.HalfNormal("level", 3)
        x = pm.Poisson("x", 2, shape=4)
        z = kind("z", x.sum(), **{level_of(kind): level}, sensitivity=1, observed=9)
    assert z.owner.op.guarantee is None
    slope = model.compile_dlogp()(model.initial_point())
    assert np.isfinite(slope).all() and (slope != 0).all()


@both
def test_query_beyond_integers_of_a_double(kind):
    release = kind.dist(2.0**40, **{level_of(kind): 2.0})
    value = 2**40 + 3
    assert pm.logp(release, value).eval() == pytest.approx(exact_log_pmf(kind, 2.0, 3), rel=1e-12)
    assert abs(pm.draw(release, random_seed=1) - 2**40) < 100


@both
def test_simulated_and_published_draws_are_whole(kind):
    for query in (np.array([3, -2]), np.array([3.0, -2.0])):
        assert pm.draw(kind.dist(query, **{level_of(kind): 2.0})).dtype == np.int64
        assert kind.release(query, **{level_of(kind): 2.0}, sensitivity=1).value.dtype == np.int64


@both
def test_noise_level_per_entry(kind):
    release = kind.release(
        np.zeros((2000, 2), dtype=int), **{level_of(kind): np.array([0.3, 30.0])}, bounds=(0, 1)
    )
    spread = release.value.std(axis=0)
    assert spread[0] < 1 < 15 < spread[1]


@both
def test_a_query_that_turns_out_not_to_be_whole(kind):
    q = pt.dscalar("q")
    release = kind.dist(q, **{level_of(kind): 2.0})
    assert np.isfinite(pm.logp(release, 3).eval({q: 2.0}))
    with pytest.raises(ParameterValueError, match="query a whole number"):
        pm.logp(release, 3).eval({q: 2.5})
    draw = pytensor.function([q], release)
    assert isinstance(int(draw(2.0)), int)
    with pytest.raises(ValueError, match="query must be whole numbers"):
        draw(2.5)


x = pm.Poisson.dist(3, shape=4)
y = pm.Normal.dist(shape=4)
b = pm.Bernoulli.dist(0.3, shape=(4, 2))
WHOLE = {
    "sum": x.sum(),
    "rows": x,
    "sum of squares": (x**2).sum(),
    "stack": pt.stack([x.sum(), (x**2).sum()]),
    "concatenate": pt.concatenate([x, x[:2]]),
    "cast": pt.cast(x, "float64").sum(),
    "product with whole floats": x * 2.0 - 1,
    "clamped": dp.clamp(x, 0, 5).sum(),
    "comparison": pt.cast(y > 0, "float64").sum(),
    "table": pt.dot(pt.cast(b.T, "float64"), b),
    "rounded": pt.round(y.sum()),
    "floor": pt.floor(y),
    "switch": pt.switch(y > 0, 1.0, 0.0).sum(),
    "one-hot": pt.cast(pt.eq(x[:, None], np.arange(3)), "float64").sum(0),
    "placed": pt.zeros(6)[2:].inc(pt.cast(x, "float64")),
    "indexed": pt.as_tensor(np.array([1.0, 5.0, 7.0]))[pt.clip(x, 0, 2)],
    "maximum": pt.max(pt.cast(x, "float64")),
    "an input": pt.dvector("q"),
    "whole data": pytensor.shared(np.array([1.0, 3.0])) * x[:2],
    "alternate": pt.cast(x, "float64").reshape((2, 2)).T[:, ::-1],
}
BROKEN = {
    "mean": x.mean(),
    "half": x / 2,
    "continuous": y.sum(),
    "half weights": x * 0.5,
    "logarithm": pt.log1p(x),
    "clamped to fractions": dp.clamp(x, 0, 2.5),
    "broken data": pytensor.shared(np.array([1.0, 3.5])) * x[:2],
    "table of fractions": pt.as_tensor(np.array([1.0, 5.5, 7.0]))[pt.clip(x, 0, 2)],
}


@pytest.mark.parametrize("name", WHOLE)
def test_whole_queries(name):
    assert not_whole(WHOLE[name]) is None
    dp.DiscreteLaplaceMechanism.dist(WHOLE[name], scale=1)


@pytest.mark.parametrize("name", BROKEN)
def test_broken_queries(name):
    assert not_whole(BROKEN[name])
    with pytest.raises(ValueError, match="query must be whole numbers for DiscreteLaplaceMechanism"):
        dp.DiscreteLaplaceMechanism.dist(BROKEN[name], scale=1)


@pytest.mark.parametrize("epsilon", [0.1, 0.3, 0.7, 1.1, 7.3])
def test_budgets_are_not_exceeded_by_rounding(epsilon):
    """In exact arithmetic on the doubles themselves."""
    for sensitivity in (1, 2, 3, 7):
        scale = params(dp.DiscreteLaplaceMechanism.dist(0, epsilon=epsilon, sensitivity=sensitivity))
        assert Fraction(sensitivity) / Fraction(scale) <= Fraction(epsilon)
        assert scale == pytest.approx(sensitivity / epsilon, rel=1e-15)
        sigma = params(dp.DiscreteGaussianMechanism.dist(0, rho=epsilon, sensitivity=sensitivity))
        assert Fraction(sensitivity) ** 2 / (2 * Fraction(sigma) ** 2) <= Fraction(epsilon)
        assert sigma == pytest.approx(sensitivity / math.sqrt(2 * epsilon), rel=1e-15)


def params(release):
    return float(release.owner.op.dist_params(release.owner)[1].eval())


@pytest.mark.parametrize("n_trials", [1, 3, 100, 10**6])
@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 1.0, 20.0, 500.0])
def test_binomial_calibration(n_trials, epsilon):
    theta = binomial_theta(epsilon, n_trials)
    assert 0 < theta < 0.5
    back = binomial_epsilon(theta, n_trials)
    assert back <= epsilon
    release = dp.BinomialMechanism.dist(0.3, n_trials=n_trials, epsilon=epsilon)
    if epsilon / n_trials <= 20:
        assert back == pytest.approx(epsilon, rel=1e-6)
        assert guarantee(release).epsilon == epsilon
    else:
        assert guarantee(release).epsilon == back == pytest.approx(54 * math.log(2) * n_trials)


@pytest.mark.parametrize("epsilon", [1.0, 20.0, 30.0, 34.0, 36.0, 36.5, 37.0, 38.0, 50.0, 1000.0])
def test_binomial_law_density_and_guarantee_agree(epsilon, monkeypatch):
    """Also where 1/2 + theta rounds to 1: what is tossed, in fractions, what is computed, what is stated."""
    tossed = []

    def toss(numerator, denominator, words):
        tossed.append([Fraction(int(a), int(b)) for a, b in zip(numerator, denominator, strict=True)])
        return np.zeros(numerator.shape, dtype=np.int64)  # the rare side never

    monkeypatch.setattr(binomial, "bernoulli", toss)
    y = np.array([0.0, 0.2, 0.5, 0.9, 1.0])
    release = dp.BinomialMechanism.release(y, n_trials=1, epsilon=epsilon)
    assert release.value.tolist() == [0, 0, 0, 1, 1]
    (rare,) = tossed
    success = [1 - p if u > 0.5 else p for p, u in zip(rare, y, strict=True)]
    theta, promised = Fraction(release.parameters["theta"]), release.guarantee.epsilon
    assert 0 <= min(success) - (Fraction(1, 2) - theta) <= Fraction(1, 2**54)  # so that it costs no more
    assert min(success) == 1 - max(success) and (theta < 0.25 or min(success) == Fraction(1, 2) - theta)
    loss = math.log(success[-1] / success[0])
    assert loss == pytest.approx(promised, rel=1e-6) and promised <= epsilon
    assert binomial_epsilon(float(theta), 1) <= promised * (1 + 1e-15)
    value = pt.lvector()
    logp = pm.logp(dp.BinomialMechanism.dist(y, **release.parameters), value)
    law = [[math.log(1 - p) for p in success], [math.log(p) for p in success]]
    # inside the bounds, the bias is rounded to the digits of 1/2
    for k in range(2):
        found = np.exp(logp.eval({value: np.full(5, k)}))
        np.testing.assert_allclose(found, np.exp(law[k]), rtol=1e-10, atol=2.0**-53)
        assert np.log(found[[0, -1]]) == pytest.approx([law[k][0], law[k][-1]], rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("epsilon", [2.0, 30.0, 50.0])
def test_binomial_simulations_toss_the_rare_side(epsilon, rng):
    """Their generator is asked for probabilities up to 1/2 only, so that none of them is rounded to 0."""
    asked = []

    class Spy:
        def binomial(self, n, p, size=None):
            asked.append(np.asarray(p))
            return rng.binomial(n, p, size=size)

    release = dp.BinomialMechanism.dist(np.array([0.0, 0.3, 1.0]), n_trials=7, epsilon=7 * epsilon)
    op, theta = release.owner.op, binomial_theta(7 * epsilon, 7)
    drawn = op.rng_fn(Spy(), np.array([0.0, 0.3, 1.0]), theta, size=(4000, 3))
    assert asked[0].max() <= 0.5 and asked[0].min() == 0.5 - theta > 0
    mean = 7 * (0.5 + theta * np.array([-1, -0.4, 1]))
    assert drawn.mean(axis=0) == pytest.approx(mean, abs=5 * math.sqrt(7 / 4 / 4000))


def test_binomial_bounds_rescale(rng):
    """Values on (lo, hi) are released as their rescaled, clamped values on (0, 1)."""
    y = rng.uniform(-8, 8, 50)
    k = rng.integers(0, 6, 50)
    value = pt.lvector()
    logp = pm.logp(dp.BinomialMechanism.dist(y, n_trials=5, theta=0.3, bounds=(-2, 6)), value).eval(
        {value: k}
    )
    u = (np.clip(y, -2, 6) + 2) / 8
    np.testing.assert_allclose(logp, st.binom.logpmf(k, 5, 0.5 + 0.3 * (2 * u - 1)), rtol=1e-10)


def test_binomial_on_beta_records():
    """The closed marginal: BetaBinomial(N) + Binomial(m - N, 1/2) with N ~ Binomial(m, 2 theta)."""
    m, theta, a, b = 4, 0.3, 2.0, 1.5
    exact = np.zeros(m + 1)
    for n in range(m + 1):
        parts = np.convolve(
            st.betabinom.pmf(np.arange(n + 1), n, a, b), st.binom.pmf(np.arange(m - n + 1), m - n, 0.5)
        )
        exact += st.binom.pmf(n, m, 2 * theta) * parts
    u = (np.arange(2000) + 0.5) / 2000
    value = pt.lvector()
    release = dp.BinomialMechanism.dist(st.beta.ppf(u, a, b), n_trials=m, theta=theta)
    logp = pm.logp(release, value)
    found = [np.exp(logp.eval({value: np.full(2000, k)})).mean() for k in range(m + 1)]
    np.testing.assert_allclose(found, exact, atol=1e-5)


@both
def test_queries_too_large_for_exact_sums(kind):
    with pytest.raises(ValueError, match=r"query must be below 2\^53 in size"):
        kind.release(np.array([2.0**60]), **{level_of(kind): 2.0}, sensitivity=1)


@both
def test_confidential_values_are_in_no_message(kind):
    for query in (np.array([3, 71.25]), dp.record_sum(np.array([3, 71.25]))):
        with pytest.raises(ValueError, match="whole numbers") as caught:
            kind.release(query, **{level_of(kind): 2.0}, sensitivity=1)
        assert "71" not in str(caught.value) and "74" not in str(caught.value)


@both
@pytest.mark.parametrize("value", [1e300, 2**63, 9.3e18, -1e19, -(2**63)])
def test_observed_numbers_beyond_64_bits(kind, value):
    """They became other numbers in silence, 0 among them."""
    with pm.Model():
        x = pm.Poisson("x", 2, shape=3)
        with pytest.raises(ValueError, match=r"observed must be below 2\^63 in size, got .*larger units"):
            kind("z", x.sum(), **{level_of(kind): 1.0}, observed=value)
        kind("largest", x.sum(), **{level_of(kind): 1.0}, observed=2.0**62)


@both
def test_observed_booleans_are_0_and_1(kind):
    with pm.Model() as model:
        b = pm.Bernoulli("b", 0.3, shape=3)
        kind("z", b, **{level_of(kind): 1.0}, observed=np.array([True, False, True]))
        kind("s", b, **{level_of(kind): 1.0}, observed=[True, False, True])
    for name in ("z", "s"):
        np.testing.assert_array_equal(model.rvs_to_values[model[name]].data, [1, 0, 1])
