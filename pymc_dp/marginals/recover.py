"""Draws of confidential records that were integrated out of a model."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytensor.tensor as pt
import xarray as xr
from pymc.model.core import Model
from pymc.pytensorf import compile as compile_graph
from pytensor.graph.replace import graph_replace, vectorize_graph
from pytensor.tensor.variable import TensorVariable

from pymc_dp.marginals.groups import NotTogether
from pymc_dp.marginals.marginalize import names_of
from pymc_dp.marginals.noisy_sums import noisy_sum
from pymc_dp.marginals.release_laws import CentralWay
from pymc_dp.marginals.removal import Removed, split_up
from pymc_dp.marginals.tabulated import Tabulated, drawn_back
from pymc_dp.query.lengths import lengths_of, with_known_shapes
from pymc_dp.query.recordrules import named
from pymc_dp.query.records import find_record_blocks
from pymc_dp.query.rowlocal import leaves_of

# How many numbers of a record variable are drawn at once.
_AT_ONCE = 2**21


def recover_records(
    idata: Any,
    model: Model,
    names: str | Sequence[str] | None = None,
    *,
    random_seed: Any = None,
    tolerance: float = 1e-12,
) -> xr.Dataset:
    """Draw the records that were integrated out, for each posterior draw of the parameters.

    The draws are exact: they follow the law of the record given its releases and the parameters. Together
    with the draws of `idata` they have the law of draws from the original model.

    Parameters
    ----------
    idata : xarray.DataTree
        The result of ``pm.sample`` for the marginal model; its group ``posterior`` is used.
    model : pymc.Model
        The original model, with the records and their releases.
    names : str or sequence of str, optional
        Records to draw; by default all records of `model` of which `idata` has no draws.
    random_seed : int, sequence of int or Generator, optional
        Seed, for draws that can be repeated.
    tolerance : float, default 1e-12
        As for :func:`marginalize`.

    Returns
    -------
    xarray.Dataset
        Each record variable with the dimensions chain, draw and its own. As a group of the results:
        ``idata["records"] = xarray.DataTree(dataset)``. Where the number of people is a variable of the
        model (``record_sum(t, count=N)``), ``<name>_is_person`` says which slots are people in each draw;
        the others have draws from the records' law.

    Raises
    ------
    TypeError, ValueError
        As for :func:`marginalize`; or `idata` has no draws of a parameter; or people were integrated out by
        the characteristic function of their sum, given which their law has no form to draw from.

    Notes
    -----
    One vectorised call draws some million numbers. A draw costs O(1) for a normal record, and O(K) for a
    record with K values.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dp as dp
    >>> with pm.Model() as model:
    ...     p = pm.Beta("p", 1, 1)
    ...     smokes = pm.Bernoulli("smokes", p, shape=4)
    ...     z = dp.RandomizedResponse("z", smokes, epsilon=2, observed=[0, 1, 1, 0])
    >>> with dp.marginalize(model, "smokes"):
    ...     idata = pm.sample(20, tune=20, chains=1, progressbar=False, random_seed=1, quiet=True)
    >>> dp.recover_records(idata, model, random_seed=1).smokes.dims
    ('chain', 'draw', 'smokes_dim_0')
    """
    posterior = _posterior(idata)
    if names is None:
        records = [rv for block in find_record_blocks(model) for rv in block.records]
        names = [str(rv.name) for rv in records if rv.name not in posterior]
        if not names:
            raise ValueError("idata has draws of all records of model already: nothing was integrated out.")
    chosen = names_of(model, names)
    rng = np.random.default_rng(random_seed)
    closed, tables = _parts(model, chosen, tolerance)
    drawn = [own for part in closed for own in _records_drawn(model, part, posterior, rng)]
    drawn += [(table.record, _from_counts(table, posterior, rng)) for table in tables]
    found = xr.merge([_labelled(model, record, draws, posterior) for record, draws in drawn])
    return found.assign(_people(model, found, posterior))


def _parts(model: Model, names: list[str], tolerance: float) -> tuple[list[Removed], list[Tabulated]]:
    try:
        return split_up(model, names, tolerance)
    except ValueError:
        # of several people, those that have no form to draw from are named, whatever the others have
        apart = [[n for n in block.names if n in names] for block in find_record_blocks(model)]
        for own in filter(None, apart):
            try:
                found = noisy_sum(model, own)
            except NotTogether:
                continue
            if found is not None:
                raise ValueError(
                    f"{', '.join(own)} were integrated out of {found.release.name} by the characteristic "
                    f"function of their sum, and the law of {found.block.n} people given their noisy sum has "
                    "no form to draw from: sample the model itself, whose records RecordImputation moves."
                ) from None
        raise


def _people(model: Model, found: xr.Dataset, posterior: xr.Dataset) -> dict[str, xr.DataArray]:
    """Which slots are people, for each record variable of an unknown number of them: the first N."""
    masks = {}
    for block in find_record_blocks(model):
        for name in block.names if block.count is not None else ():
            if name in found:
                slots = found[name].dims[2]
                positions = xr.DataArray(np.arange(found.sizes[slots]), dims=[slots])
                people = positions < posterior[str(block.count.name)]  # type: ignore[union-attr]
                masks[f"{name}_is_person"] = people.transpose("chain", "draw", slots)
    return masks


def _posterior(idata: Any) -> xr.Dataset:
    children = getattr(idata, "children", None)
    if children is None:
        raise TypeError(
            f"idata must be the xarray.DataTree that pm.sample returns, got {type(idata).__name__}."
        )
    if "posterior" not in children:
        raise ValueError(
            "idata has no group 'posterior': pass what pm.sample returned for the marginal model."
        )
    return children["posterior"].dataset.transpose("chain", "draw", ...)


def _records_drawn(
    model: Model, part: Removed, posterior: xr.Dataset, rng: np.random.Generator
) -> list[tuple[TensorVariable, np.ndarray]]:
    """Draw records that go together; all posterior draws are along one axis."""
    drawn = _drawn(model, part, posterior, rng)
    if part.values is None:
        return [(part.records[0], drawn)]
    return [(record, values[drawn]) for record, values in zip(part.records, part.values, strict=True)]


def _drawn(model: Model, part: Removed, posterior: xr.Dataset, rng: np.random.Generator) -> np.ndarray:
    """Draw one record variable, or the cells of several; all posterior draws are along one axis."""
    way, release = part.ways[-1], part.releases[-1]
    released = _at_values(model, [model.rvs_to_values[release.rv]])[0]
    graphs = _at_values(model, [*_broadcast(way, part)])
    free = [v for v in leaves_of(graphs, set(model.free_RVs))]
    missing = sorted(str(v.name) for v in free if v.name not in posterior)
    if missing:
        raise ValueError(
            f"idata has no draws of {', '.join(missing)}, on which the records {named(part.records)} depend: "
            "sample the marginal model again, with var_names left out or with these names in it."
        )
    # not pt.tensor, which takes some names, such as "1|group" of Bambi, for types
    inputs = [pt.TensorType(v.dtype, (None, *v.type.shape))(f"{v.name}_draws") for v in free]
    batched = vectorize_graph(graphs, dict(zip(free, inputs, strict=True))) if free else graphs
    draws = pt.lscalar("draws")
    copies = pt.broadcast_to(released, (draws, *(released.shape[k] for k in range(released.type.ndim))))
    record = replace(way, params=tuple(batched)).record(copies)  # type: ignore[type-var]
    seed = int(rng.integers(2**31))
    draw = compile_graph([draws, *inputs], record, random_seed=seed, on_unused_input="ignore")
    values = [_stacked(posterior[str(v.name)]).astype(v.dtype) for v in free]
    n_draws = posterior.sizes["chain"] * posterior.sizes["draw"]
    step = max(1, _AT_ONCE // max(1, int(np.prod(lengths_of(part.records[0])))))
    parts = [
        draw(min(step, n_draws - start), *(v[start : start + step] for v in values))
        for start in range(0, n_draws, step)
    ]
    return np.concatenate(parts)


def _broadcast(way: Any, part: Removed) -> list[TensorVariable]:
    """Return the parameters of a way, each broadcast to the full batch shape of the records.

    The axis of posterior draws will come in front of that shape.
    """
    if isinstance(way, CentralWay):
        return list(way.params)
    record = part.records[0]
    batch = lengths_of(record)[: record.type.ndim - record.owner.op.ndim_supp]
    full = []
    for p, core in zip(way.params, way.cores, strict=True):
        p = pt.as_tensor_variable(p)
        own = lengths_of(p)[p.type.ndim - core :]
        full.append(pt.broadcast_to(p, (*batch, *own)))
    return full


def _at_values(model: Model, graphs: list[Any]) -> list[Any]:
    """Replace observed variables by their values."""
    values = {rv: model.rvs_to_values[rv] for rv in model.observed_RVs}
    return list(graph_replace(with_known_shapes(graphs), values, strict=False))


def _stacked(draws: xr.DataArray) -> np.ndarray:
    values = draws.values
    return values.reshape(-1, *values.shape[2:])


def _from_counts(table: Tabulated, posterior: xr.Dataset, rng: np.random.Generator) -> np.ndarray:
    """Draw records given the table that they were counted into."""
    if table.name not in posterior:
        raise ValueError(
            f"idata has no draws of {table.name}, the table into which the records {table.record.name} were "
            "counted: sample the marginal model again, with var_names left out or with this name in it."
        )
    return drawn_back(table, _stacked(posterior[table.name]), rng)


def _labelled(model: Model, record: TensorVariable, draws: np.ndarray, posterior: xr.Dataset) -> xr.Dataset:
    name = str(record.name)
    values = draws.reshape(posterior.sizes["chain"], posterior.sizes["draw"], *draws.shape[1:])
    named = model.named_vars_to_dims.get(name)
    dims = [f"{name}_dim_{k}" for k in range(record.type.ndim)] if named is None else [
        f"{name}_dim_{k}" if d is None else d for k, d in enumerate(named)
    ]  # fmt: skip
    coords: dict[str, Any] = {"chain": posterior.chain.values, "draw": posterior.draw.values}
    for k, d in enumerate(dims):
        labels = model.coords.get(d)
        coords[d] = np.arange(values.shape[2 + k]) if labels is None else np.asarray(labels)
    return xr.Dataset({name: (("chain", "draw", *dims), values.astype(record.dtype))}, coords)
