"""What a run was debited with: one frozen thing, from which chains take their noise and are checked."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True)
class Terms:
    """Everything that the cost of a run and the protection of its rows depend on, in plain values.

    Parameters
    ----------
    noise_multiplier : float
        Of a ratio.
    scales : tuple of tuple of (str, int)
        Standard deviation of the noise of each kind of release, in units of what it is added to.
    plan : tuple
        What a draw releases, and how many draws and chains were asked for.
    bounds : tuple
        Clips, power of the likelihood, and whether the distance is in coordinates.
    rows : tuple of int
        Rows, rows that a release is computed from, and bits of a clipped change.
    metric : bytes
        What lengths of moves are measured with.
    approximation : tuple
        Bounds and costs of the normal approximation in use, and whether its noise has a known seed.
    seed : int or None
        Of insecure noise.
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
        """Return the names of what is not the same."""
        return [f.name for f in fields(self) if getattr(self, f.name) != getattr(other, f.name)]


def cannot_be_changed(whose: str, name: str) -> AttributeError:
    """Return the error for who changes what a run was debited with."""
    return AttributeError(
        f"{whose}.{name} is what the run was debited with, or is made of it. Nothing was changed: make a new "
        "step with what you want, and leave this one as it is."
    )
