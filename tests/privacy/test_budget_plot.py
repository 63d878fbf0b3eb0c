"""The picture of a budget: what is drawn is what was debited."""

import matplotlib.pyplot as plt
import pytest

import pymc_dp as dp

A = dp.accounting


@pytest.fixture(autouse=True)
def no_figures_left():
    yield
    plt.close("all")


@pytest.fixture
def ledger():
    return dp.PrivacyLedger(epsilon=4, delta=1e-6)


def debit(ledger, likelihood, releases):
    cost = A.GaussianCost(releases, 80.0)
    ledger.reserve(cost, likelihood=likelihood, step="PenaltyMetropolis", chains=1)


def test_bars_reach_from_what_was_spent_to_what_is(ledger):
    for likelihood, releases in (("x", 500), ("y", 1000), ("x", 300)):
        debit(ledger, likelihood, releases)
    reached = [A.epsilon(A.GaussianCost(k, 80.0), 1e-6) for k in (500, 1500, 1800)]
    assert ledger.epsilons() == pytest.approx(reached, rel=1e-12)
    ax = dp.plot_budget(ledger, alpha=0.5)
    bars = {round(bar.get_x() + bar.get_width() / 2): bar for bar in ax.patches}
    for k, (low, high) in enumerate(zip([0, *reached], reached), 1):
        assert bars[k].get_y() == pytest.approx(low)
        assert bars[k].get_y() + bars[k].get_height() == pytest.approx(high)
    colours = {k: bar.get_facecolor() for k, bar in bars.items()}
    assert colours[1] == colours[3] != colours[2] and colours[1][3] == 0.5
    (whole,) = ax.lines
    assert list(whole.get_ydata()) == [4, 4]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["budget, epsilon = 4", "x", "y"]


def test_a_budget_that_is_whole_and_one_of_many_debits(ledger):
    ax = plt.figure().subplots()
    assert dp.plot_budget(ledger, ax=ax) is ax and not ax.patches
    for _ in range(13):
        debit(ledger, "x", 1)
    assert len(dp.plot_budget(ledger).patches) == 13


def test_other_things_are_refused():
    with pytest.raises(TypeError, match=r"ledger must be a dp.PrivacyLedger, got str"):
        dp.plot_budget("study.db")
