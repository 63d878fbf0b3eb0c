"""What a release would teach about the parameters, computed before any budget is spent.

Parameters, records and releases are all simulated from the model's prior. No confidential value is read.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pymc as pm
from pymc.model.core import BaseModel, Model
from pytensor.tensor.variable import TensorVariable
from rich.console import Group
from rich.markup import escape
from rich.text import Text

from pymc_dp.mechanisms import MechanismOp, guarantee
from pymc_dp.privacy.guarantee import PrivacyGuarantee
from pymc_dp.query.records import find_record_blocks
from pymc_dp.stats._printing import as_text, entry_name, table_of
from pymc_dp.stats._simulation import deviations, posterior, simulate
from pymc_dp.stats.acceptance import acceptance_report
from pymc_dp.upstream.pymc_private import printed_name

_INTERVAL = 0.9
# If a posterior interval is wider than this share of the prior's, the release was next to useless.
_UNINFORMED = 0.9


@dataclass(frozen=True)
class PlannedRelease:
    """The size of the noise in one release.

    Attributes
    ----------
    name : str
    mechanism : str
    entries : int
        Number of released numbers.
    local : bool
        Whether the release keeps the record axis, so that every record has noise of its own.
    additive : bool
        Whether the release is its query plus noise; otherwise it is a choice, a sample, or noisy in another
        way.
    noise_sd : float
        Standard deviation of the release for fixed records, as a root mean square over its entries.
    statistic_sd : float
        Standard deviation over the prior of the statistic without noise, in the same way.
    """

    name: str
    mechanism: str
    entries: int
    local: bool
    additive: bool
    noise_sd: float
    statistic_sd: float


@dataclass(frozen=True)
class PlannedParameter:
    """What the releases would teach about one parameter.

    Attributes
    ----------
    name : str
    prior_width : float
        Width of the central 90 % interval of the prior.
    posterior_width : float
        The same width for the posterior, averaged over the simulated releases.
    ratio : float
        `posterior_width` divided by `prior_width`.
    """

    name: str
    prior_width: float
    posterior_width: float
    ratio: float


@dataclass(frozen=True)
class Plan:
    """Result of :func:`plan`; prints as tables with warnings in words.

    Attributes
    ----------
    guarantee : PrivacyGuarantee or None
        The guarantee of all releases together; None when it is not known.
    releases : tuple of PlannedRelease
    parameters : tuple of PlannedParameter
        One for each entry of each parameter.
    acceptance : float
        Share of the records' proposals accepted while sampling; nan when no records are sampled.
    acceptance_bound : float
        exp(-epsilon), where this bound holds; otherwise nan.
    n_simulations : int
        Number of simulated releases that were analysed.
    warnings : tuple of str
        Warnings, in sentences.
    """

    guarantee: PrivacyGuarantee | None
    releases: tuple[PlannedRelease, ...]
    parameters: tuple[PlannedParameter, ...]
    acceptance: float
    acceptance_bound: float
    n_simulations: int
    warnings: tuple[str, ...]

    def to_dataframe(self) -> pd.DataFrame:
        """Return one row for each entry of each parameter.

        Returns
        -------
        pandas.DataFrame
            Columns ``prior_width``, ``posterior_width``, ``ratio``; the index holds the names.
        """
        rows = [(p.prior_width, p.posterior_width, p.ratio) for p in self.parameters]
        index = pd.Index([p.name for p in self.parameters], name="parameter")
        return pd.DataFrame(rows, index=index, columns=["prior_width", "posterior_width", "ratio"])

    def __rich__(self) -> Group:
        releases = table_of(
            "Releases",
            *("release", "mechanism", "numbers", "sd of noise", "sd of statistic"),
            words="mechanism",
        )
        for r in self.releases:
            each = " (each row)" if r.local else ""
            releases.add_row(
                escape(r.name),
                r.mechanism,
                f"{r.entries:,}{each}",
                f"{r.noise_sd:.3g}",
                f"{r.statistic_sd:.3g}",
            )
        parameters = table_of(
            f"90 % intervals, over {self.n_simulations} simulated publications",
            *("parameter", "prior width", "posterior width", "ratio"),
        )
        for p in self.parameters:
            parameters.add_row(
                escape(p.name), f"{p.prior_width:.3g}", f"{p.posterior_width:.3g}", f"{p.ratio:.2f}"
            )
        cost = "not known." if self.guarantee is None else str(self.guarantee)
        lines = [f"Cost: {cost}"]
        if not math.isnan(self.acceptance):
            bound = "" if math.isnan(self.acceptance_bound) else f", at least {self.acceptance_bound:.3g}"
            lines.append(f"Acceptance of the records while sampling: {self.acceptance:.3f}{bound}.")
        lines += [f"Warning: {w}" for w in self.warnings]
        tables = (releases, parameters) if self.parameters else (releases,)
        return Group(*tables, *(Text(line) for line in lines))

    def __str__(self) -> str:
        return as_text(self)

    __repr__ = __str__


def plan(
    model: Model,
    *,
    n_simulations: int = 4,
    n_prior: int = 500,
    draws: int = 500,
    tune: int = 500,
    random_seed: Any = None,
) -> Plan:
    """Simulate what a release would teach about the parameters, before any budget is spent.

    Write the model as the analyst will, but without an observed release. `n_prior` simulations from the prior
    compare the noise with the statistics that it hides. For `n_simulations` of them the analyst's posterior
    is sampled, with one chain each, and compared with the prior.

    Parameters
    ----------
    model : pymc.Model
        Parameters, records, and releases without ``observed=``.
    n_simulations : int, default 4
        How many simulated releases are analysed; each takes a short chain of some seconds. With 0, only noise
        and statistics are compared.
    n_prior : int, default 500
        How many simulations from the prior.
    draws, tune : int, default 500
        Length of each chain.
    random_seed : int, optional
        Seed for the simulations, which draw nothing confidential.

    Returns
    -------
    Plan

    Raises
    ------
    TypeError
        `model` is not a model.
    ValueError
        The model has no release, or has observed variables; a number is out of its range.

    Notes
    -----
    The posterior widths are averages over releases that are plausible under the prior. Where the prior is
    vaguer than the custodian's knowledge, the plan is about situations that will not occur. The widths come
    from short chains, so expect errors of a tenth or so.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dp as dp
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu", 0, 2)
    ...     y = pm.Normal("y", mu, 1, shape=100)
    ...     total = dp.LaplaceMechanism("total", dp.record_sum(y), epsilon=0.01, bounds=(-5, 5))
    >>> planned = dp.plan(model, n_simulations=2, draws=200, tune=200, random_seed=1)
    >>> planned.releases[0].noise_sd > planned.releases[0].statistic_sd
    True
    >>> print(planned.warnings[0])
    the noise of total drowns what it hides: ...
    """
    releases = _check(model, n_simulations=n_simulations, n_prior=n_prior, draws=draws, tune=tune)
    names = [str(rv.name) for rv in releases]
    shapes = model.eval_rv_shapes()
    example = pm.observe(model, {rv: np.zeros(shapes[str(rv.name)], dtype=rv.dtype) for rv in releases})
    blocks = find_record_blocks(example)
    records = {name for block in blocks for name in block.names}
    local = {r.name for block in blocks for r in block.releases if r.kind == "local"}
    parameters = [rv for rv in model.free_RVs if rv.name not in records and rv.name not in names]
    seeds = np.random.default_rng(random_seed).integers(0, 2**31 - 1, size=2 + n_simulations)

    simulated, prior, moments = simulate(releases, parameters, n_prior, n_simulations, int(seeds[0]))
    planned = tuple(
        PlannedRelease(
            name,
            printed_name(rv.owner.op),
            math.prod(shapes[name]),
            name in local,
            rv.owner.op.unprocessed.additive_noise,
            *deviations(moments[name]),
        )
        for name, rv in zip(names, releases, strict=True)
    )
    widths: dict[str, list[np.ndarray]] = {str(rv.name): [] for rv in parameters}
    rates, bounds = [], []
    for observed, seed in zip(simulated, seeds[2:], strict=True):
        analysed = pm.observe(model, observed)
        idata = posterior(analysed, draws, tune, int(seed))
        for name, found in widths.items():
            found.append(_width(idata.posterior[name].values[0]))
        if "record_acceptance" in idata.sample_stats:
            report = acceptance_report(idata, analysed)
            rates.append(report.mean)
            bounds.append(min((b.bound for b in report.bounds), default=math.nan))
    table = tuple(
        PlannedParameter(label, before, after, after / before if before > 0 else math.nan)
        for name, found in widths.items()
        if found
        for label, before, after in _entries(name, _width(prior[name]), np.mean(found, axis=0))
    )
    cost, unknown = None, ""
    try:
        cost = guarantee(model)
    except ValueError as error:
        unknown = str(error)
    return Plan(
        cost,
        planned,
        table,
        float(np.mean(rates)) if rates else math.nan,
        bounds[0] if bounds else math.nan,
        n_simulations,
        tuple(_warnings(planned, table, unknown)),
    )


def _check(model: Any, **counts: Any) -> list[TensorVariable]:
    if not isinstance(model, BaseModel):
        raise TypeError(f"model must be a pymc.Model, got {type(model).__name__}.")
    for name, count in counts.items():
        if isinstance(count, bool) or not isinstance(count, int | np.integer):
            raise TypeError(f"{name} must be an integer, got {type(count).__name__}.")
        least = {"n_prior": 20, "draws": 10}.get(name, 0)
        if count < least:
            raise ValueError(f"{name} must be at least {least}, got {count}.")
    observed = [str(rv.name) for rv in model.observed_RVs]
    if observed:
        raise ValueError(
            f"{', '.join(observed)} {'is' if len(observed) == 1 else 'are'} observed: a plan simulates "
            "everything from the prior, so write the model without observed= (public covariates as "
            "pm.Data or arrays)."
        )
    releases = [rv for rv in model.free_RVs if isinstance(rv.owner.op, MechanismOp)]
    if not releases:
        raise ValueError(
            "model has no release to plan: declare it with a mechanism and without observed=, for "
            "example dp.LaplaceMechanism('z', query, epsilon=1, bounds=(0, 1))."
        )
    return releases


def _width(values: np.ndarray) -> np.ndarray:
    tail = (1 - _INTERVAL) / 2
    lower, upper = np.quantile(values.astype(float), [tail, 1 - tail], axis=0)
    return np.asarray(upper - lower)


def _entries(name: str, before: np.ndarray, after: np.ndarray) -> Iterator[tuple[str, float, float]]:
    for at, width in np.ndenumerate(before):
        yield entry_name(name, at), float(width), float(after[at])


def _warnings(
    releases: tuple[PlannedRelease, ...],
    parameters: tuple[PlannedParameter, ...],
    unknown: str,
) -> Iterator[str]:
    for r in releases:
        if r.additive and not r.local and r.noise_sd > r.statistic_sd:
            yield (
                f"the noise of {r.name} drowns what it hides: its standard deviation is {r.noise_sd:.3g}, "
                f"that of the statistic over the prior {r.statistic_sd:.3g}. Narrower bounds, fewer "
                "statistics, more people or a larger budget would tell more."
            )
    idle = [p.name for p in parameters if p.ratio > _UNINFORMED]
    if idle:
        shown = ", ".join(idle[:5]) + (f" and {len(idle) - 5} more" if len(idle) > 5 else "")
        yield (
            f"of {shown} the posterior would be about as wide as the prior: the release tells next to "
            "nothing of it."
        )
    if unknown:
        yield f"the cost is not known: {unknown[0].lower()}{unknown[1:]}"
