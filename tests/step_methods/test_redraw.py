"""Parameters proposed with all records: the kernel by itself, and records that are no function of noise."""

import logging

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import special, stats

import pymc_dp as dp
from pymc_dp.lowering.addresses.bind import plain
from pymc_dp.query.records import find_record_blocks
from pymc_dp.step_methods.claims import default_parameters, is_redrawn
from pymc_dp.step_methods.updates import redraw
from tests.statistics import harness

# ---- the kernel, in plain Python: a normal mean, three records, their noisy sum ----------------------

N, NOISE, RELEASED = 3, 2.0, 4.0


def with_records(theta, data, x, totals):
    return stats.norm.logpdf(theta[1]) + stats.norm.logpdf(RELEASED, totals[0], NOISE)


def alone(theta, data, x, totals):
    return stats.norm.logpdf(theta[1])


def drawn(rng, n_sweeps, prior_only, sizes, addresses, theta, data, x, totals, tally):
    """Stands in for a sweep that draws records from their law."""
    x[:, 0] = rng.normal(theta[1], 1, len(x))
    totals[0] = x.sum()


def in_equilibrium(rng):
    precision = 1 + N**2 / (N + NOISE**2)
    mean = rng.normal(RELEASED * N / (N + NOISE**2) / precision, precision**-0.5)
    # the sum given the mean and the release, then records given their sum
    precision = 1 / N + NOISE**-2
    total = rng.normal((mean + RELEASED / NOISE**2) / precision, precision**-0.5)
    x = rng.normal(mean, 1, N)
    return mean, x + (total - x.sum()) / N


def error_of_moments(seed, replicates=4000, **patched):
    """Probability of changes of moments that are as large, from a start in equilibrium."""
    rng = np.random.default_rng(seed)
    names = {
        "function_at": lambda address, kind: address, "random": lambda rng: rng.random(), "sweep": drawn,
        "standard_normal": lambda rng: rng.normal(), "standard_exponential": lambda rng: rng.exponential(),
    }  # fmt: skip
    kernel = plain(redraw.redraw.py_func, names | patched)
    changes = []
    for _ in range(replicates):
        mean, records = in_equilibrium(rng)
        theta, x = np.array([5.0, mean]), records[:, None].copy()
        totals, tally = np.array([x.sum()]), np.zeros(2)
        proposals = redraw.Proposals(np.array([-0.5]), np.array([[0.7]]))
        kernel(
            3, rng, with_records, alone, np.zeros(4, int), np.zeros(8, int), theta, np.zeros(1),
            np.array([1]), x, totals, proposals, 0, tally,
        )  # fmt: skip
        assert theta[0] == 5.0
        assert tally[1] == 3
        assert totals[0] == pytest.approx(x.sum())
        now, before = x[:, 0], records
        changes.append([
            theta[1] - mean, theta[1] ** 2 - mean**2, now.sum() - before.sum(),
            now.sum() ** 2 - before.sum() ** 2, now.sum() * theta[1] - before.sum() * mean,
            now.var() - before.var(),
        ])  # fmt: skip
    changes = np.array(changes)
    z = changes.mean(axis=0) / (changes.std(axis=0) / np.sqrt(replicates))
    return 2 * stats.norm.sf(np.abs(z).max()) * z.size


def test_the_kernel_keeps_its_target():
    assert error_of_moments(1) > 1e-3


FAULTS = {
    "proposals' density forgotten": {"log_proposal": lambda square, k: 0.0},
    "records stay when parameters move": {"copy": lambda source, target: target.__setitem__(0, source[0])},
    "everything accepted": {"random": lambda rng: 0.0},
}


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_of_the_kernel_are_caught(fault):
    try:
        error = error_of_moments(1, **FAULTS[fault])
    except AssertionError:  # sums are no longer those of the records
        return
    assert error < 1e-6


def test_nothing_is_drawn_where_records_have_no_law():
    def no_law(theta, data, x, totals):
        return -np.inf

    def never(*args):
        raise AssertionError("drawn")

    names = {"function_at": lambda address, kind: address, "random": lambda rng: rng.random(), "sweep": never}
    names |= {
        "standard_normal": lambda rng: rng.normal(),
        "standard_exponential": lambda rng: rng.exponential(),
    }
    kernel = plain(redraw.redraw.py_func, names)
    theta, x, tally = np.array([5.0, 0.3]), np.ones((N, 1)), np.zeros(2)
    kernel(
        4, np.random.default_rng(1), with_records, no_law, np.zeros(4, int), np.zeros(8, int), theta,
        np.zeros(1), np.array([1]), x, np.array([3.0]), redraw.begun(np.zeros(1)), 0, tally,
    )  # fmt: skip
    np.testing.assert_array_equal(theta, [5.0, 0.3])
    assert tally.tolist() == [0.0, 4.0]


def test_proposals_follow_a_narrow_ridge(rng):
    """What is added to a covariance is little across the ridge, and much where few draws are known."""
    along, across = np.array([0.6, 0.8]), np.array([0.8, -0.6])
    root = np.stack([along, 0.03 * across])

    def widths(draws):
        factor = redraw.again(redraw.begun(np.zeros(2)), draws).factor
        return np.linalg.norm(factor.T @ along), np.linalg.norm(factor.T @ across) / 0.03

    wide, narrow = widths(rng.normal(size=(400, 2)) @ root)
    assert 0.9 < wide < 1.4 and 0.9 < narrow < 2.0
    stood = np.repeat(rng.normal(size=(3, 2)) @ root, 100, axis=0)  # three places, a hundred draws at each
    assert widths(stood)[1] > 4.0


# ---- posteriors ------------------------------------------------------------------------------------

PEOPLE = 6
GRID = np.linspace(-5, 5, 1001)


def two_normals(released, scale):
    """A mixture of two normal laws, which is no function of noise; the sum is one of PEOPLE + 1."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        parts = [pm.Normal.dist(mu, 1), pm.Normal.dist(mu + 3, 0.5)]
        y = pm.Mixture("y", w=[0.6, 0.4], comp_dists=parts, shape=PEOPLE)
        dp.GaussianMechanism("z", dp.record_sum(y), sigma=scale, observed=released)
    k = np.arange(PEOPLE + 1)
    sd = np.sqrt(PEOPLE - k + 0.25 * k + scale**2)
    likelihood = stats.norm.pdf(released, PEOPLE * GRID[:, None] + 3 * k, sd) @ stats.binom.pmf(
        k, PEOPLE, 0.4
    )
    return model, stats.norm.pdf(GRID) * likelihood


def shares(released, scale):
    """Shares of two, of which the first has a beta law: the density of the sum of two of them by a grid."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        y = pm.Dirichlet("y", pt.stack([pt.exp(mu), 2.0]) * np.ones((2, 1)), shape=(2, 2))
        dp.GaussianMechanism("z", dp.record_sum(y[:, 0]), sigma=scale, observed=released)
    e = (np.arange(800) + 0.5) / 800
    sums, likelihood = e[:, None] + e, []
    noise = stats.norm.pdf(released, sums, scale)
    for mu in GRID:
        p = np.diff(stats.beta.cdf(np.linspace(0, 1, 801), np.exp(mu), 2.0))
        likelihood.append(p @ noise @ p)
    return model, stats.norm.pdf(GRID) * np.array(likelihood)


def amounts(released, scale):
    """Gamma amounts, of which the rate is sought: their sum has a gamma law."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        y = pm.Gamma("y", 0.7, pt.exp(mu), shape=PEOPLE)
        dp.GaussianMechanism("z", dp.record_sum(y), sigma=scale, observed=released)
    ends = np.linspace(0, 80, 8001)
    noise = stats.norm.pdf(released, (ends[:-1] + ends[1:]) / 2, scale)
    mass = [np.diff(stats.gamma.cdf(ends, 0.7 * PEOPLE, scale=np.exp(-mu))) for mu in GRID]
    return model, stats.norm.pdf(GRID) * (np.array(mass) @ noise)


def cut(released, scale):
    """Gamma amounts below a limit, of a truncated law that is drawn by its quantile function."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        y = pm.Truncated("y", pm.Gamma.dist(1.5, pt.exp(mu)), upper=3.0, shape=2)
        dp.GaussianMechanism("z", dp.record_sum(y), sigma=scale, observed=released)
    e = (np.arange(600) + 0.5) / 200
    noise, likelihood = stats.norm.pdf(released, e[:, None] + e, scale), []
    for mu in GRID:
        p = np.diff(stats.gamma.cdf(np.linspace(0, 3, 601), 1.5, scale=np.exp(-mu)))
        p /= p.sum()
        likelihood.append(p @ noise @ p)
    return model, stats.norm.pdf(GRID) * np.array(likelihood)


def sum_of_counts(model, released, scale, law):
    """Density of the mean given a noisy sum of independent counts, by their probabilities at each point."""
    k = np.arange(120)
    likelihood = []
    for mu in GRID:
        p = law(k, np.exp(mu))
        total = np.array([1.0])
        for _ in range(PEOPLE):
            total = np.convolve(total, p)
        likelihood.append(total @ stats.norm.pdf(released, np.arange(total.size), scale))
    return model, stats.norm.pdf(GRID) * np.array(likelihood)


def cut_counts(released, scale):
    """Visits of visitors: Poisson counts from 1 on."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        y = pm.Truncated("y", pm.Poisson.dist(pt.exp(mu)), lower=1, shape=PEOPLE)
        dp.GaussianMechanism("z", dp.record_sum(y), sigma=scale, observed=released)
    return sum_of_counts(
        model, released, scale, lambda k, m: (k > 0) * stats.poisson.pmf(k, m) / stats.poisson.sf(0, m)
    )


def counts_up_to_four(released, scale):
    """Negative binomial counts within ends, which hold little of the law where it has a large mean."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        law = pm.NegativeBinomial.dist(mu=pt.exp(mu), alpha=1.5)
        y = pm.Truncated("y", law, lower=2, upper=4, shape=PEOPLE)
        dp.GaussianMechanism("z", dp.record_sum(y), sigma=scale, observed=released)

    def within(k, mean):
        p = np.isin(k, (2, 3, 4)) * stats.nbinom.pmf(k, 1.5, 1.5 / (1.5 + mean))
        return p / p.sum()

    return sum_of_counts(model, released, scale, within)


def hurdles(released, scale):
    """Counts of which some are zero by a law of their own."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        y = pm.HurdlePoisson("y", 0.6, pt.exp(mu), shape=PEOPLE)
        dp.GaussianMechanism("z", dp.record_sum(y), sigma=scale, observed=released)

    def law(k, m):
        return np.where(k == 0, 0.4, 0.6 * stats.poisson.pmf(k, m) / stats.poisson.sf(0, m))

    return sum_of_counts(model, released, scale, law)


def chances(released, scale):
    """Chances with a beta law behind the sum of two of them: its density by a grid."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        y = pm.Beta("y", pt.exp(mu), 2.0, shape=2)
        dp.GaussianMechanism("z", dp.record_sum(y), sigma=scale, observed=released)
    return model, shares(released, scale)[1]


def faint_shares(released, scale):
    """Shares with concentrations so small that many round to zero; the sum is of nearly zeros and ones."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        y = pm.Dirichlet("y", 0.002 * pt.exp(pt.stack([mu, -mu])), shape=(PEOPLE, 2))
        dp.GaussianMechanism("z", dp.record_sum(y[:, 0]), sigma=scale, observed=released)
    k, chance = np.arange(PEOPLE + 1), special.expit(2 * GRID)
    likelihood = stats.binom.pmf(k, PEOPLE, chance[:, None]) @ stats.norm.pdf(released, k, scale)
    return model, stats.norm.pdf(GRID) * likelihood


def simulated(released, scale):
    """Records drawn by a user's function: a normal number, or its double."""

    def random(mu, rng=None, size=None):
        return rng.normal(mu, 1, size) * rng.choice([1.0, 2.0], size)

    def logp(value, mu):
        one, two = pm.logp(pm.Normal.dist(mu, 1), value), pm.logp(pm.Normal.dist(2 * mu, 2), value)
        return pt.logaddexp(one, two) - np.log(2)

    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        y = pm.CustomDist("y", mu, logp=logp, random=random, shape=PEOPLE)
        dp.GaussianMechanism("z", dp.record_sum(y), sigma=scale, observed=released)
    k = np.arange(PEOPLE + 1)
    sd = np.sqrt(PEOPLE - k + 4 * k + scale**2)
    likelihood = stats.norm.pdf(released, GRID[:, None] * (PEOPLE + k), sd) @ stats.binom.pmf(k, PEOPLE, 0.5)
    return model, stats.norm.pdf(GRID) * likelihood


def one_by_one(released, scale):
    """Records of two laws, each released by itself: sweeps propose from the law and the release by turns."""
    z = released + np.array([-4.0, -1.0, 0.5, 0.0, 2.0, 5.0])
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        parts = [pm.Normal.dist(mu, 1), pm.Normal.dist(mu + 3, 0.5)]
        y = pm.Mixture("y", w=[0.6, 0.4], comp_dists=parts, shape=PEOPLE)
        dp.LaplaceMechanism("z", y, scale=scale, observed=z)
    y = np.linspace(-15, 20, 7001)
    noise = stats.laplace.pdf(z[:, None], y, scale) * (y[1] - y[0])
    law = 0.6 * stats.norm.pdf(y, GRID[:, None]) + 0.4 * stats.norm.pdf(y, GRID[:, None] + 3, 0.5)
    return model, stats.norm.pdf(GRID) * np.prod(law @ noise.T, axis=1)


def given_exactly(released, scale):
    """Normal records, each released by itself: a sweep draws them from their conditional, which is known."""
    z = released + np.array([-4.0, -1.0, 0.5, 0.0, 2.0, 5.0])
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        dp.LaplaceMechanism(
            "z", dp.clamp(pm.Normal("y", mu, 1, shape=PEOPLE), -3, 4), scale=scale, observed=z
        )
    y = np.linspace(-12, 12, 4801)
    noise = stats.laplace.pdf(z[:, None], np.clip(y, -3, 4), scale) * (y[1] - y[0])
    return model, stats.norm.pdf(GRID) * np.prod(stats.norm.pdf(y, GRID[:, None]) @ noise.T, axis=1)


CASES = [
    (one_by_one, 1.5, 3.0), (one_by_one, 1.5, 0.3),
    (two_normals, 14.0, 6.0), (two_normals, 14.0, 0.5), (shares, 0.5, 0.3), (shares, 1.7, 3.0),
    (simulated, 9.0, 8.0), (amounts, 3.0, 0.5), (amounts, 12.0, 4.0), (chances, 0.4, 0.2),
    (cut, 1.0, 0.4), (cut, 5.5, 1.0), (faint_shares, 5.0, 1.0),
    (cut_counts, 9.0, 1.0), (cut_counts, 14.0, 8.0), (counts_up_to_four, 13.0, 0.5),
    (counts_up_to_four, 26.0, 4.0), (hurdles, 7.0, 1.0), (hurdles, 1.0, 5.0),
]  # fmt: skip


@pytest.mark.statistical
@pytest.mark.parametrize(("declare", "released", "scale"), CASES)
@pytest.mark.filterwarnings("ignore:Numba will use object mode")
def test_posteriors_are_exact(declare, released, scale):
    model, density = declare(released, scale)
    assert [rv.name for rv in default_parameters(model)] == ["mu"]
    verdict = verdict_on(model, density, None)
    assert verdict.passed, verdict


@pytest.mark.statistical
@pytest.mark.parametrize(("declare", "scale", "which"), [(one_by_one, 3.0, 1), (given_exactly, 1.0, 0)])
def test_records_are_drawn_from_their_law_whatever_the_sweep(declare, scale, which):
    """Drawn from what an informed sweep draws from, they are wrong: by .6 or .1, with R-hat 1.00."""
    model, density = declare(1.5, scale)
    step = dp.AncillaryUpdate(model=model, update="redraw", proposals="auto" if which else "informed")
    assert verdict_on(model, density, [step]).passed
    (block,) = step._parts
    assert block.chain.moves[which].name != "independence"
    block.updates.draws_records = block.chain.moves[which]
    assert verdict_on(model, density, [step]).outcome == "rejected"


def verdict_on(model, density, step):
    with model:
        idata = pm.sample(
            6000, tune=1000, chains=2, cores=1, random_seed=6, progressbar=False, quiet=True, step=step,
            compute_convergence_checks=False,
        )  # fmt: skip
    p = density / density.sum()
    mean = p @ GRID
    sd = np.sqrt(p @ (GRID - mean) ** 2)
    draws = idata.posterior["mu"].values
    checks = {
        "mean": (draws.mean() - mean) / float(az.mcse(draws, method="mean")),
        "sd": (draws.std() - sd) / float(az.mcse(draws, method="sd")),
    }
    for tail in (0.05, 0.95):
        at = GRID[np.searchsorted(np.cumsum(p), tail)] + (GRID[1] - GRID[0]) / 2
        below = (draws < at).astype(float)
        exact = p[GRID < at].sum()
        ess = min(float(az.ess(below, method="mean")), below.size)
        checks[f"below {at:.2f}"] = (below.mean() - exact) / np.sqrt(exact * (1 - exact) / ess)
    assert float(az.ess(draws, method="bulk")) > 500
    return harness.two_sample_z(checks)


@pytest.mark.statistical
def test_what_is_hardly_ever_accepted_is_given_up_and_said(caplog):
    """A precise release of many records: only the records themselves move it."""
    with pm.Model():
        mu = pm.Normal("mu", 0, 1)
        parts = [pm.Normal.dist(mu, 1), pm.Normal.dist(mu + 3, 0.5)]
        y = pm.Mixture("y", w=[0.6, 0.4], comp_dists=parts, shape=400)
        dp.GaussianMechanism("z", dp.record_sum(y), sigma=0.01, observed=480.0)
        step = dp.AncillaryUpdate()
        with caplog.at_level(logging.INFO, logger="pymc.dp"):
            pm.sample(
                20, tune=400, chains=1, step=[step], random_seed=1, progressbar=False, quiet=True,
                compute_convergence_checks=False,
            )  # fmt: skip
    assert [learnt.n_updates for learnt in step.learnt] == [0]
    assert sum("no longer proposes mu with all records drawn anew" in r.message for r in caplog.records) == 1


def test_records_that_others_may_leave_without_a_law_are_refused():
    """They are drawn until they have one, which happens more often under some parameters than others."""

    def declare(scale):
        with pm.Model() as model:
            mu = pm.Normal("mu", 0, 1)
            s = scale("s", mu)
            y = pm.Normal("y", 0, s, shape=3)
            dp.LaplaceMechanism("z", dp.record_sum(dp.clamp(y, -3, 3) + s), scale=4.0, observed=2.0)
        return model

    with declare(lambda name, mu: pm.Normal(name, mu, 1, shape=3)):
        with pytest.raises(ValueError, match=r"y may have no law given other records.*Leave `update` out"):
            dp.AncillaryUpdate(update="redraw")
        dp.AncillaryUpdate()
    with declare(lambda name, mu: pm.LogNormal(name, mu, 1, shape=3)):
        dp.AncillaryUpdate(update="redraw")


@pytest.mark.parametrize(
    ("law", "drawn_anew"),
    [
        (lambda b, n: pm.Gamma("y", 2, b, shape=n), True),
        (lambda b, n: pm.Beta("y", 2, b, shape=n), True),
        (lambda b, n: pm.StudentT("y", nu=b, mu=0, sigma=1, shape=n), True),
        (lambda b, n: pm.StudentT("y", nu=4, mu=b, sigma=1, shape=n), False),
        (lambda b, n: pm.Weibull("y", 2, b, shape=n), False),
        (lambda b, n: pm.AsymmetricLaplace("y", b, 0, 1, shape=n), False),
    ],
    ids=["gamma", "beta", "degrees", "known degrees", "weibull", "asymmetric laplace"],
)
def test_records_whose_noise_is_slow_are_drawn_anew_behind_sums(law, drawn_anew):
    """Not one by one, where so many proposals at once would not be accepted; nor where people are counted."""

    def redraws(declare):
        with pm.Model() as model:
            declare(pm.Gamma("b", 3, 1))
        (block,) = find_record_blocks(model)
        return is_redrawn(model, block)

    def behind(release):
        return lambda b: release(law(b, 3))

    def counted(y):
        people = pm.DiscreteUniform("people", 0, 3)
        dp.LaplaceMechanism("z", dp.record_sum(y, count=people), scale=1.0, bounds=(0, 1), observed=1.0)

    total = behind(lambda y: dp.LaplaceMechanism("z", dp.record_sum(y), scale=1.0, observed=1.0))
    each = behind(lambda y: dp.LaplaceMechanism("z", y, scale=1.0, observed=np.ones(3)))
    assert redraws(total) == drawn_anew
    assert not redraws(each)
    assert not redraws(behind(counted))
