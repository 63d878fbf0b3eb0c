"""Functions of a record and its slot's atoms, added up over the records of each slot."""

from typing import NamedTuple

from pymc_dp.lowering.addresses.bind import Function, part_of_kernel
from pymc_dp.lowering.addresses.tuples import Numbers, column, plus, row, set_row
from pymc_dp.step_methods.mixture.polynomials import Scale, coefficients, moments_for, n_moments
from pymc_dp.step_methods.mixture.program import MixtureProgram
from pymc_dp.step_methods.mixture.state import Integers, Matrix


class Records(NamedTuple):
    """The records with their labels, how many each slot has, and the totals of their moments by slot."""

    covariates: Matrix
    records: Matrix
    labels: Integers
    counts: Integers
    scale: Scale
    moments: Matrix


def add_moments(c: Numbers, records: Records) -> None:
    """Add the moments of the records of each slot up, where functions follow from them."""
    raise NotImplementedError


def moments_by_slot(program: MixtureProgram) -> Function:
    """Return the meaning of :func:`add_moments`."""
    if not program.degree:
        return part_of_kernel(lambda c, records: None)
    of_record, size = moments_for(program), n_moments(program)

    @part_of_kernel
    def add_moments(c, records):
        cov, x, labels, _, scale, totals = records
        for i in range(x.shape[0]):
            h = labels[i]
            set_row(totals, h, plus(row(totals, h, size), of_record(c, cov, i, x, scale)))

    return add_moments


def total_of(program: MixtureProgram, name: str, outputs: int, at: Function | None = None) -> Function:
    """Adapt a function of C, a record's numbers and atoms: ``f(c, records, atoms, mean, room, out)``.

    It adds the outputs, summed over the records of slot h, to row h of ``out``. The atoms are those of row h,
    or ``at(atoms, mean, h)``. ``room`` has a row for each output and a column for each moment.
    """
    width, m, p = program.width, program.n_columns, program.n_columns_of_record
    if at is None:
        at = part_of_kernel(lambda atoms, mean, h: row(atoms, h, width))
    if program.degree:
        expand, size = coefficients(program, name, outputs), n_moments(program)

        @part_of_kernel
        def by_moments(c, records, atoms, mean, room, out):
            _, _, _, counts, scale, totals = records
            for h in range(counts.size):
                if counts[h] > 0:
                    expand(c, at(atoms, mean, h), scale, room)
                    for o in range(outputs):
                        for j in range(size):
                            out[h, o] += room[o, j] * totals[h, j]

        return by_moments
    f, features = program.functions[name], program.functions["features"]

    @part_of_kernel
    def by_records(c, records, atoms, mean, room, out):
        cov, x, labels, _, _, _ = records
        for i in range(x.shape[0]):
            h, given = labels[i], column(cov, i, m)
            v = features(*c, *given, *row(x, i, p))
            r = f(*c, *given, *v, *at(atoms, mean, h))
            set_row(out, h, plus(row(out, h, outputs), r))

    return by_records
