"""Simulated releases: draws from the prior, and the posteriors that an analyst would compute from them."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable

from pymc_dp.lowering.addresses.modes import default_mode


def _again(rv: TensorVariable) -> TensorVariable:
    """Return a second release of the same query, without what is done to it after the noise."""
    node = rv.owner
    return node.op.unprocessed.make_node(pt.random.shared_rng(seed=None), *node.inputs[1:]).outputs[1]


def simulate(
    releases: list[TensorVariable],
    parameters: list[TensorVariable],
    n_prior: int,
    n_kept: int,
    seed: int,
) -> tuple[list[dict[str, np.ndarray]], dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Draw from the prior; return the first releases, the parameters, and moments of noisy releases."""
    # moments are those of noisy values: of published ones, suppressed entries have none
    firsts = [rv if rv.owner.op.unprocessed is rv.owner.op else _again(rv) for rv in releases]
    outputs = [*releases, *firsts, *(_again(rv) for rv in releases), *parameters]
    draw = pm.compile([], outputs, random_seed=seed, mode=default_mode())
    kept: list[dict[str, np.ndarray]] = []
    prior: dict[str, list[np.ndarray]] = {str(rv.name): [] for rv in parameters}
    moments: dict[str, np.ndarray] = {}
    for step in range(max(n_prior, n_kept)):
        values = [np.asarray(v) for v in draw()]
        if step < n_kept:
            kept.append({str(rv.name): v for rv, v in zip(releases, values, strict=False)})
        for rv, v in zip(parameters, values[3 * len(releases) :], strict=True):
            prior[str(rv.name)].append(v)
        each = (values[len(releases) :], values[2 * len(releases) :])
        for rv, first, second in zip(releases, *each, strict=False):
            one, two = (_numbers(rv, v) for v in (first, second))
            terms = np.array([one, one * one, (one - two) ** 2 / 2, np.ones_like(one)])
            moments[str(rv.name)] = moments.get(str(rv.name), 0) + terms
    return kept, {name: np.array(v) for name, v in prior.items()}, moments


def _numbers(rv: TensorVariable, value: np.ndarray) -> np.ndarray:
    """Return a release as numbers whose standard deviation has a meaning; categories become indicators."""
    k = getattr(rv.owner.op, "n_answers", None)
    if k is not None:
        return (value[..., None] == np.arange(k)).astype(float)
    return value.astype(float)


def deviations(moments: np.ndarray) -> tuple[float, float]:
    """Return the standard deviations of the noise, and of the statistic without noise."""
    total, squares, noise, count = moments
    variance = (squares / count - (total / count) ** 2) * count / (count - 1)
    noise_variance = float(np.mean(noise / count))
    return math.sqrt(noise_variance), math.sqrt(max(float(np.mean(variance)) - noise_variance, 0.0))


def posterior(model: pm.Model, draws: int, tune: int, seed: int) -> Any:
    with _quiet():
        return pm.sample(
            draws=draws,
            tune=tune,
            chains=1,
            cores=1,
            model=model,
            random_seed=seed,
            progressbar=False,
            compute_convergence_checks=False,
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the messages that PyMC logs for every short chain."""
    logger = logging.getLogger("pymc")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
