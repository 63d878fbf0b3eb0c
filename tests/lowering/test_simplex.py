"""PyMC's transform of probability tables as two loops: the same numbers, where draws are recorded too."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.distributions.transforms import simplex
from pymc.sampling import mcmc

import pymc_dp as dp
from pymc_dp.lowering.addresses.modes import default_mode, own_mode
from pymc_dp.lowering.functions.simplex import _RowsToProbabilities, simplex_forward


def uses_loops(function):
    return any(isinstance(node.op, _RowsToProbabilities) for node in function.maker.fgraph.apply_nodes)


@pytest.mark.parametrize("shape", [(5,), (3, 2), (2, 4, 3), (0, 3)], ids=str)
@pytest.mark.parametrize("known", [True, False], ids=["static shape", "unknown shape"])
def test_probabilities_are_pymcs(shape, known):
    value = pt.tensor("value", shape=shape if known else (None,) * len(shape), dtype="float64")
    ours = pytensor.function([value], simplex.backward(value), mode=default_mode())
    assert uses_loops(ours)
    rng = np.random.default_rng(1)
    for scale in (0.1, 3.0, 300.0):  # exp(900) is infinite: nothing may overflow
        numbers = rng.normal(size=shape) * scale
        wanted = simplex.backward(pt.as_tensor(numbers)).eval(mode="FAST_COMPILE")
        assert ours(numbers) == pytest.approx(wanted, rel=1e-13, abs=1e-300)
        assert ours(numbers).shape == wanted.shape


def test_values_are_pymcs():
    probabilities = np.random.default_rng(2).dirichlet(np.ones(4), size=(2, 3))
    wanted = simplex.forward(pt.as_tensor(probabilities)).eval(mode="FAST_COMPILE")
    assert simplex_forward(pt.as_tensor(probabilities)).eval(mode="NUMBA") == pytest.approx(wanted, rel=1e-13)


@pytest.mark.parametrize("released", [True, False])
def test_pymc_records_draws_by_it_where_something_was_released(released):
    with pm.Model() as model:
        pm.Dirichlet("table", np.ones(3), shape=(4, 3))
        p = pm.Dirichlet("p", np.ones(5))
        if released:
            dp.RandomizedResponse("counts", p, n=10, epsilon=1.0, observed=[1, 2, 3, 4, 0])
        step = pm.Metropolis(compile_kwargs={"mode": "FAST_COMPILE"})
    _, (trace,) = mcmc.init_traces(
        backend=None, chains=1, expected_length=1, step=step, initial_point=model.initial_point(), model=model
    )
    loops = [n for n in trace.fn.maker.fgraph.apply_nodes if isinstance(n.op, _RowsToProbabilities)]
    assert len(loops) == 2 * released
    rng = np.random.default_rng(3)
    point = {name: value + rng.normal(size=value.shape) for name, value in model.initial_point().items()}
    *_, table, p = trace.fn(**point)
    assert table == pytest.approx(_rows(point["table_simplex__"]), rel=1e-13)
    assert p == pytest.approx(_rows(point["p_simplex__"]), rel=1e-13)


def _rows(values):
    weights = np.exp(np.concatenate([values, -values.sum(-1, keepdims=True)], axis=-1))
    return weights / weights.sum(-1, keepdims=True)


def test_what_is_not_pymcs_transform_stays_as_it_is():
    value = pt.matrix("value")
    short = pt.matrix("short", dtype="float32")
    joined = pt.concatenate([value, -value.sum(-1, keepdims=True)], axis=-1)
    weights = pt.exp(joined - joined.max(-1, keepdims=True))
    other = [
        weights / weights.sum(0, keepdims=True),
        pt.exp(joined) / pt.exp(joined).sum(-1, keepdims=True),
        pt.concatenate([value, value], axis=-1) / value.sum(),
        value / value.sum(-1, keepdims=True),
    ]
    assert not uses_loops(pytensor.function([value], other, mode=own_mode()))
    assert not uses_loops(pytensor.function([short], simplex.backward(short), mode=own_mode()))


@pytest.mark.statistical
def test_gradients_are_left_to_pymc():
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.arange(1.0, 5.0))
        pm.Multinomial("counts", 20, p, observed=[3, 7, 6, 4])
    point = {"p_simplex__": np.array([0.3, -1.0, 0.4])}
    gradient = model.compile_dlogp()
    density = model.compile_logp()
    for j in range(3):
        step = np.eye(3)[j] * 1e-5
        slope = density({"p_simplex__": point["p_simplex__"] + step}) - density(
            {"p_simplex__": point["p_simplex__"] - step}
        )
        assert gradient(point)[j] == pytest.approx(slope / 2e-5, rel=1e-6)
