"""What was done to releases: intervals of noisy values beside brute force in fractions; what is refused."""

import itertools
import json
import math
from fractions import Fraction

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from pymc_dp.privacy.processing import SUPPRESSED, Processing


def published(z, operations):
    """Process an exact number, one operation after the other; None where it is not published."""
    hidden = False
    for name, value in operations:
        if name == "clip":
            lo, hi = value
            z = z if lo is None else max(z, Fraction(lo))
            z = z if hi is None else min(z, Fraction(hi))
        elif name == "round_to":
            z = round(z / Fraction(value)) * Fraction(value)  # Python's round goes to the even number
        else:
            hidden = z < Fraction(value)
    return None if hidden else z


def each_order(clips, steps, thresholds):
    """Operations of every kind, pair and triple in every order, written as decimal numbers."""
    for values in itertools.product(clips, steps, thresholds):
        names = ("clip", "round_to", "suppress_below")
        given = [(name, v) for name, v in zip(names, values, strict=True) if v is not None]
        yield from (list(order) for order in itertools.permutations(given) if order)


def as_processing(operations):
    def number(value):
        return None if value is None else float(value)

    given = {k: tuple(map(number, v)) if k == "clip" else float(v) for k, v in operations}
    return Processing.of(**given, order=[name for name, _ in operations])


REAL = list(
    each_order(
        [None, ("0", None), (None, "7"), ("-2", "7.5"), ("2.5", "11"), ("0.15", "0.55")],
        [None, "5", "2", "0.1", "2.5"],
        [None, "3", "0", "2.5", "0.3", "7.5"],
    )
)
WHOLE = list(
    each_order(
        [None, ("0", None), (None, "7"), ("-2", "7"), ("3", "11")],
        [None, "5", "2", "1", "4"],
        [None, "3", "0", "2.5", "10"],
    )
)


def brute_force(operations, grid):
    """Values that a grid is published as, and the numbers of the grid behind each."""
    behind = {}
    for z in grid:
        behind.setdefault(published(z, operations), []).append(z)
    values = np.array([SUPPRESSED if v is None else float(v) for v in behind])
    return values, list(behind.values())


def test_intervals_of_real_numbers():
    grid = [Fraction(k, 40) for k in range(-240, 560)]
    zs, apart = np.array(list(map(float, grid))), 1 / 40 + 1e-12
    for operations in REAL:
        processing = as_processing(operations)
        values, behind = brute_force(operations, grid)
        exact = [published(z, operations) for z in grid]
        assert np.array_equal(
            processing.process(np, zs), [SUPPRESSED if v is None else float(v) for v in exact]
        ), operations
        assert processing.fault(values, whole=False) is None
        for lower, upper, z in zip(*processing.preimage(np, values), behind, strict=True):
            first, last = float(min(z)), float(max(z))
            assert lower <= first and last <= upper, operations
            # the next numbers of the grid are published as others
            assert min(z) == grid[0] or first - lower < apart, operations
            assert max(z) == grid[-1] or upper - last < apart, operations


def test_intervals_of_whole_numbers():
    grid = [Fraction(k) for k in range(-60, 91)]
    for operations in WHOLE:
        processing = as_processing(operations)
        values, behind = brute_force(operations, grid)
        for lower, upper, z in zip(*processing.preimage(np, values, whole=True), behind, strict=True):
            assert lower == float(min(z)) or (min(z) == grid[0] and lower < -50), operations
            assert upper == float(max(z)) or (max(z) == grid[-1] and upper > 80), operations


def test_what_nothing_gives_has_no_interval():
    for operations in WHOLE:
        processing = as_processing(operations)
        values, _ = brute_force(operations, [Fraction(k) for k in range(-60, 91)])
        others = np.array([v for v in [*range(-40, 70), SUPPRESSED, math.inf] if v not in values], float)
        lower, upper = processing.preimage(np, others, whole=True)
        assert (lower > upper).all(), operations
        if others.size:
            assert processing.fault(others, whole=True) is not None


@pytest.mark.parametrize("whole", [False, True])
def test_graphs_find_the_same_intervals(whole, python_mode):
    y, z = pt.vectors("y", "z")
    numbers = np.array([SUPPRESSED, -5, -2, 0, 2, 2.5, 3, 5, 7, 7.5, 10, 11, math.inf])
    for operations in WHOLE[::31] if whole else REAL[::41]:
        processing = as_processing(operations)
        graphs = [*processing.preimage(pt, y, whole), processing.process(pt, z)]
        lower, upper, after = pytensor.function([y, z], graphs)(numbers, numbers[1:-1])
        expected = processing.preimage(np, numbers, whole)
        # graphs may join multiplications
        assert np.allclose((lower, upper), expected, rtol=1e-15, atol=0), operations
        assert np.allclose(after, processing.process(np, numbers[1:-1]), rtol=1e-15, atol=0), operations


def test_the_tie_rule_decides_which_whole_numbers_are_meant():
    tens = Processing.of(round_to=10)
    assert np.array_equal(tens.process(np, np.array([5.0, 15.0, 25.0, 35.0])), [0, 20, 20, 40])
    lower, upper = tens.preimage(np, np.array([10.0, 20.0]), whole=True)
    assert np.array_equal(lower, [6, 15]) and np.array_equal(upper, [14, 25])


def test_numbers_are_the_decimal_numbers_that_they_are_written_as():
    tenths = Processing.of(round_to=0.1)
    multiples = tenths.process(np, np.arange(50) / 10)
    assert np.array_equal(multiples, [float(f"{k / 10:.1f}") for k in range(50)])
    computed = np.arange(50) * 0.1  # 0.30000000000000004 among them
    assert (computed != multiples).any()
    assert np.array_equal(tenths.canonical(computed), multiples)


REFUSED = {
    "nothing": ({}, ValueError, "Say what was done after the noise"),
    "clip turned": ({"clip": (5, 0)}, ValueError, r"clip must be \(lo, hi\) with lo < hi, got \(5, 0\)"),
    "clip of one": ({"clip": (1, 1)}, ValueError, "with lo < hi"),
    "clip without ends": ({"clip": (None, None)}, ValueError, "clip has no end"),
    "clip a number": ({"clip": 3}, TypeError, "clip must be a pair"),
    "clip of three": ({"clip": (0, 1, 2)}, TypeError, "clip must be a pair"),
    "clip nan": ({"clip": (0, math.nan)}, ValueError, "clip must be finite"),
    "clip a word": ({"clip": ("a", 1)}, TypeError, "clip must be a real number"),
    "step zero": ({"round_to": 0}, ValueError, "round_to must be > 0, got 0"),
    "step negative": ({"round_to": -5}, ValueError, "round_to must be > 0"),
    "step boolean": ({"round_to": True}, TypeError, "round_to must be a real number, got bool"),
    "step complex": ({"round_to": 1j}, TypeError, "round_to must be a real number"),
    "step infinite": ({"round_to": math.inf}, ValueError, "round_to must be finite"),
    "threshold nan": ({"suppress_below": math.nan}, ValueError, "suppress_below must be finite"),
    "threshold array": ({"suppress_below": np.arange(2)}, TypeError, "suppress_below must be a real number"),
    "order of others": ({"round_to": 5, "order": ("clip",)}, ValueError, "order must name each operation"),
    "order twice": ({"round_to": 5, "order": ("round_to",) * 2}, ValueError, "order must name each"),
    "order a word": ({"round_to": 5, "order": "round_to"}, ValueError, "order must name each"),
}


@pytest.mark.parametrize(("given", "error", "message"), REFUSED.values(), ids=REFUSED)
def test_refused_operations(given, error, message):
    with pytest.raises(error, match=message):
        Processing.of(**given)


def test_plain_form():
    for operations in [*REAL[::17], *WHOLE[::17]]:
        processing = as_processing(operations)
        plain = json.loads(json.dumps(processing.arguments(), allow_nan=False))
        assert Processing.from_plain(plain) == processing
    for damaged in ({"clip": None}, [], {**plain, "more": 1}, {**plain, "round_to": "5"}):
        with pytest.raises((TypeError, ValueError)):
            Processing.from_plain(damaged)
