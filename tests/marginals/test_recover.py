"""Records drawn given releases and parameters, against their exact conditional law."""

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from scipy import stats

import pymc_dp as dp
from tests.marginals import models
from tests.marginals.models import BOUNDS, CASES, COUNTS, REPORTS, SCALE, X, Z, integral, laplace

pytestmark = pytest.mark.usefixtures("python_mode")

A, B, DRAWS = 0.4, 1.3, 4000


def results(**values):
    """Posterior draws that are all alike, in two chains."""
    data = {}
    for name, value in values.items():
        value = np.asarray(value)
        dims = [f"{name}_{k}" for k in range(value.ndim)]
        data[name] = (("chain", "draw", *dims), np.broadcast_to(value, (2, DRAWS // 2, *value.shape)))
    coords = {"chain": [0, 1], "draw": np.arange(DRAWS // 2)}
    return xr.DataTree.from_dict({"posterior": xr.Dataset(data, coords)})


def recovered(name, **more):
    model = CASES[name].build()
    found = dp.recover_records(results(a=A, b=B, **more), model, random_seed=3)
    draws = found["y"]
    assert draws.dims[:2] == ("chain", "draw")
    assert draws.dtype == model["y"].dtype
    return draws.values.reshape(DRAWS, *draws.shape[2:])


def check_moments(draws, weight, span=(-60.0, 60.0), breaks=()):
    """Mean and variance of each record's draws against integrals of an unnormalised density."""
    for i in range(draws.shape[1]):
        total, mean, square, fourth = (
            integral(lambda y, k=k, i=i: y**k * weight(i, y), *span, breaks=breaks) for k in (0, 1, 2, 4)
        )
        mean, square, fourth = mean / total, square / total, fourth / total
        assert abs(draws[:, i].mean() - mean) < 4.5 * np.sqrt((square - mean**2) / DRAWS)
        assert abs((draws[:, i] ** 2).mean() - square) < 4.5 * np.sqrt((fourth - square**2) / DRAWS)


@pytest.mark.parametrize(
    ("name", "channel", "bounds"),
    [
        ("normal, Laplace", laplace(SCALE), (-np.inf, np.inf)),
        ("normal, Laplace, clamped", laplace(SCALE), BOUNDS),
        ("normal, Gaussian, clamped", models.gaussian(models.SIGMA), BOUNDS),
    ],
)
def test_normal_records(name, channel, bounds):
    def weight(i, y):
        return stats.norm.pdf(y, A * X[i], B) * channel(Z[i], np.clip(y, *bounds))

    check_moments(recovered(name), weight, breaks=(*Z, *np.nan_to_num(bounds)))


def test_two_releases():
    def weight(i, y):
        first = stats.norm.pdf(y, A * X[i], B) * stats.norm.pdf(Z[i] - 0.5, y, 0.9)
        return first * laplace(SCALE)(Z[i], np.clip(y, *BOUNDS))

    check_moments(recovered("two releases"), weight, breaks=(*Z, *BOUNDS))


def test_mixture_of_normals():
    def weight(i, y):
        law = 0.25 * stats.norm.pdf(y, A, B) + 0.75 * stats.norm.pdf(y, A + 3, B)
        return law * laplace(SCALE)(Z[i], np.clip(y, *BOUNDS))

    check_moments(recovered("mixture of normals"), weight, breaks=(*Z, *BOUNDS))


def test_labels_pick_the_law():
    def weight(i, y):
        return stats.norm.pdf(y, A + 2 * [0, 2, 0][i], B) * laplace(SCALE)(Z[i], np.clip(y, *BOUNDS))

    draws = recovered("labels", labels=np.array([0, 2, 0]))
    check_moments(draws, weight, breaks=(*Z, *BOUNDS))


def test_beta_records():
    def weight(i, y):
        return stats.beta.pdf(y, np.exp(A), B) * stats.binom.pmf(models.TOLD[i], 10, 0.5 + 0.3 * (2 * y - 1))

    check_moments(recovered("beta, tosses"), weight, (1e-12, 1 - 1e-12))


def frequencies_agree(draws, chances):
    counts = np.array([(draws == k).sum() for k in range(len(chances))])
    assert counts.sum() == len(draws)
    used = DRAWS * chances > 5
    rest = [counts[~used].sum(), DRAWS * chances[~used].sum()] if (~used).any() else None
    seen, expected = list(counts[used]), list(DRAWS * chances[used])
    if rest and rest[1] > 1:
        seen.append(rest[0])
        expected.append(rest[1])
    expected = np.array(expected) * sum(seen) / sum(expected)
    assert stats.chisquare(seen, expected).pvalue > 1e-4


def test_categories():
    draws = recovered("randomized response")
    for i, z in enumerate(REPORTS):
        chances = models._probabilities(A, B) * np.where(np.arange(3) == z, np.e, 1.0)
        frequencies_agree(draws[:, i], chances / chances.sum())


def test_answers():
    draws = recovered("answers")
    for i, z in enumerate(models.ANSWERS):
        yes = 1 / (1 + np.exp(-A - B * X[i]))
        chances = np.array([1 - yes, yes]) * np.where(np.arange(2) == z, 5 / 6, 1 / 6)
        frequencies_agree(draws[:, i], chances / chances.sum())


def test_answers_of_several_devices():
    draws = recovered("answers of several devices")
    for i, z in enumerate(models.ANSWERS):
        yes = 1 / (1 + np.exp(-A - B * X[i]))
        chances = np.array([1 - yes, yes]) * models.DEVICES[i][:, z]
        if chances[1] == 0:
            assert not draws[:, i].any()
        else:
            frequencies_agree(draws[:, i], chances / chances.sum())


def test_two_answers():
    draws = recovered("two answers")
    yes = 1 / (1 + np.exp(B - A))
    for i, z in enumerate(models.ANSWERS):
        chances = (
            np.array([1 - yes, yes]) * np.where(np.arange(2) == z, 5 / 6, 1 / 6) * models.DEVICE[:, 1 - z]
        )
        frequencies_agree(draws[:, i], chances / chances.sum())


def test_categories_told_by_a_table():
    draws = recovered("categories told by a table")
    for i, z in enumerate(REPORTS):
        chances = models._probabilities(A, B) * models.TOLD_BY[:, z]
        frequencies_agree(draws[:, i], chances / chances.sum())


@pytest.mark.parametrize("name", ["1|group", "2022", "a,b", "f8"])
def test_names_that_numpy_takes_for_types(name):
    """Bambi gives such names to effects of groups."""
    with pm.Model() as model:
        p = pm.Beta(name, 1, 1)
        y = pm.Bernoulli("y", p, shape=3)
        dp.RandomizedResponse("z", y, p_truth=5 / 6, observed=[0, 1, 1])
    draws = dp.recover_records(results(**{name: 0.4}), model, random_seed=1)["y"].values.reshape(-1, 3)
    for i, z in enumerate([0, 1, 1]):
        chances = np.array([0.6, 0.4]) * np.where(np.arange(2) == z, 5 / 6, 1 / 6)
        frequencies_agree(draws[:, i], chances / chances.sum())


def test_counts():
    draws = recovered("Poisson, discrete Laplace")
    k = np.arange(300)
    for i, z in enumerate(COUNTS[:4]):
        chances = stats.poisson.pmf(k, 3 * np.exp(A)) * models.discrete_laplace(2.0)(z, k)
        frequencies_agree(draws[:, i], chances / chances.sum())


def linear(mean, cov, c, noise, released):
    """Normal records given noisy linear functions of them."""
    gain = cov @ c.T @ np.linalg.inv(c @ cov @ c.T + noise)
    return mean + gain @ (released - c @ mean), cov - gain @ c @ cov


def check_normal(draws, mean, cov):
    error = np.sqrt(np.diag(cov) / len(draws))
    assert (np.abs(draws.mean(axis=0) - mean) < 4.5 * error).all()
    sd = np.sqrt(np.diag(cov))
    off = np.abs(np.cov(draws.T) - cov) / np.outer(sd, sd)
    assert off.max() < 4.5 * np.sqrt(2 / len(draws))


def test_records_behind_sums():
    draws = recovered("two sums")
    cov = np.diag((B * models.SD) ** 2)
    noise = np.diag([0.25, 0.04])
    check_normal(draws, *linear(A * X, cov, models.C, noise, np.array([1.0, 2.0])))


def test_records_behind_a_mean():
    draws = recovered("a mean")
    c = np.full((1, 4), -0.25)
    check_normal(draws, *linear(np.full(4, A), B**2 * np.eye(4), c, np.eye(1) * 0.09, np.array([0.4 - 2])))


@pytest.mark.parametrize("d", [0, 1])
def test_noise_of_a_random_level(d):
    """Of all numbers behind the sums, only the noise level has an axis of draws."""
    cov, c = np.diag([0.25, 1.0, 4.0]), np.array([[1.0, 1.0, 1.0], [0.0, 1.0, 2.0]])[: d + 1]
    with pm.Model() as model:
        level = pm.HalfNormal("level", 1)
        y = pm.Normal("y", X, np.array([0.5, 1.0, 2.0]))
        query = pm.math.stack([y.sum(), (np.arange(3.0) * y).sum()]) if d else y.sum()
        dp.GaussianMechanism("z", query, sigma=level, observed=[8.0, -1.0] if d else 8.0)
    draws = dp.recover_records(results(level=0.7), model, random_seed=3)["y"].values.reshape(DRAWS, 3)
    check_normal(draws, *linear(X, cov, c, 0.49 * np.eye(d + 1), np.array([8.0, -1.0])[: d + 1]))


def test_vectors():
    draws = recovered("vectors")
    for i, row in enumerate(models.ROWS):
        noise = np.diag([0.25, 2.25])
        check_normal(draws[:, i], *linear(np.array([A, -A]), B * models.COV, np.eye(2), noise, row))


def test_draws_follow_their_own_parameters():
    """Each draw of the records belongs to the same draw of the parameters, in blocks of any size."""
    model = CASES["normal, Laplace"].build()
    idata = results(a=A, b=B)
    shift = np.linspace(-1e6, 1e6, DRAWS).reshape(2, -1)
    idata["posterior"] = idata["posterior"].dataset.assign(a=(("chain", "draw"), shift))
    from pymc_dp.marginals import recover

    before = recover._AT_ONCE
    try:
        recover._AT_ONCE = 3000
        draws = dp.recover_records(idata, model, random_seed=1)["y"].values
    finally:
        recover._AT_ONCE = before
    # far away the noise tilts the mean of the record by s^2 / b
    expected = shift[..., None] * X + np.sign(-shift[..., None] * X) * B**2 / SCALE
    assert np.abs(draws - expected).max() < 8 * B
    assert abs((draws - expected).mean()) < 5 * B / np.sqrt(3 * DRAWS)


def test_dims_and_coordinates():
    with pm.Model(coords={"person": ["u", "v"]}) as model:
        mu = pm.Normal("mu")
        y = pm.Normal("y", mu, 1, dims="person")
        dp.GaussianMechanism("z", y, sigma=1.0, observed=[1.0, 2.0], dims="person")
    marginal = dp.marginalize(model, ["y"])
    assert marginal.named_vars_to_dims["z"] == ("person",)
    assert dict(marginal.coords)["person"] == ("u", "v")
    found = dp.recover_records(results(mu=0.5), model, "y", random_seed=1)
    assert found["y"].dims == ("chain", "draw", "person")
    assert list(found.person.values) == ["u", "v"]


def test_slots_that_are_people():
    """The first N; those beyond have the law of the records, which normal sums tell apart from theirs."""
    with pm.Model() as model:
        people = pm.DiscreteUniform("people", 1, 4)
        y = pm.Normal("y", 1.0, 1.0, shape=4)
        dp.GaussianMechanism("z", dp.record_sum(y, count=people), sigma=0.5, observed=6.0)
    n = np.repeat([1, 2, 4], 4000)
    idata = xr.DataTree.from_dict({"posterior": xr.Dataset({"people": (("chain", "draw"), n[None])})})
    found = dp.recover_records(idata, model, "y", random_seed=1)
    assert found["y_is_person"].dims == found["y"].dims
    np.testing.assert_array_equal(found["y_is_person"][0], np.arange(4) < n[:, None])
    for k in (1, 2, 4):
        rows, people = found["y"].values[0, n == k], found["y_is_person"].values[0, n == k]
        mean, sd = 1 + (6 - k) / (k + 0.25), np.sqrt(1 - 1 / (k + 0.25))
        assert abs(rows[people].mean() - mean) < 5 * sd / np.sqrt(people.sum() / k)
        if k < 4:
            assert abs(rows[~people].mean() - 1) < 5 / np.sqrt((~people).sum())
    assert "y_is_person" not in dp.recover_records(*_known_number(), random_seed=1)


def _known_number():
    with pm.Model() as model:
        y = pm.Normal("y", 1.0, 1.0, shape=4)
        dp.GaussianMechanism("z", dp.record_sum(y), sigma=0.5, observed=6.0)
    return xr.DataTree.from_dict({"posterior": xr.Dataset(coords={"chain": [0], "draw": [0, 1]})}), model


def test_seed():
    model = CASES["a mean"].build()
    idata = results(a=A, b=B)
    first, again = (dp.recover_records(idata, model, random_seed=5) for _ in range(2))
    xr.testing.assert_identical(first, again)


def test_missing_parameter():
    with pytest.raises(ValueError, match="no draws of b"):
        dp.recover_records(results(a=A), CASES["normal, Laplace"].build())


def test_what_is_no_result():
    model = CASES["normal, Laplace"].build()
    with pytest.raises(TypeError, match="idata must be"):
        dp.recover_records({}, model)
    with pytest.raises(ValueError, match="no group 'posterior'"):
        dp.recover_records(xr.DataTree(), model)
    with pytest.raises(ValueError, match="draws of all records"):
        dp.recover_records(results(a=A, b=B, y=np.zeros(3)), model)
