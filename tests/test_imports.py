"""Importing the package changes nothing in the process, but that PyMC's functions tell it of models."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pymc_dp import hooks
from tests.process_state import changes

ROOT = Path(__file__).resolve().parents[1]
WRAPPED = {
    "pymc.sampling.forward.compile_forward_sampling_function",
    "pymc.sampling.mcmc.assign_step_methods",
    "pymc.sampling.mcmc.init_nuts",
    "pymc.sampling.mcmc.init_traces",
    "pymc.sampling.mcmc.instantiate_steppers",
    "pymc.sampling.mcmc.make_initial_point_fns_per_chain",
    "pymc.sampling.mcmc.run_convergence_checks",
    "pymc.step_methods.compound.BlockedStep.__new__",
}


@pytest.fixture(scope="module")
def changed():
    run = subprocess.run(
        [sys.executable, "-m", "tests.process_state"], cwd=ROOT, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])


def test_only_functions_that_the_hooks_name_are_wrapped(changed):
    assert set(changed["names"]) == WRAPPED
    for name in WRAPPED:
        assert name.removeprefix("pymc.step_methods.compound.") in hooks.__doc__


@pytest.mark.parametrize(
    "what",
    [
        "dispatched", "rewrites", "modes", "pytensor", "numba", "caches", "numpy", "random", "signals",
        "logging", "process", "hooks of forks", "hooks of the exit",
    ],
)  # fmt: skip
def test_nothing_else_is_changed(changed, what):
    assert changed[what] == []


LOADED = """
import json, sys
import pymc_dp
from numba.core.dispatcher import Dispatcher
ours = [vars(m) for n, m in sys.modules.items() if n.startswith("pymc_dp")]
compiled = [name for m in ours for name, f in m.items() if isinstance(f, Dispatcher) and f.overloads]
print(json.dumps({"modules": [*sys.modules], "compiled": compiled}))
"""


def test_nothing_is_loaded_that_can_wait():
    """Machine code is compiled, or read, when it is called; the rest takes a second of every script."""
    run = subprocess.run([sys.executable, "-c", LOADED], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = json.loads(run.stdout)
    assert loaded["compiled"] == []
    waiting = {"arviz", "arviz_stats", "matplotlib", "scipy.cluster", "scipy.optimize", "scipy.stats"}
    assert not waiting & set(loaded["modules"])


def test_changes_are_seen():
    found = changes({"same": 1, "other": 2, "gone": 3}, {"same": 1, "other": 4, "new": 5})
    assert found == ["gone", "new", "other"]
