"""A guarantee that is stated by Renyi divergences."""

from __future__ import annotations

import math
from collections.abc import Iterable, Set
from typing import Any

from pymc_dp.privacy._conversions import checked_curve
from pymc_dp.privacy.guarantee import PrivacyGuarantee


class RenyiGuarantee(PrivacyGuarantee):
    """Renyi differential privacy: bounds of the Renyi divergences of some orders.

    It is equal to a :class:`~pymc_dp.PrivacyGuarantee` of these bounds, into which its methods convert it.

    Parameters
    ----------
    orders : float or iterable of float
        Orders of the divergences, each a finite number above 1, in any order and once each.
    divergences : float or iterable of float
        The bound of each, in nats: the largest divergence between releases of neighbouring data sets.
    neighbours : {"replace-one", "add-remove"}, default "replace-one"
        Which data sets count as neighbouring.
    stated : bool, default False
        Whether this is what a user says of a mechanism of their own, so that nothing here vouches for it.

    Raises
    ------
    TypeError, ValueError
        An order or a divergence is out of its range, there are none, or their numbers differ.

    Notes
    -----
    To convert and to compose lose the least where orders are many. Those that matter lie near
    1 + log(1 / delta) / epsilon, for the epsilon that comes out.

    References
    ----------
    Mironov (2017), *Renyi Differential Privacy*, definition 4; Canonne, Kamath and Steinke (2020),
    *The Discrete Gaussian for Differential Privacy*, proposition 12, for the conversion to epsilon and delta.

    Examples
    --------
    >>> import pymc_dp as dp
    >>> one = dp.RenyiGuarantee([2, 4, 8, 16, 32], [0.02, 0.04, 0.08, 0.16, 0.32])
    >>> print(one)
    Renyi differential privacy at 5 orders, with divergences from 0.02 at order 2 to 0.32 at order
    32, for replace-one neighbours.
    >>> round(one.to_approximate(1e-6).epsilon, 3), round(dp.guarantee([one] * 4, delta=1e-6).epsilon, 3)
    (0.622, 1.312)
    """

    def __init__(
        self, orders: Any, divergences: Any, *, neighbours: str = "replace-one", stated: bool = False
    ) -> None:
        given = [_listed("orders", orders), _listed("divergences", divergences)]
        if len(given[0]) != len(given[1]) or not given[0]:
            raise ValueError(
                f"orders and divergences must be equally many, and at least one, got {len(given[0])} and "
                f"{len(given[1])}."
            )
        renyi = checked_curve(zip(*given, strict=True), "orders", "divergences")
        super().__init__(math.inf, neighbours=neighbours, stated=stated, renyi=renyi)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PrivacyGuarantee):
            return NotImplemented
        return self._with() == (other._with() if isinstance(other, RenyiGuarantee) else other)

    def __hash__(self) -> int:
        return hash(self._with())


def _listed(name: str, values: Any) -> list[Any]:
    if isinstance(values, str | bytes):
        raise TypeError(f"{name} must be numbers, got {values!r}.")
    if isinstance(values, Set):
        raise TypeError(f"{name} must be in the order of the others, which a set has not: give a list.")
    return list(values) if isinstance(values, Iterable) and getattr(values, "ndim", None) != 0 else [values]
