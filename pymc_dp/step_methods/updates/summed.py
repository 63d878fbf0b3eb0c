"""The log density of parameters with records of few values summed over."""

from typing import TYPE_CHECKING

import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable

from pymc_dp.query.supports import finite_support

if TYPE_CHECKING:
    from pymc_dp.step_methods.updates.conditionals import Conditionals


def summed_over(conditionals: "Conditionals") -> TensorVariable:
    """Return the log density of the parameters that move, in the coordinates of that given the noise."""
    program, reading = conditionals.program, conditionals.from_noise
    (record,) = program.block.records
    others = {r.rv for r in program.block.releases} | {record}
    rest = [f for f in conditionals._factors(conditionals.moving | conditionals.tied) if f not in others]
    support = finite_support(record)
    assert support is not None
    values = []
    for value in support:
        at = {**reading, record: pt.full(record.type.shape, value, dtype=record.dtype)}
        values.append(program.density(record, at) + program.weights(at))
    graph = pt.sum(pt.logsumexp(pt.stack(values), axis=0))
    return graph + conditionals._sum(rest, reading, given_noise=True)
