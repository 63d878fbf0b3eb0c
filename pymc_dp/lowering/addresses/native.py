"""Compile a PyTensor graph to a machine-code address with a fixed, flat signature.

A step method runs its whole draw in one nopython loop. That loop is compiled once for all models (and
cached on disk with the package), so a model's own functions reach it as *addresses*: each takes and fills
float64 arrays of known rank, and the loop turns the address back into a callable with
:func:`function_at`. Calling through an address costs about 2 ns; calling the same PyTensor function from
Python costs 20 to 30 us.

The compiled code is kept in PyTensor's numba cache, keyed by the graph, so worker processes and later
sessions load it in about 0.1 s instead of compiling for seconds.
"""

import ctypes
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any
from weakref import ref

import numba
import numpy as np
import pytensor
import pytensor.tensor as pt
from numba import types
from numba.extending import intrinsic
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.io import In
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.replace import graph_replace
from pytensor.graph.rewriting.basic import dfs_rewriter, node_rewriter
from pytensor.tensor.random.type import RandomGeneratorType
from pytensor.tensor.shape import SpecifyShape

from pymc_dp.lowering.addresses.modes import own_mode
from pymc_dp.lowering.addresses.writes import KnownShape
from pymc_dp.lowering.compiling.building import building
from pymc_dp.lowering.compiling.keys import digest, key_of
from pymc_dp.lowering.compiling.nopython import Declared, njit
from pymc_dp.lowering.functions.bits import (
    KNOWN_LAYOUT,
    has_known_layout,
    random,
    standard_exponential,
    standard_normal,
)
from pymc_dp.upstream.numba_private import NumbaError, cgutils
from pymc_dp.upstream.pytensor_private import (
    CACHED_SRC_FUNCTIONS,
    compile_numba_function_src,
)

GENERATOR = numba.typeof(np.random.default_rng(0))
VECTOR = types.Array(types.float64, 1, "C")
MATRIX = types.Array(types.float64, 2, "C")
HANDLE = types.UniTuple(types.uint64, 7)  # addresses behind a generator, and whether its layout is known

# Signatures of the functions that a model is lowered to; the arrays that a function fills come last.
# theta: flat parameters, data: flat releases and covariates, x: records (n, p) in value space,
# t: contributions to the central queries (n, d), w: log weights (n,), u: noise behind the records.
# theta, data, x -> candidates, t, w
PROPOSE = types.void(GENERATOR, VECTOR, VECTOR, MATRIX, MATRIX, MATRIX, VECTOR)
CONTRIBUTE = types.void(VECTOR, VECTOR, MATRIX, MATRIX, VECTOR)  # theta, data, x -> t, w
RELEASES = types.void(VECTOR, VECTOR, VECTOR, MATRIX, VECTOR)  # theta, data -> value, params, offset
# theta, data, value, params, old query, new query -> change of the log density of the releases
CHANGE = types.float64(VECTOR, VECTOR, VECTOR, MATRIX, VECTOR, VECTOR)
OF_SUMS = types.float64(VECTOR, VECTOR, VECTOR)  # theta, data, sums over records -> log density
WHOLE = types.float64(VECTOR, VECTOR, MATRIX)  # theta, data, (x or u) -> log density
# theta, data -> record-free numbers (k,) and per-record covariates (m, n)
HOIST = types.void(VECTOR, VECTOR, VECTOR, MATRIX)
# theta, data, x -> new values of parameters whose law given the records is conjugate
CONJUGATE = types.void(GENERATOR, VECTOR, VECTOR, MATRIX, VECTOR)
INTEGERS = types.Array(types.int64, 1, "C")
VALUES = types.void(VECTOR, VECTOR, VECTOR, VECTOR)  # theta, data, natural values -> values in theta
NOISE = types.void(GENERATOR, VECTOR, VECTOR, MATRIX, MATRIX)  # theta, data, x -> u
RECORDS = types.void(VECTOR, VECTOR, MATRIX, MATRIX)  # theta, data, u -> x
COORDINATES = types.void(VECTOR, VECTOR, VECTOR)  # theta, data -> theta in other coordinates
# theta, data, (x or u), totals of the contributions -> log density of parameters
CONDITIONAL = types.float64(VECTOR, VECTOR, MATRIX, VECTOR)
# the same -> log density, and its slopes in theta
SLOPES = types.void(VECTOR, VECTOR, MATRIX, VECTOR, VECTOR)
# the same, where it is quadratic in some parameters -> its gradient, and the rows of its precision, one after
# the other, of which the lower triangle counts
QUADRATIC = types.void(VECTOR, VECTOR, MATRIX, VECTOR, VECTOR, VECTOR)


# What generated source may call beside the functions that it is given.
_NAMES = {
    "np": np,
    "random": random,
    "standard_normal": standard_normal,
    "standard_exponential": standard_exponential,
}
# Position in PyTensor's rewrites: shapes have served their purpose, nothing is done in place yet.
_AFTER_SPECIALIZATION = 49.4


@intrinsic
def function_at(typingctx: Any, address: Any, function_type: Any) -> Any:  # pragma: no cover
    """Turn an integer address into a callable of the given ``numba.types.FunctionType``."""
    ftype = function_type.instance_type
    signature = ftype(types.intp, function_type)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        struct = cgutils.create_struct_proxy(ftype)(context, builder)
        struct.c_addr = context.get_constant_null(types.voidptr)
        struct.py_addr = context.get_constant_null(types.voidptr)
        struct.jit_addr = builder.inttoptr(args[0], cgutils.voidptr_t)
        return struct._getvalue()

    return signature, codegen


def generator_handle(rng: np.random.Generator) -> tuple[int, ...]:
    """Return the addresses behind a generator, for :func:`generator_at`; valid while the generator lives.

    Numba looks them up at every call from Python, which takes 7 us, as long as a sweep over 100 records.
    """
    interface = rng.bit_generator.ctypes
    functions = (interface.next_uint64, interface.next_uint32, interface.next_double)
    addresses = [ctypes.cast(f, ctypes.c_void_p).value for f in functions]
    known = KNOWN_LAYOUT if has_known_layout(rng.bit_generator) else 0
    return (interface.state_address, *addresses, id(rng), id(rng.bit_generator), known)


@intrinsic
def generator_at(typingctx: Any, handle: Any) -> Any:  # pragma: no cover
    """Turn the addresses of :func:`generator_handle` into the generator."""
    signature = GENERATOR(handle)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        state, next_uint64, next_uint32, next_double, *objects, known = cgutils.unpack_tuple(
            builder, args[0], 7
        )
        generator = cgutils.create_struct_proxy(GENERATOR)(context, builder)
        bits = cgutils.create_struct_proxy(types.NumPyRandomBitGeneratorType("bit_generator"))(
            context, builder
        )
        bits.state_address = bits.state = state
        bits.fnptr_next_uint64, bits.fnptr_next_uint32 = next_uint64, next_uint32
        bits.fnptr_next_double = next_double
        bits.bit_generator = known
        # draws without machine code hand the Python objects back to Python; the caller keeps them alive
        generator.parent, bits.parent = (builder.inttoptr(o, cgutils.voidptr_t) for o in objects)
        generator.bit_generator = bits._getvalue()
        generator.meminfo = context.get_constant_null(types.MemInfoPointer(types.voidptr))
        return generator._getvalue()

    return signature, codegen


def thread_generator(outputs: Sequence[Variable], generator: Variable) -> tuple[list[Variable], Variable]:
    """Make every random draw of a graph take its randomness from one generator.

    Parameters
    ----------
    outputs
        Variables whose graphs may hold random variables, each with a generator of its own.
    generator
        Generator input that replaces all of them, threaded from draw to draw.

    Returns
    -------
    outputs, generator
        The same graphs on the threaded generator, and its state after the last draw.
    """
    from pytensor.graph.fg import FunctionGraph

    fgraph = FunctionGraph(outputs=list(outputs), clone=True, copy_inputs=False)
    while several := [node for node in fgraph.apply_nodes if len(_generators_of(node)) > 1]:
        node = several[0]
        if not isinstance(node.op, OpFromGraph):
            raise NotImplementedError(f"{node.op} draws from more than one generator")
        inner = node.op.fgraph.unfreeze()  # a law made of several: each is drawn by itself
        drawn = graph_replace(inner.outputs, dict(zip(inner.inputs, node.inputs, strict=True)), strict=False)
        pairs = [(v, new) for v, new in zip(node.outputs, drawn, strict=True) if v in fgraph.variables]
        fgraph.replace_all(pairs, import_missing=True)
    current = generator
    for node in fgraph.toposort():
        positions = _generators_of(node)
        if not positions:
            continue
        fgraph.change_node_input(node, positions[0], current, check=False, import_missing=True)
        update = getattr(node.op, "update", None)
        updates = update(node) if update is not None else None
        if not updates:
            raise NotImplementedError(f"{node.op} does not return its generator")
        (current,) = updates.values()
    return list(fgraph.outputs), current


def _generators_of(node: Apply) -> list[int]:
    """Return which inputs of an operation are generators."""
    return [i for i, v in enumerate(node.inputs) if isinstance(v.type, RandomGeneratorType)]


def draw(law: Any, *params: Any, size: Any = None) -> Any:
    """Return a draw in a graph; its generator is replaced by the step's when it is compiled."""
    return law(*params, size=size, rng=pt.random.shared_rng(seed=None), return_next_rng=True)[1]


def later(
    name: str,
    source: str,
    functions: dict[str, Any],
    signature: Any,
    keys: Sequence[str | None],
) -> tuple[Declared, str | None]:
    """Have generated source compiled when it is first called.

    The source may draw by ``random(rng)``, ``standard_normal(rng)`` and ``standard_exponential(rng)``.

    ``keys`` are those of compiled graphs among ``functions``; one that is ``None`` (a function that cannot be
    cached) makes the result uncached too.
    """
    # numba reloads cached code into the module that ``__name__`` names, so it must be importable
    names = {**_NAMES, **functions, "__name__": __name__}
    meanings = (part for name, meaning in sorted(names.items()) for part in (name, key_of(meaning)))
    key = digest([*keys, source, str(signature), *meanings])
    python = compile_numba_function_src(source, name, names, cache_key=key)
    return native_code(python, signature, cached=key is not None), key


def native_code(
    python: Callable[..., Any], signature: Any, cached: bool, from_python: bool = False
) -> Declared:
    """Have a function with a key in PyTensor's cache compiled when it is first called."""
    dispatcher = njit(signature, cache=cached, from_python=from_python)(python)
    _lowered.append(ref(dispatcher))
    return dispatcher


# What nobody has called yet, in the order of lowering, since a callee inherits options from who compiles it
# first; weak, since a step may drop what it need not call after all.
_lowered: list[ref[Declared]] = []


@building()
def compile_lowered() -> None:
    """Compile what was lowered and not called yet: chains in other processes then load it from disk."""
    while _lowered:
        function = _lowered.pop(0)()
        try:
            if function is not None:
                function.ready()
        except NumbaError:  # raised again where the function is called, which may be nowhere
            pass


@node_rewriter(tracks=[SpecifyShape])
def _trust_shape(fgraph: Any, node: Apply) -> list[Variable]:
    return [KnownShape(node.outputs[0].type.shape)(node.inputs[0])]


def jit_function(inputs: Sequence[Variable], outputs: Sequence[Variable]) -> tuple[Any, str | None]:
    """Return the numba function behind a PyTensor graph, and its cache key."""
    wrapped = [
        In(v, mutable=True, borrow=True) if isinstance(v.type, RandomGeneratorType) else In(v, borrow=True)
        for v in inputs
    ]
    # as in PyMC: a parameter outside of its domain has density zero
    mode = own_mode().including("local_check_parameter_to_ninf_switch")
    mode = mode.register((dfs_rewriter(_trust_shape), _AFTER_SPECIALIZATION))
    with warnings.catch_warnings():
        # a sum of many terms stays a sum of its own, which costs nothing beside the terms
        warnings.filterwarnings("ignore", message="Loop fusion failed")
        function = pytensor.function(
            wrapped, [pytensor.Out(o, borrow=True) for o in outputs], mode=mode, on_unused_input="ignore",
            trust_input=True,
        )  # fmt: skip
    inner = function.vm.jit_fn
    inner.targetoptions["_nrt"] = True  # as in jit_scalar
    return inner, CACHED_SRC_FUNCTIONS.get(inner.py_func)


class Addressed:
    """A function with a flat signature, to call from Python, from generated source or by its address."""

    signature: Any
    cache_key: str | None
    dispatcher: Declared

    @cached_property
    def address(self) -> int:
        """The address at which :func:`function_at` finds it."""
        return self.dispatcher.address


class SourceFunction(Addressed):
    """Generated source that calls already lowered functions, compiled to an address."""

    def __init__(
        self, name: str, source: str, functions: dict[str, Any], signature: Any, keys: Sequence[str | None]
    ):
        self.name, self.signature = name, signature
        self.dispatcher, self.cache_key = later(name, source, functions, signature, keys)


class NativeFunction(Addressed):
    """A PyTensor graph as a machine-code function of flat float64 arrays.

    Parameters
    ----------
    name : str
        For messages and profiles.
    inputs : sequence of Variable
        Vectors and matrices of float64, in the order of the signature (without the generator).
    outputs : sequence of Variable
        One scalar for a signature that returns float64, otherwise one variable per array to fill.
    signature : numba signature
        One of the signatures of this module. If it takes a generator, the graph's draws use it.
    """

    def __init__(self, name: str, inputs: Sequence[Variable], outputs: Sequence[Variable], signature: Any):
        self.name = name
        self.signature = signature
        self._inputs, self._outputs = list(inputs), [_float(o) for o in outputs]
        self._compile()

    def _compile(self) -> None:
        inputs, outputs = list(self._inputs), list(self._outputs)
        if GENERATOR in self.signature.args:
            generator = pt.random.type.random_generator_type("generator")
            outputs, _ = thread_generator(outputs, generator)
            inputs = [generator, *inputs]
        inner, key = jit_function(inputs, outputs)
        args = [f"i{k}" for k in range(len(inputs))]
        results = [f"r{k}" for k in range(len(outputs))]
        call = f"    {', '.join(results)}{',' if len(results) == 1 else ''} = inner({', '.join(args)})\n"
        if self.signature.return_type == types.float64:
            source = f"def native({', '.join(args)}):\n{call}    return r0.item()\n"
        else:
            outs = [f"o{k}" for k in range(len(outputs))]
            body = "".join(
                _copy_loop(o, r, v.type.ndim)
                for o, r, v in zip(outs, results, outputs, strict=True)  # type: ignore[attr-defined]
            )
            source = f"def native({', '.join(args + outs)}):\n{call}{body}"
        self.dispatcher, self.cache_key = later("native", source, {"inner": inner}, self.signature, [key])

    def __getstate__(self) -> dict[str, Any]:
        # machine code and addresses belong to one process: keep the graph, compile again from the cache
        state = self.__dict__.copy()
        for name in ("dispatcher", "address", "cache_key"):
            state.pop(name, None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._compile()

    def __repr__(self) -> str:
        return f"<NativeFunction {self.name}>"


def addresses_of(functions: Iterable[Addressed | Declared | None]) -> np.ndarray:
    """Return the addresses of functions as native code takes them, 0 where there is none."""
    return np.array([0 if f is None else f.address for f in functions], dtype=np.intp)


def _copy_loop(target: str, source: str, ndim: int) -> str:
    """Source that copies an array; ``target[...] = source`` would compile an error message for seconds."""
    indices = [f"k{axis}" for axis in range(ndim)]
    lines = ["    " * (axis + 1) + f"for k{axis} in range({source}.shape[{axis}]):\n" for axis in range(ndim)]
    at = f"[{', '.join(indices)}]"
    return "".join(lines) + "    " * (ndim + 1) + f"{target}{at} = {source}{at}\n"


def _float(variable: Variable) -> Variable:
    return variable if variable.type.dtype == "float64" else pt.cast(variable, "float64")
