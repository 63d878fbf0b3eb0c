"""Hamiltonian updates of many parameters: the kernel by itself, and hierarchies with known posteriors."""

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import special, stats

import pymc_dp as dp
from pymc_dp.lowering.addresses.bind import plain
from pymc_dp.step_methods.claims import MAX_DIMENSION
from pymc_dp.step_methods.updates import hamiltonian, positive
from pymc_dp.step_methods.updates.state import ParameterState
from tests.statistics import harness
from tests.statistics.marginal import from_mixture

# ---- the kernel, in plain Python -------------------------------------------------------------------

MEAN = np.array([1.0, -2.0, 0.5])
ROOT = np.array([[1.0, 0.0, 0.0], [0.8, 0.6, 0.0], [-0.3, 0.2, 0.5]])
PRECISION = np.linalg.inv(ROOT @ ROOT.T)


def normal(theta, data, given, totals, out):
    """Correlated normal numbers; theta has an entry more, which does not move."""
    gap = theta[1:] - MEAN
    out[:] = -0.5 * gap @ PRECISION @ gap, 7.0, *(-PRECISION @ gap)


def halves(theta, data, given, totals, out):
    """Standard normal numbers of which the first is positive, with a kink in the slope of the second."""
    at = theta[1:]
    value = -0.5 * at @ at - abs(at[1]) if at[0] > 0 else -np.inf
    out[:] = value, 7.0, *(-at - np.array([0.0, np.sign(at[1]), 0.0]))


def unknown(theta, data, given, totals, out):
    """The same normal numbers, whose slopes are no numbers on one side."""
    normal(theta, data, given, totals, out)
    if theta[1] < MEAN[0]:
        out[2:] = np.nan, np.inf, -np.inf


def positive_numbers(theta, data, given, totals, out):
    """Logarithms of two positive numbers whose densities end at zero, the first tied to a third number."""
    (t, v), x = np.exp(theta[1:3]), theta[3]
    out[0] = -0.5 * (t * t + v * v + x * x) + 0.5 * x * t + t - v + theta[1] + theta[2]
    out[1:] = 7.0, (0.5 * x - t + 1.0) * t + 1.0, (-v - 1.0) * v + 1.0, 0.5 * t - x


def draw_normal(rng):
    return MEAN + ROOT @ rng.normal(size=3)


def draw_halves(rng):
    while True:
        at = rng.normal(size=3)
        if rng.random() < np.exp(-abs(at[1])):
            return np.array([abs(at[0]), *at[1:]])


def draw_positive(rng):
    while True:
        v = abs(rng.normal())
        if rng.random() < np.exp(-v):
            break
    root = np.linalg.cholesky(np.linalg.inv(np.array([[1.0, -0.5], [-0.5, 1.0]])))
    while True:
        t, x = root @ (rng.normal(size=2) + root.T @ np.array([1.0, 0.0]))
        if t > 0:
            return np.array([np.log(t), np.log(v), x])


AS_LOGARITHMS, AS_THEY_ARE = [0.0, 0.0], [1.0, 1.0]
TARGETS = {
    "normal": (normal, draw_normal),
    "with an end and a kink": (halves, draw_halves),
    "with slopes that are no numbers": (unknown, draw_normal),
    "positive numbers as logarithms": (positive_numbers, draw_positive, AS_LOGARITHMS),
    "positive numbers as they are": (positive_numbers, draw_positive, AS_THEY_ARE),
}


WHOLE = np.zeros(0, dtype=np.intp)


def after(kernel, target, start, rng, as_they_are=()):
    """Where some updates lead from a draw of the target, with momenta of any covariance."""
    factor = np.array([[1.5, 0, 0], [0.4, 0.8, 0], [0, -0.3, 1.2]])
    learnt = hamiltonian.begun(np.zeros(3))._replace(factor=factor, inverse=np.linalg.inv(factor @ factor.T))
    learnt.charts[positive.AS_IT_IS, : len(as_they_are)] = as_they_are
    learnt.steps[hamiltonian.KEPT] = np.log(0.9)
    theta, tally = np.array([5.0, *start]), np.zeros(2)
    state = ParameterState(
        theta, np.zeros(1), np.zeros((1, 1)), np.zeros(1), np.arange(1, 4), WHOLE, learnt, 0, 0, tally
    )
    accepted = kernel(2, rng, target, state)
    assert theta[0] == 5.0
    assert tally[1] == 2
    assert (accepted > 0) == (not np.array_equal(theta[1:], start))
    return theta[1:]


def error_of_moments(name, seed, replicates=4000, **patched):
    """Probability of changes of moments that are as large, from a start in equilibrium."""
    rng = np.random.default_rng(seed)
    target, draw, *as_they_are = TARGETS[name]
    names = {
        "function_at": lambda address, kind: address,
        "standard_normal": lambda rng: rng.normal(),
        "random": lambda rng: rng.random(),
        "_MOST_STEPS": 8,
    }
    kernel = plain(hamiltonian.hamiltonian.py_func, names | patched)
    changes = []
    for _ in range(replicates):
        start = draw(rng)
        end = after(kernel, target, start, rng, *as_they_are)
        changes.append([*(end - start), *(end**2 - start**2), end[0] * end[1] - start[0] * start[1]])
    changes = np.array(changes)
    z = changes.mean(axis=0) / (changes.std(axis=0) / np.sqrt(replicates))
    return 2 * stats.norm.sf(np.abs(z).max()) * z.size


@pytest.mark.parametrize("name", TARGETS)
def test_the_kernel_keeps_its_target(name):
    assert error_of_moments(name, 1) > 1e-3


def hot(rng):
    """Momenta of another temperature than that of their energy."""
    return 3.0 * rng.normal()


def eager(rng):
    """Numbers with which every trajectory is of one step and accepted."""
    return 0.0


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize(
    "fault", [{"standard_normal": hot}, {"random": eager}], ids=["momenta", "acceptance"]
)
def test_planted_faults_of_the_kernel_are_caught(name, fault):
    assert error_of_moments(name, 1, replicates=3000, **fault) < 1e-6


def without_reflection_in_the_metric(at, velocity, momentum, inverse, charts, size):
    """Turn what meets zero round, with its own momentum only."""
    at += size * velocity
    turned = (charts[positive.AS_IT_IS] > 0) & (at < 0)
    at[turned] *= -1
    momentum[turned] *= -1
    return True


def without_jacobian(density, place, moving, charts):
    """Take the density of a logarithm for that of the number."""


def test_a_missing_jacobian_of_positive_numbers_is_caught():
    fault = {"in_chart": without_jacobian}
    assert error_of_moments("positive numbers as they are", 1, replicates=3000, **fault) < 1e-6


def error_of_return(go, speed):
    """How far from its start a path leads back, with the momenta turned round, and what energy is lost."""
    rng, error = np.random.default_rng(1), 0.0
    inverse = np.linalg.inv(np.array([[2.0, 0.7, 0.3], [0.7, 1.0, -0.2], [0.3, -0.2, 1.5]]))
    charts = positive.begun(np.ones(3))
    charts[positive.AS_IT_IS] = 1.0
    for _ in range(50):
        start, before = np.abs(rng.normal(size=3)), speed * rng.normal(size=3)
        at, momentum = start.copy(), before.copy()
        assert go(at, inverse @ momentum, momentum, inverse, charts, 1.0)
        assert (at >= 0).all()
        error = max(error, abs(momentum @ inverse @ momentum - before @ inverse @ before))
        momentum *= -1
        assert go(at, inverse @ momentum, momentum, inverse, charts, 1.0)
        error = max(error, np.abs(at - start).max(), np.abs(momentum + before).max())
    return error


@pytest.mark.parametrize("speed", [1.0, 5.0, 20.0])
def test_reflections_can_be_taken_back(speed):
    assert error_of_return(plain(positive.go.py_func, {}), speed) < 1e-8
    assert error_of_return(without_reflection_in_the_metric, speed) > 0.1


@pytest.mark.parametrize(
    ("draw", "slope", "as_it_is"),
    [
        (lambda rng: np.abs(rng.normal(size=500)), lambda t: 1 - t * t, 1.0),
        (lambda rng: np.exp(2 * rng.normal(size=500)), lambda t: -np.log(t) / 4, 0.0),
        (lambda rng: 1 / rng.gamma(2.0, size=500), lambda t: 1 / t - 2, 0.0),
    ],
    ids=["half normal", "log-normal", "inverse gamma"],
)
def test_positive_numbers_move_as_what_is_closer_to_normal(draw, slope, as_it_is):
    """Slopes are those of the density of the logarithm."""
    charts, learn = positive.begun(np.ones(1)), plain(positive.learn_charts.py_func, {})
    for _ in range(3):  # as logarithms first, then as they are where that was chosen
        for t in draw(np.random.default_rng(6)):
            at = slope(t) if charts[positive.AS_IT_IS, 0] == 0 else (slope(t) - 1) / t
            learn(charts, np.array([0.0, at]), np.array([np.log(t)]), np.array([0]))
        charts, squares = positive.again(charts, 500)
        assert charts[positive.AS_IT_IS, 0] == as_it_is and squares[0] > 0


def gamma_law(shape):
    def density(theta, data, given, totals, out):
        t = np.exp(theta[1])
        out[:] = shape * theta[1] - t, 7.0, shape - t

    return density


@pytest.mark.parametrize(("shape", "as_it_is"), [(0.2, 0.0), (1.0, 1.0), (2.0, 1.0)])
def test_where_a_density_has_no_bound_a_number_moves_as_its_logarithm(shape, as_it_is):
    """Also if a window has seen no small values, of which the number looks closer to normal as it is."""
    learnt, empty = hamiltonian.begun(np.ones(1)), np.zeros(1)
    state = ParameterState(
        np.zeros(2), empty, empty[None], empty, np.array([1]), WHOLE, learnt, 0, 1, np.zeros(2)
    )
    names = {
        "function_at": lambda address, kind: address,
        "standard_normal": lambda rng: rng.normal(),
        "random": lambda rng: rng.random(),
    }
    plain(hamiltonian.hamiltonian.py_func, names)(1, np.random.default_rng(1), gamma_law(shape), state)
    seen = learnt.charts.copy()
    assert seen[positive.NEXT_TO_ZERO, 0] == pytest.approx(shape)
    learn = plain(positive.learn_charts.py_func, {})
    for t in np.abs(np.random.default_rng(6).normal(size=500)):
        learn(seen, np.array([0.0, 1 - t * t]), np.array([np.log(t)]), np.array([0]))
    assert positive.again(seen, 500)[0][positive.AS_IT_IS, 0] == as_it_is
    seen[positive.NEXT_TO_ZERO] = np.inf  # planted fault: nobody has looked
    assert positive.again(seen, 500)[0][positive.AS_IT_IS, 0] == 1.0


def test_places_without_slopes_are_visited():
    """A scale that is the root of a positive part, in 45 groups: the slope is 0 times infinity below zero."""
    groups = 45
    member = np.repeat(np.arange(groups), 2)
    z = np.random.default_rng(37).normal(0, 1.5, groups)
    with pm.Model():
        t = pm.Normal("t", 0, 1, initval=0.5)
        m = pm.Normal("m", 0, 1)
        e = pm.Normal("e", 0, 1, shape=groups)
        y = pm.Normal("y", m + pt.sqrt(pt.maximum(t, 0.0)) * e[member], 1.0, shape=2 * groups)
        dp.GaussianMechanism("z", pt.zeros(groups)[member].inc(y), sigma=1.5, observed=z)
        step = dp.AncillaryUpdate(update="hamiltonian")
        assert step._parts[0].updates.follows_slopes
        idata = pm.sample(
            2000, tune=500, chains=2, cores=1, step=[step], random_seed=1, progressbar=False, quiet=True
        )
    at, m = np.linspace(-5, 5, 1001), np.linspace(-3, 3, 201)
    sd = np.sqrt(4 * np.maximum(at, 0) + 2 + 1.5**2)
    log_density = np.array([stats.norm.logpdf(z[:, None], 2 * m, each).sum(axis=0) for each in sd])
    log_density += stats.norm.logpdf(at)[:, None] + stats.norm.logpdf(m)
    density = np.exp(log_density - log_density.max()).sum(axis=1)
    expected = density[at < 0].sum() / density.sum()
    below = (idata.posterior["t"] < 0).astype(float)
    error = np.sqrt(expected * (1 - expected) / float(az.ess(below.to_dataset(name="x"))["x"]))
    assert abs(float(below.mean()) - expected) < 4 * error


def test_nothing_moves_where_there_is_no_density():
    """From there no move could be taken back; and one that leads there is refused."""
    names = {"function_at": lambda address, kind: address, "standard_normal": lambda rng: rng.normal()}
    kernel = plain(hamiltonian.hamiltonian.py_func, names | {"random": lambda rng: rng.random()})
    rng = np.random.default_rng(1)

    def nowhere(theta, data, given, totals, out):
        out[:] = np.nan, 0.0, 0.0, 0.0, 0.0

    def here_only(theta, data, given, totals, out):
        out[:] = 0.0 if np.array_equal(theta[1:], MEAN) else -np.inf, 0.0, 1.0, 1.0, 1.0

    for target in (nowhere, here_only):
        theta, learnt = np.array([5.0, *MEAN]), hamiltonian.begun(np.zeros(3))
        state = ParameterState(
            theta,
            np.zeros(1),
            np.zeros((1, 1)),
            np.zeros(1),
            np.arange(1, 4),
            WHOLE,
            learnt,
            0,
            1,
            np.zeros(2),
        )
        assert kernel(5, rng, target, state) == 0
        np.testing.assert_array_equal(theta[1:], MEAN)


def test_energies_that_are_no_numbers_are_refused_and_not_learnt():
    """Steps that are far too long end where the density is a number, and the energy is none."""
    names = {"function_at": lambda address, kind: address, "standard_normal": lambda rng: rng.normal()}
    kernel = plain(hamiltonian.hamiltonian.py_func, names | {"random": lambda rng: rng.random()})

    def steep(theta, data, given, totals, out):
        out[:] = 0.0, 0.0, *(np.zeros(3) if np.array_equal(theta[1:], MEAN) else np.full(3, 1e200))

    inverse = np.array([[1.0, -2.0, 0.0], [-2.0, 5.0, 0.0], [0.0, 0.0, 1.0]])
    factor = np.linalg.cholesky(np.linalg.inv(inverse))
    learnt = hamiltonian.begun(np.zeros(3))._replace(factor=factor, inverse=inverse)
    theta, tally = np.array([5.0, *MEAN]), np.zeros(2)
    state = ParameterState(
        theta, np.zeros(1), np.zeros((1, 1)), np.zeros(1), np.arange(1, 4), WHOLE, learnt, 0, 1, tally
    )
    with np.errstate(over="ignore", invalid="ignore"):
        assert kernel(5, np.random.default_rng(1), steep, state) == 0
    np.testing.assert_array_equal(theta[1:], MEAN)
    np.testing.assert_array_equal(tally, [0.0, 5.0])
    assert np.all(np.isfinite(learnt.steps))


def test_momenta_learn_the_information():
    """From the slopes alone: of normal numbers, the covariance of momenta is their precision."""
    names = {"function_at": lambda address, kind: address, "standard_normal": lambda rng: rng.normal()}
    names |= {"random": lambda rng: rng.random(), "_MOST_STEPS": 8}
    kernel = plain(hamiltonian.hamiltonian.py_func, names)
    rng, learnt = np.random.default_rng(3), hamiltonian.begun(np.zeros(3))
    theta, tally = np.array([5.0, 0.0, 0.0, 0.0]), np.zeros(2)
    for _ in range(6):
        tally[:] = 0
        state = ParameterState(
            theta, np.zeros(1), np.zeros((1, 1)), np.zeros(1), np.arange(1, 4), WHOLE, learnt, 0, 1, tally
        )
        kernel(500, rng, normal, state)
        learnt, last = hamiltonian.again(learnt), learnt
    np.testing.assert_allclose(learnt.factor @ learnt.factor.T, PRECISION, rtol=0.25, atol=0.3)
    np.testing.assert_allclose(learnt.inverse @ learnt.factor @ learnt.factor.T, np.eye(3), atol=1e-9)
    assert abs(tally[0] / tally[1] - 0.8) < 0.08
    assert 0.3 < np.exp(last.steps[hamiltonian.KEPT]) < 2


# ---- hierarchies whose posterior is known ----------------------------------------------------------

GROUPS, PEOPLE, NOISE = 45, 3, 4.0
MEMBER = np.repeat(np.arange(GROUPS), PEOPLE)
Z = np.random.default_rng(4).normal(3.0, 5.0, GROUPS)


def hierarchy(sigma=NOISE):
    """Means of groups around a mean of their own, and noisy sums by group: all of it normal."""
    with pm.Model() as model:
        m = pm.Normal("m", 0, 2)
        a = pm.Normal("a", m, 1.5, shape=GROUPS)
        y = pm.Normal("y", a[MEMBER], 2.0, shape=MEMBER.size)
        dp.GaussianMechanism("z", pt.zeros(GROUPS)[MEMBER].inc(y), sigma=sigma, observed=Z)
    return model


def exact_hierarchy(sigma=NOISE):
    """Means and standard deviations of m and of every a, from the joint normal law."""
    covariance = np.full((GROUPS + 1, GROUPS + 1), 4.0)
    covariance[1:, 1:] += 1.5**2 * np.eye(GROUPS)
    of_sums = PEOPLE * np.eye(GROUPS + 1)[1:]
    noise = (PEOPLE * 2.0**2 + sigma**2) * np.eye(GROUPS)
    gain = covariance @ of_sums.T @ np.linalg.inv(of_sums @ covariance @ of_sums.T + noise)
    return gain @ Z, np.sqrt(np.diag(covariance - gain @ of_sums @ covariance))


def normal_law(mean, sd):
    grid = np.linspace(mean - 9 * sd, mean + 9 * sd, 1001)
    law = stats.norm(mean, sd)
    return from_mixture(
        np.ones(1), np.array([mean]), np.array([sd**2]), grid, law.cdf(grid)[:, None], law.pdf(grid)[:, None]
    )


def verdicts_on_hierarchy(idata, sigma=NOISE):
    """Verdicts on m and on every a, together at a level of one in a thousand."""
    draws = np.concatenate([idata.posterior["m"].values[..., None], idata.posterior["a"].values], axis=-1)
    return [
        harness.mc_z(
            draws[..., k], normal_law(mean, sd), alpha=1e-3 / (GROUPS + 1), probabilities=(0.1, 0.5, 0.9),
            minimum_ess=150,
        )
        for k, (mean, sd) in enumerate(zip(*exact_hierarchy(sigma), strict=True))
    ]  # fmt: skip


SAMPLED = {"chains": 2, "cores": 1, "progressbar": False, "quiet": True, "compute_convergence_checks": False}


@pytest.mark.statistical
@pytest.mark.parametrize(
    "sigma, update",
    [(1.0, "hamiltonian"), (1.0, "auto"), (NOISE, "hamiltonian"), (60.0, "hamiltonian"), (60.0, "auto")],
)
def test_a_hierarchy_of_many_groups_is_exact(sigma, update):
    """By trajectories, and group by group, which is the default."""
    with hierarchy(sigma):
        step = [dp.AncillaryUpdate(update=update), dp.RecordImputation()]
        idata = pm.sample(1500, tune=700, random_seed=2, step=step, **SAMPLED)
    assert idata.sample_stats["ancillary_trajectories"].values.all() == (update == "hamiltonian")
    assert [str(v) for v in verdicts_on_hierarchy(idata, sigma) if not v.passed] == []


def scales(sd, sigma, groups=60):
    """A scale of which little is known: effects of groups behind noisy sums, all normal given the scale."""
    member = np.repeat(np.arange(groups), PEOPLE)
    z = np.random.default_rng(8).normal(0.0, sd, groups)
    with pm.Model() as model:
        tau = pm.HalfNormal("tau", 1)
        a = pm.Normal("a", 0, tau, shape=groups)
        y = pm.Normal("y", a[member], 1.0, shape=member.size)
        dp.GaussianMechanism("z", pt.zeros(groups)[member].inc(y), sigma=sigma, observed=z)
    at = np.linspace(0, 5, 4001)[1:]
    of_sums = np.sqrt(PEOPLE**2 * at**2 + PEOPLE + sigma**2)
    log = stats.norm.logpdf(z[:, None], 0, of_sums).sum(axis=0) + stats.norm.logpdf(at)
    density = np.exp(log - log.max())
    return model, at, density / density.sum()


@pytest.mark.statistical
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("sd, sigma", [(4.4, 4.0), (16.0, 16.0)])
def test_a_scale_that_moves_as_it_is_has_its_posterior(sd, sigma, seed):
    """Of both models, much of the posterior is near zero, where the scale is reflected."""
    model, at, p = scales(sd, sigma)
    with model:
        step = dp.AncillaryUpdate(update="hamiltonian")
        idata = pm.sample(4000, tune=500, random_seed=seed, step=[step], **SAMPLED)
    assert step.learnt[0].given_noise.charts[positive.AS_IT_IS].any()
    draws = idata.posterior["tau"].values
    checks = {"mean": (draws.mean() - p @ at) / float(az.mcse(draws, method="mean"))}
    for tail in (0.05, 0.5, 0.95):
        end = at[np.searchsorted(np.cumsum(p), tail)] + (at[1] - at[0]) / 2
        below, exact = (draws < end).astype(float), p[at < end].sum()
        ess = min(float(az.ess(below, method="mean")), below.size)
        checks[f"below {end:.2f}"] = (below.mean() - exact) / np.sqrt(exact * (1 - exact) / ess)
    assert float(az.ess(draws, method="bulk")) > 2000
    verdict = harness.two_sample_z(checks)
    assert verdict.passed, verdict


# ---- records that are summed over ------------------------------------------------------------------


def answers(epsilon=1.0):
    """Answers of people in pairs, each pair with a probability of its own around a common one."""
    z = np.random.default_rng(5).integers(0, 2, 2 * (MAX_DIMENSION + 1))
    with pm.Model() as model:
        m = pm.Normal("m", 0, 1)
        a = pm.Normal("a", m, 1, shape=MAX_DIMENSION + 1)
        y = pm.Bernoulli("y", logit_p=a[np.arange(z.size) // 2], shape=z.size)
        dp.RandomizedResponse("z", y, epsilon=epsilon, observed=z)
    return model, z


def exact_answers(z, epsilon):
    """Posterior of m on a grid, and the mean of the first a: by quadrature, pair by pair given m."""
    m, e = np.linspace(-5, 5, 401), np.linspace(-7, 7, 401)
    a = m[:, None] + e
    truth = 1 / (1 + np.exp(-epsilon))
    yes = truth * special.expit(a) + (1 - truth) * special.expit(-a)
    weight = stats.norm.pdf(e) * (e[1] - e[0])
    each = {k: yes**k * (1 - yes) ** (2 - k) @ weight for k in range(3)}
    counts = z.reshape(-1, 2).sum(axis=1)
    log = stats.norm.logpdf(m) + sum(np.log(each[k]) for k in counts)
    p = np.exp(log - log.max())
    p /= p.sum()
    first = (yes ** counts[0] * (1 - yes) ** (2 - counts[0]) * a) @ weight / each[counts[0]]
    return p @ m, np.sqrt(p @ m**2 - (p @ m) ** 2), p @ first


@pytest.mark.statistical
@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_answers_of_many_groups_are_exact(epsilon):
    model, z = answers(epsilon)
    with model:
        idata = pm.sample(3000, tune=700, random_seed=3, **SAMPLED)
    assert "ancillary_acceptance" in idata.sample_stats
    mean, sd, first = exact_answers(z, epsilon)
    draws, of_first = idata.posterior["m"].values, idata.posterior["a"].values[..., 0]
    checks = {
        "mean": (draws.mean() - mean) / float(az.mcse(draws, method="mean")),
        "sd": (draws.std() - sd) / float(az.mcse(draws, method="sd")),
        "first": (of_first.mean() - first) / float(az.mcse(of_first, method="mean")),
    }
    verdict = harness.two_sample_z(checks)
    assert verdict.passed, verdict
    # the answers themselves have been drawn given the last parameters, not left as they were before
    a = idata.posterior["a"].values
    y, p = idata.posterior["y"].values, special.expit(np.repeat(a, 2, axis=-1))
    truth = 1 / (1 + np.exp(-epsilon))
    likely = p * np.where(z, truth, 1 - truth)
    given = likely / (likely + (1 - p) * np.where(z, 1 - truth, truth))
    for weight in (1.0, given - given.mean()):
        error = np.sum(weight * (y - given)) / np.sqrt(np.sum(weight**2 * given * (1 - given)))
        assert abs(error) < 4
