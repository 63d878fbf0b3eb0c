"""Joint distribution test (Geweke 2004) of tables whose counts move together with their parameters.

Three transitions show large faults only; others are seen by the exact answers in tests/tables/test_joint.py.
"""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_dp as dp
from tests.statistics import harness
from tests.tables.joint_models import SIZES
from tests.tables.test_joint import FAULTS

NAMES = ["a", "a^2", "e0", "e0^2", "c00", "c11^2", "a c00", "e0 c00", "z00", "z00 c00", "t0 c10", "z00 e0"]
SCALE = 1.5


def draw_prior(rng):
    a, e = rng.normal(0.2, 0.6), rng.normal(0, 0.8, 2)
    c = rng.poisson(np.exp(a + e)[:, None] * SIZES)
    return {
        "a": a,
        "e": e,
        "c": c,
        "z": c + rng.laplace(0, SCALE, (2, 2)),
        "t": c.sum(0) + rng.normal(0, 1, 2),
    }


def functionals(s):
    c, e, z = s["c"], s["e"], s["z"]
    return np.array([
        s["a"], s["a"] ** 2, e[0], e[0] ** 2, c[0, 0], c[1, 1] ** 2, s["a"] * c[0, 0], e[0] * c[0, 0],
        z[0, 0], z[0, 0] * c[0, 0], s["t"][0] * c[1, 0], z[0, 0] * e[0],
    ])  # fmt: skip


def step_of(rng):
    """Return the step, tuned and frozen, and its model: nothing else moves the parameters."""
    start = draw_prior(rng)
    with pm.Model() as model:
        a, e = pm.Normal("a", 0.2, 0.6), pm.Normal("e", 0, 0.8, shape=2)
        c = pm.Poisson("c", pt.exp(a + e)[:, None] * SIZES)
        dp.LaplaceMechanism("z", c, scale=SCALE, observed=pm.Data("z as released", start["z"]))
        dp.GaussianMechanism("t", c.sum(axis=0), sigma=1.0, observed=pm.Data("t as released", start["t"]))
        step = dp.TableImputation(n_sweeps=3)
    step.setup_chain(np.random.default_rng(5), 400, 10**6)
    step.checked_at = []
    point = {name: start[name] for name in ("a", "e", "c")}
    for _ in range(400):
        point, _ = step.step(point)
    step.stop_tuning()
    assert all(group.on[0] for group in step.parts[0].joint.groups)
    return step, model


def verdict(replicates=3000):
    step, model = step_of(np.random.default_rng(3))

    def transition(state, rng):
        for name in ("z", "t"):
            model[f"{name} as released"].set_value(state[name])
        point, _ = step.step({"a": np.asarray(state["a"]), "e": state["e"], "c": state["c"]})
        return {**state, **{name: point[name] for name in ("a", "e", "c")}}

    return harness.geweke_replicated(
        draw_prior, transition, None, functionals, replicates=replicates, transitions=3, names=NAMES, seed=2
    )


@pytest.mark.statistical
def test_tables_with_their_parameters():
    assert (found := verdict()).passed, found


@pytest.mark.statistical
@pytest.mark.parametrize("fault", ["prior left out", "noise left out"])
def test_faults_are_seen(fault, monkeypatch):
    plant, _ = FAULTS[fault]
    plant(monkeypatch)
    assert verdict().outcome == "rejected"
