"""Studies: each fit is that of pm.sample, the same whichever way it is made; what ends, is kept; bad "
"input."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from pymc.model.transform.optimization import freeze_model

import pymc_dp as dp
from pymc_dp.runs import fits as making
from pymc_dp.runs.structures import digest, same_computation
from pymc_dp.step_methods.ancillary import AncillaryUpdate
from tests.runs.killed import FITS, Killable, fits, many_releases
from tests.runs.models import CASES, answers, coefficients, processed, public, sums

ROOT = Path(__file__).resolve().parents[2]
SHORT = {"draws": 40, "tune": 40, "chains": 2, "progressbar": False}


def without_times(found):
    return found.drop_vars("seconds")


@pytest.fixture(scope="module")
def in_turn():
    return fits(None)


# -- each fit is that of pm.sample ----------------------------------------------------------------


@pytest.mark.compiles(1)
@pytest.mark.parametrize("case", CASES)
def test_fits_are_those_of_pm_sample(case):
    build, step, releases = CASES[case]
    found = dp.replicate(
        build(), [{"z": np.array(z)} for z in releases], keep="draws", random_seed=5, step=step, **SHORT
    )
    # one after two others; the first fit too, of steps of ours and of NUTS
    for k in (0, 2) if case in ("sums", "integrated") else (2,):
        model = build(releases[k])
        with model:
            given = None if step is None else step(model)
        alone = pm.sample(
            model=model, step=given, random_seed=int(found.seed[k]), cores=1, quiet=True, nuts_sampler="pymc",
            compute_convergence_checks=False, **SHORT,
        )  # fmt: skip
        kept = [str(name).removesuffix("_draws") for name in found.data_vars if str(name).endswith("_draws")]
        assert kept
        for name in kept:
            draws = alone["posterior"][name].values
            np.testing.assert_array_equal(found[f"{name}_draws"][k], draws, err_msg=f"{name}, {k}")
            np.testing.assert_allclose(found[name].sel(replicate=k, summary="mean"), draws.mean((0, 1)))
            sd = draws.reshape(-1, *draws.shape[2:]).std(0, ddof=1)
            np.testing.assert_allclose(found[name].sel(replicate=k, summary="sd"), sd)
        for name in found.statistic.values:
            mean = alone["sample_stats"][name].values.mean()
            np.testing.assert_allclose(found.acceptance.sel(replicate=k, statistic=name), mean)


@pytest.mark.parametrize("built", [False, True])
def test_a_query_at_the_released_value_is_that_of_each_fit(built):
    """It was that of the place holder, under which no other release can be. Constants are evaluated
    beforehand, so that the draws of `pm.sample` agree up to rounding."""
    releases = [np.array(z) for z in CASES["coefficients"][2]]
    model = (lambda z: coefficients(z, as_data=False)) if built else coefficients(as_data=False)
    observed = releases if built else {"z": np.array(releases)}
    found = dp.replicate(model, observed, keep="draws", random_seed=5, **SHORT)
    assert len(next(iter(making._PREPARED.values()))) == 1
    seed = int(found.seed[1])
    alone = pm.sample(
        model=coefficients(releases[1], as_data=False), random_seed=seed, cores=1, quiet=True, **SHORT
    )
    np.testing.assert_allclose(found.beta_draws[1], alone.posterior["beta"], rtol=1e-6)


def test_a_fit_that_goes_on_from_the_last_one_is_seen(monkeypatch):
    """Planted fault: the steps of a fit begin with what those of the fit before had learnt."""
    asked = SHORT | {"random_seed": 1, "tune": 300}  # Metropolis learns every 100 draws
    right = dp.replicate(public(), many_releases(3), **asked)
    made = making.Prepared.__init__

    def forgetful(self, *given):
        made(self, *given)
        monkeypatch.setattr(pm.Metropolis, "sampling_state", property(lambda s: None, lambda s, state: None))

    monkeypatch.setattr(making.Prepared, "__init__", forgetful)
    making._PREPARED.clear()
    wrong = dp.replicate(public(), many_releases(3), **asked)
    making._PREPARED.clear()
    assert not np.array_equal(right.k[1:], wrong.k[1:])


def test_summaries_are_arviz_s(in_turn):
    import arviz as az

    found = dp.replicate(sums(), many_releases(1), keep="draws", random_seed=1, **SHORT)
    draws = xr.Dataset({"mu": (("chain", "draw"), found.mu_draws[0].values)})
    for name, of in {
        "ess_bulk": az.ess(draws, method="bulk"), "ess_tail": az.ess(draws, method="tail"),
        "r_hat": az.rhat(draws), "q0.25": draws.quantile(0.25), "mean": draws.mean(),
    }.items():  # fmt: skip
        np.testing.assert_allclose(found.mu.sel(summary=name)[0], of["mu"], rtol=1e-10, err_msg=name)


def test_a_frozen_model_is_sampled_as_any():
    """PyMC's frozen models are no pm.Model by class: their mechanisms were refused as unobserved."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 2)
        y = pm.Normal("y", mu, 1, shape=20)
        dp.LaplaceMechanism("z", dp.record_sum(y), epsilon=1, bounds=(-3, 3), observed=5.0)
    frozen = freeze_model(model)
    idata = pm.sample(model=frozen, random_seed=1, cores=1, quiet=True, **SHORT)
    assert "ancillary_acceptance" in idata.sample_stats
    assert dp.guarantee(frozen).epsilon == 1


# -- ways -----------------------------------------------------------------------------------------


def test_on_cores(in_turn):
    assert without_times(fits(None, n_jobs=2)).identical(without_times(in_turn))


def test_on_a_cluster(in_turn):
    distributed = pytest.importorskip("distributed")
    cluster = distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
    with cluster, distributed.Client(cluster) as client:
        assert without_times(fits(None, client=client)).identical(without_times(in_turn))
    with pytest.raises(
        ConnectionError, match="client is closed, not connected to a scheduler: make a new one"
    ):
        fits(None, client=client)


def test_in_parts(in_turn, tmp_path):
    parts = [fits(tmp_path / "study", part=(i, 5)) for i in (2, 0, 4, 1)]
    assert [list(p.replicate.values) for p in parts] == [[2, 7], [0, 5, 10], [4, 9], [1, 6, 11]]
    on_disk = xr.open_zarr(tmp_path / "study", consolidated=False)
    assert int((on_disk.status != "").sum()) == 10
    assert without_times(fits(tmp_path / "study")).identical(without_times(in_turn))
    alone = fits(None, part=(2, 5))
    assert without_times(alone).equals(without_times(parts[0]))


def test_models_that_are_built(in_turn):
    """One structure: it compiles once, and fits are those of one model."""
    settings = list(many_releases(12)["z"])
    found = dp.replicate(sums, settings, progressbar=False, **FITS)
    assert len(next(iter(making._PREPARED.values()))) == 1
    assert without_times(found).drop_attrs().equals(without_times(in_turn).drop_attrs())


def noisier(setting):
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 2)
        y = pm.Normal("y", mu, 1, shape=setting["n"])
        query = dp.record_sum(y)
        dp.LaplaceMechanism("z", query, epsilon=setting["epsilon"], bounds=(-3, 3), observed=setting["z"])
    return model


def test_settings_of_several_structures():
    settings = [{"n": n, "epsilon": e, "z": z} for z in (3.0, 8.0) for n, e in ((20, 1), (30, 1), (20, 5))]
    found = dp.replicate(noisier, settings, random_seed=2, keep="draws", **SHORT)
    assert len(next(iter(making._PREPARED.values()))) == 3
    for k in (2, 3, 4):  # of each structure one, two of them after others
        seed, setting = int(found.seed[k]), settings[k]
        alone = pm.sample(model=noisier(setting), random_seed=seed, cores=1, quiet=True, **SHORT)
        np.testing.assert_array_equal(found.mu_draws[k], alone.posterior["mu"])


def shifted(by, scale=1.0, name="mu"):
    with pm.Model(coords={"k": [1, 2]}) as model:
        mu = pm.Normal(name, by, scale)
        pm.Deterministic("twice", 2 * mu)
        y = pm.Normal("y", mu, 1, shape=4)
        dp.LaplaceMechanism("z", y, scale=1, observed=np.zeros(4))
    return model


@pytest.mark.parametrize(
    ("other", "same"),
    [
        (lambda: shifted(0.0), True),
        (lambda: shifted(1.0), False),
        (lambda: shifted(0.0, 2.0), False),
        (lambda: shifted(0.0, name="nu"), False),
        (lambda: pm.do(shifted(0.0), {"mu": 1.0}), False),
    ],
)
def test_which_models_are_one_computation(other, same):
    one, two = shifted(0.0), other()
    assert same_computation(one, two) == same
    assert (digest(one) == digest(two)) == same


def test_a_digest_is_that_of_another_process():
    program = "from tests.runs.models import CASES; from pymc_dp.runs.structures import digest\n" + (
        "for build, _, _ in CASES.values(): print(digest(build(), observed=True))"
    )
    env = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "7"}
    command = [sys.executable, "-c", program]
    run = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    assert run.stdout.split() == [digest(build(), observed=True) for build, _, _ in CASES.values()]
    assert len(set(run.stdout.split())) >= len(CASES) - 1  # the sums, by two kinds of steps, are one model


# -- what ended is kept ---------------------------------------------------------------------------


def test_a_failed_fit_stops_nobody(tmp_path):
    """A count beyond what the mechanism gives has no density, at any parameters."""
    releases = np.array([[0, 1, 2] * 10, [0, 1, 7] * 10, [2, 1, 2] * 10])
    found = dp.replicate(answers(), {"z": releases}, random_seed=1, path=tmp_path / "s", **SHORT)
    assert found.status.values[1] == "failed" and "failed" not in found.status.values[[0, 2]]
    assert "density of z is zero" in str(found.error.values[1])
    assert np.isnan(found.p[1]).all() and np.isfinite(found.p[0].sel(summary="mean")).all()
    again = dp.replicate(answers(), {"z": releases}, random_seed=1, path=tmp_path / "s", **SHORT)
    assert again.identical(found)  # seconds too: nothing was made again


def test_all_fits_fail():
    found = dp.replicate(answers(), {"z": np.full((2, 30), 9)}, random_seed=1, **SHORT)
    assert list(found.status.values) == ["failed"] * 2


def test_an_unconverged_fit_is_told(in_turn):
    short = dp.replicate(sums(), many_releases(2), random_seed=1, **SHORT)
    assert list(short.status.values) == ["unconverged"] * 2
    assert all("effective draws" in e or "R-hat" in e for e in short.error.values)


def test_an_interrupt_keeps_what_ended(tmp_path, monkeypatch):
    step, draws = AncillaryUpdate.step, []

    def interrupted(self, point):
        draws.append(1)
        if len(draws) == 3 * 160 + 70:  # in the fourth fit, after tuning
            raise KeyboardInterrupt
        return step(self, point)

    monkeypatch.setattr(AncillaryUpdate, "step", interrupted)
    some = fits(tmp_path / "s")
    assert list(some.status.values[3:]) == ["missing"] * 9
    assert "missing" not in some.status.values[:3]


@pytest.fixture(scope="module")
def runs():
    with Killable() as runs:
        yield runs


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_kill_loses_no_fit_that_had_ended(tmp_path, runs, n_jobs, full):
    # all read their code from the disk: that of a process that compiled it may differ in the last digit
    for where in ("compiled", "whole"):
        assert runs.ends(300, "replicate", 1, str(tmp_path / where))
    most = 12 if full else 2
    rng = np.random.default_rng(most + n_jobs)
    ended: set[int] = set()
    kills, asked = 0, ("replicate", n_jobs, str(tmp_path / "s"))
    while not runs.ends(rng.uniform(0.2, 2.5) if kills < most else 300, *asked):
        kills += 1
        now = seconds_of(tmp_path / "s")
        assert ended <= set(now.items())  # the same fits, none of them made anew
        ended = set(now.items())
    assert 0 < kills <= most
    assert ended <= set(seconds_of(tmp_path / "s").items())
    assert without_times(fits(tmp_path / "s")).identical(without_times(fits(tmp_path / "whole")))


def seconds_of(path):
    if not path.exists():
        return {}
    kept = xr.open_zarr(path, consolidated=False).load()
    return {k: float(kept.seconds[k]) for k in range(12) if kept.status.values[k] != ""}


def dies_at(k, died):
    """Steps of a model of which a worker dies, once, when it observes one release."""

    def steps(model):
        observed = model.rvs_to_values[model.named_vars["z"]]

        class Dying(dp.RecordImputation):
            def step(self, point):
                if observed.get_value()[0] == k and not died.exists():
                    died.touch()
                    os.kill(os.getpid(), signal.SIGKILL)
                return super().step(point)

        return [Dying(model=model)]

    return steps


def test_a_worker_that_dies_loses_its_fit_only(tmp_path):
    releases = {"z": np.array([[k, 60.0] for k in range(6)])}
    found = dp.replicate(
        sums(), releases, n_jobs=2, step=dies_at(3.0, tmp_path / "died"), random_seed=1, **SHORT
    )
    assert (tmp_path / "died").exists()
    assert "failed" not in found.status.values and "missing" not in found.status.values


# -- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("observed", "error", "told"),
    [
        (
            {"z": np.zeros((3, 3))},
            ValueError,
            r"observed\['z'\]\[0\] holds values of shape \(3,\), .* \(2,\)",
        ),
        ({"z": np.zeros(2)}, ValueError, r"holds values of shape \(\)"),
        ({"z": 3.0}, ValueError, r"observed\['z'\] is one number: give an array with a leading axis"),
        ({"mu": np.zeros(3)}, ValueError, r"the name 'mu', which is no release .* these are z"),
        (
            {"z": np.array([[1, 2], [np.nan, 3]])},
            ValueError,
            r"observed\['z'\]\[1\] has 1 missing or infinite",
        ),
        ([{"z": [1, 2]}, {"z": [1, 2, 3]}], ValueError, r"observed\[1\]\['z'\] holds values of shape \(3,\)"),
        ([{"z": [1, 2]}, {"y": [1, 2]}], ValueError, r"observed\[1\] has the names y, and the first z"),
        ({"z": [[1, 2], [3]]}, TypeError, r"observed\['z'\] must hold real numbers in one array"),
        ({"z": [["a", "b"]]}, TypeError, r"must hold real numbers"),
        ({"z": np.zeros((0, 2))}, ValueError, "observed has no fits in it"),
        ([], ValueError, "observed has no fits in it"),
        ({}, ValueError, "observed has no fits in it"),
        (np.zeros((3, 2)), TypeError, r"observed must be a mapping, .* got ndarray"),
    ],
)
def test_bad_releases(observed, error, told):
    with pytest.raises(error, match=told):
        dp.replicate(sums(), observed, **SHORT)


def test_bad_releases_of_other_kinds():
    with pytest.raises(ValueError, match=r"\[0\] has values that are not whole, and z is"):
        dp.replicate(answers(), {"z": np.full((2, 30), 0.5)}, **SHORT)
    with pytest.raises(ValueError, match=r"\[0\] cannot be what was published"):
        dp.replicate(processed(), {"z": [[3.0, 20.0, np.nan, np.nan]]}, **SHORT)


@pytest.mark.parametrize(
    ("changed", "error", "told"),
    [
        ({"draws": 2}, ValueError, r"draws must be a whole number of at least 4, got 2"),
        ({"cores": 2}, TypeError, r"takes no cores=: .* n_jobs is the number of processes"),
        ({"nuts_sampler": "nutpie"}, TypeError, r"leave it out"),
        ({"keep": "all"}, ValueError, r"keep must be 'summary', 'draws', or how many"),
        ({"part": (3, 3)}, ValueError, r"part must be \(i, n\).* got \(3, 3\)"),
        ({"n_jobs": 0}, ValueError, r"n_jobs must be a number of processes"),
        ({"n_jobs": 2, "client": object()}, ValueError, r"give one of them"),
        ({"client": object()}, TypeError, r"client must be a dask.distributed.Client, got object"),
        ({"var_names": ["m"]}, ValueError, r"var_names has 'm'; the model's variables are mu, sigma"),
        ({"var_names": []}, ValueError, r"var_names is empty"),
        ({"var_names": "mu"}, TypeError, r"write \['mu'\]"),
        ({"random_seed": -3}, ValueError, r"random_seed must be"),
        ({"drawz": 3}, TypeError, r"got drawz: no argument of pm.sample, and no name of a step"),
    ],
)
def test_bad_arguments(changed, error, told):
    with pytest.raises(error, match=told):
        dp.replicate(sums(), many_releases(2), **SHORT | changed)


def test_steps_of_the_model_are_refused():
    model = sums()
    with model:
        step = dp.RecordImputation()
    with pytest.raises(TypeError, match=r"Give step=lambda model: \[\.\.\.\]"):
        dp.replicate(model, many_releases(2), step=step, **SHORT)
    dp.replicate(model, many_releases(1), step=lambda model: [dp.RecordImputation()], **SHORT)


def test_models_that_are_none():
    with pytest.raises(TypeError, match=r"model must be a pm.Model, or a function that builds one"):
        dp.replicate(3, many_releases(2), **SHORT)
    with pytest.raises(TypeError, match=r"returned int: a function in the place of a model must build"):
        dp.replicate(lambda setting: 3, [1, 2], **SHORT)
    with pytest.raises(TypeError, match=r"must be a list of settings where model is a function"):
        dp.replicate(sums, many_releases(2), **SHORT)


def test_a_model_that_cannot_be_pickled():
    lock = threading.Lock()

    def build(z):
        return sums(z) if lock else None

    with pytest.raises(
        ValueError, match=r"model cannot be pickled \(TypeError.*Leave out what holds open files"
    ):
        dp.replicate(build, [(1.0, 2.0)], **SHORT)


def test_a_variable_with_a_name_of_the_result():
    with pm.Model() as model:
        seconds = pm.Normal("seconds")
        y = pm.Normal("y", seconds, 1, shape=4)
        dp.LaplaceMechanism("z", y, scale=1, observed=np.zeros(4))
    with pytest.raises(ValueError, match=r"dimensions named seconds, .*rename them, or leave them out"):
        dp.replicate(model, {"z": np.zeros((2, 4))}, **SHORT)


def test_confidential_rows_are_refused():
    with pm.Model() as model:
        theta = pm.Normal("theta")
        dp.ConfidentialLikelihood("x", pm.Normal.dist(theta, 1), data=np.zeros(30), clip=1.0)
        y = pm.Normal("y", theta, 1, shape=4)
        dp.LaplaceMechanism("z", y, scale=1, observed=np.zeros(4))
    with pytest.raises(ValueError, match=r"confidential rows of x: every fit would spend budget"):
        dp.replicate(model, {"z": np.zeros((2, 4))}, **SHORT)


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study") / "s"
    dp.replicate(sums(), many_releases(2), path=folder, random_seed=1, **SHORT)
    return folder


@pytest.mark.parametrize(
    ("model", "n", "changed", "told"),
    [
        (sums, 2, {"random_seed": 2}, r"another study, which differs in entropy"),
        (sums, 3, {}, r"differs in fits, observed; fits there is 2, here 3"),
        (sums, 2, {"tune": 50}, r"differs in arguments; .*'tune': '40'.*'tune': '50'"),
        (sums, 2, {"keep": "draws"}, r"differs in keep"),
        (sums, 2, {"var_names": ["mu"]}, r"differs in var_names"),
        (lambda: pm.do(sums(), {"sigma": 1.0}), 2, {"var_names": ["mu"]}, r"differs in model, var_names"),
    ],
)
def test_a_store_of_another_study(study, model, n, changed, told):
    asked = {**SHORT, "path": study, "random_seed": 1} | changed
    with pytest.raises(ValueError, match=told + ".*Nothing was changed"):
        dp.replicate(model(), many_releases(n), **asked)


def test_a_store_that_is_none(tmp_path):
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "thesis.tex").write_text("x")
    with pytest.raises(ValueError, match=r"holds no study that can be read. Give another path"):
        dp.replicate(sums(), many_releases(2), path=tmp_path / "s", **SHORT)


@pytest.mark.parametrize(
    ("format_", "told"),
    [(99, r"newer version of pymc_dp \(format 99"), (1, r"older version .*format 1, .*another path")],
)
def test_a_store_of_another_version(study, tmp_path, format_, told):
    import shutil

    shutil.copytree(study, tmp_path / "s")
    file = tmp_path / "s" / "zarr.json"
    kept = json.loads(file.read_text())
    kept["attributes"]["study"]["format"] = format_
    file.write_text(json.dumps(kept))
    with pytest.raises(ValueError, match=told):
        dp.replicate(sums(), many_releases(2), path=tmp_path / "s", random_seed=1, **SHORT)


def test_two_processes_on_one_part(study):
    import fcntl

    with open(study.with_name(".s.part-0-1"), "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(
            BlockingIOError, match=r"another process is making these fits .*its part=\(i, n\)"
        ):
            dp.replicate(sums(), many_releases(2), path=study, random_seed=1, **SHORT)


def test_a_seed_is_kept_in_the_store(tmp_path):
    one = dp.replicate(sums(), many_releases(2), path=tmp_path / "s", part=(0, 2), **SHORT)
    two = dp.replicate(sums(), many_releases(2), path=tmp_path / "s", **SHORT)
    assert one.seed[0] == two.seed[0] and two.seed[0] != two.seed[1]
