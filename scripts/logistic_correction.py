"""The numbers of pymc_dp/private/logistic.py: what makes a normal number logistic when it is added.

A normal number of some variance plus an independent one is never exactly logistic: the quotient of the
characteristic functions grows without bound. This program looks for the law on a grid of points that comes
closest, in the largest relative error of the probability of a tail, by linear programming. It prints that
error, the largest one of the distribution function, and the law.

    python scripts/logistic_correction.py            # the numbers of the module
    python scripts/logistic_correction.py 1 1.5 2    # errors at several variances
"""

import sys

import numpy as np
from scipy.optimize import linprog
from scipy.special import expit, ndtr

# The largest point of the law, and the largest tail that is fitted: beyond it are 1e-7 of all probability.
SPAN, TOP = 24.0, 16.0


def tails(points: np.ndarray, sd: float, x: np.ndarray) -> np.ndarray:
    """Probability of exceeding x, for a normal number added to plus or minus each point."""
    return 0.5 * (ndtr((points - x[:, None]) / sd) + ndtr((-points - x[:, None]) / sd))


def solve(variance: float, n_points: int = 241, n_x: int = 321) -> tuple[np.ndarray, np.ndarray]:
    """Points >= 0 and what each and its mirror image weigh together."""
    points, x = np.linspace(0, SPAN, n_points), np.linspace(0, TOP, n_x)
    relative = tails(points, variance**0.5, x) / expit(-x)[:, None]
    one = np.ones((n_x, 1))
    found = linprog(
        np.r_[np.zeros(n_points), 1.0],
        np.block([[relative, -one], [-relative, -one]]),
        np.r_[np.ones(n_x), -np.ones(n_x)],
        np.r_[np.ones(n_points), 0.0][None],
        [1.0],
        method="highs",
    )
    kept = found.x[:-1] > 1e-13
    weights = found.x[:-1][kept]
    return points[kept], weights / weights.sum()


def errors(points: np.ndarray, weights: np.ndarray, variance: float) -> tuple[float, float]:
    """Largest error of the distribution function, and largest relative one of a tail up to 16."""
    x = np.linspace(0, 40, 40_001)
    found, exact = tails(points, variance**0.5, x) @ weights, expit(-x)
    return np.abs(found - exact).max(), np.abs(found / exact - 1)[x <= TOP].max()


def main(variances: list[float]) -> None:
    """Print errors, and the law."""
    for variance in variances or [1.4]:
        points, weights = solve(variance)
        absolute, relative = errors(points, weights, variance)
        print(
            f"# variance {variance:g}: error {absolute:.3g} of the distribution function, "
            f"{relative:.3g} of a tail"
        )
    if not variances:
        print(f"POINTS = ({', '.join(repr(float(round(p, 6))) for p in points)})")
        print(f"WEIGHTS = ({', '.join(repr(float(w)) for w in weights)})")


if __name__ == "__main__":
    main([float(v) for v in sys.argv[1:]])
