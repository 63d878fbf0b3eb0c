"""One sweep over all records: nanoseconds per record, beside hand-written programs.

`RecordImputation.step`, as PyMC's loop calls it, from point to point, with the parameters held
fixed; beside the same sweep written by hand for this one model, in NumPy and in numba.
"""

import numba
import numpy as np
import pymc as pm
import pytensor.tensor as pt

import pymc_dp as dp
from benchmarks import measure
from examples import paper003
from examples.paper003 import BETA, BOUND, PREDICTOR_MEAN, VARIANCE

SD = VARIANCE**0.5
SCALE = 15.0
# epsilon 2 for values clamped to [-4, 4]
LOCAL_BOUND, LOCAL_SCALE = 4.0, 4.0


# --- central release: ten sums over records of three variables ------------------------------------


def ten_statistics(x, y, clip, stack):
    """The regression's nine products, and one more."""
    a, b = (clip(x[:, j], -BOUND, BOUND) / BOUND for j in range(2))
    z = clip(y, -BOUND, BOUND) / BOUND
    return stack([z, a * z, b * z, z * z, a, b, a * b, a * a, b * b, a * b * z], axis=1)


def central_model(n: int, released: np.ndarray) -> pm.Model:
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 2, shape=3)
        x = pm.Normal("x", PREDICTOR_MEAN, 1, shape=(n, 2))
        y = pm.Normal("y", beta[0] + x @ beta[1:], SD, shape=n)
        query = dp.record_sum(ten_statistics(x, y, dp.clamp, pt.stack))
        dp.LaplaceMechanism("release", query, scale=SCALE, observed=released)
    return model


def central_numpy(rng, beta, released, x, y):
    """Proposals drawn by NumPy at once, accepted in a Python loop."""
    n = len(y)
    x_new = rng.normal(PREDICTOR_MEAN, 1, size=(n, 2))
    y_new = rng.normal(beta[0] + x_new @ beta[1:], SD)
    t = ten_statistics(x, y, np.clip, np.stack)
    t_new = ten_statistics(x_new, y_new, np.clip, np.stack)
    total = t.sum(axis=0)
    for i in range(n):
        proposed = total + t_new[i] - t[i]
        ratio = (np.abs(released - total).sum() - np.abs(released - proposed).sum()) / SCALE
        if np.log(rng.random()) < ratio:
            total, x[i], y[i] = proposed, x_new[i], y_new[i]


@numba.njit
def ten_of(a, b, z, t):
    a = min(max(a, -BOUND), BOUND) / BOUND
    b = min(max(b, -BOUND), BOUND) / BOUND
    z = min(max(z, -BOUND), BOUND) / BOUND
    t[0], t[1], t[2], t[3], t[4] = z, a * z, b * z, z * z, a
    t[5], t[6], t[7], t[8], t[9] = b, a * b, a * a, b * b, a * b * z


@numba.njit
def central_numba(rng, beta, released, x, y):
    """Everything in one loop, written for this model."""
    n = len(y)
    total, t, t_new = np.zeros(10), np.empty(10), np.empty(10)
    for i in range(n):
        ten_of(x[i, 0], x[i, 1], y[i], t)
        total += t
    for i in range(n):
        a = PREDICTOR_MEAN[0] + rng.standard_normal()
        b = PREDICTOR_MEAN[1] + rng.standard_normal()
        z = beta[0] + beta[1] * a + beta[2] * b + SD * rng.standard_normal()
        ten_of(x[i, 0], x[i, 1], y[i], t)
        ten_of(a, b, z, t_new)
        change = 0.0
        for j in range(10):
            proposed = total[j] + t_new[j] - t[j]
            change += abs(released[j] - total[j]) - abs(released[j] - proposed)
        if change >= 0.0 or rng.random() < np.exp(change / SCALE):
            for j in range(10):
                total[j] += t_new[j] - t[j]
            x[i, 0], x[i, 1], y[i] = a, b, z


def central(sizes) -> None:
    table = measure.table(
        "Central release, ten sums over records of three variables: one sweep",
        "n", "pymc_dp, ns per record", "us per sweep", "target", "met",
        "by hand in numba", "pymc_dp / numba", "by hand in NumPy", "NumPy / pymc_dp",
    )  # fmt: skip
    for n in sizes:
        rng = np.random.default_rng(n)
        x, y = paper003.regression_rows(n, rng)
        released = ten_statistics(x, y, np.clip, np.stack).sum(axis=0)
        released += rng.laplace(scale=SCALE, size=10)
        model = central_model(n, released)
        point = {**model.initial_point(), "beta": BETA, "x": x.copy(), "y": y.copy()}
        ours = sweep_seconds(model, point, n)
        by_numba = repeated(n, central_numba, rng, BETA, released, x, y)
        by_numpy = measure.smallest_time(central_numpy, rng, BETA, released, x[:1000], y[:1000], repeats=1)
        per_numpy = by_numpy / min(n, 1000)
        # one target for large data sets, per record, and one for small ones, per sweep
        if n >= 10_000:
            target, met = "60 ns", measure.verdict(ours / n * 1e9, 60, at_most=True)
        elif n == 100:
            target, met = "60 us", measure.verdict(ours * 1e6, 60, at_most=True)
        else:
            target, met = "", ""
        table.add_row(
            str(n), f"{ours / n * 1e9:.1f}", f"{ours * 1e6:.0f}", target, met,
            f"{by_numba / n * 1e9:.1f}", f"{ours / by_numba:.2f}",
            f"{per_numpy * 1e9:.0f}", f"{per_numpy / (ours / n):.0f}",
        )  # fmt: skip
    measure.show(table, "sweeps_central")


# --- local release: every record with noise of its own --------------------------------------------


def local_model(z: np.ndarray) -> pm.Model:
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 2)
        y = pm.Normal("y", mu, 1, shape=z.size)
        dp.LaplaceMechanism("z", y, epsilon=2.0, bounds=(-LOCAL_BOUND, LOCAL_BOUND), observed=z)
    return model


def local_numpy(rng, mu, z, y):
    """Proposals from the model, vectorised."""
    y_new = rng.normal(mu, 1, size=y.size)
    change = np.abs(z - np.clip(y, -LOCAL_BOUND, LOCAL_BOUND))
    change -= np.abs(z - np.clip(y_new, -LOCAL_BOUND, LOCAL_BOUND))
    np.copyto(y, y_new, where=np.log(rng.random(y.size)) < change / LOCAL_SCALE)


@numba.njit
def local_numba(rng, mu, z, y):
    """Proposals from the model, in one loop written for this model."""
    for i in range(y.size):
        y_new = mu + rng.standard_normal()
        change = abs(z[i] - min(max(y[i], -LOCAL_BOUND), LOCAL_BOUND))
        change -= abs(z[i] - min(max(y_new, -LOCAL_BOUND), LOCAL_BOUND))
        if change >= 0.0 or rng.random() < np.exp(change / LOCAL_SCALE):
            y[i] = y_new


def local(sizes) -> None:
    table = measure.table(
        "Local release at epsilon 2, Normal records, Laplace noise: one sweep, ns per record",
        "n", "pymc_dp", "target", "met", "by hand in numba", "pymc_dp / numba",
        "by hand in NumPy", "NumPy / pymc_dp", "pymc_dp, exact draws",
    )  # fmt: skip
    costs = []
    for n in sizes:
        rng = np.random.default_rng(n)
        y = rng.normal(0.7, 1, size=n)
        z = np.clip(y, -LOCAL_BOUND, LOCAL_BOUND) + rng.laplace(scale=LOCAL_SCALE, size=n)
        model = local_model(z)
        point = {**model.initial_point(), "mu": np.array(0.7), "y": y.copy()}
        ours = sweep_seconds(model, point, n) / n * 1e9
        exact = sweep_seconds(model, point, n, proposals="informed") / n * 1e9
        by_numba = repeated(n, local_numba, rng, 0.7, z, y) / n * 1e9
        by_numpy = repeated(n, local_numpy, rng, 0.7, z, y) / n * 1e9
        costs.append(ours)
        table.add_row(
            str(n), f"{ours:.1f}", "40", measure.verdict(ours, 40, at_most=True),
            f"{by_numba:.1f}", f"{ours / by_numba:.2f}", f"{by_numpy:.1f}", f"{by_numpy / ours:.2f}",
            f"{exact:.1f}",
        )  # fmt: skip
    measure.show(table, "sweeps_local")
    slope = np.polyfit(np.log(sizes), np.log(np.multiply(costs, sizes)), 1)[0]
    measure.console.print(
        f"A sweep costs n to the power {slope:.2f}; per record, the dearest size costs "
        f"{max(costs) / min(costs):.2f} times the cheapest."
    )


def sweep_seconds(model: pm.Model, point: dict, n: int, **options) -> float:
    """CPU seconds of one sweep of `RecordImputation`, called as PyMC calls it."""
    step = dp.RecordImputation(model=model, **options)
    step.setup_chain(np.random.default_rng(1), 0, 10**6)
    state = [point]

    def once():
        state[0], _ = step.step(state[0])

    return repeated(n, once)


def repeated(n: int, call, *args) -> float:
    """CPU seconds of one call, each timing long enough for the clock."""
    times = max(1, 200_000 // n)

    def several():
        for _ in range(times):
            call(*args)

    return measure.smallest_time(several) / times


def main(quick: bool = False) -> None:
    central((100, 10_000) if quick else (100, 1000, 10_000, 100_000))
    local((1000, 100_000) if quick else (1000, 10_000, 100_000, 1_000_000))


if __name__ == "__main__":
    main()
