"""Sums over many people taken as normal, beside the exact sampler: effective draws a second, and the bias.

One sum or two are also integrated out exactly, by their characteristic function. All sample the same
releases. The bias is the difference of posterior means in posterior standard deviations, with its Monte Carlo
error, beside what `approximate_sums` says of itself.
"""

import time

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt

import pymc_dp as dp
from benchmarks import measure
from benchmarks.regression import model as paper_regression


def one_sum(n: int) -> tuple[pm.Model, list[str], list[str]]:
    """A clamped sum of exponential numbers."""
    rng = np.random.default_rng([n, 1])
    with pm.Model() as model:
        mean = pm.HalfNormal("mean", 5)
        y = pm.Exponential("y", 1 / mean, shape=n)
        total = rng.exponential(2.0, n).clip(0, 5).sum() + rng.laplace(0, 5)
        dp.LaplaceMechanism("z", y.sum(), epsilon=1, bounds=(0, 5), observed=total)
    return model, ["y"], ["mean"]


def two_sums(n: int) -> tuple[pm.Model, list[str], list[str]]:
    """Clamped sums of normal numbers and of their squares."""
    rng = np.random.default_rng([n, 3])
    c = np.clip(rng.normal(0.4, 1.3, n), -1, 2)
    with pm.Model() as model:
        mean, sd = pm.Normal("mean", 0, 1), pm.HalfNormal("sd", 2)
        y = dp.clamp(pm.Normal("y", mean, sd, shape=n), -1, 2)
        query = pt.stack([y.sum(), pt.sqr(y).sum()])
        total = np.array([c.sum(), (c**2).sum()]) + rng.laplace(0, 30, 2)
        dp.LaplaceMechanism("z", query, scale=30.0, observed=total)
    return model, ["y"], ["mean", "sd"]


def line(n: int) -> tuple[pm.Model, list[str], list[str]]:
    """A regression on one covariate, five clamped sums."""
    rng = np.random.default_rng([n, 2])
    x = rng.normal(0.5, 1.2, n)
    rows = np.stack([x, 1 + 0.5 * x + rng.normal(0, 0.7, n)], axis=1)
    u, v = np.clip(rows[:, 0], -2, 3), np.clip(rows[:, 1], -2, 4)
    added = np.stack([u, v, u * u, u * v, v * v], axis=1).sum(axis=0) + rng.laplace(0, 40.0, 5)
    with pm.Model() as model:
        m, s = pm.Normal("m", 0, 2), pm.HalfNormal("s", 2)
        a, b, sigma = pm.Normal("a", 0, 2), pm.Normal("b", 0, 2), pm.HalfNormal("sigma", 2)
        x = pm.Normal("x", m, s, shape=n)
        y = pm.Normal("y", a + b * x, sigma, shape=n)
        u, v = dp.clamp(x, -2, 3), dp.clamp(y, -2, 4)
        query = dp.record_sum(pt.stack([u, v, u * u, u * v, v * v], axis=1))
        dp.LaplaceMechanism("z", query, scale=40.0, observed=added)
    return model, ["x", "y"], ["m", "s", "a", "b", "sigma"]


def two_covariates(n: int) -> tuple[pm.Model, list[str], list[str]]:
    """Paper 003's regression at epsilon 1: two covariates with a known law, nine sums."""
    return paper_regression(n, 1), ["x", "y"], ["beta"]


INTEGRATED = {"one clamped sum": one_sum, "a sum and one of squares": two_sums}
MODELS = {**INTEGRATED, "a line": line, "two covariates": two_covariates}
# people: draws and tuning of the exact sampler; none where one takes too long for a comparison
EXACT = {10_000: (2000, 1000), 100_000: (1000, 500), 1_000_000: None}


def main(quick: bool = False) -> None:
    table = measure.table(
        "Sums over many people: effective draws of the worst parameter per CPU second",
        "model", "n", "exact", "approximate", "ratio", "with tuning, build", "worst difference (sd)",
        "its error", "sd of edgeworth", "quadrature", "integrated out", "with tuning, build",
        "difference (sd)", "its error", "largest error of density",
    )  # fmt: skip
    for name, build in MODELS.items():
        for n, exact in EXACT.items():
            if quick and n != 10_000:
                continue
            model, records, parameters = build(n)
            started = time.process_time()
            approximate = dp.approximate_sums(model, records)
            building = time.process_time() - started
            release = approximate.observed_RVs[0].name
            errors = [f"{release}_edgeworth", f"{release}_quadrature"]
            ours = sampled(approximate, parameters, *((300, 300) if quick else (2000, 1000)), errors)
            theirs = None if exact is None else sampled(model, parameters, *((300, 200) if quick else exact))
            difference, error = (np.nan, np.nan) if theirs is None else farthest(ours, theirs)
            edgeworth, quadrature = (ours.extra["idata"].posterior[name] for name in errors)
            table.add_row(
                name,
                f"{n:,}",
                "" if theirs is None else f"{theirs.rate:.0f}",
                f"{ours.rate:.0f}",
                "" if theirs is None else f"{ours.rate / theirs.rate:.1f}",
                f"{ours.worst / (ours.total + building):.0f}",
                "" if theirs is None else f"{difference:.3f}",
                "" if theirs is None else f"{error:.3f}",
                f"{float(edgeworth.std()):.4f}",
                f"{float(quadrature.max()):.0e}",
                *(
                    integrated_out(model, records, parameters, theirs, quick)
                    if name in INTEGRATED
                    else [""] * 5
                ),
            )
    measure.show(table, "approximate")


def integrated_out(
    model: pm.Model, records: list[str], parameters: list[str], theirs: measure.Run | None, quick: bool
) -> list[str]:
    """Sample without the people, whose sums have an exact law."""
    started = time.process_time()
    marginal = dp.marginalize(model, records)
    building = time.process_time() - started
    told = marginal.deterministics[0].name
    ours = sampled(marginal, parameters, *((300, 300) if quick else (2000, 1000)), [told])
    compared = ["", ""] if theirs is None else [f"{v:.3f}" for v in farthest(ours, theirs)]
    largest = float(ours.extra["idata"].posterior[told].max())
    return [f"{ours.rate:.0f}", f"{ours.worst / (ours.total + building):.0f}", *compared, f"{largest:.0e}"]


def sampled(
    model: pm.Model, parameters: list[str], draws: int, tune: int, others: list[str] | None = None
) -> measure.Run:
    """Sample two chains, keeping the draws of some variables."""
    clock, start = measure.DrawClock(), time.process_time()
    idata = pm.sample(
        draws,
        tune=tune,
        chains=2,
        cores=1,
        model=model,
        var_names=[*parameters, *(others or [])],
        random_seed=1,
        progressbar=False,
        quiet=True,
        compute_convergence_checks=False,
        callback=clock,
    )
    worst = measure.worst_ess(idata.posterior, parameters)
    posterior = idata.posterior.to_dataset()[parameters]
    extra = {
        "idata": idata,
        "mean": posterior.mean(("chain", "draw")),
        "sd": posterior.std(("chain", "draw")),
    }
    extra["mcse"] = az.mcse(posterior)
    return measure.Run(worst, clock.draws, clock.seconds, time.process_time() - start, extra)


def farthest(ours: measure.Run, theirs: measure.Run) -> tuple[float, float]:
    """Return the largest difference of posterior means in posterior sds, and its Monte Carlo error."""
    sd = theirs.extra["sd"]
    apart = abs(ours.extra["mean"] - theirs.extra["mean"]) / sd
    error = np.hypot(ours.extra["mcse"], theirs.extra["mcse"]) / sd
    entries = [
        (float(a), float(e))
        for name in apart
        for a, e in zip(apart[name].values.ravel(), error[name].values.ravel(), strict=True)
    ]
    return max(entries)


if __name__ == "__main__":
    main()
