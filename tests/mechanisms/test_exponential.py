"""The exponential mechanism: probabilities, guarantee, exact draws, and records behind a choice."""

import itertools
import math

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
import scipy.stats as st
from scipy.special import log_softmax, logsumexp

import pymc_dp as dp
from pymc_dp.mechanisms.exponential import ExponentialMechanism, choose_exactly
from pymc_dp.query.records import find_record_blocks
from tests.mechanisms.choices import enumerated, visited, worst_deviation

UTILITIES = {
    "plain": np.array([1.0, 2.0, 5.0, 4.5]),
    "one candidate": np.array([3.0]),
    "ties": np.zeros(5),
    "large": np.array([1e8, 1e8 - 3, -1e8]),
}


def declared(utility, **kwargs):
    return ExponentialMechanism.dist(utility, **({"epsilon": 1.3, "sensitivity": 2.0} | kwargs))


@pytest.mark.usefixtures("python_mode")
@pytest.mark.parametrize("utility", UTILITIES.values(), ids=UTILITIES)
def test_probabilities(utility):
    release = declared(utility)
    exact = log_softmax(1.3 * (utility - utility.max()) / 4)  # differences of large numbers first
    found = [float(pm.logp(release, c).eval()) for c in range(len(utility))]
    np.testing.assert_allclose(found, exact, rtol=1e-12, atol=1e-300)
    for impossible in (-1, len(utility)):
        assert pm.logp(release, impossible).eval() == -np.inf
    # each row of a local query is a choice of its own
    rows = np.stack([utility, utility[::-1], 2 * utility])
    both = pm.logp(declared(rows), np.zeros(3, int)).eval()
    gaps = rows - rows.max(axis=1, keepdims=True)
    np.testing.assert_allclose(both, log_softmax(1.3 * gaps / 4, axis=1)[:, 0], rtol=1e-12)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("how", ["simulated", "numpy", "exact"])
def test_draws(how):
    utility, n = UTILITIES["plain"], 4000
    rows, rng = np.tile(utility, (n, 1)), np.random.default_rng(5)
    op = ExponentialMechanism.rv_op
    if how == "simulated":
        draws = pm.draw(declared(rows), random_seed=4)
    elif how == "numpy":
        draws = op.rng_fn(rng, rows, 1.3, 2.0, None)
    else:
        draws = op.secure_draw(rng, rows, np.array(1.3), np.array(2.0))
    p = np.exp(log_softmax(1.3 * utility / 4))
    assert st.chisquare(np.bincount(draws, minlength=4), n * p).pvalue > 1e-3
    # power: the test tells epsilon = 1.3 from 1
    other = np.exp(log_softmax(utility / 4))
    assert st.chisquare(np.bincount(draws, minlength=4), n * other).pvalue < 1e-3


def test_exact_draws_end():
    """A candidate that is never chosen costs a few comparisons, whatever its utility."""
    rng = np.random.default_rng(0)
    utility = np.array([0.0, -1e12, -1e300, 5e-324])
    assert set(choose_exactly(rng, np.tile(utility, (200, 1)), 1.0, 1.0)) == {0, 3}
    assert choose_exactly(rng, np.array([[7.0]]), 1e-9, 1e9) == 0


def ratios(utility, epsilon=1.0):
    """Log densities of the choice from neighbouring utilities, sensitivity 1."""
    signs = np.array(list(itertools.product((-1, 0, 1), repeat=len(utility))))
    q = declared(utility + signs, epsilon=epsilon, sensitivity=1.0)
    choices = [np.full(len(signs), c) for c in range(len(utility))]
    logs = [pm.logp(q, c).eval(mode="FAST_COMPILE") for c in choices]
    return log_softmax(epsilon * utility / 2), np.stack(logs, axis=1)


def test_guarantee_holds_and_is_tight():
    """Supremum over all corners of what one record can change; reached by an unlikely candidate."""
    worst = 0.0
    for utility in (np.zeros(3), np.array([0.0, -3.0, 1.0]), np.array([0.0, -60.0, -60.0])):
        here, there = ratios(utility, epsilon=0.8)
        worst = max(worst, np.abs(here - there).max())
    stated = dp.guarantee(declared(np.zeros(3), epsilon=0.8))
    assert stated.is_pure and stated.epsilon == 0.8 and stated.neighbours == "replace-one"
    assert 0.8 - 1e-9 <= worst <= 0.8 + 1e-12


@pytest.mark.parametrize("epsilon", [0.05, 1.0, 6.0])
def test_concentrated_guarantee(epsilon):
    rho = dp.guarantee(declared(np.zeros(3), epsilon=epsilon)).rho
    assert rho == pytest.approx(epsilon**2 / 8)
    spent = 0.0
    for utility in (np.zeros(2), np.array([0.0, -2.0]), np.array([0.0, 0.5, -8.0])):
        here, there = ratios(utility, epsilon)
        for alpha in (1.01, 2.0, 10.0):
            divergence = logsumexp(alpha * here + (1 - alpha) * there, axis=1) / (alpha - 1)
            spent = max(spent, divergence.max() / alpha)
    assert spent <= rho * (1 + 1e-9)
    if epsilon < 0.1:  # where the bound is known to be attained
        assert spent >= 0.99 * rho


def votes(y, k=3):
    return dp.record_sum(pt.stack([pt.eq(y, c) for c in range(k)], axis=1))


@pytest.mark.usefixtures("python_mode")
def test_bounds_clamp_and_give_the_sensitivity():
    with pm.Model() as model:
        y = pm.Normal("y", 0, 1, shape=4)
        scores = pt.stack([y, -2 * y], axis=1)
        dp.ExponentialMechanism("one", dp.record_sum(scores), epsilon=1, bounds=(-1, 2), observed=0)
        two = np.array([-1.0, -3.0]), np.array([1.0, 2.0])
        dp.ExponentialMechanism("two", dp.record_sum(scores), epsilon=1, bounds=two, observed=1)
        dp.ExponentialMechanism(
            "loose", dp.record_sum(scores), epsilon=1, bounds=(-1, 2), sensitivity=4, observed=0
        )
        dp.ExponentialMechanism("each", scores, epsilon=1, bounds=(-1, 2), observed=[0, 1, 0, 1])
    sensitivity = {rv.name: rv.owner.inputs[-1].eval().item() for rv in model.observed_RVs}
    assert sensitivity == {"one": 3.0, "two": 5.0, "loose": 4.0, "each": 3.0}
    x = np.array([-3.0, 0.2, 0.9, 4.0])
    logs = model.point_logps({"y": x}, round_vals=12)
    raw = np.stack([x, -2 * x], axis=1)
    assert logs["one"] == pytest.approx(log_softmax(raw.clip(-1, 2).sum(0) / 6)[0])
    assert logs["two"] == pytest.approx(log_softmax(raw.clip(*two).sum(0) / 10)[1])
    assert logs["loose"] == pytest.approx(log_softmax(raw.clip(-1, 2).sum(0) / 8)[0])
    rows = log_softmax(raw.clip(-1, 2) / 6, axis=1)
    assert logs["each"] == pytest.approx(rows[np.arange(4), [0, 1, 0, 1]].sum())


def central(y):
    return {"utility": votes(y), "sensitivity": 1, "observed": 1, "epsilon": 3}


def clamped(y):
    scores = dp.record_sum(pt.stack([1.5 * y, 2 - y, 0.3 * y], axis=1))
    return {"utility": scores, "bounds": (0, 1.2), "observed": 0, "epsilon": 4}


def local(y):
    each = pt.stack([pt.eq(y, c) for c in range(3)], axis=1)
    return {"utility": each, "sensitivity": 1, "observed": [0, 2, 2], "epsilon": 2}


def sampled_vector(y):
    """The records themselves as the utilities of as many candidates: one choice of all records."""
    return {"utility": y, "sensitivity": 2, "observed": 1, "epsilon": 3}


@pytest.mark.statistical
@pytest.mark.filterwarnings("ignore:The query of z is no sum over records")
@pytest.mark.parametrize(
    ("query", "kind"),
    [(central, "central"), (clamped, "central"), (local, "local"), (sampled_vector, "general")],
)
def test_records_follow_their_posterior(query, kind):
    p = np.array([0.2, 0.5, 0.3])
    with pm.Model() as model:
        y = pm.Categorical("y", p, shape=3)
        arguments = query(y)
        dp.ExponentialMechanism("z", arguments.pop("utility"), **arguments)
    (block,) = find_record_blocks(model)
    assert [r.kind for r in block.releases] == [kind]
    combinations, exact = enumerated(model, "z", range(3), np.log(p))
    seen, lowest = visited(model, np.arange(3), 10_000)
    assert worst_deviation(seen, combinations, exact) < 5
    assert lowest >= math.exp(-arguments["epsilon"]) * (1 - 1e-9)
    # power: the prior alone would be told apart
    prior = np.array([np.prod(p[list(c)]) for c in combinations])
    assert worst_deviation(seen, combinations, prior) > 8


@pytest.mark.statistical  # records alone, and a parameter in full: tests/contract/test_imputation.py
def test_parameter_follows_its_posterior():
    """All that pm.sample does by itself, beside the exact mixture of Beta laws."""
    with pm.Model():
        p = pm.Beta("p", 2, 1)
        y = pm.Bernoulli("y", p, shape=5)
        utility = dp.record_sum(pt.stack([y, 1 - y], axis=1))
        dp.ExponentialMechanism("z", utility, epsilon=2, sensitivity=1, observed=0)
        idata = pm.sample(4000, tune=500, chains=2, cores=1, random_seed=4, progressbar=False)
    k = np.arange(6)
    weights = st.betabinom.pmf(k, 5, 2, 1) * np.exp(log_softmax(np.stack([k, 5 - k]), axis=0)[0])
    weights /= weights.sum()
    draws = idata.posterior["p"].values
    for power in (1, 2):
        exact = sum(w * st.beta.moment(power, 2 + s, 1 + 5 - s) for s, w in zip(k, weights))
        x = draws**power
        assert abs(x.mean() - exact) < 5 * x.std() / math.sqrt(float(pm.stats.ess(x)))


@pytest.mark.statistical
@pytest.mark.usefixtures("python_mode")
def test_released_and_declared_again():
    data = np.array([0, 2, 2, 1, 2])
    each = np.stack([data == c for c in range(3)], axis=1).astype(float)
    release = dp.ExponentialMechanism.release(dp.record_sum(each), epsilon=1.5, bounds=(0, 1))
    stated = dict(release.parameters)
    assert 1 < stated.pop("sensitivity") < 1 + 1e-11  # it covers the rounding to granules
    assert stated == {"epsilon": 1.5, "bounds": (0.0, 1.0)}
    again = dp.Release.from_json(release.to_json())
    with pm.Model() as model:
        y = pm.Categorical("y", np.ones(3) / 3, shape=5)
        z = dp.ExponentialMechanism("z", votes(y), observed=again)
        with pytest.raises(ValueError, match="epsilon = 2 contradicts the release"):
            dp.ExponentialMechanism("other", votes(y), epsilon=2, observed=again)
    assert dp.guarantee(z) == release.guarantee
    exact = log_softmax(0.75 * each.sum(0))[int(release.value)]
    assert model.point_logps({"y": data}, round_vals=12)["z"] == pytest.approx(exact)


BAD = {
    "no budget": ({"epsilon": None}, ValueError, "got none. Choose epsilon= with sensitivity= or bounds="),
    "no sensitivity": ({"sensitivity": None}, ValueError, "epsilon needs the sensitivity of a candidate's"),
    "epsilon zero": ({"epsilon": 0}, ValueError, "epsilon must be a finite number > 0, got 0"),
    "epsilon infinite": ({"epsilon": math.inf}, ValueError, "epsilon must be a finite number > 0"),
    "epsilon too large": ({"epsilon": 1e300}, ValueError, r"epsilon = 1e\+300 is too large"),
    "epsilon random": ({"epsilon": pt.scalar()}, TypeError, "epsilon must be one real number"),
    "sensitivity": ({"sensitivity": -1}, ValueError, "sensitivity must be a finite number > 0, got -1"),
    "contradiction": ({"bounds": (0, 3)}, ValueError, "sensitivity = 2 contradicts bounds, .* by 3:"),
    "bounds reversed": ({"bounds": (3, 0)}, ValueError, "bounds must have lo < hi"),
    "unknown keyword": ({"scale": 1}, TypeError, "unexpected keyword argument 'scale'"),
    "another shape": ({"shape": (7,)}, ValueError, "one call of a mechanism is one release"),
}


@pytest.mark.parametrize(("noise", "error", "message"), BAD.values(), ids=BAD)
def test_bad_noise(noise, error, message):
    with pytest.raises(error, match=message):
        declared(dp.record_sum(np.zeros((4, 3))), **noise)


@pytest.mark.parametrize("utility", [3.0, np.zeros(0), np.zeros((4, 0))])
def test_bad_utility(utility):
    with pytest.raises(ValueError, match="utility must have the candidates on its last axis"):
        declared(utility)


BAD_OBSERVED = {
    "too large": (3, ValueError, "whole numbers from 0 to 2, got 3"),
    "negative": (-1, ValueError, "whole numbers from 0 to 2, got -1"),
    "a fraction": (0.5, ValueError, "whole numbers from 0 to 2, got 0.5"),
    "missing": (np.nan, ValueError, "observed has 1 missing"),
    "a vector": ([0, 1], ValueError, r"observed means a release of shape \(2,\)"),
    "a word": ("first", TypeError, "observed must hold real numbers"),
    "another's": (dp.Release(1.0, "LaplaceMechanism", {"scale": 1.0}), ValueError, "release of Laplace"),
}


@pytest.mark.parametrize(("observed", "error", "message"), BAD_OBSERVED.values(), ids=BAD_OBSERVED)
def test_bad_observed(observed, error, message):
    noise = {} if isinstance(observed, dp.Release) else {"epsilon": 1, "sensitivity": 1}
    with pm.Model():
        y = pm.Categorical("y", np.ones(3) / 3, shape=4)
        with pytest.raises(error, match=message):
            dp.ExponentialMechanism("z", votes(y), observed=observed, **noise)


def worst_loss(utilities, n):
    """Largest privacy loss when one of n people changes, whose numbers are 0 or 1; by enumeration."""
    worst = 0.0
    for people in itertools.product([0.0, 1.0], repeat=n):
        for i in range(n):
            before = np.array(people)
            after = before.copy()
            after[i] = 1 - after[i]
            one, other = (log_softmax(utilities(x) / 2, axis=-1) for x in (before, after))
            worst = max(worst, (one - other).max(axis=-1).sum())
    return worst


def of_each(x):
    return np.stack([x, 1 - x], axis=1)


def of_all(x):
    return of_each(x).sum(axis=0)


def of_questions(x):
    """As many questions as people, each answered alike by all: every person is in every row."""
    return np.broadcast_to(of_all(x), (len(x), 2))


@pytest.mark.parametrize("n", [0, 1, 2, 5])
def test_what_a_choice_costs_each_person(n):
    """What is stated of data, of their release, its file, and of models covers the loss, and no more than
    one epsilon for each choice that a person has a part in.
    """
    x = np.arange(n) % 2.0
    data = pytensor.shared(x, shape=(n,))
    vector = pt.stack([data, 1 - data], axis=1)
    cases = {
        "central": (dp.record_sum(vector), of_all, 1),
        "local": (vector, of_each, 1),
        "table": (of_questions(x), of_questions, max(n, 1)),
    }
    for name, (query, utilities, times) in cases.items():
        release = ExponentialMechanism.release(query, epsilon=1, sensitivity=1)
        stated = [
            dp.guarantee(declared(query, epsilon=1, sensitivity=1)),
            release.guarantee,
            dp.guarantee(release),
            dp.guarantee(dp.Release.from_json(release.to_json())),
        ]
        assert {(g.epsilon, g.rho) for g in stated} == {(times, times / 8)}, name
        assert worst_loss(utilities, n) <= times, name
        for given in (release, None) if n else ():
            with pm.Model() as model:
                y = pm.Uniform("y", shape=n)
                rows = pt.stack([y, 1 - y], axis=1)
                noise = {"observed": given} if given else {"epsilon": 1, "sensitivity": 1}
                ExponentialMechanism("z", dp.record_sum(rows) if name == "central" else rows, **noise)
            assert dp.guarantee(model).epsilon == (times if given else 1), name
    if n == 5:  # so that one epsilon would be too little for a table of totals
        assert worst_loss(of_questions, n) > 1
