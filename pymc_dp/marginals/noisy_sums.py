"""Releases of one or two noisy sums over people, with these integrated out by a characteristic function."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.dist_math import check_parameters
from pymc.distributions.distribution import SymbolicRandomVariable
from pymc.model.core import Model
from pymc.pytensorf import constant_fold, rvs_in_graph
from pytensor.graph.traversal import ancestors
from pytensor.scalar import basic as ps
from pytensor.tensor.variable import TensorVariable

from pymc_dp.lowering.functions.characteristic_errors import unresolved, unresolved_in_pair
from pymc_dp.lowering.functions.characteristic_pairs import frequencies_for
from pymc_dp.lowering.functions.noisy_pairs import NoisyPairDensity, NoisyPairError
from pymc_dp.lowering.functions.noisy_sums import NoisySumDensity, NoisySumError
from pymc_dp.marginals.groups import NotTogether, values_as_written, with_replaced
from pymc_dp.marginals.points import Points, points_of
from pymc_dp.mechanisms.gaussian import GaussianMechanismRV
from pymc_dp.mechanisms.laplace import LaplaceMechanismRV
from pymc_dp.mechanisms.marginals import SymbolicMarginal, promise_of
from pymc_dp.query.lengths import lengths_of, with_known_shapes
from pymc_dp.query.recordrules import named
from pymc_dp.query.records import RecordBlock, Release, find_record_blocks, parameters_of
from pymc_dp.query.rowlocal import leaves_of
from pymc_dp.upstream.pymc_private import _logprob, _support_point

# Largest numbers of nodes of the integral, by how many people there are at least. The rule ends at so many
# times 2 pi / 16 over the standard deviation of the sum, or where the characteristic function of one person
# to the power of the number of people is negligible: at some 26 nodes, where they are many.
_NODES = ((2000, 80), (200, 120), (20, 240), (0, 600))
# Fewer people are not integrated out of a sum with Laplace noise, which does not damp high frequencies as
# Gaussian noise does: the function of a few is not small where the law of one person has an end or an atom.
_FEW = 20
# Nor are fewer from two sums, whose function has to be small at some hundred frequencies of either.
_FEW_OF_TWO = 100
# Most frequencies of one of two sums at prior parameters, which grow as the sums come to be the same.
_MOST_FREQUENCIES = 200
# How often points are added where one person's function is steep, up to which error of the density at prior
# parameters, and at how many draws of these.
_STEEP, _SEEN, _DRAWS = 4, 1e-5, 16


class NoisySumRV(SymbolicMarginal, SymbolicRandomVariable):
    """Draws how many people there are at each point, and one or two noisy sums.

    Inputs: those of `NoisySumDensity`, or of `NoisyPairDensity`.

    Attributes
    ----------
    laplace : bool
        Whether the noise is Laplace noise.
    nodes : int
        Of the integral, for one sum.
    """

    name = "noisy_sum"
    _print_name = ("NoisySum", "\\operatorname{NoisySum}")

    def __init__(self, *args: Any, laplace: bool, nodes: int, **kwargs: Any) -> None:
        self.laplace, self.nodes = laplace, nodes
        super().__init__(*args, **kwargs)


@dataclass(frozen=True)
class NoisySum:
    """A release through which alone people are seen, and which is one or two noisy sums over them."""

    block: RecordBlock
    release: Release
    points: Points
    finer: Points

    @property
    def laplace(self) -> bool:
        """Whether the noise is Laplace noise."""
        return type(self.release.rv.owner.op) is LaplaceMechanismRV

    @property
    def nodes(self) -> int:
        """Number of nodes of the integral, for one sum."""
        return nodes_for(self.points.sizes.sum())

    @property
    def pair(self) -> bool:
        """Whether there are two sums."""
        return len(self.points.constant) == 2

    def _inputs(self, points: Points) -> list[TensorVariable]:
        level = pt.cast(pt.as_tensor_variable(parameters_of(self.release.rv)[1]), "float64")
        added, constant = points.by_group(points.each), points.constant
        if self.pair:
            level = pt.specify_shape(pt.broadcast_to(level, (2,)), 2)
        else:
            level = level.sum() if level.type.ndim else level
            added, constant = added[:, :, 0], constant[0]
        return [
            added,
            points.by_group(points.weights),
            pt.constant(points.sizes),
            pt.constant(constant),
            pt.switch(level > 0, level, np.nan),
            pt.constant(points.of_group(points.piece)),
        ]

    def law(self) -> TensorVariable:
        """Return the law of the release without its people."""
        op = self.release.rv.owner.op
        promise = promise_of(op, tuple(self.block.names))
        return _noisy_sum(
            self._inputs(self.points), self.laplace, self.nodes, self.release.query.type.ndim, promise
        )

    def error(self, released: TensorVariable) -> TensorVariable:
        """Return an estimate of the relative error of the density of a release."""
        added, chances, *_, pieces = self._inputs(self.finer)
        rules = pt.constant(self.points.of_group(self.points.rules))
        others = [*self._inputs(self.points), added, chances, pieces, rules]
        if self.pair:
            return NoisyPairError(self.laplace)(released, *others)
        value = released if released.type.ndim == 0 else released[0]
        return NoisySumError(self.laplace, self.nodes)(value, *others)


def noisy_sum(model: Model, names: Sequence[str]) -> NoisySum | None:
    """Return the release of one or two noisy sums through which alone some records are seen.

    Returns
    -------
    NoisySum or None
        None if these are not all records of some people, or are not seen through one release of one or two
        numbers with Laplace or Gaussian noise alone.

    Raises
    ------
    NotTogether
        They are, but their sum has no density here; with the reason.
    """
    blocks = [block for block in find_record_blocks(model) if set(names) == set(block.names)]
    if not blocks or not all(_is_of_sums(release) for release in blocks[0].releases):
        return None
    (block,) = blocks
    for release in block.releases:
        if (shape := lengths_of(release.query)) not in ((), (1,), (2,)):
            raise NotTogether(
                f"{release.name} has shape {shape}, and one sum or a vector of two has a law here "
                "(dp.approximate_sums takes more as normal)"
            )
    if len(block.releases) != 1:
        apart = all(lengths_of(release.query) != (2,) for release in block.releases)
        if apart and len(block.releases) == 2 and len({type(r.rv.owner.op) for r in block.releases}) == 1:
            both = named(r.rv for r in block.releases)
            raise NotTogether(
                f"two sums have to be in one release: declare {both} as one, of pt.stack([...]) of both "
                "queries, with both levels of noise and both released numbers"
            )
        return None
    (release,) = block.releases
    if block.count is not None:
        raise NotTogether(f"how many people there are, {block.count.name}, is a variable")
    if block.terms:
        raise NotTogether(f"{named(block.terms)} depends on them, and is no release")
    variables = set(model.basic_RVs)
    for what, graphs in (("potential", model.potentials), ("deterministic", model.deterministics)):
        for graph in graphs:
            if set(block.records) & set(ancestors([graph], blockers=variables)):
                raise NotTogether(f"the {what} {graph.name} depends on them")
    laplace = type(release.rv.owner.op) is LaplaceMechanismRV
    if laplace and block.n < _FEW:
        raise NotTogether(
            f"fewer than {_FEW} people are too few under Laplace noise, and are sampled as fast as they are"
        )
    if lengths_of(release.query) == (2,) and block.n < _FEW_OF_TWO:
        raise NotTogether(f"fewer than {_FEW_OF_TWO} people are too few for two sums, and are sampled fast")
    _check_quotients(release, block)
    found = _with_points(model, block, release, 0)
    _check_values(found.points, block)
    return _resolved(model, found)


def _is_of_sums(release: Release) -> bool:
    """Whether a release has Laplace or Gaussian noise on numbers of all people."""
    return release.kind != "local" and type(release.rv.owner.op) in (GaussianMechanismRV, LaplaceMechanismRV)


def nodes_for(people: float) -> int:
    """Return the number of nodes of the integral."""
    return next(nodes for least, nodes in _NODES if people >= least)


def _with_points(model: Model, block: RecordBlock, release: Release, steep: int) -> NoisySum:
    points, finer = points_of(model, block, [release], None, light=True, steep=steep)
    return NoisySum(block, release, points, points if finer is None else finer)


def _resolved(model: Model, found: NoisySum) -> NoisySum:
    """Return the release with as many points as see all of one person's function, at prior parameters.

    Where a few hundred do not, what a draw tells of its error has the last word.
    """
    for steep in range(1, _STEEP + 1):
        off = _unseen_of(found)
        if off is None or off < _SEEN:
            break
        try:
            found = _with_points(model, found.block, found.release, steep)
        except NotTogether:  # there are too many points
            break
    return found


def _unseen_of(found: NoisySum) -> float | None:
    """Return how far the density is off at prior parameters, since points do not see steep functions."""
    added, chances, people, _, noise, _ = found._inputs(found.points)
    rules = found.points.of_group(found.points.rules)
    if not len(rules):
        return None
    try:
        each = pm.draw([added, chances, noise], _DRAWS, random_seed=20261128, mode="FAST_COMPILE")
    except (NotImplementedError, ValueError):  # a prior that has no draws
        return None
    off, most = [], []
    for at, share, level in zip(*each, strict=True):
        arrays = [np.ascontiguousarray(v, dtype=float) for v in (at, share, people.data)]
        if found.pair:
            needed, sd = frequencies_for(np.zeros(2), *arrays, level, found.laplace)
            most.append(needed)
            off.append(unresolved_in_pair(np.zeros(2), sd, *arrays, np.zeros(2), rules))
            continue
        mean = (at * share).sum(axis=1, keepdims=True)
        sd = np.sqrt(people.data @ (share * (at - mean) ** 2).sum(axis=1) + level**2)
        off.append(unresolved(0.0, sd, *arrays, 0.0, rules))
    if found.pair and np.median(most) > _MOST_FREQUENCIES:
        raise NotTogether(
            f"the two sums of {found.release.name} are nearly one number (their correlation is too near 1 at "
            "prior parameters), and their density takes too many frequencies"
        )
    # an extreme draw or two are no reason for more points
    return float(np.sort(off)[-3])


def _check_quotients(release: Release, block: RecordBlock) -> None:
    """Refuse what is divided by records: its tails may be heavy, whatever the law of these."""
    records = set(block.records)
    # a mean is divided by how many there are, which is no value of theirs
    for v in ancestors(with_known_shapes([release.query]), blockers=records):
        scalar = getattr(getattr(v.owner, "op", None), "scalar_op", None)
        by = v.owner.inputs[-1:] if isinstance(scalar, ps.TrueDiv | ps.Reciprocal) else []
        if isinstance(scalar, ps.Pow):
            (power,) = constant_fold([v.owner.inputs[1]], raise_not_constant=False)
            by = v.owner.inputs[:1] if not np.all(np.asarray(power) >= 0) else []
        if records & set(ancestors(by, blockers=records)):
            raise NotTogether(
                "what people add is divided by their records, and may have tails too heavy for that"
            )


def _check_values(points: Points, block: RecordBlock) -> None:
    """Refuse what people add if it has a few values: the characteristic function of such sums has no end."""
    rng = np.random.default_rng(20261128)
    graphs = [points.each]
    found = leaves_of(graphs, rvs_in_graph(graphs))
    reading: dict[Any, Any] = {
        rv: pt.constant(rng.uniform(0.2, 0.8, lengths_of(rv)).astype(rv.type.dtype))  # type: ignore[attr-defined]
        for rv in found
    }
    (values,) = values_as_written([with_replaced(points.each, reading)[0]], "what people add is not known")
    for number in range(values.shape[1]):
        smooth = [
            len(np.unique(values[(points.group == g) & (points.piece == k), number])) > 1
            for g in range(len(points.sizes))
            for k in np.unique(points.piece)
        ]
        if not any(smooth):
            raise NotTogether(
                f"each of the people {named(block.records)} adds one of a few values, and the sum's law is "
                "no curve (dp.approximate_sums takes it as normal)"
            )


def _noisy_sum(
    inputs: list[TensorVariable], laplace: bool, nodes: int, axes: int, promise: dict[str, Any]
) -> TensorVariable:
    """Return a random variable that is a noisy sum: a number, or a vector of one or two."""
    added, chances, people, constant, noise, _ = inputs
    rng = pt.random.shared_rng(seed=None)
    whole = pt.cast(people, "int64")
    between, counts = pt.random.multinomial(whole, chances, rng=rng, return_next_rng=True)
    if added.type.ndim == 3:
        total = constant + pt.sum(counts[:, :, None] * added, axis=(0, 1))
        kinds = "[rng],(g,p,d),(g,p),(g),(d),(d),(p)->[rng],(d)"
    else:  # a vector of one number, like its query
        total = pt.shape_padleft(constant + pt.sum(counts * added), axes)
        kinds = f"[rng],(g,p),(g,p),(g),(),(),(p)->[rng],({'o' if axes else ''})"
    draw = pt.random.laplace if laplace else pt.random.normal
    after, drawn = draw(total, noise, rng=between, return_next_rng=True)
    node = NoisySumRV(
        inputs=[rng, *inputs],
        outputs=[after, drawn],
        extended_signature=kinds,
        laplace=laplace,
        nodes=nodes,
        **promise,
    ).make_node(rng, *inputs)
    return node.outputs[1]


@_logprob.register(NoisySumRV)
def _log_density(op: Any, values: Any, rng: Any, *inputs: Any, **kwargs: Any) -> TensorVariable:
    if inputs[0].type.ndim == 3:
        density = NoisyPairDensity(op.laplace)(values[0], *inputs)[0]
        return check_parameters(density, pt.all(inputs[4] > 0), msg="noise > 0")
    value = values[0] if values[0].type.ndim == 0 else values[0][0]
    density = NoisySumDensity(op.laplace, op.nodes)(value, *inputs)[0]
    return check_parameters(density, inputs[4] > 0, msg="noise > 0")


@_support_point.register(NoisySumRV)
def _mean(op: Any, rv: Any, rng: Any, *inputs: Any) -> TensorVariable:
    """Return the mean of the sum, or of both."""
    added, chances, people, constant, *_ = inputs
    if added.type.ndim == 3:
        return constant + pt.sum(people[:, None, None] * chances[:, :, None] * added, axis=(0, 1))
    return pt.broadcast_to(constant + pt.dot(people, (added * chances).sum(axis=1)), rv.shape)
