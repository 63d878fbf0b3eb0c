"""A plot of a privacy budget: what was debited from it, and what is left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pymc_dp.plots._axes import new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Up to this many debits, names are written below the bars; more debits are numbered.
_NAMED_DEBITS = 12


def plot_budget(ledger: Any, *, ax: Axes | None = None, **kwargs: Any) -> Axes:
    """Plot how a privacy budget was spent: one bar for each debit, up to the whole budget.

    A bar reaches from the epsilon of all debits before it to the epsilon that includes it, at the ledger's
    delta. Its height depends on the earlier debits, because epsilons do not simply add up.

    Parameters
    ----------
    ledger : PrivacyLedger
    ax : matplotlib.axes.Axes, optional
        Axes to plot on; by default those of a new figure.
    **kwargs
        Options of the bars, as for ``Axes.bar``.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    TypeError
        `ledger` is no ledger.

    Examples
    --------
    >>> import pymc_dp as dp
    >>> ledger = dp.PrivacyLedger(epsilon=4, delta=1e-6)
    >>> cost = dp.accounting.GaussianCost(1000, noise_multiplier=60.0)
    >>> for name in ("blood pressure", "survival"):
    ...     reservation = ledger.reserve(cost, likelihood=name, step="PenaltyMetropolis", chains=2)
    >>> ax = dp.plot_budget(ledger)
    >>> [round(float(bar.get_y() + bar.get_height()), 2) for bar in ax.patches]
    [2.39, 3.51]
    """
    if not callable(getattr(ledger, "epsilons", None)):
        raise TypeError(f"ledger must be a dp.PrivacyLedger, got {type(ledger).__name__}.")
    ax = new_axes(size=(6.4, 3.6))[0] if ax is None else ax
    entries, after = ledger.entries(), ledger.epsilons()
    before = [0.0, *after[:-1]]
    likelihoods = list(dict.fromkeys(entry.likelihood for entry in entries))
    for k, name in enumerate(likelihoods):
        mine = [i for i, entry in enumerate(entries) if entry.likelihood == name]
        ax.bar(
            [i + 1 for i in mine],
            [after[i] - before[i] for i in mine],
            bottom=[before[i] for i in mine],
            **{"color": f"C{k}", "label": name, **kwargs},
        )
    ax.axhline(ledger.epsilon, color="k", ls="--", lw=1, label=f"budget, epsilon = {ledger.epsilon:g}")
    if len(entries) <= _NAMED_DEBITS:
        ax.set_xticks(range(1, len(entries) + 1), [f"{e.step}\n{e.user}" for e in entries])
    ax.set(
        xlabel="debit", ylabel=f"epsilon spent, at delta = {ledger.delta:g}", ylim=(0, 1.08 * ledger.epsilon)
    )
    # above the axes: inside, it would lie over the line of the budget, or over the last debits
    ax.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=3)
    return ax
