"""How informative a release is: the density of the records under the prior and under the posterior."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from pymc.model.core import Model

from pymc_dp.stats._components import density_draws, posterior_states, prior_states
from pymc_dp.stats._convergence import effective_draws, r_hat
from pymc_dp.stats._draws import posterior_of, thinned
from pymc_dp.stats._predictive import PredictiveMixture, mixture_of
from pymc_dp.stats._weights import warn_of_undivided
from pymc_dp.stats.density import checked_number, coordinates

# With fewer effective draws, a distance depends more on their number than on the laws. For a normal law that
# is a standard deviation off the prior, 20 draws give a distance of 0 once in twenty times, 10 draws once in
# six.
_FEWEST = 20


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

    Under strong privacy the posterior of the density returns to its prior, and a smooth curve in a plot may
    show nothing but the prior. Two Hellinger distances measure what was learnt; both are at most 1, and 0
    where nothing was learnt.

    *At every point* x, f(x) is a random variable, with a law under the prior and one under the posterior;
    with densities p and q, their distance is

    .. math:: \Big(1 - \int \sqrt{p(t)\, q(t)}\, dt\Big)^{1/2}

    *Overall*, the distance of the prior mean density :math:`\bar f_0` from the posterior mean density
    :math:`\bar f`, :math:`\big(\tfrac12 \int (\sqrt{\bar f_0} - \sqrt{\bar f})^2\big)^{1/2}` over the grid.

    Parameters
    ----------
    idata : xarray.DataTree
        The result of ``pm.sample``, as for :func:`mixture_density`.
    model : pymc.Model
        The model that was sampled.
    grid : array_like, shape (G,)
        Points, in increasing order, which should cover the mass of the densities. The shape is (G, d) where a
        record has d numbers; then there is no overall distance.
    labels : str, optional
        Name of the labels, where the model has several mixtures.
    covariates : mapping of str to array_like, optional
        As for :func:`mixture_density`.
    n_draws : int, optional
        Use about `n_draws` posterior draws, evenly spaced; all by default.
    n_prior : int, default 1000
        Number of draws from the prior.
    tolerance : float, default 1e-3
        As for :func:`mixture_density`.
    random_seed : int, numpy.random.Generator or array_like, optional

    Returns
    -------
    xarray.Dataset
        ``distance`` (point): the distance at every point; nan where there are fewer than 20 effective
        posterior draws. ``distance_mcse`` (point): its Monte Carlo standard error. ``ess`` and ``r_hat``
        (point): effective posterior draws of the density, and whether chains agree on it, as for
        :func:`mixture_density`. ``overall``: a number; nan where a point has several. ``prior_mean`` and
        ``posterior_mean`` (point). The coordinate of ``point`` is `grid`.

    Raises
    ------
    TypeError, ValueError, NotImplementedError
        As for :func:`mixture_density`; also if a potential is part of the prior, which then cannot be
        simulated.

    Warns
    -----
    UserWarning
        There are too few effective posterior draws at some points; or as for :func:`mixture_density`.

    Notes
    -----
    The laws at a point are compared by histograms of :math:`2 S^{1/3}` bins for S effective draws. Each bin
    contains equally many of all draws, so that a distance does not depend on the scale of densities. The bias
    of the affinity A from few draws is removed to first order, with the effective number of posterior draws;
    with S = 1000, equal laws still have distances of some hundredths. The standard error is
    :math:`\big((1 + A)(1 / S_0 + 1 / S) / 16\big)^{1/2}` with :math:`S_0` draws from the prior. A distance of
    less than two standard errors is no evidence that something was learnt, nor that nothing was.

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
    effective = effective_draws(chains)
    distance = _told(hellinger(before[0], after[0], effective), effective)
    return xr.Dataset(
        {
            "distance": ("point", distance),
            "distance_mcse": ("point", standard_error(distance, int(n_prior), effective)),
            "ess": ("point", effective),
            "r_hat": ("point", r_hat(chains)),
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
    """Return the Hellinger distance of two laws, at every point, from draws of both.

    Parameters
    ----------
    first, second : ndarray, shape (draws, points)
        The numbers of draws may differ.
    effective : ndarray, shape (points,), optional
        Effective number of draws in `second`; by default the number of draws.
    n_bins : int, optional
        By default 2 S^(1/3), where S is the smaller number of draws. For `second` that is the effective
        number, since with few effective draws in a bin the correction of the bias would remove the whole
        distance.

    Returns
    -------
    ndarray, shape (points,)
    """
    sizes = np.array([len(first), len(second)])
    draws = np.full(first.shape[1], float(sizes[1])) if effective is None else effective
    mass = np.repeat(0.5 / sizes, sizes)
    own = np.repeat([0, 1], sizes)
    affinity = np.empty(first.shape[1])
    for j in range(affinity.size):
        bins = n_bins or max(4, round(2 * min(float(sizes[0]), draws[j]) ** (1 / 3)))
        values = np.concatenate([first[:, j], second[:, j]])
        _, group = np.unique(values, return_inverse=True)
        # the middle of each value's range of ranks, in an equal mixture of both laws
        weight = np.bincount(group, mass)
        place = np.cumsum(weight) - weight / 2
        at = np.minimum((place * bins).astype(np.int64), bins - 1)[group]
        p, q = np.bincount(at + bins * own, minlength=2 * bins).reshape(2, bins) / sizes[:, None]
        both = p * q > 0
        p, q = p[both], q[both]
        # the square root of a share p of S draws has a relative bias of -(1 - p) / (8 S p)
        few = (1 - p) / (8 * sizes[0] * p) + (1 - q) / (8 * draws[j] * q)
        affinity[j] = (np.sqrt(p * q) * (1 + few)).sum()
    distances: np.ndarray = np.sqrt(np.clip(1 - affinity, 0.0, 1.0))
    return distances


def standard_error(distance: np.ndarray, n_first: int, effective: np.ndarray) -> np.ndarray:
    """Return the Monte Carlo standard error of a Hellinger distance, by the delta method.

    The affinity A of shares p and q has a variance of (1 - A^2) / 4, divided by the number of draws, from
    each of the two samples. The distance is the square root of 1 - A.
    """
    affinity = 1 - distance**2
    error: np.ndarray = np.sqrt((1 + affinity) / 16 * (1 / n_first + 1 / effective))
    return error


def _told(distance: np.ndarray, effective: np.ndarray) -> np.ndarray:
    """Return the distances, with nan where there are too few effective draws."""
    few = effective < _FEWEST
    if few.any():
        warnings.warn(
            f"At {few.sum()} of {few.size} points the posterior draws of the density are worth fewer than "
            f"{_FEWEST} independent ones (at worst {effective.min():.1f}), which is too few to tell its law "
            "from the prior's: distance is nan there. Sample longer; r_hat tells whether chains disagree.",
            UserWarning,
            stacklevel=3,
        )
    return np.where(few, np.nan, distance)


def _between_means(grid: np.ndarray, first: np.ndarray, second: np.ndarray) -> float:
    """Return the Hellinger distance of two densities over a grid, or of two lists of probabilities."""
    if grid.ndim > 1:
        return float("nan")
    gap = (np.sqrt(first) - np.sqrt(second)) ** 2 / 2
    square = gap.sum() if grid.dtype.kind in "iu" else np.trapezoid(gap, grid)
    return float(np.sqrt(min(float(square), 1.0)))
