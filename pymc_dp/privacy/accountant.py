"""The cost of several releases together, by the tightest accounting that their guarantees allow.

Each guarantee is replaced by the worst release that it admits: randomized response for a pure guarantee,
randomized response that may fail for an approximate one, and Gaussian noise for one that states mu. For
independent releases of these kinds the log ratio of densities is a sum whose law is known, so that
delta(epsilon) = E[(1 - exp(epsilon - loss))+] is exact. This also holds for adaptively chosen releases. For a
guarantee that states only rho, no worst release is known; these rhos are added up and converted once. So are
Renyi divergences, at each order that a part states.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy

from pymc_dp.privacy._checks import probability
from pymc_dp.privacy._conversions import Curve, curve_epsilon, zcdp_epsilon
from pymc_dp.privacy._gaussian_curve import deltas
from pymc_dp.privacy._responses import summed_losses
from pymc_dp.privacy.calibration import gaussian_epsilon
from pymc_dp.privacy.guarantee import PrivacyGuarantee, in_words

# Shares of delta that are tried for the parts accounted by rho, if other parts are accounted exactly.
_SHARES = (0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99)


@dataclass(frozen=True)
class ComposedGuarantee(PrivacyGuarantee):
    """The guarantee of several releases together.

    A :class:`~pymc_dp.privacy.guarantee.PrivacyGuarantee` that remembers what it was composed of, so
    that :meth:`to_approximate` can do the accounting again at another delta.

    Parameters
    ----------
    parts : tuple of (str, PrivacyGuarantee)
        The releases by name.
    disjoint : bool
        Whether each person is behind only one part.
    exact : tuple of str
        Numbers published without noise, which the promise leaves out: it is between data that agree on them.

    Examples
    --------
    >>> from pymc_dp.privacy import PrivacyGuarantee
    >>> from pymc_dp.privacy.accountant import compose
    >>> print(compose({"count": PrivacyGuarantee(1.0), "total": PrivacyGuarantee(0.5)}))
    The releases count and total together: pure differential privacy with epsilon = 1.5, for
    replace-one neighbours, the same people being behind all of them.
    """

    parts: tuple[tuple[str, PrivacyGuarantee], ...] = ()
    disjoint: bool = False
    exact: tuple[str, ...] = ()

    def to_approximate(self, delta: float) -> ComposedGuarantee:
        """Return the smallest epsilon that the parts are known to guarantee together at `delta`.

        Parameters
        ----------
        delta : float
            In (0, 1).

        Returns
        -------
        ComposedGuarantee

        Raises
        ------
        ValueError
            ``delta`` is not in (0, 1), or the parts have no guarantee at that delta.
        """
        return replace(_together(self.parts, delta, self.disjoint), exact=self.exact)

    def to_zcdp(self) -> ComposedGuarantee:
        """Return the same guarantee with ``rho`` filled in from the parts.

        Returns
        -------
        ComposedGuarantee

        Raises
        ------
        ValueError
            A part implies no finite rho.
        """
        if self.rho is not None:
            return self
        each = [_rho(part.to_zcdp()) for _, part in self.parts]
        return replace(self, rho=max(each) if self.disjoint else sum(each))

    def divergence(self, order: float) -> float:
        """Return a bound of the Renyi divergence of an order, from the parts; inf if they imply none.

        Parameters
        ----------
        order : float
            A finite number above 1.

        Returns
        -------
        float
        """
        each = [part.divergence(order) for _, part in self.parts]
        return min(super().divergence(order), max(each) if self.disjoint else math.fsum(each))

    def __str__(self) -> str:
        names = in_words([name for name, _ in self.parts])
        people = (
            "each person being behind one of them only"
            if self.disjoint
            else "the same people being behind all of them"
        )
        told = [name for name, part in self.parts if part.stated]
        believed = f" That of {in_words(told)} is stated by the user, not proven." if told else ""
        if self.exact:
            believed += (
                f" {in_words(list(self.exact))} {'is' if len(self.exact) == 1 else 'are'} published exactly, "
                "outside of this promise, which is between data that agree on what is exact: these may "
                "differ in more than one person, and the promise is then that of a group (for k people, k "
                "times epsilon where it is pure, k^2 times rho where it is zCDP)."
            )
        if len(self.parts) == 1:
            return (
                f"The release {names}: {in_words(self._statements())}, for {self.neighbours} "
                f"neighbours.{believed}"
            )
        return (
            f"The releases {names} together: {in_words(self._statements())}, for {self.neighbours} "
            f"neighbours, {people}.{believed}"
        )


def compose(parts: Any, *, delta: float | None = None) -> ComposedGuarantee:
    """Return the guarantee of releases together when the same people may be behind all of them.

    The epsilons of pure guarantees add up, and so do rho and mu^2. At a given delta the epsilon is the
    smallest of several valid bounds: the exact composition of pure, approximate and Gaussian guarantees, the
    sum of rho, of Renyi divergences at each order that a part states, the plain sum, and mixtures of these.
    Where rho or divergences alone are stated, others may be smaller.

    Parameters
    ----------
    parts : mapping of str to PrivacyGuarantee, or iterable of PrivacyGuarantee
        The releases; each is counted once. If they are for different neighbouring relations, all are
        converted to replace-one.
    delta : float, optional
        The delta at which epsilon is stated, in (0, 1). By default the sum of the parts' own.

    Returns
    -------
    ComposedGuarantee

    Raises
    ------
    ValueError
        There are no parts, or `delta` is not in (0, 1) or smaller than the parts allow.

    References
    ----------
    Dwork and Roth (2014), theorem 3.16, for the plain sum; Kairouz, Oh and Viswanath (2015) and
    Murtagh and Vadhan (2016), for the optimal composition of pure and approximate guarantees; Dong,
    Roth and Su (2022), corollary 2, for mu; Bun and Steinke (2016), lemma 1.7, for rho; Mironov (2017),
    proposition 1, for Renyi divergences; Zhu, Dong and Wang (2022), theorem 10, for adaptive composition of
    worst cases of several kinds.

    Examples
    --------
    Thirty pure releases of epsilon 0.1 cost 3 at delta = 0, and much less at a small delta:

    >>> from pymc_dp.privacy import PrivacyGuarantee
    >>> from pymc_dp.privacy.accountant import compose
    >>> many = [PrivacyGuarantee(0.1)] * 30
    >>> round(compose(many).epsilon, 6), round(compose(many, delta=1e-3).epsilon, 2)
    (3.0, 1.48)
    """
    return _together(_named(parts), delta, disjoint=False)


def compose_disjoint(parts: Any, *, delta: float | None = None) -> ComposedGuarantee:
    """Return the guarantee of releases together when no person is behind two of them.

    It is that of the most expensive release. It must be public which people are behind which release: where
    membership itself is confidential (the sum over smokers and the sum over the others), exchanging a record
    can move a person from one release to another, and :func:`compose` must be used.

    Parameters
    ----------
    parts : mapping of str to PrivacyGuarantee, or iterable of PrivacyGuarantee
        The releases.
    delta : float, optional
        The delta at which epsilon is stated, in (0, 1). By default the largest of the parts' own.

    Returns
    -------
    ComposedGuarantee

    Raises
    ------
    ValueError
        There are no parts, or `delta` is not in (0, 1) or smaller than the parts allow.

    References
    ----------
    McSherry (2009), *Privacy Integrated Queries*, theorem 4.

    Examples
    --------
    >>> from pymc_dp.privacy import PrivacyGuarantee
    >>> from pymc_dp.privacy.accountant import compose_disjoint
    >>> compose_disjoint({"north": PrivacyGuarantee(1.0), "south": PrivacyGuarantee(0.5)}).epsilon
    1.0
    """
    return _together(_named(parts), delta, disjoint=True)


def _named(parts: Any) -> tuple[tuple[str, PrivacyGuarantee], ...]:
    """Return the parts with names, all converted to the same neighbouring relation."""
    items = (
        list(parts.items())
        if isinstance(parts, Mapping)
        else [(str(k), part) for k, part in enumerate(parts, 1)]
    )
    if not items:
        raise ValueError("There is nothing to compose: give at least one guarantee.")
    for name, part in items:
        if not isinstance(part, PrivacyGuarantee):
            raise TypeError(f"part {name} must be a PrivacyGuarantee, got {type(part).__name__}.")
    if len({part.neighbours for _, part in items}) > 1:
        items = [(name, part.to_replace_one()) for name, part in items]
    return tuple((str(name), part) for name, part in items)


def _together(
    named: tuple[tuple[str, PrivacyGuarantee], ...], delta: float | None, disjoint: bool
) -> ComposedGuarantee:
    """Combine the parameters that do not depend on delta with the epsilon at the chosen delta."""
    parts = [part for _, part in named]
    add: Callable[[Iterable[float]], float] = max if disjoint else math.fsum
    rho = mu = None
    if any(p.rho is not None for p in parts) and _have_rho(parts):
        rho = add([_rho(p) for p in parts])
    if all(p.mu is not None for p in parts):
        mu = math.sqrt(add([p.mu**2 for p in parts if p.mu is not None]))
    renyi = _curve(parts, disjoint)
    if delta is None:
        delta = add([p.delta for p in parts])
        epsilon = math.inf
        if delta == 0 and all(p.is_pure for p in parts):
            epsilon = add([p.epsilon for p in parts])
        elif 0 < delta < 1:
            epsilon = _epsilon_at(parts, delta, disjoint)
        if math.isinf(epsilon):
            delta = 0.0
        if math.isinf(epsilon) and rho is None and not renyi:
            raise ValueError(
                "The releases promise nothing together at the sum of their deltas: ask for a larger delta, "
                "or state every release by rho or by a smaller delta of its own."
            )
    else:
        delta = probability("delta", delta)
        epsilon = _epsilon_at(parts, delta, disjoint)
        if math.isinf(epsilon):
            raise ValueError(
                f"delta = {delta:g} is too small for what the releases promise: ask for a delta above the "
                "sum of theirs."
            )
    stated = any(p.stated for p in parts)
    return ComposedGuarantee(
        epsilon, delta, rho, parts[0].neighbours, mu, named, disjoint, stated=stated, renyi=renyi
    )


def _epsilon_at(parts: list[PrivacyGuarantee], delta: float, disjoint: bool) -> float:
    if not disjoint:
        return epsilon_of(parts, delta)
    return max(p.to_approximate(delta).epsilon for p in parts)


def _have_rho(parts: list[PrivacyGuarantee]) -> bool:
    return all(p.rho is not None or p.is_pure for p in parts)


def _rho(part: PrivacyGuarantee) -> float:
    return part.epsilon**2 / 2 if part.rho is None else part.rho


def _curve(parts: list[PrivacyGuarantee], disjoint: bool = False) -> Curve:
    """Return the Renyi divergences of all, at those orders that a part states and all have one of."""
    equal = Counter(parts) if any(p.renyi for p in parts) else Counter()
    curve = []
    for order in sorted({order for p in equal for order, _ in p.renyi}):
        each = [(p.divergence(order), count) for p, count in equal.items()]
        together = max(d for d, _ in each) if disjoint else math.fsum(d * count for d, count in each)
        if math.isfinite(together):
            curve.append((order, together))
    return tuple(curve)


def epsilon_of(parts: list[PrivacyGuarantee], delta: float) -> float:
    """Return the smallest epsilon of all valid accountings at a delta above 0; inf if there is none."""
    candidates = [math.inf]
    if sum(p.delta for p in parts) <= delta:
        candidates.append(math.fsum(p.epsilon for p in parts))
    if _have_rho(parts):
        candidates.append(zcdp_epsilon(sum(_rho(p) for p in parts), delta))
    by_rho = [p for p in parts if p.mu is None and p.rho is not None]
    for group in (by_rho, [p for p in by_rho if math.isinf(p.epsilon)]):
        rest = [p for p in parts if not any(p is q for q in group)]
        if not group:
            candidates.append(_worst_case_epsilon(rest, delta))
            continue
        rho = sum(_rho(p) for p in group)
        for share in _SHARES if rest else ():
            candidates.append(
                zcdp_epsilon(rho, share * delta) + _worst_case_epsilon(rest, (1 - share) * delta)
            )
    return min(candidates + _by_curve(parts, delta))


def _by_curve(parts: list[PrivacyGuarantee], delta: float) -> list[float]:
    """Return epsilons by Renyi divergences of all parts, or of some beside the exact accounting of others."""
    stating = [p for p in parts if p.renyi]
    if not stating:
        return []
    by_rho = [p for p in parts if p.renyi or (p.mu is None and p.rho is not None)]
    found = []
    for group in (parts, stating, by_rho, [p for p in by_rho if math.isinf(p.epsilon)]):
        curve, rest = _curve(group), [p for p in parts if not any(p is q for q in group)]
        for share in (_SHARES if rest else (1.0,)) if curve else ():
            beside = _worst_case_epsilon(rest, (1 - share) * delta) if rest else 0.0
            found.append(curve_epsilon(curve, share * delta) + beside)
    return found


def _worst_case_epsilon(parts: list[PrivacyGuarantee], delta: float) -> float:
    """Return the exact epsilon of the worst releases that these guarantees admit."""
    gaussian = [p for p in parts if p.mu is not None]
    others = [p for p in parts if p.mu is None]
    if any(math.isinf(p.epsilon) for p in others):  # no worst release of Renyi divergences alone is known
        return math.inf
    failing = sum(math.log1p(-p.delta) for p in others)
    delta = -math.expm1(math.log1p(-delta) - failing)
    if delta <= 0:
        return math.inf
    mu = math.sqrt(math.fsum(p.mu**2 for p in gaussian if p.mu is not None))
    loss, chance = summed_losses([p.epsilon for p in others])

    def excess(epsilon: float) -> float:
        if mu == 0:
            beyond = loss > epsilon
            return float(chance[beyond] @ -np.expm1(epsilon - loss[beyond]))
        return float(chance @ deltas(epsilon - loss, mu))

    lower, upper = 0.0, sum(p.epsilon for p in others)
    if mu > 0:
        upper += gaussian_epsilon(delta, 1.0, mu)
    if excess(0.0) <= delta:
        return 0.0
    if excess(upper) > delta:  # by rounding
        return upper
    if mu > 0:  # each point is costly, and the curve is smooth
        least = 5e-324  # what underflows is still positive
        root = scipy.optimize.brentq(
            lambda e: math.log(max(excess(e), least) / delta), 0.0, upper, rtol=1e-12
        )
        while excess(root) > delta:
            root += 1e-12 * max(root, 1e-6)
        return float(root)
    # The guarantee holds at the upper end at all times, up to rounding.
    while upper - lower > 1e-12 * upper:
        middle = 0.5 * (lower + upper)
        if middle in (lower, upper):
            break
        lower, upper = (middle, upper) if excess(middle) > delta else (lower, middle)
    return upper
