"""The law of a record's release with the record integrated out, and of the record given its release."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable

from pymc_dp.lowering.functions.noisy_normal import without_derivatives
from pymc_dp.lowering.rows.noisy_vectors import noisy_vector
from pymc_dp.lowering.rows.rowdraws import draw_entry
from pymc_dp.lowering.rows.rows import ROW, RowGraph
from pymc_dp.query.records import RecordBlock, parameters_of
from pymc_dp.query.supports import clamped_record, finite_support
from pymc_dp.step_methods.block.program import RecordProgram

# Apart from the labels of other draws.
_LABEL = 2000
# Largest number of values that are added up.
_MAX_VALUES = 2048


@dataclass(frozen=True)
class ClosedRelease:
    """A kernel behind a release of each record, which a mechanism lists as closed.

    Attributes
    ----------
    density, given : TensorVariable
        Log density of the releases, and the records given them; graphs of all records.
    released, noise : TensorVariable
    """

    kernel: Any
    density: TensorVariable
    given: TensorVariable
    released: TensorVariable
    noise: list[TensorVariable]

    def entries(self, rows: RowGraph, rng: Variable) -> tuple[list[TensorVariable], list[TensorVariable]]:
        """Return the log densities of one record's release, and the numbers of the record given it.

        Raises
        ------
        NotScalar
            If they have no scalar form.
        """
        if self.kernel.owner.op.ndim_supp:
            (sigma,) = self.noise
            density, drawn = noisy_vector(rows, self.kernel, self.released, sigma, rng, _LABEL)
            return [density], drawn
        each = list(np.ndindex(*self.kernel.type.shape[1:]))
        drawn = [
            draw_entry(rows, self.given, index, rng, _LABEL + k, defined=True) for k, index in enumerate(each)
        ]
        return [rows.entry(self.density, (ROW, *index)) for index in each], drawn


@dataclass(frozen=True)
class SummedRelease:
    """A discrete kernel behind releases of each record, added up over the values of a record.

    Attributes
    ----------
    first : int
    end : int or None
        Values are the whole numbers from ``first`` to ``end - 1``; None: all whole numbers, where the one
        release is the record with whole-numbered noise.
    """

    first: int
    end: int | None


def closed_release(
    block: RecordBlock, kernel: Any, values: dict[Any, TensorVariable]
) -> ClosedRelease | SummedRelease | str:
    """Return how a kernel's records are integrated out of their releases, or why that is not closed.

    ``values``: by variable, what was released of it.
    """
    discrete = kernel.type.dtype.startswith(("int", "uint", "bool"))
    if not block.releases or any(release.kind != "local" for release in block.releases):
        return "it takes releases of each record by itself"
    others = [v.name for v in (*block.records, *block.terms, *block.potentials) if v is not kernel]
    if others:
        return f"{', '.join(map(str, others))} is a record too, or depends on one"
    if discrete:
        return _summed(block, kernel)
    if len(block.releases) != 1:
        return "it takes one release of normal records"
    (release,) = block.releases
    channel: Any = release.rv.owner.op  # type: ignore[union-attr]
    pair, found = channel.record_marginals.get(type(kernel.owner.op)), clamped_record(release.query, {kernel})
    if found is None:
        return f"{release.name} is no release of the record itself, up to a clamp to two known numbers"
    if not found.lo < found.hi:
        return f"the clamps of {release.name} leave a single value"
    if pair is None:
        return f"{release.name} is no release of normal records with Laplace or Gaussian noise"
    ends = (found.lo, found.hi)
    why = None if pair.refuse is None else pair.refuse(channel, ends)
    if why is not None:
        return str(why)
    params, noise = list(parameters_of(kernel)), list(parameters_of(release.rv)[1:])
    value = values[release.rv]
    law = pair.release(channel, {}, params, noise, None, ends)
    given = pair.record(channel, params, noise, value, ends)
    return ClosedRelease(kernel, without_derivatives(pm.logp(law, value)), given, value, noise)


def _summed(block: RecordBlock, kernel: Any) -> SummedRelease | str:
    """Return over which values a discrete record is added up, or why it is not."""
    if kernel.type.ndim != 1:
        return f"{kernel.name} has several numbers per record"
    support = finite_support(kernel, _MAX_VALUES)
    if support is not None:
        return SummedRelease(int(support[0]), int(support[-1]) + 1)
    (release, *more) = block.releases
    found = clamped_record(release.query, {kernel})
    itself = found is not None and (found.lo, found.hi) == (-np.inf, np.inf) and not more
    if not (itself and hasattr(release.rv.owner.op, "reach")):  # type: ignore[union-attr]
        return (
            f"{kernel.name} has no known largest value, so that its release has to be the record itself, "
            "unclamped, with discrete Laplace or discrete Gaussian noise"
        )
    return SummedRelease(0, None)


def densities_without_noise(program: RecordProgram) -> list[TensorVariable] | None:
    """Return log densities of releases without noise; None where other things have a weight."""
    block = program.block
    nodes: list[Any] = [release.rv.owner for release in program.of_kind("local")]
    if block.terms or block.potentials or not all(node.op.additive_noise for node in nodes):
        return None
    graphs = []
    for node in nodes:
        rng, size, _, *noise = node.inputs
        value = program.state[node.outputs[1]]
        exact = node.op.make_node(rng, size, pt.cast(value, node.outputs[1].dtype), *noise).outputs[1]
        graphs.append(pm.logp(exact, value))
    return graphs


def not_closed(why: str) -> ValueError:
    """Return the error for infinitely many auxiliary records of a release that is not closed."""
    return ValueError(
        "`n_auxiliary` must be finite here: with infinitely many, the law of the release without the record "
        f"has to be known in closed form, and {why}."
    )


def check_closed(block: RecordBlock, kernel: Any) -> None:
    """Refuse a kernel's releases before anything is compiled.

    Raises
    ------
    ValueError
        If they have no closed law without the records.
    """
    found = closed_release(block, kernel, {release.rv: release.rv for release in block.releases})
    if isinstance(found, str):
        raise not_closed(found)
