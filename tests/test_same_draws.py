"""The same seed gives the same draws whether the machine code is compiled or loaded from disk."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

# Shares beside counts, and a scale of records behind a sum: three ways in which this package's steps move
# parameters. NUTS has no part in it: PyTensor lets the compiler reorder its densities.
PROGRAM = """
import json
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pymc_dp as dp

def answers():
    x = pm.Categorical("x", p=pm.Dirichlet("p", np.ones(3)), shape=40)
    counts = pt.stack([pt.eq(x, k).sum() for k in range(3)])
    dp.LaplaceMechanism("z", counts, scale=2.0, observed=[20.0, 12.0, 7.0])

def measured():
    x = pm.Normal("x", pm.Normal("mu"), pm.HalfNormal("sigma"), shape=40)
    moments = dp.record_sum(pt.stack([pt.clip(x, -3, 3), pt.clip(x, -3, 3) ** 2], axis=-1))
    dp.GaussianMechanism("z", moments, sigma=3.0, observed=[10.0, 50.0])

draws = {}
for declare in (answers, measured):
    with pm.Model():
        declare()
        idata = pm.sample(
            100, tune=100, chains=1, random_seed=3, progressbar=False, quiet=True,
            compute_convergence_checks=False,
        )
    assert "tree_depth" not in idata.sample_stats
    draws |= {name: v.values.tobytes().hex() for name, v in idata.posterior.items()}
print(json.dumps(draws))
"""


def run(folder):
    env = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "NUMBA_CACHE_DIR": str(folder / "numba"),
        "PYTENSOR_FLAGS": f"base_compiledir={folder},cxx=",
    }
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_the_second_run_draws_what_the_first_drew(tmp_path):
    first = run(tmp_path)
    assert {"p", "mu", "sigma"} <= set(first)
    assert run(tmp_path) == first
