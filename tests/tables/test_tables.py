"""Which counts are tables, what is said where they are not, and where chains of them start."""

import warnings

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
import xarray as xr
from scipy import optimize, special, stats

import pymc_dp as dp
from pymc_dp.step_methods.discovery import table_blocks
from tests.steps import assigned

CELLS = {"sigma": 2.0}


def noisy(name, query, observed, **noise):
    return dp.DiscreteGaussianMechanism(name, query, observed=observed, **(noise or CELLS))


def test_tables_get_their_step_and_parameters_keep_theirs():
    with pm.Model() as model:
        p = pm.Normal("p", 0, 1, shape=3)
        c = pm.Multinomial("c", 10, pm.math.softmax(p))
        noisy("z", c, [3, 4, 2])
    assert assigned(model) == {"p": "NUTS", "c": "TableImputation"}


def test_counts_with_one_release_are_records():
    with pm.Model() as model:
        mu = pm.Gamma("mu", 2, 1)
        c = pm.Poisson("c", mu, shape=5)
        noisy("z", c, [3, 4, 2, 0, 1])
    assert assigned(model)["c"] != "TableImputation"
    with pm.Model() as summed:
        mu = pm.Gamma("mu", 2, 1)
        c = pm.Poisson("c", mu, shape=5)
        noisy("z", dp.record_sum(c), 10)
        noisy("cells", c, [3, 4, 2, 0, 1])
    assert assigned(summed)["c"] != "TableImputation"  # record_sum says that they are people


def test_several_levels_are_a_table():
    with pm.Model() as model:
        c = pm.Poisson("c", 2.0, shape=5)
        noisy("z", c, [3, 4, 2, 0, 1])
        noisy("total", c.sum(), 10)
    assert assigned(model) == {"c": "TableImputation"}


def test_starts_meet_what_is_exact():
    with pm.Model() as model:
        c = pm.Poisson("c", np.full((3, 4), 0.3))
        dp.Invariant("rows", c.sum(axis=1), observed=[7, 0, 40])
        dp.Invariant("columns", c.sum(axis=0), observed=[20, 20, 5, 2])
        noisy("z", c[0, 0], 3)
        step = dp.TableImputation()
    starts = []
    for seed in (1, 2):
        step.setup_chain(seed, 0, 100)
        point, _ = step.step(model.initial_point())
        starts.append(point["c"])
        np.testing.assert_array_equal(point["c"].sum(axis=1), [7, 0, 40])
        np.testing.assert_array_equal(point["c"].sum(axis=0), [20, 20, 5, 2])
        assert (point["c"] >= 0).all()
    assert (starts[0] != starts[1]).any()


def _beside_records():
    """Counts with a known sum, and people with the same rate of whom another sum is released."""
    with pm.Model() as model:
        rate = pm.Gamma("l", 2, 1)
        c = pm.Poisson("c", rate * np.array([1.0, 2.0]), shape=2)
        noisy("z", c, [2, 3])
        dp.Invariant("total", c.sum(), observed=4)
        noisy("sum", dp.record_sum(pm.Poisson("d", rate, shape=3)), 6)
    return model


@pytest.mark.parametrize(
    "given", [None, ("RecordImputation", "TableImputation"), ("AncillaryUpdate", "RecordImputation")]
)
@pytest.mark.parametrize("tune", [0, 1])
def test_records_start_beside_a_table_that_does_not_yet_meet_what_is_exact(given, tune):
    model = _beside_records()
    with model:
        step = given and [getattr(dp, name)() for name in given]
        idata = pm.sample(
            2, tune=tune, step=step, chains=1, cores=1, random_seed=1, progressbar=False, quiet=True
        )
    np.testing.assert_array_equal(idata.posterior["c"].sum("c_dim_0"), 4)


def test_what_others_meet_hides_no_term_that_nobody_does():
    model = _beside_records()
    with model:
        pm.Potential("never", pt.switch(model["l"] > 0, -np.inf, 0.0))
        with pytest.raises(ValueError, match="the density of never is zero"):
            pm.sample(2, tune=2, chains=1, cores=1, random_seed=1, progressbar=False, quiet=True)


@pytest.mark.statistical
def test_a_rate_of_records_and_of_a_table_with_a_known_sum_has_its_posterior():
    """Given the sum of the records, k, the rate is a gamma variable; the cells do not depend on it."""
    with _beside_records():
        idata = pm.sample(4000, tune=500, chains=2, cores=1, random_seed=1, progressbar=False, quiet=True)
    k, first = np.arange(80), np.arange(5)
    of_sum = special.softmax(
        special.gammaln(6 + k) - special.gammaln(k + 1) + k * np.log(3 / 7) - (6 - k) ** 2 / 8
    )
    of_cells = special.softmax(
        stats.binom.logpmf(first, 4, 1 / 3) - (2 - first) ** 2 / 8 - (3 - (4 - first)) ** 2 / 8
    )
    posterior = idata.posterior
    for draws, exact in (
        (posterior["l"].values, of_sum @ (6 + k) / 7),
        (posterior["l"].values ** 2, of_sum @ ((6 + k) * (7 + k)) / 49),
        (posterior["d"].values.sum(axis=-1), of_sum @ k),
        (posterior["c"].values[..., 0], of_cells @ first),
    ):
        assert abs(draws.mean() - exact) < 4.5 * float(az.mcse(draws.astype(float)))


def test_binomial_counts_start_below_their_ends():
    with pm.Model() as model:
        c = pm.Binomial("c", 3, 0.5, shape=4)
        dp.Invariant("all", c.sum(), observed=12)
        step = dp.TableImputation()
    step.setup_chain(1, 0, 10)
    point, stats = step.step(model.initial_point())
    np.testing.assert_array_equal(point["c"], 3)  # the only such table
    assert stats[0]["table_acceptance"] == 0


def test_contradictions_are_named():
    with pm.Model():
        c = pm.Poisson("c", 2.0, shape=(2, 2))
        dp.Invariant("rows", c.sum(axis=1), observed=[3, 4])
        dp.Invariant("columns", c.sum(axis=0), observed=[3, 5])
        step = dp.TableImputation()
    step.setup_chain(1, 0, 10)
    with pytest.raises(ValueError, match=r"rows, columns contradict each other"):
        step.step(step.model.initial_point())


def test_one_number_that_no_table_meets_is_named_alone():
    with pm.Model() as model:
        c = pm.Binomial("c", [3, 4], 0.5)
        dp.Invariant("all", c.sum(), observed=8)
        step = dp.TableImputation()
    step.setup_chain(1, 0, 10)
    with pytest.raises(ValueError, match=r"meets all, which is known exactly: .* allows no such numbers\."):
        step.step(model.initial_point())


def two_levels(cells, totals):
    """Cells of a table of regions by ages with an effect of each region, and totals of the regions."""
    with pm.Model() as model:
        effect = pm.Normal("effect", shape=3)
        c = pm.Binomial("c", np.array([[30, 40], [25, 9], [50, 12]]), pm.math.invlogit(effect[:, None] - 1))
        cells(c)
        totals(c)
    return model


def released(name, axis=None, clip=None):
    def declare(c):
        query = c if axis is None else c.sum(axis=axis)
        observed = np.full(tuple(query.shape.eval()), 12)
        if clip is not None:
            observed = dp.postprocessed(observed, clip=clip)
        dp.DiscreteGaussianMechanism(name, query, sigma=3, observed=observed)

    return declare


@pytest.mark.parametrize("clip", [None, (0, None)])
def test_cells_and_totals_of_their_rows_are_a_table(clip):
    """Effects of its rows are parameters then, not records of the same length; as for totals of columns."""
    (table,) = table_blocks(two_levels(released("cells", clip=clip), released("totals", axis=1)))
    assert table.names == ["c"] and [known.name for known in table.releases] == ["cells", "totals"]
    assert len(table_blocks(two_levels(released("cells"), released("totals", axis=0)))) == 1


def test_cells_alone_and_totals_alone_are_read_as_records():
    assert table_blocks(two_levels(released("cells"), released("more cells"))) == []
    assert table_blocks(two_levels(released("totals", axis=1), lambda c: None)) == []


def test_a_search_without_an_end_is_no_contradiction(monkeypatch):
    def gives_up(*args, **kwargs):
        return optimize.OptimizeResult(x=None, status=1, message="Time limit reached.")

    monkeypatch.setattr(optimize, "milp", gives_up)
    with pm.Model() as model:
        c = pm.Poisson("c", 2.0, shape=(2, 2))
        dp.Invariant("rows", c.sum(axis=1), observed=[30, 40])
        dp.Invariant("columns", c.sum(axis=0), observed=[30, 40])
        step = dp.TableImputation()
    step.setup_chain(1, 0, 10)
    with pytest.raises(ValueError, match=r"Time limit reached.*does not mean that there is none: .*initval="):
        step.step(model.initial_point())
    with pm.Model() as model:  # the remedy
        c = pm.Poisson("c", 2.0, shape=(2, 2), initval=[[30, 0], [0, 40]])
        dp.Invariant("rows", c.sum(axis=1), observed=[30, 40])
        dp.Invariant("columns", c.sum(axis=0), observed=[30, 40])
        step = dp.TableImputation()
    step.setup_chain(1, 0, 10)
    point, _ = step.step(model.initial_point())
    np.testing.assert_array_equal(point["c"].sum(axis=0), [30, 40])


def test_given_starts_that_do_not_meet_them_are_refused():
    with pm.Model() as model:
        c = pm.Poisson("c", 2.0, shape=3, initval=[1, 2, 3])
        dp.Invariant("total", c.sum(), observed=7)
        step = dp.TableImputation()
    step.setup_chain(1, 0, 10)
    with pytest.raises(ValueError, match=r"starting values of c do not meet.*\(total\)"):
        step.step(model.initial_point())


def test_invariants_are_of_counts_and_linear():
    with pm.Model() as model:
        y = pm.Normal("y", 0, 1, shape=3)
        dp.Invariant("some", pt.cast(y, "int64").sum(), observed=2)
    with pytest.raises(ValueError, match="The invariant some is about y"):
        assigned(model)
    with pm.Model() as model:
        c = pm.Poisson("c", 2.0, shape=3)
        dp.Invariant("some", pt.max(c), observed=2)
    with pytest.raises(ValueError, match=r"some is no linear map of the counts c"):
        assigned(model)


@pytest.mark.parametrize(
    ("observed", "error", "words"),
    [
        (None, ValueError, "needs observed="),
        ([1.5, 2], ValueError, "fractions"),
        ([1, np.nan], ValueError, "missing numbers or fractions"),
        ([1, 2, 3], ValueError, "shape"),
        ("two", TypeError, "whole numbers"),
    ],
)
def test_invariants_that_cannot_be(observed, error, words):
    with pm.Model():
        c = pm.Poisson("c", 2.0, shape=2)
        with pytest.raises(error, match=words):
            dp.Invariant("known", c, observed=observed)


def test_queries_with_fractions_are_no_invariants():
    with pm.Model():
        c = pm.Poisson("c", 2.0, shape=2)
        with pytest.raises(TypeError, match="whole coefficients"):
            dp.Invariant("known", 0.5 * c, observed=[1, 2])


def test_a_total_that_is_not_known_is_refused():
    with pm.Model():
        n = pm.Poisson("n", 10)
        c = pm.Multinomial("c", n, np.ones(3) / 3)
        noisy("z", c, [3, 4, 2])
        with pytest.raises(ValueError, match=r"n of c depends on n.*pm.Poisson\(name, total \* p\)"):
            dp.TableImputation()


def test_children_of_a_table_are_refused():
    with pm.Model() as model:
        c = pm.Multinomial("c", 10, np.ones(3) / 3)
        pm.Binomial("ill", c, 0.1, observed=[0, 1, 0])
        noisy("z", c, [3, 4, 2])
    with pytest.raises(ValueError, match="ill depends on the counts c"):
        assigned(model)


def test_no_table_is_said():
    with pm.Model():
        y = pm.Normal("y", 0, 1, shape=3)
        dp.LaplaceMechanism("z", y, scale=1, observed=np.zeros(3))
        with pytest.raises(ValueError, match="found no table of counts"):
            dp.TableImputation()


def test_tables_move_together():
    with pm.Model():
        a = pm.Poisson("a", 1.0, shape=2)
        b = pm.Poisson("b", 1.0, shape=2)
        noisy("z", a + b, [1, 2])
        noisy("total", (a + b).sum(), 3)
        with pytest.raises(ValueError, match="have to move together"):
            dp.TableImputation([a])


def test_the_guarantee_names_what_is_exact():
    with pm.Model() as model:
        c = pm.Poisson("c", 2.0, shape=(2, 2))
        dp.DiscreteGaussianMechanism("z", c, rho=0.5, sensitivity=np.sqrt(2), observed=np.ones((2, 2)))
        dp.Invariant("total", c.sum(), observed=7)
    said = dp.guarantee(model)
    assert said.rho == 0.5
    assert said.exact == ("total",)
    assert "total is published exactly, outside of this promise" in str(said)
    assert "total is published exactly" in str(said.to_approximate(1e-6))


def test_predictive_draws_of_a_model_with_invariants():
    with pm.Model() as model, warnings.catch_warnings():
        warnings.simplefilter("error")
        c = pm.Poisson("c", 2.0, shape=3)
        dp.Invariant("total", c.sum(), observed=7)
        noisy("z", c, [1, 2, 3])
        drawn = pm.sample_prior_predictive(draws=3, random_seed=1)
    np.testing.assert_array_equal(drawn.prior_predictive["total"], drawn.prior["c"].sum("c_dim_0"))
    assert model["total"].dtype == "int64"


def test_both_margins_of_a_table_too_large_for_a_basis():
    rows, columns = np.full(20, 30), np.full(24, 25)
    with pm.Model() as model:
        c = pm.Poisson("c", 1.25, shape=(20, 24))
        dp.Invariant("rows", c.sum(axis=1), observed=rows)
        dp.Invariant("columns", c.sum(axis=0), observed=columns)
        noisy("z", c, np.ones((20, 24)))
        step = dp.TableImputation()
    step.setup_chain(np.random.default_rng(1), 0, 10)
    point = model.initial_point()
    for _ in range(3):
        before = point["c"]
        point, _ = step.step(point)
        np.testing.assert_array_equal(point["c"].sum(axis=1), rows)
        np.testing.assert_array_equal(point["c"].sum(axis=0), columns)
        assert (point["c"] != before).mean() > 0.5


def test_exact_numbers_that_tell_too_many_cells_apart_are_refused():
    with pm.Model():
        c = pm.Poisson("c", 1.0, shape=400)
        dp.Invariant("weighed", pt.dot(np.arange(1, 401), c), observed=80_000)
        noisy("z", c, np.ones(400))
        with pytest.raises(ValueError, match="400 classes of cells apart, and no moves are known"):
            dp.TableImputation()


def test_a_step_leaves_the_model_as_it_is():
    with pm.Model() as model:
        effect = pm.ZeroSumNormal("effect", 1, shape=4)
        c = pm.Poisson("c", pm.math.exp(pm.Normal("level") + effect))
        noisy("z", c, [3, 4, 2, 0])
        noisy("total", c.sum(), 10)
        before = float(model.compile_logp()(model.initial_point()))
        dp.TableImputation()
        assert float(model.compile_logp()(model.initial_point())) == before


LAWS = {
    "negative numbers": lambda: pm.DiscreteUniform("c", -3, 3, shape=3),
    "truncated": lambda: pm.Truncated("c", pm.Poisson.dist(2.0), lower=1, upper=6, shape=3),
    "censored": lambda: pm.Censored("c", pm.Poisson.dist(2.0, shape=3), lower=None, upper=4),
    "categories": lambda: pm.Categorical("c", np.ones(3) / 3, shape=3),
    "made of another": lambda: pm.DiscreteWeibull("c", q=0.7, beta=1.3, shape=3),
    "with a hurdle": lambda: pm.HurdlePoisson("c", 0.6, 2.0, shape=3),
    "with a gap": lambda: pm.Mixture(
        "c", [0.5, 0.5], [pm.DiracDelta.dist(0), pm.DiscreteUniform.dist(5, 9)], shape=3
    ),
}


@pytest.mark.parametrize("law", LAWS)
def test_laws_that_moves_of_cells_do_not_reach_all_of(law):
    """They stay records, and are refused under invariants."""
    with pm.Model() as model:
        c = LAWS[law]()
        noisy("z", c, [3, 4, 2])
        noisy("total", c.sum(), 9)
    assert assigned(model)["c"] != "TableImputation"
    with model:
        dp.Invariant("known", c.sum(), observed=9)
    with pytest.raises(ValueError, match="law of c is not known to be of counts from 0 on without gaps"):
        assigned(model)


def test_cells_whose_length_is_one():
    for shape in [(), (1,), (1, 1)]:
        with pm.Model() as model:
            c = pm.ZeroInflatedPoisson("c", 0.5, 3.0, shape=shape)
            noisy("z", c, np.full(shape, 3))
            dp.Invariant("known", c, observed=np.full(shape, 4))
        assert assigned(model) == {"c": "TableImputation"}


@pytest.mark.parametrize("total", [3_000_000_000, np.array(3_000_000_000), 3e9])
def test_numbers_beyond_32_bits_are_what_was_published(total):
    with pm.Model() as model:
        c = pm.Poisson("c", np.array([1e9, 2e9]))
        known = dp.Invariant("known", c.sum(), observed=total)
        z = noisy("z", c.sum(), total)
    assert [int(model.rvs_to_values[rv].data) for rv in (known, z)] == [3_000_000_000] * 2


@pytest.mark.parametrize("total", [4_000_000_000, 2_000_000_001])
def test_starts_of_large_counts(total):
    with pm.Model() as model:
        c = pm.Poisson("c", np.array([1e9, 2e9, 5.0]))
        dp.Invariant("known", c.sum(), observed=total)
        step = dp.TableImputation()
    step.setup_chain(1, 0, 10)
    point, _ = step.step(model.initial_point())
    assert point["c"].sum() == total


def test_starts_fill_no_cell_that_is_empty_by_its_law():
    with pm.Model() as model:
        c = pm.Poisson("c", np.where(np.eye(3), 0.0, 1.3))
        dp.Invariant("rows", c.sum(axis=1), observed=[3, 3, 3])
        dp.Invariant("columns", c.sum(axis=0), observed=[3, 3, 3])
        step = dp.TableImputation()
    step.setup_chain(1, 0, 10)
    point, _ = step.step(model.initial_point())
    np.testing.assert_array_equal(point["c"].sum(axis=0), [3, 3, 3])
    np.testing.assert_array_equal(np.diag(point["c"]), 0)


def test_starts_go_below_no_least_count():
    with pm.Model() as model:
        c = pm.DiscreteUniform("c", np.array([2, 3, 0]), 9)
        dp.Invariant("known", c.sum(), observed=5)
        step = dp.TableImputation()
    step.setup_chain(1, 0, 10)
    point, _ = step.step(model.initial_point())
    np.testing.assert_array_equal(point["c"], [2, 3, 0])


def test_an_exact_number_that_no_count_is_in():
    with pm.Model() as model:
        c = pm.Poisson("c", 2.0, shape=2)
        dp.Invariant("known", 0 * c, observed=[0, 1])
        step = dp.TableImputation()
    step.setup_chain(1, 0, 10)
    with pytest.raises(ValueError, match="No table of counts meets known, which is known exactly"):
        step.step(model.initial_point())


def test_coefficients_that_are_data_are_read_again():
    with pm.Model() as model:
        weights = pm.Data("weights", np.array([[1, 0, 0], [0, 1, 1]]))
        c = pm.Multinomial("c", 60, np.ones(3) / 3)
        noisy("z", pt.dot(weights, c), [50, 10])
        step = dp.TableImputation()
    for made, weighed in (("before", [1, 0, 0]), ("after", [0, 0, 1])):
        pm.set_data({"weights": np.array([weighed, 1 - np.array(weighed)])}, model=model)
        for chosen in (step, dp.TableImputation(model=model)):
            chosen.setup_chain(1, 0, 50)
            point = model.initial_point()
            for _ in range(50):
                point, _ = chosen.step(point)
            assert np.dot(weighed, point["c"]) > 40, made


def test_starts_that_data_have_moved_are_not_given():
    with pm.Model() as model:
        rate = pm.Data("rate", np.full(3, 2.0))
        c = pm.Poisson("c", rate)
        dp.Invariant("known", c.sum(), observed=7)
        step = dp.TableImputation()
        pm.set_data({"rate": np.full(3, 9.0)})
    step.setup_chain(1, 0, 10)
    point, _ = step.step(model.initial_point())
    assert point["c"].sum() == 7


@pytest.mark.parametrize("n", [10, 20])
def test_long_cycles_between_cells_of_zero(n):
    """Two cells in each row and column: all but one combination of a basis would fill a cell that is 0."""
    rate = np.eye(n) + np.roll(np.eye(n), 1, axis=1)
    with pm.Model() as model:
        c = pm.Poisson("c", rate)
        dp.Invariant("rows", c.sum(axis=1), observed=np.full(n, 2))
        dp.Invariant("columns", c.sum(axis=0), observed=np.full(n, 2))
        noisy("z", c[0, 0], 1, sigma=0.5)
        step = dp.TableImputation(n_sweeps=50)
    step.setup_chain(np.random.default_rng(1), 0, 10)
    point = {**model.initial_point(), "c": (rate * 2 * np.eye(n)).astype(int)}
    point, _ = step.step(point)
    np.testing.assert_array_equal(point["c"], rate)  # the likeliest by far


def test_many_cells_of_which_some_are_zero_by_their_law_are_refused():
    rate = np.ones((20, 24))
    rate[0, :12] = 0
    with pm.Model():
        c = pm.Poisson("c", rate)
        dp.Invariant("rows", c.sum(axis=1), observed=np.full(20, 24))
        dp.Invariant("columns", c.sum(axis=0), observed=np.full(24, 20))
        with pytest.raises(ValueError, match=r"468 classes of cells apart.*0 by their law"):
            dp.TableImputation()


def counted(mean, acceptance, name="table_acceptance"):
    """What a run of a table with a parameter and a cell that is 0 by what is known exactly would return."""
    rng = np.random.default_rng(1)
    counts = rng.poisson(5, (2, 50, 3))
    counts[..., 2] = 0
    groups = {
        "posterior": {"a": (("chain", "draw"), mean), "c": (("chain", "draw", "cell"), counts)},
        "sample_stats": {name: (("chain", "draw"), acceptance)},
    }
    return xr.DataTree.from_dict({name: xr.Dataset(group) for name, group in groups.items()})


def test_the_acceptance_report_of_a_table():
    with pm.Model() as model:
        a = pm.Normal("a")
        c = pm.Poisson("c", pt.exp(a) * np.ones(3))
        noisy("z", c, [3, 4, 2])
        noisy("total", c.sum(), 9)
        dp.Invariant("none", c[2], observed=0)
    rng, rates = np.random.default_rng(2), np.full((2, 50), 0.4)
    rates[1, 7] = 0.25
    report = dp.acceptance_report(counted(rng.normal(size=(2, 50)), rates), model)
    assert report.mean == pytest.approx(rates.mean()) and report.minimum == 0.25 and not report.warnings
    (bound,) = report.bounds
    assert (bound.records, bound.n, bound.releases) == (("c",), 3, ("z", "total")) and np.isnan(bound.bound)
    assert "table of counts" in str(report) and report.effective_draws > 30
    slow = np.repeat([[0.0], [3.0]], 50, axis=1) + 0.01 * rng.normal(size=(2, 50))
    (warning,) = dp.acceptance_report(counted(slow, rates), model, max_iterations=20).warnings
    assert "one effective draw of a took" in warning and "Draw longer" in warning
    still = dp.acceptance_report(counted(np.zeros((2, 50)), rates), model)
    assert still.worst_parameter == "a" and still.effective_draws == 0
    with pytest.raises(ValueError, match=r"no table_acceptance.*dp\.TableImputation\(\)"):
        dp.acceptance_report(counted(slow, rates, name="accept"), model)
