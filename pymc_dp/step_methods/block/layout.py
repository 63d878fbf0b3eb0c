"""Between a PyMC point (named arrays) and the flat arrays that native functions take."""

import weakref
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytensor.tensor as pt
from numba import types
from pymc.model.core import Model
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.type import RandomGeneratorType
from pytensor.tensor.variable import TensorVariable

from pymc_dp.lowering.compiling.nopython import njit
from pymc_dp.lowering.rows.quantile import LARGEST
from pymc_dp.query.supports import finite_support

# Constants of at least this many entries are passed in rather than compiled in, so that data of the
# same shape share one compiled function (and large arrays do not defeat the disk cache).
_LARGE = 16
_MATRIX = types.Array(types.float64, 2, "C")
_GIVEN = types.Array(types.float64, 2, "C", readonly=True)


class ParameterLayout:
    """Non-record free variables, in value space, as one float64 vector."""

    def __init__(self, model: Model, variables: Sequence[Variable], initial_point: dict[str, Any]):
        self.variables = list(variables)
        self.values = [model.rvs_to_values[rv] for rv in variables]
        self.names = [str(v.name) for v in self.values]
        self.shapes = [np.shape(initial_point[name]) for name in self.names]
        self.dtypes = [np.asarray(initial_point[name]).dtype for name in self.names]
        ends = np.cumsum([0, *(int(np.prod(s)) for s in self.shapes)])
        self.slices = [slice(int(a), int(b)) for a, b in pairwise(ends)]
        self.size = int(ends[-1])

    def flatten(self, point: dict[str, Any]) -> np.ndarray:
        """Write the values of a point into one vector."""
        theta = np.empty(self.size)
        for name, where in zip(self.names, self.slices, strict=True):
            theta[where] = np.ravel(point[name])
        return theta

    def unflatten(self, theta: np.ndarray, names: Sequence[str] | None = None) -> dict[str, np.ndarray]:
        """Return values of some variables (all by default) from the vector."""
        return {
            name: np.asarray(theta[where].reshape(shape).astype(dtype))
            for name, where, shape, dtype in zip(
                self.names, self.slices, self.shapes, self.dtypes, strict=True
            )
            if names is None or name in names
        }

    def slice_of(self, name: str) -> slice:
        """Return where a variable stands in the vector."""
        return self.slices[self.names.index(name)]

    def slice_length(self, rv: Variable) -> int:
        """Return how many numbers a variable is."""
        where = self.slices[self.variables.index(rv)]
        return where.stop - where.start

    def graph(self, theta: TensorVariable, index: int) -> TensorVariable:
        """Return the value of one variable as a function of the flat vector."""
        where, shape = self.slices[index], self.shapes[index]
        return pt.cast(theta[where].reshape(shape), self.values[index].dtype)


def positions(layout: ParameterLayout, names: Sequence[str]) -> np.ndarray:
    """Return where some variables stand in the flat vector of parameters."""
    return np.concatenate([np.arange(layout.size)[layout.slice_of(n)] for n in names]).astype(np.intp)


def beyond_message(names: Sequence[str]) -> str:
    """Say that whole-numbered records are too large to be counted by."""
    return (
        f"the records {', '.join(names)} are beyond 2^52, where the numbers that steps work in cannot count "
        "one by one any more"
    )


# NumPy copies a few columns of a matrix row by row, which takes a quarter of a sweep.
@njit(types.void(_GIVEN, _MATRIX, types.int64), cache=True)
def _put(values: np.ndarray, x: np.ndarray, at: int) -> None:  # pragma: no cover
    for i in range(values.shape[0]):
        for j in range(values.shape[1]):
            x[i, at + j] = values[i, j]


@njit(types.void(_GIVEN, types.int64, _MATRIX), cache=True)
def _take(x: np.ndarray, at: int, values: np.ndarray) -> None:  # pragma: no cover
    for i in range(values.shape[0]):
        for j in range(values.shape[1]):
            values[i, j] = x[i, at + j]


class RecordLayout:
    """Record variables, in value space, as one matrix with a row per record.

    A variable that exists for some records only (``placements``) uses its column on those rows alone.
    """

    def __init__(
        self,
        model: Model,
        records: Sequence[Variable],
        n: int,
        placements: dict[Variable, tuple[int, ...]],
        initial_point: dict[str, Any],
    ):
        self.n = n
        self.values = [model.rvs_to_values[rv] for rv in records]
        self.names = [str(v.name) for v in self.values]
        self.shapes = [np.shape(initial_point[name]) for name in self.names]
        self.dtypes = [np.asarray(initial_point[name]).dtype for name in self.names]
        self.rows = [np.array(placements[rv]) if rv in placements else None for rv in records]
        ends = np.cumsum([0, *(int(np.prod(s[1:])) for s in self.shapes)])
        self.columns = [slice(int(a), int(b)) for a, b in pairwise(ends)]
        self.width = int(ends[-1])
        # one number of the same kind per record and variable: all columns are converted at once
        single = all(columns.stop - columns.start == 1 for columns in self.columns)
        if not single:
            _put.ready()
            _take.ready()
        self._alike = single and not placements and len(set(self.dtypes)) == 1
        whole = (k for k, dtype in enumerate(self.dtypes) if dtype.kind in "iu")
        self._whole = [k for k in whole if finite_support(records[k]) is None]  # type: ignore[arg-type]

    def pack(self, point: dict[str, Any], out: np.ndarray | None = None) -> np.ndarray:
        """Write the records of a point into a matrix, one row per record."""
        x = np.zeros((self.n, self.width)) if out is None else out
        for name, columns, rows in zip(self.names, self.columns, self.rows, strict=True):
            values = np.asarray(point[name])
            width = columns.stop - columns.start
            if rows is not None:
                x[rows, columns] = values.reshape(values.shape[0], width)
            elif width == 1:
                x[:, columns.start] = values.ravel()
            else:
                _put(np.ascontiguousarray(values, dtype=float).reshape(self.n, width), x, columns.start)
        return x

    def beyond(self, x: np.ndarray) -> list[str]:
        """Names of whole-numbered records with values that float64, which sweeps work in, cannot count by."""
        columns = {self.names[k]: x[:, self.columns[k]] for k in self._whole}
        return [
            name for name, c in columns.items() if c.size and not -LARGEST <= c.min() <= c.max() <= LARGEST
        ]

    def unpack(self, x: np.ndarray) -> dict[str, np.ndarray]:
        """Return the values of the record variables from the matrix.

        Raises
        ------
        ValueError
            If whole-numbered records are so large that neighbours are not told apart.
        """
        if self._whole and (names := self.beyond(x)):
            reason = beyond_message(names)
            raise ValueError(
                f"No draw: {reason}. Count in larger units, or give their parameters a prior that keeps them "
                "smaller."
            )
        if self._alike:
            blocks = x.T.astype(self.dtypes[0], order="C")
            return {
                name: block.reshape(shape)
                for name, block, shape in zip(self.names, blocks, self.shapes, strict=True)
            }
        point = {}
        for name, columns, rows, shape, dtype in zip(
            self.names, self.columns, self.rows, self.shapes, self.dtypes, strict=True
        ):
            if rows is not None:
                block = x[rows, columns]
            elif columns.stop - columns.start == 1:
                block = x[:, columns.start].astype(dtype)
            else:
                block = np.empty((self.n, columns.stop - columns.start))
                _take(x, columns.start, block)
            point[name] = block.reshape(shape).astype(dtype, copy=False)
        return point

    def graph(self, x: TensorVariable, index: int) -> TensorVariable:
        """Return the value of one record variable as a function of the matrix."""
        columns, rows, shape = self.columns[index], self.rows[index], self.shapes[index]
        block = x[:, columns] if rows is None else x[rows, columns]
        return pt.cast(block.reshape(shape), self.values[index].dtype)

    def matrix(self, values: Sequence[TensorVariable]) -> TensorVariable:
        """Join values of all record variables into one matrix."""
        blocks = []
        for value, columns, rows in zip(values, self.columns, self.rows, strict=True):
            block = pt.cast(value, "float64").reshape((-1, columns.stop - columns.start))
            if rows is not None:
                block = pt.zeros((self.n, columns.stop - columns.start))[rows].set(block)
            blocks.append(block)
        # joined one below the other, which copies entries that lie side by side
        return pt.concatenate([block.T for block in blocks]).T if len(blocks) > 1 else blocks[0]


class DataLayout:
    """Releases, covariates and other data as one float64 vector, filled when a chain starts."""

    def __init__(self) -> None:
        self.data = pt.vector("data", dtype="float64")
        self._sources: list[Variable] = []
        self._graphs: list[TensorVariable] = []
        self._slices: list[slice] = []
        self._shapes: list[tuple[int, ...]] = []
        self._overrides: dict[int, np.ndarray] = {}
        self.size = 0
        self._pending: list[tuple[Variable, np.ndarray]] = []  # other values of sources not held yet
        # what has to be computed from the data before they are read (tables of densities, whose addresses
        # are data): functions that return what must live as long as the vector
        self.before_gathering: list[Callable[[], Any]] = []

    def graph(self, source: Variable) -> TensorVariable:
        """Return a constant or shared variable as a function of the data vector."""
        for known, graph in zip(self._sources, self._graphs, strict=True):
            if known is source:
                return graph
        value = _value_of(source)
        where = slice(self.size, self.size + value.size)
        graph = pt.cast(self.data[where].reshape(value.shape), source.type.dtype)
        self._sources.append(source)
        self._graphs.append(graph)
        self._slices.append(where)
        self._shapes.append(value.shape)
        self.size = where.stop
        for known, other in self._pending:
            if known is source:
                self.override(source, other)
        return graph

    def lift(self, graphs: Sequence[TensorVariable]) -> list[TensorVariable]:
        """Replace shared variables and large constants of some graphs by parts of the data vector."""
        found = {
            v: self.graph(v)
            for v in ancestors(graphs)
            if (isinstance(v, SharedVariable) and not isinstance(v.type, RandomGeneratorType))
            or (isinstance(v, Constant) and isinstance(v, TensorVariable) and v.data.size >= _LARGE)
        }
        return clone_replace(list(graphs), found, rebuild_strict=False) if found else list(graphs)

    def override(self, source: Variable, value: Any) -> None:
        """Use another value of the same shape for one source, without compiling anything again."""
        value = np.asarray(value, dtype=float)
        if value.shape != _value_of(source).shape:
            raise ValueError(f"the new value has shape {value.shape}, not {_value_of(source).shape}")
        found = [i for i, s in enumerate(self._sources) if s is source]
        if found:
            self._overrides[found[0]] = value
        else:
            self._pending = [(s, v) for s, v in self._pending if s is not source] + [(source, value)]

    def in_use(self, source: Variable) -> np.ndarray | None:
        """Return the value that a source has now, if another is used in its place; None otherwise."""
        return next((v for i, v in self._overrides.items() if self._sources[i] is source), None)

    def gather(self) -> np.ndarray:
        """Return the current values of all sources, one after the other."""
        used = [compute() for compute in self.before_gathering]
        out = np.empty(self.size)
        if used:
            weakref.finalize(out, len, used).atexit = False  # keeps them until the vector goes
        for i, (source, where, shape) in enumerate(
            zip(self._sources, self._slices, self._shapes, strict=True)
        ):
            value = self._overrides.get(i, _value_of(source))
            if np.shape(value) != shape:
                raise ValueError(
                    f"{source.name or 'Data'} had shape {shape} when the step was made, and has shape "
                    f"{np.shape(value)} now: make the step after `pm.set_data`, or leave `step` out."
                )
            out[where] = np.ravel(value)
        return out


def _value_of(source: Variable) -> np.ndarray:
    return np.asarray(source.get_value() if isinstance(source, SharedVariable) else source.data)
