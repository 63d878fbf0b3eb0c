"""All rows of the contract table, from every file ``rows_*.py`` in this folder."""

from importlib import import_module
from pathlib import Path

import pytest

import pymc_dp as dp

ROWS = [
    row
    for path in sorted(Path(__file__).parent.glob("rows_*.py"))
    for row in import_module(f"tests.contract.{path.stem}").ROWS
]


_first = {row.mechanism: row for row in reversed(ROWS)}


def over(rows, costly=(), **kwargs):
    """Parametrise a test over rows, named by mechanism and noise level.

    Other rows than the first of a mechanism run in full runs only, and those of costly ones, for the time it
    takes.
    """
    names, params = {}, []
    for row in rows:
        names[str(row)] = names.get(str(row), 0) + 1
        name = f"{row}-{names[str(row)]}" if names[str(row)] > 1 else str(row)
        short = _first[row.mechanism] is row and row.mechanism not in costly
        marks = () if short else pytest.mark.statistical
        params.append(pytest.param(row, id=name, marks=marks))
    return pytest.mark.parametrize("row", params, **kwargs)


each_row = over(ROWS)
# Perturbed objectives are drawn by optimisation, and also in their own tests.
drawn_row = over(ROWS, costly={dp.ObjectivePerturbation})
# those that this package releases by itself
released_row = over([row for row in ROWS if row.own is None])
released_mechanism = over([row for row in ROWS if _first[row.mechanism] is row and row.own is None])
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


# Whose records are imputed in every run: one mechanism of each kind of move.
_SHORT = {dp.LaplaceMechanism, dp.RandomizedResponse, dp.PerturbedHistogram}


def over_imputations(rows):
    """Parametrise a test over the models of a mechanism's first row, and the first one of each other row.

    Outside of full runs, the first model of a few mechanisms.
    """
    found = []
    for row in rows:
        first = _first[row.mechanism] is row
        for k, imputation in enumerate(row.imputations[: None if first else 1]):
            marks = () if first and k == 0 and row.mechanism in _SHORT else pytest.mark.statistical
            found.append(pytest.param(row, imputation, id=f"{row}-{k}", marks=marks))
    return pytest.mark.parametrize(("row", "imputation"), found)


def one_of_each(chosen):
    """Parametrise a test over one model of each mechanism: the first that is `chosen`."""
    found = []
    for row in ROWS:
        if _first[row.mechanism] is row:
            models = [i for i in row.imputations if chosen(i)]
            marks = () if row.mechanism in _SHORT else pytest.mark.statistical
            found += [pytest.param(row, models[0], id=str(row), marks=marks)] if models else []
    return pytest.mark.parametrize(("row", "imputation"), found)


each_imputation = over_imputations(ROWS)
released_imputation = over_imputations([row for row in ROWS if row.own is None])
first_imputation = one_of_each(lambda imputation: True)
# whose parameter is that of counted records
counted_imputation = one_of_each(lambda imputation: imputation.top is not None)
