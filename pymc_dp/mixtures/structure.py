"""Find the mixture in a model: labels, atoms, and the variable whose law the labels pick.

Labels are slots of the atoms. The samplers rely on that: the posterior has to stay the same when slots are
renamed, so labels may enter a model as an index of the atoms only, and atoms must be alike.
"""

from dataclasses import dataclass
from typing import Any

from pymc.model.core import Model
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.subtensor import AdvancedSubtensor
from pytensor.tensor.variable import TensorVariable

from pymc_dp.mixtures.partition import ChineseRestaurantProcessRV
from pymc_dp.query.recordrules import named
from pymc_dp.query.records import parameters_of
from pymc_dp.query.rowlocal import leaves_of


@dataclass(frozen=True)
class Mixture:
    """A mixture of a model.

    Attributes
    ----------
    labels : TensorVariable, shape (n,)
        Slot of every record.
    n, max_components : int
        Records, and slots.
    atoms : list of TensorVariable, shape (max_components, ...)
        Free variables with one row per slot, in the model's order.
    kernel : TensorVariable
        The variable whose law has the atoms picked by the labels.
    """

    labels: TensorVariable
    n: int
    max_components: int
    atoms: list[TensorVariable]
    kernel: TensorVariable


def is_labels(rv: Variable) -> bool:
    """Whether a variable holds the labels of a random partition."""
    return rv.owner is not None and isinstance(rv.owner.op, ChineseRestaurantProcessRV)


def find_mixtures(model: Model) -> list[Mixture]:
    """Find the mixtures of a model whose labels are free variables.

    Raises
    ------
    ValueError
        If labels are used otherwise than as an index of atoms in the law of one variable, or atoms otherwise
        than through the labels.
    """
    return [_mixture(model, rv) for rv in model.free_RVs if is_labels(rv)]


def _mixture(model: Model, labels: Any) -> Mixture:
    op = labels.owner.op
    variables = set(model.basic_RVs)
    users = [rv for rv in model.basic_RVs if labels in leaves_of(parameters_of(rv), variables)]
    for potential in model.potentials:
        if labels in leaves_of([potential], variables):
            raise ValueError(
                f"The potential {potential.name} depends on the labels {labels.name}; labels may enter a "
                "model only as the index of atoms in the law of the records, as in mu[labels]."
            )
    if not users:
        raise ValueError(
            f"Nothing depends on the labels {labels.name}; use them as the index of atoms in the law of the "
            f"records, as in pm.Normal('y', mu[{labels.name}], 1)."
        )
    # PyMC splits a variable in two where its data have gaps
    if {str(rv.name).rpartition("_")[2] for rv in users} == {"observed", "unobserved"}:
        raise ValueError(
            f"The data whose law uses the labels {labels.name} have missing values ({named(users)}), and a "
            "record needs a value to have a cluster: leave these records out."
        )
    if len(users) > 1:
        raise ValueError(
            f"The labels {labels.name} are used by {named(users)}, and one kernel is supported. Give each "
            "variable labels of its own, or join the variables into one with several columns."
        )
    (kernel,) = users
    picks = _picks(labels, kernel, variables)
    tables = [pick.owner.inputs[0] for pick in picks]
    free = set(model.free_RVs)
    atoms = {rv for rv in leaves_of(tables, variables) if rv in free and _has_slots(rv, op.max_components)}
    queue = list(atoms)
    while queue:  # a variance that only the law of the means depends on has a row per slot too
        for parent in leaves_of(parameters_of(queue.pop()), variables):
            if parent in free and parent not in atoms and _has_slots(parent, op.max_components):
                atoms.add(parent)
                queue.append(parent)
    if not atoms:
        raise ValueError(
            f"The labels {labels.name} pick no atoms: index a free variable of shape "
            f"({op.max_components}, ...), max_components rows, as in mu[{labels.name}]."
        )
    _check_used_through_labels(model, atoms, picks, kernel)
    ordered = [rv for rv in model.free_RVs if rv in atoms]
    return Mixture(labels, op.n, op.max_components, ordered, kernel)


def _has_slots(rv: Any, max_components: int) -> bool:
    batch = rv.ndim - getattr(rv.owner.op, "ndim_supp", 0)
    if batch < 1:
        return False
    length = rv.type.shape[0]
    # of dims whose lengths may change, PyTensor does not know them
    return bool((int(rv.shape[0].eval(mode="FAST_COMPILE")) if length is None else length) == max_components)


def _picks(labels: Any, kernel: Variable, variables: set[Variable]) -> list[Any]:
    """Graphs ``table[labels]`` in the law of the kernel; refuse any other use of the labels."""
    picks = []
    for v in ancestors(parameters_of(kernel), blockers=variables):
        if v.owner is None or v in variables or labels not in v.owner.inputs:
            continue
        node = v.owner
        index = isinstance(node.op, AdvancedSubtensor) and node.inputs[0] is not labels
        if not index or node.op.idx_list[0] != 0 or node.inputs[1] is not labels:
            raise ValueError(
                f"The law of {kernel.name} uses the labels {labels.name} otherwise than as the first index "
                f"of atoms, as in mu[{labels.name}]. Labels are slots without an order or a size of their "
                "own: give each component an atom with what should depend on it."
            )
        picks.append(v)
    return picks


def _check_used_through_labels(
    model: Model, atoms: set[Variable], picks: list[Variable], kernel: Variable
) -> None:
    """Refuse atoms on which something depends that does not pick them by the labels."""
    variables = set(model.basic_RVs)
    for rv in variables - atoms:
        found = atoms & set(leaves_of(parameters_of(rv), variables | set(picks)))
        if found:
            raise ValueError(
                f"The law of {rv.name} depends on the atoms {named(found)} otherwise than through the "
                "labels. Atoms of unoccupied slots are drawn afresh at every step, so nothing else may "
                "depend on them."
            )
    for potential in model.potentials:
        if atoms & set(leaves_of([potential], variables)):
            raise ValueError(
                f"The potential {potential.name} depends on the atoms {named(atoms)}; put what it says into "
                "their law instead."
            )
