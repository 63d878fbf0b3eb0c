"""Pictures of plans, acceptance and tables: what is drawn is what was computed."""

import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
import pytest
import xarray as xr

import pymc_dp as dp
from pymc_dp.stats._bounds import RecordBound
from pymc_dp.stats.acceptance import AcceptanceReport
from pymc_dp.stats.plan import Plan, PlannedParameter


@pytest.fixture(autouse=True)
def no_figures_left():
    yield
    plt.close("all")


def planned(*widths):
    parameters = tuple(PlannedParameter(f"p{k}", 2.0, width, width / 2.0) for k, width in enumerate(widths))
    return Plan(None, (), parameters, 0.9, 0.5, 10, ())


def test_plans():
    plans = {10.0: planned(0.5, 0.2), 0.1: planned(1.9, 1.5)}
    ax = dp.plot_plan(plans, lw=3)
    first, second, prior = ax.lines
    np.testing.assert_allclose(first.get_xydata(), [[0.1, 0.95], [10.0, 0.25]])
    np.testing.assert_allclose(second.get_ydata(), [0.75, 0.1])
    assert (first.get_label(), first.get_linewidth()) == ("p0", 3)
    assert first.get_linestyle() != second.get_linestyle()  # told apart without colours
    assert set(prior.get_ydata()) == {1.0}
    assert ax.get_xscale() == "log"
    ax = dp.plot_plan(plans, parameters=["p1"], relative=False, xlabel="sigma", ax=plt.figure().subplots())
    np.testing.assert_allclose(ax.lines[0].get_ydata(), [1.5, 0.2])
    assert set(ax.lines[1].get_ydata()) == {2.0}
    assert ax.get_xlabel() == "sigma"


def test_what_is_no_plan():
    with pytest.raises(TypeError, match=r"plans must map budgets to what dp.plan returns, got list"):
        dp.plot_plan([planned(1.0)])
    with pytest.raises(ValueError, match="plans is empty"):
        dp.plot_plan({})
    with pytest.raises(TypeError, match=r"must map numbers to what dp.plan returns, got 'a'"):
        dp.plot_plan({"a": planned(1.0)})
    with pytest.raises(TypeError, match=r"must map numbers to what dp.plan returns, got 1\.0: 3"):
        dp.plot_plan({1.0: 3})
    with pytest.raises(ValueError, match=r"plan at 1 has no parameter 'q', only \['p0'\]"):
        dp.plot_plan({1.0: planned(1.0)}, parameters=["q"])


def report(mean, minimum, *epsilons):
    bounds = []
    for epsilon in epsilons:
        reason = "" if np.isfinite(epsilon) else "the budget is not known"
        bounds.append(RecordBound(("x",), 10, ("z",), epsilon, np.exp(-epsilon), reason))
    return AcceptanceReport(mean, minimum, tuple(bounds), None, np.nan, np.nan, ())


def test_acceptance():
    # of the first the epsilon of all records counts, the second is not known in part
    reports = [report(0.9, 0.5, 0.3, 1.0), report(0.7, 0.6, 1.0, np.nan), report(0.99, 0.95, 0.1)]
    ax = dp.plot_acceptance(reports)
    bound, mean, lowest = ax.lines
    np.testing.assert_allclose(bound.get_ydata(), np.exp(-bound.get_xdata()))
    np.testing.assert_allclose(mean.get_xydata(), [[0.1, 0.99], [1.0, 0.9]])
    np.testing.assert_allclose(lowest.get_ydata(), [0.95, 0.5])
    assert mean.get_marker() != lowest.get_marker()
    assert len(dp.plot_acceptance(report(0.9, 0.5, 1.0), ax=plt.figure().subplots()).lines) == 3


def test_what_is_no_report():
    with pytest.raises(ValueError, match="no bound to be compared with: the budget is not known"):
        dp.plot_acceptance(report(0.9, 0.5, np.nan))
    for wrong, what in (([3], "int"), ([], "none")):
        with pytest.raises(TypeError, match=f"must be what dp.acceptance_report returns.*got {what}"):
            dp.plot_acceptance(wrong)


def table(shape, coords=None):
    draws = np.random.default_rng(1).poisson(np.arange(np.prod(shape)).reshape(shape) + 3.0, (2, 50, *shape))
    dims = ("area", "age")[: len(shape)]
    return xr.DataArray(draws, dims=("chain", "draw", *dims), coords=coords, name="counts")


def test_tables():
    draws = table((2, 3), {"area": ["north", "south"]})
    released = np.arange(6.0).reshape(2, 3)
    released[1, 2] = np.nan
    ax = dp.plot_table(draws, released=released, others={"least squares": released + 1}, prob=0.5)
    flat = draws.values.reshape(100, 6)
    ends = np.array([segment[:, 0] for segment in ax.collections[0].get_segments()])
    np.testing.assert_allclose(ends, np.quantile(flat, [0.25, 0.75], axis=0).T)
    mean, noisy, other, missing = ax.lines
    assert missing.get_ydata().tolist() == [5]
    np.testing.assert_allclose(mean.get_xdata(), flat.mean(axis=0))
    np.testing.assert_array_equal(noisy.get_xdata(), released.ravel())
    np.testing.assert_array_equal(other.get_xdata(), released.ravel() + 1)
    assert len({line.get_marker() for line in ax.lines}) == 4
    labels = ["posterior mean", "released", "least squares", "not published"]
    assert [line.get_label() for line in ax.lines] == labels
    names = [text.get_text() for text in ax.get_yticklabels()]
    assert names == ["north, 0", "north, 1", "north, 2", "south, 0", "south, 1", "south, 2"]


def test_cells_that_were_not_published_are_marked():
    """The released numbers as `observed=` takes them, or as they stood in a file."""
    published = np.array([np.nan, 30.0, np.nan, 25.0, 41.0])
    for released in (published, dp.postprocessed(published, suppress_below=20)):
        ax = dp.plot_table(table((5,)), released=released)
        (marks,) = [line for line in ax.lines if line.get_label() == "not published"]
        assert marks.get_ydata().tolist() == [0, 2]
        (seen,) = [line for line in ax.lines if line.get_label() == "released"]
        np.testing.assert_array_equal(seen.get_xdata(), published)
        plt.close(ax.figure)
    assert (
        "not published" not in dp.plot_table(table((3,)), released=np.ones(3)).get_legend_handles_labels()[1]
    )


def test_tables_in_the_order_of_their_cells():
    draws = table((5,))
    ax = dp.plot_table(draws, released=np.arange(5.0), sort=True)
    order = np.argsort(-draws.mean(("chain", "draw")).values)
    np.testing.assert_array_equal(ax.lines[1].get_xdata(), order.astype(float))
    assert [text.get_text() for text in ax.get_yticklabels()] == [str(k) for k in order]


def test_a_release_beside_its_table():
    released = dp.DiscreteLaplaceMechanism.release([3, 4, 5], epsilon=1.0, sensitivity=2)
    ax = dp.plot_table(table((3,)), released=released)
    np.testing.assert_array_equal(ax.lines[1].get_xdata(), released.value)


def test_one_count_and_many_cells():
    one = dp.plot_table(table(()), released=3.0)
    assert [text.get_text() for text in one.get_yticklabels()] == ["counts"]
    assert not dp.plot_table(table((100,)), ax=plt.figure().subplots()).get_yticklabels()


def test_what_is_no_table():
    draws = table((3,))
    with pytest.raises(TypeError, match=r"draws must be an xarray.DataArray, got ndarray"):
        dp.plot_table(draws.values)
    with pytest.raises(ValueError, match="must have the dimensions chain and draw"):
        dp.plot_table(draws.mean("draw"))
    with pytest.raises(ValueError, match="prob must lie strictly between 0 and 1, got 90"):
        dp.plot_table(draws, prob=90)
    with pytest.raises(ValueError, match=r"released must have the shape of the table, \(3,\), got \(2,\)"):
        dp.plot_table(draws, released=[1.0, 2.0])
    with pytest.raises(ValueError, match="truth must have the shape of the table"):
        dp.plot_table(draws, others={"truth": 1.0})


def test_plans_of_a_model_are_drawn():
    with pm.Model() as model:
        x = pm.Bernoulli("x", pm.Beta("p", 1, 1), shape=50)
        dp.LaplaceMechanism("z", x.sum(), epsilon=1.0, sensitivity=1)
    (line, _) = dp.plot_plan({1.0: dp.plan(model, n_simulations=2, draws=200, tune=200, random_seed=1)}).lines
    assert 0 < line.get_ydata()[0] < 1.5
