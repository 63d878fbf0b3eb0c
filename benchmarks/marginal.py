"""Local models with their records integrated out, beside imputation of the records.

Effective draws of the worst parameter per CPU second, draws after tuning. First NUTS on
`dp.marginalize(model)`; then the same model with latent records, `RecordImputation` for them and NUTS for the
parameters given them; then what `pm.sample` chooses by itself for it. The last column says how far apart the
posterior means of the first and the last are, in Monte Carlo errors of their difference.
"""

import time

import arviz as az
import numpy as np
import pymc as pm

import pymc_dp as dp
from benchmarks import measure


def normal(n: int, epsilon: float) -> pm.Model:
    rng = np.random.default_rng(1)
    noise = {"epsilon": epsilon, "bounds": (-4, 4)}
    released = pm.draw(dp.LaplaceMechanism.dist(rng.normal(0.5, 1, n), **noise), random_seed=1)
    with pm.Model() as model:
        mu, sigma = pm.Normal("mu", 0, 2), pm.HalfNormal("sigma", 2)
        y = pm.Normal("y", mu, sigma, shape=n)
        dp.LaplaceMechanism("z", y, observed=released, **noise)
    return model


def regression(n: int, epsilon: float) -> pm.Model:
    rng = np.random.default_rng(2)
    x = rng.normal(size=n)
    noise = {"epsilon": epsilon, "delta": 1e-6, "bounds": (-4, 4)}
    values = 0.5 + x + rng.normal(size=n)
    released = pm.draw(dp.GaussianMechanism.dist(values, **noise), random_seed=2)
    with pm.Model() as model:
        a, slope = pm.Normal("a", 0, 2), pm.Normal("slope", 0, 2)
        sigma = pm.HalfNormal("sigma", 2)
        y = pm.Normal("y", a + slope * x, sigma)
        dp.GaussianMechanism("z", y, observed=released, **noise)
    return model


def categories(n: int, epsilon: float) -> pm.Model:
    rng = np.random.default_rng(3)
    noise = {"epsilon": epsilon, "n_categories": 8}
    values = rng.choice(8, n, p=rng.dirichlet(np.full(8, 2.0)))
    released = pm.draw(dp.RandomizedResponse.dist(values, **noise), random_seed=3)
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.ones(8))
        c = pm.Categorical("y", p, shape=n)
        dp.RandomizedResponse("z", c, observed=released, **noise)
    return model


FAMILIES = {
    "normal, Laplace, clamped": normal,
    "regression, Gaussian, clamped": regression,
    "8 categories": categories,
}


def run(model: pm.Model, draws: int, tune: int, step: bool = False) -> tuple[measure.Run, dict]:
    """Sample; also return the posterior means with their errors."""
    names = [v.name for v in model.free_RVs if v.name != "y"]
    clock, start = measure.DrawClock(), time.process_time()
    with model:
        steps = None
        if step:
            steps = [dp.RecordImputation(), pm.NUTS([model[name] for name in names])]
        idata = pm.sample(
            draws,
            tune=tune,
            chains=2,
            cores=1,
            step=steps,
            var_names=names,
            nuts_sampler="pymc",
            random_seed=1,
            progressbar=False,
            quiet=True,
            compute_convergence_checks=False,
            callback=clock,
        )
    total = time.process_time() - start
    worst = measure.worst_ess(idata.posterior, names)
    summary = {}
    for name in names:
        values = idata.posterior[name].values
        ess = np.atleast_1d(az.ess(idata.posterior.to_dataset()[[name]])[name].values)
        flat = values.reshape(values.shape[0] * values.shape[1], -1)
        summary[name] = flat.mean(axis=0), flat.std(axis=0) / np.sqrt(ess.ravel())
    return measure.Run(worst, clock.draws, clock.seconds, total), summary


def main(quick: bool = False) -> None:
    table = measure.table(
        "Records integrated out: effective draws of the worst parameter per CPU second",
        "model", "n", "epsilon", "marginal", "imputation, NUTS", "pm.sample", "marginal / imputation",
        "marginal / choice", "largest difference of means, in errors",
    )  # fmt: skip
    n, draws, tune = (500, 100, 100) if quick else (10_000, 300, 300)
    for name, build in FAMILIES.items():
        for epsilon in (1.0,) if quick else (1.0, 16.0):
            model = build(n, epsilon)
            ours, means = run(dp.marginalize(model, "y"), draws, tune)
            imputed, _ = run(model, draws, tune, step=True)
            chosen, others = run(model, draws, tune)
            errors = [np.abs(m - others[k][0]) / np.hypot(e, others[k][1]) for k, (m, e) in means.items()]
            apart = max(float(np.max(error)) for error in errors)
            table.add_row(
                name,
                f"{n:,}",
                f"{epsilon:g}",
                f"{ours.rate:.3g}",
                f"{imputed.rate:.3g}",
                f"{chosen.rate:.3g}",
                f"{ours.rate / imputed.rate:.3g}",
                f"{ours.rate / chosen.rate:.3g}",
                f"{apart:.1f}",
            )
    measure.show(table, "marginal")


if __name__ == "__main__":
    main()
