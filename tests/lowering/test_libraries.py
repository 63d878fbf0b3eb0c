"""Machine code of functions that are parts of others: of the whole, and never of a part alone."""

import ctypes
import uuid

import llvmlite.binding as llvm
import numba
import numpy as np
import pytensor
import pytensor.scalar as ps
import pytensor.tensor as pt
import pytest
from numba import types
from numba.core import event
from numba.core.errors import TypingError
from numba.core.registry import cpu_target
from pytensor.link.numba.dispatch import basic

from pymc_dp.lowering.addresses.graphs import jit_scalar
from pymc_dp.lowering.addresses.modes import default_mode
from pymc_dp.lowering.addresses.native import VECTOR, NativeFunction
from pymc_dp.lowering.compiling.libraries import PartLibrary
from pymc_dp.lowering.compiling.nopython import njit

SIGNATURE = types.float64(types.float64)
OF_VECTORS = types.void(VECTOR, VECTOR)


def _part(function):
    """A function with declared types that no process has seen before."""
    number = float(uuid.uuid4().int % 10**15)
    return njit(SIGNATURE)(lambda x: function(x, number))


def _library(dispatcher):
    (compiled,) = dispatcher.overloads.values()
    return compiled.library


@pytest.fixture
def nested():
    inner = _part(njit(lambda x, number: x + number))
    middle = njit(SIGNATURE)(lambda x: inner(x) - inner(0.0))
    return inner, middle, njit(SIGNATURE)(lambda x: 2.0 * middle(x) + middle(1.0))


def test_parts_become_machine_code_within_what_calls_them_only(nested):
    inner, middle, outer = nested
    assert outer(3.0) == 7.0
    libraries = [_library(inner._part), _library(middle._part), _library(outer)]
    assert [type(library) for library in libraries] == [PartLibrary] * 3
    assert [library._finalized for library in libraries] == [False, False, True]


def test_others_may_call_parts_too(nested):
    inner, middle, outer = nested
    outer.ready()
    others = numba.njit(lambda x: middle(x) + inner(x) - inner(0.0))
    assert others(3.0) == 6.0
    assert not isinstance(_library(others), PartLibrary)
    assert [part(3.0) - part(0.0) for part in (inner, middle)] == [3.0, 3.0]


def test_python_is_called_and_errors_are_raised_from_within_parts():
    seen = []

    def checked(x):
        if x < 0.0:
            raise ValueError("negative")
        with numba.objmode():
            seen.append(x)
        return x

    inner = njit(SIGNATURE)(checked)
    outer = njit(SIGNATURE)(lambda x: inner(x) + 1.0)
    assert outer(3.0) == 4.0
    assert seen == [3.0]
    with pytest.raises(ValueError, match="negative"):
        outer(-1.0)


def test_functions_that_call_themselves_are_parts():
    @njit
    def factorial(n):
        return 1 if n < 2 else n * factorial(n - 1)

    assert njit(types.int64(types.int64))(lambda n: factorial(n) + 1)(5) == 121


def _of_functions(calls, **bodies):
    """A part with functions of one number, by their names, that calls other parts."""
    codegen = cpu_target.target_context.codegen()
    part = PartLibrary(codegen, uuid.uuid4().hex)
    text = str(codegen._create_empty_module(part.name))
    for callee in {name for library in calls for name in library._defined}:
        text += f"declare double @{callee}(double)\n"
    for name, lines in bodies.items():
        text += f"define double @{name}(double %x) {{\n{lines}\n}}\n"
    part.add_llvm_module(llvm.parse_assembly(text))
    for library in calls:
        part.add_linking_library(library)
    return part


def test_what_only_an_unused_function_calls_is_there_for_others():
    """The linker leaves out what nothing calls so far: who calls a function has to come before it."""
    shared, wrapper, first, second, outer = (f"_ZN5numba_{uuid.uuid4().hex}" for _ in range(5))
    plus_one = _of_functions([], **{shared: "%y = fadd double %x, 1.0\nret double %y"})
    call = "%y = call double @{}(double %x)\nret double %y".format
    same = _of_functions([plus_one], **{wrapper: call(shared), first: "ret double %x"})
    other = _of_functions([plus_one], **{second: call(shared)})
    lines = f"%a = call double @{first}(double %x)\n%b = call double @{second}(double %a)\nret double %b"
    address = _of_functions([same, other], **{outer: lines}).get_pointer_to_function(outer)
    assert ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(address)(3.0) == 4.0


def test_numba_is_left_as_it_was():
    codegen = cpu_target.target_context.codegen()
    before = codegen._library_class
    njit(SIGNATURE)(lambda x: x + 1.0)(1.0)
    assert codegen._library_class is before
    with pytest.raises(TypingError):
        njit(SIGNATURE)(lambda x: x.unknown)(1.0)
    assert codegen._library_class is before
    assert before is not PartLibrary


def test_graphs_share_operations_and_pytensor_keeps_its_own():
    before = basic.numba_funcify_ensure_cache
    functions = []
    for number in (2.0, 3.0):
        x = pt.vector("x")
        graph = NativeFunction("f", [x], [pt.cumsum(pt.exp(x)) * number], OF_VECTORS)
        out = np.empty(3)
        graph.dispatcher(np.arange(3.0), out)
        assert out == pytest.approx(np.cumsum(np.exp(np.arange(3.0))) * number)
        functions.append(graph.dispatcher.py_func.__globals__["inner"].py_func.__globals__)
    sums = [[value for name, value in names.items() if name.startswith("cumop")] for names in functions]
    assert sums[0] == sums[1] != []
    assert basic.numba_funcify_ensure_cache is before


def test_functions_of_numbers_are_called_from_python_too():
    x = ps.float64("x")
    function, _, _ = jit_scalar([x], [pt.exp(pt.tensor_from_scalar(x)) + 1.0])
    outer = njit(SIGNATURE)(lambda x: function(x)[0])
    assert outer(0.0) == 2.0  # which has compiled it as a part
    assert function(0.0) == (2.0,)


def test_graphs_for_python_are_kept_on_disk():
    number = float(uuid.uuid4().int % 10**6)

    def compiled():
        x = pt.vector("x")
        function = pytensor.function([x], pt.cumsum(pt.exp(x)) + number, mode=default_mode())
        with event.install_recorder("numba:compile") as recorder:
            assert function(np.zeros(2)) == pytest.approx([number + 1.0, number + 2.0])
        return len(recorder.buffer)

    assert compiled() > 0
    assert compiled() == 0
