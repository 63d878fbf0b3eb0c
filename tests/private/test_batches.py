"""Batches of rows: chosen uniformly and in secret, added up exactly, in a time that knows nothing of n."""

import numpy as np
import pymc as pm
import pytest
from scipy import stats

import pymc_dp as dp
from pymc_dp.privacy.exact_noise import system_words, words_from
from pymc_dp.private.batches import bits_for_squares, choose, gather
from pymc_dp.private.minibatch import _WHOLE, _combined, shares
from tests.private.test_ratios import LAWS, Lowered, many, normal, values

TOP = 2**64 - 1


def chosen(n, b, words):
    out, taken = np.full(b, -1), np.zeros(n, dtype=bool)
    enough = choose(n, words, taken, out)
    assert not taken.any()
    return tuple(out) if enough else None


def p_of_pairs(words, calls=40_000):
    """Of a chi-square test of all pairs out of six."""
    seen = np.zeros((6, 6), dtype=int)
    for w in words(4 * calls).reshape(calls, 4):
        i, j = sorted(chosen(6, 2, w))
        seen[i, j] += 1
    return stats.chisquare(seen[np.triu_indices(6, 1)]).pvalue


def test_every_batch_is_as_likely(rng):
    words = words_from(rng)
    assert p_of_pairs(words) > 1e-3
    # power: one word in thirty is that before it
    assert (
        p_of_pairs(lambda k: np.where(rng.random(k) < 0.03, 12 * (words(k) // np.uint64(12)), words(k)))
        < 1e-6
    )


def test_batches_of_any_size(rng):
    for n, b in ((1, 1), (5, 5), (1000, 1), (1000, 37), (1000, 999), (1000, 1000)):
        found = chosen(n, b, words_from(rng)(b + 8))
        assert len(set(found)) == b and 0 <= min(found) <= max(found) < n


def test_words_that_favour_some_remainders_are_left_out():
    """2^64 leaves a remainder of 1 by 3: the last word would make 0 more likely than 1 and 2."""
    assert chosen(3, 1, np.array([TOP - 1], dtype=np.uint64)) == ((TOP - 1) % 3,)
    assert chosen(3, 1, np.array([TOP, 5], dtype=np.uint64)) == (2,)
    assert chosen(3, 1, np.array([TOP], dtype=np.uint64)) is None
    assert chosen(4, 1, np.array([TOP], dtype=np.uint64)) == (3,)  # a power of 2: no remainder
    assert chosen(9, 2, np.array([7, TOP], dtype=np.uint64)) is None  # and nothing stays taken


class Counting:
    """An array that counts what is read of it."""

    def __init__(self, array):
        self.array, self.read = array, 0

    def __len__(self):
        return len(self.array)

    def __getitem__(self, at):
        self.read += 1
        return self.array[at]

    def __setitem__(self, at, value):
        self.read += 1
        self.array[at] = value


def test_what_is_read_does_not_depend_on_n(rng):
    """Rows, marks and words, by count: of ten thousand times as many rows, the same."""
    counts = []
    for n in (100, 1_000_000):
        marks, words = Counting(np.zeros(n, dtype=bool)), Counting(words_from(rng)(28))
        out = np.empty(20, dtype=int)
        with np.errstate(over="ignore"):
            assert choose.py_func(n, words, marks, out)
        x = Counting(np.zeros((3, n)))
        gather.py_func(x, out, np.empty((3, 20)))
        counts.append((x.read, words.read))
        assert marks.read <= 3 * 20
    assert counts[0] == counts[1] == (3 * 20, 2 * 20)


def test_a_step_reads_what_it_chose(rng):
    """The whole step, not its parts: rows that are not in the batch may be anything."""
    lowered, rows = lowered_batch(normal, 20, words_from(rng))
    term = lowered.term
    new, old = values(lowered, rng), values(lowered, rng)
    first, columns = batch_sum(lowered, new, old, 5.0), term.rows.columns()
    rest = np.setdiff1d(np.arange(term.rows.n), rows)
    kept = columns.copy()
    columns[:, rest] = np.nan
    assert batch_sum(lowered, new, old, 5.0) == first != (0, 0)
    columns[...] = kept


def lowered_batch(build, batch_size, words):
    """A law with the sums of one batch; and the rows in it."""
    lowered = Lowered(build, batch_size)
    given = words(batch_size + 8)
    lowered.sums.words = lambda count: given
    return lowered, list(chosen(lowered.term.rows.n, batch_size, given))


def both(total, spread):
    return total, spread


def batch_sum(lowered, new, old, bound):
    ends = (np.array(lowered.numbers(*v), dtype=float) for v in (new, old))
    return lowered.sums.combined(*ends, bound, both)


@pytest.mark.compiles(1)
@pytest.mark.parametrize("build", [normal, many, *(b for b in LAWS if b not in (normal, many))])
def test_sums_beside_numpy(build, rng):
    """Of the clipped changes of the rows that were chosen, and of their squares."""
    b = 60
    lowered, rows = lowered_batch(build, b, words_from(rng))
    for _ in range(5):
        new, old = values(lowered, rng), values(lowered, rng)
        change = (lowered.exact(*new) - lowered.exact(*old))[rows]
        for bound in (np.median(np.abs(change)), 10 * np.abs(change).max()):
            unit = bound * 2.0**-lowered.sums.bits
            total, spread = batch_sum(lowered, new, old, bound)
            r = np.clip(change, -bound, bound)
            assert abs(total * unit - r.sum()) <= b * (unit / 2 + 1e-12)
            assert np.isclose(spread * unit**2, b**2 * r.var(), rtol=1e-6)
            assert not np.isclose(total * unit, r.sum() + bound / 100, rtol=0, atol=b * (unit / 2 + 1e-12))
            assert batch_sum(lowered, old, new, bound) == (-total, spread)


ROWS = (0.0, 1.0, -1e3, 1e3, 1e300, -1e300, np.inf, -np.inf, np.nan)


@pytest.mark.parametrize("others", [-1e300, 1e300])
def test_one_row_changes_what_is_claimed(others, rng):
    """By no more than is claimed whatever the row, and by that much for some; and so does the release."""
    b = 20
    lowered, rows = lowered_batch(normal, b, words_from(rng))
    columns = lowered.term.rows.columns()
    kept, found = columns.copy(), []
    columns[0] = others
    for row in ROWS:
        columns[0, rows[0]] = row
        found.append(batch_sum(lowered, (0.3, 1.0), (0.1, 1.0), 0.37))
    columns[...] = kept
    one, totals, spreads = 2**lowered.sums.bits, *zip(*found)
    assert max(totals) - min(totals) == 2 * one
    assert max(spreads) - min(spreads) == 4 * (b - 1) * one**2
    first, _ = shares(1.3, 0.9, 2 * one)
    released = [_combined(t, s, first, 2 * one, b) for t, s in found]
    # the sum and its variance change together where the others are high, and against each other otherwise
    assert (max(released) - min(released) == 2 * one) == (others > 0)
    assert max(released) - min(released) <= 2 * one


def test_releases_of_neighbours(rng):
    """In whole numbers: no rounding adds to the sensitivity."""
    for _ in range(2000):
        b, one = int(rng.integers(2, 9)), 2 ** int(rng.integers(1, 12))
        rows = [int(r) for r in rng.choice([-one, 0, one, int(rng.integers(-one, one + 1))], b)]
        released = []
        first = int(rng.integers(1, _WHOLE + 1))
        for row in (rows[0], -one, one):
            r = [row, *rows[1:]]
            spread = b * sum(v * v for v in r) - sum(r) ** 2
            assert 0 <= spread <= b * b * one * one
            released.append(_combined(sum(r), spread, first, 2 * one, b))
        assert max(released) - min(released) <= 2 * one


def test_sums_of_squares_fit():
    for b in (2, 3, 1000, 10**6, 2**30):
        assert b * 4 ** bits_for_squares(b) < 2**63
    assert bits_for_squares(1000) == 26


def test_what_a_release_is_made_of():
    """Shares of a release: the sum counts for itself, and its variance for half of itself."""
    change, left_out, grid, b = 0.8, 0.75, 2**10, 4
    first, unit = shares(change, left_out, grid)
    one = grid // 2
    r = np.array([one, 3, -one, 0])
    spread = b * (r**2).sum() - r.sum() ** 2
    released = unit * _combined(int(r.sum()), int(spread), first, grid, b)
    # change = 2 (n / b) T c, where c is `one` units
    weighted = r * (change / grid)
    variance = left_out * b * weighted.var(ddof=1)
    assert abs(released - (weighted.sum() - variance / 2)) <= unit
    assert np.isclose(unit * grid, change + left_out * change**2 / 2, rtol=1e-9)


def test_batches_come_from_the_systems_entropy(monkeypatch):
    """They differ where the seed does not; with the entropy replaced they do not: there is no other."""
    from pymc_dp.privacy import exact_noise

    rows = np.arange(50.0)
    with pm.Model() as model:
        mu = pm.Normal("mu")
        dp.ConfidentialLikelihood("x", pm.Normal.dist(mu, 1), rows, clip=1e4)

    def summed():
        step = dp.MinibatchPenalty(model=model, batch_size=10, noise_multiplier=1.0)
        step.setup_chain(np.random.default_rng(7), 0, 3)
        assert step._sums.words is system_words
        ends = [step.numbers_at(np.array([t]), np.zeros(0)) for t in (1.0, 0.0)]
        return [step._sums.combined(*ends, 1e4, both)[0] for _ in range(8)]

    # sums of two batches are equal with probability 0.0023 (3,000 of them), and eight pairs never are
    first, second = summed(), summed()
    assert first != second and len({*first}) > 1 and len({*second}) > 1
    drawn = []
    for _ in range(2):
        monkeypatch.setattr(exact_noise.secrets, "token_bytes", np.random.default_rng(1).bytes)
        drawn.append(summed())
    assert drawn[0] == drawn[1]
