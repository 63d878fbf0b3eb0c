"""What the generated source of every record sweep has in common: signature, decision, counts."""

HEADER = [
    "def rows_sweep(rng, theta, data, c, cov, value, params, offset, x, totals, tally, n_sweeps, "
    "prior_only):",
    "    n = x.shape[0]",
    "    lowest, n_accepted = 0.0, 0.0",
]
# As kernels.accept: -E is the logarithm of a uniform number, and a ratio that is not a number is refused.
DECISION = [
    "if not total >= lowest:",
    "    lowest = total if total < lowest else -np.inf",
    "if total >= 0.0 or total > -standard_exponential(rng):",
    "    n_accepted += 1.0",
]
COUNTS = [
    "    if prior_only == 0:",
    "        tally[0] += n_accepted",
    "        tally[1] = min(tally[1], np.exp(lowest))",
]


def indented(lines: list[str], by: int) -> list[str]:
    """Return lines of source further to the right."""
    return [" " * by + line for line in lines]
