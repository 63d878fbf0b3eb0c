"""Which parameters the ancillary update takes from NUTS by default."""

import logging
from collections.abc import Sequence
from math import prod

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.truncated import TruncationCheck
from pymc.model.core import Model
from pytensor.compile.builders import OpFromGraph
from pytensor.gradient import NullTypeGradError
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import ancestors
from pytensor.graph.utils import MethodNotDefined
from pytensor.tensor.random.basic import DirichletRV

from pymc_dp.lowering.functions.truncated_counts import truncated_count
from pymc_dp.mixtures.structure import is_labels
from pymc_dp.query.pointwise import record_behind
from pymc_dp.query.records import RecordBlock, parameters_of
from pymc_dp.query.rowlocal import leaves_of
from pymc_dp.query.supports import finite_support, has_no_draws
from pymc_dp.step_methods.block.cells import find_histograms, tabled
from pymc_dp.step_methods.block.parents import ancestors_of_records, continuous_parameters
from pymc_dp.step_methods.block.program import RecordProgram
from pymc_dp.step_methods.conjugate import cheaper_by_cycles, conjugate_parameters
from pymc_dp.step_methods.discovery import record_blocks
from pymc_dp.step_methods.groups import Grouped
from pymc_dp.step_methods.lengths import with_known_lengths
from pymc_dp.step_methods.updates.noncentred import NoiseForm, NoNoiseForm
from pymc_dp.step_methods.updates.series import noise_form
from pymc_dp.step_methods.whole_numbers import reason_to_leave, say_what_is_left, whole_numbers_of

_log = logging.getLogger("pymc.dp")  # below PyMC's own, which prints to the console

# A random walk mixes in about as many updates as it has dimensions: beyond this, groups move by themselves,
# or trajectories are followed.
MAX_DIMENSION = 40
# Numbers up to which groups are not looked for: a random walk of all does nearly as well.
FEW = 12
# Numbers up to which proposals of parameters with all records are made.
MOST_REDRAWN = 12
# Values of a record that are summed over: each is a term in the graph of a density.
MOST_VALUES = 16


def default_parameters(model: Model) -> list[Variable]:
    """Return the parameters that this step takes over from NUTS by default."""
    blocks, refused = record_blocks(model), set()
    for block in blocks:
        if "ancillary" not in block.decisions:
            parents = _parameters_of_block(model, block)
            block.decisions["ancillary"] = [*parents, *_whole_numbers_of_block(model, block, parents)]
        # it takes a parameter with all blocks behind which it is, or not at all
        refused |= behind_records(model, block) - set(block.decisions["ancillary"])
    found = dict.fromkeys(rv for block in blocks for rv in block.decisions["ancillary"])
    return [rv for rv in found if rv not in refused]


def behind_records(model: Model, block: RecordBlock) -> set[Variable]:
    """Return the parameters with which the records of a block can move."""
    return {*ancestors_of_records(model, block), *whole_numbers_of(model, block)}


def _parameters_of_block(model: Model, block: RecordBlock) -> list[Variable]:
    parents: list[Variable] = [*ancestors_of_records(model, block)]
    laws = [p for rv in block.records for p in parameters_of(rv)]
    if any(is_labels(rv) for rv in leaves_of(laws, set(model.basic_RVs))):
        return []  # a mixture has steps of its own
    shapes = model.eval_rv_shapes()
    size = sum(int(np.prod(shapes[rv.name])) for rv in parents)
    if all(isinstance(rv.owner.op, DirichletRV) and shapes[rv.name][-1] == 1 for rv in parents):
        return []  # tables of one category: nothing moves
    if cheaper_by_cycles(model, block, parents):
        return []
    if block.count in parents and not takes_count(model, block):
        _log.info(
            "AncillaryUpdate leaves %s, the number of people, to other steps, given all else: only with up "
            "to %d parameters of records that are functions of noise are they moved together.",
            str(getattr(block.count, "name", None)), MAX_DIMENSION,
        )  # fmt: skip
        parents.remove(block.count)
    if is_redrawn(model, block):
        return parents
    try:
        forms = forms_of(model, block, parents)
        reason = without_slopes(model, block, forms) if size > MAX_DIMENSION else ""
        if not reason or fall_into_groups(model, block, parents):
            return parents
        reason = (
            f"they are {size} numbers, more than the {MAX_DIMENSION} of a random walk, they fall into no "
            f"groups that are independent of each other, and {reason}"
        )
    except NoNoiseForm as error:
        reason = str(error)
    left = [rv for rv in parents if rv not in conjugate_parameters(model)]
    if left:
        _log.info(
            "AncillaryUpdate leaves %s to other steps: %s. Expect slow mixing where privacy is strong.",
            ", ".join(str(rv.name) for rv in left),
            reason,
        )
    return []


def _whole_numbers_of_block(
    model: Model, block: RecordBlock, parents: Sequence[Variable]
) -> Sequence[Variable]:
    """Return the whole numbers in the law of the records that move with some of their other parameters."""
    found = whole_numbers_of(model, block)
    if not found:
        return []
    laws = [p for rv in block.records for p in parameters_of(rv)]
    if any(is_labels(rv) for rv in leaves_of(laws, set(model.basic_RVs))):
        return []  # a mixture has steps of its own
    reasons = {rv: reason_to_leave(model, rv) for rv in found}
    for rv, reason in reasons.items():
        say_what_is_left([rv] if reason else [], reason)
    taken = [rv for rv in found if not reasons[rv]]
    shapes = model.eval_rv_shapes()
    size = sum(int(np.prod(shapes[rv.name])) for rv in (*parents, *taken))
    if size > MAX_DIMENSION:
        reason = f"with the others they are {size} numbers, more than the {MAX_DIMENSION} of a random walk"
        say_what_is_left(taken, reason)
        return []
    if is_redrawn(model, block):
        say_what_is_left(taken, "the other parameters are proposed with all records drawn anew")
        return []
    try:
        forms_of(model, block, [*parents, *taken])
    except NoNoiseForm as error:
        say_what_is_left(taken, str(error))
        return []
    return taken


def forms_of(model: Model, block: RecordBlock, parents: Sequence[Variable]) -> dict[Variable, NoiseForm]:
    """Return how the records that move with their parameters are functions of noise."""
    variables, moved, forms = set(model.basic_RVs), set(parents), {}
    for rv in block.records:
        if set(leaves_of(parameters_of(rv), variables)) & moved:
            forms[rv] = noise_form(rv, lambda g: bool(set(leaves_of([g], variables)) & moved))
            moved.add(rv)
    return forms


def fall_into_groups(model: Model, block: RecordBlock, parents: Sequence[Variable]) -> bool:
    """Whether parameters move in groups, and few enough of them in none."""
    sized = with_known_lengths(model)
    (own,) = (b for b in record_blocks(sized) if b.names == block.names)
    moving = [sized.named_vars[rv.name] for rv in parents]
    grouped = Grouped(RecordProgram(sized, own), moving, integrates_out(sized, own))
    return grouped.n_shared <= MAX_DIMENSION


def is_redrawn(model: Model, block: RecordBlock) -> bool:
    """Whether parameters are proposed with all records: few, of records that are no function of noise.

    Or of which it takes long to find the noise, where sums are released.
    """
    parents = ancestors_of_records(model, block)
    shapes = model.eval_rv_shapes()
    if not 0 < sum(int(np.prod(shapes[rv.name])) for rv in parents) <= MOST_REDRAWN:
        return False
    # a record whose law depends on another one may have none, and would be drawn until it has
    records, variables = set(block.records), set(model.basic_RVs)
    if any(records.intersection(leaves_of(parameters_of(rv), variables)) for rv in block.records):
        return False
    if any(has_no_draws(rv) or _may_fail(rv, variables) for rv in block.records):
        return False
    try:
        forms = forms_of(model, block, parents)
    except NoNoiseForm:
        return True
    if block.count is not None:
        return False  # given the noise, the number of people moves along
    # measured behind sums of 200 and 2000 records, at epsilon 1 and 10: 4 to 23 times the effective draws
    central = all(release.kind == "central" for release in block.releases)
    return central and any(form.slow for form in forms.values())


def _may_fail(rv: Variable, variables: set[Variable]) -> bool:
    """Whether a draw of a law may end in an error: PyMC draws truncated laws again, up to a limit."""
    inside = ancestors([rv], blockers=variables - {rv})
    return any(
        v.owner is not None and truncated_count(v.owner) is None and _draws_again(v.owner) for v in inside
    )


def _draws_again(node: Apply) -> bool:
    """Whether an operation draws from a truncated law by PyMC's rejection, itself or in a graph inside."""
    inner = node.op.fgraph.apply_nodes if isinstance(node.op, OpFromGraph) else ()
    return isinstance(node.op, TruncationCheck) or any(map(_draws_again, inner))


def takes_count(model: Model, block: RecordBlock) -> bool:
    """Whether the number of people moves with the parameters of the records, by steps of a random walk."""
    if block.count is None:
        return False
    shapes = model.eval_rv_shapes()
    size = sum(int(np.prod(shapes[rv.name])) for rv in ancestors_of_records(model, block))
    return size <= MAX_DIMENSION and not is_redrawn(model, block)


def integrates_out(model: Model, block: RecordBlock) -> bool:
    """Whether records of few values are drawn exactly given parameters and releases, and may be summed over.

    The conditions are those of :class:`pymc_dp.step_methods.sweeps.finite.FiniteSweep`.
    """
    (record, *others) = block.records
    if others or record.ndim != 1 or block.terms or block.potentials or block.analysis.placements:
        return False
    return finite_support(record, MOST_VALUES) is not None and all(
        release.kind == "local"
        and record_behind(release.query, block.records) is not None
        and tabled(model, block, release)
        for release in block.releases
    )


def sums_over_few_values(model: Model, block: RecordBlock) -> bool:
    """Whether records have so few values together that :func:`pymc_dp.marginalize` sums them out."""
    supports = [finite_support(record, MOST_VALUES**2) for record in block.records]
    return (
        all(support is not None for support in supports)
        and prod(len(support) for support in supports if support is not None) <= MOST_VALUES**2
        and all(release.kind == "local" and release.query.type.ndim == 1 for release in block.releases)
        and all(term in model.observed_RVs for term in block.terms)
        and not block.potentials
    )


def without_slopes(model: Model, block: RecordBlock, forms: dict[Variable, NoiseForm]) -> str:
    """Return why densities have no slopes in parameters and in records that move along; empty if they have.

    Densities are all that the update would follow: the laws of parameters and records, the releases, and what
    else depends on them. Releases and records that are summed over have them.
    """
    summed = integrates_out(model, block)
    releases = {release.rv for release in block.releases}
    if not summed:
        for rv, form in forms.items():
            if not form.smooth:
                return f"{rv.name} is no smooth function of them and of noise"
        counted = find_histograms(block)
        for release in block.releases:
            if release.rv in counted:
                return f"{release.name} counts records in bins"
            if tabled(model, block, release):
                return f"the density of {release.name} is looked up in a table"
    moved: set[Variable] = {*ancestors_of_records(model, block), *forms}
    terms = [
        term
        for term in (*model.basic_RVs, *model.potentials)
        if (term in moved or moved.intersection(leaves_of(_read_by(term, model), set(model.basic_RVs))))
        and not (summed and term in releases)
    ]
    # values stand for the variables: the density of a record is not followed through the draw of another one
    at = [model.rvs_to_values[rv] for rv in (*continuous_parameters(model, block), *forms)]
    for term, density in zip(terms, model.logp(terms, sum=False), strict=True):
        try:
            pt.grad(pt.sum(density), at, disconnected_inputs="ignore")
        except (NotImplementedError, MethodNotDefined, NullTypeGradError) as error:
            return f"the density of {term.name} has no slopes ({error})"
    return ""


def has_slopes(model: Model, block: RecordBlock) -> bool:
    """Whether trajectories can be followed for the parameters behind the records of a block."""
    if whole_numbers_of(model, block):
        return False
    if integrates_out(model, block):
        return True
    try:
        forms = forms_of(model, block, ancestors_of_records(model, block))
    except NoNoiseForm:
        return False
    return all(form.smooth for form in forms.values()) and not without_slopes(model, block, forms)


def _read_by(term: Variable, model: Model) -> Sequence[Variable]:
    """Return what the density of a variable depends on beside its value; a potential is itself one."""
    return [term] if term in model.potentials else parameters_of(term)
