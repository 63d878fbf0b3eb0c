"""Atoms to start with: those of occupied slots have to be where the kernel has a law.

A base may reach outside of the kernel's domain. Sweeps never leave it; but a chain has to begin inside.
"""

import numpy as np

from pymc_dp.step_methods.mixture.program import MixtureProgram
from pymc_dp.step_methods.mixture.transfer import places_of

# Draws from the base for each slot.
_TRIES = 10_000


def outside(program: MixtureProgram, theta: np.ndarray) -> list[int]:
    """Return the occupied slots whose atoms give some of their records no law.

    Parameters
    ----------
    theta : array
        All parameters in value space, flat.
    """
    if not program.may_fail:
        return []
    start = _Start(program, theta)
    return [h for h in start.occupied if not start.fits(h, start.atoms(h))]


def inside(program: MixtureProgram, rng: np.random.Generator, theta: np.ndarray) -> bool:
    """Put atoms of such slots where they give all records a law, in place; return whether any were moved.

    Raises
    ------
    ValueError
        If there are no such atoms among many draws from the base.
    """
    wrong = outside(program, theta)
    start = _Start(program, theta) if wrong else None
    for h in wrong:
        assert start is not None
        for _ in range(_TRIES):
            atoms = program.functions["base_draw"](rng, *start.given(0))
            if start.fits(h, atoms):
                break
        else:
            names = ", ".join(str(rv.name) for rv in program.mixture.atoms)
            raise ValueError(
                f"{program.mixture.kernel.name} has no law at the starting values of the atoms {names}, nor "
                f"at any of {_TRIES} draws from theirs. Give starting values (initval=) and a law of the "
                "atoms inside of the kernel's domain, such as a gamma law of what has to be positive."
            )
        start.put(h, atoms)
    return bool(wrong)


class _Start:
    """Atoms and records of each slot at values of the parameters."""

    def __init__(self, program: MixtureProgram, theta: np.ndarray):
        self._program, self._theta = program, theta
        layout = program.program.parameters
        where = layout.slices[layout.variables.index(program.mixture.labels)]
        self._labels = theta[where].astype(int)
        self.occupied = np.unique(self._labels).tolist()
        self._constants, self._columns = program.hoisted_at(theta)

    def given(self, row: int) -> list[float]:
        return [*self._constants, *self._columns[:, row]]

    def _at(self, h: int) -> list[int]:
        return [start + step * h for start, step in places_of(self._program)]

    def atoms(self, h: int) -> tuple[float, ...]:
        return self._program.functions["load"](*self.given(0), *self._theta[self._at(h)])

    def put(self, h: int, atoms: tuple[float, ...]) -> None:
        self._theta[self._at(h)] = self._program.functions["store"](*self.given(0), *atoms)

    def fits(self, h: int, atoms: tuple[float, ...]) -> bool:
        """Whether atoms give all records of a slot a law."""
        rows = np.flatnonzero(self._labels == h)
        asked = self._program.functions["inside"]
        # without anything that tells records apart, one stands for all
        return all(asked(*self.given(i), *atoms)[0] for i in (rows if self._program.by_record else rows[:1]))
