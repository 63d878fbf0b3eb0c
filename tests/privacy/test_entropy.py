"""The bits of a release are those that the operating system gave, in their order, at both sources."""

import itertools

import numpy as np
import pytest

from pymc_dp.privacy import entropy as noise
from pymc_dp.privacy import exact_noise
from pymc_dp.privacy.entropy import draw_securely, secure_generator


@pytest.fixture
def given(monkeypatch):
    """What the system gave so far; each block differs from all before."""
    blocks, seeds = [], itertools.count(1)

    def entropy(count):
        blocks.append(np.random.default_rng(next(seeds)).bytes(count))
        return blocks[-1]

    monkeypatch.setattr(exact_noise.secrets, "token_bytes", entropy)
    monkeypatch.setattr(noise.os, "urandom", entropy)
    return blocks


def words(blocks):
    return np.frombuffer(b"".join(blocks), dtype=np.uint64)


def test_words_of_exact_samplers(given):
    taken = np.concatenate([exact_noise.system_words(k) for k in (1, 5, 0, 300)])
    assert (taken == words(given)).all() and len(taken) == 306


@pytest.mark.parametrize("secure", [lambda draw: draw(secure_generator()), draw_securely])
def test_words_of_numpy_s_samplers(given, secure):
    n = 5000  # more than one block of words

    def draw(generator):
        return [
            generator.integers(0, 2**64, size=n, dtype=np.uint64),
            generator.random(size=n),
            generator.integers(0, 2**32, size=n, dtype=np.uint32),
        ]

    taken, all_words = secure(draw), words(given)
    assert len(given) > 1 and len(all_words) >= 3 * n
    whole, part, half = (all_words[k * n : (k + 1) * n] for k in range(3))
    assert (taken[0] == whole).all()
    assert (taken[1] == (part >> np.uint64(11)) * 2.0**-53).all()
    assert (taken[2] == half >> np.uint64(32)).all()
