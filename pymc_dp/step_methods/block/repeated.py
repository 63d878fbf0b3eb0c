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
from pymc_dp.step_methods.block.jumps import Jumps, Setting
from pymc_dp.step_methods.block.lawdraws import OFTEN, LawDraws, repeated, settings_of

# Relative change of a variable: too small to move a draw across a rounding, large for floating point.
_CHANGE = 1e-10
# Settings, and draws at each, at which differences of a walk's entries are compared with its steps, and by
# how much its log density may differ.
_WALKS, _EACH, _SAME = 30, 3, 1e-6
# Settings with repeated numbers at which small changes are tried, and what all draws at settings start from.
_MOVED, _SEED = 30, 0
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
    leaves = set(leaves_of(parameters_of(rv), set(model.basic_RVs)))
    given = [v for v in model.basic_RVs if v in leaves]
    failed: Exception | None = None

    def at(values: Sequence[np.ndarray]) -> Setting | None:
        nonlocal failed
        try:
            with np.errstate(all="ignore"):
                drawn = draws.at(_SEED, values)
                return Setting(values, drawn, repeated(drawn))
        except Exception as error:  # of a user's function, or of NumPy's: no law there
            failed = error
            return None

    try:
        draws = LawDraws(rv, given)
        several = settings_of(model, given)
    except (NotImplementedError, TypeError, ValueError) as error:
        _warn(rv, error)
        return []
    settings, tried = [], 0
    for values in several if given else several[:1]:
        tried += 1
        settings += [setting for setting in (at(values),) if setting is not None]
        if draws.total > _MOST:
            break
    if failed is not None and len(settings) < tried / 2:
        _warn(rv, failed, f"{tried - len(settings)} of {tried} places" if settings else "all places")
    if not settings or not _follows_seed(draws, settings[0]):
        return []  # draws of a generator of its own tell nothing here
    found: set[Variable] = set()
    with np.errstate(all="ignore"):
        for setting in [s for s in settings if s.repeated.size][:_MOVED]:
            if _moved(draws, setting, range(len(given))):
                found |= {v for k, v in enumerate(given) if v not in found and _moved(draws, setting, [k])}
        found |= Jumps(draws, given, at).behind(settings)
    return [v for v in given if v in found]


def _follows_seed(draws: LawDraws, setting: Setting) -> bool:
    return np.array_equal(setting.drawn, draws.at(_SEED, setting.values), equal_nan=True)


def _warn(rv: TensorVariable, error: Exception, where: str = "all places about the starting values") -> None:
    warnings.warn(
        f"Draws of the law of {rv.name or 'rows'}, or its density, failed ({type(error).__name__}) at "
        f"{where}. Whether it has values of positive probability at places that depend on a parameter is not "
        "known then, and if it has, draws of that parameter are wrong.",
        UserWarning,
        stacklevel=3,
    )


def _moved(draws: LawDraws, setting: Setting, which: Sequence[int]) -> bool:
    """Whether a number that is drawn repeatedly is never drawn any more where some values change a little."""
    changed = [np.asarray(v) for v in setting.values]
    for k in which:
        if changed[k].dtype.kind == "f":
            changed[k] = changed[k] + _CHANGE * np.where(changed[k] == 0, 1.0, np.abs(changed[k]))
    before, after = setting.drawn, draws.at(_SEED, changed)
    gone = [a for a in setting.repeated if not np.any((before == a) & ((after == a) | ~np.isfinite(after)))]
    return any(draws.is_alone(number, setting.values) for number in gone[:OFTEN])


def loses_atoms(rv: TensorVariable, model: Model) -> bool:
    """Whether a random walk does not give back the values of positive probability that its steps have.

    Its log density is that of differences of its entries, and (x + 1) - x need not be 1 in floating point.
    """
    start, steps = parameters_of(rv)[:2]
    if not rv.type.dtype.startswith("float") or has_density(steps):
        return False
    leaves = set(leaves_of([start, steps], set(model.basic_RVs)))
    given = [v for v in model.basic_RVs if v in leaves]
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
