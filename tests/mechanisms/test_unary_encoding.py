"""Unary encoding: density by hand, draws, guarantees, messages."""

import itertools
import math

import numpy as np
import pymc as pm
import pytest
import scipy.stats as st

import pymc_dp as dp

both_variants = pytest.mark.parametrize("variant", ["symmetric", "optimized"])


def bit_probabilities(epsilon, variant):
    if variant == "symmetric":
        return 1 / (1 + math.exp(-epsilon / 2)), 1 / (1 + math.exp(epsilon / 2))
    return 0.5, 1 / (1 + math.exp(epsilon))


def channel(k, epsilon, variant):
    """All bit patterns, and the matrix of their probabilities by category."""
    p, q = bit_probabilities(epsilon, variant)
    patterns = np.array(list(itertools.product([0, 1], repeat=k)))
    one = np.where(np.eye(k, dtype=bool), p, q)
    return patterns, np.where(patterns == 1, one[:, None], 1 - one[:, None]).prod(-1)


@both_variants
@pytest.mark.parametrize(("k", "epsilon"), [(2, 0.1), (3, 1.0), (5, 4.0)])
def test_density_and_guarantee(k, epsilon, variant):
    patterns, q = channel(k, epsilon, variant)
    for c in range(k):
        z = dp.UnaryEncoding.dist(c, epsilon=epsilon, variant=variant, n_categories=k)
        np.testing.assert_allclose(pm.logp(z, patterns).eval(), np.log(q[c]), rtol=1e-11)
    assert z.type.shape == (k,)
    z = dp.UnaryEncoding.dist(np.arange(k), epsilon=epsilon, variant=variant, n_categories=k)
    np.testing.assert_allclose(pm.logp(z, patterns[:k]).eval(), np.log(q[np.arange(k), np.arange(k)]))
    worst = np.abs(np.log(q[:, None, :] / q[None, :, :])).max()
    assert dp.guarantee(z).epsilon == pytest.approx(worst, rel=1e-12)


@both_variants
def test_density_at_any_epsilon_and_outside(variant):
    z = dp.UnaryEncoding.dist(1, epsilon=3000, variant=variant, n_categories=3)
    logp = pm.logp(z, [[0, 1, 0], [0, 0, 0], [1, 0, 0], [0, 2, 0]]).eval()
    half = math.log(0.5) if variant == "optimized" else 0.0
    miss = math.log(0.5) if variant == "optimized" else -1500.0
    spurious = miss - (3000 if variant == "optimized" else 1500)
    np.testing.assert_allclose(logp, [half, miss, spurious, -np.inf])


@both_variants
@pytest.mark.filterwarnings("error")  # numba would warn if it left native code
def test_draws_follow_the_density(variant):
    truth = np.repeat(np.arange(3), 20_000)
    _, q = channel(3, 0.8, variant)
    z = dp.UnaryEncoding.dist(truth, epsilon=0.8, variant=variant, n_categories=3)
    secure = dp.UnaryEncoding.release(truth, epsilon=0.8, variant=variant, n_categories=3).value
    for draws in (pm.draw(z, random_seed=3), secure):
        which = draws @ [4, 2, 1]
        for c in range(3):
            counts = np.bincount(which[truth == c], minlength=8)
            assert st.chisquare(counts, 20_000 * q[c]).pvalue > 1e-4
        # power: another epsilon is seen
        wrong = channel(3, 1.0, variant)[1][0]
        assert st.chisquare(np.bincount(which[truth == 0], minlength=8), 20_000 * wrong).pvalue < 1e-4


@both_variants
def test_posterior_is_that_of_enumeration(variant):
    k, n, epsilon = 3, 4, 1.5
    z = np.array([[1, 0, 1], [0, 0, 0], [0, 1, 0], [0, 1, 1]])
    _, q = channel(k, epsilon, variant)
    which = z @ [4, 2, 1]
    tables, weights = np.array(list(np.ndindex(*(k,) * n))), []
    for c in tables:
        counts = np.bincount(c, minlength=k)
        log_prior = sum(math.lgamma(1 + a) for a in counts) - math.lgamma(k + n)
        weights.append(q[c, which].prod() * math.exp(log_prior))
    weights = np.array(weights) / np.sum(weights)
    exact = sum(w * (1 + np.bincount(c, minlength=k)) for w, c in zip(weights, tables, strict=True)) / (k + n)
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.ones(k))
        c = pm.Categorical("c", p, shape=n)
        dp.UnaryEncoding("z", c, epsilon=epsilon, variant=variant, observed=z)
    idata = pm.sample(2000, tune=500, chains=2, cores=1, model=model, random_seed=3, progressbar=False)
    summary = pm.stats.summary(idata, var_names=["p"], kind="all", round_to="none")
    np.testing.assert_array_less(abs(summary["mean"] - exact), 4.5 * summary["mcse_mean"])


BAD = {
    "no noise level": ({"n_categories": 3}, ValueError, "got none. Choose epsilon="),
    "epsilon negative": (
        {"n_categories": 3, "epsilon": -1},
        ValueError,
        "epsilon must be a finite number > 0",
    ),
    "epsilon nan": ({"n_categories": 3, "epsilon": math.nan}, ValueError, "epsilon must be a finite"),
    "variant": ({"n_categories": 3, "epsilon": 1, "variant": "best"}, ValueError, "one of 'symmetric', 'opt"),
    "categories": ({"epsilon": 1}, ValueError, "Give n_categories="),
    "p_truth": ({"n_categories": 3, "epsilon": 1, "p_truth": 0.9}, TypeError, "unexpected keyword argument"),
}


@pytest.mark.parametrize(("kwargs", "error", "message"), BAD.values(), ids=BAD)
def test_bad_arguments(kwargs, error, message):
    with pytest.raises(error, match=message):
        dp.UnaryEncoding.dist(0, **kwargs)


@pytest.mark.parametrize(
    ("observed", "message"),
    [
        ([[0, 1, 2], [0, 0, 0]], r"observed has the value 2 at index \(0, 2\), which is not a bit"),
        ([[0, 1, 0.5], [0, 0, 0]], "observed has the value 0.5"),
        ([[0, 1], [0, 0]], r"shape \(2, 2\), but the query gives one of shape \(2, 3\)"),
        ([0, 1], "observed means a release of shape"),
    ],
)
def test_bad_bits(observed, message):
    with pm.Model() as model:
        c = pm.Categorical("c", np.ones(3) / 3, shape=2)
        with pytest.raises(ValueError, match=message):
            dp.UnaryEncoding("z", c, epsilon=1, observed=observed)
    assert "z" not in model.named_vars


def test_release_and_back():
    release = dp.UnaryEncoding.release([0, 1, 2, 2], epsilon=3, variant="optimized", n_categories=3)
    assert dp.Release.from_json(release.to_json()) == release
    with pm.Model():
        c = pm.Categorical("c", np.ones(3) / 3, shape=4)
        z = dp.UnaryEncoding("z", c, observed=release)
        assert dp.guarantee(z).epsilon == 3 and z.owner.op.variant == "optimized"
        with pytest.raises(ValueError, match="contradicts the release"):
            dp.UnaryEncoding("w", c, variant="symmetric", observed=release)
