"""Kernels whose names are bound to a model's functions and numbers; rows of arrays as tuples."""

import os

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
import pytest
from numba import types

from pymc_dp.lowering.addresses.bind import Kernel, bound_part, part_of_kernel, plain, rebound
from pymc_dp.lowering.addresses.graphs import jit_scalar
from pymc_dp.lowering.addresses.native import MATRIX, VECTOR
from pymc_dp.lowering.addresses.tuples import (
    column,
    dot,
    dot_from,
    entries,
    inverses,
    minus,
    monomials,
    part,
    plus,
    products,
    row,
    scaled,
    set_column,
    set_entries,
    set_row,
    shifted,
    times,
)

N = 0


def law(a, b):
    raise NotImplementedError


@part_of_kernel
def twice(v):
    return 2.0 * v


def total(m, out):
    for i in range(m.shape[0]):
        first = row(m, i, N)
        out[i] = law(*part(first, 1, 2)) + twice(entries(m[i], 1)[0]) + column(m, i, 1)[0]


def fill(out):
    out[0] = law(1.0, 2.0)


def weighted(w):
    return part_of_kernel(lambda a, b: a + w * b)


@pytest.fixture
def names():
    return {"N": 3, "law": weighted(10.0)}


def test_a_bound_kernel_is_the_same_in_machine_code_and_in_python(names):
    m = np.arange(12.0).reshape(4, 3)[:3].copy()
    expected = m[:, 1] + 10 * m[:, 2] + 2 * m[:, 0] + m[0]
    machine, python = np.empty(3), np.empty(3)
    Kernel(total, types.void(MATRIX, VECTOR), names).dispatcher(m, machine)
    plain(total, {"N": 3, "law": lambda a, b: a + 10.0 * b})(m, python)
    np.testing.assert_array_equal(machine, expected)
    np.testing.assert_array_equal(python, expected)
    plain(total, names)(m, python)  # what is bound runs in Python, too, with what it closes over
    np.testing.assert_array_equal(python, expected)


def test_what_is_bound_is_in_the_key(names):
    signature = types.void(MATRIX, VECTOR)
    key = Kernel(total, signature, names).cache_key
    assert key == Kernel(total, signature, {"N": 3, "law": weighted(10.0)}).cache_key
    assert key != Kernel(total, signature, {"N": 3, "law": weighted(11.0)}).cache_key
    assert key != Kernel(total, signature, {"N": 4, "law": weighted(10.0)}).cache_key


def with_law(a, b):
    return law(a, b) + 1.0


def test_a_part_may_be_bound_itself(names):
    m, signature = np.arange(9.0).reshape(3, 3), types.void(MATRIX, VECTOR)
    results, keys = [], set()
    for w in (10.0, 11.0):
        kernel = Kernel(total, signature, {**names, "law": bound_part(with_law, {"law": weighted(w)})})
        machine, python = np.empty(3), np.empty(3)
        kernel.dispatcher(m, machine)
        plain(total, kernel.names)(m, python)
        np.testing.assert_array_equal(machine, python)
        results.append(machine)
        keys.add(kernel.cache_key)
    np.testing.assert_array_equal(results[1] - results[0], m[:, 2])
    assert len(keys) == 2


def test_graphs_in_a_part_may_count_references():
    """PyTensor's functions that cast to few bits do, and inherit from who compiles them that they may not."""
    x = ps.float64("x")
    small = pt.cast(pt.tensor_from_scalar(x), "int8")
    unique = os.getpid() + 0.5  # a graph that no cache holds
    graph, _, _ = jit_scalar([x], [pt.cast(small * small, "float64") + unique])
    out = np.empty(1)
    names = {"law": part_of_kernel(lambda a, b: graph(a + b)[0])}
    Kernel(fill, types.void(VECTOR), names).dispatcher(out)
    assert out[0] == 9.0 + unique


def test_names_that_a_kernel_has_not_are_refused():
    with pytest.raises(NameError, match="total has no lwa"):
        rebound(total, {"lwa": law})
    with pytest.raises(NotImplementedError):
        plain(total, {"N": 3})(np.ones((3, 3)), np.empty(3))


SIZE = 0


def arithmetic(m, out):
    a, b = row(m, 0, 3), row(m, 1, 3)
    set_row(out, 0, plus(a, b))
    set_row(out, 1, minus(a, b))
    set_row(out, 2, times(a, scaled(inverses(b), 3)))
    for j in range(3):
        set_column(out, 3 + j, shifted(a, j, b))
    out[3, 0], out[3, 1] = dot(a, b), dot_from(0.1, a, b)
    set_row(out, 4, products(m, SIZE, a))
    set_row(out, 5, monomials(a, 1))
    set_row(out, 6, monomials(a, 2))
    set_entries(out[7], (1, 2.5))


def test_arithmetic_of_tuples_is_the_same_in_machine_code_and_in_python(rng):
    m = rng.normal(size=(4, 3))
    machine, python = np.zeros((8, 10)), np.zeros((8, 10))
    Kernel(arithmetic, types.void(MATRIX, MATRIX), {"SIZE": 4}).dispatcher(m, machine)
    plain(arithmetic, {"SIZE": 4})(m, python)
    np.testing.assert_array_equal(machine, python)
    a, b = m[:2]
    np.testing.assert_allclose(python[0, :3], a + b)
    np.testing.assert_allclose(python[1, :3], a - b)
    np.testing.assert_allclose(python[2, :3], 3 * a / b)
    np.testing.assert_allclose(python[:3, 3:6], a[:, None] + np.diag(b))
    np.testing.assert_allclose(python[3, :2], [a @ b, 0.1 + a @ b])
    np.testing.assert_allclose(python[4, :4], m @ a)
    assert python[5, 0] == python[6, 0] == 1.0
    np.testing.assert_allclose(python[6, 1:], [*a, *a**2, a[0] * a[1], a[0] * a[2], a[1] * a[2]])
    np.testing.assert_allclose(python[5, 1:4], a)
    assert python[7, :2].tolist() == [1.0, 2.5]
