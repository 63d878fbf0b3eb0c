"""Objective perturbation: density by change of variables, guarantee, exact minimiser, records behind it."""

import itertools
import math

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
import scipy.stats as st
from scipy import integrate, optimize
from scipy.special import expit

import pymc_dp as dp
from pymc_dp.mechanisms._logistic import minimise
from pymc_dp.mechanisms.objective_perturbation import ObjectivePerturbation, noise_scale
from pymc_dp.privacy.calibration import gaussian_delta
from pymc_dp.query.records import find_record_blocks
from tests.mechanisms.choices import enumerated, visited, worst_deviation

NOISE = {"gamma": {"epsilon": 1.0}, "gaussian": {"epsilon": 1.0, "delta": 1e-2}}
each_noise = pytest.mark.parametrize("noise", NOISE.values(), ids=NOISE)


def data(n, d, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d))
    return x / np.maximum(1, np.linalg.norm(x, axis=1))[:, None], rng.integers(0, 2, n).astype(float)


def law(theta, x, y, regularization, scale, gaussian):
    """Log density by hand, theta of shape (N, d)."""
    theta = np.atleast_2d(theta)
    p = expit(theta @ x.T)
    b = (p - y) @ x + regularization * theta
    hessian = np.einsum("ki,ij,il->kjl", p * (1 - p), x, x) + regularization * np.eye(x.shape[1])
    d, length = x.shape[1], np.linalg.norm(b, axis=1)
    if gaussian:
        noise = st.norm(0, scale).logpdf(b).sum(axis=1)
    else:
        area = 2 * math.pi ** (d / 2) / math.gamma(d / 2)
        noise = st.gamma(d, scale=scale).logpdf(length) - (d - 1) * np.log(length) - math.log(area)
    return noise + np.linalg.slogdet(hessian)[1]


def density(x, y, regularization, **noise):
    """Log density of a release, evaluated in Python: sweeps over records below have the compiled one."""
    release = ObjectivePerturbation.dist(x, y, regularization=regularization, **noise)
    value = pt.dvector("value")
    return pytensor.function([value], pm.logp(release, value), mode="FAST_COMPILE", trust_input=True)


@pytest.mark.statistical
@each_noise
@pytest.mark.parametrize("d", [1, 2, 4])
def test_density_is_the_change_of_variables(noise, d):
    x, y = data(7, d)
    at = density(x, y, 0.7, **noise)
    scale = noise_scale(**noise, regularization=0.7)
    for theta in np.random.default_rng(1).normal(size=(5, d)) * [[1], [3], [0.1], [30], [1000]]:
        exact = law(theta, x, y, 0.7, scale, "delta" in noise)[0]
        assert at(theta) == pytest.approx(exact, rel=1e-9)
    # the determinant against the slope of the noise, by differences
    theta, h = np.full(d, 0.3), 1e-6

    def noise_at(t):
        return -((expit(x @ t) - y) @ x + 0.7 * t)

    slopes = np.stack([(noise_at(theta + h * e) - noise_at(theta - h * e)) / (2 * h) for e in np.eye(d)])
    flat = law(theta, x, y, 0.7, scale, True)[0] - st.norm(0, scale).logpdf(noise_at(theta)).sum()
    assert flat == pytest.approx(np.linalg.slogdet(slopes)[1], abs=1e-7)


@pytest.mark.statistical  # compiles
@each_noise
@pytest.mark.parametrize("regularization", [0.3, 20.0])
def test_density_integrates_to_one(noise, regularization):
    x, y = data(6, 1)
    at = density(x, y, regularization, **noise)
    kink = minimise(np.column_stack([x, y]), regularization, np.zeros(1))[0]
    sides = [
        integrate.quad(lambda t: math.exp(at(np.array([t]))), *ends, limit=300, epsabs=1e-11)[0]
        for ends in ((-math.inf, kink), (kink, math.inf))
    ]
    assert sum(sides) == pytest.approx(1, abs=1e-8)
    # in two dimensions, by the formula that the density was compared with above
    x, y = data(5, 2)
    scale = noise_scale(**noise, regularization=regularization)
    centre = minimise(np.column_stack([x, y]), regularization, np.zeros(2))
    angles = (np.arange(256) + 0.5) * 2 * math.pi / 256
    u = np.linspace(-14, 6, 801)
    radii = np.exp(u) * scale / regularization
    ring = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    mass = [
        np.exp(law(centre + r * ring, x, y, regularization, scale, "delta" in noise)).mean() for r in radii
    ]
    total = np.trapezoid(np.array(mass) * 2 * math.pi * radii**2, u)
    assert total == pytest.approx(1, abs=1e-5)


@pytest.mark.compiles(1)
@each_noise
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("how", ["simulated", "numpy"])
def test_draws_follow_the_density(noise, how):
    x, y = data(6, 1)
    release = ObjectivePerturbation.dist(x, y, regularization=0.5, **noise)
    if how == "simulated":
        draws = pm.draw(release, draws=4000, random_seed=2)[:, 0]
    else:
        op, rng = release.owner.op, np.random.default_rng(3)
        params = [p.eval(mode="FAST_COMPILE") for p in op.dist_params(release.owner)]
        draws = np.array([op.secure_draw(rng, *params) for _ in range(4000)])[:, 0]
    scale = noise_scale(**noise, regularization=0.5)
    grid = np.sinh(np.linspace(-8, 8, 40_001))
    mass = np.exp(law(grid[:, None], x, y, 0.5, scale, "delta" in noise))
    cdf = np.concatenate([[0], np.cumsum(0.5 * (mass[1:] + mass[:-1]) * np.diff(grid))])
    assert st.kstest(draws, lambda t: np.interp(t, grid, cdf)).pvalue > 1e-3
    # power: the density without its Jacobian is told apart
    p = expit(grid[:, None] @ x.T)
    mass /= (p * (1 - p)) @ x[:, 0] ** 2 + 0.5
    cdf = np.concatenate([[0], np.cumsum(0.5 * (mass[1:] + mass[:-1]) * np.diff(grid))])
    assert st.kstest(draws, lambda t: np.interp(t, grid, cdf / cdf[-1])).pvalue < 1e-3


@pytest.mark.parametrize("regularization", [1e-6, 1.0, 1e4])
@pytest.mark.parametrize("size", [0.0, 1.0, 1e6])
def test_minimiser_is_exact(regularization, size):
    for n, d, seed in ((1, 1, 0), (50, 3, 1), (400, 8, 2)):
        x, y = data(n, d, seed)
        y = (x[:, 0] > 0).astype(float)  # separable, the hardest case
        b = size * np.random.default_rng(seed).normal(size=d)
        theta = minimise(np.column_stack([x, y]), regularization, b)
        terms = (expit(x @ theta) - y)[:, None] * x
        residual = terms.sum(0) + regularization * theta + b
        magnitude = np.abs(terms).sum(0) + regularization * np.abs(theta) + np.abs(b)
        assert (np.abs(residual) <= 1e-12 * magnitude.max() + 1e-13 * math.sqrt(n)).all()
    if size == 1.0 and regularization == 1.0:
        loss = lambda t: np.logaddexp(0, x @ t).sum() - y @ x @ t + 0.5 * t @ t + b @ t  # noqa: E731
        np.testing.assert_allclose(theta, optimize.minimize(loss, np.zeros(8), tol=1e-10).x, atol=1e-4)


def neighbours_2d():
    """Pairs of data sets that differ in one record, the worst of their kind among them."""
    angles = np.linspace(0, 2 * math.pi, 9)[:-1]
    ring = [(math.cos(a), math.sin(a)) for a in angles]
    rows = [(r * c, r * s, y) for c, s in ring for r in (0.3, 1.0) for y in (0, 1)]
    x, y = data(3, 2, 4)
    for rest in (np.zeros((0, 3)), np.column_stack([x, y])):
        yield from ((np.vstack([rest, a]), np.vstack([rest, b])) for a, b in itertools.combinations(rows, 2))


@pytest.mark.parametrize("calibration", ["tight", "chaudhuri"])
@pytest.mark.parametrize("regularization", [0.3, 5.0])
def test_guarantee_holds(calibration, regularization):
    """Supremum of log ratios over neighbouring data and releases, all radii and directions."""
    epsilon = 1.5
    scale = noise_scale(epsilon, regularization=regularization, calibration=calibration)
    angles = np.linspace(0, 2 * math.pi, 33)[:-1]
    radii = np.concatenate([[0], np.geomspace(0.03, 3e3, 30)])
    theta = np.array([(r * math.cos(a), r * math.sin(a)) for r in radii for a in angles])
    worst = 0.0
    for one, other in neighbours_2d():
        ratio = law(theta, one[:, :2], one[:, 2], regularization, scale, False) - law(
            theta, other[:, :2], other[:, 2], regularization, scale, False
        )
        worst = max(worst, np.nanmax(np.abs(ratio)))
    assert worst <= epsilon
    # each of the two parts is attained: the noise's, by two nearly opposite rows that are both
    # misfitted, where many others pull along their difference ...
    at, many = np.array([[0.0, 300.0]]), np.tile([1.0, 0.0, 0.0], (40_000, 1))
    pair = [np.vstack([many, [sign * 0.995**0.5, 0.005**0.5, 0]]) for sign in (1, -1)]
    logs = [law(at, v[:, :2], v[:, 2], regularization, scale, False)[0] for v in pair]
    assert 0.98 * 2 / scale < abs(logs[0] - logs[1]) <= 2 / scale
    # ... and the determinant's, by a record without features against one of norm 1 at theta = 0
    zero, unit = np.zeros((1, 2)), np.array([[1.0, 0.0]])
    slopes = [np.linalg.slogdet(0.25 * v.T @ v + regularization * np.eye(2))[1] for v in (zero, unit)]
    assert slopes[1] - slopes[0] == pytest.approx(math.log1p(0.25 / regularization))


def test_determinants_of_neighbours():
    """No replacement of a record changes the determinant by more than 1 + c / regularization."""
    rng = np.random.default_rng(8)
    most = 0.0
    for _ in range(3000):
        d, lam = rng.integers(1, 5), 10 ** rng.uniform(-2, 1)
        rest = np.zeros((d, d))
        for _ in range(rng.integers(0, 3)):
            v = rng.normal(size=d)
            rest += 0.25 * rng.random() * np.outer(v, v) / (v @ v)
        logs = []
        for _ in range(2):
            v = rng.normal(size=d)
            v *= rng.random() ** 0.1 / np.linalg.norm(v)
            logs.append(np.linalg.slogdet(rest + 0.25 * rng.random() * np.outer(v, v) + lam * np.eye(d))[1])
        most = max(most, abs(logs[0] - logs[1]) / math.log1p(0.25 / lam))
    assert 0.8 < most <= 1


@pytest.mark.parametrize(("delta", "times"), [(1e-2, 4), (1e-5, 2)])
def test_gaussian_guarantee_holds(delta, times):
    """Mass by which one release exceeds exp(epsilon) times its neighbour's, on a line."""
    epsilon, lam = 1.0, 0.5
    scale = noise_scale(epsilon, delta=delta, regularization=lam)
    theta = np.sinh(np.linspace(-9, 9, 60_001))
    worst = 0.0
    for rest in (np.zeros((0, 2)), np.array([[1.0, 0], [1.0, 1], [-0.5, 1]])):
        rows = [(v, y) for v in (-1.0, -0.2, 0.2, 1.0) for y in (0.0, 1.0)]
        logs = []
        for row in rows:
            both = np.vstack([rest, row])
            logs.append(law(theta[:, None], both[:, :1], both[:, 1], lam, scale, True))
        for one, other in itertools.permutations(logs, 2):
            excess = np.exp(one) * -np.expm1(np.minimum(epsilon - one + other, 0))
            worst = max(worst, np.trapezoid(excess, theta))
    assert 0 < worst <= delta
    # what the bound is made of: a multiple of the Gaussian mechanism's delta at what the determinant leaves
    left = epsilon - math.log1p(0.25 / lam)
    assert times * gaussian_delta(left, scale, 2.0) == pytest.approx(delta, rel=1e-6)


def test_tail_behind_the_gaussian_guarantee():
    """P(|b'u| + |b'v| > t) is at most 4 Q(t / 2), and at most 2 Q(t / 2) from t = 2 sqrt 3 on."""
    t = np.linspace(0, 12, 241)
    for angle in np.linspace(0, math.pi / 2, 46):
        # |b'u| + |b'v| is the larger of two independent half-normals, along u + v and u - v
        with np.errstate(divide="ignore"):
            parts = [2 * st.norm.sf(t / (2 * max(w, 1e-300))) for w in (math.cos(angle), math.sin(angle))]
        tail = 1 - (1 - parts[0]) * (1 - parts[1])
        single = 2 * st.norm.sf(t / 2)
        assert (tail <= 2 * single + 1e-15).all()
        assert (tail <= single + 1e-15)[t >= 2 * math.sqrt(3)].all()


def test_scale_of_the_noise():
    published = 1.2 - math.log(1 + 2 * 0.25 / 3 + 0.25**2 / 3**2)  # their formula, n Lambda = 3
    assert noise_scale(1.2, regularization=3, calibration="chaudhuri") == pytest.approx(2 / published)
    assert noise_scale(1.2, regularization=3) == pytest.approx(2 / (1.2 - math.log1p(0.25 / 3)))
    wide = noise_scale(1.2, regularization=12, x_bound=2)
    assert wide == pytest.approx(2 * noise_scale(1.2, regularization=3))  # units of x
    many = [noise_scale(1.0, delta=d, regularization=1) for d in (0.4, 0.2, 0.1, 1e-2, 1e-6)]
    assert many == sorted(many)


X = np.column_stack([np.full(4, 0.6), [-0.7, 0.1, 0.5, 0.8]])
SETTINGS = {"epsilon": 3.0, "regularization": 0.4}


def labels(**kwargs):
    """Public features, confidential labels."""
    with pm.Model() as model:
        y = pm.Bernoulli("y", p=[0.3, 0.5, 0.6, 0.2], shape=4)
        ObjectivePerturbation("z", X, y, **(SETTINGS | {"observed": [0.4, 1.1]} | kwargs))
    return model


def both(**kwargs):
    """Features and labels of each record told by one confidential category."""
    with pm.Model() as model:
        y = pm.Categorical("y", p=[0.3, 0.2, 0.5], shape=3)
        table = np.array([[0.6, 0.7, 0.0], [2.0, -3.0, 1.0], [-0.4, 0.1, 1.0]])  # the second row too long
        rows = pt.as_tensor(table)[y]
        settings = SETTINGS | {"observed": [-0.3, 2.0]} | kwargs
        ObjectivePerturbation("z", rows[:, :2], rows[:, 2], **settings)
    return model


PRIORS = {
    labels: np.log(np.stack([[0.7, 0.5, 0.4, 0.8], [0.3, 0.5, 0.6, 0.2]])),
    both: np.log(np.repeat([[0.3], [0.2], [0.5]], 3, axis=1)),
}


@pytest.mark.statistical
@each_noise
@pytest.mark.parametrize("build", PRIORS)
def test_records_follow_their_posterior(build, noise):
    # without the published value beforehand: O(n) a record, and the same density
    noise = {"epsilon": 3.0} if "delta" not in noise else {"epsilon": 8.0, "delta": 0.1}
    late = build(**noise, observed=None)
    value = build()["z"].owner.inputs[-3].eval(mode="FAST_COMPILE")
    late = pm.observe(late, {"z": value})
    model = build(**noise)
    kinds = [find_record_blocks(m)[0].releases[0].kind for m in (model, late)]
    assert kinds == ["central", "general"]
    prior = PRIORS[build]
    combinations, release = enumerated(model, "z", range(len(prior)), np.zeros(len(prior)))
    _, general = enumerated(late, "z", range(len(prior)), np.zeros(len(prior)))
    np.testing.assert_allclose(release, general, rtol=1e-9)
    exact = np.array([
        w * math.exp(sum(prior[k, i] for i, k in enumerate(c))) for c, w in zip(combinations, release)
    ])  # fmt: skip
    exact /= exact.sum()
    seen, lowest = visited(model, np.arange(len(prior)), 10_000)
    assert worst_deviation(seen, combinations, exact) < 5
    if "delta" not in noise:
        assert lowest >= math.exp(-3.0) * (1 - 1e-9)
    # power: the prior alone would be told apart
    alone = np.array([math.exp(sum(prior[k, i] for i, k in enumerate(c))) for c in combinations])
    assert worst_deviation(seen, combinations, alone) > 8


@pytest.mark.usefixtures("python_mode")
def test_density_in_a_model():
    """The release of a model has the density by hand, rows too long shortened."""
    model = both()
    x = np.array([[0.6, 0.7], [2 / 13**0.5, -3 / 13**0.5], [-0.4, 0.1]])[[1, 0, 2]]
    scale = noise_scale(**SETTINGS)
    exact = law(np.array([-0.3, 2.0]), x, np.array([1.0, 0, 1]), 0.4, scale, False)[0]
    assert model.point_logps({"y": [1, 0, 2]}, round_vals=12)["z"] == pytest.approx(exact, rel=1e-9)


@pytest.mark.usefixtures("python_mode")
def test_observed_data_may_change():
    """A release kept as pm.Data reaches the query too when it is set anew."""
    with pm.Model() as model:
        value = pm.Data("value", np.array([0.4, 1.1]))
        y = pm.Bernoulli("y", 0.5, shape=4)
        ObjectivePerturbation("z", X, y, **SETTINGS, observed=value)
    for new in ([0.4, 1.1], [-2.0, 0.7]):
        with model:
            pm.set_data({"value": np.array(new)})
        exact = law(np.array(new), X, np.array([1.0, 0, 0, 1]), 0.4, noise_scale(**SETTINGS), False)[0]
        assert model.point_logps({"y": [1, 0, 0, 1]}, round_vals=12)["z"] == pytest.approx(exact, rel=1e-9)
    # at a value for which the query was not evaluated the density is zero, not something else
    release = labels()["z"]
    assert pm.logp(release, np.array([0.4, 1.2])).eval({}) == -np.inf


@pytest.mark.statistical
def test_parameter_follows_its_posterior():
    """All that pm.sample does by itself, beside the exact posterior by quadrature."""
    value = np.array([0.8])
    x = np.array([[-0.9], [-0.3], [0.2], [0.6], [1.0]])
    with pm.Model():
        beta = pm.Normal("beta", 0, 2)
        y = pm.Bernoulli("y", logit_p=x[:, 0] * beta)
        ObjectivePerturbation("z", x, y, epsilon=4, regularization=0.5, observed=value)
        idata = pm.sample(4000, tune=500, chains=2, cores=1, random_seed=4, progressbar=False)
    grid = np.linspace(-14, 14, 4001)
    p = expit(grid[:, None] * x[:, 0])
    scale, posterior = noise_scale(4, regularization=0.5), 0.0
    for labels in itertools.product((0.0, 1.0), repeat=5):
        k = np.array(labels)
        weight = math.exp(law(value, x, k, 0.5, scale, False)[0])
        posterior = posterior + weight * np.prod(np.where(k, p, 1 - p), axis=1)
    posterior = posterior * st.norm.pdf(grid, 0, 2)
    posterior /= posterior.sum()
    draws = idata.posterior["beta"].values
    for power in (1, 2):
        z = draws**power
        assert abs(z.mean() - posterior @ grid**power) < 5 * z.std() / math.sqrt(float(pm.stats.ess(z)))


@pytest.mark.statistical
def test_confidential_features():
    """Continuous features behind the labels, some too long, beside quadrature over two records."""
    value, lam = np.array([1.5]), 0.3
    with pm.Model():
        mu = pm.Normal("mu", 0.5, 1)
        x = pm.Normal("x", mu, 0.8, shape=2)
        y = pm.Bernoulli("y", logit_p=1 + 2 * x)
        ObjectivePerturbation("z", x[:, None], y, epsilon=6, regularization=lam, observed=value)
        idata = pm.sample(6000, tune=1000, chains=2, cores=1, random_seed=4, progressbar=False)
    grid, nodes = np.linspace(-5, 6, 221), np.linspace(-7, 8, 121)
    scale = noise_scale(6, regularization=lam)
    clipped = nodes.clip(-1, 1)
    # statistics of one record at each (label, node), then of all pairs
    p = expit(value[0] * clipped)
    gradient = ((p - np.array([[0.0], [1.0]])) * clipped).ravel()
    hessian = np.tile(p * (1 - p) * clipped**2, 2)
    b = -(gradient[:, None] + gradient + lam * value[0])
    release = np.exp(-np.abs(b) / scale) * (hessian[:, None] + hessian + lam)
    q = expit(1 + 2 * nodes)
    weight = st.norm.pdf(nodes[:, None], grid, 0.8)
    each = np.concatenate([(1 - q)[:, None] * weight, q[:, None] * weight])
    posterior = np.einsum("ig,ij,jg->g", each, release, each) * st.norm.pdf(grid, 0.5, 1)
    posterior /= posterior.sum()
    draws = idata.posterior["mu"].values
    for power in (1, 2):
        z = draws**power
        error = z.std() / math.sqrt(float(pm.stats.ess(z)))
        assert abs(z.mean() - posterior @ grid**power) < 5 * error
    # power: the prior would be told apart
    assert abs(draws.mean() - 0.5) > 10 * draws.std() / math.sqrt(float(pm.stats.ess(draws)))


@pytest.mark.statistical
@pytest.mark.filterwarnings("error")
def test_predictive_draws():
    prior = pm.sample_prior_predictive(300, model=labels(), random_seed=1)
    assert prior.prior_predictive["z"].shape == (1, 300, 2)
    prior["posterior"] = prior["prior"]
    again = pm.sample_posterior_predictive(prior, model=labels(), random_seed=2, progressbar=False)
    for found, seed in ((prior.prior_predictive, 5), (again.posterior_predictive, 6)):
        rng = np.random.default_rng(seed)
        op = ObjectivePerturbation.dist(X, np.zeros(4), **SETTINGS).owner.op
        y = rng.random((300, 4)) < [0.3, 0.5, 0.6, 0.2]
        rows = [np.column_stack([X, v]) for v in y]
        meant = [op.rng_fn(rng, None, r, None, 0.4, noise_scale(**SETTINGS), None) for r in rows]
        for j in range(2):
            assert st.ks_2samp(found["z"].values[0, :, j], np.array(meant)[:, j]).pvalue > 1e-3


@pytest.mark.usefixtures("python_mode")
@each_noise
def test_released_and_declared_again(noise):
    x, y = data(30, 2, 9)
    release = ObjectivePerturbation.release(2 * x, y, **noise, regularization=2, x_bound=1.5)
    assert set(release.parameters) == {*noise, "regularization", "x_bound", "calibration"}
    assert release.value.shape == (2,) and release.mechanism == "ObjectivePerturbation"
    again = dp.Release.from_json(release.to_json())
    assert again == release
    with pm.Model() as model:
        labels = pm.Bernoulli("y", 0.5, shape=30)
        z = ObjectivePerturbation("z", 2 * x, labels, observed=again)
        by_hand = {**noise, "regularization": 2, "x_bound": 1.5, "observed": release.value}
        ObjectivePerturbation("same", 2 * x, labels, **by_hand)
        for wrong in ({"x_bound": 1.0}, {"regularization": 3}, {"epsilon": 7}):
            with pytest.raises(ValueError, match="contradicts the release"):
                ObjectivePerturbation("w", x, labels, observed=again, **wrong)
    assert dp.guarantee(z) == release.guarantee == dp.guarantee(model["same"])
    logs = model.point_logps({"y": y.astype(int)}, round_vals=12)
    assert logs["z"] == logs["same"]
    shortened = 2 * x * np.minimum(1, 1.5 / np.linalg.norm(2 * x, axis=1))[:, None]
    scale = noise_scale(**noise, regularization=2, x_bound=1.5)
    exact = law(release.value, shortened, y, 2.0, scale, "delta" in noise)[0]
    assert logs["z"] == pytest.approx(exact, rel=1e-9)


def test_releases_are_not_repeatable():
    x, y = data(10, 2)
    values = []
    for _ in range(2):
        np.random.seed(3)  # noqa: NPY002
        values.append(ObjectivePerturbation.release(x, y, **SETTINGS).value)
    assert (values[0] != values[1]).all()


BAD = {
    "no budget": ({"epsilon": None}, ValueError, "got none. Choose epsilon=, alone or with delta="),
    "no regularization": ({"regularization": None}, ValueError, "regularization is missing"),
    "regularization zero": ({"regularization": 0}, ValueError, "regularization must be a finite number > 0"),
    "too little": ({"regularization": 0.01}, ValueError, "too small for epsilon = 3: .* 3.258.* than 0.0130"),
    "epsilon negative": ({"epsilon": -1}, ValueError, "epsilon must be a finite number > 0, got -1"),
    "epsilon random": ({"epsilon": pt.scalar()}, TypeError, "epsilon must be one real number"),
    "delta": ({"delta": 2}, ValueError, "delta must be strictly between 0 and 1, got 2"),
    "bound": ({"x_bound": -1}, ValueError, "x_bound must be a finite number > 0, got -1"),
    "calibration": ({"calibration": "best"}, ValueError, "calibration must be one of 'tight', 'chaudhuri'"),
    "both": ({"calibration": "chaudhuri", "delta": 0.1}, ValueError, "is for pure privacy: leave delta out"),
    "sensitivity": ({"sensitivity": 1}, TypeError, "unexpected keyword argument 'sensitivity'"),
    "shape": ({"shape": 5}, ValueError, "one call of a mechanism is one release"),
}


@pytest.mark.parametrize(("noise", "error", "message"), BAD.values(), ids=BAD)
def test_bad_noise(noise, error, message):
    with pytest.raises(error, match=message):
        ObjectivePerturbation.dist(X, np.ones(4), **(SETTINGS | noise))
    if "shape" not in noise:
        with pytest.raises(error, match=message):
            ObjectivePerturbation.release(X, np.ones(4), **(SETTINGS | noise))


BAD_DATA = {
    "a vector": (X[:, 0], np.ones(4), ValueError, "x must have shape"),
    "a matrix of labels": (X, np.ones((4, 1)), ValueError, "y shape"),
    "lengths": (X, np.ones(3), ValueError, "x has 4 rows but y has 3"),
    "words": (X, ["yes"] * 4, TypeError, "y must be a"),
    "missing features": (X * np.nan, np.ones(4), ValueError, "x has NaN or infinite entries"),
    "missing labels": (X, np.array([0, 1, 1, np.nan]), ValueError, "y has NaN or infinite entries"),
}


@pytest.mark.parametrize(("x", "y", "error", "message"), BAD_DATA.values(), ids=BAD_DATA)
def test_bad_data(x, y, error, message):
    for declare in (ObjectivePerturbation.dist, ObjectivePerturbation.release):
        with pytest.raises(error, match=message):
            declare(x, y, **SETTINGS)


BAD_OBSERVED = {
    "too short": ([1.0], ValueError, r"observed means a release of shape \(1,\)"),
    "missing": ([1.0, np.nan], ValueError, "observed has 1 missing"),
    "words": (["a", "b"], TypeError, "observed must hold real numbers"),
    "another's": (dp.Release([1.0, 2.0], "LaplaceMechanism", {"scale": 1.0}), ValueError, "of Laplace"),
}


@pytest.mark.parametrize(("observed", "error", "message"), BAD_OBSERVED.values(), ids=BAD_OBSERVED)
def test_bad_observed(observed, error, message):
    with pytest.raises(error, match=message):
        labels(observed=observed, **({"epsilon": None} if isinstance(observed, dp.Release) else {}))


def test_data_alone_tell_nothing():
    with pm.Model(), pytest.raises(ValueError, match="depends on no random variable"):
        ObjectivePerturbation("z", X, np.ones(4), **SETTINGS, observed=[0.4, 1.1])
