"""Interrupts from the keyboard at any moment: what had ended is kept, and nothing else counts as ended."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import pymc_dp as dp
from pymc_dp.step_methods.ancillary import AncillaryUpdate
from tests.runs.killed import many_releases, shared
from tests.runs.models import sums
from tests.runs.test_blocks import assert_same

ROOT = Path(__file__).resolve().parents[2]


def interrupted_at(monkeypatch, call):
    made = []
    step = AncillaryUpdate.step

    def interrupted(self, point):
        made.append(1)
        if len(made) == call:
            raise KeyboardInterrupt
        return step(self, point)

    monkeypatch.setattr(AncillaryUpdate, "step", interrupted)


@pytest.mark.parametrize("call", [1, 15, 75])
def test_a_fit_that_was_interrupted_has_not_ended(tmp_path, monkeypatch, call):
    """PyMC keeps the interrupt to itself; where it has no draws yet, it says that of a trace."""
    asked = {"path": tmp_path / "s", "draws": 20, "tune": 20, "chains": 1, "random_seed": 1}
    asked["progressbar"] = False
    interrupted_at(monkeypatch, call)
    some = dp.replicate(sums(), many_releases(2), **asked)
    monkeypatch.undo()
    assert "failed" not in some.status.values and some.status.values[-1] == "missing"
    assert not any("missing" in s for s in dp.replicate(sums(), many_releases(2), **asked).status.values)


@pytest.mark.parametrize("call", [1, 60])
def test_an_interrupt_before_the_first_draw(tmp_path, monkeypatch, call):
    interrupted_at(monkeypatch, call)
    with pytest.raises(KeyboardInterrupt):
        shared(tmp_path)
    monkeypatch.undo()
    assert_same(shared(tmp_path), shared(tmp_path.with_name("whole")))


# What runs in the background of a shell without a terminal inherits that interrupts are ignored.
PROGRAM = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from tests.runs.killed import blocks
print("imported", flush=True)
found = blocks("sums", sys.argv[1], draws=100_000, tune=20, block=500, cores=2)
print(dict(found.posterior.sizes)["draw"], flush=True)
"""


def test_an_interrupt_of_chains_in_processes_returns_what_is_kept(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, tmp_path / "b"], cwd=ROOT, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, env=os.environ | {"PYTHONPATH": str(ROOT)}, start_new_session=True, text=True,
    )  # fmt: skip
    assert process.stdout.readline() == "imported\n"
    end = time.monotonic() + 120
    while not all((tmp_path / "b" / f"chain-{k}.state").exists() for k in (0, 1)):
        assert time.monotonic() < end
        time.sleep(0.1)
    os.kill(process.pid, signal.SIGINT)
    told, said = process.communicate(timeout=120)
    assert process.returncode == 0, said
    assert 0 < int(told) < 100_000
    before = sorted((p, p.stat().st_mtime) for p in (tmp_path / "b").rglob("*.state"))
    time.sleep(1)  # no worker goes on
    assert before == sorted((p, p.stat().st_mtime) for p in (tmp_path / "b").rglob("*.state"))
    assert len(before) == 2
