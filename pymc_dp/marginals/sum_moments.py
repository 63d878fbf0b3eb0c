"""Mean and covariance of what people add to sums, as functions of the parameters of their law."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytensor.tensor as pt
from pymc.model.core import Model
from pytensor.tensor.variable import TensorVariable

from pymc_dp.marginals.points import Points, points_of
from pymc_dp.query.records import RecordBlock, Release


@dataclass(frozen=True)
class Moments:
    """Of the queries of some releases, one after the other in a vector of length d.

    Attributes
    ----------
    mean : TensorVariable, shape (d,)
    deviations : TensorVariable, shape (points, d)
        Of what a person adds from its mean in the person's group, at points of the person's law.
    weights : TensorVariable, shape (points,)
        How many people each point stands for.
    finer : TensorVariable or None, shape (d,)
        The mean by more points; None if a record has whole numbers only, which are summed over.
    """

    mean: TensorVariable
    deviations: TensorVariable
    weights: TensorVariable
    finer: TensorVariable | None

    @property
    def points(self) -> int:
        """Number of points."""
        return int(self.weights.type.shape[0])

    @property
    def covariance(self) -> TensorVariable:
        """The covariance of the sums over all people, shape (d, d)."""
        return pt.dot((self.deviations * self.weights[:, None]).T, self.deviations)


def moments_of(model: Model, block: RecordBlock, releases: Sequence[Release], nodes: int | None) -> Moments:
    """Return the moments of the queries of releases of the same people.

    Raises
    ------
    NotTogether
        As :func:`points_of`.
    """
    points, more = points_of(model, block, releases, nodes)
    of_group, mean = _means(points)
    finer = None if more is None else _means(more)[1]
    weights = points.weights * points.sizes[points.group]
    return Moments(mean, points.each - of_group[points.group], weights, finer)


def _means(points: Points) -> tuple[TensorVariable, TensorVariable]:
    """Return the mean of what a person of each group adds, and that of the queries."""
    of_group = points.by_group(points.weights[:, None] * points.each).sum(axis=1)
    return of_group, pt.dot(pt.constant(points.sizes), of_group) + pt.constant(points.constant)
