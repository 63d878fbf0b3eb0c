"""How much a release taught: the density of the records under the prior and under the posterior."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import arviz as az
import numpy as np
import xarray as xr
from pymc.model.core import Model

from pymc_dp.stats._components import density_draws, posterior_states, prior_states
from pymc_dp.stats._draws import SAMPLE_DIMS, posterior_of, thinned
from pymc_dp.stats._predictive import PredictiveMixture, mixture_of
from pymc_dp.stats._weights import warn_of_undivided
from pymc_dp.stats.density import checked_number, coordinates


def informativeness(
    idata: Any,
    model: Model,
    grid: Any,
    *,
    labels: str | None = None,
    covariates: Mapping[str, Any] | None = None,
    n_draws: int | None = None,
    n_prior: int = 1000,
    tolerance: float = 1e-3,
    random_seed: Any = None,
) -> xr.Dataset:
    r"""Compare the density of a mixture under its prior and its posterior.

    Under strong privacy the posterior of the density goes back to its prior, and a smooth curve in a plot may
    be nothing but that. Two Hellinger distances tell, both 0 where nothing was learnt and at most 1.

    *At every point* x, f(x) is a random variable, with a law under the prior and one under the posterior;
    with densities p and q, their distance is

    .. math:: \Big(1 - \int \sqrt{p(t)\, q(t)}\, dt\Big)^{1/2}

    *Overall*, the distance of the prior mean density :math:`\bar f_0` from the posterior mean density
    :math:`\bar f`, :math:`\big(\tfrac12 \int (\sqrt{\bar f_0} - \sqrt{\bar f})^2\big)^{1/2}` over the grid.

    Parameters
    ----------
    idata : xarray.DataTree
        What ``pm.sample`` returned, as for :func:`mixture_density`.
    model : pymc.Model
        The model that was sampled.
    grid : array_like, shape (G,)
        Points, in increasing order; they should reach where the densities have their mass. Of shape (G, d)
        where a record has d numbers: then there is no overall distance.
    labels : str, optional
        Name of the labels, where the model has several mixtures.
    covariates : mapping of str to array_like, optional
        As for :func:`mixture_density`.
    n_draws : int, optional
        Use about so many posterior draws, evenly spaced; all by default.
    n_prior : int, default 1000
        Draws from the prior.
    tolerance : float, default 1e-3
        As for :func:`mixture_density`.
    random_seed : int, numpy.random.Generator or array_like, optional

    Returns
    -------
    xarray.Dataset
        ``distance`` (point): at every point. ``overall``: a number; nan where a point has several.
        ``prior_mean`` and ``posterior_mean`` (point). The coordinate of ``point`` is `grid`.

    Raises
    ------
    TypeError, ValueError, NotImplementedError
        As for :func:`mixture_density`; and if a potential is part of the prior, which then cannot be
        simulated.

    Notes
    -----
    The laws at a point are compared by histograms, of :math:`2 S^{1/3}` bins for S draws, that hold equally
    many of all draws each; so a distance does not depend on how densities are scaled. The bias that an
    affinity has from few draws is removed to first order, with the effective number of posterior draws; with
    S of 1000, what is left is distances of some hundredths where the laws are equal.

    The prior is that of all parameters before any data, including those that are not private.

    References
    ----------
    Beraha, Favaro & Rao, "MCMC for Bayesian nonparametric mixture
    modeling under differential privacy", section 4.1 and the last
    panel of figure 1, for the overall distance.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_dp as dp
    >>> def taught(epsilon):
    ...     z = [-4, -3, -3, 2, 3, 3]
    ...     with pm.Model() as model:
    ...         labels = dp.ChineseRestaurantProcess("labels", concentration=1, shape=6, max_components=6)
    ...         mu = pm.Normal("mu", 0, 3, shape=6)
    ...         y = pm.Normal("y", mu[labels], 1)
    ...         dp.LaplaceMechanism("z", y, epsilon=epsilon, bounds=(-10, 10), observed=z)
    ...         idata = pm.sample(200, tune=200, chains=1, progressbar=False, random_seed=1)
    ...     found = dp.informativeness(idata, model, np.linspace(-10, 10, 41), random_seed=1)
    ...     return float(found["overall"])
    >>> taught(0.1) < taught(50)
    True
    """
    checked_number("tolerance", tolerance, 0.001)
    if isinstance(n_prior, bool) or not isinstance(n_prior, int | np.integer) or n_prior < 10:
        raise ValueError(f"n_prior must be an integer of at least 10, got {n_prior!r}.")
    mixture = PredictiveMixture(model, mixture_of(model, labels), grid, covariates)
    if mixture.grid.ndim == 1 and np.any(np.diff(mixture.grid) <= 0):
        raise ValueError("grid must increase from point to point, but does not: sort it, and drop repeats.")
    names = [str(mixture.mixture.labels.name), *mixture.atoms, *mixture.parameters]
    posterior = thinned(posterior_of(idata, names), n_draws)
    rng = np.random.default_rng(random_seed)
    seeds = rng.integers(2**31, size=2)
    mixture.seed(int(seeds[0]))
    states = (prior_states(mixture, int(seeds[1]), int(n_prior)), posterior_states(mixture, posterior))
    before, after = (density_draws(mixture, s, rng, tolerance) for s in states)
    warn_of_undivided(max(before[2], after[2]), tolerance)
    chains = after[0].reshape(posterior.sizes["chain"], posterior.sizes["draw"], -1)
    distances = hellinger(before[0], after[0], effective_draws(chains))
    return xr.Dataset(
        {
            "distance": ("point", distances),
            "overall": _between_means(mixture.grid, before[1], after[1]),
            "prior_mean": ("point", before[1]),
            "posterior_mean": ("point", after[1]),
        },
        coords=coordinates(mixture.grid),
        attrs={"records": str(mixture.mixture.kernel.name)},  # type: ignore[attr-defined]
    )


def hellinger(
    first: np.ndarray, second: np.ndarray, effective: np.ndarray | None = None, n_bins: int | None = None
) -> np.ndarray:
    """Hellinger distance of two laws, at every point, from draws of both.

    Parameters
    ----------
    first, second : ndarray, shape (draws, points)
        The numbers of draws may differ.
    effective : ndarray, shape (points,), optional
        Effective number of draws in `second`; by default their number.
    n_bins : int, optional
        By default 2 S^(1/3), S being the smaller number of draws.

    Returns
    -------
    ndarray, shape (points,)
    """
    sizes = np.array([len(first), len(second)])
    bins = n_bins or max(4, round(2 * float(sizes.min()) ** (1 / 3)))
    mass = np.repeat(0.5 / sizes, sizes)
    own = np.repeat([0, bins], sizes)
    points = first.shape[1]
    shares = np.empty((points, 2, bins))
    for j in range(points):
        values = np.concatenate([first[:, j], second[:, j]])
        _, group = np.unique(values, return_inverse=True)
        # the middle of each value's place in the even mixture of both laws
        weight = np.bincount(group, mass)
        place = np.cumsum(weight) - weight / 2
        at = np.minimum((place * bins).astype(np.int64), bins - 1)[group]
        shares[j] = np.bincount(at + own, minlength=2 * bins).reshape(2, bins)
    shares /= sizes[:, None]
    p, q = shares[:, 0], shares[:, 1]
    draws = np.full(points, float(sizes[1])) if effective is None else effective
    root = np.sqrt(p * q)
    # sqrt of a share of S draws is too small by (1 - p) / (8 S p), relatively
    both = root > 0
    few = np.zeros_like(root)
    few[both] = ((1 - p) / (8 * sizes[0] * np.where(both, p, 1)))[both]
    few[both] += ((1 - q) / (8 * draws[:, None] * np.where(both, q, 1)))[both]
    affinity = (root * (1 + few)).sum(axis=1)
    distances: np.ndarray = np.sqrt(np.clip(1 - affinity, 0.0, 1.0))
    return distances


def effective_draws(chains: np.ndarray) -> np.ndarray:
    """Effective number of draws of a mean, at every point; their number where it cannot be estimated.

    Parameters
    ----------
    chains : ndarray, shape (chains, draws, points)
    """
    size = float(chains.shape[0] * chains.shape[1])
    if chains.shape[1] < 4:
        return np.full(chains.shape[2], size)
    found = az.ess(xr.Dataset({"f": ((*SAMPLE_DIMS, "point"), chains)}), method="mean")["f"].values
    return np.where(np.isfinite(found) & (found > 1), np.minimum(found, size), size)


def _between_means(grid: np.ndarray, first: np.ndarray, second: np.ndarray) -> float:
    """Hellinger distance of two densities over a grid, or of two lists of probabilities."""
    if grid.ndim > 1:
        return float("nan")
    gap = (np.sqrt(first) - np.sqrt(second)) ** 2 / 2
    square = gap.sum() if grid.dtype.kind in "iu" else np.trapezoid(gap, grid)
    return float(np.sqrt(min(float(square), 1.0)))
