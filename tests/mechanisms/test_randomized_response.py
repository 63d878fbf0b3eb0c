"""Randomized response on records and on counts: densities by hand, draws, guarantees, messages."""

import math

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
import scipy.stats as st
from pymc.logprob.utils import ParameterValueError

import pymc_dp as dp
from pymc_dp.query.records import find_record_blocks


def channel(k, epsilon):
    """Matrix of P(report | category), rows of the true categories."""
    lie = 1 / (math.exp(epsilon) + k - 1)
    return np.where(np.eye(k, dtype=bool), math.exp(epsilon) * lie, lie)


@pytest.mark.usefixtures("python_mode")
@pytest.mark.parametrize(("k", "epsilon"), [(2, 0.1), (4, 1.0), (16, 4.0), (3, 30.0)])
def test_density_of_a_report(k, epsilon):
    truth, report = np.divmod(np.arange(k * k), k)
    given = pm.logp(dp.RandomizedResponse.dist(truth, epsilon=epsilon, n_categories=k), report).eval()
    np.testing.assert_allclose(given.reshape(k, k), np.log(channel(k, epsilon)), rtol=1e-12, atol=1e-15)
    p = math.exp(epsilon) / (math.exp(epsilon) + k - 1)
    if epsilon < 20:  # beyond, 1 - p has lost its digits
        same = pm.logp(dp.RandomizedResponse.dist(truth, p_truth=p, n_categories=k), report).eval()
        np.testing.assert_allclose(same, given, rtol=1e-9)


@pytest.mark.usefixtures("python_mode")
def test_density_at_any_epsilon_and_outside():
    logp = pm.logp(dp.RandomizedResponse.dist(1, epsilon=5000, n_categories=3), [0, 1, 2, 3, -1]).eval()
    np.testing.assert_array_equal(logp, [-5000, 0, -5000, -np.inf, -np.inf])


@pytest.mark.usefixtures("python_mode")
def test_a_probability_of_truth_for_each_person():
    p = np.array([0.4, 0.9])
    z = dp.RandomizedResponse.dist([0, 2], p_truth=p, n_categories=3)
    np.testing.assert_allclose(pm.logp(z, [0, 1]).eval(), np.log([0.4, 0.05]))
    assert dp.guarantee(z).epsilon == pytest.approx(math.log(0.9 * 2 / 0.1))
    random = dp.RandomizedResponse.dist([0, 2], p_truth=pm.Beta.dist(5, 1), n_categories=3)
    with pytest.raises(ValueError, match="is not known"):
        dp.guarantee(random)


@pytest.mark.filterwarnings("error")  # numba would warn if it left native code
def test_draws_follow_the_density(seeded_entropy):
    truth = np.repeat(np.arange(4), 20_000)
    z = dp.RandomizedResponse.dist(truth, epsilon=0.8, n_categories=4)
    secure = dp.RandomizedResponse.release(truth, epsilon=0.8, n_categories=4).value
    for draws in (pm.draw(z, random_seed=3), secure):
        for c in range(4):
            counts = np.bincount(draws[truth == c], minlength=4)
            assert st.chisquare(counts, 20_000 * channel(4, 0.8)[c]).pvalue > 1e-4
        # power: another epsilon is seen
        pooled = np.bincount((draws - truth) % 4, minlength=4)
        assert st.chisquare(pooled, 80_000 * channel(4, 0.9)[0]).pvalue < 1e-4


def test_guarantee_is_the_largest_log_ratio():
    z = dp.RandomizedResponse.dist(0, p_truth=0.6, n_categories=5)
    q = channel(5, dp.guarantee(z).epsilon)
    assert q[0, 0] == pytest.approx(0.6)
    worst = np.abs(np.log(q[:, None, :] / q[None, :, :])).max()
    assert dp.guarantee(z).epsilon == pytest.approx(worst, rel=1e-12)
    assert dp.guarantee(dp.RandomizedResponse.dist(0, p_truth=1 / 3, n_categories=3)).epsilon == 0


def test_number_of_categories_is_found():
    def found(rv):
        return dp.RandomizedResponse.dist(rv, epsilon=1).owner.op.n_categories

    with pm.Model():
        p = pm.Dirichlet("p", np.ones(5))
        assert found(pm.Categorical("c", p, shape=7)) == 5
    assert found(pm.Bernoulli.dist(0.3, shape=4)) == 2
    assert found(pm.Categorical.dist(np.ones((4, 3)) / 3)) == 3
    assert found(pm.Categorical.dist(np.ones(3) / 3, shape=9)[:4]) == 3
    more = dp.RandomizedResponse.dist(pm.Bernoulli.dist(0.3), epsilon=1, n_categories=3)
    assert more.owner.op.n_categories == 3


@pytest.mark.statistical
@pytest.mark.parametrize("seed", range(3))
def test_posterior_on_records_is_that_of_enumeration(seed):
    """Posterior mean of the proportions, and of each person's category, at n = 5 and K = 3."""
    rng = np.random.default_rng(seed)
    k, n, epsilon, alpha = 3, 5, 1.2, np.array([1.0, 2.0, 0.5])
    z = rng.integers(0, k, n)
    tables, weights = np.array(list(np.ndindex(*(k,) * n))), []
    for c in tables:
        likelihood = channel(k, epsilon)[c, z].prod()
        weights.append(
            likelihood * math.exp(_log_beta(alpha + np.bincount(c, minlength=k)) - _log_beta(alpha))
        )
    weights = np.array(weights) / np.sum(weights)
    counts = np.array([np.bincount(c, minlength=k) for c in tables])
    exact = (weights[:, None] * (alpha + counts)).sum(0) / (alpha.sum() + n)
    with pm.Model() as model:
        p = pm.Dirichlet("p", alpha)
        c = pm.Categorical("c", p, shape=n)
        dp.RandomizedResponse("z", c, epsilon=epsilon, observed=z)
    idata = pm.sample(2000, tune=500, chains=2, cores=1, model=model, random_seed=seed, progressbar=False)
    summary = pm.stats.summary(idata, var_names=["p"], kind="all", round_to="none")
    np.testing.assert_array_less(abs(summary["mean"] - exact), 4.5 * summary["mcse_mean"])
    truth = np.array([weights[tables[:, i] == z[i]].sum() for i in range(n)])
    share = (idata.posterior["c"].values == z).mean((0, 1))
    assert abs(share - truth).max() < 0.05


def _log_beta(a):
    return sum(math.lgamma(x) for x in a) - math.lgamma(sum(a))


# --- counts --------------------------------------------------------------------------------------


@pytest.mark.usefixtures("python_mode")
@pytest.mark.parametrize("epsilon", [0.3, 2.0])
def test_density_of_counts_is_the_sum_over_confidential_tables(epsilon):
    k, n, probs = 3, 4, np.array([0.2, 0.5, 0.3])
    q = channel(k, epsilon)
    exact = {}
    for c in np.ndindex(*(k,) * n):
        for z in np.ndindex(*(k,) * n):
            counts = tuple(np.bincount(z, minlength=k))
            weight = probs[list(c)].prod() * q[list(c), list(z)].prod()
            exact[counts] = exact.get(counts, 0) + weight
    tables = np.array(list(exact))
    release = dp.RandomizedResponse.dist(np.tile(probs, (len(tables), 1)), n=n, epsilon=epsilon)
    np.testing.assert_allclose(np.exp(pm.logp(release, tables).eval()), list(exact.values()), rtol=1e-11)
    assert sum(exact.values()) == pytest.approx(1)
    assert dp.guarantee(release).epsilon == epsilon
    assert pm.logp(dp.RandomizedResponse.dist(probs, n=n, epsilon=1), [4, 1, 0]).eval() == -np.inf
    assert pm.logp(dp.RandomizedResponse.dist(probs, n=n, epsilon=1), [5, -1, 0]).eval() == -np.inf


@pytest.mark.usefixtures("python_mode")
def test_counts_and_records_say_the_same_about_the_proportions():
    """As functions of the probabilities, both log likelihoods differ by a constant."""
    rng = np.random.default_rng(2)
    z = rng.integers(0, 4, 50)
    probs = pt.dvector("probs")
    q = channel(4, 0.7)
    at = rng.dirichlet(np.ones(4), 6)
    typed = pt.specify_shape(probs, (4,))
    counts = pm.logp(dp.RandomizedResponse.dist(typed, n=50, epsilon=0.7), np.bincount(z, minlength=4))
    ours = np.array([counts.eval({probs: p}) for p in at])
    records = np.array([np.log((p @ q)[z]).sum() for p in at])
    np.testing.assert_allclose(ours - ours[0], records - records[0], rtol=1e-9)


@pytest.mark.parametrize("epsilon", [0.1, 4.0, 800.0])
def test_density_of_many_people_is_differentiable(epsilon):
    probs = pt.dvector("probs")
    z = np.array([4e8, 3e8, 2e8, 1e8]).astype(int)
    logp = pm.logp(dp.RandomizedResponse.dist(pt.specify_shape(probs, (4,)), n=10**9, epsilon=epsilon), z)
    fn = pytensor.function([probs], [logp, pt.grad(logp, probs)])
    p = np.array([0.4, 0.3, 0.2, 0.1])
    value, gradient = fn(p)
    assert np.isfinite(value) and np.isfinite(gradient).all()
    step = 1e-7 * np.array([1, -1, 0, 0])
    change = fn(p + step)[0] - fn(p - step)[0]
    # lgamma of 1e9 is right to 1e-6 only
    assert change == pytest.approx(2e-7 * (gradient[0] - gradient[1]), rel=1e-3, abs=2e-5)
    # the boundary of the simplex is a possible value
    assert np.isfinite(fn(np.array([1.0, 0, 0, 0]))[0]) or epsilon > 700


@pytest.mark.filterwarnings("error")
def test_counts_are_drawn_from_their_law():
    probs = np.array([0.7, 0.2, 0.1])
    z = dp.RandomizedResponse.dist(np.tile(probs, (4000, 1)), n=30, epsilon=0.5)
    draws = pm.draw(z, random_seed=4)
    assert (draws.sum(1) == 30).all()
    reports = probs @ channel(3, 0.5)
    for j in range(3):
        observed = np.bincount(draws[:, j], minlength=31)
        expected = 4000 * st.binom.pmf(np.arange(31), 30, reports[j])
        rare = expected < 5
        pooled = (
            np.append(observed[~rare], observed[rare].sum()),
            np.append(expected[~rare], expected[rare].sum()),
        )
        assert st.chisquare(*pooled).pvalue > 1e-4
    many = pm.draw(dp.RandomizedResponse.dist(probs, n=10**9, epsilon=0.5), random_seed=5)
    assert many.sum() == 10**9
    assert abs(many / 1e9 - reports).max() < 1e-4


@pytest.mark.usefixtures("python_mode")
@pytest.mark.statistical
def test_categories_counted_by_a_coordinate():
    """The number of categories is known in the model, not to PyTensor."""
    with pm.Model(coords={"answer": ["yes", "no", "both"]}) as model:
        eta = pm.Normal("eta", dims="answer")
        p = pm.Deterministic("p", pm.math.softmax(eta), dims="answer")
        for name, noise in {"a": {"epsilon": 1.0}, "b": {"p_truth": np.e / (np.e + 2)}}.items():
            dp.RandomizedResponse(name, p, n=9, **noise, observed=[4, 3, 2], dims="answer")
        dp.UnaryEncoding("c", p, n=9, epsilon=1.0, observed=[4, 3, 2], dims="answer")
    logp = model.point_logps()
    assert (
        logp["a"]
        == pytest.approx(logp["b"])
        == pytest.approx(st.multinomial.logpmf([4, 3, 2], 9, [1 / 3] * 3), abs=0.01)
    )
    assert np.isfinite(logp["c"])


@pytest.mark.usefixtures("python_mode")
@pytest.mark.statistical
def test_several_tables_with_their_own_numbers_of_people():
    probs = np.array([[0.7, 0.3], [0.1, 0.9]])
    z = dp.RandomizedResponse.dist(probs, n=[3, 5], epsilon=1.0)
    both = pm.logp(z, [[1, 2], [2, 3]]).eval()
    apart = [
        pm.logp(dp.RandomizedResponse.dist(p, n=n, epsilon=1.0), v).eval()
        for p, n, v in zip(probs, (3, 5), ([1, 2], [2, 3]), strict=True)
    ]
    np.testing.assert_allclose(both, apart)
    with pm.Model() as model:
        logit = pm.Normal("logit", shape=2)
        p = pm.math.sigmoid(logit)
        table = pm.math.stack([p, 1 - p], axis=1)
        dp.RandomizedResponse("z", table, n=[3, 5], epsilon=1.0, observed=[[1, 2], [2, 3]])
    assert find_record_blocks(model) == []
    assert np.isfinite(model.compile_dlogp()(model.initial_point())).all()


# --- bad input -----------------------------------------------------------------------------------

PROBS = np.ones(3) / 3
REAL = r"query must hold categories, whole numbers 0, ..., 2, but it uses .*pt.cast\(x > 0, 'int64'\)"
BAD = {
    "no noise level": (0, {"n_categories": 3}, ValueError, "got none. Choose epsilon=, or p_truth="),
    "two noise levels": (0, {"n_categories": 3, "epsilon": 1, "p_truth": 0.9}, ValueError, "got both"),
    "epsilon zero": (0, {"n_categories": 3, "epsilon": 0}, ValueError, "epsilon must be a finite number > 0"),
    "epsilon inf": (0, {"n_categories": 3, "epsilon": math.inf}, ValueError, "epsilon must be a finite"),
    "epsilon random": (0, {"n_categories": 3, "epsilon": pt.dscalar()}, TypeError, "one real number"),
    "p_truth low": (0, {"n_categories": 4, "p_truth": 0.2}, ValueError, "at least 1/n_categories = 0.25"),
    "p_truth one": (0, {"n_categories": 4, "p_truth": 1.0}, ValueError, "p_truth must be below 1"),
    "p_truth nan": (0, {"n_categories": 4, "p_truth": math.nan}, ValueError, "p_truth must be finite"),
    "p_truth a word": (0, {"n_categories": 4, "p_truth": "often"}, TypeError, "p_truth must be a real"),
    "p_truth longer": ([0, 1], {"n_categories": 4, "p_truth": [0.9] * 3}, ValueError, "more than the query"),
    "unknown categories": (pm.Poisson.dist(2), {"epsilon": 1}, ValueError, "Give n_categories="),
    "categories one": (0, {"n_categories": 1, "epsilon": 1}, ValueError, "n_categories must be at least 2"),
    "categories real": (0, {"n_categories": 2.0, "epsilon": 1}, TypeError, "n_categories must be a whole"),
    "categories fewer": (
        pm.Categorical.dist(PROBS), {"n_categories": 2, "epsilon": 1}, ValueError, "which has 3 categories",
    ),
    "query out of range": ([0, 3], {"n_categories": 3, "epsilon": 1}, ValueError, "query has the value 3 at"),
    "query half": ([0.5], {"n_categories": 3, "epsilon": 1}, ValueError, "query has the value 0.5 at index"),
    "query real": (pm.Normal.dist(shape=4), {"n_categories": 3, "epsilon": 1}, ValueError, REAL),
    "query of fractions": (
        pm.Poisson.dist(2, shape=4) / 2, {"n_categories": 3, "epsilon": 1}, ValueError, REAL,
    ),
    "query too large": (
        pm.Binomial.dist(3, 0.5, shape=4), {"n_categories": 3, "epsilon": 1}, ValueError,
        r"the values 0, ..., 3 of its law, but categories are 0, ..., 2.*n_cat.*dp.clamp\(query, 0, 2\)",
    ),
    "query of a few too large": (
        pm.Binomial.dist([2, 3], 0.5), {"n_categories": 3, "epsilon": 1}, ValueError, "the values 0, ..., 3",
    ),
    "query without an end": (
        pm.Poisson.dist(2, shape=4), {"n_categories": 3, "epsilon": 1}, ValueError,
        r"the values 0, \.\.\. of",
    ),
    "query from one": (
        pm.Geometric.dist(0.4), {"n_categories": 3, "epsilon": 1}, ValueError, "number them from 0",
    ),
    "query from below": (
        pm.DiscreteUniform.dist(-1, 1), {"n_categories": 3, "epsilon": 1}, ValueError,
        "the values -1, ..., 1",
    ),
    "query a table": (np.zeros((2, 2)), {"n_categories": 3, "epsilon": 1}, ValueError, "query has 2 axes"),
    "unknown keyword": (0, {"n_categories": 3, "epsilon": 1, "sigma": 1}, TypeError, "unexpected keyword"),
    "n half": (PROBS, {"n": 2.5, "epsilon": 1}, ValueError, "n must be a whole number >= 1, got 2.5"),
    "n zero": (PROBS, {"n": 0, "epsilon": 1}, ValueError, "n must be a whole number >= 1"),
    "n random": (PROBS, {"n": pt.lscalar(), "epsilon": 1}, TypeError, "n must be a known whole number"),
    "n longer": (PROBS, {"n": [3, 4], "epsilon": 1}, ValueError, "n has shape"),
    "probs a number": (0.5, {"n": 3, "epsilon": 1}, ValueError, "the probabilities of all categories"),
    "probs one": ([1.0], {"n": 3, "epsilon": 1}, ValueError, "probs has 1 category"),
    "probs sum": ([0.5, 0.6], {"n": 3, "epsilon": 1}, ValueError, "sum to 1 over the last axis"),
    "probs and categories": (PROBS, {"n": 3, "n_categories": 4, "epsilon": 1}, ValueError, "contradicts pr"),
    "p_truth low on counts": (PROBS, {"n": 3, "p_truth": 0.3}, ValueError, "p_truth must be at least"),
}  # fmt: skip


@pytest.mark.parametrize(("query", "kwargs", "error", "message"), BAD.values(), ids=BAD)
def test_bad_arguments(query, kwargs, error, message):
    with pytest.raises(error, match=message):
        dp.RandomizedResponse.dist(query, **kwargs)


@pytest.mark.parametrize(
    ("observed", "message"),
    [
        ([0, 1, 3], r"observed has the value 3 at index \(2,\), which is not a category 0, ..., 2"),
        ([0, -1, 1], "observed has the value -1"),
        ([0.5, 1, 1], "observed has the value 0.5"),
        ([0, 1], "observed means a release of shape"),
        ([0, 1, np.nan], "observed has"),
    ],
)
def test_bad_reports(observed, message):
    with pm.Model() as model:
        c = pm.Categorical("c", PROBS, shape=3)
        with pytest.raises(ValueError, match=message):
            dp.RandomizedResponse("z", c, epsilon=1, observed=observed)
    assert "z" not in model.named_vars


@pytest.mark.parametrize(
    ("observed", "message"),
    [
        ([3, 4, 2], "observed adds up to 9, but n = 10"),
        ([12, -4, 2], "observed has the value -4"),
        ([3.5, 4.5, 2], "observed has the value 3.5"),
        ([5, 5], "observed means a release of shape"),
        (10, "observed means a release of shape"),
    ],
)
def test_bad_counts(observed, message):
    with pm.Model():
        p = pm.Dirichlet("p", np.ones(3))
        with pytest.raises(ValueError, match=message):
            dp.RandomizedResponse("z", p, n=10, epsilon=1, observed=observed)


def test_release_and_back():
    release = dp.RandomizedResponse.release([0, 1, 2, 2], epsilon=3, n_categories=3)
    assert dp.Release.from_json(release.to_json()) == release
    with pm.Model():
        c = pm.Categorical("c", PROBS, shape=4)
        z = dp.RandomizedResponse("z", c, observed=release)
        assert dp.guarantee(z).epsilon == 3
        with pytest.raises(ValueError, match="contradicts the release"):
            dp.RandomizedResponse("w", c, epsilon=2, observed=release)
    with pytest.raises(ValueError, match="without n="):
        dp.RandomizedResponse.release(PROBS, epsilon=3, n=4)
    with pytest.raises(ValueError, match="query has a value that is not a category"):
        dp.RandomizedResponse.release([0, 3], epsilon=3, n_categories=3)


def test_tables_of_one_release_are_of_different_people():
    """A person is in one of them: epsilon once; two releases are of the same people, and add up."""
    counts = [3, 3, 4]
    with pm.Model() as one:
        p = pm.Dirichlet("p", np.ones(3), shape=(2, 3))
        dp.RandomizedResponse("z", p, n=10, epsilon=1, observed=[counts, counts])
    with pm.Model() as two:
        p = pm.Dirichlet("p", np.ones(3), shape=(2, 3))
        for j in range(2):
            dp.RandomizedResponse(f"z{j}", p[j], n=10, epsilon=1, observed=counts)
    assert (dp.guarantee(one).epsilon, dp.guarantee(two).epsilon) == (1, 2)
    assert "must be of different people" in dp.RandomizedResponse.__doc__


def numbers():
    return pm.Normal("x", pm.Normal("mu"), 1, shape=4)


def in_three():
    x = numbers()
    return pt.cast(x > -1, "int64") + pt.cast(x > 1, "int64")


def trials():
    return pm.Binomial("c", 3, pm.Beta("p", 1, 1), shape=4)


OFFERED = {
    "two parts of a line": (lambda: pt.cast(numbers() > 0, "int64"), 2),
    "three parts of a line": (in_three, 3),
    "clamped": (lambda: dp.clamp(trials(), 0, 2), 3),
    "more categories": (trials, 4),
    "numbered from 0": (lambda: pm.DiscreteUniform("c", -1, 1, shape=4) + 1, 3),
    "clamped counts": (lambda: dp.clamp(pm.Poisson("c", pm.Gamma("r", 2, 1), shape=4), 0, 2), 3),
}


@pytest.mark.compiles(2)
@pytest.mark.parametrize("query", OFFERED)
def test_what_is_offered_samples(query):
    declare, k = OFFERED[query]
    with pm.Model():
        dp.RandomizedResponse("z", declare(), epsilon=1, n_categories=k, observed=[0, 1, 1, 0])
        idata = pm.sample(
            10,
            tune=10,
            chains=1,
            random_seed=1,
            progressbar=False,
            quiet=True,
            compute_convergence_checks=False,
        )
    assert all(np.isfinite(draws).all() for draws in idata.posterior.values())


@pytest.mark.usefixtures("python_mode")
def test_categories_that_only_values_show_are_refused_with_a_remedy():
    """The law of a sum is not known to the declaration."""
    c = pt.lvector("c")
    logp = pm.logp(dp.RandomizedResponse.dist(c, epsilon=1, n_categories=3), [0, 1, 2])
    assert np.isfinite(logp.eval({c: [0, 1, 2]})).all()
    with pytest.raises(ParameterValueError, match=r"query in 0, \.\.\., 2: give n_categories="):
        logp.eval({c: [0, 1, 3]})


def test_what_the_query_must_be_is_said():
    """A probability in place of a record, one number in place of the probabilities of all categories."""
    with pm.Model():
        p = pm.Beta("p", 1, 1)
        for mechanism in (dp.RandomizedResponse, dp.UnaryEncoding):
            for observed in (60, [40, 60]):
                with pytest.raises(ValueError, match=r"^query must hold the probabilities .*\[1 - p, p\]"):
                    mechanism("r", p, n=100, epsilon=1, observed=observed)
            for query in (p, pm.math.sigmoid(p * np.ones(3))):
                with pytest.raises(ValueError, match=r"query must hold the category .*pm.Bernoulli.*n="):
                    mechanism("r", query, epsilon=1, observed=np.ones(3))
        dp.RandomizedResponse("r", pm.math.stack([1 - p, p]), n=100, epsilon=1, observed=[40, 60])


def test_unknown_arguments_are_named_first():
    """Before the noise level that is missing beside them, and before what is wrong with the query."""
    match = r"^RandomizedResponse got an unexpected keyword argument 'p_yes'\. Its own are epsilon=, p_t"
    with pm.Model():
        for query in (pm.Bernoulli("y", 0.5, shape=3), pm.Normal("x", 0, 1, shape=3)):
            with pytest.raises(TypeError, match=match):
                dp.RandomizedResponse("r", query, p_yes=0.8)
            with pytest.raises(TypeError, match=match):
                dp.RandomizedResponse("r", query, p_yes=0.8, observed=[7, 0.5, 0])
    with pytest.raises(TypeError, match=match):
        dp.RandomizedResponse.dist(0, p_yes=0.8)
    with pytest.raises(TypeError, match=match):
        dp.RandomizedResponse.release([0, 1], p_yes=0.8)
