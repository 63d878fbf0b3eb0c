"""Categories under local privacy: counts of many people, and records with their table integrated out.

Counts: n = 1e9 responses among 16 categories, posterior of the proportions by `pm.sample` as it chooses by
itself; seconds of the wall clock from the call to the draws, compilation included. Records: effective draws
of the worst proportion per CPU second, beside imputation, where NUTS moves the proportions given the
imputed records.
"""

import time

import arviz as az
import numpy as np
import pymc as pm

import pymc_dp as dp
from benchmarks import measure

CATEGORIES, PEOPLE, TARGET = 16, 10**9, 10.0


def proportions(k: int = CATEGORIES) -> np.ndarray:
    return np.random.default_rng(1).dirichlet(np.full(k, 2.0))


def counts(quick: bool) -> None:
    table = measure.table(
        f"{PEOPLE:.0e} people, {CATEGORIES} categories, released as counts: pm.sample with its defaults",
        "mechanism", "epsilon", "CPU s", "seconds", "target", "met", "worst ESS", "R-hat", "mean sd",
        "largest error in sd",
    )  # fmt: skip
    truth = proportions()
    cases = [(dp.RandomizedResponse, e) for e in ((1.0,) if quick else (0.1, 1.0, 4.0))]
    for mechanism, epsilon in cases if quick else [*cases, (dp.UnaryEncoding, 1.0)]:
        released = pm.draw(mechanism.dist(truth, n=PEOPLE, epsilon=epsilon), random_seed=11)
        with pm.Model() as model:
            p = pm.Dirichlet("p", np.ones(CATEGORIES))
            mechanism("released", p, n=PEOPLE, epsilon=epsilon, observed=released)
        start, cpu = time.perf_counter(), time.process_time()
        idata = pm.sample(
            model=model, random_seed=1, progressbar=False, quiet=True, compute_convergence_checks=False
        )
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
        draws = idata.posterior["p"].values
        sd = draws.std(axis=(0, 1))
        target = TARGET if mechanism is dp.RandomizedResponse else None
        table.add_row(
            mechanism.__name__,
            f"{epsilon:g}",
            f"{cpu:.1f}",
            f"{seconds:.1f}",
            "" if target is None else f"{target:g}",
            measure.verdict(seconds, target, at_most=True),
            f"{measure.worst_ess(idata.posterior, ['p']):.0f}",
            f"{float(az.rhat(idata.posterior.to_dataset())['p'].max()):.3f}",
            f"{sd.mean():.2g}",
            f"{(abs(draws.mean(axis=(0, 1)) - truth) / sd).max():.1f}",
        )
    measure.show(table, "counts")


def records(quick: bool) -> None:
    table = measure.table(
        "Randomized response of single records: effective draws of the worst proportion per CPU second",
        "n", "K", "epsilon", "pymc_dp", "imputation and NUTS", "ratio", "us per draw",
        "draws per effective draw",
    )  # fmt: skip
    cases = [(1000, 16, 0.1), (1000, 16, 1.0), (1000, 16, 4.0), (100_000, 16, 1.0)]
    for n, k, epsilon in cases[:1] if quick else cases:
        rng = np.random.default_rng(2)
        released = dp.RandomizedResponse.release(
            rng.choice(k, n, p=proportions(k)), epsilon=epsilon, n_categories=k
        )
        with pm.Model() as model:
            p = pm.Dirichlet("p", np.ones(k))
            c = pm.Categorical("c", p, shape=n)
            dp.RandomizedResponse("z", c, observed=released)
        draws = (300, 300) if quick else (2000, 1000)
        ours = measure.sample(model, ["p"], *draws)
        theirs = imputation(model, *draws)
        table.add_row(
            f"{n:,}",
            str(k),
            f"{epsilon:g}",
            f"{ours.rate:.3g}",
            f"{theirs.rate:.3g}",
            f"{ours.rate / theirs.rate:.3g}",
            f"{ours.seconds / ours.draws * 1e6:.0f}",
            f"{ours.draws / ours.worst:.1f}",
        )
    measure.show(table, "collapsed")


def imputation(model: pm.Model, draws: int, tune: int) -> measure.Run:
    """The same model with the steps given by hand."""
    clock = measure.DrawClock()
    start = time.process_time()
    with model:
        idata = pm.sample(
            draws,
            tune=tune,
            chains=2,
            cores=1,
            step=[dp.RecordImputation(), pm.NUTS([model["p"]])],
            var_names=["p"],
            random_seed=1,
            progressbar=False,
            quiet=True,
            compute_convergence_checks=False,
            callback=clock,
        )
    total = time.process_time() - start
    return measure.Run(measure.worst_ess(idata.posterior, ["p"]), clock.draws, clock.seconds, total)


def main(quick: bool = False) -> None:
    counts(quick)
    records(quick)


if __name__ == "__main__":
    main()
