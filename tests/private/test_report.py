"""What is written into results: the cost of the run, and the clipped rows counted with noise."""

import json
import re
import warnings

import cloudpickle
import numpy as np
import pymc as pm
import pytest
import xarray as xr
from scipy import stats

import pymc_dp as dp
from pymc_dp.privacy.costs import GaussianCost, from_plain
from pymc_dp.private import report
from pymc_dp.private.life import TIES
from tests.private import models

QUIET = {"progressbar": False, "compute_convergence_checks": False, "random_seed": 1}
ROWS = models.normal_rows(40)
PLAN = {"draws": 20, "tune": 10, "chains": 2}


def ledger(**kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return dp.PrivacyLedger(**{"epsilon": 2.0, "delta": 1e-6, **kwargs})


@pytest.fixture(scope="module")
def sampled():
    """A run that counts clipped rows, under a ledger."""
    model, book = models.normal_model(ROWS, clip=1.5, temper=0.5), ledger()
    step = dp.PenaltyMetropolis(model=model, ledger=book, clipped_noise=4.0, scale=0.5, **PLAN)
    return pm.sample(**PLAN, cores=1, step=step, model=model, **QUIET), step, book


def test_the_cost_is_in_the_result(sampled):
    idata, step, book = sampled
    assert dp.with_privacy(idata, step) is idata
    attrs, group = idata.attrs, idata["privacy"]
    assert attrs["privacy_epsilon"] == pytest.approx(book.epsilon_spent) == pytest.approx(2.0, rel=1e-6)
    assert (attrs["privacy_delta"], attrs["privacy_neighbours"]) == (1e-6, "replace-one")
    assert (attrs["privacy_insecure_noise"], attrs["privacy_budget_epsilon"]) == (0, 2.0)
    assert attrs["privacy_budget_spent"] == pytest.approx(book.epsilon_spent)
    costs = [from_plain(plain) for plain in json.loads(attrs["privacy_costs"])]
    assert tuple(costs) == book.spent and dp.accounting.epsilon(costs, 1e-6) == attrs["privacy_epsilon"]
    assert list(group["likelihood"].values) == ["x"] and list(group["step"].values) == ["PenaltyMetropolis"]
    found = {name: group[name].item() for name in ("chains", "iterations", "clip", "temper", "n_rows")}
    assert found == {"chains": 2, "iterations": 60, "clip": 1.5, "temper": 0.5, "n_rows": 40}
    assert group["ledger_entry"].item() == book.entries()[0].id and np.isnan(group["clip_gradient"].item())
    released = group["n_released"].sel(likelihood="x")
    assert released.values.tolist() == [60, 0, 60]
    noise = group["noise_multiplier"].sel(likelihood="x")
    assert noise.sel(release="ratio").item() == step.plan.noise_multiplier
    assert noise.sel(release="clipped count").item() == 4 * step.plan.noise_multiplier
    assert step.cost(20, 10, 2) == list(book.spent) == costs


@pytest.mark.statistical
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("hmc", [True, False])
def test_bounds_are_those_in_use(hmc):
    """With an approximation, its own."""
    model = models.normal_model(ROWS, clip=1.5, clip_gradient=2.5)
    near = dp.NormalApproximation("x", ("mu",), ((),), np.array([0.7]), np.eye(1) / 40, np.eye(1), 6.0, 7.0)
    more = {"model": model, "noise_multiplier": 9.0, "approximation": near}
    leaps = {"step_size": 0.3, "n_leapfrog": 2, "gradient_noise": 2.0}
    step = dp.PrivateHMC(**leaps, **more) if hmc else dp.PenaltyMetropolis(**more)
    idata = pm.sample(**PLAN, cores=1, step=step, model=model, **QUIET)
    group = dp.with_privacy(idata, step, delta=1e-6)["privacy"]
    assert group["clip"].item() == 6.0 and group["clip_gradient"].item() == (7.0 if hmc else 2.5)


def test_it_is_stored_and_read_again(sampled, tmp_path):
    pytest.importorskip("zarr")
    idata, step, _ = sampled
    dp.with_privacy(idata, step).to_zarr(tmp_path / "draws.zarr")
    _same(xr.open_datatree(tmp_path / "draws.zarr", engine="zarr"), idata)


def test_in_netcdf_too(sampled, tmp_path):
    pytest.importorskip("h5netcdf")
    idata, step, _ = sampled
    dp.with_privacy(idata, step).to_netcdf(tmp_path / "draws.nc", engine="h5netcdf")
    _same(xr.open_datatree(tmp_path / "draws.nc", engine="h5netcdf"), idata)


@pytest.mark.parametrize(("draws", "worth"), [("independent", None), ("a walk", "[1-9]"), ("one value", "0")])
def test_draws_that_are_worth_little_are_told(draws, worth, rng):
    """Of the second of two numbers; nothing is said of draws that are worth twice as many as it takes."""
    first, second = rng.normal(size=(2, 2, 20))
    others = {"independent": second, "a walk": second.cumsum(axis=1), "one value": np.ones_like(second)}
    variables = {"mu": (("chain", "draw"), first), "nu": (("chain", "draw"), others[draws])}
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        report._tell_of_few(xr.DataTree.from_dict({"posterior": xr.Dataset(variables)}))
    found = [str(w.message) for w in said]
    assert len(found) == (worth is not None)
    assert all(
        re.match(f"The private draws of nu are worth {worth} independent ones: they", m) for m in found
    )


def test_they_are_looked_at_when_the_cost_is_written(sampled, monkeypatch):
    idata, step, _ = sampled
    looked_at = []
    monkeypatch.setattr(report, "_tell_of_few", looked_at.append)
    assert dp.with_privacy(idata, step) is idata and looked_at == [idata]


def _same(read, idata):
    written = {name: value for name, value in idata.attrs.items() if name.startswith("privacy_")}
    assert len(written) == 7 and {name: read.attrs[name] for name in written} == written
    xr.testing.assert_identical(read["privacy"].to_dataset().load(), idata["privacy"].to_dataset())


def test_nothing_of_it_depends_on_rows():
    """But for the released count: of two tables everything is the same, bit for bit."""
    groups = []
    for rows in (ROWS, 1e6 * ROWS[::-1]):
        model = models.normal_model(rows, clip=1.5)
        step = dp.PenaltyMetropolis(model=model, noise_multiplier=5.0)
        idata = pm.sample(6, tune=2, chains=1, step=step, model=model, **QUIET)
        groups.append(dp.with_privacy(idata, step, delta=1e-6))
    assert groups[0].attrs["privacy_costs"] == groups[1].attrs["privacy_costs"]
    xr.testing.assert_identical(*(g["privacy"].to_dataset() for g in groups))
    assert (
        groups[0]["privacy"]["ledger_entry"].item() == 0 and "privacy_budget_epsilon" not in groups[0].attrs
    )
    assert groups[0]["privacy"]["n_released"].values.tolist() == [[8, 0, 0]]


@pytest.mark.statistical
def test_several_steps_of_worker_processes():
    """A step that counts beside one that does not, each with its part of a budget."""
    with pm.Model():
        mu, nu = pm.Normal("mu"), pm.Normal("nu")
        for name, parameter in (("x", mu), ("y", nu)):
            dp.ConfidentialLikelihood(name, pm.Normal.dist(parameter, 1), ROWS, clip=3, clip_gradient=3)
        book = ledger()
        steps = [
            dp.PrivateHMC([mu], ledger=book, share=0.5, clipped_noise=3.0, step_size=0.01, **PLAN),
            dp.PenaltyMetropolis([nu], ledger=book, **PLAN),
        ]
        idata = pm.sample(**PLAN, cores=2, step=steps, **QUIET)
    group = dp.with_privacy(idata, *steps)["privacy"]
    assert idata.attrs["privacy_epsilon"] == pytest.approx(2.0, rel=1e-6)
    assert np.allclose(group["epsilon"], group["epsilon"][0]) and (group["epsilon"] < 1.9).all()
    assert group["n_released"].values.tolist() == [[60, 2 * 301, 60], [60, 0, 0]]
    fraction = group["clipped_fraction"].values
    assert fraction[0] == idata.sample_stats["private_clipped_fraction"].mean() and np.isnan(fraction[1])


def test_refused(sampled):
    idata, step, _ = sampled
    model = models.normal_model(ROWS)
    other = dp.PenaltyMetropolis(model=model, noise_multiplier=5.0)
    for arguments, kwargs, error, message in [
        ((idata,), {}, ValueError, "give the private steps"),
        ((idata, "step"), {}, TypeError, "str is no private step"),
        ((None, step), {}, TypeError, "idata must be what pm.sample returned"),
        ((xr.DataTree.from_dict({"sample_stats": xr.Dataset()}), step), {}, ValueError, "no statistics of"),
        ((idata, other), {"delta": 1e-6}, ValueError, "40 of 40 draws are none that"),
        ((idata, step), {"delta": 2.0}, ValueError, "delta must be strictly between 0 and 1"),
    ]:
        with pytest.raises(error, match=message):
            dp.with_privacy(*arguments, **kwargs)
    new = dp.PenaltyMetropolis(model=model, noise_multiplier=5.0)
    idata = pm.sample(6, tune=0, chains=1, step=new, model=model, **QUIET)
    with pytest.raises(ValueError, match="delta is needed: no step has a ledger"):
        dp.with_privacy(idata, new)


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("kept", [{"draw": []}, {"chain": []}, {"draw": [], "chain": []}, {"draw": [7]}])
def test_draws_may_be_left_out(sampled, kept):
    """All of them, or all but one: the run costs what it costs."""
    idata, step, _ = sampled
    whole = dp.with_privacy(idata.copy(), step)
    part = dp.with_privacy(idata.isel(kept), step)
    for name in ("privacy_epsilon", "privacy_delta", "privacy_costs", "privacy_budget_spent"):
        assert part.attrs[name] == whole.attrs[name]
    assert part.privacy["n_released"].equals(whole.privacy["n_released"])
    left = part.sample_stats["private_clipped_fraction"].values
    (fraction,), (sd,) = part.privacy["clipped_fraction"].values, part.privacy["clipped_fraction_sd"].values
    if left.size:
        of_all = idata.sample_stats["private_clipped_fraction"].size
        assert fraction == left.mean()
        assert np.isclose(sd, whole.privacy["clipped_fraction_sd"].values[0] * np.sqrt(of_all / left.size))
    else:
        assert np.isnan([fraction, sd]).all()


# -- the count of clipped rows ----------------------------------------------------------------------


def test_it_is_paid_for(sampled):
    """Composed with the ratios, debited with them, and in the cost of the step."""
    _, step, book = sampled
    ratio, count = book.spent
    assert count == GaussianCost(60, 4.0 * ratio.noise_multiplier)
    without = ledger()
    dp.PenaltyMetropolis(model=step.model, ledger=without, **PLAN)
    # the same budget: the ratios have more noise, by what the counts take of it
    assert ratio.noise_multiplier == pytest.approx(without.spent[0].noise_multiplier * (1 + 1 / 16) ** 0.5)
    for wrong in (0, -1.0, np.inf):
        with pytest.raises(ValueError, match="clipped_noise must be"):
            dp.PenaltyMetropolis(model=step.model, noise_multiplier=1.0, clipped_noise=wrong)


def test_it_counts_what_is_clipped(sampled):
    """The exact number plus Gaussian noise of the stated size, in a unit of one row."""
    _, step, _ = sampled
    driven = models.penalty(step.model, 0.5, clipped_noise=6.0)
    new, theta, other = np.array([0.4]), np.zeros(1), np.zeros(0)
    drawn = []
    for _ in range(3000):
        driven.noisy_ratio(new, theta, other, 0.4)
        drawn.append(driven._said(True, 0.0)[0]["private_clipped_fraction"])
    change = stats.norm.logpdf(ROWS, 0.4) - stats.norm.logpdf(ROWS, 0.0)
    clipped = (np.abs(change) > 1.5 * 0.4).sum()
    assert 0 < clipped < 40
    z = (np.array(drawn) * 40 - clipped) / 3.0
    assert stats.kstest(z, "norm").pvalue > 1e-3
    assert stats.kstest(z * 1.15, "norm").pvalue < 1e-3  # power
    driven.noisy_ratio(theta, theta, other, 0.0)  # no move: noise alone
    assert driven._n_clipped != 0


def test_the_group_has_its_mean(sampled):
    idata, step, _ = sampled
    group = dp.with_privacy(idata, step)["privacy"]
    said = idata.sample_stats["private_clipped_fraction"]
    assert said.shape == (2, 20) and group["clipped_fraction"].item() == float(said.mean())
    sd = 4 * step.plan.noise_multiplier / 40 / np.sqrt(40)
    assert group["clipped_fraction_sd"].item() == pytest.approx(sd)


def test_without_being_asked_for_nothing_is_counted(sampled):
    _, step, _ = sampled
    quiet = models.penalty(step.model, 0.5)
    quiet._sums.exceeding = None  # would fail if it were called
    _, (said,) = quiet.step(step.model.initial_point())
    assert set(said) == {"private_accepted", "private_log_ratio", *TIES}
    assert "private_clipped_fraction" not in type(step).stats_dtypes_shapes
    copied = cloudpickle.loads(cloudpickle.dumps(step))
    assert copied.stats_dtypes_shapes == step.stats_dtypes_shapes != quiet.stats_dtypes_shapes
