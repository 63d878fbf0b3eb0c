"""Ends with a probability, of laws given by a log density alone, that are where a parameter says.

Nothing can be drawn of such a law. But a log density that is `log(p)` for all values at and above an end, as
``pt.switch(value >= c, log(p), ...)``, does not fall towards infinity, as that of every continuous law must.
Where its constant begins with a jump is the end, and whether the end moves is seen by changes of a parameter.
"""

from collections.abc import Callable

import numpy as np
from pymc.model.core import Model
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable

from pymc_dp.query.records import parameters_of
from pymc_dp.query.rowlocal import leaves_of
from pymc_dp.step_methods.block.lawdraws import LawDensity, compile_natural

# Between these two values a density falls by the same factor, or its integral is infinite; in logarithms,
# with some room for rounding.
_FAR, _FARTHER, _FALL = 1e9, 1e15, 13.0
# Distances from the starting values at which a law is looked at, and changes of a parameter, in value space.
_WIDTHS, _CHANGES = (0.1, 1.0), (0.5, -3.0, 1000.0)
# Halvings of an interval in which a constant begins, and relative differences of log densities and of ends.
_HALVINGS, _SAME, _MOVED = 40, 1e-9, 1e-6


def behind_tails(law: TensorVariable, model: Model) -> list[Variable]:
    """Return the variables that move an end with a probability which an inequality marks up to infinity.

    Parameters
    ----------
    law : TensorVariable
        Law of numbers, given by its log density alone; nothing is known of vectors.
    model : pymc.Model
    """
    if law.owner.op.ndim_supp > 0:  # type: ignore[union-attr]
        return []
    given = leaves_of(parameters_of(law), set(model.basic_RVs))
    density, natural = LawDensity(law, given), compile_natural(model, given)
    names = {v: model.rvs_to_values[v].name for v in given if v in model.free_RVs}  # type: ignore[index]
    shape = tuple(law.shape.eval())
    start, rng = model.initial_point(), np.random.default_rng(0)
    found: set[Variable] = set()

    def ends(values: list[np.ndarray]) -> np.ndarray:
        return np.stack([_end(lambda v: density(v, values), shape, side) for side in (-1, 1)])

    for width in _WIDTHS:
        point = {
            name: v + rng.uniform(-width, width, np.shape(v)) if v.dtype.kind == "f" else v
            for name, v in start.items()
        }
        values = natural(point)
        here = ends(values)
        if np.all(np.isnan(here)):
            continue
        for k, v in enumerate(given):
            for change in _CHANGES if v in names and v not in found else ():
                moved = natural({**point, names[v]: point[names[v]] + change})[k]
                there = ends([moved if j == k else value for j, value in enumerate(values)])
                apart = np.abs(here - there) > _MOVED * np.maximum(np.abs(here), np.abs(there)) + 1e-12
                if np.any(apart):
                    found.add(v)
                    break
    return [v for v in given if v in found]


def _end(logp: Callable[[np.ndarray], np.ndarray], shape: tuple[int, ...], side: int) -> np.ndarray:
    """Return where a log density jumps to a constant that lasts up to infinity on a side, or nan."""
    far, farther = (logp(np.full(shape, side * value)) for value in (_FAR, _FARTHER))
    is_constant = np.isfinite(farther) & ~(farther <= far - _FALL)
    outside = np.full(shape, side * _FARTHER)
    inside = np.full(shape, np.nan)
    if np.any(is_constant):
        powers = 10.0 ** np.arange(15, -7, -3)
        for value in side * np.concatenate([powers, [0.0], -powers[::-1]]):
            same = _same(logp(np.full(shape, value)), farther)
            outside = np.where(same & np.isnan(inside), value, outside)
            inside = np.where(~same & np.isnan(inside), value, inside)
        for _ in range(_HALVINGS):
            middle = (inside + outside) / 2
            same = _same(logp(middle), farther)
            inside, outside = np.where(same, inside, middle), np.where(same, middle, outside)
        jumps = ~(np.abs(logp(inside) - farther) <= np.sqrt(_SAME) * (1 + np.abs(farther)))
        is_constant = is_constant & np.isfinite(inside) & jumps
    return np.where(is_constant, outside, np.nan)


def _same(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.abs(a - b) <= _SAME * (1 + np.abs(b))
