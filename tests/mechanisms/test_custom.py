"""A mechanism of the user's own: what it is to samplers, to PyMC and to accounting; what is refused."""

import math
import warnings

import cloudpickle
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.distributions.dist_math import check_parameters
from pymc.model.fgraph import clone_model

import pymc_dp as dp
from pymc_dp.mechanisms import guarantee
from tests.custom_noise import (
    EPSILON,
    GAMMA,
    WIDTH,
    huber_logp,
    huber_logpdf,
    huber_random,
    plane_logp,
    plane_logpdf,
    plane_random,
    staircase_logp,
    staircase_pdf,
    staircase_random,
)
from tests.statistics.drive import record_sweeps

SCALE = 2.0


def laplace_logp(value, query):
    return -pt.log(2 * SCALE) - pt.abs(value - query) / SCALE


def laplace_random(query, rng, size):
    return rng.laplace(query, SCALE, size)


def laplace_of_scale(value, query, scale):
    density = -pt.log(2 * scale) - pt.abs(value - query) / scale
    return check_parameters(density, scale > 0, msg="scale > 0")


def declare(query, observed, custom=True):
    if custom:
        promise = dp.PrivacyGuarantee(1.0)
        return dp.CustomMechanism(
            "z", query, SCALE, logp=laplace_of_scale, guarantee=promise, observed=observed
        )
    return dp.LaplaceMechanism("z", query, scale=SCALE, sensitivity=2, observed=observed)


def normal_sum(custom=True):
    with pm.Model() as model:
        y = pm.Normal("y", pm.Normal("mu", 0, 2), 1, shape=6)
        declare(dp.record_sum(y), 4.0, custom)
    return model


def normal_rows(custom=True):
    with pm.Model() as model:
        y = pm.Normal("y", pm.Normal("mu", 0, 2), 1, shape=6)
        declare(y, np.linspace(-1, 2, 6), custom)
    return model


def counts(custom=True):
    with pm.Model() as model:
        theta = pm.Dirichlet("theta", np.ones(3))
        c = pm.Categorical("c", theta, shape=8)
        declare(dp.record_sum(pt.eq(c[:, None], np.arange(3))), [1.0, 2.0, 4.0], custom)
    return model


def swept(model, record):
    with model:
        return record_sweeps(dp.RecordImputation(), model, record, 50)[0]


@pytest.mark.parametrize("build", [normal_sum, normal_rows, counts])
def test_sweeps_are_those_of_the_mechanism(build):
    """A sweep sees the log density only, and this is the same graph: the same bits."""
    record = "c" if build is counts else "y"
    np.testing.assert_array_equal(swept(build(), record), swept(build(custom=False), record))


def test_booleans_in_a_density_are_numbers():
    """Changes of the density are taken in the graph, where booleans have no difference."""

    def with_booleans(value, query):
        u = pt.abs(value - query)
        step = pt.floor(u)
        return staircase_logp(0.0, 0.0) - EPSILON * (step + pt.ge(u - step, GAMMA))

    draws = []
    for logp in (with_booleans, staircase_logp):
        with pm.Model() as model:
            y = pm.Bernoulli("y", pm.Beta("p", 2, 2), shape=9)
            dp.CustomMechanism("z", dp.record_sum(y), logp=logp, observed=4.3)
        draws.append(swept(model, "y"))
    np.testing.assert_array_equal(*draws)


def test_other_noise_gives_other_sweeps():
    """The comparison above can fail."""
    draws = []
    for scale in (SCALE, 1.01 * SCALE):
        with pm.Model() as model:
            y = pm.Normal("y", pm.Normal("mu", 0, 2), 1, shape=6)
            dp.CustomMechanism("z", dp.record_sum(y), scale, logp=laplace_of_scale, observed=9.0)
        draws.append(swept(model, "y"))
    assert (draws[0] != draws[1]).any()


@pytest.mark.parametrize("build", [normal_sum, normal_rows, counts])
def test_draws_are_those_of_the_mechanism(build):
    """All that pm.sample does by itself; parameters are moved by functions that may be rounded otherwise."""
    draws = []
    for custom in (True, False):
        with build(custom):
            draws.append(
                pm.sample(
                    20, tune=20, chains=1, random_seed=3, progressbar=False, compute_convergence_checks=False
                )
            )
    one, other = (d.posterior for d in draws)
    assert set(one) == set(other)
    for name in one:
        np.testing.assert_allclose(one[name].values, other[name].values, rtol=1e-9)


def evaluated(release, value):
    return pm.logp(release, value).eval()


def test_one_density_for_each_entry_each_row_or_the_whole():
    rng = np.random.default_rng(1)
    q, z = rng.normal(size=(5, 2)), rng.normal(size=(5, 2))
    each = dp.CustomMechanism.dist(q, 0.7, logp=huber_logp)
    np.testing.assert_allclose(evaluated(each, z), huber_logpdf(z - q, 0.7), rtol=1e-12)

    def by_row(value, query, scale):
        return (
            -pt.sqrt(pt.sum((value - query) ** 2, axis=-1)) / scale
            - 2 * pt.log(scale)
            - math.log(2 * math.pi)
        )

    rows = dp.CustomMechanism.dist(q, 0.7, logp=by_row)
    assert rows.owner.op.ndim_supp == 1
    np.testing.assert_allclose(evaluated(rows, z), plane_logpdf(z - q, 0.7), rtol=1e-12)
    whole = dp.CustomMechanism.dist(q[0], 0.7, logp=plane_logp)
    assert whole.owner.op.ndim_supp == 1
    assert evaluated(whole, z[0]) == pytest.approx(plane_logpdf(z[0] - q[0], 0.7), rel=1e-12)
    table = dp.CustomMechanism.dist(q, logp=lambda v, q: -pt.sum(pt.abs(v - q)) - 10 * math.log(2))
    assert table.owner.op.ndim_supp == 2 and evaluated(table, z).shape == ()


def test_a_release_of_another_shape():
    """One of k candidates, by their utilities; its density is that of the exponential mechanism."""

    def logp(value, query):
        index = pt.arange(query.shape[0])
        return pt.sum(pt.switch(pt.eq(index, value), query, 0.0)) - pt.logsumexp(query)

    def random(query, rng, size):
        weights = np.exp(query - query.max())
        return np.full(size, rng.choice(len(query), p=weights / weights.sum()))

    utility = np.array([0.3, 1.1, -0.4])
    mine = dp.CustomMechanism.dist(utility, logp=logp, random=random, signature="(k)->()", dtype="int64")
    theirs = dp.ExponentialMechanism.dist(utility, epsilon=2.0, sensitivity=1.0)
    assert mine.type.shape == () and mine.dtype == "int64"
    for k in range(3):
        assert evaluated(mine, k) == pytest.approx(float(evaluated(theirs, k)), rel=1e-12)
    drawn = pm.draw(mine, draws=2000, random_seed=1)
    p = np.exp(utility) / np.exp(utility).sum()
    error = np.sqrt(p * (1 - p) / 2000)
    assert (np.abs(np.bincount(drawn, minlength=3) / 2000 - p) < 4.5 * error).all()


def test_survives_what_pymc_does_to_models():
    model = normal_sum()
    promise = guarantee(model["z"])
    assert promise.stated and promise.epsilon == 1
    for copy in (clone_model(model), pm.do(model, {"mu": 0.3}), cloudpickle.loads(cloudpickle.dumps(model))):
        assert guarantee(copy["z"]) == promise
        assert np.isfinite(copy.compile_logp(mode="FAST_COMPILE")(copy.initial_point()))


@pytest.mark.filterwarnings("error:.*object mode")
def test_predictive_draws_are_the_user_s():
    import scipy.stats as st

    with pm.Model() as model:
        y = pm.Normal("y", pm.Normal("mu", 0, 2), 1, shape=6)
        dp.CustomMechanism("z", dp.record_sum(y), logp=staircase_logp, random=staircase_random, observed=4.0)
        dp.CustomMechanism("rows", y, 0.7, logp=huber_logp, random=huber_random, observed=np.zeros(6))
    prior = pm.sample_prior_predictive(1000, model=model, random_seed=1)
    noise = prior.prior_predictive["z"].values[0] - prior.prior["y"].values[0].sum(-1)
    grid = np.linspace(-40, 40, 400_001)
    cdf = np.cumsum(staircase_pdf(grid)) * (grid[1] - grid[0])
    assert st.kstest(noise, lambda x: np.interp(x, grid, cdf)).pvalue > 1e-3
    assert st.kstest(1.4 * noise, lambda x: np.interp(x, grid, cdf)).pvalue < 1e-3  # power
    rows = (prior.prior_predictive["rows"].values - prior.prior["y"].values).ravel()
    cdf = np.cumsum(np.exp(huber_logpdf(grid, 0.7))) * (grid[1] - grid[0])
    assert st.kstest(rows, lambda x: np.interp(x, grid, cdf)).pvalue > 1e-3
    prior["posterior"] = prior["prior"]
    again = pm.sample_posterior_predictive(prior, model=model, random_seed=2, progressbar=False)
    assert again.posterior_predictive["z"].shape == (1, 1000)


def test_draws_of_whole_releases():
    release = dp.CustomMechanism.dist(np.array([3.0, -1.0]), 0.5, logp=plane_logp, random=plane_random)
    drawn = pm.draw(release, draws=3000, random_seed=4) - [3.0, -1.0]
    radius = np.hypot(*drawn.T)  # Gamma(2, scale)
    assert abs(radius.mean() - 1.0) < 4.5 * radius.std() / math.sqrt(3000)


def test_without_random_nothing_is_drawn():
    release = dp.CustomMechanism.dist(0.0, logp=staircase_logp)
    with pytest.raises(NotImplementedError, match="declared without random="):
        pm.draw(release)


# -- guarantees ---------------------------------------------------------------------------------------


def test_the_guarantee_is_reported_as_stated():
    model = normal_sum()
    assert "stated by the user, not proven" in str(guarantee(model))
    assert str(guarantee(model["z"])).startswith("Stated by the user, not proven: pure")
    assert "stated=True" in repr(guarantee(model["z"]))
    assert guarantee(model, delta=1e-6).stated and guarantee(model["z"]).to_zcdp().stated
    with model:
        dp.GaussianMechanism("w", dp.record_sum(model["y"]), sigma=3, sensitivity=2, observed=1.0)
    both = guarantee(model)
    assert both.stated and "That of z is stated by the user, not proven." in str(both)
    release = dp.Release(1.0, "CustomMechanism", {}, guarantee(model["z"]))
    again = dp.Release.from_json(release.to_json())
    assert again.guarantee.stated and '"stated": true' in release.to_json()
    proven = dp.Release(1.0, "LaplaceMechanism", {"scale": 1.0}, dp.PrivacyGuarantee(1.0))
    assert "stated" not in proven.to_json() and not dp.Release.from_json(proven.to_json()).guarantee.stated


@pytest.mark.parametrize("disjoint", [False, True])
def test_a_composed_guarantee_is_no_less_stated(disjoint):
    said = guarantee([dp.PrivacyGuarantee(1.0), dp.PrivacyGuarantee(2.0)], disjoint=disjoint)
    reported = guarantee(dp.CustomMechanism.dist(0.0, logp=laplace_logp, guarantee=said))
    assert reported.epsilon == said.epsilon and str(reported).startswith("Stated by the user, not proven")
    assert reported.to_approximate(1e-5).stated and reported.to_zcdp().stated


@pytest.mark.parametrize("parameters", [{}, {"sensitivity": 1.0}])
def test_a_published_release_is_declared_with_its_density_beside_it(parameters):
    said = dp.PrivacyGuarantee(0.5, stated=True)
    release = dp.Release(3.0, "CustomMechanism", parameters, said)
    release = dp.Release.from_json(release.to_json())
    assert guarantee(release) == said
    with pm.Model() as model:
        y = pm.Normal("y", 0, 1, shape=4)
        z = dp.CustomMechanism("z", y.sum(), logp=laplace_logp, random=laplace_random, observed=release)
        assert guarantee(z) == said and model.rvs_to_values[z].data == 3.0
        dp.CustomMechanism(
            "w", y.sum(), logp=laplace_logp, guarantee=dp.PrivacyGuarantee(0.5), observed=release
        )
        with pytest.raises(TypeError, match="logp must be a function"):
            dp.CustomMechanism("v", y.sum(), observed=release)
        with pytest.raises(
            ValueError, match=r"guarantee = .* epsilon = 0.4 contradicts the release, which states"
        ):
            dp.CustomMechanism(
                "v", y.sum(), logp=laplace_logp, guarantee=dp.PrivacyGuarantee(0.4), observed=release
            )
    if parameters:
        false = dp.Release(3.0, "CustomMechanism", parameters, dp.PrivacyGuarantee(0.4, stated=True))
        with model, pytest.raises(ValueError, match="is not what logp gives"):
            dp.CustomMechanism("v", y.sum(), logp=laplace_logp, observed=false)


def test_without_a_guarantee_none_is_known():
    with pm.Model() as model:
        y = pm.Bernoulli("y", pm.Beta("p", 1, 1), shape=4)
        z = dp.CustomMechanism("z", y.sum(), logp=laplace_logp, observed=2.0)
    for released in (z, model):
        with pytest.raises(ValueError, match=r"guarantee of z is not known: .* declared without guarantee="):
            guarantee(released)
    with pytest.raises(ValueError, match="The guarantee of z is not known: give guarantee="):
        dp.testing.check_guarantee(z, [(0, 1)])


def test_neighbours_of_a_stated_guarantee_are_kept():
    promise = dp.PrivacyGuarantee(1.0, neighbours="add-remove")
    release = dp.CustomMechanism.dist(0.0, logp=laplace_logp, guarantee=promise)
    assert guarantee(release).neighbours == "add-remove"


def test_bounds_are_read_for_the_neighbours_of_the_guarantee():
    """One record more or less changes a sum of numbers in (-1, 1) by 1, one that is exchanged by 2."""
    with pm.Model():
        y = pm.Normal("y", 0, 1, shape=4)
        said = {"logp": laplace_logp, "bounds": (-1, 1), "observed": 1.0}
        for name, neighbours, epsilon in (("a", "add-remove", 0.5), ("b", "replace-one", 1.0)):
            claim = dp.PrivacyGuarantee(epsilon, neighbours=neighbours)
            z = dp.CustomMechanism(name, dp.record_sum(y), guarantee=claim, **said)
            assert guarantee(z).epsilon == epsilon and guarantee(z).neighbours == neighbours
            less = dp.PrivacyGuarantee(0.99 * epsilon, neighbours=neighbours)
            with pytest.raises(ValueError, match=rf"the log ratio is {epsilon:g} > epsilon"):
                dp.CustomMechanism(f"{name}2", dp.record_sum(y), guarantee=less, **said)


def test_release_is_refused_with_the_reason():
    with pytest.raises(
        NotImplementedError, match=r"CustomMechanism.release is not there: .*operating system"
    ):
        dp.CustomMechanism.release(1.0, logp=laplace_logp, random=laplace_random)


def test_nuts_is_refused_by_name_where_records_do_not_integrate_out():
    with pm.Model() as model:
        y = pm.Normal("y", pm.Normal("mu"), 1, shape=3)
        dp.CustomMechanism("z", y, logp=staircase_logp, observed=np.zeros(3))
    with pytest.raises(ValueError, match=r"y.*z|z.*y"):
        dp.marginalize(model, ["y"])


def test_finite_records_integrate_out():
    with pm.Model() as model:
        p = pm.Beta("p", 1, 1)
        y = pm.Bernoulli("y", p, shape=3)
        dp.CustomMechanism("z", y, logp=staircase_logp, observed=[0.3, -1.2, 2.0])
    z = np.array([0.3, -1.2, 2.0])
    without = dp.marginalize(model, ["y"])
    logp = without.compile_logp(jacobian=False, mode="FAST_COMPILE")
    for share in (0.2, 0.7):
        exact = np.log((1 - share) * staircase_pdf(z) + share * staircase_pdf(z - 1)).sum()
        point = {"p_logodds__": np.log(share / (1 - share))}
        assert logp(point) == pytest.approx(exact, rel=1e-10)


# -- bad input, each tried before sampling -----------------------------------------------------------


def bad(match, error=ValueError, query=None, observed=2.0, model=None, **kwargs):
    kwargs.setdefault("logp", laplace_logp)
    with pm.Model():
        y = pm.Normal("y", pm.Normal("mu"), 1, shape=4)
        with pytest.raises(error, match=match):
            dp.CustomMechanism("z", y.sum() if query is None else query(y), observed=observed, **kwargs)


@pytest.mark.parametrize(
    ("logp", "error", "match"),
    [
        (None, TypeError, "logp must be a function"),
        (3.0, TypeError, "logp must be a function .* got float"),
        (lambda value: value, ValueError, "logp could not be called"),
        (lambda value, query: -pt.abs(query) - pt.log(2.0), ValueError, "logp ignores the value"),
        (lambda value, query: -pt.abs(value) - pt.log(2.0), ValueError, "logp ignores the query"),
        (lambda value, query: -pt.abs(value) + 0 * query - pt.log(2.0), ValueError, "logp ignores the query"),
        (lambda value, query: pt.ones(3) * value * query, ValueError, "logp returns shape"),
        (lambda value, query: -pt.abs(value - query), ValueError, "integrates to 2 .*, not to 1"),
        (lambda value, query: -pt.abs(value - query) / 9, ValueError, "integrates to 18 .*, not to 1"),
        (lambda value, query: pt.gt(value, query), ValueError, "logp must return real numbers"),
        (
            lambda value, query: -(value - query) * pt.cast((value > query) + (value > 1 + query), "float64"),
            ValueError,
            "logp adds booleans",
        ),
        (lambda value, query: "words", ValueError, "logp could not be called"),
        (lambda value, query: pt.log(value - 50) - query, ValueError, "logp is NaN at the observed value 2"),
    ],
)
def test_bad_densities(logp, error, match):
    bad(match, error, logp=logp)


def test_too_little_mass_is_a_warning():
    """Mass may be where nobody looked, so that this is no error; too much mass has no such excuse."""
    with pytest.warns(UserWarning, match=r"logp integrates to 0\.5 .*, not to 1"):
        dp.CustomMechanism.dist(0.0, logp=lambda v, q: laplace_logp(v, q) - math.log(2))


@pytest.mark.parametrize("half", [1e-6, 1.5, 1e7])
@pytest.mark.parametrize("shift", [0.0, 1e4])
@pytest.mark.parametrize("n", [50, 2000])
def test_noise_of_bounded_support_depends_on_the_query(n, shift, half):
    """Noise around the query, or far from it; the queries may be far apart, or close beside the noise."""

    def logp(value, query):
        return pt.switch(pt.le(pt.abs(value - query - shift), half), -math.log(2 * half), -np.inf)

    def random(query, rng, size):
        return query + shift + rng.uniform(-half, half, size)

    with pm.Model(), warnings.catch_warnings():
        warnings.simplefilter("error")
        y = pm.Bernoulli("y", pm.Beta("p", 1, 1), shape=n)
        dp.CustomMechanism("z", y.sum(), logp=logp, random=random, observed=0.4 * n + shift)
        if half < 1e7:  # the same without draws, or of whole numbers
            dp.CustomMechanism("w", y.sum() + shift, logp=lambda v, q: logp(v + shift, q), observed=2.0)
            size = 2 * math.floor(half) + 1

            def whole(value, query):
                return pt.switch(pt.le(pt.abs(value - query), half), -math.log(size), -np.inf)

            dp.CustomMechanism("k", y.sum(), logp=whole, observed=700, dtype="int64")


def test_whole_numbers_add_up():
    def logp(value, query):
        return -0.5 * pt.abs(value - query) + math.log(math.tanh(0.25))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dp.CustomMechanism.dist(3, logp=logp, dtype="int64")
    with pytest.raises(ValueError, match="adds up to 2 "):
        dp.CustomMechanism.dist(3, logp=lambda v, q: logp(v, q) + math.log(2), dtype="int64")


@pytest.mark.parametrize(
    ("logp", "params", "random", "centre"),
    [
        (staircase_logp, (), staircase_random, 5.3),
        (huber_logp, (1e-4,), huber_random, -2.0),
        (huber_logp, (1e5,), None, 1.0),
        (lambda v, q: -pt.log(math.pi) - pt.log1p((v - q) ** 2), (), None, 0.3),
    ],
    ids=["jumps", "narrow", "wide", "heavy tails"],
)
def test_good_densities_pass_in_silence(logp, params, random, centre):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dp.CustomMechanism.dist(centre, *params, logp=logp, random=random)


@pytest.mark.parametrize("shape", [0.1, 0.5])
@pytest.mark.parametrize("query", [0.0, 7.0, 1e6])
def test_poles_that_can_be_integrated_pass_in_silence(query, shape):
    """Floating point has no numbers in the pole, unless it is at 0: the rest of the mass is not seen."""

    def gamma(value, query):  # of noise, on both sides
        u = pt.abs(value - query)
        return (shape - 1) * pt.log(u) - u - math.log(2) - math.lgamma(shape)

    def beta(value, query):  # of a release between 0 and 1
        return pm.logp(pm.Beta.dist(shape * (1 + pt.abs(query)), shape), value)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for logp in (gamma, beta):
            dp.CustomMechanism.dist(query, logp=logp)
    if shape > 0.1:  # otherwise too much of the mass is not seen
        for logp in (gamma, beta):
            with pytest.raises(ValueError, match=r"integrates to (2|1\.9999\d*) for .*, not to 1"):
                dp.CustomMechanism.dist(query, logp=lambda v, q, logp=logp: logp(v, q) + math.log(2))
            with pytest.warns(UserWarning, match=r"integrates to .*, not to 1"):
                dp.CustomMechanism.dist(query, logp=lambda v, q, logp=logp: logp(v, q) - math.log(2))


def test_an_entry_that_depends_on_others_is_refused():
    def logp(value, query):
        u = pt.abs(value - query)
        return -u - pt.log(2.0) - 0.1 * pt.sum(u)

    bad("that of one entry depends on the others", logp=logp, query=lambda y: y, observed=np.zeros(4))


def test_a_hidden_random_variable_is_named():
    with pm.Model():
        scale = pm.HalfNormal("level")
        y = pm.Normal("y", 0, 1, shape=4)
        with pytest.raises(ValueError, match=r"logp reads level, .* logp\(value, query, level\)"):
            dp.CustomMechanism("z", y.sum(), logp=lambda v, q: huber_logp(v, q, scale), observed=1.0)
        dp.CustomMechanism("z", y.sum(), scale, logp=huber_logp, observed=1.0)


def spread_logp(value, query, other):
    scale = 1 + pt.abs(other)
    return -pt.abs(value - query) / scale - pt.log(2 * scale)


def people(n=5):
    x = pm.Normal("x", pm.Normal("mu"), 1, shape=n)
    return x, pm.Normal("y", 0, 1, shape=n)


@pytest.mark.parametrize(
    "parameter",
    [
        lambda x, y: dp.record_sum(y),
        lambda x, y: 2 * pt.sqrt(1 + dp.record_sum(y**2)),
        lambda x, y: (x**2).sum(),
        lambda x, y: dp.record_sum(x * y),
        lambda x, y: x.max(),
    ],
)
def test_records_enter_through_the_query(parameter):
    """The refusal at the declaration, and its remedy word for word."""
    match = r"Parameter 1 after the query reads the records .*, all of them at once: .* one more statistic"
    with pm.Model():
        x, y = people()
        query, parameter = dp.record_sum(x), parameter(x, y)
        with pytest.raises(ValueError, match=match):
            dp.CustomMechanism("z", query, parameter, logp=spread_logp, observed=1.0)
    with pm.Model() as model:
        x, y = people()
        query, parameter, name, logp = dp.record_sum(x), dp.record_sum(x * y), "z", spread_logp
        dp.CustomMechanism(
            name, pt.stack([query, parameter]), observed=1.0,
            logp=lambda value, query: logp(value, query[0], query[1]), signature="(k)->()",
        )  # fmt: skip
    assert np.isfinite(swept(model, "x")).all()


def test_records_of_other_releases_are_no_parameters():
    """What a model tells only when all of it is there. A record of its own row is a parameter like others."""
    match = r"Parameter 1 after the query of z reads the records y, all of them at once"
    with pm.Model() as model:
        x, y = people()
        dp.CustomMechanism("z", dp.record_sum(x), y.sum(), logp=spread_logp, observed=1.0)
        dp.LaplaceMechanism("w", dp.record_sum(y), scale=2, bounds=(0, 1), observed=1.0)
    with pytest.raises(ValueError, match=match):
        swept(model, "x")
    with pm.Model() as model:
        x, y = people()
        dp.CustomMechanism(
            "z", x.sum(), y.sum(), logp=spread_logp, observed=1.0, guarantee=dp.PrivacyGuarantee(1)
        )
        dp.LaplaceMechanism("w", dp.record_sum(y), scale=2, bounds=(0, 1), observed=1.0)
    with pytest.raises(ValueError, match=match):
        guarantee(model, disjoint=True)
    with pm.Model() as model:
        x, y = people()
        dp.LaplaceMechanism("z", x.sum(), scale=1 + (x**2).sum(), observed=1.0)
    with pytest.raises(ValueError, match="Parameter 1 after the query of z reads the records x"):
        swept(model, "x")
    with pm.Model() as model:
        x, y = people()
        dp.CustomMechanism("z", x, y**2, logp=spread_logp, observed=np.ones(5))
        dp.LaplaceMechanism("w", dp.record_sum(y), scale=2, observed=1.0)
    assert np.isfinite(swept(model, "x")).all()


def test_bad_draws():
    bad("random must be a function", TypeError, random=3)
    bad(r"random returned shape \(3,\), but size=\(\)", random=lambda query, rng, size: np.zeros(3))
    bad("random returned what is no finite", random=lambda query, rng, size: np.full(size, np.nan))
    with pytest.raises(ValueError, match="random returned fractions"):
        dp.CustomMechanism.dist(
            3, logp=lambda v, q: -0.5 * pt.abs(v - q) + math.log(math.tanh(0.25)), dtype="int64",
            random=lambda query, rng, size: rng.normal(query, 1, size),
        )  # fmt: skip


def test_bad_observed():
    bad("observed means a release of shape", observed=[1.0, 2.0])
    bad("observed has 1 missing", observed=np.nan)


def test_bad_settings():
    bad("guarantee must be a PrivacyGuarantee, got float", TypeError, guarantee=1.0)
    bad("unexpected keyword argument 'scale'", TypeError, scale=1.0)
    bad("signature must name the axes", signature="vector")
    bad(r"signature = '\(k\)->\(\)' does not fit a query with 0 axes", signature="(k)->()")
    bad("dtype must be a kind of real", TypeError, dtype="bool")


def test_a_guarantee_that_the_density_contradicts_is_refused():
    promise = dp.PrivacyGuarantee(0.9 / SCALE)
    bad(
        r"guarantee = pure .* epsilon = 0.45 is not what logp gives: the log ratio is 0.5 > epsilon",
        guarantee=promise, sensitivity=1.0,
    )  # fmt: skip
    bad("is not what logp gives", guarantee=promise, bounds=(0, 1))
    bad(
        "is not what logp gives: the Renyi divergence",
        guarantee=dp.PrivacyGuarantee(math.inf, rho=0.05), sensitivity=1.0,
    )  # fmt: skip
    bad("is not what logp gives", guarantee=promise, bounds=(0, 1), query=lambda y: y, observed=np.zeros(4))


def gaussian_logp(value, query, sigma):
    return -0.5 * ((value - query) / sigma) ** 2 - pt.log(sigma) - 0.5 * math.log(2 * math.pi)


def joint(p, level, claim, query=lambda y: dp.record_sum(y), bounds=(0, 1)):
    """Declare a release of `p` sums over 6 people, and the same one of this package's."""
    with pm.Model():
        y = pm.Normal("y", 0, 1, shape=(6, p))
        given = {"query": query(y), "observed": np.zeros(query(y).type.shape), "bounds": bounds}
        if claim.rho is None:
            logp, other = laplace_of_scale, guarantee(dp.LaplaceMechanism("w", scale=level, **given))
        else:
            logp, other = gaussian_logp, guarantee(dp.GaussianMechanism("w", sigma=level, **given))
        query = given.pop("query")
        level = np.broadcast_to(level, query.type.shape)
        dp.CustomMechanism("z", query, level, logp=logp, guarantee=claim, **given)
    return other


@pytest.mark.parametrize("level", [1.0, np.array([1.0, 2.0, 4.0])])
@pytest.mark.parametrize("bounds", [(0, 1), (np.zeros(3), np.array([1.0, 3.0, 1.0]))])
@pytest.mark.parametrize("query", [lambda y: dp.record_sum(y), lambda y: y], ids=["sums", "rows"])
def test_entries_that_one_record_changes_together(query, bounds, level):
    """What the bounds give is what this package's mechanism states; a claim of it is taken in silence."""
    least = float(np.max((np.array(bounds[1]) - bounds[0]) / level))
    with pytest.warns(UserWarning, match=r"one record may change all 3 entries at once") as caught:
        exact = joint(3, level, dp.PrivacyGuarantee(least), query, bounds).epsilon
    assert f"for which logp gives epsilon = {exact:g}: state that" in str(caught[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        joint(3, level, dp.PrivacyGuarantee(exact), query, bounds)


def test_zcdp_of_entries_that_one_record_changes_together():
    with pytest.warns(UserWarning, match=r"for which logp gives rho = 0\.5: state that"):
        exact = joint(4, 2.0, dp.PrivacyGuarantee(math.inf, rho=0.2)).rho
    assert exact == 0.5
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        joint(4, 2.0, dp.PrivacyGuarantee(math.inf, rho=exact))


def test_counts_of_categories_change_by_two():
    """A true statement, which bounds do not show; the remedy silences the warning."""
    with pm.Model(), warnings.catch_warnings():
        warnings.simplefilter("error")
        c = pm.Categorical("c", pm.Dirichlet("theta", np.ones(3)), shape=8)
        query = dp.record_sum(pt.eq(c[:, None], np.arange(3)))
        said = {"logp": laplace_logp, "guarantee": dp.PrivacyGuarantee(1.0), "observed": np.zeros(3)}
        with pytest.warns(UserWarning, match=r"epsilon = 1\.5: .* give sensitivity= instead of bounds"):
            dp.CustomMechanism("z", query, bounds=(0, 1), **said)
        dp.CustomMechanism("w", query, sensitivity=2, **said)


def test_many_entries_with_noise_of_their_own_are_all_counted():
    level = 1 + np.arange(60.0)
    with pytest.warns(UserWarning, match=rf"all 60 entries .* epsilon = {(1 / level).sum():g}: state"):
        joint(60, level, dp.PrivacyGuarantee(1.0))
    with pytest.warns(UserWarning, match=r"may change all 2000 entries .* epsilon = 2000: state"):
        joint(2000, 1.0, dp.PrivacyGuarantee(1.0))


def test_each_entry_is_compared_for_its_own_width():
    """The widest entry has the most noise; its width was taken for all entries, and a true claim refused."""
    bounds = np.zeros(2), np.array([1.0, 10.0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        joint(2, np.array([1.0, 10.0]), dp.PrivacyGuarantee(2.0), bounds=bounds)
    with pytest.raises(ValueError, match=r"not what logp gives: the log ratio is 1 .* sensitivity of 10\."):
        joint(2, np.array([2.0, 10.0]), dp.PrivacyGuarantee(0.9), bounds=bounds)


def test_a_parameter_of_many_numbers_beside_a_query_of_one():
    def logp(value, query, weights):
        return laplace_of_scale(value, query, pt.sum(weights))

    def declared(epsilon):
        claim = dp.PrivacyGuarantee(epsilon)
        return dp.CustomMechanism.dist(
            0.0, np.array([0.5, 1.5]), logp=logp, signature="(),(k)->()", guarantee=claim, sensitivity=1.0
        )

    assert guarantee(declared(0.5)).epsilon == 0.5
    with pytest.raises(ValueError, match=r"is not what logp gives: the log ratio is 0\.5 "):
        declared(0.49)


def test_a_guarantee_that_the_density_keeps_is_taken():
    release = dp.CustomMechanism.dist(
        2.0, logp=laplace_logp, guarantee=dp.PrivacyGuarantee(0.5), sensitivity=1.0
    )
    assert guarantee(release).epsilon == 0.5
    stairs = dp.PrivacyGuarantee(EPSILON)
    dp.CustomMechanism.dist(2.0, logp=staircase_logp, guarantee=stairs, sensitivity=1.0)
    # power: the staircase attains its epsilon
    with pytest.raises(ValueError, match="is not what logp gives"):
        dp.CustomMechanism.dist(
            2.0, logp=staircase_logp, guarantee=dp.PrivacyGuarantee(0.999 * EPSILON), sensitivity=1.0
        )
    dp.CustomMechanism.dist(
        0.0, 2.0, logp=huber_logp, guarantee=dp.PrivacyGuarantee(WIDTH / 2), sensitivity=1.0
    )


def test_a_guarantee_is_not_stated_of_what_can_be_set_anew():
    """A claim that was true of the scale 2 would be kept for 0.01, whose epsilon is 100."""
    said = {"guarantee": dp.PrivacyGuarantee(0.5), "sensitivity": 1.0, "observed": 17.0}
    with pm.Model() as model:
        scale = pm.Data("scale", 2.0)
        y = pm.Bernoulli("y", pm.Beta("p", 1, 1), shape=50)

        def closed(value, query):
            return laplace_of_scale(value, query, scale)

        present = scale.get_value()

        def constant(value, query):
            return laplace_of_scale(value, query, present)

        unnamed = pytensor.shared(2.0)
        for name, param in (("scale", scale), ("scale", 0.5 * scale + 1), ("a shared variable", unnamed)):
            match = rf"reads {name}, .* present value, which stays: (scale|shared)\.get_value\(\)"
            with pytest.raises(ValueError, match=match):
                dp.CustomMechanism("z", y.sum(), param, logp=laplace_of_scale, **said)
        with pytest.raises(ValueError, match="reads scale, whose value can be set anew"):
            dp.CustomMechanism("z", y.sum(), logp=closed, **said)
        dp.CustomMechanism("a", y.sum(), scale.get_value(), logp=laplace_of_scale, **said)
        dp.CustomMechanism("b", y.sum(), logp=constant, **said)
        unknown = dp.CustomMechanism("c", y.sum(), scale, logp=laplace_of_scale, observed=17.0)
        level = pm.HalfNormal("level", scale)  # its law may change; the claim is for all of its values
        dp.CustomMechanism(
            "d", y.sum(), level, logp=laplace_of_scale, guarantee=dp.PrivacyGuarantee(0.5), observed=17.0
        )
    for name in ("a", "b", "d"):
        assert guarantee(model[name]).epsilon == 0.5
    with pytest.raises(ValueError, match="guarantee of c is not known"):
        guarantee(unknown)


def test_declarations_do_not_depend_on_data_of_a_shared_variable():
    """A density may read public data, which may change."""
    scale = pytensor.shared(2.0)
    release = dp.CustomMechanism.dist(0.0, logp=lambda v, q: huber_logp(v, q, scale))
    before = float(evaluated(release, 1.0))
    scale.set_value(1.0)
    assert float(evaluated(release, 1.0)) == pytest.approx(huber_logpdf(1.0, 1.0), rel=1e-12) != before


def test_what_cannot_be_drawn_from_its_prior_is_said():
    with pm.Model():
        y = pm.Normal("y", pm.Flat("mu"), 1, shape=4)
        with pytest.warns(UserWarning, match="query cannot be drawn from the prior"):
            dp.CustomMechanism("z", y.sum(), 2.0, logp=huber_logp, observed=1.0)


def die(yes, no):
    """Log probability of an answer where yes and no are forced with these probabilities."""

    def logp(value, query):
        share = yes + (1 - yes - no) * query
        return pt.switch(
            pt.eq(value, 1), pt.log(share), pt.switch(pt.eq(value, 0), pt.log(1 - share), -np.inf)
        )

    return logp


def bernoulli(value, query):
    return pm.logp(pm.Bernoulli.dist(1 / 3 + query / 2), value)


TOLD = {"dtype": "int64", "bounds": (0, 1), "observed": [1, 0, 1]}


@pytest.mark.parametrize("logp", [die(1 / 3, 1 / 6), bernoulli])
def test_bounds_say_where_a_record_can_be(logp):
    """Neighbours of a record are within its bounds, where alone the density may exist."""
    with pm.Model(), warnings.catch_warnings():
        warnings.simplefilter("error")
        y = pm.Bernoulli("y", pm.Beta("p", 1, 1), shape=3)
        dp.CustomMechanism("z", y, logp=logp, guarantee=dp.PrivacyGuarantee(math.log(4)), **TOLD)
        with pytest.raises(ValueError, match=r"is not what logp gives: the log ratio is 1\.386"):
            dp.CustomMechanism("w", y, logp=logp, guarantee=dp.PrivacyGuarantee(1.38), **TOLD)


def test_a_forced_yes_alone_has_no_finite_epsilon():
    """Whoever says no has told the truth."""
    with pm.Model():
        y = pm.Bernoulli("y", pm.Beta("p", 1, 1), shape=3)
        with pytest.raises(ValueError, match="the log ratio is inf"):
            dp.CustomMechanism("z", y, logp=die(1 / 6, 0), guarantee=dp.PrivacyGuarantee(20), **TOLD)


@pytest.mark.parametrize(("logp", "error"), [(die(1 / 3, 1 / 6), r"logp is NaN"), (bernoulli, "0 <= p <= 1")])
def test_queries_without_a_density_are_named(logp, error):
    """What PyMC refuses is said of the variable and its argument."""
    dist = {"logp": logp, "dtype": "int64", "guarantee": dp.PrivacyGuarantee(math.log(4))}
    with pytest.raises(ValueError, match=rf"{error}.*sensitivity= or bounds= say .* by 1: .*check_guarantee"):
        dp.CustomMechanism.dist(1, sensitivity=1, **dist)
    with pm.Model():
        y = pm.Bernoulli("y", 0.9, shape=3)
        with pytest.raises(ValueError, match=rf"^z: .*{error}"):
            dp.CustomMechanism("z", dp.record_sum(y), bounds=(0, 1), **dist)


def test_laws_of_whole_numbers_are_told_of():
    with pytest.warns(UserWarning, match=r"integrates to .*, not to 1.*give dtype=\"int64\"") as found:
        dp.CustomMechanism.dist(1, logp=bernoulli)
    assert [w.filename for w in found] == [__file__]
    endless = lambda v, q: pt.switch(pt.eq(v, q), np.log(5 / 6), np.log(1 / 6))  # noqa: E731
    with pytest.raises(ValueError, match=r"give dtype=\"int64\""):
        dp.CustomMechanism.dist(1, logp=endless)
    with pytest.raises(ValueError, match="-inf at whole numbers that are never released"):
        dp.CustomMechanism.dist(1, logp=endless, dtype="int64")
