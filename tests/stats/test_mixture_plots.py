"""Pictures of mixtures: what is drawn is what was computed."""

import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
import pytest
import xarray as xr

import pymc_dp as dp
from tests.stats.mixtures import normal_mixture, repeated, tree

GRID = np.linspace(-5, 5, 11)


@pytest.fixture(autouse=True)
def no_figures_left():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def posterior():
    return repeated(60, labels=[0, 0, 1, 1, 1], mu=[2.0, -2.0, 0.0, 0.0])


@pytest.fixture(scope="module")
def density(posterior):
    return dp.mixture_density(posterior, normal_mixture(5), GRID, random_seed=1)


def test_density(density):
    ax = dp.plot_density(density, n_draws=3, label="mine", ls="--")
    *draws, mean = ax.lines
    assert len(draws) == 3
    np.testing.assert_array_equal(draws[0].get_ydata(), density["density"].values[0, 0])
    np.testing.assert_array_equal(mean.get_xydata(), np.stack([GRID, density["mean"]], axis=1))
    assert (mean.get_label(), mean.get_linestyle()) == ("mine", "--")
    wide, narrow = ax.collections
    assert wide.get_label() == "90% simultaneous band"
    assert narrow.get_label() == "90% pointwise band"
    for drawn, prefix in ((wide, "simultaneous_"), (narrow, "")):
        corners = drawn.get_paths()[0].vertices
        assert corners[:, 1].max() == density[f"{prefix}upper"].max()
        assert corners[:, 1].min() == density[f"{prefix}lower"].min()


def test_density_on_axes_that_are_given(density):
    ax = plt.figure().subplots()
    assert dp.plot_density(density, band="none", ax=ax) is ax
    assert not ax.collections
    assert len(dp.plot_density(density, band="pointwise").collections) == 1


def test_what_is_drawn_afterwards_is_not_cut_off(density):
    """Axes fit the density, from zero, until something larger is on them."""
    ax = dp.plot_density(density)
    assert ax.get_autoscalex_on() and ax.get_autoscaley_on()
    assert ax.get_ylim()[0] == 0 and ax.get_xlim() == (GRID[0], GRID[-1])
    tallest = 3 * float(density["simultaneous_upper"].max())
    ax.bar([GRID[-1] + 2], [tallest])
    assert ax.get_ylim()[0] == 0 and ax.get_ylim()[1] > tallest
    assert ax.get_xlim()[0] == GRID[0] and ax.get_xlim()[1] > GRID[-1] + 2


def test_limits_that_are_set_stay(density):
    ax = plt.figure().subplots()
    ax.set_ylim(-1, 2)
    dp.plot_density(density, ax=ax)
    assert ax.get_ylim() == (-1, 2)


def test_whole_numbers_have_probabilities():
    """Points, and a box for each band of each, in place of a curve."""
    with pm.Model() as model:
        labels = dp.ChineseRestaurantProcess("labels", concentration=1, shape=5, max_components=4)
        rate = pm.Gamma("rate", 2, 0.5, shape=4)
        pm.Poisson("y", rate[labels])
    idata = repeated(60, labels=[0, 0, 1, 1, 1], rate=[2.0, 9.0, 1.0, 1.0])
    found = dp.mixture_density(idata, model, np.arange(25.0), random_seed=1)
    assert 0.9 < float(found["mean"].sum()) < 1.0
    ax = dp.plot_density(found, n_draws=2)
    assert ax.get_ylabel() == "probability"
    *draws, mean = ax.lines
    assert len(draws) == 2 and all(line.get_linestyle() == "None" for line in ax.lines)
    np.testing.assert_array_equal(mean.get_xydata(), np.stack([found["point"], found["mean"]], axis=1))
    assert not ax.collections
    for boxes, prefix in zip(ax.containers, ("simultaneous_", ""), strict=True):
        ends = np.array([[b.get_y(), b.get_y() + b.get_height()] for b in boxes])
        np.testing.assert_allclose(ends.T, [found[f"{prefix}lower"], found[f"{prefix}upper"]])
        assert all(b.get_width() == pytest.approx(0.8) for b in boxes)
    assert ax.get_ylim()[0] == 0
    assert ax.get_xlim()[0] < 0 and ax.get_xlim()[1] > 24
    one = dp.plot_density(dp.mixture_density(idata, model, [3], random_seed=1))
    assert one.patches[0].get_width() == pytest.approx(0.8)
    taught = dp.informativeness(idata, model, np.arange(25), n_prior=50, random_seed=1)
    assert dp.plot_informativeness(taught)[0].get_ylabel() == "probability"


@pytest.mark.parametrize("n", [1, 2, 30, 60])
def test_similarity_shows_similar_records_side_by_side(rng, n):
    centre = rng.integers(0, 3, n)
    labels = np.where(rng.random((100, n)) < 0.1, rng.integers(0, 6, (100, n)), centre)
    idata = tree(labels=labels[None])
    similarity, partition = dp.similarity_matrix(idata), dp.point_partition(idata)
    ax = dp.plot_similarity(similarity, partition=partition)
    shown = np.asarray(ax.images[0].get_array())
    np.testing.assert_allclose(np.sort(shown.sum(axis=0)), np.sort(similarity.values.sum(axis=0)))
    # a square for each cluster, of its size
    sizes = [np.ptp(line.get_xdata()) for line in ax.lines]
    assert sorted(sizes) == sorted(np.bincount(partition))
    if n > 2:
        beside = np.diagonal(shown, 1).mean()
        assert beside > np.diagonal(similarity.values, 1).mean()
    if 2 < n <= 40:
        names = [int(t.get_text()) for t in ax.get_xticklabels()]
        np.testing.assert_array_equal(shown, similarity.values[np.ix_(names, names)])
    bare = dp.plot_similarity(similarity, colorbar=False, ax=plt.figure().subplots())
    assert len(bare.figure.axes) == 1


def test_informativeness(posterior):
    found = dp.informativeness(posterior, normal_mixture(5), GRID, n_prior=50, random_seed=1)
    above, below = dp.plot_informativeness(found)
    np.testing.assert_array_equal(above.lines[1].get_ydata(), found["posterior_mean"])
    np.testing.assert_array_equal(below.lines[0].get_ydata(), found["distance"])
    corners = below.collections[0].get_paths()[0].vertices
    assert corners[:, 1].max() == np.minimum(found["distance"] + found["distance_mcse"], 1).max()
    assert corners[:, 1].min() == np.maximum(found["distance"] - found["distance_mcse"], 0).min()
    assert below.lines[1].get_label() == f"of the mean densities: {float(found['overall']):.2f}"
    given = plt.figure().subplots(2)
    assert list(dp.plot_informativeness(found, axes=given)) == list(given)
    with pytest.raises(ValueError, match="axes must be two, one above the other, got 1"):
        dp.plot_informativeness(found, axes=given[0])


def test_informativeness_of_too_few_draws(posterior):
    """Gaps, not zeros."""
    few = posterior.isel(draw=slice(None, 8))
    with pytest.warns(UserWarning, match="At 11 of 11 points"):
        found = dp.informativeness(few, normal_mixture(5), GRID, n_prior=50, random_seed=1)
    assert np.isnan(found["distance"]).all()
    above, below = dp.plot_informativeness(found)
    assert np.isnan(below.lines[0].get_ydata()).all() and np.isfinite(below.lines[1].get_ydata()).all()
    above.figure.canvas.draw()


def test_bad_input(density):
    with pytest.raises(TypeError, match=r"the xarray\.Dataset that dp\.mixture_density returns"):
        dp.plot_density(density["mean"])
    with pytest.raises(ValueError, match="density has no density and no upper"):
        dp.plot_density(density.drop_vars(["density", "upper"]))
    with pytest.raises(ValueError, match="band must be 'both'"):
        dp.plot_density(density, band="wide")
    with pytest.raises(ValueError, match="n_draws must be a whole number"):
        dp.plot_density(density, n_draws=-1)
    with pytest.raises(ValueError, match="on points of several numbers, which have no picture"):
        dp.plot_density(density.assign_coords(grid=("point", GRID)))
    with pytest.raises(TypeError, match=r"similarity must be the xarray\.DataArray"):
        dp.plot_similarity(np.eye(3))
    square = xr.DataArray(np.eye(3), dims=("a", "b"))
    with pytest.raises(ValueError, match=r"one row and one column for each record, got shape \(2, 3\)"):
        dp.plot_similarity(square[:2])
    with pytest.raises(ValueError, match=r"one label for each of 3 records, got shape \(2,\)"):
        dp.plot_similarity(square, partition=[0, 1])
    with pytest.raises(ValueError, match="informativeness has no distance"):
        dp.plot_informativeness(density)
