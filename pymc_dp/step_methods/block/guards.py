"""Where the variables of a block have a law, asked entry by entry.

PyMC's conditions on parameters are on all entries of a variable at once: one impossible candidate would make
the density of every record zero, and with it those of values that are possible.
"""

from functools import reduce
from typing import TYPE_CHECKING

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable

from pymc_dp.lowering.functions.truncated_masses import with_all_digits
from pymc_dp.lowering.rows.domains import Domain, Free
from pymc_dp.query.readings import Reading, lift, substitute
from pymc_dp.query.records import parameters_of
from pymc_dp.query.rowlocal import leaves_of

if TYPE_CHECKING:
    from pymc_dp.step_methods.block.program import RecordProgram


def law_domain(program: "RecordProgram", rv: Variable, is_free: Free | None = None) -> Domain | None:
    """Return the domain of a variable's law, over the model's own variables.

    Conditions on parameters alone are for others to see to, unless ``is_free`` says otherwise. None where
    PyMC has no density of it that could be asked: the points of an interpolated law are constants to it, and
    those of several variables are none.
    """
    try:
        logp = own_density(program, rv)
    except (NotImplementedError, AttributeError):
        return None
    role = program.block.analysis.role
    return Domain(logp, is_free or (lambda graph: role(graph).kind == "free"))


def own_density(program: "RecordProgram", rv: Variable) -> TensorVariable:
    """Return a variable's log density as a graph of the model's own variables.

    Inputs stand for these meanwhile: PyMC derives the density of some laws (series, censored ones, a user's
    own graph of random variables) from a copy of all that is behind them, with other values drawn in it.
    """
    leaves = leaves_of(parameters_of(rv), set(program.model.basic_RVs))
    stand_ins: Reading = {v: v.type() for v in (rv, *leaves)}  # type: ignore[operator]
    logp = pm.logp(with_all_digits(lift(rv, stand_ins)), stand_ins[rv])
    return substitute([logp], {stand_in: v for v, stand_in in stand_ins.items()})[0]  # type: ignore[dict-item]


def by_entry(logp: TensorVariable) -> TensorVariable:
    """Return a log density that is minus infinity in the entries whose conditions fail, and in no other."""
    domain = Domain(logp, lambda graph: False)
    return domain.guarded() if domain.conditions else logp


def density(program: "RecordProgram", rv: Variable, reading: Reading) -> TensorVariable:
    """Log density of a variable under a reading, entry by entry."""
    domain = law_domain(program, rv)
    if domain is None:
        return pm.logp(lift(rv, reading), reading[rv])
    return substitute([domain.guarded() if domain.conditions else own_density(program, rv)], reading)[0]


def inside(program: "RecordProgram", rv: Variable, reading: Reading) -> TensorVariable | None:
    """Whether each record's variable has a law given the others, (n,); None if it always has."""
    domain = law_domain(program, rv)
    if domain is None or not domain.conditions:
        return None
    holds = []
    for condition in domain.conditions:
        role = program.block.analysis.role(condition)
        failing = per_record(pt.cast(~condition, "int64"), role.axis or 0, role.rows, program.n)
        holds.append(pt.eq(substitute([failing], reading)[0], 0))
    return reduce(pt.and_, holds)


def draw_inside(program: "RecordProgram", rv: Variable, reading: Reading) -> TensorVariable:
    """Draw a record variable given a reading of those before it.

    Where it has no law given these, it is drawn given the records that the chain stands at, so that no draw
    ends in an error; the candidate's weight is minus infinity.
    """
    holds = inside(program, rv, reading)
    if holds is None:
        return lift(rv, reading)
    given = dict(reading)
    for other in leaves_of(parameters_of(rv), set(program.block.records)):
        new, old = reading[other], program.state[other]
        chosen = pt.switch(pt.shape_padright(holds, new.type.ndim - 1), new, old)
        given[other] = pt.specify_shape(pt.cast(chosen, new.type.dtype), new.type.shape)
    return lift(rv, given)


def per_record(logp: TensorVariable, axis: int, rows: tuple[int, ...] | None, n: int) -> TensorVariable:
    """Sum a row-local graph over all axes but the record axis, and place it among n records."""
    graph = pt.moveaxis(logp, axis, 0) if axis else logp
    graph = graph.sum(axis=tuple(range(1, graph.ndim))) if graph.ndim > 1 else graph
    graph = pt.cast(graph, "float64")
    return graph if rows is None else pt.zeros(n)[np.array(rows)].inc(graph)
