"""Which step takes which parameters when none is given, and what is said of it."""

from __future__ import annotations

import logging

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.sampling import mcmc
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op

import pymc_dp as dp
from examples import paper003
from pymc_dp.step_methods.claims import MAX_DIMENSION, MOST_REDRAWN, default_parameters

pytestmark = pytest.mark.compiles(1)


def tables(n_tables):
    """Categorical records behind tables of probabilities, drawn exactly however many they are."""
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.ones((n_tables, 3)))
        rows = np.arange(60) % n_tables
        c = pm.Categorical("c", p=p[rows], shape=60)
        counts = dp.record_sum(pm.math.eq(c[:, None], np.arange(3)).astype("float64"))
        dp.LaplaceMechanism("s", counts, scale=2.0, observed=np.full(3, 20.0))
    return model


def means(size):
    """Normal records in groups with a mean each."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1, shape=size)
        x = pm.Normal("x", mu[np.arange(100) % size], 1, shape=100)
        dp.LaplaceMechanism("s", dp.record_sum(dp.clamp(x, -2, 2)), scale=2.0, observed=0.0)
    return model


def counts(size):
    """Counts in groups with a rate each: a count is no smooth function of its rate."""
    with pm.Model() as model:
        mu = pm.Gamma("mu", 2, 1, shape=size)
        x = pm.Poisson("x", mu[np.arange(100) % size], shape=100)
        dp.LaplaceMechanism("s", dp.record_sum(dp.clamp(x, 0, 9)), scale=9.0, observed=200.0)
    return model


def mixtures(size):
    """Records of two laws in groups with a mean each."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1, shape=size)
        parts = [pm.Normal.dist(mu[np.arange(100) % size] + shift, 1) for shift in (0, 4)]
        x = pm.Mixture("x", [0.5, 0.5], parts, shape=100)
        dp.LaplaceMechanism("s", dp.record_sum(dp.clamp(x, -2, 6)), scale=8.0, observed=200.0)
    return model


def two_laws():
    """Two groups of records with one parameter; the law of one is no function of noise."""
    with pm.Model() as model:
        mu = pm.Gamma("mu", 2, 1)
        a, b = pm.Poisson("a", mu, shape=5), pm.ZeroInflatedPoisson("b", 0.5, mu, shape=4)
        dp.LaplaceMechanism("ra", dp.record_sum(a), scale=3.0, observed=12.0)
        dp.LaplaceMechanism("rb", dp.record_sum(b), scale=3.0, observed=7.0)
    return model


CASES = [
    pytest.param(lambda: means(MAX_DIMENSION), "AncillaryUpdate", False, id="as many as it takes"),
    pytest.param(two_laws, "AncillaryUpdate", False, id="one of two groups has no noise form"),
    pytest.param(lambda: mixtures(MOST_REDRAWN), "AncillaryUpdate", False, id="no noise form, few"),
    pytest.param(lambda: mixtures(MOST_REDRAWN + 1), "NUTS", True, id="no noise form, many"),
    pytest.param(lambda: tables(30), "ConjugateUpdate", False, id="exact draws of many probabilities"),
    pytest.param(lambda: means(MAX_DIMENSION + 1), "AncillaryUpdate", False, id="more, with slopes"),
    pytest.param(lambda: counts(MAX_DIMENSION + 1), "NUTS", True, id="more, without slopes"),
]


@pytest.mark.parametrize("build, taken_by, told", CASES)
@pytest.mark.statistical
def test_default_steps(build, taken_by, told, caplog):
    """Mixing is warned of only where parameters are left to a step that sees the records as fixed."""
    model = build()
    with caplog.at_level(logging.INFO, logger="pymc"):
        pm.sample(1, tune=1, chains=1, cores=1, model=model, progressbar=False, random_seed=1)
    said = [r.getMessage() for r in caplog.records]
    # a step that moves parameters may have their records, too
    moved = [line.partition(": [")[2].rstrip("]").split(", ") for line in said if taken_by in line]
    assert any({"p", "mu"} & set(names) for names in moved)
    assert sum("leaves" in line and "to other steps" in line for line in said) == told


def categories(n, k, groups=0, dims=False, as_data=False, **noise):
    """Categorical records behind one table, or rows of a table picked by public groups, and their counts."""
    noise = noise or {"epsilon": 1.0}
    with pm.Model(coords={"row": range(n)} if dims else None) as model:
        p = pm.Dirichlet("p", np.ones((groups, k) if groups else k))
        group = np.arange(n) % max(groups, 1)
        c = pm.Categorical("c", p[group] if groups else p, **({"dims": "row"} if dims else {"shape": n}))
        counts = pm.math.eq(c[:, None], np.arange(k)).astype("float64")
        if groups:
            counts = np.eye(groups)[group][:, :, None] * counts[:, None, :]
        counts = dp.record_sum(counts)
        shape = (groups, k) if groups else k
        gaussian, of_budget = noise.keys() & {"rho", "sigma"}, noise.keys() & {"epsilon", "rho"}
        mechanism = dp.GaussianMechanism if gaussian else dp.LaplaceMechanism
        sensitivity = {"sensitivity": 2**0.5 if gaussian else 2} if of_budget else {}
        level = {key: pm.Data(key, value) if as_data else value for key, value in noise.items()}
        mechanism("s", counts, observed=np.full(shape, 9.0), **level, **sensitivity)
    return model


# Which was the cheaper in effective draws per second, measured; Gaussian noise has its neighbour's variance.
@pytest.mark.parametrize(
    ("model", "exact"),
    [
        pytest.param({"n": 50, "k": 3}, True, id="few records"),
        pytest.param({"n": 500, "k": 3}, True, id="some records"),
        pytest.param({"n": 500, "k": 3, "dims": True}, True, id="a dimension"),
        pytest.param({"n": 500, "k": 39}, True, id="many categories"),
        pytest.param({"n": 1_000_000, "k": 3}, True, id="a million records"),
        pytest.param({"n": 10_000, "k": 3, "epsilon": 0.1}, True, id="more records than noise"),
        pytest.param({"n": 500, "k": 3, "groups": 4}, True, id="groups"),
        pytest.param({"n": 500, "k": 3, "epsilon": 0.1}, False, id="more noise than records"),
        pytest.param({"n": 500, "k": 3, "rho": 0.1**2 / 8}, False, id="as much Gaussian noise"),
        pytest.param({"n": 10_000, "k": 3, "epsilon": 0.01}, False, id="strong privacy"),
        pytest.param({"n": 500, "k": 3, "scale": 2.0}, True, id="noise without a budget"),
        pytest.param({"n": 500, "k": 3, "scale": 20.0}, False, id="more of it than records"),
        pytest.param({"n": 500, "k": 3, "scale": 2.0, "as_data": True}, True, id="its level as data"),
        pytest.param({"n": 500, "k": 3, "scale": 20.0, "as_data": True}, False, id="a high level as data"),
        pytest.param({"n": 500, "k": 3, "scale": 0.0, "as_data": True}, False, id="no level yet"),
        pytest.param({"n": 500, "k": 3, "sigma": 28.0}, False, id="as much Gaussian noise without a budget"),
        pytest.param({"n": 500, "k": 3, "sigma": 2.8}, True, id="less of it"),
    ],
)
def test_tables_go_to_the_step_that_costs_less(model, exact):
    model = categories(**model)
    assert [rv.name for rv in default_parameters(model)] == ([] if exact else ["p"])


@pytest.mark.parametrize("epsilon", [0.1, 1, 10])
def test_many_tables_behind_noise_that_is_data(epsilon):
    """Eighty probabilities, whose moves given noise take seventy times as long for an effective draw."""
    released = np.full(paper003.QUESTIONS * paper003.CLASSES * paper003.ANSWERS, 7.0)
    model = paper003.naive_bayes_model(epsilon, released)
    assert default_parameters(model) == []
    _, chosen = mcmc.assign_step_methods(model)
    assert [model.rvs_to_values[model[name]] for name in "pq"] == chosen[dp.ConjugateUpdate]


def test_a_random_noise_level_says_nothing_of_cost():
    """Then sizes alone decide, as if nothing were released."""
    with pm.Model() as model:
        scale, p = pm.HalfNormal("scale", 5), pm.Dirichlet("p", np.ones(3))
        c = pm.Categorical("c", p, shape=500)
        counts = dp.record_sum(pm.math.eq(c[:, None], np.arange(3)))
        dp.LaplaceMechanism("s", counts, scale=scale, observed=np.full(3, 166.0))
    assert [rv.name for rv in default_parameters(model)] == ["p"]


def test_other_parameters_keep_their_tables():
    """A table beside other parameters behind the records is moved with them."""
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.ones(3))
        mu = pm.Normal("mu", 0, 1, shape=3)
        c = pm.Categorical("c", p, shape=500)
        x = pm.Normal("x", mu[c], 1)
        dp.LaplaceMechanism("s", dp.record_sum(dp.clamp(x, -2, 2)), epsilon=1, sensitivity=4, observed=0.0)
    assert {rv.name for rv in default_parameters(model)} == {"p", "mu"}


@pytest.mark.statistical
def test_single_precision():
    """A table of probabilities under floatX = float32 is drawn by the same step."""
    with pytensor.config.change_flags(floatX="float32"):
        idata = pm.sample(
            20, tune=20, chains=1, cores=1, model=tables(30), progressbar=False, random_seed=1, quiet=True,
            compute_convergence_checks=False,
        )  # fmt: skip
    p = idata.posterior["p"].values
    assert "table_acceptance" in idata.sample_stats
    np.testing.assert_allclose(p.sum(axis=-1), 1, rtol=1e-5)
    assert len(np.unique(p[0, :, 0, 0])) == 20


class _Steep(Op):
    """A function without a slope, as one that a user wraps is."""

    def make_node(self, x):
        return Apply(self, [x], [x.type()])

    def perform(self, node, inputs, outputs):
        outputs[0][0] = np.exp(inputs[0])


WITHOUT_SLOPES = {
    "potential": lambda m: pm.Potential("p", -0.1 * pt.gammaincinv(pt.sigmoid(m), 0.3)),
    "function of a user's": lambda m: pm.Potential("p", -0.1 * _Steep()(m)),
    "prior": lambda m: pm.Normal("q", 0, pt.kv(pt.abs(m) + 0.5, 1.0)),
    "public data": lambda m: pm.Normal("p", pt.jv(m**2 + 1, 2.0), 1, observed=0.3),
}


@pytest.mark.usefixtures("built_only")
@pytest.mark.parametrize("term", WITHOUT_SLOPES)
def test_slopes_are_asked_of_all_that_the_update_follows(term, caplog):
    """A prior, a potential or public data have none where the release has them: other steps get these."""
    with pm.Model() as model:
        m = pm.Normal("m", 0, 1)
        mu = pm.Normal("mu", m, 1, shape=MAX_DIMENSION + 5)
        x = pm.Normal("x", mu[np.arange(100) % (MAX_DIMENSION + 5)], 1, shape=100)
        dp.GaussianMechanism("s", dp.record_sum(x), sigma=2.0, observed=0.0)
        WITHOUT_SLOPES[term](m)
    name = "q" if term == "prior" else "p"
    with model, caplog.at_level(logging.INFO, logger="pymc.dp"):
        assert not default_parameters(model)
        step = dp.AncillaryUpdate()
    assert f"the density of {name} has no slopes" in caplog.text
    assert not any(part.updates.follows_slopes for part in step._parts)


@pytest.mark.usefixtures("built_only")
def test_slopes_are_asked_of_records_that_depend_on_records():
    """The density of one record has slopes in another; the draw of it has none, and is not asked."""
    group = np.repeat(np.arange(25), 2)
    with pm.Model() as model:
        coefficients = pm.Normal("coefficients", pm.Normal("m", 0, 1, shape=2), 1, shape=(25, 2))
        x = pm.Normal("x", pm.Normal("mx", 0, 1), 1, shape=50)
        y = pm.Normal("y", coefficients[group, 0] + coefficients[group, 1] * x, 1, shape=50)
        sums = pt.zeros((25, 2))[group].inc(pt.stack([y, x * y], axis=1))
        dp.GaussianMechanism("s", sums, sigma=2.0, observed=np.zeros((25, 2)))
    assert {rv.name for rv in default_parameters(model)} == {"coefficients", "m", "mx"}
    with model:
        assert dp.AncillaryUpdate(update="hamiltonian")._parts[0].updates.follows_slopes
