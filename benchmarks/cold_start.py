"""From the model block to the first draw, with nothing compiled before, and with a warm cache.

Each start is a process of its own; the clock starts after the imports.
"""

import os
import subprocess
import sys
import tempfile
import time

from benchmarks import measure

# Seconds; clusters with a covariance of their own compile second derivatives of nine numbers.
TARGETS = {"regression": 15.0, "naive_bayes": 15.0, "local": 15.0, "covariances": 60.0}


class FirstDraw(Exception):
    """Raised by the callback: nothing after the first draw is of interest."""


def first_draw(name: str) -> None:
    """Print seconds of the imports, and from the model block to the first draw (also of CPU)."""
    start = time.perf_counter()
    import numpy as np
    import pymc as pm

    from examples import paper003

    imported, busy = time.perf_counter(), time.process_time()
    rng = np.random.default_rng(1)
    if name == "regression":
        rows = paper003.regression_rows(100, rng)
        model = paper003.regression_model(1, paper003.release_regression(*rows, 1, rng))
    elif name == "naive_bayes":
        rows = paper003.naive_bayes_rows(100, rng)
        model = paper003.naive_bayes_model(1, paper003.release_naive_bayes(*rows, 1, rng))
    elif name == "covariances":
        from benchmarks import mixtures

        model = mixtures.own_covariances(rng.normal(size=(100, 3)))
    else:
        from benchmarks import sweeps

        model = sweeps.local_model(rng.normal(size=1000) + rng.laplace(size=1000))

    def stop(trace, draw):
        elapsed, cpu = time.perf_counter() - imported, time.process_time() - busy
        print(imported - start, elapsed, cpu, flush=True)
        raise FirstDraw

    try:
        pm.sample(1, tune=1, chains=1, cores=1, model=model, progressbar=False, quiet=True, callback=stop)
    except FirstDraw:
        pass


def start(name: str, folder: str) -> list[float]:
    """Run `first_draw` in a process whose compiled code lives in a folder."""
    environment = {
        **os.environ,
        "PYTENSOR_FLAGS": f"base_compiledir={folder}/pytensor",
        "OMP_NUM_THREADS": "1",
    }
    code = f"from benchmarks.cold_start import first_draw; first_draw({name!r})"
    out = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    if out.returncode:
        raise RuntimeError(out.stderr)
    return [float(number) for number in out.stdout.split()[-3:]]


def main(quick: bool = False) -> None:
    table = measure.table(
        "From the model block to the first draw, seconds on the clock",
        "model", "cold", "target", "met", "cold, CPU", "warm", "warm, CPU", "imports, cold and warm",
    )  # fmt: skip
    for name, target in list(TARGETS.items())[: 1 if quick else None]:
        with tempfile.TemporaryDirectory() as folder:
            cold_imports, cold, cold_cpu = start(name, folder)
            imports, warm, warm_cpu = start(name, folder)
        table.add_row(
            name, f"{cold:.1f}", f"{target:.0f}", measure.verdict(cold, target, at_most=True),
            f"{cold_cpu:.1f}", f"{warm:.1f}", f"{warm_cpu:.1f}",
            f"{cold_imports:.1f}, {imports:.1f}",
        )  # fmt: skip
    measure.show(table, "cold_start")


if __name__ == "__main__":
    main()
