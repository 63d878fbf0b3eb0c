"""The minibatch penalty: its release by enumeration, all rows as a batch, its bias, an attacker, its cost."""

import itertools
import logging

import cloudpickle
import numpy as np
import pymc as pm
import pytest
from scipy import stats
from scipy.special import ndtr

import pymc_dp as dp
from pymc_dp.privacy.budgets import epsilon as epsilon_of
from pymc_dp.privacy.budgets import lower_bound
from pymc_dp.privacy.costs import GaussianCost, SubsampledGaussianCost
from pymc_dp.private.life import TIES
from tests.private import models
from tests.private.attacks import Smaller, proven_epsilon
from tests.private.test_confidential import CANARY, shows
from tests.private.test_penalty import exact_normal
from tests.statistics.harness import mc_z
from tests.statistics.marginal import from_log_density

ROWS = models.normal_rows()
BOTH = [dp.MinibatchPenalty, dp.BarkerMetropolis]


def minibatch(model, noise_multiplier, batch_size, **kwargs):
    return models.driven(dp.MinibatchPenalty, model, noise_multiplier, batch_size=batch_size, **kwargs)


def all_batches(rows, size):
    return np.array(list(itertools.combinations(rows, size)))


def ratios_of_batches(new, old, rows, size, clip):
    """Estimate of the log ratio of all rows, and of its variance, for each batch that there is; by NumPy."""
    change = stats.norm.logpdf(all_batches(rows, size), new) - stats.norm.logpdf(all_batches(rows, size), old)
    change = np.clip(change, -clip * abs(new - old), clip * abs(new - old))
    n = len(rows)
    return n * change.mean(axis=1), n**2 * (1 - size / n) * change.var(axis=1, ddof=1) / size


@pytest.fixture(scope="module")
def normal():
    return models.normal_model(ROWS, clip=3.0)


NEW, OLD, NONE = np.array([0.9]), np.array([0.6]), np.zeros(0)


def test_the_law_of_a_release(normal):
    """A mixture of normal laws, one for each of 924 batches."""
    step = minibatch(normal, 0.3, 6)
    drawn = np.array([step.noisy_ratio(NEW, OLD, NONE, 0.3) for _ in range(6000)])
    ratio, variance = ratios_of_batches(0.9, 0.6, ROWS, 6, 3.0)
    assert np.isclose(variance.mean(), ratio.var(), rtol=1e-10)  # unbiased
    change = 2 * (12 / 6) * 3.0 * 0.3
    sd = 0.3 * (change + 0.5 * change**2 / 2)
    assert np.allclose(drawn[:, 1], sd, rtol=1e-9)

    def law(middle, sd):
        return lambda x: ndtr((x[:, None] - middle) / sd).mean(axis=1)

    right = ratio - variance / 2
    assert stats.kstest(drawn[:, 0], law(right, sd)).pvalue > 1e-3
    # power: the variance left out, or that of batches with replacement, the sum not scaled, another noise
    for wrong in (law(ratio, sd), law(ratio - variance, sd), law(right / 2, sd), law(right, 1.3 * sd)):
        assert stats.kstest(drawn[:, 0], wrong).pvalue < 1e-4


@pytest.mark.compiles(1)
@pytest.mark.parametrize("updates", ["joint", "component", "guided"])
def test_all_rows_as_a_batch_are_the_penalty_step(updates):
    """The same draws, number by number."""
    rows = np.random.default_rng(2).normal([0.8, 0.5], 1.0, (6, 2))
    model = models.banana_model(rows)
    kwargs = {"updates": updates, "scale": [0.6, 0.8]}
    one, other = models.penalty(model, 0.02, **kwargs), minibatch(model, 0.02, 6, **kwargs)
    first, second = (models.run(step, 300) for step in (one, other))
    assert np.array_equal(first[0], second[0]) and 0.05 < first[1] < 0.95
    assert type(one._sums) is type(other._sums)


# -- the bias -----------------------------------------------------------------------------------------


def stationary_law(rows, size, noise_multiplier, clip, scale, grid, prior_sd=2.0):
    """Law of the draws on a grid: of a walk that takes each proposal by its chance over all batches."""
    log_prior = stats.norm.logpdf(grid, 0, prior_sd)
    length = np.abs(grid[:, None] - grid)
    change = 2 * len(rows) / size * clip * length
    sd = noise_multiplier * (change + (1 - size / len(rows)) * change**2 / 2)
    accept = np.empty((len(grid), len(grid)))
    for i, old in enumerate(grid):
        ratio, variance = zip(*(ratios_of_batches(new, old, rows, size, clip) for new in grid))
        a = np.array(ratio) - np.array(variance) / 2 + (log_prior - log_prior[i])[:, None]
        s = np.maximum(sd[i], 1e-12)[:, None]
        # of min(1, exp(a + s Z - s^2 / 2)), Z being normal
        accept[i] = (ndtr(a / s - s / 2) + np.exp(np.minimum(a, 700)) * ndtr(-a / s - s / 2)).mean(axis=1)
    move = np.exp(-0.5 * (length / scale) ** 2)
    move *= accept / move.sum(axis=1).max()
    np.fill_diagonal(move, 0)
    np.fill_diagonal(move, 1 - move.sum(axis=1))
    found = np.linalg.lstsq(
        np.vstack([move.T - np.eye(len(grid)), np.ones(len(grid))]), np.r_[np.zeros(len(grid)), 1], rcond=None
    )[0]
    return found


@pytest.mark.statistical
def test_draws_follow_the_law_that_quadrature_says(normal):
    """Which is not the posterior: for three of eight rows its sd is 5.7 % too large."""
    rows = ROWS[:8]
    step = minibatch(models.normal_model(rows, clip=12.0), 0.01, 3, scale=0.5)
    mean, sd = models.normal_posterior(rows)
    grid = np.linspace(mean - 6 * sd, mean + 6 * sd, 121)
    law = stationary_law(rows, 3, 0.01, 12.0, 0.5, grid)
    middle = law @ grid
    spread = np.sqrt(law @ (grid - middle) ** 2)
    drawn, _ = models.run(step, 150_000)
    exact = from_log_density(lambda x: np.interp(x, grid, np.log(np.maximum(law, 1e-300))), grid[0], grid[-1])
    assert np.isclose(exact.mean, middle, atol=1e-3) and np.isclose(exact.sd, spread, rtol=1e-3)
    found = mc_z(drawn.T, exact)
    assert found.passed, found
    assert mc_z(drawn.T, exact_normal(mean, sd)).outcome == "rejected"


@pytest.mark.statistical
def test_the_bias_is_small_where_batches_vary_little():
    """Rows enough, a tempered likelihood: no bias that is seen; without what the variance costs, it is."""
    rows = models.normal_rows(1000)
    model = models.normal_model(rows, clip=4.0, temper=0.05)
    mean, sd = models.normal_posterior(rows, 0.05)

    def verdict(change=lambda ratio, sd: (ratio, sd)):
        step = minibatch(model, 3.0, 200, scale=0.15)
        noisy = step.noisy_ratio
        step.noisy_ratio = lambda *args: change(*noisy(*args))
        return mc_z(models.run(step, 60_000)[0].T, exact_normal(mean, sd))

    assert verdict().passed
    assert verdict(lambda ratio, sd: (ratio, 0.0)).outcome == "rejected"
    assert verdict(lambda ratio, sd: (ratio / 5, sd)).outcome == "rejected"  # n / b forgotten


@pytest.mark.statistical
def test_all_rows_follow_the_posterior(normal):
    step = minibatch(models.normal_model(ROWS), 0.05, len(ROWS), scale=0.6)
    found = mc_z(models.run(step, 40_000)[0].T, exact_normal(*models.normal_posterior(ROWS)))
    assert found.passed, found


# -- privacy ------------------------------------------------------------------------------------------


def attacked_epsilon(cls, noise_multiplier, delta, half_the_noise, runs=30_000):
    """An attacker knows all rows but one, and sees what one move releases of batches of two of four rows.

    The others are such that the ratio and its variance change against each other.
    """
    found = []
    for k, last in enumerate((100.0, -100.0)):
        model = models.normal_model([-100.0, -100.0, -100.0, last], clip=1.0)
        step = models.driven(cls, model, noise_multiplier, seed=k, batch_size=2)
        barker = cls is dp.BarkerMetropolis
        if half_the_noise:
            step._noise = Smaller(step._noise, 0.5)
            if barker:
                step._variance_noise = Smaller(step._variance_noise, 0.5)
        release = step.noisy_ratio_and_variance if barker else step.noisy_ratio
        drawn = np.array([release(np.zeros(1), np.array([0.3]), NONE, 0.3) for _ in range(runs)])
        if barker:  # in sensitivities, weighted by how little noise each has
            change = 2 * 2 * 0.3
            found.append(drawn[:, 0] / change - drawn[:, 1] / (0.5 * change**2) / step.variance_noise**2)
        else:
            found.append(drawn[:, 0])
    # low numbers are the telling ones: with the row that is like the others no batch gives them
    return proven_epsilon(*(-f for f in found), delta)


@pytest.mark.statistical
@pytest.mark.parametrize("cls", BOTH)
def test_an_attacker_proves_no_more_than_is_claimed(cls):
    """And half of it, so that the attack is worth something; with half of the noise it proves more."""
    delta = 0.01
    cost = SubsampledGaussianCost(1, 1.0, n=4, batch_size=2)
    claimed = epsilon_of([cost], delta)
    found = attacked_epsilon(cls, 1.0, delta, False)
    assert 0.5 * claimed < found < claimed
    assert lower_bound([cost], delta) <= claimed
    assert attacked_epsilon(cls, 1.0, delta, True) > 1.1 * claimed


PLAN = {"draws": 20, "tune": 10, "chains": 2}
WRONG = {
    "zero": (0, ValueError, r"batch_size must be a whole number >= 1, got 0"),
    "one": (1, ValueError, r"batch_size = 1 is out of range: a batch has from 2 rows .* to all 12"),
    "too many": (13, ValueError, "batch_size = 13 is out of range"),
    "negative": (-5, ValueError, "batch_size must be"),
    "a fraction": (0.5, TypeError, "batch_size must be a whole number, got 0.5"),
    "a float": (6.0, TypeError, "batch_size must be a whole number"),
    "a flag": (True, TypeError, "batch_size must be a whole number"),
    "text": ("6", TypeError, "batch_size must be a whole number"),
    "none": (None, TypeError, "batch_size must be a whole number"),
}


@pytest.mark.parametrize("cls", BOTH)
@pytest.mark.parametrize("case", WRONG)
def test_wrong_batches_spend_nothing(case, cls, normal):
    size, error, message = WRONG[case]
    book = dp.PrivacyLedger(epsilon=2.0, delta=1e-6)
    with pytest.raises(error, match=message):
        cls(model=normal, batch_size=size, ledger=book, **PLAN)
    assert book.entries() == ()


def test_a_batch_size_is_asked_for(normal):
    for cls in BOTH:
        with pytest.raises(TypeError, match="batch_size"):
            cls(model=normal, noise_multiplier=1.0)
    with pytest.raises(ValueError, match="variance_noise must be"):
        dp.BarkerMetropolis(model=normal, batch_size=4, noise_multiplier=1.0, variance_noise=0)


@pytest.mark.compiles(1)
@pytest.mark.parametrize("cls", BOTH)
def test_what_it_pays_for(cls, normal):
    """Of batches: the noise is that of the whole budget, less than without batches. Of all rows: Gaussian."""
    book = dp.PrivacyLedger(epsilon=2.0, delta=1e-6)
    step = cls(model=normal, batch_size=3, ledger=book, **PLAN)
    (cost,) = book.spent
    assert (type(cost), cost.releases, cost.n, cost.batch_size) == (SubsampledGaussianCost, 60, 12, 3)
    assert 1.98 < book.epsilon_spent <= 2.0
    assert step.cost(20, 10, 2) == [cost]
    assert book.entries()[0].step == cls.__name__
    with pytest.raises(dp.BudgetExceededError, match="Less than a thousandth is left of the budget"):
        cls(model=normal, batch_size=3, ledger=book, **PLAN)
    whole = dp.PrivacyLedger(epsilon=2.0, delta=1e-6)
    cls(model=normal, batch_size=12, ledger=whole, **PLAN)
    (dear,) = whole.spent
    assert type(dear) is GaussianCost and cost.noise_multiplier < 0.6 * dear.noise_multiplier
    # a chain makes no more releases than it paid for
    step.setup_chain(1, 10, 20)
    point = normal.initial_point()
    for _ in range(30):
        point, _ = step.step(point)
    with pytest.raises(dp.BudgetExceededError, match="all ratios that this chain was begun for"):
        step.step(point)


@pytest.mark.compiles(1)
@pytest.mark.parametrize("cls", BOTH)
def test_clipped_rows_are_counted_in_a_batch(cls, normal):
    """One of a batch of its own: hypergeometric, with noise."""
    model = models.normal_model(ROWS, clip=0.5)
    step = models.driven(cls, model, 0.1, batch_size=6, clipped_noise=2.0)
    clipped = int((np.abs(ROWS - 0.75) > 0.5).sum())
    release = step.noisy_ratio if cls is dp.MinibatchPenalty else step.noisy_ratio_and_variance
    drawn = np.empty(4000)
    for k in range(len(drawn)):
        release(NEW, OLD, NONE, 0.3)
        drawn[k] = step._n_clipped
    counts = np.arange(7)
    chance = stats.hypergeom(12, clipped, 6).pmf(counts)
    law = {s: lambda x, s=s: ndtr((x[:, None] - counts) / s) @ chance for s in (0.2, 0.4)}
    assert stats.kstest(drawn, law[0.2]).pvalue > 1e-3 > stats.kstest(drawn, law[0.4]).pvalue
    step._at = None  # the chain goes on from another point
    _, (said,) = step.step(model.initial_point())
    assert said["private_clipped_fraction"] == step._n_clipped / 6


@pytest.mark.statistical
@pytest.mark.parametrize("cls", BOTH)
def test_parts_of_a_budget(cls, normal):
    """Two halves fit, and no third part; what the result says is what was debited."""
    book = dp.PrivacyLedger(epsilon=2.0, delta=1e-6)
    step = cls(model=normal, batch_size=3, ledger=book, share=0.5, clipped_noise=4.0, **PLAN)
    half = book.epsilon_spent
    assert [type(cost) for cost in book.spent] == 2 * [SubsampledGaussianCost]
    assert [cost.releases for cost in book.spent] == [60, 60]
    idata = pm.sample(
        20, tune=10, chains=2, cores=1, step=step, model=normal, progressbar=False,
        compute_convergence_checks=False,
    )  # fmt: skip
    dp.with_privacy(idata, step)
    assert (
        np.isclose(idata.attrs["privacy_epsilon"], half) and '"batch_size": 3' in idata.attrs["privacy_costs"]
    )
    assert idata.privacy.n_released.values.tolist() == [[60, 0, 60]]
    noise = book.spent[1].noise_multiplier / 3 / np.sqrt(40)
    assert np.isclose(float(idata.privacy.clipped_fraction_sd[0]), noise)
    cls(model=normal, batch_size=3, ledger=book, share=0.5, **PLAN)
    assert 1.3 < half < 1.4 and 1.95 < book.epsilon_spent <= 2.0
    with pytest.raises(dp.BudgetExceededError, match="does not fit"):
        cls(model=normal, batch_size=3, ledger=book, epsilon=0.5, **PLAN)
    alone = dp.PrivacyLedger(epsilon=2.0, delta=1e-6)
    cls(model=normal, batch_size=3, ledger=alone, epsilon=0.5, **PLAN)
    assert 0.495 < alone.epsilon_spent <= 0.5


@pytest.mark.parametrize("cls", BOTH)
def test_one_run_and_noise_of_each_kind(cls, normal):
    """Ratios, counts, batches and variances: no words twice; no second run without a ledger."""
    step = models.driven(cls, normal, 1.0, batch_size=4, clipped_noise=2.0)
    words = [step._sums.words(4), step._noise._words(4), step._counted._words(4)]
    words += [step._variance_noise._words(4)] if cls is dp.BarkerMetropolis else []
    assert len({word for four in words for word in four.tolist()}) == 4 * len(words)
    with pytest.raises(dp.BudgetExceededError, match="was sampled before"):
        step.setup_chain(1, 0, 5)


def test_noise_of_variances_is_checked_before_the_debit(normal):
    book = dp.PrivacyLedger(epsilon=2.0, delta=1e-6)
    with pytest.raises(ValueError, match=r"variance_noise: noise of .* does not fit"):
        dp.BarkerMetropolis(model=normal, ledger=book, batch_size=4, variance_noise=1e12, **PLAN)
    assert book.entries() == ()


@pytest.mark.compiles(1)
@pytest.mark.parametrize("cls", BOTH)
def test_it_says_that_it_is_approximate(cls, normal, caplog):
    with caplog.at_level(logging.INFO):
        cls(model=normal, batch_size=6, noise_multiplier=1.0).setup_chain(1, 0, 5)
    assert f"{cls.__name__} of 'x' is approximate: sums over batches" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.INFO):
        cls(model=normal, batch_size=12, noise_multiplier=1.0).setup_chain(1, 0, 5)
    assert ("is approximate" in caplog.text) == (cls is dp.BarkerMetropolis)


@pytest.mark.compiles(1)
@pytest.mark.parametrize("cls", BOTH)
def test_nothing_shows_a_row_or_a_batch(cls, caplog, tmp_path):
    """A run with a row that cannot be missed: result, log, file and pickles."""
    rows = np.append(models.normal_rows(40), CANARY)
    model = models.normal_model(rows, clip=3.0)
    with caplog.at_level(logging.DEBUG):
        book = dp.PrivacyLedger(tmp_path / "study.db", epsilon=2.0, delta=1e-6)
        step = cls(model=model, batch_size=10, ledger=book, draws=30, tune=20, chains=1)
        idata = pm.sample(
            30, tune=20, chains=1, step=step, model=model, progressbar=False, random_seed=1,
            compute_convergence_checks=False,
        )  # fmt: skip
    own = {"private_accepted", "private_log_ratio", "private_variance", "private_unusable"}
    assert set(idata.sample_stats.data_vars) <= {*own, *TIES}
    assert not any(v.data_vars for k, v in idata.children.items() if k not in ("posterior", "sample_stats"))
    held = [cloudpickle.dumps(v) for v in (idata, step, step.sampling_state)]
    held += [p.read_bytes() for p in tmp_path.iterdir()]
    for group in idata.children.values():
        held += [np.ascontiguousarray(v.values).tobytes() for v in group.data_vars.values()]
    assert not any(shows(thing) for thing in [*held, caplog.text, str(idata), repr(step)])
    kept = [v for v in vars(step._sums).values() if isinstance(v, np.ndarray)]
    assert len(kept) == 1 and not kept[0].any()  # what was chosen is nowhere


@pytest.mark.parametrize("cls", BOTH)
def test_other_steps_are_chosen_before_it(cls):
    """Never by itself."""
    assert cls.competence(None, True).name == "INCOMPATIBLE"


@pytest.mark.compiles(1)
@pytest.mark.parametrize("cls", BOTH)
def test_rows_that_are_no_numbers_decide_nothing(cls):
    """Their ratio counts as 0, the same way back and forth."""
    rows = np.append(ROWS, [np.inf, -np.inf, np.inf])
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 2)
        dp.ConfidentialLikelihood("x", pm.Laplace.dist(mu, 1), data=rows, clip=1.5)
    step = models.driven(cls, model, 0.05, batch_size=8)
    there, back = (
        np.mean([step.noisy_ratio(*at, NONE, 0.3)[0] if cls is dp.MinibatchPenalty else
                 step.noisy_ratio_and_variance(*at, NONE, 0.3)[0] for _ in range(4000)])
        for at in ((NEW, OLD), (OLD, NEW))
    )  # fmt: skip
    exact = (np.abs(ROWS - OLD[0]) - np.abs(ROWS - NEW[0])).sum()
    assert np.isfinite([there, back]).all()
    if cls is dp.BarkerMetropolis:
        assert abs(there - exact) < 0.1 and abs(back + exact) < 0.1


@pytest.mark.compiles(1)
@pytest.mark.parametrize("cls", BOTH)
def test_no_move_asks_nothing(cls, normal):
    step = models.driven(cls, normal, 0.1, batch_size=5)
    step._proposed = lambda: (np.zeros(1), -1)
    found = [step.step(normal.initial_point())[1][0] for _ in range(60)]
    assert {s["private_log_ratio"] for s in found} == {0.0}
    # Barker's rule takes half of them
    assert len({s["private_accepted"] for s in found}) == (1 if cls is dp.MinibatchPenalty else 2)


@pytest.mark.compiles(1)
@pytest.mark.parametrize("cls", BOTH)
def test_enormous_moves_are_refused(cls):
    """No overflow on the way."""
    with pm.Model() as model:
        mu = pm.Flat("mu")
        dp.ConfidentialLikelihood("x", pm.Normal.dist(mu, 1), data=ROWS, clip=3.0)
    step = models.driven(cls, model, 0.1, batch_size=5)
    for length in (1e8, 1e160, 1e308):
        step._proposed = lambda length=length: (np.full(1, length), -1)
        _, (said,) = step.step({"mu": np.array(0.0)})
        assert not said["private_accepted"]
