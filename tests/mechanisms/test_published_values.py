"""What a published release may hold: values that its mechanism can release, and parameters that agree."""

import math

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_dp as dp
from pymc_dp.privacy.calibration import gaussian_delta

HISTOGRAM = {"n_bins": 4, "bounds": (0.0, 1.0), "scale": 1.0, "neighbours": "replace-one"}
SMOOTHED = {"n_bins": 4, "smoothing": 0.3, "n_released": 2, "bounds": (0.0, 1.0)}


def published(mechanism, value, parameters, guarantee=None):
    """Return a release as it is read from a file."""
    release = dp.Release(value, mechanism, parameters, guarantee)
    return dp.Release.from_json(release.to_json())


def declare(release, n=10, query=None, **kwargs):
    """Declare a release of n records in a model, and return the model."""
    of_rows = release.mechanism in {
        "BinomialMechanism", "PerturbedHistogram", "SmoothedHistogramSample", "ProjectionMechanism",
    }  # fmt: skip
    whole = release.mechanism.startswith("Discrete")
    with pm.Model() as model:
        y = pm.Bernoulli("y", 0.3, shape=n) if whole else pm.Beta("y", 1, 1, shape=n)
        query = query or ((lambda rows: rows) if of_rows else dp.record_sum)
        getattr(dp, release.mechanism)("z", query(y), observed=release, **kwargs)
    return model


FRACTIONS = {
    "discrete laplace": ("DiscreteLaplaceMechanism", 1.9, {"scale": 1.0}),
    "discrete gaussian": ("DiscreteGaussianMechanism", 1.9, {"sigma": 1.0}),
    "binomial": ("BinomialMechanism", np.full(10, 1.9), {"theta": 0.2, "n_trials": 3}),
    "histogram": ("PerturbedHistogram", np.full(4, 1.9), HISTOGRAM | {"noise": "discrete_laplace"}),
}


@pytest.mark.parametrize("release", FRACTIONS.values(), ids=FRACTIONS)
def test_a_published_fraction_is_not_truncated(release):
    mechanism, value, parameters = release
    with pytest.raises(ValueError, match=r"observed must be whole numbers, got 1\.9"):
        declare(published(mechanism, value, parameters))
    model = declare(published(mechanism, np.rint(value), parameters))
    assert (model.rvs_to_values[model["z"]].data == 2).all()


def test_published_values_are_within_their_own_bounds():
    with pytest.raises(ValueError, match=r"observed has 1 of 2 values outside of bounds = \(0, 1\)"):
        declare(published("SmoothedHistogramSample", [0.5, 2.0], SMOOTHED))
    wider = SMOOTHED | {"bounds": (0.0, 3.0)}
    assert np.isfinite(declare(published("SmoothedHistogramSample", [0.5, 2.0], wider)).point_logps()["z"])


def test_published_values_are_as_many_as_the_release_says():
    with pytest.raises(ValueError, match=r"observed means a release of shape \(3,\)"):
        declare(published("SmoothedHistogramSample", [0.5, 0.2, 0.1], SMOOTHED))


@pytest.mark.parametrize("noise", [{"epsilon": 1}, {"rho": 0.5}], ids=["laplace", "gaussian"])
def test_values_are_on_their_own_grid(noise):
    mechanism = "GaussianMechanism" if "rho" in noise else "LaplaceMechanism"
    release = getattr(dp, mechanism).release(dp.record_sum(np.linspace(0, 1, 10)), bounds=(0, 1), **noise)
    declare(release)
    between = release.value + 0.5 * release.parameters["granularity"]
    rounded = published(mechanism, between, release.parameters, release.guarantee)
    with pytest.raises(ValueError, match=r"which is no multiple of the granularity = .* as it was published"):
        declare(rounded)
    for granule in (0.0, "fine", np.inf):
        with pytest.raises(ValueError, match=r"observed states granularity = .*, which is no size"):
            declare(published(mechanism, release.value, dict(release.parameters) | {"granularity": granule}))


# ---- stated guarantees --------------------------------------------------------------------------

PURE, NORMAL = {"scale": 1.0, "bounds": (0.0, 1.0)}, {"sigma": 1.0, "bounds": (0.0, 1.0)}
HERE = HISTOGRAM | {"noise": "laplace"}
G = dp.PrivacyGuarantee
FALSE = {
    "pure, of Gaussian noise": ("GaussianMechanism", 0.3, NORMAL, G(9.0)),
    "pure, of discrete Gaussian noise": ("DiscreteGaussianMechanism", 3, NORMAL, G(9.0)),
    "a small delta": ("GaussianMechanism", 0.3, NORMAL, G(0.001, 1e-30)),
    "a delta just too small": ("GaussianMechanism", 0.3, NORMAL, G(1.0, 0.9999 * gaussian_delta(1, 1, 1))),
    "epsilon = 0": ("GaussianMechanism", 0.3, NORMAL, G(0.0, 0.38)),
    "other neighbours": ("LaplaceMechanism", 0.3, PURE, G(1.0, neighbours="add-remove")),
    "a histogram's, half": ("PerturbedHistogram", np.ones(4), HERE, G(1.0)),
    "a histogram's, of others": (
        "PerturbedHistogram", np.ones(4), HERE | {"neighbours": "add-remove"}, G(1.0),
    ),
    "a histogram's, too small": (
        "PerturbedHistogram", np.ones(4), HERE | {"neighbours": "add-remove"},
        G(0.5, neighbours="add-remove"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("claim", FALSE.values(), ids=FALSE)
def test_a_guarantee_that_the_noise_contradicts_is_refused(claim):
    with pytest.raises(ValueError, match="observed states a guarantee that is better than its own noise"):
        declare(published(*claim))


TRUE = {
    "a delta just large enough": (*FALSE["a delta just too small"][:3], G(1.0, gaussian_delta(1, 1, 1))),
    "a worse one": ("LaplaceMechanism", 0.3, PURE, G(2.0)),
    "delta of any pure mechanism": ("LaplaceMechanism", 0.3, PURE, G(0.5, 0.3)),
    "rho of any pure mechanism": ("LaplaceMechanism", 0.3, PURE, G(math.inf, rho=0.5)),
    "delta by rho": ("DiscreteGaussianMechanism", 3, NORMAL, G(4.8, 1e-5)),
    "a histogram's": ("PerturbedHistogram", np.ones(4), HERE, G(2.0)),
    "a histogram's, add-remove": (
        "PerturbedHistogram", np.ones(4), HERE | {"neighbours": "add-remove"},
        G(1.0, neighbours="add-remove"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("claim", TRUE.values(), ids=TRUE)
def test_a_guarantee_that_follows_from_the_noise_is_kept(claim):
    assert dp.guarantee(declare(published(*claim))["z"]) == claim[-1]


UNKNOWN = {
    "a delta": ("LaplaceMechanism", 0.3, PURE, G(0.001, 1e-9)),
    "a rho": ("LaplaceMechanism", 0.3, PURE, G(math.inf, rho=0.001)),
    "a mu": ("LaplaceMechanism", 0.3, PURE, G(math.inf, mu=1.0)),
    "delta by rho": ("DiscreteGaussianMechanism", 3, NORMAL, G(1.0, 1e-5)),
}


@pytest.mark.parametrize("claim", UNKNOWN.values(), ids=UNKNOWN)
def test_a_guarantee_that_may_not_follow_gives_way_to_that_of_the_noise(claim):
    here = dp.guarantee(declare(published(*claim))["z"])
    assert here == dp.guarantee(declare(published(*claim[:-1]))["z"])
    assert here == (G(1.0) if claim[0] == "LaplaceMechanism" else G(math.inf, rho=0.5))


def test_the_largest_delta_of_a_pure_guarantee_is_that_of_randomized_response():
    epsilon, smaller = 1.3, 0.4
    truth = 1 / (1 + math.exp(-epsilon))
    delta = truth - math.exp(smaller) * (1 - truth)
    assert G(epsilon).implies(G(smaller, delta)) and not G(epsilon).implies(G(smaller, 0.999 * delta))


# ---- messages -----------------------------------------------------------------------------------


def test_unknown_parameters_are_not_dropped():
    claim = published("LaplaceMechanism", 0.3, PURE | {"unheard_of": 3.0, "another": 1})
    with pytest.raises(ValueError, match="observed states another, unheard_of, which is no parameter of Lap"):
        declare(claim)


ROWS = np.linspace(0, 1, 10)
TOO_SMALL = {
    "laplace": ("LaplaceMechanism", dp.record_sum(ROWS), {"bounds": (0, 1)}),
    "discrete": ("DiscreteLaplaceMechanism", dp.record_sum(np.arange(10) % 2), {"bounds": (0, 1)}),
    "histogram": ("PerturbedHistogram", ROWS, {"n_bins": 3}),
    "means": ("ProjectionMechanism", ROWS, {"n_terms": 3}),
    "wavelets": ("WaveletMechanism", ROWS, {"level": 2}),
    "smoothed": ("SmoothedHistogramSample", ROWS, {"n_bins": 3, "n_released": 2}),
    "parameter": (
        "KNormGradient", dp.record_sum(np.stack([ROWS] * 2, 1)), {"hessian": np.eye(2), "sensitivity": 1e9},
    ),
}  # fmt: skip


@pytest.mark.parametrize("epsilon", [1e-300, 1e-310])
@pytest.mark.parametrize("case", TOO_SMALL.values(), ids=TOO_SMALL)
def test_budgets_of_no_finite_noise_are_named(case, epsilon):
    name, query, settings = case
    with pytest.raises(ValueError, match=f"epsilon = {epsilon:g} .*(finite|machine precision)"):
        getattr(dp, name).release(query, epsilon=epsilon, **settings)


def test_noise_that_cannot_be_drawn_is_named():
    for given in ({"rho": 1e-300}, {"sigma": 1e150}):
        ((key, level),) = given.items()
        with pytest.raises(
            ValueError, match=rf"^{key} = {level:g}".replace("+", "[+]") + " asks for so much noise"
        ):
            dp.DiscreteGaussianMechanism.release(3, **given, sensitivity=1)


def test_messages_say_what_to_do():
    with pytest.raises(ValueError, match=r"smoothing must be .* got 0\. The nearer to 1, the more private"):
        dp.SmoothedHistogramSample.release(ROWS, n_bins=4, n_released=3, smoothing=0)
    with pm.Model():
        c, p = pm.Categorical("c", np.ones(3) / 3, shape=2), pm.Dirichlet("p", np.ones(3))
        with pytest.raises(ValueError, match=r"not a category 0, ..., 2\. Number the categories from 0"):
            dp.RandomizedResponse("z", c, epsilon=1, observed=[0, 3])
        with pytest.raises(ValueError, match=r"at most n = 10\. Pass the counts as they were published"):
            dp.UnaryEncoding("w", p, n=10, epsilon=1, observed=[11, 3, 3])
        with pytest.raises(ValueError, match=r"not a bit, 0 or 1\. Pass the bits as they were published"):
            dp.UnaryEncoding("v", c, epsilon=1, observed=[[0, 0, 2], [0, 0, 0]])


# ---- how many records ---------------------------------------------------------------------------

X = np.random.default_rng(0).random(40)


def mean(rows):
    return rows.mean()


def mean_by_number(rows):
    return dp.record_sum(rows) / rows.type.shape[0]


def two_means(rows):
    return pt.stack([rows.mean(), (rows**2).mean()])


def of_rows(rows):
    return rows


OF_SO_MANY = {
    "mean": ("LaplaceMechanism", mean, {"epsilon": 1, "bounds": (0, 1)}),
    "mean, gaussian": ("GaussianMechanism", mean, {"rho": 1, "bounds": (0, 1)}),
    "mean, by a number": ("LaplaceMechanism", mean_by_number, {"epsilon": 1, "bounds": (0, 1)}),
    "mean, level given": ("LaplaceMechanism", mean, {"scale": 1, "bounds": (0, 1)}),
    "two means": ("GaussianMechanism", two_means, {"rho": 1, "bounds": (0, 1)}),
    "functions": ("ProjectionMechanism", of_rows, {"n_terms": 3, "epsilon": 1}),
    "functions, gaussian": ("ProjectionMechanism", of_rows, {"n_terms": 3, "rho": 1}),
    "smoothed": ("SmoothedHistogramSample", of_rows, {"n_bins": 4, "n_released": 2, "epsilon": 1}),
}


@pytest.mark.parametrize("case", OF_SO_MANY.values(), ids=OF_SO_MANY)
def test_releases_of_another_number_of_records_are_refused(case):
    name, query, noise = case
    release = getattr(dp, name).release(query(pt.as_tensor_variable(X)), **noise)
    release = dp.Release.from_json(release.to_json())
    assert release.parameters["n_records"] == 40
    assert dp.guarantee(declare(release, 40, query)["z"]) == release.guarantee
    with pytest.raises(ValueError, match=r"release of 40 records, but the query is of 400: the noise was"):
        declare(release, 400, query)
    older = {k: v for k, v in release.parameters.items() if k != "n_records"}
    declare(dp.Release(release.value, name, older, release.guarantee), 40, query)
    for damage in (0, 40.0, "40", True):
        with pytest.raises(ValueError, match="which is no number of records: the release is damaged"):
            declare(dp.Release(release.value, name, older | {"n_records": damage}), 40, query)


def test_data_of_changeable_size_count_as_they_are():
    release = dp.LaplaceMechanism.release(pt.as_tensor_variable(X).mean(), epsilon=1, bounds=(0, 1))
    for n in (40, 30):
        with pm.Model():
            x = pm.Data("x", np.zeros(n))
            y = pm.Normal("y", x, 1, shape=x.shape)
            if n == 40:
                dp.LaplaceMechanism("z", y.mean(), observed=release)
                continue
            with pytest.raises(ValueError, match="a release of 40 records, but the query is of 30"):
                dp.LaplaceMechanism("z", y.mean(), observed=release)


UNTOLD = {
    "a sum": ("LaplaceMechanism", dp.record_sum(X), {"epsilon": 1, "bounds": (0, 1)}),
    "a mean of people vouched for": (
        "LaplaceMechanism", pt.as_tensor_variable(X)[X > 0.5].mean(), {"epsilon": 1, "sensitivity": 1},
    ),
    "add or remove": (
        "PerturbedHistogram", X, {"epsilon": 1, "n_bins": 3, "neighbours": "add-remove"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", UNTOLD.values(), ids=UNTOLD)
def test_a_number_of_records_that_the_noise_does_not_show_is_not_published(case):
    name, query, noise = case
    release = getattr(dp, name).release(query, **noise)
    assert "n_records" not in release.parameters
