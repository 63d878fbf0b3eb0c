"""What PyMC's checks of convergence say of a mixture.

They compare labels and atoms by slot, and clusters change their slots from draw to draw. So they warn of
good runs as they do of bad ones. The same checks are made of numbers that have a meaning, and the result is
said.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import xarray as xr
from pymc.model.core import Model
from pymc.stats.convergence import SamplerWarning, WarningType

from pymc_dp.mixtures.structure import find_mixtures, is_labels

_CLUSTERS = "n_clusters"


def of_slots(
    check: Callable[..., list[SamplerWarning]], idata: Any, model: Model, told: list[SamplerWarning]
) -> list[SamplerWarning]:
    """Return what to add to the warnings of PyMC's check where labels or atoms are among the draws."""
    if not any(w.kind is WarningType.CONVERGENCE for w in told):
        return []
    slots = [name for name in numbered_by_slots(model) if name in idata.posterior]
    if not slots:
        return []
    numbers = {
        str(rv.name): idata.posterior[rv.name]
        for rv in model.free_RVs
        if rv.name in idata.posterior and rv.name not in slots
    }
    clusters = idata.sample_stats.get(_CLUSTERS)
    if clusters is not None and (clusters != clusters[0, 0]).any():
        numbers["the number of clusters"] = clusters
    failed = [name for name, draws in numbers.items() if _fails(check, name, draws)]
    said = (
        f"{_and(slots)} {'is' if len(slots) == 1 else 'are'} numbered by slots, and a cluster changes its "
        "slot from draw to draw: R-hat and effective sample sizes mean nothing there, and look bad in good "
        "runs too. "
    )
    passed = [name for name in numbers if name not in failed]
    if passed:
        said += f"Checked without them, {_and(passed)} passed. "
    if failed:
        said += f"Checked without them, {_and(failed)} did not pass: sample longer. "
    said += "Look at r_hat and ess of dp.mixture_density, too."
    return [SamplerWarning(WarningType.CONVERGENCE, said, "warn" if failed else "info")]


def numbered_by_slots(model: Model) -> list[str]:
    """Return the names of labels and atoms of mixtures; of labels alone if steps refuse the model."""
    labels = [rv for rv in model.free_RVs if is_labels(rv)]
    try:
        found = [rv for m in find_mixtures(model) for rv in (m.labels, *m.atoms)] if labels else []
    except ValueError:  # the user has named steps of others for them
        found = labels
    return list(dict.fromkeys(str(rv.name) for rv in found))


def _fails(check: Callable[..., list[SamplerWarning]], name: str, draws: xr.DataArray) -> bool:
    """Whether PyMC's check of one variable would warn, by its own limits."""
    alone = SimpleNamespace(free_RVs=[SimpleNamespace(name=name)], deterministics=[])
    tree = xr.DataTree.from_dict({"posterior": xr.Dataset({name: draws})})
    return any(w.kind is WarningType.CONVERGENCE for w in check(tree, alone))


def _and(names: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
