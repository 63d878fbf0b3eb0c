"""Parameters of parameters: their log density given these, in which no record is.

Means and spreads of effects move as far as the effects let them, at the cost of the effects' law alone: many
such updates cost less than one with a look at the records.
"""

import numpy as np
from pytensor.graph.basic import Variable

from pymc_dp.lowering.addresses.native import NativeFunction
from pymc_dp.query.records import parameters_of
from pymc_dp.step_methods.block.layout import positions
from pymc_dp.step_methods.block.parents import is_real
from pymc_dp.step_methods.updates.conditionals import Conditionals


def upper(conditionals: Conditionals) -> tuple[np.ndarray, NativeFunction | None]:
    """Return where the parameters of the upper level stand, and their density given all others.

    Those are of it that are in the law of something, and in none that a record is in: all that they are in
    depends on parameters and data only.
    """
    program, model = conditionals.program, conditionals.model
    records = set(program.block.records)

    def sees_records(factor: Variable) -> bool:
        read = [factor] if factor in model.potentials else parameters_of(factor)
        return factor in records or conditionals._depends(read, records)

    found = [
        rv
        for rv in program.parameters.variables
        if rv in conditionals.walking
        and is_real(rv)
        and len(factors := conditionals._factors({rv})) > 1
        and not any(map(sees_records, factors))
    ]
    if not found or conditionals.tied:  # what is tied moves with them, and may be behind records
        return np.zeros(0, dtype=np.intp), None
    names = [str(model.rvs_to_values[rv].name) for rv in found]
    return positions(program.parameters, names), conditionals.density_of(set(found))
