"""One step moves parameters and sweeps over their records, where `pm.sample` chooses.

Of `AncillaryUpdate` the first cycle sweeps where it is the only one, or where records are few. Records, their
mean and a noisy sum of them are jointly normal, so that the posterior is known. That of a table of few
categories (`ConjugateUpdate`) is summed up.
"""

from itertools import product

import arviz as az
import numpy as np
import pymc as pm
import pytest
from pymc.sampling import mcmc
from pymc.step_methods.compound import flatten_steps
from scipy.special import gammaln

import pymc_dp as dp
from pymc_dp.step_methods import conjugate, record_step
from pymc_dp.step_methods.ancillary_block import AncillaryBlock
from tests.statistics import harness

N, SPREAD, SIGMA, RELEASED = 5, 1.5, 2.0, 8.0
SAMPLED = {"progressbar": False, "cores": 1, "compute_convergence_checks": False}


def normal(n=N):
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 2)
        y = pm.Normal("y", mu, SPREAD, shape=n)
        dp.GaussianMechanism("z", dp.record_sum(y), sigma=SIGMA, observed=RELEASED)
    return model


def exact():
    """Mean and covariance of mu and the records, given the release."""
    noise = np.eye(N + 1) * SPREAD
    noise[0, 0] = 2.0
    rows = np.eye(N + 1)
    rows[1:, 0] = 1.0  # records are mu and noise
    covariance = rows @ noise**2 @ rows.T
    weights = np.r_[0.0, np.ones(N)]
    seen = covariance @ weights
    gain = seen / (weights @ seen + SIGMA**2)
    return gain * RELEASED, covariance - np.outer(gain, seen)


COUNTS = np.array([2.5, 0.0, 1.0])


def categories():
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.array([1.0, 2.0, 1.5]))
        c = pm.Categorical("c", p, shape=3)
        dp.LaplaceMechanism(
            "z", dp.record_sum(pm.math.eq(c[:, None], np.arange(3))), scale=1.0, observed=COUNTS
        )
    return model


def exact_categories():
    """Mean of the probabilities, and law of the first record, given the noisy counts."""
    alpha = np.array([1.0, 2.0, 1.5])
    weights, p, first = 0.0, np.zeros(3), np.zeros(3)
    for values in product(range(3), repeat=3):
        counts = np.bincount(values, minlength=3)
        law = np.exp(gammaln(alpha + counts).sum() - np.abs(COUNTS - counts).sum())
        weights += law
        p += law * (alpha + counts) / (alpha.sum() + 3)
        first[values[0]] += law
    return p / weights, first / weights


@pytest.mark.parametrize("jointly", [True, False])
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.statistical)])
def test_records_and_tables_have_their_posterior(seed, jointly, monkeypatch):
    """With moves of tables and their records at once, and without."""
    if not jointly:
        monkeypatch.setattr(conjugate._Part, "_update", lambda part, tables: None)
    with categories() as model:
        step = dp.ConjugateUpdate([model["p"], model["c"]], n_cycles=1)
        idata = pm.sample(6000, tune=200, chains=2, random_seed=seed, step=[step], **SAMPLED)
    assert np.isnan(idata.sample_stats["table_acceptance"]).all() != jointly
    p, first = exact_categories()
    c = idata.posterior["c"].values[..., 0]
    draws = {f"p {k}": (idata.posterior["p"].values[..., k], p[k]) for k in range(3)}
    draws |= {f"first is {k}": ((c == k).astype(float), first[k]) for k in range(3)}
    checks = {}
    for name, (values, expected) in draws.items():
        size = float(az.ess(values, method="mean"))
        assert size > 500, name
        checks[name] = (values.mean() - expected) / (values.std() / np.sqrt(size))
    verdict = harness.two_sample_z(checks)
    assert verdict.passed, verdict


@pytest.mark.parametrize("given", ["p", "p and c"])
def test_what_a_draw_of_tables_tells_of_sweeps(given):
    with categories() as model:
        step = dp.ConjugateUpdate([model[name] for name in given.split(" and ")], n_cycles=2)
        others = [dp.RecordImputation()] if given == "p" else []
        idata = pm.sample(300, tune=100, chains=1, random_seed=1, step=[step, *others], **SAMPLED)
    rates = idata.sample_stats["record_acceptance"].values
    assert rates.shape == (1, 300) and 0.3 < rates.mean() < 1
    proposals = 3 if others else 2 * 3
    assert set(np.round(rates.ravel() * proposals, 9)) <= set(range(proposals + 1))


def chosen(model, **options):
    """Return the steps that `pm.sample` makes, and which variables they move."""
    made = mcmc.instantiate_steppers(model, *mcmc.assign_step_methods(model), step_kwargs=options)
    steps = flatten_steps(made) if not isinstance(made, list) else [s for m in made for s in flatten_steps(m)]
    return {type(s).__name__: sorted(str(model.values_to_rvs[v].name) for v in s.vars) for s in steps}


def drawn(model, n_cycles, seed):
    with model:
        step = dp.AncillaryUpdate([model["mu"], model["y"]], n_cycles=n_cycles)
        return pm.sample(4000, tune=500, chains=2, random_seed=seed, step=[step], **SAMPLED)


def check(idata):
    """Whether two moments of mu, and of each record beside the mean of all, are the exact ones, and known."""
    mean, covariance = exact()
    mu, y = (idata.posterior[name].values for name in ("mu", "y"))
    rows = np.c_[np.zeros(N), np.eye(N) - 1 / N]
    beside = y - y.mean(axis=-1, keepdims=True)
    checks, sizes = {}, []
    for name, draws, centre, variance in [
        ("mu", mu, mean[0], covariance[0, 0]),
        *((f"record {k}", beside[..., k], rows[k] @ mean, rows[k] @ covariance @ rows[k]) for k in range(N)),
    ]:
        for power, expected, error in ((1, 0.0, variance), (2, variance, 2 * variance**2)):
            values = (draws - centre) ** power
            size = min(float(az.ess(values, method="mean")), values.size)
            sizes.append(size)
            checks[f"{name}, power {power}"] = (values.mean() - expected) / np.sqrt(error / size)
    assert min(sizes) > 1000, sizes  # what stands still has no error that could be told
    return harness.two_sample_z(checks)


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.statistical)])
@pytest.mark.parametrize("n_cycles", [1, 2])
def test_records_and_parameters_have_their_posterior(n_cycles, seed):
    verdict = check(drawn(normal(), n_cycles, seed))
    assert verdict.passed, verdict


def test_without_a_sweep_it_would_be_seen(monkeypatch):
    """Planted: of one cycle, no sweep. Records then move with their mean alone."""
    run = AncillaryBlock.run

    def no_sweep(self, step, point, learnt, tallies, swept):
        self.sweeps = False
        moved = run(self, step, point, learnt, tallies, swept)
        self.sweeps = True
        swept.add(np.array([N, 1.0]), N)
        return moved

    monkeypatch.setattr(AncillaryBlock, "run", no_sweep)
    with pytest.raises(AssertionError):
        check(drawn(normal(), 1, 1))


def test_who_moves_the_records():
    assert chosen(normal()) == {"AncillaryUpdate": ["mu", "y"]}
    with_options = {"record_imputation": {"proposals": "independence"}}
    assert chosen(normal(), **with_options) == {"AncillaryUpdate": ["mu"], "RecordImputation": ["y"]}
    with normal() as model:
        without_parameters = pm.Normal("x", 0, 1, shape=4)
        dp.GaussianMechanism("of_x", dp.record_sum(without_parameters), sigma=1, observed=0.5)
    # one step for all records, so that one rate of acceptance is told
    assert chosen(model) == {"AncillaryUpdate": ["mu"], "RecordImputation": ["x", "y"]}


def test_tables_and_their_records():
    assert chosen(categories()) == {"ConjugateUpdate": ["c", "p"]}
    with_options = {"record_imputation": {"proposals": "independence"}}
    assert chosen(categories(), **with_options) == {"ConjugateUpdate": ["p"], "RecordImputation": ["c"]}
    with categories() as model:
        mu = pm.Normal("mu", 0, 2)
        y = pm.Normal("y", mu, 1, shape=3)
        dp.GaussianMechanism("of_y", dp.record_sum(y), sigma=1, observed=0.5)
    # the records of either block have parameters of another step
    found = chosen(model)
    assert found == {"ConjugateUpdate": ["p"], "AncillaryUpdate": ["mu"], "RecordImputation": ["c", "y"]}


def test_many_records_keep_a_step_of_their_own(monkeypatch):
    """Their sweeps run on several cores."""
    monkeypatch.setattr("pymc_dp.hooks.PARALLEL_FROM", N)
    assert record_step.PARALLEL_FROM > N
    assert chosen(normal()) == {"AncillaryUpdate": ["mu"], "RecordImputation": ["y"]}


def test_what_sweeps_tell():
    with normal():
        idata = pm.sample(200, tune=100, chains=1, random_seed=1, **SAMPLED)
    rates = idata.sample_stats["record_acceptance"].values
    assert 0.3 < rates.mean() < 1 and set(np.round(rates.ravel() * N, 9)) <= set(range(N + 1))
    lowest = idata.sample_stats["record_acceptance_min"].values
    assert ((lowest > 0) & (lowest <= 1)).all() and (lowest < 1).any()


def test_records_without_their_parameters_are_refused():
    with normal():
        pm.Normal("other", 0, 1)
        x = pm.Normal("x", 0, 1, shape=4)
        dp.GaussianMechanism("of_x", dp.record_sum(x), sigma=1, observed=0.5)
        mu, y = (pm.modelcontext(None)[name] for name in ("mu", "y"))
        with pytest.raises(ValueError, match="x in `vars`: AncillaryUpdate does not move"):
            dp.AncillaryUpdate([mu, y, x])


def test_a_query_that_is_no_sum_is_told_of_once():
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 2)
        y = pm.Normal("y", mu, 1, shape=4)
        dp.GaussianMechanism("z", pm.math.max(y), sigma=1, observed=1.0)
    with pytest.warns(UserWarning, match="The query of z is no sum over records") as told:
        chosen(model)
    assert len([w for w in told if "is no sum over records" in str(w.message)]) == 1
