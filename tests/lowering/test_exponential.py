"""Exponentials of several numbers at once, against many digits."""

import mpmath as mp
import numpy as np
import pytest

from pymc_dp.lowering.functions.exponential import SPARE, exp_in_place


def exponentials(x):
    values = np.append(np.asarray(x, dtype=float), np.full(SPARE, np.nan))
    exp_in_place(values, len(x))
    return values[: len(x)]


def test_digits(rng):
    # halves of log(2) are where one power of 2 gives way to the next
    seams = np.log(2) / 2 * np.arange(-2040, 2040)
    x = np.concatenate([rng.uniform(-708, 709, 3000), rng.uniform(-2, 2, 3000), seams, 1e-9 * seams])
    with mp.workdps(40):
        exact = [mp.exp(mp.mpf(v)) for v in x]
        worst = max(abs((mp.mpf(v) - e) / e) for v, e in zip(exponentials(x), exact, strict=True))
    assert worst < 5e-16


@pytest.mark.parametrize("m", range(10))
def test_any_number_of_them(m, rng):
    x = rng.normal(size=m)
    np.testing.assert_allclose(exponentials(x), np.exp(x), rtol=1e-15)


def test_ends():
    top = np.exp(709.0)
    found = exponentials([-np.inf, -1e300, -708.5, 0.0, -0.0, 709.5, np.inf, np.nan])
    np.testing.assert_allclose(found, [0, 0, 0, 1, 1, top, top, np.nan], rtol=1e-15)
    assert found[3] == found[4] == 1.0
