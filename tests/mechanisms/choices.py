"""Chains of record sweeps beside enumerated posteriors, for mechanisms of whole statistics."""

import itertools
import math

import numpy as np
from scipy.special import logsumexp

import pymc_dp as dp


def enumerated(model, release, values, log_prior):
    """Exact posterior of records with finite support, one number each: {record values: probability}."""
    fn = model.compile_fn(model.logp(vars=[model[release]]), inputs=[model.rvs_to_values[model["y"]]])
    dtype, n = model["y"].dtype, model["y"].type.shape[0]
    combinations = list(itertools.product(range(len(values)), repeat=n))
    logs = [
        float(fn({"y": np.array([values[k] for k in c], dtype=dtype)})) + sum(log_prior[k] for k in c)
        for c in combinations
    ]
    return combinations, np.exp(np.array(logs) - logsumexp(logs))


def visited(model, values, draws, seed=3):
    """Records along a chain of record sweeps, as indices into their values; and the lowest acceptance."""
    with model:
        step = dp.RecordImputation(proposals="independence")
    step.setup_chain(np.random.default_rng(seed), 0, draws)
    point, seen, lowest = model.initial_point(), [], 1.0
    for _ in range(draws):
        point, (stat,) = step.step(point)
        seen.append(point["y"])
        lowest = min(lowest, stat["record_acceptance_min"])
    return np.searchsorted(values, np.array(seen)), lowest


def worst_deviation(seen, combinations, exact, batches=50):
    """Largest deviation of a frequency from its exact value, in standard errors by batch means."""
    code = {c: i for i, c in enumerate(combinations)}
    at = np.array([code[tuple(row)] for row in seen.tolist()])
    hit = (at[:, None] == np.arange(len(combinations))).astype(float)
    means = hit.reshape(batches, -1, len(combinations)).mean(axis=1)
    error = np.maximum(
        means.std(axis=0, ddof=1) / math.sqrt(batches), np.sqrt(exact * (1 - exact) / len(hit)) + 1e-12
    )
    return np.max(np.abs(means.mean(axis=0) - exact) / error)
