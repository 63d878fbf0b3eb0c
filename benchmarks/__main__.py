"""All benchmarks, one table each: ``python -m benchmarks [name ...] [--quick]``."""

import argparse
import importlib
import os

# One thread, before NumPy is imported: a benchmark counts the CPU seconds of all of them.
os.environ.setdefault("OMP_NUM_THREADS", "1")

NAMES = (
    "regression",
    "naive_bayes",
    "answers",
    "hierarchy",
    "laws",
    "nuts",
    "unknown_count",
    "time_use",
    "surveys",
    "tables",
    "table_by_hand",
    "table_parameters",
    "sweeps",
    "mechanisms",
    "cold_start",
    "counts",
    "marginal",
    "approximate",
    "mixtures",
    "private_mcmc",
    "private_bias",
    "replicate",
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"some of {', '.join(NAMES)}")
    parser.add_argument("--quick", action="store_true", help="few sizes and draws")
    args = parser.parse_args()
    unknown = set(args.names) - set(NAMES)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; choose from {', '.join(NAMES)}")
    from benchmarks import measure

    measure.describe_machine()
    for name in args.names or NAMES:
        run = importlib.import_module(f"benchmarks.{name}").main
        run(quick=args.quick)


if __name__ == "__main__":
    main()
