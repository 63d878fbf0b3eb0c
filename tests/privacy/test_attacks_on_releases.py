"""Attacks on what `release()` gives away beside its value, and on files that claim too much."""

import json
import multiprocessing
import threading
import traceback
from dataclasses import replace
from fractions import Fraction
from functools import partial

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

import pymc_dp as dp
from pymc_dp.mechanisms import _grid, exponential
from pymc_dp.mechanisms._knorm_noise import QuadraticKNormGradientRV
from pymc_dp.mechanisms._releases import evaluate
from pymc_dp.query.readings import AS_WRITTEN

C = pt.constant
SECRET = 5237 / 100  # not written out, as it would be in a traceback's lines of code
TABLE = C(np.array([1.0, 2.0, 3.0]))


# ---- messages ------------------------------------------------------------------------------------

CATEGORIES = np.array([1.0, 0.0, SECRET])
BAD_DATA = {
    "categories": lambda m: m.release(CATEGORIES, n_categories=3, epsilon=1),
    "computed categories": lambda m: m.release(C(CATEGORIES) * 2, n_categories=3, epsilon=1),
    "shared categories": lambda m: m.release(pytensor.shared(CATEGORIES), n_categories=3, epsilon=1),
    "whole categories": lambda m: m.release(
        np.array([1, 0, round(SECRET * 1000)]), n_categories=3, epsilon=1
    ),
}


def shown(act):
    """Everything that a log of the error would hold."""
    with pytest.raises((TypeError, ValueError)) as caught:
        act()
    assert caught.value.__context__ is None and caught.value.__cause__ is None
    return "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("mechanism", [dp.RandomizedResponse, dp.UnaryEncoding])
@pytest.mark.parametrize("act", BAD_DATA.values(), ids=BAD_DATA)
def test_errors_tell_neither_values_nor_places(mechanism, act):
    text = shown(lambda: act(mechanism))
    assert "52.37" not in text and "5237" not in text and "104.74" not in text
    assert "at index" not in text and "has a value that is not a category 0, ..., 2" in text


@pytest.mark.parametrize("verbosity", ["low", "high"])
@pytest.mark.parametrize(
    "query",
    [
        lambda c: TABLE[pt.cast(c, "int64")].sum(),
        lambda c: dp.record_sum((TABLE * 2)[pt.cast(c, "int64")][c > 1]),
        lambda c: pt.specify_shape(pytensor.shared(np.ones(2), shape=(None,)) * c[0], (3,)),
        lambda c: pytensor.raise_op.Assert(f"{SECRET}")(c, pt.all(c < 0)),
    ],
    ids=["an index", "an index, for a shape", "a shape", "an assertion"],
)
def test_errors_of_libraries_are_not_passed_on(query, verbosity):
    values = C(np.array([1.0, SECRET, 0.0]))
    with pytensor.config.change_flags(exception_verbosity=verbosity):
        for bounds in ({"bounds": (0, 1)}, {"sensitivity": 1}):
            text = shown(lambda b=bounds: dp.LaplaceMechanism.release(query(values), epsilon=1, **b))
            assert "52." not in text and "index 52" not in text


def test_errors_about_settings_keep_their_numbers():
    with pytest.raises(ValueError, match=r"can change the query by 7\.5"):
        dp.LaplaceMechanism.release(np.ones(3), epsilon=1, sensitivity=2.5, bounds=(0, 7.5))


# ---- data that are not numbers ----------------------------------------------------------------------

FORMS = {
    "PerturbedHistogram": {"n_bins": 4},
    "SmoothedHistogramSample": {"n_bins": 4, "n_released": 8, "bounds": (0, 1)},
    "ProjectionMechanism": {"n_terms": 3, "basis": "haar"},
    "LaplaceMechanism": {"bounds": (0, 1)},
}


@pytest.mark.parametrize("name", FORMS)
def test_nan_stops_every_release(name):
    values = pt.log(C(np.array([0.1, 0.2, 0.3, 0.4, -1.0]))) / -3
    for _ in range(3):
        with pytest.raises(ValueError, match="NaN or infinite"):
            getattr(dp, name).release(values, epsilon=50, **FORMS[name])


def test_single_precision_keeps_the_promises():
    with pytensor.config.change_flags(floatX="float32"):
        release = dp.SmoothedHistogramSample.release(
            np.array([0.2, 0.3]), epsilon=1e-4, n_bins=4, n_released=20
        )
        n = 2**25 + 1
        count = dp.DiscreteLaplaceMechanism.release(np.array(n), epsilon=60, sensitivity=1)
    again = dp.SmoothedHistogramSample.dist(np.array([0.2, 0.3]), **release.parameters)
    assert dp.guarantee(again).epsilon == pytest.approx(1e-4, rel=1e-9)
    assert count.value == n


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("dtype", "power"), [("float16", 20), ("float32", 130), ("float64", 2)])
def test_values_in_fewer_bits_are_compared_with_the_grid(dtype, power):
    """A granule may be infinite, or nothing, in the type of the value."""
    release = dp.LaplaceMechanism.release(3.0, scale=0.5, sensitivity=1)
    stated = [release.parameters | {"granularity": 2.0**k} for k in (power, -power, -1000)]
    coarse, fine, finest = (replace(release, value=np.array(3.0, dtype), parameters=p) for p in stated)
    with pytest.raises(ValueError, match="no multiple of the granularity"):
        dp.guarantee(coarse)
    for rounded in (fine, finest):
        assert dp.guarantee(rounded).epsilon == pytest.approx(2)


# ---- threads and processes ---------------------------------------------------------------------------


def configuration():
    return pytensor.config.mode, pytensor.config.cxx, pytensor.config.floatX


def release_in_steps(monkeypatch):
    """Begin a release in a thread; return an event that lets it go on, and the thread."""
    entered, go_on = threading.Event(), threading.Event()
    draw = dp.LaplaceMechanism._draw_release.__func__

    def slowly(cls, *args):
        if threading.current_thread() is thread:
            entered.set()
            go_on.wait(5)
        return draw(cls, *args)

    monkeypatch.setattr(dp.LaplaceMechanism, "_draw_release", classmethod(slowly))
    thread = threading.Thread(target=dp.LaplaceMechanism.release, args=(1.0,), kwargs=FIXED)
    thread.start()
    assert entered.wait(5)
    return go_on, thread


FIXED = {"scale": 2.0, "sensitivity": 1}


def test_releases_in_threads_leave_the_configuration_as_it_was(monkeypatch):
    before = configuration()
    go_on, first = release_in_steps(monkeypatch)
    seen = []

    def after_the_first(*args):
        go_on.set()
        first.join(5)  # ends while the second is under way, if it can
        seen.append(configuration())

    prepare = dp.LaplaceMechanism.dist
    monkeypatch.setattr(
        dp.LaplaceMechanism, "dist", lambda *args, **noise: after_the_first() or prepare(*args, **noise)
    )
    second = threading.Thread(target=dp.LaplaceMechanism.release, args=(1.0,), kwargs=FIXED)
    second.start()
    second.join(0.5)
    go_on.set()
    second.join(10)
    assert not first.is_alive() and not second.is_alive()
    assert [str(mode) for mode, *_ in seen] == [str(AS_WRITTEN)]
    assert configuration() == before


def test_a_process_that_is_forked_during_a_release_has_the_usual_configuration(monkeypatch):
    before = configuration()
    go_on, thread = release_in_steps(monkeypatch)
    timer = threading.Timer(0.2, go_on.set)
    timer.start()
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()

    def in_the_fork():
        dp.LaplaceMechanism.release(1.0, **FIXED)
        queue.put(str(configuration()))

    process = context.Process(target=in_the_fork)
    process.start()
    process.join(20)
    assert process.exitcode == 0 and queue.get() == str(before)
    thread.join(5)


# ---- settings that are data --------------------------------------------------------------------------

VALUES = C(np.array([1.0, SECRET, 0.0]))
TOLD = {
    "scale": lambda: dp.LaplaceMechanism.release(VALUES.sum(), scale=VALUES.std()),
    "sigma": lambda: dp.GaussianMechanism.release(VALUES.sum(), sigma=VALUES[1], bounds=(0, 1)),
    "p_truth": lambda: dp.RandomizedResponse.release(
        [0, 1], p_truth=pt.stack([0.5 + VALUES[1] / 1000, 0.6]), n_categories=2
    ),
    "p_answer": lambda: dp.RandomizedResponse.release(
        [0, 1], p_answer=pt.stack([pt.stack([0.5 + VALUES[1] / 1000, 0.4]), pt.stack([0.5, 0.5])])
    ),
    "scale, of several": lambda: dp.LaplaceMechanism.release([1.0, 2.0], scale=[1.0, VALUES.max()]),
}


@pytest.mark.parametrize(("setting", "act"), TOLD.items(), ids=TOLD)
def test_settings_are_not_computed_from_data(setting, act):
    """They are published as they are."""
    name = setting.split(",")[0]
    assert f"{name} is computed from arrays, and would be published without noise" in shown(act)


def test_settings_may_be_numbers_and_lengths():
    for scale in (np.array(2.0), C(2.0), 2 * C(3.0), 6 / VALUES.shape[0]):
        with pytest.warns(UserWarning, match="guarantee .* is not known"):
            dp.LaplaceMechanism.release(VALUES.sum(), scale=scale)


# ---- data of another length -------------------------------------------------------------------------


def test_guarantees_of_resized_data_are_refused():
    with pm.Model() as model:
        data = pm.Data("data", np.zeros(1000))
        y = pm.Normal("y", data, 1)
        pairs = pm.Normal("pairs", pm.Data("table", np.zeros((5, 2))), 1)
        stale = [
            dp.ProjectionMechanism("projection", y, n_terms=2, epsilon=1),
            dp.LaplaceMechanism("mean", y.mean(), epsilon=1, bounds=(0, 1)),
            dp.SmoothedHistogramSample("smoothed", y, n_bins=4, n_released=3, epsilon=1),
            dp.GaussianMechanism("totals", dp.record_sum(pairs), rho=1, bounds=(0, 1)),
            dp.LaplaceMechanism("rows", pairs, epsilon=1, bounds=(0, 1)),
            dp.ExponentialMechanism("best", dp.record_sum(pairs[..., None]), epsilon=1, bounds=(0, 1)),
        ]
        total = dp.LaplaceMechanism("total", y.sum(), epsilon=1, bounds=(0, 1))
        person = dp.LaplaceMechanism("person", y, epsilon=1, bounds=(0, 1))
    before = [dp.guarantee(z) for z in (*stale, total, person)]
    pm.set_data({"data": np.zeros(10), "table": np.zeros((5, 3))}, model=model)
    for z in stale:
        with pytest.raises(ValueError, match=f"guarantee of {z.name} .* other lengths .* declare the model"):
            dp.guarantee(z)
    assert dp.guarantee(total).epsilon == dp.guarantee(person).epsilon == 1
    with pytest.raises(pm.logprob.utils.ParameterValueError, match="n_records"):
        pm.logp(stale[2], [0.1, 0.2, 0.3]).eval({y: np.full(10, 0.5)})
    pm.set_data({"data": np.ones(1000), "table": np.ones((5, 2))}, model=model)
    assert [dp.guarantee(z) for z in (*stale, total, person)] == before


def test_guarantees_of_totals_over_the_length_of_other_data_are_refused():
    """With a tenth of the divisor, the total changes by ten times what the noise is for."""
    with pm.Model() as model:
        other, y = pm.Data("other", np.zeros(50)), pm.Normal("y", 0, 1, shape=50)
        z = dp.LaplaceMechanism("z", y.sum() / other.shape[0], epsilon=1, bounds=(0, 1))
    assert dp.guarantee(z).epsilon == 1
    pm.set_data({"other": np.zeros(5)}, model=model)
    with pytest.raises(ValueError, match=r"guarantee of z .* other lengths .* declare the model"):
        dp.guarantee(z)


# ---- files that claim too much -----------------------------------------------------------------------


def content_of(release):
    return json.loads(release.to_json())


def declared(content, mechanism="LaplaceMechanism"):
    release = dp.Release.from_json(content if isinstance(content, str) else json.dumps(content))
    with pm.Model():
        y = pm.Beta("y", 1, 1, shape=4)
        return getattr(dp, mechanism)("z", dp.record_sum(y), observed=release)


CLAIMS = {
    "less noise": ("LaplaceMechanism", {"epsilon": 1}, {"parameters": {"scale": 1e-9}}),
    "a small epsilon": ("LaplaceMechanism", {"epsilon": 1}, {"guarantee": {"epsilon": 1e-3}}),
    "a small rho": ("GaussianMechanism", {"rho": 1}, {"guarantee": {"rho": 1e-3}}),
    "a small mu": ("GaussianMechanism", {"rho": 1}, {"guarantee": {"mu": 1e-3}}),
}


@pytest.mark.parametrize(("name", "noise", "changes"), CLAIMS.values(), ids=CLAIMS)
def test_claims_are_compared_with_the_noise(name, noise, changes):
    query = dp.record_sum(np.array([0.2, 0.9, 0.4, 0.6]))
    content = content_of(getattr(dp, name).release(query, bounds=(0, 1), **noise))
    assert dp.guarantee(declared(content, name)) is not None  # as it was written
    for field, change in changes.items():
        content[field].update(change)
    with pytest.raises(ValueError, match="observed states a guarantee that is better than its own noise"):
        declared(content, name)


NUMBERS, CODES = np.array([0.2, 0.9, 0.4, 0.6]), np.array([0, 1, 1, 0])
PAIRS = np.array([[0, 1], [1, 1], [1, 0]])
TABLES = np.array([[0.2, 0.3], [0.1, 0.5], [0.4, 0.4]])


def draw_under_bounds(kind, form):
    """A release whose file says nothing of a sensitivity that somebody gave."""
    level = "scale" if "Laplace" in kind else "sigma"
    query, noise = {
        "a total": (dp.record_sum(CODES), {level: 0.7}),
        "totals": (dp.record_sum(PAIRS), {level: 3.0}),
        "rows": (CODES, {"epsilon": 2.0} if level == "scale" else {"rho": 0.5}),
        "rows of pairs": (PAIRS, {level: np.array([[1.0, 2.0]])}),
        "levels": (dp.record_sum(PAIRS), {level: np.array([0.5, 4.0])}),
        "a multiple": (3 * dp.record_sum(PAIRS), {"epsilon": 2.0} if level == "scale" else {"rho": 0.5}),
    }[form]
    return getattr(dp, f"{kind}Mechanism").release(query, bounds=(0, 1), **noise)


FILES = {
    "laplace": lambda: dp.LaplaceMechanism.release(1.0, epsilon=5, sensitivity=1),
    **{
        f"{kind}, bounds alone, {form}": partial(draw_under_bounds, kind, form)
        for kind in ("Laplace", "Gaussian", "DiscreteLaplace", "DiscreteGaussian")
        for form in ("a total", "totals", "rows", "rows of pairs", "levels", "a multiple")
    },
    "laplace, clamped": lambda: dp.LaplaceMechanism.release(
        dp.record_sum(NUMBERS), epsilon=5, sensitivity=3, bounds=(0, 1)
    ),
    "gaussian": lambda: dp.GaussianMechanism.release(np.ones(3), epsilon=0.5, delta=1e-6, sensitivity=1),
    "gaussian, rho": lambda: dp.GaussianMechanism.release(np.ones(3), rho=0.5, sensitivity=1),
    "discrete laplace": lambda: dp.DiscreteLaplaceMechanism.release(np.array(3), epsilon=5, sensitivity=1),
    "discrete gaussian": lambda: dp.DiscreteGaussianMechanism.release(np.array(3), rho=5, sensitivity=1),
    "randomized response": lambda: dp.RandomizedResponse.release(CODES, epsilon=5, n_categories=2),
    "truths": lambda: dp.RandomizedResponse.release(CODES, p_truth=[0.9, 0.8, 0.7, 0.6], n_categories=2),
    "unary encoding": lambda: dp.UnaryEncoding.release(CODES, epsilon=5, n_categories=3),
    "histogram": lambda: dp.PerturbedHistogram.release(NUMBERS, epsilon=5, n_bins=4, bounds=(0, 1)),
    "histogram, other neighbours": lambda: dp.PerturbedHistogram.release(
        NUMBERS, rho=0.5, n_bins=4, bounds=(0, 1), neighbours="add-remove", noise="discrete_gaussian"
    ),
    "sample": lambda: dp.SmoothedHistogramSample.release(NUMBERS, epsilon=5, n_bins=4, n_released=3),
    "projection": lambda: dp.ProjectionMechanism.release(NUMBERS, epsilon=5, n_terms=3),
    "projection, rho": lambda: dp.ProjectionMechanism.release(NUMBERS, rho=5, n_terms=3),
    "wavelet": lambda: dp.WaveletMechanism.release(NUMBERS, epsilon=5, level=2),
    "binomial": lambda: dp.BinomialMechanism.release(dp.record_sum(CODES), n_trials=3, epsilon=5),
    "exponential": lambda: dp.ExponentialMechanism.release(
        dp.record_sum(TABLES), epsilon=5, bounds=(0, 1)
    ),
    "exponential, several": lambda: dp.ExponentialMechanism.release(
        dp.record_sum(np.ones((2, 3, 4))), epsilon=5, sensitivity=1
    ),
    "gradients": lambda: dp.KNormGradient.release(np.ones((4, 2)), epsilon=5, sensitivity=1),
    "quadratic": lambda: dp.KNormGradient.release(np.ones(2), epsilon=5, sensitivity=1, hessian=np.eye(2)),
    "objective": lambda: dp.ObjectivePerturbation.release(
        TABLES, np.array([1.0, 0, 1]), epsilon=5, regularization=1.0
    ),
}  # fmt: skip


@pytest.mark.parametrize("draw", FILES.values(), ids=FILES)
def test_claims_of_files_alone_are_compared_with_their_noise(draw):
    """They were believed, unless the release was declared in a model."""
    release = draw()
    stated = release.guarantee
    assert dp.guarantee(dp.Release.from_json(release.to_json())) == stated  # as it was written
    less = {k: 0.1 * v for k in ("epsilon", "rho", "mu") if (v := getattr(stated, k)) is not None}
    forged = dp.Release(release.value, release.mechanism, release.parameters, replace(stated, **less))
    forged = dp.Release.from_json(forged.to_json())
    for act in (lambda: dp.guarantee(forged), lambda: dp.guarantee([release, forged], delta=1e-3)):
        with pytest.raises(ValueError, match="states a guarantee that is better than its own noise"):
            act()


def test_claims_that_do_not_follow_from_the_noise_are_not_believed():
    """An approximate guarantee that this noise is not known to have: what it is known to have is said."""
    release = dp.ObjectivePerturbation.release(
        TABLES, np.array([1.0, 0, 1]), epsilon=0.5, delta=1e-6, regularization=1.0
    )
    better = dp.Release(
        release.value, release.mechanism, release.parameters, replace(release.guarantee, epsilon=0.01)
    )
    assert dp.guarantee(better) == dp.guarantee(release) == release.guarantee


def test_claims_of_a_mechanism_that_is_not_known():
    unknown = dp.Release(1.0, "Other", {"scale": 1.0, "sensitivity": 1.0}, dp.PrivacyGuarantee(1e-3))
    with pytest.raises(ValueError, match="'Other', which is no mechanism that is known here"):
        dp.guarantee(unknown)

    class Other(dp.LaplaceMechanism):
        """Of another package."""

        rv_op = dp.LaplaceMechanism.rv_op

    assert dp.guarantee(Other.release(1.0, epsilon=5, sensitivity=1)).epsilon == 5
    with pytest.raises(ValueError, match="states a guarantee that is better than its own noise"):
        dp.guarantee(unknown)


def without(release, *names):
    parameters = {k: v for k, v in release.parameters.items() if k not in names}
    return dp.Release(release.value, release.mechanism, parameters, release.guarantee)


def test_files_that_do_not_say_what_one_person_changes_are_refused():
    """The query may be any multiple of a sum: a file with bounds alone, of old, does not tell."""
    release = dp.LaplaceMechanism.release(dp.record_sum(NUMBERS) * 0.5, epsilon=5, bounds=(0, 1))
    assert release.parameters["changes"] == 0.5
    old = without(release, "changes")
    for file in (old, without(old, "bounds")):
        with pytest.raises(
            ValueError, match=r"does not say by how much one person .* declare it in a model, or"
        ):
            dp.guarantee(file)
    with pm.Model():
        y = pm.Beta("y", 1, 1, shape=4)
        z = dp.LaplaceMechanism("z", dp.record_sum(y) * 0.5, observed=old)
    assert dp.guarantee(z) == release.guarantee


@pytest.mark.parametrize(
    "changes", [-1.0, np.nan, np.inf, (1.0, 1.0), "1", None, ((1.0,), (1.0, 2.0))], ids=str
)
def test_changes_that_are_no_sizes_are_refused(changes):
    release = dp.LaplaceMechanism.release(dp.record_sum(NUMBERS), epsilon=5, bounds=(0, 1))
    forged = dp.Release(
        release.value, release.mechanism, dict(release.parameters) | {"changes": changes}, release.guarantee
    )
    with pytest.raises(ValueError, match=r"states changes = .* the release is damaged"):
        dp.guarantee(forged)


@pytest.mark.parametrize("parameters", [{}, {"changes": 1.0}, {"sensitivity": 1.0}], ids=str)
@pytest.mark.parametrize("name", ["Choice", "AddedWhole", "WholeRelease", "Mechanism"])
def test_what_mechanisms_have_in_common_is_no_mechanism(name, parameters):
    with pytest.raises(ValueError, match="which is no mechanism that is known here"):
        dp.guarantee(dp.Release(1.0, name, parameters, dp.PrivacyGuarantee(1.0)))


def test_a_file_that_states_two_sensitivities_is_refused():
    """The smaller of them was taken."""
    release = dp.LaplaceMechanism.release(dp.record_sum(NUMBERS), epsilon=5, bounds=(0, 1))
    both = dict(release.parameters) | {"sensitivity": 100.0}
    with pytest.raises(ValueError, match="states both sensitivity and changes"):
        dp.guarantee(dp.Release(release.value, release.mechanism, both, release.guarantee))


def test_a_file_without_a_noise_level_is_refused_in_words():
    release = dp.LaplaceMechanism.release(dp.record_sum(NUMBERS), epsilon=5, bounds=(0, 1))
    with pytest.raises(ValueError, match="needs exactly one way to give the noise level"):
        dp.guarantee(without(release, "scale"))


@pytest.mark.parametrize("kind", ["LaplaceMechanism", "GaussianMechanism"])
def test_a_sensitivity_that_is_less_by_rounding_lessens_no_noise(kind):
    """(hi - lo) / n may be; the noise is for what the bounds imply."""
    level = {"epsilon": 1.0} if kind == "LaplaceMechanism" else {"rho": 0.5}
    query, given = dp.record_sum(pt.constant(NUMBERS)), 1 - 5e-13
    noise = getattr(dp, kind).dist(query, bounds=(0, 1), sensitivity=given, **level).owner.inputs[-1].eval()
    exact = getattr(dp, kind).dist(query, bounds=(0, 1), **level).owner.inputs[-1].eval()
    assert noise == exact
    with pytest.raises(ValueError, match="contradicts bounds"):
        getattr(dp, kind).dist(query, bounds=(0, 1), sensitivity=1 - 1e-11, **level)


DAMAGE = {
    "epsilon true": lambda c: c["guarantee"].update(epsilon=True),
    "epsilon in words": lambda c: c["guarantee"].update(epsilon="1"),
    "a broken length": lambda c: c["value"].update(shape=[1.9], data=c["value"]["data"]),
    "a length in words": lambda c: c["value"].update(shape=["1"]),
    "a length to be guessed": lambda c: c["value"].update(shape=[-1]),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_damaged_files_are_refused(damage):
    content = content_of(dp.LaplaceMechanism.release(1.0, epsilon=1, sensitivity=1))
    damage(content)
    with pytest.raises(ValueError, match="release is damaged"):
        dp.Release.from_json(json.dumps(content))


def test_files_of_two_meanings_are_refused():
    text = dp.LaplaceMechanism.release(1.0, epsilon=1, sensitivity=1).to_json()
    twice = text[:-1] + ', "guarantee": {"epsilon": 0.01}}'
    with pytest.raises(ValueError, match="a field is in it twice"):
        dp.Release.from_json(twice)
    with pytest.raises(ValueError, match="not a release"):
        dp.Release.from_json("[" * 100_000)


def test_declarations_take_no_promises_of_their_users():
    with pm.Model():
        y = pm.Normal("y", shape=4)
        promise = dp.PrivacyGuarantee(1e-6)
        for internal in (
            {"op_class": object}, {"props": {}}, {"expected": ()}, {"promised": promise},
            {"neighbouring": "add-remove"},
        ):  # fmt: skip
            with pytest.raises(TypeError, match="unexpected keyword"):
                dp.LaplaceMechanism("z", y.mean(), scale=1, bounds=(0, 1), **internal)


HOSTILE = {
    "bounds, a number": ("laplace", {"bounds": 0}, r"bounds = 0, which is no pair"),
    "bounds, infinite": ("laplace", {"bounds": {"float": "inf"}}, r"bounds = inf, which is no pair"),
    "bounds, three": ("laplace", {"bounds": [0, 1, 2]}, r"bounds = \(0, 1, 2\), which is no pair"),
    "noise, a list": ("histogram", {"noise": []}, r"noise must be one of .*got"),
    "variant, a list": ("unary encoding", {"variant": []}, r"variant must be one of .*got"),
    "the query": ("laplace", {"query": 1}, r"states query, which is no parameter of LaplaceMechanism here"),
    "the rows": ("objective", {"x": 1}, r"states x, which is no parameter of ObjectivePerturbation here"),
    "the labels": ("objective", {"y": 1}, r"states y, which is no parameter of ObjectivePerturbation here"),
    "the utilities": ("exponential", {"utility": 1}, r"states utility, which is no parameter"),
}


@pytest.mark.parametrize(("which", "parameters", "message"), HOSTILE.values(), ids=HOSTILE)
def test_parameters_of_other_kinds_are_refused_in_words(which, parameters, message):
    content = content_of(FILES[which]())
    content["parameters"].update(parameters)
    release = dp.Release.from_json(json.dumps(content))

    def declared_in_a_model():
        with pm.Model():
            rows = pm.Beta("rows", 1, 1, shape=(4, 3))
            codes = pm.Categorical("codes", np.ones(3) / 3, shape=4)
            query = {
                "LaplaceMechanism": (dp.record_sum(rows[:, 0]),), "PerturbedHistogram": (rows[:, 0],),
                "UnaryEncoding": (codes,), "ExponentialMechanism": (dp.record_sum(rows),),
                "ObjectivePerturbation": (rows[:, :2], codes > 0),
            }[release.mechanism]  # fmt: skip
            getattr(dp, release.mechanism)("z", *query, observed=release)

    for act in (lambda: dp.guarantee(release), declared_in_a_model):
        with pytest.raises(ValueError, match=message):
            act()


@pytest.mark.parametrize("draw", [
    lambda **more: dp.PerturbedHistogram.release(NUMBERS, epsilon=1, n_bins=4, bounds=(0, 1), **more),
    lambda **more: dp.ProjectionMechanism.release(NUMBERS, epsilon=1, n_terms=3, **more),
])  # fmt: skip
def test_a_sensitivity_that_is_known_is_not_taken(draw):
    with pytest.raises(TypeError, match=r"takes no sensitivity=: .* Leave it out"):
        draw(sensitivity=2)
    assert draw().guarantee.epsilon == 1


# ---- sums in floating point ---------------------------------------------------------------------------

LOW, WINDOW, PEOPLE = 1.7e12, 1.0, 20_000
FACTORS = {
    "ones": lambda t: t * pt.ones(2),
    "on the left": lambda t: pt.ones((2, 1)) * t,
    "a mean beside a sum": lambda t: t / pt.stack([float(PEOPLE), 1.0]),
    "negative": lambda t: t * pt.stack([-1.0, 2.0]),
    "fractions": lambda t: t * pt.stack([1 / 3, 0.1, 0.7]),
    "nothing": lambda t: t * pt.stack([0.0, 1.0]),
    "twice": lambda t: -(t * pt.stack([3.0, 1.0])) / pt.stack([7.0, 0.1]),
    "whole numbers": lambda t: t * pt.ones(2, dtype="int64"),
}


def neighbours_that_floats_shift():
    """Data that differ in the first person by `WINDOW`, whose floating sums differ by 8 times that."""
    rng = np.random.default_rng(0)
    while True:
        one = LOW + rng.choice([0, 0.25, 0.5, 1.0], PEOPLE)
        other = one.copy()
        one[0], other[0] = LOW, LOW + WINDOW
        if abs(one.sum() - other.sum()) >= 8 * WINDOW:
            return one, other


def clamped_query(mechanism, query, bounds):
    release = mechanism.dist(query, epsilon=1.0, bounds=bounds)
    clamped, *params = release.owner.op.dist_params(release.owner)
    return clamped, [p.eval() for p in params]


@pytest.mark.parametrize("factor", FACTORS.values(), ids=FACTORS)
def test_public_arrays_shift_no_sum_by_more_than_the_share_of_one_record(factor):
    bounds, counts = (LOW, LOW + WINDOW), []
    for data in neighbours_that_floats_shift():
        query, (scale,) = clamped_query(dp.LaplaceMechanism, factor(dp.record_sum(data)), bounds)
        granule = _grid.granularity(scale)
        counts.append(_grid.bounded_in_granules(query, granule))
    noise = Fraction(scale.max() * _grid.inflation(1.0, counts[0], granule, scale, 1))
    moved = sum(abs(int(a) - int(b)) for a, b in zip(*(np.ravel(c.count) for c in counts), strict=True))
    assert counts[0].count.shape == tuple(query.shape.eval()) and moved > 0
    assert moved * Fraction(granule) / noise <= 1  # epsilon
    np.testing.assert_allclose(counts[0].count.astype(float) * granule, evaluate(query), rtol=1e-9)


def test_floating_point_would_have_shifted_them():
    """Power: added up in floats, these neighbours cost 8 times what is stated."""
    one, other = neighbours_that_floats_shift()
    sums = [evaluate(dp.record_sum(data) * pt.ones(2)) for data in (one, other)]
    assert (np.abs(sums[0] - sums[1]) >= 8 * WINDOW).all()


@pytest.mark.parametrize("mechanism", [dp.LaplaceMechanism, dp.GaussianMechanism, dp.ExponentialMechanism])
def test_bounds_give_no_sensitivity_of_what_is_added_in_floating_point(mechanism):
    x, w = np.linspace(0, 1, 9), pt.stack([1.0, np.inf])
    level = {"rho": 1.0} if mechanism is dp.GaussianMechanism else {"epsilon": 1.0}
    with pytest.raises(ValueError, match=r"how floating point rounds this sum, .* inside the sum"):
        mechanism.release(dp.record_sum(x) / w, bounds=(0, 1), **level)
    inside = mechanism.release(dp.record_sum(pt.constant(x)[:, None] / w), bounds=(0, 1), **level)
    own = dp.record_sum(dp.clamp(x, 0, 1)) / w
    assert inside.value.shape == mechanism.release(own, sensitivity=1.001, **level).value.shape


CHOICES = {
    "utilities": (dp.ExponentialMechanism, {}),
    **{f"gradients, norm {p}": (dp.KNormGradient, {"norm": p}) for p in (1, 2, np.inf)},
}


@pytest.mark.parametrize("mechanism", CHOICES)
def test_choices_among_large_utilities_cost_what_is_stated(mechanism, monkeypatch):
    """Log probabilities of a choice, of the numbers that it is drawn by; in floats they changed by 7."""
    kind, settings = CHOICES[mechanism]
    low, n, rng = 1e15, 100, np.random.default_rng(0)
    used = []
    monkeypatch.setattr(exponential, "choose_exactly", lambda g, *rows: used.append(rows) or np.zeros(1))
    worst = worst_of_floats = 0.0
    for _ in range(40):
        x = low + rng.choice([0, 0.125, 0.5, 1.0], n)
        found, floats = [], []
        for first in (low, low + 1):
            x[0] = first
            each = np.stack([x, 0 * x + low + 0.5], axis=1)
            query = dp.record_sum(each if kind is dp.ExponentialMechanism else each[:, :, None])
            release = kind.release(query, epsilon=1.0, bounds=(low, low + 1), **settings)
            assert release.parameters["sensitivity"] == pytest.approx(1, rel=1e-9)
            utility, epsilon, per_granule = used.pop()
            weights = [Fraction(u) * Fraction(epsilon[0]) / 2 / Fraction(per_granule[0]) for u in utility[0]]
            found.append(log_shares([w - max(weights) for w in weights]))
            floats.append(log_shares(0.5 * (each.sum(axis=0) - each.sum(axis=0).max())))
        worst = max(worst, np.abs(found[0] - found[1]).max())
        worst_of_floats = max(worst_of_floats, np.abs(floats[0] - floats[1]).max())
    assert 0.1 < worst <= 1.0
    assert worst_of_floats > 1.0  # power


@pytest.mark.parametrize("norm", [1, 2, np.inf])
def test_gradients_that_floats_cannot_tell_apart_are_refused(norm, monkeypatch):
    used = []
    noise = lambda op, rng, query, *params: used.append((query, params[-1])) or np.zeros(2)  # noqa: E731
    monkeypatch.setattr(QuadraticKNormGradientRV, "secure_draw", noise)
    settings = {"hessian": np.eye(2), "epsilon": 1.0, "norm": norm}
    pair = [np.stack([data, data], axis=1) for data in neighbours_that_floats_shift()]
    for data in pair:
        with pytest.raises(ValueError, match="subtract a public number, such as the lower end of `bounds`"):
            dp.KNormGradient.release(-dp.record_sum(data), bounds=(LOW, LOW + WINDOW), **settings)
        release = dp.KNormGradient.release(-dp.record_sum(data - LOW), bounds=(0, WINDOW), **settings)
        assert release.parameters["sensitivity"] == used[-1][1]
    (one, sensitivity), (other, _) = used
    moved = np.linalg.norm(one - other, norm)
    assert moved == pytest.approx(np.linalg.norm([WINDOW, WINDOW], norm), rel=1e-9)
    assert moved + 2 * 2.0**-20 * WINDOW <= sensitivity * (1 + 1e-9)


@pytest.mark.parametrize("mechanism", CHOICES)
def test_a_choice_that_no_record_changes_is_refused(mechanism):
    kind, settings = CHOICES[mechanism]
    with pytest.raises(ValueError, match="sensitivity must be a finite number > 0, got 0"):
        kind.release(dp.record_sum(np.ones((5, 2))) * 0.0, epsilon=1.0, bounds=(0, 1), **settings)


def log_shares(weights):
    weights = np.array([float(w) for w in weights])
    return weights - np.log(np.exp(weights).sum())


@pytest.mark.parametrize("mechanism", CHOICES)
def test_the_sensitivity_of_a_choice_covers_rounding(mechanism, monkeypatch, rng):
    """One record moves no utility, in granules, by more than the sensitivity that the draw divides by."""
    kind, settings = CHOICES[mechanism]
    used, moved = [], []
    monkeypatch.setattr(exponential, "choose_exactly", lambda g, *rows: used.append(rows) or np.zeros(1))
    x = rng.random((30, 2, 3)) * 10.0 ** rng.integers(-9, 1, size=(30, 2, 3))
    for _ in range(20):
        other = x.copy()
        other[rng.integers(30)] = rng.choice([0.0, 1.0, rng.random() * 1e-13], size=(2, 3))
        for data in (x, other):
            query = dp.record_sum(data[:, :, 0] if kind is dp.ExponentialMechanism else data) / 3.0
            release = kind.release(query, epsilon=1.0, bounds=(0, 1), **settings)
        (before, _, per_granule), (after, *_) = used[-2:]
        moved += [abs(int(a) - int(b)) for a, b in zip(before[0], after[0], strict=True)]
        x = other
    assert per_granule[0] / 4 < max(moved) <= per_granule[0]
    with pm.Model() as model:  # the analyst's sensitivity is the one that it was drawn with
        records = pm.Uniform("x", shape=x.shape[:2] if kind is dp.ExponentialMechanism else x.shape)
        kind("z", dp.record_sum(records) / 3.0, observed=release)
    node = model["z"].owner
    assert node.op.dist_params(node)[-1].eval() == release.parameters["sensitivity"]
    assert node.op.guarantee == release.guarantee
