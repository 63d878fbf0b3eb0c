"""What a step may be used for: one run, of chains of its own, with noise that fits its numbers."""

import logging
import os
import warnings

import cloudpickle
import numpy as np
import pymc as pm
import pytest

import pymc_dp as dp
from pymc_dp.private.spent import Tally
from tests.private import models

ROWS = models.normal_rows()


@pytest.fixture(scope="module")
def model():
    """A confidential likelihood, with a hyperparameter that is public."""
    with pm.Model() as model:
        spread = pm.HalfNormal("spread", 2)
        mu = pm.Normal("mu", 0, spread)
        dp.ConfidentialLikelihood("x", pm.Normal.dist(mu, 1), ROWS, clip=3, clip_gradient=3)
    return model


@pytest.fixture(scope="module")
def plain():
    return models.normal_model(ROWS, clip_gradient=3)


def ledger(**kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return dp.PrivacyLedger(**{"epsilon": 2.0, "delta": 1e-6, **kwargs})


QUIET = {"progressbar": False, "compute_convergence_checks": False, "random_seed": 1}


# -- sampling again ---------------------------------------------------------------------------------


@pytest.mark.parametrize("cores", [1, pytest.param(2, marks=pytest.mark.statistical)])
def test_a_step_without_a_ledger_is_sampled_once(plain, cores):
    """Another run would be another spend, which nothing would add up."""
    step = dp.PenaltyMetropolis(model=plain, noise_multiplier=5.0)
    pm.sample(6, tune=4, chains=2, cores=cores, step=step, model=plain, **QUIET)
    assert step.plan.begun() == 2 and step.plan.iterations() == 20
    with pytest.raises(Exception, match=r"was sampled before: 2 chain\(s\) of 20 draws together"):
        pm.sample(6, tune=4, chains=2, cores=cores, step=step, model=plain, **QUIET)
    assert step.plan.begun() == 2


@pytest.mark.statistical
def test_nor_is_it_from_spawned_workers(plain):
    step = dp.PenaltyMetropolis(model=plain, noise_multiplier=5.0)
    spawned = {"chains": 2, "cores": 2, "step": step, "model": plain, "mp_ctx": "spawn", **QUIET}
    pm.sample(6, tune=4, **spawned)
    with pytest.raises(Exception, match=r"was sampled before: 2 chain\(s\)"):
        pm.sample(6, tune=4, **spawned)


def test_chains_begun_by_hand_are_runs_of_their_own(plain):
    step = dp.PenaltyMetropolis(model=plain, noise_multiplier=5.0)
    step.setup_chain(1, 0, 5)
    with pytest.raises(dp.BudgetExceededError, match="Nothing was spent now: make a new step"):
        step.setup_chain(2, 0, 5)
    with pytest.raises(dp.BudgetExceededError, match="was sampled before"):
        cloudpickle.loads(cloudpickle.dumps(step)).setup_chain(3, 0, 5)


def test_a_count_that_is_gone():
    tally = Tally("PenaltyMetropolis")
    os.unlink(tally._path)
    with pytest.raises(RuntimeError, match="The process that made this PenaltyMetropolis has ended"):
        tally.begin("a", 1)


# -- company, and noise that fits -------------------------------------------------------------------


def test_chains_that_are_sampled_together_are_refused_before_the_claim(model):
    book = ledger()
    step = dp.PenaltyMetropolis(model=model, ledger=book, draws=5, tune=5, chains=3)
    with pytest.raises(ValueError, match="DEMetropolis samples all chains together"), model:
        pm.sample(5, tune=5, chains=3, cores=1, step=[step, pm.DEMetropolis([model["spread"]])], **QUIET)
    assert book.entries()[0].claimed == 0


@pytest.mark.parametrize(
    ("step_type", "kwargs", "name"),
    [
        (dp.PrivateHMC, {"gradient_noise": 1e12, "step_size": 0.1}, "gradient_noise"),
        (dp.PenaltyMetropolis, {"clipped_noise": 1e12}, "clipped_noise"),
    ],
)
def test_noise_that_does_not_fit_is_refused_before_the_debit(plain, step_type, kwargs, name):
    book = ledger()
    with pytest.raises(ValueError, match=f"{name}: noise of .* times its sensitivity does not fit"):
        step_type(model=plain, ledger=book, draws=5, tune=5, chains=1, **kwargs)
    assert not book.entries()
    with pytest.raises(ValueError, match=f"{name}: noise of"):
        step_type(model=plain, noise_multiplier=1.0, **kwargs)


def test_insecure_noise_is_announced_where_it_is_asked_for(plain):
    with pytest.warns(UserWarning, match="insecure_noise_seed: the noise of this run can be computed"):
        dp.PenaltyMetropolis(model=plain, noise_multiplier=1.0, insecure_noise_seed=3)
    with pytest.raises(ValueError, match="insecure_noise_seed must be"):
        dp.PenaltyMetropolis(model=plain, noise_multiplier=1.0, insecure_noise_seed=-3)


@pytest.mark.filterwarnings("ignore:insecure_noise_seed")
def test_chains_of_a_seed_have_noise_of_their_own(plain):
    step = dp.PrivateHMC(
        model=plain, ledger=ledger(), draws=5, tune=0, chains=2, step_size=0.1, insecure_noise_seed=3,
        clipped_noise=5,
    )  # fmt: skip
    drawn = []
    for _ in range(2):
        step.setup_chain(1, 0, 5)
        for source in (step._noise, step._gradient_noise, step._counted):
            source._scale = 2**40
            drawn += source.draw(50).tolist()
    assert len(set(drawn)) == 2 * 3 * 50


# -- where a ledger is ------------------------------------------------------------------------------


def test_a_ledger_that_is_not_found_again_is_announced(tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    with pytest.warns(UserWarning, match="ends with this process, and what is spent from it is forgotten"):
        dp.PrivacyLedger(epsilon=1, delta=1e-6)
    with pytest.warns(UserWarning, match="A new ledger was made, .*study.db"):
        dp.PrivacyLedger("study.db", epsilon=1, delta=1e-6)
    with warnings.catch_warnings(), caplog.at_level(logging.INFO, "pymc"):
        warnings.simplefilter("error")
        dp.PrivacyLedger("study.db", epsilon=1, delta=1e-6)  # found
        dp.PrivacyLedger(tmp_path / "other.db", epsilon=1, delta=1e-6)
    assert f"{str(tmp_path / 'study.db')!r}: opened" in caplog.text
    assert f"{str(tmp_path / 'other.db')!r}: new" in caplog.text


# -- parts of a budget ------------------------------------------------------------------------------


def two_tables():
    with pm.Model() as both:
        mu, nu = pm.Normal("mu"), pm.Normal("nu")
        dp.ConfidentialLikelihood("x", pm.Normal.dist(mu, 1), ROWS, clip=3)
        dp.ConfidentialLikelihood("y", pm.Normal.dist(nu, 1), ROWS, clip=3)
    return both


@pytest.mark.statistical
def test_two_likelihoods_of_one_budget():
    """By shares that add up to 1, whatever the order, or by what a run may cost by itself."""
    both, plan = two_tables(), {"draws": 20, "tune": 10, "chains": 2}
    for first, second in [(0.25, 0.75), (0.75, 0.25), (1 / 3, None)]:
        book = ledger()
        steps = [
            dp.PenaltyMetropolis([both[name]], model=both, ledger=book, share=share, **plan)
            for name, share in (("mu", first), ("nu", second))
        ]
        precision = [sum(c.releases / c.noise_multiplier**2 for c in s.plan.spent().values()) for s in steps]
        assert np.isclose(precision[0] / sum(precision), first)
        assert 1.9999 < book.epsilon_spent <= 2.0
        with pytest.raises(dp.BudgetExceededError, match="does not fit"):
            dp.PenaltyMetropolis([both["mu"]], model=both, ledger=book, share=0.01, **plan)
        with pytest.raises(dp.BudgetExceededError, match="give each share= or epsilon="):
            dp.PenaltyMetropolis([both["mu"]], model=both, ledger=book, **plan)
        assert len(book.entries()) == 2
    book = ledger()
    dp.PenaltyMetropolis([both["mu"]], model=both, ledger=book, epsilon=0.7, **plan)
    assert 0.6999 < book.epsilon_spent <= 0.7
    dp.PenaltyMetropolis([both["nu"]], model=both, ledger=book, **plan)
    assert 1.9999 < book.epsilon_spent <= 2.0


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"share": 0.5, "epsilon": 1.0}, "share and epsilon both say how much"),
        ({"share": 1.5}, "share = 1.5 is more than the whole"),
        ({"share": 0.0}, "share must be a finite number > 0"),
        ({"epsilon": -1.0}, "epsilon must be a finite number > 0"),
        ({"epsilon": 2.5}, "epsilon = 2.5 is more than the ledger's whole budget of 2"),
    ],
)
def test_parts_that_are_none(plain, kwargs, message):
    book = ledger()
    with pytest.raises(ValueError, match=message):
        dp.PenaltyMetropolis(model=plain, ledger=book, draws=5, tune=5, chains=1, **kwargs)
    assert not book.entries()


def test_a_part_of_no_ledger(plain):
    with pytest.raises(ValueError, match="share: a plan belongs to a ledger"):
        dp.PenaltyMetropolis(model=plain, noise_multiplier=1.0, share=0.5)
