"""Posteriors of small tables and of their parameters, by enumeration of all tables.

What a table is worth with its parameters integrated out is the model's own density at any parameters, less
that of the parameters given the table, which is written by hand for each model. The same draws are wrong if
parameters are drawn from counts of the draw before, from too many counts, or without their prior.
"""

from __future__ import annotations

from functools import cache

import arviz as az
import numpy as np
import pymc as pm
import pytest

import pymc_dp as dp
from tests.statistics.drive import TRANSFORMS
from tests.tables.parameter_models import CASES


def natural(model, point):
    """Values of a point in the space of the variables."""
    found = {}
    for rv in model.free_RVs:
        transform = model.rvs_to_transforms.get(rv)
        backward = TRANSFORMS[None if transform is None else transform.name][1]
        found[rv.name] = backward(np.asarray(point[model.rvs_to_values[rv].name]))
    return found


@cache
def enumerated(name):
    """Return moments of cells and parameters, and of their products; names of counts and parameters."""
    case = CASES[name]
    model = case.build()
    point = model.initial_point()
    counts = [rv.name for rv in model.free_RVs if rv.name in ("a", "b", "c") and rv.dtype == "int64"]
    shapes = [point[n].shape for n in counts]
    ends = np.cumsum([int(np.prod(s)) for s in shapes])[:-1]
    grid = [{}] if case.grid is None else [{k: np.asarray(v)} for k, vs in case.grid.items() for v in vs]
    tables = case.tables()
    # where few are asked for, densities are evaluated in Python: compiling them would take longer
    logp = model.compile_logp(mode="FAST_COMPILE" if len(tables) * len(grid) < 5000 else None)
    # parameters are the same at all tables
    parameters = [
        {name: value for name, value in natural(model, {**point, **at}).items() if name not in counts}
        for at in grid
    ]
    weights, means, squares = np.empty((len(tables), len(grid))), [], []
    for i, table in enumerate(tables):
        parts = np.split(table, ends)
        of = {n: part.reshape(shape) for n, part, shape in zip(counts, parts, shapes, strict=True)}
        for j, at in enumerate(grid):
            values = parameters[j]
            laws = case.given(of, **values)
            # in natural space: the Jacobian is the same for all tables
            weights[i, j] = logp({**point, **of, **at}) - sum(
                law.logpdf(values[n]) for n, law in laws.items()
            )
            if not i and not j:
                names = list(laws)
            moments = [laws[n].moments() for n in names]
            means.append(np.concatenate([np.ravel(m) for m, _ in moments]))
            squares.append(np.concatenate([np.ravel(s) for _, s in moments]))
    probability = np.exp(weights - weights.max())
    probability /= probability.sum()
    shape = (*probability.shape, -1)
    means, squares = np.array(means).reshape(shape), np.array(squares).reshape(shape)
    return (
        {
            "cells": np.einsum("ij,ik->k", probability, tables),
            "cells squared": np.einsum("ij,ik->k", probability, tables**2),
            "parameters": np.einsum("ij,ijk->k", probability, means),
            "parameters squared": np.einsum("ij,ijk->k", probability, squares),
            "products": np.einsum("ij,ijk,il->kl", probability, means, tables).ravel(),
        },
        counts,
        names,
    )


def worst(name, draws=2000, step=None):
    """Return the largest error of a moment, in standard errors, and which it is."""
    exact, counts, names = enumerated(name)
    model = CASES[name].build()
    idata = pm.sample(
        model=model, draws=draws, tune=500, chains=2, cores=1, random_seed=5, progressbar=False, quiet=True,
        compute_convergence_checks=False, step=None if step is None else step(model),
    )  # fmt: skip
    cells, parameters = (
        np.concatenate([idata.posterior[n].values.reshape(2, draws, -1) for n in of], axis=-1).astype(float)
        for of in (counts, names)
    )
    products = (parameters[..., :, None] * cells[..., None, :]).reshape(2, draws, -1)
    found = {
        "cells": cells, "cells squared": cells**2, "parameters": parameters,
        "parameters squared": parameters**2, "products": products,
    }  # fmt: skip
    errors = {}
    for what, seen in found.items():
        for k in range(seen.shape[-1]):
            if seen[..., k].std() > 0:
                error = abs(seen[..., k].mean() - exact[what][k]) / float(az.mcse(seen[..., k]))
                errors[what, k] = error
    return max((error, where) for where, error in errors.items())


@pytest.mark.statistical
@pytest.mark.parametrize("name", CASES)
def test_enumerated(name):
    error, where = worst(name)
    assert error < 4.5, where


@pytest.mark.statistical
def test_enumerated_given_the_counts():
    """Counts and parameters by two steps, each given the other."""

    def apart(model):
        with model:
            return [dp.TableImputation([model["c"]]), dp.TableImputation([model["p"]])]

    assert worst("rows of probabilities", step=apart)[0] < 4.5
