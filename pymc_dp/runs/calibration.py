"""Simulation-based calibration of a user's own model, with the steps that sample it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import cloudpickle
import numpy as np
import pymc as pm
import xarray as xr
from pymc.model.core import Model

from pymc_dp.runs.asked import check_names
from pymc_dp.runs.fits import kept_names
from pymc_dp.runs.releases import with_inputs
from pymc_dp.runs.replicate import replicate
from pymc_dp.stats._uniformity import ecdf_p_value

# Probability with which a sampler without fault is said to have one.
_ALPHA = 1e-3
# Effective draws for each that is kept: with fewer, draws are not independent, and ranks are not uniform.
_PER_KEPT = 2
DATA = "data_log_density"


@dataclass(frozen=True)
class CalibrationCheck:
    """Ranks of the truth among posterior draws, and whether they are uniform.

    Attributes
    ----------
    ranks : xarray.Dataset
        For each variable, along ``simulation``: how many of the kept draws are below the truth.
    p_values : xarray.Dataset
        For each entry of a variable, of the hypothesis that its ranks are uniform.
    kept : int
        Draws that a rank is among.
    fits : xarray.Dataset
        The fits, as :func:`pymc_dp.replicate` returns them.
    left_out : tuple of int
        Simulations without a rank: their fit failed, or had too few effective draws.
    not_covered : tuple of str
        What no rank tells of.
    """

    ranks: xr.Dataset
    p_values: xr.Dataset
    kept: int
    fits: xr.Dataset
    left_out: tuple[int, ...]
    not_covered: tuple[str, ...]

    @property
    def p_value(self) -> float:
        """The smallest p-value times the number of entries (Bonferroni)."""
        values = np.concatenate([np.ravel(v.values) for v in self.p_values.data_vars.values()])
        return float(min(1.0, values.min() * values.size))

    @property
    def rejected(self) -> bool:
        """Whether ranks are not uniform: a sampler without fault is rejected once in a thousand times."""
        return self.p_value < _ALPHA

    def to_datatree(self) -> xr.DataTree:
        """Return the ranks as ArviZ reads them, for ``az.plot_ecdf_pit`` and others.

        Returns
        -------
        xarray.DataTree
            With a group ``prior_sbc`` of ranks as shares of the draws.
        """
        shares = (self.ranks + 0.5) / (self.kept + 1)
        shares = shares.rename({"simulation": "draw"}).expand_dims("chain")
        return xr.DataTree.from_dict({"prior_sbc": shares.transpose("chain", "draw", ...)})

    def __str__(self) -> str:
        worst = min(self.p_values.data_vars, key=lambda name: float(self.p_values[name].min()))
        n = self.ranks.sizes["simulation"]
        found = (
            f"{n} simulations, {self.kept} draws each; smallest p-value "
            f"{float(self.p_values[worst].min()):.2g}, of {worst}; p = {self.p_value:.2g} for all"
        )
        left = f" Left out: {len(self.left_out)} fits (see `fits`)." if self.left_out else ""
        beyond = f" Not covered: {'; '.join(self.not_covered)}." if self.not_covered else ""
        if self.rejected:
            return f"Rejected: ranks are not uniform ({found}).{left}{beyond}"
        return f"Calibrated as far as {found} can tell.{left}{beyond}"


def calibrate(
    model: Model,
    *,
    simulations: int = 500,
    kept: int = 49,
    var_names: Sequence[str] | None = None,
    random_seed: int | None = None,
    draws: int = 1000,
    tune: int = 1000,
    chains: int = 1,
    **kwargs: Any,
) -> CalibrationCheck:
    """Check whether a model and the steps that sample it agree: simulation-based calibration.

    Parameters and data are drawn from the model, its posterior is sampled for each data set, and the rank of
    each parameter among its posterior draws is taken: these are uniform where the sampler draws from the
    posterior. A sampler that ignored the data would pass for parameters alone, so that the log density of the
    data given what is behind them has ranks too.

    Parameters
    ----------
    model : pymc.Model
        With proper priors and observed variables, whose values do not matter.
    simulations : int, default 500
        Data sets. Draws that are off by 0.6 posterior standard deviations are found by 100 nine times in ten,
        0.3 by 500, 0.2 by 1,000.
    kept : int, default 49
        Draws that a rank is among, evenly spread over those of a fit. Fits with fewer than twice as many
        effective draws of a variable are left out, and told.
    var_names : sequence of str, optional
        Variables to rank; by default all but records and labels.
    random_seed : int, optional
    draws, tune, chains : int
        Of each fit.
    **kwargs
        As for :func:`pymc_dp.replicate`: ``path``, ``n_jobs``, ``client``, ``step``, ``progressbar``; and
        arguments of ``pm.sample``.

    Returns
    -------
    CalibrationCheck
        Its text says what was found; ``rejected`` whether ranks are not uniform; ``ranks``, ``p_values``.

    Raises
    ------
    TypeError, ValueError
        The model cannot be simulated from: a prior is improper, there is a potential, nothing is observed;
        half of the fits have too few effective draws; and all that :func:`pymc_dp.replicate` raises.

    References
    ----------
    Talts, Betancourt, Simpson, Vehtari & Gelman (2018), "Validating Bayesian Inference Algorithms with
    Simulation-Based Calibration"; Säilynoja, Bürkner & Vehtari (2022) for the p-values; Modrák et al. (2023),
    "Simulation-Based Calibration Checking for Bayesian Computation: The Choice of Test Quantities", for data.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dp as dp
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu", 0, 1)
    ...     y = pm.Normal("y", mu, 1, shape=10)
    ...     z = dp.LaplaceMechanism("z", dp.record_sum(y), epsilon=1, bounds=(-3, 3), observed=0.0)
    >>> found = dp.testing.calibrate(
    ...     model, simulations=20, kept=9, draws=200, tune=200, random_seed=1, progressbar=False
    ... )
    >>> found.rejected, list(found.ranks.data_vars)
    (False, ['mu', 'data_log_density'])
    """
    _check(model, simulations, kept, draws, chains)
    copy = with_inputs(
        cloudpickle.loads(cloudpickle.dumps(model)), [str(rv.name) for rv in model.observed_RVs]
    )
    check_names(copy, var_names)
    names = kept_names(copy, None if var_names is None else tuple(var_names))
    density = _add_data(copy)
    quantities = [copy.named_vars[name] for name in names]
    drawn = _draw(copy, [*quantities, *copy.observed_RVs, *density], simulations, random_seed)
    truth = dict(
        zip([*names, *([DATA] if density else [])], [*drawn[: len(names)], *drawn[-1:]], strict=False)
    )
    released = drawn[len(names) : len(names) + len(copy.observed_RVs)]
    fits = replicate(
        copy, dict(zip((str(rv.name) for rv in copy.observed_RVs), released, strict=True)),
        var_names=list(truth), keep="draws", random_seed=random_seed, draws=draws, tune=tune, chains=chains,
        **kwargs,
    )  # fmt: skip
    ranks, left = _ranks(fits, truth, kept, random_seed)
    p_values = ranks.map(lambda of: _p_values(of, kept))
    hidden = [str(v.name) for v in copy.free_RVs if v.name not in names]
    return CalibrationCheck(
        ranks, p_values, kept, fits.drop_vars([f"{name}_draws" for name in truth]), left,
        (
            *((f"{', '.join(hidden)} themselves",) if hidden else ()),
            *(() if density else ("whether the data are taken into account",)),
        ),
    )  # fmt: skip


def _check(model: Any, simulations: Any, kept: Any, draws: int, chains: int) -> None:
    if not isinstance(model, Model):
        raise TypeError(f"model must be a pm.Model, got {type(model).__name__}.")
    for name, value, least in (("simulations", simulations, 10), ("kept", kept, 4)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
            raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}.")
    if draws * chains < _PER_KEPT * kept:
        raise ValueError(
            f"kept = {kept} takes at least {_PER_KEPT * kept} draws of a fit, and there are "
            f"{draws * chains}: give more draws, or keep fewer."
        )
    if not model.observed_RVs:
        raise ValueError(
            "model has no observed variable: declare what was released, or seen, with observed=."
        )
    for rv in model.observed_RVs:
        laws = [rv, *(rv.owner.op.laws(rv.owner) if hasattr(rv.owner.op, "laws") else [])]
        if any(getattr(law.owner.op, "unknown_keys", False) for law in laws):
            raise ValueError(
                f"{rv.name} lists only the keys that passed a threshold, so that a simulated release would "
                "list others, and another number of them. Check the model of all keys, without unknown_keys."
            )
    if model.potentials:
        raise ValueError(
            f"model has the potential {model.potentials[0].name}, without which its parameters would be "
            "drawn: what is simulated would have another law than what is sampled. Leave potentials out."
        )
    if DATA in model.named_vars:
        raise ValueError(f"The model has a variable {DATA}, as the check has: rename it.")


def _add_data(model: Model) -> list[Any]:
    """Add the log density of the data to a model as a variable; return that of data that are drawn."""
    try:
        with model:
            there = [pm.logp(rv, model.rvs_to_values[rv]).sum() for rv in model.observed_RVs]
            drawn = [pm.logp(rv, rv).sum() for rv in model.observed_RVs]
            pm.Deterministic(DATA, sum(there[1:], there[0]))
    except NotImplementedError:
        return []
    return [sum(drawn[1:], drawn[0])]


def _draw(model: Model, variables: list[Any], simulations: int, seed: int | None) -> list[np.ndarray]:
    try:
        return list(pm.draw(variables, draws=simulations, random_seed=seed))
    except (NotImplementedError, ValueError) as error:
        raise ValueError(
            f"model cannot be simulated from ({error}): give proper priors, and laws that can be drawn, to "
            "all variables."
        ) from error


def _ranks(
    fits: xr.Dataset, truth: dict[str, np.ndarray], kept: int, seed: int | None
) -> tuple[xr.Dataset, tuple[int, ...]]:
    """Return the ranks of the truth, ties broken at random, and which fits have none."""
    few = np.zeros(fits.sizes["replicate"], dtype=bool)
    for name in truth:
        if name not in fits:
            break  # no fit succeeded
        ess = fits[name].sel(summary="ess_bulk").values.reshape(len(few), -1)
        few |= ~(ess >= _PER_KEPT * kept).all(axis=1)
    failed = ~np.isin(fits["status"].values, ("done", "unconverged"))
    left = failed | few
    if left.sum() > len(left) / 2:
        raise ValueError(
            f"{int(failed.sum())} of {len(left)} fits failed, and {int((few & ~failed).sum())} have fewer "
            f"than {_PER_KEPT * kept} effective draws of a variable"
            + (f" ({fits['error'].values[failed][0]})" if failed.any() else "")
            + ": give more draws, or keep fewer."
        )
    rng, ranks = np.random.default_rng(seed), {}
    for name, values in truth.items():
        draws = fits[f"{name}_draws"].values[~left]
        draws = draws.reshape(len(draws), -1, *draws.shape[3:])
        spread = np.linspace(0, draws.shape[1] - 1, kept).round().astype(int)
        at = values[~left][:, None]
        below, equal = (draws[:, spread] < at).sum(1), (draws[:, spread] == at).sum(1)
        dims = ("simulation", *fits[name].dims[2:])
        ranks[name] = (dims, below + rng.integers(0, equal + 1))
    found = xr.Dataset(ranks, {"simulation": np.flatnonzero(~left)})
    return found, tuple(int(k) for k in np.flatnonzero(left))


def _p_values(ranks: xr.DataArray, kept: int) -> xr.DataArray:
    flat = ranks.values.reshape(len(ranks), -1)
    found = [ecdf_p_value(of, kept) for of in flat.T]
    return xr.DataArray(np.reshape(found, ranks.shape[1:]), dims=ranks.dims[1:])
