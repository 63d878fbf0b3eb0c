"""Functions compiled by other processes before they are called: what is loaded, and what can go wrong."""

import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from numba import types
from numba.core.errors import TypingError

from pymc_dp.lowering import ahead
from pymc_dp.lowering.native import SourceFunction

SIGNATURE = types.float64(types.float64)


@pytest.fixture(autouse=True)
def one_compiler(monkeypatch):
    monkeypatch.setenv("PYMC_DP_COMPILERS", "1")
    ahead.finish()  # of other tests
    yield
    ahead.finish()


def _function(body="return 3.0 * x + number"):
    """A function that no cache can hold."""
    source = f"def f(x):\n    number = {uuid.uuid4().int % 10**15}.0\n    {body}\n"
    return SourceFunction("f", source, {}, SIGNATURE, [])


def _loaded(function):
    """Whether what is called came from the cache, that is from another process."""
    stats = function.dispatcher.stats
    return sum(stats.cache_hits.values()) == 1 and sum(stats.cache_misses.values()) == 0


def _until_ended(function):
    start = time.monotonic()
    while not ahead._has_ended(function._compilation):
        assert time.monotonic() < start + 60
        time.sleep(0.01)


def test_another_process_compiles():
    function = _function()
    assert function._compilation.child is not None
    _until_ended(function)
    assert _loaded(function)
    assert function.dispatcher(2.0) - function.dispatcher(1.0) == 3.0
    assert function.address != 0


def test_one_that_is_wanted_at_once_is_waited_for():
    assert _loaded(_function())


def test_what_waits_is_begun_when_it_is_wanted():
    first, second, third = _function(), _function(), _function()
    assert second._compilation.child is third._compilation.child is None
    assert _loaded(third)
    assert _loaded(first)
    assert _loaded(second)


def test_other_functions_are_compiled_in_the_meantime(monkeypatch):
    monkeypatch.setattr(ahead, "_compile_and_end", _slowly(ahead._compile_and_end, 1.0))
    first, second = _function(), _function()
    started = set(ahead._waiting)
    assert _loaded(first)
    assert started
    assert not ahead._waiting
    assert _loaded(second)


@pytest.mark.parametrize("compilers", ["0", "1"])
def test_several_threads_begin_with_one_function(monkeypatch, compilers):
    monkeypatch.setenv("PYMC_DP_COMPILERS", compilers)
    function, others = _function(), [_function(), _function()]
    with ThreadPoolExecutor(6) as pool:
        addresses = list(pool.map(lambda f: f.address, [function, *others] * 2))
    assert addresses[:3] == addresses[3:] == [f.address for f in (function, *others)]
    assert 0 not in addresses


def test_a_forked_process_takes_nothing_for_its_own():
    assert _result_of_fork([_function(), _function()][1]) == 0


def _result_of_fork(function):
    pid = os.fork()
    if pid == 0:
        ended = False
        try:
            ended = not ahead._waiting and not ahead._running and function.dispatcher(1.0) > 0
        finally:
            os._exit(0 if ended else 1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_no_compilers(monkeypatch):
    monkeypatch.setenv("PYMC_DP_COMPILERS", "0")
    function = _function()
    assert function._compilation.child is None
    assert not _loaded(function)


def test_what_is_on_disk_is_not_compiled_again(monkeypatch):
    source = f"def f(x):\n    return x + {uuid.uuid4().int % 10**15}.0\n"
    SourceFunction("f", source, {}, SIGNATURE, []).dispatcher(1.0)
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("forked"))
    again = SourceFunction("f", source, {}, SIGNATURE, [])
    assert _loaded(again)


def test_functions_without_a_key_are_compiled_here(monkeypatch):
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("forked"))
    function = SourceFunction("f", "def f(x):\n    return x\n", {}, SIGNATURE, [None])
    assert function.cache_key is None
    assert function.dispatcher(2.0) == 2.0


def test_errors_are_raised_where_the_function_is_called():
    function = _function("return x.nothing")
    with pytest.raises(TypingError, match="nothing"):
        function.dispatcher  # noqa: B018


def test_a_process_that_is_killed():
    function = _function()
    os.kill(function._compilation.child, signal.SIGKILL)
    assert function.dispatcher(2.0) - function.dispatcher(1.0) == 3.0


def test_a_process_that_stands_still(monkeypatch):
    """Another thread may have held a lock when it was forked, which nobody will release."""
    monkeypatch.setattr(ahead, "_STUCK", 0.2)
    monkeypatch.setattr(ahead, "_stuck", False)
    monkeypatch.setattr(ahead, "_compile_and_end", lambda compile: signal.pause())
    first, second, third = _function(), _function(), _function()
    child = first._compilation.child
    # the one that is wanted has no room before the others are ended
    assert third.dispatcher(2.0) - third.dispatcher(1.0) == 3.0
    _until_ended(first)
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)
    assert ahead._stuck
    assert _function()._compilation.child is None
    assert not _loaded(second)
    assert not _loaded(first)


def test_another_thread_compiles(monkeypatch):
    """A process forked then would wait for ever for the compiler."""
    compiling, done = threading.Event(), threading.Event()

    def compile():
        with ahead._compiler:
            compiling.set()
            done.wait(60)

    thread = threading.Thread(target=compile)
    thread.start()
    assert compiling.wait(60)
    functions = [_function(), _function()]
    assert all(f._compilation.child is None for f in functions)
    done.set()
    thread.join()
    assert functions[0].dispatcher(2.0) - functions[0].dispatcher(1.0) == 3.0
    assert not ahead._stuck


def test_no_fork_to_be_had(monkeypatch):
    def fork():
        raise BlockingIOError("Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", fork)
    assert _function().dispatcher(0.0) > 0


def test_a_library_forbids_to_fork(monkeypatch):
    def fork():
        raise RuntimeError("os.fork is unsafe while descriptors change their owner")

    monkeypatch.setattr(os, "fork", fork)
    assert _function().dispatcher(0.0) > 0


def test_nothing_is_forked_while_something_else_forks(monkeypatch):
    """Hooks of other libraries have run by then, and theirs may refuse."""
    functions = [_function(), _function("return x.nothing"), _function()]
    fork = os.fork
    monkeypatch.setattr(ahead, "_fork", lambda compilation: pytest.fail("forked in a hook"))
    pid = fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    assert not ahead._waiting
    assert ahead._is_on_disk(functions[0]._compilation._dispatcher)
    assert ahead._is_on_disk(functions[2]._compilation._dispatcher)
    with pytest.raises(TypingError, match="nothing"):
        functions[1].dispatcher  # noqa: B018


def test_an_interrupt_while_something_else_forks(monkeypatch):
    """Hooks cannot raise it: it comes once the fork is made."""

    def interrupted(compilation):
        raise KeyboardInterrupt

    function = _function()
    _until_ended(function)
    children = []
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(ahead, "_wait_for", interrupted)
        children.append(os.fork())
        if children == [0]:
            os._exit(0)
        time.sleep(10)
    os.waitpid(children[0], 0)
    assert not ahead._interrupted


def test_a_process_ends_with_its_parent(tmp_path):
    """And keeps no socket or pipe of it open."""
    script = """
import os, signal, socket, sys
from pymc_dp.lowering import ahead
compile_and_end = ahead._compile_and_end
ahead._compile_and_end = lambda compile: compile_and_end(signal.pause)
from tests.lowering.test_ahead import _function
server = socket.create_server(("127.0.0.1", 0))
functions = [_function()]
print(functions[0]._compilation.child, server.getsockname()[1], flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    environment = {**os.environ, "PYMC_DP_COMPILERS": "1", "NUMBA_CACHE_DIR": str(tmp_path)}
    run = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    child, port = map(int, run.stdout.split())
    start, running = time.monotonic(), True
    while running:  # nobody may have waited for it, which leaves its entry
        assert time.monotonic() < start + 10
        time.sleep(0.05)
        entry = Path(f"/proc/{child}/stat")
        running = entry.exists() and entry.read_text().rpartition(")")[2].split()[0] != "Z"
    socket.create_server(("127.0.0.1", port)).close()


def test_what_is_dropped_is_not_compiled():
    first = _function()
    dropped = _function()
    name = ahead._waiting[-1]
    del dropped
    assert name() is None
    assert _loaded(first)


def test_other_processes_begin_with_all_compiled():
    functions = [_function(), _function()]
    process = multiprocessing.get_context("fork").Process(target=lambda: None)
    process.start()
    process.join()
    assert not ahead._waiting
    assert all(ahead._is_on_disk(f._compilation._dispatcher) for f in functions)


def test_a_forked_process_prints_nothing(capfd):
    function = _function("print('compiled'); return x")
    _until_ended(function)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("value", ["many", "-1", "1.5"])
def test_the_variable_is_checked(monkeypatch, value):
    monkeypatch.setenv("PYMC_DP_COMPILERS", value)
    with pytest.raises(ValueError, match="PYMC_DP_COMPILERS must be a whole number"):
        _function()


def _slowly(original, seconds):
    def wait(compile):
        time.sleep(seconds)
        original(compile)

    return wait
