"""A normal approximation of a posterior that was paid for: what private steps may take from it."""

from __future__ import annotations

from typing import Any

import numpy as np

from pymc_dp.privacy.costs import GaussianCost


class NormalApproximation:
    r"""Normal approximation of the posterior given confidential rows, as it was released.

    Made by :func:`~pymc_dp.normal_approximation`. All of it is private and may be shown. One that is made by
    hand costs what is said of it: without `costs`, make it of what is public. Nothing of it can be set or
    replaced, so that what was paid stays with it.

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
    insecure_noise : bool, default False
        Whether its noise came from a known seed: then nothing is promised of it, or of what uses it.

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
    costs: tuple[GaussianCost, ...]
    insecure_noise: bool

    # no dataclass: of those, copies can be made with another cost
    def __init__(
        self, likelihood: str, names: tuple[str, ...], shapes: tuple[tuple[int, ...], ...], mean: np.ndarray,
        covariance: np.ndarray, information: np.ndarray, clip: float, clip_gradient: float,
        costs: tuple[GaussianCost, ...] = (), insecure_noise: bool = False,
    ):  # fmt: skip
        self.__setstate__({k: v for k, v in locals().items() if k != "self"})

    def __setstate__(self, state: dict[str, Any]) -> None:
        missing = sorted(type(self).__annotations__.keys() - state.keys())
        if missing:  # of what it costs, or that its noise was no secret, nothing may be guessed
            raise ValueError(
                f"This pickle of a NormalApproximation says nothing of its {', '.join(missing)}: it was "
                "written by another version of pymc_dp. Read it with that version, and make it anew from its "
                "values; what is not known of it may not be guessed."
            )
        vars(self).update(state)
        for array in (self.mean, self.covariance, self.information):
            array.flags.writeable = False

    def __setattr__(self, name: str, value: Any) -> None:
        raise self._cannot_be_changed(name)

    def __delattr__(self, name: str) -> None:
        raise self._cannot_be_changed(name)

    @staticmethod
    def _cannot_be_changed(name: str) -> AttributeError:
        return AttributeError(
            f"NormalApproximation.{name} is what was released and paid for, or is made of it. Nothing was "
            "changed: make another by dp.normal_approximation."
        )

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
