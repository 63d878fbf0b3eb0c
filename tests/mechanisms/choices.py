"""Chains of record sweeps beside enumerated posteriors, for mechanisms of whole statistics."""

import itertools

import numpy as np
from scipy.special import logsumexp

import pymc_dp as dp
from tests.statistics.drive import record_sweeps
from tests.statistics.harness import worst_frequency


def enumerated(model, release, values, log_prior):
    """Exact posterior of records with finite support, one number each: {record values: probability}."""
    # in Python: compiling a density takes longer than its values at all combinations
    fn = model.compile_fn(
        model.logp(vars=[model[release]]), inputs=[model.rvs_to_values[model["y"]]], mode="FAST_COMPILE"
    )
    dtype, n = model["y"].dtype, model["y"].type.shape[0]
    combinations = list(itertools.product(range(len(values)), repeat=n))
    logs = [
        float(fn({"y": np.array([values[k] for k in c], dtype=dtype)})) + sum(log_prior[k] for k in c)
        for c in combinations
    ]
    return combinations, np.exp(np.array(logs) - logsumexp(logs))


def visited(model, values, draws):
    """Records along a chain of record sweeps, as indices into their values; and the lowest acceptance."""
    with model:
        step = dp.RecordImputation(proposals="independence")
    seen, lowest = record_sweeps(step, model, "y", draws)
    return np.searchsorted(values, seen), lowest


def worst_deviation(seen, combinations, exact):
    """Largest deviation of a frequency from its exact value, in standard errors."""
    code = {c: i for i, c in enumerate(combinations)}
    at = np.array([code[tuple(row)] for row in seen.tolist()])
    hit = (at[:, None] == np.arange(len(combinations))).astype(float)
    return worst_frequency(hit, exact, batches=50)
