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


def main():
    print(
        f"{'':10s}{'logp':>9s}{'gradient':>10s}{'draw':>8s}{'logp through pytensor.function':>33s}"
    )
    a, b, x = pt.dscalars("a", "b", "x")
    for family, value, params in FAMILIES:
        rv = family.dist(a, b)
        k = lower_scalar(rv, [a, b])
        rng = np.random.default_rng(1)
        n = 1_000_000
        logp = nanoseconds(lambda n, k=k: loop_number(k.logp, n, value, *params), n)
        grad = nanoseconds(lambda n, k=k: loop_tuple(k.grad, n, value, *params), n)
        draw = nanoseconds(lambda n, k=k, rng=rng: loop_number(k.draw, n, rng, *params), n)
        compiled = pytensor.function([x, a, b], pm.logp(rv, x), trust_input=True)
        arrays = [np.array(v) for v in (value, *params)]

        def through_python(n, compiled=compiled, arrays=arrays):
            for _ in range(n):
                compiled(*arrays)

        plain = nanoseconds(through_python, 2_000)
        print(f"{family.__name__:10s}{logp:9.1f}{grad:10.1f}{draw:8.1f}{plain:33.0f}")


if __name__ == "__main__":
    main()
