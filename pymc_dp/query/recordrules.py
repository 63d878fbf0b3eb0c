"""What the variables around confidential records must be like, and how it is said when they are not."""

from collections.abc import Collection, Sequence
from typing import Any

from pymc.distributions.multivariate import DirichletMultinomialRV
from pymc.model.core import Model
from pytensor.graph.basic import Variable
from pytensor.tensor.random.basic import MultinomialRV

from pymc_dp.query.rowlocal import RowAnalysis, leaves_of, rule

# How people in groups of different sizes are written.
ONE_AXIS = (
    "Put people of all groups there: y = pm.Normal('y', mu[group], ...) with group = np.repeat([0, 1], [3, "
    "5]), or, of two laws, y = pt.where(group == 0, a, b) with a and b of all 8 rows. The sum over a group "
    "is dp.record_sum(y * (group == 0)), a difference of means dp.record_sum(y * np.where(group == 0, 1 / "
    "3, -1 / 5))."
)


def check_independent(model: Model, rv: Variable, analysis: RowAnalysis, n: int) -> None:
    """Refuse a record variable whose rows are not conditionally independent."""
    node = rv.owner
    assert node is not None
    transform = model.rvs_to_transforms.get(rv)
    if rv.type.ndim - (getattr(transform, "ndim_supp", 0) or 0) < 1:
        raise ValueError(
            f"The transform {transform.name} of {rv.name} ties its {n} rows together, so they are no "
            "independent records; leave `transform` out."
        )
    roles = [analysis.role(v) for v in node.inputs]
    free = all(r.kind == "free" for r in roles)
    placed = analysis.placements.get(rv)
    if placed is not None:
        free = all(r.kind == "free" or (r.kind == "row" and r.rows == placed) for r in roles)
    if free:
        return
    own = rule(node.op, node, roles, analysis)
    if placed is None and own.kind == "row" and own.rows is None:
        return
    raise ValueError(
        f"The rows of {rv.name} are not conditionally independent records: each of its {n} rows may depend "
        "on the same row of other records and on parameters only (no lag, cumulative sum, mean over "
        "records, random walk or Gaussian process along the record axis)."
    )


def check_child(model: Model, term: Variable, records: Collection[Variable], analysis: RowAnalysis) -> None:
    """Refuse a child of the records that has no row for each of them, or no value of its own."""
    node = term.owner
    assert node is not None
    if rule(node.op, node, [analysis.role(v) for v in node.inputs], analysis).kind != "row":
        raise ValueError(
            f"{term.name} depends on several records at once, on records chosen by what is no constant, or "
            f"spreads one record over rows. A variable that depends on the records {named(records)} must "
            "have one row per record, or one for each of x[index] with an index that is a NumPy array (a "
            "record may stand there several times); write a statistic of all of them as a release."
        )
    transform = model.rvs_to_transforms.get(term)
    if transform is None:
        return
    natural = transform.backward(model.rvs_to_values[term], *node.inputs)
    if set(leaves_of([natural], set(model.basic_RVs))) & set(records):
        raise ValueError(
            f"{term.name} is sampled between ends that are records ({named(records)}), so that it would move "
            f"with them. Write it as a share of them, for example pm.Deterministic({term.name!r}, lower + "
            "(upper - lower) * pm.Uniform('share', 0, 1, ...)), or give it default_transform=None."
        )


def check_parameters(release: Any, records: Collection[Variable], analysis: RowAnalysis) -> None:
    """Refuse a release with a parameter after the query that reads records, other than row by row."""
    node = release.owner
    if getattr(node.op, "records_in_parameters", False):
        return
    roles = [analysis.role(v) for v in node.inputs]
    if rule(node.op, node, roles, analysis).kind == "row":
        return
    for k, p in enumerate(node.op.dist_params(node)[1:]):
        if analysis.role(p).kind != "free":
            raise ValueError(parameter_message(k, records, f" of {release.name}"))


def parameter_message(k: int, records: Collection[Variable], of: str = "") -> str:
    """Say that parameter `k` after the query reads records, and how it is written."""
    return (
        f"Parameter {k + 1} after the query{of} reads the records {named(records)}, all of them at once: "
        "what a release tells of records goes through its query, which is what samplers of records bring up "
        "to date. Make it one more statistic of the query: dp.CustomMechanism(name, pt.stack([query, "
        "parameter]), logp=lambda value, query: logp(value, query[0], query[1]), signature='(k)->()')."
    )


def check_some(release: Any, variables: Collection[Variable], n: int) -> None:
    """Refuse a release of nobody."""
    if n == 0:
        raise ValueError(
            f"The query of {release.name} is about no record: {named(variables)} has length 0. A release "
            "about nobody is noise, which says nothing of the parameters: leave it and its records out of "
            "the model."
        )


def apart_message(release: Any, rv: Any, length: int, records: Collection[Variable], n: int) -> str:
    """Say that a query is about rows of two lengths, of which one would be given to steps of others."""
    return (
        f"The query of {release.name} is about the {n} rows of {named(records)} and the {length} rows of "
        f"{rv.name}, which meet only when they are added up or joined: both may be people, and records move "
        f"along one axis. {ONE_AXIS} If {rv.name} holds parameters, name the records: "
        f"records={sorted(str(v.name) for v in records)}."
    )


def no_record_message(release: Any, leaves: Sequence[Any]) -> str:
    """Say what is behind a query that no record is behind, and what to do about it."""
    tied = [v for v in leaves if v.ndim and getattr(v.owner.op, "ndim_supp", 0) == v.ndim]
    tables = [v for v in tied if isinstance(v.owner.op, MultinomialRV | DirichletMultinomialRV)]
    if tables:
        return (
            f"The query of {release.name} uses {named(tables)}, a table of counts. Its entries are no "
            "records of people, and of tables the query has to be linear with known coefficients, without "
            "bounds=: cells, sums, products with a known matrix. For another query write the people that "
            "were counted: c = pm.Categorical('c', p, shape=n) and the query dp.record_sum(pm.math.eq(c[:, "
            "None], np.arange(k))). Where people randomized their own answers, give the table of these: "
            "dp.RandomizedResponse(name, p, n=n, epsilon=..., observed=counts)."
        )
    if tied:
        return (
            f"The query of {release.name} uses {named(tied)}, whose entries are tied together by one "
            "multivariate distribution, so they are not independent records. Give the record axis as a "
            "batch axis (for example pm.MvNormal(..., shape=(n, d)) with n records)."
        )
    return (
        f"The query of {release.name} touches no record: it must depend on a free random variable with a "
        f"leading record axis, shape (n,) or (n, d); it depends on {named(leaves) or 'no free variable'}."
    )


def named(variables: Any) -> str:
    """Names of some variables, in a sentence."""
    return ", ".join(sorted(str(v.name) for v in variables))
