"""The modes in which graphs are compiled here: PyTensor's mode for numba, with rewrites of our own.

The rewrites are in these modes and nowhere else: what a user compiles is as it is without this package.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakValueDictionary

from pytensor.compile.mode import Mode, get_default_mode, get_mode
from pytensor.configdefaults import config
from pytensor.graph.rewriting.basic import dfs_rewriter

from pymc_dp.lowering.addresses.joins import joined_in_parts
from pymc_dp.lowering.addresses.writes import written_apart
from pymc_dp.lowering.compiling.nopython import DIVISION, Called, Part
from pymc_dp.lowering.functions.gamma_functions import trigamma_in_native_code
from pymc_dp.lowering.functions.samplers import draws_without_errors
from pymc_dp.lowering.functions.simplex import tables_by_loops
from pymc_dp.lowering.functions.truncated_counts import truncated_counts_without_errors
from pymc_dp.upstream.numba_private import global_compiler_lock
from pymc_dp.upstream.pytensor_private import (
    CACHED_SRC_FUNCTIONS,
    NumbaLinker,
    basic,
    compile_numba_function_src,
)

# Positions among PyTensor's rewrites: before laws of PyMC's are what they are drawn by; before anything else
# has changed the graph; and when loops of several operations are one, but for what is written to entries of
# arrays.
_OF_LAWS, _FIRST, _AFTER_FUSION = -0.02, 0.01, 49.4
# What puts sums and products in order, and its share of the time for second derivatives: two thirds.
_ORDERING = ("local_add_canonizer", "local_mul_canonizer", "local_greedy_distributor")


class PartLinker(NumbaLinker):
    """Linker of graphs that are called from machine code only, and kept on disk with what calls them.

    PyTensor wraps each operation in a function that is kept on disk by itself: twice as many functions to
    compile, and machine code for each. Here, an operation is a function for all graphs of this process.
    """

    def fgraph_convert(self, fgraph: Any, **kwargs: Any) -> tuple[Any, str | None]:
        """Return the function of a graph, and its key."""
        with _operations_shared():
            return basic.numba_funcify_and_cache_key(fgraph, **kwargs)  # type: ignore[return-value]

    def jit_compile(self, function_and_key: tuple[Any, str | None]) -> Any:  # type: ignore[override]
        """Return the function, whose key :mod:`pymc_dp.lowering.compiling.keys` finds."""
        function, key = function_and_key
        if key is not None:
            CACHED_SRC_FUNCTIONS[function.py_func] = f"{key}_fastmath{int(config.numba__fastmath)}"
        return Part(function.py_func, targetoptions={**function.targetoptions, **DIVISION})


class CalledLinker(PartLinker):
    """The same for graphs that are called from Python, and kept on disk themselves."""

    def jit_compile(self, function_and_key: tuple[Any, str | None]) -> Any:  # type: ignore[override]
        """Return a function that calls the graph's: numba would not find that by its temporary file again."""
        part = super().jit_compile(function_and_key)
        key = CACHED_SRC_FUNCTIONS.get(part.py_func)
        name = part.py_func.__name__
        args = ", ".join(f"i{k}" for k in range(part.py_func.__code__.co_argcount))
        source = f"def {name}({args}):\n    return part({args})\n"
        names = {"part": part, "__name__": __name__}
        python = compile_numba_function_src(
            source, name, names, cache_key=key and f"{key}_called_in_{__name__}"
        )
        function = Called(python, targetoptions={"nopython": True, "no_cfunc_wrapper": True, **DIVISION})
        if key is not None:
            function.enable_caching()
        return function


_operations: WeakValueDictionary[tuple[str, ...], Any] = WeakValueDictionary()


def _operation(op: Any, node: Any = None, **kwargs: Any) -> tuple[Any, str | None]:
    """Return the function of an operation as PyTensor does, but always the same for the same types."""
    function, key = basic.numba_funcify_and_cache_key(op, node=node, **kwargs)
    if key is None:
        return function, None
    at = op if node is None else node
    types = (str([v.type for v in variables]) for variables in (at.inputs, at.outputs))
    return _operations.setdefault((key, str(config.numba__fastmath), *types), function), key


@contextmanager
def _operations_shared() -> Iterator[None]:
    """Have PyTensor look up operations by :func:`_operation`; it asks a function of its module for each."""
    with global_compiler_lock:
        kept = basic.numba_funcify_ensure_cache
        basic.numba_funcify_ensure_cache = _operation
        try:
            yield
        finally:
            basic.numba_funcify_ensure_cache = kept


def own_mode(ordered: bool = True) -> Mode:
    """Return the mode of functions that native code calls; derivatives need not be put in order."""
    mode = get_mode("NUMBA")
    return _with_ours(mode if ordered else mode.excluding(*_ORDERING), PartLinker())


def default_mode() -> Mode:
    """Return the mode of functions that a user's own mode is for; with our rewrites, if it is numba's.

    PyMC's function that records two tables of probabilities takes eight seconds to compile without them.
    """
    mode = get_default_mode()
    return _with_ours(mode, CalledLinker()) if isinstance(mode.linker, NumbaLinker) else mode


def _with_ours(mode: Mode, linker: NumbaLinker) -> Mode:
    mode = Mode(linker, mode.provided_optimizer)
    ours = dfs_rewriter(tables_by_loops, draws_without_errors, trigamma_in_native_code, joined_in_parts)
    laws = dfs_rewriter(truncated_counts_without_errors)
    return mode.register((laws, _OF_LAWS), (ours, _FIRST), (dfs_rewriter(written_apart), _AFTER_FUSION))
