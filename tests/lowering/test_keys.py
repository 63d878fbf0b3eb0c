"""Keys of compiled code: what a function is made of, and nothing else."""

import json
import os
import subprocess
import sys
from types import ModuleType

import numpy as np
import pytest
from numba import types
from numba.core import event

from pymc_dp.lowering.compiling import keys
from pymc_dp.lowering.compiling.keys import digest, key_of, overload, version_of
from pymc_dp.lowering.compiling.nopython import njit

SOURCE = '''
import math
import numpy as np
from numba.extending import intrinsic
from numba import types
from pymc_dp.lowering.compiling.nopython import njit

NUMBER = 2.0
ARRAY = np.arange(3.0)


@intrinsic
def _one(typingctx):
    """One."""
    def codegen(context, builder, signature, args):
        return context.get_constant(types.float64, 1.5)
    return types.float64(), codegen


def within(weight):
    @njit
    def weighted(x):
        return weight * x
    return weighted


closure = within(0.25)


@njit
def inner(x, more=4.0):
    """Inner."""
    return math.log(x) + 5.0 * more + _one()


@njit
def unrelated(x):
    return x + 1.0


def outer(x):
    """Outer."""
    # a comment
    add = lambda y: y + 6.0
    if x == 0:
        return outer(x + 1)
    return add(inner(x)) + NUMBER + ARRAY[1] + closure(x) + np.exp(x) + helpers.other(x)
'''
HELPERS = "def other(x):\n    return 7.0 * x\n\ndef not_called(x):\n    return 8.0 * x\n"


def key(source=SOURCE, helpers=HELPERS, of="outer"):
    scope, module = {"__name__": __name__}, ModuleType("helpers")
    exec(helpers, vars(module))
    scope["helpers"] = module
    exec(source, scope)
    return key_of(scope[of])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"""Outer."""', '"""What it does, at length."""'),
        ('"""Inner."""', '"""What it does, at length."""'),
        ("# a comment", "# another"),
        ("import math\n", "import math\n\n# further down in its file\n\n"),
        ("return x + 1.0", "return x + 2.0"),
    ],
)
def test_what_does_not_matter(old, new):
    assert SOURCE.count(old) == 1
    assert key() is not None
    assert key(SOURCE.replace(old, new)) == key()
    assert key(helpers=HELPERS.replace("8.0", "9.0")) == key()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("NUMBER = 2.0", "NUMBER = 3.0"),
        ("NUMBER = 2.0", "NUMBER = 2"),
        ("arange(3.0)", "arange(4.0)"),
        ("within(0.25)", "within(0.5)"),
        ("1.5)", "1.75)"),
        ("more=4.0", "more=3.0"),
        ("5.0 * more", "4.0 * more"),
        ("math.log(x)", "math.log1p(x)"),
        ("y + 6.0", "y + 5.0"),
        ("np.exp(x)", "np.expm1(x)"),
        ("outer(x + 1)", "unrelated(x + 1)"),
        ("@njit\ndef inner", "@njit(fastmath=True)\ndef inner"),
        ("@njit\ndef inner", "@njit(types.float64(types.float64, types.float64))\ndef inner"),
    ],
)
def test_what_matters_however_far_down(old, new):
    assert SOURCE.count(old) == 1
    assert key(SOURCE.replace(old, new)) not in (None, key())


def test_functions_of_a_module_matter():
    assert key(helpers=HELPERS.replace("7.0", "8.0")) not in (None, key())


def test_what_has_no_key():
    stranger = object()
    assert key_of(lambda: stranger) is None
    assert key_of(lambda: not_there) is None  # noqa: F821
    assert key_of(njit(lambda: stranger)) is None
    assert key_of((1, stranger)) is None
    assert digest(["known", None]) is None
    with pytest.raises(TypeError, match="no key"):
        version_of(lambda: stranger)


def _even(n):
    return n == 0 or _odd(n - 1)


def _odd(n):
    return n != 0 and _even(n - 1)


def test_functions_that_call_each_other_have_no_key():
    assert key_of(_even) is None


def test_values():
    values = [1, 1.0, True, "1", None, (1,), (1.0,), np.float64(1)]
    values += [np.array([1.0]), np.array([1]), np.array([[1.0]]), frozenset({1}), frozenset({2})]
    values += [types.float64, types.float64[:], np.exp, np.log, len, set]
    found = [key_of(v) for v in values]
    assert len(set(found)) == len(values)
    assert None not in found


def test_the_machine_code_of_a_python_function_matters(monkeypatch):
    monkeypatch.setattr(keys, "_known", {})

    def declared(x):
        return x

    def with_code(number):
        overload(declared)(lambda x: lambda x: x + number)
        keys._known.clear()
        return key_of(declared)

    assert with_code(1.0) != with_code(2.0)
    assert with_code(1.0) == with_code(1.0)


def _compiled(number, unrelated):
    """Compile a function that calls one which adds a number; return its result, and what was compiled."""
    scope = {"__name__": __name__, "njit": njit}
    exec(
        f"@njit\ndef add(x):\n    return x + {number}\n\n{unrelated}\ndef call(x):\n    return add(x)\n",
        scope,
    )
    function = njit(types.float64(types.float64), cache=True)(scope["call"])
    with event.install_recorder("numba:compile") as recorder:
        result = function(0.0)
    return result, [e.data["dispatcher"].py_func.__name__ for _, e in recorder.buffer if e.is_start]


def test_code_on_disk_is_never_that_of_another_callee(rng):
    one, other = map(float, rng.random(2) + os.getpid())
    assert _compiled(one, "") == (one, ["call", "add"])
    assert _compiled(one, "# moved down\n") == (one, [])
    assert _compiled(other, "") == (other, ["call", "add"])
    assert _compiled(one, "") == (one, [])


def test_code_on_disk_is_never_that_of_other_options(rng):
    scope = {"__name__": __name__}
    exec(f"def divided(x):\n    return {rng.random() + os.getpid()} / x\n", scope)
    signature = types.float64(types.float64)
    assert njit(signature, cache=True)(scope["divided"])(0.0) == np.inf
    with pytest.raises(ZeroDivisionError):
        njit(signature, cache=True, error_model="python")(scope["divided"])(0.0)


_ALL = """
import json, sys
import pymc_dp
from numba.core.dispatcher import Dispatcher
from pymc_dp.lowering.compiling.keys import key_of
modules = {name: vars(module) for name, module in sys.modules.items() if name.startswith("pymc_dp")}
print(json.dumps({
    f"{name}.{f}": key_of(function)
    for name, there in modules.items() for f, function in there.items() if isinstance(function, Dispatcher)
}))
"""


def test_every_function_of_the_package_has_a_key_in_all_processes():
    runs = [
        json.loads(
            subprocess.run(
                [sys.executable, "-c", _ALL], env={**os.environ, "PYTHONHASHSEED": seed}, check=True,
                capture_output=True, text=True,
            ).stdout
        )
        for seed in ("1", "2")
    ]  # fmt: skip
    assert runs[0] == runs[1]
    assert len(runs[0]) > 100
    assert not [name for name, key in runs[0].items() if key is None]
