"""The privacy cost of a run, written into its result."""

from __future__ import annotations

import json
import math
import warnings
from typing import Any

import numpy as np
import xarray as xr

from pymc_dp.privacy import budgets
from pymc_dp.privacy.costs import RunCost, to_plain
from pymc_dp.privacy.ledger import PrivacyLedger
from pymc_dp.private.gradients import GradientStep
from pymc_dp.private.integer_noise import kept_delta
from pymc_dp.private.noisy_likelihood import PrivateStep
from pymc_dp.private.provenance import check_draws, leave_out_clocks
from pymc_dp.private.spending import RELEASES

_NEIGHBOURS = "replace-one"
# Effective draws below which a warning is due, and the length of chains from which ArviZ estimates them.
_FEW, _SHORTEST = 20, 4


def with_privacy(idata: Any, *steps: Any, delta: float | None = None) -> Any:
    """Write the privacy cost of a run into its result, which PyMC lets no step do by itself.

    Parameters
    ----------
    idata : DataTree
        As ``pm.sample`` returned it; it is changed.
    *steps : private step methods
        All private steps of the run, in the order in which ``pm.sample`` got them.
    delta : float, optional
        The delta at which epsilon is stated, in (0, 1); by default that of the steps' ledger.

    Returns
    -------
    DataTree
        The same `idata`. Its attributes say ``privacy_epsilon`` (nats) and ``privacy_delta`` of the whole
        run and of the normal approximations that it used, ``privacy_neighbours``, ``privacy_costs`` (JSON,
        from which epsilon can be computed again) and ``privacy_insecure_noise``, 1 where the noise, or that
        of an approximation, had a known seed, so that nothing is promised. Where all steps share a ledger,
        ``privacy_budget_epsilon`` is its budget, and ``privacy_budget_spent`` the epsilon of all that was
        debited from it so far, this run included.

        The group ``privacy`` has, for each step along ``likelihood``: its name, the mechanism, epsilon by
        itself, chains, iterations (of all chains, tuning included), the bounds (with an approximation those
        of the approximation, in its units), the power of the likelihood, the number of rows, which is
        public, and the number of the ledger's entry (0 without a ledger); along ``release`` how many
        ratios, gradients and counts were released and their noise multipliers; and, where rows were
        counted, ``clipped_fraction``, the mean of the noisy shares of clipped rows over all stored draws,
        with the standard deviation of its noise, ``clipped_fraction_sd``; both are NaN where no draw is left.

    Raises
    ------
    TypeError
        If a step is no private step.
    ValueError
        If no step is given, if the result has draws of another step or run, or some draws more than once, if
        steps are not in the order in which ``pm.sample`` got them, or if delta is needed and not given.

    Notes
    -----
    Everything that is written here is covered by the cost, or is known without the rows. A run under a ledger
    costs what was debited, even if it was interrupted; a run without one costs what the chains that have
    begun release. Leaving draws or chains out of the result does not lower the cost.

    ``sample_stats`` give each draw's chain (``private_chain``, a random number that no other run has) and its
    number in the chain (``private_iteration``, from 1, tuning included). They show that the result belongs to
    the steps. Write the costs of results *before* you join them; the cost of several together is
    :func:`pymc_dp.accounting.epsilon` of all their costs.

    Draws that are worth fewer than 20 independent ones are warned of, since nobody may look at them beside
    the rows.

    No cost covers how long sampling took, so that times are removed from the result: ``sampling_time``, the
    times of draws that NUTS writes beside a private step, and all of ``created_at`` but the day.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_dp as dp
    >>> rows = np.random.default_rng(1).normal(1, 1, 500)
    >>> with pm.Model():
    ...     mu = pm.Normal("mu", 0, 10)
    ...     x = dp.ConfidentialLikelihood("x", pm.Normal.dist(mu, 1), data=rows, clip=3)
    ...     step = dp.PenaltyMetropolis(noise_multiplier=60)
    ...     idata = pm.sample(200, tune=50, chains=1, step=step, progressbar=False)
    >>> idata = dp.with_privacy(idata, step, delta=1e-6)
    >>> round(idata.attrs["privacy_epsilon"], 2), int(idata.privacy.n_released.sel(release="ratio")[0])
    (1.12, 250)
    """
    _check(idata, steps)
    delta = _delta_of(steps, delta)
    spent = [step.plan.spent() for step in steps]
    near = {id(s.approximation): s.approximation for s in steps if s.approximation is not None}
    everything = [cost for costs in spent for cost in costs.values()]
    everything += [cost for approximation in near.values() for cost in approximation.costs]
    attributes: dict[str, Any] = {
        "privacy_epsilon": budgets.epsilon(everything, delta),
        "privacy_delta": delta,
        "privacy_neighbours": _NEIGHBOURS,
        "privacy_costs": json.dumps([to_plain(cost) for cost in everything]),
        "privacy_insecure_noise": int(any(map(_is_insecure, steps))),
    }
    ledgers = _ledgers_of(steps)
    if len(ledgers) == 1 and all(step.plan.ledger is not None for step in steps):
        attributes["privacy_budget_epsilon"] = ledgers[0].epsilon
        attributes["privacy_budget_spent"] = budgets.epsilon(ledgers[0].spent, delta)
    leave_out_clocks(idata)
    idata.attrs.update(attributes)
    idata["privacy"] = xr.DataTree(_table(idata, steps, spent, delta))
    _tell_of_few(idata)
    return idata


def _tell_of_few(idata: Any) -> None:
    """Warn of draws that tell where their chains began rather than what the rows say; it costs nothing."""
    if "posterior" not in idata.children:
        return
    over = {"chain", "draw"}
    drawn = {
        str(name): values for name, values in idata.posterior.to_dataset().items()
        if over <= set(values.dims) and values.size and values.sizes["draw"] >= _SHORTEST
    }  # fmt: skip
    if not drawn:
        return
    import arviz as az  # imported here, since it takes longer to load than all other imports together

    with np.errstate(divide="ignore", invalid="ignore"):
        sizes = az.ess(xr.Dataset(drawn), method="bulk")
    fewest = {}
    for name, values in drawn.items():
        moved = values.max(over) > values.min(over)  # ArviZ counts all draws of what never did
        fewest[name] = float(np.where(moved, np.nan_to_num(sizes[name]), 0.0).min())
    worst = min(fewest, key=lambda name: fewest[name])
    if fewest[worst] >= _FEW:
        return
    warnings.warn(
        f"The private draws of {worst} are worth {fewest[worst]:.0f} independent ones: they tell where "
        "chains began as much as what the rows say. Before more is spent, try coordinates=, temper= or a "
        "normal approximation on made-up rows of the same number; where the budget is small, noisy sums say "
        "more.",
        stacklevel=3,
    )


def _table(
    idata: Any, steps: tuple[PrivateStep, ...], spent: list[dict[str, RunCost]], delta: float
) -> xr.Dataset:
    terms = [step.term for step in steps]
    rows: dict[str, list[Any]] = {
        "step": [step.plan.step for step in steps],
        "mechanism": ["discrete Gaussian noise on sums of clipped terms"] * len(steps),
        "epsilon": [budgets.epsilon(list(costs.values()), delta) for costs in spent],
        "delta": [delta] * len(steps),
        "chains": [step.plan.begun() for step in steps],
        "iterations": [step.plan.iterations() for step in steps],
        "n_rows": [term.rows.n for term in terms],
        "clip": [step.clip for step in steps],
        "clip_gradient": [_clip_gradient(step) for step in steps],
        "temper": [term.temper for term in terms],
        "ledger_entry": [0 if s.plan.reservation is None else s.plan.reservation.entry for s in steps],
        "insecure_noise": [int(_is_insecure(step)) for step in steps],
    }
    fractions = _clipped_fractions(idata, steps, spent)
    if any(found is not None for found in fractions):
        rows["clipped_fraction"], rows["clipped_fraction_sd"] = (
            [math.nan if found is None else found[k] for found in fractions] for k in range(2)
        )
    table = {name: ("likelihood", np.array(values)) for name, values in rows.items()}
    per_release: dict[str, Any] = {
        "n_released": [[c[r].releases if r in c else 0 for r in RELEASES] for c in spent],
        "noise_multiplier": [
            [c[r].noise_multiplier if r in c else math.nan for r in RELEASES] for c in spent
        ],
    }
    both = {name: (("likelihood", "release"), np.array(values)) for name, values in per_release.items()}
    return xr.Dataset(
        {**table, **both},
        coords={"likelihood": [term.name for term in terms], "release": list(RELEASES)},
        attrs={"neighbours": _NEIGHBOURS},
    )


def _is_insecure(step: PrivateStep) -> bool:
    """Return whether the noise of a step, or of the approximation that it uses, has a known seed."""
    return step.plan.insecure or (step.approximation is not None and step.approximation.insecure_noise)


def _clip_gradient(step: PrivateStep) -> float:
    """Return the bound of a row's gradient that the step uses; the model's bound if it uses none."""
    found = step.clip_gradient if isinstance(step, GradientStep) else step.term.clip_gradient
    return math.nan if found is None else float(found)


def _clipped_fractions(
    idata: Any, steps: tuple[PrivateStep, ...], spent: list[dict[str, RunCost]]
) -> list[tuple[float, float] | None]:
    """Return each step's mean noisy share of clipped rows, and the standard deviation of its noise."""
    counting = [step for step in steps if step.clipped_noise is not None]
    found: list[tuple[float, float] | None] = []
    for step, costs in zip(steps, spent):
        if step.clipped_noise is None:
            found.append(None)
            continue
        draws = idata["sample_stats"]["private_clipped_fraction"]
        if len(counting) > 1:  # PyMC stacks what several steps report under one name
            draws = draws[..., counting.index(step)]
        if not draws.size:  # no draws are left
            found.append((math.nan, math.nan))
            continue
        noise = costs["clipped count"].noise_multiplier / step.n_looked_at
        found.append((float(draws.mean()), noise / math.sqrt(draws.size)))
    return found


def _check(idata: Any, steps: tuple[Any, ...]) -> None:
    if not steps:
        raise ValueError("with_privacy: give the private steps that drew the result, all of them.")
    for step in steps:
        if not isinstance(step, PrivateStep):
            raise TypeError(
                f"with_privacy: {type(step).__name__} is no private step. Give the private steps of the run "
                "only; the others cost nothing."
            )
    if not isinstance(idata, xr.DataTree) or "sample_stats" not in idata.children:
        raise TypeError("idata must be what pm.sample returned, with the group sample_stats.")
    if "private_accepted" not in idata["sample_stats"].data_vars:
        raise ValueError("idata has no statistics of a private step: give the result of their run.")
    accepted = idata["sample_stats"]["private_accepted"]
    took_part = 1 if accepted.ndim == 2 else accepted.shape[-1]
    if took_part != len(steps):
        raise ValueError(
            f"idata is the result of {took_part} private step(s), and {len(steps)} are given: give all of "
            "them, each once. What one of them cost would be left out, or counted twice."
        )
    check_draws(idata, steps)


def _ledgers_of(steps: tuple[PrivateStep, ...]) -> list[PrivacyLedger]:
    found: dict[str, PrivacyLedger] = {}
    for step in steps:
        if step.plan.ledger is not None:
            found[step.plan.ledger._file.identity] = step.plan.ledger
    return list(found.values())


def _delta_of(steps: tuple[PrivateStep, ...], delta: float | None) -> float:
    if delta is not None:
        return kept_delta(delta)
    known = {ledger.delta for ledger in _ledgers_of(steps)}
    if len(known) != 1:
        raise ValueError(
            f"delta is needed: {'no step has a ledger' if not known else 'the ledgers have different ones'}. "
            "It is usually far below 1/n, n being the number of people."
        )
    return known.pop()
