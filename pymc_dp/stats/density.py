"""The density of one more record under a mixture, with credible bands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from pymc.model.core import Model

from pymc_dp.stats._components import density_draws, posterior_states
from pymc_dp.stats._convergence import effective_draws, r_hat
from pymc_dp.stats._draws import SAMPLE_DIMS, posterior_of, thinned
from pymc_dp.stats._predictive import PredictiveMixture, mixture_of
from pymc_dp.stats._weights import warn_of_undivided
from pymc_dp.stats.bands import pointwise_band, simultaneous_band


def mixture_density(
    idata: Any,
    model: Model,
    grid: Any,
    *,
    labels: str | None = None,
    covariates: Mapping[str, Any] | None = None,
    n_draws: int | None = None,
    prob: float = 0.9,
    tolerance: float = 1e-3,
    random_seed: Any = None,
) -> xr.Dataset:
    r"""Draw the density of a mixture from its posterior, with credible bands.

    The samplers integrate the weights of the mixture out, but their law given the labels is known: with k
    clusters of :math:`n_1, \ldots, n_k` records, concentration :math:`\alpha` and discount d, the weights of
    the clusters and the total weight of all further components are

    .. math:: \operatorname{Dirichlet}(n_1 - d, \ldots, n_k - d, \alpha + k d)

    and the further components divide their total like an independent process with concentration
    :math:`\alpha + k d`: by stick breaking, with atoms from the base measure. So every draw of labels and
    atoms gives a draw of the density

    .. math:: f(y) = \sum_h w_h\, f(y \mid \theta_h)

    whichever sampler it comes from. A mixture of K components, each with a Dirichlet parameter g, is the case
    :math:`d = -g`, :math:`\alpha = K g`.

    Parameters
    ----------
    idata : xarray.DataTree
        The result of ``pm.sample``, with draws of labels, atoms, and the parameters on which their laws and
        the law of the records depend.
    model : pymc.Model
        The model that was sampled.
    grid : array_like, shape (G,)
        Points at which the density is evaluated; of shape (G, d) where a record has d numbers.
    labels : str, optional
        Name of the labels, if the model has several mixtures.
    covariates : mapping of str to array_like, optional
        Where the records' law depends on ``pm.Data`` with a row per record: by name, the row of the record
        whose density is computed.
    n_draws : int, optional
        Use about `n_draws` draws, evenly spaced; all by default.
    prob : float, default 0.9
        Probability of the bands, between 0 and 1.
    tolerance : float, default 1e-3
        Once the remaining weight is below this, one last component gets it.
    random_seed : int, numpy.random.Generator or array_like, optional
        Seed for weights and atoms of further components.

    Returns
    -------
    xarray.Dataset
        ``density`` (chain, draw, point): draws. ``mean`` (point): the posterior mean, from the expected
        weights given labels, which is the predictive density of one more record. ``lower`` and ``upper``
        (point): equal-tailed credible band, at every point by itself. ``simultaneous_lower`` and
        ``simultaneous_upper`` (point): the band that contains a share `prob` of the draws entirely. ``ess``
        (point): effective draws of the density's mean. ``mcse`` (point): Monte Carlo standard error of the
        mean of ``density``; that of ``mean`` is smaller, since it has no noise of weights. ``r_hat`` (point):
        whether chains agree on the density; nan for a single chain. The coordinate of ``point`` is `grid`.

    Raises
    ------
    TypeError
        An argument is not of the right kind.
    ValueError
        The model has no mixture, or several of which `labels` names none; `idata` lacks labels, atoms or
        parameters; `grid` has another shape than the records or is not finite; the law of the records depends
        on a value per record that `covariates` does not give, or is not defined at some atoms in the support
        of the base measure; or a number is out of its range.
    NotImplementedError
        PyMC does not know the log density of the records' law.

    Warns
    -----
    UserWarning
        Thousands of sticks did not reach the tolerance, because the discount is near 1.

    Notes
    -----
    This is the density of a *record*, before the mechanism adds noise, and before any clamping.

    The simultaneous band spans the draws that are least extreme by their ranks (Myllymäki et al. 2017), so
    that long tails of the density's law at some points do not widen the band at others. It needs hundreds of
    draws: with few, nearly every draw is the most extreme one at some point.

    References
    ----------
    Pitman (1996), *Some developments of the Blackwell-MacQueen urn scheme*, section 4, for the law of the
    weights given a partition; Beraha, Favaro & Rao, "MCMC for Bayesian nonparametric mixture
    modeling under differential privacy";
    Myllymäki et al. (2017), "Global envelope tests for spatial processes".

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
    ...     idata = pm.sample(200, tune=200, chains=1, progressbar=False, random_seed=1)
    >>> density = dp.mixture_density(idata, model, np.linspace(-8, 8, 33), random_seed=1)
    >>> density["density"].sizes
    Frozen({'chain': 1, 'draw': 200, 'point': 33})
    >>> bool((density["lower"] <= density["upper"]).all())
    True
    """
    checked_number("prob", prob, 0.9)
    checked_number("tolerance", tolerance, 0.001)
    mixture = PredictiveMixture(model, mixture_of(model, labels), grid, covariates)
    names = [str(mixture.mixture.labels.name), *mixture.atoms, *mixture.parameters]
    posterior = thinned(posterior_of(idata, names), n_draws)
    rng = np.random.default_rng(random_seed)
    mixture.seed(int(rng.integers(2**31)))
    draws, mean, undivided = density_draws(mixture, posterior_states(mixture, posterior), rng, tolerance)
    warn_of_undivided(undivided, tolerance)
    chains = draws.reshape(posterior.sizes["chain"], posterior.sizes["draw"], -1)
    effective = effective_draws(chains)
    result = xr.Dataset(
        {
            "density": ((*SAMPLE_DIMS, "point"), chains),
            "mean": ("point", mean),
            "ess": ("point", effective),
            "mcse": ("point", chains.std(axis=(0, 1)) / np.sqrt(effective)),
            "r_hat": ("point", r_hat(chains)),
        },
        coords={
            **{d: posterior[d].values for d in SAMPLE_DIMS if d in posterior.coords},
            **coordinates(mixture.grid),
        },
        attrs={"prob": float(prob), "records": str(mixture.mixture.kernel.name)},  # type: ignore[attr-defined]
    )
    for prefix, band in (("", pointwise_band), ("simultaneous_", simultaneous_band)):
        for name, values in zip(("lower", "upper"), band(draws, prob), strict=True):
            result[prefix + name] = ("point", values)
    return result


def coordinates(grid: np.ndarray) -> dict[str, Any]:
    """Return the coordinates of the points: the points, or their indices if a point has several numbers."""
    if grid.ndim == 1:
        return {"point": grid}
    return {
        "point": np.arange(len(grid)),
        "grid": (("point", *(f"axis_{j}" for j in range(1, grid.ndim))), grid),
    }


def checked_number(name: str, value: Any, such_as: float) -> None:
    """Refuse anything but a number between 0 and 1."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        raise TypeError(f"{name} must be a number, got {type(value).__name__}: give one such as {such_as:g}.")
    if not 0 < value < 1:
        raise ValueError(f"{name} must be between 0 and 1, got {value!r}: give a number such as {such_as:g}.")
