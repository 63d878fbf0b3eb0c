"""Compile in other processes, beside this one, what is not in the cache on disk yet.

Numba compiles one function after the other, for seconds each, on one core. A function that was asked for is
therefore compiled by a forked process, which leaves it in the cache and ends; when it is first called, it is
loaded from there. Meanwhile this process lowers the next one, or waits. What a process did not finish is
compiled here, so that errors are raised here too.

``PYMC_DP_COMPILERS`` says how many processes may compile beside this one; 0 for none, and there are none
where processes cannot be forked.
"""

import atexit
import ctypes
import gc
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any
from weakref import ref

from numba.core.compiler_lock import global_compiler_lock

# More would be short of memory sooner than of work.
_MOST = 4
# A forked process stands still for ever if another thread held a lock that it needs. One that waits for the
# processor for so many seconds is taken for such a one.
_STUCK = 5.0
_POLL = 0.005
# Seconds after which one ends in any case.
_LONGEST = 600
# Linux: a signal for a process whose parent ends.
_DIE_WITH_PARENT = 1
_prctl: Any = ctypes.CDLL(None).prctl if sys.platform == "linux" else None


def n_compilers() -> int:
    """Return how many processes may compile beside this one."""
    if sys.platform != "linux":  # forks of a process with threads and frameworks are unsafe on others
        return 0
    asked = os.environ.get("PYMC_DP_COMPILERS", "").strip()
    if asked:
        if not asked.isdecimal():
            raise ValueError(
                f"The environment variable PYMC_DP_COMPILERS must be a whole number, got {asked!r}."
            )
        return int(asked)
    return min(len(os.sched_getaffinity(0)) - 1, _MOST)


class Compilation:
    """One function that is compiled at the latest when it is first used.

    Parameters
    ----------
    dispatcher : numba dispatcher
    signature : numba signature
    cached : bool
        Whether the dispatcher keeps its code on disk, for other processes.
    """

    def __init__(self, dispatcher: Any, signature: Any, cached: bool):
        self._dispatcher, self._signature = dispatcher, signature
        self._done, self._one_at_a_time = False, threading.Lock()
        self.child: int | None = None
        if cached and n_compilers() and not _is_on_disk(dispatcher):
            with _queue:
                _waiting.append(ref(self))
            _start_some(n_compilers())

    def compile(self) -> None:
        """Compile in this process, or load from the cache."""
        self._dispatcher.compile(self._signature)
        self._dispatcher.disable_compile()
        self._done = True

    @property
    def dispatcher(self) -> Any:
        """The compiled dispatcher."""
        if not self._done:
            with self._one_at_a_time:  # several threads may begin with the same function
                if not self._done:
                    _wait_for(self)
                    self.compile()
        return self._dispatcher


# What no process has begun; weak, since a step may drop what it need not call after all.
_waiting: list[ref[Compilation]] = []
_running: list[Compilation] = []
# Held by whoever reads or changes the two lists, never while waiting.
_queue = threading.RLock()
# The thread that forks a compiling process.
_forking: int | None = None
# Whether the user interrupted this process while it made ready for a fork.
_interrupted = False
# Whether one of them stood still: this process forks no more of them.
_stuck = False
# Whoever compiles holds it; the one that forks does, so that the forked process does.
_compiler: Any = global_compiler_lock._lock


def finish() -> None:
    """Return when all that was asked for is in the cache, since other processes are about to load it."""
    with _queue:
        waiting = [compilation for r in _waiting if (compilation := r()) is not None]
        unfinished = [*_running, *waiting]
    for compilation in unfinished:
        _wait_for(compilation)


def _is_on_disk(dispatcher: Any) -> bool:
    return Path(dispatcher._cache._cache_file._index_path).exists()


def _next() -> Compilation | None:
    """Take the first function that waits and that somebody still wants."""
    while _waiting:
        compilation = _waiting.pop(0)()
        if compilation is not None:
            return compilation
    return None


def _start_some(limit: int) -> None:
    """Let other processes begin what waits, until so many of them run."""
    with _queue:
        _running[:] = [c for c in _running if not _has_ended(c)]
        # where another thread compiles, a forked process could never: what waits goes on waiting
        while len(_running) < limit and _waiting and _compiler.acquire(blocking=False):
            try:
                compilation = _next()
                if compilation is not None:
                    compilation.child = _fork(compilation)
                    if compilation.child is not None:
                        _running.append(compilation)
            finally:
                _compiler.release()


def _fork(compilation: Compilation) -> int | None:
    global _forking
    if _stuck:
        return None
    _forking = threading.get_ident()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # see _STUCK
            pid = os.fork()
    except (OSError, RuntimeError):  # no memory, too many processes, or a library that does not allow it now
        return None
    else:
        if pid == 0:
            _compile_and_end(compilation.compile)
        return pid
    finally:
        _forking = None


def _compile_and_end(compile: Callable[[], None]) -> None:
    """Run in the forked process: nothing of the parent's may be flushed, printed or finalised here."""
    try:
        gc.disable()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM):
            signal.signal(number, signal.SIG_DFL)
        # whatever becomes of the parent, this one ends, and keeps nothing of the parent's open
        signal.alarm(_LONGEST)
        _prctl(_DIE_WITH_PARENT, signal.SIGKILL)
        os.closerange(3, 65536)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        compile()
    finally:
        os._exit(0)


def _has_ended(compilation: Compilation) -> bool:
    if compilation.child is not None:
        try:
            ended = os.waitpid(compilation.child, os.WNOHANG)[0]
        except ChildProcessError:  # somebody else has waited for it, or it is the parent's
            ended = compilation.child
        if ended:
            compilation.child = None
    return compilation.child is None


def _wait_for(wanted: Compilation) -> None:
    """Return when no other process compiles a function; if one waits, it is the next to be begun."""
    with _queue:
        if any(r() is wanted for r in _waiting):
            _waiting[:] = [ref(wanted), *(r for r in _waiting if r() is not wanted)]
    busy: dict[int | None, float] = {}
    since = time.monotonic()
    while True:
        _start_some(n_compilers() + 1)  # this process has nothing to do
        with _queue:
            if not _running:  # none could be begun
                _waiting[:] = [r for r in _waiting if r() is not wanted]
            if not any(r() is wanted for r in _waiting) and _has_ended(wanted):
                return
        time.sleep(_POLL)
        if time.monotonic() - since > _STUCK:
            before, since = busy, time.monotonic()
            # any of them, since those that stand still leave no room for the one that is wanted
            with _queue:
                busy = {c.child: _processor_time(c.child) for c in _running if not _has_ended(c)}
                for child, spent in busy.items():
                    if before.get(child) == spent:
                        _kill(child)


def _processor_time(pid: int | None) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return -1.0
    return float(fields[11]) + float(fields[12])


def _kill(pid: int | None) -> None:
    global _stuck
    _stuck = True  # what has happened to one would happen to others
    try:
        os.kill(pid, signal.SIGKILL)  # type: ignore[arg-type]
    except (OSError, TypeError):
        pass


def _before_fork() -> None:
    # chains in processes of their own load what they call from the cache: it is complete before they begin
    global _interrupted
    if _forking == threading.get_ident():
        return
    with _queue:
        here = [compilation for r in _waiting if (compilation := r()) is not None]
        elsewhere = [*_running]
        _waiting.clear()
    # nothing is forked meanwhile: other libraries have already made themselves ready for this fork
    for compilation in [*here, *elsewhere]:
        try:
            compilation.dispatcher  # noqa: B018
        except KeyboardInterrupt:  # a hook cannot raise it
            _interrupted = True
            return
        except Exception:  # will be raised again where the function is called
            pass


def _after_fork_here() -> None:
    global _interrupted
    if _interrupted:
        _interrupted = False
        main = threading.main_thread().ident
        threading.Timer(0.01, signal.pthread_kill, (main, signal.SIGINT)).start()  # once this hook has ended


def _after_fork() -> None:
    global _queue, _forking
    # another thread may have held it; and what the parent's processes compile, they compile for the parent
    _queue, _forking = threading.RLock(), None
    _waiting.clear()
    _running.clear()


@atexit.register
def _stop() -> None:
    for compilation in _running:
        if not _has_ended(compilation):
            _kill(compilation.child)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_child=_after_fork, after_in_parent=_after_fork_here)
