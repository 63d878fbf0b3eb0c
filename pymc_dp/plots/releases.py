"""Plots of releases: what they would teach, how records are accepted, tables beside what was published."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from pymc_dp.plots._axes import new_axes
from pymc_dp.privacy.release import Release

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# With more cells than this, their names are left out of a plot.
_NAMED_CELLS = 60
_MARKERS = ("x", "D", "^", "s", "v", "P")


def plot_plan(
    plans: Mapping[float, Any],
    *,
    parameters: Sequence[str] | None = None,
    relative: bool = True,
    xlabel: str = "epsilon",
    ax: Axes | None = None,
    **kwargs: Any,
) -> Axes:
    """Plot how wide posterior intervals would be, against the budget.

    Parameters
    ----------
    plans : mapping of float to Plan
        What :func:`plan` returns for some budgets, by the budget (or by whatever else is varied).
    parameters : sequence of str, optional
        Names of the parameters to show, as in the plans; all of them by default.
    relative : bool, default True
        Whether widths are given as shares of the width of the prior's interval, and not as they are.
    xlabel : str, default "epsilon"
        What is varied.
    ax : matplotlib.axes.Axes, optional
        Axes to plot on; by default those of a new figure.
    **kwargs
        Options of the lines, as for ``Axes.plot``.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    TypeError
        `plans` is no mapping of numbers to plans.
    ValueError
        `plans` is empty, or a plan has no parameter of a name.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dp as dp
    >>> def planned(epsilon):
    ...     with pm.Model() as model:
    ...         p = pm.Beta("p", 1, 1)
    ...         x = pm.Bernoulli("x", p, shape=100)
    ...         dp.LaplaceMechanism("z", x.sum(), epsilon=epsilon, sensitivity=1)
    ...     return dp.plan(model, n_simulations=2, draws=200, tune=200, random_seed=1)
    >>> ax = dp.plot_plan({epsilon: planned(epsilon) for epsilon in (0.1, 1.0)})
    >>> ax.get_xlabel(), [line.get_label() for line in ax.lines]
    ('epsilon', ['p', 'the prior'])
    """
    if not isinstance(plans, Mapping):
        raise TypeError(
            f"plans must map budgets to what dp.plan returns, got {type(plans).__name__}: for example "
            "{epsilon: dp.plan(model_of(epsilon)) for epsilon in (0.1, 1.0)}."
        )
    if not plans:
        raise ValueError("plans is empty: give a plan for at least one budget.")
    for budget, planned in plans.items():
        if not np.isscalar(budget) or isinstance(budget, str) or not hasattr(planned, "to_dataframe"):
            raise TypeError(f"plans must map numbers to what dp.plan returns, got {budget!r}: {planned!r}.")
    at = sorted(plans)
    widths = {x: plans[x].to_dataframe() for x in at}
    names = list(widths[at[0]].index) if parameters is None else list(parameters)
    column = "ratio" if relative else "posterior_width"
    ax = new_axes()[0] if ax is None else ax
    for k, name in enumerate(names):
        lacking = [x for x in at if name not in widths[x].index]
        if lacking:
            raise ValueError(
                f"the plan at {lacking[0]:g} has no parameter {name!r}, only "
                f"{list(widths[lacking[0]].index)}: name parameters of all plans."
            )
        y = [float(widths[x].loc[name, column]) for x in at]
        style = {"color": f"C{k}", "ls": ("-", "--", "-.", ":")[k % 4], "marker": "o", "ms": 4}
        ax.plot(at, y, **{**style, "label": name, **kwargs})
        if not relative:
            ax.axhline(float(widths[at[0]].loc[name, "prior_width"]), color=f"C{k}", lw=0.8, alpha=0.5)
    if relative:
        ax.axhline(1.0, color="0.4", lw=0.8, label="the prior")
    if at[0] > 0 and at[-1] / at[0] >= 10:
        ax.set_xscale("log")
    ax.set(xlabel=xlabel, ylabel="90 % interval / the prior's" if relative else "width of the 90 % interval")
    ax.set_ylim(bottom=0)
    ax.legend(frameon=False)
    return ax


def plot_acceptance(reports: Any, *, color: str = "C0", ax: Axes | None = None) -> Axes:
    r"""Plot the acceptance of records beside its lower bound :math:`e^{-\epsilon}`.

    The rates are those of all records of a model. Where several sets of records have bounds, the largest
    epsilon among them counts; models some of whose records have no bound are left out.

    Parameters
    ----------
    reports : AcceptanceReport or sequence of AcceptanceReport
        What :func:`acceptance_report` returns, for one model or for several budgets.
    color : str, default "C0"
    ax : matplotlib.axes.Axes, optional
        Axes to plot on; by default those of a new figure.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    TypeError
        `reports` holds something else.
    ValueError
        No model is left; the reason is given.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dp as dp
    >>> with pm.Model() as model:
    ...     p = pm.Beta("p", 1, 1)
    ...     x = pm.Bernoulli("x", p, shape=100)
    ...     z = dp.LaplaceMechanism("z", x.sum(), epsilon=1.0, sensitivity=1, observed=42.0)
    ...     idata = pm.sample(200, tune=200, chains=2, progressbar=False, random_seed=1)
    >>> ax = dp.plot_acceptance(dp.acceptance_report(idata, model))
    >>> ax.get_xlabel()
    'epsilon of the records'
    """
    given = [reports] if hasattr(reports, "bounds") else list(reports)
    wrong = [report for report in given if not hasattr(report, "bounds")]
    if wrong or not given:
        what = type(wrong[0]).__name__ if wrong else "none"
        raise TypeError(f"reports must be what dp.acceptance_report returns, one or several, got {what}.")
    shown = [report for report in given if report.bounds and all(np.isfinite(b.bound) for b in report.bounds)]
    if not shown:
        reasons = {b.reason for report in given for b in report.bounds if b.reason}
        raise ValueError(f"reports have no bound to be compared with: {'; '.join(sorted(reasons))}.")
    ax = new_axes()[0] if ax is None else ax
    at = np.array([max(b.epsilon for b in report.bounds) for report in shown])
    order = np.argsort(at)
    line = np.geomspace(max(at.min() / 2, 1e-3), at.max() * 2, 200)
    ax.plot(line, np.exp(-line), color="0.3", ls="--", label="lower bound exp(-epsilon)")
    for marker, fill, label, rates in (
        ("o", color, "mean", [report.mean for report in shown]),
        ("v", "none", "lowest of a proposal", [report.minimum for report in shown]),
    ):
        style: dict[str, Any] = {"color": color, "lw": 0.8, "label": label, "mfc": fill}
        ax.plot(at[order], np.array(rates)[order], marker=marker, **style)
    ax.set(xlabel="epsilon of the records", ylabel="probability of acceptance", xscale="log", ylim=(0, 1.03))
    ax.legend(frameon=False)
    return ax


def plot_table(
    draws: xr.DataArray,
    *,
    released: Any = None,
    others: Mapping[str, Any] | None = None,
    prob: float = 0.9,
    sort: bool = False,
    color: str = "C0",
    ax: Axes | None = None,
) -> Axes:
    """Plot the cells of a table with their credible intervals, beside what was published.

    Parameters
    ----------
    draws : xarray.DataArray, dims (chain, draw, ...)
        Posterior draws of a table of counts, such as ``idata.posterior["counts"]``.
    released : Release, array_like or what dp.postprocessed returned, optional
        The noisy numbers, of the table's shape; what is not a number was not published, and is marked so.
    others : mapping of str to array_like, optional
        Further tables of that shape, by the name that the legend gives them.
    prob : float, default 0.9
        Probability of the central intervals.
    sort : bool, default False
        Whether cells are in the order of their posterior means, and not in that of the table.
    color : str, default "C0"
    ax : matplotlib.axes.Axes, optional
        Axes to plot on; by default those of a new figure.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    TypeError
        `draws` is no array of xarray.
    ValueError
        `draws` lacks chains or draws, a table has another shape, or `prob` is no probability.

    Examples
    --------
    >>> import numpy as np
    >>> import xarray as xr
    >>> import pymc_dp as dp
    >>> draws = np.random.default_rng(1).poisson([40, 20, 5], (2, 100, 3))
    >>> answer = {"answer": ["yes", "no", "none"]}
    >>> counts = xr.DataArray(draws, dims=("chain", "draw", "answer"), coords=answer)
    >>> ax = dp.plot_table(counts, released=[43.0, 18.0, -2.0])
    >>> [text.get_text() for text in ax.get_yticklabels()]
    ['yes', 'no', 'none']
    """
    if not isinstance(draws, xr.DataArray):
        raise TypeError(
            f"draws must be an xarray.DataArray, got {type(draws).__name__}: give the draws of a variable, "
            'such as idata.posterior["counts"].'
        )
    if not {"chain", "draw"} <= set(draws.dims):
        raise ValueError(
            f"draws must have the dimensions chain and draw, got {draws.dims}: give them as pm.sample "
            "returns them, before any mean is taken."
        )
    if not 0 < prob < 1:
        raise ValueError(f"prob must lie strictly between 0 and 1, got {prob!r}.")
    cells = [dim for dim in draws.dims if dim not in ("chain", "draw")]
    values = draws.transpose("chain", "draw", *cells)
    shape = values.shape[2:]
    flat = values.values.reshape(values.shape[0] * values.shape[1], -1)
    mean, (lower, upper) = flat.mean(axis=0), np.quantile(flat, [(1 - prob) / 2, (1 + prob) / 2], axis=0)
    tables = {} if released is None else {"released": released}
    beside = {name: _of_shape(name, table, shape) for name, table in {**tables, **(others or {})}.items()}
    order = np.argsort(-mean, kind="stable") if sort else np.arange(len(mean))
    named = len(mean) <= _NAMED_CELLS
    ax = new_axes(size=(6.4, min(1.0 + 0.24 * len(mean), 12.0)))[0] if ax is None else ax
    y = np.arange(len(mean))
    ax.hlines(y, lower[order], upper[order], color=color, lw=2, alpha=0.5, label=f"{prob:.0%} interval")
    ax.plot(mean[order], y, "o", color=color, ms=4, label="posterior mean")
    for marker, (k, (name, table)) in zip(_MARKERS * len(beside), enumerate(beside.items()), strict=False):
        style: dict[str, Any] = {"color": "k" if name == "released" else f"C{k + 1}", "ms": 4, "mfc": "none"}
        ax.plot(table[order], y, marker, ls="", label=name, **style)
    unpublished = np.isnan(beside["released"][order]) if "released" in beside else np.zeros(0, bool)
    if unpublished.any():
        edge = ax.get_yaxis_transform()  # x from 0 to 1 of the axes
        ax.plot(
            np.zeros(unpublished.sum()), y[unpublished], "k<", ms=4, transform=edge, label="not published"
        )
    if named:
        names = _names(values, cells)
        ax.set_yticks(y, [names[i] for i in order])
    else:
        ax.set_yticks([])
    ax.set(xlabel=str(draws.name or "count"), ylim=(len(mean) - 0.5, -0.5))
    ax.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=3)  # above: cells fill the axes
    return ax


def _of_shape(name: str, table: Any, shape: tuple[int, ...]) -> np.ndarray:
    if isinstance(table, Release):
        table = table.value
    elif hasattr(table, "processing"):  # as observed= takes it
        table = table.values
    values = np.asarray(table, dtype=float)
    if values.shape != shape:
        raise ValueError(
            f"{name} must have the shape of the table, {shape}, got {values.shape}: give one number for each "
            "cell, NaN where there is none."
        )
    return np.where(np.isneginf(values), np.nan, values).ravel()  # suppressed


def _names(values: xr.DataArray, cells: list[Any]) -> list[str]:
    """Return the names of cells, in the order of the table."""
    labels = [
        [str(v) for v in values[dim].values]
        if dim in values.coords
        else [str(k) for k in range(values.sizes[dim])]
        for dim in cells
    ]
    grids = np.meshgrid(*[np.arange(len(names)) for names in labels], indexing="ij")
    picked = [np.array(names, dtype=object)[grid.ravel()] for names, grid in zip(labels, grids, strict=True)]
    return [", ".join(parts) for parts in zip(*picked, strict=True)] if cells else [str(values.name or "")]
