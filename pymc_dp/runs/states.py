"""What a chain needs to be continued, as bytes, and back: only classes that states of steps are made of."""

import io
import pickle
from typing import Any

# Rooms whose classes states of steps are made of: those of PyMC's steps and of ours.
_ROOMS = ("pymc.step_methods.", "pymc_dp.step_methods.")
_CLASSES = {
    ("pymc.util", "RandomGeneratorState"),
    ("collections", "deque"),
    ("collections", "OrderedDict"),
    ("builtins", "set"),
    ("builtins", "frozenset"),
    ("builtins", "complex"),
    ("builtins", "slice"),
    ("builtins", "range"),
}
# What pickles of arrays call, which makes arrays and nothing else.
_OF_ARRAYS = {"_reconstruct", "scalar", "ndarray", "dtype", "_frombuffer"}
_OF_GENERATORS = {
    "SeedSequence", "PCG64", "PCG64DXSM", "Philox", "SFC64", "MT19937",
    "__generator_ctor", "__bit_generator_ctor", "__pyx_unpickle_SeedSequence",
}  # fmt: skip


def dumped(state: Any) -> bytes:
    """Return a state as bytes."""
    return pickle.dumps(state, protocol=5)


def loaded(data: bytes) -> Any:
    """Return the state that bytes hold.

    Raises
    ------
    pickle.UnpicklingError
        They name something that is no part of a state: a pickle could otherwise run any program.
    """
    return _Reader(io.BytesIO(data)).load()


def refuse_unknown(state: Any) -> None:
    """Refuse steps whose states could be written and not be read.

    Raises
    ------
    TypeError
    """
    try:
        loaded(dumped(state))
    except (pickle.PicklingError, pickle.UnpicklingError, AttributeError, TypeError) as error:
        raise TypeError(
            f"step: its state cannot be kept ({error}). sample_in_blocks knows the states of PyMC's steps "
            "and of this package's: sample with pm.sample, or leave the other step out."
        ) from error


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        found = super().find_class(module, name) if _allowed(module, name) else None
        if found is None or (module.startswith(_ROOMS) and not isinstance(found, type)):
            raise pickle.UnpicklingError(f"{module}.{name} is no part of a state of steps")
        return found


def _allowed(module: str, name: str) -> bool:
    if (module, name) in _CLASSES or (module + ".").startswith(_ROOMS):
        return True
    if module.split(".")[0] != "numpy":
        return False
    return name in (_OF_GENERATORS if module.startswith("numpy.random") else _OF_ARRAYS)
