"""Releases that a ledger pays for: debited before noise is drawn, by what they promise, never overspent."""

import os
import re

import numpy as np
import pytest

import pymc_dp as dp
from pymc_dp.privacy import entropy, exact_noise
from tests.contract.table import released_mechanism

HOURS = np.linspace(10, 50, 40)
QUERY = dp.record_sum(HOURS)
TERMS = {"epsilon": 0.5, "bounds": (0, 60)}
fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


@pytest.fixture
def ledger(tmp_path):
    return dp.PrivacyLedger(tmp_path / "people.db", epsilon=1.5, delta=0)


def test_a_release_is_debited(ledger, tmp_path):
    release = dp.LaplaceMechanism.release(QUERY, **TERMS, ledger=ledger, name="sum of hours")
    assert release.guarantee.epsilon == 0.5 and not {"ledger", "name"} & release.parameters.keys()
    again = dp.PrivacyLedger(tmp_path / "people.db", epsilon=1.5, delta=0)
    (entry,) = again.entries()
    assert (entry.likelihood, entry.step, entry.chains, entry.claimed, entry.insecure_noise) == (
        "sum of hours", "LaplaceMechanism", 1, 1, False,
    )  # fmt: skip
    assert entry.costs == (dp.PrivacyGuarantee(0.5),)
    assert (again.epsilon_spent, again.epsilon_left, again.epsilons()) == (0.5, 1.0, [0.5])
    assert "sum of hours" in str(again) and "pure privacy" in str(again) and "compose" not in str(again)


def test_what_does_not_fit_is_refused_and_draws_nothing(ledger, monkeypatch):
    dp.LaplaceMechanism.release(QUERY, **TERMS, ledger=ledger)
    for terms, words in [
        ({"epsilon": 1.25, "bounds": (0, 60)}, r"Left: epsilon = 1\..* of pure releases, 1 is left"),
        ({"epsilon": 1 + 1e-6, "bounds": (0, 60)}, "Nothing was debited"),
    ]:
        with monkeypatch.context() as patch:
            patch.setattr(exact_noise.secrets, "token_bytes", None)
            patch.setattr(entropy.os, "urandom", None)
            with pytest.raises(dp.BudgetExceededError, match=words) as refused:
                dp.LaplaceMechanism.release(QUERY, **terms, ledger=ledger)
        assert not re.search(r"1200|1199|1201", str(refused.value))  # the sum of the hours
    with pytest.raises(dp.BudgetExceededError, match="room for pure releases only"):
        dp.GaussianMechanism.release(QUERY, rho=1e-6, bounds=(0, 60), ledger=ledger)
    assert len(ledger.entries()) == 1
    dp.LaplaceMechanism.release(QUERY, epsilon=1, bounds=(0, 60), ledger=ledger)  # what the message said
    assert ledger.epsilon_left == 0


SEEN = dp.record_sum((HOURS > 30).astype(int))
BEFORE = {
    "nothing": [],
    "rho": [dp.PrivacyGuarantee(np.inf, rho=0.02, neighbours="add-remove")],
    "Gaussian noise": [dp.PrivacyGuarantee(np.inf, mu=0.9)],
    "all kinds": [
        dp.PrivacyGuarantee(0.5),
        dp.PrivacyGuarantee(np.inf, rho=0.1),
        dp.PrivacyGuarantee(np.inf, mu=0.2),
    ],
}


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("neighbours", ["replace-one", "add-remove"])
@pytest.mark.parametrize(
    "mechanism, asked",
    [("DiscreteGaussianMechanism", {"rho": 3.0}), ("DiscreteGaussianMechanism", {"sigma": 0.1}),
     ("GaussianMechanism", {"rho": 3.0}), ("GaussianMechanism", {"sigma": 0.1}),
     ("GaussianMechanism", {"epsilon": 9.0, "delta": 1e-7}), ("LaplaceMechanism", {"epsilon": 9.0})],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)  # fmt: skip
def test_a_refusal_says_what_is_left_as_it_was_asked_for(before, neighbours, mechanism, asked):
    """What it says fits, and 1 % more does not."""

    def release(**noise):
        ledger = dp.PrivacyLedger(epsilon=4.6, delta=1e-6)
        if BEFORE[before]:
            ledger.reserve(BEFORE[before], likelihood="before")
        given = {"sensitivity": 1, "neighbours": neighbours, "ledger": ledger}
        getattr(dp, mechanism).release(SEEN, **noise, **given)

    with pytest.raises(dp.BudgetExceededError) as refused:
        release(**asked)
    said = str(refused.value).split("Nothing was debited. ")[1]
    assert ("for add-remove neighbours" in said) == (neighbours == "add-remove")

    def number(words):
        return float(re.search(words, said)[1])

    if "delta" in asked:
        offers = [("epsilon", number(r"epsilon = ([\d.e-]+) at the delta"), 1.015)]
    elif mechanism == "LaplaceMechanism":
        offers = [("epsilon", number(r"pure releases.*, ([\d.e-]+) is left"), 1.011)]
    elif "sigma" in asked:
        offers = [("sigma", 0.1 * number(r"at least ([\d.e-]+) times what"), 0.985)]
    else:
        offers = [("rho", number(r"rho = ([\d.e-]+) .*is left"), 1.011)]
    for key, offered, too_much in offers:
        release(**asked | {key: offered})
        with pytest.raises(dp.BudgetExceededError):
            release(**asked | {key: too_much * offered})


def test_a_refusal_says_that_nothing_is_left():
    whole = dp.PrivacyGuarantee(np.inf, rho=0.4)
    ledger = dp.PrivacyLedger(epsilon=whole.to_approximate(1e-6).epsilon, delta=1e-6)
    noise = {"sensitivity": 1, "neighbours": "add-remove", "ledger": ledger}
    for rho in (0.02, 0.08):
        dp.DiscreteGaussianMechanism.release(SEEN, rho=rho, **noise)
    assert ledger.epsilon_left == 0
    with pytest.raises(dp.BudgetExceededError, match=r"No such release fits any more"):
        dp.DiscreteGaussianMechanism.release(SEEN, rho=1e-3, **noise)
    with pytest.raises(
        dp.BudgetExceededError, match=r"of pure releases for add-remove neighbours, 0 is left"
    ):
        dp.LaplaceMechanism.release(SEEN, epsilon=1e-3, **noise)


def test_the_debit_is_written_before_the_noise_is_drawn(ledger, monkeypatch):
    seen = []

    def no_bytes(count):
        seen.append(ledger.epsilon_spent)
        raise OSError("no entropy")

    monkeypatch.setattr(entropy.os, "urandom", no_bytes)
    monkeypatch.setattr(exact_noise.secrets, "token_bytes", no_bytes)
    with pytest.raises((OSError, entropy.NoEntropyError)) as refused:
        dp.LaplaceMechanism.release(QUERY, **TERMS, ledger=ledger)
    assert refused.value.__notes__ == ["Nothing was released; entry 1 of the ledger stays."]
    assert seen and set(seen) == {0.5}
    assert ledger.epsilon_spent == 0.5


def test_what_is_wrong_before_the_debit_costs_nothing(ledger):
    paid = {"ledger": ledger}
    wrong = [
        (QUERY, {"scale": 2.0} | paid, ValueError, "not known"),
        (QUERY, TERMS | {"epsilon": -1} | paid, ValueError, "epsilon"),
        (dp.record_sum([np.nan, 1.0]), TERMS | paid, ValueError, "NaN"),
        (QUERY, TERMS | {"ledger": "people.db"}, TypeError, "dp.PrivacyLedger"),
        (QUERY, TERMS | paid | {"name": 3}, TypeError, "name must be"),
    ]
    for query, terms, error, words in wrong:
        with pytest.raises(error, match=words):
            dp.LaplaceMechanism.release(query, **terms)
    assert ledger.entries() == ()


def test_a_failure_after_the_debit_says_that_it_stays(ledger, monkeypatch):
    def fails(*args):
        raise ValueError("epsilon is out of luck")

    monkeypatch.setattr(dp.LaplaceMechanism, "_draw_release", fails)
    with pytest.raises(ValueError, match="entry 1 of the ledger stays"):
        dp.LaplaceMechanism.release(QUERY, **TERMS, ledger=ledger)
    assert ledger.epsilon_spent == 0.5


def test_a_refusal_lists_only_a_few_costs(ledger):
    with pytest.raises(dp.BudgetExceededError, match="; and 495 more") as refused:
        ledger.reserve([dp.PrivacyGuarantee(0.1)] * 500, likelihood="x")
    assert len(str(refused.value)) < 1500


def test_names_do_not_steer_the_terminal(ledger):
    ledger.reserve(dp.PrivacyGuarantee(0.1), likelihood="\x1b[2Jhours\nof all")
    assert ledger.entries()[0].likelihood == "\x1b[2Jhours\nof all"
    assert "\x1b" not in str(ledger) and r"\x1b[2Jhours\nof" in str(ledger)


@pytest.mark.parametrize(
    "text",
    ["[]", "{}", '[{"kind": "laser"}]', '[{"kind": "guarantee", "epsilon": 1, "epsilon": 0}]',
     '[{"kind": "guarantee", "epsilon": 1, "neighbours": "add-remove"}]',
     '[{"kind": "guarantee", "epsilon": NaN}]'],
)  # fmt: skip
def test_an_entry_that_costs_nothing_or_less_is_refused(ledger, text):
    with ledger._file.transaction(write=True) as book:
        book.add("entry", ("2026-01-01T00:00:00", "me", "x", "release", text, 1, 0))
    with pytest.raises(ValueError, match="is damaged: the cost of an entry cannot be read"):
        ledger.reserve(dp.PrivacyGuarantee(0.1), likelihood="x")


def test_people_added_or_removed_count_twice(ledger):
    dp.LaplaceMechanism.release(QUERY, **TERMS, neighbours="add-remove", ledger=ledger)
    assert ledger.epsilon_spent == 1.0


@released_mechanism
def test_every_mechanism_is_debited_by_what_it_promises(row):
    ledger = dp.PrivacyLedger(epsilon=900, delta=1e-3)
    release = row.release(row.rows_of(row.query, 3), **row.noise, ledger=ledger)
    (entry,) = ledger.entries()
    assert entry.step == row.mechanism.__name__
    assert entry.costs == (release.guarantee,)
    expected = release.guarantee.to_approximate(1e-3).epsilon
    assert 0 < ledger.epsilon_spent <= expected * (1 + 1e-9)


def test_one_budget_for_releases_and_runs(tmp_path):
    ledger = dp.PrivacyLedger(tmp_path / "all.db", epsilon=3, delta=1e-6)
    before = ledger.noise_multiplier(1000)
    dp.LaplaceMechanism.release(QUERY, **TERMS, ledger=ledger)
    dp.DiscreteGaussianMechanism.release(
        dp.record_sum((HOURS > 30).astype(int)), rho=0.01, bounds=(0, 1), ledger=ledger
    )
    assert ledger.noise_multiplier(1000) > before
    run = dp.accounting.GaussianCost(1000, ledger.noise_multiplier(1000))
    ledger.reserve(run, likelihood="x", step="PenaltyMetropolis", chains=1)
    assert ledger.epsilon_spent == pytest.approx(3, rel=1e-5)
    with pytest.raises(dp.BudgetExceededError):
        dp.LaplaceMechanism.release(QUERY, **TERMS, ledger=ledger)


def test_a_pure_budget_has_no_room_for_private_steps(ledger):
    with pytest.raises(dp.BudgetExceededError, match=r"no Gaussian noise fits.*delta in"):
        ledger.noise_multiplier(10)
    ledger.reserve(dp.PrivacyGuarantee(0.25), likelihood="published elsewhere")
    assert ledger.entries()[0].step == "release" and ledger.epsilon_spent == 0.25


@fork
def test_processes_do_not_overspend_together(ledger):
    children = []
    for _ in range(6):
        child = os.fork()
        if child == 0:
            try:
                dp.LaplaceMechanism.release(QUERY, epsilon=0.4, bounds=(0, 60), ledger=ledger)
                os._exit(0)
            except dp.BudgetExceededError:
                os._exit(1)
            except BaseException:
                os._exit(2)
        children.append(child)
    ends = sorted(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children)
    assert ends == [0, 0, 0, 1, 1, 1]
    assert ledger.epsilon_spent == pytest.approx(1.2)
