"""Which parameters the law of a block of records depends on."""

from pymc.model.core import Model
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable

from pymc_dp.records import RecordBlock, parameters_of
from pymc_dp.rowlocal import leaves_of


def continuous_parameters(model: Model, block: RecordBlock) -> set[Variable]:
    """Return the continuous free variables that are no records, of any block."""
    records = {*block.records, *block.others}
    return {rv for rv in model.free_RVs if rv not in records and rv.dtype.startswith("float")}


def parents_of_records(model: Model, block: RecordBlock) -> list[TensorVariable]:
    """Return the continuous free variables that stand in the law of a record, and are no records."""
    leaves = set(leaves_of([p for r in block.records for p in parameters_of(r)], set(model.basic_RVs)))
    leaves &= continuous_parameters(model, block)
    return [rv for rv in model.free_RVs if rv in leaves]


def ancestors_of_records(model: Model, block: RecordBlock) -> list[TensorVariable]:
    """Return the continuous parameters in the law of the records, and those in the law of such parameters."""
    variables, parameters = set(model.basic_RVs), continuous_parameters(model, block)
    found: set[Variable] = set(parents_of_records(model, block))
    queue = list(found)
    while queue:
        for rv in leaves_of(parameters_of(queue.pop()), variables):
            if rv in parameters and rv not in found:
                found.add(rv)
                queue.append(rv)
    return [rv for rv in model.free_RVs if rv in found]
