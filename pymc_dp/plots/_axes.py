"""Axes of a new figure, for plots that are not told where to go."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D


def new_axes(rows: int = 1, size: tuple[float, float] | None = None) -> np.ndarray:
    """Return the axes of a new figure, one above the other."""
    # imported when it is needed: it takes as long as PyMC itself
    import matplotlib.pyplot as plt

    size = (6.4, 3.0 + 1.8 * (rows - 1)) if size is None else size
    axes = plt.subplots(rows, sharex=True, squeeze=False, figsize=size, layout="constrained")[1]
    flat: np.ndarray = axes[:, 0]
    return flat


def fit_to(ax: Axes, line: Line2D, ends: bool = True) -> None:
    """Let axes begin at zero and, if asked, end with a line, until something larger is drawn on them.

    Limits that are set would cut off what users draw on the axes afterwards, such as a histogram.
    """
    x = np.asarray(line.get_xdata(), dtype=float)
    ax.update_datalim([(float(np.min(x)), 0.0)])
    line.sticky_edges.y.append(0.0)
    if ends:
        line.sticky_edges.x.extend([float(np.min(x)), float(np.max(x))])
    ax.autoscale_view()
