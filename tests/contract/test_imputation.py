"""Confidential records imputed under every mechanism, beside enumeration."""

import itertools
import math

import numpy as np
import pymc as pm
import pytest
import scipy.stats as st
from scipy.special import betaln, comb, logsumexp

import pymc_dp as dp
from tests.contract.form import release_logp
from tests.contract.table import ROWS, counted_imputation, each_imputation
from tests.statistics.drive import record_sweeps
from tests.statistics.harness import worst_frequency

PARAMETER = (2.0, 3.0)


def model_of(row, imputation, **kwargs):
    return row.model(imputation, imputation.observed, **(row.noise | imputation.noise), **kwargs)


def posterior_table(model, imputation):
    """Exact probabilities of the records' cells: (n, cells), or over all combinations."""
    x, prior, cell = imputation.points()
    logp, n, size = release_logp(model), imputation.n, cell.max() + 1
    if imputation.rows_apart:
        out = np.zeros((n, size))
        for i in range(n):
            at = np.full((len(x), n), x[0])
            at[:, i] = x
            weights = np.log(prior) + logp(at)
            np.add.at(out[i], cell, np.exp(weights - logsumexp(weights)))
        return out
    out = np.zeros((size,) * n)
    combinations = np.array(list(itertools.product(range(len(x)), repeat=n)))
    weights = logp(x[combinations]) + np.log(prior[combinations]).sum(axis=1)
    np.add.at(out, tuple(cell[combinations].T), np.exp(weights - logsumexp(weights)))
    return out


def visited(step, model, imputation):
    """Cells of the records along a chain of record sweeps (draws, n), and the lowest acceptance."""
    x, lowest = record_sweeps(step, model, "x", 8000)
    if imputation.top is None:
        x = np.floor(8 * st.norm.cdf(x, 0.4, 0.5))
    return x.astype(int), lowest


@each_imputation
@pytest.mark.filterwarnings("ignore:The query of z is no sum over records")
def test_records_follow_their_posterior(row, imputation):
    model = model_of(row, imputation)
    exact = posterior_table(model, imputation)
    promise = model["z"].owner.op.guarantee
    tried = []
    for proposals in ("auto", "independence"):
        with model:
            step = dp.RecordImputation(proposals=proposals)
        moves = [move.name for chain in step.chains for move in chain.moves]
        if moves in tried:
            continue
        tried.append(moves)
        x, lowest = visited(step, model, imputation)
        if imputation.rows_apart:
            cells = np.hstack([x[:, [i]] == np.arange(exact.shape[1]) for i in range(imputation.n)])
        else:
            cells = np.ravel_multi_index(x.T, exact.shape)[:, None] == np.arange(exact.size)
        assert worst_frequency(cells.astype(float), exact.ravel()) < 5.0, moves
        if moves == ["independence"] and imputation.honest and promise is not None and promise.is_pure:
            assert lowest >= math.exp(-promise.epsilon) * (1 - 1e-9)


def test_the_comparison_sees_other_noise():
    """Records imputed under one scale do not pass for those of another."""
    # little noise, so that the records' posterior depends on how little
    row = next(row for row in ROWS if row.mechanism is dp.DiscreteLaplaceMechanism and "scale" in row.noise)
    imputation = row.imputations[0]
    model = model_of(row, imputation)
    with model:
        x, _ = visited(dp.RecordImputation(), model, imputation)
    for factor, low, high in ((1.0, 0.0, 5.0), (1.25, 5.0, math.inf)):
        other = row.model(imputation, imputation.observed, scale=factor * row.native["scale"])
        exact = posterior_table(other, imputation)
        cells = np.ravel_multi_index(x.T, exact.shape)[:, None] == np.arange(exact.size)
        assert low <= worst_frequency(cells.astype(float), exact.ravel()) < high


@counted_imputation
@pytest.mark.statistical
@pytest.mark.filterwarnings("ignore:The query of z is no sum over records")
def test_parameter_follows_its_posterior(row, imputation):
    """All that pm.sample does by itself, beside the exact mixture of Beta laws."""
    with model_of(row, imputation, p=lambda: pm.Beta("p", *PARAMETER)):
        idata = pm.sample(
            2000, tune=500, chains=2, cores=1, random_seed=4, progressbar=False,
            compute_convergence_checks=False,
        )  # fmt: skip
    a, b = PARAMETER
    logp, n, top = release_logp(model_of(row, imputation)), imputation.n, imputation.top
    rows = np.array(list(itertools.product(range(top + 1), repeat=n)))
    k, ways = rows.sum(axis=1), np.log(comb(top, rows)).sum(axis=1)
    laws = list(zip(a + k, b + n * top - k, strict=True))
    weights = logp(rows) + ways + betaln(a + k, b + n * top - k)
    w = np.exp(weights - logsumexp(weights))
    draws = idata.posterior["p"].values
    for power in (1, 2):
        exact = sum(v * st.beta.moment(power, *law) for v, law in zip(w, laws, strict=True))
        x = draws**power
        error = x.std() / math.sqrt(float(pm.stats.ess(x)))
        assert abs(x.mean() - exact) < 5 * error
