"""Rows of tables of probabilities, whichever way a model picks them: the cells, the steps, the posterior."""

from itertools import product

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy.special import gammaln

import pymc_dp as dp
from pymc_dp.step_methods.sweeps.probability_cells import picked_rows
from tests.statistics import harness
from tests.steps import assigned

N, K, KINDS = 6, 3, 2
GROUP = np.arange(N) % KINDS
# By name: how the probabilities of N people are written, of a table for all or one with a row for each group.
OF_ALL = {
    "itself": lambda p: p,
    "deterministic": lambda p: pm.Deterministic("named", p),
    "tile": lambda p: pt.tile(p[None], (N, 1)),
    "broadcast": lambda p: pt.broadcast_to(p, (N, K)),
    "reshape": lambda p: p.reshape((1, K)),
    "column of ones": lambda p: np.ones((N, 1)) @ p[None],
}
BY_GROUP = {
    "index": lambda p: p[GROUP],
    "deterministic": lambda p: pm.Deterministic("named", p)[GROUP],
    "deterministic of the rows": lambda p: pm.Deterministic("named", p[GROUP]),
    "one-hot matrix": lambda p: np.eye(KINDS)[GROUP] @ p,
    "dot": lambda p: pt.dot(np.eye(KINDS)[GROUP], p),
    "reshape": lambda p: p.reshape((KINDS, 1, K))[GROUP, 0],
}
OTHERWISE = {
    "share of a row": lambda p: (0.5 * np.eye(KINDS)[GROUP]) @ p * 2,
    "two rows": lambda p: np.full((N, KINDS), 0.5) @ p,
    "matrix as data": lambda p: pm.Data("ones", np.eye(KINDS)[GROUP]) @ p,
    "transposed": lambda p: p.reshape((K, KINDS)).T[GROUP],
    "columns": lambda p: p[:, ::-1][GROUP],
}


def categories(rows, groups):
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.ones((KINDS, K) if groups else K))
        c = pm.Categorical("c", rows(p), shape=N)
        counts = dp.record_sum(pt.eq(c[:, None], np.arange(K)))
        dp.LaplaceMechanism("z", counts, scale=1.0, observed=[2.5, 0.0, 3.0])
    return model


WAYS = [
    *(pytest.param(rows, False, id=f"{name}, all") for name, rows in OF_ALL.items()),
    *(pytest.param(rows, True, id=f"{name}, by group") for name, rows in BY_GROUP.items()),
]


@pytest.mark.parametrize("rows, groups", WAYS)
def test_cells_that_are_picked(rows, groups):
    model = categories(rows, groups)
    cells = picked_rows(model, model["c"], model["p"])
    expected = np.arange(KINDS * K).reshape(KINDS, K)[GROUP] if groups else np.arange(K)
    assert np.array_equal(np.broadcast_to(cells.eval(), (N, K)), np.broadcast_to(expected, (N, K)))


@pytest.mark.parametrize("rows, groups", WAYS)
def test_the_step_is_the_same(rows, groups):
    assert set(assigned(categories(rows, groups)).values()) == {"ConjugateUpdate"}


@pytest.mark.parametrize("rows", OTHERWISE.values(), ids=OTHERWISE.keys())
def test_what_is_no_pick_of_rows(rows):
    model = categories(rows, True)
    assert picked_rows(model, model["c"], model["p"]) is None
    with (
        model,
        pytest.raises(ValueError, match=r"with rows of it .* or np.eye\(k\)\[index\] @ p"),
    ):
        dp.ConjugateUpdate()


@pytest.mark.parametrize("rows", BY_GROUP.values(), ids=BY_GROUP.keys())
def test_answers_of_groups_have_their_records_summed_over(rows):
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.ones((KINDS, K)))
        c = pm.Categorical("c", rows(p), shape=N)
        dp.RandomizedResponse("z", c, epsilon=1.0, observed=np.arange(N) % K)
    found = assigned(model)["p"]
    # rows of one array within another are not looked for there
    assert found == ("CollapsedUpdate" if rows is not BY_GROUP["reshape"] else "ConjugateUpdate")


def exact():
    """Means of the probabilities of two groups, given noisy counts of both together."""
    total, mean = 0.0, np.zeros((KINDS, K))
    for values in product(range(K), repeat=N):
        cells = np.zeros((KINDS, K))
        np.add.at(cells, (GROUP, np.array(values)), 1)
        noise = np.abs(cells.sum(axis=0) - [2.5, 0.0, 3.0]).sum()
        weight = np.exp(gammaln(1 + cells).sum() - noise)
        total += weight
        mean += weight * (1 + cells) / (K + cells.sum(axis=1, keepdims=True))
    return mean / total


@pytest.mark.statistical
@pytest.mark.parametrize("rows", BY_GROUP.values(), ids=BY_GROUP.keys())
def test_the_posterior_is_the_same(rows):
    idata = pm.sample(
        6000, tune=300, chains=2, cores=1, model=categories(rows, True), random_seed=1, progressbar=False,
        compute_convergence_checks=False, var_names=["p"],
    )  # fmt: skip
    draws, expected = idata.posterior["p"].values, exact()
    checks = {}
    for cell in np.ndindex(KINDS, K):
        values = draws[(..., *cell)]
        size = float(az.ess(values, method="mean"))
        assert size > 1000, cell
        checks[str(cell)] = (values.mean() - expected[cell]) / (values.std() / np.sqrt(size))
    verdict = harness.two_sample_z(checks)
    assert verdict.passed, verdict
