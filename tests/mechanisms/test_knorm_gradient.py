"""The K-norm gradient mechanism: over candidates, and over parameters of a quadratic loss."""

import itertools
import math

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
import scipy.stats as st
from scipy.special import log_softmax

import pymc_dp as dp
from pymc_dp.mechanisms._knorm_noise import log_normaliser
from pymc_dp.mechanisms.knorm_gradient import KNormGradient
from pymc_dp.query.records import find_record_blocks
from tests.mechanisms.choices import enumerated, visited, worst_deviation

NORMS = [1, 2, math.inf]
each_norm = pytest.mark.parametrize("norm", NORMS)
GRADIENTS = np.array([[1.0, -2.0], [0.0, 0.5], [3.0, 3.0], [-1.0, 0.0]])
HESSIAN = np.array([[3.0, 1.0], [0.5, 2.0]])


def choice(gradients=GRADIENTS, **kwargs):
    return KNormGradient.dist(gradients, **({"epsilon": 1.3, "sensitivity": 2.0} | kwargs))


def parameter(query=(0.5, -1.0), **kwargs):
    return KNormGradient.dist(
        np.asarray(query), **({"epsilon": 1.3, "sensitivity": 2.0, "hessian": HESSIAN} | kwargs)
    )


def drawn(release, how):
    """Draws of a release as a simulation or its publication makes them."""
    if how == "simulated":
        return pm.draw(release, random_seed=4)
    params = [p.eval() for p in release.owner.op.dist_params(release.owner)]
    return release.owner.op.secure_draw(np.random.default_rng(1), *params)


@pytest.mark.usefixtures("python_mode")
@each_norm
def test_probabilities(norm):
    exact = log_softmax(-1.3 / 4 * np.linalg.norm(GRADIENTS, norm, axis=1))
    found = [float(pm.logp(choice(norm=norm), c).eval()) for c in range(4)]
    np.testing.assert_allclose(found, exact, rtol=1e-12)
    assert pm.logp(choice(norm=norm), 4).eval() == -np.inf
    # one parameter: a gradient is a number
    line = pm.logp(choice(GRADIENTS[:, 0], norm=norm), 2).eval()
    assert line == pytest.approx(log_softmax(-1.3 / 4 * np.abs(GRADIENTS[:, 0]))[2])
    # each row of a local query is a choice of its own
    rows = pm.logp(choice(np.stack([GRADIENTS, 2 * GRADIENTS]), norm=norm), [1, 1]).eval()
    assert rows[0] == pytest.approx(exact[1])
    assert rows[1] == pytest.approx(log_softmax(-1.3 / 2 * np.linalg.norm(GRADIENTS, norm, axis=1))[1])


@pytest.mark.filterwarnings("error")
@each_norm
@pytest.mark.parametrize("how", ["simulated", "exact"])
def test_choices_follow_the_probabilities(norm, how):
    n = 3000
    release = choice(np.tile(GRADIENTS, (n, 1, 1)), norm=norm)
    draws = drawn(release, how)
    p = np.exp(log_softmax(-1.3 / 4 * np.linalg.norm(GRADIENTS, norm, axis=1)))
    assert st.chisquare(np.bincount(draws, minlength=4), n * p).pvalue > 1e-3
    other = np.exp(log_softmax(-1.3 / 2 * np.linalg.norm(GRADIENTS, norm, axis=1)))
    assert st.chisquare(np.bincount(draws, minlength=4), n * other).pvalue < 1e-3


@each_norm
def test_guarantee_of_a_choice(norm):
    """Supremum over what one record can change; reached where one gradient shrinks and others grow."""
    epsilon, worst = 0.8, 0.0
    steps = np.array([-1.0, 0, 1])
    for base in (np.array([[30.0], [1.0], [1.0]]), np.array([[0.0], [0.0], [0.3]])):
        value = pt.dmatrix("gradients")
        release = choice(value, epsilon=epsilon, sensitivity=1.0, norm=norm)
        at = pytensor.function([value], [pm.logp(release, c) for c in range(3)], mode="FAST_COMPILE")
        here = np.array(at(base))
        for change in itertools.product(steps, repeat=3):
            worst = max(worst, np.abs(here - np.array(at(base + np.array(change)[:, None]))).max())
    stated = dp.guarantee(choice(epsilon=epsilon, norm=norm))
    assert stated.is_pure and stated.epsilon == epsilon and stated.rho == pytest.approx(epsilon**2 / 8)
    assert 0.999 * epsilon <= worst <= epsilon * (1 + 1e-12)


@each_norm
def test_normaliser(norm):
    """The integral of exp(-norm) over a plane, by a rule on one octant; and over a line."""
    assert log_normaliser(1, norm) == pytest.approx(math.log(2))
    grid, step = np.linspace(0, 40, 2501, retstep=True)
    weights = np.full(grid.size, step)
    weights[[0, -1]] /= 2
    plane = np.linalg.norm(np.stack(np.meshgrid(grid, grid)), norm, axis=0)
    assert log_normaliser(2, norm) == pytest.approx(
        math.log(4 * weights @ np.exp(-plane) @ weights), abs=1e-4
    )
    # unit balls in three dimensions: octahedron 4/3, ball 4 pi/3, cube 8, times 3!
    volume = {1: 4 / 3, 2: 4 * math.pi / 3, math.inf: 8.0}[norm]
    assert log_normaliser(3, norm) == pytest.approx(math.log(6 * volume))


def law(theta, query, norm, scale=2.0 / 1.3):
    """Log density by hand, theta of shape (N, 2)."""
    gradient = query + theta @ HESSIAN.T
    constant = math.log(np.linalg.det(HESSIAN)) - log_normaliser(2, norm) - 2 * math.log(scale)
    return constant - np.linalg.norm(gradient, norm, axis=-1) / scale


@pytest.mark.usefixtures("python_mode")
@each_norm
def test_density_of_a_parameter(norm):
    theta = np.random.default_rng(0).normal(size=(4, 2)) * [[1], [10], [0.1], [1000]]
    value = pt.dvector("value")
    at = pytensor.function([value], pm.logp(parameter(norm=norm), value))
    for t in theta:
        assert at(t) == pytest.approx(law(t[None], np.array([0.5, -1.0]), norm)[0], rel=1e-12)
    rows = pm.logp(parameter(np.zeros((4, 2)), norm=norm), theta).eval()
    np.testing.assert_allclose(rows, law(theta, np.zeros(2), norm), rtol=1e-12)


@pytest.mark.compiles(1)
@pytest.mark.filterwarnings("error")
@each_norm
@pytest.mark.parametrize("how", ["simulated", "numpy"])
def test_parameters_follow_the_density(norm, how):
    query, n = np.array([0.5, -1.0]), 4000
    release = parameter(np.tile(query, (n, 1)), norm=norm)
    draws = drawn(release, how)
    scaled = (query + draws @ HESSIAN.T) / (2.0 / 1.3)
    radius = np.linalg.norm(scaled, norm, axis=1)
    assert st.kstest(radius, st.gamma(2).cdf).pvalue > 1e-3
    assert st.kstest(1.08 * radius, st.gamma(2).cdf).pvalue < 1e-3
    # marginal of one entry, from the density on a grid
    grid = np.linspace(-20, 20, 2001)
    mass = np.exp(-np.linalg.norm(np.stack(np.meshgrid(grid, grid)), norm, axis=0)).sum(axis=0)
    cdf = np.cumsum(mass) / mass.sum()
    for j in range(2):
        assert st.kstest(scaled[:, j], lambda v: np.interp(v, grid + 0.01, cdf)).pvalue > 1e-3


@each_norm
def test_guarantee_of_a_parameter(norm):
    """The log ratio reaches epsilon, and no more, along the change of the gradient at zero."""
    theta = np.random.default_rng(2).normal(size=(4000, 2)) * np.geomspace(0.01, 1e4, 4000)[:, None]
    value = np.vstack([theta, [[1e4, 0], [0, 1e4]] @ np.linalg.inv(HESSIAN).T])
    worst = 0.0
    for direction in [*np.random.default_rng(3).normal(size=(30, 2)).tolist(), [1, 0], [0, 1]]:
        change = 2.0 * np.array(direction) / np.linalg.norm(direction, norm)
        worst = max(worst, np.abs(law(value, np.zeros(2), norm) - law(value, change, norm)).max())
    stated = dp.guarantee(parameter(norm=norm))
    assert stated.is_pure and stated.epsilon == 1.3
    assert 1.3 * 0.999 <= worst <= 1.3 * (1 + 1e-9)


@pytest.mark.usefixtures("python_mode")
def test_bounds_give_the_sensitivity():
    grid = np.array([0.0, 1.0, 2.0])
    with pm.Model() as model:
        y = pm.Normal("y", 0, 1, shape=(5, 2))
        each = y[:, None, :] - grid[:, None]
        for name, norm in (("one", 1), ("two", 2), ("sup", math.inf)):
            z = KNormGradient(name, dp.record_sum(each), epsilon=1, bounds=(-1, 2), norm=norm, observed=1)
            assert z.owner.inputs[-1].eval() == pytest.approx(np.linalg.norm([3, 3], norm))
        line = dp.record_sum(y[:, :1] - grid)
        z = KNormGradient("line", line, epsilon=1, bounds=(-1, 2), observed=1)
        assert z.owner.inputs[-1].eval() == 3
        mean = {"epsilon": 1, "hessian": 5 * np.eye(2), "observed": [0.1, 0.2]}
        z = KNormGradient("mean", dp.record_sum(-y), bounds=(-2, 1), **mean)
        assert z.owner.inputs[-1].eval() == pytest.approx(3 * math.sqrt(2))
    data = np.random.default_rng(0).normal(0, 3, size=(5, 2))
    logs = model.point_logps({"y": data}, round_vals=12)
    summed = (data[:, None, :] - grid[:, None]).clip(-1, 2).sum(0)
    exact = log_softmax(-np.linalg.norm(summed, axis=1) / (2 * 3 * math.sqrt(2)))
    assert logs["two"] == pytest.approx(exact[1])
    gradient = (-data).clip(-2, 1).sum(0) + 5 * np.array([0.1, 0.2])
    scale = 3 * math.sqrt(2)
    exact = math.log(25) - math.log(2 * math.pi) - 2 * math.log(scale) - np.linalg.norm(gradient) / scale
    assert logs["mean"] == pytest.approx(exact)


VALUES = np.array([0.0, 1.0, 2.5])
PRIOR = np.array([0.2, 0.5, 0.3])


def median(x):
    return {"gradients": dp.record_sum(pt.sign(np.array([0.5, 1.5, 2.0]) - x[:, None])), "observed": 2}


def squares(x):
    """Mean and mean square at four candidates."""
    table = np.array([[0.0, 0.5], [1.0, 1.5], [2.0, 4.0], [1.0, 3.0]])
    moments = pt.stack([x, x**2], axis=1)
    return {"gradients": dp.record_sum(table - moments[:, None, :]), "observed": 1, "norm": 1}


def mean(x):
    return {"gradients": dp.record_sum(-x[:, None]), "observed": [1.9], "hessian": [[3.0]]}


def moments(x):
    gradient = dp.record_sum(-pt.stack([x, pt.sqr(x) / 2.5], axis=1))
    return {"gradients": gradient, "observed": [1.9, 0.2], "hessian": HESSIAN, "norm": math.inf}


@pytest.mark.statistical
@pytest.mark.parametrize("query", [median, squares, mean, moments])
def test_records_follow_their_posterior(query):
    with pm.Model() as model:
        y = pm.Categorical("y", PRIOR, shape=3)
        arguments = query(pt.as_tensor(VALUES)[y])
        KNormGradient("z", arguments.pop("gradients"), epsilon=4, sensitivity=2.5, **arguments)
    (block,) = find_record_blocks(model)
    assert [r.kind for r in block.releases] == ["central"]
    combinations, exact = enumerated(model, "z", range(3), np.log(PRIOR))
    seen, lowest = visited(model, np.arange(3), 10_000)
    assert worst_deviation(seen, combinations, exact) < 5
    if query is not squares:  # whose gradients change by more than the sensitivity that was stated
        assert lowest >= math.exp(-4) * (1 - 1e-9)  # attained
    prior = np.array([np.prod(PRIOR[list(c)]) for c in combinations])
    assert worst_deviation(seen, combinations, prior) > 8


@pytest.mark.usefixtures("python_mode")
@pytest.mark.parametrize("how", [{}, {"hessian": HESSIAN}], ids=["choice", "parameter"])
@each_norm
def test_released_and_declared_again(how, norm):
    data = np.random.default_rng(1).normal(size=(6, 2))
    table = np.arange(8.0).reshape(4, 2)

    def gradients(x):
        return dp.record_sum(-x if how else table - x[:, None, :])

    release = KNormGradient.release(gradients(data), epsilon=1.5, sensitivity=3, norm=norm, **how)
    assert set(release.parameters) == {"epsilon", "sensitivity", "norm", *how}
    again = dp.Release.from_json(release.to_json())
    assert again == release and release.value.shape == ((2,) if how else ())
    with pm.Model() as model:
        y = pm.Normal("y", 0, 1, shape=(6, 2))
        z = KNormGradient("z", gradients(y), observed=again)
        stated = {"epsilon": 1.5, "sensitivity": 3, "norm": norm, "observed": release.value, **how}
        KNormGradient("same", gradients(y), **stated)
        with pytest.raises(ValueError, match=r"norm = .* contradicts the release"):
            KNormGradient("other", gradients(y), observed=again, norm=3 - norm if norm < 3 else 2)
    assert dp.guarantee(z) == release.guarantee == dp.guarantee(model["same"])
    logs = model.point_logps({"y": data})
    assert logs["z"] == logs["same"]


BAD = {
    "no budget": ({"epsilon": None}, ValueError, "got none. Choose epsilon= with sensitivity= or bounds="),
    "no sensitivity": ({"sensitivity": None}, ValueError, "epsilon needs the sensitivity of the gradient"),
    "epsilon": ({"epsilon": -2}, ValueError, "epsilon must be a finite number > 0, got -2"),
    "norm": ({"norm": 3}, ValueError, "norm must be 1, 2 or inf, got 3"),
    "norm a word": ({"norm": "max"}, ValueError, "norm must be 1, 2 or inf, got 'max'"),
    "keyword": ({"scale": 3}, TypeError, "unexpected keyword argument 'scale'"),
    "contradiction": ({"bounds": (0, 5), "sensitivity": 1}, ValueError, "contradicts bounds"),
}


@pytest.mark.parametrize("declare", [choice, parameter])
@pytest.mark.parametrize(("noise", "error", "message"), BAD.values(), ids=BAD)
def test_bad_noise(declare, noise, error, message):
    query = np.zeros((3, 4, 2)) if declare is choice else np.zeros((3, 2))
    with pytest.raises(error, match=message):
        declare(dp.record_sum(query) if declare is choice else query, **noise)


BAD_HESSIANS = {
    "singular": (np.ones((2, 2)), ValueError, "hessian must be finite and not singular"),
    "not square": (np.ones((2, 3)), ValueError, r"hessian must have shape \(d, d\)"),
    "of another size": (np.eye(3), ValueError, "the gradient at zero has 2 entries"),
    "not finite": (np.diag([1, np.nan]), ValueError, "hessian must be finite"),
    "symbolic": (pt.dmatrix(), TypeError, "hessian must be a matrix of known numbers"),
}


@pytest.mark.parametrize(("hessian", "error", "message"), BAD_HESSIANS.values(), ids=BAD_HESSIANS)
def test_bad_hessians(hessian, error, message):
    with pytest.raises(error, match=message):
        parameter(hessian=hessian)


@pytest.mark.parametrize("gradients", [1.0, np.zeros((0, 2))])
def test_bad_gradients(gradients):
    with pytest.raises(ValueError, match="gradients must have shape"):
        choice(gradients)


def test_resized_choices_are_refused():
    """The guarantee was worked out for two parameters about the same people, not for six."""
    with pm.Model() as model:
        times = pm.Data("times", np.ones((2, 1)))
        y = pm.Normal("y", shape=(50, 2))
        dp.KNormGradient("z", times * dp.record_sum(y), hessian=np.eye(2), epsilon=1, sensitivity=1)
    assert dp.guarantee(model).epsilon == 2
    with model:
        pm.set_data({"times": np.ones((6, 1))})
    with pytest.raises(ValueError, match="guarantee of z was worked out for data of other lengths"):
        dp.guarantee(model)


def test_bad_observed():
    with pm.Model():
        y = pm.Normal("y", 0, 1, shape=(5, 3, 2))
        for value in (3, -1, 0.5):
            with pytest.raises(ValueError, match="whole numbers from 0 to 2"):
                KNormGradient("z", dp.record_sum(y), epsilon=1, sensitivity=1, observed=value)
        with pytest.raises(ValueError, match="observed means a release of shape"):
            KNormGradient("z", y[:, 0].sum(0), epsilon=1, sensitivity=1, hessian=HESSIAN, observed=[1.0])
