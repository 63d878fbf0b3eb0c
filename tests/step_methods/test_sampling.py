"""How the steps live inside `pm.sample`: choice, reproducibility, state, starts, statistics."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pymc as pm
import pytest

import pymc_dp as dp
from tests.statistics import harness, oracles

pytestmark = pytest.mark.compiles(1)

ROOT = Path(__file__).resolve().parents[2]
Z = np.array([0.4, -1.2, 2.9, 1.4, 0.1, -0.5])
QUICK = {"progressbar": False, "compute_convergence_checks": False, "cores": 1}


def central():
    with pm.Model(coords={"person": np.arange(10)}) as model:
        mu = pm.Normal("mu", 0.5, 1.5)
        x = pm.Normal("x", mu, 0.8, dims="person")
        dp.LaplaceMechanism("s", dp.record_sum(x), scale=2.0, observed=13.0)
    return model


def local():
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.2, 1.0)
        y = pm.Normal("y", mu, 0.8, shape=Z.size)
        dp.LaplaceMechanism("z", y, scale=0.7, observed=Z)
    return model


def exact_central():
    return oracles.normal_sum(13.0, 10, 0.8, 2.0, prior=(0.5, 1.5))


def exact_local():
    return oracles.normal_local(Z, 0.8, 0.7, prior=(0.2, 1.0))


def draws_of(idata):
    return {name: v.values for name, v in idata.posterior.data_vars.items()}


def assert_same(first, second):
    assert set(first) == set(second)
    for name in first:
        np.testing.assert_array_equal(first[name], second[name])


STEPS = {
    "RecordImputation": (central, exact_central, lambda m: [dp.RecordImputation()]),
    "NUTS beside it": (
        central,
        exact_central,
        lambda m: [pm.NUTS([m["mu"]]), dp.RecordImputation(n_sweeps=2)],
    ),
    "slice": (
        central,
        exact_central,
        lambda m: [dp.AncillaryUpdate(update="slice"), dp.RecordImputation()],
    ),
    "no ancillary update": (
        central,
        exact_central,
        lambda m: [dp.AncillaryUpdate(update="off", n_cycles=10), dp.RecordImputation()],
    ),
    "ancillary update alone": (central, exact_central, lambda m: [dp.AncillaryUpdate()]),
    "local, independence": (
        local,
        exact_local,
        lambda m: [dp.RecordImputation(proposals="independence", n_sweeps=4)],
    ),
    "local, informed": (local, exact_local, lambda m: [dp.RecordImputation(proposals="informed")]),
}


@pytest.mark.parametrize("name", STEPS)
def test_steps_given_by_the_user(name):
    build, exact, make = STEPS[name]
    model = build()
    with model:
        idata = pm.sample(4000, tune=800, chains=2, step=make(model), random_seed=3, **QUICK)
    verdict = harness.mc_z(idata.posterior["mu"].values, exact(), minimum_ess=150)
    assert verdict.passed, verdict


def test_outside_a_context_as_inside():
    """The same steps are found, and so the same draws are made."""
    model = central()
    with model:
        inside = pm.sample(30, tune=30, chains=2, random_seed=1, **QUICK)
    outside = pm.sample(30, tune=30, chains=2, random_seed=1, model=model, **QUICK)
    assert_same(draws_of(inside), draws_of(outside))
    other = pm.sample(30, tune=30, chains=2, random_seed=2, model=model, **QUICK)
    assert not np.array_equal(draws_of(inside)["mu"], draws_of(other)["mu"])
    assert inside.posterior["x"].dims == ("chain", "draw", "person")


def test_sample_stats():
    idata = pm.sample(50, tune=20, chains=2, random_seed=1, model=central(), **QUICK)
    stats = idata.sample_stats
    for name in ("record_acceptance", "record_acceptance_min"):
        assert stats[name].dims == ("chain", "draw")
        assert np.isfinite(stats[name]).all()
        assert (stats[name] >= 0).all() and (stats[name] <= 1).all()
    for name in ("centred_acceptance", "ancillary_acceptance"):
        assert np.isfinite(stats[name]).all()


def test_chains_start_dispersed():
    """PyMC starts all chains at one point when steps are mixed; the steps see to it themselves."""
    with central():
        idata = pm.sample(1, tune=1, chains=4, random_seed=1, step=[dp.RecordImputation()], **QUICK)
        again = pm.sample(1, tune=1, chains=4, random_seed=1, step=[dp.RecordImputation()], **QUICK)
    for name in ("mu", "x"):
        values = idata.posterior[name].values.reshape(4, -1)
        assert len({tuple(v) for v in values}) == 4
    assert_same(draws_of(idata), draws_of(again))


def test_initial_values_are_kept():
    """Values given by the user are not dispersed: here a release pins the records to them."""
    start = np.linspace(-1, 3, 10)
    with pm.Model() as model:
        pm.Normal("x", pm.Normal("mu"), 1, shape=10)
        dp.LaplaceMechanism("z", model["x"], scale=1e-9, observed=start)
        step = dp.RecordImputation(proposals="independence")
        point = {**model.initial_point(), "x": start.copy(), "mu": np.array(0.7)}
        step.setup_chain(np.random.default_rng(0), tune=5, draws=5)
        after, (stats,) = step.step(point)
        np.testing.assert_array_equal(after["x"], start)
        assert after["mu"] == 0.7
        assert stats["record_acceptance"] < 1e-6
        idata = pm.sample(
            2, tune=0, chains=1, step=[pm.NUTS([model["mu"]]), dp.RecordImputation(
                proposals="independence")], initvals={"x": start}, random_seed=1, **QUICK
        )  # fmt: skip
    np.testing.assert_allclose(idata.posterior["x"].values[0, 0], start)


def test_interrupted_sampling_keeps_its_draws():
    def interrupt(trace, draw):
        if draw.draw_idx == 40:
            raise KeyboardInterrupt

    idata = pm.sample(100, tune=20, chains=1, model=central(), callback=interrupt, random_seed=1, **QUICK)
    assert 0 < idata.posterior.sizes["draw"] < 100
    assert np.isfinite(idata.posterior["x"]).all()


@pytest.mark.statistical
def test_models_made_from_models():
    model = central()
    with pm.do(model, {"mu": 1.0}):
        idata = pm.sample(20, tune=10, chains=1, random_seed=1, **QUICK)
    assert set(idata.posterior.data_vars) == {"x"}
    with pm.observe(pm.do(local(), {}), {"mu": 0.0}):
        idata = pm.sample(20, tune=10, chains=1, random_seed=1, **QUICK)
    assert set(idata.posterior.data_vars) == {"y"}
    clone = pm.model.fgraph.clone_model(model)
    first = pm.sample(20, tune=10, chains=1, random_seed=1, model=model, **QUICK)
    second = pm.sample(20, tune=10, chains=1, random_seed=1, model=clone, **QUICK)
    assert_same(draws_of(first), draws_of(second))


def test_predictive_draws():
    with central():
        prior = pm.sample_prior_predictive(50, random_seed=1)
        idata = pm.sample(50, tune=50, chains=1, random_seed=1, **QUICK)
        posterior = pm.sample_posterior_predictive(idata, random_seed=1, progressbar=False)
    assert prior.prior["x"].shape == (1, 50, 10)
    assert prior.prior_predictive["s"].shape == (1, 50)
    noise = posterior.posterior_predictive["s"] - idata.posterior["x"].sum("person")
    assert 0.5 < float(abs(noise).mean()) < 6  # Laplace of scale 2 about the records' own sum


def test_releases_can_be_replaced():
    """`pm.set_data` between two calls is seen: no value is compiled in."""
    with pm.Model() as model:
        z = pm.Data("released", 0.0)
        x = pm.Normal("x", pm.Normal("mu", 0, 10), 1, shape=5)
        dp.LaplaceMechanism("s", x.sum(), scale=0.5, observed=z)
        means = []
        for value in (-50.0, 50.0):
            pm.set_data({"released": value})
            idata = pm.sample(300, tune=300, chains=1, random_seed=1, **QUICK)
            means.append(float(idata.posterior["x"].sum("x_dim_0").mean()))
    assert model.free_RVs
    np.testing.assert_allclose(means, [-50, 50], atol=3)


EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)


@pytest.mark.parametrize("kind", ["sum", "two sums", "rows"])
def test_acceptance_is_at_least_the_guarantee_s(kind):
    """Proposition 3.1 of Ju et al. (2022), for every record and sweep, at the worst of releases."""
    with pm.Model() as model:
        scale = pm.Data("scale", 1.0)
        release = pm.Data("release", {"sum": 0.0, "two sums": np.zeros(2)}.get(kind, np.zeros(20)))
        x = pm.Normal("x", pm.Normal("mu"), 3, shape=20)
        query, width = {
            "sum": (x.sum(), 2.0),
            "two sums": (dp.record_sum(pm.math.stack([x, x**2], axis=1)), 4.0),
            "rows": (x, 2.0),
        }[kind]
        dp.LaplaceMechanism("z", query, scale=scale, bounds=(-1, 1), observed=release)
        step = dp.RecordImputation(proposals="independence")
    smallest = {}
    for epsilon in EPSILONS:
        with model:
            value = release.get_value()
            pm.set_data({"scale": width / epsilon, "release": np.full(value.shape, 40.0)})
        step.setup_chain(np.random.default_rng(1), tune=0, draws=100)
        point, worst = model.initial_point(), 1.0
        for _ in range(100):
            point, (stats,) = step.step(point)
            worst = min(worst, stats["record_acceptance_min"])
        assert worst >= np.exp(-epsilon) * (1 - 1e-9)
        smallest[epsilon] = worst
    assert smallest[0.1] > 0.9
    # the bound is nearly reached by a release far away: the test would see a better one
    if kind != "two sums":  # of which one record seldom moves both as far as it may
        assert smallest[1.0] < np.exp(-1.0) * 1.5


SCRIPT = """
import sys
import numpy as np
import pymc as pm
from tests.step_methods.test_sampling import central

if __name__ == "__main__":
    folder, *contexts = sys.argv[1:]
    for context in contexts:
        how = {"cores": 1} if context == "one" else {"cores": 2, "mp_ctx": context}
        idata = pm.sample(
            40, tune=40, chains=2, random_seed=8, model=central(), progressbar=False,
            compute_convergence_checks=False, **how,
        )
        np.savez(f"{folder}/{context}.npz", **{k: v.values for k, v in idata.posterior.data_vars.items()})
"""


@pytest.mark.statistical
def test_the_same_draws_however_chains_are_run(tmp_path):
    """In one process, and in workers that are forked, served or spawned."""
    script = tmp_path / "run_chains.py"
    script.write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    workers = ("fork", "forkserver", "spawn")
    for contexts in (("one",), ("one", *workers)):  # the first fills the cache
        subprocess.run(
            [sys.executable, str(script), str(tmp_path), *contexts],
            check=True, env=environment, timeout=600, capture_output=True,
        )  # fmt: skip
    one, *others = (dict(np.load(tmp_path / f"{context}.npz")) for context in ("one", *workers))
    for other in others:
        assert_same(one, other)


@pytest.mark.parametrize("categories", [1, 3])
def test_statistics_that_no_record_changes(categories):
    """Records that contribute alike are drawn from their law; a table of one category stands still."""
    prior = np.arange(1.0, categories + 1)
    with pm.Model() as model:
        p = pm.Dirichlet("p", prior)
        x = pm.Categorical("x", p, shape=3)
        dp.LaplaceMechanism("r", dp.record_sum(1.0 + 0 * x), scale=1.0, observed=2.3)
    draws = pm.sample(2000, tune=20, chains=1, model=model, random_seed=3, **QUICK).posterior
    error = 5 * np.sqrt(0.25 / 2000) if categories > 1 else 1e-12
    np.testing.assert_allclose(draws["p"].mean(("chain", "draw")), prior / prior.sum(), atol=error)
    # three people per draw, who share their table and are no three independent numbers
    shares = [float((draws["x"] == k).mean()) for k in range(categories)]
    np.testing.assert_allclose(shares, prior / prior.sum(), atol=error)
