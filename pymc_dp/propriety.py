"""Parameters without a proper law that nothing in the model keeps from running off to infinity.

A bounded query has a density above zero wherever the records are, so that under a flat prior the posterior
cannot be normalised. A sampler shows nothing of it: chains wander off. Here the likelihood of all that was
observed is asked very far out, with everything that depends on the parameter drawn from its law there: where
it does not fall even as fast as one over the parameter, there is an infinite mass. What is not refused is not
certified: the likelihood may fall too slowly in ways that single draws do not show.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from pymc.distributions.continuous import FlatRV, HalfFlatRV
from pymc.logprob.transforms import LogTransform
from pymc.model.core import Model
from pymc.pytensorf import collect_default_updates
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.type import RandomGeneratorType

from pymc_dp.query.readings import lift, substitute
from pymc_dp.query.records import parameters_of
from pymc_dp.query.rowlocal import leaves_of

# Two places far beyond any noise, or as near to zero, and by how much the logarithm of a likelihood falls
# between them that falls as one over the parameter does; a little more or less, for what is random in it.
_FAR = (1e12, 1e15)
_FALL, _MORE_OR_LESS = math.log(_FAR[1] / _FAR[0]), 0.6
# Draws of everything else at which the likelihood has to stay up, and most entries that are tried.
_TRIES, _MOST_ENTRIES = 3, 64
# How many times the largest number observed a parameter with a flat law may be.
_AWAY = 1e9


def refuse_improper(model: Model) -> None:
    """Refuse a model whose posterior is improper in a parameter with an improper law.

    Parameters
    ----------
    model : pymc.Model

    Raises
    ------
    ValueError
        If the likelihood of the observed variables and the potentials does not fall as a ``pm.Flat`` or
        ``pm.HalfFlat`` parameter goes to infinity.

    Notes
    -----
    A likelihood that falls in every try may still belong to an improper posterior: a scale with a
    ``pm.HalfFlat`` law behind one unclamped sum has one that falls as 1 / scale on average.
    """
    for rv in model.free_RVs:
        if isinstance(rv.owner.op, FlatRV | HalfFlatRV):
            for where in _runs_off(model, rv):
                raise ValueError(
                    f"{rv.name} has an improper law ({type(rv.owner.op).__name__.removesuffix('RV')}), and "
                    f"neither the releases nor anything else that was observed keep it from {where}: queries "
                    "whose contributions are bounded say nothing of how far out it is, so that the posterior "
                    f"is improper. Give {rv.name} a proper law, for example pm.Normal or pm.HalfNormal of a "
                    "wide scale."
                )


def refuse_runaway(model: Model, point: dict[str, np.ndarray]) -> None:
    """Refuse a point at which a parameter with a flat law has run far beyond all that was observed.

    Several flat parameters may be kept from infinity one by one, but not together: of two that only their sum
    is known of, each is what the other is not.

    Parameters
    ----------
    model : pymc.Model
    point : dict
        Of value variables.

    Raises
    ------
    ValueError
    """
    flat = [rv for rv in model.free_RVs if isinstance(rv.owner.op, FlatRV)]
    if not flat:
        return
    known: list[Any] = [*(model.rvs_to_values[rv] for rv in model.observed_RVs), *model.data_vars]
    arrays = [
        v.get_value(borrow=True) if isinstance(v, SharedVariable) else v.data for v in known if _is_data(v)
    ]
    largest = _AWAY * (1 + max((float(np.nanmax(np.abs(a))) for a in arrays if np.size(a)), default=0.0))
    values = {str(rv.name): point[model.rvs_to_values[rv].name] for rv in flat}
    away = [name for name, value in values.items() if np.max(np.abs(value), initial=0) > largest]
    if away:
        raise ValueError(
            f"{', '.join(away)} ran beyond {_AWAY:g} times the largest number that was observed. The law of "
            "each is improper (Flat), and what was observed seems to leave a combination of them free, so "
            "that the posterior is improper: give them proper laws, for example pm.Normal of a wide scale, "
            "or measure in larger units."
        )


def _is_data(v: Any) -> bool:
    return isinstance(v, SharedVariable | Constant) and np.dtype(v.type.dtype).kind in "iuf"


def _runs_off(model: Model, rv: Any) -> Iterator[str]:
    """Yield where the likelihood does not fall, in words."""
    likelihood = _likelihood(model, rv)
    start = np.asarray(model.initial_point()[model.rvs_to_values[rv].name], dtype=float)
    transform = model.rvs_to_transforms.get(rv)
    if likelihood is None or not isinstance(transform, LogTransform | None):
        return
    natural = start if transform is None else np.exp(start)
    ways = [("infinity", _FAR, _FALL)]
    if isinstance(rv.owner.op, FlatRV):
        ways.append(("minus infinity", (-_FAR[0], -_FAR[1]), _FALL))
    else:  # towards zero the likelihood may not grow as fast
        ways.append(("zero", (1 / _FAR[0], 1 / _FAR[1]), -_FALL))
    for entry in list(np.ndindex(start.shape))[:_MOST_ENTRIES]:
        for where, places, fall in ways:
            if all(_stays_up(likelihood, natural, entry, places, fall, seed) for seed in range(_TRIES)):
                yield f"going to {where}"


def _stays_up(
    likelihood: Callable[[np.ndarray, int], float],
    natural: np.ndarray,
    entry: tuple,
    places: tuple[float, float],
    fall: float,
    seed: int,
) -> bool:
    values = []
    for place in places:
        at = np.array(natural)
        at[entry] = place
        values.append(likelihood(at, seed))
    near, beyond = values
    return bool(np.isfinite(near) and np.isfinite(beyond) and near - beyond < fall + _MORE_OR_LESS)


def _likelihood(model: Model, rv: Any) -> Callable[[np.ndarray, int], float] | None:
    """Log likelihood at natural values of a variable; what depends on it is drawn, other things are jittered.

    The same seed draws the same random numbers, so that two places differ by the parameter alone.
    """
    terms = [*model.observed_RVs, *model.potentials]
    try:
        draws, moved = _draws_given(model, rv)
        logp = pytensor.function(
            model.value_vars, model.logp(vars=terms) if terms else pt.constant(0.0), mode="FAST_COMPILE",
            on_unused_input="ignore", allow_input_downcast=True,
        )  # fmt: skip
    except (NotImplementedError, TypeError, ValueError):
        return None  # a law that cannot be drawn this way: nothing is said of it
    start = model.initial_point()

    def likelihood(at: np.ndarray, seed: int) -> float:
        rng = np.random.default_rng(seed)
        point = {
            name: v + rng.uniform(-1, 1, np.shape(v)) if v.dtype.kind == "f" else v
            for name, v in start.items()
        }
        try:
            with np.errstate(all="ignore"):
                point.update(zip(moved, draws(seed, [at, *point.values()]), strict=True))
                return float(logp(*(point[v.name] for v in model.value_vars)))
        except (ValueError, AssertionError, ArithmeticError, MemoryError, np.linalg.LinAlgError):
            return math.nan  # no law, no draw, or no room for a sum over so many values, so far out

    return likelihood


def _draws_given(model: Model, rv: Any) -> tuple[Callable[[int, list[Any]], list[Any]], list[str]]:
    """Return a function that draws whatever depends on a variable, and the value variables that it gives.

    It takes a seed, the natural value of the variable, and the model's point, and gives values in value
    space, the variable's own first.
    """
    variables = set(model.basic_RVs)
    values = [v.type() for v in model.value_vars]
    given = rv.type()
    natural: dict[Variable, Variable] = {rv: given}
    moved, outputs = [rv], [_forward(model, rv, given, natural)]
    for other in model.free_RVs:  # in the model's order: parents come first
        if other is rv:
            continue
        if set(leaves_of(parameters_of(other), variables)) & set(moved):
            lifted = lift(other, natural)
            natural[other] = lifted
            moved.append(other)
            outputs.append(_forward(model, other, lifted, natural))
        else:
            value, transform = model.rvs_to_values[other], model.rvs_to_transforms.get(other)
            held = values[model.value_vars.index(value)]
            inputs = substitute(other.owner.inputs, natural)
            natural[other] = held if transform is None else transform.backward(held, *inputs)
    generators = [
        v
        for v in ancestors(outputs)
        if isinstance(v, SharedVariable) and isinstance(v.type, RandomGeneratorType)
    ]
    function = pytensor.function(
        [given, *values], outputs, mode="FAST_COMPILE", on_unused_input="ignore", allow_input_downcast=True,
        updates=collect_default_updates(outputs, must_be_shared=False),
    )  # fmt: skip

    def draw(seed: int, inputs: list[Any]) -> list[Any]:
        for k, generator in enumerate(generators):
            generator.set_value(np.random.default_rng([seed, k]))
        return function(*inputs)

    return draw, [str(model.rvs_to_values[v].name) for v in moved]


def _forward(model: Model, rv: Any, natural: Any, reading: dict[Variable, Variable]) -> Any:
    """Natural space -> value space."""
    transform = model.rvs_to_transforms.get(rv)
    return natural if transform is None else transform.forward(natural, *substitute(rv.owner.inputs, reading))
