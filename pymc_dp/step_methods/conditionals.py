"""Log densities of parameters given records, and given the records' noise.

Two parametrisations of one posterior:

* *centred*: theta given the records. Prior, law of the records, and every other term with theta in it.
* *ancillary*: theta given the noise u with x = h(u, theta). Prior, the releases at h(u, theta), and every
  other term that involves theta or the records. The law of u is free of theta and drops out.

Both are taken in value space, with the Jacobian of every transformed parameter.
"""

from collections.abc import Collection, Sequence
from functools import cached_property

import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable

from pymc_dp.lowering.native import NOISE, RECORDS, WHOLE, NativeFunction
from pymc_dp.records import parameters_of
from pymc_dp.rowlocal import leaves_of
from pymc_dp.step_methods.noise import NoiseForm, noise_form
from pymc_dp.step_methods.program import Reading, RecordProgram, lift, substitute


def parents_of_records(program: RecordProgram) -> list[TensorVariable]:
    """Return the continuous free variables that stand in the law of a record, and are no records."""
    model, block = program.model, program.block
    leaves = leaves_of([p for r in block.records for p in parameters_of(r)], set(model.basic_RVs))
    return [
        rv
        for rv in model.free_RVs
        if rv in leaves and rv not in block.records and rv.dtype.startswith("float")
    ]


class Conditionals:
    """Conditional log densities of some parameters, for one block of records.

    Parameters
    ----------
    program : RecordProgram
    moving : collection of Variable
        Parameters that are to move.

    Raises
    ------
    NoNoiseForm
        If a record that depends on the moving parameters is not a function of parameter-free noise.
    """

    def __init__(self, program: RecordProgram, moving: Collection[Variable]):
        self.program = program
        self.model = program.model
        self.moving = set(moving)
        self.variables = set(self.model.basic_RVs)
        self.u = pt.matrix("u", dtype="float64")
        self.forms = self._forms()

    def _forms(self) -> dict[Variable, NoiseForm]:
        """Noise form of every record whose law moves with the parameters, directly or through others."""
        moved: set[Variable] = set(self.moving)
        forms: dict[Variable, NoiseForm] = {}
        for rv in self.program.block.records:
            if self._depends(parameters_of(rv), moved):
                forms[rv] = noise_form(rv, lambda graph: self._depends([graph], self.moving))
                moved.add(rv)
        return forms

    def _depends(self, graphs: Sequence[Variable], on: Collection[Variable]) -> bool:
        return bool(set(leaves_of(graphs, self.variables)) & set(on))

    @cached_property
    def from_noise(self) -> Reading:
        """Stand-ins with the records as functions of the noise; records that do not move stay as they are."""
        reading = dict(self.program.state)
        for index, rv in enumerate(self.program.block.records):
            column = self.program.records.graph(self.u, index)
            if rv not in self.forms:
                natural = self.program.backward(rv, column, reading)
            else:
                law = lift(rv, reading)
                noise = self._noise_column(index, rv)
                natural = self.forms[rv].to_record(noise, law)
            reading[rv] = pt.specify_shape(pt.cast(natural, rv.dtype), rv.type.shape)
        return reading

    def _noise_column(self, index: int, rv: Variable) -> TensorVariable:
        layout = self.program.records
        columns, rows = layout.columns[index], layout.rows[index]
        block = self.u[:, columns] if rows is None else self.u[rows, columns]
        return block.reshape(layout.shapes[index])

    def noise(self) -> NativeFunction:
        """Return the native function from records to noise."""
        reading = self.program.state
        values = []
        for rv in self.program.block.records:
            if rv in self.forms:
                values.append(self.forms[rv].to_noise(reading[rv], lift(rv, reading)))
            else:
                values.append(self.program.forward(rv, reading[rv], reading))
        return self.program.native("noise", [self.program.x], [self.program.records.matrix(values)], NOISE)

    def records(self) -> NativeFunction:
        """Return the native function from noise to records."""
        return self.program.native(
            "records", [self.u], [self.program.matrix_of(self.from_noise)], RECORDS
        )

    def centred(self) -> NativeFunction:
        """Log density of the moving parameters given the records."""
        factors = self._factors(self.moving)
        graph = self.program.state
        return self.program.native("centred", [self.program.x], [self._sum(factors, graph)], WHOLE)

    def ancillary(self) -> NativeFunction:
        """Log density of the moving parameters given the noise behind the records."""
        records = set(self.program.block.records)
        factors = [f for f in self._factors(self.moving | set(self.forms)) if f not in records]
        return self.program.native("ancillary", [self.u], [self._sum(factors, self.from_noise)], WHOLE)

    def _factors(self, on: Collection[Variable]) -> list[Variable]:
        """Variables and potentials of the model whose density involves some variables."""
        own = [rv for rv in self.model.basic_RVs if rv in on or self._depends(parameters_of(rv), on)]
        return own + [p for p in self.model.potentials if self._depends([p], on)]

    def _sum(self, factors: Sequence[Variable], reading: Reading) -> TensorVariable:
        total = pt.constant(0.0)
        for factor in factors:
            if factor not in self.variables:
                total = total + pt.sum(substitute([factor], reading)[0])
                continue
            law = lift(factor, reading)
            total = total + pt.sum(pm.logp(law, reading[factor]))
            total = total + self._jacobian(factor, reading)
        return total

    def _jacobian(self, rv: Variable, reading: Reading) -> TensorVariable:
        transform = self.model.rvs_to_transforms.get(rv)
        if transform is None or rv not in self.program.parameters.variables:
            return pt.constant(0.0)
        value = self.program.parameters.graph(
            self.program.theta, self.program.parameters.variables.index(rv)
        )
        inputs = substitute(rv.owner.inputs, reading)  # type: ignore[union-attr]
        return pt.sum(transform.log_jac_det(value, *inputs))
