"""Attacks on promises: queries, settings and data by which a person could lose more than was stated."""

import math
import os
from fractions import Fraction

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor import shared
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.ops import wrap_py
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.tensor.blockwise import Blockwise

import pymc_dp as dp
from pymc_dp.mechanisms import _grid, smoothed_histogram
from pymc_dp.privacy import entropy

C = pt.constant
X = np.random.default_rng(0).random((100, 3))
x = X[:, 0]


# ---- what one record can change, under bounds --------------------------------------------------

NOT_BOUNDED = {
    "a variance": lambda: dp.record_sum((C(x) - C(x).mean()) ** 2),
    "centred rows": lambda: C(x) - C(x).mean(),
    "a product over records": lambda: pt.dot(C(X).T, C(x)),
    "a sum, shifted": lambda: dp.record_sum(X) - 0.5,
    "part of a sum": lambda: dp.record_sum(X)[:2],
    "running sums": lambda: pt.cumsum(C(x)),
    "everybody twice": lambda: pt.concatenate([C(x), C(x)]),
    "a sum, repeated": lambda: pt.broadcast_to(C(x).sum(), (5,)),
    "a person, repeated": lambda: C(X)[np.array([0, 0, 0])],
    "rows that the data select": lambda: C(x)[C(x) > 0.5],
    "a ratio of sums": lambda: dp.record_sum(C(x)) / dp.record_sum(C(X[:, 1])),
    "a sum times a maximum": lambda: dp.record_sum(C(x)) * (C(X[:, 1]) ** 2).max(),
    "a truncated sum": lambda: pt.cast(dp.record_sum(x), "int64"),
    "a mean of truncated sums": lambda: pt.cast(dp.record_sum(x), "int64") / 100,
}
# Several arrays: a shorter one, or one that is public, may just as well hold the records.
GRID, REPEAT = np.linspace(0, 1, 200), np.repeat(np.arange(100), 5)
NOT_BOUNDED |= {
    # a person moves up to 200 entries, or all 300
    "a distribution function on a longer grid": lambda: pt.le(C(x)[None, :], GRID[:, None]).sum(axis=1),
    "the same, turned in NumPy": lambda: pt.le(C(x[None, :]), GRID[:, None]).sum(axis=1),
    "a workload": lambda: pt.dot(np.ones((300, 100)), C(x)),
    "everybody five times": lambda: C(x)[REPEAT],
    "a sum of everybody five times": lambda: C(x)[REPEAT].sum(),
    "a mean of one column over all": lambda: C(X) * C(x[:50]).mean(),
    # refused whether or not the data pick an entry twice, which the refusal would tell
    "chosen rows": lambda: C(X)[np.array([3, 1, 2])],
    # the row may be that of the only person, and the column be public
    "steps of a grid in a row": lambda: dp.record_sum(C(x)[:, None] <= np.linspace(0, 1, 7)[None]),
    "different entries of a table": lambda: dp.record_sum(C(GRID)[np.arange(100)]),
    "entries of a table, one twice": lambda: dp.record_sum(C(GRID)[np.r_[0, np.arange(99)]]),
    "entries of a shorter table": lambda: dp.record_sum(C(GRID[:3])[np.arange(100) % 3]),
}
# Three statistics of one person are no three persons.
NOT_BOUNDED |= {
    "the only person's statistics": lambda: C(X[:1])[0],
    "the sum of them": lambda: C(X[:1])[0].sum(),
    "the same, turned": lambda: C(X[:1]).T,
    "the same, weighted": lambda: (C(X[:1]) * np.array([1.0, 2, 3])).sum(axis=0)[::-1],
}


def closed(inner):
    """An operation that holds data, and has a number as its only input."""
    a = pt.dscalar()
    return OpFromGraph([a], [a + inner()])(0.0)


NOT_BOUNDED |= {
    "over a total inside of a function": lambda: dp.record_sum(x) / closed(lambda: C(X[:, 1]).sum()),
    "over a length inside of a function": lambda: (
        dp.record_sum(x) / closed(lambda: pt.zeros(pt.cast(C(x).sum(), "int64"))).shape[0]
    ),
    "order inside of a function": lambda: dp.record_sum(C(x) + closed(lambda: pt.sort(C(x)))),
}


class Own(Op):
    """Somebody's operation, which holds data."""

    def __init__(self, held):
        self.held = held

    def make_node(self, number):
        return Apply(self, [number], [self.held.type()])

    def perform(self, node, inputs, output_storage):
        output_storage[0][0] = self.held.eval()


def batched(inner):
    a = pt.dscalar()
    return Blockwise(OpFromGraph([a], [a + inner()]), signature="()->(k)" if inner().ndim else "()->()")(ZERO)


def wrapped(inner):
    kind = pt.dvector if inner().ndim else pt.dscalar
    return wrap_py(itypes=[pt.dscalar], otypes=[kind])(lambda number: inner().eval())(ZERO)


ZERO = C(np.float64(0))
HOLDING = {
    "an own operation": lambda inner: Own(inner())(ZERO),
    "a batched function": batched,
    "a Python function": wrapped,
    "a function in a function": lambda inner: closed(lambda: closed(inner)),
}
NOT_BOUNDED |= {
    f"over a total inside of {name}": lambda hold=hold: dp.record_sum(x) / hold(lambda: C(X[:, 1]).sum())
    for name, hold in HOLDING.items()
} | {
    f"order inside of {name}": lambda hold=hold: dp.record_sum(C(x) + hold(lambda: pt.sort(C(x))))
    for name, hold in HOLDING.items()
}
INSIDE = C(x) > 0.5
# A noise level would publish the number of people inside, or the total, exactly.
NOT_BOUNDED |= {
    f"over {name}": lambda length=length: dp.record_sum(C(x)) / length()
    for name, length in {
        "a number inside": lambda: C(x)[INSIDE].shape[0],
        "a number inside, of rows": lambda: (2 * C(X)[INSIDE] + 1).sum(axis=1).shape[0],
        "a number inside, by positions": lambda: C(x)[INSIDE.nonzero()[0]].shape[0],
        "a range": lambda: pt.arange(pt.cast(C(x).sum(), "int64")).shape[0],
        "zeros": lambda: pt.zeros(pt.cast(C(x).sum(), "int64")).shape[0],
        "a slice": lambda: C(x)[: pt.cast(C(x).sum(), "int64")].shape[0],
        "different values": lambda: pt.unique(pt.round(10 * C(x))).shape[0],
        "positions": lambda: INSIDE.nonzero()[0].shape[0],
        "repetitions": lambda: pt.repeat(C(x), pt.cast(INSIDE, "int64")).shape[0],
        "a size": lambda: C(x)[INSIDE].size,
    }.items()
}
NOT_BOUNDED["rows times a number inside"] = lambda: C(x) * C(x)[INSIDE].shape[0]
NOT_BOUNDED["the mean of those inside"] = lambda: C(x)[INSIDE].mean()
BOUNDED = {
    "data": (lambda: x, 1),
    "rows of data": (lambda: X, 3),
    "a sum": (lambda: dp.record_sum(X), 3),
    "a mean": (lambda: C(X).mean(axis=0), 0.03),
    "half a sum": (lambda: dp.record_sum(X) / 2, 1.5),
    "half of it again": (lambda: 0.5 * dp.record_sum(C(X)), 1.5),
    "a sum of squares": (lambda: dp.record_sum(C(x) ** 2), 1),
    "two sums of two columns": (lambda: dp.record_sum(pt.stack([C(x), C(x) * C(X[:, 1])], axis=1)), 2),
    "a sum over a number": (lambda: dp.record_sum(X) / 100, 0.03),
    "a sum over a length": (lambda: dp.record_sum(C(X)) / C(X).shape[0], 0.03),
    "a length of what is computed": (
        lambda: dp.record_sum(C(X)) / pt.concatenate([2 * C(X)[:, 0], C(X)[:50].sum(1)]).shape[0],
        0.02,
    ),
    "the first rows": (lambda: C(X)[:7], 3),
    "steps of a grid": (lambda: dp.record_sum(C(x)[:, None] <= np.linspace(0, 1, 7)), 7),
    "weights": (lambda: dp.record_sum(C(X) * np.array([1.0, 2, 3])), 3),
    "stacked sums": (lambda: pt.stack([dp.record_sum(C(x)), dp.record_sum(C(x) ** 2)]), 2),
    "squares": (lambda: C(x) ** 2, 1),
    "clamped": (lambda: dp.clamp(x, 0, 1), 1),
    "the only person": (lambda: dp.record_sum(X[:1]), 3),
    "shares": (lambda: dp.record_sum(pt.special.softmax(C(X), axis=1)), 3),
    "shares of each": (lambda: pt.special.log_softmax(C(X), axis=1), 3),
    "a sum, negated": (lambda: -dp.record_sum(X), 3),
    "a mean, negated": (lambda: -(C(X).mean(axis=0) * 2), 0.06),
    "counts": (lambda: dp.record_sum(pt.eq(C((x * 3).astype(int))[:, None], np.arange(3))), 3),
}


@pytest.mark.parametrize("query", NOT_BOUNDED.values(), ids=NOT_BOUNDED)
def test_bounds_of_data_are_bounds_of_what_one_record_adds(query):
    with pytest.raises(ValueError, match=r"neither local .* nor a plain sum"):
        dp.LaplaceMechanism.release(query(), epsilon=1, bounds=(0, 1))


@pytest.mark.parametrize(("query", "change"), BOUNDED.values(), ids=BOUNDED)
def test_bounds_of_data_give_the_sensitivity(query, change):
    release = dp.LaplaceMechanism.release(query(), epsilon=1, bounds=(0, 1))
    assert release.parameters["scale"] == pytest.approx(change, rel=1e-9)


@pytest.mark.parametrize("name", ["RandomizedResponse", "UnaryEncoding", "PerturbedHistogram"])
def test_nobody_reports_several_times(name):
    """Each person's report would cost five times what is stated."""
    settings = {"n_bins": 3, "bounds": (0, 1)} if name == "PerturbedHistogram" else {"n_categories": 3}
    values = C(x) if name == "PerturbedHistogram" else C((3 * x).astype(int))
    with pytest.raises(ValueError, match=r"mix several|not one record's each"):
        getattr(dp, name).release(values[REPEAT], epsilon=1, **settings)


def test_clamped_whole_numbers_are_not_truncated():
    """Between 0.5 and 1 person a truncated total would change by 1, with noise for 0.5."""
    for rows, total in (([1, 0, 0], 0.5), ([1, 1, 0], 1.0)):
        count = pt.cast(C(np.array(rows)).sum(dtype="int32"), "int64")
        release = dp.LaplaceMechanism.release(count, epsilon=1e4, bounds=(0, 0.5))
        assert release.value == pytest.approx(total, abs=0.01) and release.parameters["scale"] < 1e-4


@pytest.mark.parametrize("name", ["PerturbedHistogram", "ProjectionMechanism", "SmoothedHistogramSample"])
def test_scores_of_data_are_no_records(name):
    settings = {"n_terms": 3} if name == "ProjectionMechanism" else {"n_bins": 4}
    settings |= {"n_released": 3} if name == "SmoothedHistogramSample" else {}
    scores = (C(x) - C(x).mean()) / C(x).std()
    with pytest.raises(ValueError, match="not one record's each"):
        getattr(dp, name).release(scores, epsilon=1, bounds=(-2, 2), **settings)


@pytest.mark.parametrize("order", [(1, 0), ("x", 1, 0), (1, "x", 0)], ids=str)
def test_bounds_turn_with_a_sum(order):
    """The bounds of a transposed table are those of the table as it is asked for."""
    lo, hi = np.zeros((2, 2)), np.array([[1.0, 100], [2, 3]])
    shape = tuple(1 if axis == "x" else 2 for axis in order)
    lo, hi = lo.reshape(shape), hi.reshape(shape)
    values = np.array([np.zeros((2, 2)), np.full((2, 2), 1e6)])

    def clamped(rows):
        release = dp.LaplaceMechanism.dist(
            dp.record_sum(C(rows)).dimshuffle(*order), scale=hi, bounds=(lo, hi)
        )
        return release.owner.op.dist_params(release.owner)[0].eval(), release.owner.op.guarantee.epsilon

    (low, epsilon), (high, _) = clamped(values[:1]), clamped(values[1:])
    np.testing.assert_allclose(high - low, hi)
    assert epsilon == pytest.approx(np.sum((high - low) / hi)) == 4


def test_sums_are_not_rounded_to_the_gaps_of_few_digits():
    """From 2048 on there are even numbers only in half precision: one record would change them by 2."""
    with pm.Model():
        y = pm.Normal("y", shape=3000)
        release = dp.LaplaceMechanism("z", pt.cast(y.sum(), "float16"), epsilon=1, bounds=(0, 1))
    clamped, scale = release.owner.op.dist_params(release.owner)
    inside = 1.0 * (np.arange(3000) < np.array([2048, 2049, 2050, 2051])[:, None])
    totals = [clamped.eval({y: rows}, mode="FAST_COMPILE") for rows in inside]
    assert np.abs(np.diff(totals)).max() / scale.eval() <= dp.guarantee(release).epsilon == 1
    assert np.abs(np.diff(inside.sum(axis=1).astype("float16"))).max() == 2  # power


REPEATED = np.array([0, 0, 0, 1, 2, 3])
NOT_OF_ONE_PERSON = {
    "one person three times": lambda x, y: (x[REPEATED], y[REPEATED]),
    "centred features": lambda x, y: (x - x.mean(axis=0), y),
    "labels from everybody": lambda x, y: (x, pt.gt(x[:, 0], x[:, 0].mean())),
    "labels of others": lambda x, y: (x, pt.cumsum(y)),
}


@pytest.mark.parametrize("rows", NOT_OF_ONE_PERSON.values(), ids=NOT_OF_ONE_PERSON)
def test_rows_of_a_perturbed_objective_are_of_one_person_each(rows):
    features, labels = C(X[:4, :2]), C(np.array([0, 1, 1, 0]))
    settings = {"epsilon": 1, "regularization": 1}
    with pytest.raises(ValueError, match="features and the label of person i in row i"):
        dp.ObjectivePerturbation.release(*rows(features, labels), **settings)
    with pm.Model():
        x, y = pm.Normal("x", shape=(4, 2)), pm.Bernoulli("y", 0.5, shape=4)
        with pytest.raises(ValueError, match="features and the label of person i in row i"):
            dp.ObjectivePerturbation("z", *rows(x, y), **settings)
        one = pt.concatenate([np.ones((4, 1)), 0.5 * x], axis=1)
        for k, (own, label) in enumerate([(x, y), (one, 1 - y), (x[:2], y[:2]), (X[:4], y)]):
            assert dp.guarantee(dp.ObjectivePerturbation(f"z{k}", own, label, **settings)).epsilon == 1
    assert dp.ObjectivePerturbation.release(features, pt.eq(labels, 1), **settings).guarantee.epsilon == 1


NUMBER = shared(np.array([1]))
SEVERAL_TIMES = {
    "scale": lambda: dp.DiscreteLaplaceMechanism.release(NUMBER, scale=np.ones(5), sensitivity=1),
    "sigma": lambda: dp.GaussianMechanism.dist(NUMBER, sigma=np.ones(5), sensitivity=1),
    "p_truth": lambda: dp.RandomizedResponse.release(NUMBER, p_truth=np.full(5, 0.7), n_categories=2),
    "p_answer": lambda: dp.RandomizedResponse.release(NUMBER, p_answer=np.full((5, 2, 2), 0.5)),
}


@pytest.mark.parametrize(("level", "release"), SEVERAL_TIMES.items(), ids=SEVERAL_TIMES)
def test_one_number_is_not_released_once_for_every_noise_level(level, release):
    """Of one person's number, whose length can change, there were five releases at the price of one."""
    with pytest.raises(ValueError, match=rf"{level} has shape \(5, ?.*\), .* \(1,\)"):
        release()


# ---- noise levels that tell ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "query",
    [
        lambda secret: dp.record_sum(x) * dp.record_sum(C(np.full(1000, secret / 1000))),
        lambda secret: dp.record_sum(x) / dp.record_sum(C(np.full(1000, secret / 1000))),
        lambda secret: dp.record_sum(x) * secret,
        lambda secret: dp.record_sum(X[:, :1] * C([secret])),
        lambda secret: 3 * (dp.record_sum(X) * secret) / secret,
    ],
    ids=["times a sum", "over a sum", "times a number", "rows times a number", "twice"],
)
def test_noise_levels_do_not_depend_on_factors(query):
    levels = {
        dp.LaplaceMechanism.release(query(secret), epsilon=1, sensitivity=1e6).parameters["scale"]
        for secret in (0.25, 3.0, 123456.5, 9.9e7)
    }
    assert len(levels) == 1


@pytest.mark.parametrize(
    "query",
    [
        lambda secret: dp.record_sum(x) / dp.record_sum(C([secret])),
        lambda secret: dp.record_sum(x) * C([secret]),
        lambda secret: dp.record_sum(C([0.5])) * dp.record_sum(C([secret])),
        lambda secret: dp.record_sum(x) / pt.arange(pt.cast(C([secret])[0], "int64")).shape[0],
    ],
    ids=["over a group of one", "times an array", "all of one person", "a length of it"],
)
def test_the_only_person_of_a_group_is_no_public_number(query):
    with pytest.raises(ValueError, match="bounds"):
        dp.LaplaceMechanism.release(query(3.7), epsilon=1, bounds=(0, 1))


def test_factors_of_few_bits_do_not_cancel():
    """-128 is its own absolute value in 8 bits, and 1/3.0 in single precision is not 1/3."""
    total = dp.record_sum(x)
    release = dp.LaplaceMechanism.release(pt.stack([total * -128, total * 128]), scale=1, bounds=(0, 1))
    assert release.guarantee.epsilon == 256
    for k in (1, 3, 5, 6, 7, 10, 11, 49, 59):
        divided = dp.LaplaceMechanism.dist(total / float(k), scale=1, bounds=(0, 1))
        assert dp.guarantee(divided).epsilon == pytest.approx(1 / k, rel=1e-14)


@pytest.mark.parametrize("factor", [1 / 3, 1e-9, 7.0, 2.0**-5, -12345.678, 1e9], ids=str)
def test_scaled_contributions_are_rounded_one_by_one(rng, factor):
    granule = 2.0**-20
    rows = rng.normal(size=300) * 10.0 ** rng.integers(-9, 6, size=300)
    for query, own in ((dp.record_sum(rows) * factor, Fraction(factor)), (C(rows).mean(), Fraction(1, 300))):
        rounded = _grid.in_granules(query, granule, False)
        exact = [round(Fraction(float(r)) * own / Fraction(granule)) for r in rows]
        assert int(rounded.count) == sum(exact) and rounded.slack == 1


def test_rows_of_several_records_are_not_rounded_one_by_one():
    """Each would be rounded anew when one record changes them all."""
    query = dp.record_sum((C(x) - C(x).mean()) ** 2)
    assert _grid._sum_in_granules(query, 2.0**-30) is None
    rounded = _grid.in_granules(query, 2.0**-30, False)
    assert float(rounded.count) * 2.0**-30 == pytest.approx(np.var(x) * 100, rel=1e-6)


# ---- several releases in one ---------------------------------------------------------------------


def test_choices_about_the_same_people_add_up():
    utility = np.random.default_rng(1).random((40, 3, 2))
    central = dp.ExponentialMechanism.release(dp.record_sum(C(utility)), epsilon=1, sensitivity=1)
    assert central.value.shape == (3,)
    assert (central.guarantee.epsilon, central.guarantee.rho) == (3, 0.375)
    u = C(utility[:, 0, 0])
    local = dp.ExponentialMechanism.release(pt.stack([u, 1 - u], axis=1), epsilon=1, sensitivity=1)
    assert local.value.shape == (40,) and local.guarantee.epsilon == 1
    with pm.Model() as model:
        u = pm.Beta("u", 1, 1, shape=40)
        query = dp.record_sum(pt.stack([pt.stack([u, 1 - u], axis=1)] * 3, axis=1))
        dp.ExponentialMechanism("z", query, epsilon=1, bounds=(0, 1))
        row = dp.ExponentialMechanism("row", pt.stack([u, 1 - u], axis=1), epsilon=1, bounds=(0, 1))
        slope = dp.KNormGradient("slope", -query, epsilon=1, sensitivity=2, hessian=40 * np.eye(2))
        grid = dp.KNormGradient("grid", query[..., None], epsilon=1, sensitivity=2)
    assert dp.guarantee(row).epsilon == 1
    assert dp.guarantee(slope).epsilon == 3 and dp.guarantee(grid).epsilon == 3
    assert dp.guarantee(model).epsilon == 10


@pytest.mark.parametrize("turn", [lambda t: t, lambda t: -C(t), lambda t: 2 * C(t) + 1, lambda t: C(t)[:3]])
def test_choices_by_utilities_counted_with_numpy_add_up(turn):
    """Five questions to the same people: their answers would cost five times what is stated."""
    votes = np.random.default_rng(0).integers(0, 2, (50, 5))
    utilities = turn(np.stack([50 - votes.sum(0), votes.sum(0)], axis=1).astype(float))
    gradients = utilities[..., None]
    for release in (
        dp.ExponentialMechanism.release(utilities, epsilon=1, sensitivity=1),
        dp.ExponentialMechanism.release(utilities, epsilon=1, bounds=(0, 50)),
        dp.KNormGradient.release(gradients, epsilon=1, sensitivity=1),
        dp.KNormGradient.release(utilities, epsilon=1, sensitivity=1, hessian=np.eye(2)),
    ):
        assert release.guarantee.epsilon == len(release.value)


def test_disjoint_releases_of_counts_cost_something():
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.ones(3))
        dp.RandomizedResponse("a", p, n=100, epsilon=5.0, observed=[50, 30, 20])
    assert dp.guarantee(model, disjoint=True).epsilon == 5
    with model:
        y = pm.Normal("y", 0, 1, shape=10)
        dp.LaplaceMechanism("b", y.sum(), epsilon=1, bounds=(-1, 1), observed=0.3)
    together = dp.guarantee(model, disjoint=True)
    assert together.epsilon == 5 and "a and b" in str(together)


def test_listed_releases_that_share_records_are_not_disjoint():
    with pm.Model():
        mu = pm.Normal("mu")
        y, w = pm.Normal("y", mu, 1, shape=10), pm.Normal("w", mu, 1, shape=10)
        total, mean, other = (
            dp.LaplaceMechanism(name, q, epsilon=1, bounds=(-1, 1))
            for name, q in (("total", y.sum()), ("mean", y.mean()), ("other", w.sum()))
        )
    with pytest.raises(ValueError, match="total and mean both read y"):
        dp.guarantee([total, other, mean], disjoint=True)
    assert dp.guarantee([total, other, total], disjoint=True).epsilon == 1
    assert dp.guarantee([total, mean]).epsilon == 2


def statement(y):
    return dp.LaplaceMechanism.dist(y.sum(), epsilon=7, sensitivity=1)


HIDDEN = {
    "censored": lambda y: pm.Censored("c", statement(y), lower=0, upper=None, observed=0.0),
    "a function": lambda y: pm.CustomDist("c", y, dist=lambda y, size: statement(y), observed=0.4),
    "a deterministic": lambda y: pm.Deterministic("c", statement(y) + 1),
    "a potential": lambda y: pm.Potential("c", -(statement(y) ** 2)),
    "a parent": lambda y: pm.Normal("c", statement(y), 1, observed=0.2),
}


@pytest.mark.parametrize("declare", HIDDEN.values(), ids=HIDDEN)
@pytest.mark.parametrize("another", [True, False])
def test_hidden_releases_are_found(declare, another):
    with pm.Model() as model:
        y = pm.Normal("y", 0, 1, shape=10)
        if another:
            dp.LaplaceMechanism("b", y.sum(), epsilon=1, bounds=(-1, 1), observed=0.3)
        declare(y)
    with pytest.raises(ValueError, match=r"hidden in c: .* variable of its own"):
        dp.guarantee(model)


def test_what_is_computed_from_a_release_costs_nothing():
    with pm.Model() as model:
        y = pm.Normal("y", 0, 1, shape=10)
        z = dp.LaplaceMechanism("z", y.sum(), epsilon=1, bounds=(-1, 1))
        w = pm.Normal("w", z, 1, observed=0.2)
        pm.Deterministic("twice", z + w)
        pm.Potential("pull", -(z**2))
    assert dp.guarantee(model).epsilon == 1


def test_a_statement_counts_as_often_as_it_is_listed():
    z = dp.LaplaceMechanism.dist(0.0, epsilon=1, sensitivity=1)
    promise = dp.guarantee(z)
    assert dp.guarantee([promise, promise, promise]).epsilon == 3
    assert dp.guarantee([z, z]).epsilon == 1
    release = dp.LaplaceMechanism.release(0.0, epsilon=1, sensitivity=1)
    assert dp.guarantee([release, release, promise]).epsilon == 2


# ---- local releases of what is not local ----------------------------------------------------------

MIXED = {
    "one person four times": lambda c: c[np.array([0, 0, 0, 0, 1])],
    "functions of everybody": lambda c: pt.stack([c.sum() % 3, c.max()]),
    "running sums": lambda c: pt.cumsum(c) % 3,
}


@pytest.mark.parametrize("mechanism", [dp.RandomizedResponse, dp.UnaryEncoding])
@pytest.mark.parametrize("query", MIXED.values(), ids=MIXED)
def test_reports_are_of_one_person_each(mechanism, query):
    settings = {"epsilon": 1, "n_categories": 3}
    with pm.Model():
        c = pm.Categorical("c", [0.2, 0.3, 0.5], shape=5)
        with pytest.raises(ValueError, match="category of person i in row i"):
            mechanism("z", query(c), **settings)
        own = (c, c[np.array([3, 1])], 2 - c, c[0], pt.eq(c, 1), pt.cast(c, "int8")[:2])
        for k, fine in enumerate(own):
            mechanism(f"z{k}", fine, **settings)
    with pytest.raises(ValueError, match="category of person i in row i"):
        mechanism.release(query(C(np.array([0, 1, 2, 1, 0]))), **settings)
    for values in ([2], np.array([0, 1, 2]), 1):
        mechanism.release(values, **settings)


# ---- rounding ------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", ["symmetric", "optimized"])
@pytest.mark.parametrize("epsilon", [0.1, 3.0, 40.0, 60.0, 74.0, 80.0, 2000.0])
def test_bits_as_drawn_cost_no_more_than_stated(variant, epsilon):
    op = dp.UnaryEncoding.dist(0, epsilon=epsilon, variant=variant, n_categories=2).owner.op
    odds = (epsilon / 2, -epsilon / 2) if variant == "symmetric" else (0.0, -epsilon)

    class Words:
        """A generator whose words are all the same."""

        def __init__(self, word):
            self.word = word

        def integers(self, low, high, size, dtype):
            return np.full(size, self.word, dtype=dtype)

    def chance(entry, value):
        """Number of words of 2^64 for which a bit has a value: bits change once as words grow."""
        first, low, high = None, 0, 2**64 - 1
        draw = lambda word: op.secure_draw(Words(word), np.array(0), *map(np.array, odds))[entry]  # noqa: E731
        first = draw(0)
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if draw(middle) == first else (low, middle - 1)
        return low + 1 if first == value else 2**64 - low - 1

    # what a category changes: a bit of its own is 1 rather than 0, another's is 0 rather than 1
    ratio = Fraction(chance(0, 1) * chance(1, 0), chance(0, 0) * chance(1, 1))
    spent = math.log1p(float(ratio - 1))
    # what happens less often than 2^-64 is made to happen that often
    assert min(epsilon * (1 - 1e-3), 44) < spent <= epsilon * (1 + 1e-15)


@pytest.mark.parametrize("epsilon", [1e-6, 1e-4, 0.3, 5.0])
@pytest.mark.parametrize("released", [1, 20, 10**7])
def test_smoothing_is_rounded_upwards(epsilon, released):
    smoothing = smoothed_histogram.smoothing_for(epsilon, 10, 10, released)
    assert smoothed_histogram.smoothed_epsilon(smoothing, 10, 10, released) <= epsilon


@pytest.mark.parametrize("epsilon", [1.0, 30.0, 700.0, 800.0])
def test_somebody_may_always_lie(epsilon):
    """A report that is true for sure costs more than any epsilon."""

    class Lowest:
        def random(self, shape):
            return np.zeros(shape)

        def integers(self, low, high, size):
            return np.full(size, low)

    op = dp.RandomizedResponse.dist(0, epsilon=epsilon, n_categories=3).owner.op
    assert op.rng_fn(Lowest(), np.array([0, 2]), epsilon, None).tolist() == [1, 0]


def test_generators_without_entropy_draw_nothing(monkeypatch):
    def fails(count):
        raise OSError("no entropy")

    monkeypatch.setattr(os, "urandom", fails)
    generator = entropy.secure_generator()
    with pytest.raises(entropy.NoEntropyError, match="no entropy"):
        generator.random()
    with pytest.raises(entropy.NoEntropyError, match="no entropy"):
        dp.UnaryEncoding.release([0, 1], epsilon=1, n_categories=2)
