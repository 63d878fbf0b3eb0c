"""Releases of sums over records, lowered: their values and parameters, and the change of their density."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.replace import graph_replace

from pymc_dp.lowering.addresses.bind import Function, Kernel, part_of_kernel
from pymc_dp.lowering.addresses.native import CHANGE, OF_SUMS, RELEASES, NativeFunction
from pymc_dp.lowering.addresses.tuples import part, row
from pymc_dp.query.lengths import with_known_shapes
from pymc_dp.query.readings import substitute, with_query
from pymc_dp.query.records import Release, is_elementwise, parameters_of
from pymc_dp.step_methods.block.changes import scalar_change, term_change

if TYPE_CHECKING:
    from pymc_dp.step_methods.block.program import RecordProgram

type Array = np.ndarray


TEMPER_AT = 0  # where the power of the density stands in the data


def untempered(theta: Array, data: Array, value: Array, params: Array, old: Array, new: Array) -> float:
    """Change of the log density of all releases, without its power."""
    raise NotImplementedError


def change(theta: Array, data: Array, value: Array, params: Array, old: Array, new: Array) -> float:
    """Change of the log density of all releases when their sums change."""
    return untempered(theta, data, value, params, old, new) * data[TEMPER_AT]


@part_of_kernel
def _no_change(theta, data, value, params, old, new):  # type: ignore[no-untyped-def]
    return 0.0


@part_of_kernel
def _no_change_of_one(value, params, old, j, new):  # type: ignore[no-untyped-def]
    return 0.0


@part_of_kernel
def _no_change_of_numbers(value, params, old, new):  # type: ignore[no-untyped-def]
    return 0.0


@dataclass
class _Term:
    """Consecutive statistics of one release, and the function that gives the change of its density."""

    release: Release
    function: str
    start: int
    stop: int
    n_params: int | None  # parameters of each statistic; None if the function takes all statistics at once

    def part(self, before: Function, f: Any) -> Function:
        """Return a part of kernels that adds the change, by the function of the term, to that of others."""
        start, stop, n_params = self.start, self.stop, self.n_params
        if n_params is None:

            @part_of_kernel
            def change(theta, data, value, params, old, new):  # type: ignore[no-untyped-def]
                total = before(theta, data, value, params, old, new)
                return total + (f(theta, data, new[start:stop]) - f(theta, data, old[start:stop]))

        else:

            @part_of_kernel
            def change(theta, data, value, params, old, new):  # type: ignore[no-untyped-def]
                total = before(theta, data, value, params, old, new)
                for j in range(start, stop):
                    if new[j] != old[j]:
                        total += f(value[j], old[j], new[j], *row(params, j, n_params))[0]
                return total

        return change


class CentralReleases:
    """The central releases of a block as native functions.

    Attributes
    ----------
    n_statistics, n_parameters : int
        Sums over records behind the releases, and parameters of the density of each.
    functions
        Functions for the change of a density, by the name of their term.
    releases, change : NativeFunction, Kernel or None
        See the signatures in :mod:`pymc_dp.lowering.addresses.native`.
    """

    def __init__(self, program: "RecordProgram"):
        self.program = program
        self.functions: dict[str, Any] = {}
        self.terms: list[_Term] = []
        self.n_statistics = 0
        given = program.of_kind("central", "function")
        self.n_parameters = max([len(parameters_of(r.rv)) - 1 for r in given] + [1])
        columns = [self._separable(r) if program.is_separable(r) else self._function(r) for r in given]
        self.releases: NativeFunction | None = None
        self.change: Kernel | None = None
        if not columns:
            return
        values, params, offsets = zip(*columns, strict=True)
        outputs = [pt.concatenate(values), pt.concatenate(params, axis=0), pt.concatenate(offsets)]
        self.releases = program.native("releases", [], outputs, RELEASES)
        self.change = Kernel(change, CHANGE, {"untempered": self.part(), "TEMPER_AT": program.temper_at})

    def part(self, leaving_out: Collection[Variable] = ()) -> Function:
        """Return a part of kernels: the change of the density, without its power, on arrays of sums.

        Its arguments are those of ``native.CHANGE``. The terms are chained, since a
        loop cannot call another function each time.
        """
        total: Function = _no_change
        for term in self.terms:
            if term.release.rv not in leaving_out:
                total = term.part(total, self.functions[term.function])
        return total

    def part_of_numbers(self) -> Function:
        """Return a part of kernels: the change of the density, without its power, on tuples.

        Its arguments are values, parameters of all sums one after the other, sums before and after.
        """
        total: Function = _no_change_of_numbers
        for term in self.terms:
            for j in range(term.start, term.stop):
                f, start = self.functions[term.function], j * self.n_parameters
                total = _with_statistic(total, f, j, start, term.n_params)
        return total

    def part_of_one(self) -> Function:
        """Return a part of kernels: the change of the density when one of the sums becomes another.

        Its arguments are values, parameters and sums, the number of the sum and what it becomes.
        """
        change: Function = _no_change_of_one
        for term in reversed(self.terms):
            change = _of_one(self.functions[term.function], term.stop, term.n_params, change)
        return change

    def _add(self, release: Release, function: Any, size: int, n_params: int | None) -> None:
        name = f"change{len(self.terms)}"
        self.functions[name] = function
        self.terms.append(_Term(release, name, self.n_statistics, self.n_statistics + size, n_params))
        self.n_statistics += size

    def _function(self, release: Release) -> tuple[Any, Any, Any]:
        """Add a release whose density is a function of all sums behind its query."""
        size, function = self._function_of_sums(release)
        self._add(release, function.dispatcher, size, None)
        return pt.zeros(size), pt.zeros((size, self.n_parameters)), pt.zeros(size)

    def _separable(self, release: Release) -> tuple[Any, Any, Any]:
        """Add a release with a term of its density for each sum."""
        program = self.program
        others = substitute(parameters_of(release.rv)[1:], program.state)
        offset = substitute([program.block.analysis.offset_of(release.query)], program.state)[0]
        value, op = program.state[release.rv], release.rv.owner.op  # type: ignore[union-attr]
        elementwise = is_elementwise(release.rv)
        shape = program.shape_of_terms(release)
        value = pt.cast(value if elementwise else op.summary(value), "float64").ravel()
        offset = pt.broadcast_to(pt.cast(offset, "float64"), shape).ravel()
        columns = [pt.broadcast_to(pt.cast(p, "float64"), shape).ravel() for p in others]
        columns += [pt.zeros_like(offset)] * (self.n_parameters - len(columns))
        if elementwise:
            function, _ = scalar_change(release.rv, value_dtype=release.rv.dtype)
        else:
            function, _ = term_change(op, len(others))
        self._add(release, function, int(np.prod(shape)), len(others))
        return value, pt.stack(columns, axis=1), offset

    def _function_of_sums(self, release: Release) -> tuple[int, NativeFunction]:
        """Log density of a release as a function of the sums behind its query, and their number."""
        program = self.program
        flat = pt.vector("sums", dtype="float64")
        parts, start = {}, 0
        for s in program.block.analysis.sums_in(release.query):
            shape = tuple(int(k) for k in (s.shape.eval() if None in s.type.shape else s.type.shape))
            size = int(np.prod(shape))
            parts[s] = pt.cast(flat[start : start + size].reshape(shape), s.dtype)
            start += size
        (query,) = graph_replace([release.query], parts, strict=False)
        (query,) = substitute(with_known_shapes([query]), program.state)
        logp = pt.sum(pm.logp(with_query(release, program.state, query), program.state[release.rv]))
        return start, program.native(f"log density of {release.name}", [flat], [logp], OF_SUMS)


def _of_one(f: Any, stop: int, n_params: Any, of_others: Function) -> Function:
    """Return the change by a term's function for its statistics, by another for those that follow."""

    @part_of_kernel
    def change(value, params, old, j, new):  # type: ignore[no-untyped-def]
        if j < stop:
            return f(value[j], old[j], new, *row(params, j, n_params))[0]
        return of_others(value, params, old, j, new)

    return change


def _with_statistic(before: Function, f: Any, j: int, start: int, n_params: Any) -> Function:
    @part_of_kernel
    def change(value, params, old, new):  # type: ignore[no-untyped-def]
        total = before(value, params, old, new)
        if new[j] != old[j]:
            total += f(value[j], old[j], new[j], *part(params, start, n_params))[0]
        return total

    return change
