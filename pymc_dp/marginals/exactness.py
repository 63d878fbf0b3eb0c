"""Warnings after sampling where a density that was integrated over people is off, by what its draws say."""

from typing import Any

import numpy as np
from pymc.model.core import Model
from pymc.stats.convergence import SamplerWarning, WarningType

from pymc_dp.marginals.noisy_sums import NoisySumRV
from pymc_dp.mechanisms.marginals import MvNormalMarginalRV, NormalMarginalRV

# From where on it is told: relative errors of densities, differences of means of sums in standard
# deviations, and standard deviations of the first term that normal sums leave out.
_DENSITY, _QUADRATURE, _EDGEWORTH = 1e-3, 0.05, 0.1


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
        if isinstance(op, NoisySumRV):
            said.append(_of_density(idata, f"{rv.name}_error"))
        elif isinstance(op, NormalMarginalRV | MvNormalMarginalRV):
            said += [_of_points(idata, f"{rv.name}_quadrature"), _of_normal(idata, f"{rv.name}_edgeworth")]
    return [SamplerWarning(WarningType.CONVERGENCE, text, "warn") for text in said if text]


def _of_density(idata: Any, name: str) -> str:
    largest = _figure(idata, name, np.max)
    if largest <= _DENSITY:
        return ""
    return (
        f"The density of a release is off by a share of up to {largest:.2g} in these draws ({name}). If it "
        "is so in many, leave the records to RecordImputation: sample the model given to marginalize."
    )


def _of_points(idata: Any, name: str) -> str:
    largest = _figure(idata, name, np.max)
    if largest <= _QUADRATURE:
        return ""
    return (
        f"Means of sums over people are off by up to {largest:.2g} standard deviations in these draws "
        f"({name}): give approximate_sums more nodes=."
    )


def _of_normal(idata: Any, name: str) -> str:
    spread = _figure(idata, name, np.std)
    if spread <= _EDGEWORTH:
        return ""
    return (
        f"Sums over people are not normal enough: posterior means may be off by up to {spread:.2g} of their "
        f"standard deviations (the standard deviation of {name}). RecordImputation is exact: sample the "
        "model that was given to approximate_sums."
    )


def _figure(idata: Any, name: str, of: Any) -> float:
    return float(of(idata.posterior[name].values)) if name in idata.posterior else 0.0
