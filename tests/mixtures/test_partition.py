"""Labels of the Chinese restaurant process and of finite mixtures: density, draws, declaration."""

import itertools
import math
import pickle
import warnings

import arviz as az
import cloudpickle
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
import scipy.stats as st
from pymc.logprob.utils import ParameterValueError
from pymc.model.fgraph import clone_model

import pymc_dp as dp
from pymc_dp.lowering.functions.urn import weight_of_new_cluster

CRP = dp.ChineseRestaurantProcess
# (concentration, discount), and (g, K) of finite mixtures
URNS = [(a, d) for a in (0.5, 1.0, 5.0) for d in (0.0, 0.3)] + [(-0.2, 0.3), (2.0, 0.95)]
FINITE = [(g, k) for g in (0.1, 1.0, 3.0) for k in (1, 2, 4)]


def predictive(labels, concentration, discount, slots, most=math.inf):
    """Probability of labels, one record after the other: a free slot is as likely as any other."""
    p, counts = 1.0, {}
    for i, label in enumerate(labels):
        k = len(counts)
        if label in counts:
            p *= (counts[label] - discount) / (concentration + i)
        else:
            new = (
                1.0 if i == 0 else 0.0 if k >= most else (concentration + discount * k) / (concentration + i)
            )
            p *= new / (slots - k) if k < slots else 0.0
        counts[label] = counts.get(label, 0) + 1
    return p


def clusters_at_most(most, n, concentration, discount):
    """Probability that n records are in so many clusters, by the urn's recursion over records."""
    p = np.zeros(n + 2)
    p[1] = 1.0
    k = np.arange(n + 2)
    for i in range(1, n):
        new = p * (concentration + discount * k) / (concentration + i)
        p = p - new
        p[1:] += new[:-1]
    return p[: most + 1].sum()


def all_labels(n, slots):
    return np.array(list(itertools.product(range(slots), repeat=n)))


@pytest.fixture(scope="module")
def density():
    """(n, slots, finite) -> function of labels and the two parameters; compiled once."""
    known = {}

    def of(n, slots, finite=False):
        if (n, slots, finite) not in known:
            a, d = pt.dscalar("a"), pt.lscalar("k") if finite else pt.dscalar("d")
            rv = CRP.dist(a, max_components=slots, shape=n, **{"n_components" if finite else "discount": d})
            value = pt.lvector("labels")
            known[n, slots, finite] = pytensor.function([value, a, d], pm.logp(rv, value))
        return known[n, slots, finite]

    return of


@pytest.mark.parametrize("n", [1, 3, 5])
def test_density_is_the_urn(n, density):
    """Label by label, and in total: with a slot for every record nothing is missing."""
    slots = 5
    logp = density(n, slots)
    vectors = all_labels(n, slots)
    for concentration, discount in URNS:
        got = np.exp([logp(labels, concentration, discount) for labels in vectors])
        expected = [predictive(labels, concentration, discount, slots) for labels in vectors]
        np.testing.assert_allclose(got, expected, rtol=1e-11)
        assert got.sum() == pytest.approx(1, rel=1e-11)


def test_fewer_slots_restrict_the_partition(density):
    n, slots = 5, 3
    logp = density(n, slots)
    for concentration, discount in URNS:
        total = np.exp([logp(labels, concentration, discount) for labels in all_labels(n, slots)]).sum()
        assert total == pytest.approx(clusters_at_most(slots, n, concentration, discount), rel=1e-11)
    assert clusters_at_most(3, 5, 0.5, 0.0) == pytest.approx(0.98, abs=0.01)


def test_finite_mixture_has_dirichlet_weights(density):
    """Every label vector, by the Dirichlet-multinomial law of labelled components."""
    n, slots = 4, 5
    logp = density(n, slots, finite=True)
    vectors = all_labels(n, slots)
    for g, components in FINITE:
        got = np.exp([logp(labels, g, components) for labels in vectors])
        expected = [predictive(labels, components * g, -g, slots, most=components) for labels in vectors]
        np.testing.assert_allclose(got, expected, rtol=1e-11)
        assert got.sum() == pytest.approx(1, rel=1e-11)
        used = [len(set(labels)) for labels in vectors]
        assert (got[np.array(used) > components] == 0).all()


@pytest.mark.parametrize("components", [2, 4])
def test_slots_of_a_known_number_of_components_are_the_components(components, python_mode):
    """Labels have the law of a Dirichlet-multinomial sequence, and a slot for each component by default."""
    g = 0.7
    rv = CRP.dist(g, n_components=components, shape=3)
    assert rv.owner.op.max_components == components
    value = pt.lvector("labels")
    logp = pytensor.function([value], pm.logp(rv, value))
    for labels in all_labels(3, components):
        counts = np.bincount(labels, minlength=components)
        sequence = st.dirichlet_multinomial.logpmf(counts, np.full(components, g), 3)
        orders = math.factorial(3) / np.prod([math.factorial(c) for c in counts])
        assert logp(labels) == pytest.approx(sequence - math.log(orders))


def test_rounding_leaves_no_weight_for_another_component(density):
    """K g - g K need not be zero in floating point."""
    logp = density(4, 5, finite=True)
    for g in np.linspace(0.01, 3, 77):
        assert logp([0, 1, 2, 3], g, 3) == -np.inf
        assert np.isfinite(logp([0, 1, 2, 2], g, 3))
        assert weight_of_new_cluster(3 * g, -g, 3) == 0 < weight_of_new_cluster(3 * g, -g, 2)


def test_mixture_of_finite_mixtures(python_mode):
    with pm.Model() as model:
        more = pm.Poisson("more", 2.0)
        CRP("labels", 0.5, n_components=1 + more, max_components=3, shape=4)
    logp = model.compile_logp()
    for extra, labels in itertools.product((0, 1, 3), ([0, 0, 0, 0], [2, 1, 2, 2], [0, 1, 2, 2])):
        p = predictive(labels, 0.5 * (1 + extra), -0.5, 3, most=1 + extra)
        expected = st.poisson.logpmf(extra, 2.0) + (math.log(p) if p else -np.inf)
        assert logp({"more": extra, "labels": np.array(labels)}) == pytest.approx(expected)


def test_what_is_no_slot_has_no_mass(python_mode):
    value = pt.dvector("labels")  # PyMC rounds values that are no variables
    logp = pytensor.function([value], pm.logp(CRP.dist(1.0, shape=3, max_components=2), value))
    assert np.isfinite(logp([0, 1, 1]))
    for labels in ([0, 2, 0], [0, -1, 0], [0, 0.5, 0], [np.nan, 0, 0]):
        assert logp(labels) == -np.inf


@pytest.mark.parametrize(
    ("concentration", "settings"),
    [
        (-0.5, {"discount": 0.3}),
        (1.0, {"discount": 1.0}),
        (1.0, {"discount": -0.5}),
        (0.0, {"n_components": 3}),
    ],
)
def test_parameters_out_of_range(concentration, settings, python_mode):
    """Of variables, whose values are not known at declaration."""
    values = {"concentration": concentration, **settings}
    variables = {name: pt.lscalar() if name == "n_components" else pt.dscalar() for name in values}
    rv = CRP.dist(**variables, shape=3)
    given = {variables[name]: value for name, value in values.items()}
    with pytest.raises(ParameterValueError, match="concentration > "):
        pm.logp(rv, np.zeros(3, int)).eval(given)
    with pytest.raises(ValueError, match=r"but a draw has other\s+values"):
        rv.owner.op.rng_fn(
            np.random.default_rng(1), *(x.eval(given, on_unused_input="ignore") for x in rv.owner.inputs[2:])
        )


@pytest.mark.parametrize("finite", [False, True])
def test_gradient(finite, python_mode):
    """Against differences, with free slots (no cluster has a gamma function of minus the discount)."""
    a, d = pt.dscalar("a"), pt.dscalar("d")
    rv = CRP.dist(a, n_components=4, shape=7) if finite else CRP.dist(a, d, shape=7, max_components=9)
    parameters = [a] if finite else [a, d]
    logp = pm.logp(rv, np.array([3, 3, 0, 0, 0, 1, 1]))
    value = pytensor.function(parameters, logp)
    slope = pytensor.function(parameters, pt.grad(logp, parameters))
    points = [(0.3,), (2.0,)] if finite else [(0.5, 0.0), (1.0, 0.3), (5.0, 0.9), (-0.1, 0.4)]
    for point in points:
        for i, got in enumerate(slope(*point)):
            step = 1e-6 * np.eye(len(point))[i]
            below = np.array(point) - (point[i] != 0) * step  # one-sided at the edge
            above = np.array(point) + step
            numeric = (value(*above) - value(*below)) / (above - below)[i]
            assert got == pytest.approx(numeric, rel=1e-4, abs=1e-4)


def law_of(draws, vectors, p):
    """P value of draws of labels under probabilities of all label vectors."""
    base = vectors.max() + 1
    codes = (vectors @ base ** np.arange(vectors.shape[1])).tolist()
    counts = np.bincount(draws @ base ** np.arange(vectors.shape[1]), minlength=max(codes) + 1)[codes]
    expected = p * len(draws)
    possible = expected > 0
    assert counts[~possible].sum() == 0 and expected[possible].min() > 5
    return st.chisquare(counts[possible], expected[possible]).pvalue


@pytest.mark.compiles(2)
@pytest.mark.parametrize("through", ["numba", "rng_fn"])
@pytest.mark.parametrize(
    ("concentration", "settings"),
    [
        (1.0, {}),
        (0.5, {"discount": 0.3}),
        (-0.2, {"discount": 0.6}),
        (0.4, {"n_components": 2}),
        (2.0, {"n_components": 4}),
    ],
)
def test_draws_have_the_density(through, concentration, settings, rng):
    """Over all label vectors, so that slots are seen to be exchangeable too."""
    n, slots, size = 3, 4, 40_000
    rv = CRP.dist(concentration, **settings, shape=n, max_components=slots)
    k = settings.get("n_components", math.inf)
    d = -concentration if "n_components" in settings else settings.get("discount", 0.0)
    a = concentration * k if "n_components" in settings else concentration
    if through == "numba":
        with warnings.catch_warnings():  # that it goes back to the interpreter
            warnings.simplefilter("error")
            draws = pm.draw(rv, draws=size, random_seed=rng)
    else:
        draws = rv.owner.op.rng_fn(rng, a, d, (size,))
    assert draws.shape == (size, n) and draws.dtype == np.int64
    vectors = all_labels(n, slots)
    p = np.array([predictive(v, a, d, slots, most=k) for v in vectors])
    assert law_of(draws, vectors, p) > 1e-4


def test_the_test_of_draws_has_power(rng):
    """A discount forgotten, or slots taken in order, are seen."""
    n, slots, size = 3, 4, 40_000
    vectors = all_labels(n, slots)
    p = np.array([predictive(v, 0.5, 0.3, slots) for v in vectors])
    op = CRP.dist(0.5, 0.3, shape=n, max_components=slots).owner.op
    draws = op.rng_fn(rng, 0.5, 0.3, (size,))
    assert law_of(draws, vectors, p) > 1e-4
    assert law_of(op.rng_fn(rng, 0.5, 0.2, (size,)), vectors, p) < 1e-4
    in_order = np.array([[list(dict.fromkeys(row)).index(label) for label in row] for row in draws.tolist()])
    assert law_of(in_order, vectors, p) < 1e-4


def test_number_of_clusters_of_many_records(rng):
    """The urn at work over thousands of records, with its mean and variance in closed form."""
    n, alpha, repeats = 5000, 3.0, 400
    op = CRP.dist(alpha, shape=n, max_components=200).owner.op
    k = np.array([len(np.unique(row)) for row in op.rng_fn(rng, alpha, 0.0, (repeats,))])
    new = alpha / (alpha + np.arange(n))
    sd = math.sqrt((new * (1 - new)).sum())
    assert abs(k.mean() - new.sum()) < 4 * sd / math.sqrt(repeats)
    assert abs(k.var() / sd**2 - 1) < 4 * math.sqrt(2 / repeats)


def test_reaching_the_slots_raises():
    """Compiled and not: never a partition that is cut short."""
    rv = CRP.dist(50.0, shape=30, max_components=4)
    for draw in (
        lambda: pm.draw(rv, random_seed=1),
        lambda: rv.owner.op.rng_fn(np.random.default_rng(1), 50.0, 0.0),
    ):
        with pytest.raises(ValueError, match=r"max_components = 4 was reached.*Raise max_components"):
            draw()


@pytest.fixture
def mixture():
    with pm.Model(coords={"person": range(6)}) as model:
        alpha = pm.Gamma("alpha", 2, 2)
        labels = CRP("labels", alpha, discount=0.2, dims="person", max_components=6)
        mu = pm.Normal("mu", 0, 3, shape=6)
        pm.Normal("y", mu[labels], 1, dims="person")
    return model


def test_life_in_a_model(mixture, python_mode):
    """Dims, cloning, pickling, interventions and observations keep the settings."""
    point = mixture.initial_point()
    np.testing.assert_array_equal(point["labels"], [0, 1, 2, 0, 1, 2])
    assert point["labels"].dtype == np.int64
    logp = mixture.compile_logp()(point)
    assert np.isfinite(logp)
    for again in (
        clone_model(mixture),
        mixture.copy(),
        cloudpickle.loads(cloudpickle.dumps(mixture)),
    ):
        op = again["labels"].owner.op
        assert (op.n, op.max_components, op.finite) == (6, 6, False)
        assert again.compile_logp()(point) == pytest.approx(logp)
    done = pm.do(mixture, {"alpha": 2.0})
    labels = np.array([3, 3, 1, 1, 1, 0])
    assert math.exp(
        done.compile_logp(vars=[done["labels"]])({**done.initial_point(), "labels": labels})
    ) == pytest.approx(predictive(labels, 2.0, 0.2, 6))
    assert "labels" not in pm.do(mixture, {"labels": labels}).initial_point()
    seen = pm.observe(mixture, {"labels": labels})
    assert "labels" not in seen.initial_point()
    terms = seen.point_logps({**seen.initial_point(), "alpha_log__": np.log(2.0)}, round_vals=12)
    assert math.exp(terms["labels"]) == pytest.approx(predictive(labels, 2.0, 0.2, 6))
    slope = seen.compile_dlogp(vars=[seen["alpha"]])(seen.initial_point())
    assert np.isfinite(slope).all()


def test_op_pickles():
    op = CRP.dist(1.0, n_components=2, shape=3).owner.op
    again = pickle.loads(pickle.dumps(op))
    assert again == op and hash(again) == hash(op)
    assert op != CRP.dist(1.0, n_components=2, shape=4).owner.op


def test_predictive_draws(mixture):
    idata = pm.sample_prior_predictive(50, model=mixture, random_seed=1)
    drawn = idata["prior"]["labels"]
    assert drawn.dims == ("chain", "draw", "person") and drawn.dtype == np.int64
    assert drawn.min() >= 0 and drawn.max() <= 5
    assert len(np.unique(drawn.values.reshape(-1, 6), axis=0)) > 10


def test_shape_from_anywhere(python_mode):
    with pm.Model(coords={"person": range(4)}) as model:
        length = pm.Data("length", np.zeros(7)).shape[0]
        cases = {
            4: CRP("dims", 1.0, dims="person"),
            5: CRP("observed", 1.0, observed=[0, 1, 0, 0, 1]),
            6: CRP("tuple", 1.0, shape=(6,)),
            7: CRP("data", 1.0, shape=length),
            8: CRP("number", 1.0, shape=8, initval=np.zeros(8, int)),
        }
    for n, rv in cases.items():
        assert rv.type.shape == (n,) and rv.owner.op.n == n
    np.testing.assert_array_equal(model.initial_point()["number"], np.zeros(8))


def test_starts_are_possible(python_mode):
    for settings in (
        {"max_components": 1},
        {"max_components": 2},
        {"n_components": 2},
        {"n_components": 5},
        {},
    ):
        with pm.Model() as model:
            CRP("labels", 1.0, shape=6, **settings)
        start = model.initial_point()
        assert start["labels"].max() == min(
            2, settings.get("max_components", 3) - 1, settings.get("n_components", 3) - 1
        )
        assert np.isfinite(model.compile_logp()(start))
    with pm.Model() as model:
        CRP("labels", 1.0, n_components=1 + pm.Poisson("more", 1.2), max_components=6, shape=6)
    start = model.initial_point()
    assert start["labels"].max() == 1 and np.isfinite(model.compile_logp()(start))


def test_default_slots():
    """A slot for every record or component, but not thousands."""
    assert CRP.dist(1.0, shape=7).owner.op.max_components == 7
    assert CRP.dist(1.0, shape=700).owner.op.max_components == 50
    assert CRP.dist(1.0, n_components=60, shape=700).owner.op.max_components == 60
    with pm.Model():
        rv = CRP("labels", 1.0, n_components=1 + pm.Poisson("more", 3), shape=700)
    assert rv.owner.op.max_components == 50
    # what the documentation says of 50: the chance of more in a million records at concentration 1
    p, more = np.zeros(51), 0.0
    p[1] = 1.0
    for i in range(1, 1_000_000):
        new = p / (1 + i)
        more += new[50]
        p -= new
        p[1:] += new[:-1]
    assert more == pytest.approx(3e-15, rel=0.3)


def random(name="x"):
    return pm.Poisson(name, 3)


BAD = {
    "no concentration": (
        {"concentration": 0},
        ValueError,
        "concentration must be a finite number > 0, got 0",
    ),
    "negative": ({"concentration": -1.0}, ValueError, "concentration must be a finite number > 0, got -1"),
    "not a number": (
        {"concentration": np.nan},
        ValueError,
        "concentration must be a finite number > 0, got nan",
    ),
    "infinite": ({"concentration": np.inf}, ValueError, "concentration must be a finite number > 0, got inf"),
    "text": ({"concentration": "1"}, TypeError, "concentration must be real, got"),
    "truth": ({"concentration": True}, TypeError, "concentration must be real, got bool"),
    "several": (
        {"concentration": [1.0, 2.0]},
        ValueError,
        "concentration must be a scalar, got 1 dimensions",
    ),
    "below the discount": (
        {"concentration": -0.3, "discount": 0.3},
        ValueError,
        "concentration must be a finite number > -discount = -0.3, got -0.3",
    ),
    "discount of one": ({"discount": 1.0}, ValueError, r"discount must be in \[0, 1\), got 1"),
    "negative discount": ({"discount": -0.1}, ValueError, r"discount must be in \[0, 1\), got -0.1"),
    "discount not a number": ({"discount": np.nan}, ValueError, r"discount must be in \[0, 1\), got nan"),
    "several discounts": ({"discount": [0.1, 0.2]}, ValueError, "discount must be a scalar"),
    "no slots": ({"max_components": 0}, ValueError, "max_components must be an integer of at least 1.*got 0"),
    "half a slot": (
        {"max_components": 2.5},
        ValueError,
        "max_components must be an integer.*got 2.5: round it",
    ),
    "text for slots": ({"max_components": "3"}, TypeError, "max_components must be an integer.*got str"),
    "random slots": (
        lambda: {"max_components": random()},
        TypeError,
        "max_components must be an integer of at least 1, known in advance",
    ),
    "no shape": ({"shape": None}, ValueError, "shape is missing: give shape=n"),
    "a batch": ({"shape": (2, 3)}, ValueError, "shape must have one dimension, the records, got 2"),
    "a scalar": ({"shape": ()}, ValueError, "shape must have one dimension, the records, got 0"),
    "a size": ({"shape": None, "size": 3}, ValueError, "size asks for a batch.*give shape=n"),
    "nobody": ({"shape": 0}, ValueError, "shape must give at least one record, got 0"),
    "random shape": (lambda: {"shape": random()}, ValueError, "shape must be known, but it is random"),
    "shape without a value": (
        lambda: {"shape": pt.lscalar("m")},
        ValueError,
        "shape must be known, but .* has no value",
    ),
    "no components": (
        {"n_components": 0},
        ValueError,
        "n_components must be an integer of at least 1.*got 0",
    ),
    "half a component": ({"n_components": 1.5}, ValueError, "n_components must be an integer.*got 1.5"),
    "continuous components": (
        lambda: {"n_components": pm.Gamma("x", 2, 2)},
        TypeError,
        r"n_components must be an integer or a discrete variable.*such as 1 \+ pm.Poisson",
    ),
    "several numbers of components": (
        lambda: {"n_components": pm.Poisson("x", 3, shape=2)},
        ValueError,
        "n_components must be a scalar",
    ),
    "finite without concentration": (
        {"n_components": 3, "concentration": 0.0},
        ValueError,
        "concentration must be a finite number > 0, got 0",
    ),
    "both": (
        {"n_components": 3, "discount": 0.1},
        ValueError,
        "n_components and discount cannot be given together",
    ),
    "fewer slots than components": (
        {"n_components": 4, "max_components": 3},
        ValueError,
        "max_components = 3 leaves no slot for some of n_components = 4",
    ),
    "unknown": ({"alpha": 1.0}, TypeError, "unexpected keyword argument 'alpha'"),
}


@pytest.mark.parametrize(("settings", "error", "message"), BAD.values(), ids=BAD)
def test_bad_input(settings, error, message):
    with pm.Model(), pytest.raises(error, match=f"(?s){message}") as caught:
        settings = settings() if callable(settings) else settings
        CRP("labels", **{"concentration": 1.0, "shape": 5, **settings})
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("observed", [[0.5, 0, 1], np.array([1, 0, 1.5])])
def test_observed_fractions(observed):
    """PyMC would round them."""
    with pm.Model(), pytest.raises(ValueError, match="observed must hold slots, which are whole numbers"):
        CRP("labels", 1.0, observed=observed)


def test_dist_has_no_initval():
    with pytest.raises(TypeError, match="unexpected keyword argument 'initval'"):
        CRP.dist(1.0, shape=3, initval=[0, 0, 0])


@pytest.mark.statistical
def test_concentration_and_discount_by_nuts():
    """Given labels, both parameters have a smooth posterior, which quadrature knows."""
    labels = np.repeat([4, 0, 7, 2, 5, 9], [12, 7, 5, 3, 2, 1])
    with pm.Model():
        alpha = pm.Gamma("alpha", 2, 1)
        discount = pm.Beta("discount", 1, 2)
        CRP("labels", alpha, discount=discount, max_components=30, observed=labels)
        idata = pm.sample(
            1500, tune=1000, chains=2, cores=1, nuts_sampler="pymc", random_seed=1, progressbar=False
        )
    a, d = np.meshgrid(np.linspace(0, 20, 2001)[1:], (np.arange(400) + 0.5) / 400)
    weight = np.vectorize(lambda a, d: predictive(labels, a, d, 30))(a[::20, ::20], d[::20, ::20])
    counts = np.bincount(labels)
    log = st.gamma.logpdf(a, 2) + st.beta.logpdf(d, 1, 2)
    log += sum(np.log(a + d * j) for j in range(6)) - sum(np.log(a + i) for i in range(30))
    log += sum(np.log(m - d) for c in counts for m in range(1, c))
    np.testing.assert_allclose(  # the grid has the law of the urn
        np.diff(np.log(weight), axis=0),
        np.diff((log - st.gamma.logpdf(a, 2) - st.beta.logpdf(d, 1, 2))[::20, ::20], axis=0),
        atol=1e-9,
    )
    p = np.exp(log - log.max())
    p /= p.sum()
    for name, grid in (("alpha", a), ("discount", d)):
        draws = idata["posterior"][name].values
        assert abs(draws.mean() - (p * grid).sum()) < 4.5 * float(az.mcse(draws))
