"""Random bits for releases, from the operating system's entropy and no other source.

NumPy's own bit generators are predictable: from enough of their output all other output follows. Here
a NumPy generator runs on words that the operating system's cryptographic generator hands out, so that
every sampler of NumPy can draw the noise of a release. There is no seed and no state to save.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import threading
from array import array
from collections.abc import Callable
from typing import Any

import numpy as np

_BLOCK = 1 << 14  # bytes that are read at once
_WORD64 = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p)
_WORD32 = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_void_p)
_DOUBLE = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_void_p)


class _BitGenerator(ctypes.Structure):
    """NumPy's ``bitgen_t``: how its samplers, written in C, ask for random bits."""

    _fields_ = (
        ("state", ctypes.c_void_p),
        ("next_uint64", _WORD64),
        ("next_uint32", _WORD32),
        ("next_double", _DOUBLE),
        ("next_raw", _WORD64),
    )


class NoEntropyError(RuntimeError):
    """The operating system gave no entropy: nothing may be released."""


_NO_ENTROPY = "The operating system gave no entropy for the noise, so nothing was released: try again."


class SystemBits:
    """Bit generator that reads the operating system's entropy, for :class:`numpy.random.Generator`.

    Attributes
    ----------
    failure : BaseException or None
        The error of the system, if it gave no entropy. Samplers in C cannot be stopped by an exception, so
        that callers must check this before they use a draw (:func:`draw_securely` does).
    """

    def __init__(self) -> None:
        self.failure: BaseException | None = None
        self.lock = _Lock()
        self._words, self._no_words = _SystemWords(), itertools.count(1)
        word = self._next
        self._table = _BitGenerator(
            None,
            _WORD64(lambda _: word()),
            _WORD32(lambda _: word() >> 32),
            _DOUBLE(lambda _: (word() >> 11) * 2.0**-53),
            _WORD64(lambda _: word()),
        )
        new_capsule = ctypes.pythonapi.PyCapsule_New
        new_capsule.restype = ctypes.py_object
        new_capsule.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        self.capsule = new_capsule(ctypes.addressof(self._table), b"BitGenerator", None)

    def _next(self) -> int:
        try:
            if self.failure is None:
                return self._words.next()
        except BaseException as failure:
            self.failure = failure
        # A sequence of words rather than always 0, since some samplers repeat until they get another word.
        return next(self._no_words) * 0x9E3779B97F4A7C15 % 2**64

    def __reduce__(self) -> Any:
        raise TypeError("Bits of the operating system's entropy have no state: they cannot be copied.")


class _SystemWords:
    """Words of the system's entropy, read in blocks; no word is used twice, also not after a fork.

    At each word the process's number is compared, since Python is not notified of forks that C libraries
    make.
    """

    def __init__(self) -> None:
        self._block: list[int] = []
        self._owner = os.getpid()

    def next(self) -> int:
        if self._owner != os.getpid():
            self._block, self._owner = [], os.getpid()
        try:
            return self._block.pop()  # atomic: no two threads get the same word
        except IndexError:
            block = array("Q", os.urandom(_BLOCK)).tolist()
        block.reverse()
        word: int = block.pop()
        self._block = block
        return word


class _Lock:
    """A lock that is free in a forked process, in which a thread that held it does not exist."""

    def __init__(self) -> None:
        self._lock, self._owner = threading.Lock(), os.getpid()

    def __enter__(self) -> None:
        if self._owner != os.getpid():
            self._lock, self._owner = threading.Lock(), os.getpid()
        self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()


def secure_generator() -> np.random.Generator:
    """Return a NumPy generator that draws on the operating system's entropy.

    It has no seed: two generators never repeat each other, whatever ``numpy.random.seed`` or
    ``random_seed`` say. It is some fifty times slower than NumPy's default, about 0.3 s for a million
    normal numbers.

    Returns
    -------
    numpy.random.Generator

    Notes
    -----
    The samplers of NumPy compute in floating point. Where the last digits of the noise matter, draw
    with :mod:`pymc_dp.privacy.exact_noise`.

    Examples
    --------
    >>> from pymc_dp.privacy.entropy import secure_generator
    >>> bool(secure_generator().integers(2**62) == secure_generator().integers(2**62))
    False
    """
    return _CheckedGenerator(SystemBits())  # type: ignore[arg-type]  # it needs capsule and lock only


class _CheckedGenerator(np.random.Generator):
    """Generator that raises instead of returning a draw if the system gave no entropy."""

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name.startswith("_") or not callable(found) or name == "bit_generator":
            return found
        bits: Any = super().__getattribute__("bit_generator")

        def checked(*args: Any, **kwargs: Any) -> Any:
            drawn = found(*args, **kwargs)
            if bits.failure is not None:
                raise NoEntropyError(_NO_ENTROPY) from bits.failure
            return drawn

        return checked


def draw_securely[Drawn](draw: Callable[[np.random.Generator], Drawn]) -> Drawn:
    """Return ``draw(secure_generator())``, or raise if the entropy failed meanwhile.

    Parameters
    ----------
    draw : callable
        Function of the generator; it runs in a thread of its own.

    Returns
    -------
    object
        The result of `draw`.

    Raises
    ------
    NoEntropyError
        The operating system gave no entropy: nothing may be released.

    Examples
    --------
    >>> from pymc_dp.privacy.entropy import draw_securely
    >>> draw_securely(lambda generator: generator.laplace(size=3)).shape
    (3,)
    """
    bits = SystemBits()
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.append((draw(np.random.Generator(bits)), None))  # type: ignore[arg-type]
        except BaseException as error:
            outcome.append((None, error))

    # Python raises a keyboard interrupt in the main thread. There it could occur while C code waits for a
    # word, be swallowed, and leave a predictable word in the noise.
    thread = threading.Thread(target=run, name="secure-noise")
    thread.start()
    thread.join()
    drawn, error = outcome[0]
    if bits.failure is not None:
        raise NoEntropyError(_NO_ENTROPY) from bits.failure
    if error is not None:
        raise error
    return drawn
