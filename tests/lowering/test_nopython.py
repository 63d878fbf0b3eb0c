"""Functions with declared types: compiled at their first call, once, whoever calls."""

import os
import pickle
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from numba import types
from numba.core import event
from numba.core.errors import TypingError
from pytensor import scalar
from pytensor.tensor import tensor_from_scalar

from pymc_dp.lowering.addresses import native
from pymc_dp.lowering.addresses.native import VECTOR, SourceFunction, compile_lowered, function_at
from pymc_dp.lowering.compiling.nopython import Declared, njit
from pymc_dp.lowering.rows.rows import scalar_function

SIGNATURE = types.float64(types.float64)
FUNCTION = types.FunctionType(SIGNATURE)


def _function(body="return 3.0 * x + number"):
    """A function that no cache can hold."""
    source = f"def f(x):\n    number = {uuid.uuid4().int % 10**15}.0\n    {body}\n"
    return SourceFunction("f", source, {}, SIGNATURE, [])


def _is_compiled(function):
    return bool(function.dispatcher.overloads)


def _compiled_during(action):
    """Names of the functions that numba compiles meanwhile, rather than loading them."""
    with event.install_recorder("numba:compile") as recorder:
        action()
    return [e.data["dispatcher"].py_func.__name__ for _, e in recorder.buffer if e.is_start]


def test_nothing_is_compiled_before_it_is_called():
    function = _function()
    assert not _is_compiled(function)
    assert function.dispatcher(2.0) - function.dispatcher(1.0) == 3.0
    assert _is_compiled(function)


def test_the_declared_types_are_the_only_ones():
    function = njit(types.float64(types.uint64, VECTOR))(lambda k, x: x[0] / k)
    assert function(2, np.ones(1)) == 0.5  # from its first call on
    assert function(2.0, np.ones(1)) == 0.5
    assert [cres.signature.args[0] for cres in function.overloads.values()] == [types.uint64]


@pytest.mark.parametrize("called_before", [False, True])
@pytest.mark.parametrize("argument", ["one", np.ones(1), None])
def test_other_types_are_refused(called_before, argument):
    function = _function().dispatcher
    if called_before:
        function(1.0)
    with pytest.raises(TypeError):
        function(argument)


def test_several_threads_begin_with_one_function():
    functions, calls = [_function() for _ in range(3)], []
    compiled = _compiled_during(lambda: calls.extend(_in_threads(functions * 2)))
    assert calls[:3] == calls[3:] == [f.address for f in functions]
    assert 0 not in calls
    assert compiled == ["f"] * 3


def _in_threads(functions):
    together = threading.Barrier(len(functions))

    def address(function):
        together.wait(60)
        function.dispatcher(1.0)
        return function.address

    with ThreadPoolExecutor(len(functions)) as pool:
        return list(pool.map(address, functions))


def test_a_pickle_declares_the_same_types():
    function = njit(types.float64(types.uint64))(lambda k: 1.0 / k)
    states = {**function._reduce_states(), "uuid": "as in another process"}
    again = pickle.loads(pickle.dumps(function)), Declared._rebuild(**states)
    assert again[0] is function
    assert again[1](4.0) == 0.25
    rebuilt = again[1]
    assert njit(lambda k: rebuilt(k))(4.0) == 0.25


def test_a_caller_compiles_what_it_calls():
    inner = _function()
    outer = SourceFunction(
        "g",
        "def g(x):\n    return 2.0 * inner(x)\n",
        {"inner": inner.dispatcher},
        SIGNATURE,
        [inner.cache_key],
    )
    assert outer.dispatcher(1.0) == 2 * inner.dispatcher(1.0)
    assert _is_compiled(inner)


def test_what_is_called_by_its_address():
    function = _function()
    call = njit(lambda address, x: function_at(address, FUNCTION)(x))
    assert call(function.address, 2.0) == function.dispatcher(2.0)


def test_what_is_on_disk_is_not_compiled_again():
    source = f"def f(x):\n    return x + {uuid.uuid4().int % 10**15}.0\n"

    def called():
        SourceFunction("f", source, {}, SIGNATURE, []).dispatcher(1.0)

    assert _compiled_during(called) == ["f"]
    assert _compiled_during(called) == []


def test_functions_of_graphs_that_python_calls_are_on_disk(rng):
    """PyTensor writes a graph's source to a file of another name each time."""
    number = float(rng.uniform()) + uuid.uuid4().int % 10**6  # a graph that no cache can hold

    def compiled():
        x = scalar.float64("x")
        return scalar_function([x], [number * tensor_from_scalar(x)])[0]

    assert _compiled_during(lambda: compiled()(2.0))
    assert not _compiled_during(lambda: compiled()(2.0))
    assert compiled()(2.0) == (2.0 * number,)


def test_functions_without_a_key_are_compiled_each_time():
    function = SourceFunction("f", "def f(x):\n    return x\n", {}, SIGNATURE, [None])
    assert function.cache_key is None
    assert function.dispatcher(2.0) == 2.0


def test_errors_are_raised_where_the_function_is_called():
    function = _function("return x.nothing")
    for _ in range(2):
        with pytest.raises(TypingError, match="nothing"):
            function.dispatcher(1.0)
    with pytest.raises(TypingError, match="nothing"):
        function.address  # noqa: B018


def test_other_processes_begin_with_all_compiled():
    """What was lowered is compiled at once, so that no forked process has to."""
    wrong, functions = _function("return x.nothing"), [_function(), _function()]
    compile_lowered()
    assert not _is_compiled(wrong)
    assert not native._lowered
    assert all(_is_compiled(f) for f in functions)
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            status = len(_compiled_during(lambda: [f.dispatcher(1.0) for f in functions]))
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_what_is_dropped_is_not_compiled():
    compile_lowered()
    dropped = _function()
    del dropped
    assert _compiled_during(compile_lowered) == []
