"""Checks of a partition's arguments, with messages that name them."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from pymc.distributions.shape_utils import convert_shape
from pymc.pytensorf import rvs_in_graph
from pytensor.graph.basic import Constant, Variable
from pytensor.tensor.variable import TensorVariable

# default upper limit of slots: more of them cost more time than the improbable clusters that need them are
# worth
DEFAULT_SLOTS = 50


def the_labels(name: Any, article: str = "the") -> str:
    """Return how a sentence calls labels: by their name too, unless it is that word itself."""
    return f"{article} labels" if name == "labels" else f"{article} labels {name}"


def number_of_records(shape: Any) -> int:
    """Return the number of records that a shape has now."""
    if shape is None:
        raise ValueError(
            "shape is missing: give shape=n, the number of records, or dims, or observed labels that have it."
        )
    lengths = convert_shape(shape)
    if len(lengths) != 1:
        raise ValueError(
            f"shape must have one dimension, the records, got {len(lengths)}: give shape=n. Batches of "
            "partitions are not supported; declare one variable for each."
        )
    length = lengths[0]
    if isinstance(length, Variable):
        if rvs_in_graph([length]):
            raise ValueError("shape must be known, but it is random: give the number of records.")
        try:
            length = length.eval(mode="FAST_COMPILE")
        except Exception as error:
            raise ValueError(
                f"shape must be known, but {length} has no value: give the number of records."
            ) from error
    n = int(length)
    if n < 1:
        raise ValueError(f"shape must give at least one record, got {n}: give the number of records.")
    return n


def scalar(name: str, value: Any, fits: Callable[[float], bool], condition: str) -> TensorVariable:
    """Return a parameter as a real scalar; numbers are checked now, graphs when they are evaluated."""
    try:
        tensor = pt.as_tensor_variable(value)
        kind = np.dtype(tensor.type.dtype).kind
    except (TypeError, ValueError, NotImplementedError, AttributeError) as error:
        raise TypeError(_not_real(name, f"got {type(value).__name__}")) from error
    if kind not in "iuf":
        raise TypeError(_not_real(name, f"got dtype {tensor.type.dtype}"))
    if tensor.type.ndim:
        raise ValueError(
            f"{name} must be a scalar, got {tensor.type.ndim} dimensions: all records share it. Batches of "
            "partitions are not supported."
        )
    if isinstance(tensor, Constant):
        number = float(tensor.data)
        if not (math.isfinite(number) and fits(number)):
            raise ValueError(
                f"{name} must be {condition}, got {number:g}: give such a number, or a prior on it."
            )
        return pt.constant(number, dtype=pytensor.config.floatX)
    return pt.cast(tensor, pytensor.config.floatX)


def _not_real(name: str, got: str) -> str:
    return f"{name} must be real, {got}: give a number or a scalar variable."


def components_of(value: Any) -> TensorVariable:
    """Return the number of components as an integer scalar."""
    if not isinstance(value, Variable):
        return pt.constant(_whole("n_components", value, "or a discrete variable"), dtype="int64")
    if not hasattr(value.type, "dtype") or np.dtype(value.type.dtype).kind not in "iu":
        raise TypeError(
            f"n_components must be an integer or a discrete variable, got a variable of type {value.type}: "
            "give one such as 1 + pm.Poisson(...)."
        )
    if value.type.ndim:
        raise ValueError(
            f"n_components must be a scalar, got {value.type.ndim} dimensions: give one number of components."
        )
    if isinstance(value, Constant):
        return components_of(value.data)
    return pt.cast(value, "int64")


def slots_for(value: Any, n: int, n_components: int | None) -> int:
    """Return the number of slots."""
    if value is None:
        return min(n, DEFAULT_SLOTS) if n_components is None else n_components
    slots = _whole("max_components", value.data if isinstance(value, Constant) else value, "known in advance")
    if n_components is not None and slots < n_components:
        raise ValueError(
            f"max_components = {slots} leaves no slot for some of n_components = {n_components}: give at "
            "least as many, or leave max_components out."
        )
    return slots


def _whole(name: str, value: Any, more: str) -> int:
    """Return an integer of at least 1."""
    advice = f"{name} must be an integer of at least 1, {more}"
    try:
        if isinstance(value, (bool, np.bool_)):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        if isinstance(value, (float, np.floating)):
            raise ValueError(f"{advice}, got {value:g}: round it.") from None
        raise TypeError(f"{advice}, got {type(value).__name__}: give an integer.") from None
    if number < 1:
        raise ValueError(f"{advice}, got {number}: give a larger one.")
    return number


def check_start(name: str, value: Any, slots: int) -> None:
    """Refuse starting labels that are no slots, since they would index the atoms without an error."""
    if value is None or isinstance(value, str | Variable):
        return
    labels = np.asarray(value)
    wrong = ~((labels >= 0) & (labels < slots) & (labels == np.floor(labels)))
    if wrong.any():
        raise ValueError(
            f"The starting values of {the_labels(name)} must be slots, whole numbers from 0 to {slots - 1} "
            f"(max_components = {slots}), got {labels[wrong][0]:g} at index {int(np.flatnonzero(wrong)[0])}: "
            "give each record one of these, or raise max_components and the shape of the atoms."
        )
