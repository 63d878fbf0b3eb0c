"""Whether what was released can be used: ``pm.set_data`` puts anything in the place of what was declared."""

from typing import Any

import numpy as np
import pytensor
from pymc.model.core import Model
from pytensor.graph.basic import Variable

from pymc_dp.query.records import is_release
from pymc_dp.step_methods.block.program import static_value

_REMEDY = (
    "Mend the data that pm.set_data was given: all data of the model that belong together must be of one "
    "length, and other starting values do not help. Where lengths have changed for good, declare the model "
    "again."
)


def check_releases(model: Model) -> None:
    """Refuse releases with other lengths than their query gives, or with entries that cannot be.

    Parameters
    ----------
    model : pymc.Model

    Raises
    ------
    ValueError
        With the name of the release, and what is wrong with its values.
    """
    for rv in filter(is_release, model.observed_RVs):
        values = np.asarray(static_value(model.rvs_to_values[rv]))
        fault = fault_of(rv, values, shape_of(rv))
        if fault is not None:
            raise ValueError(f"The release {rv.name} {fault}. {_REMEDY}")


def fault_of(rv: Variable, values: np.ndarray, shape: tuple[int, ...]) -> str | None:
    """Say why values cannot be those of a variable of that shape, as its predicate; else None."""
    op = processing_of(rv)
    if values.shape != shape:
        return f"holds values of shape {values.shape}, but was declared with values of shape {shape}"
    missing = ~(np.isfinite(values) | (values == getattr(op, "suppressed", None)))
    if missing.any():
        first = tuple(int(k) for k in np.argwhere(missing)[0])
        return (
            f"has {int(missing.sum())} missing or infinite values, the first at index {first}: a mechanism "
            "releases all entries of its query"
        )
    fault = op.fault(values) if hasattr(op, "fault") else None
    return None if fault is None else f"cannot be what was published: {fault}"


def processing_of(rv: Any) -> Any:
    """Return the operation that processes a release, also where its records are integrated out.

    Of one that is not processed, it is the variable's own.
    """
    op = rv.owner.op
    laws = op.laws(rv.owner) if hasattr(op, "laws") else []
    behind = laws[0].owner.op if laws else getattr(op, "channel", op)
    return behind if hasattr(behind, "processing") else op


def shape_of(rv: Variable) -> tuple[int, ...]:
    """Return the shape of an observed variable with the data of now."""
    static = rv.type.shape  # type: ignore[attr-defined]
    if None not in static:
        return tuple(static)
    lengths = list(rv.shape)  # type: ignore[attr-defined]
    return tuple(map(int, pytensor.function([], lengths, mode="FAST_COMPILE")()))
