"""Which part of a variable entries of a graph depend on: against changes of its entries, and by hand."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.scalar as ps
import pytensor.tensor as pt
import pytest

import pymc_dp as dp
from pymc_dp.lowering.rows.domains import entry_checks_to_values, parameter_checks_to_values
from pymc_dp.query.dependence import NONE, SEVERAL, Dependence

X = np.arange(12.0).reshape((3, 4))
PICKED = np.array([2, 0, 0, 1])


def cumulated(e):
    return pt.cumsum(e)


GRAPHS = {
    "entries": (lambda e: pt.exp(e) * 2 + 1, [0, 1, 2]),
    "rows": (lambda e: e[:, None] + X, np.repeat([0, 1, 2], 4)),
    "columns": (lambda e: (e[None, :] * pt.ones((2, 3))).T.ravel(), [0, 0, 1, 1, 2, 2]),
    "picked": (lambda e: e[PICKED], PICKED),
    "reshaped": (lambda e: pt.stack([e, e * 2]).reshape((3, 2)), [0, 1, 2, 0, 1, 2]),
    "chosen": (lambda e: pt.switch(pt.gt(e, 0), 1.0, e), [0, 1, 2]),
    "put beside others": (lambda e: pt.concatenate([pt.zeros(2), e[1:]]), [NONE, NONE, 1, 2]),
    "put into": (lambda e: pt.zeros(4)[np.array([3, 1])].set(e[:2]), [NONE, 1, NONE, 0]),
    "added to": (lambda e: pt.zeros(2)[np.array([0, 1, 0])].inc(e), [SEVERAL, 1]),
    "added to some": (lambda e: pt.exp(e)[np.array([[0, 1]])].inc(e[1:]), [SEVERAL, SEVERAL, 2]),
    "added to a slice": (lambda e: pt.inc_subtensor(pt.zeros((2, 3))[0, 1:], e[0]), [-1, 0, 0, -1, -1, -1]),
    "sums": (lambda e: (e[:, None] * X).sum(axis=1), [0, 1, 2]),
    "sum of all": (lambda e: e.sum() + pt.zeros(2), [SEVERAL, SEVERAL]),
    "differences": (lambda e: e[1:] - e[:-1], [SEVERAL, SEVERAL]),
    "product": (lambda e: pt.dot(np.eye(3), e), [SEVERAL] * 3),
    "in series": (cumulated, [SEVERAL] * 3),
    "an index": (lambda e: pt.as_tensor(X[:, 0])[pt.cast(e[1:2], "int64")], [1]),
    "length": (lambda e: pt.zeros(2) + e.shape[0], [NONE, NONE]),
    "highest": (lambda e: pt.max(pt.stack([e, 2 * e]), axis=0), [0, 1, 2]),
    "filled": (lambda e: pt.second(e, e[1]), [1, 1, 1]),
    "a number": (
        lambda e: pt.tensor_from_scalar(ps.exp(pt.scalar_from_tensor(e[1]))) + pt.zeros(1),
        [1],
    ),
    "of a short type": (lambda e: pt.as_tensor([pt.gt(e[k], 1) * 1.0 for k in (2, 0)]), [2, 0]),
    "sums of nothing": (lambda e: (e[:, None] * X)[:, :0].sum(axis=1), [NONE] * 3),
    "sum of those that are there": (lambda e: e[pt.gt(e, 3)].sum() + pt.zeros(1), [SEVERAL]),
    "ones for those that are there": (lambda e: pt.ones_like(e[pt.gt(e, 1)]).sum() + pt.zeros(1), [SEVERAL]),
    "how many": (lambda e: pt.zeros(1) + pt.nonzero(pt.gt(e, 1))[0].shape[0], [SEVERAL]),
}
# of another variable, k, a whole number from 0 to 2
PLACED = {
    "picked": lambda e, k: e[k] + pt.zeros(2),
    "picked by a place that is worked out": lambda e, k: e[pt.stack([k, 2 - k])],
    "sliced": lambda e, k: e[: k + 1].sum() + pt.zeros(2),
    "put into": lambda e, k: pt.zeros(3)[pt.stack([k])].set(e[:1]),
    "set at": lambda e, k: pt.set_subtensor(pt.zeros(3)[k], e[1]),
    "put after as many others": lambda e, k: pt.concatenate([pt.zeros(k), e, pt.zeros(2 - k)]),
    "in an order": lambda e, k: e[pt.argsort(pt.abs(pt.arange(3) - 0.9 * k))],
    "turned": lambda e, k: pt.roll(e, k),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_parts(name):
    graph, expected = GRAPHS[name]
    e = pt.vector("e", shape=(3,), dtype="float64")
    out = graph(e)
    (found,) = Dependence([out], e, [e]).of([np.array([0.3, 1.2, 2.1])], np.arange(3))
    np.testing.assert_array_equal(found, np.ravel(expected))
    function, rng = (
        pytensor.function([e], out, mode="FAST_COMPILE", on_unused_input="ignore"),
        np.random.default_rng(1),
    )
    for _ in range(30):
        at = rng.uniform(0, 2.9, 3)
        for k in range(3):
            moved = at.copy()
            moved[k] = rng.uniform(0, 2.9)
            changed = np.ravel(function(at) != function(moved))
            assert np.isin(found[changed], [k, SEVERAL]).all()


@pytest.mark.parametrize("name", PLACED)
def test_places_that_depend_on_another_variable_are_not_those_of_one_point(name):
    e, k = pt.vector("e", shape=(3,), dtype="float64"), pt.scalar("k", dtype="int64")
    out = PLACED[name](e, k)
    function = pytensor.function([e, k], out, mode="FAST_COMPILE")
    told = Dependence([out], e, [e, k])
    at, rng = np.array([0.3, 1.2, 2.1]), np.random.default_rng(1)
    for start in range(3):
        (found,) = told.of([at, np.array(start)], np.arange(3))
        for k_ in range(3):
            for entry in range(3):
                moved = at.copy()
                moved[entry] = rng.uniform(0, 2.9)
                changed = np.ravel(function(at, k_) != function(moved, k_))
                assert np.isin(found[changed], [entry, SEVERAL]).all()


def table(law, **released):
    with pm.Model() as model:
        law()
        c = model["c"]
        dp.DiscreteGaussianMechanism("z", c, sigma=3.0, observed=np.ones(model.eval_rv_shapes()["c"]))
        for name, query in released.items():
            query(name, c)
        dp.DiscreteGaussianMechanism("all", c.sum(), sigma=1.0, observed=9)
    (part,) = dp.TableImputation(model=model).parts
    return part.joint


def cells_of(group):
    return [sorted(group.members[a:b]) for a, b in zip(group.begins, group.begins[1:], strict=False)]


def test_effects_by_an_index_and_slopes_of_rows():
    """Cells of areas that data put into regions; intercept and slope of a region in one array."""
    region = np.array([1, 0, 1, 2])

    def law():
        b = pm.Normal("b", shape=(3, 2))
        pm.Poisson("c", pt.exp(b[region, 0] + b[region, 1] * np.arange(4.0)))

    (group,) = table(law).groups
    assert group.names == ["b"] and list(group.parts) == [0, 0, 1, 1, 2, 2]
    assert cells_of(group) == [[1], [0, 2], [3]]


def test_lengths_do_not_tell():
    """An effect with as many entries as there are rows, of which all rows read the sum."""

    def law():
        w = pm.Normal("w", shape=3)
        pm.Poisson("c", pt.exp(pt.dot(np.ones((3, 3)), w) / 3)[:, None] * np.ones((3, 2)))

    (group,) = table(law).groups
    assert group.movable.size == 1 and cells_of(group) == [[0, 1, 2, 3, 4, 5]]


def test_a_prior_that_ties_entries_moves_them_at_once():
    def law():
        w = pm.MvNormal("w", np.zeros(3), np.eye(3) + 0.5)
        pm.Poisson("c", pt.exp(w))

    (group,) = table(law).groups
    assert group.movable.size == 1 and len(group.parts) == 3


def test_what_is_known_exactly_is_kept(caplog):
    def law():
        pm.Poisson("c", pt.exp(pm.Normal("a") + pm.Normal("e", shape=3))[:, None] * np.ones((3, 2)))

    with caplog.at_level("INFO", logger="pymc.dp"):
        groups = table(law, known=lambda name, c: dp.Invariant(name, c[1].sum(), observed=4)).groups
    assert "moves a and the counts of c only given each other" in caplog.text
    assert "moves e together with the counts of c, beside the parameters' own steps" in caplog.text
    (group,) = groups  # with `a`, which all cells read, nothing moves
    assert group.names == ["e"] and list(group.movable) == [True, False, True]


def test_counts_without_quantiles_and_noise_that_moves_are_left_to_other_steps():
    def mixture():
        pm.ZeroInflatedPoisson("c", 0.6, pt.exp(pm.Normal("e", shape=3)))

    def multinomial():
        pm.Multinomial("c", 9, pm.math.softmax(pm.Normal("e", shape=3)))

    assert not table(mixture).groups and not table(multinomial).groups

    with pm.Model() as model:
        e = pm.Normal("e", shape=3)
        c = pm.Poisson("c", pt.exp(e))
        dp.GaussianMechanism("z", c, sigma=pt.exp(e), observed=np.ones(3))
        dp.DiscreteGaussianMechanism("all", c.sum(), sigma=1.0, observed=9)
    (part,) = dp.TableImputation(model=model).parts
    assert not part.joint.groups


DATA = {
    "poisson": lambda e: pm.Poisson("y", pt.exp(e), observed=np.ones(20)),
    "binomial": lambda e: pm.Binomial("y", 9, pm.math.sigmoid(e), observed=np.ones(20)),
    "negative binomial": lambda e: pm.NegativeBinomial("y", mu=pt.exp(e), alpha=2, observed=np.ones(20)),
    "normal": lambda e: pm.Normal("y", 0, pt.exp(e), observed=np.ones((3, 20))),
    "not observed": lambda e: pm.Gamma("y", 2.0, pt.exp(e)),
}


@pytest.mark.parametrize("name", DATA)
def test_effects_that_other_variables_read_one_by_one_move_one_by_one(name):
    """PyMC's checks of parameters are of all entries, and tie no effects to each other here."""

    def law():
        e = pm.Normal("e", shape=20)
        DATA[name](e)
        pm.Poisson("c", pt.exp(e))

    (group,) = [group for group in table(law).groups if group.names == ["e"]]
    assert group.movable.tolist() == [True] * 20


def test_entries_outside_of_the_domain_have_no_density_alone():
    rate = pt.vector("rate", shape=(3,), dtype="float64")
    at = {rate: np.array([2.0, -1.0, 3.0])}
    laws = [pm.Poisson.dist(rate), pm.NegativeBinomial.dist(mu=rate, alpha=2.0), pm.Exponential.dist(rate)]
    for law in laws:
        graph = pm.logp(law, np.ones(3, dtype=law.dtype))
        found, whole = (f(graph).eval(at) for f in (entry_checks_to_values, parameter_checks_to_values))
        assert np.isfinite(found).tolist() == [True, False, True] and found.sum() == whole.sum() == -np.inf
    mixed = pm.Mixture.dist([0.5, 0.5], [pm.Poisson.dist(rate), pm.Poisson.dist(1.0)])
    graph = pm.logp(mixed, np.ones(3))
    found, whole = (f(graph).eval(at) for f in (entry_checks_to_values, parameter_checks_to_values))
    np.testing.assert_array_equal(found, whole)


def test_long_effects_of_the_same_cells_are_told_of(caplog):
    def law():
        w = pm.Normal("w", shape=20)
        pm.Poisson("c", pt.exp(pt.dot(np.ones((3, 20)), w)))

    with caplog.at_level("INFO", logger="pymc.dp"):
        assert not table(law).groups
    assert "moves w and the counts of c only given each other: more than 12 numbers" in caplog.text


def test_effects_that_labels_pick_move_at_once():
    """What a label picks depends on the label: a cell is not that of the effect at the starting point."""

    def law():
        label = pm.Categorical("label", np.full(3, 1 / 3), shape=4)
        pm.Poisson("c", pt.exp(pm.Normal("e", shape=3)[label]))

    (group,) = table(law).groups
    assert group.movable.size == 1 and cells_of(group) == [[0, 1, 2, 3]]


def test_data_that_pick_effects_are_read_anew():
    with pm.Model() as model:
        group = pm.Data("group", np.array([0, 1, 1]))
        c = pm.Poisson("c", pt.exp(pm.Normal("e", shape=2))[group])
        dp.DiscreteGaussianMechanism("z", c, sigma=3.0, observed=np.ones(3))
        dp.DiscreteGaussianMechanism("all", c.sum(), sigma=1.0, observed=9)
        step = dp.TableImputation()
    assert cells_of(step.parts[0].joint.groups[0]) == [[0], [1, 2]]
    pm.set_data({"group": np.array([1, 1, 0])}, model=model)
    step.setup_chain(np.random.default_rng(1), 10, 10)
    assert cells_of(step.parts[0].joint.groups[0]) == [[2], [0, 1]]
