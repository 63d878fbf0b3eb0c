"""Attacks on the files of a ledger: by other descriptors, crashes, full disks, careless copies and edits."""

import contextlib
import dataclasses
import errno
import fcntl
import gc
import json
import os
import pickle
import resource
import shutil
import signal
import sqlite3
import struct
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import pymc_dp as dp
from pymc_dp.privacy import _ledger_file, _ledger_head, budgets
from pymc_dp.privacy._ledger_file import LedgerFileError

A = dp.accounting
BUDGET = {"epsilon": 4.0, "delta": 1e-6}
WHO = {"likelihood": "x", "step": "PenaltyMetropolis", "chains": 2}
SMALL = A.GaussianCost(1, 1e4)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "study.db"


@pytest.fixture
def ledger(path):
    """Three debits, of which the second has one claim."""
    ledger = dp.PrivacyLedger(path, **BUDGET)
    reservations = [ledger.reserve(A.GaussianCost(k, 100.0), **WHO) for k in (1, 2, 3)]
    reservations[1].claim()
    return ledger


def opened(path, **kwargs):
    return dp.PrivacyLedger(path, **{**BUDGET, **kwargs})


def beside(path):
    return path.with_name(path.name + ".head")


def kept(path, where):
    """Copy both files, as a backup would."""
    where.mkdir()
    for file in (path, beside(path)):
        shutil.copy(file, where / file.name)
    return where / path.name


def put_back(copy, path, *, both=False):
    shutil.copy(copy, path)
    if both:
        shutil.copy(beside(copy), beside(path))


def in_child(work):
    """Fork a process that calls work(send); return its id and the reading end of what it sends."""
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


def ended(child, reading):
    """Wait for a process; return its status and the numbers that it sent."""
    with os.fdopen(reading, "rb") as end:
        text = end.read()
    return os.waitpid(child, 0)[1], [number for (number,) in struct.iter_unpack("q", text)]


# ---- locks that a process loses ----------------------------------------------------------------------


def backed_up_meanwhile(path, work, debiting=2):
    """Call work() in several threads, while another one opens and closes the files of the ledger."""
    over, failed = threading.Event(), []

    def back_up():
        while not over.is_set():
            for file in (path, beside(path)):
                with contextlib.suppress(FileNotFoundError):
                    file.read_bytes()

    def guarded():
        try:
            work()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=guarded) for _ in range(debiting)]
    copying = threading.Thread(target=back_up)
    for thread in (copying, *threads):
        thread.start()
    for thread in threads:
        thread.join()
    over.set()
    copying.join()
    assert not failed, failed


def spend(ledger, cost, granted):
    while True:
        try:
            granted(ledger.reserve(cost, **WHO).entry)
        except dp.BudgetExceededError:
            return


@pytest.mark.parametrize("processes", [0, 4])
def test_files_that_are_opened_and_closed_lose_no_debit(path, processes):
    """POSIX locks of a process end with any descriptor of the file, and debits are written over."""
    plan = 40
    cost = A.GaussianCost(1, A.noise_multiplier(plan, **BUDGET))
    ledger = opened(path)

    def work(granted):
        backed_up_meanwhile(path, lambda: spend(opened(path), cost, granted))

    if processes:
        found = [ended(*child) for child in [in_child(work) for _ in range(processes)]]
        granted = [entry for _, taken in found for entry in taken]
    else:
        granted = []
        work(granted.append)
    assert [entry.id for entry in ledger.entries()] == sorted(granted) == list(range(1, plan + 1))
    assert ledger.epsilon_spent <= 4.0
    if processes:
        assert [status for status, _ in found] == [0] * processes


def test_locks_that_do_not_exclude_are_refused(path, monkeypatch):
    """As on network shares, where flock(2) is made into the very lock that a process loses."""
    monkeypatch.setattr(fcntl, "flock", fcntl.lockf)
    with pytest.raises(LedgerFileError, match=r"no locks that can be relied on .* on a local disk"):
        opened(path)
    monkeypatch.undo()
    assert not opened(path).entries()


def test_a_lock_is_waited_for_and_given_up(ledger, path, monkeypatch):
    monkeypatch.setattr(_ledger_file, "_PATIENCE", 0.05)
    with open(beside(path)) as file, pytest.raises(LedgerFileError, match=r"in use .* try again"):
        fcntl.flock(file, fcntl.LOCK_EX)
        ledger.reserve(SMALL, **WHO)
    assert ledger.reserve(SMALL, **WHO).entry == 4


def test_what_fits_is_decided_outside_of_the_lock_and_again(path, monkeypatch):
    """Another process debits while this one works out whether its own debit fits."""
    cost = A.GaussianCost(1, 1.02 * A.noise_multiplier(1, **BUDGET))  # fits once, not twice
    one, other, fits, asked = opened(path), opened(path), budgets.fits, []

    def slowly(*arguments):
        asked.append(arguments)
        if len(asked) == 1:
            other.reserve(cost, **WHO)
        return fits(*arguments)

    monkeypatch.setattr(budgets, "fits", slowly)
    monkeypatch.setattr(_ledger_file, "_PATIENCE", 0.5)
    with pytest.raises(dp.BudgetExceededError, match="does not fit"):
        one.reserve(cost, **WHO)
    assert len(one.entries()) == 1
    assert [len(costs) for costs, *_ in asked[:3]] == [1, 1, 2]  # both of them once, and this one again


# ---- interrupts --------------------------------------------------------------------------------------

FILES_OF_CALLS = {_ledger_file.__file__, _ledger_head.__file__, contextlib.__file__}


def interrupted(act, at, twice=False):
    """Interrupt a call at one of its lines (and the next); return whether it had so many, and the error."""
    lines = 0

    def local(frame, event, argument):
        nonlocal lines
        if event == "line":
            lines += 1
            if lines == at or (twice and lines == at + 1):
                raise KeyboardInterrupt
        return local

    def trace(frame, event, argument):
        return local if frame.f_code.co_filename in FILES_OF_CALLS else None

    tracer = sys.gettrace()
    sys.settrace(trace)
    try:
        act()
    except KeyboardInterrupt as error:
        return True, error
    finally:
        sys.settrace(tracer)
    return False, None


def in_a_thread(act):
    """Call in a thread of its own.

    An error that a trace function raises within ``except`` leaves the handled exception behind in its thread:
    later errors of any test would have it for a context.
    """
    with ThreadPoolExecutor(1) as pool:
        pool.submit(act).result()


@pytest.mark.parametrize("twice", [False, True], ids=["once", "twice"])
def test_an_interrupt_leaves_no_lock(path, monkeypatch, full, twice):
    """Not even where somebody keeps the traceback, as a notebook does."""
    monkeypatch.setattr(_ledger_file, "_PATIENCE", 0.05)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    in_a_thread(lambda: interrupt_at_each_line(path, full, twice))
    gc.collect()
    assert not [file for file in map(target, os.listdir("/proc/self/fd")) if file.startswith(str(path))]


def interrupt_at_each_line(path, full, twice):
    ledger, granted, at, more = opened(path), 0, 0, True
    while more:
        at += 1 if full else 5
        more, error = interrupted(lambda: ledger.reserve(SMALL, **WHO), at, twice)
        ledger.reserve(SMALL, **WHO)  # a retry, while the last error is kept
        granted += 2 - more
        assert (error is not None) == more
    assert at > 100
    assert granted <= len(ledger.entries()) <= granted + at


def target(descriptor):
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return ""


def test_an_interrupt_leaves_the_lock_to_others(path, monkeypatch):
    """An interrupt at the very line that gives the lock back, and no retry of the same thread."""
    monkeypatch.setattr(_ledger_file, "_PATIENCE", 0.05)
    ledger, flock = opened(path), fcntl.flock

    def once(file, operation):
        if operation == fcntl.LOCK_UN:
            monkeypatch.setattr(fcntl, "flock", flock)
            raise KeyboardInterrupt
        return flock(file, operation)

    monkeypatch.setattr(fcntl, "flock", once)
    with pytest.raises(KeyboardInterrupt):
        ledger.entries()
    seen = []
    other = threading.Thread(target=lambda: seen.append(ledger.entries()))
    other.start()
    other.join(5)
    assert seen == [()]


# ---- crashes, and disks that are full ----------------------------------------------------------------


def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)


def half(descriptor, line, offset):
    os.pwrite_whole(descriptor, line[:200], offset)
    die()


CRASHES = {
    "before it is noted": ("_ledger_head.SideFile.write", die),
    "half noted": ("_ledger_head.os.pwrite", half),
    "before the note is on the disk": ("_ledger_head.os.fsync", die),
    "before the file has its name": ("_ledger_file.os.rename", die),
    "after the file has its name": ("_ledger_file.sync_folder", die),
    "while it is filled": ("_ledger_file.fill", die),
}


@pytest.mark.parametrize("first", [True, False], ids=["made", "debited"])
@pytest.mark.parametrize(("place", "act"), CRASHES.values(), ids=CRASHES)
def test_a_crash_at_any_step_leaves_a_ledger(path, monkeypatch, place, act, first):
    """No debit that was granted is lost, and the next session goes on, whatever the files are left like."""
    monkeypatch.setattr(os, "pwrite_whole", os.pwrite, raising=False)
    granted = 0
    for _ in range(2):  # a crash after a crash
        if not first:
            granted = opened(path).reserve(SMALL, **WHO).entry

        def work(send):
            ledger = None if first else opened(path)
            patch = pytest.MonkeyPatch()
            patch.setattr(f"pymc_dp.privacy.{place}", act)
            ledger = ledger or opened(path)
            patch.undo()
            if not first:
                patch.setattr(f"pymc_dp.privacy.{place}", act)
            send(ledger.reserve(SMALL, **WHO).entry)

        there = path.exists()
        status, sent = ended(*in_child(work))
        made_only = place.startswith("_ledger_file")  # steps that a debit does not have
        assert os.WIFEXITED(status) == (made_only and there), status
        granted = max([granted, *sent])
    ledger = opened(path)
    assert len(ledger.entries()) >= granted
    assert ledger.reserve(SMALL, **WHO).claim() == 0
    opened(path)


def test_kill_at_random_points_loses_neither_debits_nor_claims(path, rng):
    """Debit, claim, acknowledge; then the process is killed."""
    opened(path)

    def for_ever(send):
        ledger = opened(path)
        while True:
            reservation = ledger.reserve(SMALL, **WHO)
            reservation.claim()
            send(reservation.entry)

    known = set()
    for _ in range(12):
        child, reading = in_child(for_ever)
        first = os.read(reading, 8)
        time.sleep(rng.uniform(0, 0.15))
        os.kill(child, signal.SIGKILL)
        status, sent = ended(child, reading)
        assert os.WTERMSIG(status) == signal.SIGKILL
        known |= {*struct.unpack("q", first), *sent}
        claimed = {entry.id: entry.claimed for entry in opened(path).entries()}
        assert all(claimed[entry] == 1 for entry in known)
    assert len(known) >= 12


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_a_debit_that_cannot_be_noted_is_not_granted(ledger, path, monkeypatch, error):
    def fail(*_):
        raise OSError(error, os.strerror(error))

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", fail)
        with pytest.raises(LedgerFileError, match=r"so that nothing is granted: make room .* stays debited"):
            ledger.reserve(SMALL, **WHO)
        with pytest.raises(LedgerFileError, match="nothing is granted"):
            ledger.reserve(SMALL, **WHO)
    assert ledger.reserve(SMALL, **WHO).entry == 6  # what was not granted counts all the same
    assert len(opened(path).entries()) == 6


@pytest.mark.parametrize("room", [0, 600, 4096, 9000, 17000, 21000, 30000])
def test_a_full_disk_loses_nothing(path, room):
    """No file may grow over so many bytes, while a ledger is made and debited from."""

    def work(send):
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))
        try:
            ledger = opened(path)
            for _ in range(300):
                send(ledger.reserve(SMALL, **WHO).entry)
        except LedgerFileError:
            return
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        raise AssertionError("there was room")

    status, granted = ended(*in_child(work))
    assert status == 0 and bool(granted) == (room > 17000)
    ledger = opened(path)
    assert len(ledger.entries()) >= len(granted)
    ledger.reserve(SMALL, **WHO)


# ---- files that are cut off, edited, or put back ------------------------------------------------------


@pytest.mark.parametrize("which", ["ledger", "file beside"])
def test_a_file_that_is_cut_off_is_refused_or_whole(ledger, path, tmp_path, which):
    whole = ledger.entries()
    copy = kept(path, tmp_path / "backup")
    file = {"ledger": path, "file beside": beside(path)}[which]
    size, refused = file.stat().st_size, 0
    pages = [k + d for k in range(0, size + 1, 4096) for d in (-1, 0, 1)]
    for length in sorted({0, 1, 15, 16, 50, 99, 100, 101, 511, 512, 513, *range(0, size, 509), *pages}):
        if not 0 <= length < size:
            continue
        os.truncate(file, length)
        for entries in (ledger.entries, lambda: opened(path).entries()):
            try:
                assert entries() == whole, length
            except LedgerFileError as error:
                refused += 1
                assert "put" in str(error).lower(), error
        put_back(copy, path, both=True)
    assert refused >= (2 * size // 509 if which == "ledger" else 2)
    assert ledger.entries() == opened(path).entries() == whole


CHEAP = json.dumps([{"kind": "gaussian", "releases": 1, "noise_multiplier": 1e9}])
EDITS = {
    "the last debit deleted": "DELETE FROM entry WHERE id = 3",
    "a debit in the middle deleted": "DELETE FROM entry WHERE id = 2",
    "the first debit deleted": "DELETE FROM entry WHERE id = 1",
    "all debits deleted": "DELETE FROM entry",
    "a gap closed": "DELETE FROM entry WHERE id = 1; UPDATE entry SET id = id - 1",
    "a gap made": "UPDATE entry SET id = 9 WHERE id = 3",
    "a cheaper debit": f"UPDATE entry SET costs = '{CHEAP}' WHERE id = 1",
    "more chains": "UPDATE entry SET chains = 9 WHERE id = 3",
    "noise said to be secure": "UPDATE entry SET insecure_noise = 1 WHERE id = 2",
    "bytes in place of a word": "UPDATE entry SET user = x'ff' WHERE id = 2",
    "words that are no text": "UPDATE entry SET user = CAST(x'ff' AS TEXT) WHERE id = 2",
    "a digest": "UPDATE entry SET digest = 'x' WHERE id = 3",
    "debits exchanged": "UPDATE entry SET costs = (SELECT costs FROM entry AS o WHERE o.id = 4 - entry.id)",
    "a claim deleted": "DELETE FROM claim",
    "a claim of another": "UPDATE claim SET entry = 3",
    "a larger budget": "UPDATE budget SET epsilon = 40",
    "a larger delta": "UPDATE budget SET delta = 0.5",
    "two budgets": "INSERT INTO budget SELECT * FROM budget",
    "no budget": "DELETE FROM budget",
    "a budget in words": "UPDATE budget SET epsilon = 'much'",
    "another identity": "UPDATE budget SET identity = 'x'",
    "an older format": "PRAGMA user_version = 1; DELETE FROM entry WHERE id = 3",
    "no format": "PRAGMA user_version = 0",
    "a table dropped": "DROP TABLE claim",
    "everything dropped": "DROP TABLE claim; DROP TABLE entry; DROP TABLE budget; PRAGMA application_id = 0",
}


def edit(path, statements):
    connection = sqlite3.connect(path)
    connection.executescript(statements)
    connection.close()


@pytest.mark.parametrize("statements", EDITS.values(), ids=EDITS)
def test_a_ledger_that_was_edited_is_refused_until_it_is_put_back(ledger, path, tmp_path, statements):
    copy, whole = kept(path, tmp_path / "backup"), ledger.entries()
    edit(path, statements)
    for act in (
        ledger.entries,
        lambda: ledger.reserve(SMALL, **WHO),
        lambda: opened(path),
        lambda: opened(path, epsilon=40.0),
    ):
        with pytest.raises(LedgerFileError, match=r"(Put|put) back"):
            act()
    put_back(copy, path)
    assert ledger.entries() == opened(path).entries() == whole


def test_a_budget_that_was_edited_before_the_first_debit(path):
    ledger = opened(path)
    edit(path, "UPDATE budget SET epsilon = 40")
    for act in (ledger.entries, lambda: opened(path, epsilon=40.0)):
        with pytest.raises(LedgerFileError, match="damaged: its budget was changed"):
            act()


def test_an_older_copy_is_refused_while_the_ledger_lives_and_after(path, tmp_path):
    ledger = opened(path)
    ledger.reserve(SMALL, **WHO)
    older = kept(path, tmp_path / "older")
    reservation = ledger.reserve(SMALL, **WHO)
    newest = kept(path, tmp_path / "newest")
    put_back(older, path)
    copy = pickle.loads(pickle.dumps(ledger))
    for act in (ledger.entries, reservation.claim, copy.entries, lambda: opened(path)):
        with pytest.raises(LedgerFileError, match=r"has 1 of 2 .*older copy.* Put back the file"):
            act()
    put_back(newest, path)
    assert reservation.claim() == 0 and len(opened(path).entries()) == 2


def test_an_older_copy_gives_no_chain_back(path, tmp_path):
    """A claim counts like a debit: else the chains of a plan would be drawn twice."""
    reservation = opened(path).reserve(SMALL, **WHO)
    older = kept(path, tmp_path / "older")
    reservation.claim()
    put_back(older, path)
    for act in (reservation.claim, lambda: opened(path)):
        with pytest.raises(LedgerFileError, match=r"has 0 of 1 .*claim of a chain"):
            act()


def test_older_copies_of_both_files(path, tmp_path):
    """Refused by whoever has the ledger open; a later session cannot tell, as the documentation says."""
    ledger = opened(path)
    older = kept(path, tmp_path / "older")
    ledger.reserve(SMALL, **WHO)
    put_back(older, path, both=True)
    with pytest.raises(LedgerFileError, match="has 0 of 1"):
        ledger.reserve(SMALL, **WHO)
    assert not opened(path).entries()
    assert "older\n    copy of *both* files" in dp.PrivacyLedger.__doc__.replace(
        " older copy", " older\n    copy"
    )


# ---- files that are not there -------------------------------------------------------------------------


@pytest.mark.parametrize("make", [lambda file: file.unlink(), lambda file: os.truncate(file, 0)])
def test_a_ledger_without_the_file_beside_it(ledger, path, tmp_path, make):
    copy = kept(path, tmp_path / "backup")
    make(beside(path))
    for act in (lambda: opened(path), ledger.entries):
        with pytest.raises(LedgerFileError, match="put it back"):
            act()
    with pytest.raises(LedgerFileError, match=r"entries = 2, but the ledger .* has 3 debits"):
        opened(path, entries=2)
    put_back(copy, path, both=True)
    assert len(ledger.entries()) == len(opened(path).entries()) == 3  # one remedy
    make(beside(path))
    with pytest.raises(LedgerFileError, match="open it once with entries=3"):
        opened(path)
    again = opened(path, entries=3)  # and the other
    assert again.reserve(SMALL, **WHO).entry == 4 and len(opened(path).entries()) == 4


def test_a_file_beside_that_is_damaged(ledger, path):
    beside(path).write_bytes(b"x" * 1024)
    with pytest.raises(LedgerFileError, match=r"damaged or of a newer pymc_dp: .* delete it and open"):
        opened(path)
    beside(path).unlink()
    assert len(opened(path, entries=3).entries()) == 3


@pytest.mark.parametrize("make", [lambda file: file.mkdir(), os.mkfifo], ids=["a folder", "a pipe"])
def test_a_file_beside_that_is_no_file(ledger, path, tmp_path, make):
    copy = kept(path, tmp_path / "backup")
    beside(path).unlink()
    make(beside(path))
    for act in (ledger.entries, lambda: opened(path)):
        with pytest.raises(LedgerFileError, match=r"beside the ledger cannot be (read|written)"):
            act()
    beside(path).rmdir() if beside(path).is_dir() else beside(path).unlink()
    put_back(copy, path, both=True)
    assert len(ledger.entries()) == 3


def test_a_deleted_ledger_does_not_begin_anew(ledger, path, tmp_path):
    copy = kept(path, tmp_path / "backup")
    path.unlink()
    for _ in range(2):
        with pytest.raises(LedgerFileError, match=r"is gone, and of its debits, 3, .* put the file back"):
            opened(path)
        assert not path.exists()
    put_back(copy, path)
    assert len(opened(path).entries()) == 3


def test_an_empty_file_is_not_a_new_ledger(ledger, path, tmp_path, caplog):
    path.write_bytes(b"")
    with pytest.raises(LedgerFileError, match="an empty file, and 3 debits may be lost"):
        opened(path)
    empty = tmp_path / "touched.db"
    empty.touch()
    with pytest.raises(LedgerFileError, match=r"is an empty file, .* delete the file"):
        opened(empty)
    assert "new" not in caplog.text and not beside(empty).exists()
    empty.unlink()
    assert not opened(empty).entries()


def test_files_move_together(ledger, path, tmp_path):
    moved = tmp_path / "elsewhere.db"
    path.rename(moved)
    with pytest.raises(LedgerFileError, match=r"elsewhere.db.head.* is not there"):
        opened(moved)
    beside(path).rename(beside(moved))
    assert len(opened(moved).entries()) == 3
    other = opened(path)
    shutil.copy(beside(path), beside(moved))
    with pytest.raises(LedgerFileError, match="or the file beside it was"):
        opened(moved)
    assert not other.entries()


def test_names_of_one_file_are_one_ledger(ledger, path, tmp_path):
    link, hard = tmp_path / "link.db", tmp_path / "hard.db"
    link.symlink_to(path)
    assert opened(link).reserve(SMALL, **WHO).entry == 4 and not beside(link).exists()
    assert len(ledger.entries()) == 4
    os.link(path, hard)
    with pytest.raises(LedgerFileError, match="is not there"):
        opened(hard)


# ---- the format before -----------------------------------------------------------------------------


def of_first_format(path, entries=3):
    """A file as it was written before debits were chained."""
    connection = sqlite3.connect(path)
    connection.executescript(
        """
        CREATE TABLE budget (epsilon REAL NOT NULL, delta REAL NOT NULL, identity TEXT NOT NULL);
        CREATE TABLE entry (id INTEGER PRIMARY KEY AUTOINCREMENT, at TEXT NOT NULL, user TEXT NOT NULL,
            likelihood TEXT NOT NULL, step TEXT NOT NULL, costs TEXT NOT NULL, chains INTEGER NOT NULL,
            insecure_noise INTEGER NOT NULL);
        CREATE TABLE claim (entry INTEGER NOT NULL REFERENCES entry (id), chain INTEGER NOT NULL,
            at TEXT NOT NULL, PRIMARY KEY (entry, chain));
        INSERT INTO budget VALUES (4.0, 1e-6, 'abc');
        PRAGMA application_id = 1887003760;
        PRAGMA user_version = 1;
        """
    )
    at = "2026-01-01T00:00:00.000+00:00"
    cost = '[{"kind": "gaussian", "releases": 7, "noise_multiplier": 100.0}]'
    for _ in range(entries):
        connection.execute(
            "INSERT INTO entry (at, user, likelihood, step, costs, chains, insecure_noise)"
            " VALUES (?, 'me', 'x', 'PenaltyMetropolis', ?, 2, 0)",
            (at, cost),
        )
    connection.execute("INSERT INTO claim VALUES (2, 0, ?)", (at,))
    connection.commit()
    connection.close()
    return path


def test_the_format_before_is_brought_to_this_one_with_a_sentence(path):
    of_first_format(path)
    with pytest.warns(UserWarning, match=r"format of an earlier pymc_dp .* 'study.db.head' beside it"):
        ledger = opened(path)
    assert ledger.spent == (A.GaussianCost(7, 100.0),) * 3
    assert [entry.claimed for entry in ledger.entries()] == [0, 1, 0]
    reservation = dp.privacy.ledger.Reservation(ledger, 2, 2, ())
    assert reservation.claim() == 1 and ledger.reserve(SMALL, **WHO).entry == 4
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert opened(path).entries() == ledger.entries()
    with sqlite3.connect(path) as connection:  # what an earlier version looks at, and refuses
        assert connection.execute("PRAGMA user_version").fetchone() == (2,)
    connection.close()


def test_an_older_copy_of_the_format_before_is_refused(path, tmp_path):
    older = of_first_format(tmp_path / "older.db")
    shutil.copy(older, path)
    with pytest.warns(UserWarning, match="format of an earlier"):
        opened(path).reserve(SMALL, **WHO)
    put_back(older, path)
    with pytest.raises(LedgerFileError, match="has 3 of 4"):
        opened(path)


@pytest.mark.parametrize("statements", ["DELETE FROM entry WHERE id = 1", "UPDATE entry SET costs = '[{}]'"])
def test_damage_in_the_format_before_is_found(path, statements):
    edit(of_first_format(path), statements)
    with pytest.raises(LedgerFileError, match=r"is damaged: .* (P|p)ut back"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        opened(path).reserve(SMALL, **WHO)


@pytest.mark.parametrize(
    "place", ["_ledger_head.SideFile.write", "_ledger_file.fill", "_ledger_chain.Book.add"]
)
def test_a_crash_while_the_format_changes(path, place):
    of_first_format(path)

    def work(send):
        pytest.MonkeyPatch().setattr(f"pymc_dp.privacy.{place}", die)
        opened(path)

    for _ in range(2):
        status, _ = ended(*in_child(work))
        assert os.WTERMSIG(status) == signal.SIGKILL
    with pytest.warns(UserWarning, match="format of an earlier"):
        ledger = opened(path)
    assert len(ledger.entries()) == 3 and ledger.reserve(SMALL, **WHO).entry == 4


# ---- budgets and shares that are set in memory ---------------------------------------------------------


def test_the_budget_of_a_ledger_cannot_be_set(ledger):
    """Grants followed what was set, and not what the file was made with."""
    for name, value in (("epsilon", 100.0), ("delta", 0.5), ("path", None)):
        with pytest.raises(AttributeError, match=rf"PrivacyLedger\.{name} .* open the ledger with its own"):
            setattr(ledger, name, value)
        with pytest.raises(AttributeError, match="Nothing was changed"):
            delattr(ledger, name)
    assert (ledger.epsilon, ledger.delta) == (4.0, 1e-6)
    again = pickle.loads(pickle.dumps(ledger))
    assert (again.epsilon, again.delta, again.path) == (ledger.epsilon, ledger.delta, ledger.path)


def test_grants_follow_the_budget_in_the_file(ledger):
    dear = A.GaussianCost(1, A.noise_multiplier(1, epsilon=16.0, delta=1e-6))
    vars(ledger).update(epsilon=100.0, delta=0.5)
    with pytest.raises(dp.BudgetExceededError, match="budget of epsilon = 4 at delta = 1e-06"):
        ledger.reserve(dear, **WHO)
    assert ledger.epsilon == 4.0 and ledger.epsilon_left < 4.0


def test_chains_are_those_that_the_entry_paid_for(ledger):
    """A reservation that was copied with more chains claimed shares that nobody paid for."""
    reservation = ledger.reserve(SMALL, **{**WHO, "chains": 1})
    forged = dataclasses.replace(reservation, chains=3)
    assert forged.claim() == 0
    for each in (forged, reservation):
        with pytest.raises(dp.BudgetExceededError, match="All 1 chains that entry 4 of the ledger paid for"):
            each.claim()
    assert ledger.entries()[-1].claimed == 1


@pytest.mark.parametrize("entry", [0, -1, 4, "1", None])
def test_shares_of_entries_that_are_not_there(ledger, entry):
    nobody = dp.privacy.ledger.Reservation(ledger, entry, 2, (SMALL,))
    with pytest.raises(dp.BudgetExceededError, match=r"no entry .* what ledger\.reserve returned"):
        nobody.claim()
    assert [e.claimed for e in ledger.entries()] == [0, 1, 0]


# ---- files of others beside it -------------------------------------------------------------------------


def content_of(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_a_new_ledger_leaves_other_files_as_they_are(tmp_path):
    """It was made under the name `a.new`, from which it took away what was there."""
    other = opened(tmp_path / "a.new")
    other.reserve(SMALL, **WHO)
    (tmp_path / "a.new-journal").write_text("notes")
    before = content_of(tmp_path)
    made = opened(tmp_path / "a")
    after = content_of(tmp_path)
    assert {name: after[name] for name in before} == before and len(other.entries()) == 1
    assert set(after) - set(before) == {"a", "a.head"}
    made.reserve(SMALL, **WHO)
    assert len(made.entries()) == len(other.entries()) == 1


def test_a_ledger_that_cannot_be_made_leaves_nothing_half_made(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for place in ("os.rename", "pymc_dp.privacy._ledger_head.SideFile.write"):
        with monkeypatch.context() as patch:
            patch.setattr(place, full)
            with pytest.raises(LedgerFileError, match="No space left"):
                opened(tmp_path / "a")
        assert set(content_of(tmp_path)) == {"a.head"}
    assert opened(tmp_path / "a").entries() == ()


def test_the_place_where_a_ledger_is_made_is_nobody_elses(tmp_path, monkeypatch):
    monkeypatch.setattr(_ledger_file, "_unused_name", lambda: "taken")
    (tmp_path / "taken").write_text("notes")
    with pytest.raises(LedgerFileError, match=r"cannot be made \(File exists\)"):
        opened(tmp_path / "a")
    assert (tmp_path / "taken").read_text() == "notes"


@pytest.mark.parametrize("end", ["-journal", "-wal", "-shm", ".head", "-JOURNAL", ".Head"])
def test_names_that_belong_to_other_ledgers(tmp_path, end):
    """SQLite deletes such files beside a ledger, or they are the file beside it."""
    first = opened(tmp_path / "j")
    with pytest.raises(ValueError, match=rf"path = .*j{end}' ends in '{end.lower()}'.* give another name"):
        opened(tmp_path / f"j{end}")
    assert set(content_of(tmp_path)) == {"j", "j.head"} and first.entries() == ()
    (tmp_path / f"link{end}").symlink_to(tmp_path / "j")
    (tmp_path / "other").symlink_to(tmp_path / f"new{end}")
    for link in (f"link{end}", "other"):
        with pytest.raises(ValueError, match=f"ends in '{end.lower()}'"):
            opened(tmp_path / link)


def test_a_ledger_that_has_such_a_name_is_renamed(path, ledger, tmp_path):
    """As the message says."""
    before = ledger.entries()
    badly = tmp_path / "j-journal"
    for old, new in ((path, badly), (beside(path), beside(badly))):
        old.rename(new)
    with pytest.raises(ValueError, match=r"rename .*, and 'j-journal\.head' beside it in the same way"):
        opened(badly)
    badly.rename(tmp_path / "k")
    beside(badly).rename(tmp_path / "k.head")
    assert opened(tmp_path / "k").entries() == before


def test_a_ledger_in_the_place_of_the_file_beside_it(path, ledger, tmp_path):
    """The advice was to delete it."""
    path.rename(tmp_path / "h.head")
    with pytest.raises(LedgerFileError, match=r"h\.head' is a database.* give another path") as caught:
        opened(tmp_path / "h")
    assert "delete" not in str(caught.value) and not (tmp_path / "h").exists()
    assert opened(tmp_path / "elsewhere").entries() == ()
    (tmp_path / "h.head").rename(path)
    copy = kept(path, tmp_path / "backup")
    shutil.copy(tmp_path / "elsewhere", beside(path))
    with pytest.raises(LedgerFileError, match="move this file elsewhere and put back the one that was there"):
        ledger.entries()
    put_back(copy, path, both=True)
    assert len(ledger.entries()) == 3


def test_a_short_file_in_the_place_of_the_file_beside_it(path):
    """It was written over."""
    beside(path).write_text("notes")
    with pytest.raises(LedgerFileError, match=r"study\.db\.head' is not .* give another path"):
        opened(path)
    assert beside(path).read_text() == "notes" and not path.exists()
    beside(path).write_text('{"format": 2, "ser')  # a crash while the first one was written
    assert opened(path).entries() == ()


@pytest.mark.parametrize("end", ["-journal", "-wal", "-shm"])
def test_files_that_sqlite_would_delete_are_not_there(path, end):
    left = path.with_name(path.name + end)
    left.write_text("notes" * 200)
    with pytest.raises(LedgerFileError, match=rf"study\.db{end}' .* another path"):
        opened(path)
    assert left.read_text() == "notes" * 200 and not path.exists()


# ---- names ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a" * 300, "a" * 252, "a" * 248, "b/" * 3000 + "a", "a" * 300 + "/a"])
def test_names_that_are_too_long_are_refused_in_words(tmp_path, name):
    """Also where only the names that belong to the ledger are."""
    with pytest.raises(LedgerFileError, match=r"File name too long.*: give another path") as caught:
        opened(tmp_path / name)
    assert caught.value.__cause__ is None and not list(tmp_path.iterdir())
    with contextlib.suppress(OSError):
        (tmp_path / "link.db").symlink_to(tmp_path / name)
        with pytest.raises(LedgerFileError, match=r"File name too long.*: give another path"):
            opened(tmp_path / "link.db")


def test_links_in_a_circle_are_no_ledger(tmp_path):
    one, other = tmp_path / "one.db", tmp_path / "other.db"
    one.symlink_to(one)
    with pytest.raises(LedgerFileError, match=r"symbolic links.*: give another path"):
        opened(one)
    one.unlink()
    one.symlink_to(other)
    other.symlink_to(one)
    with pytest.raises(LedgerFileError, match=r"symbolic links.*: give another path"):
        opened(one)
    assert sorted(tmp_path.iterdir()) == [one, other]
    other.unlink()
    opened(one)  # a link to a file that is not there yet
    assert one.is_symlink() and other.is_file()


@pytest.mark.parametrize("name", ["[/red]", "[red]x", "x\\\\", "[link=http://a]"])
def test_names_are_shown_as_they_are(ledger, name):
    """Brackets in them were taken for markup: the table raised an error, or showed less."""
    ledger.reserve(SMALL, likelihood=name, step=name, chains=1)
    assert str(ledger).count(name) == 2


CHANGES = {"noise_multiplier": np.inf, "releases": -5, "batch_size": 0}


@pytest.mark.parametrize(("field", "value"), CHANGES.items())
def test_costs_that_were_written_to_are_checked_anew(tmp_path, field, value):
    """A run with a noise of infinity was granted, and its ledger could not be read from then on."""
    ledger = dp.PrivacyLedger(tmp_path / "ledger.db", epsilon=1, delta=1e-6)
    cost = dp.accounting.GaussianCost(10, 100.0)
    if field == "batch_size":
        cost = dp.accounting.SubsampledGaussianCost(10, 100.0, 50, 5)
    object.__setattr__(cost, field, value)
    with pytest.raises(ValueError, match=f"{field} must be"):
        ledger.reserve(cost, likelihood="x", step="s", chains=1)
    assert ledger.entries() == ()


def test_costs_of_other_kinds_are_refused():
    class Free(dp.accounting.GaussianCost):
        rate = 0.0

    ledger = dp.PrivacyLedger(epsilon=1, delta=1e-6)
    for act in (lambda c: ledger.reserve(c, likelihood="x", step="s", chains=1), dp.accounting.epsilon):
        with pytest.raises(TypeError, match="only, got Free"):
            act(Free(10, 100.0)) if act is not dp.accounting.epsilon else act(Free(10, 100.0), 1e-6)


def test_a_reservation_keeps_the_cost_that_was_debited():
    cost = dp.accounting.GaussianCost(10, 100.0)
    reservation = dp.PrivacyLedger(epsilon=1, delta=1e-6).reserve(cost, likelihood="x", step="s", chains=1)
    object.__setattr__(cost, "noise_multiplier", 1e9)
    assert reservation.costs == (dp.accounting.GaussianCost(10, 100.0),)
