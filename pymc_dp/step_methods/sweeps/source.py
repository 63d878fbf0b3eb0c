"""What the generated source of every record sweep has in common: signature, decision, counts."""

from collections.abc import Sequence

HEADER = [
    "def rows_sweep(rng, theta, data, c, cov, value, params, offset, x, totals, tally, n_sweeps, "
    "prior_only):",
    "    n = x.shape[0]",
    "    lowest, n_accepted = 0.0, 0.0",
]
# As kernels.accept: minus an exponential number, `wait`, is the logarithm of a uniform one, and a ratio that
# is not a number is refused. It is drawn in any case: which of the ratios are above 1 cannot be foreseen, and
# a processor that has guessed wrong loses more time than the number takes.
DECISION = [
    "if not total >= lowest:",
    "    lowest = total if total < lowest else -np.inf",
    "if total >= -wait:",
    "    n_accepted += 1.0",
]
WAIT = "wait = standard_exponential(rng)"
COUNTS = [
    "    if prior_only == 0:",
    "        tally[0] += n_accepted",
    "        tally[1] = min(tally[1], np.exp(lowest))",
]


def indented(lines: Sequence[str], by: int) -> list[str]:
    """Return lines of source further to the right."""
    return [" " * by + line for line in lines]
