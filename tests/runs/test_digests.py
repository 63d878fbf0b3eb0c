"""Digests: what is the same has the same one in any process, and what differs anywhere has another."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

import pymc_dp as dp
from pymc_dp.runs.digests import digest_of, told
from pymc_dp.runs.structures import digest, same_computation

ROOT = Path(__file__).resolve().parents[2]
LONG = np.arange(5000.0)


def changed(array, by=1.0):
    """Change an entry that does not print."""
    other = array.copy()
    other[2500] += by
    return other


@dataclass
class Setting:
    n: int
    epsilon: float


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (LONG, changed(LONG)),
        ({"y": LONG}, {"y": changed(LONG, 1e-9)}),
        ([1, 2], (1, 2)),
        (1, 1.0),
        (Setting(3, 1.0), Setting(3, 2.0)),
        (lambda z: z + 1, lambda z: z + 2),
        (pt.constant(2.0) * 3, pt.constant(2.0) * 4),
        (np.array([1, "a"], dtype=object), np.array([1, "b"], dtype=object)),
    ],
)
def test_what_differs(one, other):
    assert digest_of(one) != digest_of(other) and told(one) != told(other)
    assert digest_of(one) == digest_of(one)


def test_equal_parts_need_not_be_one_object():
    """A pickle differs, because it refers to what it has written before."""
    name, again = "".join(["se", "t"]), "".join(["s", "et"])
    assert digest_of([name, name]) == digest_of([name, again])
    assert digest_of({"a": 1, "b": {2, 3}}) == digest_of({"b": {3, 2}, "a": 1})


def walk(by, long=LONG):
    """A loop within the graph, and a start that does not print."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1, shape=5000, initval=long)
        moved = pytensor.scan(lambda x: x * by, outputs_info=mu[0], n_steps=3, return_updates=False)
        pm.Normal("z", moved[-1] + mu.sum(), 1, observed=0.5)
    return model


def started(start):
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        pm.Normal("b", 0, 1, initval=start(mu))
        pm.Normal("z", mu, 1, observed=0.5)
    return model


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda: walk(2.0), lambda: walk(3.0)),
        (lambda: walk(2.0), lambda: walk(2.0, changed(LONG))),
        (lambda: started(lambda mu: mu + 1), lambda: started(lambda mu: mu + 2)),
    ],
)
def test_models_that_print_alike(one, other):
    assert digest(one()) == digest(one())
    assert digest(one()) != digest(other())
    assert not same_computation(one(), other())


PROGRAM = """
import sys
from dataclasses import dataclass
import numpy as np
import pymc_dp as dp
from pymc_dp.runs.digests import digest_of
from tests.runs.models import sums

@dataclass
class Setting:
    z: tuple
    tags: frozenset

settings = [Setting((12.0, 60.0), frozenset(["a", "b", "c"])), Setting((1.0, 30.0), frozenset())]
found = dp.replicate(
    lambda setting: sums(setting.z), settings, path=sys.argv[1], random_seed=1, progressbar=False, draws=4,
    tune=4, chains=1,
)
print(found.seconds.values, digest_of(lambda z: settings[0].z))
"""


def test_settings_of_a_script_s_own_class_are_the_same_in_another_process(tmp_path):
    """A pickle of such a class holds a number of the session."""
    (tmp_path / "study.py").write_text(PROGRAM)

    def run(seed):
        done = subprocess.run(
            [sys.executable, tmp_path / "study.py", tmp_path / "s"], capture_output=True, text=True, cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": seed}, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert run("1") == run("2")


def test_other_steps_are_another_run(tmp_path):
    with pm.Model() as model:
        mu = pm.Normal("mu")
        pm.Normal("z", mu, 1, observed=0.5)
        steps = [pm.Metropolis([mu]), pm.Metropolis([mu], scaling=5.0)]
    short = {"draws": 4, "tune": 4, "chains": 1, "random_seed": 1, "progressbar": False}
    blocks = {"path": tmp_path / "b", "model": model, "compute_convergence_checks": False, **short}
    dp.sample_in_blocks(step=steps[0], **blocks)
    with pytest.raises(ValueError, match="differs in steps"):
        dp.sample_in_blocks(step=steps[1], **blocks)
    fits = {"path": tmp_path / "r", **short}
    dp.replicate(model, {"z": [1.0]}, step=lambda m: [pm.Metropolis(model=m)], **fits)
    with pytest.raises(ValueError, match="differs in steps"):
        dp.replicate(model, {"z": [1.0]}, step=lambda m: [pm.Slice(model=m)], **fits)


def test_long_starts_are_told_apart(tmp_path):
    with pm.Model() as model:
        total = pm.Deterministic("total", pm.Normal("mu", 0, 1, shape=5000).sum())
        pm.Normal("z", total, 1, observed=0.5)
    short = {"draws": 4, "tune": 4, "chains": 1, "random_seed": 1, "progressbar": False, "path": tmp_path}
    short |= {"model": model, "compute_convergence_checks": False, "var_names": ["total"]}
    dp.sample_in_blocks(initvals={"mu": LONG / 1e4}, **short)
    with pytest.raises(ValueError, match="differs in arguments"):
        dp.sample_in_blocks(initvals={"mu": changed(LONG) / 1e4}, **short)
