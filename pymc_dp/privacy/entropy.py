"""Random bits for releases: from the operating system's entropy, and from nowhere else.

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

_BLOCK = 1 << 14  # bytes asked for at once
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
    """Bit generator over the operating system's entropy, for :class:`numpy.random.Generator`.

    Attributes
    ----------
    failure : BaseException or None
        Why the system gave no entropy. Samplers in C cannot be told, so whoever draws looks here
        before using what was drawn (:func:`draw_securely` does).
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
        # Not 0 for ever: some samplers try again until they are given another word.
        return next(self._no_words) * 0x9E3779B97F4A7C15 % 2**64

    def __reduce__(self) -> Any:
        raise TypeError("Bits of the operating system's entropy have no state: they cannot be copied.")


class _SystemWords:
    """Words of the system's entropy, asked for in blocks: a process uses no block of another, nor twice.

    That a process is another is seen by its number, at each word: forks that Python does not know of, as
    those of libraries in C, tell nobody.
    """

    def __init__(self) -> None:
        self._block: list[int] = []
        self._owner = os.getpid()

    def next(self) -> int:
        if self._owner != os.getpid():
            self._block, self._owner = [], os.getpid()
        try:
            return self._block.pop()  # in one piece: no two threads get the same word
        except IndexError:
            block = array("Q", os.urandom(_BLOCK)).tolist()
        block.reverse()
        word: int = block.pop()
        self._block = block
        return word


class _Lock:
    """A lock that is free in a forked process, where a thread that held it is no more."""

    def __init__(self) -> None:
        self._lock, self._owner = threading.Lock(), os.getpid()

    def __enter__(self) -> None:
        if self._owner != os.getpid():
            self._lock, self._owner = threading.Lock(), os.getpid()
        self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()


def secure_generator() -> np.random.Generator:
    """Return a NumPy generator over the operating system's entropy.

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
    """Generator that returns nothing drawn from words that are no entropy."""

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
    """Return ``draw(secure_generator())``, or raise when the entropy failed meanwhile.

    Parameters
    ----------
    draw : callable
        Takes the generator; runs in a thread of its own.

    Returns
    -------
    object
        What `draw` returned.

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

    # Python handles an interrupt in the main thread. There it could strike while C waits for a word,
    # be swallowed, and leave a predictable word in the noise.
    thread = threading.Thread(target=run, name="secure-noise")
    thread.start()
    thread.join()
    drawn, error = outcome[0]
    if bits.failure is not None:
        raise NoEntropyError(_NO_ENTROPY) from bits.failure
    if error is not None:
        raise error
    return drawn
