"""The terms on which a run was debited: one frozen object, from which chains take their noise."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True)
class Terms:
    """Everything that the cost of a run and the protection of its rows depend on, in plain values.

    Parameters
    ----------
    noise_multiplier : float
        Noise multiplier of a ratio.
    scales : tuple of tuple of (str, int)
        Standard deviation of the noise of each kind of release, in units of the sum that it is added to.
    plan : tuple
        The kinds of releases of a draw, and the planned numbers of draws and chains.
    bounds : tuple
        The clipping bounds, the power of the likelihood, and whether the distance is in coordinates.
    rows : tuple of int
        The number of rows, the number that a release is computed from, and the bits of a clipped change.
    metric : bytes
        The matrices that define the length of a move.
    approximation : tuple
        Bounds and costs of the normal approximation in use, and whether its noise has a known seed.
    seed : int or None
        Seed of insecure noise.
    """

    noise_multiplier: float
    scales: tuple[tuple[str, int], ...]
    plan: tuple[Any, ...]
    bounds: tuple[Any, ...]
    rows: tuple[int, ...]
    metric: bytes
    approximation: tuple[Any, ...]
    seed: int | None

    def scale(self, of: str) -> int | None:
        """Return the standard deviation of the noise on a kind of release; None where there is none."""
        return dict(self.scales).get(of)

    def differences(self, other: Terms) -> list[str]:
        """Return the names of the fields that differ."""
        return [f.name for f in fields(self) if getattr(self, f.name) != getattr(other, f.name)]


def cannot_be_changed(whose: str, name: str) -> AttributeError:
    """Return the error for an attempt to change what a run was debited for."""
    return AttributeError(
        f"{whose}.{name} is what the run was debited with, or is made of it. Nothing was changed: make a new "
        "step with what you want, and leave this one as it is."
    )
