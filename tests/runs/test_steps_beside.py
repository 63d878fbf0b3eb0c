"""PyMC's own steps beside ours: every chain, every fit and every call begins with them as they were made."""

import numpy as np
import pymc as pm
import pytest

import pymc_dp as dp
from tests.runs.test_blocks import assert_same

SHORT = {"draws": 20, "tune": 120, "chains": 2, "progressbar": False}  # Metropolis learns every 100 draws


def beside(z=20.0):
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 2)
        width = pm.Normal("width", 0, 1, shape=2)
        bits = pm.Bernoulli("bits", 0.4, shape=4)
        kinds = pm.Categorical("kinds", [0.2, 0.3, 0.5], shape=5)
        pm.Normal("seen", mu + width.sum() + bits.sum() + kinds.sum(), 1, observed=np.array([3.5, 4.2]))
        y = pm.Normal("y", mu, 1, shape=20)
        dp.LaplaceMechanism("z", dp.record_sum(y), epsilon=1, bounds=(-3, 3), observed=z)
    return model


def slices(model):
    """Widths that are learnt, orders that are shuffled in place: setting up a chain undoes neither."""
    with model:
        return [
            pm.Slice([model["width"]]),
            pm.BinaryGibbsMetropolis([model["bits"]]),
            pm.CategoricalGibbsMetropolis([model["kinds"]]),
        ]


def others(model):
    """What is learnt of steps of other kinds: a scale, and a history of draws."""
    with model:
        return [
            pm.DEMetropolisZ([model["width"]], S=np.ones(2)),
            pm.BinaryMetropolis([model["bits"]]),
            pm.CategoricalGibbsMetropolis([model["kinds"]], proposal="proportional"),
        ]


def plainly(model, steps, seed):
    return pm.sample(
        model=model, step=steps(model), random_seed=seed, cores=1, quiet=True, nuts_sampler="pymc",
        compute_convergence_checks=False, **SHORT,
    )  # fmt: skip


def in_blocks(path, model, step, **changed):
    return dp.sample_in_blocks(
        path=path, model=model, step=step, random_seed=5, compute_convergence_checks=False, **SHORT | changed
    )


@pytest.mark.compiles(1)
@pytest.mark.parametrize("steps", [slices, others])
def test_every_chain_begins_with_steps_as_they_were_made(steps, tmp_path):
    plain = plainly(beside(), steps, 5)
    model = beside()
    assert_same(plain, in_blocks(tmp_path / "one", model, steps(model), block=1000))
    for draws in (3, 20):
        model = beside()
        resumed = in_blocks(tmp_path / "resumed", model, steps(model), block=7, draws=draws)
    model = beside()
    assert_same(in_blocks(tmp_path / "whole", model, steps(model), block=7), resumed)


def test_every_fit_begins_with_steps_as_they_were_made():
    steps, releases = slices, np.array([-5.0, 60.0])
    found = dp.replicate(beside(), {"z": releases}, keep="draws", random_seed=5, step=steps, **SHORT)
    for k, z in enumerate(releases):
        alone = plainly(beside(z), steps, int(found.seed[k]))
        for name in ("mu", "width", "bits", "kinds"):
            np.testing.assert_array_equal(found[f"{name}_draws"][k], alone["posterior"][name], err_msg=name)


def test_a_step_that_was_used_begins_as_it_came(tmp_path):
    """In a session, the same steps are given again after an interrupt, in the middle of a chain."""
    model = beside()
    given = slices(model)
    in_blocks(tmp_path / "used", model, given, block=1000)
    again = in_blocks(tmp_path / "again", model, given, block=1000)
    assert_same(plainly(beside(), slices, 5), again)


def test_steps_that_move_all_chains_together_are_refused(tmp_path):
    model = beside()
    with model:
        step = pm.DEMetropolis([model["width"]])
    with pytest.raises(TypeError, match=r"DEMetropolis moves all chains together.*Use pm.DEMetropolisZ"):
        in_blocks(tmp_path / "b", model, [step])
