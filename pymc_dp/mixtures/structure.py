"""Find the mixture in a model: labels, atoms, and the variable whose law the labels select.

Labels are slots of the atoms. The samplers rely on a posterior that does not change when slots are
renumbered. So labels may enter a model as an index of the atoms only, and all slots' atoms must have the same
law.
"""

from dataclasses import dataclass
from typing import Any

from pymc.model.core import Model
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.subtensor import AdvancedSubtensor
from pytensor.tensor.variable import TensorVariable

from pymc_dp.mixtures._arguments import the_labels
from pymc_dp.mixtures.partition import ChineseRestaurantProcessRV
from pymc_dp.query.recordrules import named
from pymc_dp.query.records import parameters_of
from pymc_dp.query.rowlocal import leaves_of


@dataclass(frozen=True)
class Mixture:
    """A mixture in a model.

    Attributes
    ----------
    labels : TensorVariable, shape (n,)
        The slot of each record.
    n, max_components : int
        Numbers of records and of slots.
    atoms : list of TensorVariable, shape (max_components, ...)
        Free variables with one row per slot, in the model's order.
    kernel : TensorVariable
        The variable whose law depends on the atoms that the labels select.
    """

    labels: TensorVariable
    n: int
    max_components: int
    atoms: list[TensorVariable]
    kernel: TensorVariable


def is_labels(rv: Variable) -> bool:
    """Return whether a variable holds the labels of a random partition."""
    return rv.owner is not None and isinstance(rv.owner.op, ChineseRestaurantProcessRV)


def find_mixtures(model: Model) -> list[Mixture]:
    """Find the mixtures of a model whose labels are free variables.

    Raises
    ------
    ValueError
        If labels are used other than as an index of atoms in the law of one variable, or if atoms are used
        other than through the labels.
    """
    return [_mixture(model, rv) for rv in model.free_RVs if is_labels(rv)]


def _mixture(model: Model, labels: Any) -> Mixture:
    op = labels.owner.op
    variables = set(model.basic_RVs)
    users = [rv for rv in model.basic_RVs if labels in leaves_of(parameters_of(rv), variables)]
    for potential in model.potentials:
        if labels in leaves_of([potential], variables):
            raise ValueError(
                f"The potential {potential.name} depends on {the_labels(labels.name)}; labels may enter a "
                "model only as the index of atoms in the law of the records, as in mu[labels]."
            )
    if not users:
        raise ValueError(
            f"Nothing depends on {the_labels(labels.name)}; use them as the index of atoms in the law of the "
            f"records, as in pm.Normal('y', mu[{labels.name}], 1)."
        )
    # PyMC splits a variable in two if its data have missing values
    if {str(rv.name).rpartition("_")[2] for rv in users} == {"observed", "unobserved"}:
        raise ValueError(
            f"The data whose law uses {the_labels(labels.name)} have missing values ({named(users)}), and a "
            "record needs a value to have a cluster: leave these records out."
        )
    if len(users) > 1:
        raise ValueError(
            f"{the_labels(labels.name, 'The')} are used by {named(users)}, and one kernel is supported. "
            "Known variables of different laws are numbers of one pm.CustomDist with logp=, random= and "
            "signature=: the page on mixtures of known records has an example. Columns with the same law are "
            f"one variable, pm.Normal('y', mu[{labels.name}], 1) with mu of shape ({op.max_components}, "
            "columns). Variables in clusters of their own take labels of their own. Confidential ones take "
            f"{labels.name} = pm.Categorical('{labels.name}', p), which mixes slowly."
        )
    (kernel,) = users
    picks = _picks(labels, kernel, variables)
    tables = [pick.owner.inputs[0] for pick in picks]
    free = set(model.free_RVs)
    atoms = {rv for rv in leaves_of(tables, variables) if rv in free and _has_slots(rv, op.max_components)}
    queue = list(atoms)
    while queue:  # atoms' own parents may be atoms too, such as variances of means
        for parent in leaves_of(parameters_of(queue.pop()), variables):
            if parent in free and parent not in atoms and _has_slots(parent, op.max_components):
                atoms.add(parent)
                queue.append(parent)
    if not atoms:
        raise ValueError(_no_atoms(labels, [v for v in leaves_of(tables, variables) if v in free]))
    _check_used_through_labels(model, atoms, picks, kernel)
    ordered = [rv for rv in model.free_RVs if rv in atoms]
    return Mixture(labels, op.n, op.max_components, ordered, kernel)


def _has_slots(rv: Any, max_components: int) -> bool:
    return _has_rows(rv) and _shape_now(rv)[0] == max_components


def _has_rows(rv: Any) -> bool:
    return bool(rv.ndim - getattr(rv.owner.op, "ndim_supp", 0) >= 1)


def _shape_now(rv: Any) -> tuple[int, ...]:
    """Return the shape of a variable; PyTensor does not know the lengths of dims that may change."""
    return tuple(
        int(rv.shape[k].eval(mode="FAST_COMPILE")) if length is None else length
        for k, length in enumerate(rv.type.shape)
    )


def _no_atoms(labels: Any, picked: list[Any]) -> str:
    """Say which shapes are there, and which are asked for."""
    slots = labels.owner.op.max_components
    said = [
        f"{rv.name} has shape {_shape_now(rv)}" + ("" if _has_rows(rv) else ", all of it one vector")
        for rv in sorted(picked, key=lambda rv: str(rv.name))
    ]
    rows = {_shape_now(rv)[0] for rv in picked if _has_rows(rv)}
    return (
        f"{the_labels(labels.name, 'The')} pick no atoms: {'; '.join(said) or 'nothing random is indexed'}. "
        f"Atoms are free variables, picked as in mu[{labels.name}], with a row of their own for each of the "
        f"max_components={slots} slots: declare them with shape=({slots}, ...)"
        + (f", or {the_labels(labels.name)} with max_components={rows.pop()}." if len(rows) == 1 else ".")
    )


def _picks(labels: Any, kernel: Variable, variables: set[Variable]) -> list[Any]:
    """Return the graphs ``table[labels]`` in the kernel's law; refuse any other use of the labels."""
    picks = []
    for v in ancestors(parameters_of(kernel), blockers=variables):
        if v.owner is None or v in variables or labels not in v.owner.inputs:
            continue
        node = v.owner
        index = isinstance(node.op, AdvancedSubtensor) and node.inputs[0] is not labels
        if not index or node.op.idx_list[0] != 0 or node.inputs[1] is not labels:
            raise ValueError(
                f"The law of {kernel.name} uses {the_labels(labels.name)} otherwise than as the first index "
                f"of atoms, as in mu[{labels.name}]. Labels are slots without an order or a size of their "
                "own: give each component an atom with what should depend on it."
            )
        picks.append(v)
    return picks


def _check_used_through_labels(
    model: Model, atoms: set[Variable], picks: list[Variable], kernel: Variable
) -> None:
    """Refuse atoms on which a variable depends other than by ``atoms[labels]``."""
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
