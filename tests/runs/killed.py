"""Runs that a test kills: blocks of a case, or fits to many releases.

They are forked from a process that has imported everything, which takes as long as most of them last.
"""

import functools
import json
import os
import select
import signal
import subprocess
import sys
import traceback
from pathlib import Path

import arviz  # noqa: F401 - what runs import late is imported here, once for all that are forked
import numpy as np
import zarr  # noqa: F401

import pymc_dp as dp
from pymc_dp.runs.steps import chosen
from tests.runs.models import CASES, sums

BLOCKS = {"draws": 60, "tune": 60, "chains": 2, "block": 20, "random_seed": 5}
FITS = {"draws": 40, "tune": 40, "chains": 2, "random_seed": 3}
QUIET = {"progressbar": False}


def blocks(case, path, **changed):
    """Run one of the cases in blocks."""
    build, step, _ = CASES[case]
    model = build()
    with model:
        given = None if step is None else step(model)
    return dp.sample_in_blocks(
        path=path, model=model, step=given, compute_convergence_checks=False, **BLOCKS | QUIET | changed
    )


@functools.cache
def made(case):
    """The model of a case and its steps, which take as long to make as a run: for all that may share them."""
    build, step, _ = CASES[case]
    model = build()
    with model:
        return model, chosen(model, None if step is None else step(model), {})


def shared(path, case="sums", **changed):
    """Run one of the cases in blocks, by steps that other runs of this process use too."""
    model, steps = made(case)
    return dp.sample_in_blocks(
        path=path, model=model, step=steps, compute_convergence_checks=False, **BLOCKS | QUIET | changed
    )


def many_releases(n):
    rng = np.random.default_rng(1)
    return {"z": np.stack([rng.normal(12, 10, n), rng.normal(60, 20, n)], axis=1)}


def fits(path, n=12, **changed):
    """Fit the sums to many releases."""
    return dp.replicate(sums(), many_releases(n), path=path, **FITS | QUIET | changed)


class Killable:
    """Starts runs, each in a process group of its own, and kills those that take too long."""

    def __init__(self):
        root = Path(__file__).resolve().parents[2]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.runs.killed"], cwd=root, bufsize=0, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": str(root)}, start_new_session=True,
        )  # fmt: skip
        assert self.process.stdout.readline() == b"imported\n"

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.process.stdin.close()
        self.process.wait()

    def ends(self, seconds, *arguments):
        """Run something for so many seconds; whether it came to its end, or was killed."""
        self.process.stdin.write(json.dumps(arguments).encode() + b"\n")
        group = int(self.process.stdout.readline())
        if not select.select([self.process.stdout], [], [], seconds)[0]:
            os.killpg(group, signal.SIGKILL)
        code = int(self.process.stdout.readline())
        assert code in (0, -signal.SIGKILL), code
        return code == 0


def run(kind, how, path):
    """Run what a test asks for: ``blocks`` of a case, its code, or ``replicate`` in so many processes."""
    if kind == "blocks":
        blocks(how, path)
    elif kind == "compiles":
        blocks(how, path, draws=1, tune=1, chains=1)
    else:
        fits(path, n_jobs=int(how))


def fork(arguments):
    """Run it in a process of its own; return its number, which is that of its group."""
    if not (process := os.fork()):
        os.setpgid(0, 0)
        os.dup2(2, 1)  # what a run prints is no answer to the test
        try:
            run(*arguments)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    try:
        os.setpgid(process, process)  # whoever of the two is first
    except PermissionError:
        pass
    return process


if __name__ == "__main__":
    print("imported", flush=True)
    for line in sys.stdin:
        process = fork(json.loads(line))
        print(process, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)
