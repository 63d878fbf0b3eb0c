"""Parameters given sums of the records, where their law reads these alone.

A law of an exponential family, with parameters that all records share, has the log density, over n records,

    sum_j eta_j(theta) T_j - n A(theta),

where T_j are sums over the records. They are computed once in a cycle, O(n); an update given the records then
costs a number of operations that does not grow with them.
"""

from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.transforms import SimplexTransform
from pytensor.graph.basic import Variable
from pytensor.tensor.random.basic import BetaRV, DirichletRV, GammaRV

from pymc_dp.lowering.addresses.native import CONDITIONAL, RECORDS, NativeFunction
from pymc_dp.query.readings import substitute
from pymc_dp.query.records import parameters_of
from pymc_dp.step_methods.block.program import RecordProgram
from pymc_dp.step_methods.updates.conditionals import Conditionals

# Numbers of a record that are summed, and the log density of n records from parameters, sums and n: the laws
# of which all parameters are positive.
type Graph = Any
type Numbers = Callable[[Graph], list[Graph]]
type Density = Callable[[list[Graph], list[Graph], int], Graph]


def _gamma(params: list[Graph], sums: list[Graph], n: int) -> Graph:
    (shape, scale), (total, logs) = params, sums
    return (shape - 1) * logs - total / scale - n * (pt.gammaln(shape) + shape * pt.log(scale))


def _beta(params: list[Graph], sums: list[Graph], n: int) -> Graph:
    (a, b), (logs, of_rest) = params, sums
    constant = pt.gammaln(a + b) - pt.gammaln(a) - pt.gammaln(b)
    return (a - 1) * logs + (b - 1) * of_rest + n * constant


def _dirichlet(params: list[Graph], sums: list[Graph], n: int) -> Graph:
    (a,), (logs,) = params, sums
    constant = pt.gammaln(pt.sum(a)) - pt.sum(pt.gammaln(a))
    return pt.sum((a - 1) * logs) + n * constant


_LAWS: dict[type, tuple[Numbers, Density]] = {
    GammaRV: (lambda x: [x, pt.log(x)], _gamma),
    BetaRV: (lambda x: [pt.log(x), pt.log1p(-x)], _beta),
    DirichletRV: (lambda x: [pt.log(x)], _dirichlet),
}


def given_sums(conditionals: Conditionals) -> tuple[NativeFunction, NativeFunction, int] | None:
    """Return the sums of the records, the log density given them, and how many sums there are.

    None where the density of the parameters given the records reads more of these than sums.
    """
    program, model = conditionals.program, conditionals.model
    records, state = program.block.records, program.state
    factors = conditionals._factors(conditionals.walking | conditionals.tied)
    read: list[Any] = [rv for rv in records if rv in factors]
    others = [f for f in factors if f not in records]

    def depends(factor: Variable, on: Collection[Variable]) -> bool:
        graphs = [factor] if factor in model.potentials else parameters_of(factor)
        return conditionals._depends(graphs, on)

    if not read or program.block.count is not None or conditionals.tied:
        return None
    if not all(map(_is_read_by_sums, read)) or any(depends(f, records) for f in factors):
        return None
    columns: list[Graph] = []
    for rv in read:
        numbers, _ = _LAWS[type(rv.owner.op)]
        for number in _logs_of_shares(program, rv) or numbers(state[rv]):
            rows = tuple(range(number.ndim - rv.owner.op.ndim_supp))
            columns.append(pt.sum(number, axis=rows).ravel())
    sums = pt.matrix("sums", dtype="float64", shape=(1, None))
    total, start = conditionals._sum(others, state), 0
    for rv in read:
        numbers, density = _LAWS[type(rv.owner.op)]
        shape, core = model.eval_rv_shapes()[rv.name], rv.owner.op.ndim_supp
        n = int(np.prod(shape[: len(shape) - core]))
        parts = []
        for _ in numbers(rv):
            size = shape[-1] if core else 1
            parts.append(sums[0, start : start + size] if core else sums[0, start])
            start += size
        cores = zip(parameters_of(rv), rv.owner.op.ndims_params, strict=True)
        params = substitute([p[(0,) * (p.type.ndim - core)] for p, core in cores], state)  # type: ignore[index]
        inside = pt.all(pt.stack([pt.all(p > 0) for p in params]))
        total = total + pt.switch(inside, density(params, parts, n), -np.inf)
    of_records = pt.concatenate(columns)[None, :]
    return (
        program.native("sums of records", [program.x], [of_records], RECORDS),
        program.native("given sums", [sums, conditionals.totals], [total], CONDITIONAL),
        start,
    )


def _logs_of_shares(program: RecordProgram, rv: Any) -> list[Graph] | None:
    """Return the logarithms of shares from their values: those that are rounded to zero have some, too."""
    if not isinstance(program.model.rvs_to_transforms.get(rv), SimplexTransform):
        return None
    values = program.records.graph(program.x, program.block.records.index(rv))
    every = pt.concatenate([values, -pt.sum(values, axis=-1, keepdims=True)], axis=-1)
    return [every - pt.logsumexp(every, axis=-1, keepdims=True)]


def _is_read_by_sums(rv: Any) -> bool:
    """Whether a law is among the known ones, and all records have the same parameters."""
    op = rv.owner.op
    if type(op) not in _LAWS or rv.dtype != "float64":
        return False
    cores = zip(parameters_of(rv), op.ndims_params, strict=True)
    return all(all(p.type.broadcastable[: p.type.ndim - core]) for p, core in cores)  # type: ignore[attr-defined]
