"""Whole numbers behind records that had one value in all draws, of which R-hat says nothing.

R-hat and effective sample sizes of a constant are no numbers, and PyMC warns of none. That is right where
nothing else is possible, and wrong where no chain found to another value.
"""

from typing import Any

import numpy as np
from pymc.model.core import Model
from pymc.stats.convergence import SamplerWarning, WarningType

from pymc_dp.query.records import is_release
from pymc_dp.step_methods.block.parents import counts_of
from pymc_dp.step_methods.discovery import record_blocks
from pymc_dp.step_methods.whole_numbers import ends_of, whole_numbers_of


def of_whole_numbers(idata: Any, model: Model) -> list[SamplerWarning]:
    """Return a warning of whole numbers in the law of records that never changed, where there are any."""
    if not any(is_release(rv) for rv in model.observed_RVs):
        return []
    try:
        blocks = record_blocks(model)
    except ValueError:  # the user has named steps of others for them
        return []
    found = {rv for block in blocks for rv in (*whole_numbers_of(model, block), *counts_of(model, block))}
    still = [
        str(rv.name)
        for rv in model.free_RVs
        if rv in found and rv.name in idata.posterior and _never_changed(idata.posterior[rv.name].values)
        and len(set(ends_of(rv))) > 1
    ]  # fmt: skip
    if not still:
        return []
    names = ", ".join(still)
    said = (
        f"{names} had one value in all draws of all chains. R-hat, which is no number then, does not tell "
        "whether other values are impossible or were not found: start chains elsewhere (initvals= of "
        "pm.sample). If they stay there as well, compare the values as models of their own."
    )
    return [SamplerWarning(WarningType.CONVERGENCE, said, "warn")]


def _never_changed(draws: np.ndarray) -> bool:
    """Whether an entry, shape (chains, draws, ...), has one value in all draws."""
    flat = draws.reshape(draws.shape[0] * draws.shape[1], -1)
    return bool(len(flat) > 1 and (flat == flat[0]).all(axis=0).any())
