"""Draws of a random mixture's density on a grid: one for each draw of labels and atoms."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from pymc_dp.stats._draws import stacked, values_of
from pymc_dp.stats._predictive import PredictiveMixture
from pymc_dp.stats._weights import draw_weights, expected_weights

# Number of atoms from the base measure per draw for the expected density; more of them make it smoother.
_ATOMS_FOR_MEAN = 4


@dataclass(frozen=True)
class State:
    """The state of a mixture in one draw.

    Attributes
    ----------
    sizes : ndarray of int, shape (k,)
        Number of records in each occupied slot.
    atoms : list of ndarray, shape (k, ...)
        The atoms of these slots.
    parameters : list of ndarray
        All other parameters that the laws of the mixture depend on.
    """

    sizes: np.ndarray
    atoms: list[np.ndarray]
    parameters: list[np.ndarray]


def posterior_states(mixture: PredictiveMixture, posterior: xr.Dataset) -> Iterator[State]:
    """Iterate over the draws of labels, atoms and parameters."""
    own = mixture.mixture
    labels = stacked(posterior[str(own.labels.name)])
    if labels.dtype.kind not in "iu" or labels.shape[1:] != (own.n,):
        raise ValueError(
            f"idata.posterior has {own.labels.name} of shape {labels.shape[1:]} and dtype {labels.dtype}, "
            f"the model has {own.n} labels: pass the draws of this model."
        )
    if labels.min() < 0 or labels.max() >= own.max_components:
        raise ValueError(
            f"idata.posterior has values of {own.labels.name} that are no slots of the model, 0 to "
            f"{own.max_components - 1}: pass the draws of this model."
        )
    atoms = [values_of(posterior, rv) for rv in own.atoms]
    parameters = [values_of(posterior, rv) for rv in mixture.hyperparameters]
    for i in range(len(labels)):
        counts = np.bincount(labels[i], minlength=own.max_components)
        slots = np.flatnonzero(counts)
        yield State(counts[slots], [a[i][slots] for a in atoms], [p[i] for p in parameters])


def prior_states(mixture: PredictiveMixture, seed: Any, size: int) -> Iterator[State]:
    """Iterate over draws of the parameters from the prior, as states without records."""
    for parameters in mixture.prior(seed, size):
        yield State(np.empty(0, np.int64), [], parameters)


def density_draws(
    mixture: PredictiveMixture,
    states: Iterator[State],
    rng: np.random.Generator,
    tolerance: float,
) -> tuple[np.ndarray, np.ndarray, float]:
    """Draw weights and the atoms of further components given each state, and evaluate the mixture's density.

    Returns
    -------
    draws : ndarray, shape (draws, points)
    mean : ndarray, shape (points,)
        Average over states of the expected density given labels and occupied atoms.
    undivided : float
        The largest weight over all draws that was left for one last component.
    """
    draws, total, undivided = [], np.zeros(len(mixture.grid)), 0.0
    for state in states:
        concentration, discount = mixture.urn(state.parameters)
        occupied, others, left = draw_weights(rng, state.sizes, concentration, discount, tolerance)
        undivided = max(undivided, left)
        mean_occupied, mean_others = expected_weights(state.sizes, concentration, discount)
        k, m = len(occupied), max(len(others), _ATOMS_FOR_MEAN) if mean_others > 0 else 0
        atoms = state.atoms
        if m:
            fresh = mixture.base(state.parameters, m)
            atoms = [np.concatenate(pair) for pair in zip(atoms, fresh, strict=True)] if k else fresh
        densities = mixture.kernel(atoms, state.parameters, k)
        draws.append(np.concatenate([occupied, others]) @ densities[: k + len(others)])
        total += mean_occupied @ densities[:k]
        if m:
            total += mean_others * densities[k:].mean(axis=0)
    return np.array(draws), total / len(draws), undivided
