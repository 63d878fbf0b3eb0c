"""Summaries of partitions against double loops, and against all partitions of few records."""

import numpy as np
import pymc as pm
import pytest
import xarray as xr

import pymc_dp as dp
from pymc_dp.stats._partition_search import BinderLoss, InformationLoss


def tree(labels, name="labels", **others):
    """Draws (chain, draw, n) as `pm.sample` returns them."""
    variables = {name: labels, **others}
    data = {
        k: (("chain", "draw", *(f"{k}_dim_{j}" for j in range(np.ndim(v) - 2))), v)
        for k, v in variables.items()
    }
    return xr.DataTree.from_dict({"posterior": xr.Dataset(data)})


def all_partitions(n):
    """Restricted growth strings: every partition of n records once."""
    found = [[0]]
    for _ in range(n - 1):
        found = [[*p, c] for p in found for c in range(max(p) + 2)]
    return np.array(found)


def together(labels):
    return np.equal.outer(labels, labels)


def binder(a, b):
    """By the definition, pair by pair."""
    pairs = [(i, j) for i in range(len(a)) for j in range(i)]
    return np.mean([(a[i] == a[j]) != (b[i] == b[j]) for i, j in pairs])


def information(a, b):
    """By the definition: two entropies less twice the mutual information."""

    def entropy(*labels):
        counts = np.unique(np.stack(labels), axis=1, return_counts=True)[1]
        shares = counts / counts.sum()
        return -(shares * np.log2(shares)).sum()

    mutual = entropy(a) + entropy(b) - entropy(a, b)
    return entropy(a) + entropy(b) - 2 * mutual


LOSSES = {"binder": binder, "VI": information}


def noisy_draws(rng, n, size, noise, k=3):
    """Partitions around one, with slots renamed at random in every draw."""
    centre = rng.integers(0, k, n)
    labels = np.where(rng.random((size, n)) < noise, rng.integers(0, n, (size, n)), centre)
    return np.array([rng.permutation(max(n, k))[row] for row in labels])


def expected_loss(draws, loss):
    if loss == "binder":
        return BinderLoss(np.mean([together(d) for d in draws], axis=0))
    return InformationLoss(np.array([np.unique(d, return_inverse=True)[1] for d in draws]))


def test_similarity_is_that_of_a_double_loop(rng):
    labels = rng.integers(0, 5, (2, 30, 9))
    expected = np.mean([together(d) for d in labels.reshape(-1, 9)], axis=0)
    found = dp.similarity_matrix(tree(labels))
    np.testing.assert_allclose(found.values, expected, atol=1e-12)
    assert found.shape == (9, 9)


def test_similarity_in_blocks_is_the_same(rng, monkeypatch):
    labels = rng.integers(0, 5, (40, 9))
    whole = dp.similarity_matrix(tree(labels[None])).values
    monkeypatch.setattr("pymc_dp.stats.partitions._BLOCK", 60)
    np.testing.assert_array_equal(dp.similarity_matrix(tree(labels[None])).values, whole)


def test_similarity_keeps_names_of_records():
    idata = tree(np.zeros((1, 2, 3), int))
    idata["posterior"] = (
        idata["posterior"].dataset.rename(labels_dim_0="person").assign_coords(person=list("abc"))
    )
    found = dp.similarity_matrix(idata)
    assert found.dims == ("person", "person_other")
    assert list(found["person"].values) == ["a", "b", "c"]
    assert list(dp.point_partition(idata)["person"].values) == ["a", "b", "c"]


@pytest.mark.parametrize("loss", LOSSES)
def test_expected_losses_are_those_of_the_definitions(rng, loss):
    draws = noisy_draws(rng, 7, 25, 0.4)
    own = expected_loss(draws, loss)
    for candidate in all_partitions(7)[::37]:
        expected = np.mean([LOSSES[loss](candidate, d) for d in draws])
        assert own.expected(candidate) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 6])
def test_the_best_of_all_partitions_is_found(rng, loss, n):
    for noise in (0.1, 0.3, 0.6, 1.0):
        for _ in range(8):
            draws = noisy_draws(rng, n, 20, noise)
            own = expected_loss(draws, loss)
            least = min(own.expected(p) for p in all_partitions(n))
            found = dp.point_partition(tree(draws[None]), loss)
            assert found.attrs["expected_loss"] == pytest.approx(least, abs=1e-9)
            assert own.expected(found.values) == pytest.approx(least, abs=1e-9)


@pytest.mark.parametrize("loss", LOSSES)
def test_a_clear_partition_is_found_among_many_records(rng, loss):
    centre = np.repeat([0, 1, 2, 3], [40, 30, 20, 10])
    draws = np.where(rng.random((200, 100)) < 0.1, rng.integers(0, 8, (200, 100)), centre)
    found = dp.point_partition(tree(draws[None]), loss)
    np.testing.assert_array_equal(found.values, centre)
    assert found.dtype == np.int64


@pytest.mark.parametrize("loss", LOSSES)
def test_the_search_improves_on_a_bad_start(rng, loss):
    draws = np.tile(np.repeat([0, 1], 10), (5, 1))
    own = expected_loss(draws, loss)
    for start in (np.arange(20), rng.integers(0, 6, 20), np.repeat([0, 1, 0], [5, 10, 5])):
        np.testing.assert_array_equal(own.improved(start), draws[0])


def test_number_of_clusters(rng):
    labels = rng.integers(0, 6, (5, 8))
    counted = dp.n_clusters(labels).eval(mode="FAST_COMPILE")
    assert list(counted) == [len(set(row)) for row in labels]
    assert dp.n_clusters(np.zeros((0,), int)).eval(mode="FAST_COMPILE") == 0


@pytest.mark.statistical
def test_number_of_clusters_in_a_model():
    with pm.Model() as model:
        labels = dp.ChineseRestaurantProcess("labels", concentration=1, shape=12, max_components=12)
        mu = pm.Normal("mu", 0, 3, shape=12)
        y = pm.Normal("y", mu[labels], 1)
        dp.LaplaceMechanism("z", y, epsilon=20, bounds=(-10, 10), observed=np.linspace(-5, 5, 12))
        pm.Deterministic("k", dp.n_clusters(labels))
        idata = pm.sample(20, tune=20, chains=1, progressbar=False, random_seed=1)
    draws = idata.posterior["labels"].values[0]
    assert list(idata.posterior["k"].values[0]) == [len(set(row)) for row in draws]
    assert model["k"].dtype == "int64"


@pytest.mark.parametrize(
    ("labels", "error", "words"),
    [
        ([0.5, 1.0], TypeError, "whole numbers, got dtype float64"),
        (3, ValueError, "one entry for each record, got a scalar"),
        ({1}, TypeError, "got set"),
    ],
)
def test_bad_labels(labels, error, words):
    with pytest.raises(error, match=words):
        dp.n_clusters(labels)


@pytest.mark.parametrize("summary", [dp.similarity_matrix, dp.point_partition])
def test_what_holds_no_labels(summary):
    numbers = np.zeros((1, 5, 3))
    with pytest.raises(TypeError, match=r"must be the xarray\.DataTree"):
        summary(numbers)
    with pytest.raises(ValueError, match="no labels of records: sample again with var_names"):
        summary(tree(numbers, "mu"))
    with pytest.raises(ValueError, match="has no labels: sample again"):
        summary(tree(numbers, "mu"), labels="labels")
    with pytest.raises(ValueError, match=r"labels= must say which partition is meant, .* a, b"):
        summary(tree(numbers.astype(int), "a", b=numbers.astype(int)))
    with pytest.raises(ValueError, match="mu has dtype float64"):
        summary(tree(numbers, "mu"), labels="mu")
    with pytest.raises(TypeError, match="must be the name of a variable, got int"):
        summary(tree(numbers, "mu"), labels=3)
    with pytest.raises(ValueError, match="no group 'posterior'"):
        summary(xr.DataTree())
    with pytest.raises(ValueError, match="no draws"):
        summary(tree(np.zeros((1, 0, 3), int)), labels="labels")


def test_counts_beside_the_labels_are_no_labels(rng):
    labels, counts = rng.integers(0, 3, (1, 6, 4)), rng.poisson(5, (1, 6, 4))
    np.testing.assert_array_equal(
        dp.similarity_matrix(tree(labels, y=counts)), dp.similarity_matrix(tree(labels))
    )
    np.testing.assert_array_equal(
        dp.similarity_matrix(tree(labels, "c", y=counts), "c"), dp.similarity_matrix(tree(labels))
    )


def test_unknown_loss():
    with pytest.raises(ValueError, match="loss must be 'VI' or 'binder', got 'rand'"):
        dp.point_partition(tree(np.zeros((1, 5, 3), int)), "rand")
