"""Mixtures behind a Laplace channel, and of known records, beside a C++ program of the same samplers.

The program is compiled from `../shared/yardstick/yardstick.cpp` where that folder and a compiler are present;
without, its columns stay empty. Ours go through `pm.sample`; both run in turn, on the same released records.
"""

import json
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt

import pymc_dp as dp
from benchmarks import measure

YARDSTICK = Path(__file__).resolve().parents[2] / "shared" / "yardstick" / "yardstick.cpp"
SLOTS = 60


def released(n: int, epsilon: float) -> np.ndarray:
    """Records from two clusters on [-10, 10], each with Laplace noise for the whole interval."""
    rng = np.random.default_rng([n, int(10 * epsilon)])
    y = np.where(rng.random(n) < 0.5, rng.normal(-3, 1, n), rng.normal(3, 1, n))
    return y + rng.laplace(scale=20 / epsilon, size=n)


def mixture(z: np.ndarray, epsilon: float) -> pm.Model:
    with pm.Model() as model:
        labels = dp.ChineseRestaurantProcess("labels", concentration=1, shape=len(z), max_components=SLOTS)
        sigma2 = pm.InverseGamma("sigma2", 3, 3, shape=SLOTS)
        mu = pm.Normal("mu", 0, pt.sqrt(10 * sigma2), shape=SLOTS)
        y = pm.Normal("y", mu[labels], pt.sqrt(sigma2[labels]))
        dp.LaplaceMechanism("z", y, scale=20 / epsilon, observed=z)
    return model


def own_covariances(y: np.ndarray) -> pm.Model:
    """Known records in clusters with a covariance each, of which every entry is unknown."""
    n, d = y.shape
    own = np.arange(d)
    with pm.Model() as model:
        labels = dp.ChineseRestaurantProcess("labels", concentration=1, shape=n, max_components=20)
        mu = pm.Normal("mu", 0, 3, shape=(20, d))
        off = pm.Normal("off", 0, 1, shape=(20, d * (d - 1) // 2))
        diagonal = pm.HalfNormal("diagonal", 2, shape=(20, d))
        factor = pt.zeros((20, d, d))[:, *np.tril_indices(d, -1)].set(off)[:, own, own].set(diagonal)
        pm.MvNormal("y", mu[labels], chol=factor[labels], observed=y)
    return model


class Yardstick:
    """The C++ program, if it can be had."""

    def __init__(self, folder: str):
        self.folder, compiler = Path(folder), shutil.which("g++")
        self.there = compiler is not None and YARDSTICK.exists()
        if self.there:
            flags = ["-O3", "-march=native", "-std=c++17"]
            target = str(self.folder / "yardstick")
            subprocess.run([str(compiler), *flags, str(YARDSTICK), "-o", target], check=True)

    def run(
        self, algorithm: str, z: np.ndarray, epsilon: float | None, sweeps: int, m: int = 1
    ) -> tuple[float, float]:
        """Microseconds of CPU per sweep, and effective draws of the number of clusters per sweep.

        Without epsilon the records are known.
        """
        np.savetxt(self.folder / "z", z)
        arguments = [
            algorithm,
            "z",
            f"L:{20 / epsilon}" if epsilon else "N",
            "1",
            str(sweeps),
            str(sweeps // 10),
            "1",
            str(m),
            "1000",
        ]
        out = subprocess.run(
            ["./yardstick", *arguments, "out"], cwd=self.folder, capture_output=True, text=True, check=True
        ).stdout
        k = np.loadtxt(self.folder / "out.k")
        timed = subprocess.run(
            ["./yardstick", *arguments, "-"], cwd=self.folder, capture_output=True, text=True, check=True
        ).stdout
        return json.loads(timed)["us_per_iter_cpu"], float(az.ess(k[None])) / len(k) if out else 0.0


def ours(model: pm.Model, step, draws: int, tune: int, chains: int = 2) -> tuple[float, np.ndarray]:
    """CPU seconds of the draws after tuning, and the number of clusters at each."""
    clock = measure.DrawClock()
    with model:
        idata = pm.sample(
            draws, tune=tune, chains=chains, cores=1, step=step, var_names=["mu"], random_seed=1,
            callback=clock, progressbar=False, quiet=True, compute_convergence_checks=False,
        )  # fmt: skip
    return clock.seconds, idata.sample_stats["n_clusters"].values.astype(float)


def sweeps(yardstick: Yardstick, quick: bool) -> None:
    table = measure.table(
        "CPU seconds per 1000 sweeps through pm.sample, epsilon 10: median of 5 runs in turn",
        "sampler", "n", "pymc_dp", "C++", "ratio", "target", "met",
    )  # fmt: skip
    kinds = {
        "Neal 5, m = 1": (lambda c: dp.PrivateNeal5(moves="joint", n_cycles=c), "pneal5", 1),
        "Neal 5, m = 5": (lambda c: dp.PrivateNeal5(moves="joint", n_auxiliary=5, n_cycles=c), "pneal5", 5),
        "slice": (lambda c: dp.PrivateSlice(proposals="independence", n_cycles=c), "pslice", 1),
    }
    for n in (200,) if quick else (200, 1000, 10_000):
        z, n_cycles = released(n, 10), max(1, 10_000 // n)
        model = mixture(z, 10)
        for name, (make, algorithm, m) in kinds.items():
            with model:
                step = [make(n_cycles)]
            ours(model, step, 5, 5, 1)  # compiled now
            times = []
            for _ in range(2 if quick else 5):
                draws = max(20, 4_000_000 // n // n_cycles)  # a chain is checked at its ends, a millisecond
                mine = ours(model, step, draws, 50, 1)[0] / draws / n_cycles * 1000
                theirs = (
                    yardstick.run(algorithm, z, 10, max(200, 400_000 // n), m)[0] / 1000
                    if yardstick.there
                    else np.nan
                )
                times.append((mine, theirs))
            mine, theirs = np.median(times, axis=0)
            ratio = float(np.median([a / b for a, b in times]))
            table.add_row(
                name, f"{n:,}", f"{mine:.4f}", f"{theirs:.4f}", f"{ratio:.2f}", "1.0",
                measure.verdict(ratio, 1.0, at_most=True),
            )  # fmt: skip
    measure.show(table, "mixture_sweeps")


def effective(yardstick: Yardstick, quick: bool) -> None:
    table = measure.table(
        "Effective draws of the number of clusters per CPU second: pm.sample as it chooses, and the best of "
        "the C++ program's samplers",
        "n", "epsilon", "pymc_dp", "mean k", "C++", "mean k C++", "ratio", "target", "met",
    )  # fmt: skip
    for n in (200,) if quick else (200, 1000):
        for epsilon in (10,) if quick else (1, 2, 5, 10, 50):
            z = released(n, epsilon)
            model = mixture(z, epsilon)
            draws = (500, 200) if quick else (6000 if n == 200 else 4000, 1000)
            seconds, k = ours(model, None, *draws)
            rate = float(az.ess(k)) / seconds
            best, mean = np.nan, np.nan
            for algorithm, m in (("pneal5", 1), ("pneal5", 5), ("pslice", 1)) if yardstick.there else ():
                length = (20_000 if quick else 200_000) * 200 // n
                us, per_sweep = yardstick.run(algorithm, z, epsilon, length, m)
                if not best > per_sweep / us * 1e6:
                    best = per_sweep / us * 1e6
                    mean = float(np.loadtxt(yardstick.folder / "out.k").mean())
            target = 3.0 if n == 1000 else 4.0 if epsilon == 50 else 1.5
            table.add_row(
                f"{n:,}", f"{epsilon:g}", f"{rate:.0f}", f"{k.mean():.2f}", f"{best:.0f}", f"{mean:.2f}",
                f"{rate / best:.2f}", f"{target:g}", measure.verdict(rate / best, target),
            )  # fmt: skip
    measure.show(table, "mixture_effective")


def separated(n: int) -> np.ndarray:
    """Known records from five clusters that are far from each other."""
    rng = np.random.default_rng(n)
    return np.array([-12.0, -6.0, 0.0, 6.0, 12.0])[rng.integers(5, size=n)] + rng.normal(size=n)


def known_mixture(y: np.ndarray) -> pm.Model:
    with pm.Model() as model:
        labels = dp.ChineseRestaurantProcess("labels", concentration=1, shape=len(y), max_components=SLOTS)
        sigma2 = pm.InverseGamma("sigma2", 3, 3, shape=SLOTS)
        mu = pm.Normal("mu", 0, pt.sqrt(10 * sigma2), shape=SLOTS)
        pm.Normal("y", mu[labels], pt.sqrt(sigma2[labels]), observed=y)
    return model


def known(yardstick: Yardstick, quick: bool) -> None:
    """Sweeps over known records, and what splits and merges add where clusters are far apart."""
    table = measure.table(
        "Known records, CPU seconds per 1000 sweeps through pm.sample: median of 5 runs in turn",
        "sampler", "n", "pymc_dp", "C++", "ratio", "target", "met",
    )  # fmt: skip
    kinds = {
        "Neal 2": (lambda c: dp.Neal2(n_cycles=c), "neal2", 1),
        "Neal 8, m = 3": (lambda c: dp.Neal8(n_auxiliary=3, n_cycles=c), "neal8", 3),
    }
    n, n_cycles = 1000, 10
    rng = np.random.default_rng(n)
    y = np.where(rng.random(n) < 0.5, rng.normal(-3, 1, n), rng.normal(3, 1, n))
    model = known_mixture(y)
    for name, (make, algorithm, m) in kinds.items():
        with model:
            step = [make(n_cycles)]
        ours(model, step, 5, 5, 1)  # compiled now
        times = []
        for _ in range(2 if quick else 5):
            mine = ours(model, step, 100, 50, 1)[0] / 100 / n_cycles * 1000
            theirs = yardstick.run(algorithm, y, None, 1000, m)[0] / 1000 if yardstick.there else np.nan
            times.append((mine, theirs))
        mine, theirs = np.median(times, axis=0)
        ratio = float(np.median([a / b for a, b in times]))
        table.add_row(
            name, f"{n:,}", f"{mine:.4f}", f"{theirs:.4f}", f"{ratio:.2f}", "1.0",
            measure.verdict(ratio, 1.0, at_most=True),
        )  # fmt: skip
    measure.show(table, "known_sweeps")

    table = measure.table(
        "Known records in five clusters far apart: effective draws of the number of clusters per CPU second",
        "n", "step", "draws", "mean k", "R-hat", "per second", "ratio to Neal 8",
    )  # fmt: skip
    steps = {
        "Neal 8": lambda: [dp.Neal8()],
        "Neal 2": lambda: [dp.Neal2()],
        "Neal 3": lambda: [dp.Neal3()],
        "SplitMerge": lambda: None,
        "SplitMerge, Neal 8": lambda: [dp.SplitMerge(sweeps="neal8")],
    }
    for n in (200,) if quick else (200, 1000):
        model, base = known_mixture(separated(n)), 0.0
        draws = 400 if quick else 4000
        for name, make in steps.items():
            with model:
                step = make()
            seconds, k = ours(model, step, draws, draws // 4, 4)
            rate = float(az.ess(k)) / seconds
            base = base or rate
            table.add_row(
                f"{n:,}", name, f"{draws:,}", f"{k.mean():.2f}", f"{float(az.rhat(k)):.3f}", f"{rate:.0f}",
                f"{rate / base:.2f}",
            )  # fmt: skip
    measure.show(table, "known_effective")


def large(quick: bool) -> None:
    n, draws = (10_000, 20) if quick else (100_000, 1000)
    table = measure.table(
        f"{n:,} records, {draws:,} sweeps, labels and records not kept",
        "sampler", "seconds", "target", "met", "GiB in use at the end",
    )  # fmt: skip
    model = mixture(released(n, 10), 10)
    import resource

    for name, make in (("default", None), ("Neal 5, m = 1", lambda: [dp.PrivateNeal5(moves="joint")])):
        with model:
            step = None if make is None else make()
        start = time.perf_counter()
        ours(model, step, draws, 0 if quick else 20, 1)
        seconds = time.perf_counter() - start
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        table.add_row(
            name, f"{seconds:.0f}", "120", measure.verdict(seconds, 120, at_most=True), f"{memory:.2f}"
        )
    measure.show(table, "mixture_large")


def main(quick: bool = False) -> None:
    with tempfile.TemporaryDirectory() as folder:
        yardstick = Yardstick(folder)
        sweeps(yardstick, quick)
        effective(yardstick, quick)
        known(yardstick, quick)
    large(quick)


if __name__ == "__main__":
    main()
