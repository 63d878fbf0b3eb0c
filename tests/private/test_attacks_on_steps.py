"""What fresh eyes found in the private steps: each was wrong once."""

import os
import warnings

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_dp as dp
from tests.private import models

ROWS = models.normal_rows(30)
NONE = np.zeros(0)


def test_powers_of_rows_never_raise():
    """0 ** -1 is an error of whole exponents, and infinite otherwise: an abortion would tell of one row."""
    z, k = np.ones(30), np.full(30, -1)
    z[3] = 0
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.5, 2)
        law = lambda z, k: pm.Normal.dist(mu * z**k + z**-600, 1)  # noqa: E731
        dp.ConfidentialLikelihood("x", law, data=ROWS, clip=3, covariates={"z": z, "k": k}, clip_gradient=3)
    step = models.penalty(model, 0.1)
    drawn, _ = models.run(step, 50, burn=0)
    assert np.isfinite(drawn).all()


@pytest.mark.statistical
def test_powers_of_rows_are_powers():
    z, k = np.random.default_rng(1).uniform(0.5, 2, 30), np.arange(30) % 5 - 2
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.5, 2)
        law = lambda z, k: pm.Normal.dist(pt.exp(mu) * z**k, 1)  # noqa: E731
        dp.ConfidentialLikelihood("x", law, data=ROWS, clip=100, covariates={"z": z, "k": k})
    step = models.penalty(model, 0.001)
    found, _ = step.noisy_ratio(np.array([0.4]), np.array([0.1]), NONE, 0.3)
    new, old = (-0.5 * ((ROWS - np.exp(m) * z**k) ** 2).sum() for m in (0.4, 0.1))
    assert found == pytest.approx(new - old, abs=0.4)  # noise: 0.06


def test_parameters_in_transforms_of_another_likelihood():
    with pm.Model() as model:
        upper = pm.HalfNormal("upper", 3.0)
        mu = pm.Uniform("mu", 0, upper)
        dp.ConfidentialLikelihood("A", pm.Normal.dist(mu, 1), data=ROWS, clip=3)
        dp.ConfidentialLikelihood("B", pm.Normal.dist(upper, 1), data=ROWS, clip=3)
    with pytest.raises(ValueError, match=r"parameters of 'A' move with upper_log__.*default_transform=None"):
        dp.PenaltyMetropolis([upper], model=model, noise_multiplier=9.0)
    dp.PenaltyMetropolis([mu], model=model, noise_multiplier=9.0)


def test_moves_that_coordinates_do_not_see_are_refused():
    """They had no length, so that the prior alone decided."""
    with pm.Model() as model:
        mu, s = pm.Normal("mu", 3, 2), pm.Normal("s", 0, 2)
        with pytest.raises(ValueError, match="coordinates of 'x' leave out s"):
            dp.ConfidentialLikelihood("x", pm.Normal.dist(mu, pt.exp(s)), data=ROWS, clip=2, coordinates=mu)
        law = pm.Normal.dist(mu, pt.exp(s))
        dp.ConfidentialLikelihood("y", law, data=ROWS, clip=2, coordinates=pt.stack([pt.log(mu), s**2]))
    step = models.penalty(model, 0.1, scale=0.1)
    for new, old in (([-1.0, 0.0], [3.0, 0.0]), ([3.0, 1.0], [3.0, -1.0])):  # no number; no length
        ends = np.array(new), np.array(old)
        distance = step.distance(*ends, NONE)
        assert distance == step.distance(*ends[::-1], NONE) == np.inf
        assert step.noisy_ratio(*ends, NONE, distance) == (0.0, np.inf)
        assert not step._decide(*ends, NONE)[0]
    assert step.distance(ends[0], ends[0], NONE) == 0.0


@pytest.mark.filterwarnings("ignore:.*fork")
def test_a_fork_has_no_share():
    step = models.penalty(models.normal_model(ROWS), 9.0)
    ends = np.array([0.1]), np.array([0.0]), NONE
    step.noisy_ratio(*ends, 0.1)
    child = os.fork()
    if child == 0:
        try:
            step.noisy_ratio(*ends, 0.1)
        except dp.BudgetExceededError:
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    step.noisy_ratio(*ends, 0.1)


def test_enormous_noise_is_no_error():
    step = models.penalty(models.normal_model(ROWS), 2.0, scale=3e153)
    assert models.run(step, 20, burn=0)[1] == 0


@pytest.mark.statistical
@pytest.mark.filterwarnings("ignore")
def test_reports_have_all_costs():
    """Those of the approximation that shaped the draws, and of every private step."""
    model = models.normal_model(ROWS, clip_gradient=3.0)
    near = dp.normal_approximation(model=model, noise_multiplier=1.0, rounds=5)
    plan = {"draws": 20, "tune": 0, "chains": 1}
    quiet = {"progressbar": False, "compute_convergence_checks": False, "cores": 1}
    step = dp.PenaltyMetropolis(model=model, noise_multiplier=60.0, approximation=near)
    idata = dp.with_privacy(pm.sample(**plan, step=step, model=model, **quiet), step, delta=1e-6)
    costs = [*near.costs, *step.cost(**plan)]
    assert idata.attrs["privacy_epsilon"] == pytest.approx(dp.accounting.epsilon(costs, 1e-6))
    assert idata.attrs["privacy_epsilon"] > 10
    with pm.Model():
        steps = []
        for name in ("x", "y"):
            mu = pm.Normal(f"mu_{name}", 0, 2)
            dp.ConfidentialLikelihood(name, pm.Normal.dist(mu, 1), data=ROWS, clip=3)
            steps.append(mu)
        steps = [dp.PenaltyMetropolis([mu], noise_multiplier=9.0) for mu in steps]
        idata = pm.sample(**plan, step=steps, **quiet)
    with pytest.raises(ValueError, match=r"of 2 private step\(s\), and 1 are given"):
        dp.with_privacy(idata, steps[0], delta=1e-6)
    dp.with_privacy(idata, *steps, delta=1e-6)


@pytest.mark.statistical
def test_an_approximation_that_is_noise_says_so():
    """And one that is not, says nothing."""
    for n, noisy in ((200, True), (20_000, False)):
        rows = models.normal_rows(n)
        model = models.normal_model(rows, clip_gradient=3.0)
        book = dp.PrivacyLedger(epsilon=1, delta=1e-6)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            dp.normal_approximation(model=model, ledger=book)
        assert any("mostly noise" in str(w.message) for w in told) == noisy
    with pytest.raises(TypeError, match="start must be a dict"):
        dp.normal_approximation(model=model, noise_multiplier=1.0, start=[1.0])
    with pm.Model(), pytest.raises(ValueError, match="normal_approximation: the model has no confidential"):
        dp.normal_approximation(noise_multiplier=1.0)


def test_noise_of_each_kind_has_a_range():
    model = models.normal_model(ROWS, clip_gradient=3.0)
    leaps = {"step_size": 0.1, "n_leapfrog": 2}
    for make, name in (
        (lambda **kw: dp.PenaltyMetropolis(model=model, noise_multiplier=2.0, **kw), "clipped_noise"),
        (lambda **kw: dp.PrivateHMC(model=model, noise_multiplier=2.0, **leaps, **kw), "gradient_noise"),
        (
            lambda **kw: dp.BarkerMetropolis(model=model, noise_multiplier=2.0, batch_size=9, **kw),
            "variance_noise",
        ),
    ):
        for value in (1e-200, 1e200):
            with pytest.raises(ValueError, match=f"{name} = .* is out of range"):
                make(**{name: value})


def test_one_row_is_no_table():
    with pytest.raises(ValueError, match="have 1 row: a confidential likelihood needs two"):
        models.normal_model(ROWS[:1])
