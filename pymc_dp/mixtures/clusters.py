"""Properties of a partition's clusters, as expressions in a model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable


def n_clusters(labels: Any) -> TensorVariable:
    """Return the number of distinct labels.

    Parameters
    ----------
    labels : tensor_like of int, shape (..., n)
        Cluster labels of n records, such as a :class:`ChineseRestaurantProcess`.

    Returns
    -------
    TensorVariable of int64, shape (...)
        An expression, for ``pm.Deterministic``. The steps for labels store the same number of each draw as
        ``sample_stats["n_clusters"]``, for all mixtures of a model together.

    Raises
    ------
    TypeError
        `labels` are not whole numbers.
    ValueError
        `labels` have no dimension.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dp as dp
    >>> with pm.Model() as model:
    ...     labels = dp.ChineseRestaurantProcess("labels", concentration=1, shape=10)
    ...     k = pm.Deterministic("k", dp.n_clusters(labels))
    >>> int(dp.n_clusters([2, 0, 2, 7]).eval())
    3
    """
    try:
        tensor: Any = pt.as_tensor_variable(labels)
        kind = np.dtype(tensor.type.dtype).kind
    except (TypeError, ValueError, NotImplementedError, AttributeError) as error:
        raise TypeError(
            f"labels must be whole numbers, one for each record, got {type(labels).__name__}."
        ) from error
    if kind not in "iu":
        raise TypeError(
            f"labels must be whole numbers, got dtype {tensor.type.dtype}: give the labels of a partition, "
            "such as dp.ChineseRestaurantProcess."
        )
    if tensor.type.ndim == 0:
        raise ValueError("labels must have one entry for each record, got a scalar: give the whole vector.")
    ordered = pt.sort(tensor, axis=-1)
    changes = pt.neq(ordered[..., 1:], ordered[..., :-1]).sum(axis=-1)
    # without records there is no first cluster
    return pt.cast(changes + pt.minimum(tensor.shape[-1], 1), "int64")
