"""The ledger: what is debited is in the file, once, whatever happens, and never more than the budget."""

import getpass
import inspect
import math
import os
import pickle
import re
import signal
import sqlite3
import struct
import textwrap
import time
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

import pymc_dp as dp
from pymc_dp.privacy import _ledger_file, budgets
from pymc_dp.privacy import ledger as ledger_module
from pymc_dp.privacy._ledger_chain import Book
from pymc_dp.privacy._ledger_file import LedgerFileError

A = dp.accounting
BUDGET = {"epsilon": 4.0, "delta": 1e-6}
WHO = {"likelihood": "x", "step": "PenaltyMetropolis", "chains": 2}
SMALL = A.GaussianCost(1, 1e4)
fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "study.db"


def in_child(work):
    """Fork a process that calls work(send), `send` writing a number; return its id and the reading end."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            work(lambda number: os.write(writing, struct.pack("q", number)))
            os._exit(0)
        except BaseException:
            os._exit(1)
    os.close(writing)
    return child, reading


def sent(reading):
    """All numbers that a process sent until it ended."""
    with os.fdopen(reading, "rb") as end:
        text = end.read()
    return [number for (number,) in struct.iter_unpack("q", text[: len(text) // 8 * 8])]


def test_a_debit_says_who_when_and_what(path):
    ledger = dp.PrivacyLedger(path, **BUDGET)
    before = datetime.now(UTC) - timedelta(milliseconds=1)
    costs = (A.GaussianCost(100, 70.5), A.SubsampledGaussianCost(30, 1.5, n=1000, batch_size=10))
    reservation = ledger.reserve(costs, likelihood="bp", step="PrivateHMC", chains=3, insecure_noise=True)
    reservation.claim()
    ledger.reserve(SMALL, **WHO)
    first, second = dp.PrivacyLedger(str(path), **BUDGET).entries()
    assert before <= first.at <= second.at <= datetime.now(UTC)
    assert (first.id, first.user, first.likelihood, first.step) == (1, getpass.getuser(), "bp", "PrivateHMC")
    assert (first.costs, first.chains, first.claimed, first.insecure_noise) == (costs, 3, 1, True)
    assert (second.id, second.costs, second.claimed, second.insecure_noise) == (2, (SMALL,), 0, False)
    assert ledger.spent == (*costs, SMALL)
    assert ledger.epsilon_spent == A.epsilon((*costs, SMALL), BUDGET["delta"])
    shown = str(ledger)
    for words in ("epsilon = 4", "1e-06", "bp", "PrivateHMC (insecure noise)", "1 of 3", getpass.getuser()):
        assert words in shown
    assert repr(ledger) == f"PrivacyLedger({str(path)!r}, epsilon=4.0, delta=1e-06)"


def test_the_debit_is_in_the_file_when_reserve_returns(path):
    ledger = dp.PrivacyLedger(path, **BUDGET)
    for k in range(3):
        ledger.reserve(SMALL, **WHO)
        with sqlite3.connect(path) as other:
            assert other.execute("SELECT count(*) FROM entry").fetchone() == (k + 1,)
        other.close()


def test_the_budget_can_be_used_up_and_not_overspent(path, rng):
    """The noise is planned for 1000 releases; they are debited in parts, and the next one is refused."""
    ledger = dp.PrivacyLedger(path, **BUDGET)
    noise = ledger.noise_multiplier(1000)
    parts = np.diff(np.unique(np.concatenate([[0, 1000], rng.integers(1, 1000, 9)])))
    for part in parts:
        ledger.reserve(A.GaussianCost(int(part), noise), **WHO)
    assert ledger.epsilon_spent == pytest.approx(4.0, rel=1e-9) and ledger.epsilon_spent <= 4.0
    assert ledger.epsilon_left < 1e-3
    with pytest.raises(dp.BudgetExceededError):
        ledger.reserve(A.GaussianCost(1, noise), **WHO)
    with pytest.raises(dp.BudgetExceededError, match="Nothing is left of the budget of epsilon = 4"):
        ledger.noise_multiplier(1)
    assert len(ledger.entries()) == len(parts)


def test_what_is_left_can_be_spent_on_batches(path):
    ledger = dp.PrivacyLedger(path, **BUDGET)
    ledger.reserve(A.GaussianCost(100, 20.0), **WHO)
    noise = ledger.noise_multiplier(500, n=10_000, batch_size=100)
    dear = A.SubsampledGaussianCost(500, noise * 0.999, n=10_000, batch_size=100)
    with pytest.raises(dp.BudgetExceededError):
        ledger.reserve(dear, **WHO)
    ledger.reserve(A.SubsampledGaussianCost(500, noise, n=10_000, batch_size=100), **WHO)
    assert 3.99 < ledger.epsilon_spent <= 4.0


def test_a_refusal_separates_spent_asked_and_left(path):
    ledger = dp.PrivacyLedger(path, **BUDGET)
    spent, asked = A.GaussianCost(1000, 60.0), A.GaussianCost(2000, 40.0)
    ledger.reserve(spent, **WHO)
    delta = BUDGET["delta"]
    with pytest.raises(dp.BudgetExceededError) as refusal:
        ledger.reserve(asked, **WHO)
    words = str(refusal.value)
    left = math.sqrt(budgets.gaussian_sigma_analytic(4.0, delta, 1.0) ** -2 - 1000 / 60.0**2)
    for name, epsilon in (
        ("budget of", 4.0),
        ("Spent:", A.epsilon(spent, delta)),
        ("Asked for:", A.epsilon(asked, delta)),
        ("Left:", A.epsilon(A.GaussianCost(1, 1 / left), delta)),
        ("Spent and asked for make", A.epsilon((spent, asked), delta)),
    ):
        assert f"{name} epsilon = {epsilon:.4g}" in words
    assert "Nothing was debited" in words and "noise_multiplier" in words
    assert ledger.spent == (spent,)
    assert type(pickle.loads(pickle.dumps(refusal.value))) is dp.BudgetExceededError


def test_each_chain_gets_a_number_of_its_own(path):
    ledger = dp.PrivacyLedger(path, **BUDGET)
    one, two = (ledger.reserve(SMALL, **{**WHO, "chains": k}) for k in (3, 1))
    copy = pickle.loads(pickle.dumps(one))
    assert [one.claim(), copy.claim(), two.claim(), one.claim()] == [0, 1, 0, 2]
    for exhausted in (one, copy, two):
        with pytest.raises(dp.BudgetExceededError, match=r"chains that entry [12] of the ledger paid for"):
            exhausted.claim()
    assert [entry.claimed for entry in ledger.entries()] == [3, 1]


@pytest.mark.parametrize("named", [True, False])
def test_copies_share_one_ledger(path, named):
    """Copies by pickling, and of the file by name; a ledger without a path is shared with its copies."""
    ledger = dp.PrivacyLedger(path if named else None, **BUDGET)
    copy = pickle.loads(pickle.dumps(ledger))
    copy.reserve(SMALL, **WHO)
    ledger.reserve(SMALL, **WHO)
    assert len(copy.entries()) == len(ledger.entries()) == 2
    assert (copy.path, copy.epsilon, copy.delta) == (ledger.path, 4.0, 1e-6)
    assert ledger.path == (path if named else None)


def test_ledgers_without_a_path_are_apart():
    one, two = dp.PrivacyLedger(**BUDGET), dp.PrivacyLedger(**BUDGET)
    one.reserve(SMALL, **WHO)
    assert len(one.entries()) == 1 and not two.entries()


def test_a_relative_path_stays_where_it_was(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ledger = dp.PrivacyLedger("study 100% ?#.db", **BUDGET)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    ledger.reserve(SMALL, **WHO)
    assert sorted(p.name for p in tmp_path.iterdir() if p.is_file()) == [
        "study 100% ?#.db",
        "study 100% ?#.db.head",
    ]


@fork
def test_workers_claim_from_a_ledger_without_a_path():
    reservation = dp.PrivacyLedger(**BUDGET).reserve(SMALL, **{**WHO, "chains": 4})
    children = [in_child(lambda send: send(reservation.claim())) for _ in range(4)]
    assert sorted(number for _, reading in children for number in sent(reading)) == [0, 1, 2, 3]
    assert [os.waitpid(child, 0)[1] for child, _ in children] == [0] * 4
    assert reservation.ledger.entries()[0].claimed == 4  # workers that end do not take the file along


def spend_all(path, cost, send):
    ledger = dp.PrivacyLedger(path, **BUDGET)  # several make the file at once
    for _ in range(120):  # more than there are in all
        try:
            send(ledger.reserve(cost, **WHO).entry)
        except dp.BudgetExceededError:
            return


def overspenders(path, processes=8, plan=100):
    """Entries that each of some processes was granted when all take what they can get."""
    cost = A.GaussianCost(1, A.noise_multiplier(plan, **BUDGET))
    children = [in_child(lambda send: spend_all(path, cost, send)) for _ in range(processes)]
    granted = [sent(reading) for _, reading in children]
    assert [os.waitpid(child, 0)[1] for child, _ in children] == [0] * processes
    return granted


@fork
def test_eight_processes_never_overspend(path):
    granted = overspenders(path)
    assert sorted(entry for taken in granted for entry in taken) == list(range(1, 101))
    ledger = dp.PrivacyLedger(path, **BUDGET)
    assert len(ledger.entries()) == 100 and ledger.epsilon_spent <= 4.0


@fork
def test_a_debit_that_was_decided_on_older_debits_would_be_seen(path, monkeypatch):
    """The same where nobody looks again, under the lock, whether others have debited meanwhile."""
    source = textwrap.dedent(inspect.getsource(dp.PrivacyLedger.reserve))
    planted = source.replace('if book.rows["entry"] != decided:', "if False:")
    assert planted != source, (
        "reserve no longer has the line that this error is planted in: does it look again?"
    )
    exec("from __future__ import annotations\n" + planted, names := dict(vars(ledger_module)))
    monkeypatch.setattr(dp.PrivacyLedger, "reserve", names["reserve"])
    assert sum(map(len, overspenders(path))) > 100


def debit_for_ever(path, send, late):
    """Debit, then acknowledge, as a sampler draws after the debit; or, wrongly, the other way round."""
    ledger = dp.PrivacyLedger(path, **BUDGET)
    entry = max([entry.id for entry in ledger.entries()], default=0)
    while True:
        if late:
            entry += 1
            send(entry)
            ledger.reserve(SMALL, **WHO)
        else:
            send(ledger.reserve(SMALL, **WHO).entry)


def killed(path, rng, rounds, late=False):
    """Kill a process that debits at a random instant, many times; return how many debits were not counted."""
    lost = 0
    # A first debit imports half a second of modules: here, and not in every child.
    dp.PrivacyLedger(path.with_name("first.db"), **BUDGET).reserve(SMALL, **WHO)
    for _ in range(rounds):
        child, reading = in_child(lambda send: debit_for_ever(path, send, late))
        first = os.read(reading, 8)
        time.sleep(rng.uniform(0, 0.02))
        os.kill(child, signal.SIGKILL)
        drawn = [*struct.unpack("q", first), *sent(reading)]
        assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
        counted = {entry.id for entry in dp.PrivacyLedger(path, **BUDGET).entries()}
        lost += len(set(drawn) - counted)
        with sqlite3.connect(path) as file:
            assert file.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        file.close()
    return lost


@fork
def test_kill_never_loses_a_debit(path, rng):
    assert killed(path, rng, rounds=10) == 0


@fork
@pytest.mark.statistical
def test_kill_never_loses_a_debit_in_200_rounds(tmp_path, rng):
    assert sum(killed(tmp_path / f"{k}.db", rng, rounds=20) for k in range(10)) == 0


@fork
def test_late_debits_would_be_seen(path, rng):
    """Noise drawn before the debit: killed in between, the file has less than was drawn."""
    assert killed(path, rng, rounds=10, late=True) > 0


@fork
def test_kill_while_the_file_is_made(tmp_path, rng):
    """What is left of a half-made file is a ledger, or becomes one."""
    for k in range(10):
        path = tmp_path / f"{k}.db"
        child, reading = in_child(lambda send, path=path: (send(0), debit_for_ever(path, send, late=False)))
        os.read(reading, 8)
        time.sleep(rng.uniform(0, 0.006))
        os.kill(child, signal.SIGKILL)
        counted = len(sent(reading))
        os.waitpid(child, 0)
        ledger = dp.PrivacyLedger(path, **BUDGET)
        assert len(ledger.entries()) >= counted
        ledger.reserve(SMALL, **WHO)


def crashed(path, copy, *statements):
    """Copy a file with its journal in the midst of a transaction, as a crash would leave them."""
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in ("PRAGMA cache_size = 1", "BEGIN IMMEDIATE", "CREATE TABLE large (x TEXT)", *statements):
        connection.execute(statement)
    connection.executemany("INSERT INTO large VALUES (?)", [("x" * 1000,)] * 500)
    for end in ("", "-journal", ".head"):
        if not path.with_name(path.name + end).exists():
            continue  # before it is a ledger
        copy.with_name(copy.name + end).write_bytes(path.with_name(path.name + end).read_bytes())
    connection.close()
    assert copy.stat().st_size > 100_000
    return copy


def test_a_crash_is_undone(path, tmp_path):
    """In the midst of a debit; a file that was never whole is refused, and made anew once it is deleted."""
    empty = crashed(path, tmp_path / "new.db")
    for _ in range(2):
        with pytest.raises(
            LedgerFileError, match=r"is an empty file, .* If there never was one, delete the file"
        ):
            dp.PrivacyLedger(empty, **BUDGET)
    empty.unlink()
    assert not dp.PrivacyLedger(empty, **BUDGET).entries()
    path.unlink()
    for _ in range(3):
        dp.PrivacyLedger(path, **BUDGET).reserve(SMALL, **WHO)
    half = crashed(path, tmp_path / "half.db", "DELETE FROM entry")
    assert len(dp.PrivacyLedger(half, **BUDGET).entries()) == 3


def test_an_interrupted_debit_leaves_nothing(path, monkeypatch):
    ledger = dp.PrivacyLedger(path, **BUDGET)

    def interrupt(*_):
        raise KeyboardInterrupt

    for place, what in ((budgets, "fits"), (ledger_module, "Reservation"), (Book, "add")):
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(place, what, interrupt)
            dp.PrivacyLedger(path.with_name(f"{what}.db"), **BUDGET).reserve(SMALL, **WHO)
        counted = len(dp.PrivacyLedger(path.with_name(f"{what}.db"), **BUDGET).entries())
        assert counted == (what == "Reservation")  # on the disk, though nobody was told
    assert ledger.reserve(SMALL, **WHO).entry == 1


def made(path):
    dp.PrivacyLedger(path, **BUDGET).reserve(SMALL, **WHO)
    return path


def changed(path, *statements):
    with sqlite3.connect(made(path)) as connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()
    return path


def something_else(path):
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE people (name TEXT)")
    connection.close()
    return path


def text(path):
    path.write_text("name,age\n" * 1000)
    return path


def opened(make, **budget):
    return lambda path: dp.PrivacyLedger(make(path), **{**BUDGET, **budget})


def reserved(**kwargs):
    def call(path):
        dp.PrivacyLedger(path, **BUDGET).reserve(**{"cost": SMALL, **WHO, **kwargs})

    return call


def with_readonly(path):
    """As if without permission, which the superuser always has."""
    made(path)
    with pytest.MonkeyPatch.context() as patch:
        connect = sqlite3.connect
        patch.setattr(
            sqlite3, "connect", lambda address, **kw: connect(re.sub("mode=rwc?", "mode=ro", address), **kw)
        )
        dp.PrivacyLedger(path, **BUDGET).reserve(SMALL, **WHO)


def gone(path):
    ledger = dp.PrivacyLedger(made(path), **BUDGET)
    path.unlink()
    ledger.reserve(SMALL, **WHO)


def exchanged(path):
    ledger = dp.PrivacyLedger(made(path), **BUDGET)
    path.unlink()
    path.with_name(path.name + ".head").unlink()
    made(path)
    ledger.reserve(SMALL, **WHO)


def damaged(path):
    dp.PrivacyLedger(changed(path, "UPDATE entry SET costs = '[{}]'"), **BUDGET).reserve(SMALL, **WHO)


def in_use(path):
    ledger = dp.PrivacyLedger(made(path), **BUDGET)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_ledger_file, "_PATIENCE", 0.01)
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        try:
            ledger.reserve(SMALL, **WHO)
        finally:
            other.close()


def same(path):
    return path


BAD = {
    "no epsilon": (lambda p: dp.PrivacyLedger(p, delta=1e-6), TypeError, "epsilon"),
    "no delta": (lambda p: dp.PrivacyLedger(p, epsilon=1), TypeError, "delta"),
    "epsilon is 0": (opened(same, epsilon=0), ValueError, "epsilon must be a finite number > 0"),
    "endless epsilon": (opened(same, epsilon=math.inf), ValueError, "epsilon must be a finite number"),
    "epsilon is an array": (opened(same, epsilon=np.ones(2)), TypeError, "epsilon must be one real number"),
    "delta is 1": (opened(same, delta=1.0), ValueError, "delta must be strictly between 0 and 1"),
    "negative delta": (opened(same, delta=-1e-6), ValueError, "delta must be strictly between 0 and 1"),
    "path is a number": (opened(lambda p: 3), TypeError, "path must be the name of a file"),
    "path is empty": (opened(lambda p: ""), TypeError, "path must be the name of a file"),
    "path is a folder": (opened(lambda p: p.parent), LedgerFileError, "is a folder: give the name of a file"),
    "no such folder": (opened(lambda p: p / "a" / "b.db"), LedgerFileError, "folder that does not exist"),
    "path with a null": (opened(lambda p: f"{p}\0"), ValueError, "path = .* has a null character"),
    "path of half a character": (opened(lambda p: f"{p}\ud800"), ValueError, "path = .* broken characters"),
    "endless whole epsilon": (
        opened(same, epsilon=10**400),
        ValueError,
        "epsilon must be a number of at most",
    ),
    "entries is a word": (opened(made, entries="1"), TypeError, "entries must be a whole number"),
    "fewer than none": (opened(made, entries=-1), ValueError, "entries must be a whole number >= 0"),
    "other entries": (
        opened(made, entries=2),
        LedgerFileError,
        "entries = 2, but the ledger .* has 1 debits",
    ),
    "entries of nothing": (opened(same, entries=2), LedgerFileError, "entries = 2, but there is no file"),
    "not a database": (opened(text), LedgerFileError, "not a ledger, or is damaged"),
    "another database": (opened(something_else), LedgerFileError, "a database of something else"),
    "another epsilon": (
        opened(made, epsilon=5),
        LedgerFileError,
        "was made with epsilon = 4.0 and delta = 1e-06",
    ),
    "another delta": (opened(made, delta=1e-5), LedgerFileError, "not with epsilon = 4.0 and delta = 1e-05"),
    "newer": (
        opened(lambda p: changed(p, "PRAGMA user_version = 3")),
        LedgerFileError,
        "format 3, newer than 2.*install a newer pymc_dp",
    ),
    "read only": (with_readonly, LedgerFileError, "cannot be written"),
    "gone": (gone, LedgerFileError, "is gone"),
    "exchanged": (exchanged, LedgerFileError, "exchanged for another ledger"),
    "damaged": (damaged, LedgerFileError, "is damaged: debit 1 or its budget was changed"),
    "in use": (in_use, LedgerFileError, "in use by other processes"),
    "no cost": (reserved(cost=()), ValueError, "cost is empty"),
    "cost is a number": (reserved(cost=1.0), TypeError, "cost must be a cost"),
    "no likelihood": (reserved(likelihood=""), TypeError, "likelihood must be a name"),
    "step is a class": (reserved(step=int), TypeError, "step must be a name"),
    "no chains": (reserved(chains=0), ValueError, "chains must be a whole number >= 1"),
    "half a chain": (reserved(chains=1.5), TypeError, "chains must be a whole number"),
    "endless chains": (reserved(chains=2**63), ValueError, r"chains must be a whole number below 2\^63"),
    "half a character": (
        reserved(likelihood="x\ud800"),
        ValueError,
        "likelihood has half of a surrogate pair",
    ),
    "half a step": (reserved(step="x\udfff"), ValueError, "step has half of a surrogate pair"),
    "endless releases": (
        lambda p: reserved(cost=A.GaussianCost(10**400, 1.0))(p),
        ValueError,
        r"releases .* below 2\^63",
    ),
    "no noise at all": (
        lambda p: reserved(cost=A.GaussianCost(1, 1e-200))(p),
        ValueError,
        "noise_multiplier must be between 1e-150",
    ),
    "endless noise": (
        lambda p: reserved(cost=A.GaussianCost(1, 1e200))(p),
        ValueError,
        "noise_multiplier must be between 1e-150",
    ),
    "too dear": (reserved(cost=A.GaussianCost(1, 0.1)), dp.BudgetExceededError, "does not fit"),
}
NO_LEDGERS = [BAD[name][0] for name in ("not a database", "another database")]


@pytest.mark.parametrize(("call", "error", "words"), BAD.values(), ids=BAD)
def test_bad_input_is_refused_and_nothing_debited(path, call, error, words):
    made_before = made(path.with_name("other.db"))
    with pytest.raises(error, match=words):
        call(path)
    if path.exists() and call not in NO_LEDGERS:
        with sqlite3.connect(path) as connection:
            (entries,) = connection.execute("SELECT count(*) FROM entry").fetchone()
        connection.close()
        assert entries <= 1  # what `made` debited
    assert len(dp.PrivacyLedger(made_before, **BUDGET).entries()) == 1


def test_another_file_is_not_touched(path):
    """A database of something else is left as it was."""
    before = something_else(path).read_bytes()
    with pytest.raises(LedgerFileError):
        dp.PrivacyLedger(path, **BUDGET)
    assert path.read_bytes() == before


def test_a_ledger_of_an_older_process_has_ended(path):
    ledger = dp.PrivacyLedger(**BUDGET)
    copy = pickle.loads(pickle.dumps(ledger))
    _ledger_file._remove(os.fspath(ledger._file.path.parent), os.getpid())
    with pytest.raises(LedgerFileError, match="One without a path ends with the process that made it"):
        copy.entries()
