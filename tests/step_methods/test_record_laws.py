"""Laws of records that are out of the ordinary: atoms, truncation, a user's own, vector parameters."""

import warnings

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
import scipy.special as sp
import scipy.stats as st
from pytensor.compile.mode import Mode

import pymc_dp as dp
from pymc_dp.query.records import find_record_blocks
from pymc_dp.query.supports import finite_support, has_density
from pymc_dp.step_methods.claims import forms_of
from pymc_dp.step_methods.imputation import RecordChain
from pymc_dp.step_methods.updates.noncentred import NoNoiseForm
from tests.statistics import harness
from tests.statistics.marginal import from_log_density

pytestmark = pytest.mark.compiles(2)

RELEASED = np.array([2.0, 0.1, 1.0])


def sample(model, draws=200, tune=200, **kwargs):
    return pm.sample(
        draws, tune=tune, chains=1, cores=1, model=model, random_seed=1, progressbar=False, quiet=True,
        compute_convergence_checks=False, **kwargs,
    )  # fmt: skip


def censored_mean():
    """E[mu] of three censored normal records under Laplace noise, by quadrature."""
    mu = np.linspace(-8, 8, 1601)
    y = np.linspace(0, 3, 2001)
    density = st.norm(0, 2).pdf(mu)
    for z in RELEASED:
        inner = np.trapezoid(st.norm(mu[:, None], 1).pdf(y) * st.laplace(y, 0.5).pdf(z), y, axis=1)
        below = st.norm(mu, 1).cdf(0) * st.laplace(0, 0.5).pdf(z)
        density = density * (inner + below + st.norm(mu, 1).sf(3) * st.laplace(3, 0.5).pdf(z))
    return np.trapezoid(mu * density, mu) / np.trapezoid(density, mu)


@pytest.mark.statistical
def test_records_with_atoms_are_exact():
    """A continuous proposal never offers an atom, and its density is not the atom's probability."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 2)
        y = pm.Censored("y", pm.Normal.dist(mu, 1.0), lower=0, upper=3, shape=3)
        dp.LaplaceMechanism("z", y, epsilon=6, bounds=(0, 3), observed=RELEASED)
    draws = sample(model, draws=20_000, tune=1000).posterior["mu"].values[0]
    error = draws.reshape(100, -1).mean(axis=1).std(ddof=1) / 10
    assert abs(draws.mean() - censored_mean()) < 4 * error
    assert error < 0.05  # the silent error this found was 0.33


@pytest.mark.parametrize(
    "law, continuous",
    [
        (pm.Normal.dist(0, 1), True),
        (pm.HalfStudentT.dist(3, 1), True),
        (pm.Truncated.dist(pm.Gamma.dist(2, 1), lower=1), True),
        (pm.NormalMixture.dist([0.5, 0.5], [0.0, 1.0], [1.0, 1.0]), True),
        (pm.Censored.dist(pm.Normal.dist(0, 1), lower=0, upper=None), False),
        (pm.Mixture.dist([0.5, 0.5], [pm.DiracDelta.dist(0.0), pm.Normal.dist(0, 1)]), False),
        (pm.HurdleLogNormal.dist(0.6, 0, 1), False),
        (pm.CustomDist.dist(0.0, logp=lambda value, mu: -((value - mu) ** 2)), False),
        (pm.Poisson.dist(1), False),
    ],
    ids=lambda value: type(value.owner.op).__name__ if hasattr(value, "owner") else str(value),
)
def test_what_has_a_density(law, continuous):
    assert has_density(law) is continuous


def test_finite_supports():
    np.testing.assert_array_equal(finite_support(pm.Binomial.dist(3, 0.5, shape=4)), range(4))
    assert finite_support(pm.Binomial.dist(pm.Poisson.dist(3), 0.5)) is None
    assert finite_support(pm.Categorical.dist(np.full(100, 0.01))) is None


@pytest.mark.statistical
def test_truncated_prior_and_records():
    with pm.Model() as model:
        rate = pm.Truncated("rate", pm.Gamma.dist(2, 1), lower=1)
        y = pm.Truncated("y", pm.Poisson.dist(rate), upper=9, shape=5)
        dp.LaplaceMechanism("z", dp.record_sum(y), epsilon=1, bounds=(0, 9), observed=8.0)
    posterior = sample(model).posterior
    assert posterior["rate"].min() >= 1
    assert posterior["y"].max() <= 9


@pytest.mark.statistical
@pytest.mark.parametrize("base", [pm.LogNormal, pm.Normal, pm.Gumbel], ids=lambda law: law.__name__)
def test_truncated_records_that_are_released_one_by_one(base):
    """They are proposed as the release less noise, in the values that PyMC samples for them."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        y = pm.Truncated("y", base.dist(mu, 0.8), lower=0.3, upper=3.0, shape=3)
        dp.LaplaceMechanism("z", y, scale=0.5, observed=RELEASED)
    draws = sample(model, draws=10_000, tune=1000).posterior["mu"].values[0]

    grid, y = np.linspace(-5, 5, 801), np.linspace(0.3, 3, 1001)
    law = np.exp(pm.logp(base.dist(grid[:, None], 0.8), y).eval(mode="FAST_COMPILE"))
    law /= np.trapezoid(law, y, axis=1)[:, None]
    density = st.norm.pdf(grid)
    for z in RELEASED:
        density = density * np.trapezoid(law * st.laplace(y, 0.5).pdf(z), y, axis=1)
    expected = np.trapezoid(grid * density, grid) / np.trapezoid(density, grid)
    error = draws.reshape(50, -1).mean(axis=1).std(ddof=1) / np.sqrt(50)
    assert abs(draws.mean() - expected) < 4 * error
    assert error < 0.05


OUTCOMES = np.array([0.4, 2.0, 1.1])


def outcome(y, law):
    """A public outcome for each record, whose density PyMC derives from a copy of what is behind it."""
    if law == "censored":
        pm.Censored("outcome", pm.Normal.dist(y, 0.7), lower=None, upper=2.0, observed=OUTCOMES)
    else:
        shifted = lambda y, size: y - 2.0 + pm.Exponential.dist(1.0, size=size)  # noqa: E731
        pm.CustomDist("outcome", y, dist=shifted, observed=OUTCOMES)


def outcome_likelihood(y, law, k):
    if law == "censored":
        return st.norm(y, 0.7).sf(2) if OUTCOMES[k] == 2 else st.norm(y, 0.7).pdf(OUTCOMES[k])
    return st.expon.pdf(OUTCOMES[k] - y + 2)


@pytest.mark.statistical
@pytest.mark.parametrize("law", ["censored", "a user's"])
@pytest.mark.parametrize("noise", ["laplace", "clamped", "gaussian"])
def test_outcomes_whose_density_is_derived(law, noise):
    """The density of the outcome is given the candidate itself, and not given another draw of it."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        y = pm.Normal("y", mu, 1, shape=3)
        outcome(y, law)
        if noise == "gaussian":
            dp.GaussianMechanism("z", y, sigma=1.0, observed=RELEASED)
        else:
            dp.LaplaceMechanism(
                "z", y, scale=1.0, observed=RELEASED, bounds=(-1, 1) if noise == "clamped" else None
            )
    draws = sample(model, draws=10_000, tune=500).posterior

    grid, v = np.linspace(-5, 5, 401), np.linspace(-9, 9, 3601)
    density, first = st.norm.pdf(grid), None
    for k, z in enumerate(RELEASED):
        released = np.clip(v, -1, 1) if noise == "clamped" else v
        channel = (st.norm if noise == "gaussian" else st.laplace)(released, 1.0).pdf(z)
        joint = st.norm(grid[:, None], 1).pdf(v) * channel * outcome_likelihood(v, law, k)
        mass = joint.sum(axis=1)
        first = joint @ v / mass if first is None else first
        density = density * mass
    density /= density.sum()
    for got, expected in ((draws["mu"], density @ grid), (draws["y"][..., 0], density @ first)):
        chain = got.values[0]
        error = chain.reshape(50, -1).mean(axis=1).std(ddof=1) / np.sqrt(50)
        assert abs(chain.mean() - expected) < 4 * error
        assert error < 0.05


@pytest.mark.statistical
def test_records_drawn_by_a_users_function():
    """Draws without machine code call Python from within the loop, with the step's own generator."""

    def random(mu, rng=None, size=None):
        return rng.normal(mu, 0.5, size=size)

    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        y = pm.CustomDist("y", mu, logp=lambda v, m: -2 * (v - m) ** 2, random=random, shape=4)
        dp.LaplaceMechanism("z", dp.record_sum(y), scale=1.0, observed=3.0)

    def draws(seed):
        return pm.sample(
            50, tune=50, chains=1, model=model, random_seed=seed, progressbar=False, quiet=True,
            compute_convergence_checks=False, step=[dp.RecordImputation(model=model)],
        ).posterior["y"].values  # fmt: skip

    first = draws(1)
    assert np.unique(first).size > 100
    np.testing.assert_array_equal(first, draws(1))
    assert not np.array_equal(first, draws(2))


def shifted(how, **kwargs):
    """Counts that are one more than Poisson counts: 0, where PyMC would start them, is impossible."""
    rate = pm.Gamma("rate", 2, 1)
    if how == "dist":
        law = {"dist": lambda rate, size: pm.Poisson.dist(rate, size=size) + 1}
    else:
        law = {
            "logp": lambda value, rate: pm.logp(pm.Poisson.dist(rate), value - 1),
            "random": lambda rate, rng=None, size=None: rng.poisson(rate, size=size) + 1,
            "dtype": "int64",
        }
    y = pm.CustomDist("y", rate, shape=4, **law, **kwargs)
    dp.LaplaceMechanism("z", dp.record_sum(y), scale=1.0, observed=11.0)


def rate_of_shifted():
    total = np.arange(4, 200)

    def log_density(rate):
        rate = np.asarray(rate)[..., None]
        terms = st.poisson(4 * rate).pmf(total - 4) * st.laplace(total, 1).pdf(11.0)
        return np.log(terms.sum(axis=-1)) + st.gamma(2).logpdf(rate[..., 0])

    return from_log_density(log_density, 1e-6, 30)


def first_step():
    return {"step": [dp.RecordImputation()]}


@pytest.mark.parametrize(
    ("how", "declared", "sampled"),
    [
        ("dist", {}, dict),
        ("random", {"initval": np.full(4, 2)}, dict),
        ("random", {"support_point": lambda rv, size, rate: pt.full(size, 1)}, dict),
        ("random", {}, dict),
        ("random", {}, first_step),
    ],
)
def test_a_users_law_with_a_start(how, declared, sampled):
    """With a start of their own, with none, and a graph of PyMC's laws."""
    with pm.Model() as model:
        shifted(how, **declared)
        idata = sample(model, draws=6000, tune=1000, **sampled())
    verdict = harness.mc_z(idata.posterior["rate"].values, rate_of_shifted(), minimum_ess=150)
    assert verdict.passed, verdict


def two_laws(m, size):
    return m + pm.Normal.dist(0, 1, size=size) + pm.Exponential.dist(1, size=size)


def test_a_users_law_of_two_laws_is_exact():
    """It was refused, without a name of a record: "draws from more than one generator"."""
    with pm.Model() as model:
        m = pm.Normal("m")
        density = lambda v, m: pm.logp(pm.ExGaussian.dist(mu=m, sigma=1, nu=1), v)  # noqa: E731
        x = pm.CustomDist("x", m, dist=two_laws, logp=density, shape=3)
        dp.GaussianMechanism("z", dp.record_sum(x), sigma=0.5, observed=7.0)
        idata = sample(model, draws=6000, tune=1000)
    waits = np.linspace(0, 40, 4001)  # the sum of three exponential numbers

    def log_density(m):
        normal = st.norm.pdf(7, 3 * m[:, None] + waits, np.sqrt(3 + 0.25))
        return np.log(np.trapezoid(normal * st.gamma.pdf(waits, 3), waits, axis=1)) + st.norm.logpdf(m)

    exact = from_log_density(log_density, -5, 5)
    verdict = harness.mc_z(idata.posterior["m"].values, exact, minimum_ess=150)
    assert verdict.passed, verdict


def test_laws_of_a_users_graph_are_asked_for_their_own_parameters():
    """PyMC clones what is behind such a law: the domain of the clone would be that of a random draw."""
    with pm.Model():
        s = pm.Normal("s", 0, 1, initval=1.5)
        y = pm.CustomDist("y", s, dist=lambda s, size: pm.Normal.dist(0, s, size=size), shape=4)
        dp.LaplaceMechanism("z", dp.record_sum(y), scale=1.0, observed=3.0)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            program = dp.RecordImputation().chains[0].program
            assert all(program.have_law(np.array([0.1])) for _ in range(30))
            assert not any(program.have_law(np.array([-0.1])) for _ in range(30))


def test_law_with_a_vector_parameter():
    grid = np.linspace(-3, 3, 50)
    with pm.Model() as model:
        y = pm.Interpolated("y", grid, np.exp(-(grid**2) / 2), shape=4)
        dp.LaplaceMechanism("z", dp.record_sum(y), scale=1.0, observed=3.0)
    assert abs(sample(model).posterior["y"].values).max() <= 3


def test_records_in_single_precision(monkeypatch):
    """Starting values keep the type of the variable, or NUTS refuses the point."""
    monkeypatch.setattr("pytensor.config.floatX", "float32")
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        sd = pm.HalfNormal("sd", 1)
        pm.Normal("w", mu, sd, observed=np.zeros(3, dtype="float32"))
        y = pm.Normal("y", mu, 1, shape=4)
        dp.LaplaceMechanism("z", dp.record_sum(y), epsilon=1, bounds=(-3, 3), observed=np.float32(3))
    with model:
        step = dp.RecordImputation()
    step.setup_chain(np.random.default_rng(1), 10, 10)
    start = model.initial_point()
    point, _ = step.step(start)
    assert {name: v.dtype for name, v in point.items()} == {name: v.dtype for name, v in start.items()}


@pytest.mark.statistical
def test_records_are_found_again_when_data_change_their_number():
    with pm.Model(coords={"person": range(4)}) as model:
        mu = pm.Normal("mu", 0, 1)
        x = pm.Data("x", np.ones(4), dims="person")
        y = pm.Normal("y", mu * x, 1, dims="person")
        dp.LaplaceMechanism("z", dp.record_sum(y), epsilon=1, bounds=(-3, 3), observed=3.0)
    assert sample(model).posterior["y"].shape[-1] == 4
    with model:
        pm.set_data({"x": np.ones(6)}, coords={"person": range(6)})
    assert sample(model).posterior["y"].shape[-1] == 6


@pytest.mark.statistical
def test_tables_of_small_concentration_stay_finite():
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.full(4, 0.003))
        y = pm.Categorical("y", p, shape=6)
        dp.LaplaceMechanism(
            "z", dp.record_sum(pt.eq(y[:, None], np.arange(4))), epsilon=1, sensitivity=2,
            observed=[3.0, 1.0, 2.0, 0.0],
        )  # fmt: skip
        steps = [dp.ConjugateUpdate(), dp.RecordImputation()]
    values = []
    for step, rng in zip(steps, np.random.default_rng(1).spawn(2), strict=True):
        step.setup_chain(rng, 0, 2000)
    point = model.initial_point()
    for _ in range(2000):
        for step in steps:
            point, _ = step.step(point)
        values.append(point["p_simplex__"])
    assert np.isfinite(values).all()


# laws at a parameter so extreme that some draws leave the range of numbers
EXTREME_LAWS = {
    "student t": (lambda p: pm.StudentT("y", nu=p, mu=0, sigma=1, shape=50), 0.002),
    "half student t": (lambda p: pm.HalfStudentT("y", nu=p, sigma=1, shape=50), 0.005),
    "skew student t": (lambda p: pm.SkewStudentT("y", a=p, b=p, mu=0, sigma=1, shape=50), 0.01),
    "inverse gamma": (lambda p: pm.InverseGamma("y", p, 1.0, shape=50), 0.001),
    "gamma": (lambda p: pm.Gamma("y", p, 1.0, shape=50), 0.001),
    "pareto": (lambda p: pm.Pareto("y", p, 1.0, shape=50), 0.005),
    "weibull": (lambda p: pm.Weibull("y", p, 1.0, shape=50), 0.002),
    "kumaraswamy": (lambda p: pm.Kumaraswamy("y", p, 1.0, shape=50), 0.005),
    "lognormal": (lambda p: pm.LogNormal("y", 0.0, 1 / p, shape=50), 0.002),
}


@pytest.mark.parametrize("law", EXTREME_LAWS)
def test_records_keep_a_density(law, rng):
    """Candidates beyond the range of numbers are refused, as from there no later step could move."""
    build, at = EXTREME_LAWS[law]
    with pm.Model() as model:
        p = pm.Uniform("p", 0, 1, default_transform=None)
        y = build(p)
        dp.LaplaceMechanism("z", dp.record_sum(y), scale=1.0, observed=4.0, bounds=(-5, 5))
    (block,) = find_record_blocks(model)
    chain = RecordChain(model, block, "independence", model.initial_point())
    theta = np.array([0.5])
    x = chain.draw(rng, theta).copy()
    logp = model.compile_logp(mode=Mode("py", "fast_run"))  # rewritten: as written, it overflows
    moved = 0.0
    for _ in range(20):
        moved += chain.sweep(rng, np.array([at]), x, 0, 1)[0]
        assert np.isfinite(x).all()
        assert np.isfinite(logp({"p": np.array(at), **chain.program.records.unpack(x)}))
    assert moved > 20


def test_records_of_inverse_gamma_law_follow_it(rng):
    """Drawn as logarithms, also where the inverse of a gamma number overflows."""
    for a in (0.001, 0.4, 3.0):
        with pm.Model() as model:
            y = pm.InverseGamma("y", a, 2.0, shape=20_000)
            dp.LaplaceMechanism("z", dp.record_sum(y), scale=1.0, observed=4.0, bounds=(-5, 5))
        (block,) = find_record_blocks(model)
        chain = RecordChain(model, block, "independence", model.initial_point())
        x = chain.draw(rng, np.zeros(0))[:, 0]
        mean, variance = np.log(2.0) - sp.digamma(a), sp.polygamma(1, a)
        assert abs(x.mean() - mean) < 5 * np.sqrt(variance / x.size)
        assert np.isfinite(x).all()


@pytest.mark.statistical
@pytest.mark.parametrize("law", ["student t", "inverse gamma"])
def test_small_shapes_do_not_end_the_sampling(law):
    with pm.Model() as model:
        if law == "student t":
            y = pm.StudentT("y", nu=pm.Gamma("p", 2, 1), mu=0, sigma=1, shape=3)
        else:
            y = pm.InverseGamma("y", pm.Exponential("p", 1), 1.0, shape=3)
        dp.LaplaceMechanism("z", dp.record_sum(y), scale=1.0, observed=4.0, bounds=(-5, 5))
    posterior = sample(model, draws=4000, tune=1500).posterior
    assert np.unique(posterior["p"]).size > 1000
    if law == "student t":
        assert np.isfinite(posterior["y"]).all()


def test_a_record_without_a_noise_form_moves_with_its_parent():
    """Its density changes with the parent, though parameters reach it through the parent only."""
    with pm.Model() as model:
        mu = pm.Normal("mu")
        y = pm.Normal("y", mu, 1, shape=3)
        c = pm.Censored("c", pm.Normal.dist(y, 0.5), lower=0, upper=None)
        dp.LaplaceMechanism("z", dp.record_sum(c), scale=1.0, bounds=(0, 4), observed=2.5)
        (block,) = find_record_blocks(model)
    with pytest.raises(NoNoiseForm, match="c has the law Censored"):
        forms_of(model, block, [mu])
