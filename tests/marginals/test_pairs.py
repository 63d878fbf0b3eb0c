"""Marginal models against sums and integrals over the records, computed without the package."""

import numpy as np
import pymc as pm
import pytensor
import pytest

import pymc_dp as dp
from tests.marginals.models import CASES, POINTS

# one of each way; the others run with --full
QUICK = {
    "normal, Laplace, clamped",
    "normal, Gaussian, clamped",
    "mixture of normals",
    "randomized response",
    "answers",
    "answers, three categories",
    "answers of a device",
    "answers of several devices",
    "categories told by a table",
    "Poisson, discrete Laplace",
    "beta, tosses, wide bounds",
    "two sums",
    "two releases",
    "few values told thrice",
    "two answers",
}
NAMES = [pytest.param(name, marks=() if name in QUICK else pytest.mark.statistical) for name in CASES]


@pytest.fixture(scope="module", params=NAMES)
def pair(request):
    """A case with its model and the marginal model; graphs are evaluated in Python."""
    case = CASES[request.param]
    with pytensor.config.change_flags(mode="FAST_COMPILE"):
        model = case.build()
        yield case, model, dp.marginalize(model, case.names)


def at(model, point):
    """The values of a model's free variables at a point of a and b."""
    values = {"a": point["a"], "b_log__": np.log(point["b"]), "labels": np.array([0, 2, 0])}
    return {v.name: np.asarray(values[v.name], dtype=v.dtype) for v in model.value_vars}


def releases_of(model):
    return [rv for rv in model.observed_RVs if rv.name in ("v", "w", "z")]


def test_density_of_the_releases(pair):
    case, _, marginal = pair
    log_density = marginal.compile_logp(vars=releases_of(marginal))
    found = [float(log_density(at(marginal, point))) for point in POINTS]
    exact = [case.log_density(**point) for point in POINTS]
    np.testing.assert_allclose(found, exact, rtol=1e-10)


def test_gradient(pair):
    """Against differences of the exact density, whose own error is about 1e-7 of it."""
    case, _, marginal = pair
    free = [v for v in marginal.value_vars if v.name in ("a", "b_log__")]
    names = [v.name for v in free]
    found = marginal.compile_fn(
        pytensor.grad(marginal.logp(vars=releases_of(marginal)), free, disconnected_inputs="ignore"),
        inputs=marginal.value_vars,
    )(at(marginal, POINTS[0]))
    found = dict(zip(names, map(float, found), strict=True))
    a, b, h = *POINTS[0].values(), 1e-5
    slope = (case.log_density(a + h, b) - case.log_density(a - h, b)) / (2 * h)
    assert found["a"] == pytest.approx(slope, rel=1e-6, abs=1e-6)
    slope = (case.log_density(a, b * np.exp(h)) - case.log_density(a, b * np.exp(-h))) / (2 * h)
    assert found["b_log__"] == pytest.approx(slope, rel=1e-6, abs=1e-6)


def test_what_stays(pair):
    case, model, marginal = pair
    gone = set(case.names)
    assert {v.name for v in marginal.free_RVs} == {v.name for v in model.free_RVs} - gone
    assert set(marginal.named_vars) == set(model.named_vars) - gone
    assert gone <= set(model.named_vars)  # the model itself is as it was
    assert not any(rv.name in gone for rv in marginal.basic_RVs)
    for rv in releases_of(marginal):
        np.testing.assert_array_equal(
            marginal.rvs_to_values[rv].data, model.rvs_to_values[model[rv.name]].data
        )
        assert marginal.named_vars_to_dims.get(rv.name) == model.named_vars_to_dims.get(rv.name)


def test_promises_stay(pair):
    _, model, marginal = pair
    for rv in releases_of(marginal):
        assert rv.owner.op.guarantee == model[rv.name].owner.op.guarantee
    if all(rv.owner.op.guarantee is not None for rv in releases_of(marginal)):
        assert str(dp.guarantee(marginal)) == str(dp.guarantee(model))


@pytest.mark.statistical
def test_releases_are_drawn_as_before(pair):
    """Prior predictive draws of both models have the same mean and second moment."""
    _, model, marginal = pair
    names = [rv.name for rv in releases_of(marginal)]
    fixed = {"a": POINTS[0]["a"], "b": POINTS[0]["b"]}
    if "labels" in marginal.named_vars:
        fixed["labels"] = np.array([0, 2, 0])
    n = 4000
    drawn = []
    for m, seed in ((model, 1), (marginal, 2)):
        m = pm.do(m, {k: np.asarray(v, dtype=m[k].dtype) for k, v in fixed.items()})
        drawn.append(pm.draw([m[name] for name in names], draws=n, random_seed=seed))
    for one, other in zip(*drawn, strict=True):
        for power in (1, 2):
            x, y = one.astype(float) ** power, other.astype(float) ** power
            error = np.sqrt((x.var(axis=0) + y.var(axis=0)) / n)
            difference = np.abs(x.mean(axis=0) - y.mean(axis=0))
            assert (difference <= 5 * error + 1e-12).all(), (power, difference / error)


@pytest.mark.parametrize("epsilon", [1e-3, 1.0, 40.0, 690.0, 2000.0])
@pytest.mark.parametrize("p", [0.0, 1e-300, 0.3, 1 - 1e-15, 1.0])
def test_answers_of_equal_people_at_any_budget(python_mode, p, epsilon):
    """One probability for all; the truth may be certain, and lies rarer than numbers can say."""
    with pm.Model() as model:
        share = pm.Uniform("share", 0, 1, default_transform=None)
        y = pm.Bernoulli("y", share, shape=4)
        dp.RandomizedResponse("z", y, epsilon=epsilon, observed=[0, 1, 1, 0])
    marginal = dp.marginalize(model, "y")
    found = marginal.compile_logp(vars=[marginal["z"]], sum=False)({"share": np.array(p)})[0]
    with np.errstate(divide="ignore"):
        told = np.logaddexp(np.log([1 - p, p]), np.log([p, 1 - p]) - epsilon) - np.log1p(np.exp(-epsilon))
    np.testing.assert_allclose(found, told[[0, 1, 1, 0]], rtol=1e-12)


@pytest.mark.parametrize("p", [0.0, 1e-300, 0.3, 1 - 1e-15, 1.0])
def test_answers_of_equal_people_to_any_device(python_mode, p):
    """One probability for all; answers may be impossible, or rarer than the rounding of others."""
    device = np.array([[0.6, 0.4, 1e-30, 0.0], [1e-200, 0.7, 0.2, 0.1]])
    with pm.Model() as model:
        share = pm.Uniform("share", 0, 1, default_transform=None)
        y = pm.Bernoulli("y", share, shape=5)
        dp.RandomizedResponse("z", y, p_answer=device, observed=[0, 1, 2, 3, 0])
    marginal = dp.marginalize(model, "y")
    found = marginal.compile_logp(vars=[marginal["z"]], sum=False)({"share": np.array(p)})[0]
    with np.errstate(divide="ignore"):
        told = np.logaddexp(np.log(1 - p) + np.log(device[0]), np.log(p) + np.log(device[1]))
    np.testing.assert_allclose(found, told[[0, 1, 2, 3, 0]], rtol=1e-12)


def test_mixtures_of_answers(python_mode):
    """A share of the people answers by another law."""
    with pm.Model() as model:
        q = pm.Uniform("q", 0, 1, shape=2, default_transform=None)
        parts = [pm.Bernoulli.dist(q[0]), pm.Bernoulli.dist(q[1])]
        y = pm.Mixture("y", [0.3, 0.7], parts, shape=3)
        dp.RandomizedResponse("z", y, p_truth=0.8, n_categories=2, observed=[0, 1, 1])
    marginal = dp.marginalize(model, "y")
    found = marginal.compile_logp(vars=[marginal["z"]], sum=False)({"q": np.array([0.2, 0.9])})[0]
    yes = 0.3 * 0.2 + 0.7 * 0.9
    told = 0.8 * yes + 0.2 * (1 - yes)
    np.testing.assert_allclose(found, np.log([1 - told, told, told]), rtol=1e-12)
