"""A request for memory ahead of its use, so that a loop over far-off places does not wait at each of them."""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from pymc_dp.lowering.compiling.nopython import njit
from pymc_dp.upstream.numba_private import cgutils

# To be read, and to be kept in all caches, as data: the other arguments of LLVM's operation.
_READ, _KEPT, _DATA = 0, 3, 1


@intrinsic
def _fetch(typingctx: Any, array: Any, place: Any) -> Any:  # pragma: no cover
    """Ask for one number of an array, by its place in memory."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, value=args[0]).data
        place = builder.bitcast(builder.gep(data, [args[1]]), ir.IntType(8).as_pointer())
        word = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [place.type, word, word, word])
        operation = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        builder.call(operation, [place, *(ir.Constant(word, k) for k in (_READ, _KEPT, _DATA))])
        return context.get_dummy_value()

    return types.void(array, types.intp), codegen


@njit(forceinline=True)
def fetch(array, place):
    """Ask for an array's number at a place, counted through all axes; nothing is read, and nothing waits.

    A place beyond the array is no error.
    """
    _fetch(array, np.intp(place))
