"""Record moves: how a new value for a record is proposed.

Every move is a pair of native functions: ``propose`` draws candidates for all records and returns their
contributions and log weights; ``contribute`` gives those of the current records. A candidate is accepted on
the change of the central releases' log density plus the difference of the two weights, so a weight is

    log [ density of the record and of its other terms / density of the proposal ]

up to a constant. Moves read a mechanism only through its operation's attributes (``additive_noise``,
``conditional_draws``), never through its class.
"""

import logging
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.model.core import Model
from pymc.pytensorf import rvs_in_graph
from pytensor.graph.replace import vectorize_graph
from pytensor.tensor.variable import TensorConstant, TensorVariable

from pymc_dp.lowering.addresses.native import CONTRIBUTE, PROPOSE, NativeFunction, addresses_of, draw
from pymc_dp.lowering.functions.normals import is_multivariate_normal
from pymc_dp.lowering.rows.rows import NotScalar
from pymc_dp.query.readings import Reading, lift, with_query
from pymc_dp.query.records import RecordBlock, Release
from pymc_dp.query.supports import clamped_record, finite_support, has_density
from pymc_dp.step_methods.block.cells import MAX_ENTRIES, ChannelTable, tabled
from pymc_dp.step_methods.block.guards import by_entry, density
from pymc_dp.step_methods.block.program import RecordProgram, shared_program
from pymc_dp.step_methods.sweeps import kernels
from pymc_dp.step_methods.sweeps.discrete import DiscreteSweep
from pymc_dp.step_methods.sweeps.finite import FiniteSweep
from pymc_dp.step_methods.sweeps.fused import FusedSweep
from pymc_dp.step_methods.sweeps.histogram import BinSweep, HistogramSweep
from pymc_dp.step_methods.sweeps.tabled import CellSweep, ReversedSweep, TabledSweep

_log = logging.getLogger("pymc.dp")

# Largest budget of one record, in nats, at which it is only proposed from the model: every proposal is then
# accepted with probability 1/20 at the least, and mostly far more.
MAX_INDEPENDENCE_EPSILON = 3.0

# Cells of a grid that proposals are made from where nothing better is known.
N_GRID = 128


@dataclass
class Move:
    """A way of proposing records; ``exact`` moves draw from the full conditional of a local block."""

    name: str
    program: RecordProgram
    propose: NativeFunction | None = None
    contribute: NativeFunction | None = None
    fused: FusedSweep | FiniteSweep | DiscreteSweep | None = None
    exact: bool = False

    @property
    def sizes(self) -> np.ndarray:
        """Sizes of the work arrays, in the order that :func:`kernels.sweep` takes them."""
        fused = (0, 0) if self.fused is None else (self.fused.n_constants, self.fused.n_columns)
        return np.array([self.program.n_statistics, self.program.n_parameters, *fused], dtype=np.int64)

    @cached_property
    def addresses(self) -> np.ndarray:
        """Addresses of the native functions, in the order that :func:`kernels.sweep` takes them."""
        program, fused = self.program, self.fused
        functions = (
            self.propose, self.contribute, program.central.releases, program.central.change, program.general,
            None if fused is None else fused.rows, None if fused is None else fused.hoist,
            kernels.vectorised_sweep if fused is None else None,
        )  # fmt: skip
        return addresses_of(functions)


def independence_move(program: RecordProgram) -> Move:
    """Propose from the model: by tables for small supports, fused for scalar rows, else vectorised."""
    fused = HistogramSweep if program.histograms else TabledSweep if program.tables else FusedSweep
    for form in (DiscreteSweep, fused):
        try:
            return Move("independence", program, fused=form(program))
        except NotScalar as reason:
            _log.debug("no %s of %s: %s", form.__name__, program.names, reason)
    return Move("independence", program, program.propose, program.contribute)


def lowered(
    model: Model, block: RecordBlock, proposals: str, initial_point: dict[str, Any]
) -> tuple[RecordProgram, list[Move]]:
    """Return a block's program and moves; the steps of one model share them instead of compiling twice."""
    program = shared_program(block, lambda: RecordProgram(model, block, initial_point))
    if proposals not in program.moves:
        program.moves[proposals] = moves_for(program, proposals)
    return program, program.moves[proposals]


def moves_for(program: RecordProgram, proposals: str) -> list[Move]:
    """Return the moves for a block of records.

    Parameters
    ----------
    program : RecordProgram
    proposals : {"auto", "independence", "informed"}
        ``auto``: independence while the privacy of the records alone makes it accept enough; beyond that
        an exact draw where there is one, otherwise independence and reversed-channel moves in turn.

    Raises
    ------
    ValueError
        If "informed" is asked for and no informed move is known for these records.
    """
    if proposals == "independence":
        return [independence_move(program)]
    exact = _enumerated(program)
    if exact is not None:
        return [exact]
    if proposals == "auto" and _accepts_enough(program):
        return [independence_move(program)]
    informed = (
        _finite_support(program)
        or _closed_conditional(program)
        or _bins(program)
        or _cells(program)
        or _reversed_channel(program)
        or _grid(program)
    )
    if informed is None:
        if proposals == "informed":
            raise ValueError(
                f"`proposals` is 'informed', but no informed move is known for the records "
                f"{', '.join(program.names)}: they need one variable with finite support, or one that is "
                "released itself with additive noise. Use 'auto' or 'independence'."
            )
        return [independence_move(program)]
    if informed.exact or proposals == "informed":
        return [informed]
    return [independence_move(program), informed]


def _accepts_enough(program: RecordProgram) -> bool:
    """Whether privacy makes it likely that independence proposals are accepted often enough.

    Pure privacy guarantees it. Under zero-concentrated privacy the log ratio of two densities of a release is
    itself spread out, mostly within the root of 8 rho (twice the sensitivity over sigma, of Gaussian noise).
    An exact draw costs five to ten times a fused independence proposal.
    """
    total = 0.0
    for release in program.block.releases:
        guarantee = release.rv.owner.op.guarantee
        if guarantee is None:
            return False
        if guarantee.delta == 0 and np.isfinite(guarantee.epsilon):
            total += guarantee.epsilon
        elif guarantee.rho is not None:
            total += float(np.sqrt(8 * guarantee.rho))
        else:
            return False
    return total <= MAX_INDEPENDENCE_EPSILON and not program.block.terms


def _single(program: RecordProgram) -> tuple[TensorVariable, Release] | None:
    """Return the one record variable that is released itself, with that release."""
    block = program.block
    if len(block.records) != 1 or block.analysis.placements:
        return None
    (record,) = block.records
    if record.owner.op.ndim_supp > 0 and not is_multivariate_normal(record):  # type: ignore[union-attr]
        return None
    for release in program.of_kind("local"):
        op = release.rv.owner.op
        if getattr(op, "additive_noise", False) and _is_clamp_of(release.query, record):
            return record, release
    return None


def _is_clamp_of(query: TensorVariable, record: TensorVariable) -> bool:
    """Whether a query is the record itself, or the record clamped."""
    seen = clamped_record(query, [record])
    return seen is not None or _clamp_ends(query, record) is not None


def _clamp_ends(query: TensorVariable, record: TensorVariable) -> tuple[Any, Any] | None:
    node = query.owner
    scalar_op = getattr(getattr(node, "op", None), "scalar_op", None)
    if node is None or type(scalar_op).__name__ != "Clip" or node.inputs[0] is not record:
        return None
    lo, hi = node.inputs[1:]
    return (lo, hi) if isinstance(lo, TensorConstant | TensorVariable) else None


def _enumerated(program: RecordProgram) -> Move | None:
    """Draw a record with finite support from its full conditional given local releases: table look-ups."""
    if not program.of_kind("local"):
        return None  # nothing to be informed by: the prior is the conditional
    try:
        return Move("finite support", program, fused=FiniteSweep(program), exact=True)
    except NotScalar as reason:
        _log.debug("no enumeration of %s: %s", program.names, reason)
        return None


def _bins(program: RecordProgram) -> Move | None:
    """Propose a record's own bin, one beside it or any, where the release is a histogram of the records."""
    atoms = any(rv.dtype.startswith("float") and not has_density(rv) for rv in program.block.records)
    if not program.histograms or atoms:
        return None
    try:
        return Move("bins", program, fused=BinSweep(program))
    except NotScalar as reason:
        _log.debug("no proposals by bins for %s: %s", program.names, reason)
        return None


def _cells(program: RecordProgram) -> Move | None:
    """Propose a cell by its likelihood and a value anywhere in it, where the release is about cells."""
    for table in program.tables.values():
        if table.with_slots:
            return _by_cells(program, "cells", table)
    return None


def _grid(program: RecordProgram) -> Move | None:
    """Propose from a grid over a clamped record, by the likelihood at the middle of each cell.

    The grid shapes the proposal only: candidates are decided by the release's own density.
    """
    for release in program.of_kind("local"):
        found = clamped_record(release.query, program.block.records)
        if found is None or not found.hi - found.lo < np.inf:
            continue
        if tabled(program.model, program.block, release) and program.n * N_GRID <= MAX_ENTRIES:
            edges = np.linspace(found.lo, found.hi, N_GRID + 1)
            table = ChannelTable(program.model, release, program.n, edges, with_slots=True)
            move = _by_cells(program, "grid", table)
            if move is not None:
                program.add_table(table)
            return move
    return None


def _by_cells(program: RecordProgram, name: str, table: ChannelTable) -> Move | None:
    block = program.block
    (record, *others) = block.records
    seen = clamped_record(table.release.query, block.records) is not None
    if others or block.analysis.placements or record.ndim != 1 or not seen or not has_density(record):
        return None
    try:
        return Move(name, program, fused=CellSweep(program, table))
    except NotScalar as reason:
        _log.debug("no proposals by cells for %s: %s", program.names, reason)
        return None


def _compile(program: RecordProgram, name: str, candidates: TensorVariable, weight: Any, exact: bool) -> Move:
    """Compile a move from the candidates of its one record variable and a function reading -> weight."""
    (record,) = program.block.records
    drawn: Reading = {**program.state, record: _same_type(record, candidates)}
    propose = program.native(
        f"propose {name}",
        [program.x],
        [program.matrix_of(drawn), program.contributions(drawn), weight(drawn)],
        PROPOSE,
    )
    contribute = program.native(
        f"contribute {name}",
        [program.x],
        [program.contributions(program.state), weight(program.state)],
        CONTRIBUTE,
    )
    alone = not program.of_kind("central", "function", "general") and not program.whole_potentials
    return Move(name, program, propose, contribute, exact=exact and alone)


def _same_type(record: TensorVariable, graph: TensorVariable) -> TensorVariable:
    return pt.specify_shape(pt.cast(graph, record.dtype), record.type.shape)


def _own_logp(program: RecordProgram, reading: Reading) -> TensorVariable:
    (record,) = program.block.records
    logp = density(program, record, {**program.state, record: reading[record]})
    return logp.sum(axis=tuple(range(1, logp.ndim))) if logp.ndim > 1 else logp


def _noise_logp(program: RecordProgram, release: Release, reading: Reading, query: Any) -> TensorVariable:
    """Log density (n,) of a release if its query were something else."""
    logp = by_entry(pm.logp(with_query(release, program.state, query), reading[release.rv]))
    return logp.sum(axis=tuple(range(1, logp.ndim))) if logp.ndim > 1 else logp


def _reversed_channel(program: RecordProgram) -> Move | None:
    """Propose y = z - noise: exact for any prior, and good where the noise is small (part of Gibbs' limit).

    The weight is log f(y) + log q(z | clamp y) + other terms - log q(z | y), the last being the density of
    the proposal.
    """
    found = _single(program)
    if found is None:
        return None
    record, release = found
    whole = [v.dtype.startswith(("int", "uint", "bool")) for v in (record, release.rv)]
    # the record less real noise is no whole number; and a value with an atom's probability has no density
    if not has_density(record) and not all(whole):
        return None
    try:
        return Move("reversed channel", program, fused=ReversedSweep(program, release))
    except NotScalar as reason:
        _log.debug("vectorised reversed channel of %s: %s", program.names, reason)
    candidates = with_query(release, program.state, program.state[release.rv])

    def weight(reading: Reading) -> TensorVariable:
        own = _own_logp(program, reading) + program.weights(reading)
        return own - _noise_logp(program, release, program.state, reading[record])

    return _compile(program, "reversed channel", candidates, weight, exact=False)


def _closed_conditional(program: RecordProgram) -> Move | None:
    """Draw a record from its law given its own release, where the mechanism knows that law."""
    found = _single(program)
    if found is None:
        return None
    record, release = found
    law = release.rv.owner.op.conditional_draws.get(type(record.owner.op))
    if law is None or (release.query is not record and _clamp_ends(release.query, record) is None):
        return None
    if program.model.rvs_to_transforms.get(record) is not None:
        return None
    ends = _clamp_ends(release.query, record)
    if ends is not None and rvs_in_graph(list(ends)):
        return None  # random ends may change places, and the closed laws are those of ends in order
    lo, hi = (-np.inf, np.inf) if ends is None else ends
    prior = lift(record, program.state).owner
    channel = lift(release.rv, program.state).owner
    candidates = draw(
        law,
        *prior.op.dist_params(prior),
        program.state[release.rv],
        *channel.op.dist_params(channel)[1:],
        lo,
        hi,
        size=pt.as_tensor(tuple(int(s) for s in record.shape.eval())),
    )

    def weight(reading: Reading) -> TensorVariable:
        query = reading[record] if ends is None else pt.clip(reading[record], lo, hi)
        return program.weights(reading) - _noise_logp(program, release, program.state, query)

    return _compile(program, "closed conditional", candidates, weight, exact=True)


def _finite_support(program: RecordProgram) -> Move | None:
    """Draw a record with finite support from its full conditional under all local terms."""
    block = program.block
    if len(block.records) != 1 or block.records[0].ndim != 1 or block.analysis.placements:
        return None
    if not program.of_kind("local") and not block.terms and not block.potentials:
        return None  # nothing to be informed by: the prior is the conditional
    (record,) = block.records
    support = finite_support(record)
    if support is None:
        return None
    at = pt.vector("at", dtype=record.dtype, shape=record.type.shape)
    table = _own_logp(program, {**program.state, record: at}) + program.weights({**program.state, record: at})
    grid = pt.constant(np.broadcast_to(support[:, None], (len(support), program.n)).astype(record.dtype))
    logits = vectorize_graph(table, {at: grid}).T
    logits = pt.switch(pt.isnan(logits), -np.inf, logits)  # a density that is no number is none
    gumbel = draw(pt.random.gumbel, 0.0, 1.0, size=(program.n, len(support)))
    candidates = pt.constant(support.astype(record.dtype))[pt.argmax(logits + gumbel, axis=1)]

    def weight(reading: Reading) -> TensorVariable:
        return pt.zeros(program.n)

    return _compile(program, "finite support", candidates, weight, exact=True)
