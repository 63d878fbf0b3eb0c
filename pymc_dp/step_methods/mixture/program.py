"""A mixture, lowered: one record and one slot as scalar functions of numbers.

The functions are put together from the model's graphs: what a record's slot is enters as the numbers of that
slot's atoms, so that a sweep can ask for any slot, or for atoms that have just been drawn.
"""

from collections.abc import Callable
from functools import cached_property, reduce
from typing import Any

import numpy as np
import pymc as pm
import pytensor.scalar as ps
import pytensor.tensor as pt
from pymc.distributions import continuous
from pymc.initial_point import make_initial_point_fn
from pytensor.graph.basic import Variable
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random import basic as rv_ops
from pytensor.tensor.variable import TensorVariable

from pymc_dp.lowering.functions.truncated import parameters_above, truncated_inverse_gamma_law
from pymc_dp.lowering.rows.domains import Domain
from pymc_dp.lowering.rows.draws import ScalarDraw
from pymc_dp.lowering.rows.features import as_polynomial, finite_logarithms
from pymc_dp.lowering.rows.halves import in_two
from pymc_dp.lowering.rows.rowdraws import draw_entry
from pymc_dp.lowering.rows.rows import ROW, NotScalar, RowGraph, scalar_function
from pymc_dp.lowering.rows.slots import LabelledGraph, SlotGraph
from pymc_dp.lowering.rows.written import written_logp
from pymc_dp.mixtures.structure import Mixture
from pymc_dp.query.records import parameters_of
from pymc_dp.query.rowlocal import leaves_of
from pymc_dp.step_methods.block.program import RecordProgram
from pymc_dp.step_methods.mixture.released import SummedRelease, closed_release, densities_without_noise
from pymc_dp.step_methods.mixture.values import AtomValues
from pymc_dp.step_methods.sweeps.histogram import HistogramSweep
from pymc_dp.step_methods.sweeps.kernels import hoist
from pymc_dp.upstream.pymc_private import _default_transform

# Laws with a support that is free of their parameters.
FIXED_SUPPORT = (
    rv_ops.NormalRV, rv_ops.LogNormalRV, rv_ops.GammaRV, rv_ops.ExponentialRV, rv_ops.InvGammaRV,
    rv_ops.PoissonRV, rv_ops.BernoulliRV, rv_ops.BinomialRV, rv_ops.NegBinomialRV, rv_ops.GeometricRV,
    rv_ops.BetaRV, rv_ops.LaplaceRV, rv_ops.HalfNormalRV, continuous.WeibullBetaRV, rv_ops.VonMisesRV,
    rv_ops.WaldRV, rv_ops.MvNormalRV,
)  # fmt: skip


class MixtureProgram(HistogramSweep):
    """Scalar functions of a mixture and of the records behind its kernel.

    Parameters
    ----------
    program : RecordProgram
        The records' block, in which labels and atoms are parameters.
    mixture : Mixture

    Attributes
    ----------
    width : int
        Numbers of one slot's atoms.
    values : AtomValues
        The same in value space.
    functions, keys : dict
        Nopython functions by name, with the keys of their compiled code. C stands for the hoisted numbers and
        the record's covariates, a for the numbers of a slot, x for the record in value space:

        * ``urn(C)``: concentration and discount;
        * ``base_draw(rng, C)``, ``base_logp(C, a)``: a slot's law;
        * ``load(C, values)``, ``store(C, a)``: from value space, and back;
        * ``current(C, x)``: statistics, weight, numbers of histograms, of records behind a release;
        * ``propose(rng, C, a)``: a record drawn, with the same; ``draw(rng, C, a)`` gives the record only;
        * ``features(C, x)``, ``own(C, v, a)``: numbers of the record, and its log density;
        * ``inside(C, a)``, where ``may_fail``: whether the kernel has a law for these atoms.
    degree, n_features : int
        The log density's degree as a polynomial in the numbers of a record, 0 if it is none, and how many
        they are.
    domain : Domain
        Conditions on the kernel's parameters that atoms from the base need not meet. ``may_fail``: whether
        there are any; ``by_record``: whether records differ in them.
    closed_graphs : tuple, SummedRelease or str
        Log density of a release with its record integrated out, and the record given it; or the values over
        which ``mass_graph``, the kernel's log density, is added up, around ``centre_graph`` if they have no
        end; or why there is neither. ``mass_by_record``: whether it differs between records.
    draws_records : bool
        Whether there is ``draw``: a kernel that is data may have a density only.
    """

    def __init__(self, program: RecordProgram, mixture: Mixture):
        self.mixture, self._program = mixture, program
        self._variables = set(program.model.basic_RVs)
        self._of_mixture = {mixture.labels, *mixture.atoms}
        shapes = program.model.eval_rv_shapes()
        self.atom_shapes = [tuple(int(k) for k in shapes[rv.name][1:]) for rv in mixture.atoms]
        ends = np.cumsum([0, *(int(np.prod(s)) for s in self.atom_shapes)])
        self._atom_starts, self.width = ends[:-1], int(ends[-1])
        known = [
            rv for rv in mixture.atoms if not leaves_of(parameters_of(rv), self._variables - {*mixture.atoms})
        ]
        self.values = AtomValues(program.model, mixture.atoms, self.atom_shapes, self._atom_inputs, known)
        self.atom_inputs = [ps.float64(f"a{k}") for k in range(self.width)]
        self.natural_inputs = [ps.float64(f"y{k}") for k in range(program.records.width)]
        self._natural = [pt.tensor_from_scalar(y) for y in self.natural_inputs]
        self._slot_draws: dict[tuple[Variable, tuple[int, ...]], TensorVariable] = {}
        self.functions: dict[str, Any] = {}
        self.halves: dict[str, tuple[Any, Any]] = {}
        self.draws_records = True
        super().__init__(program)

    # -- entries ----------------------------------------------------------------------------------

    def _is_free(self, v: Variable) -> bool:
        if set(leaves_of([v], self._variables)) & self._of_mixture:
            return False
        return self._program.block.analysis.role(v).kind == "free"

    def _row_graph(self) -> RowGraph:
        rows = LabelledGraph(
            self._is_free, self._state_entry, self._program.block.records, self.mixture.labels
        )
        self.slots = SlotGraph(self._is_free, self._atom_entry, self.mixture.atoms, rows)
        rows.slots = self.slots
        return rows

    def _transform(self, rv: Variable) -> Any:
        transform = super()._transform(rv)
        if transform is not None:
            natural = transform.backward(rv.type(), *rv.owner.inputs)  # type: ignore[union-attr]
            if set(leaves_of([natural], self._variables)) & self._of_mixture:
                raise NotScalar(f"{rv.name} lies between ends that are atoms; give it default_transform=None")
        return transform

    def _number_of(self, atom: Variable, index: tuple[int, ...]) -> int:
        k = self.mixture.atoms.index(atom)  # type: ignore[arg-type]
        shape = self.atom_shapes[k]
        return int(self._atom_starts[k] + (np.ravel_multi_index(index, shape) if index else 0))

    def _atom_entry(self, atom: Variable, index: tuple[int, ...]) -> TensorVariable:
        number = pt.tensor_from_scalar(self.atom_inputs[self._number_of(atom, index)])
        return pt.cast(number, atom.dtype)  # type: ignore[attr-defined]

    def _atom_draw(self, atom: Variable, index: tuple[int, ...]) -> TensorVariable:
        key = (atom, index)
        if key not in self._slot_draws:
            label = 1000 + len(self._slot_draws)  # apart from the labels of the records' draws
            self._slot_draws[key] = pt.constant(0.0)
            above = parameters_above(atom)
            if above is None:
                self._slot_draws[key] = draw_entry(self._base, atom, index, self._rng, label)
            else:
                numbers = [pt.cast(self._entry_for(p, index, self._base), "float64") for p in above]
                draw = ScalarDraw(truncated_inverse_gamma_law, label)
                self._slot_draws[key] = pt.tensor_from_scalar(
                    draw(self._rng, *map(pt.scalar_from_tensor, numbers))
                )
        return self._slot_draws[key]

    def _natural_entry(self, rv: Variable, index: tuple[int, ...]) -> TensorVariable:
        number = self._natural[self._column(rv, index)]
        # a whole number as a real one where that makes no difference: sums of it are then as good
        whole = not isinstance(rv.owner.op, FIXED_SUPPORT)  # type: ignore[union-attr]
        return pt.cast(number, rv.dtype) if whole else number  # type: ignore[attr-defined]

    def _draw_entry(self, rv: Variable, index: tuple[int, ...]) -> TensorVariable:
        try:
            return super()._draw_entry(rv, index)
        except NotScalar:
            if self._program.block.releases:
                raise
            self.draws_records = False  # records that are no confidential ones are never drawn
            return self._state_entry(rv, index)

    def each_atom(self) -> list[tuple[Any, tuple[int, ...]]]:
        """Return the atoms with the index of each of their numbers within a slot."""
        return [
            (rv, index)
            for rv, shape in zip(self.mixture.atoms, self.atom_shapes, strict=True)
            for index in np.ndindex(*shape)
        ]

    def lower_end(self, rv: Any) -> Variable | None:
        """Return the lower end of an inverse gamma variable that is cut off from below, free of atoms."""
        found = parameters_above(rv)
        return found[2] if found is not None and self._is_free(found[2]) else None

    def end_of(self, atom: Any, index: tuple[int, ...]) -> TensorVariable:
        """Return one number's lower end."""
        return self._entry_for(parameters_above(atom)[2], index, self.slots)  # type: ignore[index]

    @staticmethod
    def _entry_for(parameter: Any, index: tuple[int, ...], slots: RowGraph) -> TensorVariable:
        full, ndim = (ROW, *index), parameter.type.ndim
        return slots.entry(parameter, full[len(full) - ndim :] if ndim else ())

    def _atom_inputs(self, atom: Any, index: tuple[int, ...], slots: RowGraph) -> list[Variable]:
        entries = {p: self._entry_for(p, index, slots) for p in parameters_of(atom)}
        return [entries.get(v, v) for v in atom.owner.inputs]

    # -- compilation ------------------------------------------------------------------------------

    def _compile(self, statistics: list, weights: list, columns: list, each: list) -> None:
        program, rows = self.program, self._state
        state, candidate = self._of(rows, statistics, weights), self._of_draws(statistics, weights)
        histograms = list(program.histograms.values())
        now, new = ([g.entry(h.number, (ROW,)) for h in histograms] for g in (self._state, self._draws))
        self._base = self.slots.fork(self._atom_draw)
        base_draw = [self._base.entry(rv, (ROW, *index)) for rv, index in self.each_atom()]
        self.base_graph = self._base_logp()
        self.natural_graphs, store = self.values.natural(self.slots), self.values.stored(self.slots)
        kernel = self.mixture.kernel
        natural = rows.fork(self._natural_entry)
        logp = written_logp(kernel)
        density = self._sum_of(natural, logp)
        inside, guarded = self._guards(natural, logp, density)
        y = [rows.entry(rv, (ROW, *index)) for rv, index in each]
        urn = [rows.entry(p, ()) for p in self.urn_parameters()]
        peaks = densities_without_noise(program)
        self.peak_graph = None if peaks is None else self._weight(rows, peaks)
        self.mass_graph, self.centre_graph = guarded, None
        self.mass_by_record = bool(set(ancestors([guarded])) & set(rows.column_inputs))
        self.closed_graphs = self._closed_graphs(rows)
        self.statistics = len(statistics)
        self.n_columns_of_record = len(columns)
        self.histograms = histograms
        self._compile_hoist()
        fixed = isinstance(kernel.owner.op, FIXED_SUPPORT)  # type: ignore[union-attr]
        found = as_polynomial(density, [*rows.column_inputs, *self.natural_inputs], self.atom_inputs, fixed)
        if found is None or self.by_record:
            self.degree, self.record_inputs, self.own_graph, features = 0, self.natural_inputs, guarded, y
        else:
            # as functions of the value, a logarithm of a number near 0 or 1 is rewritten to one that is exact
            natural_numbers = {a: pt.cast(b, "float64") for a, b in zip(self._natural, y, strict=True)}
            features = graph_replace(found.features, natural_numbers, strict=False)
            self.degree, self.record_inputs, self.own_graph = found.degree, found.inputs, found.graph
            if self.may_fail:
                self.own_graph = pt.switch(inside, found.graph, -np.inf)
        self.n_features = len(self.record_inputs)
        # every graph is known now, and with it everything that is taken from outside of records and slots
        self.given = [*rows.constant_inputs, *rows.column_inputs]
        x, a = self._x, self.atom_inputs
        self.add("urn", [], urn)
        self.add("base_draw", [self._rng], base_draw, rng_first=True)
        self.add("base_logp", a, [self.base_graph])
        self.add("load", self.values.inputs, self.natural_graphs)
        self.add("store", a, store)
        self.add("features", x, features)
        if self.may_fail:
            self.add("inside", a, [inside])
        if program.block.releases:
            self.add("current", x, [*state, *now])
            self.add("propose", [self._rng, *a], [*columns, *candidate, *new], rng_first=True)
        if self.draws_records:
            self.add("draw", [self._rng, *a], columns, rng_first=True)
        # laws of atoms are found from the graph itself, without choices
        own = finite_logarithms(self.own_graph, a) if self.degree else self.own_graph
        self.add("own", [*self.record_inputs, *a], [own])
        if self.degree:
            self.add_of_record("own", a, [own])

    def _guards(self, rows: RowGraph, logp: TensorVariable, density: TensorVariable) -> tuple[Any, Any]:
        """Whether the kernel has a law for the atoms of a slot, and its density where it may have none."""
        self.domain = Domain(logp, self._is_free)
        self.may_fail, self.by_record = bool(self.domain.conditions), False
        if not self.may_fail:
            return None, density
        inside = reduce(pt.and_, (self.domain.inside(rows, i) for i in np.ndindex(*logp.type.shape[1:])))
        behind = set(ancestors([inside]))
        self.by_record = bool(behind & set(rows.column_inputs))
        if behind & set(self.natural_inputs):
            raise NotScalar(f"whether {self.mixture.kernel.name} has a law depends on other records")
        return inside, self._sum_of(rows, self.domain.guarded())

    def _closed_graphs(
        self, rows: RowGraph
    ) -> tuple[TensorVariable, list[TensorVariable]] | SummedRelease | str:
        """How records are integrated out of the decision, or why they are not."""
        kernel = self.mixture.kernel
        found = closed_release(self.program.block, kernel, self.program.state)
        if isinstance(found, SummedRelease) and found.end is None:
            (release,) = self.program.block.releases
            self.centre_graph = rows.entry(self.program.state[release.rv], (ROW,))
        if isinstance(found, str | SummedRelease):
            return found
        try:
            (density, *more), columns = found.entries(rows, self._rng)
        except NotScalar as reason:
            return str(reason)
        transform = self._transform(kernel)
        if transform is not None:
            each = np.ndindex(*self.program.records.shapes[0][1:])
            columns = [
                transform.forward(number, *self._inputs(kernel, index, rows))
                for number, index in zip(columns, each, strict=True)
            ]
        return sum(more, start=density), columns

    def urn_parameters(self) -> list[Any]:
        """Return concentration and discount of the labels' law."""
        return list(parameters_of(self.mixture.labels)[:2])

    def _sum_of(self, rows: RowGraph, graph: TensorVariable) -> TensorVariable:
        """Sum of a row-local graph over the entries of one row."""
        sizes = graph.type.shape[1:]
        if None in sizes:
            raise NotScalar("a density of unknown shape")
        first, *rest = (rows.entry(graph, (ROW, *index)) for index in np.ndindex(*sizes))  # type: ignore[arg-type]
        return sum(rest, start=first)

    def _base_logp(self) -> TensorVariable:
        """Log density of one slot's atoms, in natural space."""
        return sum(
            (self._sum_of(self.slots, written_logp(rv)) for rv in self.mixture.atoms), start=pt.constant(0.0)
        )

    def add(
        self,
        name: str,
        inputs: list[Any],
        outputs: list[Any],
        rng_first: bool = False,
        ordered: bool = True,
    ) -> None:
        """Compile a function of the hoisted numbers and of some inputs."""
        first = inputs[:1] if rng_first else []
        rest = inputs[1:] if rng_first else inputs
        self.functions[name], _ = scalar_function([*first, *self.given, *rest], outputs, ordered)

    def add_of_record(self, name: str, inputs: list[Any], outputs: list[Any], ordered: bool = True) -> None:
        """Compile a function of C, the numbers of a record and some inputs.

        Where the density is a polynomial, it is in two halves, the second for many records with the same
        inputs; else it is one function.
        """
        if not self.degree:
            self.add(name, [*self.record_inputs, *inputs], outputs, ordered=ordered)
            return
        before, between, after = in_two(outputs, [*self.record_inputs])
        early, _ = scalar_function([*self.given, *inputs], before, ordered)
        late, _ = scalar_function([*self.record_inputs, *between], after, ordered)
        self.halves[name] = early, late

    def value_of_record(self, name: str, given: list[float], numbers: Any, rest: Any) -> np.ndarray:
        """Return the values of such a function, in Python."""
        if not self.degree:
            return np.array(self.functions[name](*given, *numbers, *rest))
        early, late = self.halves[name]
        return np.array(late(*numbers, *early(*given, *rest)))

    def hoisted_at(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Hoisted numbers, and covariates by record, at values of the parameters."""
        program = self.program
        constants, columns = np.empty(self.n_constants), np.empty((self.n_columns, program.n))
        hoist(self.hoist.address, theta, program.data.gather(), constants, columns)
        return constants, columns

    @cached_property
    def start(self) -> Callable[[Any], dict[str, np.ndarray]]:
        """The model's initial point by its seed: PyMC compiles it at each call of `initial_point`."""
        return make_initial_point_fn(model=self.program.model)

    def places(self, rng: np.random.Generator, n: int) -> list[np.ndarray]:
        """Return values of the parameters: the initial point, and others that differ where it matters.

        What the laws of the records and of the atoms depend on is moved: in value space, or drawn from its
        prior where that has ends without a transform, or is discrete.
        """
        layout, model = self.program.parameters, self.program.model
        start = layout.flatten(self.start(None))
        laws = [self.mixture.kernel, *self.mixture.atoms]
        of_laws = set(leaves_of([p for rv in laws for p in parameters_of(rv)], self._variables))
        moving = [rv for rv in layout.variables if rv in of_laws - self._of_mixture]
        found = [start.copy() for _ in range(n if moving else 1)]
        for rv in moving:
            where = layout.slices[layout.variables.index(rv)]
            op: Any = rv.owner.op  # type: ignore[union-attr]
            free = model.rvs_to_transforms.get(rv) is not None or (
                rv.type.dtype.startswith("float")  # type: ignore[attr-defined]
                and _default_transform(op, rv) is None
            )
            drawn = None if free else pm.draw(rv, n, random_seed=rng, mode="FAST_COMPILE")
            for k, theta in enumerate(found[1:], 1):
                theta[where] = (
                    start[where] + 0.5 * rng.standard_normal(where.stop - where.start)
                    if drawn is None
                    else np.ravel(drawn[k])
                )
        return found
