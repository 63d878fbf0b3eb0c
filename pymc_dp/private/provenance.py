"""Checks that a result holds draws of the given steps only, and each of them once."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from pytensor.graph.traversal import ancestors

_GROUPS = (("sample_stats", "posterior"), ("warmup_sample_stats", "warmup_posterior"))
# Statistics of PyMC's steps that say when a draw began or how long it took.
CLOCKS = ("perf_counter_start", "perf_counter_diff", "process_time_diff")
_APART = (
    "Give with_privacy each result as pm.sample returned it, with its own steps, before you join results; "
    "what several cost together is dp.accounting.epsilon of all their costs."
)


def check_draws(idata: Any, steps: tuple[Any, ...]) -> None:
    """Refuse a result with draws of other runs, repeated draws, or values that belong to other draws.

    Draws and chains may be missing, since leaving them out changes nothing of the cost.

    Raises
    ------
    ValueError
    """
    seen: list[list[np.ndarray]] = [[] for _ in steps]
    for stats, values in _GROUPS:
        if stats not in idata.children:
            continue
        table = idata[stats]
        if "private_chain" not in table.data_vars or "private_iteration" not in table.data_vars:
            raise ValueError(
                f"idata: {stats} does not say from which chains its draws are (private_chain, "
                f"private_iteration), so that nobody knows what they cost. {_APART}"
            )
        if values in idata.children:
            _check_coordinates(idata, stats, values)
        for k, step in enumerate(steps):
            names, numbers, accepted = (
                _column(table[name], k, len(steps))
                for name in ("private_chain", "private_iteration", "private_accepted")
            )
            _check_names(step, names, numbers)
            seen[k].append(np.column_stack([names.ravel(), numbers.ravel()]))
            if values in idata.children:
                _check_values(idata[values], values, step, names, numbers, accepted)
    for step, parts in zip(steps, seen):
        pairs = np.concatenate(parts)
        twice = len(pairs) - len(np.unique(pairs, axis=0))
        if twice:
            raise ValueError(
                f"idata has {twice} draw(s) of {type(step).__name__} of '{step.likelihood}' more than once, "
                f"which tell less than they seem to. {_APART}"
            )


def leave_out_clocks(idata: Any) -> None:
    """Remove from a result all times of sampling but the day, since no cost covers what they may tell."""
    for group in idata.subtree:
        group.attrs.pop("sampling_time", None)
        made = group.attrs.get("created_at")
        if isinstance(made, str):
            group.attrs["created_at"] = made[:10]
        clocks = [name for name in CLOCKS if name in group.data_vars]
        if clocks:
            group.dataset = group.to_dataset(inherit=False).drop_vars(clocks)


def _column(found: xr.DataArray, k: int, n_steps: int) -> np.ndarray:
    """Return one step's values of a statistic, shape (chains, draws); PyMC stacks those of all steps."""
    values = found.values
    return np.asarray(values if n_steps == 1 and values.ndim == 2 else values[..., k])


def _check_coordinates(idata: Any, stats: str, values: str) -> None:
    for dim in ("chain", "draw"):
        ours, theirs = (np.asarray(idata[group][dim].values) for group in (stats, values))
        if not np.array_equal(ours, theirs):
            raise ValueError(
                f"idata: {values} and {stats} have different {dim}s ({len(theirs)} and {len(ours)}): one of "
                f"them is of other draws. {_APART}"
            )


def _check_names(step: Any, names: np.ndarray, numbers: np.ndarray) -> None:
    known = {step.plan.name_of(k): length for k, length in enumerate(step.plan.lengths())}
    lengths = np.array([known.get(name, 0) for name in names.ravel().tolist()]).reshape(names.shape)
    foreign = ~((numbers >= 1) & (numbers <= lengths))
    if foreign.any():
        raise ValueError(
            f"idata: {int(foreign.sum())} of {foreign.size} draws are none that {type(step).__name__} of "
            f"'{step.likelihood}' has drawn: they are of another step, of another run, or steps are not in "
            f"the order in which pm.sample got them. {_APART}"
        )


def _check_values(
    table: Any, group: str, step: Any, names: np.ndarray, numbers: np.ndarray, accepted: np.ndarray
) -> None:
    """Refuse parameter values that change between draws although the step rejected its proposal."""
    stays = (names[:, 1:] == names[:, :-1]) & (numbers[:, 1:] == numbers[:, :-1] + 1)
    stays &= ~accepted[:, 1:].astype(bool)
    model = step.model
    for value in step.vars:
        rv = model.values_to_rvs[value]
        own = model.rvs_to_transforms[rv] is None or not set(ancestors(rv.owner.inputs)) & set(model.free_RVs)
        if rv.name not in table.data_vars or not own:
            continue  # a transform that depends on other variables may move the value by itself
        drawn = table[rv.name].transpose("chain", "draw", ...).values
        moved = drawn[:, 1:] != drawn[:, :-1]
        moved = moved.any(axis=tuple(range(2, moved.ndim)))
        if (moved & stays).any():
            raise ValueError(
                f"idata: '{rv.name}' moves in {group} where {type(step).__name__} has rejected its proposal: "
                f"its draws and the statistics are of different runs. {_APART}"
            )
