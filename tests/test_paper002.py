"""The reproductions of paper 002 run, and their exact posteriors and clipped shares are what they say."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "examples"))
try:
    import paper002
finally:
    sys.path.remove(str(ROOT / "examples"))


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("script", "figures", "said"),
    [
        ("paper002_accounting.py", [2], "zCDP (theorem 5)"),
        ("paper002_clipping.py", [3], "Flat banana, d = 10"),
        ("paper002_accuracy.py", [4, 6, 8], "Flat banana, d = 2"),
    ],
)
def test_quick_run(script, figures, said, tmp_path):
    command = [sys.executable, ROOT / "examples" / script, "--quick", "--jobs", "1", "--output", tmp_path]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600)
    assert done.returncode == 0, done.stderr
    assert said in done.stdout, done.stdout
    for number in figures:
        assert (tmp_path / f"paper002_figure{number}.png").stat().st_size > 10_000


@pytest.mark.compiles(2)
@pytest.mark.parametrize("name", paper002.PROBLEMS)
def test_exact_posteriors_balance(name):
    """Draws weighted by the ratio of the model's own density to a shifted copy's: an identity.

    For any shift c, the mean of p(theta + c) / p(theta) under p is 1.
    """
    problem = replace(paper002.PROBLEMS[name], n=400)
    if problem.n0 is not None:
        problem = replace(problem, n0=100)
    rows = paper002.confidential_rows(problem, problem.n)
    rng = np.random.default_rng(3)
    drawn = paper002.exact_posterior(problem, rows, 4000, rng)

    def density(theta):
        prior = 0.0
        if problem.kind != "circle":
            middle = theta.copy()
            middle[1] += problem.curve * theta[0] ** 2
            prior = -0.5 * (middle**2).sum() / problem.prior_variance
        return problem.temper * paper002.log_densities(problem, rows, theta).sum() + prior

    # a shift by a third of the conditional spread of one parameter
    away = np.zeros(problem.d)
    away[1] = 0.3 * (problem.temper * problem.n / 2.5) ** -0.5
    if problem.kind == "correlated":
        away[1] = 0.3 * (0.002 / problem.n) ** 0.5
    if problem.kind == "circle":
        away[1] = 0.05
    ratios = np.exp([density(theta + away) - density(theta) for theta in drawn])
    error = ratios.std() / len(drawn) ** 0.5
    assert abs(ratios.mean() - 1) < 5 * error < 0.1
    wider = np.exp(
        [density(1.2 * theta - 0.2 * drawn.mean(axis=0) + away) - density(theta) for theta in drawn]
    )
    assert abs(wider.mean() - 1) > 0.1  # power


@pytest.mark.reference
@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("flat-2d", "easy-2d"),
        ("flat-10d", "easy-10d"),
        ("tempered-2d", "tempered-2d"),
        ("gauss-30d", "gauss-30d"),
        ("correlated-2d", "hard-gauss-2d"),
    ],
)
def test_exact_posteriors_are_those_of_the_author(name, file, reference):
    """In spread, once straightened: where it lies depends on the data, which are other ones."""
    stored = np.load(reference / f"posterior_sample_{file}.npz")
    (theirs,) = [stored[key] for key in stored.files if stored[key].ndim == 2][:1]
    problem = paper002.PROBLEMS[name]
    rows = paper002.confidential_rows(problem, problem.n)
    ours = paper002.exact_posterior(problem, rows, 20_000, np.random.default_rng(1))
    for sample in (theirs, ours):
        sample[:, 1] += problem.curve * sample[:, 0] ** 2
    ratio = theirs.std(axis=0) / ours.std(axis=0)
    assert np.all(np.abs(ratio - 1) < 6 / (2 * len(theirs)) ** 0.5 + 0.02), ratio
