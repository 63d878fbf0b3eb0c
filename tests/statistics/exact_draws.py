"""Draws beside exact answers: ways of sampling a case, errors in standard errors, what is rejected."""

from __future__ import annotations

import arviz as az
import numpy as np
import pymc as pm
from scipy import special

import pymc_dp as dp

# One quantity in 2,000 would be rejected by chance, of some hundred.
ALPHA = 1e-5


def defaults(model):
    return {}


def records_alone(model):
    """Whole numbers by PyMC's own steps, parameters by NUTS: all given the records."""
    return {"step": [dp.RecordImputation(model=model)]}


def draws_of(case, how, seed, draws=2000):
    """Posterior of a case with a function ``build``."""
    with case.build() as model:
        return pm.sample(
            draws, tune=1000, chains=2, cores=1, random_seed=seed, progressbar=False, quiet=True,
            compute_convergence_checks=False, **how(model),
        ).posterior  # fmt: skip


def error_of(draws, expected):
    """Error of a mean in standard errors; of what never changed, a huge one unless it is what is expected."""
    sd = float(draws.std())
    effective = float(az.ess(draws.rename("x").to_dataset())["x"]) if sd else 1.0
    return (float(draws.mean()) - expected) / max(sd, 1e-12) * np.sqrt(effective)


def rejected(found):
    limit = np.sqrt(2) * special.erfcinv(ALPHA)
    return {name: z for name, z in found.items() if not abs(z) <= limit}
