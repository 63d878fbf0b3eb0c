"""Hierarchies of many parameters: effective draws of the worst one per CPU second, and steps that move them.

Groups of 50 people with an intercept and a slope each, around common ones. Noisy sums by group, of answers,
of answers times covariate and of squares, each with a third of the budget; or answers behind randomized
response, in a logistic regression. Steps: what `pm.sample` chooses by itself, trajectories, and NUTS beside
imputation. Then areas of 20 people with laws that have no slopes to follow.
"""

import numpy as np
import pymc as pm
import pytensor.tensor as pt

import pymc_dp as dp
from benchmarks import measure

PEOPLE, LOW, HIGH, TARGET = 50, -3.0, 5.0, 50.0
NAMES = ["ma", "ta", "mb", "tb", "a", "b"]


def effects(groups: int) -> tuple[pt.TensorVariable, pt.TensorVariable]:
    """Intercepts and slopes, and what they are around."""
    ma, ta = pm.Normal("ma", 0, 2), pm.HalfNormal("ta", 1)
    mb, tb = pm.Normal("mb", 0, 2), pm.HalfNormal("tb", 1)
    return pm.Normal("a", ma, ta, shape=groups), pm.Normal("b", mb, tb, shape=groups)


def sums(groups: int, epsilon: float) -> tuple[pm.Model, list[str]]:
    """Normal answers behind noisy sums by group."""
    rng = np.random.default_rng(1)
    group = np.repeat(np.arange(groups), PEOPLE)
    x = rng.normal(size=group.size)
    bounded = np.clip(x, -2, 2)
    answers = rng.normal(1, 0.5, groups)[group] + rng.normal(0.5, 0.3, groups)[group] * x
    clipped = np.clip(rng.normal(answers, 0.7), LOW, HIGH)
    scales = [3 * (HIGH - LOW) / epsilon, 3 * 20 / epsilon, 3 * 25 / epsilon]
    released = [
        np.bincount(group, values) + rng.laplace(0, scale, groups)
        for values, scale in zip((clipped, clipped * bounded, clipped**2), scales, strict=True)
    ]
    with pm.Model() as model:
        a, b = effects(groups)
        s = pm.HalfNormal("s", 1)
        y = dp.clamp(pm.Normal("y", a[group] + b[group] * x, s, shape=group.size), LOW, HIGH)
        for k, (values, scale) in enumerate(zip((y, y * bounded, y**2), scales, strict=True)):
            query = pt.zeros(groups)[group].inc(values)
            dp.LaplaceMechanism(f"z{k}", query, scale=scale, observed=released[k])
    return model, [*NAMES, "s"]


def answers(groups: int, epsilon: float) -> tuple[pm.Model, list[str]]:
    """Logistic regression with an answer each behind randomized response."""
    rng = np.random.default_rng(1)
    group = np.repeat(np.arange(groups), PEOPLE)
    x = rng.normal(size=group.size)
    at = rng.normal(0.3, 0.7, groups)[group] + rng.normal(0.8, 0.4, groups)[group] * x
    said = rng.random(group.size) < 1 / (1 + np.exp(-at))
    said ^= rng.random(group.size) < 1 / (1 + np.exp(epsilon))
    with pm.Model() as model:
        a, b = effects(groups)
        y = pm.Bernoulli("y", logit_p=a[group] + b[group] * x, shape=group.size)
        dp.RandomizedResponse("z", y, epsilon=epsilon, observed=said.astype(int))
    return model, NAMES


def areas(law: str) -> tuple[pm.Model, list[str]]:
    """Counts or amounts of people in 45 areas, behind a noisy clamped sum of each."""
    rng = np.random.default_rng(0)
    area = np.repeat(np.arange(45), 20)
    clipped = np.clip(rng.poisson(np.exp(rng.normal(1, 0.4, 45))[area]), 0, 15)
    released = np.bincount(area, clipped) + rng.laplace(0, 15, 45)
    with pm.Model() as model:
        mu, tau = pm.Normal("mu", 0, 2), pm.HalfNormal("tau", 1)
        a = pm.Normal("a", mu, tau, shape=45)
        if law == "Poisson":
            x = pm.Poisson("x", pt.exp(a[area]), shape=area.size)
        else:
            x = pm.Gamma("x", 2.0, 2 / pt.exp(a[area]), shape=area.size)
        query = pt.zeros(45)[area].inc(dp.clamp(x, 0, 15))
        dp.LaplaceMechanism("z", query, scale=15.0, observed=released)
    return model, ["mu", "tau", "a"]


def main(quick: bool = False) -> None:
    table = measure.table(
        "Hierarchies: effective draws of the worst parameter per CPU second after tuning",
        "model", "parameters", "epsilon", "pymc_dp", "target", "met", "R-hat", "ms per draw",
        "with tuning, build", "trajectories", "NUTS beside imputation", "R-hat of that",
    )  # fmt: skip
    draws, tune = (300, 300) if quick else (2000, 1000)
    cases = [(sums, 40, 1.0)] if quick else [
        *((sums, groups, epsilon) for groups in (40, 98) for epsilon in (1.0, 10.0)),
        *((answers, 40, epsilon) for epsilon in (1.0, 10.0)),
    ]  # fmt: skip
    for build, groups, epsilon in cases:
        model, names = build(groups, epsilon)
        ours = measure.sample(model, names, draws, tune)
        with model:
            followed = [dp.AncillaryUpdate(update="hamiltonian"), dp.RecordImputation()]
            step = [dp.RecordImputation()]
        trajectories = measure.sample(model, names, draws, tune, step=followed)
        nuts = measure.sample(model, names, draws, tune, step=step)
        table.add_row(
            build.__name__,
            str(sum(model.initial_point()[model.rvs_to_values[model[n]].name].size for n in names)),
            f"{epsilon:g}",
            f"{ours.rate:.0f}",
            f"{TARGET:g}",
            measure.verdict(ours.rate, TARGET),
            f"{ours.extra['R-hat']:.3f}",
            f"{ours.seconds / ours.draws * 1e3:.1f}",
            f"{ours.worst / ours.total:.0f}",
            f"{trajectories.rate:.0f}",
            f"{nuts.rate:.1f}",
            f"{nuts.extra['R-hat']:.3f}",
        )
    measure.show(table, "hierarchy")

    table = measure.table(
        "Areas with laws that have no slopes: effective draws of the worst parameter per CPU second",
        "law", "by group", "R-hat", "NUTS beside imputation", "R-hat of that",
    )  # fmt: skip
    for law in ("Poisson", "Gamma"):
        model, names = areas(law)
        ours = measure.sample(model, names, draws, tune)
        with model:
            step = [dp.RecordImputation()]
        nuts = measure.sample(model, names, draws, tune, step=step)
        table.add_row(
            law, f"{ours.rate:.1f}", f"{ours.extra['R-hat']:.3f}", f"{nuts.rate:.1f}",
            f"{nuts.extra['R-hat']:.3f}",
        )  # fmt: skip
    measure.show(table, "hierarchy_areas")


if __name__ == "__main__":
    main()
