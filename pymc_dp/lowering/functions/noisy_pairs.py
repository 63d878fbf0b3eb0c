"""Densities of two noisy sums over people, and how exact they are, as operations in graphs."""

from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op

from pymc_dp.lowering.compiling.keys import version_of
from pymc_dp.lowering.compiling.nopython import njit, njit_for_graphs
from pymc_dp.lowering.functions.characteristic_errors import relative_error_of_pair
from pymc_dp.lowering.functions.characteristic_pairs import WIDTH, log_density
from pymc_dp.lowering.functions.noisy_sums import WithoutSlopes, WithSlopes, cast
from pymc_dp.upstream.pytensor_private import register_funcify_default_op_cache_key


@njit
def _density_and_slopes(z, added, chances, people, constant, noise, pieces, laplace, width):  # type: ignore[no-untyped-def]
    by_added, by_chances = np.empty(added.shape), np.empty(chances.shape)
    found, by_z, by_noise, _, _, _ = log_density(
        z, added, chances, people, constant, noise, pieces, laplace, width, by_added, by_chances
    )
    return np.asarray(found), by_z, by_added, by_chances, by_noise


class _OfNoisyPair(Op):
    """An operation on two noisy sums; whether the noise is Laplace noise, and the width of the window."""

    __props__ = ("laplace", "width")

    def __init__(self, laplace: bool, width: float = WIDTH):
        self.laplace, self.width = laplace, width


class NoisyPairDensity(WithSlopes, _OfNoisyPair):
    """Log density of two noisy sums over people, and its derivatives.

    Inputs: z (2,); what a person of each group may add (groups, points, 2), and with which probability
    (groups, points); numbers of people (groups,), which are whole; constants that are added (2,); the
    standard deviations of Gaussian or the scales of Laplace noise (2,); and the piece of a point, over which
    what is added is smooth: whole numbers, the same in each group. Outputs: the log density, and its
    derivatives by z, what is added, the probabilities and the noise.
    """

    def make_node(self, *inputs: Any) -> Apply:
        """Apply it to tensors."""
        kinds = [pt.dscalar(), pt.dvector(), pt.dtensor3(), pt.dmatrix(), pt.dvector()]
        return Apply(self, cast(inputs, (6,)), kinds)

    def perform(self, node: Apply, inputs: Any, outputs: Any) -> None:
        """Compute all."""
        found = _density_and_slopes(*map(np.ascontiguousarray, inputs), self.laplace, self.width)
        for place, value in zip(outputs, found, strict=True):
            place[0] = np.asarray(value)


class NoisyPairError(WithoutSlopes, _OfNoisyPair):
    """Estimate of the relative error of a density.

    Inputs: those of `NoisyPairDensity`; what is added at more points, with which probability, and their
    pieces; and the rules of the points, of shape (numbers, 3, points): see `NoisySumError`, whose four parts
    it has.
    """

    def make_node(self, *inputs: Any) -> Apply:
        """Apply it to tensors."""
        return Apply(self, cast(inputs, (6, 9)), [pt.dscalar()])

    def perform(self, node: Apply, inputs: Any, outputs: Any) -> None:
        """Compute it."""
        arrays = map(np.ascontiguousarray, inputs)
        outputs[0][0] = np.asarray(relative_error_of_pair(*arrays, self.laplace, self.width))


@register_funcify_default_op_cache_key(NoisyPairDensity)
def _funcify_density(op: NoisyPairDensity, **kwargs: Any) -> Any:
    laplace, width = op.laplace, op.width

    @njit_for_graphs
    def noisy_pair_density(z, added, chances, people, constant, noise, pieces):  # type: ignore[no-untyped-def]
        return _density_and_slopes(
            np.ascontiguousarray(z),
            np.ascontiguousarray(added),
            np.ascontiguousarray(chances),
            np.ascontiguousarray(people),
            np.ascontiguousarray(constant),
            np.ascontiguousarray(noise),
            np.ascontiguousarray(pieces),
            laplace,
            width,
        )

    return noisy_pair_density, version_of(noisy_pair_density)


@register_funcify_default_op_cache_key(NoisyPairError)
def _funcify_error(op: NoisyPairError, **kwargs: Any) -> Any:
    laplace, width = op.laplace, op.width

    @njit_for_graphs
    def noisy_pair_error(  # type: ignore[no-untyped-def]
        z, added, chances, people, constant, noise, pieces, more_added, more_chances, more_pieces, rules
    ):
        return np.asarray(
            relative_error_of_pair(
                np.ascontiguousarray(z),
                np.ascontiguousarray(added),
                np.ascontiguousarray(chances),
                np.ascontiguousarray(people),
                np.ascontiguousarray(constant),
                np.ascontiguousarray(noise),
                np.ascontiguousarray(pieces),
                np.ascontiguousarray(more_added),
                np.ascontiguousarray(more_chances),
                np.ascontiguousarray(more_pieces),
                np.ascontiguousarray(rules),
                laplace,
                width,
            )
        )

    return noisy_pair_error, version_of(noisy_pair_error)
