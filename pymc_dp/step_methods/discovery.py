"""Which model and which records: what a step has to find out before it is built."""

import sys
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

from pymc.model.core import BaseModel, Model, modelcontext
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable

from pymc_dp.lowering.compiling.building import building
from pymc_dp.query.closeness import table_is_better
from pymc_dp.query.records import RecordBlock, data_in_queries, find_count_tables, find_record_blocks
from pymc_dp.query.tables import Tables, at_several_levels, maps_of_rows
from pymc_dp.step_methods.tables.parameters import find_parameters
from pymc_dp.step_methods.updates.noncentred import count_form

_TABLES: "WeakKeyDictionary[Model, tuple[tuple[Any, ...], list[Tables]]]" = WeakKeyDictionary()
_PARAMETERS: "WeakKeyDictionary[Model, tuple[tuple[Any, ...], list[Variable]]]" = WeakKeyDictionary()
_OF_ROWS: "WeakKeyDictionary[Model, tuple[tuple[Any, ...], dict[tuple[str, ...], bool]]]" = (
    WeakKeyDictionary()
)
_BLOCKS: "WeakKeyDictionary[Model, tuple[tuple[Any, ...], list[RecordBlock]]]" = WeakKeyDictionary()


@building()
def record_blocks(model: Model) -> list[RecordBlock]:
    """Return the record blocks of a model, remembered until the model gets new variables or lengths."""
    version = version_of(model)
    cached = _BLOCKS.get(model)
    if cached is None or cached[0] != version:
        _BLOCKS[model] = cached = (version, find_record_blocks(model, _moves_as_table))
    return cached[1]


@building()
def table_blocks(model: Model) -> list[Tables]:
    """Return the tables of counts of a model, remembered likewise, and until data in their queries change."""
    version = (*version_of(model), *data_in_queries(model))
    cached = _TABLES.get(model)
    if cached is None or cached[0] != version:
        _TABLES[model] = cached = (version, find_count_tables(model, _moves_as_table))
    return cached[1]


@building()
def parameters_of_tables(model: Model) -> list[Variable]:
    """Return the parameters whose law given the tables of counts of a model is known, remembered likewise."""
    version = (*version_of(model), *data_in_queries(model))
    cached = _PARAMETERS.get(model)
    if cached is None or cached[0] != version:
        found = [behind for tables in table_blocks(model) for behind in find_parameters(model, tables)]
        _PARAMETERS[model] = cached = (version, [rv for behind in found for rv in behind.parameters])
    return cached[1]


def _moves_as_table(model: Model, counts: list[Any], known: Sequence[tuple[Any, Any]]) -> bool:
    """Whether counts of rows move as a table; what was found first holds, whatever data are set later.

    Either is exact, and records and tables are looked for apart from each other.
    """
    version = version_of(model)
    cached = _OF_ROWS.get(model)
    if cached is None or cached[0] != version:
        _OF_ROWS[model] = cached = (version, {})
    names = tuple(str(v.name) for v in counts)
    if names not in cached[1]:
        maps = maps_of_rows(model, counts, known)
        jointly = all(count_form(rv) is not None for rv in counts)
        cached[1][names] = maps is not None and table_is_better(
            model, counts, known, maps, adds=at_several_levels(maps), jointly=jointly
        )
    return cached[1][names]


def check_no_table(model: Model) -> None:
    """Refuse a step of records where counts are a table: for a model without records."""
    tables = [name for table in table_blocks(model) for name in table.names]
    if tables and not record_blocks(model):
        raise ValueError(
            f"This model has no confidential records: {', '.join(tables)} are a table of counts, which "
            "TableImputation moves. Leave this step out; or, where each row has releases of its own, say "
            f"in these that the counts are records: records={tables}."
        )


def version_of(model: Model) -> tuple[Any, ...]:
    """Return what changes when a model gets new variables or lengths.

    Data are there with their shapes, which ``pm.set_data`` may change, and single numbers with their values,
    since they may be lengths. The length of a dimension that data define is one of their shapes.
    """
    variables = (*model.basic_RVs, *model.potentials, *model.rvs_to_values.values())
    known = [v for v in model.dim_lengths.values() if isinstance(v, SharedVariable | Constant)]
    data = [v.get_value(borrow=True) for v in model.data_vars if isinstance(v, SharedVariable)]
    return (
        *map(id, variables),
        *(int(v.get_value() if isinstance(v, SharedVariable) else v.data) for v in known),
        *(value.shape for value in data),
        *(value.item() for value in data if value.ndim == 0),
    )


def model_of(rv: Variable) -> Model | None:
    """Find the model of a variable while PyMC assigns step methods.

    PyMC asks ``competence(var, has_grad)`` without the model, and does not push it when it was passed to
    ``pm.sample(model=...)``; the model is then a local variable of the calling frames.
    """
    try:
        model = modelcontext(None)
        if rv in model.free_RVs:
            return model
    except TypeError:
        pass
    frame = sys._getframe(1)
    while frame is not None:
        model = frame.f_locals.get("model")
        if isinstance(model, BaseModel) and rv in model.free_RVs:
            return model
        frame = frame.f_back  # type: ignore[assignment]
    return None


def blocks_with(model: Model, values: Sequence[Variable]) -> list[RecordBlock]:
    """Return the blocks whose record variables are all among some value variables."""
    given = set(values)
    blocks = []
    for block in record_blocks(model):
        own = {model.rvs_to_values[rv] for rv in block.records}
        if own & given:
            missing = own - given
            if missing:
                raise ValueError(
                    f"The records {', '.join(block.names)} have to move together; `vars` leaves out "
                    f"{', '.join(sorted(str(v.name) for v in missing))}."
                )
            blocks.append(block)
            given -= own
    if given:
        names = ", ".join(sorted(str(model.values_to_rvs[v].name) for v in given))
        raise ValueError(
            f"{names} in `vars` are no confidential records of this model; leave `vars` out to take all "
            "records."
        )
    return blocks
