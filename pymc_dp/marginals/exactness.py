"""Warnings after sampling where a density that was integrated over people is off, by what its draws say."""

from collections.abc import Callable
from typing import Any

import numpy as np
from pymc.model.core import Model
from pymc.stats.convergence import SamplerWarning, WarningType

from pymc_dp.marginals.noisy_sums import NoisySumRV
from pymc_dp.mechanisms.marginals import MvNormalMarginalRV, NormalMarginalRV

_NORMAL = (NormalMarginalRV, MvNormalMarginalRV)
# Laws of releases, the deterministic that tells how far they are off, which figure of its draws does, from
# where on it is told, and the words.
_TOLD: tuple[tuple[Any, str, Callable[..., Any], float, str], ...] = (
    (
        (NoisySumRV,), "error", np.max, 1e-3,
        "The density of a release is off by a share of up to {figure:.2g} in these draws ({name}). If it is "
        "so in many, leave the records to RecordImputation: sample the model given to marginalize.",
    ),
    (
        _NORMAL, "quadrature", np.max, 0.05,
        "Means of sums over people are off by up to {figure:.2g} standard deviations in these draws "
        "({name}): give approximate_sums more nodes=.",
    ),
    (  # the first term that normal sums leave out
        _NORMAL, "edgeworth", np.std, 0.1,
        "Sums over people are not normal enough: posterior means may be off by up to {figure:.2g} of their "
        "standard deviations (the standard deviation of {name}). RecordImputation is exact: sample the model "
        "that was given to approximate_sums.",
    ),
)  # fmt: skip


def told_inexact(idata: Any, model: Model) -> list[SamplerWarning]:
    """Return warnings of releases whose sums over people are off in the draws, where there are any.

    Parameters
    ----------
    idata : xarray.DataTree
        With the deterministics of `marginalize` or `approximate_sums` in its posterior; those that were left
        out are not looked at.
    model : pymc.Model
    """
    said = []
    for rv in model.observed_RVs:
        op = getattr(rv.owner, "op", None)
        for kinds, suffix, of, most, text in _TOLD:
            name = f"{rv.name}_{suffix}"
            if isinstance(op, kinds) and name in idata.posterior:
                figure = float(of(idata.posterior[name].values))
                if not figure <= most:  # also where it is no number
                    said.append(text.format(figure=figure, name=name))
    return [SamplerWarning(WarningType.CONVERGENCE, text, "warn") for text in said]
