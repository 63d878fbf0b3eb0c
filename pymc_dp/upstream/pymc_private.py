"""What the package uses of PyMC that is not public."""

from typing import Any

from pymc.distributions.distribution import _support_point
from pymc.distributions.mixture import _BaseMixtureRV
from pymc.distributions.transforms import _default_transform
from pymc.distributions.truncated import _truncated
from pymc.logprob.abstract import _logprob, _logprob_helper
from pymc.sampling.mcmc import _sample_return

__all__ = [
    "_BaseMixtureRV",
    "_default_transform",
    "_logprob",
    "_logprob_helper",
    "_support_point",
    "_truncated",
    "as_result",
    "can_be_drawn",
    "ended_before_a_draw",
    "printed_name",
]


def printed_name(op: Any) -> str:
    """Name of a law as users write it; of one without a name of its own, its class."""
    return str(getattr(op, "_print_name", (type(op).__name__,))[0])


def can_be_drawn(op: Any) -> bool:
    """Whether a ``CustomDist`` was given ``random=``: PyMC puts a function that raises in its place."""
    return not getattr(op._random_fn, "__qualname__", "").startswith("default_not_implemented")


def as_result(traces: list[Any], model: Any, tune: int, seconds: float, checks: bool) -> Any:
    """Return what ``pm.sample`` returns of the traces of its chains."""
    return _sample_return(
        run=None, traces=traces, tune=tune, t_sampling=seconds, discard_tuned_samples=True,
        compute_convergence_checks=checks, return_inferencedata=True, keep_warning_stat=False,
        idata_kwargs={}, model=model, quiet=not checks,
    )  # fmt: skip


def ended_before_a_draw(error: ValueError) -> bool:
    """Whether ``pm.sample`` was interrupted while it tuned: it says that there are no draws, and no more."""
    return str(error) == "Not enough samples to build a trace."
