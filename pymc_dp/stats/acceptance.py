"""Measured acceptance of the records, compared with the lower bound that follows from the privacy guarantee.

High acceptance does not imply good mixing: the report also says how many iterations an effective draw of the
worst parameter took, and warns if these are many.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from pymc.model.core import BaseModel, Model
from rich.markup import escape
from rich.table import Table

from pymc_dp.query.recordrules import named
from pymc_dp.stats._bounds import RecordBound, bound_of, bound_of_table
from pymc_dp.stats._convergence import least_alike, slowest
from pymc_dp.stats._draws import group_of
from pymc_dp.stats._printing import as_text, table_of
from pymc_dp.step_methods.claims import default_parameters, has_slopes, sums_over_few_values
from pymc_dp.step_methods.discovery import record_blocks, table_blocks
from pymc_dp.step_methods.mixture.step import plain_mixtures, private_mixtures

_STATISTICS = ("record_acceptance", "record_acceptance_min")
_OF_TABLES = "table_acceptance"
# Rounding error that the lowest probability may have, since it is computed from differences of log densities.
_ROUNDING = 1e-9
# Acceptance from here on counts as high, and warnings of slow mixing say "although"; below, slow mixing is no
# surprise.
_HIGH_ACCEPTANCE = 0.5


@dataclass(frozen=True)
class AcceptanceReport:
    """Result of :func:`acceptance_report`; prints as a table with warnings in words.

    Attributes
    ----------
    mean : float
        Share of the records' proposals that were accepted, over all draws; of the moves of a table of counts
        in a model without records.
    minimum : float
        Lowest acceptance probability of any proposal in any draw. The steps of mixtures and of tables do not
        store the probability of each proposal; there the lowest share accepted in a draw takes its place.
    bounds : tuple of RecordBound
        One entry for each set of records that move together.
    worst_parameter : str or None
        Parameter with the fewest effective draws; None when the results have no parameter.
    effective_draws : float
        Bulk effective sample size of that parameter over all chains.
    iterations_per_effective_draw : float
        Number of draws of all chains, divided by `effective_draws`.
    warnings : tuple of str
        Warnings, in sentences.
    r_hat : float
        Largest R-hat of a parameter (rank-normalised, of split chains); nan of one chain, or where nothing
        moved.
    r_hat_of : str or None
        That parameter.
    """

    mean: float
    minimum: float
    bounds: tuple[RecordBound, ...]
    worst_parameter: str | None
    effective_draws: float
    iterations_per_effective_draw: float
    warnings: tuple[str, ...]
    r_hat: float = math.nan
    r_hat_of: str | None = None

    def to_dataframe(self) -> pd.DataFrame:
        """Return one row for each set of records that move together.

        Returns
        -------
        pandas.DataFrame
            Columns ``n``, ``releases``, ``epsilon``, ``bound``, ``mean``, ``minimum``, ``reason``; the index
            holds the names of the records. The rates are those of all records of the model together, because
            chains store no others; where several steps move records, the mean of the steps' rates.
        """
        rows = [
            {
                "n": b.n,
                "releases": ", ".join(b.releases),
                "epsilon": b.epsilon,
                "bound": b.bound,
                "mean": self.mean,
                "minimum": self.minimum,
                "reason": b.reason,
            }
            for b in self.bounds
        ]
        index = pd.Index([", ".join(b.records) for b in self.bounds], name="records")
        return pd.DataFrame(rows, index=index)

    def __rich__(self) -> Table:
        table = table_of(
            "Acceptance of the records",
            *("records", "n", "releases", "epsilon", "exp(-epsilon)", "mean", "minimum"),
            words="releases",
            caption=escape(self._caption()),
        )
        for b in self.bounds:
            table.add_row(
                escape(", ".join(b.records)),
                f"{b.n:,}",
                escape(", ".join(b.releases)),
                _number(b.epsilon, "g"),
                _number(b.bound, ".3f"),
                f"{self.mean:.3f}",
                f"{self.minimum:.3f}",
            )
        return table

    def _caption(self) -> str:
        lines = [f"No bound for {', '.join(b.records)}: {b.reason}." for b in self.bounds if b.reason]
        lines += [
            f"The epsilon of {', '.join(b.stated)} is stated by the user, not proven, and so is the bound."
            for b in self.bounds
            if b.stated and not b.reason
        ]
        if len(self.bounds) > 1:
            lines.append(
                "The rates are those of all records of the model together, or of several steps, the mean of "
                "theirs."
            )
        if self.worst_parameter is not None:
            lines.append(
                f"Slowest parameter: {self.worst_parameter}, {self.effective_draws:.0f} effective "
                f"draws, {self.iterations_per_effective_draw:.1f} iterations each."
            )
        if self.r_hat_of is not None:
            lines.append(f"Largest R-hat: {self.r_hat:.3f}, of {self.r_hat_of}.")
        return "\n".join(lines + [f"Warning: {w}" for w in self.warnings])

    def __str__(self) -> str:
        return as_text(self)

    __repr__ = __str__


def acceptance_report(
    idata: Any,
    model: Model,
    *,
    proposals: Literal["auto", "independence", "informed"] = "auto",
    max_iterations: float = 50.0,
) -> AcceptanceReport:
    r"""Compare the measured acceptance of the records with :math:`e^{-\epsilon}`, and with mixing.

    Under pure differential privacy a record that is proposed from its own law in the model, and
    that nothing else in the model depends on, is accepted with probability at least
    :math:`e^{-\epsilon}`, epsilon summed over the releases that contain the record. High acceptance
    does not mean that the chain mixes, so the report looks at the effective draws and R-hat of the
    parameters too, and warns where an effective draw took many iterations.

    Tables of counts have no such bound. Of a model without other records the report has the share of a
    table's moves that were made, and the slowest parameter or count.

    Parameters
    ----------
    idata : xarray.DataTree
        The result of ``pm.sample``, with the groups ``sample_stats`` (with ``record_acceptance``, and with
        ``record_acceptance_min`` unless all records are of mixtures; with ``table_acceptance`` for tables of
        counts) and ``posterior``.
    model : pymc.Model
        The model that was sampled.
    proposals : {"auto", "independence", "informed"}, default "auto"
        As given to :class:`pymc_dp.RecordImputation`; it determines which records were proposed from their
        own law. Under ``"auto"`` a single record variable with a release of its own was not.
    max_iterations : float, default 50
        Iterations per effective draw beyond which there is a warning.

    Returns
    -------
    AcceptanceReport
        Prints as a table; :meth:`AcceptanceReport.to_dataframe` returns the numbers.

    Raises
    ------
    TypeError
        `idata` or `model` is not of the right kind.
    ValueError
        The model has no release, `idata` lacks the statistics or the posterior, or an argument is
        out of its range.

    Notes
    -----
    The bound is computed for replace-one neighbours, so that the epsilon of a guarantee for add/remove
    neighbours counts twice. It is about one row of the model; where a person has several rows, or a row
    stands for several people, the guarantee is not about rows.

    References
    ----------
    Ju, Awan, Gong & Rao (2022), "Data Augmentation MCMC for Bayesian Inference from Privatized
    Data", proposition 3.1; Vehtari et al. (2021), for the effective sample size.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dp as dp
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu", 0, 2)
    ...     y = pm.Normal("y", mu, 1, shape=20)
    ...     s = dp.LaplaceMechanism("s", dp.record_sum(y), epsilon=1, bounds=(-3, 3), observed=8.0)
    ...     idata = pm.sample(draws=200, tune=200, chains=1, progressbar=False, random_seed=1)
    >>> report = dp.acceptance_report(idata, model)
    >>> report.bounds[0].bound
    0.3679
    >>> bool(report.minimum >= report.bounds[0].bound)
    True
    """
    if not isinstance(model, BaseModel):
        raise TypeError(f"model must be a pymc.Model, got {type(model).__name__}.")
    if proposals not in ("auto", "independence", "informed"):
        raise ValueError(f"proposals must be 'auto', 'independence' or 'informed', got {proposals!r}.")
    if not max_iterations > 0:
        raise ValueError(f"max_iterations must be a number > 0, got {max_iterations!r}.")
    blocks = record_blocks(model)
    if not blocks and table_blocks(model):
        return _of_tables(idata, model, max_iterations)
    if not blocks and (known := plain_mixtures(model)):
        names = " and ".join(str(mixture.kernel.name) for mixture, _ in known)
        raise ValueError(
            f"model has no confidential records: {names} is a mixture of known records, none of which is "
            "proposed, so that there is no acceptance to report. Look at n_clusters, labels_moved and "
            "splits_accepted in sample_stats, and at r_hat and ess of dp.mixture_density."
        )
    released = [rv for rv in model.observed_RVs if hasattr(rv.owner.op, "guarantee")]
    if not blocks and released:
        raise ValueError(
            f"model has releases ({named(released)}) but no records that would be proposed: they are "
            "integrated out, so that there is no acceptance to report. Look at R-hat and effective draws "
            "(arviz.summary), as for any model under NUTS."
        )
    if not blocks:
        raise ValueError(
            "model has no confidential records: none of its observed variables is a release. "
            "Declare what was released with a mechanism, for example "
            "dp.LaplaceMechanism('z', query, ..., observed=value)."
        )
    mixed = {id(block) for _, block in private_mixtures(model)}
    mean, minimum = _measured(idata, len(mixed), len(blocks))
    bounds = tuple(bound_of(block, proposals, id(block) in mixed) for block in blocks)
    records = {name for block in blocks for name in block.names}
    parameters = [str(rv.name) for rv in model.free_RVs if rv.name not in records]
    parameter, effective, iterations = slowest(idata, parameters)
    warnings = []
    # Chains store one rate for all sets of records, which can be compared with the lowest bound only.
    lowest = min(b.bound for b in bounds) if not any(b.reason for b in bounds) else math.nan
    if minimum < lowest - _ROUNDING:
        warnings.append(
            f"a record was accepted with probability {minimum:.3g} only, below exp(-epsilon) = "
            f"{lowest:.3g}. The bound is that of rows which are one person each: where a row is a group, "
            "such as a count, it does not apply, and nothing is wrong. Where rows are people, the "
            "sensitivity is smaller than what one of them can change, or the draws are not of this model."
        )
    if iterations > max_iterations:
        advice = _advice(idata, model, parameter)
        warnings.append(_slow(mean, parameter, effective, iterations) + advice)
    return AcceptanceReport(
        mean,
        minimum,
        bounds,
        parameter,
        effective,
        iterations,
        tuple(warnings),
        *least_alike(idata, parameters),
    )


def _of_tables(idata: Any, model: Model, max_iterations: float) -> AcceptanceReport:
    """Return the report of a model whose confidential numbers are all counts in tables."""
    stats = group_of(idata, "sample_stats")
    if _OF_TABLES not in stats:
        raise ValueError(
            f"idata.sample_stats has no {_OF_TABLES}: the counts were not sampled by TableImputation. Sample "
            "the model with pm.sample, or put dp.TableImputation() in step=[...]."
        )
    shares = np.asarray(stats[_OF_TABLES], dtype=float)
    if not shares.size:
        raise ValueError("idata holds no draws: sample with draws > 0.")
    bounds = tuple(bound_of_table(tables) for tables in table_blocks(model))
    counts = {name for tables in table_blocks(model) for name in tables.names}
    names = [str(rv.name) for rv in model.free_RVs]
    worst, effective, iterations = slowest(idata, names, counts)
    warnings = []
    if iterations > max_iterations:
        warnings.append(
            f"one effective draw of {worst} took {iterations:.0f} iterations ({effective:.0f} effective "
            "draws in all). Draw longer. Where an intercept and effects of groups hold each other, write the "
            "effects about it, pm.Normal('level', intercept, spread, dims=...), or the other way round."
        )
    return AcceptanceReport(
        float(shares.mean()), float(shares.min()), bounds, worst, effective, iterations, tuple(warnings),
        *least_alike(idata, names),
    )  # fmt: skip


def _measured(idata: Any, n_mixed: int, n_blocks: int) -> tuple[float, float]:
    """Return the share of proposals accepted in all draws, and the lowest acceptance probability."""
    stats = group_of(idata, "sample_stats")
    missing = [name for name in _STATISTICS[: 2 if n_mixed < n_blocks else 1] if name not in stats]
    if missing:
        step = "PrivateNeal5 or PrivateSlice" if n_mixed else "RecordImputation"
        raise ValueError(
            f"idata.sample_stats has no {' and no '.join(missing)}: the records were not sampled "
            f"by {step}. Sample the model with pm.sample, or put dp.{step.split()[0]}() in "
            "step=[...]."
        )
    shares = np.asarray(stats[_STATISTICS[0]], dtype=float)
    if not shares.size:
        raise ValueError("idata holds no draws: sample with draws > 0.")
    lowest = [float(shares.min())] if n_mixed else []
    if n_mixed < n_blocks:
        lowest.append(float(np.asarray(stats[_STATISTICS[1]], dtype=float).min()))
    return float(shares.mean()), min(lowest)


def _slow(acceptance: float, parameter: str | None, effective: float, iterations: float) -> str:
    how = "although" if acceptance >= _HIGH_ACCEPTANCE else "and"
    only = "only " if acceptance < _HIGH_ACCEPTANCE else ""
    took = (
        f"one effective draw of {parameter} took {iterations:.0f} iterations ({effective:.0f} "
        "effective draws in all)"
        if effective > 0
        else f"{parameter} did not move, or there are too few draws to tell,"
    )
    return f"{took} {how} the records' proposals are {only}accepted at a rate of {acceptance:.2f}. "


def _advice(idata: Any, model: Model, parameter: str | None) -> str:
    """Say what may help a slow parameter, given the steps that have run."""
    stats = group_of(idata, "sample_stats")
    ran = "ancillary_acceptance" in stats and bool((stats["ancillary_acceptance"] > 0).any())
    offered = {str(rv.name) for rv in default_parameters(model)}
    if (parameter or "").split("[")[0] not in offered and parameter not in offered:
        return "AncillaryUpdate does not move this parameter by default: draw longer."
    if ran:
        blocks = record_blocks(model)
        cycles = int(stats["ancillary_cycles"].max()) if "ancillary_cycles" in stats else 2
        follows = "ancillary_trajectories" in stats and bool(stats["ancillary_trajectories"].any())
        how = ", by trajectories" if follows else ""
        tried = follows or not all(has_slopes(model, block) for block in blocks)
        more = "" if tried else "{'update': 'hamiltonian'}, whose trajectories follow curves, or "
        names = [name for block in blocks for name in block.names]
        few = all(sums_over_few_values(model, block) for block in blocks)
        without = f"integrate the records out, dp.marginalize(model, {names}); or " if few else ""
        return (
            f"AncillaryUpdate ran already{how}: {without}draw longer, or give pm.sample "
            f"ancillary_update={more}{{'n_cycles': {10 * cycles}}}, which makes each draw worth more."
        )
    return (
        "Given imputed records the parameters hardly move: leave "
        "AncillaryUpdate on for them (it is the default where it applies; dp.AncillaryUpdate() in "
        "step=[...]), and draw longer."
    )


def _number(value: float, spec: str) -> str:
    return "none" if math.isnan(value) else format(value, spec)
