"""The parts of a model that are integrated out: records, their releases, and a way for each pair."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from pymc.model.core import Model
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.variable import TensorVariable

from pymc_dp.marginals.cells import MAX_VALUES, Cells, NotClosed, cells_of, size_of
from pymc_dp.marginals.choice import chosen_way
from pymc_dp.marginals.groups import NotTogether
from pymc_dp.marginals.release_laws import ClosedWay, FiniteWay, Way
from pymc_dp.marginals.tabulated import Tabulated, can_be_counted, tabulated
from pymc_dp.mechanisms.marginals import call
from pymc_dp.query.recordrules import named
from pymc_dp.query.records import (
    RecordBlock,
    Release,
    find_count_tables,
    find_record_blocks,
    is_release,
    parameters_of,
)
from pymc_dp.query.rowlocal import leaves_of
from pymc_dp.query.supports import finite_support

_WAY_OUT = "Leave it to RecordImputation, which pm.sample chooses by itself."


@dataclass(frozen=True)
class Removed:
    """Records that are integrated out together, with their releases in order and a way for each of them.

    For all ways but the last, the record given the release has a law in its own family, or probabilities of
    its few values, from which the next way starts. Among the releases is, first, what else is observed of
    the same people. ``people`` are the names of all records of the block, which belong to the same people.
    ``values`` has the value of each record in each cell, where the ways draw cells, not records.
    """

    records: tuple[TensorVariable, ...]
    releases: list[Release]
    ways: list[Way]
    size: Any
    people: tuple[str, ...]
    values: tuple[np.ndarray, ...] | None = None


def removals(model: Model, names: Sequence[str], tolerance: float) -> list[Removed]:
    """Return, for each of some record variables, or of some that depend on each other, how they go.

    Raises
    ------
    ValueError
        If a variable is no record, if there is no way for it, or if variables other than releases depend on
        it.
    """
    blocks = find_record_blocks(model)
    chosen = dict(_record(model, blocks, name) for name in names)
    return [
        _removed(model, group, _together([chosen[record] for record in group]), tolerance)
        for group in linked(model, list(chosen))
    ]


def _together(blocks: Sequence[RecordBlock]) -> RecordBlock:
    """Return one block of records that meet in the law of something observed, which is of the same people."""
    first, *others = {id(block): block for block in blocks}.values()
    return replace(
        first,
        records=[*first.records, *(rv for block in others for rv in block.records)],
        releases=[*first.releases, *(release for block in others for release in block.releases)],
    )


def linked(model: Model, records: Sequence[TensorVariable]) -> list[list[TensorVariable]]:
    """Return records in groups, in which one enters the law of another, or both enter the law of a third."""
    variables = set(model.basic_RVs)
    together = [
        {rv, *leaves_of(parameters_of(rv), variables)} & set(records)
        for rv in model.basic_RVs
        if rv in records or rv in model.observed_RVs
    ]
    groups: list[set[Variable]] = []
    for found in filter(None, together):
        joined = [g for g in groups if not g.isdisjoint(found)]
        groups = [g for g in groups if g.isdisjoint(found)] + [found.union(*joined)]
    return sorted(
        ([r for r in records if r in group] for group in groups), key=lambda g: list(records).index(g[0])
    )


def split_up(model: Model, names: Sequence[str], tolerance: float) -> tuple[list[Removed], list[Tabulated]]:
    """Return how some record variables are integrated out, or else counted into tables.

    Raises
    ------
    ValueError
        As :func:`removals`; with the reason why it is not counted, if a variable could be.
    """
    blocks = find_record_blocks(model)
    closed, tables = list[str](), []
    for group in linked(model, [_record(model, blocks, name)[0] for name in names]):
        name, *others = [str(record.name) for record in group]
        try:
            removals(model, [name, *others], tolerance)
        except ValueError as error:
            record, block = _record(model, blocks, name)
            if others or not can_be_counted(record):
                raise
            try:
                check_children(model, record, block)
            except ValueError:
                raise error from None
            try:
                tables.append(tabulated(model, record, block))
            except NotTogether as reason:
                raise ValueError(f"{error} Nor is {name} counted into a table: {reason}.") from None
        else:
            closed += [name, *others]
    return removals(model, closed, tolerance), tables


def _record(model: Model, blocks: list[RecordBlock], name: str) -> tuple[TensorVariable, RecordBlock]:
    if name not in model.named_vars:
        known = named(rv for block in blocks for rv in block.records) or "there are none"
        raise ValueError(f"names has {name!r}, which is no variable of the model; its records: {known}.")
    for block in blocks:
        for record in block.records:
            if record.name == name:
                return record, block
    if any(name in table.names for table in find_count_tables(model)):
        raise ValueError(
            f"names has {name!r}, which is a table of counts: its cells meet in releases and cannot be "
            f"integrated out one by one. Leave it to TableImputation, which pm.sample chooses by itself."
        )
    known = named(rv for block in blocks for rv in block.records) or "there are none"
    raise ValueError(
        f"names has {name!r}, which is no confidential record behind an observed release; records of this "
        f"model: {known}."
    )


def check_children(
    model: Model,
    record: TensorVariable,
    block: RecordBlock,
    *,
    drawn_back: bool = False,
    known: Collection[Variable] = (),
) -> None:
    """Refuse a record on which anything but its releases depends, and but what is known to.

    Deterministic functions of it may depend on it where it is drawn back before they are worked out.
    """
    variables = set(model.basic_RVs)
    releases = {release.rv for release in block.releases}
    for rv in model.basic_RVs:
        if rv is record or rv in known or record not in leaves_of(parameters_of(rv), variables):
            continue
        if rv not in releases:
            raise ValueError(
                f"{rv.name} depends on {record.name} and is no release, so that {record.name} cannot be "
                f"integrated out of its releases alone. {_remedy(rv, record, block)}"
            )
        if record in leaves_of(parameters_of(rv)[1:], variables):
            raise ValueError(f"The noise level of {rv.name} depends on {record.name}. {_WAY_OUT}")
    deterministics = [] if drawn_back else model.deterministics
    for what, graphs in (("potential", model.potentials), ("deterministic", deterministics)):
        for graph in graphs:
            if record in set(ancestors([graph], blockers=variables)):
                raise ValueError(
                    f"The {what} {graph.name} depends on {record.name}, which is to be integrated out. Leave "
                    "it out of the model (compute_p=False of ordered laws does), and compute it from draws "
                    "of the records (dp.recover_records)."
                )


def _remedy(rv: Variable, record: TensorVariable, block: RecordBlock) -> str:
    alone = all(release.kind == "local" for release in block.releases if rv in ancestors([release.query]))
    few = all(finite_support(r, MAX_VALUES) is not None for r in (rv, record))
    if rv in block.records and few and alone:
        return f"Both have few values, and go together: names=['{record.name}', '{rv.name}']."
    return _WAY_OUT


def _removed(model: Model, group: list[TensorVariable], block: RecordBlock, tolerance: float) -> Removed:
    name = " and ".join(str(record.name) for record in group)
    variables = set(model.basic_RVs)
    own = [release for release in block.releases if set(leaves_of([release.query], variables)) & set(group)]
    try:
        cells = cells_of(group, variables)
    except NotClosed as error:
        raise ValueError(f"{name} cannot be integrated out: {error}. {_WAY_OUT}") from None
    # what is observed of people who have one of a few values has a law for each
    children = [
        rv
        for rv in (model.observed_RVs if cells is not None else ())
        if not is_release(rv) and set(leaves_of(parameters_of(rv), variables)) & set(group)
    ]
    for record in group:
        check_children(model, record, block, known=children if cells is None else {*children, *group})
    if cells is None and len(group) > 1:
        raise ValueError(
            f"{name} meet in a law, so that they go together, which they can if each has few values. Leave "
            f"one of them out of names. {_WAY_OUT}"
        )
    if not own:
        raise ValueError(f"No release reads {name} itself. {_WAY_OUT}")
    for release in own:
        others = set(leaves_of([release.query], set(block.records))) - set(group)
        if others:
            raise ValueError(
                f"{name} cannot be integrated out of {release.name}, which also reads {named(others)}. "
                f"{_WAY_OUT}"
            )
    if cells is not None and (len(group) > 1 or len(own) > 1 or children):
        _check_given(group, variables)
        return _summed_out(cells, children, own, block)
    if len(own) > 1:
        return _by_turns(group[0], own, block, tolerance)
    (release,) = own
    try:
        way = chosen_way(group[0], group[0], release, tolerance)
    except NotClosed as error:
        if cells is not None and release.kind == "local":  # a function of a record with few values
            return _summed_out(cells, children, own, block)
        raise ValueError(f"{name} cannot be integrated out of {release.name}: {error}. {_WAY_OUT}") from None
    return Removed((group[0],), own, [way], size_of(group[0]), tuple(block.names))


def _check_given(group: Sequence[TensorVariable], variables: Collection[Variable]) -> None:
    """Refuse records of which one is given what another decides: their cells have no law before it."""
    for record in group:
        for given in set(leaves_of(parameters_of(record), variables)) - set(group):
            before = [rv for rv in group if rv in set(ancestors([given]))]
            if before:
                raise ValueError(
                    f"{named(group)} cannot be integrated out together: the law of {record.name} depends on "
                    f"{given.name}, which depends on {named(before)}. {_WAY_OUT}"
                )


def _in_turn(children: Sequence[TensorVariable], own: Sequence[Release]) -> list[Release]:
    """Return all that is seen of records, in an order in which each depends on earlier ones only."""
    # releases come first, so that their laws depend on as little as possible
    after = [release for release in own if not set(children).isdisjoint(ancestors([release.rv]))]
    first = [release for release in own if release not in after]
    return [*first, *(Release(rv, rv, "local") for rv in children), *after]


def _summed_out(
    cells: Cells, children: Sequence[TensorVariable], own: Sequence[Release], block: RecordBlock
) -> Removed:
    """Return how records with few values go from all that is seen of them."""
    releases = _in_turn(children, own)
    found: list[FiniteWay] = []
    for release in releases:
        try:
            found.append(cells.child(release.rv) if release.rv in children else cells.way(release))
        except NotClosed as error:
            names = " and ".join(str(record.name) for record in cells.records)
            raise ValueError(
                f"{names} cannot be integrated out of {release.name}: {error}. {_WAY_OUT}"
            ) from None
    ways, size = _given_those_before(releases, found), size_of(cells.records[0])
    return Removed(cells.records, releases, ways, size, tuple(block.names), cells.values)


def _by_turns(
    record: TensorVariable, own: Sequence[Release], block: RecordBlock, tolerance: float
) -> Removed:
    """Return how a record goes whose law stays in its family, given all releases but the last."""
    # ways that keep the record's law in its family come first, so that one other way may follow them
    ways: list[tuple[Release, Way]] = []
    last: list[tuple[Release, Way]] = []
    for release in own:
        way = _way(record, record, release, tolerance)
        stays = isinstance(way, ClosedWay) and way.updated(release.rv) is not None
        (ways if stays else last).append((release, way))
    if len(last) + (len(ways) if last and not isinstance(last[0][1], ClosedWay) else 0) > 1:
        raise ValueError(
            f"{record.name} has the releases {named(r.rv for r in own)}. A record with several releases can "
            "be integrated out if it has few values, or if all of them, or all but one, are of the record "
            f"itself with unclamped Gaussian noise. {_WAY_OUT}"
        )
    law, chain = record, []
    for release, _ in (*ways, *last):
        way = _way(law, record, release, tolerance)
        chain.append((release, way))
        if isinstance(way, ClosedWay):
            given = way.updated(release.rv)
            if given is not None:
                law = call(record.owner.op, *given)
    size = size_of(record)
    return Removed((record,), [r for r, _ in chain], [w for _, w in chain], size, tuple(block.names))


def _given_those_before(releases: Sequence[Release], ways: Sequence[FiniteWay]) -> list[Way]:
    """Return ways of a record with few values, each from its probabilities given the earlier releases."""
    found: list[Way] = []
    log_weights = ways[0].params[0]
    for release, way in zip(releases, ways, strict=True):
        found.append(replace(way, params=(log_weights, *way.params[1:])))
        log_weights = found[-1].updated(release.rv)  # type: ignore[attr-defined]
    return found


def _way(law: TensorVariable, record: TensorVariable, release: Release, tolerance: float) -> Way:
    try:
        return chosen_way(law, record, release, tolerance)
    except NotClosed as error:
        reason = str(error)
    raise ValueError(f"{record.name} cannot be integrated out of {release.name}: {reason}. {_WAY_OUT}")
