"""Rows of probabilities are drawn in value space with their law, whatever their concentrations."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.distributions.transforms import simplex
from scipy import stats
from scipy.special import logsumexp

import pymc_dp as dp
from pymc_dp.query.records import find_record_blocks
from pymc_dp.step_methods.record_step import RecordChain
from pymc_dp.step_methods.sweeps.fused import FusedSweep

N, CONCENTRATIONS = 4000, np.array([0.03, 0.6, 1.0, 7.0])


@pytest.fixture(scope="module")
def chain():
    with pm.Model() as model:
        alpha = pm.Gamma("alpha", 1, 1, shape=4)
        x = pm.Dirichlet("x", alpha, shape=(N, 4))
        dp.LaplaceMechanism(
            "z", dp.record_sum(pt.clip(pt.log(x), -3, 0)), scale=9.0, observed=[-9e3, -6e3, -4e3, -2e3]
        )
    (block,) = find_record_blocks(model)
    return RecordChain(model, block, "independence", model.initial_point())


def drawn(chain, alpha, seed):
    point = {**chain.program.model.initial_point(), "alpha_log__": np.log(alpha)}
    theta = chain.program.parameters.flatten(point)
    x = np.zeros((N, 3))
    chain._sweep(np.random.default_rng(seed), theta, x, 0, 1, prior_only=True)
    return x


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_they_have_their_law(chain, seed):
    assert isinstance(chain.moves[0].fused, FusedSweep)
    x = drawn(chain, CONCENTRATIONS, seed)
    p = simplex.backward(x).eval(mode="FAST_COMPILE")
    for k, a in enumerate(CONCENTRATIONS):
        law = stats.beta(a, CONCENTRATIONS.sum() - a)
        assert stats.kstest(p[:, k], law.cdf).pvalue > 1e-4 / 12
    first = p[:, 1] / (p[:, 1] + p[:, 2])  # independent of the rest
    assert stats.kstest(first, stats.beta(0.6, 1.0).cdf).pvalue > 1e-4 / 12


def test_their_sums_are_those_of_what_was_drawn(chain):
    x = drawn(chain, CONCENTRATIONS, 4)
    p = simplex.backward(x).eval(mode="FAST_COMPILE")
    with np.errstate(divide="ignore"):
        expected = np.clip(np.log(p), -3, 0).sum(axis=0)
    np.testing.assert_allclose(chain.totals, expected, rtol=1e-10)


def test_shares_that_round_to_zero_are_drawn_too(chain):
    """How many there are depends on the concentrations: without them the posterior would be another one."""
    x = drawn(chain, np.array([1e-4, 1.0, 1.0, 1.0]), 5)
    assert np.isfinite(x).all()
    values = np.column_stack([x, -x.sum(axis=1)])
    log_share = values[:, 0] - logsumexp(values, axis=1)
    below = (log_share < -690).mean()
    # the law of a beta variable of concentrations 1e-4 and 3 near zero: q^1e-4, but for a factor near 1
    assert abs(below - np.exp(-690e-4)) < 0.02
    with np.errstate(divide="ignore"):
        expected = np.clip(np.log(simplex.backward(x).eval(mode="FAST_COMPILE")), -3, 0).sum(axis=0)
    np.testing.assert_allclose(chain.totals, expected, rtol=1e-10)


def test_many_sums_of_records_drawn_anew_forget_those_before():
    """Parameters are proposed with all records again and again: what was no number is not remembered."""
    with pm.Model() as model:
        x = pm.Dirichlet("x", pm.Gamma("alpha", 1, 1) * np.ones(3), shape=(20, 3))
        sums = pt.zeros((10, 2))[np.arange(20) % 10].inc(x[:, :2])
        dp.LaplaceMechanism("z", sums, scale=1.0, sensitivity=1.0, observed=np.full((10, 2), 0.7))
    (block,) = find_record_blocks(model)
    chain = RecordChain(model, block, "independence", model.initial_point())
    assert chain.moves[0].fused.rows.kernel.__name__ == "many_sums_sweep"
    x = chain.program.first_records.copy()
    x[3] = np.nan
    chain._sweep(np.random.default_rng(1), np.zeros(1), x, 0, 1, prior_only=True)
    p = simplex.backward(x).eval(mode="FAST_COMPILE")[:, :2]
    np.testing.assert_allclose(chain.totals.reshape(10, 2), p[:10] + p[10:], rtol=1e-10)
