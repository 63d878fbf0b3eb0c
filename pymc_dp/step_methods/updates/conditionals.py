"""Log densities of parameters given records, and given the records' noise.

Two parametrisations of one posterior:

* *centred*: theta given the records. Prior, law of the records, and every other term with theta in it.
* *ancillary*: theta given the noise u with x = h(u, theta). Prior, the releases at h(u, theta), and every
  other term that involves theta or the records. The law of u is free of theta and drops out. Parameters
  that have a location-scale law given other moving parameters (group means given their own mean and
  spread) are written as noise too, so that the upper level moves the lower one along.

Both are taken in value space, with the Jacobian of every transformed parameter.
"""

from collections.abc import Collection, Sequence
from functools import cached_property, reduce
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.distribution import SymbolicRandomVariable
from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace
from pytensor.tensor.random.basic import GeometricRV
from pytensor.tensor.variable import TensorVariable

from pymc_dp.lowering.addresses.native import (
    CONDITIONAL,
    COORDINATES,
    NOISE,
    RECORDS,
    SLOPES,
    NativeFunction,
)
from pymc_dp.lowering.functions.bins import CountBins
from pymc_dp.query.counts import counted_rows
from pymc_dp.query.readings import Reading, lift, substitute, with_query
from pymc_dp.query.records import Release, is_elementwise, parameters_of
from pymc_dp.query.rowlocal import columns_of, leaves_of
from pymc_dp.step_methods.block.guards import law_domain
from pymc_dp.step_methods.block.parents import is_real
from pymc_dp.step_methods.block.program import RecordProgram
from pymc_dp.step_methods.updates.columns import native
from pymc_dp.step_methods.updates.hamiltonian import add_slopes
from pymc_dp.step_methods.updates.noncentred import NoiseForm
from pymc_dp.step_methods.updates.series import noise_form, smooth_form
from pymc_dp.step_methods.updates.summed import summed_over

MANY_SUMS = 16


class Conditionals:
    """Conditional log densities of some parameters, for one block of records.

    Parameters
    ----------
    program : RecordProgram
    moving : collection of Variable
        Parameters that are to move.
    with_noise : bool, default True
        Whether the records' noise is asked for.
    given_noise_only : collection of Variable
        Those of them that do not move given the records.
    many_sums : int, default 16
        Sums behind a release up to which each is computed by itself, if it moves with the parameters.

    Raises
    ------
    NoNoiseForm
        If a record that depends on the moving parameters is not a function of parameter-free noise.
    """

    def __init__(
        self,
        program: RecordProgram,
        moving: Collection[Variable],
        *,
        with_noise: bool = True,
        given_noise_only: Collection[Variable] = (),
        many_sums: int = MANY_SUMS,
    ):
        self.program = program
        self.model = program.model
        self.moving, self._many_sums = set(moving), many_sums
        self.walking = self.moving - set(given_noise_only)
        self.variables = set(self.model.basic_RVs)
        self.u = pt.matrix("u", dtype="float64", shape=program.x.type.shape)
        self.totals = pt.vector("totals", dtype="float64", shape=(program.n_statistics,))
        self.forms = self._forms() if with_noise else {}
        self.noncentred = self._noncentred()
        self.tied = self._tied()

    def _forms(self) -> dict[Variable, NoiseForm]:
        """Noise form of every record whose law moves with the parameters, directly or through others."""
        moved: set[Variable] = set(self.moving)
        forms: dict[Variable, NoiseForm] = {}
        for rv in self.program.block.records:
            if self._depends(parameters_of(rv), moved):
                forms[rv] = noise_form(rv, lambda graph: self._depends([graph], moved))
                moved.add(rv)
        return forms

    def _noncentred(self) -> dict[Variable, NoiseForm]:
        """Moving parameters that are written as noise in the ancillary parametrisation."""
        forms: dict[Variable, NoiseForm] = {}
        for rv in self._given_others():
            form = self._smooth_form(rv)
            if form is not None and self.model.rvs_to_transforms.get(rv) is None:
                forms[rv] = form
        return forms

    def _given_others(self) -> list[Variable]:
        """Moving real parameters whose law moves with others."""
        return [
            rv
            for rv in self.program.parameters.variables
            if rv in self.walking and is_real(rv) and self._depends(parameters_of(rv), self.moving)
        ]

    def _smooth_form(self, rv: Variable) -> NoiseForm | None:
        return smooth_form(rv, lambda graph: self._depends([graph], self.moving))  # type: ignore[arg-type]

    def held(self) -> list[Variable]:
        """Moving parameters that no parametrisation frees from the others in their law.

        A positive parameter with a scale is none of them: its logarithm is moved, and shifted by that.
        """
        return [rv for rv in self._given_others() if self._smooth_form(rv) is None]

    def _tied(self) -> set[Variable]:
        """Variables whose natural value moves with the parameters at a fixed value (an interval's ends)."""
        tied: set[Variable] = set()
        for rv in self.model.free_RVs:
            transform = self.model.rvs_to_transforms.get(rv)
            if transform is not None:
                value = self.model.rvs_to_values[rv].type()
                natural = transform.backward(value, *rv.owner.inputs)  # type: ignore[union-attr]
                if self._depends([natural], self.moving | tied):
                    tied.add(rv)
        return tied

    def _depends(self, graphs: Sequence[Variable], on: Collection[Variable]) -> bool:
        return not set(leaves_of(graphs, self.variables)).isdisjoint(on)

    @cached_property
    def from_noise(self) -> Reading:
        """Stand-ins with the records as functions of the noise; records that do not move stay as they are."""
        reading = dict(self.program.state)
        layout = self.program.parameters
        for index, rv in enumerate(layout.variables):  # in the model's order: parents come first
            value = layout.graph(self.program.theta, index)
            if rv in self.noncentred:
                natural = self.noncentred[rv].to_record(value, lift(rv, reading))
            elif self.noncentred and self.model.rvs_to_transforms.get(rv) is not None:
                natural = self.program.backward(rv, value, reading)
            else:
                continue
            reading[rv] = pt.specify_shape(natural, rv.type.shape)
        for index, rv in enumerate(self.program.block.records):
            column = self.program.records.graph(self.u, index)
            if rv not in self.forms:
                natural = self.program.backward(rv, column, reading)
            else:
                law = lift(rv, reading)
                noise = self._noise_column(index, rv)
                natural = self.forms[rv].to_record(noise, law)
                if rv in self.domains and np.dtype(rv.dtype).kind in "iub":
                    # what is no count may pick an entry that no array has, before the density refuses it
                    least = 1 if isinstance(rv.owner.op, GeometricRV) else 0
                    natural = pt.switch(_all_hold(self.domains[rv], reading), natural, least)
            reading[rv] = pt.specify_shape(pt.cast(natural, rv.dtype), rv.type.shape)
        return reading

    def _noise_column(self, index: int, rv: Variable) -> TensorVariable:
        layout = self.program.records
        columns, rows = layout.columns[index], layout.rows[index]
        block = self.u[:, columns] if rows is None else self.u[rows, columns]
        return block.reshape(layout.shapes[index])

    def coordinates(self) -> tuple[NativeFunction, NativeFunction] | None:
        """Native functions from parameters to the coordinates of the ancillary density, and back."""
        if not self.noncentred:
            return None
        program, layout = self.program, self.program.parameters
        there, back = program.theta, program.theta
        for rv, form in self.noncentred.items():
            where = layout.slices[layout.variables.index(rv)]
            noise = form.to_noise(program.state[rv], lift(rv, program.state))
            there = pt.set_subtensor(there[where], noise.ravel())
            back = pt.set_subtensor(back[where], self.from_noise[rv].ravel())
        return (
            program.native("to noise", [], [there], COORDINATES),
            program.native("from noise", [], [back], COORDINATES),
        )

    def noise(self) -> NativeFunction:
        """Return the native function from records to noise."""
        reading = self.program.state
        values = []
        for rv in self.program.block.records:
            if rv in self.forms:
                values.append(self.forms[rv].to_noise(reading[rv], lift(rv, reading)))
            else:
                values.append(self.program.forward(rv, reading[rv], reading))
        return self.program.native("noise", [self.program.x], [self.program.records.matrix(values).T], NOISE)

    def records(self) -> NativeFunction:
        """Return the native function from noise to records."""
        return native(self.program, "records", self.u, [], self.program.matrix_of(self.from_noise), RECORDS)

    def centred(self, with_slopes: bool = False) -> NativeFunction:
        """Log density of the moving parameters given the records, alone or with its slopes."""
        return self._native("centred", self.program.x, self.given_records(), with_slopes)

    def given_records(self) -> TensorVariable:
        """Log density of the moving parameters given the records, minus infinity where these have no law."""
        graph = self.centred_graph(self.program.state)
        for rv in self.program.block.records:
            # a component without a law has density zero there, which a sum over components does not show
            if isinstance(rv.owner.op, SymbolicRandomVariable):  # type: ignore[union-attr]
                graph = self._where(self._conditions(rv, self.walking), graph, self.program.state)
        return graph

    def centred_graph(self, reading: Reading) -> TensorVariable:
        """Log density of the moving parameters given the records, under a reading."""
        return self._sum(self._factors(self.walking | self.tied), reading)

    def density_of(self, on: Collection[Variable]) -> NativeFunction:
        """Log density of some parameters given all others and the records."""
        graph = self._sum(self._factors(on), self.program.state)
        return self.program.native("some", [self.program.x, self.totals], [graph], CONDITIONAL)

    def ancillary(self, with_slopes: bool = False) -> NativeFunction:
        """Log density of the moving parameters given the records' noise, alone or with its slopes."""
        return self._native("ancillary", self.u, self.given_noise(), with_slopes)

    def given_noise(self) -> TensorVariable:
        """Log density of the moving parameters given the records' noise."""
        records = set(self.program.block.records)
        factors = [
            f
            for f in self._factors(self.moving | set(self.forms) | (self.tied - records))
            if f not in records
        ]
        central = [r.rv for r in self._separable()]
        graph = self._sum([f for f in factors if f not in central], self.from_noise, given_noise=True)
        graph = graph + self.program.temper * self._central_logp(self.from_noise) + self._guard()
        return self._where_records_have_laws(graph, self.from_noise)

    def marginal(self, with_slopes: bool = False) -> NativeFunction:
        """Log density of the moving parameters with the records summed over, alone or with its slopes."""
        return self._native("marginal", self.u, summed_over(self), with_slopes)

    @cached_property
    def domains(self) -> dict[Variable, list[TensorVariable]]:
        """Conditions on the parameters of the records that move along, where they may fail.

        The law of the noise drops out of the target, but not the domain of the records' own law: a scale may
        be negative in an expression that is a number all the same.
        """
        moved = self.moving | set(self.forms)
        found = {rv: self._conditions(rv, moved) for rv in self.forms}
        return {rv: conditions for rv, conditions in found.items() if conditions}

    def _conditions(self, rv: Variable, moved: Collection[Variable]) -> list[TensorVariable]:
        domain = law_domain(self.program, rv, lambda graph: not self._depends([graph], moved))
        return [] if domain is None else domain.conditions

    def _where_records_have_laws(self, graph: TensorVariable, reading: Reading) -> TensorVariable:
        """Return a log density where the records that it leaves out have a law, elsewhere minus infinity."""
        for conditions in self.domains.values():
            graph = self._where(conditions, graph, reading)
        return graph

    @staticmethod
    def _where(conditions: list[TensorVariable], graph: TensorVariable, reading: Reading) -> TensorVariable:
        """Return a log density where all of some conditions hold, elsewhere minus infinity."""
        if not conditions:
            return graph
        return pt.switch(_all_hold(conditions, reading), graph, -np.inf)

    def _guard(self) -> TensorVariable:
        """Refuse moves that could not be taken back, since a record does not give its noise back.

        It may be so far out that its quantile cannot be told from 1, or be rounded to an end of its support,
        to which other noise belongs, too. The noise is the same before and after a move, and records are
        asked on both sides of it, so that refusing on either is reversible.
        """
        total = pt.constant(0.0)
        for index, rv in enumerate(self.program.block.records):
            if rv not in self.forms:
                continue
            kept = self.forms[rv].gives_back(self._noise_column(index, rv), self.from_noise[rv])
            if kept:
                total = total + pt.switch(reduce(pt.and_, map(pt.all, kept)), 0.0, -np.inf)
        return total

    def _native(self, name: str, given: TensorVariable, graph: Any, slopes: bool) -> NativeFunction:
        if slopes:
            graph = add_slopes(graph, self.program.theta, [str(rv.name) for rv in self.moving])
        return native(self.program, name, given, [self.totals], graph, SLOPES if slopes else CONDITIONAL)

    @cached_property
    def _tempered(self) -> set[Variable]:
        """Releases whose density has a power at the beginning of tuning, as sweeps over records have it."""
        return {release.rv for release in self.program.of_kind("central", "function")}

    def _separable(self) -> list[Release]:
        """Central releases whose statistics are the first columns of the contributions."""
        central = self.program.of_kind("central", "function")
        return central if all(map(self.program.is_separable, central)) else []

    def _central_logp(self, reading: Reading) -> TensorVariable:
        """Log density of the central releases; statistics that do not move are taken from the totals."""
        total, start = pt.constant(0.0), 0
        moving = self.moving | set(self.forms)
        for release in self._separable():
            size = int(np.prod(self.program.shape_of_terms(release)))
            if (
                size > self._many_sums
                and is_elementwise(release.rv)
                and self._depends([release.query], moving)
            ):
                (query,) = substitute([release.query], reading)
            else:
                sums = self._sums(release, self.totals[start : start + size], reading, moving)
                offset = substitute([self.program.block.analysis.offset_of(release.query)], reading)[0]
                query = sums.reshape(self.program.shape_of_terms(release)) + offset
            start += size
            total = total + pt.sum(pm.logp(with_query(release, reading, query), reading[release.rv]))
        return total

    def _sums(
        self, release: Release, totals: TensorVariable, reading: Reading, moving: Collection[Variable]
    ) -> TensorVariable:
        """Sums over the records behind a separable release, computed where they move with the parameters."""
        histogram = self.program.histograms.get(release.rv)
        if histogram is not None:
            if not self._depends([histogram.number], moving):
                return totals
            return CountBins(tuple(histogram.edges))(substitute([histogram.number], reading)[0])
        size = int(np.prod(self.program.shape_of_terms(release)))
        counted = counted_rows(self.program.block.analysis.rows_of(release.query))
        if counted is not None and counted.rows.ndim <= 2 and self._depends([counted.count], moving):
            # slots beyond the people are not computed
            (count,) = substitute([counted.count], reading)
            columns = substitute(columns_of(counted.rows, size), reading)
            return pt.stack([pt.sum(column[: pt.maximum(count, 0)]) for column in columns])
        sums = [
            pt.sum(substitute([column], reading)[0]) if self._depends([column], moving) else totals[j]
            for j, column in enumerate(columns_of(self.program.rows_of(release), size))
        ]
        return pt.stack(sums)

    def _factors(self, on: Collection[Variable]) -> list[Variable]:
        """Variables and potentials of the model whose density involves some variables."""
        own = [rv for rv in self.model.basic_RVs if rv in on or self._depends(parameters_of(rv), on)]
        return own + [p for p in self.model.potentials if self._depends([p], on)]

    def _sum(
        self, factors: Sequence[Variable], reading: Reading, given_noise: bool = False
    ) -> TensorVariable:
        total = pt.constant(0.0)
        for factor in factors:
            if factor not in self.variables:
                total = total + pt.sum(substitute([factor], reading)[0])
                continue
            density = pt.sum(self.program.density(factor, reading))
            total = total + (self.program.temper * density if factor in self._tempered else density)
            total = total + self._jacobian(factor, reading)
            if given_noise and factor in self.noncentred:
                total = total + self._noise_jacobian(factor, reading)
        return total

    def _noise_jacobian(self, rv: Variable, reading: Reading) -> TensorVariable:
        """Log derivative of a parameter in its noise: that of a series is triangular, others act by entry."""
        form = self.noncentred[rv]
        u = pt.tensor("noise", dtype="float64", shape=rv.type.shape)  # type: ignore[attr-defined]
        slope = pt.grad(pt.sum((form.steps or form.to_record)(u, lift(rv, reading))), u)
        index = self.program.parameters.variables.index(rv)  # type: ignore[arg-type]
        value = self.program.parameters.graph(self.program.theta, index)
        return pt.sum(pt.log(pt.abs(clone_replace(slope, {u: value}, rebuild_strict=False))))

    def _jacobian(self, rv: Variable, reading: Reading) -> TensorVariable:
        transform = self.model.rvs_to_transforms.get(rv)
        if transform is None or (rv not in self.program.parameters.variables and rv not in self.tied):
            return pt.constant(0.0)
        if rv in self.program.block.records:
            value = self.program.records.graph(self.program.x, self.program.block.records.index(rv))
        else:
            index = self.program.parameters.variables.index(rv)
            value = self.program.parameters.graph(self.program.theta, index)
        inputs = substitute(rv.owner.inputs, reading)  # type: ignore[union-attr]
        return pt.sum(transform.log_jac_det(value, *inputs))


def _all_hold(conditions: list[TensorVariable], reading: Reading) -> TensorVariable:
    """Whether conditions hold for every row."""
    return reduce(pt.and_, map(pt.all, substitute(conditions, reading)))
