"""What every test may use: the long form of the statistical suites, and the reference answers."""

import gc
import os
import time
from collections import Counter
from zlib import crc32

# Before NumPy is imported: the tests run side by side, one BLAS thread each.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MPLBACKEND", "Agg")

from pathlib import Path

import numpy as np
import pytensor
import pytest

from tests import trust

# Constants in graphs are folded by C++ code where there is a compiler, made for each kind of operation:
# seconds that many tests would wait for. Everything else is compiled by numba, or computed in Python.
pytensor.config.cxx = ""

REFERENCE = Path(__file__).resolve().parents[2] / "shared" / "reference"


def pytest_addoption(parser):
    parser.addoption(
        "--full",
        action="store_true",
        help="run the statistical suites (simulation-based calibration, Geweke) in full",
    )
    parser.addoption(
        "--minutes",
        type=float,
        default=float("inf"),
        help="begin no test after so many minutes; those left over are skipped, the statistical suites first",
    )
    parser.addoption(
        "--record",
        type=Path,
        help="write to a file which steps met which mechanisms in which tests (for the trust report)",
    )


def pytest_configure(config):
    path = config.getoption("--record")
    if path:
        config.pluginmanager.register(trust.Plugin(path, writes=not hasattr(config, "workerinput")))


STARTED = time.monotonic()
OUT_OF_TIME = "the time given by --minutes is used up"
# What decides which tests are left over; a continuous build gives its commit, so that it changes.
ORDER = os.environ.get("TEST_ORDER", "")


def pytest_runtest_setup(item):
    """Keep to the time that was given, on a machine of any speed."""
    if time.monotonic() - STARTED > 60 * item.config.getoption("--minutes"):
        pytest.skip(OUT_OF_TIME)


# Graphs and compiled functions are millions of small objects that live on: Python's own searches for garbage
# among them take a tenth of the time of all tests. It is looked for after so many tests, and after each file,
# among what was made since.
TESTS_PER_COLLECTION = 40
_since_collection = 0


def _collect():
    """Look for garbage; what is none is left out of later searches."""
    gc.collect()
    gc.freeze()


def pytest_collection_finish(session):
    """Have no search for garbage begin by itself."""
    _collect()
    gc.disable()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item, nextitem):
    """Look for garbage between tests."""
    global _since_collection
    _since_collection += 1
    if _since_collection >= TESTS_PER_COLLECTION or nextitem is None or nextitem.path != item.path:
        _since_collection = 0
        _collect()


def pytest_terminal_summary(terminalreporter):
    """Say how many tests were not begun."""
    left = [r for r in terminalreporter.stats.get("skipped", []) if OUT_OF_TIME in str(r.longrepr)]
    if left:
        terminalreporter.write_line(f"{len(left)} tests were not begun: {OUT_OF_TIME}.")


def _piece(items, k, pieces):
    """Return the k-th of as many pieces of a list."""
    return items[len(items) * k // pieces : len(items) * (k + 1) // pieces]


def pytest_collection_modifyitems(config, items):
    """Skip what was not asked for, or what this checkout has no answers for.

    The statistical suites come last, their files in an order that the commit decides: if time runs out,
    others are left over each time. The tests of a file stay together: they share models and compiled code.
    """
    cases = Counter()
    for item in items:
        mark = item.get_closest_marker("compiles")
        if mark is not None:
            function = item.nodeid.partition("[")[0]
            cases[function] += 1
            if cases[function] > mark.args[0]:
                item.add_marker(pytest.mark.statistical)
    statistical = [item for item in items if "statistical" in item.keywords]
    others = [item for item in items if "statistical" not in item.keywords]
    statistical.sort(key=lambda item: crc32(f"{ORDER}{item.path.name}".encode()))
    # pytest-xdist deals out the tests in as many pieces as there are workers
    pieces = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    items[:] = [
        item for k in range(pieces) for part in (others, statistical) for item in _piece(part, k, pieces)
    ]
    full = config.getoption("--full") or "statistical" in config.getoption("markexpr", "")
    long_suite = pytest.mark.skip(reason="statistical suite: run with --full")
    example = pytest.mark.skip(reason="example in a docstring, which has to compile: run with --full")
    no_answers = pytest.mark.skip(reason="needs the reference answers in ../shared/reference")
    for item in items:
        if "statistical" in item.keywords and not full:
            item.add_marker(long_suite)
        if isinstance(item, pytest.DoctestItem) and not full:
            item.add_marker(example)
        if "reference" in item.keywords and not REFERENCE.is_dir():
            item.add_marker(no_answers)


@pytest.fixture(scope="session")
def full(request):
    """Whether the statistical suites run in full: for tests that have a short form."""
    return request.config.getoption("--full")


@pytest.fixture(scope="session")
def reference():
    """Folder of reference answers; the test is skipped where it is absent."""
    if not REFERENCE.is_dir():
        pytest.skip("needs the reference answers in ../shared/reference")
    return REFERENCE


@pytest.fixture
def rng(request):
    """Generator seeded by the test's own name: the same numbers in any order and on any worker."""
    return np.random.default_rng(list(request.node.nodeid.encode()))


@pytest.fixture
def python_mode():
    """Graphs are evaluated in Python instead of being compiled: for densities at a few points."""
    with pytensor.config.change_flags(mode="FAST_COMPILE"):
        yield


@pytest.fixture
def built_only(monkeypatch):
    """Steps are built without being compiled: for tests of what they take, or say of a model."""
    from pymc_dp.lowering.addresses import native
    from pymc_dp.step_methods import record_step

    monkeypatch.setattr(record_step, "compile_lowered", lambda: None)
    yield
    native._lowered.clear()


@pytest.fixture
def seeded_entropy(rng, monkeypatch):
    """Entropy of the operating system, replaced by a seeded generator: releases that can be repeated.

    Tests of the law of a release use it, so that they can reject at a level that sees small errors. That
    releases do come from the system's entropy is shown in tests/privacy/test_entropy.py.
    """
    from pymc_dp.privacy import entropy, exact_noise

    monkeypatch.setattr(exact_noise.secrets, "token_bytes", rng.bytes)
    monkeypatch.setattr(entropy.os, "urandom", rng.bytes)
    return rng
