"""Draws of a slot's numbers from the statistics by which they are integrated out (:mod:`.neal3`)."""

import numpy as np

from pymc_dp.lowering.addresses.bind import Function, part_of_kernel
from pymc_dp.lowering.compiling.nopython import njit
from pymc_dp.lowering.functions.truncated import truncated_inverse_gamma
from pymc_dp.step_methods.mixture.cholesky import scattered, whitened
from pymc_dp.step_methods.mixture.conjugacy import AtomLaws
from pymc_dp.step_methods.mixture.state import Generator, Matrix, Vector

# Each takes the generator, the statistics, room for a Cholesky factor, room for the normal numbers and how
# many they are; it fills these, and returns the number that is not normal, if there is one.


@njit
def normal(rng, t, root, mean, q):
    """Normal numbers."""
    whitened(t, root, mean, q)
    scattered(rng, root, mean, q, 1.0)
    return 0.0


@njit
def normal_inverse_gamma(rng, t, root, mean, q):
    """Normal numbers with their scale."""
    half = whitened(t, root, mean, q)
    s = (t[t.size - 1] - half) / rng.standard_gamma(t[t.size - 2] - 0.5 * q - 1.0)
    scattered(rng, root, mean, q, np.sqrt(s))
    return s


@njit
def normal_inverse_gamma_above(rng, t, root, mean, q):
    """The same with a lower end of the scale."""
    half = whitened(t, root, mean, q)
    shape, scale = t[t.size - 3] - 0.5 * q - 1.0, t[t.size - 2] - half
    s = truncated_inverse_gamma(rng, shape, scale, t[t.size - 1])
    scattered(rng, root, mean, q, np.sqrt(s))
    return s


@njit
def gamma(rng, t, root, mean, q):
    """A gamma number."""
    return rng.standard_gamma(t[0] + 1.0) / t[1]


@njit
def inverse_gamma(rng, t, root, mean, q):
    """An inverse gamma number."""
    return t[1] / rng.standard_gamma(t[0] - 1.0)


@njit
def inverse_gamma_above(rng, t, root, mean, q):
    """The same with a lower end."""
    return truncated_inverse_gamma(rng, t[0] - 1.0, t[1], t[2])


@njit
def beta(rng, t, root, mean, q):
    """A beta number."""
    return rng.beta(t[0] + 1.0, t[1] + 1.0)


_SINGLE = {"gamma": gamma, "inverse gamma": inverse_gamma, "beta": beta}


def draw_atoms(rng: Generator, sums: Vector, root: Matrix, mean: Vector, atoms: Matrix, g: int) -> None:
    """Draw the numbers of a slot from its sums, to row g of some atoms; ``root``, ``mean``: room."""
    raise NotImplementedError


def draw_of(laws: AtomLaws) -> Function:
    """Return the draw that fits the laws of a slot's numbers."""
    if laws.normal and laws.scale is None:
        return normal
    if laws.normal:
        return normal_inverse_gamma_above if laws.above else normal_inverse_gamma
    return inverse_gamma_above if laws.above else _SINGLE[laws.single[0][1]]


def draw_atoms_of(laws: AtomLaws) -> Function:
    """Return the meaning of :func:`draw_atoms`."""
    draw, q, places, single = draw_of(laws), len(laws.normal), np.array(laws.normal, int), _single_of(laws)

    @part_of_kernel
    def draw_atoms(rng, sums, root, mean, atoms, g):
        drawn = draw(rng, sums, root, mean, q)
        if single >= 0:
            atoms[g, single] = drawn
        for j in range(q):
            atoms[g, places[j]] = mean[j]

    return draw_atoms


def _single_of(laws: AtomLaws) -> int:
    """Return which number is not normal, -1 if all are."""
    if laws.scale is not None:
        return laws.scale
    return laws.single[0][0] if laws.single else -1
