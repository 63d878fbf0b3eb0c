"""A step moves every variable that it takes: what it is given and would not move is refused by name."""

from __future__ import annotations

import warnings
from functools import cache

import numpy as np
import pymc as pm
import pytest
from pymc.step_methods import STEP_METHODS
from pymc.step_methods.compound import BlockedStep

import pymc_dp as dp
from tests.private.models import normal_rows

pytestmark = [
    pytest.mark.compiles(3),
    pytest.mark.filterwarnings("ignore:insecure_noise_seed"),
]

NOISE = {"noise_multiplier": 5.0, "insecure_noise_seed": 1}
KNOWN = np.array([-4.0, -3.2, 0.3, 2.5])


def bystanders():
    """Variables that are behind no record: a real number and a whole one."""
    pm.Gamma("other", 3, 2)
    pm.Poisson("whole", 2)


def normal():
    dp.LaplaceMechanism("z", pm.Normal("y", pm.Normal("mu"), 1, shape=3).sum(), scale=1.0, observed=3.0)


def categories():
    c = pm.Categorical("c", pm.Dirichlet("p", np.ones(3)), shape=6)
    dp.RandomizedResponse("z", c, epsilon=0.5, observed=np.array([0, 2, 2, 1, 2, 2]))


def counts():
    c = pm.Multinomial("c", 20, pm.Dirichlet("p", np.ones(4)))
    dp.DiscreteGaussianMechanism("z", c, sigma=2, observed=[7, 7, 4, 2])


def people():
    y = pm.Categorical("y", pm.Dirichlet("p", np.ones(3)), shape=9)
    query = dp.record_sum(pm.math.eq(y[:, None], np.arange(3)))
    dp.LaplaceMechanism("z", query, scale=2.0, observed=[3.0, 2.0, 4.0])


def mixture(observed=None):
    labels = dp.ChineseRestaurantProcess("labels", concentration=1, shape=4, max_components=4)
    mu = pm.Normal("mu", 0, 3, shape=4)
    y = pm.Normal("y", mu[labels], 1, observed=observed)
    if observed is None:
        dp.LaplaceMechanism("z", y, epsilon=5, bounds=(-10, 10), observed=KNOWN)


def known():
    mixture(KNOWN)


def confidential():
    law = pm.Normal.dist(pm.Normal("mu", 0, 2), 1)
    dp.ConfidentialLikelihood("x", law, data=normal_rows(30), clip=2.0, clip_gradient=2.0)


# Each step, a model for it, and what it needs besides.
STEPS = {
    dp.RecordImputation: (normal, {}),
    dp.AncillaryUpdate: (normal, {}),
    dp.ConjugateUpdate: (categories, {}),
    dp.CollapsedUpdate: (categories, {}),
    dp.TableImputation: (counts, {}),
    dp.TabulatedImputation: (people, {}),
    dp.PrivateNeal5: (mixture, {}),
    dp.PrivateSlice: (mixture, {}),
    dp.AtomUpdate: (mixture, {}),
    dp.Neal2: (known, {}),
    dp.Neal3: (known, {}),
    dp.Neal8: (known, {}),
    dp.SplitMerge: (known, {}),
    dp.PenaltyMetropolis: (confidential, NOISE),
    dp.MinibatchPenalty: (confidential, {**NOISE, "batch_size": 5}),
    dp.BarkerMetropolis: (confidential, {**NOISE, "batch_size": 5}),
    dp.PrivateHMC: (confidential, {**NOISE, "step_size": 0.05}),
}
EXTRAS = ("other", "whole")
# The only extra variable that a step moves: AncillaryUpdate walks along real numbers beside the parameters.
MOVED_TOO = {(dp.AncillaryUpdate, "other")}


@cache
def built(declare):
    with pm.Model() as model:
        declare()
        bystanders()
    return model


def given(step, names=None):
    declare, options = STEPS[step]
    model = built(declare)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what noise with a seed says
        return step(None if names is None else [model[n] for n in names], model=model, **options)


@cache
def default(step):
    return given(step)


def own(step):
    return [default(step).model.values_to_rvs[v].name for v in default(step).vars]


def check_moves(step):
    """Every value that the step takes changes within some draws."""
    step.setup_chain(np.random.default_rng(3), 20, 180)
    first = point = step.model.initial_point()
    still = {v.name for v in step.vars}
    for _ in range(200):
        point = step.step(point)[0]
        still = {name for name in still if np.array_equal(point[name], first[name])}
        if not still:
            return
    raise AssertionError(f"{type(step).__name__} does not move {still}")


def test_all_steps_are_here():
    public = {getattr(dp, name) for name in dp.__all__}
    steps = {s for s in public if isinstance(s, type) and issubclass(s, BlockedStep)}
    assert steps == set(STEPS)
    assert {s for s in STEP_METHODS if s.__module__.startswith("pymc_dp")} <= steps


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
def test_what_is_taken_moves(step):
    check_moves(default(step))


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
def test_what_does_not_move_is_refused(step):
    """Alone, where there is nothing else to move, and beside what the step is for."""
    for names in (["other"], *([*own(step), extra] for extra in EXTRAS)):
        if len(names) > 1 and (step, names[-1]) in MOVED_TOO:
            check_moves(given(step, names))
            continue
        with pytest.raises(ValueError, match=rf"\b{names[-1]} in `vars`|'{names[-1]}' is no parameter"):
            given(step, names)


def test_noise_levels_and_records_are_no_parameters():
    """What is behind a release but not behind a record; and records, without what would move them."""
    with pm.Model():
        level = pm.Gamma("level", 3, 2)
        y = pm.Normal("y", pm.Normal("mu"), 1, shape=3)
        dp.LaplaceMechanism("z", y.sum(), scale=level, observed=3.0)
        for left in (level, y):
            with pytest.raises(ValueError, match=rf"{left.name} in `vars`: AncillaryUpdate does not move"):
                dp.AncillaryUpdate([left])


def test_records_of_another_block_are_refused():
    with pm.Model() as model:
        mu, nu = pm.Normal("mu"), pm.Normal("nu")
        for name, mean, n in (("x", mu, 2), ("y", nu, 3)):
            y = pm.Normal(name, mean, 1, shape=n)
            dp.LaplaceMechanism(f"z_{name}", y.sum(), scale=1.0, observed=3.0)
        with pytest.raises(ValueError, match="y in `vars`: AncillaryUpdate does not move"):
            dp.AncillaryUpdate([mu, model["y"]])
        check_moves(dp.AncillaryUpdate([mu, model["x"]]))
        check_moves(dp.AncillaryUpdate([mu, nu, model["x"], model["y"]]))


def test_values_of_a_latent_kernel_belong_to_others():
    with pm.Model() as model:
        labels = dp.ChineseRestaurantProcess("labels", concentration=1, shape=4, max_components=4)
        y = pm.Normal("y", pm.Normal("mu", 0, 3, shape=4)[labels], 1)
        pm.Normal("seen", y, 1, observed=KNOWN)
        for make in (dp.Neal8, dp.SplitMerge):
            with pytest.raises(ValueError, match=rf"y in `vars`: {make.__name__} does not move"):
                make([labels, y])
            check_moves(make([labels, model["mu"]]))  # atoms move with the labels


def test_the_remedy_works():
    with built(normal):
        with pytest.raises(ValueError, match=r"pm.sample chooses steps for all variables that no given step"):
            dp.AncillaryUpdate([built(normal)["other"]])
        idata = pm.sample(
            20, tune=20, chains=1, step=[dp.AncillaryUpdate()], random_seed=1, progressbar=False, quiet=True
        )
    assert all(float(idata.posterior[name].std()) > 0 for name in ("mu", "y", *EXTRAS))
