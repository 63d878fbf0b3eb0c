"""What a mixture's kernels call: declared here, made from a model's compiled functions of numbers.

A kernel imports the names that it uses; :func:`bound` gives them their meanings for a model. Of the
arguments, c stands for the numbers that no record changes, cov for the covariates by record, i for a record,
y for its numbers and a for those of a slot's atoms. What a model has not, such as conditions of its kernel,
histograms or releases of sums, is a function that does nothing, which the compiler removes.
"""

from typing import Any

import numpy as np

from pymc_dp.lowering.addresses.bind import PART, Function, Kernel, bound_part, part_of_kernel, rebound
from pymc_dp.lowering.addresses.tuples import Numbers, column, part
from pymc_dp.lowering.compiling.nopython import njit
from pymc_dp.step_methods.mixture import polynomials
from pymc_dp.step_methods.mixture.program import MixtureProgram
from pymc_dp.step_methods.mixture.state import MIXTURE, Generator, Matrix
from pymc_dp.step_methods.sweeps.histogram import bins_of

# Of parts that make arrays, references are counted.
part_with_arrays = njit(**{**PART, "_nrt": True})

# How many numbers no record changes, a record has, a slot's atoms have; statistics of a record, histograms.
N_CONSTANTS = WIDTH = N_ATOMS = N_STATISTICS = N_HISTOGRAMS = 0
# Whether records differ in whether the kernel has a law.
BY_RECORD = False
# Where the power of the releases' density stands in the data; -1 if there is none.
TEMPER_AT = -1
# Where a record's statistics stand among the sums, and where the counts of each histogram begin.
POSITIONS = STARTS = np.zeros(0, np.int64)


def urn(c: Numbers) -> tuple[float, float]:
    """Concentration and discount."""
    raise NotImplementedError


def base_draw(rng: Generator, c: Numbers) -> Numbers:
    """Atoms drawn from the base."""
    raise NotImplementedError


def inside(c: Numbers, cov: Matrix, i: int, a: Numbers) -> bool:
    """Whether the kernel has a law for these atoms."""
    raise NotImplementedError


def current(c: Numbers, cov: Matrix, i: int, y: Numbers) -> tuple[Numbers, float, Numbers]:
    """Statistics of a record, log density of its releases, numbers of its histograms."""
    raise NotImplementedError


def propose(
    rng: Generator, c: Numbers, cov: Matrix, i: int, a: Numbers
) -> tuple[Numbers, Numbers, float, Numbers]:
    """Return a record drawn from its cluster, and the same of it."""
    raise NotImplementedError


def released(c: Numbers, cov: Matrix, i: int, a: Numbers) -> float:
    """Log density of the release of a record, with the record integrated out."""
    raise NotImplementedError


def given_release(rng: Generator, c: Numbers, cov: Matrix, i: int, a: Numbers) -> Numbers:
    """Return the record drawn given its release."""
    raise NotImplementedError


def features(c: Numbers, cov: Matrix, i: int, y: Numbers) -> Numbers:
    """Numbers of a record on which its log density depends."""
    raise NotImplementedError


def own(c: Numbers, cov: Matrix, i: int, v: Numbers, a: Numbers) -> float:
    """Log density of a record, from its numbers v."""
    raise NotImplementedError


def bound(kernel: Function, program: MixtureProgram, **more: Any) -> Kernel:
    """Compile a kernel that calls the model's functions.

    Parameters
    ----------
    kernel : function
        ``kernel(n_sweeps, rng, state)``, in which names declared in this module occur.
    program : MixtureProgram
    **more
        Meanings of further names of the kernel, or other meanings of those declared here.
    """
    return Kernel(kernel, MIXTURE, _names_in(kernel, program, more))


def part_for(function: Function, program: MixtureProgram, allocates: bool = False, **more: Any) -> Function:
    """Return a part of kernels that calls the model's functions, and may make arrays: see :func:`bound`."""
    names = _names_in(function, program, more)
    return part_with_arrays(rebound(function, names)) if allocates else bound_part(function, names)


def _names_in(function: Function, program: MixtureProgram, more: dict[str, Any]) -> dict[str, Any]:
    there = set(function.__code__.co_names) - set(more)
    sizes = {name: value for name, value in sizes_of(program).items() if name in there}
    made = {name: make(program) for name, make in ADAPTERS.items() if name in there}
    return {**sizes, **made, **more}


def sizes_of(program: MixtureProgram) -> dict[str, Any]:
    """Return the numbers of a model that this module declares."""
    return {
        "N_CONSTANTS": program.n_constants,
        "WIDTH": program.n_columns_of_record,
        "N_ATOMS": program.width,
        "N_STATISTICS": program.statistics,
        "N_HISTOGRAMS": len(program.histograms),
        "POSITIONS": np.array(program._positions, np.int64),
        "STARTS": np.array([program._starts[h.release.rv][1] for h in program.histograms], np.int64),
        "BY_RECORD": program.by_record,
        "TEMPER_AT": program.program.temper_at if program.program.n_statistics else -1,
    }


def of_slots(program: MixtureProgram, name: str) -> Function:
    """Adapt a function ``(C, ...)`` of the model that depends on no record's covariates: ``f(c, ...)``."""
    f, zeros = program.functions[name], (0.0,) * program.n_columns

    @part_of_kernel
    def adapted(c, *numbers):
        return f(*c, *zeros, *numbers)

    return adapted


def _urn(program: MixtureProgram) -> Function:
    f, zeros = program.functions["urn"], (0.0,) * program.n_columns
    return part_of_kernel(lambda c: f(*c, *zeros))


def _base_draw(program: MixtureProgram) -> Function:
    f, zeros = program.functions["base_draw"], (0.0,) * program.n_columns
    return part_of_kernel(lambda rng, c: f(rng, *c, *zeros))


def _inside(program: MixtureProgram) -> Function:
    if not program.may_fail:
        return part_of_kernel(lambda c, cov, i, a: True)
    f, m = program.functions["inside"], program.n_columns
    return part_of_kernel(lambda c, cov, i, a: f(*c, *column(cov, i, m), *a)[0] > 0.0)


def _current(program: MixtureProgram) -> Function:
    f, m, d = program.functions["current"], program.n_columns, program.statistics
    after, n_histograms = d + 1, len(program.histograms)

    @part_of_kernel
    def current(c, cov, i, y):
        r = f(*c, *column(cov, i, m), *y)
        return part(r, 0, d), r[d], part(r, after, n_histograms)

    return current


def _propose(program: MixtureProgram) -> Function:
    f, m = program.functions["propose"], program.n_columns
    p, d, n_histograms = program.n_columns_of_record, program.statistics, len(program.histograms)
    at, after = p + d, p + d + 1

    @part_of_kernel
    def propose(rng, c, cov, i, a):
        r = f(rng, *c, *column(cov, i, m), *a)
        return part(r, 0, p), part(r, p, d), r[at], part(r, after, n_histograms)

    return propose


def _released(program: MixtureProgram) -> Function:
    f, m = program.functions["released"], program.n_columns
    return part_of_kernel(lambda c, cov, i, a: f(*c, *column(cov, i, m), *a)[0])


def _given_release(program: MixtureProgram) -> Function:
    f, m = program.functions["given_release"], program.n_columns
    return part_of_kernel(lambda rng, c, cov, i, a: f(rng, *c, *column(cov, i, m), *a))


def _features(program: MixtureProgram) -> Function:
    f, m = program.functions["features"], program.n_columns
    return part_of_kernel(lambda c, cov, i, y: f(*c, *column(cov, i, m), *y))


def _own(program: MixtureProgram) -> Function:
    f, m = program.functions["own"], program.n_columns
    return part_of_kernel(lambda c, cov, i, v, a: f(*c, *column(cov, i, m), *v, *a)[0])


def _change(program: MixtureProgram) -> Function:
    return program.program.central.part(leaving_out=program.program.histograms)


# By the name that they give a meaning to.
ADAPTERS = {
    "urn": _urn, "base_draw": _base_draw, "inside": _inside, "current": _current, "propose": _propose,
    "change": _change, "bin_in": lambda program: bins_of(program.histograms), "released": _released,
    "moved": lambda program: program.moved(program.histograms),
    "given_release": _given_release, "features": _features, "own": _own, **polynomials.ADAPTERS,
}  # fmt: skip
