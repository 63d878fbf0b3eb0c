"""Which parameters the law of a block of records depends on."""

from typing import Any

from pymc.distributions.timeseries import RandomWalkRV
from pymc.model.core import Model
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable

from pymc_dp.query.records import RecordBlock, parameters_of
from pymc_dp.query.rowlocal import leaves_of
from pymc_dp.query.supports import adds_to_atoms, behind_atoms
from pymc_dp.step_methods.block.repeated import behind_repeated, loses_atoms


def is_real(rv: Variable) -> bool:
    """Whether the values of a variable are real numbers, not whole ones."""
    return bool(rv.type.dtype.startswith("float"))  # type: ignore[attr-defined]


def continuous_parameters(model: Model, block: RecordBlock) -> set[Variable]:
    """Return the continuous free variables that are no records, of any block."""
    records = {*block.records, *block.others}
    return {rv for rv in model.free_RVs if rv not in records and is_real(rv)}


def counts_of(model: Model, block: RecordBlock) -> set[Variable]:
    """Return the free variable that is the number of people among the records, if there is one."""
    return {block.count} & set(model.free_RVs)


def parents_of_records(model: Model, block: RecordBlock) -> list[TensorVariable]:
    """Return the continuous free variables that stand in the law of a record, and are no records."""
    leaves = set(leaves_of([p for r in block.records for p in parameters_of(r)], set(model.basic_RVs)))
    leaves &= continuous_parameters(model, block)
    return [rv for rv in model.free_RVs if rv in leaves]


def ancestors_of_records(model: Model, block: RecordBlock) -> list[TensorVariable]:
    """Return the continuous parameters in the law of the records, and those in the law of such parameters.

    With them are the number of people, where that is a parameter, and those in the law of it.
    """
    variables, parameters = set(model.basic_RVs), continuous_parameters(model, block)
    found: set[Variable] = {*parents_of_records(model, block), *counts_of(model, block)}
    queue = list(found)
    while queue:
        for rv in leaves_of(parameters_of(queue.pop()), variables):
            if rv in parameters and rv not in found:
                found.add(rv)
                queue.append(rv)
    return [rv for rv in model.free_RVs if rv in found]


def check_atoms(model: Model, block: RecordBlock) -> None:
    """Refuse records whose values of positive probability are where another variable says, or have a density.

    Records of the same block may say where, too: they are drawn together.
    """
    for rv in block.records:
        others = set(model.free_RVs) - set(block.records)
        is_walk = isinstance(rv.owner.op, RandomWalkRV)  # type: ignore[union-attr]
        laws: list[Any] = [rv, parameters_of(rv)[1]] if is_walk else [rv]  # which entries do not show
        behind = {
            v for law in laws for v in (*behind_atoms(law, model.basic_RVs), *behind_repeated(law, model))
        } & others
        if behind:
            names = ", ".join(sorted(str(v.name) for v in behind))
            raise ValueError(
                f"The record variable {rv.name} has values of positive probability at places that depend on "
                f"{names} (an end at which it is censored, a constant in a mixture, the width of a grid). A "
                f"move of {names} given the records would leave them where they had that probability before, "
                "so that they cannot be sampled in this form. Take records whose law has fixed places, and "
                "let the query say the rest: pm.Censored(name, law, lower=a, upper=c, shape=n) is "
                "dp.clamp(x, a, c) of records x with the law inside, a mixture with pm.DiracDelta(c) is "
                "pt.switch(b, c, x) of records x and b = pm.Bernoulli(name, weight, shape=n), and numbers "
                "that are rounded are c * pt.floor(x / c), best with step=[pm.Slice([c])] for the width."
            )
        if is_walk and loses_atoms(rv, model):
            raise ValueError(
                f"The steps of the random walk {rv.name} have values of positive probability, and the "
                "difference of two of its entries is not exactly such a value in floating point, so that "
                "PyMC's density of it is wrong. Make the steps records of their own, with shape (people, "
                "steps), and let the query add them up: steps.cumsum(axis=1)."
            )
        if adds_to_atoms(rv, model.basic_RVs):
            raise ValueError(
                f"The law of the record variable {rv.name} is a mixture in which one component has values of "
                "positive probability where another has a density, or may have some (a law that a user "
                "wrote), or makes one value of two, of which one has a probability (pt.abs of a law that is "
                "censored): PyMC adds the two in its log density, and what depends on it would be sampled "
                "wrong. Take records of the components, and let the query choose: "
                "pm.Mixture(name, [w, 1 - w], [pm.DiracDelta.dist(c), law]) is "
                "pt.switch(b, c, x) of records x with that law and b = pm.Bernoulli(name, w, shape=n)."
            )
