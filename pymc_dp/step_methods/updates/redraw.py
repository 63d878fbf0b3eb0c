"""Parameters and all records proposed at once, for records that can be drawn and are no function of noise.

Given the imputed records parameters barely move when privacy is strong. Here parameters are proposed, then
every record is drawn anew from its law under the proposal. The law of the records drops out of the ratio, so
that no density of it is needed:

    p(theta') q(s | x') g(theta | theta') / (p(theta) q(s | x) g(theta' | theta)),

times whatever else involves parameters or records. It is accepted where privacy noise is at least as large as
the sampling noise of what is released, whatever the step. Most proposals are therefore independent of where
the chain stands, from a heavy-tailed law with the mean and the covariance of draws of tuning; the others are
steps of a random walk, which go on where that law is far from the posterior.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import types

from pymc_dp.lowering.addresses.bind import part_of_kernel
from pymc_dp.lowering.addresses.native import CONDITIONAL, GENERATOR, MATRIX, VECTOR, function_at
from pymc_dp.lowering.compiling.nopython import njit
from pymc_dp.lowering.functions.bits import random, standard_exponential, standard_normal
from pymc_dp.step_methods.sweeps.kernels import copy, sweep

_CONDITIONAL = types.FunctionType(CONDITIONAL)
_INDEX = types.Array(types.intp, 1, "C")
_INTEGERS = types.Array(types.int64, 1, "C")

# Degrees of freedom of independent proposals, even, so that a draw takes exponential numbers only; and how
# much wider than the draws of tuning they are.
_DEGREES, _WIDER = 6, 1.2
# After tuning one proposal of so many is a step of the random walk; until then every second one, since mean
# and covariance are known badly.
_TO_ONE_STEP = 4
# Length of the longest step of the random walk, times the root of the number of parameters and in units of
# that covariance, and how much shorter the shortest is, while tuning and afterwards. No length is learnt:
# where sampling noise is large, steps of any length are accepted less often than a walk would aim at, and it
# would shrink to nothing.
_STEP, _SHORTEST, _SHORT = 2.4, 1 / 16, 1 / 4


class Proposals(NamedTuple):
    """What parameters are proposed with; adapted in place while tuning.

    Attributes
    ----------
    mean, factor
        Centre of independent proposals, and a root of their covariance.
    """

    mean: Any
    factor: Any


PROPOSALS = types.NamedTuple([VECTOR, MATRIX], Proposals)


def begun(start: np.ndarray) -> Proposals:
    """Return what updates begin with, from the parameters of a start."""
    k = start.size
    return Proposals(start.copy(), np.eye(k))


def again(proposals: Proposals, draws: np.ndarray) -> Proposals:
    """Return proposals that have the mean and the covariance of draws, shape (n, k)."""
    n, k = draws.shape
    if n < 2:
        return proposals
    covariance = np.atleast_2d(np.cov(draws, rowvar=False))
    spread = np.diag(np.maximum(np.diag(covariance), 1e-12))
    # what is added must not be much across a narrow ridge: the square of a share that falls with the draws
    different = len(np.unique(draws, axis=0))
    share = ((k + 5.0) / (different + k + 5.0)) ** 2
    factor = np.linalg.cholesky(_WIDER * ((1 - share) * covariance + share * spread))
    return Proposals(draws.mean(axis=0), np.ascontiguousarray(factor))


@part_of_kernel
def distance(mean, factor, theta, moving, work):
    """Square of the distance of parameters from the centre, in units of the covariance."""
    total = 0.0
    for i in range(moving.size):
        work[i] = theta[moving[i]] - mean[i]
        for j in range(i):
            work[i] -= factor[i, j] * work[j]
        work[i] /= factor[i, i]
        total += work[i] * work[i]
    return total


@part_of_kernel
def log_proposal(square, k):
    """Log density of independent proposals, Student's t, but for a constant."""
    return -0.5 * (_DEGREES + k) * np.log1p(square / _DEGREES)


@njit(
    types.void(
        types.int64, GENERATOR, types.intp, types.intp, _INTEGERS, _INDEX, VECTOR, VECTOR, _INDEX, MATRIX,
        VECTOR, PROPOSALS, types.int64, VECTOR,
    ),
    cache=True,
)  # fmt: skip
def redraw(
    n_updates, rng, address, possible_address, draw_sizes, draw_addresses, theta, data, moving, x, totals,
    proposals, adapting, tally,
):  # fmt: skip
    """Propose parameters with all records, in place; each costs a draw of the records, O(n).

    ``address``: of the log density of parameters and records without the law of the latter.
    ``possible_address``: of that of parameters alone, minus infinity where the records have no law.
    ``draw_sizes``, ``draw_addresses``: of a move whose candidates have the law of the records.
    ``tally``: sum of the probabilities of acceptance, and number of proposals.
    """
    target, possible = function_at(address, _CONDITIONAL), function_at(possible_address, _CONDITIONAL)
    k = moving.size
    z, work, proposal = np.empty(k), np.empty(k), theta.copy()
    x_new, totals_new, unused = x.copy(), totals.copy(), np.array([0.0, 1.0])
    mean, factor = proposals
    current = target(theta, data, x, totals)
    for update in range(n_updates):
        independent = update % (2 if adapting else _TO_ONE_STEP) != 1
        size = 1.0
        if independent:
            square = 0.0
            for _ in range(_DEGREES // 2):
                square += 2.0 * standard_exponential(rng)
            size = np.sqrt(_DEGREES / square)
        else:
            size = _STEP / np.sqrt(k) * (_SHORTEST if adapting else _SHORT) ** random(rng)
        for i in range(k):
            z[i] = size * standard_normal(rng)
        for i in range(k):
            at = mean[i] if independent else theta[moving[i]]
            for j in range(i + 1):
                at += factor[i, j] * z[j]
            proposal[moving[i]] = at
        proposed = possible(proposal, data, x, totals)
        if proposed > -np.inf:
            sweep(rng, 1, 1, draw_sizes, draw_addresses, proposal, data, x_new, totals_new, unused)
            proposed = target(proposal, data, x_new, totals_new)
        ratio = proposed - current
        if independent:
            ratio += log_proposal(distance(mean, factor, theta, moving, work), k)
            ratio -= log_proposal(distance(mean, factor, proposal, moving, work), k)
        # from where the density is no finite number, and to there, a move could not be taken back
        probability = 0.0
        if abs(current) < np.inf and abs(proposed) < np.inf and ratio == ratio:
            probability = 1.0 if ratio >= 0.0 else np.exp(ratio)
        tally[0] += probability
        tally[1] += 1.0
        if random(rng) < probability:
            current = proposed
            copy(x_new, x)
            for j in range(totals.size):
                totals[j] = totals_new[j]
            for i in range(k):
                theta[moving[i]] = proposal[moving[i]]
