"""Answers behind local noise: default steps, NUTS with the answers summed out, and NUTS beside imputation.

Effective draws of the worst parameter per CPU second after tuning. Categories of each person are summed over
by the default steps and by `dp.marginalize`; imputed answers hold the parameters where privacy is strong.
"""

from collections.abc import Callable

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy import special

import pymc_dp as dp
from benchmarks import measure

PEOPLE, CATEGORIES, PER_AREA = 600, 4, 50
rng = np.random.default_rng(1)


def told(truth: np.ndarray, p_truth: np.ndarray | float, k: int) -> np.ndarray:
    """Return randomized answers."""
    kept = rng.random(truth.size) < p_truth
    return np.where(kept, truth, (truth + rng.integers(1, k, truth.size)) % k)


def p_of(epsilon: float, k: int) -> float:
    return float(np.exp(epsilon) / (np.exp(epsilon) + k - 1))


def logistic(epsilon: float) -> tuple[pm.Model, list[str]]:
    """A regression with an intercept and a slope."""
    x = rng.normal(size=PEOPLE)
    truth = (rng.random(PEOPLE) < special.expit(0.5 + x)).astype(int)
    with pm.Model() as model:
        y = pm.Bernoulli("y", logit_p=pm.Normal("a", 0, 2) + pm.Normal("b", 0, 2) * x, shape=PEOPLE)
        dp.RandomizedResponse("z", y, epsilon=epsilon, observed=told(truth, p_of(epsilon, 2), 2))
    return model, ["a", "b"]


def softmax(k: int) -> Callable[[float], tuple[pm.Model, list[str]]]:
    """A regression of several categories on one covariate."""

    def declare(epsilon: float) -> tuple[pm.Model, list[str]]:
        x, scores = rng.normal(size=PEOPLE), np.linspace(-1, 1, k)
        law = special.softmax(0.3 + np.outer(x, scores), axis=1)
        truth = (law.cumsum(axis=1) < rng.random((PEOPLE, 1))).sum(axis=1)
        with pm.Model() as model:
            score = pm.Normal("a", 0, 2) * scores**2 + pm.Normal("b", 0, 2) * x[:, None] * scores
            y = pm.Categorical("y", p=pm.math.softmax(score, axis=1), shape=PEOPLE)
            dp.RandomizedResponse("z", y, epsilon=epsilon, observed=told(truth, p_of(epsilon, k), k))
        return model, ["a", "b"]

    return declare


def areas(n: int) -> Callable[[float], tuple[pm.Model, list[str]]]:
    """A regression with an intercept and a slope of each area."""

    def declare(epsilon: float) -> tuple[pm.Model, list[str]]:
        people = PER_AREA * n
        area, x = np.arange(people) % n, rng.normal(size=people)
        chance = special.expit(rng.normal(0, 0.7, n)[area] + 0.8 * x)
        truth = (rng.random(people) < chance).astype(int)
        with pm.Model() as model:
            a = pm.Normal("a", pm.Normal("mu", 0, 1), pm.HalfNormal("s", 1), shape=n)
            b = pm.Normal("b", 0, 1, shape=n)
            y = pm.Bernoulli("y", logit_p=a[area] + b[area] * x, shape=people)
            dp.RandomizedResponse("z", y, epsilon=epsilon, observed=told(truth, p_of(epsilon, 2), 2))
        return model, ["mu", "s", "a", "b"]

    return declare


def levels(epsilon: float) -> tuple[pm.Model, list[str]]:
    """Shares of categories, of people who chose their noise."""
    truth = rng.choice(CATEGORIES, PEOPLE, p=[0.4, 0.3, 0.2, 0.1])
    p_truth = np.where(np.arange(PEOPLE) % 2, p_of(epsilon / 2, CATEGORIES), p_of(epsilon, CATEGORIES))
    with pm.Model() as model:
        c = pm.Categorical("c", pm.Dirichlet("p", np.ones(CATEGORIES)), shape=PEOPLE)
        dp.RandomizedResponse("z", c, p_truth=p_truth, observed=told(truth, p_truth, CATEGORIES))
    return model, ["p"]


def merged(epsilon: float) -> tuple[pm.Model, list[str]]:
    """Shares of categories, from two questions of which each merges some."""
    truth = rng.choice(CATEGORIES, PEOPLE, p=[0.4, 0.3, 0.2, 0.1])
    with pm.Model() as model:
        c = pm.Categorical("c", pm.Dirichlet("p", np.ones(CATEGORIES)), shape=PEOPLE)
        first, half = (truth == 0).astype(int), (truth > 1).astype(int)
        settings = {"n_categories": 2, "epsilon": epsilon}
        dp.RandomizedResponse("z", pt.eq(c, 0), observed=told(first, p_of(epsilon, 2), 2), **settings)
        of_table = pt.as_tensor(np.array([0, 0, 1, 1]))[c]
        dp.RandomizedResponse("w", of_table, observed=told(half, p_of(epsilon, 2), 2), **settings)
    return model, ["p"]


CASES = {
    "logistic": logistic,
    "8 categories": softmax(8),
    "16 categories": softmax(16),
    "4 areas, 10 parameters": areas(4),
    "8 areas, 18 parameters": areas(8),
    "17 areas, 36 parameters": areas(17),
    "levels of each": levels,
    "merged categories": merged,
}


def main(quick: bool = False) -> None:
    table = measure.table(
        f"Answers of {PEOPLE} people, {PER_AREA} in an area; effective draws of the worst parameter a second",
        "model", "epsilon", "default", "per draw", "R-hat",
        "NUTS, summed out", "R-hat", "NUTS beside imputation", "R-hat",
    )  # fmt: skip
    draws, tune = (500, 500) if quick else (2000, 1000)
    for name, declare in CASES.items():
        for epsilon in (0.5,) if quick else (0.5, 5.0):
            model, names = declare(epsilon)
            default = measure.sample(model, names, draws, tune)
            with model:
                beside = measure.sample(model, names, draws, tune, step=[dp.RecordImputation()])
            records = sorted({"y", "c"} & set(model.named_vars))
            summed = measure.sample(dp.marginalize(model, records), names, draws, tune)
            cells = [f"{default.rate:.0f}", f"{default.worst / default.draws:.2f}"]
            for run in (default, summed, beside):
                cells += [] if run is default else [f"{run.rate:.0f}"]
                cells += [f"{run.extra['R-hat']:.3f}"]
            table.add_row(name, f"{epsilon:g}", *cells)
    measure.show(table, "answers")


if __name__ == "__main__":
    main()
