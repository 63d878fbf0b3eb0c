"""A released normal approximation of the posterior, which private steps may use at no further cost."""

from __future__ import annotations

from typing import Any

import numpy as np

from pymc_dp.privacy.costs import GaussianCost


class NormalApproximation:
    r"""Normal approximation of the posterior given confidential rows, as it was released.

    :func:`~pymc_dp.normal_approximation` makes it. All of it is differentially private and may be published.
    If you make one by hand, state its cost in `costs`, unless it is made of public numbers only. Its
    attributes cannot be changed, so that it always carries its cost.

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
        Mean outer product of the rows' gradients, an estimate of the Fisher information of one row. Its
        quadratic form is the square of the distance to which the clipping bounds of rows are proportional.
    clip : float
        Bound of a row's change of log likelihood per unit of that distance.
    clip_gradient : float
        Bound of the norm of a row's gradient, measured against the information.
    costs : tuple of GaussianCost
        The cost of its releases. :func:`~pymc_dp.with_privacy` adds it to the cost of the steps that use the
        approximation.
    insecure_noise : bool, default False
        Whether its noise came from a known seed. If so, neither it nor results that use it have any privacy
        guarantee.

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

    # not a dataclass, since `dataclasses.replace` would make a copy with another cost
    def __init__(
        self, likelihood: str, names: tuple[str, ...], shapes: tuple[tuple[int, ...], ...], mean: np.ndarray,
        covariance: np.ndarray, information: np.ndarray, clip: float, clip_gradient: float,
        costs: tuple[GaussianCost, ...] = (), insecure_noise: bool = False,
    ):  # fmt: skip
        self.__setstate__({k: v for k, v in locals().items() if k != "self"})

    def __setstate__(self, state: dict[str, Any]) -> None:
        missing = sorted(type(self).__annotations__.keys() - state.keys())
        if missing:  # its cost, and whether its noise was secret, must not be guessed
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

        As far as the approximation is right, a chain that starts from such a draw needs no burn-in.

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
