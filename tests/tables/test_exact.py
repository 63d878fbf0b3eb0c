"""Posteriors of small tables, by enumeration of all tables of counts (and of a grid of a parameter)."""

from functools import cache

import arviz as az
import numpy as np
import pymc as pm
import pytest

from tests.tables.models import CASES


@cache
def enumerated(name):
    """Return every table with its probability, by the model's own density."""
    case = CASES[name]
    model = case.build()
    tables = [rv for rv in model.free_RVs if rv.name in ("a", "b", "c")]
    shapes = [tuple(model.eval_rv_shapes()[rv.name]) for rv in tables]
    n_cells = sum(int(np.prod(s)) for s in shapes)
    logp = model.compile_logp()
    every = np.indices((case.largest + 1,) * n_cells, dtype=np.int16).reshape(n_cells, -1)
    found, weights = every[:, _possible(name, every)].T.astype(np.int64), []
    for cells in found:
        point, at = {}, 0
        for rv, shape in zip(tables, shapes, strict=True):
            size = int(np.prod(shape))
            point[model.rvs_to_values[rv].name] = cells[at : at + size].reshape(shape)
            at += size
        if case.grid is None:
            values = [logp(point)]
        else:
            ((value, grid),) = case.grid.items()
            values = [logp({**point, value: np.asarray(v)}) for v in grid]
        weights.append(np.logaddexp.reduce(values))
    weights = np.array(weights)
    probabilities = np.exp(weights - weights.max())
    return found, probabilities / probabilities.sum()


def _possible(name, c):
    """Which tables (cells, tables) can be at all, to leave the others out of the enumeration."""
    conditions = {
        "multinomial with sums": lambda: [sum(c) == 8],
        "multinomial with an exact part": lambda: [sum(c) == 6, c[1] + c[2] == 2],
        "cube with two exact margins": lambda: [
            sum(c[:4]) == 5, sum(c[4:]) == 5, c[0] + c[1] + c[4] + c[5] == 4,
        ],
        "whole coefficients": lambda: [2 * c[0] + 3 * c[1] + 5 * c[2] == 20],
        "zero diagonal with both margins": lambda: [c[k] == 0 for k in (0, 4, 8)] + _twos(c),
        "binomial counts": lambda: [sum(c) == 11],
        "dirichlet multinomial rows": lambda: [sum(c[:3]) == 5, sum(c[3:]) == 3],
        "two tables in one release": lambda: [sum(c[:3]) == 4],
        "probabilities that are not known": lambda: [sum(c) == 6],
        "cells of zero that leave one cycle": lambda: [c[k] == 0 for k in (2, 3, 7)] + _twos(c),
        "counts of an observed total": lambda: [sum(c) == 7],
        "crossed margins": lambda: [sum(c) <= 16],
    }  # fmt: skip
    return np.all(conditions.get(name, lambda: [c[0] >= 0])(), axis=0)


def _twos(c):
    """That rows and columns of a table of three by three add up to two."""
    return [sum(part) == 2 for k in range(3) for part in (c[3 * k : 3 * k + 3], c[k::3])]


@pytest.mark.statistical
@pytest.mark.parametrize("name", CASES)
def test_enumerated(name):
    tables, probabilities = enumerated(name)
    model = CASES[name].build()
    idata = pm.sample(
        model=model, draws=2000, tune=500, chains=2, cores=1, random_seed=5, progressbar=False, quiet=True,
        compute_convergence_checks=False,
    )  # fmt: skip
    assert "table_acceptance" in idata.sample_stats
    names = [v for v in ("a", "b", "c") if v in idata.posterior]
    draws = np.concatenate([idata.posterior[v].values.reshape(2, 2000, -1) for v in names], axis=-1)
    for what, of in (("mean", lambda x: x), ("zero", lambda x: x == 0), ("square", lambda x: x * x)):
        exact = probabilities @ of(tables)
        ours = of(draws).astype(float)
        moving = ours.std(axis=(0, 1)) > 0
        np.testing.assert_allclose(ours.mean(axis=(0, 1))[~moving], exact[~moving], atol=2e-3)
        for k in np.flatnonzero(moving):
            error = float(az.mcse(ours[..., k]))
            assert abs(ours[..., k].mean() - exact[k]) < 4.5 * error + 1e-6, (what, k)
