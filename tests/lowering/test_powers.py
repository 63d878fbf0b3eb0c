"""Powers with whole exponents of few bits: LLVM calls a function for them that numba does not link."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

import pymc_dp as dp
from pymc_dp.lowering.compiling import powers

ROOT = Path(__file__).resolve().parents[2]
ALONE = """
import numpy as np, pytensor, pytensor.tensor as pt
{first}
x, k = pt.scalar("x"), pt.scalar("k", dtype="int8")
function = pytensor.function([x, k], x ** pt.cast(k, "float64"), mode="NUMBA")
print(function(1.5, np.int8(3)))
"""


def alone(first):
    """Run in a process of its own, which may end."""
    return subprocess.run(
        [sys.executable, "-c", ALONE.format(first=first)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTENSOR_FLAGS": "cxx="},
        timeout=300,
    )


@pytest.mark.parametrize("dtype", ["bool", "int8", "int32", "uint8"])
def test_exponents_of_few_bits(dtype):
    x, k = pt.vector("x", dtype="float64"), pt.vector("k", dtype=dtype)
    function = pytensor.function([x, k], x ** pt.cast(k, "float64"), mode="NUMBA")
    values, exponents = np.array([1.5, 0.0, -2.0]), np.array([1, 0, 1]).astype(dtype)
    np.testing.assert_array_equal(function(values, exponents), values ** exponents.astype(float))


# A package that is imported without its own __init__, which would provide them.
BARE = """
import sys, types
for name in ("pymc_dp", "pymc_dp.lowering", "pymc_dp.lowering.compiling"):
    sys.modules[name] = module = types.ModuleType(name)
    module.__path__ = [{root!r} + "/" + name.replace(".", "/")]
"""


@pytest.mark.parametrize(
    ("does", "ends"),
    [
        ("", True),
        ("from pymc_dp.lowering.compiling.powers import provide_powers as p; p()", False),
        ("from pymc_dp.lowering.compiling.powers import provide_powers as p; p('no such library')", False),
    ],
)
def test_where_powers_come_from(does, ends):
    done = alone(BARE.format(root=str(ROOT)) + does)
    assert (done.returncode < 0) == ends, done.stderr[-2000:]
    assert done.stdout.split() == ([] if ends else ["3.375"])


def test_powers_that_are_compiled_here():
    for x in (1.5, -2.0, 0.0, np.inf, 1e200):
        for n in (0, 1, 2, 5, -3):
            with np.errstate(divide="ignore", over="ignore"):
                assert powers.power(np.float64(x), n) == pytest.approx(np.float64(x) ** n, rel=1e-14), (x, n)


def test_a_mixture_with_the_root_of_a_variance_by_logarithms():
    """Its slopes have such powers: the process had ended where the step was built."""
    with pm.Model():
        v = pm.InverseGamma("v", 2, 1, shape=4)
        labels = dp.ChineseRestaurantProcess("labels", 1.0, shape=4, max_components=4)
        y = pm.Normal("y", 0, pt.exp(0.5 * pt.log(v))[labels])
        dp.LaplaceMechanism("z", y, scale=1.0, observed=np.ones(4))
        step = dp.AtomUpdate()
    assert [x.name for x in step.vars] == ["v_log__"]
