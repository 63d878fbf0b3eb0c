"""What stands behind the mechanisms of a model, also where a mechanism is part of another distribution.

And what else belongs to the steps of this package, because steps of others hardly move it.
"""

from collections.abc import Iterable, Iterator

from pymc.model.core import Model
from pytensor.graph.basic import Variable
from pytensor.graph.op import HasInnerGraph
from pytensor.graph.traversal import ancestors

from pymc_dp.mixtures.structure import is_labels
from pymc_dp.query.lengths import leading_lengths
from pymc_dp.query.records import is_noisy_count, is_release, parameters_of
from pymc_dp.query.rowlocal import leaves_of
from pymc_dp.step_methods.discovery import record_blocks, table_blocks


def behind_mechanisms(model: Model) -> dict[Variable, Variable]:
    """Return the free variables that belong to a mechanism, each with the variable of that mechanism.

    These are the records behind observed releases, and the mechanism itself where it is not observed. Where
    records cannot be told from parameters (the mechanism is part of another distribution or not observed, or
    its records have no structure that the steps know), they are all free variables with a record axis that it
    is computed from, and their own parents with such an axis.
    """
    variables, free, found = set(model.basic_RVs), set(model.free_RVs), {}
    counts = {rv for rv in model.observed_RVs if is_release(rv) and is_noisy_count(model, rv)}
    mechanisms = [rv for rv in dict.fromkeys(_mechanisms(model, variables)) if rv not in counts]
    unread = dict.fromkeys(mechanisms)
    if not unread:
        return {}
    try:
        for tables in table_blocks(model):
            found.update(dict.fromkeys(tables.variables, (tables.releases or tables.invariants)[0].rv))
            for known in tables.releases:
                unread.pop(known.rv, None)
        for block in record_blocks(model):
            found.update(dict.fromkeys(block.records, block.releases[0].rv))
            for release in block.releases:
                del unread[release.rv]
    except ValueError:  # our steps refuse this model, but those that the user names are free to take it
        found = {}
        unread = dict.fromkeys(mechanisms)
    lengths = leading_lengths(model)
    for rv in unread:
        graphs = parameters_of(rv) if rv in variables else [rv]
        leaves = [v for v in leaves_of(graphs, variables) if v in free]
        records = [v for v in leaves if v in lengths] or leaves
        for v in records:  # which grows
            parents = leaves_of(parameters_of(v), variables)
            records += [p for p in parents if p in lengths and p not in records]
        for v in [*records, *({rv} & free)]:
            found.setdefault(v, rv)
    return found


def known_to_steps(model: Model) -> dict[Variable, Variable | None]:
    """Return the variables that steps of others get by their names only, each with its mechanism.

    These are the variables of mechanisms, and the labels of random partitions, which have a mechanism where
    the records of their mixture have one, and otherwise none.
    """
    variables, found = set(model.basic_RVs), dict[Variable, Variable | None](behind_mechanisms(model))
    for labels in filter(is_labels, model.free_RVs):
        of_law = {rv: leaves_of(parameters_of(rv), variables) for rv in found}
        hidden = (found[rv] for rv, leaves in of_law.items() if labels in leaves)
        found.setdefault(labels, next(hidden, None))
    return found


def _mechanisms(model: Model, variables: set[Variable]) -> Iterator[Variable]:
    """Yield the variables and potentials of a model that are mechanisms, or have one inside."""
    for rv in [*model.basic_RVs, *model.potentials]:
        if not getattr(getattr(rv.owner, "op", None), "of_records", True):
            continue  # the law of a release whose records were integrated out: nothing is hidden behind it
        inputs = [] if rv.owner is None else rv.owner.inputs
        if _any_mechanism([rv, *(v for v in ancestors(inputs, blockers=variables) if v not in variables)]):
            yield rv


def _any_mechanism(variables: Iterable[Variable]) -> bool:
    """Whether one of some variables is a mechanism's, or computed by a graph with one inside."""
    return any(
        is_release(v)
        or (isinstance(v.owner.op, HasInnerGraph) and _any_mechanism(ancestors(v.owner.op.inner_outputs)))
        for v in variables
        if v.owner is not None
    )
