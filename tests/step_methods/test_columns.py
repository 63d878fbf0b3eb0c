"""Records as densities of parameters read them: column by column."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.replace import clone_replace

import pymc_dp as dp
from pymc_dp.lowering.addresses.native import WHOLE
from pymc_dp.query.records import find_record_blocks
from pymc_dp.step_methods.block.program import RecordProgram
from pymc_dp.step_methods.updates import columns

N = 7


def one_number():
    return [pm.Normal("y", pm.Normal("mu"), 1, shape=N)]


def two_variables():
    x = pm.Normal("x", 0, 1, shape=N)
    return [x, pm.Normal("y", pm.Normal("mu") * x, 1, shape=N)]


def a_vector_and_a_number():
    x = pm.Normal("x", 0, 1, shape=(N, 3))
    return [x, pm.Normal("y", x @ pm.Normal("b", shape=3), 1, shape=N)]


def as_many_numbers_as_records():
    return [pm.Normal("x", pm.Normal("mu"), 1, shape=(N, N))]


def rows_for_columns(graphs, found, **options):
    return clone_replace(graphs, {x: held.T for x, held in found.items()}, **options)


def block(build):
    with pm.Model() as model:
        rows = pt.concatenate([rv.reshape((N, -1)) for rv in build()], axis=1)
        dp.LaplaceMechanism("z", dp.record_sum(rows), scale=1.0, observed=np.zeros(rows.type.shape[1] or 4))
    return RecordProgram(model, find_record_blocks(model)[0])


BUILDS = [one_number, two_variables, a_vector_and_a_number, as_many_numbers_as_records]


@pytest.mark.parametrize("build", BUILDS)
def test_a_function_of_columns_is_that_of_rows(build, rng):
    """What it computes tells every entry from every other, and where the entry stands."""
    program = block(build)
    x = rng.normal(size=(program.n, program.records.width))
    weights = rng.normal(size=x.shape)
    graph = pt.sum(program.x * weights) + program.theta[0]
    function = columns.native(program, "sum", program.x, [], graph, WHOLE).dispatcher
    theta = rng.normal(size=program.parameters.size)
    held = np.ascontiguousarray(x.T)
    assert held.shape == columns.shape_held(program.records)
    found = function(theta, program.data.gather(), held)
    assert found == pytest.approx(np.sum(x * weights) + theta[0], rel=1e-12)


@pytest.mark.parametrize("build", BUILDS)
def test_values_are_joined_to_rows(build, rng):
    program = block(build)
    x = rng.normal(size=(program.n, program.records.width))
    values = [program.records.graph(program.x, k) for k in range(len(program.block.records))]
    joined = pytensor.function([program.x], program.records.matrix(values), mode="FAST_COMPILE")
    np.testing.assert_array_equal(joined(x), x)


@pytest.mark.parametrize("shape", [(5, 1), (1, 4), (6, 3), (4, 4)])
def test_columns_are_those_of_the_rows(shape, rng):
    x = rng.normal(size=shape)
    turned = np.full(shape[::-1], np.nan)
    columns.turn(x, turned)
    np.testing.assert_array_equal(turned, x.T)


def test_rows_taken_for_columns_are_caught(rng, monkeypatch):
    """A planted fault: as many numbers as records, so that nothing else shows it."""
    monkeypatch.setattr(columns, "clone_replace", rows_for_columns)
    with pytest.raises(AssertionError):
        test_a_function_of_columns_is_that_of_rows(as_many_numbers_as_records, rng)
