"""Categories that are seen through sums alone: counted into a table, exactly, and drawn back."""

import itertools

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
import xarray as xr
from scipy import stats

import pymc_dp as dp
from tests.statistics import harness, oracles

N = 12


def one_hot(n=N, noise=2.0):
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.array([1.0, 2.0, 1.5]))
        y = pm.Categorical("y", p, shape=n)
        query = dp.record_sum(pt.eye(3)[y])
        dp.LaplaceMechanism("z", query, scale=noise, sensitivity=2.0, observed=np.array([3.0, 5.5, 2.0]))
    return model


GROUP = np.array([0, 1, 1, 0, 1])
WEIGHT = np.array([1.0, 3.0, 3.0, 1.0, 3.0])


def grouped():
    """Probabilities by a public group, weights by another, scores by category, several sums and their "
    "mean."""
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.ones(3), shape=(2, 3))
        y = pm.Categorical("y", p[GROUP], shape=5)
        score = pt.constant(np.array([0.5, -1.0, 2.0]))[y]
        sums = pt.stack([score, WEIGHT * pt.eq(y, 1), score**2], axis=-1)
        dp.LaplaceMechanism("z", dp.record_sum(sums), scale=1.5, observed=np.array([2.0, 1.0, 7.0]))
        dp.GaussianMechanism("m", pt.mean(pt.cast(y, "float64")), sigma=0.3, observed=0.8)
    return model


def bits():
    with pm.Model() as model:
        q = pm.Beta("q", 1, 2, shape=2)
        b = pm.Bernoulli("b", q[GROUP], shape=5)
        dp.DiscreteLaplaceMechanism("z", dp.record_sum(b), epsilon=1, bounds=(0, 1), observed=4)
        query = dp.record_sum(b * (GROUP == 1))
        dp.LaplaceMechanism("w", query, scale=2.0, observed=1.5)
    return model


def regression():
    """Probabilities by an expression of a covariate that has few values."""
    x = np.array([0.0, 1.5, 1.5, 0.0, 1.5])
    with pm.Model() as model:
        level, slope = pm.Normal("level", shape=3), pm.Normal("slope", shape=3)
        y = pm.Categorical("y", logit_p=level + slope * x[:, None], shape=5)
        dp.LaplaceMechanism("z", dp.record_sum(pt.eye(3)[y]), scale=1.0, observed=np.array([3.0, 0.5, 2]))
    return model


def log_joint_by_people(model, name, values):
    """Log density of a model at parameters, with the records summed over one by one."""
    density = model.compile_logp(sum=True)
    shape = model[name].type.shape
    k = 2 if name == "b" else 3
    each = [
        density({**values, name: np.array(y, dtype=model[name].dtype)})
        for y in itertools.product(range(k), repeat=shape[0])
    ]
    return np.logaddexp.reduce(each)


def log_joint_by_table(table, name, values):
    density = table.compile_logp(sum=True)
    n = np.atleast_1d(table[name].owner.op.dist_params(table[name].owner)[0].eval())
    k = table[name].type.shape[-1]
    cells = [[c for c in itertools.product(range(m + 1), repeat=k) if sum(c) == m] for m in n]
    each = [
        density({**values, name: np.array(c, dtype=table[name].dtype).reshape(table[name].type.shape)})
        for c in itertools.product(*cells)
    ]
    return np.logaddexp.reduce(each)


@pytest.mark.compiles(2)
@pytest.mark.parametrize(
    ("build", "name"), [(lambda: one_hot(5), "y"), (grouped, "y"), (regression, "y"), (bits, "b")]
)
def test_the_density_is_that_of_people(build, name):
    """Summed over all tables, and over all answers of all people, at random parameters."""
    model = build()
    table = dp.marginalize(model, [name])
    assert [v.name for v in table.free_RVs][-1] == f"{name}_counts" and name not in table.named_vars
    for seed in range(3):
        start = table.initial_point(random_seed=seed)
        rng = np.random.default_rng(seed)
        values = {k: v + rng.normal(size=v.shape) for k, v in start.items() if k != f"{name}_counts"}
        people = log_joint_by_people(model, name, values)
        assert log_joint_by_table(table, f"{name}_counts", values) == pytest.approx(people, abs=1e-9)


@pytest.mark.parametrize(("build", "name"), [(grouped, "y"), (bits, "b")])
def test_a_wrong_group_is_seen(build, name, monkeypatch):
    """Planted fault: people of two groups exchanged."""
    from pymc_dp.marginals import tabulated

    groups = tabulated.groups_of

    def exchanged(public, n):
        group, first = groups(public, n)
        return group, first[::-1]

    monkeypatch.setattr(tabulated, "groups_of", exchanged)
    monkeypatch.setattr(tabulated, "_check_rows", lambda *given: None)
    monkeypatch.setattr(tabulated, "_check_probabilities", lambda *given: None)
    model = build()
    table = dp.marginalize(model, [name])
    values = {k: v + 0.5 * np.arange(v.size).reshape(v.shape) for k, v in table.initial_point().items()}
    values.pop(f"{name}_counts")
    wrong = log_joint_by_table(table, f"{name}_counts", values)
    assert abs(wrong - log_joint_by_people(model, name, values)) > 0.01


@pytest.fixture(scope="module")
def sampled():
    model = one_hot()
    table = dp.marginalize(model, "y")
    with table:
        idata = pm.sample(
            3000, tune=1000, chains=2, cores=1, random_seed=1, progressbar=False, quiet=True,
            compute_convergence_checks=False,
        )  # fmt: skip
    return model, idata


@pytest.mark.statistical
def test_the_posterior_is_that_of_enumeration(sampled):
    _, idata = sampled
    assert "table_acceptance" in idata.sample_stats
    exact = oracles.category_counts(np.array([3.0, 5.5, 2.0]), N, 2.0, prior=(1.0, 2.0, 1.5))
    chains = idata.posterior["p"].values
    for j, marginal in enumerate(exact):
        verdict = harness.mc_z(chains[:, :, j], marginal)
        assert verdict.passed, verdict


@pytest.mark.statistical
def test_records_are_drawn_back(sampled):
    """With the counts of the draw, and each person as likely as any other to have each answer."""
    model, idata = sampled
    drawn = dp.recover_records(idata, model, random_seed=2)["y"].values
    counts = np.stack([(drawn == k).sum(axis=2) for k in range(3)], axis=-1)
    np.testing.assert_array_equal(counts, idata.posterior["y_counts"].values)
    thin = drawn.reshape(-1, N)[::20]
    each = np.stack([(thin == k).sum(axis=0) for k in range(3)], axis=-1)
    assert stats.chi2_contingency(each).pvalue > 1e-3


def test_groups_are_drawn_back(sampled):
    from pymc_dp.marginals.removal import split_up
    from pymc_dp.marginals.tabulated import drawn_back

    _, (table,) = split_up(grouped(), ["y"], 1e-12)
    assert sorted(table.sizes.tolist()) == [2, 3]
    rng = np.random.default_rng(1)
    counts = np.stack([rng.multinomial(m, [0.2, 0.3, 0.5], size=4000) for m in table.sizes], axis=1)
    drawn = drawn_back(table, counts, rng)
    for g in range(len(table.sizes)):
        members = drawn[:, table.group == g]
        for k in range(3):
            np.testing.assert_array_equal((members == k).sum(axis=1), counts[:, g, k])
        first = (members == 0).mean(axis=0)
        assert np.ptp(first) < 5 * np.sqrt(0.5 / 4000)


def test_a_million_people_cost_cells():
    n = 1_000_000
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.ones(4))
        y = pm.Categorical("y", p, shape=n)
        query = dp.record_sum(pt.eye(4, dtype="int64")[y])
        observed = np.array([100_003, 199_990, 300_004, 400_001])
        dp.DiscreteGaussianMechanism("z", query, rho=0.5, sensitivity=2**0.5, observed=observed)
    table = dp.marginalize(model, ["y"])
    assert table["y_counts"].type.shape == (4,)
    assert dp.guarantee(table["z"]).rho == dp.guarantee(model["z"]).rho
    point = table.initial_point()
    counts = np.array([100_000, 200_000, 300_000, 400_000])
    expected = stats.multinomial(n, np.full(4, 0.25)).logpmf(counts)
    found = table.compile_logp(vars=[table["y_counts"]])({**point, "y_counts": counts})
    assert found == pytest.approx(expected, rel=1e-9)


def with_covariate():
    x = np.linspace(-1, 1, 9)
    with pm.Model() as model:
        beta = pm.Normal("beta", shape=3)
        y = pm.Categorical("y", logit_p=x[:, None] * beta, shape=9)
        dp.LaplaceMechanism("z", dp.record_sum(pt.eye(3)[y]), scale=1, observed=np.ones(3))
    return model


def one_by_one():
    with pm.Model() as model:
        y = pm.Categorical("y", pm.Dirichlet("p", np.ones(3)), shape=9)
        dp.LaplaceMechanism("z", dp.record_sum(pt.eye(3)[y]), scale=1, observed=np.ones(3))
        dp.RandomizedResponse("r", y, epsilon=1, observed=np.zeros(9, dtype=int))
    return model


def random_scores():
    with pm.Model() as model:
        y = pm.Categorical("y", pm.Dirichlet("p", np.ones(3)), shape=9)
        score = pm.Normal("score", shape=3)
        dp.LaplaceMechanism("z", dp.record_sum(score[y]), scale=1, observed=1.0)
    return model


def of_two_answers():
    with pm.Model() as model:
        y = pm.Categorical("y", pm.Dirichlet("p", np.ones(3)), shape=9)
        b = pm.Bernoulli("b", 0.3, shape=9)
        dp.LaplaceMechanism("z", dp.record_sum(y * b), scale=1, observed=1.0)
    return model


def on_another_answer():
    with pm.Model() as model:
        b = pm.Bernoulli("b", 0.3, shape=9)
        y = pm.Categorical("y", pm.Dirichlet("p", np.ones(3), shape=(2, 3))[b], shape=9)
        dp.LaplaceMechanism("z", dp.record_sum(pt.eye(3)[y]), scale=1, observed=np.ones(3))
    return model


def own_probabilities():
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.ones(3), shape=(9, 3))
        y = pm.Categorical("y", p, shape=9)
        dp.LaplaceMechanism("z", dp.record_sum(pt.eye(3)[y]), scale=1, observed=np.ones(3))
    return model


X = pt.constant(np.array([0.0, 0.0, 0.0, 0.0, 1.0, 1.0]))


def of_data(read, n=6):
    """Bits whose probabilities are an expression of data with a row for each person."""
    with pm.Model() as model:
        a, b = pm.Normal("a"), pm.Normal("b")
        y = pm.Bernoulli("b_", logit_p=a + b * read(), shape=n)
        dp.LaplaceMechanism("z", dp.record_sum(y), epsilon=1, bounds=(0, 1), observed=2.0)
    return model


def centred():
    return of_data(lambda: X - X.mean())


def shifted():
    return of_data(lambda: pt.concatenate([X[:1], X[:-1]]))


def set_anew():
    return of_data(lambda: pm.Data("x", X.data))


def of_weights():
    """Weights of categories, and of both categories and groups, that may be set anew; a stack of sums."""
    with pm.Model() as model:
        weights = pm.Data("weights", np.array([0.0, 1.0, 3.0]))
        in_group = pm.Data("in_group", np.array([[0, 1, 2], [1, 0, 5]]))
        y = pm.Categorical("y", pm.Dirichlet("p", np.ones(3), shape=(2, 3))[GROUP], shape=5)
        sums = pt.stack([weights[y], weights[y] ** 2], axis=-1)
        dp.LaplaceMechanism("z", dp.record_sum(sums), scale=1.5, observed=[4.0, 8.0])
        dp.DiscreteLaplaceMechanism("w", dp.record_sum(in_group[GROUP, y]), scale=2.0, observed=7)
        above = pt.gt(weights, 0.5)[y]
        dp.DiscreteLaplaceMechanism("above", dp.record_sum(above), scale=2.0, observed=3)
    return model


def test_coefficients_that_are_data_are_set_anew():
    model = of_weights()
    table = dp.marginalize(model, ["y"])
    p = np.array([[0.2, -0.1], [0.4, 0.3]])
    density = model.compile_logp()
    for weights, in_group in (
        ([0.0, 1.0, 3.0], [[0, 1, 2], [1, 0, 5]]),
        ([2.0, -1.0, 0.0], [[3, 0, 0], [0, 4, 1]]),
    ):
        for each in (model, table):
            pm.set_data({"weights": np.array(weights), "in_group": np.array(in_group)}, model=each)
        people = [
            density({"p_simplex__": p, "y": np.array(y)}) for y in itertools.product(range(3), repeat=5)
        ]
        by_table = log_joint_by_table(table, "y_counts", {"p_simplex__": p})
        np.testing.assert_allclose(by_table, np.logaddexp.reduce(people), rtol=1e-10)


@pytest.mark.parametrize("build", [centred, shifted])
def test_data_that_count_for_others_are_seen(build, monkeypatch):
    """Without the comparison of probabilities, groups have those of nobody, and nothing is said."""
    from pymc_dp.marginals import tabulated

    monkeypatch.setattr(tabulated, "_check_probabilities", lambda *given: None)
    model = build()
    table = dp.marginalize(model, ["b_"])
    density, values = model.compile_logp(), {"a": np.array(0.4), "b": np.array(0.9)}
    each = [density({**values, "b_": np.array(y)}) for y in itertools.product(range(2), repeat=6)]
    assert abs(log_joint_by_table(table, "b__counts", values) - np.logaddexp.reduce(each)) > 0.01


def categories_like_people():
    """As many categories as people: an array of one is not the other's."""
    with pm.Model() as model:
        eta = pm.Normal("eta")
        y = pm.Categorical("y", pm.math.softmax(eta * np.array([0.0, 0.0, 1.0, 1.0])), shape=4)
        dp.LaplaceMechanism("z", dp.record_sum(pt.eye(4)[y]), scale=1.0, observed=np.ones(4))
    return model


def of_some():
    with pm.Model() as model:
        y = pm.Categorical("y", pm.Dirichlet("p", np.ones(3)), shape=9)
        dp.LaplaceMechanism("z", dp.record_sum(pt.eye(3)[y[:4]]), scale=1, observed=np.ones(3))
    return model


def a_ratio():
    with pm.Model() as model:
        y = pm.Categorical("y", pm.Dirichlet("p", np.ones(3)), shape=9)
        sums = dp.record_sum(pt.eye(3)[y])
        dp.LaplaceMechanism("z", sums[0] / (sums[1] + 1), scale=0.1, sensitivity=1.0, observed=0.7)
    return model


@pytest.mark.parametrize(
    ("build", "told"),
    [
        (centred, r"people have probabilities that do not follow from what is public of each alone"),
        (shifted, r"people have probabilities that do not follow from what is public of each alone"),
        (set_anew, r"x has a row for each person and may be set anew: give it as an array"),
        (categories_like_people, r"people have probabilities that do not follow"),
        (of_some, r"what people add is no function of their categories and groups alone"),
        (a_ratio, r"z is of no linear function of sums: counts are multiplied or divided by counts"),
        (with_covariate, r"Nor is y counted into a table: there are 9 groups of people .* for 9 people"),
        (one_by_one, r"Nor is y counted into a table: r sees people one by one, not through sums alone"),
        (random_scores, r"a sum has coefficients that are not known numbers"),
        (of_two_answers, r"z also reads b"),
        (on_another_answer, r"its law depends on the records b"),
        (own_probabilities, r"its law depends on the records p"),
    ],
)
def test_what_is_not_counted(build, told):
    model = build()
    with pytest.raises(ValueError, match=told):
        dp.marginalize(model, [v.name for v in model.free_RVs if v.name in ("y", "b_")])


def test_refusals_print_nothing(capfd):
    """PyTensor would print errors of its rewrites."""
    with pytest.raises(ValueError, match="Nor is y counted"):
        dp.marginalize(categories_like_people(), "y")
    assert capfd.readouterr() == ("", "")


def test_a_length_is_not_taken_for_that_of_people():
    """Three people, three categories, three scores: only the answers have a row for each person."""
    with pm.Model() as model:
        y = pm.Categorical("y", pm.Dirichlet("p", np.ones(3)), shape=3)
        score = pt.constant(np.array([0.5, -1.0, 2.0]))
        dp.LaplaceMechanism("z", dp.record_sum(score[y]), scale=1, observed=1.0)
    try:
        table = dp.marginalize(model, ["y"])
    except ValueError as error:
        assert "counted into a table" in str(error)
    else:
        values = {k: v + 0.3 for k, v in table.initial_point().items() if k != "y_counts"}
        people = log_joint_by_people(model, "y", values)
        assert log_joint_by_table(table, "y_counts", values) == pytest.approx(people, abs=1e-9)


def test_draws_without_the_table_are_refused(sampled):
    model, idata = sampled
    without = xr.DataTree.from_dict({"posterior": idata.posterior.dataset.drop_vars("y_counts")})
    with pytest.raises(ValueError, match=r"idata has no draws of y_counts, the table into which"):
        dp.recover_records(without, model)


def test_bits_behind_noise_on_whole_numbers():
    """Bits add up to a whole number, which the query of the table has to be as well."""
    with pm.Model() as model:
        y = pm.Categorical("y", pm.Dirichlet("p", np.ones(3)), shape=6)
        dp.DiscreteLaplaceMechanism("z", dp.record_sum(pt.eq(y, 1)), scale=1.0, observed=2)
    counted = dp.marginalize(model, ["y"])
    logp, point = counted.compile_logp(counted["z"]), counted.initial_point()
    values = [float(logp({**point, "y_counts": np.array(c)})) for c in ([1, 2, 3], [0, 4, 2])]
    np.testing.assert_allclose(values, np.log(np.tanh(0.5)) - np.array([0, 2]))


def test_many_people_are_told_of_a_table(caplog):
    """The remedy is a line to copy; of few people, or of people seen one by one, nothing is said."""
    from tests.steps import assigned

    caplog.set_level("INFO", "pymc.dp")
    for n, said in ((100, False), (200_000, True)):
        with pm.Model() as model:
            y = pm.Categorical("y", pm.Dirichlet("p", np.ones(3)), shape=n)
            query = dp.record_sum(pt.eye(3)[y])
            dp.LaplaceMechanism("z", query, scale=1, sensitivity=2.0, observed=np.full(3, n / 3))
        caplog.clear()
        assigned(model)
        assert ("pm.sample(model=dp.marginalize(model, ['y'])) costs by categories" in caplog.text) == said
    caplog.clear()
    with model:
        dp.RandomizedResponse("r", model["y"], epsilon=1, observed=np.zeros(n, dtype=int))
    assigned(model)
    assert "costs by categories" not in caplog.text
