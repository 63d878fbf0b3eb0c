"""Posteriors in closed form or on a grid, for whoever takes the numbers in hand as exact.

Given exact numbers they are the non-private analysis; given noisy ones, the naive analysis, which
pretends that there is no noise.
"""

import numpy as np
from rand_custodian import MOST_VISITS, ReportsRelease, SumsRelease
from scipy import stats

COUNTS = np.arange(MOST_VISITS + 1)


def cross_products(release: SumsRelease) -> tuple[np.ndarray, np.ndarray, float]:
    """Return X'X, X'y and y'y for the columns 1, pays, disease."""
    pays, disease, disease2, visits, visits2, pays_d, pays_v, disease_v = release.values
    n = release.n
    xx = np.array([[n, pays, disease], [pays, n / 4, pays_d], [disease, pays_d, disease2]])
    return xx, np.array([visits, pays_v, disease_v]), visits2


def regression(release: SumsRelease, draws: int = 4000) -> dict[str, np.ndarray]:
    """Normal linear regression under the usual flat prior, from sums taken as exact.

    Returns
    -------
    dict
        ``beta`` (draws, 3) and ``sigma`` (draws,); nan where the sums contradict each other, as
        noisy sums may.
    """
    xx, xy, yy = cross_products(release)
    freedom = release.n - 3
    rng = np.random.default_rng(0)
    if np.linalg.eigvalsh(xx)[0] <= 0 or yy - xy @ np.linalg.solve(xx, xy) <= 0:
        return {"beta": np.full((draws, 3), np.nan), "sigma": np.full(draws, np.nan)}
    centre = np.linalg.solve(xx, xy)
    sigma = np.sqrt((yy - xy @ centre) / rng.chisquare(freedom, size=draws))
    root = np.linalg.cholesky(np.linalg.inv(xx))
    beta = centre + sigma[:, None] * (rng.normal(size=(draws, 3)) @ root.T)
    return {"beta": beta, "sigma": sigma}


def visits_probabilities(mean: np.ndarray, shape: np.ndarray) -> np.ndarray:
    """Negative binomial probabilities of 0, 1, ..., and of "so many or more" at the end."""
    mean, shape = np.asarray(mean)[..., None], np.asarray(shape)[..., None]
    head = stats.nbinom.pmf(COUNTS[:-1], shape, shape / (shape + mean))
    return np.concatenate([head, 1 - head.sum(axis=-1, keepdims=True)], axis=-1)


# The prior of both parameters, as in the analyst's model: log-normal.
PRIOR = {"mean": (np.log(3), 1.0), "shape": (0.0, 1.0)}
_MEAN, _SHAPE = np.meshgrid(np.linspace(0.5, 9.0, 400), np.geomspace(0.1, 6.0, 200), indexing="ij")
_PROBABILITIES = visits_probabilities(_MEAN, _SHAPE).reshape(-1, COUNTS.size)
_LOG = np.log(np.maximum(_PROBABILITIES, 1e-300))
# Cells have equal width in the mean and in the log of the shape.
_LOG_PRIOR = (
    stats.norm.logpdf(np.log(_MEAN), *PRIOR["mean"])
    - np.log(_MEAN)
    + stats.norm.logpdf(np.log(_SHAPE), *PRIOR["shape"])
).ravel()


def visits(release: ReportsRelease, draws: int = 4000) -> dict[str, np.ndarray]:
    """Negative binomial model of numbers of visits taken as exact: draws from a grid.

    Reports that no person could have made are rounded to the nearest number that one could.

    Returns
    -------
    dict
        ``mean`` and ``shape``, (draws,).
    """
    possible = np.clip(np.round(release.values), 0, MOST_VISITS).astype(int)
    log_density = _LOG_PRIOR + _LOG @ np.bincount(possible, minlength=COUNTS.size)
    return _draw(log_density, draws)


def visits_given_noise(release: ReportsRelease, draws: int = 4000) -> dict[str, np.ndarray]:
    """The same model with the noise in the likelihood, on the grid: the answer for the tests."""
    scale = MOST_VISITS / release.epsilon
    distance = np.abs(release.values[:, None] - COUNTS) / scale
    noise = np.exp(distance.min(axis=1, keepdims=True) - distance)
    log_density = _LOG_PRIOR.copy()
    for row in noise:  # one person at a time keeps the memory small
        log_density += np.log(_PROBABILITIES @ row)
    return _draw(log_density, draws)


def _draw(log_density: np.ndarray, draws: int) -> dict[str, np.ndarray]:
    weights = np.exp(log_density - log_density.max())
    rng = np.random.default_rng(0)
    cells = rng.choice(weights.size, size=draws, p=weights / weights.sum())
    return {"mean": _MEAN.ravel()[cells], "shape": _SHAPE.ravel()[cells]}
