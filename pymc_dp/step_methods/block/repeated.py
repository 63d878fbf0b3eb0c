"""Values that draws of a record's law repeat, and which variables say what these values are.

A log density that a user wrote may know its values of positive probability in any way: by an inequality, by
rounding, or not at all where draws are rounded. Draws show them all the same. A continuous law gives no
number twice; a number that comes again has a probability. A real variable says where it is if that number,
drawn with the same random numbers, is another one as soon as the variable changes in its tenth digit. Places
that jump are a matter of larger changes (:mod:`~pymc_dp.step_methods.block.jumps`).
"""

import warnings
from collections.abc import Sequence

import numpy as np
from pymc.model.core import Model
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable

from pymc_dp.query.records import parameters_of
from pymc_dp.query.rowlocal import leaves_of
from pymc_dp.query.supports import atoms_of, has_density
from pymc_dp.step_methods.block.jumps import Jumps
from pymc_dp.step_methods.block.lawdraws import OFTEN, LawDraws, repeated, settings_of

# How far from the starting values, in value space, a law is looked at: what is censored at an end far away
# shows no atom, and a law as narrow as floating point (a scale of exp(-30)) shows one that it has not.
# Starting values themselves may be special: at a scale of 0 a law is a point.
_WIDTHS = (0.1, 1.0, 1.0, 2.0, 2.0, 4.0, 4.0, 8.0, 8.0, 8.0, 8.0)
# Relative change of a variable: too small to move a draw across a rounding, large for floating point.
_CHANGE = 1e-10
# Settings, and draws at each, at which differences of a walk's entries are compared with its steps, and by
# how much its log density may differ.
_WALKS, _EACH, _SAME = 30, 3, 1e-6
# Numbers drawn in all, where there are many records.
_MOST = 2_000_000


def behind_repeated(rv: TensorVariable, model: Model) -> list[Variable]:
    """Return the variables that move values which draws of a law of real numbers repeat.

    Parameters
    ----------
    rv : TensorVariable
        Record variable of the model.
    model : pymc.Model

    Warns
    -----
    UserWarning
        If the law could not be drawn, so that nothing is known of its values.
    """
    if not rv.type.dtype.startswith("float"):
        return []
    places = atoms_of(rv)
    if places is not None:  # known without a draw
        return leaves_of(places, set(model.basic_RVs))
    given = leaves_of(parameters_of(rv), set(model.basic_RVs))
    found: set[Variable] = set()
    failed: Exception | None = None
    looked_at, spent = False, 0
    try:
        draws = LawDraws(rv, given)
        jumps = Jumps(draws, given, model)
    except (NotImplementedError, TypeError, ValueError) as error:
        _warn(rv, error)
        return []
    start, rng = model.initial_point(), np.random.default_rng(0)
    for seed, width in enumerate(_WIDTHS):
        point = {
            name: v + rng.uniform(-width, width, np.shape(v)) if v.dtype.kind == "f" else v
            for name, v in start.items()
        }
        before = draws.total
        try:
            with np.errstate(all="ignore"):
                values = jumps.natural(point)
                if _moved(draws, seed, values, range(len(given))):
                    found |= {v for k, v in enumerate(given) if _moved(draws, seed, values, [k])}
            looked_at = True
        except Exception as error:  # of a user's function, or of NumPy's: no law there
            failed = error
            continue
        spent += draws.total - before
        found |= jumps.behind(
            seed, point, values, set(given) - found, enough=draws.total - spent > _MOST // 2
        )
        if spent > _MOST:
            break
    if not looked_at and failed is not None:
        _warn(rv, failed)
    for v in jumps.failed.keys() - found:
        _warn(rv, jumps.failed[v], f"changes of {v.name}")
    return [v for v in given if v in found]


def _warn(rv: TensorVariable, error: Exception, where: str = "all places about the starting values") -> None:
    warnings.warn(
        f"Draws of the law of {rv.name or 'rows'}, or its density, failed ({type(error).__name__}) at "
        f"{where}. Whether it has values of positive probability at places that depend on a parameter is not "
        "known then, and if it has, draws of that parameter are wrong.",
        UserWarning,
        stacklevel=3,
    )


def _moved(draws: LawDraws, seed: int, values: Sequence[np.ndarray], which: Sequence[int]) -> bool:
    """Whether a number that is drawn repeatedly is never drawn any more where some values change a little."""
    changed = [np.asarray(v) for v in values]
    for k in which:
        if changed[k].dtype.kind == "f":
            changed[k] = changed[k] + _CHANGE * np.where(changed[k] == 0, 1.0, np.abs(changed[k]))
    before = np.ravel(draws.at(seed, values))
    numbers, where, counts = np.unique(before, return_inverse=True, return_counts=True)
    atoms = np.isfinite(numbers) & (counts >= OFTEN)
    if not atoms.any() or not np.array_equal(before, np.ravel(draws.at(seed, values)), equal_nan=True):
        return False  # or draws of its own generator, which tell nothing here
    stayed = np.bincount(where, before == np.ravel(draws.at(seed, changed)), minlength=numbers.size)
    return any(draws.is_alone(atom, values) for atom in numbers[atoms & (stayed == 0)][:OFTEN])


def loses_atoms(rv: TensorVariable, model: Model) -> bool:
    """Whether a random walk does not give back the values of positive probability that its steps have.

    Its log density is that of differences of its entries, and (x + 1) - x need not be 1 in floating point.
    """
    start, steps = parameters_of(rv)[:2]
    if not rv.type.dtype.startswith("float") or has_density(steps):
        return False
    given = leaves_of([start, steps], set(model.basic_RVs))
    try:
        settings = settings_of(model, given)
        begin, by = LawDraws(start, given), LawDraws(steps, given)
    except Exception:  # such a law cannot be drawn, which is told elsewhere
        return False
    for seed, values in enumerate(settings[:_WALKS]):
        try:
            with np.errstate(all="ignore"):
                first, step = begin.at(seed, values), by.at(seed, values)
                n = min(len(first), len(step))
                back = np.diff(np.cumsum(np.concatenate([first[:n], step[:n]], axis=1), axis=1), axis=1)
                atoms = np.isin(step[:n], repeated(step)) & (back != step[:n])
                for k in np.flatnonzero(atoms.any(axis=tuple(range(1, atoms.ndim))))[:_EACH]:
                    told, right = by.logp(back[k], values), by.logp(step[k], values)
                    if np.any(np.abs(told - right) > _SAME * (1 + np.abs(right))):
                        return True
        except NotImplementedError:  # no density: no step moves by it
            return False
        except Exception:  # of a user's function: no law there
            continue
    return False
