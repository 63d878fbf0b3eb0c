"""Releases that lie too far from what the draws say was released: noise of that size does not occur.

A number that the model takes as known and that is wrong (how many people there are, a bound, which entry of
the query is which) leaves chains that mix well, around values that the release contradicts.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytensor
from pymc.model.core import Model
from pymc.stats.convergence import SamplerWarning, WarningType
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors

from pymc_dp.query.readings import AS_WRITTEN
from pymc_dp.query.records import is_release, query_of

# The chance that noise of one release is so large, in a number or in all of them, is below one in a million.
_UNLIKELY = math.log(1e6)
# Discrete noise is at least so many steps from 0 with up to twice the chance of noise that is not.
_DISCRETE = math.log(2.0)
# Draws of a chain from which on PyMC looks at convergence, too.
_DRAWS = 100


def told_far(idata: Any, model: Model) -> list[SamplerWarning]:
    """Return warnings of releases that the last draws of all chains are too far from.

    Looked at are releases with additive noise of a known family whose query and level of noise are functions
    of variables that were stored or observed. A value that was processed after the noise is as far away as
    the nearest noisy value that gives it; those of keys that were listed because of their noise are not
    looked at, nor are releases whose records were integrated out. Told is an entry whose noise would be too
    large for the largest of all, or too much noise in all of them. The cost is that of one evaluation of the
    query for each chain, in Python.

    Parameters
    ----------
    idata : xarray.DataTree
        With the group ``posterior``.
    model : pymc.Model
    """
    if idata.posterior.sizes.get("draw", 0) < _DRAWS:
        return []
    said = (_of(rv, idata.posterior, model) for rv in model.observed_RVs if is_release(rv))
    return [SamplerWarning(WarningType.CONVERGENCE, text, "warn") for text in said if text]


def _of(release: Any, posterior: Any, model: Model) -> str | None:
    """Return what is to be said of one release, if anything."""
    op: Any = release.owner.op
    noise = op.unprocessed
    if not noise.additive_noise or noise.family is None or getattr(op, "unknown_keys", False):
        return None
    drawn: list[Variable] = [
        v for v in ancestors([query_of(release), _level(release)], blockers=model.basic_RVs)
        if v in model.basic_RVs
    ]  # fmt: skip
    seen = {rv: _observed(rv, model) for rv in drawn if rv in model.observed_RVs}
    if any(rv not in seen and rv.name not in posterior for rv in drawn):
        return None
    published = _observed(release, model)
    lower, upper = published, published
    if op is not noise:
        lower, upper = op.processing.preimage(np, published.astype(float), op.whole)
    both = pytensor.function(
        drawn, [query_of(release), _level(release)], mode=AS_WRITTEN, on_unused_input="ignore"
    )
    last = posterior.isel(draw=-1)
    times, queries = [], []
    for chain in range(posterior.sizes["chain"]):
        of_chain = (seen[rv] if rv in seen else last[str(rv.name)].values[chain] for rv in drawn)
        query, level = both(*(x.astype(rv.type.dtype) for x, rv in zip(of_chain, drawn, strict=True)))
        with np.errstate(all="ignore"):
            off = np.maximum(np.maximum(lower - query, query - upper), 0.0) / level
            times.append(np.nan_to_num(off, posinf=0.0))
        queries.append(np.broadcast_to(query, times[-1].shape))
    if not times or not times[0].size:
        return None
    least = np.min(times, axis=0)  # over chains
    words = _far_entry(release, least, published, queries, noise.family) or _far_total(
        release, least, noise.family
    )
    if words is None:
        return None
    return (
        f"{words}, which has a chance below 1e-6. The model contradicts the release, or chains have not "
        "converged yet (see R-hat). Look at what the model takes as known: how many people, n=, bounds=, "
        "exact numbers, narrow priors, the order of the query's entries."
    )


def _far_entry(
    release: Any, times: np.ndarray, published: np.ndarray, queries: list[np.ndarray], family: str
) -> str | None:
    """Say which entry is too far away, in levels of noise, for any of as many."""
    unlikely = _UNLIKELY + math.log(times.size) + _DISCRETE * ("discrete" in family)
    if times.max() <= (unlikely if "laplace" in family else math.sqrt(2 * unlikely)):
        return None
    at = np.unravel_index(times.argmax(), times.shape)
    entry = f"{release.name}[{', '.join(map(str, at))}]" if at else str(release.name)
    mean = np.mean([q[at] for q in queries])
    shown = np.broadcast_to(published, times.shape)[at]
    was = "suppressed" if np.isneginf(shown) else f"released as {shown:.10g}"
    return (
        f"{entry} was {was}, and the last draws of all chains have {mean:.10g} there: noise of "
        f"{times[at]:.3g} times its level"
    )


def _far_total(release: Any, times: np.ndarray, family: str) -> str | None:
    """Say that the entries are too far away together: each has at least so much noise."""
    # imported here, because it takes a while to load, and importing the package is to be quick
    from scipy import stats

    law = stats.gamma(times.size) if "laplace" in family else stats.chi2(times.size)
    total = times.sum() if "laplace" in family else (times**2).sum()
    if law.logsf(total) > -_UNLIKELY:
        return None
    expected = 1.0 if "laplace" in family else math.sqrt(2 / math.pi)
    return (
        f"the {times.size} numbers of {release.name} differ from the last draws of all chains by "
        f"{times.mean():.3g} times the level of noise on average, in place of {expected:.2g}"
    )


def _observed(rv: Variable, model: Model) -> np.ndarray:
    """Return the values that a variable was observed to have."""
    return np.asarray(pytensor.function([], model.rvs_to_values[rv], mode=AS_WRITTEN)())


def _level(release: Any) -> Variable:
    """Return the scale of the noise."""
    return release.owner.op.dist_params(release.owner)[1]
