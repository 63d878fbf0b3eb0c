"""A count, over all processes, of the chains that a step without a ledger has begun."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from functools import cache
from pathlib import Path
from typing import TextIO

from pymc_dp.privacy._ledger_file import temporary_path
from pymc_dp.privacy.ledger import BudgetExceededError


class Tally:
    """The chains of one step and their lengths, in a file that forked and spawned workers share.

    The file is removed when the process that made it ends.

    Parameters
    ----------
    step : str
        Name of the step, for messages.

    Examples
    --------
    >>> from pymc_dp.private.spent import Tally
    >>> tally = Tally("PenaltyMetropolis")
    >>> tally.begin("a run", 100), tally.begin("a run", 100)
    (0, 1)
    >>> tally.lengths()
    [100, 100]
    """

    def __init__(self, step: str):
        self._step = step
        self._path = _folder(os.getpid()) / f"{secrets.token_hex(8)}.tally"
        self._path.touch()

    def begin(self, run: str, length: int) -> int:
        """Count a chain of `length` draws, and return its number, from 0.

        Parameters
        ----------
        run : str
            A name that all chains of one call of ``pm.sample`` share.
        length : int

        Raises
        ------
        BudgetExceededError
            If chains of another run have begun with this step.
        """
        with self._locked() as file:
            begun = [json.loads(line) for line in file]
            if any(other != run for other, _ in begun):
                raise BudgetExceededError(
                    f"This {self._step} was sampled before: {len(begun)} chain(s) of "
                    f"{sum(length for _, length in begun)} draws together. To sample again spends as much "
                    "again, and without a ledger nothing adds it up. Nothing was spent now: make a new step, "
                    "and count the cost() of both; or give the steps a ledger."
                )
            file.seek(0, os.SEEK_END)
            file.write(json.dumps([run, length]) + "\n")
        return len(begun)

    def lengths(self) -> list[int]:
        """Return the number of draws of each chain that has begun, tuning included."""
        with self._locked() as file:
            return [length for _, length in map(json.loads, file)]

    def _locked(self) -> TextIO:
        try:
            file = self._path.open("r+")
        except FileNotFoundError:
            raise RuntimeError(
                f"The process that made this {self._step} has ended, and with it the count of what was "
                "spent: make a new step."
            ) from None
        fcntl.flock(file, fcntl.LOCK_EX)  # the lock is held until the file is closed
        return file


@cache
def _folder(process: int) -> Path:
    """Return a folder that is removed when the process ends."""
    return temporary_path().parent
