"""What the package uses of PyTensor that is not public: how an Op becomes machine code, and is kept."""

from typing import Any

from pytensor.link.numba.cache import CACHED_SRC_FUNCTIONS, compile_numba_function_src, hash_from_pickle_dump
from pytensor.link.numba.dispatch import basic
from pytensor.link.numba.dispatch.basic import (
    numba_njit,
    register_funcify_and_cache_key,
    register_funcify_default_op_cache_key,
)
from pytensor.link.numba.dispatch.random import numba_core_rv_funcify
from pytensor.link.numba.dispatch.scalar import register_scalar_funcify
from pytensor.link.numba.linker import NumbaLinker

__all__ = [
    "CACHED_SRC_FUNCTIONS",
    "NumbaLinker",
    "basic",
    "compile_numba_function_src",
    "hash_from_pickle_dump",
    "numba_core_rv_funcify",
    "numba_njit",
    "properties",
    "register_funcify_and_cache_key",
    "register_funcify_default_op_cache_key",
    "register_scalar_funcify",
]


def properties(op: Any) -> dict[str, Any]:
    """What an Op was made with, by name."""
    return dict(op._props_dict())
