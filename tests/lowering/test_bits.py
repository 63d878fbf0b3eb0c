"""Draws made in a generator's own memory are NumPy's, bit by bit."""

import numpy as np
import pytest
from numba import njit

from pymc_dp.lowering.addresses.native import generator_at, generator_handle
from pymc_dp.lowering.functions import bits

N = 200_000  # some 700 draws of each kind from outside of the ziggurat's first strips
NAMES = ["random", "standard_normal", "standard_exponential", "standard_normal"]
GENERATORS = [np.random.PCG64, np.random.PCG64DXSM, np.random.SFC64, np.random.MT19937, np.random.Philox]


@njit
def mixed(handle, kinds, out):
    rng = generator_at(handle)
    for i in range(out.size):
        if kinds[i] == 0:
            out[i] = bits.random(rng)
        elif kinds[i] == 1:
            out[i] = bits.standard_normal(rng)
        elif kinds[i] == 2:
            out[i] = bits.standard_exponential(rng)
        else:  # by a call that moves the same state
            out[i] = rng.standard_normal()


@pytest.mark.parametrize("bit_generator", GENERATORS)
def test_numbers_and_state_are_those_of_numpy(bit_generator):
    kinds = np.random.default_rng(5).integers(4, size=N)
    ours, theirs = (np.random.Generator(bit_generator(11)) for _ in range(2))
    out = np.empty(N)
    mixed(generator_handle(ours), kinds, out)
    expected = [getattr(theirs, NAMES[k])() for k in kinds]
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_equal(ours.bit_generator.state, theirs.bit_generator.state)


def test_tails_beyond_the_ziggurat_are_drawn():
    # the outermost strips begin at 3.65 and 7.70: beyond, the rare branch alone
    out = np.empty(N)
    rng = np.random.default_rng(2)
    mixed(generator_handle(rng), np.ones(N, dtype=np.int64), out)
    assert np.abs(out).max() > 3.7
    mixed(generator_handle(rng), np.full(N, 2), out)
    assert out.max() > 7.8


def test_memory_is_read_only_where_its_layout_is_known():
    assert [bits.has_known_layout(b(1)) for b in GENERATORS] == [True, False, False, False, False]
    assert generator_handle(np.random.Generator(np.random.PCG64(1)))[-1] == bits.KNOWN_LAYOUT
    assert generator_handle(np.random.Generator(np.random.SFC64(1)))[-1] == 0


def test_another_layout_is_noticed(monkeypatch):
    """As with numbers of 128 bits in two halves, the higher one first."""
    rng = np.random.PCG64(1)
    state = rng.state["state"]
    swapped = {k: ((v << 64) | (v >> 64)) % 2**128 for k, v in state.items()}

    class Swapped(np.random.PCG64):
        state = {"state": swapped}  # noqa: RUF012

    monkeypatch.setattr(bits.np.random, "PCG64", Swapped)
    assert not bits.has_known_layout(Swapped(1))
