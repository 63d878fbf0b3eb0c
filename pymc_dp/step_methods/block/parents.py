"""Which parameters the law of a block of records depends on."""

from pymc.model.core import Model
from pytensor.tensor.variable import TensorVariable

from pymc_dp.records import RecordBlock, parameters_of
from pymc_dp.rowlocal import leaves_of


def parents_of_records(model: Model, block: RecordBlock) -> list[TensorVariable]:
    """Return the continuous free variables that stand in the law of a record, and are no records."""
    leaves = set(leaves_of([p for r in block.records for p in parameters_of(r)], set(model.basic_RVs)))
    return [
        rv
        for rv in model.free_RVs
        if rv in leaves and rv not in block.records and rv.dtype.startswith("float")
    ]


def ancestors_of_records(model: Model, block: RecordBlock) -> list[TensorVariable]:
    """Return the continuous parameters in the law of the records, and those in the law of such parameters."""
    variables = set(model.basic_RVs)
    found = set(parents_of_records(model, block))
    queue = list(found)
    while queue:
        for rv in leaves_of(parameters_of(queue.pop()), variables):
            free = rv in model.free_RVs and rv not in block.records
            if free and rv not in found and rv.dtype.startswith("float"):  # type: ignore[attr-defined]
                found.add(rv)  # type: ignore[arg-type]
                queue.append(rv)  # type: ignore[arg-type]
    return [rv for rv in model.free_RVs if rv in found]
