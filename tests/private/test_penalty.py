"""The penalty step beside exact posteriors, the authors' program and an attacker, and what breaks each."""

import numpy as np
import pymc as pm
import pytest
from scipy import stats

import pymc_dp as dp
from pymc_dp.privacy.budgets import epsilon as epsilon_of
from pymc_dp.privacy.costs import GaussianCost
from tests.private import models
from tests.private.attacks import Smaller, proven_epsilon
from tests.private.threefry import banana_rows
from tests.statistics.harness import mc_z
from tests.statistics.marginal import from_log_density

ROWS = models.normal_rows()


def exact_normal(mean, sd):
    return from_log_density(lambda x: -((x - mean) ** 2) / (2 * sd**2), mean - 9 * sd, mean + 9 * sd)


def verdict(step, exact, draws, start=None):
    """Worst of the verdicts of all parameters."""
    drawn, _ = models.run(step, draws, start)
    found = [mc_z(drawn[None, :, k], marginal) for k, marginal in enumerate(exact)]
    return min(found, key=lambda v: v.p_value)


@pytest.fixture(scope="module")
def normal():
    return models.normal_model(ROWS)


@pytest.mark.parametrize(
    ("noise_multiplier", "draws"),
    [(0.05, 12_000), *(pytest.param(nm, 60_000, marks=pytest.mark.statistical) for nm in (0.02, 0.1))],
)
def test_normal_posterior(normal, noise_multiplier, draws):
    """From noise of .3 to one of 1.4 on the log ratio of a typical move."""
    step = models.penalty(normal, noise_multiplier, scale=0.6)
    found = verdict(step, [exact_normal(*models.normal_posterior(ROWS))], draws)
    assert found.passed, found


def test_no_penalty_is_seen(normal):
    """Power: the noise without what makes up for it."""
    step = models.penalty(normal, 0.1, scale=0.6)
    noisy = step.noisy_ratio
    step.noisy_ratio = lambda *args: (noisy(*args)[0], 0.0)
    found = verdict(step, [exact_normal(*models.normal_posterior(ROWS))], 12_000)
    assert found.outcome == "rejected", found


@pytest.mark.statistical
def test_half_a_penalty_is_seen(normal):
    """Power: penalty of s^2 / 4, as of a variance taken for half of what it is."""
    step = models.penalty(normal, 0.1, scale=0.6)
    noisy = step.noisy_ratio

    def half(*args):
        ratio, sd = noisy(*args)
        return ratio, sd / np.sqrt(2)

    step.noisy_ratio = half
    found = verdict(step, [exact_normal(*models.normal_posterior(ROWS))], 40_000)
    assert found.outcome == "rejected", found


@pytest.mark.statistical
def test_tempered_posterior():
    step = models.penalty(models.normal_model(ROWS, temper=0.25), 0.1, scale=1.0)
    found = verdict(step, [exact_normal(*models.normal_posterior(ROWS, 0.25))], 40_000)
    assert found.passed, found
    # power: of the whole likelihood
    wrong = mc_z(models.run(step, 20_000)[0].T, exact_normal(*models.normal_posterior(ROWS)))
    assert wrong.outcome == "rejected"


@pytest.mark.statistical
@pytest.mark.parametrize("updates", ["joint", "component", "guided"])
def test_banana(updates):
    rows = np.random.default_rng(2).normal([0.8, 0.5], 1.0, (6, 2))
    step = models.penalty(models.banana_model(rows), 0.005, updates=updates, scale=[0.6, 0.8])
    found = verdict(step, models.banana_posterior(rows), 100_000)
    assert found.passed, found


@pytest.mark.statistical
def test_a_guide_with_a_longer_step_up_is_seen():
    """Power: a walk that is longer in one direction than in the other."""
    rows = np.random.default_rng(2).normal([0.8, 0.5], 1.0, (6, 2))
    step = models.penalty(models.banana_model(rows), 0.005, updates="guided", scale=[0.6, 0.8])
    real = step._proposed

    def uneven():
        move, j = real()
        return np.where(move > 0, 1.5 * move, move), j

    step._proposed = uneven
    assert verdict(step, models.banana_posterior(rows), 60_000).outcome == "rejected"


@pytest.mark.statistical
def test_a_positive_parameter():
    """Moves and distances are those of the logarithm, whose density has the Jacobian."""
    rows = np.random.default_rng(4).exponential(2.0, 8)
    with pm.Model() as model:
        rate = pm.Gamma("rate", 2, 1)
        dp.ConfidentialLikelihood("x", pm.Exponential.dist(rate), data=rows, clip=40)
    step = models.penalty(model, 0.01, scale=0.7)
    drawn, _ = models.run(step, 60_000)
    shape, inverse = 2 + 8, 1 + rows.sum()
    exact = from_log_density(lambda z: shape * z - inverse * np.exp(z), -8, 4)
    found = mc_z(drawn.T, exact)
    assert found.passed, found
    # power: without the Jacobian
    without = from_log_density(lambda z: (shape - 1) * z - inverse * np.exp(z), -8, 4)
    assert mc_z(drawn.T, without).outcome == "rejected"


def laplace_model(rows):
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 2)
        dp.ConfidentialLikelihood("x", pm.Laplace.dist(mu, 1), data=rows, clip=1.5)
    return model


@pytest.mark.statistical
def test_rows_that_are_no_numbers():
    """Infinite rows have no density anywhere; their ratio is no number, and the law is that of the others."""
    rows = np.append(ROWS, [np.inf, -np.inf])
    exact = from_log_density(lambda m: -(m**2) / 8 - np.abs(ROWS[:, None] - m).sum(axis=0), -6, 6)
    step = models.penalty(laplace_model(rows), 0.1, scale=0.6)
    found = verdict(step, [exact], 40_000)
    assert found.passed, found
    # power: such a ratio taken for -1, or for a veto, whichever way the move goes
    real = step._sums.clipped
    for constant in (2**30, 2**36):
        step._sums.clipped = lambda new, old, bound, c=constant: real(new, old, bound) - c
        assert verdict(step, [exact], 40_000).outcome != "passed"


@pytest.mark.statistical
def test_an_enormous_row_has_the_weight_of_its_clip():
    """A row of 1e300 is worth L |mu' - mu| in every decision: the posterior times exp(L mu), and no more."""
    clip = 12.0
    step = models.penalty(models.normal_model(np.append(ROWS, 1e300), clip=clip), 0.05, scale=0.6)
    mean, sd = models.normal_posterior(ROWS)
    found = verdict(step, [exact_normal(mean + clip * sd**2, sd)], 40_000)
    assert found.passed, found


def banana_of_the_authors(rows):
    with pm.Model() as model:
        theta = pm.Flat("theta", shape=2)
        middle = theta[1] + 20 * theta[0] ** 2
        pm.Potential("prior", -(theta[0] ** 2 + middle**2) / 2000)
        law = pm.Normal.dist(pm.math.stack([theta[0], middle]), np.sqrt([20, 2.5]))
        dp.ConfidentialLikelihood("x", law, data=rows, clip=1.0)
    return model


@pytest.mark.reference
def test_steps_of_the_authors(reference):
    """Sixty steps of the published program: sums, noise, decisions. Its noise is tau sqrt(n)
    sensitivities."""
    golden = np.load(reference / "golden_dpps_steps.npz")
    columns = {name: golden["rows"][:, k] for k, name in enumerate(golden["cols"])}
    step = models.penalty(banana_of_the_authors(banana_rows(500)), 0.5 * np.sqrt(500))
    theta, decided = np.array([0.0, 3.0]), []
    for k, accepted in enumerate(columns["accept"]):
        new = np.array([columns["prop0"][k], columns["prop1"][k]])
        bound = np.linalg.norm(new - theta)
        unit = bound * 2.0**-step._sums.bits
        total = step._sums.clipped(
            step.numbers_at(new, np.zeros(0)), step.numbers_at(theta, np.zeros(0)), bound
        )
        assert abs(unit * total - columns["clipped_sum"][k]) < 500 * unit
        step._noise = _Fixed(round(columns["z_noise"][k] * columns["noise_sd"][k] / unit))
        ratio, sd = step.noisy_ratio(new, theta, np.zeros(0), bound)
        assert np.isclose(sd, columns["noise_sd"][k], rtol=1e-12)
        change = ratio + step.logp_at(new, np.zeros(0)) - step.logp_at(theta, np.zeros(0))
        assert abs(change - columns["lambda"][k]) < 501 * unit + 1e-9
        # decided by the whole step, with the proposal and the uniform number of the authors
        step.rng, step._proposed = _Fixed(columns["u"][k]), lambda move=new - theta: (move, -1)
        step._at = None  # from where the authors were
        point, (said,) = step.step({"theta": theta})
        assert said["private_accepted"] == bool(accepted)
        decided.append(np.log(columns["u"][k]) < change)
        theta = point["theta"]
    # power: without the penalty, many decisions are others
    assert np.sum(np.array(decided) != columns["accept"].astype(bool)) > 5


class _Fixed:
    """A source of one number."""

    def __init__(self, value):
        self.value = value

    def uniform(self):
        return self.value

    def draw(self, count):
        return np.array([self.value])


def attacked_epsilon(noise_multiplier, delta, what="ratio", runs=40_000, factor=1.0):
    """Lower bound of epsilon from ratios, or counts of clipped rows, of one that is clipped or not."""
    drawn = []
    for last in (100.0, -100.0 if what == "ratio" else 0.5):
        model = models.normal_model([0.5, last], clip=1.0)
        step = models.penalty(model, noise_multiplier, seed=int(last) % 7, clipped_noise=1.0)
        if factor != 1:
            step._noise, step._counted = Smaller(step._noise, factor), Smaller(step._counted, factor)
        at = np.zeros(1), np.array([0.3]), np.zeros(0)
        seen = []
        for _ in range(runs):
            ratio, _ = step.noisy_ratio(*at, 0.3)
            seen.append(ratio if what == "ratio" else step._n_clipped)
        drawn.append(np.array(seen))
    return proven_epsilon(*drawn, delta)


@pytest.mark.statistical
@pytest.mark.parametrize("what", ["ratio", "count"])
def test_an_attacker_proves_no_more_than_is_claimed(what):
    """And nearly all of it, so that the attack is worth something; with half of the noise it proves more."""
    delta = 0.01
    claimed = epsilon_of([GaussianCost(1, 2.0)], delta)
    found = attacked_epsilon(2.0, delta, what)
    assert 0.5 * claimed < found < claimed
    assert attacked_epsilon(2.0, delta, what, factor=0.5) > 1.3 * claimed


def test_no_move_asks_nothing(normal):
    """A proposal where the chain is has a bound of 0: no division by it, and it is accepted."""
    step = models.penalty(normal, 0.1)
    step._proposed = lambda: (np.zeros(1), -1)
    _, (said,) = step.step(normal.initial_point())
    ties = {"private_chain": step.plan.name_of(0), "private_iteration": 1}
    assert said == {"private_accepted": True, "private_log_ratio": 0.0, **ties}


def test_noise_of_a_move(normal):
    """Standard deviation of the noise: twice the clip, per distance and multiplier."""
    step = models.penalty(normal, 0.3)
    new, theta, other = np.array([0.5]), np.zeros(1), np.zeros(0)
    drawn = np.array([step.noisy_ratio(new, theta, other, 0.5) for _ in range(4000)])
    sd = 2 * 12.0 * 0.5 * 0.3
    assert np.allclose(drawn[:, 1], sd)
    exact = stats.norm.logpdf(ROWS, 0.5).sum() - stats.norm.logpdf(ROWS, 0.0).sum()
    z = (drawn[:, 0] - exact) / sd
    assert stats.kstest(z, "norm").pvalue > 1e-3
    assert stats.kstest(z * 1.15, "norm").pvalue < 1e-3  # power


def test_what_tuning_learns_is_private(normal):
    """The factor is a function of the flags, and of nothing else."""
    factors = []
    for seed in (1, 2):
        step = models.penalty(normal, 0.1, seed=seed)
        step.adapt, step.tune = True, True
        step.noisy_ratio = lambda *args, seed=seed: (-1e9 * seed, float(seed))
        for _ in range(20):
            step.step(normal.initial_point())
        factors.append(step.log_factor)
    assert factors[0] == factors[1] < 0
    step.stop_tuning()
    step.step(normal.initial_point())
    assert step.log_factor == factors[1]


def test_parameters_stay_within_the_domain_of_the_law():
    """Beyond it no row has a ratio, so that the prior alone would decide."""
    with pm.Model() as model:
        sigma = pm.Normal("sigma", 1, 1, initval=0.5)
        dp.ConfidentialLikelihood("x", pm.Normal.dist(0, sigma), np.zeros(20), clip=0.01)
        step = dp.PenaltyMetropolis(noise_multiplier=1.0, scale=2.0, adapt=False)
    step.setup_chain(np.random.default_rng(1), 0, 300)
    point, seen = model.initial_point(), []
    for _ in range(300):
        point, _ = step.step(point)
        seen.append(float(point["sigma"]))
    assert min(seen) > 0 and len(set(seen)) > 30


@pytest.mark.statistical
def test_vectors_stay_within_the_domain_of_their_law():
    """A covariance that is not positive definite is refused without asking the rows."""
    with pm.Model() as model:
        r = pm.Normal("r", 0.5, 1, initval=0.5)
        covariance = pm.math.stack([[1.0, r], [r, 1.0]])
        dp.ConfidentialLikelihood(
            "x", pm.MvNormal.dist(np.zeros(2), covariance), np.zeros((20, 2)), clip=0.01
        )
        step = models.penalty(model, 1.0, scale=1.5)
    point, seen = model.initial_point(), []
    for _ in range(200):
        point, _ = step.step(point)
        seen.append(float(point["r"]))
    assert np.abs(seen).max() < 1 and len(set(seen)) > 20
