"""The noise of the private steps: its law, where it comes from, and that it is not copied."""

import contextlib
import pickle
import threading
import warnings
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy import stats

import pymc_dp as dp
from pymc_dp.privacy.exact_noise import words_from
from pymc_dp.private import integer_noise
from pymc_dp.private.integer_noise import GaussianNoise, discrete_gaussian, words_of_seed
from tests.private import models


def p_of_small_scale(draws, scale):
    """Of a chi-square test of the frequency of each number; rare ones count with the last that is not."""
    k = np.arange(-9 * scale, 9 * scale + 1)
    p = np.exp(-(k**2) / (2.0 * scale**2))
    p /= p.sum()
    end = k[len(draws) * p > 20].max()
    inner = np.arange(-end, end + 1)
    expected = len(draws) * np.bincount(np.clip(k, -end, end) + end, p)
    observed = (np.clip(draws, -end, end)[:, None] == inner).sum(axis=0)
    return stats.chisquare(observed, expected).pvalue


@pytest.mark.parametrize("scale", [1, 2, 7])
def test_small_scales(scale, rng):
    assert p_of_small_scale(discrete_gaussian(scale, 50_000, words_from(rng)), scale) > 1e-3


def test_a_wrong_law_is_seen(rng):
    """Power: the scale, or a rounded normal number, which has another law at a scale of 1."""
    assert p_of_small_scale(discrete_gaussian(8, 50_000, words_from(rng)), 7) < 1e-6
    assert p_of_small_scale(np.rint(rng.normal(size=50_000)).astype(int), 1) < 1e-6


def test_large_scale(rng):
    draws = discrete_gaussian(2**37, 50_000, words_from(rng)) / 2**37
    assert stats.kstest(draws, "norm").pvalue > 1e-3
    assert stats.kstest(draws / 1.03, "norm").pvalue < 1e-3
    # no number of a coarser grid is preferred
    last = discrete_gaussian(2**37, 50_000, words_from(rng)) % 16
    assert stats.chisquare(np.bincount(last, minlength=16)).pvalue > 1e-3


# -- tails ------------------------------------------------------------------------------------------


def bits_of(u, first):
    """The first bits of a fraction, and a source of the words that follow."""
    top = int(u * 2**first)
    rest = [u * 2**first - top]

    def words(count):
        word, rest[0] = int(rest[0] * 2**64), rest[0] * 2**64 % 1
        return np.full(count, word, dtype=np.uint64)

    return np.array([top], dtype=np.uint64), words


@pytest.mark.parametrize("exponent", [0, 1, 10, 52, 63, 64, 65, 130, 400, 1000])
def test_uniform_numbers_are_compared_to_the_last_bit(exponent, rng):
    """With a probability of any size, and numbers that differ from it in any digit."""
    p = Fraction(float(rng.uniform(0.5, 1)) * 2.0**-exponent)
    for share in (Fraction(1, 2**k) for k in (2, 40, 60, 70, 150)):
        for u in (p - share * p, p + share * p):
            first, words = bits_of(u, 64)
            assert integer_noise._below(first, np.array([float(p)]), words)[0] == (u < p)
    assert integer_noise._below(np.array([2**64 - 1], dtype=np.uint64), np.ones(1), None)[0]


def test_times_that_a_scale_fits_are_geometric():
    for k in (1, 2, 12, 20, 37, 42, 43):
        power = Fraction(str(mpmath.nstr(mpmath.exp(-k), 40)))
        for share, times in ((Fraction(1, 10**14), k - 1), (-Fraction(1, 10**14), k)):
            first, words = bits_of(power * (1 + share), 63)
            assert integer_noise._geometric(first, words)[0] == times


def test_times_have_no_end(rng):
    """They go on beyond exp(-44) as they began: 45 and more with a probability of exp(-1) of it."""
    given = words_from(rng)
    passed = integer_noise._geometric(np.zeros(20_000, dtype=np.uint64), given)
    shares = [(passed == 43).mean(), (passed == 44).mean(), (passed >= 45).mean()]
    at_44 = float(mpmath.exp(-44) * 2**63)
    expected = np.array([1 - at_44, at_44 * (1 - np.exp(-1)), at_44 * np.exp(-1)])
    assert stats.chisquare(np.array(shares) * 20_000, expected * 20_000).pvalue > 1e-3


@pytest.mark.parametrize("steps", [12, 30, 38])
def test_no_tail_is_cut_off(steps):
    """A draw of so many standard deviations has its own probability: words exist for it, and just for it."""
    p = float(mpmath.exp(-0.5 * mpmath.mpf(steps - 1) ** 2))
    u = (float(mpmath.exp(-steps)) + float(mpmath.exp(-steps - 1))) / 2

    class Refused(Exception):
        pass

    def draw_with(last):
        first, following = bits_of(last, 64)
        calls = []

        def words(count):
            calls.append(count)
            if count == 1:
                return following(count)
            if len(calls) > 1:
                raise Refused
            given = np.full((4, count // 4), 2**63, dtype=np.uint64)  # nothing proposed of the others
            given[:, 0] = [0, int(u * 2**63) * 2, 0, first[0]]
            return given.ravel()

        return discrete_gaussian(1, 1, words)[0]

    assert draw_with(Fraction(p) * (1 - Fraction(1, 10**12))) == steps
    with pytest.raises(Refused):  # other words are asked for
        draw_with(Fraction(p) * (1 + Fraction(1, 10**12)))


def test_deltas_that_no_noise_keeps_are_refused():
    model = models.normal_model(models.normal_rows(30))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        books = [dp.PrivacyLedger(epsilon=100, delta=delta) for delta in (1e-301, 1e-300)]
    plan = {"model": model, "draws": 2, "tune": 0, "chains": 1}
    with pytest.raises(ValueError, match=r"delta = 1e-301 is less .*: give at least 1e-300"):
        dp.PenaltyMetropolis(ledger=books[0], **plan)
    dp.PenaltyMetropolis(ledger=books[1], **plan)
    assert not books[0].entries() and books[1].entries()


def test_entropy_is_the_systems(monkeypatch):
    """Two sources never agree; with the system's entropy replaced, they do: there is no other."""
    assert not np.array_equal(GaussianNoise(2**31).draw(4), GaussianNoise(2**31).draw(4))
    from pymc_dp.privacy import exact_noise

    drawn = []
    for _ in range(2):
        monkeypatch.setattr(exact_noise.secrets, "token_bytes", np.random.default_rng(1).bytes)
        drawn.append(GaussianNoise(2**31).draw(4))
    assert np.array_equal(*drawn)


def test_noise_is_not_copied():
    with pytest.raises(TypeError, match="cannot be copied"):
        pickle.dumps(GaussianNoise(4))


def test_a_fork_has_noise_of_its_own(monkeypatch):
    """What was drawn in advance is drawn again in another process."""
    source = GaussianNoise(2**31)
    source.draw(1)
    left = source._left.copy()
    monkeypatch.setattr(integer_noise.os, "getpid", lambda: -1)
    assert not np.array_equal(source.draw(4), left[:4])


class Meeting(np.ndarray):
    """Numbers whose readers wait for each other, if there are two."""

    def __getitem__(self, index):
        with contextlib.suppress(threading.BrokenBarrierError):
            self.barrier.wait()
        return np.asarray(self)[index]


def drawn_by_two_threads(source, patience):
    """What two threads get, each of which is interrupted between reading and taking away."""
    source.draw(1)
    source._left = source._left.view(Meeting)
    source._left.barrier = threading.Barrier(2, timeout=patience)
    drawn = []
    threads = [threading.Thread(target=lambda: drawn.append(int(source.draw(1)[0]))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return drawn


def test_threads_never_get_the_same_noise():
    one, other = drawn_by_two_threads(GaussianNoise(2**40), patience=0.1)
    assert one != other
    # power: without the lock they do
    unlocked = GaussianNoise(2**40)
    unlocked._lock = contextlib.nullcontext()
    one, other = drawn_by_two_threads(unlocked, patience=60)
    assert one == other


def test_a_known_seed_is_announced():
    with pytest.warns(UserWarning, match="not private"):
        words_of_seed(1, 0)
    for wrong in (-1, 1.5, True, "1"):
        with pytest.raises(ValueError, match="insecure_noise_seed must be a whole number >= 0"):
            words_of_seed(wrong, 0)


@pytest.mark.filterwarnings("ignore:insecure_noise_seed")
def test_streams_of_a_seed():
    """Chains, and the kinds of noise of a chain, share no words."""
    streams = [words_of_seed(7, chain, kind)(4) for chain in range(3) for kind in range(3)]
    assert len({word for words in streams for word in words.tolist()}) == 9 * 4
    assert np.array_equal(words_of_seed(7, 1, 2)(4), streams[5])


def test_scale_out_of_range():
    with pytest.raises(ValueError, match="scale must be"):
        discrete_gaussian(0, 1)
