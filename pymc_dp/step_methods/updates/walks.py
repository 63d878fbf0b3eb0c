"""Random walks and slice updates of parameters, given records or given the noise behind them.

Covariances of proposals are learnt while tuning, one for each parametrisation, because the two conditionals
have different shapes.
"""

import numpy as np
from numba import types

from pymc_dp.lowering.addresses.bind import part_of_kernel
from pymc_dp.lowering.addresses.native import CONDITIONAL, GENERATOR, MATRIX, VECTOR, function_at
from pymc_dp.lowering.compiling.nopython import njit
from pymc_dp.lowering.functions.bits import random, standard_normal
from pymc_dp.step_methods.updates.state import UPDATE, Learnt, ParameterState

_CONDITIONAL = types.FunctionType(CONDITIONAL)
_INDEX = types.Array(types.intp, 1, "C")

# Acceptance that a random walk of a few dimensions aims at (Roberts & Rosenthal 2001).
TARGET = 0.3
# Decay of the adaptation's step size (Vihola 2012 asks for an exponent in (1/2, 1]).
DECAY = 0.6
_MAX_STEPPING_OUT = 32
# Share of updates that move a whole number alone, and values up to which it may go to any other one.
_ALONE, _FEW = 0.5, 64


@njit(types.void(MATRIX, VECTOR, types.float64), cache=True)
def adapt(factor, direction, change):
    """Rank-one update of a lower triangular factor S in place: S (I + change zz'/|z|^2) S'.

    Robust adaptive Metropolis (Vihola 2012, eq. 1), z being the standard normal direction just proposed.
    """
    k = factor.shape[0]
    norm = 0.0
    for i in range(k):
        norm += direction[i] * direction[i]
    v = np.zeros(k)
    for i in range(k):
        for j in range(i + 1):
            v[i] += factor[i, j] * direction[j]
    sign = 1.0 if change >= 0.0 else -1.0
    scale = np.sqrt(abs(change) / norm)
    for i in range(k):
        v[i] *= scale
    kept = factor.copy()
    for i in range(k):
        square = factor[i, i] * factor[i, i] + sign * v[i] * v[i]
        if not square > 1e-300:
            for m in range(k):
                for j in range(m + 1):
                    factor[m, j] = kept[m, j]
            return
        r = np.sqrt(square)
        c, s = r / factor[i, i], v[i] / factor[i, i]
        factor[i, i] = r
        for j in range(i + 1, k):
            factor[j, i] = (factor[j, i] + sign * s * v[j]) / c
            v[j] = c * v[j] - s * factor[j, i]


@part_of_kernel
def draw_direction(rng, factor, z, line):
    """Draw standard normal numbers, and a direction with the covariance of which ``factor`` is the root."""
    for i in range(z.size):
        z[i] = standard_normal(rng)
    for i in range(z.size):
        line[i] = 0.0
        for j in range(i + 1):
            line[i] += factor[i, j] * z[j]


@part_of_kernel
def draw_in_part(rng, factor, part, which, z, line):
    """Draw a direction of the numbers of one part, where ``factor`` has a block for each part.

    Returns how many numbers the part has.
    """
    count = 0
    for i in range(z.size):
        z[i] = 0.0
        if part[i] == which:
            z[i] = standard_normal(rng)
            count += 1
    for i in range(z.size):
        line[i] = 0.0
        for j in range(i + 1):
            line[i] += factor[i, j] * z[j]
    return count


@part_of_kernel
def round_steps(factor, z, used, line, n_whole):
    """Round the steps of the whole numbers, which come first, and let the others follow what is rounded.

    Given a whole number's step, later ones have the law that the covariance says: it is as likely there as
    back. Where a sum of both is known well, a step of one number alone would be refused. ``used`` gets the
    standard normal numbers that belong to the steps; ``z`` stays, from which the covariance is learnt.
    """
    for i in range(z.size):
        used[i] = z[i]
        step = 0.0
        for j in range(i + 1):
            step += factor[i, j] * used[j]
        line[i] = step
        if i < n_whole:
            line[i] = np.rint(step)
            used[i] += (line[i] - step) / factor[i, i]


@part_of_kernel
def step_alone(rng, at, moving, ends, line):
    """Move one whole number alone: to any other value of few, or else to a neighbour."""
    for i in range(line.size):
        line[i] = 0.0
    i = min(int(random(rng) * ends.shape[0]), ends.shape[0] - 1)
    span = ends[i, 1] - ends[i, 0]
    if span < _FEW:
        other = ends[i, 0] + min(np.floor(random(rng) * span), span - 1.0)
        line[i] = other - at[moving[i]] + (1.0 if other >= at[moving[i]] else 0.0)
    else:
        line[i] = 1.0 if random(rng) < 0.5 else -1.0


@njit(UPDATE, cache=True)
def random_walk(n_updates, rng, address, state):
    """Metropolis updates of ``theta[moving]`` given records or noise, in place; returns the acceptances.

    Where there are whole numbers, half of the updates move one of them alone. No density is asked for beyond
    their ends: they may be indices. Where there are parts, updates of one whole number, of all numbers, and
    of each part are as frequent.
    """
    theta, data, given, totals, moving = state.theta, state.data, state.given, state.totals, state.moving
    ends, tally, part = state.ends, state.tally, state.learnt.part
    target = function_at(address, _CONDITIONAL)
    k, n_whole, n_parts = moving.shape[0], ends.shape[0], 0
    for i in range(part.size):
        n_parts = max(n_parts, part[i] + 1)
    proposal, line, z, used = theta.copy(), np.empty(k), np.empty(k), np.empty(k)
    current = target(theta, data, given, totals)
    accepted = 0
    for update in range(n_updates):
        alone = n_whole > 0 and random(rng) < (_ALONE if n_parts == 0 else 1.0 / (n_parts + 2))
        which, moved, factor = -1, k, state.learnt.factor
        if n_parts > 0 and not alone:
            which = min(int(random(rng) * (n_parts + 1)), n_parts) - 1
        if alone:
            step_alone(rng, theta, moving, ends, line)
        elif which >= 0:
            factor = state.learnt.apart
            moved = draw_in_part(rng, factor, part, which, z, line)
        else:
            draw_direction(rng, factor, z, line)
        if n_whole > 0 and not alone:
            round_steps(factor, z, used, line, n_whole)
        inside = True
        for i in range(k):
            proposal[moving[i]] = theta[moving[i]] + line[i]
            if i < n_whole and not ends[i, 0] <= proposal[moving[i]] <= ends[i, 1]:
                inside = False
        proposed = target(proposal, data, given, totals) if inside else -np.inf
        ratio = proposed - current
        # from where the density is no finite number, and to there, a move could not be taken back
        if not (abs(current) < np.inf and abs(proposed) < np.inf):
            probability = 0.0
        elif ratio >= 0.0:
            probability = 1.0
        else:
            probability = np.exp(ratio)
        tally[0] += probability
        tally[1] += 1.0
        if random(rng) < probability:
            current = proposed
            accepted += 1
            for i in range(k):
                theta[moving[i]] = proposal[moving[i]]
        if state.adapting and not alone:
            seen = (state.n_adapted + update) / (n_parts + 1) + 1.0  # by each of the covariances
            adapt(factor, z, min(0.9, moved * seen**-DECAY) * (probability - TARGET))
    return accepted


@njit(UPDATE, cache=True)
def slice_update(n_updates, rng, address, state):
    """Slice updates (Neal 2003) along random directions of the learnt covariance; no rejections."""
    theta, data, given, totals, moving = state.theta, state.data, state.given, state.totals, state.moving
    factor, tally = state.learnt.factor, state.tally
    target = function_at(address, _CONDITIONAL)
    k = moving.shape[0]
    start, line, z = theta.copy(), np.empty(k), np.empty(k)
    current = target(theta, data, given, totals)
    if not abs(current) < np.inf:
        return 0
    for update in range(n_updates):
        draw_direction(rng, factor, z, line)
        for i in range(k):
            start[moving[i]] = theta[moving[i]]
        level = current + np.log(random(rng))
        lo = -random(rng)
        hi = lo + 1.0
        steps_lo = int(random(rng) * _MAX_STEPPING_OUT)
        steps_hi = _MAX_STEPPING_OUT - 1 - steps_lo
        widened = 0
        for _ in range(steps_lo):
            for i in range(k):
                theta[moving[i]] = start[moving[i]] + lo * line[i]
            if not target(theta, data, given, totals) > level:
                break
            lo -= 1.0
            widened += 1
        for _ in range(steps_hi):
            for i in range(k):
                theta[moving[i]] = start[moving[i]] + hi * line[i]
            if not target(theta, data, given, totals) > level:
                break
            hi += 1.0
            widened += 1
        shrunk = 0
        while True:
            at = lo + (hi - lo) * random(rng)
            for i in range(k):
                theta[moving[i]] = start[moving[i]] + at * line[i]
            current = target(theta, data, given, totals)
            if current > level or shrunk > 100:
                break
            shrunk += 1
            if at < 0.0:
                lo = at
            else:
                hi = at
        if shrunk > 100:  # the slice is narrower than the numbers can tell: stay
            for i in range(k):
                theta[moving[i]] = start[moving[i]]
            current = target(theta, data, given, totals)
        tally[0] += 1.0
        tally[1] += 1.0
        if state.adapting:
            rate = min(0.5, k * (state.n_adapted + update + 1.0) ** -DECAY)
            adapt(factor, z, rate * (min(widened, 4) - min(shrunk, 4)) * 0.25)
    return n_updates


@njit(
    types.int64(
        GENERATOR, types.intp, types.int64, types.int64, VECTOR, VECTOR, MATRIX, VECTOR, _INDEX, MATRIX,
        types.int64, VECTOR,
    ),
    cache=True,
)  # fmt: skip
def run_random_walk(
    rng, address, n_updates, n_adapted, theta, data, given, totals, moving, factor, adapting, tally
):
    """Call :func:`random_walk` of real numbers from Python."""
    nothing = np.empty((0, 0))
    learnt = Learnt(factor, nothing, nothing, np.empty(0), nothing, np.empty(0, np.intp), nothing)
    state = ParameterState(
        theta, data, given, totals, moving, np.empty((0, 2)), learnt, n_adapted, adapting, tally
    )
    return random_walk(n_updates, rng, address, state)
