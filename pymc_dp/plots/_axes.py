"""Axes of a new figure, for plots that are not told where to go."""

from __future__ import annotations

import numpy as np


def new_axes(rows: int = 1, size: tuple[float, float] | None = None) -> np.ndarray:
    """Return the axes of a new figure, one above the other."""
    # imported when it is needed: it takes as long as PyMC itself
    import matplotlib.pyplot as plt

    size = (6.4, 3.0 + 1.8 * (rows - 1)) if size is None else size
    axes = plt.subplots(rows, sharex=True, squeeze=False, figsize=size, layout="constrained")[1]
    flat: np.ndarray = axes[:, 0]
    return flat
