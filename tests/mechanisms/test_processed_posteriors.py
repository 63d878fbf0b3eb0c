"""Posteriors behind processed releases, by every step that may move records, beside quadrature."""

import math

import numpy as np
import pymc as pm
import pytest
import scipy.stats as st
from scipy.integrate import trapezoid
from scipy.special import logsumexp

import pymc_dp as dp

NAN = math.nan


def brute_force(law, processing, y, q):
    """Log probability of what was published of q plus whole-numbered noise, by going through all noise."""
    noise = np.arange(-400, 401)
    weight = law(noise)
    lo, r, t = processing
    z = q[:, None] + noise
    z = z if lo is None else np.maximum(z, lo)
    z = r * np.rint(z / r) if r else z
    same = z < t if math.isnan(y) else (z == y) & (z >= t)
    with np.errstate(divide="ignore"):
        return np.log(np.where(same, weight / weight.sum(), 0).sum(axis=1))


def by_quantiles(law, processing, y, q):
    """The same for real noise, by equally likely values of it.

    What is published grows with the noise, so that the first value of it that gives as much is bisected for.
    """
    u = (np.arange(200_000) + 0.5) / 200_000
    lo, r, t = processing
    noise = law.ppf(u)

    def below(end):
        """How many values of the noise give less than an end, for each q."""
        first, last = np.zeros(len(q), int), np.full(len(q), len(noise))
        while (open_ := first < last).any():
            middle = (first + last) // 2
            z = q + noise[np.minimum(middle, len(noise) - 1)]
            z = r * np.rint((z if lo is None else np.maximum(z, lo)) / r)
            first, last = np.where(open_ & (z < end), middle + 1, first), np.where(z < end, last, middle)
        return first

    share = below(t) if math.isnan(y) else below(y + 1e-9) - below(max(y - 1e-9, t))
    with np.errstate(divide="ignore"):
        return np.log(np.maximum(share, 0) / len(noise))


NOISES = {
    "laplace": (dp.LaplaceMechanism, "scale", lambda s: st.laplace(0, s), by_quantiles),
    "gaussian": (dp.GaussianMechanism, "sigma", lambda s: st.norm(0, s), by_quantiles),
    "discrete laplace": (
        dp.DiscreteLaplaceMechanism,
        "scale",
        lambda s: lambda k: np.exp(-np.abs(k) / s),
        brute_force,
    ),
    "discrete gaussian": (
        dp.DiscreteGaussianMechanism,
        "sigma",
        lambda s: lambda k: np.exp(-0.5 * (k / s) ** 2),
        brute_force,
    ),
}


def declared(noise, query, level, processing, values):
    mechanism, label, law, probability = NOISES[noise]
    lo, r, t = processing
    clip = None if lo is None else (lo, None)
    observed = dp.postprocessed(values, clip=clip, round_to=r, suppress_below=t)
    mechanism("z", query, **{label: level}, observed=observed)
    given = law(level)
    return lambda y, q: probability(given, processing, y, np.asarray(q, dtype=float))


def few_counts(noise, level=2.0, values=(NAN, 10.0, NAN, 5.0), processing=(0, 5, 3)):
    """Counts of four groups, each released; small ones are suppressed."""
    with pm.Model() as model:
        p = pm.Beta("parameter", 2, 3)
        x = pm.Binomial("x", 12, p, shape=len(values))
        of = declared(noise, x, level, processing, list(values))
    grid, k = np.linspace(1e-4, 1 - 1e-4, 800), np.arange(13)
    log_density = st.beta.logpdf(grid, 2, 3)
    for y in values:
        log_density += logsumexp(st.binom.logpmf(k, 12, grid[:, None]) + of(y, k), axis=1)
    return model, grid, log_density


def one_total(noise, level=4.0, value=20.0, processing=(0, 10, 10)):
    """A rounded count among thirty people."""
    with pm.Model() as model:
        p = pm.Beta("parameter", 1, 2)
        x = pm.Bernoulli("x", p, shape=30)
        of = declared(noise, dp.record_sum(x), level, processing, value)
    grid, k = np.linspace(1e-4, 1 - 1e-4, 800), np.arange(31)
    log_density = st.beta.logpdf(grid, 1, 2)
    log_density += logsumexp(st.binom.logpmf(k, 30, grid[:, None]) + of(value, k), axis=1)
    return model, grid, log_density


def normal_mean(central, noise="laplace", level=1.5, processing=(-3, 2, 0)):
    """Real records: each with noise, clipped, rounded and suppressed; or their sum."""
    values = 8.0 if central else [2.0, NAN, 4.0, NAN, 0.0]
    with pm.Model() as model:
        mu = pm.Normal("parameter", 0, 2)
        x = pm.Normal("x", mu, 1, shape=5)
        of = declared(noise, dp.record_sum(x) if central else x, level, processing, values)
    spread = math.sqrt(5) if central else 1.0
    node, weight = np.polynomial.legendre.leggauss(60)
    grid = np.linspace(-9, 9, 500)
    fine = np.linspace(-60, 60, 2001)
    log_density = st.norm.logpdf(grid, 0, 2)
    for y in {str(v): v for v in np.atleast_1d(values)}.values():
        table = np.exp(of(y, fine))
        times = np.sum(np.isnan(values)) if np.isnan(y) else np.sum(np.atleast_1d(values) == y)
        q = grid[:, None] * (5 if central else 1) + 8 * spread * node
        inner = np.interp(q, fine, table) * st.norm.pdf(8 * node) * weight * 8
        log_density += times * np.log(np.maximum(inner.sum(axis=1), 1e-300))
    return model, grid, log_density


def default(model):
    return None


def with_nuts(model):
    """NUTS for the parameter, so that nothing but the sweep knows of the release."""
    return [dp.RecordImputation()]


def interwoven(model):
    return [dp.RecordImputation(), dp.AncillaryUpdate(n_cycles=2)]


CASES = {
    "few counts, discrete Laplace": (lambda: few_counts("discrete laplace"), default),
    "few counts, discrete Gaussian": (lambda: few_counts("discrete gaussian"), with_nuts),
    "few counts, Laplace": (lambda: few_counts("laplace"), interwoven),
    "few counts, Gaussian": (lambda: few_counts("gaussian"), default),
    "few counts, little noise": (lambda: few_counts("discrete laplace", 0.3), default),
    "only suppressed": (lambda: few_counts("discrete laplace", 2.0, (NAN,) * 4), default),
    "a total, discrete Laplace": (lambda: one_total("discrete laplace"), default),
    "a total, discrete Gaussian": (lambda: one_total("discrete gaussian"), interwoven),
    "a total, Laplace": (lambda: one_total("laplace"), with_nuts),
    "a total, Gaussian": (lambda: one_total("gaussian", 2.0), default),
    "a total that was suppressed": (lambda: one_total("discrete gaussian", value=NAN), default),
    "normal records, Laplace": (lambda: normal_mean(central=False), default),
    "normal records, Gaussian": (lambda: normal_mean(False, "gaussian"), with_nuts),
    "a normal sum, Laplace": (lambda: normal_mean(central=True), interwoven),
    "a normal sum, Gaussian": (lambda: normal_mean(True, "gaussian"), default),
}
SHORT = {"few counts, discrete Laplace"}


def compare(draws, grid, log_density):
    """z-values of the first two moments, on Monte Carlo errors from the effective sample size."""
    weights = np.exp(log_density - log_density.max())
    weights /= trapezoid(weights, grid)
    for power in (1, 2):
        exact = trapezoid(weights * grid**power, grid)
        x = draws**power
        yield (x.mean() - exact) / (x.std() / math.sqrt(float(pm.stats.ess(x))))


def sampled(model, step, draws=5000):
    with model:
        idata = pm.sample(
            draws, tune=1000, chains=2, cores=1, random_seed=8, progressbar=False, step=step(model),
            compute_convergence_checks=False,
        )  # fmt: skip
    return idata.posterior["parameter"].values


@pytest.mark.statistical
@pytest.mark.parametrize(
    "case", [c if c in SHORT else pytest.param(c, marks=pytest.mark.statistical) for c in CASES]
)
def test_posterior_of_a_parameter(case):
    declare, step = CASES[case]
    model, grid, log_density = declare()
    draws = sampled(model, step)
    assert max(map(abs, compare(draws, grid, log_density))) < 5


@pytest.mark.statistical
@pytest.mark.parametrize("noise", NOISES)
def test_records_integrated_out(noise):
    """Finite supports are summed over from the density alone, and drawn back."""
    model, grid, log_density = few_counts(noise)
    marginal = dp.marginalize(model, "x")
    assert not {"x"} & {rv.name for rv in marginal.free_RVs}
    logp = marginal.compile_logp(vars=[marginal["z"]], mode="FAST_COMPILE")
    value = marginal.rvs_to_values[marginal["parameter"]].name
    at = np.array([120, 200, 300, 450])
    found = [float(logp({value: np.log(v / (1 - v))})) for v in grid[at]]
    expected = log_density[at] - st.beta.logpdf(grid[at], 2, 3)
    assert np.allclose(np.subtract(found, found[0]), expected - expected[0], rtol=1e-4, atol=1e-3)
    draws = sampled(marginal, default)
    assert max(map(abs, compare(draws, grid, log_density))) < 5


# -- the same posterior read wrongly ----------------------------------------------------------------


def suppression_as_zero(values):
    return dp.postprocessed(np.nan_to_num(values), clip=(0, None), round_to=5)


def rounding_forgotten(values):
    return dp.postprocessed(values, clip=(0, None), suppress_below=8)


@pytest.mark.statistical
@pytest.mark.parametrize("wrong", [suppression_as_zero, rounding_forgotten])
def test_wrong_readings_are_seen(wrong):
    """The comparison above tells suppressed cells from zeros, and intervals from points."""
    values = (NAN, 10.0, NAN, 10.0)
    _, grid, log_density = few_counts("laplace", 1.0, values, (0, 5, 8))
    with pm.Model() as model:
        p = pm.Beta("parameter", 2, 3)
        x = pm.Binomial("x", 12, p, shape=4)
        dp.LaplaceMechanism("z", x, scale=1.0, observed=wrong(list(values)))
    draws = sampled(model, default)
    assert max(map(abs, compare(draws, grid, log_density))) > 5


# -- counts without a largest value, integrated out -------------------------------------------------

ALPHA = np.float64(1.5)  # a float of Python's would be of single precision in a graph
LAWS = {
    "Poisson": (pm.Poisson, lambda v: {"mu": v}, st.poisson),
    "negative binomial": (
        pm.NegativeBinomial,
        lambda v: {"mu": v, "alpha": ALPHA},
        lambda v: st.nbinom(ALPHA, ALPHA / (ALPHA + v)),
    ),
    "geometric": (pm.Geometric, lambda v: {"p": 1 / (1 + v)}, lambda v: st.geom(1 / (1 + v))),
}
WHOLE_NOISES = {name: noise for name, noise in NOISES.items() if name.startswith("discrete")}


def unbounded(law, noise, processing, values, level=2.0):
    with pm.Model() as model:
        kind, given, _ = LAWS[law]
        x = kind("x", **given(pm.Gamma("parameter", 2, 0.4)), shape=len(values))
        lo, r, t = processing
        clip = None if lo is None else (lo, None)
        mechanism, label, weigh, _ = WHOLE_NOISES[noise]
        observed = dp.postprocessed(values, clip=clip, round_to=r or None, suppress_below=t)
        mechanism("z", x, **{label: level}, observed=observed)
    return model, weigh(level)


@pytest.mark.compiles(2)
@pytest.mark.usefixtures("python_mode")
@pytest.mark.parametrize("noise", WHOLE_NOISES)
@pytest.mark.parametrize("law", LAWS)
def test_density_of_counts_integrated_out(law, noise):
    """Beside the sum over records and noise; far values too, of which the sum has other terms."""
    k = np.arange(0, 500)
    for processing in ((0, 5, 10), (None, 4, -8), (-3, 0, 2)):
        near, far = {10: (10.0, 45.0), -8: (-8.0, 24.0), 2: (2.0, 31.0)}[processing[2]]
        values = [NAN, near, far]
        model, weigh = unbounded(law, noise, processing, values)
        marginal = dp.marginalize(model, "x")
        logp = marginal.compile_logp(vars=[marginal["z"]], sum=False)
        for rate in (0.7, 8.0):
            f = LAWS[law][2](rate).pmf(k)
            exact = [
                logsumexp(np.log(np.maximum(f, 1e-300)) + brute_force(weigh, processing, y, k))
                for y in values
            ]
            assert np.allclose(logp({"parameter_log__": np.log(rate)})[0], exact, rtol=1e-9), (
                law,
                processing,
            )


@pytest.mark.statistical
@pytest.mark.parametrize("noise", WHOLE_NOISES)
def test_counts_drawn_back(noise):
    """The records given what was published, as the imputed ones are."""
    values, processing = [NAN, 15.0, 10.0], (0, 5, 10)
    model, weigh = unbounded("Poisson", noise, processing, values)
    idata = pm.sample(
        1500, tune=500, chains=2, cores=1, random_seed=3, progressbar=False, model=dp.marginalize(model, "x")
    )
    drawn = dp.recover_records(idata, model, random_seed=4)["x"].values.reshape(-1, 3)
    rate = idata.posterior["parameter"].values.ravel()
    k = np.arange(80)
    for i, y in enumerate(values):
        table = np.exp(brute_force(weigh, processing, y, k))
        weights = st.poisson.pmf(k, rate[:, None]) * table
        mean = (weights * k).sum(1) / weights.sum(1)
        error = (drawn[:, i] - mean).std() / math.sqrt(len(mean))  # draws are independent given the rate
        assert abs((drawn[:, i] - mean).mean()) < 5 * error


def test_counts_that_cannot_be_integrated_out():
    with pm.Model() as model:
        x = pm.Poisson("x", 3.0, shape=2)
        observed = dp.postprocessed([3, 9], clip=(0, 9))
        dp.DiscreteLaplaceMechanism("z", x, scale=2.0, observed=observed)
    with pytest.raises(ValueError, match="a value that was clipped from above says of its record no number"):
        dp.marginalize(model, "x")


def test_normal_records_that_cannot_be_integrated_out():
    def model(mechanism, query=lambda x: x, **noise):
        with pm.Model() as declared:
            x = pm.Normal("x", 3.0, 1.0, shape=2)
            observed = dp.postprocessed([3.0, 9.0], clip=(0, None))
            mechanism("z", query(x), **noise, observed=observed)
        return declared

    with pytest.raises(ValueError, match="no closed marginal under ProcessedLaplaceMechanism"):
        dp.marginalize(model(dp.LaplaceMechanism, scale=2.0), "x")
    with pytest.raises(
        ValueError, match="clamped before the noise have no closed marginal where it was proc"
    ):
        dp.marginalize(model(dp.GaussianMechanism, sigma=2.0, bounds=(0, 5)), "x")
    sums = lambda x: dp.record_sum(pm.math.stack([x, 2 * x], axis=1))  # noqa: E731
    with pytest.raises(ValueError, match="ProcessedGaussianMechanism of all records together is not normal"):
        dp.marginalize(model(dp.GaussianMechanism, sums, sigma=2.0), "x")


def normal_records():
    with pm.Model() as model:
        mu, s = pm.Normal("mu", 0, 2), pm.HalfNormal("s", 1)
        x = pm.Normal("x", mu, s, shape=4)
        observed = dp.postprocessed([NAN, 1.3, 2.0, NAN], clip=(None, 2), suppress_below=-1)
        dp.GaussianMechanism("z", x, sigma=0.5, sensitivity=1, observed=observed)
    return model


def test_density_of_normal_records_integrated_out(python_mode):
    model = normal_records()
    marginal = dp.marginalize(model, "x")
    assert dp.guarantee(marginal["z"]) == dp.guarantee(model["z"])
    logp = marginal.compile_logp(vars=[marginal["z"]])
    for mu, s in ((0.3, 1.0), (-40.0, 0.2), (15.0, 3.0)):
        law = st.norm(mu, math.hypot(s, 0.5))
        expected = 2 * law.logcdf(-1) + law.logpdf(1.3) + law.logsf(2)
        assert np.isclose(logp({"mu": mu, "s_log__": math.log(s)}), expected, rtol=1e-12)


@pytest.mark.statistical
def test_normal_records_drawn_back():
    """Given what was published, beside quadrature over the record."""
    model = normal_records()
    marginal = dp.marginalize(model, "x")
    idata = pm.sample(4000, tune=500, chains=2, cores=1, random_seed=3, progressbar=False, model=marginal)
    drawn = dp.recover_records(idata, model, random_seed=4)["x"].values.reshape(-1, 4)
    mu, s = (idata.posterior[name].values.reshape(-1, 1) for name in ("mu", "s"))
    node, weight = np.polynomial.legendre.leggauss(400)
    x = mu + 9 * s * node
    prior = st.norm.pdf(x, mu, s) * weight
    channels = [
        lambda x: st.norm.cdf(-1, x, 0.5),
        lambda x: st.norm.pdf(1.3, x, 0.5),
        lambda x: st.norm.sf(2, x, 0.5),
    ]
    for i, channel in enumerate(channels):
        weights = prior * channel(x)
        for power in (1, 2):
            mean = (weights * x**power).sum(1) / weights.sum(1)
            gap = drawn[:, i] ** power - mean  # draws are independent given the parameters
            assert abs(gap.mean()) < 5 * gap.std() / math.sqrt(len(mean))


# -- mixtures: published values are few, so that draws of the prior can be kept where they agree ----


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("noise", "n_auxiliary"), [("laplace", None), ("gaussian", None), ("gaussian", np.inf)]
)
def test_mixtures_of_processed_records(noise, n_auxiliary, rng):
    mechanism, label, law, _ = NOISES[noise]
    published, n, size = np.array([NAN, 2.0, 4.0]), 3, 2_000_000
    labels = np.zeros((size, n), dtype=int)
    labels[:, 1] = rng.random(size) > 0.5
    u, alone = rng.random(size), labels[:, 1] == 1
    labels[:, 2] = np.where(alone, np.minimum(3 * u, 2), u > 2 / 3)
    y = rng.normal(np.take_along_axis(rng.normal(0, 2, (size, n)), labels, axis=1), 1)
    z = y + law(0.7).rvs((size, n), random_state=rng)
    seen = 2 * np.rint(np.maximum(z, -2) / 2)
    seen[seen < 0] = NAN
    kept = ((seen == published) | (np.isnan(seen) & np.isnan(published))).all(axis=1)
    with pm.Model():
        which = dp.ChineseRestaurantProcess("labels", concentration=1, shape=n, max_components=n)
        x = pm.Normal("y", pm.Normal("mu", 0, 2, shape=n)[which], 1, shape=n)
        observed = dp.postprocessed(published, clip=(-2, None), round_to=2, suppress_below=0)
        mechanism("z", x, **{label: 0.7}, observed=observed)
        step = n_auxiliary and [dp.PrivateNeal5(n_auxiliary=n_auxiliary), dp.AtomUpdate()]
        idata = pm.sample(20_000, tune=500, chains=1, random_seed=1, progressbar=False, step=step)

    def quantities(labels, y):
        clusters = np.array([len(set(row)) for row in labels])
        return np.column_stack([clusters == 1, clusters == 2, labels[:, 1] == labels[:, 2], y])

    exact = quantities(labels[kept], y[kept])
    found = quantities(idata.posterior["labels"].values[0], idata.posterior["y"].values[0])
    for a, b in zip(exact.T, found.T, strict=True):
        error = math.hypot(a.std() / math.sqrt(len(a)), b.std() / math.sqrt(float(pm.stats.ess(b[None]))))
        assert abs(a.mean() - b.mean()) < 5 * error
