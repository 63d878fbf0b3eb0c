"""The harness passes right samplers, rejects wrong ones, and its p-values are near uniform."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import signal, stats

from tests.statistics import harness, oracles
from tests.statistics.marginal import from_log_density
from tests.statistics.toy import ToySampler

BROKEN = [{"ratio_power": 2.0}, {"ratio_power": 0.0}, {"stale": True}]
NORMAL = from_log_density(stats.norm.logpdf, -10, 10)


def _chains(sampler, release, seed, chains=4, draws=6000, warm=100):
    rng = np.random.default_rng(seed)
    return np.stack([sampler.run(release, draws + warm, rng)[warm:, 0] for _ in range(chains)])


def test_exact_answer_passes_the_right_sampler():
    exact = oracles.normal_sum(9.0, 8, 1.0, 2.0)
    verdict = harness.mc_z(_chains(ToySampler(), 9.0, 1), exact)
    assert verdict.passed, verdict


@pytest.mark.parametrize("broken", BROKEN, ids=str)
def test_exact_answer_rejects_broken_samplers(broken):
    exact = oracles.normal_sum(9.0, 8, 1.0, 2.0)
    verdict = harness.mc_z(_chains(ToySampler(**broken), 9.0, 1), exact)
    assert verdict.outcome == "rejected", verdict


def test_exact_answer_sees_small_biases_and_too_few_draws():
    draws = np.random.default_rng(2).normal(size=(4, 5000))
    assert harness.mc_z(draws, NORMAL).passed
    assert harness.mc_z(draws + 0.05, NORMAL).outcome == "rejected"
    assert harness.mc_z(draws * 1.05, NORMAL).outcome == "rejected"
    # Same mean and sd, another shape.
    laplace = np.random.default_rng(3).laplace(0, 0.5**0.5, size=(4, 5000))
    assert harness.mc_z(laplace, NORMAL).outcome == "rejected"
    assert harness.mc_z(draws[:, :50], NORMAL).outcome == "inconclusive"
    assert harness.mc_z(np.zeros((4, 500)), NORMAL).outcome == "rejected"
    with pytest.raises(ValueError, match="chain, draw"):
        harness.mc_z(draws[0], NORMAL)


def test_exact_answer_p_values_under_autocorrelation():
    rng = np.random.default_rng(4)
    p = []
    for _ in range(150):
        noise = rng.normal(size=(4, 1500)) * np.sqrt(1 - 0.8**2)
        noise[:, 0] /= np.sqrt(1 - 0.8**2)
        p.append(harness.mc_z(signal.lfilter([1], [1, -0.8], noise, axis=1), NORMAL).p_value)
    # Bonferroni over correlated checks: conservative, and never far below its level.
    assert np.mean(np.array(p) < 0.1) < 0.2
    assert min(p) > 1e-4


def _simulate(sampler):
    def simulate(rng):
        state = sampler.draw_prior(rng)
        return sampler.quantities(state), state

    return simulate


def _sample(sampler, draws=19, thin=6):
    def sample(state, rng):
        return sampler.run(state["s"], draws * thin, rng)[thin - 1 :: thin]

    return sample


def test_calibration_passes_the_right_sampler():
    right = ToySampler()
    verdict = harness.sbc(_simulate(right), _sample(right), 250, seed=5, names=["mu", "sum", "noise"])
    assert verdict.passed, verdict
    assert min(verdict.checks.values()) > 0.005


@pytest.mark.parametrize("broken", BROKEN, ids=str)
def test_calibration_rejects_broken_samplers(broken):
    verdict = harness.sbc(_simulate(ToySampler()), _sample(ToySampler(**broken)), 400, seed=6)
    assert verdict.outcome == "rejected", verdict


def test_calibration_p_values_are_uniform():
    rng = np.random.default_rng(7)
    chi2, ecdf = [], []
    for _ in range(300):
        verdict = harness.rank_verdict(rng.integers(0, 100, (200, 1)), 99)
        chi2.append(verdict.checks["0 chi2"])
        ecdf.append(verdict.checks["0 ecdf"])
    assert stats.kstest(chi2, "uniform").pvalue > 1e-3
    assert stats.kstest(ecdf, "uniform").pvalue > 1e-3


@pytest.mark.parametrize("shape", [(1.25, 1.0), (1.3, 1.3), (0.75, 0.75)])
def test_calibration_sees_bias_and_wrong_spread(shape):
    ranks = np.random.default_rng(8).beta(*shape, size=(2000, 1)) * 100
    assert harness.rank_verdict(ranks.astype(int), 99).outcome == "rejected"


def test_calibration_breaks_ties_of_discrete_quantities():
    def simulate(rng):
        return rng.integers(0, 3, 1), None

    verdict = harness.sbc(simulate, lambda _, rng: rng.integers(0, 3, (20, 1)), 400, seed=9)
    assert verdict.passed, verdict


def _geweke(sampler, seed, draws=20_000):
    return harness.geweke(
        sampler.draw_prior,
        sampler.transition,
        sampler.redraw_release,
        sampler.functionals,
        draws=draws,
        names=sampler.names,
        seed=seed,
    )


def _replicated(sampler, seed, redraw=True, replicates=1500):
    return harness.geweke_replicated(
        sampler.draw_prior,
        sampler.transition,
        sampler.redraw_release if redraw else None,
        sampler.functionals,
        replicates=replicates,
        names=sampler.names,
        seed=seed,
    )


def test_joint_distribution_passes_the_right_sampler():
    assert (verdict := _geweke(ToySampler(), 10)).passed, verdict
    assert (verdict := _replicated(ToySampler(), 11)).passed, verdict
    assert (verdict := _replicated(ToySampler(), 12, redraw=False)).passed, verdict


@pytest.mark.parametrize("broken", BROKEN, ids=str)
def test_joint_distribution_rejects_broken_samplers(broken):
    assert (verdict := _geweke(ToySampler(**broken), 13)).outcome == "rejected", verdict
    assert (verdict := _replicated(ToySampler(**broken), 14)).outcome == "rejected", verdict


def test_joint_distribution_p_values():
    """Of the replicated form the z-scores are standard normal; of the single chain nearly so."""
    pooled = {"replicated": [], "chain": []}
    for seed in range(60):
        sampler = ToySampler(n=3)
        pooled["replicated"].append(list(_replicated(sampler, 100 + seed, replicates=80).checks.values()))
        pooled["chain"].append(list(_geweke(sampler, 200 + seed, draws=400).checks.values()))
    for z in pooled.values():
        z = np.array(z)
        for column in (0, 2, 6):
            assert stats.kstest(z[:, column], "norm").pvalue > 1e-3
        assert np.abs(z).max() < 5.5
