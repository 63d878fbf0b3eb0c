"""Releases that were processed after the noise: densities and draws of all noises, declarations, files."""

from __future__ import annotations

import json
import math
import pickle
from itertools import permutations

import cloudpickle
import numpy as np
import pandas as pd
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
import scipy.stats as st

import pymc_dp as dp
from pymc_dp.privacy.processing import SUPPRESSED, Processing

INF, NAN = math.inf, math.nan
QUERY = 3.0
NOISES = {
    "laplace": (dp.LaplaceMechanism, {"scale": 2.5}, st.laplace(QUERY, 2.5)),
    "gaussian": (dp.GaussianMechanism, {"sigma": 3.0}, st.norm(QUERY, 3.0)),
    "discrete laplace": (dp.DiscreteLaplaceMechanism, {"scale": 2.5}, st.dlaplace(1 / 2.5, loc=QUERY)),
    "discrete gaussian": (dp.DiscreteGaussianMechanism, {"sigma": 3.0}, None),
}
PROCESSINGS = [
    Processing.of(**given, order=order)
    for given in (
        {"clip": (0, None)},
        {"clip": (-2, 7)},
        {"round_to": 5},
        {"round_to": 2},
        {"suppress_below": 4},
        {"clip": (0, 9), "round_to": 5},
        {"clip": (1, None), "suppress_below": 4},
        {"round_to": 4, "suppress_below": 3},
        {"clip": (0, 9), "round_to": 5, "suppress_below": 5},
        {"clip": (-3, None), "round_to": 2, "suppress_below": 2},
    )
    for order in permutations(given)
]


def whole_law(law):
    """Probabilities of whole numbers far around the query."""
    z = np.arange(-200.0, 207.0)
    weight = np.exp(-0.5 * ((z - QUERY) / 3.0) ** 2) if law is None else law.pmf(z)
    return z, weight / weight.sum()


def processed_law(name, processing):
    """Published values and their probabilities, and points with their densities, by SciPy's law of noise."""
    law = NOISES[name][2]
    if name.startswith("discrete"):
        z, weight = whole_law(law)
        values, at = np.unique(processing.process(np, z), return_inverse=True)
        return dict(zip(values.tolist(), np.bincount(at, weight), strict=True)), {}
    # between neighbouring thousandths nothing changes but what is neither rounded, clipped nor suppressed
    z = np.arange(-80_000, 86_000) / 1000 + 0.0005
    mass = np.diff(law.cdf(np.arange(-80_000, 86_001) / 1000))
    y = processing.process(np, z)
    kept = y == z
    atoms = np.unique(y[~kept])
    return (
        {float(v): mass[y == v].sum() for v in atoms},
        {float(v): law.pdf(v) for v in z[kept][:: max(1, kept.sum() // 50)]},
    )


def log_density(name, processing, values, query=QUERY):
    mechanism, noise, _ = NOISES[name]
    rv = mechanism.dist(np.full(len(values), query), **noise, processing=processing)
    return pm.logp(rv, np.asarray(values, dtype=rv.dtype)).eval()


@pytest.mark.usefixtures("python_mode")
@pytest.mark.parametrize("name", NOISES)
def test_density_is_that_of_what_is_published(name):
    for processing in PROCESSINGS:
        atoms, density = processed_law(name, processing)
        likely = {v: p for v, p in atoms.items() if p > 1e-9}
        found = np.exp(log_density(name, processing, list(likely)))
        assert np.allclose(found, list(likely.values()), rtol=1e-6, atol=1e-9), processing
        if name.startswith("discrete") or processing.round_to is not None:
            assert abs(found.sum() - 1) < 1e-6, processing
        if density:
            assert np.allclose(
                np.exp(log_density(name, processing, list(density))), list(density.values()), rtol=1e-9
            ), processing


@pytest.mark.usefixtures("python_mode")
@pytest.mark.parametrize("name", NOISES)
def test_densities_at_forty_scales(name):
    """In the far tail a rounding interval has the mass of its nearest end, times what is known exactly."""
    level = next(iter(NOISES[name][1].values()))
    far = round(40 * level / 5) * 5.0
    with_steps = Processing.of(round_to=5)
    found = log_density(name, with_steps, [far + 100.0, 100.0 - far], query=100.0)
    near, width = far - 2.5, 5.0
    if name.startswith("discrete"):
        k = np.arange(far - 2, far + 3)
        terms = -k / level if "laplace" in name else -0.5 * (k / level) ** 2
        total = np.logaddexp.reduce(terms)
        z = np.arange(-400, 401)
        total -= np.logaddexp.reduce(-abs(z) / level if "laplace" in name else -0.5 * (z / level) ** 2)
    elif name == "laplace":
        total = -near / level + math.log(-math.expm1(-width / level)) - math.log(2)
    else:
        total = st.norm.logsf(near, scale=level)
        total += math.log1p(-math.exp(st.norm.logsf(near + width, scale=level) - total))
    assert np.allclose(found, total, rtol=1e-12)


@pytest.mark.parametrize("name", NOISES)
def test_draws_follow_the_density(name, rng):
    for processing in PROCESSINGS[:: 1 if "discrete" in name else 2]:
        mechanism, noise, _ = NOISES[name]
        rv = mechanism.dist(QUERY, **noise, processing=processing)
        op = rv.owner.op
        draws = np.asarray(op.rng_fn(rng, np.full(4000, QUERY), next(iter(noise.values())), (4000,)))
        check_draws(draws, name, processing)
        assert draws.dtype == rv.dtype


@pytest.mark.parametrize("name", NOISES)
def test_draws_in_machine_code(name):
    mechanism, noise, _ = NOISES[name]
    for processing in (PROCESSINGS[0], PROCESSINGS[-1]):
        rv = mechanism.dist(np.full(4000, QUERY), **noise, processing=processing)
        draws = pm.draw(rv, random_seed=5)
        assert draws.dtype == rv.dtype
        check_draws(draws, name, processing)


def check_draws(draws, name, processing):
    """Chi-square among values with a probability; what is published unchanged counts as one."""
    atoms, density = processed_law(name, processing)
    seen = np.array([np.sum(draws == v) for v in atoms])
    expected = len(draws) * np.array(list(atoms.values()))
    seen, expected = (
        np.append(seen, len(draws) - seen.sum()),
        np.append(expected, len(draws) - expected.sum()),
    )
    if density:  # a number in between equals no atom
        assert not set(np.unique(draws)) <= set(atoms)
    often = expected >= 8
    seen, expected = (np.append(x[often], x[~often].sum()) for x in (seen, expected))
    few = expected[-1] < 1e-3
    assert not few or seen[-1] == 0
    if few:
        seen, expected = seen[:-1], expected[:-1]
    if len(seen) > 1:
        assert st.chisquare(seen, expected * seen.sum() / expected.sum()).pvalue > 1e-6, processing


@pytest.mark.usefixtures("python_mode")
@pytest.mark.parametrize("name", NOISES)
def test_gradients_by_query_and_level(name):
    """NUTS on parameters of the query or of the noise needs them, at suppressed entries and points, too."""
    mechanism, noise, _ = NOISES[name]
    (label,) = noise
    q, s = pt.vector("q"), pt.scalar("s")
    processing = Processing.of(clip=(0, 30), suppress_below=2)
    rv = mechanism.dist(pt.floor(q) if "discrete" in name else q, **{label: s}, processing=processing)
    value = np.array([SUPPRESSED, 5.0, 30.0])
    total = pm.logp(rv, value).sum()
    slopes = pytensor.function([q, s], [total, *pytensor.grad(total, [q, s])])
    at, h = np.array([3.0, 4.0, 28.0]), 1e-5
    for level in (0.1, 2.5):
        _, by_query, by_level = slopes(at, level)
        assert np.isfinite(by_query).all() and np.isfinite(by_level)
        numeric = (slopes(at, level + h)[0] - slopes(at, level - h)[0]) / (2 * h)
        assert abs(by_level - numeric) < 1e-4 * max(1, abs(numeric))


# -- declarations -----------------------------------------------------------------------------------


def declare(observed, mechanism=dp.LaplaceMechanism, **noise):
    with pm.Model() as model:
        x = pm.Binomial("x", 20, 0.3, shape=3)
        mechanism("z", x, **(noise or {"epsilon": 0.5, "sensitivity": 1}), observed=observed)
    return model


VALUES = [5.0, 15.0, NAN]


def published(values=VALUES, **given):
    return dp.postprocessed(values, **(given or {"clip": (0, None), "round_to": 5, "suppress_below": 5}))


def test_suppressed_entries_are_observed_and_not_imputed():
    processing = {"clip": (0, None), "round_to": 5, "suppress_below": 10}
    for values in (
        [NAN, 15.0, NAN],
        np.ma.masked_array([0, 15, 0], [True, False, True]),
        pd.Series([None, 15, None]),
        pd.Series([None, 15, None], dtype="Int64"),
        [SUPPRESSED, 15, SUPPRESSED],
    ):
        model = declare(dp.postprocessed(values, **processing))
        assert [rv.name for rv in model.free_RVs] == ["x"]
        observed = model.rvs_to_values[model["z"]].data
        assert np.array_equal(observed, [SUPPRESSED, 15.0, SUPPRESSED])


def test_the_guarantee_is_that_of_the_noise():
    processing = {"clip": (0, None), "suppress_below": 10}
    z = declare(dp.postprocessed([NAN, 15.0, NAN], **processing))["z"]
    assert dp.guarantee(z) == dp.guarantee(declare([1.0, 2.0, 3.0])["z"])
    assert dp.guarantee(z).epsilon == 0.5


def test_whole_numbers_stay_whole():
    model = declare(dp.postprocessed([0, 4, 9.0], clip=(0, None)), dp.DiscreteLaplaceMechanism)
    assert model["z"].dtype == "int64" and model.rvs_to_values[model["z"]].data.dtype == np.int64
    model = declare(dp.postprocessed([0, 4, NAN], suppress_below=0), dp.DiscreteLaplaceMechanism)
    assert model["z"].dtype.startswith("float")


@pytest.mark.usefixtures("python_mode")
def test_other_values_can_be_set():
    """The interval follows from the value in the graph: data, do, observe, copies and pickles."""
    with pm.Model() as model:
        data = pm.Data("data", [5.0, 10.0, 0.0])
        x = pm.Binomial("x", 20, 0.3, shape=3)
        dp.LaplaceMechanism("z", x, scale=2.0, observed=dp.postprocessed(data, clip=(0, None), round_to=5))
    point = {"x": np.array([4, 9, 2])}
    logp = model.compile_logp(vars=[model["z"]])
    first = logp(point)
    pm.set_data({"data": [10.0, 10.0, 0.0]}, model=model)
    assert logp(point) < first
    law = st.laplace(point["x"], 2.0)
    expected = np.log(law.cdf([12.5, 12.5, 2.5]) - law.cdf([7.5, 7.5, -INF])).sum()
    assert abs(logp(point) - expected) < 1e-9
    free = declare(published(None), scale=2.0)
    assert {rv.name for rv in free.free_RVs} == {"x", "z"}
    again = pm.observe(cloudpickle.loads(cloudpickle.dumps(free.copy())), {"z": [5.0, 15.0, SUPPRESSED]})
    same = declare(published(), scale=2.0)
    for m in (again, pm.do(again, {})):
        assert m.compile_logp()(point) == same.compile_logp()(point)
    assert again["z"].owner.op == same["z"].owner.op


def test_predictive_draws_are_published_values():
    model = declare(published())
    with model:
        draws = pm.sample_prior_predictive(200, random_seed=1).prior_predictive["z"].values
    shown = draws[np.isfinite(draws)]
    assert (shown % 5 == 0).all() and (shown >= 5).all() and np.isneginf(draws).any()


BAD = {
    "no multiple": (
        [3.0],
        {"round_to": 5},
        ValueError,
        "the value 3 was published, no multiple of round_to = 5",
    ),
    "outside": (
        [-1.0],
        {"clip": (0, None)},
        ValueError,
        r"the value -1 was published, outside of clip = \(0, inf\)",
    ),
    "below": (
        [3.0],
        {"suppress_below": 5},
        ValueError,
        "the value 3 was published, below suppress_below = 5",
    ),
    "below, in the end": (
        [3.0],
        {"clip": (0, None), "suppress_below": 5},
        ValueError,
        "published, below suppress_below = 5",
    ),
    "missing": (
        [NAN, 1.0, NAN],
        {"clip": (0, None)},
        ValueError,
        "values has 2 missing entries, but nothing is",
    ),
    "infinite": ([INF], {"clip": (0, None)}, ValueError, "infinite entries"),
    "nothing suppressed": (
        [NAN],
        {"clip": (5, None), "suppress_below": 5},
        ValueError,
        "an entry is suppressed, but nothing that is clipped",
    ),
    "text": (["a"], {"clip": (0, None)}, TypeError, "values must hold real numbers"),
    "complex": ([1j], {"clip": (0, None)}, TypeError, "values must hold real numbers, got dtype complex"),
    "boolean": ([True], {"clip": (0, None)}, TypeError, "values must hold real numbers, got dtype bool"),
    "ragged": ([[1.0], [1.0, 2.0]], {"clip": (0, None)}, TypeError, "rows of different lengths"),
}


@pytest.mark.parametrize(("values", "given", "error", "message"), BAD.values(), ids=BAD)
def test_values_that_nothing_gives(values, given, error, message):
    with pytest.raises(error, match=message):
        dp.postprocessed(values, **given)


def test_declarations_that_are_refused():
    whole = {"mechanism": dp.DiscreteGaussianMechanism, "sigma": 2.0}
    with pytest.raises(ValueError, match=r"clip has the end 0.5, but DiscreteGaussianMechanism gives whole"):
        declare(dp.postprocessed([1.0, 2.0, 3.0], clip=(0.5, None)), **whole)
    with pytest.raises(ValueError, match=r"round_to = 0.5 does not go with DiscreteGaussianMechanism"):
        declare(dp.postprocessed([1.0, 2.0, 3.0], round_to=0.5), **whole)
    with pytest.raises(ValueError, match=r"observed must be whole numbers, got 2.5"):
        declare(dp.postprocessed([1.0, 2.5, 3.0], clip=(0, None)), **whole)
    with pytest.raises(ValueError, match="observed means a release of shape"):
        declare(dp.postprocessed([1.0, 2.0], clip=(0, None)))
    with pytest.raises(
        TypeError, match="observed was processed after the noise, of which RandomizedResponse"
    ):
        declare(published(), dp.RandomizedResponse, epsilon=1.0, n_categories=21)
    with pytest.raises(TypeError, match="of which PerturbedHistogram knows no law"):
        declare(published(), dp.PerturbedHistogram, epsilon=1.0, edges=[0, 1, 2])
    with pytest.raises(TypeError, match=r"observed=dp.postprocessed"):
        dp.LaplaceMechanism.dist(1.0, scale=1.0, processing="clip")
    with pytest.raises(TypeError, match=r"process the release that it returns"):
        dp.LaplaceMechanism.release(1.0, scale=1.0, processing=Processing.of(clip=(0, None)))


def test_values_set_later_are_checked_before_sampling():
    with pm.Model():
        data = pm.Data("data", [5.0, 10.0])
        x = pm.Binomial("x", 20, 0.3, shape=2)
        dp.LaplaceMechanism("z", x, scale=2.0, observed=dp.postprocessed(data, clip=(0, None), round_to=5))
        pm.set_data({"data": [5.0, SUPPRESSED]})
        with pytest.raises(ValueError, match="The release z has 1 missing or infinite values"):
            pm.sample(10, tune=10, chains=1, progressbar=False)
        pm.set_data({"data": [5.0, 12.0]})
        with pytest.raises(
            ValueError, match="z cannot be what was published: the value 12 was published, no mul"
        ):
            pm.sample(10, tune=10, chains=1, progressbar=False)


# -- published files --------------------------------------------------------------------------------


def test_releases_are_processed_by_the_custodian(seeded_entropy):
    release = dp.DiscreteLaplaceMechanism.release(np.array([2, 31, 17]), scale=2.0, sensitivity=1)
    given = {"clip": (0, None), "round_to": 5, "suppress_below": 10}
    processed = release.postprocessed(**given)
    assert processed.guarantee == release.guarantee and processed.parameters == release.parameters
    assert np.isnan(processed.value[0]) and (processed.value[1:] % 5 == 0).all()
    again = dp.Release.from_json(processed.to_json())
    assert again == processed and again.processing == processed.processing
    assert pickle.loads(pickle.dumps(processed)) == processed
    assert "clipped to (0.0, inf), then rounded to multiples of 5.0" in str(processed)
    by_file = declare(again, dp.DiscreteLaplaceMechanism, records=["x"])
    by_hand = declare(dp.postprocessed(processed.value, **given), dp.DiscreteLaplaceMechanism, scale=2.0)
    point = {"x": np.array([3, 12, 15])}
    with pytensor.config.change_flags(mode="FAST_COMPILE"):
        assert by_file.compile_logp()(point) == by_hand.compile_logp()(point)
    assert dp.guarantee(by_file["z"]) == release.guarantee == dp.guarantee(again)


def test_values_off_the_grid_of_a_release_are_those_of_a_processed_one(seeded_entropy):
    release = dp.LaplaceMechanism.release(np.array([2.0, 31.0, 17.0]), scale=2.0, sensitivity=1)
    processed = release.postprocessed(round_to=0.3)
    model = declare(dp.Release.from_json(processed.to_json()), records=["x"])
    assert np.isfinite(model.rvs_to_values[model["z"]].data).all()


def test_versions_of_the_format():
    plain = dp.Release([31, -2], "DiscreteLaplaceMechanism", {"scale": 2.0})
    assert json.loads(plain.to_json())["version"] == 1 and "postprocessed" not in plain.to_json()
    content = json.loads(plain.postprocessed(clip=(0, None)).to_json())
    assert content["version"] == 2 and content["postprocessed"]["clip"] == [0.0, None]
    for damaged in ({**content, "version": 1}, {k: v for k, v in content.items() if k != "postprocessed"}):
        with pytest.raises(ValueError, match="This release is damaged"):
            dp.Release.from_json(json.dumps(damaged))
    content["postprocessed"]["clip"] = [3, 1]
    with pytest.raises(ValueError, match="This release is damaged: clip must be"):
        dp.Release.from_json(json.dumps(content))


def test_releases_that_cannot_be_processed():
    plain = dp.Release([31, -2], "DiscreteLaplaceMechanism", {"scale": 2.0})
    with pytest.raises(ValueError, match="processed already"):
        plain.postprocessed(clip=(0, None)).postprocessed(round_to=5)
    with pytest.raises(ValueError, match=r"clip has the end 0\.5"):
        plain.postprocessed(clip=(0.5, None))
    with pytest.raises(TypeError, match="A release by UnaryEncoding cannot be processed"):
        dp.Release([1, 0], "UnaryEncoding", {}).postprocessed(clip=(0, None))
    with pytest.raises(TypeError, match=r"release.postprocessed"):
        dp.postprocessed(plain, clip=(0, None))


@pytest.mark.statistical
def test_plans_of_processed_releases():
    """The noise is said by its standard deviation, not by that of what is published of it."""
    with pm.Model() as model:
        x = pm.Binomial("x", 20, pm.Beta("p", 2, 2), shape=6)
        observed = dp.postprocessed(None, clip=(0, None), round_to=5, suppress_below=5)
        dp.LaplaceMechanism("z", dp.record_sum(x), scale=3.0, observed=observed)
    planned = dp.plan(model, n_simulations=1, draws=50, tune=50, n_prior=2000, random_seed=1)
    (release,) = planned.releases
    assert abs(release.noise_sd / (3 * math.sqrt(2)) - 1) < 0.1
    assert release.additive and 10 < release.statistic_sd < 50


def test_no_step_moves_an_unobserved_processed_release():
    """Also where the user names one: NUTS would never come to a value that was clipped."""
    model = declare(published(None), scale=2.0)
    for step in (None, [pm.NUTS([model["z"]], model=model, initial_point=model.initial_point())]):
        with pytest.raises(ValueError, match="z is a processed release without observed values"):
            pm.sample(10, tune=10, chains=1, progressbar=False, step=step, model=model)
