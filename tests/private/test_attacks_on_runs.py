"""Results that are not of their step, steps that are not what was debited, and frames that are not found."""

import copy
import dataclasses
import json
import warnings

import cloudpickle
import numpy as np
import pymc as pm
import pytest
import xarray as xr
from pymc.sampling import mcmc
from pymc.step_methods.compound import CompoundStep

import pymc_dp as dp
from pymc_dp.privacy.costs import from_plain
from pymc_dp.private import calling_frames, provenance
from tests.private import models

ROWS = models.normal_rows(30)
PLAN = {"draws": 12, "tune": 6, "chains": 2}
QUIET = {"progressbar": False, "compute_convergence_checks": False, "cores": 1}
LEAPS = {"step_size": 0.05, "n_leapfrog": 2}


@pytest.fixture(scope="module")
def model():
    return models.normal_model(ROWS, clip_gradient=3.0)


def ledger(**kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return dp.PrivacyLedger(**{"epsilon": 2.0, "delta": 1e-6, **kwargs})


def sampled(model, **kwargs):
    """A run that moves, and its step."""
    step = dp.PenaltyMetropolis(model=model, noise_multiplier=1.0, clipped_noise=3.0, scale=0.03, adapt=False)
    return pm.sample(**PLAN, step=step, model=model, **QUIET, **kwargs), step


@pytest.fixture(scope="module")
def runs(model):
    """Two runs of equal steps, with their tuning draws."""
    return [sampled(model, discard_tuned_samples=False) for _ in range(2)]


@pytest.fixture
def two(runs):
    return [(idata.copy(deep=True), step) for idata, step in runs]


def joined(first, second, dim):
    return xr.DataTree.from_dict(
        {
            name: xr.concat([first[name].to_dataset(), second[name].to_dataset()], dim)
            for name in first.children
            if name != "privacy"
        }
    )


# -- results ----------------------------------------------------------------------------------------


def test_a_result_of_another_step(two):
    """It understated the cost, or overstated it."""
    (first, step), (_, other) = two
    for delta in (1e-6, 1e-2):
        with pytest.raises(ValueError, match="24 of 24 draws are none that PenaltyMetropolis of 'x'"):
            dp.with_privacy(first, other, delta=delta)
    dp.with_privacy(first, step, delta=1e-6)


@pytest.mark.parametrize("dim", ["draw", "chain"])
def test_runs_that_were_joined(two, dim):
    """They were said to cost what one of them does. Before they are joined they cost what they do."""
    (first, step), (second, other) = two
    both = joined(first, second, dim)
    for given in (step, other):
        with pytest.raises(ValueError, match=r"24 of 48 draws .*Give with_privacy each .*before you join"):
            dp.with_privacy(both, given, delta=1e-6)
    costs = []
    for idata, given in two:
        dp.with_privacy(idata, given, delta=1e-6)
        costs += [from_plain(plain) for plain in json.loads(idata.attrs["privacy_costs"])]
    assert dp.accounting.epsilon(costs, 1e-6) > 1.4 * first.attrs["privacy_epsilon"]


def test_runs_that_were_joined_in_tuning_draws_only(two):
    (first, step), (second, _) = two
    first["warmup_sample_stats"] = second["warmup_sample_stats"]
    with pytest.raises(ValueError, match="12 of 12 draws are none"):
        dp.with_privacy(first, step, delta=1e-6)


def test_a_part_of_a_run_costs_what_the_run_does(two):
    (idata, step), _ = two
    whole = dp.with_privacy(idata.copy(deep=True), step, delta=1e-6)
    for part in (idata.isel(chain=[1]), idata.isel(draw=slice(None, None, 3))):
        assert dp.with_privacy(part, step, delta=1e-6).attrs == whole.attrs


def test_draws_that_are_there_twice(two):
    """Their count of clipped rows would be taken for more precise than it is."""
    (idata, step), _ = two
    for dim in ("draw", "chain"):
        with pytest.raises(ValueError, match=r"draw\(s\) of PenaltyMetropolis of 'x' more than once"):
            dp.with_privacy(joined(idata, idata, dim), step, delta=1e-6)


def test_values_of_another_run(two):
    """The names of the draws are in the statistics; values have to be those that were rejected or not."""
    (first, step), (second, _) = two
    swapped, longer = first.copy(deep=True), first.copy(deep=True)
    swapped["posterior"] = second["posterior"]
    with pytest.raises(ValueError, match="'mu' moves in posterior where PenaltyMetropolis has rejected"):
        dp.with_privacy(swapped, step, delta=1e-6)
    longer["posterior"] = xr.DataTree(joined(first, second, "draw")["posterior"].to_dataset())
    with pytest.raises(ValueError, match=r"posterior and sample_stats have different draws \(24 and 12\)"):
        dp.with_privacy(longer, step, delta=1e-6)


def test_statistics_without_names(two):
    (idata, step), _ = two
    for name in ("private_chain", "private_iteration"):
        nameless = idata.copy(deep=True)
        nameless["sample_stats"] = xr.DataTree(idata["sample_stats"].to_dataset().drop_vars(name))
        with pytest.raises(ValueError, match="does not say from which chains its draws are"):
            dp.with_privacy(nameless, step, delta=1e-6)
    invented = idata.copy(deep=True)
    invented["sample_stats"]["private_iteration"] += 18  # beyond what the chains were begun for
    with pytest.raises(ValueError, match="24 of 24 draws are none"):
        dp.with_privacy(invented, step, delta=1e-6)


def test_steps_in_another_order():
    """Counts of clipped rows were those of the other table."""
    with pm.Model():
        means = [pm.Normal("mu_x", 0, 2), pm.Normal("mu_y", 0, 2)]
        for name, mean in zip("xy", means):
            dp.ConfidentialLikelihood(name, pm.Normal.dist(mean, 1), data=ROWS, clip=3)
        steps = [dp.PenaltyMetropolis([v], noise_multiplier=9.0, clipped_noise=3.0) for v in means]
        idata = pm.sample(**PLAN, step=steps, **QUIET)
    with pytest.raises(ValueError, match="steps are not in the order"):
        dp.with_privacy(idata, *steps[::-1], delta=1e-6)
    dp.with_privacy(idata, *steps, delta=1e-6)


# -- what was debited -------------------------------------------------------------------------------


def debited(model, kind="penalty"):
    more = {"model": model, "ledger": ledger(), **PLAN}
    if kind == "hmc":
        return dp.PrivateHMC(**LEAPS, clipped_noise=3.0, **more)
    if kind == "barker":
        return dp.BarkerMetropolis(batch_size=10, **more)
    return dp.PenaltyMetropolis(**more)


@pytest.mark.parametrize("kind", ["penalty", "hmc", "barker"])
@pytest.mark.parametrize("copied", [False, True])
def test_nothing_that_was_debited_can_be_changed(model, kind, copied):
    """No data of a step but what chains change, and nothing of its plan, in copies neither."""
    step = debited(model, kind)
    if copied:
        step = cloudpickle.loads(cloudpickle.dumps(step))
    for name in (*vars(step), "clipped_noise", "approximation", "clip"):
        if name not in step._moves:
            with pytest.raises(AttributeError):
                setattr(step, name, getattr(step, name))
    for name in (*vars(step.plan), "noise_multiplier", "anything"):
        with pytest.raises(AttributeError, match=f"plan.{name} is what the run .*make a new step"):
            setattr(step.plan, name, 0.01)
    for name in vars(step.plan.reservation):
        with pytest.raises(AttributeError):
            setattr(step.plan.reservation, name, 10)
    with pytest.raises(AttributeError):
        del step.plan.terms
    with pytest.raises(AttributeError):
        del step.approximation
    for array in (step.metric, step.axes, step._inverse_metric):
        with pytest.raises(ValueError, match="read-only"):
            array *= 0.1
    step.setup_chain(1, 6, 12)
    assert step._noise._scale == step.plan.terms.scale("ratios")


@pytest.mark.parametrize(
    ("kind", "of", "name", "value", "changed"),
    [
        ("penalty", "plan", "noise_multiplier", 0.01, "noise_multiplier, scales"),
        ("penalty", "plan", "length", 10_000, "plan"),
        ("penalty", "step", "clipped_noise", 4.0, "scales"),
        ("hmc", "step", "gradient_noise", 0.01, "scales"),
        ("hmc", "step", "insecure_noise_seed", 5, "seed"),
        ("barker", "step", "variance_noise", 0.01, "scales"),
        ("barker", "step", "batch_size", 20, "rows"),
        ("penalty", "term", "clip", 1e6, "bounds"),
        ("hmc", "term", "clip_gradient", 1e6, "bounds"),
        ("penalty", "step", "metric", 0.1 * np.eye(1), "metric"),
    ],
)
def test_whatever_is_changed_all_the_same_is_seen(model, kind, of, name, value, changed):
    """By force, behind what refuses it: a chain does not begin, and claims nothing."""
    step = debited(model, kind)
    target = {"step": step, "plan": step.plan, "term": step.term}[of]
    before = getattr(target, name)
    object.__setattr__(target, name, value)
    try:
        with pytest.raises(ValueError, match=rf"is not what the run was debited with: .*{changed}"):
            step.setup_chain(1, 6, 12)
        assert step.plan.begun() == 0
    finally:
        object.__setattr__(target, name, before)
    step.setup_chain(1, 6, 12)


def test_noise_is_not_lowered_while_a_chain_is_sampled(model):
    step = debited(model)

    def lower(trace, draw):
        step.plan.noise_multiplier = 1e-3

    with pytest.raises(AttributeError, match=r"plan.noise_multiplier .*make a new step"):
        pm.sample(**PLAN, step=step, model=model, callback=lower, **QUIET)
    idata = pm.sample(**PLAN, step=(new := debited(model)), model=model, **QUIET)
    assert dp.with_privacy(idata, new).attrs["privacy_epsilon"] == pytest.approx(2.0, rel=1e-6)


# -- approximations ---------------------------------------------------------------------------------


def near_of(model, **kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # so few rows, so much noise
        return dp.normal_approximation(model=model, noise_multiplier=5.0, **kwargs)


@pytest.mark.parametrize("seed", [None, 1])
@pytest.mark.parametrize("copied", [False, True])
def test_a_known_seed_of_an_approximation_is_said(model, seed, copied):
    """Of a run that used it, nothing is promised either."""
    near = near_of(model, insecure_noise_seed=seed)
    if copied:
        near = cloudpickle.loads(cloudpickle.dumps(near))
    assert near.insecure_noise is (seed is not None)
    step = dp.PenaltyMetropolis(model=model, noise_multiplier=1.0, approximation=near)
    idata = dp.with_privacy(pm.sample(**PLAN, step=step, model=model, **QUIET), step, delta=1e-6)
    assert idata.attrs["privacy_insecure_noise"] == int(seed is not None)
    assert idata["privacy"]["insecure_noise"].values.tolist() == [int(seed is not None)]


@pytest.mark.parametrize("replaced", [dataclasses.replace, *filter(None, [getattr(copy, "replace", None)])])
def test_what_an_approximation_cost_stays_with_it(model, replaced):
    near = near_of(model, insecure_noise_seed=1)
    for change in ({"costs": ()}, {"insecure_noise": False}, {"clip": 3.0}):
        with pytest.raises(TypeError):
            replaced(near, **change)
        ((name, value),) = change.items()
        with pytest.raises(AttributeError, match=rf"NormalApproximation\.{name} .* make another"):
            setattr(near, name, value)
        with pytest.raises(AttributeError, match="make another"):
            delattr(near, name)
    assert len(near.costs) == 2 and near.insecure_noise


@pytest.mark.parametrize("change", [{"costs": ()}, {"insecure_noise": False}])
def test_an_approximation_that_is_changed_all_the_same_is_seen(model, change):
    near = near_of(model, insecure_noise_seed=1)
    step = dp.PenaltyMetropolis(model=model, ledger=ledger(), approximation=near, **PLAN)
    vars(near).update(change)
    with pytest.raises(ValueError, match="is not what the run was debited with: approximation changed"):
        step.setup_chain(1, 6, 12)


@pytest.mark.parametrize(
    "tune, draws", [(0, float("nan")), (float("nan"), 1), (0, 12.0), (-6, 12), (True, 1)]
)
def test_lengths_that_are_no_whole_numbers(model, tune, draws):
    """NaN is not more than what was planned."""
    step = debited(model)
    with pytest.raises((TypeError, ValueError), match="must be a whole number"):
        step.setup_chain(1, tune, draws)
    assert step.plan.begun() == 0


# -- frames -----------------------------------------------------------------------------------------


def renamed(monkeypatch, **names):
    """PyMC, in which variables of pm.sample, or pm.sample itself, have other names."""
    code = mcmc.sample.__code__
    own = names.pop("sample", code.co_name)
    variables = tuple(names.get(name, name) for name in code.co_varnames)
    assert set(names) <= set(code.co_varnames)
    monkeypatch.setattr(mcmc.sample, "__code__", code.replace(co_varnames=variables, co_name=own))


@pytest.mark.filterwarnings("ignore:.*fork")
@pytest.mark.parametrize(
    ("names", "missing"),
    [({"t_start": "begun"}, "has no variable t_start"), ({"sample": "draw"}, "is not among its callers")],
)
@pytest.mark.parametrize("cores", [1, pytest.param(2, marks=pytest.mark.statistical)])
def test_runs_that_cannot_be_told_apart_are_refused(model, monkeypatch, names, missing, cores):
    """With nothing spent; a ledger, which is what the message says, needs nothing of PyMC's frames."""
    renamed(monkeypatch, **names)
    step, quiet = dp.PenaltyMetropolis(model=model, noise_multiplier=9.0), {**QUIET, "cores": cores}
    with pytest.raises(Exception, match=rf"{missing}(.|\n)*Nothing was spent: give the step ledger="):
        pm.sample(**PLAN, step=step, model=model, **quiet)
    assert step.plan.begun() == 0
    copied = cloudpickle.loads(cloudpickle.dumps(step))
    with pytest.raises(Exception, match=missing):  # nor does the name of its pickle tell
        pm.sample(**PLAN, step=copied, model=copied.model, **quiet)
    paid = debited(model)
    idata = pm.sample(**PLAN, step=paid, model=model, **quiet)
    assert dp.with_privacy(idata, paid).attrs["privacy_epsilon"] == pytest.approx(2.0, rel=1e-6)


def test_chains_that_nobody_counts_are_refused_by_the_ledger(model, monkeypatch):
    renamed(monkeypatch, sample="draw")
    step = debited(model)
    with pytest.raises(dp.BudgetExceededError, match="All 2 chains that entry 1 of the ledger paid for"):
        pm.sample(**{**PLAN, "chains": 3}, step=step, model=model, **QUIET)
    assert step.plan.begun() == 2


@pytest.mark.parametrize("kind", ["penalty", "hmc"])
def test_parameters_that_another_step_moves_are_noticed_without_frames(model, monkeypatch, kind):
    """Its draws would not be of the posterior, whichever way PyMC begins chains."""
    monkeypatch.setattr(calling_frames, "refuse", lambda step: None)
    steps = [debited(model, kind), debited(model)]
    with pytest.raises(ValueError, match=r"mu: moved by another step since .*Leave that step out"):
        pm.sample(**PLAN, step=steps, model=model, **QUIET)
    pm.sample(**PLAN, step=debited(model, kind), model=model, **QUIET)


def test_chains_by_hand_are_runs_of_their_own_from_one_pickle_too(model):
    copied = cloudpickle.loads(cloudpickle.dumps(dp.PenaltyMetropolis(model=model, noise_multiplier=9.0)))
    copied.setup_chain(1, 0, 5)
    with pytest.raises(dp.BudgetExceededError, match="was sampled before"):
        copied.setup_chain(2, 0, 5)


def test_what_is_read_of_pymc_is_there(model, monkeypatch):
    """Canary: says what moved in PyMC. What depends on it is listed in pymc_dp/private/calling_frames.py."""
    module, name = calling_frames.SAMPLE
    assert (mcmc.sample.__module__, mcmc.sample.__code__.co_name) == (module, name), "pm.sample moved"
    variables = mcmc.sample.__code__.co_varnames
    began = calling_frames.BEGAN
    assert began in variables, f"pm.sample has no variable {began}, which names a run"
    assert calling_frames.CHAINS in variables, f"pm.sample has no argument {calling_frames.CHAINS}"
    assert CompoundStep.setup_chain.__code__.co_varnames[0] == "self", "CompoundStep.setup_chain has no self"
    workers = __import__(calling_frames.WORKERS, fromlist=["_Process"])
    assert workers._Process, "workers begin chains elsewhere"
    seen, refuse = [], calling_frames.refuse

    def look(step):
        seen.append((calling_frames.run_of(step), calling_frames.chains_asked_for()))
        refuse(step)

    monkeypatch.setattr(calling_frames, "refuse", look)
    for _ in range(2):
        sampled(model)
    runs, chains = zip(*seen)
    assert chains == (2, 2, 2, 2), "the number of chains is not found in the frame of pm.sample"
    assert runs[0] == runs[1] != runs[2] == runs[3], "chains of a call share no name, or calls do"


# -- times ------------------------------------------------------------------------------------------


def test_how_long_sampling_took_is_left_out():
    with pm.Model() as model:
        spread = pm.HalfNormal("spread", 2)
        mu = pm.Normal("mu", 0, spread)
        dp.ConfidentialLikelihood("x", pm.Normal.dist(mu, 1), ROWS, clip=3)
        step = dp.PenaltyMetropolis(noise_multiplier=9.0)
        idata = pm.sample(**PLAN, step=step, discard_tuned_samples=False, **QUIET)
    assert "perf_counter_start" in idata.sample_stats and "sampling_time" in idata.posterior.attrs
    public = set(idata.sample_stats.data_vars) - set(provenance.CLOCKS)
    dp.with_privacy(idata, step, delta=1e-6)
    assert set(idata.sample_stats.data_vars) == public and idata.posterior.attrs["tuning_steps"] == 6
    for group in idata.subtree:
        assert not set(provenance.CLOCKS) & set(group.data_vars) and "sampling_time" not in group.attrs
        assert len(group.attrs.get("created_at", "2026-01-01")) == len("2026-01-01")
    assert model["spread"].name in idata.posterior


def test_clocks_of_pymc_are_all_known():
    """Canary: no step of PyMC has statistics of time beside those that are left out."""
    classes = [v for v in vars(pm.step_methods).values() if hasattr(v, "stats_dtypes_shapes")]
    names = {name for cls in classes for name in getattr(cls, "stats_dtypes_shapes", None) or {}}
    timed = {name for name in names if any(word in name for word in ("time", "perf", "clock", "duration"))}
    assert len(names) > 20 and timed == set(provenance.CLOCKS)
