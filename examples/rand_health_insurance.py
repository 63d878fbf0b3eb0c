"""Does free care send people to the doctor? An answer from noisy releases alone.

The RAND health insurance experiment (1974-82) gave families insurance that paid all of their bills,
or only a part. The custodian of the rows publishes two things under differential privacy:

* eight sums over 4,000 people, which a linear regression of log(1 + doctor visits) on "the family
  pays part of the bill" and on chronic diseases needs, under epsilon = 1 for each person (the
  *central* model: the custodian adds noise to what it publishes);
* the number of doctor visits of 1,250 other people, each with noise of its own, under epsilon = 3
  (the *local* model: noise is added before anything is collected).

The analyst, who sees nothing else, gets coefficients and a distribution of visits by declaring the
releases in ordinary PyMC models. Two analyses stand beside: the one that nobody outside could have
done, on the exact numbers, and the naive one, which takes the noisy numbers for exact.

Run `python examples/rand_health_insurance.py` (or `make demo`): about a minute on two cores, after
compilation at the first run. It prints a table and writes a figure.

Data: statsmodels' copy of Cameron & Trivedi (2005), *Microeconometrics*, chapter 20; its 20,190
rows are people in one year, of which each person's first is used.
"""

import argparse
import random
import secrets
import time
from pathlib import Path
from typing import Any

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import rand_figure
import rand_formulas as formulas
from rand_custodian import (
    DISEASE_UNIT,
    EPSILON_REPORTS,
    EPSILON_SUMS,
    HIGH,
    LOG_VISITS_UNIT,
    LOW,
    MOST_VISITS,
    Custodian,
    ReportsRelease,
    SumsRelease,
    contributions,
)
from rich.console import Console
from rich.table import Table

import pymc_dp as dp

OUTPUT = Path(__file__).parent / "output" / "rand_health_insurance.png"

# -- the analyst's models: nothing but releases and what is public enters them --------------------


def sums_model(release: SumsRelease) -> pm.Model:
    """Linear regression in which covariates and outcome of every person are unknown."""
    with pm.Model(coords={"term": ["intercept", "pays", "disease"]}) as model:
        share = pm.Beta("share", 1, 1)
        centre, spread = pm.Normal("centre", 0, 1), pm.HalfNormal("spread", 1)
        beta, sigma = pm.Normal("beta", 0, 1, dims="term"), pm.HalfNormal("sigma", 1)

        # The confidential records: three numbers for each person, imputed while sampling.
        pays = pm.Bernoulli("pays", share, shape=release.n)
        disease = pm.Normal("disease", centre, spread, shape=release.n)
        x1, x2 = pays - 0.5, dp.clamp(disease, -1, 1)
        visits = pm.Normal("visits", beta[0] + beta[1] * x1 + beta[2] * x2, sigma, shape=release.n)
        rows = contributions(x1, x2, dp.clamp(visits, -1, 1), pt.stack)
        dp.LaplaceMechanism(
            "sums",
            dp.record_sum(rows),
            epsilon=release.epsilon,
            bounds=(LOW, HIGH),
            observed=release.values,
        )
    return model


def reports_model(release: ReportsRelease) -> pm.Model:
    """Negative binomial numbers of visits behind the noisy reports."""
    with pm.Model() as model:
        mean = pm.LogNormal("mean", *formulas.PRIOR["mean"])
        shape = pm.LogNormal("shape", *formulas.PRIOR["shape"])
        law = pm.NegativeBinomial.dist(mu=mean, alpha=shape)
        head = pt.exp(pm.logp(law, np.arange(MOST_VISITS)))
        more = pt.maximum(1 - head.sum(), 1e-12)
        visits = pm.Categorical("visits", p=pt.concatenate([head, [more]]), shape=len(release.values))
        dp.LaplaceMechanism(
            "reports",
            visits,
            epsilon=release.epsilon,
            bounds=(0, MOST_VISITS),
            observed=release.values,
        )
    return model


def sample(model: pm.Model, draws: int, tune: int, seed: int | None) -> Any:
    """Default steps. Imputed people are not kept: thousands of them would fill the memory."""
    records = {"pays", "disease", "visits"}
    with model:
        return pm.sample(
            draws=draws,
            tune=tune,
            chains=4,
            cores=2,
            random_seed=seed,
            var_names=[rv.name for rv in model.free_RVs if rv.name not in records],
            progressbar=False,
            compute_convergence_checks=False,
        )


# -- the quantities that a reader cares about -----------------------------------------------------


# Name and decimals of each quantity.
PAYS, DISEASE = "Pays part of bill (%)", "Disease index +10 (%)"
MEAN, NONE, MANY = "Mean visits", "No visit (% of people)", "10 or more (% of people)"
DECIMALS = {PAYS: 0, DISEASE: 0, MEAN: 2, NONE: 0, MANY: 1}


def quantities(regression: dict, visits: dict) -> tuple[dict[str, Any], np.ndarray]:
    """Draws of all quantities, and of the distribution of visits."""
    beta = LOG_VISITS_UNIT * regression["beta"]
    probabilities = formulas.visits_probabilities(visits["mean"], visits["shape"])
    draws = {
        PAYS: 100 * np.expm1(beta[..., 1]),
        DISEASE: 100 * np.expm1(beta[..., 2] * 10 / DISEASE_UNIT),
        MEAN: probabilities @ formulas.COUNTS,
        NONE: 100 * probabilities[..., 0],
        MANY: 100 * probabilities[..., 10:].sum(axis=-1),
    }
    return draws, probabilities


def taken_for_exact(sums: SumsRelease, reports: ReportsRelease) -> tuple[dict, np.ndarray]:
    """Analyse numbers as if they had no noise."""
    return quantities(formulas.regression(sums), formulas.visits(reports))


def interval(draws: Any) -> tuple[float, float, float]:
    """Median and equal-tailed 95 % interval."""
    low, middle, high = np.quantile(np.ravel(draws), [0.025, 0.5, 0.975])
    return middle, low, high


def naive_coverage(custodian: Custodian, times: int) -> dict[str, float]:
    """How often naive intervals contain the population's value when the study is repeated.

    A simulation that only somebody with all rows can do; nothing of it would be published.
    """
    population = {k: np.median(v) for k, v in taken_for_exact(*custodian.population())[0].items()}
    hits = dict.fromkeys(population, 0)
    for _ in range(times):
        releases = custodian.repeated_study((EPSILON_SUMS, EPSILON_REPORTS))
        for name, draws in taken_for_exact(*releases)[0].items():
            _, low, high = interval(draws)
            hits[name] += low <= population[name] <= high
    return {name: count / times for name, count in hits.items()}


# -- output ---------------------------------------------------------------------------------------


def comparison(answers: dict[str, dict[str, tuple]], coverage: dict, rhat: dict, ess: dict) -> Table:
    table = Table(
        title="\nDoctor visits in the RAND experiment: median and 95 % interval",
        caption=(
            f"First two rows: change in 1 + visits, from {len(LOW)} sums at epsilon = "
            f"{EPSILON_SUMS:g}; others: from noisy reports\nof other people at epsilon = "
            f"{EPSILON_REPORTS:g} each (15 visits stand for 15 or more).\nNaive covers: how often "
            "a naive 95 % interval contains the population's value in repeated studies."
        ),
        title_justify="left",
        caption_justify="left",
    )
    for name in ("", "Non-private", "pymc_dp", "Naive", "Naive covers", "r_hat", "ESS"):
        table.add_column(name, justify="right" if name else "left", no_wrap=True)
    for name, answer in answers.items():
        table.add_row(
            name,
            *(show(answer[key], DECIMALS[name]) for key in ("exact", "ours", "naive")),
            f"{100 * coverage[name]:.0f} %",
            f"{rhat[name]:.3f}",
            f"{ess[name]:.0f}",
        )
    return table


def show(answer: tuple[float, float, float], decimals: int) -> str:
    if np.isnan(answer).any():
        return "no answer"
    middle, low, high = (f"{value:.{decimals}f}" for value in answer)
    return f"{middle} [{low}, {high}]"


def verdict(rhat: dict, ess: dict) -> str:
    worst, fewest = max(rhat.values()), min(ess.values())
    if worst < 1.015 and fewest >= 400:
        return f"Chains agree: r_hat at most {worst:.3f}, at least {fewest:.0f} effective draws."
    return (
        f"Draw longer: r_hat reaches {worst:.3f}, with {fewest:.0f} effective draws at least "
        "(1.01 and 400 are wanted)."
    )


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few people and draws, for CI")
    parser.add_argument(
        "--seed",
        type=int,
        help="reproducible and therefore INSECURE noise, and reproducible draws",
    )
    parser.add_argument("--output", type=Path, default=OUTPUT, help="where the figure goes")
    return parser.parse_args()


def main() -> None:
    args, start, console = parse_arguments(), time.perf_counter(), Console(width=124)
    source = secrets.SystemRandom() if args.seed is None else random.Random(args.seed)
    if args.seed is not None:
        console.print("--seed: noise that anybody can repeat protects nobody. For figures only.")

    # At the custodian's.
    custodian = Custodian(source, *((400, 200) if args.quick else ()))
    sums, reports = custodian.release_sums(), custodian.release_reports()

    # At the analyst's, who has `sums` and `reports` only.
    console.print(f"Regression from {len(LOW)} noisy sums over {sums.n:,} people ...")
    model = sums_model(sums)
    regression = sample(model, *((200, 300) if args.quick else (3500, 1500)), args.seed)
    console.print(f"Distribution from {len(reports.values):,} noisy reports ...")
    visits = sample(reports_model(reports), *((200, 300) if args.quick else (5000, 1500)), args.seed)
    ours, our_shape = quantities(
        {"beta": regression.posterior["beta"].to_numpy()},
        {name: visits.posterior[name].to_numpy() for name in ("mean", "shape")},
    )
    rhat = {name: float(az.rhat(draws)) for name, draws in ours.items()}
    ess = {name: float(az.ess(draws)) for name, draws in ours.items()}

    # The three analyses side by side.
    exact, exact_shape = taken_for_exact(*custodian.exact())
    naive, naive_shape = taken_for_exact(sums, reports)
    coverage = naive_coverage(custodian, times=20 if args.quick else 400)
    answers = {
        name: {k: interval(v[name]) for k, v in (("exact", exact), ("ours", ours), ("naive", naive))}
        for name in ours
    }
    console.print(comparison(answers, coverage, rhat, ess))
    console.print(verdict(rhat, ess))
    console.print()
    console.print(dp.acceptance_report(regression, model))
    args.output.parent.mkdir(parents=True, exist_ok=True)
    rand_figure.draw(
        args.output,
        effects={
            "Families that pay part of the bill, against free care": answers[PAYS],
            "Chronic-disease index higher by 10 points": answers[DISEASE],
        },
        mean=answers[MEAN],
        coverage={"effects": (coverage[PAYS], coverage[DISEASE]), "mean": coverage[MEAN]},
        shapes={"exact": exact_shape, "ours": our_shape, "naive": naive_shape},
        shares=custodian.shares(),
        sums=sums,
        reports=reports,
    )
    console.print(f"Figure: {args.output}   ({time.perf_counter() - start:.0f} s in all)")


if __name__ == "__main__":
    main()
