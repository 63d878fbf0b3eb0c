"""What studies and long runs are asked alike: names of variables, and a bar that shows how far they are."""

from typing import Any

from pymc.model.core import BaseModel
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)


def check_names(model: BaseModel, var_names: Any) -> None:
    """Refuse ``var_names=`` that are no list of names, none at all, or none of the model."""
    if isinstance(var_names, str):
        raise TypeError(f"var_names must be a list of names, got {var_names!r}: write [{var_names!r}].")
    if var_names is not None and not len(var_names):
        raise ValueError("var_names is empty: name at least one variable to keep.")
    known = [str(v.name) for v in model.unobserved_RVs]
    missing = [name for name in var_names or () if name not in known]
    if missing:
        raise ValueError(
            f"var_names has {', '.join(map(repr, missing))}; the model's variables are {', '.join(known)}."
        )


def progress_bar(shown: bool, *more: ProgressColumn) -> Progress:
    """Return a bar with what is done of all, the time it took, and the time it will take."""
    return Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        TimeRemainingColumn(), *more, disable=not shown,
    )  # fmt: skip
