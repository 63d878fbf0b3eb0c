"""Building graphs and machine code without what slows only that down.

A model's graphs and the functions that numba compiles are a million small objects that live on: Python's
search for garbage among them takes a seventh of the time, and finds little. PyTensor notes for each node of a
graph which lines of code made it, for its error messages: a tenth of the time that graphs take, and the
lines are ours.
"""

import gc
import logging
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytensor

from pymc_dp.flags import flags_lock

_log = logging.getLogger("pymc.dp")  # below PyMC's own, which prints to the console

# Seconds after which it is said what takes so long.
LONG = 10.0
# How many are building, perhaps in several threads, and what the last of them puts back.
_builders = 0
_before = ExitStack()


@contextmanager
def building() -> Iterator[None]:
    """Leave garbage and traces alone, for the length of a ``with`` or of a function that this decorates."""
    global _builders
    with flags_lock:
        _builders += 1
        if _builders == 1:
            _before.enter_context(pytensor.config.change_flags(traceback__limit=0))
            if gc.isenabled():
                gc.disable()
                _before.callback(gc.enable)
    try:
        yield
    finally:
        with flags_lock:
            _builders -= 1
            if not _builders:
                _before.close()


@contextmanager
def told_if_long() -> Iterator[None]:
    """Say that a model's steps are being compiled, for the length of a ``with``, once that takes long.

    The thread that waits has ended when the ``with`` has: processes are forked afterwards.
    """
    said = "The steps of this model are being compiled, and kept on disk: the next run begins at once."
    timer = threading.Timer(LONG, _log.info, [said])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
