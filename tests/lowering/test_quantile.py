"""Quantiles of counts: the inverse of the distribution function to its last digit, found from a guess."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from scipy import stats

from pymc_dp.lowering.rows.quantile import count_quantile, count_steps, guess, normal_quantile
from pymc_dp.step_methods.updates.noncentred import SMALLEST_TAIL

N = 400
LAWS = {
    "Poisson": (pm.Poisson, 1),
    "Binomial": (pm.Binomial, 2),
    "NegativeBinomial": (pm.NegativeBinomial, 2),
}
# Parameters of each law, as PyMC's operation takes them.
PARAMETERS = {
    "Poisson": [(0.0,), (1e-8,), (0.3,), (7.0,), (1e3,), (1e4,), (1e6,), (1e9,), (1e12,)],
    "Binomial": [
        (0, 0.3), (1, 0.5), (10, 0.0), (10, 1.0), (20, 1e-9), (20, 1 - 1e-9), (1000, 0.3), (10_000, 0.999),
        (1_000_000, 1e-6), (1_000_000, 0.3), (10**9, 1e-8), (10**9, 0.5), (10**9, 1 - 1e-8),
    ],
    "NegativeBinomial": [
        (0.01, 0.5), (0.5, 1e-4), (1.0, 1e-9), (3.0, 0.1), (3.0, 1 - 1e-9), (50.0, 0.005), (1e6, 0.5),
    ],
}  # fmt: skip
EVERY = pytest.mark.parametrize(
    ("name", "parameters"), [(name, p) for name, listed in PARAMETERS.items() for p in listed]
)
SCIPY = {"Poisson": stats.poisson, "Binomial": stats.binom, "NegativeBinomial": stats.nbinom}


def law_of(name, parameters):
    build, _ = LAWS[name]
    if name == "NegativeBinomial":
        return build.dist(n=parameters[0], p=parameters[1], shape=N)
    return build.dist(*parameters, shape=N)


@pytest.fixture(scope="module")
def functions():
    """Quantile and steps of each law, with the parameters as inputs: each is compiled once."""
    made = {}
    for name, (_, n_parameters) in LAWS.items():
        given = [pt.scalar(f"p{k}", dtype="float64") for k in range(n_parameters)]
        u, x = pt.vector("u", shape=(N,)), pt.vector("x", dtype="int64", shape=(N,))
        law = law_of(name, given)
        mode = "NUMBA"
        made[name] = (
            pytensor.function([u, *given], count_quantile(law, u), mode=mode, on_unused_input="ignore"),
            pytensor.function([x, *given], list(count_steps(law, x)), mode=mode, on_unused_input="ignore"),
        )
    return made


def probabilities(rng):
    """Numbers in (0, 1) of which many are near its ends."""
    low = 10.0 ** rng.uniform(-300, 0, size=N // 4)
    high = 1 - 10.0 ** rng.uniform(-13, 0, size=N // 4)
    return np.concatenate([rng.uniform(size=N - 2 * (N // 4)), low, high])


@EVERY
def test_it_is_the_step_that_holds_the_probability(functions, rng, name, parameters):
    quantile, steps = functions[name]
    u = probabilities(rng)
    below, at = steps(quantile(u, *parameters), *parameters)
    assert (below < u).all()
    assert (u <= at).all()


@EVERY
def test_counts_come_back_from_their_noise(functions, rng, name, parameters):
    quantile, steps = functions[name]
    x = SCIPY[name].rvs(*parameters, size=N, random_state=rng)
    below, at = steps(x, *parameters)
    for share in (rng.uniform(size=N), 1e-6 + 1e-6 * rng.uniform(size=N), 1 - 1e-6 * rng.uniform(size=N)):
        u = below + (at - below) * share
        told = (u > below) & (u < 1 - SMALLEST_TAIL)  # the guard of the ancillary density refuses the others
        assert told.mean() > 0.9
        np.testing.assert_array_equal(quantile(u, *parameters)[told], x[told])


@EVERY
def test_it_agrees_with_another_distribution_function(functions, rng, name, parameters):
    u, law = probabilities(rng), SCIPY[name](*parameters)
    k = functions[name][0](u, *parameters)
    # PyMC's function of binomial counts takes 1 - p, which holds a small p to 1e-16 / p of itself
    lost = 1e-16 / max(min(parameters[1], 1 - parameters[1]), 1e-9) if name == "Binomial" else 0.0
    tolerance = 1e-9 + 100 * lost
    assert (u <= law.cdf(k) * (1 + tolerance)).all()
    assert (law.cdf(k - 1) < u * (1 + tolerance)).all()


# Laws for which 400 entries have a table, and their parameters as they are next to each other.
TABLED = {
    "Poisson": [(0.3,), (7.0,), (1e3,), (3e3,), (1e5,)],
    "Binomial": [(20, 1e-9), (20, 1 - 1e-9), (1000, 0.3), (10_000, 0.3), (10_000, 0.999), (10**7, 0.5)],
    "NegativeBinomial": [(0.01, 0.5), (3.0, 0.1), (3.0, 1 - 1e-9), (50.0, 0.0164), (1e6, 0.5)],
}


@pytest.mark.parametrize("name", TABLED)
def test_a_table_is_the_distribution_function(rng, name):
    """Entries with the same parameters in a row share one; the same entries apart are searched for."""
    runs = np.repeat(np.array(TABLED[name]), N // len(TABLED[name]), axis=0)
    n, mixed = len(runs), rng.permutation(len(runs))
    u, x = pt.vector("u", shape=(n,)), pt.vector("x", dtype="int64", shape=(n,))
    given = [pt.vector(f"p{k}", shape=(n,)) for k in range(runs.shape[1])]
    build = pm.NegativeBinomial if name == "NegativeBinomial" else LAWS[name][0]
    law = build.dist(n=given[0], p=given[1]) if name == "NegativeBinomial" else build.dist(*given)
    function = pytensor.function(
        [u, x, *given], [count_quantile(law, u), *count_steps(law, x)], mode="NUMBA", on_unused_input="ignore"
    )
    at = np.concatenate([rng.uniform(size=n // 2), 10.0 ** rng.uniform(-14, 0, size=n - n // 2)])[mixed]
    counts = SCIPY[name].ppf(at, *runs.T).astype(np.int64)
    shared = function(at, counts, *runs.T)
    back = np.argsort(mixed)
    apart = [f[back] for f in function(at[mixed], counts[mixed], *runs[mixed].T)]
    np.testing.assert_allclose(shared[1], apart[1], rtol=2e-11, atol=1e-300)
    np.testing.assert_allclose(shared[2], apart[2], rtol=2e-11)
    np.testing.assert_array_equal(shared[0], apart[0])
    assert (shared[1] != apart[1]).mean() > 0.1  # sums of probabilities are told from the function itself


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("Poisson", (1e4,)), ("Poisson", (1e9,)), ("Binomial", (10_000, 0.3)), ("Binomial", (10_000, 0.999)),
        ("Binomial", (10**9, 0.5)), ("NegativeBinomial", (50.0, 0.005)), ("NegativeBinomial", (1e6, 0.5)),
    ],
)  # fmt: skip
def test_a_search_begins_where_it_ends(functions, rng, name, parameters):
    """Laws of many counts, of moderate skewness, would otherwise take a bisection of all of them."""
    mean, variance, skewness = (float(v) for v in SCIPY[name].stats(*parameters, moments="mvs"))
    u = rng.uniform(1e-4, 1 - 1e-4, size=N)
    k = functions[name][0](u, *parameters)
    begins = [guess(p, mean, variance, skewness) for p in u]
    assert (abs(begins - k) <= 2 + 0.02 * np.sqrt(variance)).mean() > 0.9


def test_no_law_no_search(functions):
    u = np.full(N, 0.5)
    for name, parameters in (
        ("Poisson", (-1.0,)), ("Poisson", (np.nan,)), ("Binomial", (10, 1.5)), ("Binomial", (10, -0.1)),
        ("NegativeBinomial", (3.0, 0.0)), ("NegativeBinomial", (3.0, 1.5)), ("NegativeBinomial", (-1.0, 0.5)),
    ):  # fmt: skip
        assert (functions[name][0](u, *parameters) == 0).all()


def test_normal_quantiles():
    p = np.concatenate([10.0 ** np.linspace(-300, -1, 200), np.linspace(0.1, 0.9, 50)])
    p = np.concatenate([p, 1 - 10.0 ** -np.arange(1, 15)])
    np.testing.assert_allclose([normal_quantile(each) for each in p], stats.norm.ppf(p), rtol=1e-6, atol=1e-6)
    assert normal_quantile(0.0) == -np.inf
    assert normal_quantile(1.0) == np.inf
