"""Records with few values that depend on each other, and what else is observed of people, by enumeration."""

from itertools import product

import arviz as az
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.sampling import mcmc
from scipy import special, stats

import pymc_dp as dp

N = 5
X = np.array([-1.0, 0.3, 0.8, -0.2, 1.4])
OUTCOME = np.array([0.2, 1.9, -0.4, 1.1, 2.5])
CARDS = np.array([[0.85, 0.15], [0.25, 0.75]])
WEATHER = np.array([0, 1, 1, 0, 1])
ANSWERS, HOMES, BOTH = np.array([0, 1, 1, 0, 1]), np.array([2, 0, 1, 1, 0]), np.array([1, 0, 0, 1, 1])
SHARES = np.array([[0.5, 0.3, 0.2], [0.2, 0.2, 0.6]])
EPSILON = 1.3
POINTS = ({"a": 0.4, "b": 0.7}, {"a": -1.1, "b": 2.0})


def ary(k, epsilon):
    """Probabilities of answers, k-ary randomized response."""
    table = np.full((k, k), 1.0)
    np.fill_diagonal(table, np.exp(epsilon))
    return table / table.sum(axis=1, keepdims=True)


def prior(a, b):
    """Two parameters, which enter everything below."""
    return pm.Normal("a", 0, 1), pm.HalfNormal("b", 2)


def linked():
    """A yes or no, and a category whose probabilities depend on it, each told."""
    a, b = prior(0, 0)
    truth = pm.Bernoulli("truth", p=pm.math.sigmoid(a + X), shape=N)
    shares = special_shares(b)
    home = pm.Categorical("home", p=shares[truth], shape=N)
    dp.RandomizedResponse("answer", truth, p_answer=CARDS, observed=ANSWERS)
    dp.RandomizedResponse("housing", home, epsilon=EPSILON, n_categories=3, observed=HOMES)


def special_shares(b):
    """Shares of categories that depend on a parameter, one row for each truth."""
    logits = np.log(SHARES) + b * np.array([[0.0, 0.2, 0.4], [0.3, 0.0, 0.1]])
    return pm.math.softmax(logits, axis=1) if not isinstance(b, float) else special.softmax(logits, axis=1)


def linked_exactly(a, b, told=True, outcome=False, both=False):
    total = 0.0
    for i in range(N):
        p = special.expit(a + X[i])
        here = 0.0
        for t, h in product(range(2), range(3)):
            weight = (p if t else 1 - p) * special_shares(float(b))[t, h]
            if told:
                weight *= CARDS[t, ANSWERS[i]] * ary(3, EPSILON)[h, HOMES[i]]
            if outcome:
                weight *= stats.norm.pdf(OUTCOME[i], a + b * t + 0.5 * h * X[i], 0.8 + 0.1 * t)
            if both:
                weight *= ary(2, 0.9)[int(t == 1 and h == WEATHER[i]), BOTH[i]]
            here += weight
        total += np.log(here)
    return total


def linked_with_outcome():
    """The same, and a public outcome whose mean and spread depend on both."""
    linked()
    model = pm.modelcontext(None)
    a, b, truth, home = (model[name] for name in ("a", "b", "truth", "home"))
    pm.Normal("outcome", a + b * truth + 0.5 * home * X, 0.8 + 0.1 * truth, observed=OUTCOME)


def linked_with_both():
    """The same, and one answer about both, compared with something public."""
    linked()
    model = pm.modelcontext(None)
    together = pm.math.and_(pt.eq(model["truth"], 1), pt.eq(model["home"], WEATHER))
    dp.RandomizedResponse("both", together, epsilon=0.9, n_categories=2, observed=BOTH)


def one_of_six():
    """One record of six cells, of which two answers tell parts: the same law."""
    a, b = prior(0, 0)
    p = pm.math.sigmoid(a + X)
    truths = pt.stack([1 - p, p], axis=1)
    cell = pm.Categorical("cell", (truths[:, :, None] * special_shares(b)[None]).reshape((N, 6)), shape=N)
    dp.RandomizedResponse("answer", cell // 3, p_answer=CARDS, observed=ANSWERS)
    dp.RandomizedResponse("housing", cell % 3, epsilon=EPSILON, n_categories=3, observed=HOMES)


def looked_up():
    """One told function of a record, by a table."""
    a, b = prior(0, 0)
    y = pm.Binomial("y", 3, pm.math.sigmoid(a + b * X), shape=N)
    dp.LaplaceMechanism("z", pt.constant([0.0, 2.0, 2.5, 7.0])[y], scale=1.5, observed=OUTCOME)


def looked_up_exactly(a, b):
    told = np.array([0.0, 2.0, 2.5, 7.0])
    weights = stats.binom.pmf(np.arange(4), 3, special.expit(a + b * X)[:, None])
    return np.log((weights * stats.laplace.pdf(OUTCOME[:, None], told, 1.5)).sum(axis=1)).sum()


def outcome_of_one():
    """A covariate behind a device, and a count that depends on it: the plainest regression of this kind."""
    a, b = prior(0, 0)
    smokes = pm.Bernoulli("smokes", 0.3, shape=N)
    pm.Poisson("visits", pm.math.exp(a + b * smokes), observed=HOMES)
    dp.RandomizedResponse("told", smokes, epsilon=1.0, observed=ANSWERS)


def outcome_of_one_exactly(a, b):
    total = 0.0
    for i in range(N):
        weights = [
            (0.3 if s else 0.7) * stats.poisson.pmf(HOMES[i], np.exp(a + b * s)) * ary(2, 1.0)[s, ANSWERS[i]]
            for s in range(2)
        ]
        total += np.log(sum(weights))
    return total


def rows_of_one():
    """A public row of two numbers of each person, jointly normal, whose mean depends on the record."""
    a, b = prior(0, 0)
    y = pm.Categorical("y", [0.5, 0.2, 0.3], shape=N)
    mean = pt.stack([a + b * y, a - pt.eq(y, 2)], axis=1)
    pm.MvNormal("seen", mean, cov=[[1.0, 0.3], [0.3, 0.7]], observed=np.stack([OUTCOME, X], axis=1))
    dp.GaussianMechanism("z", y, sigma=1.2, observed=OUTCOME)


def rows_of_one_exactly(a, b):
    total = 0.0
    for i in range(N):
        weights = [
            w
            * stats.multivariate_normal.pdf(
                [OUTCOME[i], X[i]], [a + b * k, a - (k == 2)], [[1.0, 0.3], [0.3, 0.7]]
            )
            * stats.norm.pdf(OUTCOME[i], k, 1.2)
            for k, w in enumerate([0.5, 0.2, 0.3])
        ]
        total += np.log(sum(weights))
    return total


def chain():
    """Three records, each of which depends on the one before, told at the ends."""
    a, b = prior(0, 0)
    first = pm.Bernoulli("first", pm.math.sigmoid(a), shape=N)
    second = pm.Categorical("second", pt.stack([SHARES[0], SHARES[1]])[first], shape=N)
    third = pm.Binomial("third", 2, pm.math.sigmoid(b * second - first + X), shape=N)
    dp.RandomizedResponse("answer", first, p_answer=CARDS, observed=ANSWERS)
    dp.DiscreteLaplaceMechanism("z", third, scale=0.8, observed=HOMES)


def chain_exactly(a, b):
    total, decay = 0.0, np.exp(-1 / 0.8)
    for i in range(N):
        here = 0.0
        for f, s, t in product(range(2), range(3), range(3)):
            p = special.expit(a)
            weight = (p if f else 1 - p) * SHARES[f, s]
            weight *= stats.binom.pmf(t, 2, special.expit(b * s - f + X[i])) * CARDS[f, ANSWERS[i]]
            here += weight * (1 - decay) / (1 + decay) * decay ** abs(HOMES[i] - t)
        total += np.log(here)
    return total


def met():
    """Two records told apart, which meet in an outcome."""
    a, b = prior(0, 0)
    first = pm.Bernoulli("first", pm.math.sigmoid(a + X), shape=N)
    second = pm.DiscreteUniform("second", -1, 1, shape=N)
    pm.Normal("seen", a * first + b * second * first, 0.7, observed=OUTCOME)
    dp.RandomizedResponse("answer", first, p_answer=CARDS, observed=ANSWERS)
    dp.LaplaceMechanism("z", second, scale=1.1, observed=X)


def met_exactly(a, b):
    total = 0.0
    for i in range(N):
        weights = [
            (special.expit(a + X[i]) if f else special.expit(-a - X[i]))
            * CARDS[f, ANSWERS[i]]
            * stats.laplace.pdf(X[i], s, 1.1)
            * stats.norm.pdf(OUTCOME[i], a * f + b * s * f, 0.7)
            / 3
            for f, s in product(range(2), (-1, 0, 1))
        ]
        total += np.log(sum(weights))
    return total


def mediated():
    """What is observed in between: an outcome that depends on an answer, a record, and another outcome."""
    a, b = prior(0, 0)
    y = pm.Bernoulli("y", pm.math.sigmoid(a + X), shape=N)
    z = dp.RandomizedResponse("answer", y, p_answer=CARDS, observed=ANSWERS)
    between = pm.Normal("between", b * y, 1.0, observed=X)
    pm.Normal("last", a * between + b * y + 0.3 * z, 0.7, observed=OUTCOME)


def mediated_exactly(a, b):
    total = 0.0
    for i in range(N):
        means = [a * X[i] + b * y + 0.3 * ANSWERS[i] for y in range(2)]
        weights = [
            (special.expit(a + X[i]) if y else special.expit(-a - X[i]))
            * CARDS[y, ANSWERS[i]]
            * stats.norm.pdf(X[i], b * y)
            * stats.norm.pdf(OUTCOME[i], means[y], 0.7)
            for y in range(2)
        ]
        total += np.log(sum(weights))
    return total


def one_after_another():
    """A record whose law depends on what is observed of another record."""
    a, b = prior(0, 0)
    first = pm.Bernoulli("first", pm.math.sigmoid(a + X), shape=N)
    dp.RandomizedResponse("answer", first, p_answer=CARDS, observed=ANSWERS)
    between = pm.Normal("between", b * first, 1.0, observed=X)
    second = pm.Bernoulli("second", pm.math.sigmoid(between + a), shape=N)
    dp.RandomizedResponse("both", second, epsilon=0.9, n_categories=2, observed=BOTH)


def one_after_another_exactly(a, b):
    total = 0.0
    for i in range(N):
        weights = [
            (special.expit(a + X[i]) if f else special.expit(-a - X[i]))
            * CARDS[f, ANSWERS[i]]
            * stats.norm.pdf(X[i], b * f)
            * (special.expit(X[i] + a) if s else special.expit(-X[i] - a))
            * ary(2, 0.9)[s, BOTH[i]]
            for f, s in product(range(2), range(2))
        ]
        total += np.log(sum(weights))
    return total


def sure():
    """Probabilities that are 0 or 1 in floating point, which what is seen contradicts."""
    a, b = prior(0, 0)
    y = pm.Bernoulli("y", logit_p=a + 40 * X, shape=N)
    w = pm.Categorical("w", logit_p=pt.stack([800 * X, b * X, 0 * X], axis=1), shape=N)
    given = pm.math.sigmoid(pt.stack([a + 50, b - 50]))[y]
    v = pm.Bernoulli("v", given, shape=N)
    u = pm.Bernoulli("u", pm.math.softmax(pt.stack([a * X, b * X], axis=1), axis=1)[:, 1], shape=N)
    dp.GaussianMechanism("z", u, sigma=1.0, observed=X)
    pm.Normal("seen", b * y + w - v, 0.05, observed=OUTCOME)
    dp.RandomizedResponse("answer", y, p_answer=CARDS, observed=ANSWERS)
    dp.RandomizedResponse("housing", w, epsilon=EPSILON, n_categories=3, observed=HOMES)
    dp.RandomizedResponse("both", v, epsilon=0.9, n_categories=2, observed=BOTH)


def sure_exactly(a, b):
    total = 0.0
    for i in range(N):
        terms = []
        logits = np.array([800 * X[i], b * X[i], 0.0])
        for y, w, v in product(range(2), range(3), range(2)):
            term = special.log_expit((2 * y - 1) * (a + 40 * X[i])) + special.log_softmax(logits)[w]
            term += special.log_expit((2 * v - 1) * (b - 50 if y else a + 50))
            term += np.log(CARDS[y, ANSWERS[i]] * ary(3, EPSILON)[w, HOMES[i]] * ary(2, 0.9)[v, BOTH[i]])
            terms.append(term + stats.norm.logpdf(OUTCOME[i], b * y + w - v, 0.05))
        p = special.expit((b - a) * X[i])
        total += special.logsumexp(terms)
        total += np.log(p * stats.norm.pdf(X[i], 1) + (1 - p) * stats.norm.pdf(X[i]))
    return total


CASES = {
    "linked": (linked, ["truth", "home"], linked_exactly),
    "linked, with an outcome": (
        linked_with_outcome,
        ["home", "truth"],
        lambda a, b: linked_exactly(a, b, outcome=True),
    ),
    "linked, one answer about both": (
        linked_with_both,
        ["truth", "home"],
        lambda a, b: linked_exactly(a, b, both=True),
    ),
    "functions of one": (one_of_six, "cell", linked_exactly),
    "a function by a table": (looked_up, "y", looked_up_exactly),
    "an outcome": (outcome_of_one, "smokes", outcome_of_one_exactly),
    "an outcome of two numbers": (rows_of_one, "y", rows_of_one_exactly),
    "a chain": (chain, ["first", "second", "third"], chain_exactly),
    "sure": (sure, ["y", "w", "v", "u"], sure_exactly),
    "met in an outcome": (met, ["second", "first"], met_exactly),
    "an outcome in between": (mediated, "y", mediated_exactly),
    "an outcome in between records": (one_after_another, ["second", "first"], one_after_another_exactly),
}


def built(name):
    build, names, exactly = CASES[name]
    with pm.Model() as model:
        build()
    return model, dp.marginalize(model, names), exactly


def observed_at(marginal, a, b):
    terms = [marginal[rv.name] for rv in marginal.observed_RVs]
    return float(marginal.compile_logp(vars=terms)({"a": np.array(a), "b_log__": np.log(b)}))


@pytest.mark.parametrize("name", CASES)
def test_density_is_the_sum_over_all_combinations(name, python_mode):
    model, marginal, exactly = built(name)
    for point in POINTS:
        assert observed_at(marginal, **point) == pytest.approx(exactly(**point), rel=1e-12)
    assert [rv.name for rv in marginal.observed_RVs] == [rv.name for rv in model.observed_RVs]
    assert {v.name for v in marginal.free_RVs} == {"a", "b"}
    for rv in filter(lambda rv: hasattr(rv.owner.op, "guarantee"), model.observed_RVs):
        assert marginal[rv.name].owner.op.guarantee == rv.owner.op.guarantee


@pytest.mark.parametrize("name", CASES)
def test_gradient(name, python_mode):
    _, marginal, exactly = built(name)
    terms = [marginal[rv.name] for rv in marginal.observed_RVs]
    free = marginal.value_vars
    gradient = marginal.compile_fn(pytensor.grad(marginal.logp(vars=terms), free), inputs=free)
    a, b, h = 0.4, 0.7, 1e-5
    found = dict(zip([v.name for v in free], gradient({"a": np.array(a), "b_log__": np.log(b)}), strict=True))
    slopes = [
        (exactly(a + h, b) - exactly(a - h, b)) / (2 * h),
        (exactly(a, b * np.exp(h)) - exactly(a, b * np.exp(-h))) / (2 * h),
    ]
    np.testing.assert_allclose([found["a"], found["b_log__"]], slopes, rtol=1e-6, atol=1e-7)


@pytest.mark.statistical  # compiles
@pytest.mark.parametrize("name", ["linked, with an outcome", "chain, drawn"])
def test_records_are_drawn_back_together(name):
    """Given parameters: the joint shares of the cells of each person."""
    if name == "chain, drawn":
        model, marginal, _ = built("a chain")
        names, cells = ["first", "second", "third"], list(product(range(2), range(3), range(3)))
    else:
        model, marginal, _ = built(name)
        names, cells = ["truth", "home"], list(product(range(2), range(3)))
    point, draws = POINTS[0], 20_000
    data = {k: np.full((1, draws), v) for k, v in point.items()}
    idata = az.from_dict({"posterior": data})
    drawn = dp.recover_records(idata, model, random_seed=3)
    found = np.stack([drawn[n].values[0] for n in names], axis=-1)
    for i in range(N):
        weights = np.array([weight_of(name, i, cell, **point) for cell in cells])
        expected = draws * weights / weights.sum()
        seen = np.array([(found[:, i] == cell).all(axis=1).sum() for cell in cells])
        assert seen.sum() == draws
        common = expected > 5
        tail = [seen[~common].sum()], [expected[~common].sum()]
        one, other = (np.concatenate([v[common], t]) for v, t in zip((seen, expected), tail, strict=True))
        kept = other > 0
        assert stats.chisquare(one[kept], other[kept]).pvalue > 1e-4
    assert marginal is not model


def weight_of(name, i, cell, a, b):
    if name == "chain, drawn":
        f, s, t = cell
        p, decay = special.expit(a), np.exp(-1 / 0.8)
        weight = (p if f else 1 - p) * SHARES[f, s] * CARDS[f, ANSWERS[i]]
        return weight * stats.binom.pmf(t, 2, special.expit(b * s - f + X[i])) * decay ** abs(HOMES[i] - t)
    t, h = cell
    p = special.expit(a + X[i])
    weight = (p if t else 1 - p) * special_shares(float(b))[t, h] * CARDS[t, ANSWERS[i]]
    weight *= ary(3, EPSILON)[h, HOMES[i]]
    return weight * stats.norm.pdf(OUTCOME[i], a + b * t + 0.5 * h * X[i], 0.8 + 0.1 * t)


def told(query, **kwargs):
    dp.RandomizedResponse("told", query, epsilon=1.0, n_categories=2, observed=ANSWERS, **kwargs)


def two_answers_of_one_mean():
    y = pm.Bernoulli("y", 0.4, shape=(N, 2))
    pm.Normal("seen", y[:, ::-1], 1.0, observed=np.stack([X, OUTCOME], axis=1))
    dp.LaplaceMechanism("z", y, epsilon=1, bounds=(0, 1), observed=np.stack([ANSWERS, BOTH], axis=1))


def a_parameter_in_the_query():
    y, a = pm.Bernoulli("y", 0.4, shape=N), pm.Bernoulli("a", 0.5)
    told(pt.eq(y, a))


def a_sum_beside():
    y = pm.Bernoulli("y", 0.4, shape=N)
    told(y)
    dp.LaplaceMechanism("total", dp.record_sum(y), epsilon=1, sensitivity=1, observed=2.0)


def a_censored_outcome():
    y = pm.Bernoulli("y", 0.4, shape=N)
    pm.Censored("seen", pm.Normal.dist(y, 1), lower=-3, upper=None, observed=X)
    told(y)


def too_many_cells():
    y = pm.Binomial("y", 40, 0.4, shape=N)
    w = pm.Binomial("w", 40, pm.math.sigmoid(y - 20), shape=N)
    dp.LaplaceMechanism("z", w, epsilon=1, bounds=(0, 40), observed=X)


def two_rows(y, mean):
    pm.Normal("seen", mean, 1.0, observed=np.stack([X, OUTCOME], axis=1))
    dp.LaplaceMechanism("z", y, epsilon=1, bounds=(0, 1), observed=ANSWERS[:, None])


def one_answer_in_two_columns():
    y = pm.Bernoulli("y", 0.4, shape=(N, 1))
    two_rows(y, y)


def another_order():
    y = pm.Bernoulli("y", 0.4, shape=N)
    told(y)
    pm.Normal("seen", y[::-1], 1.0, observed=X)


def somebody_twice():
    y = pm.Bernoulli("y", 0.4, shape=N)
    told(y)
    pm.Normal("seen", y[[0, 0, 1, 2, 3]], 1.0, observed=X)


def more_rows():
    y = pm.Bernoulli("y", 0.4, shape=N)
    told(y)
    pm.Normal("seen", y[[0, 0, 1, 2, 3, 4]], 1.0, observed=[*X, 1.0])


def another_order_in_a_query():
    y = pm.Bernoulli("y", pm.math.sigmoid(X), shape=N)
    told(y[::-1])


def a_density_of_ones_own():
    y = pm.Categorical("y", np.full(N, 1 / N), shape=N)
    told(pt.eq(y, 1))
    pm.CustomDist("seen", 1.0 * y, logp=lambda value, mu: -((value - mu - X) ** 2), observed=X)


def given_what_another_decides():
    first = pm.Bernoulli("first", 0.4, shape=N)
    told(first)
    between = pm.Normal("between", first, 1.0, observed=X)
    second = pm.Bernoulli("second", pm.math.sigmoid(between), shape=N)
    dp.RandomizedResponse("both", second, epsilon=0.9, n_categories=2, observed=BOTH)
    pm.Normal("last", first + second, 1.0, observed=OUTCOME)


def a_part_of_the_rows():
    y = pm.Bernoulli("y", 0.4, shape=N)
    told(y)
    pm.Normal("seen", y, 1.0, observed=X, total_size=10)


def its_child_is_summed():
    y = pm.Bernoulli("y", 0.4, shape=N)
    w = pm.Bernoulli("w", 0.2 + 0.5 * y, shape=N)
    told(y)
    dp.LaplaceMechanism("total", dp.record_sum(w), epsilon=1, sensitivity=1, observed=2.0)


REFUSED = {
    "one answer in two columns": (
        one_answer_in_two_columns,
        "y",
        r"seen has shape \(5, 2\), and",
    ),
    "another order": (another_order, "y", "the law of seen reads people in another order"),
    "somebody twice": (somebody_twice, "y", "or several in one row"),
    "more rows": (more_rows, "y", r"seen has shape \(6,\), and the records have \(5,\)"),
    "another order in a query": (another_order_in_a_query, "y", "or has people in another order"),
    "a density of one's own": (a_density_of_ones_own, "y", "density of seen is a function of yours"),
    "given what another decides": (
        given_what_another_decides,
        ["first", "second"],
        "the law of second depends on between, which depends on first",
    ),
    "a part of the rows": (a_part_of_the_rows, "y", "seen is scaled by total_size"),
    "its child is summed": (its_child_is_summed, "y", "of its releases alone. Leave it to RecordImputation"),
    "answers that are mixed": (two_answers_of_one_mean, "y", "seen depends on several answers of a person"),
    "a parameter": (a_parameter_in_the_query, "y", "reads what is no constant, beside the records"),
    "the child alone": (linked, "home", r"names=\['truth', 'home'\]"),
    "the parent alone": (linked, "truth", r"go together: names=\['truth', 'home'\]"),
    "a sum beside": (a_sum_beside, "y", "out of total: its query is computed from several people"),
    "a censored outcome": (a_censored_outcome, "y", "the law of seen is not a plain law of each person"),
    "too many cells": (too_many_cells, ["y", "w"], "they have 1681 values, and at most 256 are summed over"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_summed_out_is_said(name, python_mode):
    build, names, message = REFUSED[name]
    with pm.Model() as model:
        build()
    with pytest.raises(ValueError, match=message):
        dp.marginalize(model, names)


@pytest.mark.parametrize("name", ["linked", "an outcome"])
def test_default_steps_say_that_records_can_go(name, caplog):
    build, names, _ = CASES[name]
    with pm.Model() as model, caplog.at_level("INFO", logger="pymc.dp"):
        build()
        mcmc.assign_step_methods(model)
    names = [names] if isinstance(names, str) else names
    assert f"dp.marginalize(model, {names}) sums them out" in caplog.text
    dp.marginalize(model, names)


def test_nothing_is_said_where_steps_sum_records_out(caplog):
    with pm.Model() as model, caplog.at_level("INFO", logger="pymc.dp"):
        told(pm.Bernoulli("y", pm.Beta("p", 1, 1), shape=N))
        mcmc.assign_step_methods(model)
    with pm.Model() as model, caplog.at_level("INFO", logger="pymc.dp"):
        CASES["a function by a table"][0]()
        mcmc.assign_step_methods(model)
    assert "dp.marginalize" not in caplog.text


def test_nothing_is_said_of_what_cannot_be_summed_out(caplog):
    """Answers of several numbers each have no marginal law here."""
    with pm.Model() as model, caplog.at_level("INFO", logger="pymc.dp"):
        y = pm.Categorical("y", pm.Dirichlet("p", np.ones(3)), shape=N)
        dp.LaplaceMechanism("z", pt.eq(y[:, None], np.arange(3)), scale=2.0, observed=np.ones((N, 3)))
        mcmc.assign_step_methods(model)
    assert "dp.marginalize" not in caplog.text
    with pytest.raises(ValueError, match="its query is no single number of each person"):
        dp.marginalize(model, "y")
