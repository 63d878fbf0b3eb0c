"""Noise for releases: from the system's entropy, uniform, and never repeated."""

import copy
import ctypes
import os
import pickle
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
import scipy.stats as st

from pymc_dp.privacy import entropy
from pymc_dp.privacy.entropy import draw_securely, secure_generator

N = 40_000


def test_words_are_uniform(seeded_entropy):
    words = secure_generator().integers(0, 2**64, size=N, dtype=np.uint64)
    for shift in range(0, 64, 8):  # every byte of the word
        counts = np.bincount((words >> np.uint64(shift)) & np.uint64(255), minlength=256)
        assert st.chisquare(counts).pvalue > 1e-4
    assert len(set(words.tolist())) == N


@pytest.mark.parametrize(
    ("draw", "law"),
    [
        (lambda g: g.random(N), st.uniform()),
        (lambda g: g.standard_normal(N), st.norm()),
        (lambda g: g.laplace(2, 3, N), st.laplace(2, 3)),
        (lambda g: g.integers(0, 2**32, N, dtype=np.uint32) / 2**32, st.uniform()),
    ],
    ids=["random", "normal", "laplace", "32 bits"],
)
def test_numpy_s_samplers_work_on_it(draw, law, seeded_entropy):
    drawn = draw_securely(draw)
    assert st.kstest(drawn, law.cdf).pvalue > 1e-3
    assert st.kstest(1.05 * drawn + 0.02, law.cdf).pvalue < 1e-6  # power


def test_nothing_repeats_it(monkeypatch):
    """Seeds, and somebody's own generators in NumPy's places."""
    fixed = np.random.default_rng(1)
    monkeypatch.setattr(np.random, "default_rng", lambda *_: np.random.default_rng(1))
    monkeypatch.setattr(np.random, "random", lambda *_: 0.5)
    monkeypatch.setattr(np.random, "PCG64", lambda *_: fixed.bit_generator)
    seen = set()
    for _ in range(3):
        np.random.seed(0)  # noqa: NPY002
        seen.add(int(secure_generator().integers(2**62)))
        seen.add(draw_securely(lambda g: int(g.integers(2**62))))
    assert len(seen) == 6


def test_has_no_state_to_copy():
    generator = secure_generator()
    for attempt in (pickle.dumps, copy.deepcopy):
        with pytest.raises((TypeError, AttributeError)):
            attempt(generator)
    with pytest.raises(TypeError, match="have no state"):
        pickle.dumps(generator.bit_generator)


def in_a_fork(fork, generator):
    """What a fork draws, and what its parent draws after it."""
    reading, writing = os.pipe()
    child = fork()
    if child == 0:  # pragma: no cover
        os.write(writing, str(generator.integers(2**62, size=3).tolist()).encode())
        os._exit(0)
    os.waitpid(child, 0)
    return os.read(reading, 1000).decode(), str(generator.integers(2**62, size=3).tolist())


@pytest.mark.filterwarnings("ignore:.*fork")
@pytest.mark.parametrize("fork", [os.fork, ctypes.CDLL(None).fork], ids=["Python", "C"])
def test_a_forked_process_does_not_repeat_it(fork):
    """Nor one that Python's hooks do not know of: those of libraries in C fork without them."""
    generator = secure_generator()
    generator.integers(2**62)  # the block of words in memory is now shared
    one, other = in_a_fork(fork, generator)
    assert len(one) > 40 and one != other


@pytest.mark.filterwarnings("ignore:.*fork")
def test_a_fork_does_not_wait_for_a_thread_that_is_no_more():
    generator = secure_generator()
    generator.integers(2**62)
    generator.bit_generator.lock.__enter__()  # as by a thread that draws while another forks
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover
        signal.alarm(60)  # ends it where it waits
        os.write(writing, str(generator.integers(2**62)).encode())
        os._exit(0)
    generator.bit_generator.lock.__exit__()
    assert os.waitpid(child, 0)[1] == 0 and int(os.read(reading, 100))


def test_threads_share_a_generator_and_no_number():
    generator, drawn = secure_generator(), []
    threads = [
        threading.Thread(target=lambda: [drawn.append(int(generator.integers(2**62))) for _ in range(3000)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(drawn) == len(set(drawn)) == 12_000


def test_nothing_of_the_process_is_changed():
    """Importing it leaves no hook behind."""
    code = (
        "import os, numpy, random, threading; hooks = []\n"
        "os.register_at_fork = lambda **kw: hooks.append(kw)\n"
        f"exec(compile(open({entropy.__file__!r}).read(), 'noise', 'exec'), {{'__name__': 'noise'}})\n"
        "print(hooks)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


@pytest.mark.parametrize("draw", ["laplace", "standard_normal", "random", "standard_gamma"])
def test_without_entropy_nothing_is_released(monkeypatch, draw):
    def broken(count):
        raise OSError("no entropy")

    monkeypatch.setattr(entropy.os, "urandom", broken)
    with pytest.raises(RuntimeError, match="gave no entropy for the noise, so nothing was released"):
        draw_securely(
            lambda g: (
                getattr(g, draw)(2.0 if draw == "standard_gamma" else None, size=5)
                if draw == "standard_gamma"
                else getattr(g, draw)(size=5)
            )
        )


def test_entropy_that_fails_later_is_noticed(monkeypatch):
    real, calls = os.urandom, []

    def once(count):
        calls.append(count)
        if len(calls) > 1:
            raise OSError("no entropy")
        return real(count)

    monkeypatch.setattr(entropy.os, "urandom", once)
    with pytest.raises(RuntimeError, match="gave no entropy"):
        draw_securely(lambda g: g.random(10_000))


def test_errors_of_a_sampler_come_through():
    with pytest.raises(ValueError, match="scale < 0"):
        draw_securely(lambda g: g.laplace(scale=-1.0))
