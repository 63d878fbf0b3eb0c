"""Plots of mixtures: density with bands, similarity of records, and the informativeness of a release."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy
import xarray as xr

from pymc_dp.plots._axes import fit_to, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# With more records than this, their names are left out of a plot.
_NAMED_RECORDS = 40

# The style of a probability mass function: a line would say that there is something between whole numbers.
_POINTS: dict[str, Any] = {"ls": "", "marker": "o", "ms": 4}


def plot_density(
    density: xr.Dataset,
    *,
    band: str = "both",
    n_draws: int = 0,
    color: str = "C0",
    label: str | None = None,
    ax: Axes | None = None,
    **kwargs: Any,
) -> Axes:
    """Plot the posterior mean of a mixture's density, with credible bands.

    Records of whole numbers have probabilities: these are points, each in a box for each band.

    Parameters
    ----------
    density : xarray.Dataset
        The result of :func:`mixture_density`, on a grid of numbers.
    band : {"both", "pointwise", "simultaneous", "none"}, default "both"
        The bands to draw; the pointwise band is darker, the simultaneous one lighter.
    n_draws : int, default 0
        Number of draws of the density to draw as thin lines.
    color : str, default "C0"
    label : str, optional
        Label of the line in the legend; "posterior mean" by default.
    ax : matplotlib.axes.Axes, optional
        Axes to plot on; by default those of a new figure.
    **kwargs
        Options of the line of the mean, as for ``Axes.plot``.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    TypeError
        `density` is no dataset.
    ValueError
        `density` is not from :func:`mixture_density`, its points have several numbers, or `band` is not
        known.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_dp as dp
    >>> with pm.Model() as model:
    ...     labels = dp.ChineseRestaurantProcess("labels", concentration=1, shape=6, max_components=6)
    ...     mu = pm.Normal("mu", 0, 3, shape=6)
    ...     y = pm.Normal("y", mu[labels], 1)
    ...     z = dp.LaplaceMechanism("z", y, epsilon=20, bounds=(-10, 10), observed=[-4, -3, -3, 2, 3, 3])
    ...     idata = pm.sample(100, tune=100, chains=1, progressbar=False, random_seed=1)
    >>> density = dp.mixture_density(idata, model, np.linspace(-8, 8, 33), random_seed=1)
    >>> ax = dp.plot_density(density)
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('y', 'density')
    """
    _check(density, ("density", "mean", "lower", "upper"), "density", "dp.mixture_density")
    if band not in ("both", "pointwise", "simultaneous", "none"):
        raise ValueError(f"band must be 'both', 'pointwise', 'simultaneous' or 'none', got {band!r}.")
    if isinstance(n_draws, bool) or not isinstance(n_draws, int | np.integer) or n_draws < 0:
        raise ValueError(f"n_draws must be a whole number of at least 0, got {n_draws!r}.")
    ax = new_axes()[0] if ax is None else ax
    x, prob = density["point"].values, density.attrs["prob"]
    # points have the dtype of the records
    whole = x.dtype.kind in "iu"
    width = 0.8 * min(np.diff(np.unique(x)), default=1)
    for kind, prefix, alpha in (("simultaneous", "simultaneous_", 0.2), ("pointwise", "", 0.35)):
        if band in (kind, "both"):
            lower, upper = density[f"{prefix}lower"].values, density[f"{prefix}upper"].values
            shown: dict[str, Any] = {
                "color": color,
                "alpha": alpha,
                "lw": 0,
                "label": f"{prob:.0%} {kind} band",
            }
            if whole:
                ax.bar(x, upper - lower, width, bottom=lower, **shown)
            else:
                ax.fill_between(x, lower, upper, **shown)
    draws = density["density"].values.reshape(-1, len(x))
    for i in np.arange(min(n_draws, len(draws))) * len(draws) // max(min(n_draws, len(draws)), 1):
        ax.plot(x, draws[i], color=color, alpha=0.4, lw=0.5, **(_POINTS | {"ms": 2} if whole else {}))
    own = {"color": color, "label": label or "posterior mean", **(_POINTS if whole else {})}
    (mean,) = ax.plot(x, density["mean"].values, **{**own, **kwargs})
    ax.set(xlabel=density.attrs["records"], ylabel="probability" if whole else "density")
    fit_to(ax, mean, ends=not whole)
    ax.legend(frameon=False)
    return ax


def plot_similarity(
    similarity: xr.DataArray,
    *,
    partition: Any = None,
    colorbar: bool = True,
    cmap: str = "Blues",
    ax: Axes | None = None,
) -> Axes:
    """Plot the probabilities that records are in one cluster, similar records side by side.

    Parameters
    ----------
    similarity : xarray.DataArray, shape (n, n)
        The result of :func:`similarity_matrix`.
    partition : array_like of int, shape (n,), optional
        A partition, such as that of :func:`point_partition`; its clusters are shown as squares along the
        diagonal.
    colorbar : bool, default True
    cmap : str, default "Blues"
    ax : matplotlib.axes.Axes, optional
        Axes to plot on; by default those of a new figure.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    TypeError
        `similarity` is no array.
    ValueError
        `similarity` is not square, or `partition` has another length.

    Examples
    --------
    >>> import numpy as np
    >>> import xarray as xr
    >>> import pymc_dp as dp
    >>> draws = np.random.default_rng(1).integers(0, 2, (1, 50, 8))
    >>> posterior = xr.Dataset({"labels": (("chain", "draw", "record"), draws)})
    >>> idata = xr.DataTree.from_dict({"posterior": posterior})
    >>> ax = dp.plot_similarity(dp.similarity_matrix(idata), partition=dp.point_partition(idata))
    >>> ax.get_xlabel()
    'record'
    """
    if not isinstance(similarity, xr.DataArray):
        raise TypeError(
            "similarity must be the xarray.DataArray that dp.similarity_matrix returns, got "
            f"{type(similarity).__name__}."
        )
    if similarity.ndim != 2 or similarity.shape[0] != similarity.shape[1]:
        raise ValueError(
            f"similarity must have one row and one column for each record, got shape {similarity.shape}: "
            "give what dp.similarity_matrix returns."
        )
    n = len(similarity)
    order = _side_by_side(similarity.values)
    if partition is not None:
        clusters = np.asarray(partition)
        if clusters.shape != (n,):
            raise ValueError(
                f"partition must have one label for each of {n} records, got shape {clusters.shape}: give "
                "what dp.point_partition returns."
            )
        # clusters are placed one after another, by the mean place of their records
        place = np.argsort(order)
        _, of = np.unique(clusters, return_inverse=True)
        middle = np.bincount(of, place) / np.bincount(of)
        order = np.lexsort((place, of, middle[of]))
    ax = new_axes(size=(5.5, 4.8))[0] if ax is None else ax
    values = similarity.values[np.ix_(order, order)]
    image = ax.imshow(values, vmin=0, vmax=1, cmap=cmap, interpolation="nearest")
    if colorbar:
        ax.figure.colorbar(image, ax=ax, label="probability of one cluster", shrink=0.8)
    if partition is not None:
        starts = np.flatnonzero(np.diff(clusters[order], prepend=clusters[order][0] - 1))
        for start, stop in zip(starts, np.append(starts[1:], n), strict=True):
            ends = np.array([start, stop, stop, start, start]) - 0.5
            ax.plot(ends, ends[[0, 0, 1, 1, 0]], color="C3", lw=1)
    record = str(similarity.dims[0])
    if n <= _NAMED_RECORDS:
        names = similarity[record].values[order] if record in similarity.coords else order
        ax.set_xticks(range(n), names, rotation=90)
        ax.set_yticks(range(n), names)
    else:
        ax.set(xticks=[], yticks=[])
    ax.set(xlabel="record", ylabel="record")
    return ax


def plot_informativeness(informativeness: xr.Dataset, *, color: str = "C0", axes: Any = None) -> np.ndarray:
    """Plot the prior and posterior mean densities, and below them the distances of prior and posterior.

    The line of the distance has gaps where there are too few effective draws to estimate it.

    Parameters
    ----------
    informativeness : xarray.Dataset
        The result of :func:`informativeness`, on a grid of numbers.
    color : str, default "C0"
    axes : sequence of two matplotlib.axes.Axes, optional
        Axes to plot on; by default those of a new figure.

    Returns
    -------
    ndarray of matplotlib.axes.Axes, shape (2,)

    Raises
    ------
    TypeError
        `informativeness` is no dataset.
    ValueError
        `informativeness` is not from :func:`informativeness`, its points have several numbers, or `axes` are
        not two.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_dp as dp
    >>> with pm.Model() as model:
    ...     labels = dp.ChineseRestaurantProcess("labels", concentration=1, shape=6, max_components=6)
    ...     mu = pm.Normal("mu", 0, 3, shape=6)
    ...     y = pm.Normal("y", mu[labels], 1)
    ...     z = dp.LaplaceMechanism("z", y, epsilon=20, bounds=(-10, 10), observed=[-4, -3, -3, 2, 3, 3])
    ...     idata = pm.sample(100, tune=100, chains=1, progressbar=False, random_seed=1)
    >>> taught = dp.informativeness(idata, model, np.linspace(-8, 8, 33), random_seed=1)
    >>> above, below = dp.plot_informativeness(taught)
    >>> below.get_ylabel()
    'Hellinger distance'
    """
    _check(
        informativeness,
        ("distance", "distance_mcse", "prior_mean", "posterior_mean"),
        "informativeness",
        "dp.informativeness",
    )
    axes = new_axes(2) if axes is None else np.atleast_1d(axes)
    if len(axes) != 2:
        raise ValueError(f"axes must be two, one above the other, got {len(axes)}.")
    above, below = axes
    x = informativeness["point"].values
    whole = x.dtype.kind in "iu"
    style = _POINTS if whole else {}
    prior = informativeness["prior_mean"].values
    above.plot(x, prior, **{"color": "0.4", "ls": "--", "label": "prior mean", **style})
    (mean,) = above.plot(
        x, informativeness["posterior_mean"].values, color=color, label="posterior mean", **style
    )
    above.set(ylabel="probability" if whole else "density")
    fit_to(above, mean)
    above.legend(frameon=False)
    overall = float(informativeness["overall"])
    distance, error = informativeness["distance"].values, informativeness["distance_mcse"].values
    (line,) = below.plot(x, distance, color=color, label="of the density's laws, at a point")
    below.fill_between(
        x, np.maximum(distance - error, 0), np.minimum(distance + error, 1), color=color, alpha=0.25, lw=0,
        label="plus and minus a standard error",
    )  # fmt: skip
    below.axhline(overall, color="0.4", ls=":", label=f"of the mean densities: {overall:.2f}")
    below.set(xlabel=informativeness.attrs["records"], ylabel="Hellinger distance", ylim=(0, 1))
    fit_to(below, line)
    below.legend(frameon=False)
    return np.array([above, below])


def _check(given: Any, names: tuple[str, ...], argument: str, source: str) -> None:
    if not isinstance(given, xr.Dataset):
        raise TypeError(
            f"{argument} must be the xarray.Dataset that {source} returns, got {type(given).__name__}."
        )
    missing = [name for name in names if name not in given]
    if missing or "point" not in given.coords:
        raise ValueError(
            f"{argument} has no {' and no '.join(missing or ['point'])}: give what {source} returns."
        )
    if "grid" in given.coords:
        raise ValueError(
            f"{argument} is on points of several numbers, which have no picture: plot {names[0]} yourself, "
            "along a line or on a plane. The density of one number is that of a model of it alone, with the "
            "same labels and atoms."
        )


def _side_by_side(similarity: np.ndarray) -> np.ndarray:
    """Return an order of the records in which similar ones are near each other."""
    n = len(similarity)
    if n < 3:
        return np.arange(n)
    distance = scipy.spatial.distance.squareform(1.0 - (similarity + similarity.T) / 2, checks=False)
    tree = scipy.cluster.hierarchy.linkage(np.maximum(distance, 0.0), "average", optimal_ordering=n <= 500)
    order: np.ndarray = scipy.cluster.hierarchy.leaves_list(tree)
    return order
