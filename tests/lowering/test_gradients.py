"""What each number of a log density is worth to the rows, in machine code and in Python."""

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
import pytest

from pymc_dp.lowering.addresses.bind import plain
from pymc_dp.private.clipped_gradients import RowGradient

N = 12
NUMBERS = np.array([0.3, -0.7, 1.1])


def worth(gradient, rng):
    x = rng.normal(size=(3, N))
    machine, python = np.zeros((3, N)), np.zeros((3, N))
    function = gradient.function
    function.dispatcher(NUMBERS, x, 2, N, machine)
    plain(function.kernel, function.names)(NUMBERS, x, 2, N, python)
    return x[:, 2:], machine, python


@pytest.fixture
def entries():
    x = [pt.dscalar(f"x{j}") for j in range(3)]
    return x, [ps.float64(f"c{k}") for k in range(3)]


def test_products_of_entries(entries, rng):
    x, machine, python = worth(RowGradient([(), (1,), (0, 2, 2)], [], *entries), rng)
    np.testing.assert_array_equal(python, machine)
    expected = [np.ones(N - 2), np.zeros(N - 2), x[0] * x[2] * x[2]]  # a column is read where it stands
    np.testing.assert_array_equal(machine[:, : N - 2], expected)


def test_derivatives(entries, rng):
    (a, b, c), numbers = entries
    k = [pt.tensor_from_scalar(v) for v in numbers]
    terms = [k[0] * a - pt.exp(k[1] * b), k[2] ** 2 * c]
    x, machine, python = worth(RowGradient(None, terms, *entries), rng)
    np.testing.assert_allclose(python, machine, rtol=1e-13)
    expected = [x[0], -x[1] * np.exp(NUMBERS[1] * x[1]), 2 * NUMBERS[2] * x[2]]
    np.testing.assert_allclose(machine[:, : N - 2], expected, rtol=1e-13)
