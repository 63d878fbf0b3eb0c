"""Which model, which records, where to start: what a step has to find out before it is built."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
from pymc.model.core import Model, modelcontext
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable

from pymc_dp.records import RecordBlock, find_record_blocks

if TYPE_CHECKING:
    from pymc_dp.step_methods.base import RecordChain

# Times that the jitter of a starting point is halved, as long as records have no law there.
_HALVINGS = 5

_BLOCKS: "WeakKeyDictionary[Model, tuple[tuple[Any, ...], list[RecordBlock]]]" = WeakKeyDictionary()


def record_blocks(model: Model) -> list[RecordBlock]:
    """Return the record blocks of a model, remembered until the model gets new variables or lengths."""
    variables = (*model.basic_RVs, *model.potentials, *model.rvs_to_values.values())
    version = (*map(id, variables), *_data_shapes(model))
    cached = _BLOCKS.get(model)
    if cached is None or cached[0] != version:
        _BLOCKS[model] = cached = (version, find_record_blocks(model))
    return cached[1]


def _data_shapes(model: Model) -> list[tuple[int, ...]]:
    """Shapes of the data, which ``pm.set_data`` may change, and the lengths of all dimensions."""
    lengths = [v.get_value() if isinstance(v, SharedVariable) else v.data for v in model.dim_lengths.values()]
    return [*(v.get_value(borrow=True).shape for v in model.data_vars), tuple(int(n) for n in lengths)]


def model_of(rv: Variable) -> Model | None:
    """Find the model of a variable while PyMC assigns step methods.

    PyMC asks ``competence(var, has_grad)`` without the model, and does not push it when it was passed to
    ``pm.sample(model=...)``; the model is then a local variable of the calling frames.
    """
    try:
        model = modelcontext(None)
        if rv in model.free_RVs:
            return model
    except TypeError:
        pass
    frame = sys._getframe(1)
    while frame is not None:
        model = frame.f_locals.get("model")
        if isinstance(model, Model) and rv in model.free_RVs:
            return model
        frame = frame.f_back  # type: ignore[assignment]
    return None


def blocks_with(model: Model, values: Sequence[Variable]) -> list[RecordBlock]:
    """Return the blocks whose record variables are all among some value variables."""
    given = set(values)
    blocks = []
    for block in record_blocks(model):
        own = {model.rvs_to_values[rv] for rv in block.records}
        if own & given:
            missing = own - given
            if missing:
                raise ValueError(
                    f"The records {', '.join(block.names)} have to move together; `vars` leaves out "
                    f"{', '.join(sorted(str(v.name) for v in missing))}."
                )
            blocks.append(block)
            given -= own
    if given:
        raise ValueError(
            f"{', '.join(sorted(str(v.name) for v in given))} in `vars` are no confidential records of this "
            "model; leave `vars` out to take all records."
        )
    return blocks


def dispersed_start(
    chains: Sequence["RecordChain"],
    point: dict[str, np.ndarray],
    default_point: dict[str, np.ndarray],
    initial_point: dict[str, np.ndarray],
    tune: bool,
    rng: np.random.Generator,
) -> dict[str, np.ndarray]:
    """Starting values for the records, and for continuous parameters, that stand at the model's default.

    PyMC starts all chains of a mixed sampler at one point, without jitter. Where the records still stand
    there, parameters that nobody set are jittered by U(-1, 1) in value space, as PyMC does for NUTS alone
    (while tuning only), and the records are drawn from their law given the parameters. The jitter is halved
    as long as it leaves records without a law, and left out at last.
    """
    moved: dict[str, np.ndarray] = {}
    for chain in chains:
        program = chain.program
        if not all(np.array_equal(point[n], default_point[n]) for n in program.records.names):
            continue
        jitter = {}
        for name in program.parameters.names:
            start = np.asarray(default_point[name])
            untouched = np.array_equal(initial_point[name], start) and np.array_equal(point[name], start)
            if tune and name not in moved and start.dtype.kind == "f" and untouched:
                jitter[name] = rng.uniform(-1, 1, size=start.shape)
        for halvings in range(_HALVINGS + 1):
            share = 0.5**halvings if halvings < _HALVINGS else 0.0
            near = {
                name: np.asarray(
                    default_point[name] + share * by, dtype=np.asarray(default_point[name]).dtype
                )
                for name, by in jitter.items()
            }
            theta = program.parameters.flatten({**point, **moved, **near})
            if not program.have_law(theta):
                if halvings < _HALVINGS:
                    continue
                raise ValueError(
                    f"The records {', '.join(program.names)} have no law at the starting values of their "
                    "parameters, which are outside of its domain: give other ones (initval=)."
                )
            drawn = chain.draw(rng, theta)
            if not np.isnan(drawn).any():
                break
        moved |= {**near, **program.records.unpack(drawn)}
    return moved
