"""What is debited from a budget: planned runs, by their noise, and releases, by their guarantee."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from pymc_dp.privacy._checks import positive, whole
from pymc_dp.privacy._plain import guarantee_from_plain, guarantee_to_plain, named_once
from pymc_dp.privacy.accountant import ComposedGuarantee, compose
from pymc_dp.privacy.guarantee import PrivacyGuarantee
from pymc_dp.privacy.release import Release

# Limits for releases on batches: beyond them rounding errors outweigh delta, and the cost would take minutes
# to compute.
MOST_ON_BATCHES = 10**9
NOISE_ON_BATCHES = (1e-3, 1e9)


def _noise(value: Any) -> float:
    """Return a noise multiplier; refuse one whose square would overflow or underflow when costs add up."""
    noise = positive("noise_multiplier", value)
    if not 1e-150 <= noise <= 1e150:
        raise ValueError(f"noise_multiplier must be between 1e-150 and 1e150, got {noise:g}.")
    return noise


@dataclass(frozen=True)
class GaussianCost:
    """Cost of numbers or vectors that are computed from all rows and released with Gaussian noise.

    Parameters
    ----------
    releases : int
        Number of releases, >= 1.
    noise_multiplier : float
        Standard deviation of the noise, divided by the replace-one sensitivity (in the L2 norm), > 0.

    Raises
    ------
    TypeError, ValueError
        An argument is not a number, or is out of its range.

    Examples
    --------
    >>> import pymc_dp as dp
    >>> cost = dp.accounting.GaussianCost(releases=1000, noise_multiplier=100.0)
    >>> round(dp.accounting.epsilon(cost, delta=1e-6), 4)
    1.3676
    """

    releases: int
    noise_multiplier: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "releases", whole("releases", self.releases))
        object.__setattr__(self, "noise_multiplier", _noise(self.noise_multiplier))

    @property
    def rate(self) -> float:
        """Share of the rows behind one release: 1."""
        return 1.0

    def __str__(self) -> str:
        return f"{self.releases} releases with noise multiplier {self.noise_multiplier:.6g}"


@dataclass(frozen=True)
class SubsampledGaussianCost:
    """Cost of numbers that are each computed from a fresh batch of rows and released with Gaussian noise.

    The batch is drawn uniformly without replacement, is fresh and secret for each release, and has a fixed
    size.

    Parameters
    ----------
    releases : int
        Number of releases, >= 1.
    noise_multiplier : float
        Standard deviation of the noise, divided by the sensitivity (in the L2 norm) to an exchange of one row
        of the *batch*, > 0.
    n : int
        Number of rows, which is public.
    batch_size : int
        Number of rows in a batch, from 1 to `n`.

    Raises
    ------
    TypeError, ValueError
        An argument is not a number, or is out of its range.

    Examples
    --------
    >>> import pymc_dp as dp
    >>> cost = dp.accounting.SubsampledGaussianCost(1000, 0.7**0.5, n=100_000, batch_size=1000)
    >>> round(dp.accounting.epsilon(cost, delta=1e-6), 2)
    3.78
    """

    releases: int
    noise_multiplier: float
    n: int
    batch_size: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "releases", whole("releases", self.releases))
        object.__setattr__(self, "noise_multiplier", _noise(self.noise_multiplier))
        object.__setattr__(self, "n", whole("n", self.n))
        object.__setattr__(self, "batch_size", whole("batch_size", self.batch_size))
        if self.batch_size > self.n:
            raise ValueError(
                f"batch_size = {self.batch_size} is more than n = {self.n}: a batch is drawn without "
                "replacement, so give a batch_size of at most n."
            )
        for name in ("releases", "n"):
            if getattr(self, name) > MOST_ON_BATCHES:
                raise ValueError(
                    f"{name} must be at most {MOST_ON_BATCHES:,} for releases on batches, got "
                    f"{getattr(self, name):,}: their cost is not computed beyond. Give a smaller {name}, or "
                    "release from all rows, without n= and batch_size=."
                )
        least, most = NOISE_ON_BATCHES
        if not least <= self.noise_multiplier <= most:
            raise ValueError(
                f"noise_multiplier must be between {least:g} and {most:g} for releases on batches, got "
                f"{self.noise_multiplier:g}: their cost is not computed beyond. Choose one between them."
            )

    @property
    def rate(self) -> float:
        """Share of the rows behind one release."""
        return self.batch_size / self.n

    def __str__(self) -> str:
        return (
            f"{self.releases} releases with noise multiplier {self.noise_multiplier:.6g} on batches of "
            f"{self.batch_size} of {self.n} rows"
        )


RunCost = GaussianCost | SubsampledGaussianCost
Cost = RunCost | PrivacyGuarantee
KINDS: dict[str, type[RunCost]] = {"gaussian": GaussianCost, "subsampled gaussian": SubsampledGaussianCost}
_GUARANTEE = "guarantee"


def cost_of(
    releases: int, noise_multiplier: float, n: int | None = None, batch_size: int | None = None
) -> RunCost:
    """Return the cost of releases from all rows, or from batches if `n` and `batch_size` are given."""
    if n is None and batch_size is None:
        return GaussianCost(releases, noise_multiplier)
    if n is None or batch_size is None:
        missing = "n, the number of rows," if n is None else "batch_size"
        raise ValueError(f"Batches of rows need n and batch_size: {missing} is missing.")
    return SubsampledGaussianCost(releases, noise_multiplier, n, batch_size)


def as_costs(costs: Any, name: str = "costs") -> tuple[Cost, ...]:
    """Return costs, guarantees or releases, one or several, as a tuple of costs; refuse anything else.

    Guarantees are for replace-one neighbours, a composed one in parts if its numbers follow from them. All
    are copies, which are checked anew, because even a frozen dataclass can be modified on purpose.
    """
    if isinstance(costs, Cost | Release):
        costs = (costs,)
    if not isinstance(costs, Iterable) or isinstance(costs, str | bytes):
        raise TypeError(
            f"{name} must be a cost of dp.accounting, a guarantee or a release, or a sequence of them, got "
            f"{type(costs).__name__}."
        )
    return tuple(from_plain(to_plain(part)) for cost in costs for part in _parts(name, cost))


def _parts(name: str, cost: Any) -> list[Cost]:
    """Return a cost, or the guarantees behind a release or behind several together."""
    if isinstance(cost, Release):
        if cost.guarantee is None:
            raise ValueError(f"{name} holds a release whose guarantee is not known: give one that states it.")
        cost = cost.guarantee
    if isinstance(cost, ComposedGuarantee) and _is_that_of_its_parts(cost):
        return [part for _, guarantee in cost.parts for part in _parts(name, guarantee)]
    if isinstance(cost, PrivacyGuarantee):
        return [cost.to_replace_one()]
    if type(cost) not in KINDS.values():
        raise TypeError(
            f"{name} must hold costs of dp.accounting, guarantees or releases only, got "
            f"{type(cost).__name__}."
        )
    return [cost]


def _is_that_of_its_parts(whole: ComposedGuarantee) -> bool:
    """Return whether the parts imply the numbers of the whole, and so cost no less than it promises.

    A composed guarantee that was made or changed by hand may have no parts, or others.
    """
    if whole.disjoint or not whole.parts:
        return False
    try:
        implied = compose([part for _, part in whole.parts], delta=whole.delta or None)
    except ValueError:
        return False
    pairs: list[tuple[float | None, float | None]] = [(whole.epsilon, implied.epsilon)]
    if math.isinf(whole.epsilon):  # what is promised is rho, mu or divergences
        pairs = [(whole.rho, implied.rho), (whole.mu, implied.mu)]
    return implied.neighbours == whole.neighbours and all(
        one is None or other is None or one <= other * (1 + 1e-9) for one, other in pairs
    )


def to_plain(cost: Cost) -> dict[str, Any]:
    """Return a cost as plain numbers and strings, for JSON."""
    if isinstance(cost, PrivacyGuarantee):
        return {"kind": _GUARANTEE, **guarantee_to_plain(cost)}
    (kind,) = (word for word, known in KINDS.items() if type(cost) is known)
    return {"kind": kind, **asdict(cost)}


def from_plain(plain: dict[str, Any]) -> Cost:
    """Return the cost from the output of :func:`to_plain`."""
    content = dict(plain)
    kind = content.pop("kind")
    return guarantee_from_plain(content) if kind == _GUARANTEE else KINDS[kind](**content)


def to_text(costs: Iterable[Cost]) -> str:
    """Return costs as the text of an entry in a ledger."""
    return json.dumps([to_plain(cost) for cost in costs])


def from_text(text: str) -> tuple[Cost, ...]:
    """Return the costs from the output of :func:`to_text`; refuse what it never is, which might cost less."""
    listed = json.loads(text, object_pairs_hook=named_once)
    if not isinstance(listed, list) or not listed:
        raise ValueError("it is no list of costs")
    costs = tuple(from_plain(plain) for plain in listed)
    if any(isinstance(cost, PrivacyGuarantee) and cost.neighbours != "replace-one" for cost in costs):
        raise ValueError("a guarantee is not for replace-one neighbours")
    return costs
