"""Parameters that several blocks of records read: exact answers, joint law, calibration, planted faults."""

from __future__ import annotations

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import stats

import pymc_dp as dp
from pymc_dp.step_methods import shared_parameters
from tests.marginals.test_noisy_sums import normal_laplace
from tests.statistics import harness
from tests.statistics.drive import StepKernel
from tests.statistics.marginal import from_log_density
from tests.statistics.models import metropolis, normal_mean
from tests.statistics.stat_model import StatModel
from tests.statistics.test_sbc import calibration

pytestmark = pytest.mark.statistical

ALPHA = 1e-4
QUIET = {"cores": 1, "progressbar": False, "quiet": True, "compute_convergence_checks": False}


@pytest.mark.parametrize("scale", [2.0, 60.0])
def test_a_mean_behind_two_sums(scale):
    """Two surveys of one mean: their sums are normal, their noise Laplace."""
    n, sd, z = (40, 25), np.array([1.0, 2.0]), np.array([50.0, 18.0])
    with pm.Model():
        mu = pm.Normal("mu", 0, 2)
        for k in range(2):
            y = pm.Normal(f"y{k}", mu, sd[k], shape=n[k])
            dp.LaplaceMechanism(f"z{k}", y.sum(), scale=scale, observed=z[k])
        idata = pm.sample(3000, tune=1000, chains=2, random_seed=4, **QUIET)

    def log_density(mu):
        means = np.multiply.outer(mu, n)
        sums = normal_laplace(z - means, sd * np.sqrt(n), np.full(2, scale))
        return stats.norm.logpdf(mu, 0, 2) + sums.sum(axis=-1)

    exact = from_log_density(log_density, -8, 8, refine=False)
    verdict = harness.mc_z(idata.posterior["mu"].values, exact, minimum_ess=1500)
    assert verdict.passed, verdict


def test_coefficients_that_blocks_share_in_part():
    """Three blocks, of which the second shares a coefficient with each of the others: all is normal."""
    n, noise = (30, 20, 25), 40.0
    at = np.array([[1.0, 0, 0], [1, 1, 0], [0, 1, 1]])  # of means, by block
    z = np.array([25.0, 70.0, 10.0])
    with pm.Model():
        b = pm.Normal("b", 0, 2, shape=3)
        for k in range(3):
            mean = sum(b[j] for j in np.flatnonzero(at[k]))
            dp.GaussianMechanism(
                f"z{k}", pm.Normal(f"y{k}", mean, 1.5, shape=n[k]).sum(), sigma=noise, observed=z[k]
            )
        step = dp.AncillaryUpdate()
        (blocks,) = step._together
        assert blocks.moving.size == 2  # the last is that of one block
        idata = pm.sample(4000, tune=1000, chains=2, random_seed=5, step=step, **QUIET)
    design = at * np.array(n)[:, None]
    weights = 1 / (np.array(n) * 1.5**2 + noise**2)
    precision = design.T @ (weights[:, None] * design) + np.eye(3) / 4
    mean, sd = (
        np.linalg.solve(precision, design.T @ (weights * z)),
        np.sqrt(np.diag(np.linalg.inv(precision))),
    )
    for k in range(3):
        exact = from_log_density(stats.norm(mean[k], sd[k]).logpdf, mean[k] - 9 * sd[k], mean[k] + 9 * sd[k])
        verdict = harness.mc_z(idata.posterior["b"].values[:, :, k], exact, minimum_ess=600)
        assert verdict.passed, (k, verdict)


def test_areas_in_a_loop():
    """Areas with a mean each, and a mean of these: all is normal. Of an array, each area reads one entry."""
    n, noise, z = (20, 35, 10), 30.0, np.array([30.0, 10.0, -5.0])
    weights = 1 / (np.array(n) * 1.5**2 + noise**2)
    # the mean of all, then those of the areas
    precision = np.diag([1 / 4 + 3, *(1 + np.square(n) * weights)])
    precision[0, 1:] = precision[1:, 0] = -1
    mean = np.linalg.solve(precision, [0, *(n * weights * z)])
    sd = np.sqrt(np.diag(np.linalg.inv(precision)))
    for in_array in (False, True):
        with pm.Model():
            top = pm.Normal("top", 0, 2)
            means = pm.Normal("means", top, 1, shape=3) if in_array else None
            for k in range(3):
                at = means[k] if in_array else pm.Normal(f"mean{k}", top, 1)
                y = pm.Normal(f"y{k}", at, 1.5, shape=n[k])
                dp.GaussianMechanism(f"z{k}", y.sum(), sigma=noise, observed=z[k])
            step = dp.AncillaryUpdate()
            assert ["top" in part.names for part in step._parts] == [True, False, False]
            idata = pm.sample(4000, tune=1000, chains=2, random_seed=6, step=step, **QUIET)
        drawn = idata.posterior
        for k in range(4):
            of_area = drawn["means"].values[:, :, k - 1] if in_array else drawn.get(f"mean{k - 1}")
            values = drawn["top"].values if k == 0 else np.asarray(of_area)
            exact = from_log_density(
                stats.norm(mean[k], sd[k]).logpdf, mean[k] - 9 * sd[k], mean[k] + 9 * sd[k]
            )
            verdict = harness.mc_z(values, exact, minimum_ess=800)
            assert verdict.passed, (in_array, k, verdict)


class TwoSurveys(StatModel):
    """Mean and spread of two groups of people, of whom the second is measured twice as large."""

    parameter_names = ("mu", "log_sd")
    record_names = ("x", "y")
    n = (6, 9)

    def draw_model(self, rng):
        mu, log_sd = rng.normal(0, 1), rng.normal(-0.3, 0.4)
        x, y = (rng.normal(k * mu, np.exp(log_sd), self.n[k - 1]) for k in (1, 2))
        return {"mu": mu, "log_sd": log_sd, "x": x, "y": y}

    def query(self, state):
        t = np.stack([np.clip(state["x"], -2, 2), np.clip(state["x"] ** 2, 0, 4)])
        return {
            "s": (t.sum(1), "laplace", 8 / self.epsilon),
            "t": (state["y"].sum(), "gaussian", 4 / self.epsilon),
        }

    def build(self, release):
        with pm.Model() as model:
            mu = pm.Normal("mu", 0, 1)
            log_sd = pm.Normal("log_sd", -0.3, 0.4)
            x = pm.Normal("x", mu, pt.exp(log_sd), shape=self.n[0])
            y = pm.Normal("y", 2 * mu, pt.exp(log_sd), shape=self.n[1])
            query = dp.record_sum(pt.stack([x, x**2], axis=1))
            dp.LaplaceMechanism(
                "s", query, epsilon=self.epsilon, bounds=[(-2.0, 2.0), (0.0, 4.0)], observed=release["s"]
            )
            dp.GaussianMechanism("t", y.sum(), sigma=4 / self.epsilon, observed=release["t"])
        return model

    def gibbs(self, state, rng):
        x, y, sd = state["x"], state["y"], np.exp(state["log_sd"])
        # records of the second group are worth four of the first, at half of their values
        mu = normal_mean(rng, x.sum() + 2 * y.sum(), self.n[0] + 4 * self.n[1], sd)
        scatter = ((x - mu) ** 2).sum() + ((y - 2 * mu) ** 2).sum()

        def log_density(t):
            return -sum(self.n) * t - 0.5 * scatter * np.exp(-2 * t) - 0.5 * ((t + 0.3) / 0.4) ** 2

        return {**state, "mu": mu, "log_sd": metropolis(rng, state["log_sd"], log_density, 0.4)}


def few_others(model):
    """The move of both blocks, beside as little else as there can be."""
    step = dp.AncillaryUpdate(n_centred=0, n_cycles=1)
    assert len(step._together) == 1
    return [step]


def default(model):
    return [dp.AncillaryUpdate()]


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0, 50.0])
def test_joint_law(epsilon):
    kernel = StepKernel(TwoSurveys(epsilon), few_others, gibbs=True, seed=1)
    verdict = kernel.short_chains(seed=2, alpha=ALPHA)
    assert verdict.passed, verdict


@pytest.mark.parametrize("epsilon", [0.3, 10.0])
def test_calibration(epsilon):
    kernel = StepKernel(TwoSurveys(epsilon), default, gibbs=False, seed=3)
    verdict = calibration(kernel, 200, 4, alpha=ALPHA)
    assert verdict.passed, verdict


def records_left_behind(monkeypatch):
    """Parameters move, and the records do not with them."""
    monkeypatch.setattr(shared_parameters, "give_records", lambda *args: None)
    shared_parameters.give_records.ready = lambda: None


def noise_of_one_block_lost(monkeypatch):
    """Records of a block go to the middle of their law."""
    take, first = shared_parameters.take_noise, []

    def lost(handle, address, theta, data, x, u):
        take(handle, address, theta, data, x, u)
        first.append(address)
        if address == first[0]:
            u[:] = 0.0

    lost.ready = take.ready
    monkeypatch.setattr(shared_parameters, "take_noise", lost)


def prior_counted_twice(monkeypatch):
    original = shared_parameters.Share._factors

    def factors(self, on):
        return original(self, on) + [rv for rv in self.moving if rv not in original(self, on)]

    monkeypatch.setattr(shared_parameters.Share, "_factors", factors)


@pytest.mark.parametrize("plant", [records_left_behind, noise_of_one_block_lost, prior_counted_twice])
def test_joint_law_rejects(plant, monkeypatch):
    """Where privacy is strong, so that parameters go far."""
    plant(monkeypatch)
    kernel = StepKernel(TwoSurveys(0.1), few_others, gibbs=True, seed=1)
    verdict = kernel.short_chains(seed=2, alpha=ALPHA)
    assert verdict.outcome == "rejected", verdict
