"""A run that a test kills: ``python -m tests.runs.killed blocks <case> <path>``, or ``replicate``."""

import sys

import numpy as np

import pymc_dp as dp
from tests.runs.models import CASES, sums

BLOCKS = {"draws": 60, "tune": 60, "chains": 2, "block": 10, "random_seed": 5}
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


def many_releases(n):
    rng = np.random.default_rng(1)
    return {"z": np.stack([rng.normal(12, 10, n), rng.normal(60, 20, n)], axis=1)}


def fits(path, n=12, **changed):
    """Fit the sums to many releases."""
    return dp.replicate(sums(), many_releases(n), path=path, **FITS | QUIET | changed)


if __name__ == "__main__":
    print("imported", flush=True)
    if sys.argv[1] == "blocks":
        blocks(sys.argv[2], sys.argv[3])
    else:
        fits(sys.argv[3], n_jobs=int(sys.argv[2]))
