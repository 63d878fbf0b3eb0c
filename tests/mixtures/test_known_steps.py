"""The life of the samplers of known records: a seed, a state to continue from, several processes, pickles."""

from __future__ import annotations

from functools import cache

import numpy as np
import pymc as pm
import pytest

import pymc_dp as dp
from tests.mixtures.life import check_begins_anew, check_continues, equal, keep_alive, run
from tests.mixtures.samplers import ALL_KNOWN

pytestmark = pytest.mark.statistical

Y = np.array([-4.0, -3.2, 0.3, 2.5, 6.0, 7.9])
# One of each kind of kernel: what they compile has much in common.
SAMPLERS = ("neal 2", "neal 3", "neal 8", "split-merge", "split-merge of neal 8")


@cache
def mixture(slots=8):
    """Atoms that integrate out, a concentration."""
    with pm.Model() as model:
        alpha = pm.Gamma("alpha", 2, 2)
        labels = dp.ChineseRestaurantProcess("labels", concentration=alpha, shape=6, max_components=slots)
        s2 = pm.InverseGamma("s2", 3, 3, shape=slots)
        mu = pm.Normal("mu", 0, pm.math.sqrt(10 * s2), shape=slots)
        pm.Normal("y", mu[labels], pm.math.sqrt(s2[labels]), observed=Y)
    return model


def labels_step(sampler):
    with mixture():
        return keep_alive(ALL_KNOWN[sampler]())[0]


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_state_continues_identically(sampler):
    check_continues(lambda: labels_step(sampler), mixture().initial_point(), "labels", least=5)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_no_chain_learns_from_the_one_before(sampler):
    check_begins_anew(lambda: labels_step(sampler), mixture().initial_point())


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_everything_moves(sampler):
    """Labels reach every slot; atoms of slots that nobody is in are drawn again."""
    step = labels_step(sampler)
    step.setup_chain(np.random.default_rng(4), 100, 400)
    seen = [point for point, _ in run(step, mixture().initial_point(), 500)[100:]]
    labels = np.array([p["labels"] for p in seen])
    assert (labels.std(axis=0) > 0).all()
    assert set(np.unique(labels)) == set(range(8))
    if {"mu", "s2_log__"} <= {v.name for v in step.vars}:
        assert all((np.std([p[name] for p in seen], axis=0) > 0).all() for name in ("mu", "s2_log__"))


@pytest.mark.filterwarnings("ignore:.*fork")
@pytest.mark.parametrize("sampler", ["neal 3", "neal 8", "split-merge"])
def test_seeds_and_processes(sampler):
    def sample(seed=5, cores=1):
        with mixture():
            return pm.sample(
                30, tune=30, chains=2, cores=cores, random_seed=seed, step=ALL_KNOWN[sampler](),
                progressbar=False, compute_convergence_checks=False,
            )  # fmt: skip

    first = sample()
    assert equal(sample(), first)
    assert equal(sample(cores=2), first)
    assert not equal(sample(seed=6), first)
    assert not np.array_equal(first.posterior["labels"][0], first.posterior["labels"][1])
