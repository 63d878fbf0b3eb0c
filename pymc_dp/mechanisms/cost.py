"""What releases cost the people behind them: one release, or everything that a model publishes."""

from __future__ import annotations

from pytensor.tensor.variable import TensorVariable

from pymc_dp.mechanisms.base import MechanismOp
from pymc_dp.privacy.guarantee import PrivacyGuarantee


def guarantee(rv: TensorVariable) -> PrivacyGuarantee:
    """Return what a release promises each person.

    Parameters
    ----------
    rv : TensorVariable
        A mechanism's variable, from a model or from ``.dist``.

    Returns
    -------
    PrivacyGuarantee

    Raises
    ------
    TypeError
        `rv` is not a release.
    ValueError
        The guarantee is not known.

    Examples
    --------
    >>> from pymc_dp.mechanisms import LaplaceMechanism, guarantee
    >>> print(guarantee(LaplaceMechanism.dist(0.0, epsilon=0.5, sensitivity=2)))
    Pure differential privacy with epsilon = 0.5, for replace-one neighbours.
    """
    op = rv.owner.op if isinstance(rv, TensorVariable) and rv.owner is not None else None
    if not isinstance(op, MechanismOp):
        raise TypeError(f"{rv} is not a release: pass the variable that a mechanism returned.")
    if op.guarantee is None:
        raise ValueError(
            f"The guarantee of {rv} is not known: its noise level was given without sensitivity= "
            "or bounds=, or is itself random."
        )
    return op.guarantee
