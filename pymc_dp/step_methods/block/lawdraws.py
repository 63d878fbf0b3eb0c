"""Draws of a record's law, and its log density, at numbers for the variables behind it."""

import logging
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pymc.distributions.custom import CustomSymbolicDistRV
from pymc.distributions.shape_utils import change_dist_size
from pymc.model.core import Model
from pymc.pytensorf import collect_default_updates
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.type import RandomGeneratorType
from pytensor.tensor.variable import TensorVariable

from pymc_dp.query.records import parameters_of

_log = logging.getLogger("pymc.dp")

# Floating point rounds to a number, too, as 1 + exp(-50) to 1. Then others come so near, as a part of the
# number and of how far draws go; many draws show one.
_ALONE, _MANY = 1e-6, 20
# Numbers drawn at each place, so many for each row if that is not too many, and how often one has to come to
# be an atom.
_DRAWS, _DRAWS_ONE_BY_ONE, _EACH, OFTEN = 1000, 200, 3, 3
# How far from the starting values, in value space, a law is looked at: what is censored at an end far away
# shows no atom, and a law as narrow as floating point (a scale of exp(-30)) shows one that it has not.
# Starting values themselves may be special: at a scale of 0 a law is a point. And draws from the prior.
_WIDTHS = (0.1, 1.0, 1.0, 2.0, 2.0, 4.0, 4.0, 8.0, 8.0, 8.0, 8.0)
_PRIOR = 198
# Numbers of all those many draws, from two times as many as at first on.
_MANY_IN_ALL = 1_000_000
# Numbers drawn at once, where there are many records.
_AT_ONCE = 200_000


def compile_natural(model: Model, given: Sequence[Variable]) -> Any:
    """Return a function from a point of the model to values of some variables."""
    return model.compile_fn(
        model.replace_rvs_by_values(list(given)), inputs=model.value_vars, mode="FAST_COMPILE",
        on_unused_input="ignore",
    )  # fmt: skip


def settings_of(model: Model, given: Sequence[Variable]) -> list[list[np.ndarray]]:
    """Return values of some variables: about the starting values, then drawn together from their prior."""
    natural = compile_natural(model, given)
    start, rng = model.initial_point(), np.random.default_rng(0)
    about: list[list[np.ndarray]] = []
    for width in _WIDTHS:
        point = {
            name: v + rng.uniform(-width, width, np.shape(v)) if v.dtype.kind == "f" else v
            for name, v in start.items()
        }
        about.append([np.asarray(v) for v in natural(point)])
    free = [k for k, v in enumerate(given) if v in model.free_RVs]
    try:
        drawn: Any = pm.draw([given[k] for k in free], draws=_PRIOR, mode="FAST_COMPILE", random_seed=0)
    except Exception as error:  # of a flat prior, or of a user's function
        _log.info(
            "Values of positive probability are sought about the starting values only, since %s cannot be "
            "drawn from their prior (%s).", ", ".join(str(given[k].name) for k in free), type(error).__name__,
        )  # fmt: skip
        return about
    prior = [list(about[0]) for _ in range(_PRIOR)]
    for k, values in zip(free, drawn, strict=True):
        for setting, value in zip(prior, values, strict=True):
            setting[k] = np.asarray(value, dtype=about[0][k].dtype)
    # in turn, in case that not all are looked at
    several = len(prior) // len(about)
    return [each for k, one in enumerate(about) for each in (one, *prior[k * several : (k + 1) * several])]


class LawDensity:
    """Log density of the rows of a law given the variables behind it.

    Raises
    ------
    NotImplementedError
        When called, if the law has none.
    """

    def __init__(self, rv: TensorVariable, given: Sequence[Variable]):
        self._rv, self._given = rv, given
        self._function: Any = None

    def __call__(self, value: np.ndarray, values: Sequence[np.ndarray]) -> np.ndarray:
        """Return the log density of each row."""
        if self._function is None:
            inputs: list[Any] = [v.type() for v in self._given]  # type: ignore[operator]
            # the numbers first: a log density that PyMC derives may be one of copies of its variables
            law = clone_replace(self._rv, dict(zip(self._given, inputs, strict=True)), rebuild_strict=False)
            variable = pt.tensor(dtype="float64", shape=law.type.shape)
            self._function = pytensor.function(
                [variable, *inputs], pm.logp(law, variable, warn_rvs=False), mode="FAST_COMPILE",
                on_unused_input="ignore", allow_input_downcast=True,
            )  # fmt: skip
        with np.errstate(all="ignore"):
            return np.asarray(self._function(value, *values))


class LawDraws:
    """Draws of a law given the variables behind it, which may be repeated with the same random numbers.

    Attributes
    ----------
    total : int
        Numbers drawn so far.
    logp : LawDensity
        The log density of the law.
    """

    def __init__(self, rv: TensorVariable, given: Sequence[Variable]):
        self.total, self.logp, self._name = 0, LawDensity(rv, given), str(rv.name)
        self._inputs: list[Any] = [v.type() for v in given]  # type: ignore[operator]
        numbers = dict(zip(given, self._inputs, strict=True))
        self._one = self._compiled(clone_replace(rv, numbers, rebuild_strict=False), [])
        self._several: Any = None
        self._shape: tuple[int, ...] | None = None
        number = pt.lscalar("number")
        try:
            several = _resized(rv, number)
            if not {v.name for v in set(ancestors([several])).difference(given)} & {v.name for v in given}:
                several = clone_replace(several, numbers, rebuild_strict=False)
                self._several = self._compiled(several, [number])
        except Exception as error:  # of a law, or of a user's function, that knows one size only
            self._draw_one_by_one(error)

    def _draw_one_by_one(self, reason: Exception) -> None:
        """Draw so from now on, and say it: rarer numbers of positive probability are not seen then."""
        self._several = None
        _log.info(
            "Values of positive probability are sought among %s draws of %s at each place, not %s: its "
            "function does not draw several at once (%s: %s).",
            _DRAWS_ONE_BY_ONE, self._name, _DRAWS, type(reason).__name__, str(reason).partition("\n")[0],
        )  # fmt: skip

    def _compiled(self, draw: Any, lengths: list[Any]) -> Any:
        generators = [
            v
            for v in ancestors([draw])
            if isinstance(v, SharedVariable) and isinstance(v.type, RandomGeneratorType)
        ]
        function = pytensor.function(
            [*lengths, *self._inputs], draw, mode="FAST_COMPILE", on_unused_input="ignore",
            allow_input_downcast=True, updates=collect_default_updates([draw], must_be_shared=False),
        )  # fmt: skip
        return generators, function

    @staticmethod
    def _seeded(compiled: Any, seed: int) -> Any:
        generators, function = compiled
        for k, generator in enumerate(generators):
            generator.set_value(np.random.default_rng([seed, k]), borrow=True)
        return function

    def at(self, seed: int, values: Sequence[np.ndarray]) -> np.ndarray:
        """Return draws, the same for the same seed.

        Returns
        -------
        np.ndarray, shape (draws, ...)
        """
        if self._shape is None:
            self._shape = np.shape(self._seeded(self._one, seed)(*values))
        n = max(math.prod(self._shape), 1)
        each, found = min(_EACH, _AT_ONCE // n), np.zeros(0)
        if self._several is not None:
            number = max(each, -(-_DRAWS // n))
            try:
                found = self._seeded(self._several, seed)(number, *values)
                if np.shape(found) != (number, *self._shape):
                    raise ValueError(f"draws of shape {(number, *self._shape)} came as {np.shape(found)}")
            except Exception as error:  # of a user's function for this size, or for these values
                one = self._seeded(self._one, seed)
                one(*values)  # for these values, it says so itself
                self._draw_one_by_one(error)
        if self._several is None:
            number = max(each, -(-_DRAWS_ONE_BY_ONE // n))
            one = self._seeded(self._one, seed)
            found = np.stack([one(*values) for _ in range(number)])
        self.total += found.size
        return found

    def is_alone(self, number: float, values: Sequence[np.ndarray]) -> bool:
        """Whether a number has a probability, rather than being what others round to."""
        distance = np.abs(self.many(values) - number)
        far = np.max(distance, initial=0.0, where=np.isfinite(distance))
        return not np.any((distance > 0) & (distance <= _ALONE * min(abs(number), far)))

    def many(self, values: Sequence[np.ndarray]) -> np.ndarray:
        """Return more draws, of other random numbers; not as many more of very large laws."""
        first = self.at(_MANY, values)
        more = (self.at(_MANY + seed, values) for seed in range(1, self.number_of_many(first) // len(first)))
        return np.concatenate([first, *more])

    @staticmethod
    def number_of_many(drawn: np.ndarray) -> int:
        """Return the number of draws of :meth:`many`, given those of :meth:`at`."""
        return len(drawn) * int(np.clip(_MANY_IN_ALL // drawn.size, 2, _MANY))


def _resized(rv: TensorVariable, number: Variable) -> TensorVariable:
    """Return so many draws of a law, along a new first axis.

    PyMC gives a CustomDist the parameters that it had before its model was copied; these are put right here.
    """
    several = change_dist_size(rv, pt.stack([number]), expand=True)
    node: Any = several.owner
    if isinstance(node.op, CustomSymbolicDistRV):
        size, *others = node.inputs
        parameters = parameters_of(rv)
        node = node.clone_with_new_inputs([size, *parameters, *others[len(parameters) :]], strict=False)
    return node.outputs[several.owner.outputs.index(several)]


def repeated(draws: np.ndarray) -> np.ndarray:
    """Return the numbers that come repeatedly, the most frequent first."""
    numbers, counts = np.unique(draws, return_counts=True)
    # the numbers next to zero are what floating point leaves of others
    is_normal = np.isfinite(numbers) & ((numbers == 0) | (np.abs(numbers) >= np.finfo(float).tiny))
    often = is_normal & (counts >= OFTEN)
    return numbers[often][np.argsort(-counts[often], kind="stable")]
