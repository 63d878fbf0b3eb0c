"""What is said of convergence where PyMC warns of labels and atoms, which it does of every good run."""

from __future__ import annotations

import logging

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from pymc.sampling import mcmc
from pymc.stats.convergence import WarningType

import pymc_dp as dp
from pymc_dp.step_methods.slot_checks import numbered_by_slots

N, H, CHAINS, DRAWS = 8, 8, 4, 400


def model_of(two_kernels=False, confidential=False, alpha=True):
    with pm.Model() as model:
        concentration = pm.Gamma("alpha", 2, 2) if alpha else 1.0
        labels = dp.ChineseRestaurantProcess("c", concentration=concentration, shape=N, max_components=H)
        mu = pm.Normal("mu", shape=H)
        if confidential:
            dp.LaplaceMechanism("z", pm.Normal("y", mu[labels], 1), scale=1, observed=np.zeros(N))
        else:
            pm.Normal("y", mu[labels], 1, observed=np.zeros(N))
        if two_kernels:
            pm.Normal("x", mu[labels], 1, observed=np.zeros(N))
    return model


def draws(stuck=(), clusters=True):
    """Independent draws of all; of those that are stuck, each chain at a place of its own."""
    rng = np.random.default_rng(1)
    shapes = {"alpha": (), "c": (N,), "mu": (H,), "y": (N,)}
    found = {}
    for name, shape in shapes.items():
        spread = 0.1 if name in stuck else 3.0
        place = np.arange(CHAINS).reshape(CHAINS, 1, *[1] * len(shape))
        values = place * (name in stuck) + spread * rng.normal(size=(CHAINS, DRAWS, *shape))
        found[name] = ("chain", "draw", *[f"{name}_{k}" for k in range(len(shape))]), values
    k = np.arange(CHAINS)[:, None] * ("k" in stuck) + rng.integers(3, 6, size=(CHAINS, DRAWS))
    stats = {"n_clusters": (("chain", "draw"), k)} if clusters else {}
    return xr.DataTree.from_dict({"posterior": xr.Dataset(found), "sample_stats": xr.Dataset(stats)})


def said_of(idata, model):
    """What is added to PyMC's own warnings, and at which level."""
    found = mcmc.run_convergence_checks(idata, model)
    own = mcmc.run_convergence_checks.__wrapped__(idata, model)
    assert found[: len(own)] == own or [w.message for w in found[: len(own)]] == [w.message for w in own]
    return [(w.level, w.message) for w in found[len(own) :]]


GOOD, BAD = "passed", "did not pass: sample longer"
CASES = {
    "slots alone": (("c", "mu"), "info", f"alpha and the number of clusters {GOOD}", BAD),
    "a parameter too": (("c", "mu", "alpha"), "warn", f"alpha {BAD}", None),
    "the number of clusters too": (("c", "mu", "k"), "warn", f"the number of clusters {BAD}", None),
    "both": (("c", "alpha", "k"), "warn", f"alpha and the number of clusters {BAD}", GOOD),
}


@pytest.mark.parametrize("case", CASES)
def test_which_numbers_passed(case):
    stuck, level, words, other = CASES[case]
    ((found, message),) = said_of(draws(stuck), model_of())
    assert found == level and words in message and (other is None or other not in message)
    assert (
        message.startswith("c and mu are numbered by slots")
        and "r_hat and ess of dp.mixture_density" in message
    )


def test_records_behind_a_mechanism_are_not_numbered_by_slots():
    """Their draws have a meaning, and count."""
    model = model_of(confidential=True)
    ((level, message),) = said_of(draws(("c", "mu", "y")), model)
    assert numbered_by_slots(model) == ["c", "mu"]
    assert level == "warn" and f"y {BAD}" in message


def test_nothing_is_said_where_pymc_says_nothing():
    assert said_of(draws(), model_of()) == []
    with pm.Model() as plain:
        pm.Normal("alpha")
    assert said_of(draws(("alpha",)), plain) == []
    only = draws(("alpha",))
    only["posterior"] = only.posterior.dataset[["alpha"]]  # of a run with var_names=["alpha"]
    assert said_of(only, model_of()) == []


def test_where_nothing_else_was_checked():
    """No claim that something passed: labels alone, given to a step of others, and one number of clusters."""
    for clusters in (draws(("c", "mu"), clusters=False), draws(("c", "mu"))):
        if "n_clusters" in clusters.sample_stats:
            clusters.sample_stats["n_clusters"][:] = 2
        ((level, message),) = said_of(clusters, model_of(alpha=False))
        assert level == "info" and GOOD not in message and BAD not in message
        assert "Look at r_hat" in message


def test_a_model_that_our_steps_refuse():
    model = model_of(two_kernels=True)
    assert numbered_by_slots(model) == ["c"]
    ((_, message),) = said_of(draws(("c",)), model)
    assert message.startswith("c is numbered by slots")


@pytest.mark.statistical
def test_it_is_printed(caplog):
    """After PyMC's warnings, by the default steps."""
    caplog.set_level(logging.INFO, logger="pymc")
    data = np.concatenate([np.linspace(-8, -5, 20), np.linspace(5, 8, 20)])  # which nothing can take apart
    with pm.Model():
        labels = dp.ChineseRestaurantProcess("labels", concentration=1, shape=40, max_components=20)
        mu = pm.Normal("mu", 0, 5, shape=20)
        pm.Normal("y", mu[labels], 1, observed=data)
        pm.sample(600, tune=300, chains=4, cores=1, random_seed=1, progressbar=False)
    told = [r.getMessage() for r in caplog.records]
    assert any("rhat statistic is larger" in words for words in told)
    assert told[-1].startswith("labels and mu are numbered by slots")
    assert "the number of clusters passed" in told[-1]
    assert [r.levelno for r in caplog.records][-1] == logging.INFO


def test_kinds_of_warnings():
    """A look at PyMC's report finds it among those of convergence."""
    found = mcmc.run_convergence_checks(draws(("c", "mu")), model_of())
    assert found[-1].kind is WarningType.CONVERGENCE
