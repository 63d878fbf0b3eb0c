"""The life of the steps of mixtures: who takes what, a seed, a state to continue from, too few slots."""

import logging
from copy import deepcopy
from functools import cache

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_dp as dp
from pymc_dp.step_methods.block.program import RecordProgram
from pymc_dp.step_methods.discovery import record_blocks, table_blocks
from pymc_dp.step_methods.mixture.counters import ACCEPTED, FIRST_SPLIT, PROPOSED, SPLIT_KINDS
from pymc_dp.step_methods.mixture.step import lowered_mixture, private_mixtures
from tests.mixtures.life import check_begins_anew, check_continues, equal, keep_alive, run
from tests.mixtures.samplers import ALL_SAMPLERS, fresh_splits

Z = np.array([-4.0, -3.2, 0.3, 2.5, 6.0, 7.9])
STEPS = {
    "joint": lambda: dp.PrivateNeal5(moves="joint", n_cycles=2),
    "auto": lambda: dp.PrivateNeal5(n_auxiliary=2, n_cycles=2),
    "slice": lambda: dp.PrivateSlice(n_cycles=2),
    "atoms": lambda: dp.AtomUpdate(),
}


@cache
def mixture(slots=8):
    """One atom with a known law, one that is learnt, a concentration."""
    with pm.Model() as model:
        alpha = pm.Gamma("alpha", 2, 2)
        labels = dp.ChineseRestaurantProcess("labels", concentration=alpha, shape=6, max_components=slots)
        mu = pm.Normal("mu", 0, 4, shape=slots)
        sd = pm.HalfNormal("sd", 1, shape=slots)
        y = pm.Normal("y", mu[labels], sd[labels])
        dp.LaplaceMechanism("z", y, scale=1.0, observed=Z)
    return model


def step_of(name):
    with mixture():
        return keep_alive(STEPS[name]())


@pytest.mark.statistical  # compiles
@pytest.mark.parametrize("name", STEPS)
def test_state_continues_identically(name):
    check_continues(lambda: step_of(name), mixture().initial_point(), "mu", least=20)


@pytest.mark.compiles(1)
@pytest.mark.parametrize("name", STEPS)
def test_no_chain_learns_from_the_one_before(name):
    check_begins_anew(lambda: step_of(name), mixture().initial_point())


@pytest.mark.compiles(1)
@pytest.mark.parametrize("name", STEPS)
def test_nothing_is_learnt_after_tuning(name):
    step = step_of(name)
    step.setup_chain(np.random.default_rng(3), 50, 50)
    point = run(step, mixture().initial_point(), 50)[-1][0]
    step.stop_tuning()
    (learnt,), rates = deepcopy(step.learnt), deepcopy(getattr(step, "rates", None))
    run(step, point, 50)
    assert learnt.any() and np.array_equal(learnt, step.learnt[0])
    assert rates is None or np.array_equal(rates, step.rates)


@pytest.mark.compiles(1)
@pytest.mark.parametrize("sampler", ALL_SAMPLERS)
def test_everything_moves(sampler):
    """A kernel that leaves something alone is right about everything else."""
    with mixture():
        steps = keep_alive(ALL_SAMPLERS[sampler]())
    point, seen = mixture().initial_point(), []
    for step in steps:
        step.setup_chain(np.random.default_rng(4), 100, 400)
    for t in range(500):
        for step in steps:
            if t == 100:
                step.stop_tuning()
            point, _ = step.step(point)
        seen.append(point)
    for name in ("labels", "mu", "sd_log__", "y"):
        values = np.array([p[name] for p in seen[100:]])
        assert (values.std(axis=0) > 0).all()
        assert len(np.unique(values[:, 0])) > (5 if name == "labels" else 30)
    slots = np.array([p["labels"] for p in seen])
    assert set(np.unique(slots)) == set(range(8))


@pytest.mark.statistical
def test_two_mixtures_in_one_block_of_records():
    """They had the kernels of the first one in common."""
    with pm.Model() as model:
        y = []
        for name in "ab":
            labels = dp.ChineseRestaurantProcess(f"labels {name}", 1.0, shape=4, max_components=5)
            mu = pm.Normal(f"mu {name}", 0, 2, shape=5)
            y.append(pm.Normal(f"y {name}", mu[labels], 1))
        dp.LaplaceMechanism("z", y[0] + y[1], scale=1.0, observed=Z[:4])
        steps = [dp.PrivateNeal5(n_cycles=1), dp.AtomUpdate()]
    point, seen = model.initial_point(), []
    for step in steps:
        step.setup_chain(np.random.default_rng(4), 0, 100)
    for _ in range(100):
        for step in steps:
            point, _ = step.step(point)
        seen.append(point)
    for name in point:
        assert (np.array([p[name] for p in seen]).std(axis=0) > 0).all(), name


@pytest.mark.statistical
def test_default_steps(caplog):
    """Labels and records, then atoms; the concentration is left to others. Nothing warns of slow mixing."""
    caplog.set_level(logging.INFO)
    with mixture():
        pm.sample(20, tune=20, chains=1, cores=1, random_seed=1, progressbar=False)
    told = caplog.text
    assert "PrivateNeal5: [labels, y]" in told
    assert "AtomUpdate: [mu, sd]" in told
    assert "NUTS: [alpha]" in told


@pytest.fixture(scope="module")
def sampled():
    def sample(**kwargs):
        kwargs = {"chains": 2, "cores": 1, "random_seed": 5, **kwargs}
        with mixture():
            return pm.sample(30, tune=30, progressbar=False, compute_convergence_checks=False, **kwargs)

    return sample, sample()


def test_same_seed_same_draws(sampled):
    sample, first = sampled
    assert equal(sample(), first)
    assert not equal(sample(random_seed=6), first)
    # chains differ, and what they start from too
    assert not np.array_equal(first.posterior["labels"][0], first.posterior["labels"][1])


@pytest.mark.filterwarnings("ignore:.*fork")
def test_several_processes_draw_the_same(sampled):
    sample, first = sampled
    assert equal(sample(cores=2), first)


def test_records_are_imputed_and_stay_out_of_everything_else(sampled):
    _, first = sampled
    assert first.posterior["y"].shape == (2, 30, 6)
    for group in first.groups() if callable(first.groups) else first.groups:
        if group.strip("/") not in ("posterior", ""):
            names = list(first[group.strip("/")].data_vars)
            assert not [v for v in names if v in ("y", "labels", "mu", "sd")], group
    stats = first.sample_stats
    k = [[len(np.unique(draw)) for draw in chain] for chain in first.posterior["labels"].values]
    assert np.array_equal(stats["n_clusters"].values.reshape(2, 30), k)
    assert ((stats["labels_moved"] >= 0) & (stats["labels_moved"] <= 1)).all()


def chosen(release, accepted, kernel=pm.Normal):
    """Kinds of splits after tuning, where joint proposals were accepted so often."""
    with pm.Model():
        labels = dp.ChineseRestaurantProcess("labels", 1.0, shape=6, max_components=8)
        release(kernel("y", pm.Normal("mu", 0, 3, shape=8)[labels], 1))
        step = dp.PrivateNeal5()
    step.setup_chain(np.random.default_rng(1), 10, 10)
    for kind in range(3):  # as often as the others
        step.rates[0, FIRST_SPLIT + 2 * kind : FIRST_SPLIT + 2 * kind + 2] = 20, 100
    step.rates[0, [ACCEPTED, PROPOSED]] = 1000 * accepted, 1000
    step.stop_tuning()
    return {kind for kind, n in zip(SPLIT_KINDS, step._shares(0).splits, strict=True) if n}


@pytest.mark.statistical
def test_splits_that_fit_the_releases():
    def local(y):
        dp.LaplaceMechanism("z", y, scale=1.0, observed=Z)

    def central(y):
        dp.GaussianMechanism("z", dp.record_sum(pt.clip(y, -9, 9)), sigma=20.0, observed=9.5)

    # closed releases; those that are not; sums, of which records cannot be drawn anew one by one
    assert [chosen(local, a) for a in (0.9, 0.5, 0.1)] == [{"fresh"}, {"released"}, {"released", "kept"}]
    assert [chosen(local, a, pm.Laplace) for a in (0.9, 0.5, 0.1)] == [{"fresh"}, {"fresh"}, {"kept"}]
    assert [chosen(central, a) for a in (0.9, 0.1)] == [{"kept"}, {"kept"}]


def test_splits_are_proposed_where_no_slot_is_free():
    """It is no error unless one is accepted: three clusters far from each other stay."""
    centres = np.repeat([-40.0, 0.0, 40.0], 4)
    with pm.Model() as model:
        labels = dp.ChineseRestaurantProcess("labels", 1e-6, shape=12, max_components=3)
        mu = pm.Normal("mu", 0, 30, shape=3)
        dp.LaplaceMechanism("z", pm.Normal("y", mu[labels], 1), scale=1.0, observed=centres)
        steps = fresh_splits()
    start = {"labels": np.repeat([0, 1, 2], 4), "y": centres, "mu": np.array([-40.0, 0.0, 40.0])}
    point = {**model.initial_point(), **start}
    for step in steps:
        step.setup_chain(np.random.default_rng(1), 10, 10)
    for _ in range(50):
        for step in steps:
            point, _ = step.step(point)
    assert len(np.unique(point["labels"])) == 3


@pytest.mark.statistical
@pytest.mark.parametrize("sampler", ["conditional", "joint of 2", "slice"])
def test_too_few_slots(sampler):
    """Said when a new cluster finds none, with what to do about it."""
    with pm.Model() as model:
        labels = dp.ChineseRestaurantProcess("labels", concentration=50, shape=6, max_components=3)
        mu = pm.Normal("mu", 0, 5, shape=3)
        dp.LaplaceMechanism("z", pm.Normal("y", mu[labels], 1), scale=1.0, observed=Z)
        steps = ALL_SAMPLERS[sampler]()
    point = model.initial_point()
    for step in steps:
        step.setup_chain(np.random.default_rng(1), 10, 10)
    with pytest.raises(ValueError, match=r"All 3 slots of labels are occupied .* raise max_components"):
        for _ in range(200):
            for step in steps:
                point, _ = step.step(point)


@pytest.mark.statistical
@pytest.mark.parametrize("sampler", ["slice", "auto"])
def test_as_many_components_as_slots_is_no_error(sampler):
    with pm.Model() as model:
        labels = dp.ChineseRestaurantProcess("labels", concentration=2, n_components=3, shape=6)
        mu = pm.Normal("mu", 0, 5, shape=3)
        dp.LaplaceMechanism("z", pm.Normal("y", mu[labels], 1), scale=1.0, observed=Z)
        steps = ALL_SAMPLERS[sampler]()
    point = model.initial_point()
    for step in steps:
        step.setup_chain(np.random.default_rng(1), 10, 10)
    for _ in range(100):
        for step in steps:
            point, _ = step.step(point)
    assert len(np.unique(point["labels"])) <= 3


KNOWN = {
    "sd as a power of a precision": (
        lambda c: pm.Normal("y", 0, pm.Gamma("t", 2, 1, shape=8)[c] ** -0.5),
        ([], None, [(0, "gamma")], []),
    ),
    "variance in logarithms": (
        lambda c: pm.Normal("y", 0, pt.exp(0.5 * pt.log(pm.InverseGamma("v", 2, 1, shape=8)))[c]),
        ([], None, [(0, "inverse gamma")], []),
    ),
    "scale of exponentials": (
        lambda c: pm.Exponential("y", scale=pm.InverseGamma("v", 2, 1, shape=8)[c]),
        ([], None, [(0, "inverse gamma")], []),
    ),
    "geometric": (lambda c: pm.Geometric("y", pm.Beta("p", 2, 3, shape=8)[c]), ([], None, [(0, "beta")], [])),
    "exponential base": (
        lambda c: pm.Poisson("y", pm.Exponential("r", 1, shape=8)[c]),
        ([], None, [(0, "gamma")], []),
    ),
    "a mean above the mean": (
        lambda c: pm.Normal("y", pm.Normal("m", pm.Normal("m0", shape=8), 1, shape=8)[c], 1),
        ([0, 1], None, [], []),
    ),
    "a variance above the means only": (
        lambda c: pm.Normal(
            "y", pm.Normal("m", 0, pt.sqrt(pm.InverseGamma("v", 2, 1, shape=8)), shape=8)[c], 1
        ),
        ([1], None, [(0, "inverse gamma")], []),
    ),
    "half-normal mean": (lambda c: pm.Normal("y", pm.HalfNormal("m", 2, shape=8)[c], 1), ([], None, [], [0])),
    "truncated mean": (
        lambda c: pm.Normal("y", pm.TruncatedNormal("m", 0, 2, lower=-1, upper=1, shape=8)[c], 1),
        ([], None, [], [0]),
    ),
    "absolute mean": (lambda c: pm.Normal("y", abs(pm.Normal("m", shape=8)[c]), 1), ([], None, [], [0])),
    "rounded mean": (lambda c: pm.Normal("y", pt.round(pm.Normal("m", shape=8)[c]), 1), ([], None, [], [0])),
    "Laplace base": (lambda c: pm.Normal("y", pm.Laplace("m", 0, 1, shape=8)[c], 1), ([], None, [], [0])),
    "heavy-tailed kernel": (
        lambda c: pm.StudentT("y", 4, mu=pm.Normal("m", shape=8)[c], sigma=1),
        ([], None, [], [0]),
    ),
    "sd as a gamma number": (
        lambda c: pm.Normal("y", 0, pm.Gamma("s", 2, 1, shape=8)[c]),
        ([], None, [], [0]),
    ),
}


@pytest.mark.statistical  # compiling each takes some seconds
@pytest.mark.parametrize(("declare", "laws"), KNOWN.values(), ids=KNOWN)
def test_laws_of_atoms(declare, laws):
    """Recognised whichever way a model writes them; others are not taken for them."""
    with pm.Model() as model:
        y = declare(dp.ChineseRestaurantProcess("labels", 1.0, shape=4, max_components=8))
        dp.LaplaceMechanism("z", y, scale=1.0, observed=np.ones(4))
    ((of, block),) = private_mixtures(model)  # without the kernels of a step, which take longest
    found = lowered_mixture(RecordProgram(model, block), of).laws
    assert (found.normal, found.scale, found.single, found.other) == laws


@pytest.mark.parametrize("labels", ["process", "categories"])
def test_counts_with_labels_are_records(labels):
    """However closely noise tells them: beside a table nothing would move the labels."""
    counts = np.array([3, 40, 44, 2, 51, 5])
    with pm.Model() as model:
        rate = pm.Gamma("rate", 2, 0.1, shape=8)
        if labels == "process":
            c = dp.ChineseRestaurantProcess("labels", 1.0, shape=6, max_components=8)
        else:
            c = pm.Categorical("labels", p=np.full(8, 0.125), shape=6)
        y = pm.Poisson("y", rate[c], shape=6)
        dp.DiscreteLaplaceMechanism("z", y, scale=0.02, observed=counts)
    assert not table_blocks(model)
    ((*records,),) = [block.names for block in record_blocks(model)]
    assert "y" in records
    assert bool(private_mixtures(model)) == (labels == "process")
