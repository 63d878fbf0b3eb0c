"""What cannot be integrated out says so before sampling: the variable, the reason, the way out."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_dp as dp

ONES = np.ones(3)


def normal():
    return pm.Normal("y", pm.Normal("mu"), 1, shape=3)


def child():
    y = normal()
    pm.Normal("other", y, 1)
    dp.LaplaceMechanism("z", y, scale=1.0, observed=ONES)


def deterministic():
    y = normal()
    pm.Deterministic("total", y.sum())
    dp.LaplaceMechanism("z", y, scale=1.0, observed=ONES)


def potential():
    y = normal()
    pm.Potential("penalty", -(y**2).sum())
    dp.LaplaceMechanism("z", y, scale=1.0, observed=ONES)


def transformed_query():
    y = pm.LogNormal("y", pm.Normal("mu"), 1, shape=3)
    dp.LaplaceMechanism("z", pt.log(y), scale=1.0, observed=ONES)


def scaled_query():
    dp.LaplaceMechanism("z", 2 * normal(), scale=1.0, observed=ONES)


def unknown_pair():
    y = pm.Gamma("y", pm.HalfNormal("mu"), 1, shape=3)
    dp.LaplaceMechanism("z", y, scale=1.0, observed=ONES)


def wavelet():
    y = normal()
    dp.WaveletMechanism("z", y, epsilon=1, level=0, bounds=(0, 1), observed=np.ones((3, 1)))


def clamped_sum():
    c = dp.clamp(normal(), -1, 1)
    dp.GaussianMechanism("z", pt.stack([c.sum(), (c * [0, 1, 2]).sum()]), sigma=1.0, observed=[1.0, 1.0])


def laplace_sum():
    y = normal()
    dp.LaplaceMechanism("z", pt.stack([y.sum(), (y * [0, 1, 2]).sum()]), scale=1.0, observed=[1.0, 1.0])


def squares():
    y = normal()
    dp.GaussianMechanism("z", pt.stack([y.sum(), (y**2).sum()]), sigma=1.0, observed=[1.0, 1.0])


def sum_of_others():
    y = pm.Gamma("y", pm.HalfNormal("mu"), 1, shape=3)
    dp.GaussianMechanism("z", pt.stack([y.sum(), (y * [0, 1, 2]).sum()]), sigma=1.0, observed=[1.0, 1.0])


def two_with_laplace():
    y = normal()
    dp.LaplaceMechanism("z", y, scale=1.0, observed=ONES)
    dp.LaplaceMechanism("w", y, scale=1.0, observed=ONES)


def two_sums():
    y = normal()
    dp.GaussianMechanism("z", y.sum(), sigma=1.0, observed=1.0)
    dp.GaussianMechanism("w", y.mean(), sigma=1.0, observed=1.0)


def sum_and_rows():
    y = normal()
    dp.GaussianMechanism("z", y.sum(), sigma=1.0, observed=1.0)
    dp.GaussianMechanism("w", y, sigma=1.0, observed=ONES)


def two_of_counts():
    y = pm.Poisson("y", pm.HalfNormal("mu"), shape=3)
    dp.DiscreteLaplaceMechanism("z", y, scale=2.0, observed=[1, 2, 3])
    dp.DiscreteLaplaceMechanism("w", pt.clip(y, 0, 4), scale=2.0, observed=[1, 2, 3])


def clamped_vectors():
    y = pm.MvNormal("y", pm.Normal("mu", shape=2), np.eye(2), shape=(3, 2))
    dp.GaussianMechanism("z", y, rho=1, bounds=(-1, 1), observed=np.ones((3, 2)))


def clamped_counts():
    y = pm.Poisson("y", pm.HalfNormal("mu"), shape=3)
    dp.DiscreteLaplaceMechanism("z", y, epsilon=1, bounds=(0, 4), observed=[1, 2, 3])


def much_noise():
    y = pm.Poisson("y", pm.HalfNormal("mu"), shape=3)
    dp.DiscreteLaplaceMechanism("z", y, scale=1e6, observed=[1, 2, 3])


def many_tosses():
    y = pm.Beta("y", pm.HalfNormal("mu"), 1, shape=3)
    dp.BinomialMechanism("z", y, n_trials=100, epsilon=1, observed=[1, 2, 3])


def narrow_tosses():
    y = pm.Beta("y", pm.HalfNormal("mu"), 1, shape=3)
    dp.BinomialMechanism("z", y, n_trials=10, epsilon=1, bounds=(0.1, 1), observed=[1, 2, 3])


def mixture_of_gammas():
    w = pt.stack([0.5, 0.5])
    y = pm.Mixture("y", w, pm.Gamma.dist(pm.HalfNormal("mu") * ONES[:2], 1), shape=3)
    dp.LaplaceMechanism("z", y, scale=1.0, observed=ONES)


def noise_from_records():
    y = normal()
    dp.LaplaceMechanism("z", y, scale=pt.exp(y), observed=ONES)


def few_values():
    dp.GaussianMechanism("z", (normal() > 0).sum(), sigma=1.0, observed=1.0)


def few_clamped():
    dp.LaplaceMechanism("z", normal().clip(-1, 1).sum(), scale=1.0, observed=1.0)


def kinks():
    dp.GaussianMechanism("z", pt.sum(pt.clip(normal(), 0, pm.HalfNormal("end"))), sigma=1.0, observed=1.0)


def histogram():
    dp.PerturbedHistogram("z", normal(), n_bins=2, bounds=(0, 1), epsilon=1, observed=[1.0, 2.0])


def sum_with_other_records():
    other = pm.Normal("x", 0, 1, shape=3)
    dp.GaussianMechanism("z", (normal() + other).sum(), sigma=1.0, observed=1.0)


def table():
    y = pm.Poisson("y", pm.Gamma("mu", 2, 1), shape=(3, 2))
    dp.DiscreteLaplaceMechanism("z", y, scale=1.0, observed=np.ones((3, 2), int))
    dp.DiscreteLaplaceMechanism("w", y.sum(axis=1), scale=1.0, observed=np.ones(3, int))


REFUSED = [
    (child, "other depends on y and is no release"),
    (deterministic, r"deterministic total depends on y.*recover_records"),
    (potential, r"potential penalty depends on y.*recover_records"),
    (transformed_query, "y cannot be integrated out of z: its query is not the record itself"),
    (scaled_query, "y cannot be integrated out of z: its query is not the record itself"),
    (unknown_pair, "Gamma records have no closed marginal under LaplaceMechanism"),
    (wavelet, "no closed marginal under WaveletMechanism"),
    (clamped_sum, r"not an affine function of the records: it clamps them \(as bounds= does\)"),
    (few_values, "characteristic function of their sum: each of the people y adds one of a few values"),
    (few_clamped, "characteristic function of their sum: fewer than 20 people"),
    (kinks, "characteristic function of their sum: .*kinks anywhere"),
    (laplace_sum, "LaplaceMechanism of all records together is not normal"),
    (squares, "not an affine function"),
    (sum_of_others, "a sum of Gamma records is not normal"),
    (two_with_laplace, r"y has the releases w, z\. .*unclamped Gaussian"),
    (two_sums, r"y has the releases w, z\. .*unclamped Gaussian"),
    (sum_and_rows, r"y has the releases w, z\. .*unclamped Gaussian"),
    (two_of_counts, "y cannot be integrated out of w: Poisson records without an upper end that are clamped"),
    (clamped_vectors, "vectors that are clamped"),
    (clamped_counts, "Poisson records without an upper end that are clamped"),
    (much_noise, "the sum over its record takes .* terms for each of 3 releases"),
    (many_tosses, "the sum over its 100 tosses"),
    (narrow_tosses, r"clamped to \(0.1, 1\)"),
    (mixture_of_gammas, "Gamma records have no closed marginal"),
    (noise_from_records, "noise level of z depends on y"),
    (sum_with_other_records, "y cannot be integrated out of z, which also reads x"),
    (table, r"'y', which is a table of counts: .*TableImputation"),
    (histogram, "PerturbedHistogram of all records together is not normal"),
]


@pytest.mark.parametrize(("build", "message"), REFUSED, ids=[build.__name__ for build, _ in REFUSED])
def test_refusals(build, message):
    with pm.Model() as model:
        build()
    before = list(model.named_vars)
    with pytest.raises(ValueError, match=message) as caught:
        dp.marginalize(model, ["y"])
    said = str(caught.value)
    # the way out
    assert any(way in said for way in ("RecordImputation", "recover_records", "TableImputation"))
    assert list(model.named_vars) == before


def test_names():
    with pm.Model() as model:
        y = normal()
        dp.LaplaceMechanism("z", y, scale=1.0, observed=ONES)
    with pytest.raises(ValueError, match=r"'x', which is no variable of the model; its records: y"):
        dp.marginalize(model, ["x"])
    with pytest.raises(ValueError, match=r"'mu', which is no confidential record.*: y"):
        dp.marginalize(model, "mu")
    with pytest.raises(ValueError, match="names is empty"):
        dp.marginalize(model, [])
    with pytest.raises(TypeError, match="names must be"):
        dp.marginalize(model, [model["y"]])
    with pytest.raises(TypeError, match="model must be"):
        dp.marginalize("model", ["y"])
    with pytest.raises(ValueError, match="tolerance must be in"):
        dp.marginalize(model, ["y"], tolerance=0.0)
    with pytest.raises(TypeError, match="tolerance must be a number"):
        dp.marginalize(model, ["y"], tolerance="1e-9")


def test_records_that_depend_on_each_other():
    with pm.Model() as model:
        x = pm.Normal("x", pm.Normal("mu"), 1, shape=3)
        y = pm.Normal("y", x, 1)
        dp.GaussianMechanism("z", y, sigma=1.0, observed=ONES)
        dp.GaussianMechanism("w", x, sigma=1.0, observed=ONES)
    with pytest.raises(ValueError, match="y depends on x and is no release"):
        dp.marginalize(model, ["x", "y"])
    # y alone goes, and its release is then one more term that depends on the record x
    marginal = dp.marginalize(model, ["y"])
    (block,) = dp.query.records.find_record_blocks(marginal)
    assert block.names == ["x"]
    assert [term.name for term in block.terms] == ["z"]


def test_releases_that_are_not_observed():
    with pm.Model() as model:
        dp.LaplaceMechanism("z", normal(), scale=1.0)
    with pytest.raises(ValueError, match="behind an observed release"):
        dp.marginalize(model, ["y"])


def test_releases_of_the_same_people_stay_together():
    """Two releases of one record are not of disjoint people once the record is gone."""
    with pm.Model() as model:
        y = normal()
        x = pm.Normal("x", 0, 1, shape=3)
        dp.GaussianMechanism("z", y, rho=1, bounds=(-1, 1), observed=ONES)
        dp.GaussianMechanism("w", y, sigma=1.0, sensitivity=1.0, observed=ONES)
        dp.GaussianMechanism("v", x, rho=0.5, bounds=(-1, 1), observed=ONES)
    marginal = dp.marginalize(model, ["x", "y"])
    for disjoint in (False, True):
        assert str(dp.guarantee(marginal, disjoint=disjoint)) == str(dp.guarantee(model, disjoint=disjoint))


def test_starting_values_are_kept():
    with pm.Model() as model:
        mu = pm.Normal("mu", initval=3.0)
        y = pm.Normal("y", mu, 1, shape=3, initval=ONES)
        dp.LaplaceMechanism("z", y, scale=1.0, observed=ONES)
    marginal = dp.marginalize(model, ["y"])
    assert marginal.initial_point()["mu"] == 3.0
    assert model.initial_point()["mu"] == 3.0
    np.testing.assert_array_equal(model.initial_point()["y"], ONES)
