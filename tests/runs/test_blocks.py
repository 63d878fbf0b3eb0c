"""Runs in blocks: the draws of pm.sample, the same after any kill; what else a folder may hold is refused."""

import errno
import json
import os
import pickle
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pymc as pm
import pytest

import pymc_dp as dp
from pymc_dp.runs import checkpoint as checkpoints
from pymc_dp.runs.states import dumped, loaded
from pymc_dp.step_methods.ancillary import AncillaryUpdate
from pymc_dp.step_methods.record_step import RecordStepState
from tests.runs.killed import BLOCKS, Killable, blocks, shared
from tests.runs.models import CASES, sums

ROOT = Path(__file__).resolve().parents[2]
# NUTS times itself.
TIMES = {"perf_counter_diff", "perf_counter_start", "process_time_diff"}


def assert_same(one, other):
    for group in ("posterior", "sample_stats"):
        a, b = one[group].dataset, other[group].dataset
        assert set(a.data_vars) == set(b.data_vars)
        for name in set(a.data_vars) - TIMES:
            np.testing.assert_array_equal(a[name].values, b[name].values, err_msg=name)


# Steps of ours, and NUTS: these runs are made in one block too, and in many at once. In the others each block
# begins with what the folder holds as well: it is one of a run that is continued.
IN_MANY_WAYS = ("sums", "integrated")


@pytest.mark.compiles(1)
@pytest.mark.parametrize("case", CASES)
def test_draws_are_those_of_pm_sample_whatever_the_blocks(case, tmp_path):
    """In one block, in many, and continued by models that were built anew, with more draws each time."""
    build, step, _ = CASES[case]
    model = build()
    with model:
        given = None if step is None else step(model)
    asked = {name: BLOCKS[name] for name in ("draws", "tune", "chains", "random_seed")}
    plain = pm.sample(
        model=model, step=given, cores=1, progressbar=False, quiet=True, nuts_sampler="pymc",
        compute_convergence_checks=False, **asked,
    )  # fmt: skip
    if case in IN_MANY_WAYS:
        assert_same(plain, blocks(case, tmp_path / "one", block=1000))
        assert_same(plain, blocks(case, tmp_path / "many", block=25))
    for draws in (10, 30, 60) if case in IN_MANY_WAYS else (10, 60):
        resumed = blocks(case, tmp_path / "resumed", block=25, draws=draws)
    assert_same(plain, resumed)


def test_a_state_that_lacks_what_was_learnt_is_seen(tmp_path, monkeypatch):
    """Planted fault: proposals of the ancillary update as they were at the start."""

    monkeypatch.setattr(AncillaryUpdate, "_state_class", RecordStepState)
    whole = shared(tmp_path / "one", block=1000)
    with pytest.raises(AssertionError):
        assert_same(whole, shared(tmp_path / "many", block=25))


def test_no_generator_is_lost(tmp_path, monkeypatch):
    """Planted fault: a chain that goes on with the generator that it began with."""
    whole = shared(tmp_path / "one", block=1000)
    restore = checkpoints.loaded

    def without_generators(data):
        found = restore(data)
        for state in getattr(found["state"], "methods", [found["state"]]):
            state.rng.bit_generator_state["state"]["state"] += 2
        return found

    monkeypatch.setattr(checkpoints, "loaded", without_generators)
    with pytest.raises(AssertionError):
        assert_same(whole, shared(tmp_path / "many", block=25))


def test_processes_give_the_same_draws(tmp_path):
    assert_same(blocks("sums", tmp_path / "one"), blocks("sums", tmp_path / "two", cores=2))


@pytest.fixture(scope="module")
def runs():
    with Killable() as runs:
        yield runs


# Imputation, and one of each kind of step beside; what is kept of the other cases, the test above shows.
LONG = ("sums, NUTS", "tables", "clusters")


@pytest.mark.parametrize("case", ["sums", *(pytest.param(c, marks=pytest.mark.statistical) for c in LONG)])
def test_a_kill_at_any_moment_changes_nothing(case, runs, tmp_path, most=3):
    # code that was just compiled and code from the disk may differ in the last digit: all read it from there,
    # in processes of their own, since another test may have compiled it in this one
    for what, where in (("compiles", "compiled"), ("blocks", "whole")):
        assert runs.ends(300, what, case, str(tmp_path / where))
    whole = blocks(case, tmp_path / "whole")  # as it was kept
    rng, kills, longest, trial = np.random.default_rng(len(case) + most), 0, 2.0, 0
    while not kills:  # a run may end before it is killed: then once more, with less patience
        trial, longest = trial + 1, longest / 1.5
        asked = ("blocks", case, str(tmp_path / f"killed {trial}"))
        while not runs.ends(rng.uniform(0.1, longest) if kills < most else 300, *asked):
            kills += 1
    assert_same(whole, blocks(case, tmp_path / f"killed {trial}"))


def test_a_kill_repeats_at_most_a_block(tmp_path, monkeypatch):
    kept = checkpoints.Checkpoint.keep

    def dies(self, chain, first, *rest):
        if (chain, first) == (1, 60):
            raise RuntimeError("killed")
        kept(self, chain, first, *rest)

    monkeypatch.setattr(checkpoints.Checkpoint, "keep", dies)
    with pytest.raises(RuntimeError, match="killed"):
        shared(tmp_path)
    monkeypatch.setattr(checkpoints.Checkpoint, "keep", kept)
    made = []
    step = AncillaryUpdate.step
    monkeypatch.setattr(AncillaryUpdate, "step", lambda self, point: made.append(1) or step(self, point))
    resumed = shared(tmp_path)
    assert len(made) == 60  # of the second chain, the blocks from draw 60 to its end at 120
    monkeypatch.undo()
    assert_same(shared(tmp_path / "whole"), resumed)


def test_an_interrupt_returns_what_there_is(tmp_path, monkeypatch):
    made = []
    step = AncillaryUpdate.step

    def interrupted(self, point):
        made.append(1)
        if len(made) == 105:
            raise KeyboardInterrupt
        return step(self, point)

    monkeypatch.setattr(AncillaryUpdate, "step", interrupted)
    some = shared(tmp_path)
    assert dict(some["posterior"].sizes)["draw"] == 44
    whole = shared(tmp_path)
    np.testing.assert_array_equal(some["posterior"]["mu"].values, whole["posterior"]["mu"].values[:1, :44])


# -- what is refused ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "here"
    shared(folder, draws=20, tune=20)
    return folder


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"tune": 30}, r"differs in tune; tune was 20, is 30.*give another path"),
        ({"block": 5}, r"differs in block; block was 20, is 5"),
        ({"random_seed": 6}, r"differs in seed; seed was 5, is 6"),
        ({"chains": 3}, r"differs in chains"),
        ({"var_names": ["mu"]}, r"differs in var_names"),
        ({"initvals": {"mu": 1.0}}, r"differs in arguments"),
        ({"draws": 10}, r"a run of draws=20, which is more than 10: give at least as many"),
    ],
)
def test_another_run(run, changed, told):
    before = {p: p.read_bytes() for p in run.rglob("*") if p.is_file()}
    with pytest.raises(ValueError, match=told):
        shared(run, **{"draws": 20, "tune": 20} | changed)
    assert before == {p: p.read_bytes() for p in run.rglob("*") if p.is_file()}


@pytest.mark.parametrize(
    "build",
    [
        lambda: sums((12.0, 61.0)),
        lambda: pm.do(sums(), {"sigma": 1.0}),
        CASES["answers"][0],
    ],
)
def test_another_model(run, build):
    asked = {**BLOCKS, "draws": 20, "tune": 20}
    with pytest.raises(ValueError, match="another run, which differs in model"):
        dp.sample_in_blocks(path=run, model=build(), progressbar=False, **asked)


def copied(run, tmp_path):
    import shutil

    shutil.copytree(run, tmp_path / "copy")
    return tmp_path / "copy"


def damage_state(folder):
    file = folder / "chain-0.state"
    data = bytearray(file.read_bytes())
    data[-20] ^= 1
    file.write_bytes(bytes(data))


def cut_state(folder):
    file = folder / "chain-1.state"
    file.write_bytes(file.read_bytes()[:-7])


def damage_draws(folder):
    chunk = next(
        p for p in (folder / "draws.zarr" / "0").rglob("c/0*") if p.is_file() and p.stat().st_size > 20
    )
    data = bytearray(chunk.read_bytes())
    data[len(data) // 2] ^= 1
    chunk.write_bytes(bytes(data))


def lose_draws(folder):
    """Zarr would read zeros."""
    next(p for p in (folder / "draws.zarr" / "0" / "samples|mu").rglob("c/*") if p.is_file()).unlink()


def lose_an_array(folder):
    import shutil

    shutil.rmtree(folder / "draws.zarr" / "1" / "samples|mu")


def damage_run(folder):
    (folder / "run.json").write_text("{")


def newer(folder):
    file = folder / "run.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"format": 99}))


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (damage_state, r"chain-0.state cannot be read .*Restore it from a copy"),
        (cut_state, r"chain-1.state cannot be read"),
        (damage_draws, r"draws.zarr.* cannot be read"),
        (lose_draws, r"draws.zarr.* cannot be read \(draws are missing"),
        (lose_an_array, r"draws.zarr.* cannot be read \(draws are missing"),
        (damage_run, r"run.json cannot be read"),
        (newer, r"newer version of pymc_dp \(format 99"),
    ],
)
def test_a_damaged_folder(run, tmp_path, fault, told):
    folder = copied(run, tmp_path)
    fault(folder)
    with pytest.raises(ValueError, match=told):
        shared(folder, draws=20, tune=20)


def test_a_folder_of_something_else(tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(ValueError, match=r"holds thesis.tex, but no run"):
        shared(tmp_path)


class Program:
    def __reduce__(self):
        return (os.system, ("true",))


@pytest.mark.parametrize(
    "what",
    [
        Program(),
        np.testing.assert_equal,
        eval,
        getattr,
        subprocess.Popen,
        pm.sample,
        dp.RecordImputation.competence,
    ],
)
def test_a_state_runs_no_program(what):
    with pytest.raises(pickle.UnpicklingError, match="is no part of a state"):
        loaded(pickle.dumps(what))


def test_states_of_arrays_and_generators_are_read():
    state = {
        "a": np.arange(3.0),
        "b": np.float64(2),
        "c": [1, (2, {"d": {3}})],
        "g": np.random.default_rng(1),
    }
    found = loaded(dumped(state))
    np.testing.assert_array_equal(found["a"], state["a"])
    assert found["c"] == state["c"] and found["g"].normal() == state["g"].normal()


def test_no_space_left(tmp_path, monkeypatch):
    write = checkpoints.Checkpoint._write

    def full(self, file, data):
        if file.name == "chain-1.state":
            raise OSError(errno.ENOSPC, "No space left on device")
        write(self, file, data)

    monkeypatch.setattr(checkpoints.Checkpoint, "_write", full)
    with pytest.raises(OSError, match=r"no space is left .*before draw 0 of chain 1 are kept: make room"):
        shared(tmp_path)
    monkeypatch.undo()
    assert_same(shared(tmp_path), shared(tmp_path.with_name("whole")))


HOLDER = """
import fcntl, sys, time
file = open(sys.argv[1], "a")
fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(60)
"""


def test_two_processes_on_one_folder(tmp_path):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path / "lock")],
        stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(BlockingIOError, match=r"another process is running this run .*Wait for it, or"):
            shared(tmp_path)
    finally:
        holder.kill()
        holder.wait()
    time.sleep(0.1)
    shared(tmp_path, draws=5, tune=5, chains=1)


@pytest.mark.parametrize(
    ("changed", "error", "told"),
    [
        ({"draws": 0}, ValueError, r"draws must be a whole number of at least 1, got 0"),
        ({"block": 2.5}, ValueError, r"block must be a whole number"),
        ({"cores": 0}, ValueError, r"cores must be"),
        ({"random_seed": -1}, ValueError, r"random_seed must be"),
        ({"callback": print}, TypeError, r"takes no callback=: draws are in the folder"),
        ({"nuts_sampler": "nutpie"}, TypeError, r"takes no nuts_sampler=.*leave it out"),
        ({"discard_tuned_samples": False}, TypeError, r"tuning are in the folder"),
        ({"idata_kwargs": {}}, TypeError, r"takes no idata_kwargs=: .*pm.compute_log_likelihood"),
        ({"var_names": []}, ValueError, r"var_names is empty"),
        ({"drawz": 3}, TypeError, r"got drawz: no argument of pm.sample, and no name of a step"),
        (
            {"var_names": ["m"]},
            ValueError,
            r"var_names has 'm'; the model's variables are mu, sigma, y, ratio",
        ),
        ({"var_names": "mu"}, TypeError, r"write \['mu'\]"),
    ],
)
def test_bad_input(changed, error, told, tmp_path):
    with pytest.raises(error, match=told):
        dp.sample_in_blocks(path=tmp_path / "x", model=sums(), **BLOCKS | changed)
    assert not (tmp_path / "x").exists()


def test_without_a_path():
    with pytest.raises(TypeError, match="needs path="):
        dp.sample_in_blocks(model=sums())


def test_confidential_rows_are_refused(tmp_path):
    with pm.Model() as model:
        theta = pm.Normal("theta")
        dp.ConfidentialLikelihood("x", pm.Normal.dist(theta, 1), np.zeros(30), clip=1.0)
    with pytest.raises(ValueError, match=r"confidential rows of x: a run that is resumed .* Use pm.sample"):
        dp.sample_in_blocks(path=tmp_path / "x", model=model)
