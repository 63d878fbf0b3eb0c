"""The modes in which graphs are compiled here: PyTensor's mode for numba, with rewrites of our own.

The rewrites are in these modes and nowhere else: what a user compiles is as it is without this package.
"""

from pytensor.compile.mode import Mode, get_default_mode, get_mode
from pytensor.graph.rewriting.basic import dfs_rewriter

from pymc_dp.lowering.samplers import draws_without_errors
from pymc_dp.lowering.simplex import tables_by_loops
from pymc_dp.lowering.trigamma import trigamma_in_native_code
from pymc_dp.upstream.pytensor_private import NumbaLinker

# Position among PyTensor's rewrites: before anything else has changed the graph.
_FIRST = 0.01


def own_mode() -> Mode:
    """Return the mode of functions that native code calls."""
    return _with_ours(get_mode("NUMBA"))


def default_mode() -> Mode:
    """Return the mode of functions that a user's own mode is for; with our rewrites, if it is numba's.

    PyMC's function that records two tables of probabilities takes eight seconds to compile without them.
    """
    mode = get_default_mode()
    return _with_ours(mode) if isinstance(mode.linker, NumbaLinker) else mode


def _with_ours(mode: Mode) -> Mode:
    ours = dfs_rewriter(tables_by_loops, draws_without_errors, trigamma_in_native_code)
    return mode.register((ours, _FIRST))
