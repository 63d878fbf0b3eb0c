"""A normal approximation of a posterior that was paid for: what private steps may take from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pymc_dp.privacy.costs import GaussianCost


@dataclass(frozen=True, eq=False)
class NormalApproximation:
    r"""Normal approximation of the posterior given confidential rows, as it was released.

    Made by :func:`~pymc_dp.normal_approximation`. All of it is private and may be shown.

    Parameters
    ----------
    likelihood : str
        Name of the confidential likelihood.
    names : tuple of str
        The values that PyMC samples, in the order of the d numbers.
    shapes : tuple of tuple of int
        Their shapes.
    mean : ndarray, shape (d,)
        Where the noisy gradient of the log posterior vanishes.
    covariance : ndarray, shape (d, d)
        Inverse of the noisy curvature there.
    information : ndarray, shape (d, d)
        Mean outer product of the rows' gradients, the estimate of the information of one row. Its quadratic
        form is the square of the distance between parameters in which rows are clipped.
    clip : float
        Bound of a row's change of log likelihood per unit of that distance.
    clip_gradient : float
        Bound of the norm of a row's gradient, measured against the information.
    costs : tuple of GaussianCost
        What it cost. :func:`~pymc_dp.with_privacy` adds them to those of the steps that use it.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_dp as dp
    >>> one = np.eye(1)
    >>> dp.NormalApproximation("x", ("mu",), ((),), np.zeros(1), 0.01 * one, one, clip=2.5, clip_gradient=3.5)
    <normal approximation of mu given 'x'>
    """

    likelihood: str
    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    mean: np.ndarray
    covariance: np.ndarray
    information: np.ndarray
    clip: float
    clip_gradient: float
    costs: tuple[GaussianCost, ...] = ()

    def __post_init__(self) -> None:
        for array in (self.mean, self.covariance, self.information):
            array.flags.writeable = False

    def start(self, rng: Any = None) -> dict[str, np.ndarray]:
        """Draw a starting point, for ``initvals`` of ``pm.sample``.

        A chain that starts from it needs no burn-in as far as the approximation holds.

        Parameters
        ----------
        rng : optional
            Seed or generator.

        Returns
        -------
        dict of str to ndarray
        """
        z = np.random.default_rng(rng).standard_normal(len(self.mean))
        theta = self.mean + np.linalg.cholesky(self.covariance) @ z
        ends = np.cumsum([int(np.prod(shape)) for shape in self.shapes])
        parts = np.split(theta, ends[:-1])
        return {name: part.reshape(shape) for name, shape, part in zip(self.names, self.shapes, parts)}

    def __repr__(self) -> str:
        return f"<normal approximation of {', '.join(self.names)} given '{self.likelihood}'>"
