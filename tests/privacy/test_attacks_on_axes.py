"""Attacks on what a person is: groups of one, of none, and of as many people as there are columns."""

import itertools
import math

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode

import pymc_dp as dp
from pymc_dp.mechanisms._releases import evaluate

K = 6
GRID = np.linspace(0.1, 0.9, K)
NUMBERS = (0, 1, 2, K, K + 1)
IN_PYTHON = Mode(linker="py", optimizer=None)
pytestmark = pytest.mark.usefixtures("python_mode")
each_number = pytest.mark.parametrize("n", NUMBERS)


def of_level(x):
    return pt.cast(K * dp.clamp(x, 0, 0.99), "int64")


# What one person changes in the L1 norm under bounds (0, 1), whatever the number of people.
ACCEPTED = {
    # of numbers, shape (n,)
    "thresholds": (lambda x: dp.record_sum(x[:, None] > GRID), 1, K),
    "thresholds, whole": (lambda x: dp.record_sum(pt.cast(x[:, None] > GRID, "int64")), 1, K),
    "a share under thresholds": (lambda x: dp.record_sum(x[:, None] > GRID) / 10, 1, K / 10),
    "one-hot": (lambda x: dp.record_sum(pt.eq(of_level(x)[:, None], np.arange(K))), 1, K),
    "one-hot by a range": (lambda x: dp.record_sum(pt.eq(of_level(x)[:, None], pt.arange(K))), 1, K),
    "one-hot by a unit matrix": (lambda x: dp.record_sum(pt.eye(K)[of_level(x)]), 1, K),
    "powers": (lambda x: dp.record_sum(x[:, None] ** np.arange(1, K + 1)), 1, K),
    "outer products": (lambda x: dp.record_sum(pt.outer(x, pt.constant(GRID))), 1, K),
    "segments": (lambda x: dp.record_sum(x[:, None] * pt.eq(pt.floor(x * 3)[:, None], pt.arange(3))), 1, 3),
    "a mask": (lambda x: dp.record_sum(pt.switch(x > 0.5, x, 0)), 1, 1),
    "stacked sums": (lambda x: pt.stack([dp.record_sum(x > g) for g in GRID]), 1, K),
    "sums of one array": (lambda x: pt.stack([x.sum(), (x**2).sum(), (x > 0.5).sum()]), 1, 3),
    "stacked columns": (lambda x: dp.record_sum(pt.stack([x, x**2], axis=1)), 1, 2),
    "a sum, seven times": (lambda x: x.sum() * pt.ones(7), 1, 7),
    "rows": (lambda x: x, 1, 1),
    "squares": (lambda x: x**2 + 1, 1, 1),
    # of pairs, shape (n, 2)
    "pairs": (lambda x: x, 2, 2),
    "a total each": (lambda x: x.sum(axis=1), 2, 1),
    "sums of pairs": (lambda x: dp.record_sum(x), 2, 2),
    "weighted pairs": (lambda x: dp.record_sum(x * np.array([1.0, 2.0])), 2, 2),
    "pairs under thresholds": (lambda x: dp.record_sum(x[:, :, None] > GRID), 2, 2 * K),
    "maxima": (lambda x: dp.record_sum(x.max(axis=1)), 2, 1),
    "shares": (lambda x: dp.record_sum(pt.special.softmax(x, axis=1)), 2, 2),
    "the first person": (lambda x: dp.record_sum(x[:1]), 2, 2),
}
MEANS = {
    "a mean": (lambda x: x.mean(), 1, 1),
    "a sum over a length": (lambda x: dp.record_sum(x) / x.shape[0], 1, 1),
    "a mean of thresholds": (lambda x: dp.record_sum(x[:, None] > GRID) / x.shape[0], 1, K),
    "means of pairs": (lambda x: x.mean(axis=0), 2, 2),
}
# One row of several people, or several of one; or which array holds the people cannot be told.
REFUSED = {
    "a person, seven times": (lambda x: x[:1] + pt.zeros(7), 1),
    "the same, an array": (lambda x: x[:1] + np.zeros(7), 1),
    "the same, in a table": (lambda x: x[:1] + np.zeros((7, 1)), 1),
    "the same, broadcast": (lambda x: pt.broadcast_to(x[:1], (7,)), 1),
    "the same, tiled": (lambda x: pt.tile(x[:1], 7), 1),
    "the same, set": (lambda x: pt.zeros(7)[np.arange(7)].set(x[:1]), 1),
    "the same, chosen": (lambda x: pt.switch(np.ones(7, dtype=bool), x[:1], 0.0), 1),
    "the same, added up": (lambda x: dp.record_sum(x[:1] + np.zeros(7)), 1),
    "the same, an end": (lambda x: dp.record_sum(pt.clip(np.zeros(7), x[:1], 2.0)), 1),
    "the same, an index": (lambda x: pt.eye(K)[of_level(x[:1]), np.arange(7) % K], 1),
    "the same, in batches": (lambda x: pt.matmul(x[:1, None, :], np.ones((7, 2, 1)))[:, 0, 0], 2),
    "a sum of them": (lambda x: np.zeros(7) + x.sum(keepdims=True), 1),
    "running sums": (lambda x: pt.cumsum(x), 1),
    "sorted": (lambda x: pt.sort(x), 1),
    "everybody twice": (lambda x: pt.concatenate([x, x]), 1),
    "people as columns": (lambda x: x.T, 2),
    "people as columns, added up": (lambda x: x.T.sum(axis=1), 2),
    "statistics as people": (lambda x: dp.record_sum(x.T), 2),
    "statistics of one": (lambda x: x[0], 2),
    "all of one": (lambda x: dp.record_sum(x[None, :]), 1),
    "one row of all": (lambda x: x[None, :], 1),
    "a distribution function": (lambda x: (GRID[:, None] > x).sum(axis=1), 1),
    "centred": (lambda x: x - x.mean(), 1),
    "maxima over people": (lambda x: x.max(axis=0), 2),
    "products of rows": (lambda x: pt.dot(x.T, x), 2),
    "sums of sums": (lambda x: dp.record_sum(dp.record_sum(x[:, None] > GRID)), 1),
}
# Refused of data only: in a model it is known which variable is random.
AMBIGUOUS = {
    "thresholds by axis": (lambda x: (x[:, None] > GRID).sum(axis=0), 1),
    "thresholds, a mean": (lambda x: (x[:, None] > GRID).mean(axis=0), 1),
    "numbers below a person's": (lambda x: (GRID[:, None] > x).sum(axis=0), 1),
    "rows of thresholds": (lambda x: x[:, None] > GRID, 1),
    "weighted rows": (lambda x: x * np.array([1.0, 2.0]), 2),
    "a matrix": (lambda x: dp.record_sum(x @ np.ones((2, K))), 2),
    "an array of one number": (lambda x: dp.record_sum(x[:, None] * np.array([2.0])), 1),
    "looked up": (lambda x: pt.constant(GRID)[of_level(x)], 1),
}
ALL = {k: v[:2] for k, v in (ACCEPTED | MEANS | REFUSED | AMBIGUOUS).items()}
NO_BOUNDS = "cannot be applied to this query"


def rows(n, columns, rng):
    return rng.random(n if columns == 1 else (n, columns))


LEAVES = {
    "written": pt.constant,
    "shared": pytensor.shared,
    "fixed": lambda x: pytensor.shared(x, shape=x.shape),
}
each_leaf = pytest.mark.parametrize("leaf", LEAVES.values(), ids=LEAVES)


def spent(query, kind="LaplaceMechanism", level=1.0):
    """What noise of a level spends: the sensitivity in the L1 norm, or half of its square in the L2 norm."""
    key = "scale" if "Laplace" in kind else "sigma"
    promise = dp.guarantee(getattr(dp, kind).dist(query, **{key: level}, bounds=(0, 1)))
    return promise.epsilon if "Laplace" in kind else promise.rho


@each_leaf
@each_number
@pytest.mark.parametrize(("query", "columns", "change"), ACCEPTED.values(), ids=ACCEPTED)
def test_a_person_is_a_row_however_many_there_are(rng, query, columns, change, n, leaf):
    release = dp.LaplaceMechanism.release(query(leaf(rows(n, columns, rng))), epsilon=1, bounds=(0, 1))
    assert release.parameters["scale"] == pytest.approx(change, rel=1e-9)
    assert release.guarantee.epsilon == 1


@each_leaf
@pytest.mark.parametrize("n", NUMBERS[1:])
@pytest.mark.parametrize(("query", "columns", "change"), MEANS.values(), ids=MEANS)
def test_a_person_is_one_of_those_that_a_mean_is_over(rng, query, columns, change, n, leaf):
    release = dp.LaplaceMechanism.release(query(leaf(rows(n, columns, rng))), epsilon=1, bounds=(0, 1))
    assert release.parameters["scale"] == pytest.approx(change / n, rel=1e-9)


@each_leaf
@pytest.mark.parametrize(("query", "columns", "change"), MEANS.values(), ids=MEANS)
def test_nobody_has_no_mean(rng, query, columns, change, leaf):
    with pytest.raises(ValueError, match=r"query divides by 0, .* add up with dp.record_sum"):
        dp.LaplaceMechanism.release(query(leaf(rows(0, columns, rng))), epsilon=1, bounds=(0, 1))


@pytest.mark.parametrize("name", ["ProjectionMechanism", "SmoothedHistogramSample"])
def test_noise_that_follows_from_a_number_of_people_needs_some(name):
    settings = {"n_terms": 3} if name == "ProjectionMechanism" else {"n_bins": 4, "n_released": 3}
    with pytest.raises(ValueError, match=r"query is of no records, .* a dp.PerturbedHistogram"):
        getattr(dp, name).release(np.zeros(0), epsilon=1, **settings)
    assert dp.PerturbedHistogram.release(np.zeros(0), n_bins=4, epsilon=1).value.shape == (4,)


@each_leaf
@each_number
@pytest.mark.parametrize(("query", "columns"), (REFUSED | AMBIGUOUS).values(), ids=REFUSED | AMBIGUOUS)
def test_what_is_no_row_per_person_is_refused(rng, query, columns, n, leaf):
    try:
        made = query(leaf(rows(n, columns, rng)))
    except (ValueError, IndexError) as error:  # PyTensor's own, while the query is written
        assert n == 0 and "hape" in str(error)
        return
    with pytest.raises(ValueError, match=rf"`bounds` {NO_BOUNDS}"):
        dp.LaplaceMechanism.release(made, epsilon=1, bounds=(0, 1))


REMEDIES = {
    "thresholds by axis": lambda x: dp.record_sum(pt.constant(x)[:, None] > GRID),
    "thresholds, a mean": lambda x: dp.record_sum(pt.constant(x)[:, None] > GRID) / len(x),
    "rows of thresholds": lambda x: x[:, None] > GRID,
    "weighted rows": lambda x: x * np.array([1.0, 2.0]),
    "a matrix": lambda x: dp.record_sum(x @ np.ones((2, K))),
    "an array of one number": lambda x: dp.record_sum(pt.constant(x)[:, None] * 2.0),
    "looked up": lambda x: GRID[(K * x).astype(int)],
    "people as columns": lambda x: x,
}


@pytest.mark.parametrize("n", [2, K])
@pytest.mark.parametrize("name", REMEDIES)
def test_remedies_work(rng, name, n):
    query, columns = (REFUSED | AMBIGUOUS)[name]
    x = rows(n, columns, rng)
    remedy = "with NumPy before" if "by axis" not in name else r"add up with dp.record_sum\(...\)"
    with pytest.raises(ValueError, match=remedy):
        dp.LaplaceMechanism.release(query(pt.constant(x)), epsilon=1, bounds=(0, 1))
    assert dp.LaplaceMechanism.release(REMEDIES[name](x), epsilon=1, bounds=(0, 1)).guarantee.epsilon == 1


# ---- custodian and analyst --------------------------------------------------------------------------

KINDS = ("LaplaceMechanism", "GaussianMechanism", "DiscreteLaplaceMechanism", "DiscreteGaussianMechanism")


WHOLE = {"thresholds, whole", "one-hot", "one-hot by a range"}


def found(act):
    """What an act finds, or None where it is refused."""
    try:
        return act()
    except (ValueError, TypeError, IndexError):
        return None


@pytest.mark.parametrize("n", NUMBERS)
@pytest.mark.parametrize("name", ALL)
def test_custodian_and_analyst_agree(rng, name, n):
    """Or one of them refuses."""
    query, columns = ALL[name]
    x = rows(n, columns, rng)
    for kind in KINDS if name in WHOLE else KINDS[:2]:
        with pm.Model():
            shape = n if columns == 1 else (n, columns)
            record = pm.Uniform("x", 0, 1, shape=shape)
            theirs = found(lambda kind=kind, record=record: spent(query(record), kind))
        for leaf in (pt.constant, pytensor.shared):
            ours = found(lambda kind=kind, leaf=leaf: spent(query(leaf(x)), kind))
            assert ours is None or theirs is None or ours == pytest.approx(theirs, rel=1e-12)
            if name in ACCEPTED or (name in MEANS and n):
                assert ours is not None and theirs is not None


@pytest.mark.parametrize("kind", KINDS)
@each_number
def test_thresholds_cost_the_same_under_all_noise(rng, kind, n):
    level = {"epsilon": 1} if "Laplace" in kind else {"rho": 0.5}
    for leaf in LEAVES.values():
        query = ACCEPTED["thresholds, whole"][0](leaf(rows(n, 1, rng)))
        release = getattr(dp, kind).release(query, **level, bounds=(0, 1))
        noise = release.parameters.get("scale", release.parameters.get("sigma"))
        assert noise == pytest.approx(K if "Laplace" in kind else math.sqrt(K), rel=1e-9)


def test_what_record_sum_says_holds_in_a_model_too():
    """There it would be read as one number per person, of which one can be 6."""
    with pm.Model():
        x = pm.Uniform("x", 0, 1, shape=2)
        with pytest.raises(ValueError, match="another axis than the leading one of the records"):
            dp.LaplaceMechanism.dist(dp.record_sum(GRID[:, None] > x), epsilon=1, bounds=(0, 1))
        fine = dp.record_sum((GRID[:, None] > x).T)
        assert dp.guarantee(dp.LaplaceMechanism.dist(fine, scale=1, bounds=(0, 1))).epsilon == K
    for leaf in LEAVES.values():  # nor can the only person be in the place of the grid
        with pytest.raises(ValueError, match="has one row, or none, which may be that of the only person"):
            dp.LaplaceMechanism.release(
                dp.record_sum(GRID[:, None] > leaf(np.array([0.4]))), epsilon=1, bounds=(0, 1)
            )


# ---- brute force ------------------------------------------------------------------------------------

POINTS = np.array([-3.0, 0.0, 0.45, 1.0, 5.0])


def neighbours(n, columns, rng):
    """All pairs of data sets of points that differ in one row; of many people some, with all replacements."""
    points = np.array(list(itertools.product(POINTS, repeat=columns)))
    if len(points) ** n <= 30:
        bases = itertools.product(points, repeat=n)
    else:
        bases = (points[rng.integers(len(points), size=n)] for _ in range(4))
    for base in bases:
        one = np.array(base).reshape((n, columns))
        for i, row in itertools.product(range(n), points):
            other = one.copy()
            other[i] = row
            yield tuple(v[:, 0] if columns == 1 else v for v in (one, other))


def largest_change(query, n, columns, rng, given=None):
    """The largest change of the clamped query between neighbours, and what is stated of it."""
    shape = (n,) if columns == 1 else (n, columns)
    x = pytensor.shared(np.zeros(shape), shape=shape)
    release = dp.LaplaceMechanism.dist(query(x), scale=1.0, bounds=(0, 1))
    clamped = release.owner.op.dist_params(release.owner)[0]
    of = pytensor.function([], clamped, mode=IN_PYTHON)

    def value(data):
        x.set_value(data)
        return np.array(of())

    worst = max(np.abs(value(one) - value(other)).sum() for one, other in neighbours(n, columns, rng))
    return worst, dp.guarantee(release).epsilon


@pytest.mark.parametrize("n", NUMBERS[1:])
@pytest.mark.parametrize("name", ALL)
def test_stated_sensitivity_is_never_below_what_neighbours_show(rng, name, n):
    query, columns = ALL[name]
    shown = found(lambda: largest_change(query, n, columns, rng))
    if name in ACCEPTED or name in MEANS:
        assert shown is not None
    if shown is not None:
        assert shown[0] <= shown[1] * (1 + 1e-12)


@pytest.mark.parametrize("n", NUMBERS[1:])
def test_neighbours_show_what_would_be_understated(rng, n):
    """Power: all columns move, so that noise for one of them less would tell."""
    assert largest_change(ACCEPTED["thresholds"][0], n, 1, rng) == (K, K)
    worst, stated = largest_change(ACCEPTED["pairs under thresholds"][0], n, 2, rng)
    assert worst == stated == 2 * K


# ---- local releases ------------------------------------------------------------------------------------

LOCAL = {
    "BinomialMechanism": {"n_trials": 2, "epsilon": 1},
    "WaveletMechanism": {"level": 2, "epsilon": 1},
    "UnaryEncoding": {"n_categories": 3, "epsilon": 1},
    "RandomizedResponse": {"n_categories": 3, "epsilon": 1},
    "PerturbedHistogram": {"n_bins": 4, "epsilon": 1},
    "ProjectionMechanism": {"n_terms": 3, "epsilon": 1},
    "SmoothedHistogramSample": {"n_bins": 4, "n_released": 3, "epsilon": 1},
}
OF_ONE = {
    "an array": lambda x: x + np.zeros(7, x.dtype),
    "zeros": lambda x: x + pt.zeros(7, dtype=x.dtype),
    "shared zeros": lambda x: x + pytensor.shared(np.zeros(7, x.dtype)),
    "an array, chosen": lambda x: pt.switch(np.ones(7, dtype=bool), x, 0),
    "broadcast": lambda x: pt.broadcast_to(x, (7,)),
    "the only entry": lambda x: np.zeros(7, x.dtype) + x[0],
    "a sum": lambda x: x.sum() * pt.ones(7, dtype=x.dtype),
}


@each_leaf
@pytest.mark.parametrize("name", LOCAL)
def test_the_only_person_reports_once(name, leaf):
    """Seven reports of one person would cost seven times what is stated."""
    x = np.ones(1, dtype=int) if "n_categories" in LOCAL[name] else np.full(1, 0.3)
    for query in OF_ONE.values():
        with pytest.raises(ValueError, match=r"mix several persons|not one record's each"):
            getattr(dp, name).release(query(leaf(x)), **LOCAL[name])
    assert getattr(dp, name).release(leaf(x), **LOCAL[name]).guarantee.epsilon == pytest.approx(1)


@each_leaf
@pytest.mark.parametrize("name", list(LOCAL)[:5])
def test_nobody_reports_nothing(name, leaf):
    x = np.ones(0, dtype=int) if "n_categories" in LOCAL[name] else np.zeros(0)
    release = getattr(dp, name).release(leaf(x), **LOCAL[name])
    assert release.guarantee.epsilon == pytest.approx(1)
    assert name == "PerturbedHistogram" or len(release.value) == 0


def test_the_only_row_of_a_perturbed_objective_is_in_it_once():
    x, settings = pt.constant(np.full((1, 2), 0.3)), {"epsilon": 1, "regularization": 1}
    for features, labels in ((x + np.zeros((7, 2)), np.zeros(7)), (np.ones((7, 2)), np.zeros(7) + x[:, 0])):
        with pytest.raises(ValueError, match="mix several persons or repeat one"):
            dp.ObjectivePerturbation.release(features, labels, **settings)
    assert dp.ObjectivePerturbation.release(x, np.ones(1), **settings).value.shape == (2,)


def test_a_record_that_a_model_repeats_is_no_record_in_each_row():
    """One variable, set into five rows or broadcast in batches, is one person's five times."""
    with pm.Model():
        x = pm.Normal("x", shape=1)
        repeated = (
            pt.zeros(7)[np.arange(5)].set(x),
            pt.matmul(x[:, None, None], np.ones((7, 1, 1)))[:, 0, 0],
            pt.constant(GRID)[pt.cast(x, "int64"), None][:, 0] + np.zeros(7),
            pt.constant(np.eye(K))[pt.cast(x, "int64"), np.arange(7) % K],
        )
        resizable = pm.Normal("resizable", pm.Data("data", np.zeros(1)))
        repeated += (pt.constant(np.eye(K))[pt.cast(resizable, "int64"), pm.Data("of", np.arange(7) % K)],)
        for query in repeated:
            for q in (query, dp.record_sum(query)):
                with pytest.raises(ValueError, match=NO_BOUNDS):
                    dp.LaplaceMechanism.dist(q, epsilon=1, bounds=(0, 1))


def test_tables_of_settings_are_no_data():
    """The edges of bins and the ends of bounds lie along other axes than people; sums stay exact."""
    from pymc_dp.mechanisms import _bins, _grid

    for n in NUMBERS:
        x = pt.constant(np.full(n, 0.3))
        counts = _bins.one_hot(x, (0.0, 0.5, 1.0)).sum(axis=0)
        assert _grid._sum_in_granules(counts, 1.0) is not None
        pairs = dp.record_sum(x[:, None] * np.ones(2))
        clamped = dp.LaplaceMechanism.dist(pairs, scale=1, bounds=[(0, 1), (0, 2)])
        assert _grid._sum_in_granules(clamped.owner.op.dist_params(clamped.owner)[0], 1.0) is not None
    assert evaluate(counts).tolist() == [K + 1, 0]
