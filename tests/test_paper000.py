"""The reproductions of paper 000 and the analysis of durations run, and what they share is right."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import pymc_dp as dp

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"


@pytest.fixture(scope="module")
def modules():
    """The scripts, which import each other as scripts in one folder do."""
    pytest.importorskip("statsmodels")
    sys.path.insert(0, str(EXAMPLES))
    try:
        import durations
        import paper000
        import paper000_global
        import paper000_marginal
        import paper000_wavelet
    finally:
        sys.path.remove(str(EXAMPLES))
    return paper000, paper000_wavelet, paper000_global, durations, paper000_marginal


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("script", "figures", "says"),
    [
        (
            "paper000_laplace.py",
            ["paper000_laplace_density", "paper000_laplace_samplers", "paper000_laplace_learnt"],
            "adjusted Rand",
        ),
        ("paper000_wavelet.py", ["paper000_wavelet"], "wavelets, J = 4"),
        ("paper000_global.py", ["paper000_global"], "Gamma(90, 2)"),
        (
            "paper000_marginal.py",
            ["paper000_marginal_density", "paper000_marginal_samplers"],
            "Density of a release at seven points",
        ),
        ("durations.py", ["durations"], "17.8"),
    ],
)
def test_quick_run(script, figures, says, tmp_path):
    pytest.importorskip("sklearn")
    pytest.importorskip("statsmodels")
    done = subprocess.run(
        [sys.executable, EXAMPLES / script, "--quick", "--output", tmp_path],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert says in done.stdout
    for name in figures:
        assert (tmp_path / f"{name}.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize("noise", ["laplace", "normal"])
def test_deconvolution_finds_the_population(modules, noise, rng):
    """Nearer to it than the released values' own density, and a density."""
    paper000 = modules[0]
    grid = np.linspace(-12, 12, 241)
    truth = stats.norm(scale=2).pdf(grid)
    scale, n = 2.0, 4000
    z = rng.normal(0, 2, n) + getattr(rng, noise)(scale=scale, size=n)
    transform = getattr(paper000, f"{noise}_transform")(scale)
    sd = scale * 2**0.5 if noise == "laplace" else scale
    found = paper000.deconvolution_kde(z, transform, sd, grid)
    assert found.min() >= 0
    assert np.trapezoid(found, grid) == pytest.approx(1)
    noisy = stats.norm(scale=np.sqrt(4 + sd**2)).pdf(grid)
    assert paper000.distance(found, truth, grid) < paper000.distance(noisy, truth, grid)


def test_people_follow_the_population(modules, rng):
    paper000 = modules[0]
    y, part = paper000.people(paper000.NORMALS, 6000, rng)
    for k, law in enumerate(paper000.NORMALS):
        assert stats.kstest(y[part == k], law.cdf).pvalue > 1e-4
    assert stats.chisquare(np.bincount(part)).pvalue > 1e-4


@pytest.mark.parametrize("name", ["wavelets, J = 2", "wavelets, J = 6"])
def test_wavelets_without_noise_tell_the_cell(modules, name, rng):
    example = modules[1]
    mechanism, settings = example.MECHANISMS[name]
    settings = {**settings, "epsilon": 1.0}
    y = rng.random(50)
    exact = mechanism.dist(y, **settings).owner.op.coefficients(y)
    found = example.likeliest(mechanism, exact, settings)
    assert np.abs(found - y).max() <= 0.5 ** (settings["level"] + 2) + 1e-12


def test_bins_are_the_papers(modules):
    """n = 250: L times 4 bins, and 28 values."""
    example = modules[2]
    assert [example.n_bins(level) for level in example.LEVELS] == [8, 16, 24]
    assert example.K == 28


def test_empirical_base_has_the_moments_asked_for(modules, rng):
    z = rng.normal(4, 2, 80)
    base = modules[3].base(z)
    law = stats.invgamma(base["a"], scale=base["b"])
    assert base["centre"] == z.mean()
    assert law.mean() == pytest.approx(z.var() / 2)
    assert law.var() == pytest.approx(0.5)


def test_both_noises_of_the_durations_cost_the_same(modules):
    example = modules[3]
    assert example.SIGMA**2 == pytest.approx(example.WIDTH**2 / (2 * example.RHO))
    assert (example.WIDTH / example.SCALE) ** 2 / 2 == pytest.approx(example.RHO)


def test_classic_noise_is_the_classic_formulas(modules):
    """Where that is proven: at epsilon 1."""
    example = modules[4]
    for delta in example.DELTAS:
        release = dp.GaussianMechanism.dist(
            0.0, epsilon=1, delta=delta, sensitivity=example.WIDTH, calibration="classic"
        )
        assert example.textbook(1.0, delta) == pytest.approx(example.WIDTH / dp.guarantee(release).mu)


def test_real_epsilon_of_noise_has_its_delta(modules):
    """By the curve of Balle & Wang (2018), theorem 8, in logarithms; and noise that is enough is just so."""
    example = modules[4]
    for delta in example.DELTAS:
        for epsilon in example.EPSILONS:
            eta = example.textbook(epsilon, delta)
            real, mu = example.promised(eta, delta), example.WIDTH / eta
            below = real + stats.norm.logcdf(-mu / 2 - real / mu)
            assert stats.norm.cdf(mu / 2 - real / mu) - np.exp(below) == pytest.approx(delta, rel=1e-6)
            assert example.promised(example.enough(epsilon, delta), delta) == pytest.approx(epsilon)


def test_values_integrated_out_of_the_marginal_model(modules):
    model, marginal = modules[4].analyst()
    assert {v.name for v in model.free_RVs} - {v.name for v in marginal.free_RVs} == {"y"}
    assert [v.name for v in marginal.observed_RVs] == ["z"]
