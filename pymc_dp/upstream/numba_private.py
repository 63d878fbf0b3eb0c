"""What the package uses of numba that is not public: how it keeps machine code, and lays out values."""

from typing import Any

from numba.core import cgutils
from numba.core.caching import FunctionCache, NullCache, _Cache
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import Dispatcher
from numba.core.errors import NumbaError
from numba.core.registry import CPUDispatcher, cpu_target
from numba.core.typing.templates import Signature
from numba.extending import _Intrinsic
from numba.np.arrayobj import make_array
from numba.np.random._constants import ke_double, ki_double, we_double, wi_double

__all__ = [
    "CPUDispatcher",
    "Dispatcher",
    "FunctionCache",
    "JITCodeLibrary",
    "NullCache",
    "NumbaError",
    "Signature",
    "_Cache",
    "_Intrinsic",
    "cgutils",
    "cpu_target",
    "definition",
    "global_compiler_lock",
    "ke_double",
    "ki_double",
    "make_array",
    "we_double",
    "wi_double",
]


def definition(intrinsic: _Intrinsic) -> Any:
    """Return the Python function that an intrinsic was made from."""
    return intrinsic._defn
