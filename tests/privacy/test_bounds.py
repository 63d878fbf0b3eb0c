"""One reading of bounds, and no guessing."""

import numpy as np
import pytensor.tensor as pt
import pytest

from pymc_dp.privacy.bounds import hashable_bounds, parse_bounds
from pymc_dp.privacy.calibration import l1_sensitivity, l2_sensitivity


@pytest.mark.parametrize(
    ("bounds", "lo", "hi"),
    [
        ((0, 1), 0, 1),
        ([0, 1], 0, 1),
        (np.array([0, 1]), 0, 1),
        ((-1, np.array([1, 2, 3])), [-1, -1, -1], [1, 2, 3]),
        (([0, 0, 0], [1, 2, 3]), [0, 0, 0], [1, 2, 3]),
        ([(0, 1), (2, 3), (4, 5)], [0, 2, 4], [1, 3, 5]),
        (((0, 1), (2, 3), (4, 5)), [0, 2, 4], [1, 3, 5]),
        ([(0, 1)], [0], [1]),
        ([(0, 1), (2, 3)], [0, 2], [1, 3]),
        (np.array([(0, 1), (2, 3)]), [0, 2], [1, 3]),
        ((np.array([0, 1]), np.array([2, 3])), [0, 1], [2, 3]),
        (((0, 1), (0, 1)), [0, 0], [1, 1]),
        (((0, 0), (1, 1)), [0, 0], [1, 1]),
        ((np.zeros((2, 2)), np.ones((2, 2))), np.zeros((2, 2)), np.ones((2, 2))),
    ],
)
def test_forms(bounds, lo, hi):
    got_lo, got_hi = parse_bounds(bounds)
    np.testing.assert_array_equal(got_lo, lo)
    np.testing.assert_array_equal(got_hi, hi)
    assert got_lo.shape == got_hi.shape == np.shape(lo)


@pytest.mark.parametrize(
    ("bounds", "error", "message"),
    [
        (((0, 1), (2, 3)), ValueError, "ambiguous"),
        ([np.array([0, 1]), np.array([2, 3])], ValueError, "ambiguous"),
        ((1, 0), ValueError, "lo < hi"),
        ((1, 1), ValueError, "lo < hi"),
        ([(0, 1), (3, 2)], ValueError, "statistic 1"),
        ((0, np.inf), ValueError, "finite"),
        ((np.nan, 1), ValueError, "finite"),
        ((0, 1, 2), ValueError, "not pairs"),
        ([], ValueError, "empty"),
        ((np.zeros(2), np.ones(3)), ValueError, "do not fit"),
        ((0, "1"), TypeError, "known numbers"),
        ((0, None), TypeError, "known numbers"),
        ((0, pt.scalar()), TypeError, "known numbers"),
        (5.0, TypeError, "pair of numbers"),
    ],
)
def test_refusals(bounds, error, message):
    with pytest.raises(error, match=message):
        parse_bounds(bounds)


def test_sensitivities():
    bounds = [(0, 3), (-2, 2)]
    assert l1_sensitivity(bounds) == 7.0
    assert l2_sensitivity(bounds) == 5.0
    assert l1_sensitivity((0, 3)) == l2_sensitivity((0, 3)) == 3.0


def test_hashable():
    assert hashable_bounds(*parse_bounds((0, 1))) == (0.0, 1.0)
    frozen = hashable_bounds(*parse_bounds((np.zeros((2, 2)), np.ones((2, 2)))))
    assert hash(frozen) and np.shape(frozen[0]) == (2, 2)
