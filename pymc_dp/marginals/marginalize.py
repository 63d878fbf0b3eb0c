"""A model without some of its confidential records."""

import logging
from collections.abc import Collection, Sequence
from typing import Any

import pytensor.tensor as pt
from pymc.model.core import BaseModel, Model
from pymc.model.fgraph import model_deterministic, model_free_rv, model_from_fgraph, model_observed_rv
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.op import RNGConsumerOp
from pytensor.tensor.type_other import NoneConst
from pytensor.tensor.variable import TensorVariable

from pymc_dp.marginals.groups import NotTogether
from pymc_dp.marginals.noisy_sums import NoisySum, noisy_sum
from pymc_dp.marginals.removal import Removed, linked, split_up
from pymc_dp.marginals.tabulated import Tabulated
from pymc_dp.mechanisms.marginals import promise_of
from pymc_dp.mechanisms.unknown_keys import LISTED
from pymc_dp.propriety import refuse_improper
from pymc_dp.query.lengths import with_known_shapes
from pymc_dp.query.readings import graph_of
from pymc_dp.query.recordrules import named
from pymc_dp.query.records import Release, find_record_blocks, is_release, parameters_of
from pymc_dp.query.rowlocal import leaves_of

_log = logging.getLogger("pymc")


def marginalize(model: Model, names: str | Sequence[str], *, tolerance: float = 1e-12) -> Model:
    r"""Return a model in which some of the confidential records are integrated out exactly.

    Each release of such a record gets its marginal density
    :math:`g(z \mid \theta) = \int q(z \mid y) f(y \mid \theta) \, dy`, observed at the same value and under
    the same name. Nothing else changes. If no latent records are left, the model can usually be sampled by
    NUTS alone; draw the records afterwards with :func:`recover_records`.

    Parameters
    ----------
    model : pymc.Model
        The model; it is not changed.
    names : str or sequence of str
        Record variables to integrate out.
    tolerance : float, default 1e-12
        Share of each probability that may be left out where a sum over whole numbers is infinite. The range
        of the sum is computed in the graph for the present parameters, and is proven to suffice.

    Returns
    -------
    pymc.Model

    Raises
    ------
    TypeError
        An argument is not of the right kind.
    ValueError
        A name is no confidential record; a variable other than its releases depends on a record (but for
        observed ones on a record with few values); or no marginal law is known for a record and its
        release. The message names the variable, the reason and what to do.

    See Also
    --------
    recover_records : Draws of the records from draws of the marginal model.

    Notes
    -----
    Pairs of record and noise with a marginal law in closed form, where the query is the record itself:

    * normal records under Gaussian or Laplace noise, clamped or not, also behind several releases of which
      all but one have unclamped Gaussian noise; multivariate normal records under unclamped Gaussian noise;
      mixtures of these;
    * Bernoulli records under :class:`RandomizedResponse` of two categories;
    * other records with finite support (at most 2048 values) under any mechanism for single records, of the
      record or of a function of it: a sum over the values; also behind several releases, as of a question
      that is asked twice, where the law of each release is the one given those before it; with observed
      variables that depend on the record, which get the law of a mixture; and several such records that
      depend on each other, or enter one law, named together (at most 256 combinations for each person);
    * beta records under :class:`BinomialMechanism` of m <= 64 tosses, not clamped to less than (0, 1): a sum
      of (m + 1)^2 terms at most;
    * other whole-numbered records under unclamped discrete Laplace or Gaussian noise: a sum over as many
      values as `tolerance` requires;

    and unclamped sums, means, differences and other affine functions of several normal records under
    Gaussian noise, or under Laplace noise if that is one number.

    Categories and bits that are seen through sums of functions of them alone, such as
    ``dp.record_sum(pt.eye(K)[y])``, are counted: a table ``y_counts`` takes their place, of shape (K,), or
    (G, K) for G groups of people with probabilities of their own (``p[group]``, or any expression of arrays
    that have few different rows), and the releases read that, by linear functions of sums. It costs by its
    cells, whatever the number of people. Dirichlet probabilities are integrated out of its moves
    (:class:`TableImputation`); with others it mixes well where the noise is small beside the root of that
    number, and where it is large, leave people to ``pm.sample``, which moves probabilities with them.

    All records of people who are seen through **one noisy sum or two** in one release, with Laplace or
    Gaussian noise, are integrated out together by the characteristic function of one person (``names`` has
    them all): of any law that :func:`approximate_sums` takes, clamped or not, with a regression or public
    groups behind it. The density is exact up to quadrature, and costs the same for a thousand people and for
    a billion: some 26 frequencies times the points of one person's law; of two sums some thousand pairs of
    frequencies (.5 ms for a clamped number and its square), and more the closer these are to one number. A
    deterministic ``<release>_error`` estimates its relative error with every draw: how far more points, more
    frequencies and a smaller step move the density, what is beyond the last frequency, records so far out
    that no point stands for them, and how fast coefficients by Legendre polynomials fall, which tells of
    steep functions. It is small (below 1e-5 as a rule) unless nearly everybody adds one of a few values, or
    the release is far in a tail that unclamped records alone reach; where it is above 1e-3 or so in draws
    that matter, leave the records in the model. Sums of a few values per person (counts of people, whole
    numbers) are refused, and fewer than 20 people under Laplace noise, or 100 behind two sums. Records are
    not drawn back from such a sum, unless they are normal and the sum is affine in them, which is in closed
    form under both noises.

    Cost per density and gradient: 0.1 us per release for a normal record under Laplace noise or a clamp, O(K)
    for one of K values, or of K combinations of several (some 25 ns for each, person and release); where the
    law is the same for all records, only distinct releases count.

    References
    ----------
    Beraha, Favaro and Rao, *MCMC for Bayesian nonparametric mixture modeling under differential privacy*, for
    the marginal kernel; Reed (2006), *The normal-Laplace distribution and its relatives*. Daniels (1954),
    *Saddlepoint approximations in statistics*, for the path on which a characteristic function is integrated.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dp as dp
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu", 0, 2)
    ...     y = pm.Normal("y", mu, 1, shape=3)
    ...     z = dp.LaplaceMechanism("z", y, epsilon=2, bounds=(-4, 4), observed=[0.3, 7.1, -2.0])
    >>> marginal = dp.marginalize(model, ["y"])
    >>> [v.name for v in marginal.free_RVs], [v.name for v in marginal.observed_RVs]
    (['mu'], ['z'])
    >>> print(dp.guarantee(marginal["z"]))
    Pure differential privacy with epsilon = 2, for replace-one neighbours.
    """
    chosen = names_of(model, names)
    if isinstance(tolerance, bool) or not isinstance(tolerance, int | float):
        raise TypeError(f"tolerance must be a number, got {type(tolerance).__name__}.")
    if not 0 < tolerance <= 0.01:
        raise ValueError(
            f"tolerance must be in (0, 0.01], got {tolerance!r}: it is the share that may be left out."
        )
    marginal = _marginal(model, chosen, float(tolerance))
    refuse_improper(marginal)
    return marginal


def _marginal(model: Model, names: list[str], tolerance: float) -> Model:
    try:
        parts = split_up(model, names, tolerance)
    except ValueError as error:
        apart = [[name for name in block.names if name in names] for block in find_record_blocks(model)]
        apart = [own for own in apart if own]
        different = len(apart) > 1 and sum(map(len, apart)) == len(names)
        if different and not _meet(model, apart):  # of different people
            for own in apart:
                model = _marginal(model, own, tolerance)
            return model
        try:
            found = noisy_sum(model, names)
        except NotTogether as reason:
            raise ValueError(
                f"{error} Nor are they integrated out by the characteristic function of their sum: {reason}."
            ) from None
        if found is None:
            raise
        return _without_people(model, found)
    return without(model, *parts)


def _meet(model: Model, apart: Sequence[Sequence[str]]) -> bool:
    """Whether records of several blocks enter the law of one variable."""
    groups = [{rv.name for rv in g} for g in linked(model, [model[name] for own in apart for name in own])]
    return any(sum(not group.isdisjoint(own) for own in apart) > 1 for group in groups)


def names_of(model: Any, names: Any) -> list[str]:
    """Check a model and names of its variables."""
    if not isinstance(model, BaseModel):
        raise TypeError(f"model must be a pymc.Model, got {type(model).__name__}.")
    listed = [names] if isinstance(names, str) else names
    if not isinstance(listed, Sequence) or not all(isinstance(name, str) for name in listed):
        raise TypeError("names must be the name of a record variable, or a list of such names.")
    if not listed:
        raise ValueError("names is empty: name the records to integrate out.")
    return list(dict.fromkeys(listed))


def without(model: Model, removed: list[Removed], tables: list[Tabulated]) -> Model:
    """Build the model anew, without the records, with the marginal laws of their releases, or with tables."""
    graph, memo = graph_of(model)
    copies = copies_of(model, memo)
    for release, law in _last_first(removed, set(model.basic_RVs)):
        (law,) = graph_replace(with_known_shapes([law]), copies, strict=False)
        old = memo[release.rv]
        value = old.owner.inputs[1]
        law.name = release.name
        new = model_observed_rv(law, value, release.name, *old.owner.op.dims)
        graph.replace(old, new, import_missing=True)
    for table in tables:
        _count(table, graph, memo, copies)
    records = [*(rv for part in removed for rv in part.records), *(table.record for table in tables)]
    # what the listing of keys says is in the law of the release now
    listed = [
        f"{release.name}{LISTED}"
        for part in removed
        for release in part.releases
        if getattr(release.rv.owner.op, "unknown_keys", False)
    ]
    left = model_left(model, graph, memo, records, listed)
    for part in removed:
        _check_left(model, part, left)
    return left


def _last_first(
    removed: Sequence[Removed], variables: Collection[Variable]
) -> list[tuple[Release, TensorVariable]]:
    """Return the laws of all that is seen of the records, each before those that it depends on."""
    laws: list[tuple[Release, TensorVariable]] = []
    for part in removed:
        for release, way in zip(part.releases, part.ways, strict=True):
            promise = promise_of(release.rv.owner.op, part.people) if is_release(release.rv) else {}
            laws.append((release, way.release(part.size, promise)))
    reads = {release.rv: set(leaves_of([law], variables)) for release, law in laws}
    ordered: list[tuple[Release, TensorVariable]] = []
    while laws:
        read = set().union(*(reads[release.rv] for release, _ in laws))
        free = [k for k, (release, _) in enumerate(laws) if release.rv not in read]
        if not free:
            raise ValueError(
                f"The laws of {named(release.rv for release, _ in laws)} without the records depend on each "
                "other. Leave the records to RecordImputation, which pm.sample chooses by itself."
            )
        ordered.append(laws.pop(free[-1]))
    return ordered


def _check_left(model: Model, part: Removed, left: Model) -> None:
    """Refuse what would leave records that no step moves: those in the law of a record that goes."""
    behind = leaves_of([p for rv in part.records for p in parameters_of(rv)], set(model.basic_RVs))
    above = [rv for rv in behind if rv.name in part.people and rv not in part.records]
    if above:
        try:
            find_record_blocks(left)
        except ValueError:
            both = [str(rv.name) for rv in (*above, *part.records)]
            raise ValueError(
                f"The law of {named(part.records)} depends on {named(above)}, which would be left, and which "
                "no step could move then. Integrate all of them out, if each has few values: "
                f"names={both}; or none, and pm.sample moves them."
            ) from None


def _without_people(model: Model, found: NoisySum) -> Model:
    """Build the model anew, with noisy sums whose people are integrated out, and how exact that is."""
    release, told = found.release, f"{found.release.name}_error"
    if told in model.named_vars or told in model.coords:
        raise ValueError(
            f"The model has a variable or dimension {told}, a name that is needed for how exact the density "
            f"of {release.name} is: rename it, or leave the records to RecordImputation."
        )
    of = "two sums" if found.pair else "sum"
    at = f"{found.points.size} points" + ("" if found.pair else f", {found.nodes} frequencies")
    _log.info(
        f"{release.name}: {found.block.n} people ({', '.join(found.block.names)}) are integrated out by the "
        f"characteristic function of their {of} ({at}); {told} tells the relative error of the density."
    )
    graph, memo = graph_of(model)
    old = memo[release.rv]
    # its own variable would be copied with the lengths in its query
    own = release.rv.type(name=release.name)
    law, error = graph_replace(
        [found.law(), found.error(own)], copies_of(model, memo) | {own: old}, strict=False
    )
    graph.add_output(model_deterministic(error, told), import_missing=True)
    law.name = release.name
    new = model_observed_rv(law, old.owner.inputs[1], release.name, *old.owner.op.dims)
    graph.replace(old, new, import_missing=True)
    return model_left(model, graph, memo, found.block.records)


def copies_of(model: Model, memo: dict[Any, Any]) -> dict[Any, Any]:
    """Return where a model's own variables and lengths are in its graph."""
    own = [
        *model.named_vars.values(),
        *(v for v in model.dim_lengths.values() if isinstance(v, SharedVariable)),
    ]
    return {v: memo[v] for v in own if v in memo}


def model_left(
    model: Model,
    graph: FunctionGraph,
    memo: dict[Any, Any],
    records: Sequence[Any],
    listed: Sequence[str] = (),
) -> Model:
    """Return what is left of a model without some records, after its graph was edited.

    Parameters
    ----------
    model : pymc.Model
        As it was.
    graph : FunctionGraph
        Of the model, in which nothing but functions of the records reads these; it is used up.
    memo : dict
        Where the model's variables are in it.
    records : sequence of TensorVariable
        Variables of the model that are to go.
    listed : sequence of str
        Names of potentials that are to go.
    """
    terms = [p for p in model.potentials if p.name in listed]
    # functions of records would keep these in the model
    functions = [
        d for d in model.deterministics if set(records) & set(ancestors([d], blockers=model.basic_RVs))
    ]
    gone = {memo[v] for v in (*records, *terms, *functions)}
    for k in reversed([k for k, v in enumerate(graph.outputs) if v in gone]):
        graph.remove_output(k)
    result = model_from_fgraph(graph, mutate_fgraph=True)
    own = set(result.basic_RVs)
    for v in ancestors([*own, *result.deterministics, *result.potentials]):
        if (
            v.name in result.named_vars
            and v not in own
            and isinstance(getattr(v.owner, "op", None), RNGConsumerOp)
        ):
            raise RuntimeError(f"{v.name} was left in the model beside its replacement: please report this.")
    order = list(model.named_vars)
    for listing in (result.free_RVs, result.observed_RVs, result.deterministics, result.potentials):
        listing.sort(key=lambda v: (order.index(v.name) if v.name in order else len(order), v.name))
    for rv, start in model.rvs_to_initial_values.items():
        if start is not None and rv.name in result.named_vars:
            result.rvs_to_initial_values[result[rv.name]] = start
    return result


def _count(table: Tabulated, graph: FunctionGraph, memo: dict[Any, Any], copies: dict[Any, Any]) -> None:
    """Put a table into the graph of a model, and let the releases of its records read it."""
    (law,) = graph_replace(with_known_shapes([table.law()]), copies, strict=False)
    value = law.type(name=table.name)
    law.name = table.name
    counts = model_free_rv(law, value, None, table.name)
    graph.add_output(counts, import_missing=True)
    for release, read, added in table.queries:
        old = memo[release.rv]
        rv, observed = old.owner.inputs
        query = pt.cast(table.query(read, added, counts), parameters_of(release.rv)[0].type.dtype)
        (query,) = graph_replace(with_known_shapes([query]), copies, strict=False)
        params = [query, *rv.owner.op.dist_params(rv.owner)[1:]]
        new = rv.owner.op.make_node(rv.owner.inputs[0], NoneConst, *params).default_output()
        new.name = release.name
        graph.replace(
            old, model_observed_rv(new, observed, release.name, *old.owner.op.dims), import_missing=True
        )
