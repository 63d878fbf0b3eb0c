"""The parts of a model that are integrated out: records, their releases, and a way for each pair."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytensor.tensor as pt
from pymc.model.core import Model
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.variable import TensorVariable

from pymc_dp.marginals.choice import NotClosed, chosen_way, few_valued_way
from pymc_dp.marginals.groups import NotTogether
from pymc_dp.marginals.release_laws import ClosedWay, FiniteWay, Way
from pymc_dp.marginals.tabulated import Tabulated, can_be_counted, tabulated
from pymc_dp.mechanisms.marginals import call
from pymc_dp.query.lengths import lengths_of
from pymc_dp.query.recordrules import named
from pymc_dp.query.records import RecordBlock, Release, find_count_tables, find_record_blocks, parameters_of
from pymc_dp.query.rowlocal import leaves_of

_WAY_OUT = "Leave it to RecordImputation, which pm.sample chooses by itself."


@dataclass(frozen=True)
class Removed:
    """A record variable that is integrated out, with its releases in order and a way for each of them.

    For all ways but the last, the record given the release has a law in its own family, or probabilities of
    its few values, from which the next way starts. ``people`` are the names of all records of the block,
    which belong to the same people.
    """

    record: TensorVariable
    releases: list[Release]
    ways: list[Way]
    size: Any
    people: tuple[str, ...]


def removals(model: Model, names: Sequence[str], tolerance: float) -> list[Removed]:
    """Return, for each of some record variables, how it is integrated out.

    Raises
    ------
    ValueError
        If a variable is no record, if there is no way for it, or if variables other than releases depend on
        it.
    """
    blocks = find_record_blocks(model)
    chosen = [_record(model, blocks, name) for name in names]
    for record, block in chosen:
        check_children(model, record, block)
    taken = {record for record, _ in chosen}
    found = []
    for record, block in chosen:
        others = set(leaves_of(parameters_of(record), set(model.basic_RVs))) & taken
        if others:
            raise ValueError(
                f"The law of {record.name} depends on {named(others)}: they cannot both be integrated out. "
                f"Leave one of the two out of names. {_WAY_OUT}"
            )
        found.append(_removed(record, block, tolerance))
    return found


def split_up(model: Model, names: Sequence[str], tolerance: float) -> tuple[list[Removed], list[Tabulated]]:
    """Return how some record variables are integrated out, or else counted into tables.

    Raises
    ------
    ValueError
        As :func:`removals`; with the reason why it is not counted, if a variable could be.
    """
    blocks = find_record_blocks(model)
    closed, tables = [], []
    for name in names:
        try:
            removals(model, [name], tolerance)
        except ValueError as error:
            record, block = _record(model, blocks, name)
            check_children(model, record, block)
            if not can_be_counted(record):
                raise
            try:
                tables.append(tabulated(model, record, block))
            except NotTogether as reason:
                raise ValueError(f"{error} Nor is {name} counted into a table: {reason}.") from None
        else:
            closed.append(name)
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
    model: Model, record: TensorVariable, block: RecordBlock, *, drawn_back: bool = False
) -> None:
    """Refuse a record on which anything but its releases depends.

    Deterministic functions of it may depend on it where it is drawn back before they are worked out.
    """
    variables = set(model.basic_RVs)
    releases = {release.rv for release in block.releases}
    for rv in model.basic_RVs:
        if rv is record or record not in leaves_of(parameters_of(rv), variables):
            continue
        if rv not in releases:
            raise ValueError(
                f"{rv.name} depends on {record.name} and is no release, so that {record.name} cannot be "
                f"integrated out of its releases alone. {_WAY_OUT}"
            )
        if record in leaves_of(parameters_of(rv)[1:], variables):
            raise ValueError(f"The noise level of {rv.name} depends on {record.name}. {_WAY_OUT}")
    deterministics = [] if drawn_back else model.deterministics
    for what, graphs in (("potential", model.potentials), ("deterministic", deterministics)):
        for graph in graphs:
            if record in set(ancestors([graph], blockers=variables)):
                raise ValueError(
                    f"The {what} {graph.name} depends on {record.name}, which is to be integrated out. Leave "
                    "it out of the model, and compute it from draws of the records (dp.recover_records)."
                )


def _removed(record: TensorVariable, block: RecordBlock, tolerance: float) -> Removed:
    variables = {record}
    own = [release for release in block.releases if record in leaves_of([release.query], variables)]
    if not own:
        raise ValueError(f"No release reads {record.name} itself. {_WAY_OUT}")
    for release in own:
        others = set(leaves_of([release.query], set(block.records))) - variables
        if others:
            raise ValueError(
                f"{record.name} cannot be integrated out of {release.name}, which also reads "
                f"{named(others)}. {_WAY_OUT}"
            )
    size, people = _size(record), tuple(block.names)
    few = [few_valued_way(record, release) for release in own] if len(own) > 1 else [None]
    if None not in few:
        return Removed(record, own, _given_those_before(own, few), size, people)  # type: ignore[arg-type]
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
            "be integrated out if it has few values and they are of the record itself, or if all of them, or "
            f"all but one, are of the record itself with unclamped Gaussian noise. {_WAY_OUT}"
        )
    law, chain = record, []
    for release, _ in (*ways, *last):
        way = _way(law, record, release, tolerance)
        chain.append((release, way))
        if isinstance(way, ClosedWay):
            given = way.updated(release.rv)
            if given is not None:
                law = call(record.owner.op, *given)
    return Removed(record, [r for r, _ in chain], [w for _, w in chain], size, people)


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


def _size(record: TensorVariable) -> Any:
    """Return the batch shape of the records, as a graph that does not contain the records."""
    node = record.owner
    batch = record.type.ndim - node.op.ndim_supp
    if None not in record.type.shape[:batch]:
        return record.type.shape[:batch]
    size = node.op.size_param(node) if isinstance(node.op, RandomVariable) else None
    if size is not None and hasattr(size.type, "ndim"):
        return size
    return pt.constant(lengths_of(record)[:batch])
