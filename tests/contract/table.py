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


def over_imputations(quick):
    """Parametrise a test over the rows' models; all but the `quick` ones of a first row run in full only."""
    return pytest.mark.parametrize(
        ("row", "imputation"),
        [
            pytest.param(
                row,
                imputation,
                id=f"{row}-{k}",
                marks=() if _first[row.mechanism] is row and k < quick else pytest.mark.statistical,
            )
            for row in ROWS
            for k, imputation in enumerate(row.imputations)
        ],
    )


each_imputation = over_imputations(quick=4)
first_imputation = over_imputations(quick=1)
