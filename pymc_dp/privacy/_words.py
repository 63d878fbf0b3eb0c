"""Guarantees in words."""

from __future__ import annotations

import math


def in_words(items: list[str]) -> str:
    """Join items as in a sentence: "a", "a and b", "a, b and c"."""
    return " and ".join(filter(None, [", ".join(items[:-1]), items[-1]]))


def statements(
    epsilon: float,
    delta: float,
    rho: float | None,
    mu: float | None,
    renyi: tuple[tuple[float, float], ...],
) -> list[str]:
    """Say each part of a guarantee in a few words."""
    parts = []
    if delta == 0 and math.isfinite(epsilon):
        parts.append(f"pure differential privacy with epsilon = {epsilon:g}")
    elif math.isfinite(epsilon):
        parts.append(f"approximate differential privacy with epsilon = {epsilon:g} and delta = {delta:g}")
    if rho is not None:
        parts.append(f"zero-concentrated differential privacy with rho = {rho:g}")
    if mu is not None:
        parts.append(f"Gaussian differential privacy with mu = {mu:g}")
    ends = [f"{bound:g} at order {order:g}" for order, bound in renyi]
    if len(ends) == 1:
        parts.append(f"Renyi differential privacy with divergence = {ends[0]}")
    elif ends:
        parts.append(
            f"Renyi differential privacy at {len(ends)} orders, with divergences from {ends[0]} to {ends[-1]}"
        )
    return parts
