"""Whether what was released can be used: ``pm.set_data`` puts anything in the place of what was declared."""

import numpy as np
import pytensor
from pymc.model.core import Model
from pytensor.graph.basic import Variable

from pymc_dp.query.records import is_release
from pymc_dp.step_methods.block.program import static_value


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
        shape = _shape_of(rv)
        if values.shape != shape:
            raise ValueError(
                f"The release {rv.name} holds values of shape {values.shape}, but its query gives a release "
                f"of shape {shape}. After pm.set_data, data and the records that they are about must be of "
                "one length: set all data of the model that belong together, or declare the model again."
            )
        missing = ~(np.isfinite(values) | (values == rv.owner.op.suppressed))  # type: ignore[union-attr]
        if missing.any():
            first = tuple(int(k) for k in np.argwhere(missing)[0])
            raise ValueError(
                f"The release {rv.name} has {int(missing.sum())} missing or infinite values, the first at "
                f"index {first}: a mechanism releases all entries of its query. Mend the data that "
                "pm.set_data was given; other starting values do not help."
            )
        fault = rv.owner.op.fault(values) if hasattr(rv.owner.op, "fault") else None  # type: ignore[union-attr]
        if fault is not None:
            raise ValueError(
                f"The release {rv.name} cannot be what was published: {fault}. Mend the data that "
                "pm.set_data was given, or what dp.postprocessed says of them."
            )


def _shape_of(rv: Variable) -> tuple[int, ...]:
    static = rv.type.shape  # type: ignore[attr-defined]
    if None not in static:
        return tuple(static)
    lengths = list(rv.shape)  # type: ignore[attr-defined]
    return tuple(map(int, pytensor.function([], lengths, mode="FAST_COMPILE")()))
