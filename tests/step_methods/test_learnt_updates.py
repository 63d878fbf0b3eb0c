"""Which updates a chain keeps: random walks, or trajectories where walks have done poorly while tuning.

The posterior of a place and of the logarithm of a shift, of which a precise sum tells what they make
together, is a narrow curve. It is known on a grid.
"""

from collections import Counter

import arviz as az
import numpy as np
import pymc as pm
import pytest
from scipy import stats

import pymc_dp as dp
from pymc_dp.runs.checkpoint import Checkpoint
from pymc_dp.step_methods import ancillary_block
from pymc_dp.step_methods.updates import positive
from pymc_dp.step_methods.walks_or_trajectories import choose
from tests.statistics import harness

N, SIGMA, RELEASED = 400, 5.0, 1000.0
SAMPLED = {"progressbar": False, "cores": 1, "compute_convergence_checks": False}


def curve():
    with pm.Model() as model:
        a = pm.Normal("a", 0, 2)
        b = pm.Normal("b", 0, 1)
        y = pm.Normal("y", a + pm.math.exp(b), 1, shape=N)
        dp.GaussianMechanism("z", dp.record_sum(y), sigma=SIGMA, observed=RELEASED)
    return model


def exact():
    """Values of b, and their probabilities: given b, the sum of a and exp(b) is normal, a priori and told."""
    b = np.linspace(-6, 3, 20_001)
    log = stats.norm.logpdf(b)
    log += stats.norm.logpdf(RELEASED, N * np.exp(b), np.sqrt(N + SIGMA**2 + (2 * N) ** 2))
    p = np.exp(log - log.max())
    return b, p / p.sum()


def sampled(model, seed, chains=1, **options):
    with model:
        step = dp.AncillaryUpdate(**options)
        idata = pm.sample(2000, tune=1000, chains=chains, random_seed=seed, step=[step], **SAMPLED)
    return step.learnt[0], idata


def check(draws):
    b, p = exact()
    checks = {}
    for share in (0.1, 0.3, 0.5, 0.7, 0.9):
        end = b[np.searchsorted(np.cumsum(p), share)] + (b[1] - b[0]) / 2
        below, probability = (draws < end).astype(float), p[b < end].sum()
        ess = min(float(az.ess(below, method="mean")), below.size)
        checks[f"below {end:.2f}"] = (below.mean() - probability) / np.sqrt(
            probability * (1 - probability) / ess
        )
    verdict = harness.two_sample_z(checks)
    assert verdict.passed, verdict


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.statistical)])
def test_a_narrow_curve_is_followed(seed, caplog):
    caplog.set_level("INFO", "pymc.dp")
    learnt, idata = sampled(curve(), seed, chains=4)
    assert idata.sample_stats["ancillary_trajectories"].values[:, -1].any() and not learnt.draws
    assert "follows trajectories for a, b" in caplog.text
    check(idata.posterior["b"].values)


def salaries():
    """Two parameters of a skewed law, of which a sum tells the mean to 0.8 per cent."""
    with pm.Model() as model:
        m = pm.Normal("m", 10.5, 0.5)
        b = pm.HalfNormal("b", 0.5)
        y = pm.Lognormal("y", m, b, shape=1240)
        dp.LaplaceMechanism("z", dp.record_sum(y), epsilon=0.5, bounds=(0, 150_000), observed=5.4e7)
    return model


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.statistical)])
def test_trajectories_do_better_there(seed):
    sizes = {}
    for name, options in (("default", {}), ("walks", {"update": "random_walk"})):
        _, idata = sampled(salaries(), seed, chains=2, **options)
        followed = idata.sample_stats["ancillary_trajectories"].values.mean(axis=1)
        assert (followed > 0.4).all() if name == "default" else not followed.any()
        sizes[name] = float(az.ess(idata.posterior["b"].values))
    assert sizes["default"] > 150 and sizes["walks"] < sizes["default"] / 2, sizes


@pytest.mark.statistical
def test_a_curve_with_ends_of_no_bounded_density_is_followed():
    """Two numbers of which either may be next to nothing: moving as they are, they do not come back."""
    with pm.Model():
        parts = [pm.Gamma(name, 0.2, 0.2) for name in "ab"]
        y = pm.Normal("y", sum(parts), 1, shape=N)
        dp.GaussianMechanism("z", dp.record_sum(y), sigma=SIGMA, observed=float(N))
        step = dp.AncillaryUpdate()
        idata = pm.sample(2000, tune=1000, chains=1, random_seed=1, step=[step], **SAMPLED)
    learnt = step.learnt[0]
    assert learnt.follows and not learnt.given_noise.charts[positive.AS_IT_IS].any()
    draws = idata.posterior["b"].values
    b, ends = np.logspace(-40, 1, 2001), np.linspace(0, 1.5, 1001)
    # what a is told has a standard deviation of 0.05, so that cells of 0.0015 are narrow
    a, mass = (ends[:-1] + ends[1:])[:, None] / 2, np.diff(stats.gamma.cdf(ends, 0.2, scale=5))
    p = mass @ stats.norm.pdf(N, N * (a + b), np.sqrt(N + SIGMA**2)) * b**0.2 * np.exp(-0.2 * b)
    p /= p.sum()
    checks = {}
    for end in (1e-4, 0.1, 0.5, 0.9):
        below, probability = (draws < end).astype(float), p[b < end].sum()
        ess = min(float(az.ess(below, method="mean")), below.size)
        checks[f"below {end}"] = (below.mean() - probability) / np.sqrt(probability * (1 - probability) / ess)
        assert ess > 40
    verdict = harness.two_sample_z(checks)
    assert verdict.passed, verdict


def autoregression(rng, n, correlation):
    """Draws that are worth (1 - r) / (1 + r) of independent ones, for a correlation r of neighbours."""
    draws = np.empty((n, 1))
    draws[0] = rng.normal()
    for k in range(1, n):
        draws[k] = correlation * draws[k - 1] + np.sqrt(1 - correlation**2) * rng.normal()
    return draws


@pytest.mark.parametrize(
    ("walks", "trajectories", "price", "often", "never"),
    [
        # walks are worth 1/39 of independent draws for half of the price, trajectories 1/3
        (0.95, 0.5, (1, 2), "trajectories", "walks"),
        # 1/199 both: a few effective draws say nothing
        (0.99, 0.99, (1, 1), "both", "walks"),
        (0.7, 0.995, (1, 1), "walks", "trajectories"),
    ],
)
def test_what_is_chosen_of_draws_of_known_worth(rng, walks, trajectories, price, often, never):
    chosen = Counter(
        choose(autoregression(rng, 233, walks), autoregression(rng, 347, trajectories), price)[0]
        for _ in range(200)
    )
    share = {choice: n / 200 for choice, n in chosen.items()}
    assert share.get(never, 0) < 0.02 and share[often] > 0.5, share


def test_what_stood_still_is_not_chosen():
    moving, still = np.random.default_rng(1).normal(size=(200, 2)), np.ones((200, 2))
    still[:, 0] = moving[:, 0]
    assert choose(still, moving, (1, 1))[0] == "trajectories"
    assert choose(moving, still, (1, 1))[0] == "walks"


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.statistical)])
def test_both_are_made_in_turn(monkeypatch, caplog, seed):
    """Where neither is known to be better; the posterior stays what it is."""
    caplog.set_level("INFO", "pymc.dp")
    monkeypatch.setattr(ancillary_block, "choose", lambda *_: ("both", 0.02, 0.01))
    _, idata = sampled(curve(), seed, chains=4)
    followed = idata.sample_stats["ancillary_trajectories"].values.mean(axis=1)
    assert (np.isin(followed, [0, 0.5])).all() and followed.any()
    assert "follows trajectories for a, b in every other draw" in caplog.text
    check(idata.posterior["b"].values)


def test_walks_are_gone_back_to(monkeypatch, caplog):
    """Where they were worth more: with what they had learnt, and the posterior stays what it is."""
    caplog.set_level("INFO", "pymc.dp")
    monkeypatch.setattr(ancillary_block, "choose", lambda *_: ("walks", 0.02, 0.01))
    learnt, idata = sampled(salaries(), 1)
    assert learnt.walked is not None and not learnt.follows
    assert learnt.given_noise is learnt.walked.given_noise
    assert "follows trajectories" not in caplog.text
    assert not idata.sample_stats["ancillary_trajectories"].any()
    assert idata.posterior["b"].std() > 0.1


def test_walks_that_do_well_are_kept():
    with pm.Model():
        mu = pm.Normal("mu", 0, 2)
        sd = pm.HalfNormal("sd", 1)
        y = pm.Normal("y", mu, sd, shape=100)
        dp.LaplaceMechanism("z", dp.record_sum(y), epsilon=1, bounds=(-3, 3), observed=20.0)
        step = dp.AncillaryUpdate()
        pm.sample(10, tune=500, chains=1, random_seed=1, step=[step], **SAMPLED)
    assert step.learnt[0].walked is None
    assert "trajectories" not in vars(step._parts[0])  # nor were any lowered


@pytest.mark.parametrize("chosen", [{"update": "slice"}, {"n_ancillary": 16}, {"n_cycles": 2}])
def test_what_a_user_chose_is_kept(chosen):
    with curve():
        step = dp.AncillaryUpdate(**chosen)
    assert not step._parts[0].may_change


def test_records_that_would_be_summed_over_keep_walks():
    """Trajectories cost as many evaluations as records have values there."""
    with pm.Model() as model:
        p = pm.Beta("p", 1, 1)
        y = pm.Binomial("y", 15, p, shape=50)
        dp.RandomizedResponse("z", y, epsilon=1, n_categories=16, observed=np.arange(50) % 16)
        step = dp.AncillaryUpdate(model=model)
    assert not step._parts[0].may_change


def test_discrete_records_have_no_slopes_to_follow():
    with pm.Model() as model:
        rate = pm.Gamma("rate", 2, 1)
        k = pm.Poisson("k", rate, shape=50)
        dp.DiscreteLaplaceMechanism("z", dp.record_sum(k), epsilon=1, bounds=(0, 9), observed=90)
        step = dp.AncillaryUpdate(model=model)
    assert step._parts[0].trajectories is None


def test_a_run_that_died_goes_on_with_trajectories(tmp_path, monkeypatch):
    """They are lowered again by the process that goes on, for a chain that had begun to follow them."""
    asked = {"draws": 40, "tune": 600, "chains": 1, "random_seed": 1, "compute_convergence_checks": False}
    plain = pm.sample(model=salaries(), cores=1, progressbar=False, **asked)
    assert plain.sample_stats["ancillary_trajectories"].all()
    kept = Checkpoint.keep

    def dies(self, chain, first, *rest):
        if first >= 400:
            raise RuntimeError("killed")
        kept(self, chain, first, *rest)

    monkeypatch.setattr(Checkpoint, "keep", dies)
    asked |= {"path": tmp_path, "block": 100, "progressbar": False}
    with pytest.raises(RuntimeError, match="killed"):
        dp.sample_in_blocks(model=salaries(), **asked)
    monkeypatch.setattr(Checkpoint, "keep", kept)
    resumed = dp.sample_in_blocks(model=salaries(), **asked)
    np.testing.assert_array_equal(plain.posterior["b"].values, resumed.posterior["b"].values)
