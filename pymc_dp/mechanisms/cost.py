"""The privacy cost of releases: of one release, of several, or of everything that a model publishes."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import replace
from itertools import permutations
from typing import Any

import numpy as np
import pymc as pm
from pymc.model.core import BaseModel, Model
from pymc.pytensorf import rvs_in_graph
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import HasInnerGraph
from pytensor.graph.traversal import ancestors
from pytensor.tensor.variable import TensorVariable

from pymc_dp.mechanisms._numbers import present_lengths
from pymc_dp.mechanisms._stated import checked_guarantee
from pymc_dp.mechanisms.marginals import MarginalOp, SymbolicMarginal
from pymc_dp.mechanisms.mechanism import MechanismOp
from pymc_dp.privacy._operations import NONEMPTY, OF_SELECTION
from pymc_dp.privacy.accountant import compose, compose_disjoint
from pymc_dp.privacy.guarantee import PrivacyGuarantee
from pymc_dp.privacy.release import Release
from pymc_dp.query.lengths import lengths_of
from pymc_dp.query.records import find_count_tables, find_record_blocks
from pymc_dp.query.rowlocal import leaves_of
from pymc_dp.query.tables import is_invariant


def guarantee(released: Any, *, delta: float | None = None, disjoint: bool = False) -> PrivacyGuarantee:
    """Return the privacy guarantee of a release, or of several together, for each person.

    Parameters
    ----------
    released : TensorVariable, Release, pymc.Model, or a list or tuple of the first two
        A mechanism's variable, from a model or from ``.dist``; a published release; or a model, for
        everything that it publishes. One that is listed twice is counted once; a PrivacyGuarantee in
        a list counts as often as it is listed.
    delta : float, optional
        If given, in (0, 1): state the smallest epsilon that is found to hold at this delta. Without it, the
        guarantee is the declared one; for several releases it is the sum of their epsilons at the sum of
        their deltas, or less where a tighter accounting is known.
    disjoint : bool, default False
        Whether no person is behind two of several releases. In a model, releases that share a record variable
        are never taken as disjoint. Releases are disjoint only where it is public who is behind which of
        them: two hospitals that publish one release each, for instance, but not the men and the women of one
        table in which sex is confidential too.

    Returns
    -------
    PrivacyGuarantee
        For several releases it is a :class:`~pymc_dp.privacy.accountant.ComposedGuarantee`, which lists them
        and converts to other deltas by the tightest accounting that is known.

    Raises
    ------
    TypeError
        `released` is not a release.
    ValueError
        The guarantee of a release (which the message names) is not known, or is better than its noise allows;
        or the releases have no guarantee at that `delta`; or there are no releases.

    Notes
    -----
    Record variables of a model are attributes of people, and two record variables may well be
    attributes of the same people: unless `disjoint` says otherwise all releases of a model are taken
    to be about the same people, and their costs add up. A release that keeps the record axis (local
    noise) makes its promise to each row: one row is one person.

    Numbers that a model knows exactly (:class:`pymc_dp.Invariant`) have no privacy. The guarantee of the
    model names them: its promise is between data that agree on them, which may be more than one person apart.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dp as dp
    >>> print(dp.guarantee(dp.LaplaceMechanism.dist(0.0, epsilon=0.5, sensitivity=2)))
    Pure differential privacy with epsilon = 0.5, for replace-one neighbours.
    >>> with pm.Model() as model:
    ...     p = pm.Beta("p", 1, 1)
    ...     y = pm.Bernoulli("y", p, shape=50)
    ...     count = dp.LaplaceMechanism("count", y.sum(), epsilon=1, sensitivity=1)
    ...     rows = dp.LaplaceMechanism("rows", y, epsilon=2, sensitivity=1)
    >>> print(dp.guarantee(model))
    The releases count and rows together: pure differential privacy with epsilon = 3, for replace-one
    neighbours, the same people being behind all of them.
    """
    if isinstance(released, BaseModel):
        return _of_model(released, delta, disjoint)
    if isinstance(released, list | tuple):
        parts: dict[str, PrivacyGuarantee] = {}
        # a guarantee that is listed twice stands for two releases; a release that is listed twice is one
        for item in {
            k if isinstance(item, PrivacyGuarantee) else id(item): item for k, item in enumerate(released)
        }.values():
            name = str(getattr(item, "name", None) or getattr(item, "mechanism", None) or "release")
            parts[_unused(name, parts)] = _of_one(item)
        if not parts:
            raise ValueError("No release is listed: give at least one.")
        if disjoint:
            _check_disjoint([item for item in released if isinstance(item, TensorVariable)])
        return (compose_disjoint if disjoint else compose)(parts, delta=delta)
    if disjoint:
        raise ValueError("disjoint=True is about several releases: pass a model, or a list of releases.")
    stated = _of_one(released)
    return stated if delta is None else stated.to_approximate(delta)


def _unused(name: str, taken: Container[str]) -> str:
    """Return a name that is not taken yet, since of two parts with one name only one would be counted."""
    label, k = name, 1
    while label in taken:
        k += 1
        label = f"{name} ({k})"
    return label


def _check_disjoint(variables: list[TensorVariable]) -> None:
    """Refuse releases that share people."""
    behind = [(rv, _arrays_behind(rv)) for rv in {id(v): v for v in variables}.values()]
    for (first, own), (second, others) in permutations(behind, 2):
        shared = next((v for v, of_people in own.items() if of_people and v in others), None)
        shared = _integrated_out_of_both(first, second) if shared is None else shared
        if shared is not None:
            raise ValueError(
                f"disjoint=True, but the releases {first} and {second} both read {shared}: the same people "
                "may be behind them. Leave disjoint out, or pass the model, which tells them apart."
            )


def _arrays_behind(rv: TensorVariable) -> dict[Variable, bool]:
    """Return the variables behind a release, each with whether it holds the release's people.

    Its people are in the arrays that its query reads, and in arrays behind these that have as many rows. A
    release whose records are integrated out has no query any more; the records' law is in its parameters. A
    user's own density may read records through its parameters, too.
    """
    op = rv.owner.op
    read = op.dist_params(rv.owner)[: 1 if op.noise_parameters else None]
    queue: list[tuple[list[Variable], int | None]] = [(list(read), None)]
    found: dict[Variable, bool] = {}
    for graphs, people in queue:
        for v in leaves_of(graphs, rvs_in_graph(graphs)):
            rows = lengths_of(v)[0] if v.type.ndim else -1  # type: ignore[attr-defined]
            of_people = rows >= 0 and people in (None, rows)
            if v not in found or of_people > found[v]:
                found[v] = of_people
                queue.append((v.owner.inputs, rows if of_people else -1))  # type: ignore[union-attr]
    return found


def _records_of(rv: TensorVariable) -> tuple[str, ...]:
    """Return the names of the records that were integrated out of a release, if any were."""
    op = rv.owner.op
    return (op.records or ()) if isinstance(op, MarginalOp) else ()


def _integrated_out_of_both(first: TensorVariable, second: TensorVariable) -> str | None:
    """Return the name of a record that was integrated out of two releases of one model."""
    common = set(_records_of(first)) & set(_records_of(second))
    if not common:
        return None
    # records of different models may share a name, but their releases have no common ancestor
    both = set(ancestors([first])) & set(ancestors([second]))
    return None if all(isinstance(v, Constant) for v in both) else min(common)


def _of_one(released: Any) -> PrivacyGuarantee:
    if isinstance(released, PrivacyGuarantee):
        return released
    selects = False
    if isinstance(released, Release):
        op = None
        known = None if released.guarantee is None else checked_guarantee(released)
        selects = released.processing is not None and released.processing.unknown_keys == NONEMPTY
        if selects and released.guarantee is not None:
            known = replace(released.guarantee, stated=True)
    else:
        variable = isinstance(released, TensorVariable) and released.owner is not None
        op = released.owner.op if variable else None
        if not isinstance(op, MechanismOp):
            # the message does not quote it: it may be data, passed by mistake
            given = (released.name if variable else None) or type(released).__name__
            raise TypeError(
                f"{given} is not a release: pass the variable that a mechanism returned, a Release, a "
                "list of these, or a model."
            )
        known = op.guarantee
        if op.lengths is not None:
            _check_lengths(released, op)
    if known is None:
        what = released.mechanism if isinstance(released, Release) else released
        why = getattr(op, "why_none", None) or getattr(op, "why_unknown", MechanismOp.why_unknown)
        why = OF_SELECTION if selects else why
        raise ValueError(f"The guarantee of {what} is not known: {why}.")
    return known


def _check_lengths(released: TensorVariable, op: MechanismOp) -> None:
    """Refuse a guarantee that was computed for a number of records other than the present one."""
    assert op.lengths is not None
    if isinstance(op, MarginalOp):
        now = _lengths_of_rows(released, len(op.lengths) - 1)
    else:
        now = present_lengths(op.dist_params(released.owner)[0], op.lengths[0] >= 0)  # type: ignore[attr-defined]
    if now[: len(op.lengths)] != op.lengths:
        raise ValueError(
            f"The guarantee of {released} was worked out for data of other lengths than they have now, and "
            "so was its noise level: declare the model again with the present data."
        )


def _lengths_of_rows(released: TensorVariable, axes: int) -> tuple[int, ...]:
    """Return -1 and the present lengths of a row, from its parameters, where its record is integrated out."""
    op: Any = released.owner.op
    params = zip(op.dist_params(released.owner), op.ndims_params, strict=True)
    shapes = [lengths_of(released), *(lengths_of(p)[: p.type.ndim - core] for p, core in params)]
    try:
        return (-1, *np.broadcast_shapes(*(shape[max(len(shape) - axes, 0) :] for shape in shapes)))
    except ValueError:  # only some of the parameters have changed length
        return ()


def _of_model(model: Model, delta: float | None, disjoint: bool) -> PrivacyGuarantee:
    releases = {
        rv.name: rv for rv in model.basic_RVs if rv.owner is not None and isinstance(rv.owner.op, MechanismOp)
    }
    hidden = _hidden(model)
    if hidden is not None:
        raise ValueError(
            f"A release is hidden in {hidden}: what it costs is known only if it is a variable of its own. "
            "Declare it with a name, as in dp.LaplaceMechanism('z', query, ...), and compute from that."
        )
    if not releases:
        raise ValueError(
            "model publishes nothing: none of its variables is a release. Declare what is released with "
            "a mechanism, for example dp.LaplaceMechanism('z', query, ...)."
        )
    costs: Mapping[str, PrivacyGuarantee] = {name: _of_one(rv) for name, rv in releases.items()}
    exact = tuple(str(rv.name) for rv in model.basic_RVs if is_invariant(rv))
    if not disjoint:
        return replace(compose(costs, delta=delta), exact=exact)
    groups: dict[str, PrivacyGuarantee] = {}
    for names in _groups(model, releases):
        groups[_unused(" with ".join(names), groups)] = (
            costs[names[0]] if len(names) == 1 else compose({name: costs[name] for name in names})
        )
    return replace(compose_disjoint(groups, delta=delta), exact=exact)


def _groups(model: Model, releases: Mapping[str, TensorVariable]) -> list[list[str]]:
    """Return the names of the releases, grouped by shared record variables."""
    free = [rv for rv in releases.values() if rv in model.free_RVs]
    if free:  # the search for records needs observed releases
        shapes = model.eval_rv_shapes()
        model = pm.observe(model, {rv.name: np.zeros(shapes[rv.name], dtype=rv.dtype) for rv in free})
    order = list(releases)
    # a release of counts has no records in the model, nor has one whose records were integrated out
    behind: dict[Any, set[str]] = {}
    for name, rv in releases.items():
        for record in _records_of(rv) or (rv,):
            behind.setdefault(record, set()).add(name)
    for tables in find_count_tables(model):
        for variable in tables.names:
            behind.setdefault(variable, set()).update(known.name for known in tables.releases)
    for block in find_record_blocks(model):
        names = {*(r.name for r in block.releases), *(t.name for t in block.terms if t.name in releases)}
        # children of the records belong to the same people, also where they are records of other releases
        for record in (*block.names, *(str(t.name) for t in block.terms)):
            behind.setdefault(record, set()).update(names)
    joined: list[set[str]] = []
    for names in behind.values():
        touched = [group for group in joined if group & names]
        joined = [group for group in joined if not group & names] + [names.union(*touched)]
    return sorted((sorted(group, key=order.index) for group in joined), key=lambda g: order.index(g[0]))


def _hidden(model: Model) -> str | None:
    """Return the name of a variable that depends on a release which is not itself a variable of the model."""
    own = {rv.owner for rv in model.basic_RVs if rv.owner is not None}
    # also the components of a release whose records are integrated out
    own |= {law.owner for node in own if isinstance(node.op, SymbolicMarginal) for law in node.op.laws(node)}
    for v in [*model.basic_RVs, *model.deterministics, *model.potentials]:
        for node in {a.owner for a in ancestors([v]) if a.owner is not None}:
            known = node in own and isinstance(node.op, MechanismOp)
            if not known and _draws_release(node):
                return str(v.name)
    return None


def _draws_release(node: Apply) -> bool:
    """Return whether an operation, or one inside of it, draws a release."""
    if isinstance(node.op, MechanismOp):
        return True
    op = getattr(node.op, "core_op", node.op)  # the operation that is repeated over a batch
    return isinstance(op, HasInnerGraph) and any(map(_draws_release, op.fgraph.apply_nodes))
