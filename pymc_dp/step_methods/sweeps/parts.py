"""Parts that kernels of record sweeps have in common: decisions and their counts, sums over the records."""

import numpy as np

from pymc_dp.lowering.addresses.bind import part_of_kernel
from pymc_dp.step_methods.block.state import RecordState, Vector


@part_of_kernel
def least(lowest: float, log_ratio: float) -> float:
    """Return the lowest log ratio so far, 0 at most; one that is not a number is refused, as if -inf."""
    if not log_ratio >= lowest:
        lowest = log_ratio if log_ratio < lowest else -np.inf
    return lowest


@part_of_kernel
def count(state: RecordState, n_accepted: float, lowest: float) -> None:
    """Add to what :func:`pymc_dp.step_methods.sweeps.kernels.accept` counts, unless releases are ignored."""
    if not state.prior_only:
        state.tally[0] += n_accepted
        state.tally[1] = min(state.tally[1], np.exp(lowest))


@part_of_kernel
def contributions(old: Vector, state: RecordState) -> None:
    """Fill the sums over the records, of which the sums behind the releases are another constant away."""
    for j in range(state.totals.size):
        state.totals[j] = old[j] - state.offset[j]
