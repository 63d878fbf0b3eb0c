"""Chains that floating point cuts off, and flat parameters that run off together, are told or refused."""

from __future__ import annotations

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import special, stats

import pymc_dp as dp
from pymc_dp.step_methods.near_ends import NearEnds, ends_of
from tests.statistics.harness import mc_z
from tests.statistics.marginal import from_log_density

pytestmark = pytest.mark.compiles(2)


def shares(prior):
    """Kumaraswamy records, which round to 1 under a small second shape."""
    t = pm.Normal("t", *prior)
    y = pm.Kumaraswamy("y", 2.0, pt.exp(t), shape=2)
    dp.LaplaceMechanism("z", y, scale=0.3, bounds=(0, 1), observed=np.array([1.0, 0.05]))


def sizes(prior):
    t = pm.Normal("t", *prior)
    y = pm.LogNormal("y", 0, pt.exp(t), shape=2)
    dp.LaplaceMechanism("z", y, scale=0.3, bounds=(0, 1), observed=np.array([1.0, 0.05]))


@pytest.mark.statistical
@pytest.mark.parametrize("declare", [shares, sizes])
@pytest.mark.parametrize("step", [None, dp.RecordImputation], ids=["default", "NUTS"])
def test_a_posterior_that_is_cut_off_is_told(declare, step, caplog):
    """The mean of t is -2.65, not -1.6: what is beyond floating point cannot be drawn, but it can be said."""
    for prior, cut in (((0, 0.1), False), ((-3, 2) if declare is shares else (5, 2), True)):
        caplog.clear()
        with pm.Model():
            declare(prior)
            pm.sample(
                1000, tune=500, chains=1, cores=1, random_seed=1, progressbar=False,
                compute_convergence_checks=False, step=None if step is None else [step()],
            )  # fmt: skip
        assert ("near the limits of floating point" in caplog.text) == cut


def test_what_is_near_an_end_is_counted(caplog):
    with pm.Model() as model:
        low = pm.HalfNormal("low")
        laws = [
            pm.Beta("share", 1, 1, shape=3), pm.Gamma("size", 1, 1, shape=3), pm.Normal("number", 0, 1),
            pm.Uniform("between", low, 4, shape=3), pm.Poisson("count", 1, shape=3),
        ]  # fmt: skip
    ends = ends_of(model, laws)
    assert [name for name, *_ in ends] == ["share_logodds__", "size_log__", "number", "between_interval__"]
    point = {name: np.zeros(3) for name, *_ in ends}
    near = NearEnds(ends, "{number} of {name}")
    for _ in range(99):
        near.look(point)
    near.look({**point, "share_logodds__": np.array([36.0, -5.0, 36.0])})
    near.say()
    assert caplog.messages == ["0.02 of share_logodds__"]


@pytest.mark.statistical
def test_flat_parameters_that_run_off_together_are_refused():
    with pm.Model():
        a, b = pm.Flat("a"), pm.Flat("b")
        y = pm.Normal("y", a + b * np.array([-1.0, 0, 1, 2]), 1)
        dp.LaplaceMechanism("z", dp.record_sum(y), scale=1, observed=1.0)
        with pytest.raises(ValueError, match=r"a, b ran beyond .* give them proper laws"):
            pm.sample(1000, tune=500, chains=1, cores=1, random_seed=1, progressbar=False)
    with pm.Model():
        a = pm.Flat("a")
        dp.LaplaceMechanism("z", dp.record_sum(pm.Normal("y", a, 1, shape=4)), scale=1, observed=1e12)
        idata = pm.sample(500, tune=500, chains=1, cores=1, random_seed=1, progressbar=False)
    assert float(idata.posterior["a"].mean()) == pytest.approx(2.5e11, rel=1e-6)


FAR = np.array([16.0, 18.0, 15.5, 17.0, 19.0, 16.5])


def far_counts(least, beyond=0):
    """Declare six counts from 15 on, or from further on, whose law has a mean near one."""
    mean = pm.Truncated("mean", pm.Exponential.dist(1.0), lower=least)
    ends = {"lower": 15 + beyond, "upper": 22 + beyond}
    y = pm.Truncated("y", pm.Poisson.dist(mean), **ends, shape=6)
    dp.LaplaceMechanism("z", y, scale=2.0, observed=FAR + beyond)


def far_posterior(mean):
    """Log density of the mean of :func:`far_counts` given their release."""
    k = np.arange(15, 23)
    logp = stats.poisson.logpmf(k, np.asarray(mean)[..., None])
    logp -= special.logsumexp(logp, axis=-1, keepdims=True)
    return -mean + np.log(np.exp(logp) @ np.exp(-np.abs(FAR[:, None] - k) / 2).T).sum(axis=-1)


def sampled(draws, chains, seed, step=None):
    settings = {"chains": chains, "cores": 1, "random_seed": seed, "progressbar": False}
    return pm.sample(draws, tune=500, step=step, compute_convergence_checks=False, **settings)


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.statistical)])
@pytest.mark.parametrize("least", [0.0, pytest.param(0.8, marks=pytest.mark.statistical)])
def test_counts_far_out_in_a_tail_have_their_posterior(seed, least):
    """PyMC's density of counts from 15 on is infinite where their mean is below .5, and rough below 2."""
    with pm.Model():
        far_counts(least)
        idata = sampled(2000, 2, seed)
    exact = from_log_density(far_posterior, least, least + 40)
    assert mc_z(idata.posterior["mean"].to_numpy(), exact).passed


def test_counts_too_far_out_are_refused_by_name():
    """From 150 on is under 1e-307 of a law with a mean below .4."""
    with pm.Model():
        far_counts(0.0, beyond=135)
        with pytest.raises(ValueError, match=r"density of y is no number: .* far out in a tail. Give the"):
            sampled(2000, 1, 1)
    with pm.Model():
        far_counts(2.0, beyond=135)  # the remedy
        sampled(500, 1, 1)


@pytest.mark.statistical
@pytest.mark.parametrize(("least", "told"), [(0.0, True), (3.0, False)])
def test_what_other_steps_move_by_a_density_without_digits_is_told(least, told, caplog):
    with pm.Model() as model:
        far_counts(least)
        sampled(1000, 1, 1, [dp.RecordImputation([model["y"]]), pm.Metropolis([model["mean"]])])
    assert any("has lost its digits at" in message for message in caplog.messages) == told
