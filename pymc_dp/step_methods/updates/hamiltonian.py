"""Hamiltonian Monte Carlo of many parameters, given records or given the noise behind them.

A random walk mixes in about as many updates as it has dimensions, a trajectory along the slopes of the log
density in a few for hundreds. Each parametrisation has momenta of its own covariance: the mean product of the
slopes of *its* log density, which is the mean information of the conditional that the update draws from. The
covariance of the draws would be that of the posterior, the wrong shape for both.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
from numba import types
from pytensor.gradient import NullTypeGradError

from pymc_dp.lowering.addresses.bind import part_of_kernel
from pymc_dp.lowering.addresses.native import SLOPES, function_at
from pymc_dp.lowering.compiling.nopython import njit
from pymc_dp.lowering.functions.bits import random, standard_normal
from pymc_dp.step_methods.updates import positive
from pymc_dp.step_methods.updates.positive import AS_IT_IS, go, in_chart, learn_charts, look_next_to_zero
from pymc_dp.step_methods.updates.state import UPDATE, Learnt

_SLOPES = types.FunctionType(SLOPES)

# What is learnt of the size of a leapfrog step: the logarithms that are tried and that are kept, where they
# are drawn to, the mean gap to the acceptance aimed at, and updates so far.
TRIED, KEPT, CENTRE, GAP, N_UPDATES = range(5)
# Acceptance aimed at, and constants of dual averaging (Hoffman & Gelman 2014, section 3.2).
_ACCEPTANCE = 0.8
_SHRINKAGE, _DELAY, _FORGETTING = 0.05, 10.0, 0.75
# Steps of a trajectory at most. Their number is uniform in its logarithm: most trajectories are as short as
# most numbers want them, and some as long as a wide law does, such as that of the logarithm of a small scale.
_MOST_STEPS = 64
# Shares of trajectories whose steps are shorter, of few numbers and of more than so many, and by how much at
# most: the factor is uniform in its logarithm. Where the law is much narrower than elsewhere, such as at the
# far end of a curve, steps of the size that suits most of it are refused: without shorter ones a chain would
# not go there, or not leave. In hierarchies of many numbers a share as large costs a quarter of the effective
# draws.
_SHORT, _SHORT_OF_MANY, _MANY = 0.25, 0.125, 40
_SHORTEST = 1 / 16
# Where step sizes begin, and the largest.
_FIRST_SIZE, _LARGEST_SIZE = 0.1, 2.0


def add_slopes(density: Any, theta: Any, moving: Sequence[str]) -> Any:
    """Return a vector graph of a log density and its slopes in a vector.

    Raises
    ------
    ValueError
        If an operation in it has none.
    """
    try:
        slopes = pt.grad(density, theta, disconnected_inputs="ignore")
    except (NotImplementedError, NullTypeGradError) as error:
        raise ValueError(
            f"`update` is 'hamiltonian', which follows the slopes of a log density, and that of "
            f"{', '.join(moving)} given the records' noise has none: use update='random_walk'. PyTensor "
            f"said: {error}"
        ) from error
    return pt.concatenate([density[None], slopes])


def begun(is_log: np.ndarray) -> Learnt:
    """Return what updates begin with, given which numbers are logarithms of positive ones."""
    k, steps = is_log.size, _first_steps(np.log(_FIRST_SIZE))
    charts, no_parts = positive.begun(is_log), (np.zeros(0, np.intp), np.zeros((0, 0)))
    return Learnt(np.eye(k), np.eye(k), np.zeros((k, k)), steps, charts, *no_parts)


def _first_steps(size: float) -> np.ndarray:
    # adaptation tries larger sizes first, which are cheaper (as Hoffman & Gelman do)
    return np.array([size, size, size + np.log(10.0), 0.0, 0.0])


def again(learnt: Learnt) -> Learnt:
    """Return what the next updates begin with: momenta by the slopes that were seen, step sizes anew.

    The mean product of few slopes is of no full rank, so that it is drawn to its diagonal.
    """
    k, n = len(learnt.factor), learnt.steps[N_UPDATES]
    mean = learnt.products / max(n, 1.0)
    diagonal = np.diag(mean).copy()
    charts, squares = positive.again(learnt.charts, n)
    if not (n > 0 and np.all(np.isfinite(mean)) and np.all(diagonal > 0)):
        return learnt
    # momenta of a number that is to move in the other way have the size of the slopes in that one
    ratio = np.where(squares > 0, np.sqrt(squares / diagonal), 1.0)
    share = n / (n + k + 5.0)
    root = np.sqrt(diagonal)
    correlation = share * mean / np.outer(root, root) + (1 - share) * np.eye(k)
    root = root * ratio
    factor = root[:, None] * np.linalg.cholesky(correlation)
    inverse = np.linalg.inv(correlation) / np.outer(root, root)
    steps = _first_steps(np.log(_FIRST_SIZE))
    return learnt._replace(
        factor=np.ascontiguousarray(factor),
        inverse=np.ascontiguousarray(inverse),
        products=np.zeros((k, k)),
        steps=steps,
        charts=charts,
    )


@part_of_kernel
def is_finite(density, moving):
    """Whether a log density is a number; its slopes are made 0 where they are none.

    Any slopes that are a function of the place leave a trajectory reversible. What had a density and were
    refused for its slopes would never be visited.
    """
    for i in range(moving.size):
        if not abs(density[1 + moving[i]]) < np.inf:
            density[1 + moving[i]] = 0.0
    return abs(density[0]) < np.inf


@part_of_kernel
def copy(source, target):
    """Copy a vector; a slice would compile an error message for seconds."""
    for i in range(source.size):
        target[i] = source[i]


@part_of_kernel
def multiply(matrix, vector, out):
    """Multiply a symmetric matrix by a vector, row by row of the former, which are contiguous."""
    for i in range(out.size):
        out[i] = 0.0
    for j in range(vector.size):
        for i in range(out.size):
            out[i] += matrix[j, i] * vector[j]


@part_of_kernel
def learn_size(steps, probability):
    """Adapt the size of a step by dual averaging."""
    steps[N_UPDATES] += 1.0
    m = steps[N_UPDATES]
    steps[GAP] += (_ACCEPTANCE - probability - steps[GAP]) / (m + _DELAY)
    size = steps[CENTRE] - np.sqrt(m) / _SHRINKAGE * steps[GAP]
    steps[TRIED] = min(size, np.log(_LARGEST_SIZE))
    steps[KEPT] += m**-_FORGETTING * (steps[TRIED] - steps[KEPT])


@njit(UPDATE, cache=True)
def hamiltonian(n_updates, rng, address, state):
    """Trajectories of random length from ``theta[moving]``, in place; returns the acceptances.

    A leapfrog step costs an evaluation of the log density with its slopes, and k^2 operations for k numbers.
    """
    theta, data, given, totals, moving = state.theta, state.data, state.given, state.totals, state.moving
    factor, inverse, products, steps, charts, _, _ = state.learnt
    tally, adapting = state.tally, state.adapting
    slopes = function_at(address, _SLOPES)
    k = moving.shape[0]
    here, there = np.empty(1 + theta.shape[0]), np.empty(1 + theta.shape[0])
    place, z, momentum, velocity = theta.copy(), np.empty(k), np.empty(k), np.empty(k)
    at = np.empty(k)
    slopes(theta, data, given, totals, here)
    in_chart(here, theta, moving, charts)
    accepted = 0
    if not is_finite(here, moving):  # a move from there could not be taken back
        return 0
    if adapting and steps[N_UPDATES] == 0.0:
        look_next_to_zero(charts, slopes, place, data, given, totals, moving, there)
    for _ in range(n_updates):
        size = np.exp(steps[TRIED] if adapting else steps[KEPT])
        is_short = random(rng) < (_SHORT if k <= _MANY else _SHORT_OF_MANY)
        if is_short:
            size *= np.exp(random(rng) * np.log(_SHORTEST))
        n_steps = int(np.exp(random(rng) * np.log(1.0 + _MOST_STEPS)))
        for i in range(k):
            z[i] = standard_normal(rng)
        energy = here[0]
        for i in range(k):
            momentum[i] = 0.0
            for j in range(i + 1):
                momentum[i] += factor[i, j] * z[j]
            energy -= 0.5 * z[i] * z[i]
            at[i] = np.exp(theta[moving[i]]) if charts[AS_IT_IS, i] > 0.0 else theta[moving[i]]
        copy(here, there)
        possible = True
        for _ in range(n_steps):
            for i in range(k):
                momentum[i] += 0.5 * size * there[1 + moving[i]]
            multiply(inverse, momentum, velocity)
            possible = go(at, velocity, momentum, inverse, charts, size)
            if not possible:
                break
            for i in range(k):
                place[moving[i]] = np.log(at[i]) if charts[AS_IT_IS, i] > 0.0 else at[i]
            slopes(place, data, given, totals, there)
            in_chart(there, place, moving, charts)
            possible = is_finite(there, moving)
            if not possible:
                break
            for i in range(k):
                momentum[i] += 0.5 * size * there[1 + moving[i]]
        probability = 0.0
        if possible:
            multiply(inverse, momentum, velocity)
            ratio = there[0] - energy
            for i in range(k):
                ratio -= 0.5 * momentum[i] * velocity[i]
            # an energy that is no number is refused: what is learnt of it would be none either
            if ratio >= 0.0:
                probability = 1.0
            elif ratio < 0.0:
                probability = np.exp(ratio)
        tally[0] += probability
        tally[1] += 1.0
        if random(rng) < probability:
            accepted += 1
            copy(there, here)
            for i in range(k):
                theta[moving[i]] = place[moving[i]]
        else:
            for i in range(k):
                place[moving[i]] = theta[moving[i]]
        if adapting and not is_short:
            learn_size(steps, probability)
            learn_charts(charts, here, theta, moving)
            for i in range(k):
                for j in range(k):
                    products[i, j] += here[1 + moving[i]] * here[1 + moving[j]]
    return accepted
