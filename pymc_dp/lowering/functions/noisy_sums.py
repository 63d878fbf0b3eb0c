"""Densities of noisy sums over people, and how exact they are, as operations in graphs."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import disconnected_type
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op

from pymc_dp.lowering.compiling.keys import version_of
from pymc_dp.lowering.compiling.nopython import njit_for_graphs
from pymc_dp.lowering.functions.characteristic import WIDTH, density_and_slopes
from pymc_dp.lowering.functions.characteristic_errors import relative_error
from pymc_dp.upstream.pytensor_private import register_funcify_default_op_cache_key


def cast(inputs: Sequence[Any], whole: Sequence[int] = (6,)) -> list[Any]:
    """Return inputs as tensors: of whole numbers at some positions."""
    return [
        pt.cast(pt.as_tensor_variable(v), "int64" if k in whole else "float64") for k, v in enumerate(inputs)
    ]


class WithSlopes(Op):
    """A log density whose derivatives are outputs, too: by z, what is added, the probabilities and the noise.

    Inputs: z, what is added, probabilities, numbers of people, a constant, the noise, and pieces.
    """

    def pullback(
        self, inputs: Sequence[Variable], outputs: Sequence[Variable], cotangents: Sequence[Variable]
    ) -> list[Variable]:
        """Gradient: the derivatives that were computed with it."""
        given: Any = cotangents[0]
        by_z, by_added, by_chances, by_noise = (given * v for v in outputs[1:])
        return [by_z, by_added, by_chances, disconnected_type(), -by_z, by_noise, disconnected_type()]

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        """Only the log density is differentiable, in all but numbers of people and pieces."""
        return [[k not in (3, 6), *[False] * 4] for k in range(len(node.inputs))]


class WithoutSlopes(Op):
    """A number that nothing is derived of."""

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        """Nothing is differentiable."""
        return [[False] for _ in node.inputs]


class _OfNoisySum(Op):
    """An operation on a noisy sum; whether the noise is Laplace noise, the number of nodes, and the width."""

    __props__ = ("laplace", "nodes", "width")

    def __init__(self, laplace: bool, nodes: int, width: float = WIDTH):
        self.laplace, self.nodes, self.width = laplace, nodes, width


class NoisySumDensity(WithSlopes, _OfNoisySum):
    """Log density of a noisy sum over people, and its derivatives.

    Inputs: z; what a person of each group may add (groups, points), and with which probability; numbers of
    people (groups,), which are whole; a constant that is added; the standard deviation of Gaussian or the
    scale of Laplace noise; and the piece of a point, over which what is added is smooth: whole numbers, the
    same in each group. Outputs: the log density, and its derivatives by z, what is added, the
    probabilities and the noise.
    """

    def make_node(self, *inputs: Any) -> Apply:
        """Apply it to tensors."""
        return Apply(
            self, cast(inputs), [pt.dscalar(), pt.dscalar(), pt.dmatrix(), pt.dmatrix(), pt.dscalar()]
        )

    def perform(self, node: Apply, inputs: Any, outputs: Any) -> None:
        """Compute all."""
        z, added, chances, people, constant, noise, pieces = inputs
        found = density_and_slopes(
            float(z),
            *map(np.ascontiguousarray, (added, chances, people)),
            float(constant),
            float(noise),
            np.ascontiguousarray(pieces),
            self.laplace,
            self.nodes,
            self.width,
        )
        for place, value in zip(outputs, found, strict=True):
            place[0] = np.asarray(value)


class NoisySumError(WithoutSlopes, _OfNoisySum):
    """Estimate of the relative error of a density.

    Inputs: those of `NoisySumDensity`; what is added at more points, with which probability, and
    their pieces; and the rules of the points, of shape (numbers, 3, points): see `unresolved`.

    It is the sum of four parts: how far the density moves with more points, more nodes and a smaller step; a
    bound on what is beyond the last node, if no piece's characteristic function is larger there than at the
    last nodes; what people at scores without a point may add; and what the points do not see of steep
    functions.
    """

    def make_node(self, *inputs: Any) -> Apply:
        """Apply it to tensors."""
        *first, more_added, more_chances, more_pieces, rules = inputs
        last = [*cast([more_added, more_chances], ()), *cast([more_pieces], (0,)), *cast([rules], ())]
        return Apply(self, [*cast(first), *last], [pt.dscalar()])

    def perform(self, node: Apply, inputs: Any, outputs: Any) -> None:
        """Compute it."""
        z, added, chances, people, constant, noise, *others = inputs
        arrays = [np.ascontiguousarray(v) for v in (added, chances, people, *others)]
        outputs[0][0] = np.asarray(
            relative_error(
                float(z), *arrays[:3], float(constant), float(noise), *arrays[3:],
                self.laplace, self.nodes, self.width,
            )
        )  # fmt: skip


@register_funcify_default_op_cache_key(NoisySumDensity)
def _funcify_density(op: NoisySumDensity, **kwargs: Any) -> Any:
    laplace, nodes, width = op.laplace, op.nodes, op.width

    @njit_for_graphs
    def noisy_sum_density(z, added, chances, people, constant, noise, pieces):  # type: ignore[no-untyped-def]
        found, by_z, by_added, by_chances, by_noise = density_and_slopes(
            z.item(),
            np.ascontiguousarray(added),
            np.ascontiguousarray(chances),
            np.ascontiguousarray(people),
            constant.item(),
            noise.item(),
            np.ascontiguousarray(pieces),
            laplace,
            nodes,
            width,
        )
        return np.asarray(found), np.asarray(by_z), by_added, by_chances, np.asarray(by_noise)

    return noisy_sum_density, version_of(noisy_sum_density)


@register_funcify_default_op_cache_key(NoisySumError)
def _funcify_error(op: NoisySumError, **kwargs: Any) -> Any:
    laplace, nodes, width = op.laplace, op.nodes, op.width

    @njit_for_graphs
    def noisy_sum_error(  # type: ignore[no-untyped-def]
        z, added, chances, people, constant, noise, pieces, more_added, more_chances, more_pieces, rules
    ):
        return np.asarray(
            relative_error(
                z.item(),
                np.ascontiguousarray(added),
                np.ascontiguousarray(chances),
                np.ascontiguousarray(people),
                constant.item(),
                noise.item(),
                np.ascontiguousarray(pieces),
                np.ascontiguousarray(more_added),
                np.ascontiguousarray(more_chances),
                np.ascontiguousarray(more_pieces),
                np.ascontiguousarray(rules),
                laplace,
                nodes,
                width,
            )
        )

    return noisy_sum_error, version_of(noisy_sum_error)
