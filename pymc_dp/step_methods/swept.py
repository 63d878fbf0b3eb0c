"""What a step that sweeps over records tells: shares of proposals accepted, and what makes a sweep slow."""

import warnings
from typing import Any, ClassVar

import numpy as np
from rich.progress import ProgressColumn, TextColumn
from rich.table import Column

from pymc_dp.step_methods.block.program import RecordProgram

# Dtypes and shapes in `sample_stats`.
OF_SWEEPS: dict[str, Any] = {"record_acceptance": (np.float64, []), "record_acceptance_min": (np.float64, [])}


class Swept:
    """Acceptances in the sweeps of a draw, over the records of any number of blocks."""

    def __init__(self) -> None:
        self.accepted, self.lowest, self.n_proposals = 0.0, 1.0, 0

    def add(self, tally: np.ndarray, n_proposals: int) -> None:
        """Take acceptances in sweeps of one block and the lowest probability of one, of so many proposals."""
        self.accepted, self.lowest = self.accepted + tally[0], min(self.lowest, tally[1])
        self.n_proposals += n_proposals

    def stats(self) -> dict[str, float]:
        """Return what ``sample_stats`` gets; nothing where nothing was proposed."""
        if not self.n_proposals:
            return {}
        share = self.accepted / self.n_proposals
        return {"record_acceptance": share, "record_acceptance_min": self.lowest}


class TellsOfSweeps:
    """What a step for parameters tells beside, if it also sweeps over records: those among its variables.

    ``_sweeps`` says whether it does. PyMC reads names and dtypes of what a step tells off the step itself.
    """

    stats_dtypes_shapes: ClassVar[dict[str, Any]]

    @property
    def _sweeps(self) -> bool:
        """Whether records have no step of their own."""
        raise NotImplementedError

    def _tell_of_sweeps(self) -> None:
        """Have ``sample_stats`` get what sweeps say."""
        if self._sweeps:
            self.stats_dtypes_shapes = {**self.stats_dtypes_shapes, **OF_SWEEPS}  # type: ignore[misc]
            self.stats_dtypes = [{name: dtype for name, (dtype, _) in self.stats_dtypes_shapes.items()}]

    def _progressbar_config(self, n_chains: int = 1) -> tuple[list[ProgressColumn], dict[str, list[float]]]:
        return progress_columns(n_chains) if self._sweeps else super()._progressbar_config(n_chains)  # type: ignore[misc]

    def _make_progressbar_update_functions(self) -> tuple[Any]:
        return (progress,) if self._sweeps else super()._make_progressbar_update_functions()  # type: ignore[misc]


def progress_columns(n_chains: int) -> tuple[list[ProgressColumn], dict[str, list[float]]]:
    """Return the column of the progress bar, and what is in it at first."""
    columns: list[ProgressColumn] = [
        TextColumn("{task.fields[record_acceptance]:0.2f}", table_column=Column("Record accept", ratio=1))
    ]
    return columns, {"record_acceptance": [0.0] * n_chains}


def progress(stats: dict[str, Any]) -> dict[str, Any]:
    """Return what that column shows of a draw."""
    return {"record_acceptance": stats["record_acceptance"]}


def warn_of_passes(program: RecordProgram) -> None:
    """Say which terms cost O(n) per record, and how to write them."""
    queries = [f"query of {release.name}" for release in program.of_kind("general")]
    for what in (*queries, *(f"potential {p.name}" for p in program.whole_potentials)):
        warnings.warn(
            f"The {what} is no sum over records, so each record costs a pass over all {program.n}. If it is "
            "a sum, write it as dp.record_sum(t), row i of t being what record i contributes.",
            UserWarning,
            stacklevel=4,
        )
