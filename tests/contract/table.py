"""All rows of the contract table, from every file ``rows_*.py`` in this folder."""

from importlib import import_module
from pathlib import Path

import pytest

ROWS = [
    row
    for path in sorted(Path(__file__).parent.glob("rows_*.py"))
    for row in import_module(f"tests.contract.{path.stem}").ROWS
]


def over(rows, **kwargs):
    """Parametrise a test over rows, named by mechanism and noise level."""
    names, ids = {}, []
    for row in rows:
        names[str(row)] = names.get(str(row), 0) + 1
        ids.append(f"{row}-{names[str(row)]}" if names[str(row)] > 1 else str(row))
    return pytest.mark.parametrize("row", rows, ids=ids, **kwargs)


each_row = over(ROWS)
_first = {row.mechanism: row for row in reversed(ROWS)}
each_mechanism = over([row for row in ROWS if _first[row.mechanism] is row])


def cases(field):
    """Parametrise a test over the bad input that the rows list under `field`."""
    return pytest.mark.parametrize(
        ("row", "bad", "error", "message"),
        [
            pytest.param(row, *case, id=f"{row.mechanism.__name__}-{name}")
            for row in ROWS
            for name, case in getattr(row, field).items()
        ],
    )


def over_imputations(quick, full=None):
    """Parametrise a test over the rows' models.

    Those of a mechanism's first row: `quick` of them always, `full` (all by default) in full runs. Of other
    rows, the first model in full runs.
    """
    found = []
    for row in ROWS:
        first = _first[row.mechanism] is row
        for k, imputation in enumerate(row.imputations[: full if first else 1]):
            marks = () if first and k < quick else pytest.mark.statistical
            found.append(pytest.param(row, imputation, id=f"{row}-{k}", marks=marks))
    return pytest.mark.parametrize(("row", "imputation"), found)


def one_of_each(chosen):
    """Parametrise a test over one model of each mechanism: the first that is `chosen`."""
    found = []
    for row in ROWS:
        if _first[row.mechanism] is row:
            models = [i for i in row.imputations if chosen(i)]
            found += [pytest.param(row, models[0], id=str(row))] if models else []
    return pytest.mark.parametrize(("row", "imputation"), found)


each_imputation = over_imputations(quick=4)
first_imputation = one_of_each(lambda imputation: True)
# whose parameter is that of counted records
counted_imputation = one_of_each(lambda imputation: imputation.top is not None)
