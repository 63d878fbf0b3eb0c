"""Exact integer samplers: the law by chi-square, the arithmetic by words chosen on purpose."""

import math
from fractions import Fraction

import numpy as np
import pytest
import scipy.stats as st

from pymc_dp.privacy import exact_noise
from pymc_dp.privacy.exact_noise import (
    bernoulli,
    bernoulli_exp,
    discrete_gaussian,
    discrete_laplace,
    system_words,
    uniform_below,
    words_from,
)
from tests.contract.form import chi_square

SCALES = [Fraction(1, 1000), Fraction(1, 7), 0.5, 1, Fraction(7, 3), 2 / 0.7, 31.4]


def pmf(kind, scale, reach):
    k = np.arange(-reach, reach + 1)
    x = k / float(scale)
    weights = np.exp(-np.abs(x) if kind is discrete_laplace else -0.5 * x * x)
    return k, weights / weights.sum()


@pytest.mark.parametrize("scale", SCALES, ids=str)
@pytest.mark.parametrize("kind", [discrete_laplace, discrete_gaussian])
def test_draws_follow_the_law(kind, scale, rng):
    draws = kind(scale, 40_000, words_from(rng))
    assert draws.dtype == np.int64 and draws.shape == (40_000,)
    assert chi_square(draws, *pmf(kind, scale, 1500)) > 1e-3
    if float(scale) >= 0.5:  # power: the same test sees a scale that is 6 % off
        assert chi_square(draws, *pmf(kind, 1.06 * float(scale), 1500)) < 1e-3


@pytest.mark.parametrize(("kind", "law"), [(discrete_laplace, st.laplace), (discrete_gaussian, st.norm)])
@pytest.mark.parametrize("scale", [1e8, 123456789.12345])
def test_large_scales_approach_the_continuous_law(kind, law, scale, rng):
    assert st.kstest(kind(scale, 40_000, words_from(rng)) / scale, law.cdf).pvalue > 1e-3


def test_system_entropy_is_the_default():
    one, two = discrete_laplace(1000, 500), discrete_laplace(1000, 500)
    assert (one != two).any()
    assert chi_square(discrete_gaussian(3, 20_000), *pmf(discrete_gaussian, 3, 60)) > 1e-5
    assert system_words(5).dtype == np.uint64


def test_same_words_give_the_same_draws():
    draws = [discrete_gaussian(2.5, 100, words_from(np.random.default_rng(5))) for _ in range(2)]
    assert (draws[0] == draws[1]).all()


@pytest.mark.parametrize("bound", [1, 2, 3, 10, 2**64 - 1, 2**64, 2**64 + 1, 3 * 10**30])
def test_uniform_below(bound, rng):
    draws = uniform_below(bound, 20_000, words_from(rng))
    assert draws.min() >= 0 and draws.max() < bound
    cells = min(bound, 10)
    counts = np.bincount((draws * cells // bound).astype(int), minlength=cells)
    assert cells == 1 or st.chisquare(counts).pvalue > 1e-3


@pytest.mark.parametrize(
    ("top", "bottom"), [(0, 3), (1, 3), (7, 7), (1, 2), (10**40, 3 * 10**40), (2**70 - 1, 2**70)]
)
def test_bernoulli(top, bottom, rng):
    successes = bernoulli(np.full(20_000, top, dtype=object), bottom, words_from(rng)).sum()
    p = top / bottom
    if p in (0, 1):
        assert successes == 20_000 * p
    else:
        assert st.binomtest(int(successes), 20_000, p).pvalue > 1e-3


def scripted(*script):
    """Source that gives these words in turn."""
    left = list(script)

    def words(count):
        given, left[:] = left[:count], left[count:]
        return np.array(given, dtype=np.uint64)

    return words


def test_bernoulli_compares_all_the_digits():
    """2^64/3 has no finite binary form: a first word equal to its digits asks for a second one."""
    third = 2**64 // 3
    assert bernoulli(1, 3, scripted(third - 1)).item()
    assert not bernoulli(1, 3, scripted(third + 1)).item()
    assert bernoulli(1, 3, scripted(third, third - 1)).item()
    assert not bernoulli(1, 3, scripted(third, third + 1)).item()
    assert not bernoulli(1, 4, scripted(2**62)).item()  # [0, 2^62) are the successes, exactly
    assert bernoulli(1, 4, scripted(2**62 - 1)).item()


@pytest.mark.parametrize(("top", "bottom"), [(0, 1), (1, 1), (1, 3), (7, 2), (10**40, 10**41), (2001, 1)])
def test_bernoulli_exp(top, bottom, rng):
    successes = bernoulli_exp(np.full(20_000, top, dtype=object), bottom, words_from(rng)).sum()
    p = math.exp(-top / bottom)
    assert st.binomtest(int(successes), 20_000, p).pvalue > 1e-3


def test_no_floating_point_between_entropy_and_noise(rng, monkeypatch):
    """Scales that no double can tell apart from their neighbours, and no float in the arrays."""
    scale = Fraction(2**90 + 1, 2**88)
    seen = set()

    def spy(top, bottom, words):
        for array in (top, bottom):
            seen.update(map(type, np.asarray(array, dtype=object).ravel()))
        return bernoulli(top, bottom, words)

    monkeypatch.setattr(exact_noise, "bernoulli", spy)
    for kind in (discrete_laplace, discrete_gaussian):
        assert chi_square(kind(scale, 20_000, words_from(rng)), *pmf(kind, scale, 400)) > 1e-3
    assert seen == {int}


@pytest.mark.parametrize("kind", [discrete_laplace, discrete_gaussian])
@pytest.mark.parametrize("scale", [0, -1.0, math.nan, math.inf, Fraction(-1, 2)], ids=str)
def test_bad_scales(kind, scale):
    with pytest.raises(ValueError, match="must be finite and > 0"):
        kind(scale, 10)


@pytest.mark.parametrize("kind", [discrete_laplace, discrete_gaussian])
@pytest.mark.parametrize("scale", [2**62, 10**30])
def test_draws_that_do_not_fit_64_bits_are_no_less_likely(rng, kind, scale):
    draws = kind(scale, 20_000, words_from(rng))
    assert abs(draws).max() > 2**63 and {type(k) for k in draws} == {int}
    law = st.laplace if kind is discrete_laplace else st.norm
    assert st.kstest((draws / scale).astype(float), law.cdf).pvalue > 1e-3


def test_no_draws():
    assert discrete_laplace(2, 0).shape == discrete_gaussian(2, 0).shape == (0,)
