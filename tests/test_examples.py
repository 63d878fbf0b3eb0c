"""The main example: it runs, says what it should, keeps its secrets, and its formulas are right."""

import os
import random
import secrets
import subprocess
import sys
from pathlib import Path

import numpy as np
import pymc as pm
import pytest
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import ancestors
from scipy import stats

import pymc_dp as dp

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"
PEOPLE = (400, 200)  # as in --quick, whose compiled code is then found in the cache


@pytest.fixture(scope="module")
def rand():
    """The example's modules, which import each other as scripts in one folder do."""
    pytest.importorskip("statsmodels")
    sys.path.insert(0, str(EXAMPLES))
    try:
        import rand_custodian
        import rand_formulas
        import rand_health_insurance
    finally:
        sys.path.remove(str(EXAMPLES))
    return rand_health_insurance, rand_custodian, rand_formulas


@pytest.fixture(scope="module")
def custodian(rand):
    return rand[1].Custodian(random.Random(5), *PEOPLE)


@pytest.fixture(scope="module")
def models(rand, custodian):
    example = rand[0]
    sums, reports = custodian.release_sums(), custodian.release_reports()
    return example.sums_model(sums), example.reports_model(reports)


def confidential(custodian):
    """Every number that must not get out: rows, visits, exact sums."""
    rows = custodian._Custodian__rows
    exact_sums = custodian.exact()[0].values
    # Round values (0, 1/2, whole visits) are anybody's; only the others could give a person away.
    secret = np.concatenate([rows.ravel(), exact_sums])
    return np.unique(secret[np.abs(2 * secret - np.round(2 * secret)) > 1e-9])


@pytest.mark.statistical
def test_quick_run_prints_a_table_and_draws_a_figure(tmp_path):
    pytest.importorskip("statsmodels")
    figure = tmp_path / "figure.png"
    script = EXAMPLES / "rand_health_insurance.py"
    done = subprocess.run(
        [sys.executable, script, "--quick", "--seed", "1", "--output", figure],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    for part in ("Non-private", "pymc_dp", "Naive", "Pays part of bill", "r_hat", "exp(-epsilon)"):
        assert part in done.stdout
    assert "protects nobody" in done.stdout
    assert figure.read_bytes()[:4] == b"\x89PNG" and figure.stat().st_size > 50_000


def test_confidential_numbers_are_not_in_the_models(models, custodian):
    secret = confidential(custodian)
    assert secret.size > 50
    for model in models:
        graphs = [*model.basic_RVs, *model.rvs_to_values.values()]
        for v in ancestors(graphs):
            data = v.get_value() if isinstance(v, SharedVariable) else getattr(v, "data", None)
            if isinstance(v, Constant | SharedVariable) and isinstance(data, np.ndarray):
                assert not np.isin(data, secret).any(), v


@pytest.mark.statistical
def test_confidential_numbers_are_not_in_the_result(rand, models, custodian):
    example, secret = rand[0], confidential(custodian)
    idata = example.sample(models[0], 20, 20, 1)
    assert set(idata.posterior.data_vars) == {"share", "centre", "spread", "beta", "sigma"}
    assert set(idata.observed_data.data_vars) == {"sums"}
    for group in idata.subtree:
        for values in group.data_vars.values():
            assert not np.isin(values.to_numpy(), secret).any()


def test_the_custodian_shows_nothing(custodian):
    assert repr(custodian).startswith("<rand_custodian.Custodian object")
    assert not [name for name in vars(custodian) if not name.startswith("_Custodian__")]


def test_nobody_is_in_both_releases(rand):
    everybody = rand[1].Custodian(random.Random(5))
    first, second = everybody._Custodian__in_sums, everybody._Custodian__reporting
    assert (first.size, second.size) == (4000, 1250)
    assert not set(first) & set(second)


def test_contributions_stay_within_the_published_bounds(rand, rng):
    custodian = rand[1]
    ends = np.array(np.meshgrid([-0.5, 0.5], [-1.0, 0.0, 1.0], [-1.0, 0.0, 1.0]))
    pays, disease, visits = ends.reshape(3, -1)
    rows = custodian.contributions(pays, disease, visits, np.stack)
    np.testing.assert_array_equal(rows.min(axis=0), custodian.LOW)
    np.testing.assert_array_equal(rows.max(axis=0), custodian.HIGH)


def test_the_analyst_declares_the_noise_that_was_added(rand, models):
    custodian = rand[1]
    width = (custodian.HIGH - custodian.LOW).sum()
    for model, name, epsilon, scale in (
        (models[0], "sums", 1.0, width / 1.0),
        (models[1], "reports", 3.0, custodian.MOST_VISITS / 3.0),
    ):
        release = model[name]
        assert dp.guarantee(release).epsilon == pytest.approx(epsilon)
        assert release.owner.op.dist_params(release.owner)[1].eval() == pytest.approx(scale)


def test_the_noise_is_laplace(rand):
    noise = rand[1].laplace(2.5, 4000, random.Random(8))
    assert stats.kstest(noise, stats.laplace(scale=2.5).cdf).pvalue > 1e-3


def test_published_values_are_the_mechanisms_own(rand):
    """Drawn on a grid, never twice the same, and as far from the truth as the scale says."""
    custodian = rand[1].Custodian(secrets.SystemRandom(), *PEOPLE)
    first, second = custodian.release_sums(), custodian.release_sums()
    assert first.n == PEOPLE[0]
    assert not (first.values == second.values).any()
    noise = custodian.release_reports().values - custodian.exact()[1].values
    assert stats.kstest(noise, stats.laplace(scale=rand[1].MOST_VISITS / 3.0).cdf).pvalue > 1e-6


def test_regression_from_sums_is_least_squares(rand, rng):
    _, custodian, formulas = rand
    n = 500
    pays = rng.integers(0, 2, n) - 0.5
    disease, visits = rng.uniform(-1, 1, (2, n))
    sums = custodian.contributions(pays, disease, visits, np.stack).sum(axis=0)
    draws = formulas.regression(custodian.SumsRelease(sums, n, np.inf), draws=20_000)
    design = np.stack([np.ones(n), pays, disease], axis=1)
    fit, (rss,), *_ = np.linalg.lstsq(design, visits)
    se = np.sqrt(rss / (n - 3) * np.diag(np.linalg.inv(design.T @ design)))
    np.testing.assert_allclose(draws["beta"].mean(axis=0), fit, atol=5 * se.max() / 20_000**0.5)
    np.testing.assert_allclose(draws["beta"].std(axis=0), se, rtol=0.05)


def test_sums_that_contradict_each_other_have_no_answer(rand):
    example, custodian, formulas = rand
    values = np.array([0.0, 0.0, -5.0, 0.0, 3.0, 0.0, 0.0, 0.0])  # a negative sum of squares
    draws = formulas.regression(custodian.SumsRelease(values, 100, np.inf))
    assert np.isnan(draws["beta"]).all()
    assert example.show(example.interval(draws["sigma"]), 1) == "no answer"


def test_the_model_has_the_probabilities_of_the_formulas(rand, models):
    visits = models[1]["visits"]
    p = visits.owner.op.dist_params(visits.owner)[0]
    mean, shape = models[1]["mean"], models[1]["shape"]
    found = p.eval({mean: 2.9, shape: 0.7}).ravel()
    np.testing.assert_allclose(found, rand[2].visits_probabilities(2.9, 0.7), rtol=1e-6)


@pytest.mark.statistical
def test_distribution_of_visits_agrees_with_quadrature(rand):
    example, custodian, formulas = rand
    reports = custodian.Custodian(random.Random(3), 60, 200).release_reports()
    idata = example.sample(example.reports_model(reports), 3000, 1000, 4)
    exact = formulas.visits_given_noise(reports, draws=40_000)
    for name in ("mean", "shape"):
        draws, sd = np.log(idata.posterior[name]), np.log(exact[name]).std()
        assert abs(float(draws.mean()) - np.log(exact[name]).mean()) < 0.2 * sd
        assert float(draws.std()) == pytest.approx(sd, rel=0.15)


def test_a_warning_is_given_where_chains_are_too_short(rand):
    example = rand[0]
    assert "Draw longer" in example.verdict({"a": 1.2}, {"a": 50.0})
    assert "Chains agree" in example.verdict({"a": 1.002}, {"a": 900.0})


@pytest.mark.statistical
def test_models_are_ordinary_pymc_models(models):
    for model in models:
        assert isinstance(model, pm.Model)
        assert np.isfinite(model.compile_logp()(model.initial_point()))
