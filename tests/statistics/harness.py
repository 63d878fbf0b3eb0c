"""Verdicts on samplers: draws against an exact answer, calibration, joint distribution tests.

Nothing here knows PyMC or a sampler of the package: a sampler is a few callables. Every verdict comes with
the p-value of the whole comparison (Bonferroni over its checks), so that a test fails for one reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import arviz as az
import numpy as np
from scipy import stats

from pymc_dp.stats._uniformity import ecdf_p_value
from tests.statistics.marginal import Marginal

__all__ = [
    "Verdict",
    "ecdf_p_value",
    "geweke",
    "geweke_replicated",
    "mc_z",
    "rank_verdict",
    "sbc",
    "two_sample_z",
    "worst_frequency",
]

PROBABILITIES = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclass(frozen=True)
class Verdict:
    """Outcome of a comparison: "passed", "rejected" or "inconclusive" (too few effective draws)."""

    outcome: str
    p_value: float
    checks: dict[str, float] = field(default_factory=dict)
    effective_draws: float = np.inf

    @property
    def passed(self) -> bool:
        return self.outcome == "passed"

    def __str__(self) -> str:
        worst = sorted(self.checks.items(), key=lambda item: -abs(item[1]))[:6]
        listed = ", ".join(f"{name} {value:+.2f}" for name, value in worst)
        return f"{self.outcome} (p = {self.p_value:.2g}, ESS {self.effective_draws:.0f}): {listed}"


def _from_z(checks: dict[str, float], alpha: float, effective=np.inf, minimum=0.0) -> Verdict:
    """Verdict of a family of z-scores; a z that is not a number is a rejection."""
    z = np.array(list(checks.values()))
    worst = np.inf if not np.isfinite(z).all() else np.abs(z).max()
    p = float(min(1.0, 2 * z.size * stats.norm.sf(worst)))
    # An effective size of a few is itself hardly known, and neither are z-scores that rest on it.
    if effective < minimum / 4:
        outcome = "inconclusive"
    else:
        outcome = "rejected" if p < alpha else "passed" if effective >= minimum else "inconclusive"
    return Verdict(outcome, p, checks, float(effective))


# --- draws against an exact answer ---------------------------------------------------------------


def mc_z(
    draws: np.ndarray,
    exact: Marginal,
    *,
    alpha: float = 1e-3,
    minimum_ess: float = 400,
    prefix: str = "",
    probabilities: Sequence[float] = PROBABILITIES,
) -> Verdict:
    """Compare draws (chain, draw) of one parameter with its exact marginal.

    Mean and sd by ArviZ's Monte Carlo standard errors; the distribution function at the exact
    quantiles with the binomial error under the exact answer and the indicator's own effective size.
    """
    draws = np.asarray(draws, dtype=float)
    if draws.ndim != 2:
        raise ValueError(f"draws must be (chain, draw), not of shape {draws.shape}")
    if draws.std() == 0:
        return Verdict("rejected", 0.0, {f"{prefix}constant": np.inf}, 0.0)
    checks = {
        f"{prefix}mean": (draws.mean() - exact.mean) / float(az.mcse(draws, method="mean")),
        f"{prefix}sd": (draws.std() - exact.sd) / float(az.mcse(draws, method="sd")),
    }
    effective = [float(az.ess(draws, method="mean")), float(az.ess(draws, method="sd"))]
    at = exact.quantile(probabilities)
    for p, x in zip(probabilities, at, strict=True):
        below = (draws <= x).astype(float)
        # Constant indicators have no effective size of their own: take that of the draws.
        ess = effective[0] if below.min() == below.max() else float(az.ess(below, method="mean"))
        # `min`: antithetic chains may claim more effective draws than draws.
        checks[f"{prefix}cdf({p:g})"] = (below.mean() - p) / np.sqrt(p * (1 - p) / min(ess, draws.size))
    return _from_z(checks, alpha, min(effective), minimum_ess)


def two_sample_z(checks: dict[str, float], alpha: float = 1e-3) -> Verdict:
    """Verdict of z-scores computed elsewhere (Bonferroni over them)."""
    return _from_z(checks, alpha)


# --- simulation-based calibration ----------------------------------------------------------------


def sbc(
    simulate: Callable[[np.random.Generator], tuple[np.ndarray, object]],
    sample: Callable[[object, np.random.Generator], np.ndarray],
    n_replicates: int,
    *,
    seed: int = 0,
    names: Sequence[str] | None = None,
    alpha: float = 1e-3,
) -> Verdict:
    """Simulation-based calibration (Talts et al. 2018): ranks of the truth among posterior draws.

    `simulate(rng)` returns the quantities of interest (k,) drawn from the prior and whatever data
    `sample` needs; `sample(data, rng)` returns (nearly independent) draws (L, k) of them. Ranks are
    uniform on 0, ..., L; ties, which discrete quantities have, are broken at random. One of the
    quantities must involve the data (the deviation of the release from its query, say): a sampler
    that ignores them and returns the prior is calibrated for every other quantity.
    """
    rng = np.random.default_rng(seed)
    ranks = []
    for _ in range(n_replicates):
        truth, data = simulate(rng)
        draws = np.asarray(sample(data, rng), dtype=float)
        truth = np.atleast_1d(np.asarray(truth, dtype=float))
        ties = (draws == truth).sum(0)
        ranks.append((draws < truth).sum(0) + rng.integers(0, ties + 1))
        n_draws = draws.shape[0]
    return rank_verdict(np.asarray(ranks), n_draws, names=names, alpha=alpha)


def rank_verdict(
    ranks: np.ndarray, n_draws: int, *, names: Sequence[str] | None = None, alpha: float = 1e-3
) -> Verdict:
    """Uniformity of ranks (replicates, k) on 0, ..., n_draws: chi-square, simultaneous ECDF bands.

    `checks` holds p-values here; the verdict's p-value is Bonferroni over all of them.
    """
    ranks = np.asarray(ranks)
    n, k = ranks.shape
    names = list(names) if names is not None else [str(j) for j in range(k)]
    bins = max(2, min(20, n // 10, n_draws + 1))
    checks = {}
    for j, name in enumerate(names):
        # Bins of nearly equal numbers of ranks, with the exact probability of each.
        bin_of_rank = np.arange(n_draws + 1) * bins // (n_draws + 1)
        expected = n * np.bincount(bin_of_rank, minlength=bins) / (n_draws + 1)
        observed = np.bincount(bin_of_rank[ranks[:, j]], minlength=bins)
        checks[f"{name} chi2"] = float(stats.chisquare(observed, expected).pvalue)
        checks[f"{name} ecdf"] = ecdf_p_value(ranks[:, j], n_draws)
    p = float(min(1.0, len(checks) * min(checks.values())))
    return Verdict("rejected" if p < alpha else "passed", p, checks)


# --- joint distribution tests --------------------------------------------------------------------

State = object


def _mean_and_error(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Means of the columns of one chain (draw, k), their standard errors and effective sizes."""
    ess = np.array([float(az.ess(column[None], method="mean")) for column in values.T])
    ess = np.minimum(ess, len(values))
    return values.mean(0), values.std(0) / np.sqrt(ess), ess


def geweke(
    draw_prior: Callable[[np.random.Generator], State],
    transition: Callable[[State, np.random.Generator], State],
    redraw_release: Callable[[State, np.random.Generator], State],
    functionals: Callable[[State], np.ndarray],
    *,
    draws: int,
    names: Sequence[str] | None = None,
    seed: int = 0,
    alpha: float = 1e-3,
    minimum_ess: float = 200,
) -> Verdict:
    """Joint distribution test of Geweke (2004).

    `draw_prior` draws parameters, records and release: the marginal-conditional simulator. The
    successive-conditional one alternates `transition`, which must leave parameters and records
    given the release invariant, with `redraw_release` given the records. Both have the joint law
    as their stationary one: means of `functionals` agree, up to errors corrected for
    autocorrelation.
    """
    rng = np.random.default_rng(seed)
    independent = np.array([functionals(draw_prior(rng)) for _ in range(draws)], dtype=float)
    state = draw_prior(rng)
    chain = []
    for _ in range(draws):
        state = transition(state, rng)
        # Before the redraw: a kernel that forgets the release is seen only beside the old one.
        chain.append(np.array(functionals(state), dtype=float))
        state = redraw_release(state, rng)
    mean, error, ess = _mean_and_error(np.asarray(chain, dtype=float))
    spread = independent.std(0, ddof=1)
    # The spread of the prior draws stands in where the chain never moved (error 0).
    error = np.where(error > 0, error, spread / np.sqrt(np.maximum(ess, 1)))
    z = (mean - independent.mean(0)) / np.hypot(error, spread / np.sqrt(draws))
    names = list(names) if names is not None else [str(j) for j in range(z.size)]
    return _from_z(dict(zip(names, z.tolist(), strict=True)), alpha, ess.min(), minimum_ess)


def geweke_replicated(
    draw_prior: Callable[[np.random.Generator], State],
    transition: Callable[[State, np.random.Generator], State],
    redraw_release: Callable[[State, np.random.Generator], State] | None,
    functionals: Callable[[State], np.ndarray],
    *,
    replicates: int,
    transitions: int = 5,
    names: Sequence[str] | None = None,
    seed: int = 0,
    alpha: float = 1e-3,
) -> Verdict:
    """Joint distribution test by many short chains that start in equilibrium.

    Each replicate starts from the joint law and makes a few transitions (the release redrawn
    between them, unless `redraw_release` is None: then the old release also tests that it is not
    forgotten little by little), after which the state must have the joint law still. The
    mean of the *change* of every functional is zero; replicates are independent, so that errors
    need no autocorrelation, and a kernel that moves little is tested by its small changes.
    """
    rng = np.random.default_rng(seed)
    change = []
    for _ in range(replicates):
        state = draw_prior(rng)
        before = np.array(functionals(state), dtype=float)
        for t in range(transitions):
            if t > 0 and redraw_release is not None:
                state = redraw_release(state, rng)
            state = transition(state, rng)
        change.append(np.array(functionals(state), dtype=float) - before)
    change = np.asarray(change)
    error = change.std(0, ddof=1) / np.sqrt(replicates)
    names = list(names) if names is not None else [str(j) for j in range(error.size)]
    moved = error > 0
    z = np.where(moved, change.mean(0) / np.where(moved, error, 1.0), 0.0)
    return _from_z(dict(zip(names, z.tolist(), strict=True)), alpha)


def worst_frequency(indicator: np.ndarray, exact: np.ndarray, batches: int = 40) -> float:
    """Largest deviation of a frequency (draws, k) from its exact value, in standard errors by batch means."""
    means = indicator.reshape(batches, -1, indicator.shape[-1]).mean(axis=1)
    # a rarely visited cell has no batch variance to speak of: at least that of independent draws
    error = np.maximum(
        means.std(axis=0, ddof=1) / np.sqrt(batches),
        np.sqrt(np.maximum(exact * (1 - exact), 1e-9) / len(indicator)),
    )
    return float(np.max(np.abs(means.mean(axis=0) - exact) / error))
