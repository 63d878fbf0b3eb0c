"""Many fits of the README's model: what a fit costs beyond its draws, and what a second process adds."""

import time

import numpy as np
import pymc as pm
import pytensor.tensor as pt

import pymc_dp as dp
from benchmarks import measure

SHORT = {"draws": 500, "tune": 500, "chains": 2, "random_seed": 1, "progressbar": False}


def model() -> pm.Model:
    with pm.Model() as built:
        mu = pm.Normal("mu", 0, 2)
        sigma = pm.HalfNormal("sigma", 1)
        y = pm.Normal("y", mu, sigma, shape=100)
        query = dp.record_sum(pt.stack([y, y**2], axis=-1))
        dp.LaplaceMechanism("z", query, epsilon=1, bounds=[(-3, 3), (0, 9)], observed=np.array([30.0, 120.0]))
    return built


def main(quick: bool = False) -> None:
    n = 40 if quick else 1000
    rng = np.random.default_rng(1)
    releases = np.stack([rng.normal(30, 10, n), rng.normal(120, 20, n)], axis=1)

    by_hand, draws = [], []
    for k in range(5):  # what one would do without: a model, and pm.sample, for each release
        start = time.perf_counter()
        built = model()
        built.rvs_to_values[built["z"]].data[:] = releases[k]
        clock = measure.DrawClock()
        pm.sample(
            model=built, cores=1, quiet=True, compute_convergence_checks=False, callback=clock,
            **{**SHORT, "random_seed": k},
        )  # fmt: skip
        by_hand.append(time.perf_counter() - start)
        draws.append(clock.seconds)

    table = measure.table(
        f"{n} fits of 2 x (500 + 500) draws", "way", "seconds", "fits a second", "ratio to one process",
        "ms per fit beyond its draws", "target", "met",
    )  # fmt: skip
    dp.replicate(model(), {"z": releases[:4]}, n_jobs=2, **SHORT)  # processes begun, models compiled
    base = 0.0
    found = {}
    for name, given in {"one process": {}, "two processes": {"n_jobs": 2}}.items():
        dp.replicate(model(), {"z": releases[:4]}, **given, **SHORT)
        start = time.perf_counter()
        found[name] = dp.replicate(model(), {"z": releases}, **given, **SHORT)
        seconds = time.perf_counter() - start
        base = base or seconds
        beyond = 1000 * (seconds / n - 2 * float(np.median(draws)))  # draws and tuning are as many
        target, value = ("100", beyond) if name == "one process" else ("1.8", base / seconds)
        table.add_row(
            name, f"{seconds:.1f}", f"{n / seconds:.1f}", f"{base / seconds:.2f}",
            f"{beyond:.0f}" if name == "one process" else "", target,
            measure.verdict(value, float(target), at_most=name == "one process"),
        )  # fmt: skip
    table.add_row(
        "pm.sample by hand", f"{n * np.median(by_hand):.0f} (of 5)", f"{1 / np.median(by_hand):.2f}",
        f"{base / n / np.median(by_hand):.3f}", "", "", "",
    )  # fmt: skip
    measure.show(table, "replicate")
    same = found["one process"].drop_vars("seconds").identical(found["two processes"].drop_vars("seconds"))
    print("The numbers of both are", "the same." if same else "NOT the same.")


if __name__ == "__main__":
    main()
