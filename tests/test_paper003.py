"""The reproductions of paper 003 run, and their acceptance keeps to the paper's bound."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from examples import paper003

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("script", "figures"),
    [
        ("paper003_linear_regression.py", ["paper003_figure2.png"]),
        ("paper003_naive_bayes.py", ["paper003_figure1a.png", "paper003_figure1b.png"]),
    ],
)
def test_quick_run(script, figures, tmp_path):
    command = [sys.executable, ROOT / "examples" / script, "--quick", "--jobs", "1", "--output", tmp_path]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "posterior means" in done.stdout.lower()
    assert "BELOW" not in done.stdout, done.stdout
    for name in figures:
        assert (tmp_path / name).stat().st_size > 10_000


def test_one_person_changes_the_regression_sums_by_at_most_the_sensitivity():
    """The authors' bound holds, and is not tight: the values of nine products are tied together."""
    values = np.linspace(-1, 1, 9) * paper003.BOUND
    grid = np.stack(np.meshgrid(values, values, values), axis=-1).reshape(-1, 3)
    t = paper003.regression_contributions(grid[:, :2], grid[:, 2], np.clip, np.stack)
    change = max(np.abs(t - row).sum(axis=1).max() for row in t)
    assert 8 <= change <= paper003.SENSITIVITY


def test_one_person_changes_five_counts_by_two():
    rng = np.random.default_rng(1)
    classes, answers = paper003.naive_bayes_rows(20, rng)

    class NoNoise:
        def laplace(self, scale, size):
            return np.zeros(size)

    before = paper003.release_naive_bayes(classes, answers, 1.0, NoNoise())
    assert before.sum() == 20 * paper003.QUESTIONS
    classes[0] = (classes[0] + 1) % paper003.CLASSES
    after = paper003.release_naive_bayes(classes, answers, 1.0, NoNoise())
    assert np.abs(after - before).sum() == 2 * paper003.QUESTIONS
