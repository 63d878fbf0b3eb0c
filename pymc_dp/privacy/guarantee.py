"""The statement of privacy that a release carries with it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

NEIGHBOURS = ("replace-one", "add-remove")


@dataclass(frozen=True)
class PrivacyGuarantee:
    """What one release promises to each person whose record it was computed from.

    Immutable and hashable, so that it can be a property of a PyTensor operation and survive
    cloning, ``pm.do``, ``pm.observe`` and pickling.

    Parameters
    ----------
    epsilon : float
        Largest log ratio of the release's densities on neighbouring data, in nats; ``inf`` when
        only zero-concentrated privacy (``rho``) is promised.
    delta : float, default 0
        Slack of approximate differential privacy, in [0, 1); 0 means pure.
    rho : float, optional
        Parameter of zero-concentrated differential privacy (zCDP), when it is known.
    neighbours : {"replace-one", "add-remove"}, default "replace-one"
        Which data sets count as neighbouring: one record exchanged for any other (number of
        records public), or one record added or removed.

    Raises
    ------
    ValueError
        A parameter is out of its range, or nothing is promised at all.

    References
    ----------
    Dwork and Roth (2014), *The Algorithmic Foundations of Differential Privacy*, definition 2.4;
    Bun and Steinke (2016), *Concentrated Differential Privacy*, definition 1.1.

    Examples
    --------
    >>> from pymc_dp.privacy.guarantee import PrivacyGuarantee
    >>> print(PrivacyGuarantee(1.0))
    Pure differential privacy with epsilon = 1, for replace-one neighbours.
    >>> print(PrivacyGuarantee(1.0, delta=1e-6))
    Approximate differential privacy with epsilon = 1 and delta = 1e-06, for replace-one neighbours.
    """

    epsilon: float
    delta: float = 0.0
    rho: float | None = None
    neighbours: str = "replace-one"

    def __post_init__(self) -> None:
        # Plain floats: numpy scalars print differently, and equal guarantees must hash alike.
        object.__setattr__(self, "epsilon", float(self.epsilon))
        object.__setattr__(self, "delta", float(self.delta))
        if not self.epsilon >= 0:
            raise ValueError(f"epsilon must be a number >= 0, got {self.epsilon}.")
        if not 0 <= self.delta < 1:
            raise ValueError(f"delta must be in [0, 1), got {self.delta}.")
        if self.rho is not None:
            object.__setattr__(self, "rho", float(self.rho))
            if not 0 <= self.rho < math.inf:
                raise ValueError(f"rho must be a finite number >= 0, got {self.rho}.")
        if math.isinf(self.epsilon) and self.rho is None:
            raise ValueError("epsilon = inf without rho promises nothing: give a finite epsilon, or rho.")
        if self.neighbours not in NEIGHBOURS:
            raise ValueError(f"neighbours must be one of {', '.join(NEIGHBOURS)}, got {self.neighbours!r}.")

    @property
    def is_pure(self) -> bool:
        """Whether this is pure differential privacy: a finite epsilon with delta = 0."""
        return self.delta == 0.0 and math.isfinite(self.epsilon)

    def to_zcdp(self) -> PrivacyGuarantee:
        """Return the same promise with ``rho`` filled in.

        Pure epsilon implies rho = epsilon^2 / 2 (Bun and Steinke 2016, proposition 1.4).

        Returns
        -------
        PrivacyGuarantee
            With ``rho`` set; unchanged when it already was.

        Raises
        ------
        ValueError
            Approximate privacy (delta > 0) implies no finite rho.

        Examples
        --------
        >>> from pymc_dp.privacy.guarantee import PrivacyGuarantee
        >>> PrivacyGuarantee(1.0).to_zcdp().rho
        0.5
        """
        if self.rho is not None:
            return self
        if not self.is_pure:
            raise ValueError(
                f"epsilon = {self.epsilon:g} with delta = {self.delta:g} implies no finite rho: "
                "state the release by rho, or by a pure epsilon."
            )
        return replace(self, rho=self.epsilon**2 / 2)

    def to_approximate(self, delta: float) -> PrivacyGuarantee:
        """Return an (epsilon, delta) statement that this guarantee implies.

        The smallest epsilon among the one already promised (when its own delta is no larger) and
        rho + 2 sqrt(rho log(1/delta)) (Bun and Steinke 2016, proposition 1.3). For a Gaussian
        release the exact value, which is smaller, is
        :func:`pymc_dp.privacy.calibration.gaussian_epsilon`.

        Parameters
        ----------
        delta : float
            In (0, 1).

        Returns
        -------
        PrivacyGuarantee

        Raises
        ------
        ValueError
            ``delta`` is not in (0, 1), or nothing known implies that delta.

        Examples
        --------
        >>> from pymc_dp.privacy.guarantee import PrivacyGuarantee
        >>> round(PrivacyGuarantee(float("inf"), rho=0.5).to_approximate(1e-5).epsilon, 4)
        5.2985
        """
        if not 0 < delta < 1:
            raise ValueError(f"delta must be in (0, 1), got {delta}.")
        candidates = []
        if self.delta <= delta and math.isfinite(self.epsilon):
            candidates.append(self.epsilon)
        rho = self.epsilon**2 / 2 if self.rho is None and self.is_pure else self.rho
        if rho is not None:
            candidates.append(rho + 2 * math.sqrt(rho * -math.log(delta)))
        if not candidates:
            raise ValueError(
                f"delta = {delta:g} is below the {self.delta:g} of this guarantee and rho is not "
                "known: ask for a delta at least as large."
            )
        return replace(self, epsilon=min(candidates), delta=delta)

    def __str__(self) -> str:
        parts = []
        if self.is_pure:
            parts.append(f"pure differential privacy with epsilon = {self.epsilon:g}")
        elif math.isfinite(self.epsilon):
            parts.append(
                f"approximate differential privacy with epsilon = {self.epsilon:g} and delta = {self.delta:g}"
            )
        if self.rho is not None:
            parts.append(f"zero-concentrated differential privacy with rho = {self.rho:g}")
        sentence = " and ".join(parts)
        return f"{sentence[0].upper()}{sentence[1:]}, for {self.neighbours} neighbours."
