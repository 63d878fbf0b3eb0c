"""The privacy guarantee that a release carries with it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from pymc_dp.privacy._conversions import (
    LARGEST,
    checked_curve,
    curve_epsilon,
    exchanged_curve,
    gaussian_delta_at,
    implied_divergence,
    pure_delta,
    zcdp_epsilon,
)
from pymc_dp.privacy._words import in_words, statements
from pymc_dp.privacy.calibration import gaussian_epsilon

NEIGHBOURS = ("replace-one", "add-remove")
_ROUNDING = 1e-6


@dataclass(frozen=True)
class PrivacyGuarantee:
    """The privacy guarantee of one release for each person whose record it was computed from.

    Immutable and hashable, so that it can be a property of a PyTensor operation and survive
    cloning, ``pm.do``, ``pm.observe`` and pickling.

    Parameters
    ----------
    epsilon : float
        Largest log ratio of the release's densities on neighbouring data, in nats; ``inf`` when only
        zero-concentrated privacy (``rho``, ``mu``) or Renyi privacy (``renyi``) is guaranteed.
    delta : float, default 0
        Slack of approximate differential privacy, in [0, 1); 0 means pure.
    rho : float, optional
        Parameter of zero-concentrated differential privacy (zCDP), when it is known.
    neighbours : {"replace-one", "add-remove"}, default "replace-one"
        Which data sets count as neighbouring: one record exchanged for any other (number of
        records public), or one record added or removed.
    mu : float, optional
        Parameter of Gaussian differential privacy: distinguishing neighbouring data sets by the release is no
        easier than distinguishing N(0, 1) from N(mu, 1). For a Gaussian release it is sensitivity / sigma,
        and determines the exact curve of all its (epsilon, delta). It implies rho = mu^2 / 2, which is filled
        in.
    stated : bool, default False
        Whether this is what a user says of a mechanism of their own (:class:`~pymc_dp.CustomMechanism`), so
        that nothing here vouches for it.
    renyi : tuple of (float, float), default ()
        Pairs of an order above 1 and a bound of the Renyi divergence of that order, in nats; see
        :class:`~pymc_dp.RenyiGuarantee`.

    Raises
    ------
    ValueError
        A parameter is out of its range, or there is no guarantee at all.

    References
    ----------
    Dwork and Roth (2014), *The Algorithmic Foundations of Differential Privacy*, definition 2.4;
    Bun and Steinke (2016), *Concentrated Differential Privacy*, definition 1.1; Dong, Roth and Su
    (2022), *Gaussian Differential Privacy*, definition 4; Mironov (2017), *Renyi Differential Privacy*,
    definition 4.

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
    mu: float | None = None
    stated: bool = field(default=False, kw_only=True)
    renyi: tuple[tuple[float, float], ...] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        for name in ("epsilon", "delta", "rho", "mu"):
            if isinstance(getattr(self, name), str | bytes | bool | np.bool_):
                raise TypeError(f"{name} must be a number, got {getattr(self, name)!r}.")
        # Plain floats: numpy scalars print differently, and equal guarantees must hash alike.
        object.__setattr__(self, "epsilon", float(self.epsilon))
        object.__setattr__(self, "delta", float(self.delta))
        if not self.epsilon >= 0:
            raise ValueError(f"epsilon must be a number >= 0, got {self.epsilon}.")
        for name in ("epsilon", "mu"):
            value = float(0 if getattr(self, name) is None else getattr(self, name))
            if LARGEST < value < math.inf:
                raise ValueError(
                    f"{name} = {value:g} is larger than {LARGEST:g}, and promises nothing: add more noise, "
                    "or leave the guarantee out."
                )
        if not 0 <= self.delta < 1:
            raise ValueError(f"delta must be in [0, 1), got {self.delta}.")
        if self.mu is not None:
            object.__setattr__(self, "mu", float(self.mu))
            if not 0 <= self.mu < math.inf:
                raise ValueError(f"mu must be a finite number >= 0, got {self.mu}.")
            if self.rho is None:
                object.__setattr__(self, "rho", self.mu**2 / 2)
        if self.rho is not None:
            object.__setattr__(self, "rho", float(self.rho))
            if not 0 <= self.rho < math.inf:
                raise ValueError(f"rho must be a finite number >= 0, got {self.rho}.")
        object.__setattr__(self, "renyi", checked_curve(self.renyi))
        if math.isinf(self.epsilon) and self.rho is None and not self.renyi:
            raise ValueError(
                "epsilon = inf without rho promises nothing: give a finite epsilon, rho, mu, or renyi."
            )
        if not isinstance(self.stated, bool):
            raise TypeError(f"stated must be True or False, got {self.stated!r}.")
        if self.neighbours not in NEIGHBOURS:
            raise ValueError(f"neighbours must be one of {', '.join(NEIGHBOURS)}, got {self.neighbours!r}.")

    @property
    def is_pure(self) -> bool:
        """Whether this is pure differential privacy: a finite epsilon with delta = 0."""
        return self.delta == 0.0 and math.isfinite(self.epsilon)

    def divergence(self, order: float) -> float:
        """Return a bound that this guarantee implies of the Renyi divergence of an order; inf if it has none.

        It is the smallest of rho times the order, mu^2 / 2 times the order, the exact one of randomized
        response under pure privacy, and the one of ``renyi``: between stated orders, (order - 1) times the
        divergence is convex; beyond the last nothing is known.

        Parameters
        ----------
        order : float
            A finite number above 1.

        Returns
        -------
        float

        References
        ----------
        Van Erven and Harremoes (2014), *Renyi Divergence and Kullback-Leibler Divergence*, theorem 3 and
        corollary 2.

        Examples
        --------
        >>> import pymc_dp as dp
        >>> dp.PrivacyGuarantee(float("inf"), rho=0.5).divergence(4)
        2.0
        >>> round(dp.PrivacyGuarantee(1.0).divergence(2), 4)
        0.7353
        """
        if not 1 < order < math.inf:
            raise ValueError(f"order must be a finite number above 1, got {order}.")
        pure = self.epsilon if self.is_pure else None
        return implied_divergence(order, pure, self.rho, self.mu, self.renyi)

    def to_zcdp(self) -> PrivacyGuarantee:
        """Return the same guarantee with ``rho`` filled in.

        Pure epsilon implies rho = epsilon^2 / 2 (Bun and Steinke 2016, proposition 1.4).

        Returns
        -------
        PrivacyGuarantee
            With ``rho`` set; unchanged when it already was.

        Raises
        ------
        ValueError
            Approximate privacy (delta > 0) implies no finite rho, and neither do Renyi divergences.

        Examples
        --------
        >>> from pymc_dp.privacy.guarantee import PrivacyGuarantee
        >>> PrivacyGuarantee(1.0).to_zcdp().rho
        0.5
        """
        if self.rho is not None:
            return self
        if not self.is_pure:
            what = f"epsilon = {self.epsilon:g} with delta = {self.delta:g} implies"
            what = "Renyi divergences of finitely many orders imply" if self.renyi else what
            raise ValueError(f"{what} no finite rho: state the release by rho, or by a pure epsilon.")
        return self._with(rho=self.epsilon**2 / 2)

    def to_approximate(self, delta: float) -> PrivacyGuarantee:
        """Return an (epsilon, delta) statement that this guarantee implies.

        Its epsilon is the smallest of four: the one already guaranteed (if its own delta is no larger), the
        exact one of Gaussian noise (if ``mu`` is known), the one that ``rho`` implies, which for pure
        privacy is epsilon^2 / 2, and the one that ``renyi`` implies.

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

        References
        ----------
        Balle and Wang (2018), theorem 8, for ``mu``; Canonne, Kamath and Steinke (2020), *The
        Discrete Gaussian for Differential Privacy*, proposition 12, for ``rho`` and ``renyi``.

        Examples
        --------
        >>> from pymc_dp.privacy.guarantee import PrivacyGuarantee
        >>> round(PrivacyGuarantee(float("inf"), mu=1.0).to_approximate(1e-5).epsilon, 4)
        4.3772
        >>> round(PrivacyGuarantee(float("inf"), rho=0.5).to_approximate(1e-5).epsilon, 4)
        4.7284
        """
        if not 0 < delta < 1:
            raise ValueError(f"delta must be in (0, 1), got {delta}.")
        candidates = []
        if self.delta <= delta and math.isfinite(self.epsilon):
            candidates.append(self.epsilon)
        if self.mu is not None:
            candidates.append(gaussian_epsilon(delta, 1.0, self.mu) if self.mu > 0 else 0.0)
        rho = self.epsilon**2 / 2 if self.rho is None and self.is_pure else self.rho
        if rho is not None:
            candidates.append(zcdp_epsilon(rho, delta))
        if self.renyi:
            candidates.append(curve_epsilon(self.renyi, delta))
        if not candidates:
            raise ValueError(
                f"delta = {delta:g} is below the {self.delta:g} of this guarantee and neither rho nor "
                "mu is known: ask for a delta at least as large."
            )
        return self._with(epsilon=min(candidates), delta=delta)

    def to_replace_one(self) -> PrivacyGuarantee:
        """Return the guarantee that this one implies when one record is exchanged for another.

        To exchange a record is to remove one and to add one: epsilon and mu count twice, rho four times, and
        delta (1 + exp(epsilon)) times. Renyi divergences imply those of half their order. There is no
        conversion in the other direction, since under replace-one the number of records is public.

        Returns
        -------
        PrivacyGuarantee
            For replace-one neighbours; unchanged when it already is.

        Raises
        ------
        ValueError
            delta would be 1 or more, and neither rho nor mu is known; or no order of ``renyi`` is above 2.

        References
        ----------
        Dwork and Roth (2014), theorem 2.2, and Bun and Steinke (2016), proposition 1.9, on groups; Mironov
        (2017), proposition 11, on Renyi divergences.

        Examples
        --------
        >>> from pymc_dp.privacy.guarantee import PrivacyGuarantee
        >>> print(PrivacyGuarantee(0.5, neighbours="add-remove").to_replace_one())
        Pure differential privacy with epsilon = 1, for replace-one neighbours.
        """
        if self.neighbours == "replace-one":
            return self
        rho = None if self.rho is None else 4 * self.rho
        mu = None if self.mu is None else 2 * self.mu
        renyi = exchanged_curve([order for order, _ in self.renyi], self.divergence)
        if math.isinf(self.epsilon) and rho is None and not renyi:
            raise ValueError(
                f"Renyi divergences of orders up to {self.renyi[-1][0]:g} under add-remove imply none under "
                "replace-one: state one of an order above 2, or rho or mu."
            )
        epsilon, delta = 2 * self.epsilon, 0.0
        if self.delta > 0:
            delta = self.delta * (1 + math.exp(min(self.epsilon, 700.0)))
            if delta >= 1:
                if rho is None and not renyi:
                    raise ValueError(
                        f"delta = {self.delta:g} at epsilon = {self.epsilon:g} under add-remove promises "
                        "nothing under replace-one: state the release by rho or mu."
                    )
                epsilon, delta = math.inf, 0.0
        return PrivacyGuarantee(epsilon, delta, rho, "replace-one", mu, stated=self.stated, renyi=renyi)

    def exceeds(self, stated: PrivacyGuarantee) -> bool:
        """Return whether `stated` is certainly better than this guarantee, which the noise gives.

        That is so if the neighbours differ, if a pure guarantee is stated of noise that gives none, or if a
        stated number is smaller than the exact one, beyond rounding. The delta of Gaussian noise is known
        exactly at every epsilon, and its Renyi divergence at every order.

        Parameters
        ----------
        stated : PrivacyGuarantee

        Returns
        -------
        bool
        """
        if self.neighbours != stated.neighbours:
            return True
        pairs = [(self.rho, stated.rho), (self.mu, stated.mu)]
        if self.mu is not None:
            pairs += [(self.mu**2 / 2 * order, bound) for order, bound in stated.renyi]
        if stated.is_pure:
            if not self.is_pure:
                return self.rho != 0
            pairs.append((self.epsilon, stated.epsilon))
        elif self.mu and math.isfinite(stated.epsilon):
            pairs.append((gaussian_delta_at(stated.epsilon, self.mu), stated.delta))
        return any(a is not None and b is not None and a > b * (1 + _ROUNDING) for a, b in pairs)

    def implies(self, stated: PrivacyGuarantee) -> bool:
        """Return whether the stated guarantee is known to follow from this one, up to rounding.

        Parameters
        ----------
        stated : PrivacyGuarantee

        Returns
        -------
        bool
        """
        if self.neighbours != stated.neighbours or self.exceeds(stated):
            return False
        if stated.mu is not None and self.mu is None:
            return False
        if any(self.divergence(order) > bound * (1 + _ROUNDING) for order, bound in stated.renyi):
            return False
        rho = self.epsilon**2 / 2 if self.rho is None and self.is_pure else self.rho
        if stated.rho is not None and (rho is None or rho > stated.rho * (1 + _ROUNDING)):
            return False
        if math.isinf(stated.epsilon) or stated.is_pure or self.mu is not None:
            return True  # `exceeds` has compared these exactly
        if self.is_pure and pure_delta(stated.epsilon, self.epsilon) <= stated.delta * (1 + _ROUNDING):
            return True
        try:
            epsilon = self.to_approximate(stated.delta).epsilon
        except ValueError:
            return False
        return epsilon <= stated.epsilon * (1 + _ROUNDING)

    def settled(self, stated: PrivacyGuarantee | None) -> PrivacyGuarantee:
        """Return the guarantee of a release that states one, and whose noise gives this one.

        It is the stated guarantee if that is known to follow from this one, and otherwise this one.

        Parameters
        ----------
        stated : PrivacyGuarantee or None

        Returns
        -------
        PrivacyGuarantee

        Raises
        ------
        ValueError
            The noise contradicts the statement.
        """
        if stated is None:
            return self
        if self.exceeds(stated):
            raise ValueError(
                "observed states a guarantee that is better than its own noise level and sensitivity give: "
                f"they give {in_words(self._statements())} for {self.neighbours} neighbours. The release is "
                "damaged, or is not of this query: ask for it again."
            )
        return stated if self.implies(stated) else self

    def _statements(self) -> list[str]:
        return statements(self.epsilon, self.delta, self.rho, self.mu, self.renyi)

    def _with(self, **changes: Any) -> PrivacyGuarantee:
        """Return the guarantee with other numbers, and without what a subclass adds to it."""
        return PrivacyGuarantee(**{f.name: getattr(self, f.name) for f in fields(PrivacyGuarantee)} | changes)

    def __str__(self) -> str:
        sentence = ("stated by the user, not proven: " if self.stated else "") + in_words(self._statements())
        return f"{sentence[0].upper()}{sentence[1:]}, for {self.neighbours} neighbours."


def as_stated(said: PrivacyGuarantee) -> PrivacyGuarantee:
    """Return a guarantee as the statement of a user; of a composed one, without its parts."""
    return said._with(stated=True)
