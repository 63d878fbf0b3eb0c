"""Counts of rows: where noise tells them closely they move as a table, and as records where it does not."""

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import special, stats

import pymc_dp as dp
from pymc_dp.query.records import find_record_blocks
from pymc_dp.step_methods.discovery import record_blocks, table_blocks

PEOPLE = np.array([[3000, 4000], [2500, 900], [5000, 1200]])


def declare(name, query, observed, sigma, **of):
    dp.DiscreteGaussianMechanism(
        name, query, sigma=sigma, observed=np.broadcast_to(observed, of.pop("shape")), **of
    )


def cells_and_totals(cells, totals, effects=True, law="binomial"):
    """A table of regions by ages with an effect of each region, with the noise of cells and of totals."""
    with pm.Model() as model:
        effect = pm.Normal("effect", -1, 1, shape=3) if effects else pm.Normal("effect", -1, 1, shape=1)
        if law == "gamma":
            c = pm.Poisson("c", pm.Gamma("rate", 2, 1e-3, shape=3)[:, None] * np.ones((3, 2)))
        elif law == "zero-inflated":
            c = pm.ZeroInflatedPoisson("c", 0.7, pt.exp(effect[:, None]) * PEOPLE)
        else:
            c = pm.Binomial("c", PEOPLE, pm.math.sigmoid(effect[:, None]) * np.ones((1, 2)))
        if cells is not None:
            declare("cells", c, 700, cells, shape=(3, 2))
        if totals is not None:
            declare("totals", c.sum(axis=1), 1400, totals, shape=(3,))
    return model


def reading(model):
    """Names of the counts that are tables, and of the records, of which no variable is both."""
    tables = [name for table in table_blocks(model) for name in table.names]
    records = [name for block in record_blocks(model) for name in block.names]
    assert not set(tables) & set(records)
    return tables, records


@pytest.mark.parametrize("law", ["binomial", "zero-inflated"])
@pytest.mark.parametrize("noise", [(3, 3), (25, 25), (400, 5), (25, 300)])
def test_cells_and_totals_told_closely_are_a_table(noise, law):
    assert reading(cells_and_totals(*noise, law=law)) == (["c"], [])


def test_effects_that_move_with_the_counts_do_not_hold_them():
    """Of 2000 draws 1430 were effective, and 373 as records; 4 while effects moved given the counts alone."""
    assert reading(cells_and_totals(500, 300)) == (["c"], [])


@pytest.mark.parametrize(("law", "noise"), [("zero-inflated", (500, 300)), ("binomial", (1000, 900))])
def test_noise_beyond_what_counts_differ_by_leaves_them_to_records(law, noise):
    """Without quantiles effects hold the counts of a table; with much noise records move as well."""
    assert reading(cells_and_totals(*noise, law=law))[1] == ["effect", "c"]


def test_rates_that_are_integrated_out_hold_no_counts():
    assert reading(cells_and_totals(500, 300, law="gamma")) == (["c"], [])


@pytest.mark.parametrize(("noise", "table"), [(2, True), (25, True), (100, True), (400, False)])
@pytest.mark.parametrize("effects", [True, False])
def test_cells_alone(noise, table, effects):
    """Of records with effects of their own, proposals are hardly ever made where noise is small.

    Where rows share the effect, only records of several cells that are all told closely are a table.
    """
    table = table if effects else noise == 2
    assert reading(cells_and_totals(noise, None, effects))[0] == (["c"] if table else [])


@pytest.mark.parametrize(
    ("own", "mean", "sigma", "table"),
    [
        ((6, 5), 300, 10, True), ((6, 5), 3, 3, True), ((30,), 20, 10, True), ((30,), 3, 3, False),
        ((), 300, 10, True), ((), 20, 10, False), ((), 3, 3, False),
    ],
)  # fmt: skip
def test_conjugate_rates_of_cells_that_are_told_alone(own, mean, sigma, table):
    """As records, counts with a gamma rate of each did not move: 2 of 2,000 draws were effective."""
    with pm.Model() as model:
        c = pm.Poisson("c", pm.Gamma("rate", 1, 1 / mean, shape=own), shape=own or (30,))
        released = np.rint(mean * np.linspace(0.1, 4, 30)).astype(int).reshape(own or (30,))
        declare("z", c, released, sigma, shape=own or (30,))
    assert reading(model)[0] == (["c"] if table else [])


@pytest.mark.statistical
def test_a_table_of_gamma_rates_has_its_posterior():
    """Of each cell: the negative binomial law of its count, times the law of the noise."""
    released = np.array([[3, 41, 160], [12, 0, 97]])
    with pm.Model() as model:
        c = pm.Poisson("c", pm.Gamma("rate", 1, 0.02, shape=(2, 3)))
        dp.DiscreteGaussianMechanism("z", c, sigma=6.0, observed=released)
        idata = pm.sample(4000, tune=1000, chains=2, cores=1, random_seed=1, progressbar=False, quiet=True)
    assert reading(model)[0] == ["c"]
    counts = np.arange(400)
    for place, z in np.ndenumerate(released):
        weights = special.softmax(
            stats.nbinom.logpmf(counts, 1, 0.02 / 1.02) - 0.5 * ((z - counts) / 6.0) ** 2
        )
        for name, mean in (("c", weights @ counts), ("rate", weights @ (counts + 1) / 1.02)):
            draws = idata.posterior[name].values[(..., *place)]
            assert abs(draws.mean() - mean) < 4.5 * float(az.mcse(draws))


def test_cells_and_totals_in_one_release_are_a_table():
    with pm.Model() as model:
        effect = pm.Normal("effect", shape=3)
        c = pm.Poisson("c", pt.exp(effect)[:, None] * np.ones((3, 2)))
        both = pt.concatenate([c, c.sum(axis=1, keepdims=True)], axis=1)
        declare("both", both, [7, 8, 15], np.array([3.0, 3.0, 0.5]), shape=(3, 3))
    assert reading(model) == (["c"], [])


def test_variables_and_their_sum_are_a_table():
    with pm.Model() as model:
        effect = pm.Normal("effect", shape=4)
        a, b = pm.Poisson("a", pt.exp(effect)), pm.Geometric("b", pm.math.sigmoid(effect))
        declare("of a", a, 9, 2.0, shape=(4,))
        declare("all", a + b, 12, 1.0, shape=(4,))
    assert reading(model) == (["a", "b"], [])


def test_answers_of_people_and_their_sums_stay_records():
    with pm.Model() as model:
        answers = pm.Bernoulli(
            "answers", pm.math.sigmoid(pm.Normal("effect", shape=4)[:, None]), shape=(4, 3)
        )
        declare("each", answers, 1, 1.0, shape=(4, 3))
        declare("number", answers.sum(axis=1), 2, 1.0, shape=(4,))
    assert reading(model) == ([], ["effect", "answers"])


def test_a_model_may_say_that_they_are_records():
    with pm.Model() as model:
        effect = pm.Normal("effect", shape=6)
        c = pm.Binomial("c", 5000, pm.math.sigmoid(effect))
        declare("z", c, 900, 2.0, shape=(6,), records=["c"])
    assert reading(model) == ([], ["effect", "c"])


def test_noise_that_is_not_known_and_suppressed_entries_tell_nothing():
    for observed, sigma in (([900, 700], None), (dp.postprocessed([np.nan, np.nan], suppress_below=99), 2.0)):
        with pm.Model() as model:
            effect = pm.Normal("effect", shape=2)
            c = pm.Binomial("c", 5000, pm.math.sigmoid(effect))
            noise = pm.HalfNormal("noise") if sigma is None else sigma
            dp.DiscreteGaussianMechanism("z", c, sigma=noise, observed=observed)
        assert reading(model)[0] == []


@pytest.mark.parametrize("begin", [900, 3])
def test_data_that_are_set_later_leave_the_reading(begin):
    """Records and tables are found apart from each other, and must not both have the counts, or neither."""
    with pm.Model() as model:
        published = pm.Data("published", np.full(6, begin))
        weights = pm.Data("weights", np.eye(2))
        c = pm.Binomial("c", 5000, pm.math.sigmoid(pm.Normal("effect", shape=6))[:, None], shape=(6, 2))
        dp.GaussianMechanism(
            "z", pt.dot(c, weights), sigma=2.0, observed=published[:, None] * np.ones((1, 2))
        )
        dp.DiscreteGaussianMechanism("all", c, sigma=50.0, observed=np.full((6, 2), 4))
    before = table_blocks(model) != []
    for values, weighed in ((3, np.eye(2)), (900, np.ones((2, 2))), (900, np.eye(2))):
        pm.set_data({"published": np.full(6, values), "weights": weighed}, model=model)
        tables, records = reading(model)
        assert (tables, records) == ((["c"], []) if before else ([], ["effect", "c"]))


def test_what_is_integrated_out_does_not_depend_on_the_noise():
    with pm.Model() as model:
        c = pm.Binomial("c", 200, pm.math.sigmoid(pm.Normal("effect", shape=6)))
        declare("z", c, 120, 0.5, shape=(6,))
    assert reading(model)[0] == ["c"] and [b.names for b in find_record_blocks(model)] == [["effect", "c"]]
    assert [v.name for v in dp.marginalize(model, "c").free_RVs] == ["effect"]


@pytest.mark.statistical
def test_effects_of_counts_that_are_told_closely():
    """Against quadrature, row by row; as records, one draw in a thousand was effective."""
    people, told = np.array([40_000, 1500, 9000, 26_000]), np.array([1400, 333, 2202, 720])
    with pm.Model():
        effect = pm.Normal("effect", -3, 1.5, shape=4)
        c = pm.Binomial("c", people, pm.math.sigmoid(effect))
        dp.DiscreteLaplaceMechanism("z", c, scale=2.0, observed=told)
        idata = pm.sample(
            1000, tune=1000, chains=2, cores=1, random_seed=3, progressbar=False, quiet=True,
            compute_convergence_checks=False,
        )  # fmt: skip
    grid = np.linspace(-8, 2, 20_001)
    for k in range(4):
        counts = np.arange(max(told[k] - 60, 0), told[k] + 61)
        noise = np.exp(-abs(counts - told[k]) / 2)
        law = stats.binom.pmf(counts[:, None], people[k], special.expit(grid)[None])
        weights = (noise @ law) * stats.norm.pdf(grid, -3, 1.5)
        for of in (lambda x: x, np.square):
            draws = of(idata.posterior["effect"].values[..., k])
            assert float(az.ess(draws)) > 200
            exact = weights @ of(grid) / weights.sum()
            assert abs(draws.mean() - exact) < 4.5 * float(az.mcse(draws))


@pytest.mark.parametrize("step", [dp.RecordImputation, dp.AncillaryUpdate])
def test_records_asked_of_a_table_name_what_makes_them_records(step):
    with pytest.raises(ValueError, match=r"c are a table of counts.*records=\['c'\]"):
        step(model=cells_and_totals(3, 3))
    with pm.Model() as model:  # the remedy
        effect = pm.Normal("effect", pm.Normal("mean", 5, 1), 1, shape=3)
        c = pm.Poisson("c", pt.exp(effect)[:, None] * np.ones((3, 2)))
        declare("cells", c, 150, 2.0, shape=(3, 2), records=["c"])
        declare("totals", c.sum(axis=1), 300, 2.0, shape=(3,), records=["c"])
    moved = {dp.RecordImputation: ["effect", "c"], dp.AncillaryUpdate: ["mean"]}
    assert [str(v.name) for v in step(model=model).vars] == moved[step]


def test_tables_without_cells_are_refused():
    with pm.Model() as model:
        c = pm.Poisson("c", 2.0, shape=(3, 0))
        declare("cells", c, 3, 2.0, shape=(3, 0))
        declare("totals", c.sum(axis=1), 3, 2.0, shape=(3,))
    with pytest.raises(ValueError, match=r"c has no cells \(its shape is \(3, 0\)\), so that cells tells"):
        reading(model)
