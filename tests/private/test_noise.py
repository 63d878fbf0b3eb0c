"""The noise of the private steps: its law, where it comes from, and that it is not copied."""

import contextlib
import pickle
import threading

import numpy as np
import pytest
from scipy import stats

from pymc_dp.privacy.exact_noise import words_from
from pymc_dp.private.noise import GaussianNoise, discrete_gaussian, words_of_seed


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
    from pymc_dp.private import noise

    source = GaussianNoise(2**31)
    source.draw(1)
    left = source._left.copy()
    monkeypatch.setattr(noise.os, "getpid", lambda: -1)
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
