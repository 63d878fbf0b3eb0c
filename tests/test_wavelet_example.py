"""The example on the two calibrations of wavelets: it runs, and its numbers are right."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.stats as st

from examples import wavelet_calibration as example
from pymc_dp.mechanisms.wavelet import butucea_sensitivity, haar_sensitivity

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.statistical
def test_quick_run(tmp_path):
    script = ROOT / "examples" / "wavelet_calibration.py"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, script, "--quick", "--output", tmp_path],
        capture_output=True,
        text=True,
        env=environment,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    rows = re.findall(r"│\s+(10|50) │\s+(tight|paper's) │(.*)│", done.stdout)
    assert len(rows) == 4
    found = {(epsilon, name): [float(v) for v in rest.split("│")] for epsilon, name, rest in rows}
    for epsilon in ("10", "50"):
        tight, paper = found[epsilon, "tight"], found[epsilon, "paper's"]
        assert tight[1] == pytest.approx(float(epsilon), abs=0.01)  # measured epsilon
        assert paper[1] == pytest.approx(float(epsilon) / 7.288, abs=0.01)
        assert tight[2] < paper[2] - 0.05 and tight[3] < paper[3]  # nearer to the truth, and surer
    assert (tmp_path / "wavelet_calibration.png").stat().st_size > 10_000


@pytest.mark.parametrize("calibration", ["haar", "butucea"])
def test_measured_epsilon(calibration):
    used = {"haar": haar_sensitivity, "butucea": butucea_sensitivity}[calibration](example.LEVEL)
    measured = example.measured_epsilon(epsilon=3.0, calibration=calibration)
    assert measured == pytest.approx(3.0 * haar_sensitivity(example.LEVEL) / used, rel=1e-9)


def test_likelihood_is_that_of_all_values():
    """Cell by cell, it is the release's density integrated over the kernel."""
    y = np.array([0.03, 0.5])
    noise = {"scale": 1.7}
    released = np.random.default_rng(1).normal(0, 3, (2, 31))
    table = example.log_densities(np.tile(example.MIDDLES, 2), np.repeat(released, 32, axis=0), **noise)
    by_cells = np.exp(table.reshape(2, 32)) @ example.CELL_PROBABILITIES.T
    u = (np.arange(6400) + 0.5) / 6400
    weights = example.KERNELS.pdf(u) / 6400
    for row, expected in zip(released, by_cells, strict=True):
        density = np.exp(example.log_densities(u, np.tile(row, (6400, 1)), **noise))
        np.testing.assert_allclose(weights @ density, expected, rtol=1e-4)
    own = example.log_densities(y, released, **noise)
    exact = st.laplace(example.dp.WaveletMechanism.dist(y, level=4, scale=1).owner.op.coefficients(y), 1.7)
    np.testing.assert_allclose(own, exact.logpdf(released).sum(1))
