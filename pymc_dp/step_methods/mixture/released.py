"""The law of a record's release with the record integrated out, and of the record given its release."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable

from pymc_dp.lowering.noisy_vectors import noisy_vector
from pymc_dp.lowering.rowdraws import draw_entry
from pymc_dp.lowering.rows import ROW, RowGraph
from pymc_dp.records import RecordBlock, parameters_of
from pymc_dp.supports import clamped_record

# Apart from the labels of other draws.
_LABEL = 2000


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


def closed_release(block: RecordBlock, kernel: Any, values: dict[Any, TensorVariable]) -> ClosedRelease | str:
    """Return how a kernel's records are integrated out of their releases, or why that is not closed.

    ``values``: by variable, what was released of it.
    """
    if len(block.releases) != 1 or block.releases[0].kind != "local":
        return "it takes one release, of each record by itself"
    others = [v.name for v in (*block.records, *block.terms, *block.potentials) if v is not kernel]
    if others:
        return f"{', '.join(map(str, others))} is a record too, or depends on one"
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
    return ClosedRelease(kernel, pm.logp(law, value), given, value, noise)


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
