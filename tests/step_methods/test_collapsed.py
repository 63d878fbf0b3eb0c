"""CollapsedUpdate: which models it takes, what it counts, how it behaves as a step."""

import numpy as np
import pymc as pm
import pytest

import pymc_dp as dp
from pymc_dp.step_methods.collapsed import collapsed_parameters
from pymc_dp.step_methods.updates.exchangeable import distinct_rows

pytestmark = pytest.mark.compiles(1)

Z = np.array([0, 2, 2, 1, 2, 2])
GROUP = np.array([0, 1, 1, 0, 1, 0])


def response(c, **kwargs):
    return dp.RandomizedResponse("z", c, epsilon=0.5, observed=Z, **kwargs)


def plain():
    response(pm.Categorical("c", pm.Dirichlet("p", np.ones(3)), shape=6))
    return ["p"]


def softmax():
    eta = pm.Normal("eta", 0, pm.HalfNormal("sd"), shape=3)
    response(pm.Categorical("c", logit_p=eta, shape=6))
    return ["sd", "eta"]


def with_coordinates():
    pm.modelcontext(None).add_coord("answer", ["a", "b", "c"])
    eta = pm.Normal("eta", dims="answer")
    response(pm.Categorical("c", pm.math.softmax(eta), shape=6), n_categories=3)
    return ["eta"]


def rows_of_a_table():
    response(pm.Categorical("c", pm.Dirichlet("p", np.ones((2, 3)))[GROUP]))
    return ["p"]


def rows_by_data():
    group = pm.Data("group", GROUP)
    response(pm.Categorical("c", pm.Dirichlet("p", np.ones((2, 3)))[group]))
    return ["p"]


def hierarchy():
    mu = pm.Normal("mu")
    logit = pm.Normal("logit", mu, 1, shape=2)
    c = pm.Bernoulli("c", pm.math.sigmoid(logit)[GROUP])
    dp.RandomizedResponse("z", c, epsilon=0.5, observed=Z // 2)
    return ["mu", "logit"]


def bits():
    c = pm.Categorical("c", pm.Dirichlet("p", np.ones(3)), shape=6)
    dp.UnaryEncoding("z", c, epsilon=0.5, observed=np.eye(3)[Z])
    return ["p"]


def random_truth():
    c = pm.Categorical("c", pm.Dirichlet("p", np.ones(3)), shape=6)
    dp.RandomizedResponse("z", c, p_truth=pm.Beta("t", 5, 1), observed=Z)
    return ["p"]


def a_truth_for_each():
    c = pm.Categorical("c", pm.Dirichlet("p", np.ones(3)), shape=6)
    dp.RandomizedResponse("z", c, p_truth=np.linspace(0.4, 0.9, 6), observed=Z)
    return ["p"]


def a_random_truth_for_each():
    c = pm.Categorical("c", pm.Dirichlet("p", np.ones(3)), shape=6)
    dp.RandomizedResponse("z", c, p_truth=pm.Uniform("truth", 0.4, 0.9, shape=6), observed=Z)
    return []


def with_an_outcome():
    c = pm.Categorical("c", pm.Dirichlet("p", np.ones(3)), shape=6)
    response(c)
    pm.Normal("y", c, 1, observed=np.zeros(6))
    return []


def with_a_potential():
    c = pm.Categorical("c", pm.Dirichlet("p", np.ones(3)), shape=6)
    response(c)
    pm.Potential("more", c * 0.1)
    return []


def with_a_central_release():
    c = pm.Categorical("c", pm.Dirichlet("p", np.ones(3)), shape=6)
    response(c)
    dp.LaplaceMechanism("s", dp.record_sum(c), epsilon=1, sensitivity=2, observed=5.0)
    return []


def with_real_noise():
    c = pm.Categorical("c", pm.Dirichlet("p", np.ones(3)), shape=6)
    dp.LaplaceMechanism("z", c, epsilon=1, sensitivity=2, observed=np.zeros(6))
    return []


def per_record_probabilities():
    eta = pm.Normal("eta", shape=(2, 3))
    x = np.random.default_rng(0).normal(size=(6, 2))
    c = pm.Categorical("c", pm.math.softmax(x @ eta, axis=-1))
    dp.RandomizedResponse("z", c, epsilon=0.5, observed=Z, n_categories=3)
    return []


def nothing_unknown():
    response(pm.Categorical("c", np.ones(3) / 3, shape=6))
    return []


def too_many():
    response(pm.Categorical("c", pm.Dirichlet("p", np.ones(50)), shape=6))
    return []


CASES = [
    plain, softmax, with_coordinates, rows_of_a_table, rows_by_data, hierarchy, bits, random_truth,
    a_truth_for_each, a_random_truth_for_each, with_an_outcome, with_a_potential, with_a_central_release,
    with_real_noise, per_record_probabilities, nothing_unknown, too_many,
]  # fmt: skip


@pytest.mark.parametrize("declare", CASES, ids=lambda f: f.__name__)
def test_which_parameters_it_takes(declare):
    with pm.Model() as model:
        names = declare()
    assert [rv.name for rv in collapsed_parameters(model)] == names


@pytest.mark.statistical
@pytest.mark.parametrize("declare", [plain, rows_by_data, with_coordinates, hierarchy, bits, random_truth])
def test_pm_sample_chooses_it(declare):
    with pm.Model() as model:
        names = declare()
        idata = pm.sample(30, tune=30, chains=1, random_seed=1, progressbar=False)
        assert [model.values_to_rvs[v].name for v in dp.CollapsedUpdate().vars] == names
    assert (idata.sample_stats["collapsed_acceptance"] > 0).all()
    assert set(np.unique(idata.posterior["c"])) <= set(range(3))
    for name in names:
        assert np.ptp(idata.posterior[name].values) > 0


def test_equal_releases_are_counted():
    rng = np.random.default_rng(1)
    rows = rng.integers(-1, 3, size=(200, 3)).astype(float)
    distinct, group = distinct_rows(rows)
    np.testing.assert_array_equal(distinct[group], rows)
    assert len(distinct) == len(np.unique(rows, axis=0))
    wide = rng.integers(0, 2, size=(300, 90)).astype(float)  # more bits than an integer has
    wide[150:] = wide[:150]
    distinct, group = distinct_rows(wide)
    np.testing.assert_array_equal(distinct[group], wide)
    assert len(distinct) == 150


@pytest.mark.statistical
def test_many_records_are_a_small_table():
    rng = np.random.default_rng(2)
    with pm.Model():
        p = pm.Dirichlet("p", np.ones(4))
        c = pm.Categorical("c", p, shape=20_000)
        dp.RandomizedResponse("z", c, epsilon=1, observed=rng.integers(0, 4, 20_000))
        step = dp.CollapsedUpdate()
    step.setup_chain(np.random.default_rng(0), 10, 10)
    point, _ = step.step(step.model.initial_point())
    (part,) = step._parts
    assert part.counts.size == 4 and part.counts.sum() == 20_000
    assert set(np.unique(point["c"])) == {0, 1, 2, 3}


@pytest.mark.statistical
def test_new_data_are_counted_again():
    with pm.Model() as model:
        group = pm.Data("group", GROUP)
        c = pm.Categorical("c", pm.Dirichlet("p", np.ones((2, 3)))[group])
        dp.RandomizedResponse("z", c, epsilon=5.0, observed=Z)
        step = dp.CollapsedUpdate()
    (part,) = step._parts
    for new in (GROUP, 1 - GROUP, GROUP - 2):
        with model:
            pm.set_data({"group": new})
        step.setup_chain(np.random.default_rng(0), 10, 10)
        step.step(model.initial_point())
        pairs = {(z, g % 2) for z, g in zip(Z, new, strict=True)}
        assert {tuple(row) for row in part.distinct} == pairs
    for chain in step.chains:
        chain.program.set_release({"z": np.zeros(6)})
        chain.refresh_data()
    step.step(model.initial_point())
    assert (part.distinct[:, 0] == 0).all()


@pytest.mark.statistical
def test_same_draws_in_other_processes():
    with pm.Model() as model:
        plain()
    draws = [
        pm.sample(20, tune=20, chains=2, cores=cores, model=model, random_seed=5, progressbar=False)
        for cores in (1, 2)
    ]
    for name in ("p", "c"):
        np.testing.assert_array_equal(*(d.posterior[name].values for d in draws))


def test_bad_arguments():
    with pm.Model():
        mu = pm.Normal("mu")
        plain()
        with pytest.raises(ValueError, match="mu in `vars`: CollapsedUpdate moves"):
            dp.CollapsedUpdate([mu])
        for wrong in (0, 1.5):
            with pytest.raises(ValueError, match="`n_updates` must be a positive integer"):
                dp.CollapsedUpdate(n_updates=wrong)
    with pm.Model():
        with_an_outcome()
        with pytest.raises(ValueError, match="CollapsedUpdate found no parameters"):
            dp.CollapsedUpdate()
