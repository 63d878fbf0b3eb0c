"""Cost of the lowered functions, beside calling the same PyTensor function from Python.

Run ``python benchmarks/lowering.py``. Times are nanoseconds per call; the smallest of several runs.
"""

import time

import numba
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt

from pymc_dp.lowering.scalar import lower_scalar

FAMILIES = [(pm.Normal, 0.3, (2.0, 3.0)), (pm.Gamma, 0.3, (2.0, 3.0)), (pm.Beta, 0.3, (2.0, 3.0))]


@numba.njit
def loop_number(function, n, first, a, b):
    total = 0.0
    for i in range(n):
        total += function(first, a + 1e-9 * i, b)  # a parameter that changes: nothing is hoisted
    return total


@numba.njit
def loop_tuple(function, n, first, a, b):
    total = 0.0
    for i in range(n):
        for slope in function(first, a + 1e-9 * i, b):
            total += slope
    return total


def nanoseconds(call, n):
    call(2)
    times = []
    for _ in range(5):
        start = time.perf_counter()
        call(n)
        times.append((time.perf_counter() - start) / n * 1e9)
    return min(times)


def measure(family, value, params):
    a, b, x = pt.dscalars("a", "b", "x")
    rv = family.dist(a, b)
    kernel, rng, n = lower_scalar(rv, [a, b]), np.random.default_rng(1), 1_000_000
    compiled = pytensor.function([x, a, b], pm.logp(rv, x), trust_input=True)
    arrays = [np.array(v) for v in (value, *params)]

    def through_python(n):
        for _ in range(n):
            compiled(*arrays)

    return (
        nanoseconds(lambda n: loop_number(kernel.logp, n, value, *params), n),
        nanoseconds(lambda n: loop_tuple(kernel.grad, n, value, *params), n),
        nanoseconds(lambda n: loop_number(kernel.draw, n, rng, *params), n),
        nanoseconds(through_python, 2_000),
    )


def main():
    print("          log density  gradient      draw   log density through pytensor.function")
    for family, value, params in FAMILIES:
        logp, grad, draw, plain = measure(family, value, params)
        print(f"{family.__name__:10s}{logp:11.1f}{grad:10.1f}{draw:10.1f}{plain:42.0f}")


if __name__ == "__main__":
    main()
