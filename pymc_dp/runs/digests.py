"""Digests of values and graphs: the same in any process for what is the same, however large it prints."""

import dataclasses
import enum
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from types import FunctionType
from typing import Any

import cloudpickle
import numpy as np
from pymc.util import RandomGeneratorState
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.op import HasInnerGraph
from pytensor.graph.traversal import ancestors, toposort

from pymc_dp.lowering.compiling.keys import key_of

_ADDRESS = re.compile(r"0x[0-9a-fA-F]+")
_PRINTED = (bool, int, float, complex, str, bytes, type(None), np.bool_, np.number)


def hashed(text: str) -> str:
    """Return the digest of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def digest_of(value: Any) -> str:
    """Return a digest of a value, which depends on what is in it alone.

    A pickle would not do: it depends on which equal parts are one object, and on the session for classes of
    a script. Generators count for nothing, because a run gives steps generators of its own.
    """
    return hashed("\n".join(_parts(value)))


def told(value: Any) -> str:
    """Return a value as text that tells it from others, and that a message can show."""
    return repr(value) if _is_printed(value) else f"{type(value).__name__} {digest_of(value)}"


def digests_of_graphs(outputs: Sequence[Variable], known: Mapping[Variable, str]) -> list[str]:
    """Return digests of what graphs compute.

    Parameters
    ----------
    outputs : sequence of Variable
    known : mapping
        Variables without an owner that have a name in place of a value, and that name.
    """
    found: dict[Variable, str] = {}
    for variable in ancestors(outputs):
        if variable.owner is None:
            text = known.get(variable) or f"{variable.type} {_data_of(variable)}"
            found[variable] = hashed(text)
    for node in toposort(outputs):
        text = _text_of(node.op) + " ".join(found[v] for v in node.inputs)
        for k, variable in enumerate(node.outputs):
            found[variable] = hashed(f"{text} {k}")
    return [found[v] for v in outputs]


def without_addresses(text: str) -> str:
    """Return a text without addresses of objects, which differ between processes."""
    return _ADDRESS.sub("", text)


def _text_of(op: Any) -> str:
    """Say what an operation is; of loops and other graphs within a graph, what these compute."""
    text = without_addresses(f"{type(op).__qualname__} {op!r} ")
    if isinstance(op, HasInnerGraph):
        names = {v: f"input {k} {v.type}" for k, v in enumerate(op.inner_inputs)}
        text += "".join(digests_of_graphs(op.inner_outputs, names)) + " "
    return text


def _data_of(variable: Variable) -> str:
    if isinstance(variable, Constant):
        data = variable.data
    elif isinstance(variable, SharedVariable):
        data = variable.get_value(borrow=True)
    else:
        return str(variable.name)
    if isinstance(data, np.ndarray | np.generic):
        return digest_of(np.asarray(data))
    return without_addresses(repr(data))


def _is_printed(value: Any) -> bool:
    if type(value) in (list, tuple):
        return all(map(_is_printed, value))
    if type(value) is dict:
        return all(map(_is_printed, [*value, *value.values()]))
    return isinstance(value, _PRINTED)


def _parts(value: Any) -> Iterable[str]:
    yield f"{type(value).__module__}.{type(value).__qualname__}"
    if isinstance(value, _PRINTED):
        yield repr(value)
    elif isinstance(value, np.ndarray) and value.dtype.kind != "O":
        yield f"{value.dtype.str} {value.shape}"
        yield hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
    elif isinstance(value, np.ndarray):
        yield str(value.shape)
        yield from map(digest_of, value.ravel())
    elif isinstance(value, Mapping):
        yield from sorted(digest_of(key) + digest_of(held) for key, held in value.items())
    elif isinstance(value, set | frozenset):
        yield from sorted(map(digest_of, value))
    elif isinstance(value, np.random.Generator | np.random.RandomState | RandomGeneratorState):
        return
    elif isinstance(value, enum.Enum):
        yield value.name
    elif isinstance(value, Sequence):
        yield from map(digest_of, value)
    elif isinstance(value, Variable):
        yield from digests_of_graphs([value], {})
    elif isinstance(value, FunctionType) and (key := key_of(value)) is not None:
        yield key
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield from (f"{f.name} {digest_of(getattr(value, f.name, None))}" for f in dataclasses.fields(value))
    elif type(value).__reduce_ex__ is object.__reduce_ex__ and hasattr(value, "__dict__"):
        yield from (f"{name} {digest_of(held)}" for name, held in sorted(vars(value).items()))
    else:
        yield hashlib.sha256(cloudpickle.dumps(value)).hexdigest()
