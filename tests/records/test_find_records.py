"""Which variables of a model are found to be records, and how their releases are read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_dp as dp
from pymc_dp.query.records import find_record_blocks

N = 6
DESIGN = np.random.default_rng(0).normal(size=(N, 20))
GROUP = np.array([0, 0, 1, 1, 2, 2])
PARTLY = np.ma.masked_invalid([1.0, 2.0, np.nan, 0.0, np.nan, 1.0])


@dataclass(frozen=True)
class Block:
    """What one block must be: its records, their number, the kinds of its releases, other terms."""

    records: set[str]
    releases: dict[str, str]
    n: int = N
    terms: set[str] = field(default_factory=set)
    potentials: set[str] = field(default_factory=set)
    placed: dict[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    name: str
    declare: Callable[[], object]
    blocks: list[Block]


pytestmark = pytest.mark.filterwarnings("ignore::pymc.exceptions.ImputationWarning")

CASES: list[Case] = []


def case(*blocks):
    """Register a model block with the record blocks that must be found in it."""

    def register(declare):
        CASES.append(Case(declare.__name__.strip("_").replace("_", " "), declare, list(blocks)))
        return declare

    return register


def normal(name="x", mu=0.0, shape=N, **kwargs):
    return pm.Normal(name, mu, 1, shape=shape, **kwargs)


def release(query, name="z", **kwargs):
    if not {"epsilon", "scale"} & set(kwargs):
        kwargs["scale"] = 1.0
    query = pt.as_tensor_variable(query)
    shape = tuple(query.shape.eval())
    return dp.LaplaceMechanism(name, query, observed=np.ones(shape), **kwargs)


@case(Block({"x"}, {"z": "central"}))
def central():
    release(dp.record_sum(normal(mu=pm.Normal("mu"))))


@case(Block({"x"}, {"z": "central"}))
def mean():
    release(normal(mu=pm.Normal("mu")).mean())


@case(Block({"x"}, {"z": "local"}))
def local():
    release(normal(mu=pm.Normal("mu")))


@case(Block({"x"}, {"z": "local"}))
def local_and_clamped():
    release(normal(), epsilon=1, bounds=(-1, 1))


@case(Block({"x"}, {"z": "general"}))
def general():
    release(pt.sort(normal())[N // 2])


@case(Block({"x"}, {"z": "function"}))
def function_of_sums():
    x = normal()
    release((x**2).mean() - x.mean() ** 2)


@case(Block({"x", "y"}, {"z": "central"}))
def latent_parents():
    x = normal(mu=pm.Normal("mu"))
    release(pm.Poisson("y", pt.exp(x)).sum())


@case(Block({"x", "y", "w"}, {"z": "central"}))
def grandparents():
    x = normal(mu=pm.Normal("mu"))
    y = normal("y", mu=pt.tanh(x) + 1, shape=None)
    release(normal("w", mu=y, shape=None).sum())


@case(Block({"x", "y"}, {"z": "central"}))
def records_of_two_variables():
    x = normal()
    y = normal("y", mu=pm.Normal("b") * x, shape=None)
    release(dp.record_sum(pt.stack([x * y, x, y], axis=1)))


@case(Block({"c"}, {"z": "local"}))
def a_table_indexed_by_records():
    c = pm.Categorical("c", np.ones(3) / 3, shape=N)
    release(pm.Normal("table", shape=3)[c])


@case(Block({"c", "y"}, {"z": "central"}))
def a_parent_that_chooses():
    c = pm.Categorical("c", np.ones(3) / 3, shape=N)
    release(normal("y", mu=pm.Normal("table", shape=3)[c], shape=None).sum())


@case(Block({"y"}, {"z": "central"}))
def group_means_are_parameters():
    release(normal("y", mu=pm.Normal("m", shape=3)[GROUP], shape=None).sum())


@case(Block({"y"}, {"z": "central"}))
def as_many_groups_as_records():
    group = np.array([0, 0, 1, 1, 2, 5])
    release(normal("y", mu=pm.Normal("m", shape=N)[group], shape=None).sum())


@case(Block({"x"}, {"z": "central"}))
def a_scale_in_a_clamp():
    s = pm.HalfNormal("s")
    release(dp.record_sum(dp.clamp(normal(), -s, s)))


@case(Block({"y"}, {"z": "central"}))
def a_slope_in_a_residual():
    b = pm.Normal("b", shape=3)
    release(dp.record_sum(normal("y") - DESIGN[:, :3] @ b))


@case(Block({"y"}, {"z": "central"}))
def more_slopes_than_records():
    b = pm.Normal("b", shape=20)
    release(dp.record_sum(normal("y") - DESIGN @ b))


@case(Block({"y"}, {"z": "central"}))
def as_many_slopes_as_records():
    b = pm.Normal("b", shape=N)
    release((normal("y") - DESIGN[:, :N] @ b).mean())


@case(Block({"x"}, {"z": "central"}))
def as_many_weights_as_records():
    w = pm.Normal("w", shape=N)
    release(dp.record_sum(w * normal(shape=(N, N))))


@case(Block({"x"}, {"z": "central"}))
def more_weights_than_records():
    w = pm.Normal("w", shape=20)
    release(dp.record_sum(w * normal(shape=(N, 20))))


@case(Block({"x"}, {"a": "central", "b": "central"}))
def disjoint_groups_of_one_variable():
    x = normal(mu=pm.Normal("mu"))
    release(x[:4].sum(), "a")
    release(x[4:].sum(), "b")


@case(Block({"x"}, {"a": "local", "b": "central"}))
def some_locally_some_centrally():
    x = normal()
    release(x[:2], "a")
    release(x[2:].sum(), "b")


@case(Block({"x"}, {"a": "central"}, n=4), Block({"y"}, {"b": "local"}, n=2))
def disjoint_groups_of_two_variables():
    mu = pm.Normal("mu")
    release(normal("x", mu, 4).sum(), "a")
    release(normal("y", mu, 2), "b")


@case(Block({"x"}, {"a": "central", "b": "central", "c": "local"}))
def several_releases_of_the_same():
    x = normal()
    release(x.sum(), "a")
    release((x**2).sum(), "b")
    release(x, "c")


@case(Block({"x", "y"}, {"a": "central", "b": "central", "c": "central"}))
def releases_join_records():
    x, y = normal(), normal("y")
    release(x.sum(), "a")
    release(y.sum(), "b")
    release((x * y).sum(), "c")


@case(Block({"x_unobserved", "y"}, {"z": "central"}, placed={"x_unobserved": (2, 4)}))
def a_partly_observed_covariate():
    x = pm.Normal("x", pm.Normal("mu"), 1, observed=PARTLY)
    release(normal("y", mu=x, shape=None).sum())


@case(Block({"x_unobserved", "y"}, {"z": "central"}, placed={"x_unobserved": (2, 4)}))
def a_partly_observed_covariate_in_the_query():
    x = pm.Normal("x", pm.Normal("mu"), 1, observed=PARTLY)
    release((x * normal("y", mu=x, shape=None)).sum())


@case(Block({"x_unobserved"}, {"z": "central"}, placed={"x_unobserved": (2, 4)}))
def partly_known_records():
    release(pm.Normal("x", pm.Normal("mu"), 1, observed=PARTLY).sum())


@case(Block({"x_unobserved"}, {"z": "local"}, placed={"x_unobserved": (2, 4)}))
def partly_known_records_one_by_one():
    x = pm.Normal("x", pm.Normal("mu"), 1, observed=PARTLY)
    release(x, epsilon=1, bounds=(-1, 1))


@case(Block({"y"}, {"z": "central"}))
def covariates_known_per_record():
    a = pm.Data("a", np.arange(float(N)))
    y = pm.Normal("y", pm.Normal("b") * a, 1)
    release(dp.record_sum(pt.stack([y, y * DESIGN[:, 0]], axis=1)))


@case(Block({"v"}, {"z": "central"}))
def vector_records():
    release(pm.MvNormal("v", pm.Normal("mu", shape=3), np.eye(3), shape=(N, 3)).sum(axis=0))


@case(Block({"v"}, {"z": "local"}))
def simplex_records():
    release(pm.Dirichlet("v", np.ones(3), shape=(N, 3)))


@case(Block({"v"}, {"z": "central"}))
def records_with_zero_sums_within():
    release(pm.ZeroSumNormal("v", shape=(N, 3)).sum(axis=0))


@case(Block({"v"}, {"z": "central"}))
def matrix_records():
    release(normal("v", shape=(N, 2, 3)).sum(axis=0))


@case(Block({"x"}, {"z": "central"}, terms={"o"}))
def an_observed_child():
    x = normal()
    pm.Normal("o", x, 1, observed=np.zeros(N))
    release(x.sum())


@case(Block({"x"}, {"z": "central"}, terms={"o"}))
def two_people_are_known():
    x = normal()
    pm.Normal("o", x[:2], 1, observed=np.zeros(2))
    release(x.sum())


@case(Block({"x"}, {"a": "central"}, terms={"y"}), Block({"y"}, {"b": "local"}, n=3))
def a_released_child_of_chosen_records():
    x = normal()
    release(x.sum(), "a")
    release(pm.Normal("y", x[[0, 0, 4]], 1), "b")


@case(Block({"y"}, {"b": "local"}, n=3))
def a_released_child_of_what_is_not_released():
    release(pm.Normal("y", normal()[[0, 2, 4]], 1), "b")


@case(Block({"y"}, {"z": "central"}))
def sums_by_group():
    release(pt.zeros(3)[GROUP].inc(normal("y", mu=pm.Normal("m", shape=3)[GROUP], shape=None)))


@case(Block({"y"}, {"z": "central"}))
def as_many_sums_as_records():
    release(pt.zeros(N)[GROUP].inc(normal("y")))


@case(Block({"x"}, {"z": "central"}, terms={"free"}))
def a_free_child_of_records():
    x = normal()
    pm.Normal("free", x, 1)
    release(x.sum())


@case(Block({"x"}, {"z": "central"}, potentials={"p"}))
def a_potential():
    x = normal()
    pm.Potential("p", -(x**2))
    pm.Potential("other", -(pm.Normal("mu") ** 2))
    release(x.sum())


@case(Block({"x"}, {"z": "central"}))
def behind_deterministics():
    x = pm.Deterministic("twice", 2 * normal())
    release(pm.Deterministic("total", x.sum()))


@case(Block({"x"}, {"z": "central"}, n=1))
def one_record():
    release(normal(mu=pm.Normal("mu"), shape=1).sum())


@case(Block({"x"}, {"z": "local"}, n=1))
def one_record_locally():
    release(normal(mu=pm.Normal("mu"), shape=1))


@case(Block({"x"}, {"z": "central"}))
def named_records():
    w = pm.Normal("w", shape=20)
    release((w * normal(shape=(N, 20))).sum(axis=0), records=["x"])


@case(Block({"w"}, {"z": "local"}, n=20))
def named_otherwise():
    w = pm.Normal("w", shape=20)
    release((w * normal(shape=(N, 20))).sum(axis=0), records=w)


@case()
def no_release():
    pm.Normal("o", normal().sum(), 1, observed=0.0)


@case()
def a_release_that_is_not_observed():
    dp.LaplaceMechanism("z", normal().sum(), scale=1)


@case(Block({"x"}, {"z": "central"}))
def dims():
    pm.modelcontext(None).add_coord("person", np.arange(N))
    release(pm.Normal("x", 0, 1, dims="person").sum())


@pytest.mark.parametrize("case", CASES, ids=[c.name for c in CASES])
def test_blocks(case):
    with pm.Model() as model:
        case.declare()
    found = find_record_blocks(model)
    assert len(found) == len(case.blocks)
    for block, expected in zip(found, case.blocks, strict=True):
        assert set(block.names) == expected.records
        assert block.n == expected.n
        assert {r.name: r.kind for r in block.releases} == expected.releases
        assert {t.name for t in block.terms} == expected.terms
        assert {p.name for p in block.potentials} == expected.potentials
        assert {v.name: r for v, r in block.analysis.placements.items()} == expected.placed


def test_records_are_found_again_in_copies():
    """`pm.do`, `pm.observe` and `clone_model` keep what makes a release."""
    with pm.Model() as model:
        mu = pm.Normal("mu")
        x = normal(mu=mu)
        dp.LaplaceMechanism("z", x.sum(), epsilon=1, bounds=(-1, 1))
    observed = pm.observe(model, {"z": 1.0})
    for copy in (observed, pm.do(observed, {"mu": 1.0}), pm.model.fgraph.clone_model(observed)):
        (block,) = find_record_blocks(copy)
        assert block.names == ["x"]
        assert block.releases[0].kind == "central"
        assert dp.guarantee(block.releases[0].rv).epsilon == 1


def test_lengths_that_records_decide_are_no_constants():
    """One random draw would fix the number of people above zero for the whole posterior."""
    with pm.Model() as model:
        y = pm.Normal("y", 0, 1, shape=N)
        above = y[y > 0].shape[0]
        dp.LaplaceMechanism("ratio", y.sum() / (1 + above), epsilon=1, sensitivity=1, observed=0.3)
        dp.LaplaceMechanism("rows", y * above, epsilon=1, sensitivity=1, observed=np.zeros(N))
        dp.LaplaceMechanism("mean", y.mean(), epsilon=1, sensitivity=1, observed=0.1)
    (block,) = find_record_blocks(model)
    kinds = {r.name: r.kind for r in block.releases}
    assert kinds == {"ratio": "general", "rows": "general", "mean": "central"}


def test_places_from_the_end_may_be_one_place_twice():
    """The last of four entries overwrites the third: who is in the query cannot be read off the rows."""
    with pm.Model() as model:
        y = pm.Normal("y", 0, 1, shape=4)
        placed = pt.set_subtensor(pt.zeros(4)[np.array([0, 1, 2, -2])], y)
        dp.GaussianMechanism("z", dp.record_sum(placed), sigma=1.0, observed=3.0)
    (block,) = find_record_blocks(model)
    assert block.releases[0].kind == "general"
