"""Lengths of covariates in a confidential law: public numbers, whatever else may be read off the rows."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.gradient as tg
import pytensor.tensor as pt
import pytest
from scipy import stats

import pymc_dp as dp
from pymc_dp.private.clipped_gradients import RowGradient
from pymc_dp.private.confidential import confidential_terms
from pymc_dp.private.density import RowDensity, domain
from tests.private.test_ratios import Lowered, values

RNG = np.random.default_rng(7)
N = 40
X, Y = RNG.normal(size=(N, 2)), RNG.normal(size=N)

# laws of x with a level and two slopes, and their means and standard deviations in NumPy
LAWS = {
    "mean of a row": (
        lambda x, mu, b: pm.Normal.dist(mu + b[0] * x.mean(axis=1), 1),
        lambda mu, b: (mu + b[0] * X.mean(axis=1), 1),
    ),
    "shape[0]": (
        lambda x, mu, b: pm.Normal.dist(mu + x @ b / x.shape[0], 1),
        lambda mu, b: (mu + X @ b / N, 1),
    ),
    "shape[1]": (
        lambda x, mu, b: pm.Normal.dist(mu + x @ b / x.shape[1], 1),
        lambda mu, b: (mu + X @ b / 2, 1),
    ),
    "size": (
        lambda x, mu, b: pm.Normal.dist(mu + x @ b / x.size, 1),
        lambda mu, b: (mu + X @ b / (2 * N), 1),
    ),
    "a scale": (
        lambda x, mu, b: pm.Normal.dist(mu + x @ b, 1 / pt.sqrt(x.shape[0])),
        lambda mu, b: (mu + X @ b, N**-0.5),
    ),
    "identity": (
        lambda x, mu, b: pm.Normal.dist(mu + x @ pt.eye(x.shape[1]) @ b, 1),
        lambda mu, b: (mu + X @ b, 1),
    ),
    "every other": (
        lambda x, mu, b: pm.Normal.dist(mu + x @ b / x[::2].shape[0], 1),
        lambda mu, b: (mu + X @ b / (N // 2), 1),
    ),
    "full": (
        lambda x, mu, b: pm.Normal.dist(pt.full((x.shape[0],), mu) + b[0], 1),
        lambda mu, b: (np.full(N, mu + b[0]), 1),
    ),
    "shared scale": (
        lambda x, mu, b: pm.Normal.dist(x @ b, pt.exp(pt.zeros((x.shape[0],)) + mu)),
        lambda mu, b: (X @ b, np.exp(mu)),
    ),
    "intercept": (
        lambda x, mu, b: pm.Normal.dist(
            mu + pt.concatenate([pt.ones((x.shape[0], 1)), x[:, 1:]], axis=1) @ b, 1
        ),
        lambda mu, b: (mu + b[0] + b[1] * X[:, 1], 1),
    ),
    "zeros alone": (
        lambda x, mu, b: pm.Normal.dist(mu + b[0] + pt.zeros_like(x[:, 0]), 1),
        lambda mu, b: (np.full(N, mu + b[0]), 1),
    ),
}  # fmt: skip


def declared(law, data=Y):
    mu, b = pm.Normal("mu"), pm.Normal("b", shape=2)
    dp.ConfidentialLikelihood(
        "y", lambda x: law(x, mu, b), data, covariates={"x": X}, clip=1, clip_gradient=1
    )


def of_numpy(name):
    law, moments = LAWS[name]

    def build():
        declared(law)
        return lambda mu, b=(0.0, 0.0): stats.norm.logpdf(Y, *moments(mu, b))

    return build


@pytest.mark.compiles(4)
@pytest.mark.parametrize("name", LAWS)
def test_sums_beside_numpy(name, rng):
    """Such laws were declared, and no step of them could be built, or were taken for data of each row."""
    lowered = Lowered(of_numpy(name))
    for _ in range(3):
        new, old = values(lowered, rng), values(lowered, rng)
        change = lowered.exact(*new) - lowered.exact(*old)
        bound = 10 * np.abs(change).max()
        found = lowered.sum(new, old, bound) * bound * 2.0**-lowered.sums.bits
        atol = N * (bound * 2.0**-lowered.sums.bits / 2 + 1e-11)
        assert np.isclose(found, change.sum(), rtol=0, atol=atol)
        assert not np.isclose(found, change.sum() * 1.001, rtol=0, atol=atol)


@pytest.mark.parametrize("name", ["mean of a row", "zeros alone"])
def test_gradients_beside_numpy(name):
    with pm.Model() as model:
        declared(LAWS[name][0])
    ((term, _),) = confidential_terms(model)
    density = RowDensity(term)
    theta = pt.vector("theta", shape=(3,))
    parts = {v: theta[0] if v.ndim == 0 else theta[1:] for v in term.parameters}
    ratio = density.ratio([parts[v] for v in term.parameters])
    gradient = RowGradient(ratio.features, density.terms, density.entries, density.rows.constant_inputs)
    slopes = [tg.grad(v, theta, disconnected_inputs="ignore") for v in ratio.numbers]
    at = pytensor.function([theta], [pt.stack(ratio.numbers), pt.stack(slopes)], mode="FAST_COMPILE")
    point, bound, bits = np.array([0.3, -0.7, 0.0]), 1e3, 30
    found = gradient.total(*at(point), term.rows.columns(), 0, N, bound, bits) * bound * 2.0**-bits
    residual = Y - LAWS[name][1](point[0], point[1:])[0]
    slope = X.mean(axis=1) if name == "mean of a row" else np.ones(N)
    exact = [residual.sum(), (residual * slope).sum(), 0.0]
    assert np.allclose(found, exact, rtol=0, atol=N * (bound * 2.0**-bits + 1e-12))


def test_a_step_on_batches_sees_the_length_of_all_rows(rng):
    """As if the number of rows were written in the law: sums over the same batch agree to the bit."""
    found = []
    for law in (
        lambda x, mu, b: pm.Normal.dist(mu + x @ b / x.shape[0], 1),
        lambda x, mu, b: pm.Normal.dist(mu + x @ b / N, 1),
        lambda x, mu, b: pm.Normal.dist(mu + x @ b / 7, 1),
    ):
        lowered = Lowered(lambda law=law: declared(law), batch_size=7)
        found.append(lowered)
    new, old = values(found[0], rng), values(found[0], rng)
    numbers = [[np.array(one.numbers(*v), dtype=float) for v in (new, old)] for one in found]
    assert found[0].features == found[1].features == found[2].features
    assert np.array_equal(numbers[0], numbers[1])
    assert not np.array_equal(numbers[0], numbers[2])  # the size of a batch


def test_parameters_stay_in_a_domain_that_lengths_are_in():
    """Conditions of a scale with a length in it were taken for those of a row, and not looked at."""
    with pm.Model() as model:
        declared(lambda x, mu, b: pm.Normal.dist(x @ b, mu / pt.sqrt(x.shape[0])))
    ((term, _),) = confidential_terms(model)
    (condition,) = domain(term)
    mu = next(v for v in term.parameters if v.ndim == 0)
    assert condition.eval({mu: 0.1}) and not condition.eval({mu: -0.1})


HIDDEN = {
    "rows that pass a test": lambda x: x[x[:, 0] > 0].shape[0],
    "an array of that length": lambda x: pt.zeros(x[x[:, 0] > 0].shape[0]).shape[0],
    "an entry": lambda x: pt.arange(pt.cast(x[0, 0], "int64")).shape[0],
    "different values": lambda x: pt.unique(x[:, 0]).shape[0],
}


@pytest.mark.parametrize("name", HIDDEN)
def test_lengths_that_show_rows_are_refused(name):
    with pm.Model(), pytest.raises(ValueError, match="not independent given the parameters"):
        declared(lambda x, mu, b: pm.Normal.dist(mu + x @ b * HIDDEN[name](x), 1))


REFUSED = {
    "repeated": lambda x, mu, b: pm.Normal.dist(pt.repeat(mu, x.shape[0]) + x @ b, 1),
    "ones": lambda x, mu, b: pm.Normal.dist(mu * pt.as_tensor(np.ones(N)) + x @ b, 1),
    "numbers of rows": lambda x, mu, b: pm.Normal.dist(mu * pt.arange(x.shape[0]) + x @ b, 1),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_an_entry_for_each_row_is_refused(name):
    """Equal entries are not looked for: only what the graph broadcasts is one number for all rows."""
    with pm.Model(), pytest.raises(ValueError, match="give a number that all rows share as that number"):
        declared(REFUSED[name])
