"""Densities of mixtures: closed forms given labels, kernels of every kind, bands, and bad input."""

import json
import warnings

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.tensor.blockwise import Blockwise
from scipy import stats

import pymc_dp as dp
from pymc_dp.stats._predictive import PredictiveMixture, mixture_of
from pymc_dp.stats.bands import pointwise_band, simultaneous_band
from tests.stats.mixtures import normal_mixture, repeated, tree

GRID = np.linspace(-6, 6, 13)
LABELS = [2, 0, 2, 2, 0]
MU = [-1.0, 99.0, 2.0, 99.0]  # slots 1 and 3 are not occupied

# partition, concentration and discount, of three kinds; in the last one every component is occupied
PARTITIONS = {
    "dirichlet": ({"concentration": 1.5}, 1.5, 0.0),
    "pitman-yor": ({"concentration": 0.7, "discount": 0.4}, 0.7, 0.4),
    "negative": ({"concentration": -0.2, "discount": 0.5}, -0.2, 0.5),
    "finite": ({"concentration": 0.6, "n_components": 4}, 2.4, -0.6),
    "full": ({"concentration": 0.6, "n_components": 2, "max_components": 4}, 1.2, -0.6),
}


def moments(alpha, d, values, base_mean, base_square):
    """Mean and variance of the mixture of given values, by Dirichlet moments; sizes are those of LABELS."""
    a = np.array([2 - d, 3 - d, alpha + 2 * d])
    total = a.sum()
    second = (np.outer(a, a) + np.diag(a)) / (total * (total + 1))
    # the part that no record is in: mean, and square of an integral over a random measure
    spread = (1 - d) / (1 + a[2]) * (base_square - base_mean**2)
    f = np.array([*values, base_mean])
    mean = a @ f / total
    square = np.einsum("i...,ij,j...->...", f, second, f) + second[2, 2] * spread
    return mean, square - mean**2


@pytest.mark.parametrize("kind", PARTITIONS)
@pytest.mark.compiles(1)
def test_mean_and_variance_given_labels_are_the_closed_forms(kind):
    partition, alpha, d = PARTITIONS[kind]
    partition = {"max_components": 4, **partition}
    slots = partition.pop("max_components")
    model = normal_mixture(5, slots, **partition)
    size = 4000
    found = dp.mixture_density(
        repeated(size, labels=LABELS, mu=MU), model, GRID, random_seed=3, tolerance=5e-3
    )
    values = [stats.norm.pdf(GRID, m) for m in (-1, 2)]
    base_mean = stats.norm.pdf(GRID, 0, np.sqrt(10))
    # the square of a normal density is one of half the variance, divided by 2 sqrt(pi)
    base_square = stats.norm.pdf(GRID, 0, np.sqrt(9.5)) / (2 * np.sqrt(np.pi))
    mean, variance = moments(alpha, d, values, base_mean, base_square)

    draws = found["density"].values.reshape(size, -1)
    error = draws.std(axis=0) / np.sqrt(size)
    assert np.all(np.abs(draws.mean(axis=0) - mean) < 4.5 * error)
    centred = (draws - draws.mean(axis=0)) ** 2
    error = centred.std(axis=0) / np.sqrt(size)
    assert np.all(np.abs(centred.mean(axis=0) - variance) < 4.5 * error)
    # the Rao-Blackwell mean has the error of the base's part only, of four atoms or more
    weight = (alpha + 2 * d) / (5 + alpha)
    error = weight * np.sqrt((base_square - base_mean**2) / (4 * size))
    assert np.all(np.abs(found["mean"].values - mean) <= 4.5 * error + 1e-12)


def test_pointwise_band_holds_the_weight_of_a_cluster():
    """Where one cluster alone has density, the draws are its Beta weight times a constant."""
    model = normal_mixture(5, 4, sd=0.1, tau=0.01, concentration=1.0)
    found = dp.mixture_density(
        repeated(4000, labels=[1, 1, 1, 2, 2], mu=[0.0, 5.0, -5.0, 0.0]),
        model,
        [5.0],
        random_seed=1,
        prob=0.8,
    )
    peak = stats.norm.pdf(0, 0, 0.1)
    exact = stats.beta(3, 3)
    for name, level in (("lower", 0.1), ("upper", 0.9)):
        value = exact.ppf(level)
        error = np.sqrt(level * (1 - level) / 4000) / exact.pdf(value)
        assert abs(found[name].item() / peak - value) < 4 * error


def test_draws_of_parameters_are_used_draw_by_draw():
    """Concentration, base and kernel of each draw, not of any other."""
    with pm.Model() as model:
        alpha = pm.Gamma("alpha", 2, 2)
        tau = pm.HalfNormal("tau", 3)
        sd = pm.HalfNormal("sd", 1)
        labels = dp.ChineseRestaurantProcess("labels", concentration=alpha, shape=2, max_components=3)
        mu = pm.Normal("mu", 0, tau, shape=3)
        pm.Normal("y", mu[labels], sd)
    half = 2000
    rows = {"alpha": [0.5, 8.0], "tau": [0.3, 4.0], "sd": [0.5, 2.0]}
    states = {k: np.broadcast_to(np.array(v)[:, None], (2, half)) for k, v in rows.items()}
    states["labels"] = np.broadcast_to([1, 1], (2, half, 2))
    states["mu"] = np.broadcast_to([9.0, 1.0, 9.0], (2, half, 3))
    found = dp.mixture_density(tree(**states), model, GRID, random_seed=5)
    for chain in (0, 1):
        a, t, s = (rows[k][chain] for k in ("alpha", "tau", "sd"))
        own, base = stats.norm.pdf(GRID, 1, s), stats.norm.pdf(GRID, 0, np.hypot(t, s))
        mean = (2 * own + a * base) / (2 + a)
        draws = found["density"].values[chain]
        assert np.all(np.abs(draws.mean(axis=0) - mean) < 4.5 * draws.std(axis=0) / np.sqrt(half))


def test_atoms_that_belong_together_are_drawn_together():
    with pm.Model() as model:
        labels = dp.ChineseRestaurantProcess("labels", concentration=1, shape=3, max_components=50)
        sigma2 = pm.InverseGamma("sigma2", 5, 4, shape=50)
        mu = pm.Normal("mu", 0, pm.math.sqrt(10 * sigma2), shape=50)
        pm.Normal("y", mu[labels], pm.math.sqrt(sigma2[labels]))
    mixture = PredictiveMixture(model, mixture_of(model, None), GRID)
    mixture.seed(1)
    drawn = dict(zip(mixture.atoms, mixture.base([], 20000), strict=True))
    ratio = drawn["mu"] ** 2 / drawn["sigma2"] / 10  # chi-square with one degree of freedom
    assert abs(ratio.mean() - 1) < 4 * np.sqrt(2 / 20000)
    assert abs(drawn["sigma2"].mean() - 1) < 4 * np.sqrt(1 / 3 / 20000)


def one_draw(model, atoms, grid, covariates=None, **parameters):
    """Density of one component under the model's kernel."""
    mixture = PredictiveMixture(model, mixture_of(model, None), grid, covariates)
    drawn = [np.asarray(atoms[name], dtype=float)[None] for name in mixture.atoms]
    return mixture.kernel(drawn, [np.asarray(parameters[name], dtype=float) for name in mixture.parameters])[
        0
    ]


def kernel_model(kernel, n=5):
    with pm.Model() as model:
        labels = dp.ChineseRestaurantProcess("labels", concentration=1, shape=n, max_components=4)
        a = pm.Gamma("a", 2, 1, shape=4)
        b = pm.Gamma("b", 2, 1, shape=4)
        kernel(a[labels], b[labels])
    return model


POSITIVE = np.linspace(0.2, 4, 7)
KERNELS = {
    "gamma": (lambda a, b: pm.Gamma("y", mu=a, sigma=b), POSITIVE, stats.gamma(4, scale=0.5).pdf),
    "lognormal": (lambda a, b: pm.LogNormal("y", a, b), POSITIVE, stats.lognorm(1, scale=np.exp(2)).pdf),
    "beta": (lambda a, b: pm.Beta("y", a, b), np.linspace(0.1, 0.9, 5), stats.beta(2, 1).pdf),
    "poisson": (lambda a, b: pm.Poisson("y", a * b), np.arange(6), stats.poisson(2).pmf),
    "truncated": (
        lambda a, b: pm.Truncated("y", pm.Normal.dist(a, b), lower=0, upper=5),
        POSITIVE,
        stats.truncnorm(-2, 3, 2, 1).pdf,
    ),
    "mixture": (
        lambda a, b: pm.Mixture(
            "y", [0.5, 0.5], [pm.Normal.dist(a, b), pm.Normal.dist(-a, b)]
        ),
        GRID,
        lambda x: (stats.norm.pdf(x, 2) + stats.norm.pdf(x, -2)) / 2,
    ),
    "zero-inflated": (
        lambda a, b: pm.ZeroInflatedPoisson("y", psi=0.4, mu=a * b),
        np.arange(6),
        lambda x: 0.4 * stats.poisson(2).pmf(x) + 0.6 * (x == 0),
    ),
    "own-size": (lambda a, b: pm.Normal("y", a, b, shape=5), GRID, stats.norm(2, 1).pdf),
    "columns": (
        lambda a, b: pm.Normal("y", a[:, None], b[:, None], shape=(5, 2)),
        np.stack([GRID, GRID[::-1]], axis=1),
        lambda x: stats.norm.pdf(x, 2).prod(axis=1),
    ),
    "multivariate": (
        lambda a, b: pm.MvNormal("y", a[:, None] * np.ones(2), np.array([[2, 1], [1, 2]])),
        np.stack([GRID, GRID**2 / 6], axis=1),
        stats.multivariate_normal([2, 2], [[2, 1], [1, 2]]).pdf,
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", KERNELS)
def test_kernels_of_every_kind(kind):
    kernel, grid, exact = KERNELS[kind]
    found = one_draw(kernel_model(kernel), {"a": 2.0, "b": 1.0}, grid)
    np.testing.assert_allclose(found, exact(grid), rtol=1e-9)


D = 2
BELOW, OWN = np.tril_indices(D, -1), np.arange(D)


def factors(a, b, off):
    """Triangular factors of as many slots as the model has."""
    empty = pt.zeros((4, D, D))
    return empty[:, *BELOW].set(off)[:, OWN, OWN].set(pt.stack([a, b], axis=-1))


VECTORS = {
    "factors": lambda a, b, off, rows: {"chol": factors(a, b, off)[rows]},
    "covariances": lambda a, b, off, rows: {"cov": (factors(a, b, off) @ factors(a, b, off).mT)[rows]},
    "products": lambda a, b, off, rows: {
        "cov": pt.stack(
            [
                pt.stack([a * a, off[:, 0] * a], axis=-1),
                pt.stack([off[:, 0] * a, b * b + off[:, 0] ** 2], axis=-1),
            ],
            axis=-2,
        )[rows]
    },
    "precisions": lambda a, b, off, rows: {
        "tau": pt.linalg.inv((factors(a, b, off) @ factors(a, b, off).mT)[rows])
    },
    "one for all": lambda a, b, off, rows: {"chol": np.array([[2.0, 0.0], [-0.3, 0.5]])},
}  # fmt: skip


def vector_model(kind, n=5):
    with pm.Model() as model:
        labels = dp.ChineseRestaurantProcess("labels", concentration=1, shape=n, max_components=4)
        mu = pm.Normal("mu", 0, 3, shape=(4, D))
        a, b = pm.Gamma("a", 2, 1, shape=4), pm.Gamma("b", 2, 1, shape=4)
        off = pm.Normal("off", 0, 1, shape=(4, 1))
        pm.MvNormal("y", mu[labels], **VECTORS[kind](a, b, off, labels))
    return model


@pytest.mark.parametrize("kind", VECTORS)
@pytest.mark.parametrize("components", [1, 4, 11])
def test_vectors_of_any_number_of_components(rng, kind, components):
    """All points and components at once, to rounding what SciPy has for each."""
    model = vector_model(kind)
    points = rng.normal(size=(7, D)) * 2
    mu, off = rng.normal(size=(components, D)), rng.normal(size=(components, 1))
    a, b = rng.gamma(4, 0.25, (2, components))
    mixture = PredictiveMixture(model, mixture_of(model, None), points)
    atoms = {"mu": mu, "a": a, "b": b, "off": off}
    found = mixture.kernel([atoms[name] for name in mixture.atoms], [])
    for h in range(components):
        factor = np.array([[a[h], 0], [off[h, 0], b[h]]])
        if kind == "one for all":
            factor = np.array([[2.0, 0.0], [-0.3, 0.5]])
        exact = stats.multivariate_normal(mu[h], factor @ factor.T).pdf(points)
        np.testing.assert_allclose(found[h], exact, rtol=1e-10)
    # loops over small matrices in Python took a hundred times as long
    (function,) = mixture._kernel._ways[0].args
    nodes = [n.op.core_op for n in function.maker.fgraph.apply_nodes if isinstance(n.op, Blockwise)]
    assert not [op for op in nodes if type(op).__name__ in ("Cholesky", "SolveTriangular")]


@pytest.mark.parametrize("kind", ["factors", "products"])
def test_vectors_without_a_law_are_an_error(kind):
    model = vector_model(kind)
    a, b = np.full(4, 0.0 if kind == "products" else -1.0), np.ones(4)
    state = {"labels": [0, 0, 1, 1, 1], "mu": np.zeros((4, D)), "a": a, "b": b, "off": np.zeros((4, 1))}
    with np.errstate(all="ignore"), pytest.raises(ValueError, match=r"not defined for some draw .*posdef"):
        dp.mixture_density(repeated(4, **state), model, np.zeros((3, D)), random_seed=1)


def test_more_components_than_slots_where_rows_come_in_parts():
    mixture = mixture_of(model := kernel_model(KERNELS["mixture"][0]), None)
    a, b = np.linspace(0, 5, 11), np.ones(11)
    found = PredictiveMixture(model, mixture, GRID).kernel([a, b], [])
    exact = (stats.norm.pdf(GRID, a[:, None]) + stats.norm.pdf(GRID, -a[:, None])) / 2
    np.testing.assert_allclose(found, exact, rtol=1e-9)


def test_several_numbers_make_a_density_of_several_numbers(rng):
    model = kernel_model(KERNELS["multivariate"][0])
    state = {"labels": [0, 0, 1, 1, 1], "a": [2.0, 1.0, 9.0, 9.0], "b": np.ones(4)}
    grid = KERNELS["multivariate"][1]
    found = dp.mixture_density(repeated(20, **state), model, grid, random_seed=1)
    assert found["density"].shape == (2, 10, 13)
    np.testing.assert_array_equal(found["grid"], grid)


def regression(x, declared=True, n=4):
    with pm.Model() as model:
        x = pm.Data("x", x) if declared else np.asarray(x)
        labels = dp.ChineseRestaurantProcess("labels", concentration=1, shape=n, max_components=n)
        slope = pm.Normal("slope", 0, 2, shape=n)
        pm.Normal("y", slope[labels] * x + 1, 1)
    return model


@pytest.mark.parametrize("n", [4, 13, 14])  # also as many records as points
def test_covariates_of_one_record(n):
    found = one_draw(regression(np.arange(n) / 3, n=n), {"slope": 2.0}, GRID, covariates={"x": 1.5})
    np.testing.assert_allclose(found, stats.norm.pdf(GRID, 4, 1))


def test_covariates_in_a_row_with_names_of_dimensions():
    with pm.Model(coords={"person": range(7), "column": ["a", "b"]}) as model:
        x = pm.Data("x", np.arange(14.0).reshape(7, 2), dims=("person", "column"))
        labels = dp.ChineseRestaurantProcess("labels", concentration=1, dims="person", max_components=4)
        slopes = pm.Normal("slopes", 0, 1, shape=(4, 2))
        pm.Normal("y", (slopes[labels] * x).sum(axis=-1), 1, dims="person")
    found = one_draw(model, {"slopes": [2.0, -1.0]}, GRID, covariates={"x": [0.5, 3.0]})
    np.testing.assert_allclose(found, stats.norm.pdf(GRID, -2, 1))


def test_variables_of_each_record_are_covariates_too():
    with pm.Model() as model:
        labels = dp.ChineseRestaurantProcess("labels", concentration=1, shape=7, max_components=4)
        mu = pm.Normal("mu", 0, 1, shape=4)
        own = pm.Normal("own", 0, 1, shape=7)
        pm.Normal("y", mu[labels] + own, 1)
    found = one_draw(model, {"mu": 2.0}, GRID, covariates={"own": -1.0})
    np.testing.assert_allclose(found, stats.norm.pdf(GRID, 1, 1))
    with pytest.raises(ValueError, match="depends on own, with a value for each record"):
        one_draw(model, {"mu": 2.0}, GRID, own=np.arange(7))


def test_one_record_is_no_reason_to_take_its_covariate():
    with pytest.raises(ValueError, match="depends on x, with a value for each record"):
        one_draw(regression([0.5], n=1), {"slope": 2.0}, GRID)


def test_categories_with_tables_of_probabilities():
    with pm.Model() as model:
        labels = dp.ChineseRestaurantProcess("labels", concentration=1, shape=7, max_components=4)
        p = pm.Dirichlet("p", np.ones(3), shape=(4, 3))
        pm.Categorical("y", p[labels])
    shares = np.array([0.2, 0.3, 0.5])
    np.testing.assert_allclose(one_draw(model, {"p": shares}, [0, 1, 2]), shares)
    idata = repeated(2000, labels=[0] * 7, p=np.tile(shares, (4, 1)))
    found = dp.mixture_density(idata, model, [0, 1, 2], random_seed=1)
    # given labels, 7 of 8 on this table and 1 on others, of which there are four or more in each draw
    error = np.sqrt(2 / 36 / (4 * 2000)) / 8
    assert np.all(np.abs(found["mean"] - (7 * shares + 1 / 3) / 8) < 4.5 * error)


@pytest.mark.parametrize("n", [4, 13, 14])
def test_covariates_that_are_not_given_are_never_guessed(n):
    with pytest.raises(ValueError, match=r"depends on x, with a value for each record: .*covariates={'x'"):
        one_draw(regression(np.arange(n) / 3, n=n), {"slope": 2.0}, GRID)
    shifted = kernel_model(
        lambda a, b: pm.ZeroInflatedPoisson("y", psi=0.4, mu=a * b * np.arange(1, n + 1)), n=n
    )
    with pytest.raises(ValueError, match=r"numbers that each record has for itself"):
        one_draw(shifted, {"a": 2.0, "b": 1.0}, np.arange(6))
    with pytest.raises(ValueError, match=r"numbers that each record has for itself\. Declare .* pm\.Data"):
        one_draw(regression(np.arange(n) / 3, declared=False, n=n), {"slope": 2.0}, GRID)


@pytest.mark.parametrize(
    ("covariates", "error", "words"),
    [
        ({"z": 1.0}, ValueError, "must name data or variables in the law of y, which 'z' is not"),
        ({"x": [1.0, 2.0]}, ValueError, r"covariates\['x'\] must be the value for one record"),
        ([1.0], TypeError, "covariates must map names to values"),
    ],
)
def test_bad_covariates(covariates, error, words):
    with pytest.raises(error, match=words):
        one_draw(regression(np.arange(4)), {"slope": 2.0}, GRID, covariates=covariates)


# -- bands -----------------------------------------------------------------------------------------


def curves(rng, size):
    """Positive functions whose law has long tails at some points."""
    x = np.linspace(0, 1, 40)
    return np.exp(rng.normal(size=(size, 1)) * 6 * x**3 + np.sin(7 * x + rng.normal(size=(size, 1))))


@pytest.mark.parametrize("size", [7, 100, 901])
@pytest.mark.parametrize("prob", [0.5, 0.9, 0.95])
def test_a_simultaneous_band_holds_the_share_exactly(rng, size, prob):
    draws = curves(rng, size)
    lower, upper = simultaneous_band(draws, prob)
    inside = ((draws >= lower) & (draws <= upper)).all(axis=1)
    assert inside.sum() == int(np.ceil(prob * size - 1e-9))


def test_a_simultaneous_band_holds_new_draws_and_a_pointwise_one_does_not(rng):
    draws, new = curves(rng, 4000), curves(rng, 4000)
    shares = []
    for band in (simultaneous_band, pointwise_band):
        lower, upper = band(draws, 0.9)
        shares.append(((new >= lower) & (new <= upper)).all(axis=1).mean())
    assert abs(shares[0] - 0.9) < 4 * np.sqrt(2 * 0.09 / 4000)
    assert shares[1] < 0.85


def test_a_simultaneous_band_does_not_depend_on_scale(rng):
    draws = curves(rng, 300)
    lower, upper = simultaneous_band(draws, 0.8)
    scaled = simultaneous_band(np.log(draws) * np.arange(1, 41), 0.8)
    np.testing.assert_allclose(scaled[0], np.log(lower) * np.arange(1, 41))
    np.testing.assert_allclose(scaled[1], np.log(upper) * np.arange(1, 41))


def test_draws_that_are_all_alike_have_no_width():
    lower, upper = simultaneous_band(np.ones((10, 3)), 0.9)
    np.testing.assert_array_equal(lower, upper)


# -- the whole --------------------------------------------------------------------------------------


def test_the_result_says_what_it_is():
    idata = repeated(40, labels=LABELS, mu=MU)
    model = normal_mixture(5)
    found = dp.mixture_density(idata, model, GRID, n_draws=10, prob=0.5, random_seed=1)
    assert dict(found.sizes) == {"chain": 2, "draw": 5, "point": 13}
    np.testing.assert_array_equal(found["point"], GRID)
    assert found.attrs == {"prob": 0.5, "records": "y"}
    for prefix in ("", "simultaneous_"):
        assert bool((found[prefix + "lower"] <= found[prefix + "upper"]).all())
    again = dp.mixture_density(idata, model, GRID, n_draws=10, prob=0.5, random_seed=1)
    assert found.identical(again)
    other = dp.mixture_density(idata, model, GRID, n_draws=10, prob=0.5, random_seed=2)
    assert not np.allclose(found["density"], other["density"])


def test_draws_keep_their_numbers():
    idata = repeated(40, labels=LABELS, mu=MU)
    idata["posterior"] = idata["posterior"].dataset.assign_coords(draw=np.arange(20) + 100, chain=[3, 7])
    found = dp.mixture_density(idata, normal_mixture(5), GRID, n_draws=8)
    assert list(found["draw"].values) == [100, 105, 110, 115]
    assert list(found["chain"].values) == [3, 7]


def test_a_mixture_of_observed_records_has_a_density_too():
    with pm.Model() as model:
        labels = dp.ChineseRestaurantProcess("labels", concentration=1, shape=3, max_components=3)
        mu = pm.Normal("mu", 0, 3, shape=3)
        pm.Normal("y", mu[labels], 1, observed=[1.0, 2.0, 3.0])
    found = dp.mixture_density(repeated(20, labels=[0, 0, 0], mu=[2.0, 0, 0]), model, GRID)
    assert float(found["mean"].integrate("point")) == pytest.approx(1, abs=0.1)


def two_mixtures():
    with pm.Model() as model:
        for name in ("one", "two"):
            labels = dp.ChineseRestaurantProcess(name, concentration=1, shape=3, max_components=3)
            mu = pm.Normal(f"mu_{name}", 0, 3, shape=3)
            pm.Normal(f"y_{name}", mu[labels], 1)
    return model


def test_one_of_several_mixtures():
    state = {"two": [0, 0, 0], "mu_two": [2.0, 0, 0]}
    found = dp.mixture_density(repeated(20, **state), two_mixtures(), GRID, labels="two")
    assert found.attrs["records"] == "y_two"
    with pytest.raises(ValueError, match=r"labels= must say which mixture is meant, .*: one, two"):
        dp.mixture_density(repeated(20, **state), two_mixtures(), GRID)
    with pytest.raises(ValueError, match=r"must name the labels of a mixture .* one, two, got 'mu_two'"):
        dp.mixture_density(repeated(20, **state), two_mixtures(), GRID, labels="mu_two")


def test_what_the_draws_are_worth(rng):
    """Effective draws and R-hat of the density at every point, as ArviZ has them; nan for one chain."""
    model, grid = normal_mixture(3), np.linspace(-4, 4, 5)
    mu = rng.normal(size=(4, 100, 4)).cumsum(axis=1) / 4
    idata = tree(labels=np.zeros((4, 100, 3), int), mu=mu)
    found = dp.mixture_density(idata, model, grid, random_seed=1)
    for name, expected in (("ess", az.ess), ("r_hat", az.rhat)):
        how = {"method": "mean"} if name == "ess" else {}
        assert found[name].dims == ("point",)
        np.testing.assert_allclose(found[name], expected(found[["density"]], **how)["density"])
    np.testing.assert_allclose(found["mcse"], az.mcse(found["density"], method="mean"), rtol=0.01)
    assert found["ess"].max() < 100 and found["r_hat"].min() > 1.02
    alone = dp.mixture_density(idata.isel(chain=[0]), model, grid, random_seed=1)
    assert np.isnan(alone["r_hat"]).all() and np.all(alone["ess"] >= 1)


def test_a_discount_near_one_is_warned_about():
    model = normal_mixture(5, concentration=1.0, discount=0.9)
    with pytest.warns(UserWarning, match="2000 were not enough"):
        dp.mixture_density(repeated(4, labels=LABELS, mu=MU), model, GRID, tolerance=1e-6)


GOOD = {"labels": LABELS, "mu": MU}


@pytest.mark.parametrize(
    ("state", "grid", "more", "error", "words"),
    [
        ({"mu": MU}, GRID, {}, ValueError, "idata.posterior has no labels: sample again, with var_names"),
        ({"labels": LABELS}, GRID, {}, ValueError, "idata.posterior has no mu: sample again"),
        ({**GOOD, "labels": [0, 1]}, GRID, {}, ValueError, "the model has 5 labels"),
        ({**GOOD, "labels": [0, 1, 2, 3, 4]}, GRID, {}, ValueError, "no slots of the model, 0 to 3"),
        ({**GOOD, "mu": [0.0, 1.0]}, GRID, {}, ValueError, r"mu of shape \(2,\), the model of shape \(4,\)"),
        (GOOD, [0.0, np.nan], {}, ValueError, "grid must be finite"),
        (GOOD, [[0.0, 1.0]], {}, ValueError, r"grid must have shape \(G,\), points of the values of y"),
        (GOOD, [], {}, ValueError, "at least one point"),
        (GOOD, "wide", {}, TypeError, "grid must be an array of points, got str"),
        (GOOD, GRID, {"prob": 1.0}, ValueError, "prob must be between 0 and 1, got 1.0"),
        (GOOD, GRID, {"prob": "0.9"}, TypeError, "prob must be a number, got str"),
        (GOOD, GRID, {"tolerance": 0}, ValueError, "tolerance must be between 0 and 1, got 0"),
        (GOOD, GRID, {"n_draws": 0}, ValueError, "n_draws must be a positive integer"),
        (GOOD, GRID, {"labels": 3}, TypeError, "labels must be the name of a variable, got int"),
    ],
)
def test_bad_input(state, grid, more, error, words):
    with pytest.raises(error, match=words):
        dp.mixture_density(repeated(6, **state), normal_mixture(5), grid, **more)


def test_what_is_no_mixture():
    idata = repeated(6, **GOOD)
    with pm.Model() as plain:
        pm.Normal("y", 0, 1)
    with pytest.raises(ValueError, match=r"model has no mixture: declare labels with dp\.Chinese"):
        dp.mixture_density(idata, plain, GRID)
    with pytest.raises(TypeError, match=r"model must be a pymc\.Model, got NoneType"):
        dp.mixture_density(idata, None, GRID)
    with pytest.raises(TypeError, match=r"idata must be the xarray\.DataTree"):
        dp.mixture_density({"labels": 3}, normal_mixture(5), GRID)
    counts = kernel_model(KERNELS["poisson"][0])
    with pytest.raises(ValueError, match="grid must be whole numbers, as y is discrete"):
        dp.mixture_density(idata, counts, [0.5])
    with pm.Model() as mixed:
        labels = dp.ChineseRestaurantProcess("labels", concentration=1, shape=5, max_components=4)
        mu = pm.Normal("mu", 0, 3, shape=4)
        pm.Normal("y", mu[labels] - mu[labels].mean(), 1)
    with pytest.raises(ValueError, match="Record i of y must depend on label i of labels only"):
        dp.mixture_density(idata, mixed, GRID)


@pytest.mark.statistical
@pytest.mark.reference
def test_posterior_density_of_the_reference(reference):
    """Three programs that agree with each other and with enumeration: section 4.1 of Beraha et al."""
    known = json.loads((reference / "dpm_laplace_eps10_n200.json").read_text())
    with pm.Model() as model:
        labels = dp.ChineseRestaurantProcess("labels", concentration=1, shape=200, max_components=50)
        sigma2 = pm.InverseGamma("sigma2", 3, 3, shape=50)
        mu = pm.Normal("mu", 0, pm.math.sqrt(10 * sigma2), shape=50)
        y = pm.Normal("y", mu[labels], pm.math.sqrt(sigma2[labels]))
        dp.LaplaceMechanism("z", y, scale=known["scale"], observed=np.array(known["z"]))
        idata = pm.sample(
            1000,
            tune=300,
            chains=2,
            cores=1,
            step=[dp.PrivateNeal5(n_cycles=20)],
            random_seed=1,
            progressbar=False,
            compute_convergence_checks=False,
        )
    found = dp.mixture_density(idata, model, known["grid"], random_seed=1)
    error = az.mcse(found[["density"]], method="mean")["density"].values
    # batches see what is slow, clusters that come and go, beside much quick noise of the weights
    batches = found["density"].values.reshape(20, -1, len(error)).mean(axis=1)
    error = np.maximum(error, batches.std(axis=0, ddof=1) / np.sqrt(20))
    exact, exact_error = (np.array(known[k]) for k in ("pooled_density", "pooled_density_se"))
    assert np.all(np.abs(found["mean"].values - exact) < 5 * np.hypot(error, exact_error))
    # the test sees errors of some hundredths of the height
    assert error.max() < 0.02 * exact.max()


def scales(law):
    """A mixture over standard deviations, whose base may reach outside of the kernel's domain."""
    with pm.Model() as model:
        labels = dp.ChineseRestaurantProcess("labels", concentration=1, shape=3, max_components=4)
        a = law("a")
        pm.Normal("y", 0, a[labels])
    return model


@pytest.mark.parametrize("summary", [dp.mixture_density, dp.informativeness])
def test_atoms_without_a_law_are_named_with_a_remedy(summary):
    """Such a component can have no record; draws are those of the model all the same."""
    state = {"labels": np.array([0, 0, 2]), "a": np.array([1.0, -0.3, 0.5, -2.0])}
    draws, grid = repeated(20, **state), np.linspace(-3, 3, 5)
    outside = scales(lambda name: pm.Normal(name, 0.7, 1, shape=4))
    with pytest.raises(
        ValueError, match=r"laws of a reach: sigma > 0.*Give a laws inside.*HalfNormal"
    ) as found:
        summary(draws, outside, grid, random_seed=1)
    assert "Pass the draws" not in str(found.value)
    inside = scales(lambda name: pm.HalfNormal(name, 1.5, shape=4))
    allowed = repeated(20, labels=state["labels"], a=np.abs(state["a"]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a distance from few draws
        assert "point" in summary(allowed, inside, grid, random_seed=1).sizes
    with pytest.raises(ValueError, match=r"sigma > 0.*Pass the draws of this model"):
        # an occupied slot outside: no draws of this model
        dp.mixture_density(repeated(20, labels=np.array([0, 1, 2]), a=state["a"]), outside, grid)


def test_parameters_without_a_law_are_named_with_a_remedy():
    """Before any record, parameters may be at fault as well as atoms."""
    with pm.Model() as model:
        labels = dp.ChineseRestaurantProcess("labels", concentration=1, shape=3, max_components=4)
        mu, sigma = pm.Normal("mu", 0, 1, shape=4), pm.Normal("sigma", 0, 1)
        pm.Normal("y", mu[labels], sigma)
    draws = repeated(20, labels=np.array([0, 0, 2]), mu=np.zeros(4), sigma=np.array(1.0))
    with pytest.raises(ValueError, match="laws of mu, sigma reach: sigma > 0"):
        dp.informativeness(draws, model, np.linspace(-3, 3, 5), random_seed=1)
