"""Releases that list only the keys whose noisy value passed a threshold: how probable a key is to be listed.

With f the law of a key's count c given the parameters, and q that of the noise, K listed keys contribute

    prod_k f(c_k) q(z_k | c_k) / P,    P = sum_c f(c) P(z is published | c).

A count moves by f q, undivided, since P depends on the parameters only. So -K log P is a term of the model,
which every step that moves parameters reads, and no step that moves counts.

The sum over counts has no end. From some count L on a key is published with a probability of 1 but for a
share `_TOLERANCE`, by the tail of the noise alone, and P(c >= L) is known in closed form: what is left out is
at most that share of P, whatever f is. Where the noise is large, or a variable that may become so, L may be
less: a count beyond which there are fewer than that share of P. Where both are beyond `_MOST_TERMS`, which
samplers may try and no data are like, the density is zero.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.discrete import DiscreteUniformRV
from pymc.distributions.truncated import TruncatedRV
from pymc.model.core import Model
from pymc.pytensorf import constant_fold
from pytensor.gradient import disconnected_grad
from pytensor.graph.basic import Variable
from pytensor.tensor.random.basic import BernoulliRV, GeometricRV
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.type_other import NoneConst, NoneTypeT
from pytensor.tensor.variable import TensorVariable

from pymc_dp.lowering.functions.log_sums import log_sum
from pymc_dp.mechanisms._count_tails import TAILS, few_beyond, log_tail
from pymc_dp.mechanisms._own_entries import has_own_entries
from pymc_dp.query.lengths import lengths_of
from pymc_dp.query.records import parameters_of
from pymc_dp.query.rowlocal import leaves_of
from pymc_dp.query.supports import clamped_record, finite_support
from pymc_dp.upstream.pymc_private import printed_name

# What follows a release's name in that of the term of the model.
LISTED = "_listed"
# Share of the probability that a key is listed by which it may be misstated.
_TOLERANCE = 1e-14
# Counts that are summed over beyond the first that is surely listed: where the rest is too small for a number
# of its own, they are all of it but for a share of that.
_BEYOND = 32
# The largest number of values of a count with an end, and of terms over all keys; and terms from which on the
# law of the counts may need fewer than the noise.
_MOST_VALUES, _MOST_TERMS, _MANY = 2048, 2**24, 4096


_FINITE = (BernoulliRV, DiscreteUniformRV)


@dataclass(frozen=True)
class CountLaw:
    """The law of a count.

    Attributes
    ----------
    op : RandomVariable
        Operation that draws counts, those below `least` among them.
    params : list of TensorVariable
    least : int
        The least value of a count, to which the law is truncated.
    support : ndarray or None
        All values, where they are few.
    """

    op: Any
    params: list[Any]
    least: int = 0
    support: np.ndarray | None = None


def law_of(record: TensorVariable) -> CountLaw | None:
    """Return the law of counts, None if the probability of many is not known."""
    if not record.type.dtype.startswith(("int", "uint", "bool")):
        return None  # PyMC's truncated geometric variables are real numbers
    op: Any = record.owner.op
    params = list(parameters_of(record))
    least = int(isinstance(op, GeometricRV))
    if isinstance(op, TruncatedRV):
        op, (*params, lower, upper) = op.base_rv_op, params
        ends = constant_fold([lower, upper], raise_not_constant=False)
        known = all(isinstance(end, np.ndarray) and end.size == 1 for end in ends)
        if not known or not np.isfinite(ends[0]).all() or not np.isposinf(ends[1]).all():
            return None
        least = max(math.ceil(ends[0].item()), int(isinstance(op, GeometricRV)))
    if isinstance(op, (*TAILS, GeometricRV)) and least >= 0:
        return CountLaw(op, params, least)
    support = finite_support(record, _MOST_VALUES) if isinstance(op, _FINITE) else None
    return None if support is None else CountLaw(op, params, int(support[0]), support)


def check_keys(name: str, query: Variable, model: Model, nonempty: bool) -> None:
    """Refuse a query that is not the count of each listed key, by a law that is known.

    Parameters
    ----------
    name : str
        Name of the release, for messages.
    query : Variable
    model : pymc.Model
    nonempty : bool
        Whether keys that count nobody are not listed in any case.

    Raises
    ------
    ValueError
        The query is no vector of counts, one for each key; their law is not known, or keys do not share it.
    """
    found = clamped_record(query, set(model.free_RVs))
    if found is None or found.record.type.ndim != 1:
        raise ValueError(
            f"The query of {name} is not the count of each key itself. With unknown_keys=True every entry is "
            'one key\'s own count plus noise: declare the counts as one variable, pm.Poisson("people", rate, '
            "shape=K), and pass it as the query. Where an entry adds up several counts, leave unknown_keys "
            "out: it is for keys of which each is listed, or not, by itself."
        )
    _check_law(name, found.record, nonempty)
    _check_shared(name, found.record, model)
    for rv in model.observed_RVs:
        if getattr(rv.owner.op, "unknown_keys", False):
            other = clamped_record(parameters_of(rv)[0], {found.record})
            if other is not None:
                raise ValueError(
                    f"{found.record.name} is behind two releases with unknown keys, {rv.name} and {name}, "
                    "and the probability that both list a key is not known here. Declare counts of their own "
                    "for the keys of each."
                )


def _check_law(name: str, record: TensorVariable, nonempty: bool) -> None:
    law = law_of(record)
    if law is None:
        raise ValueError(
            f"{record.name} has the law {printed_name(record.owner.op)}, of which the probability that "
            f"{name} lists a key is not known. With unknown keys counts are pm.Poisson, pm.NegativeBinomial "
            "or pm.Binomial, also truncated by a known lower end (pm.Truncated(..., lower=1)); pm.Geometric, "
            f"pm.Bernoulli or pm.DiscreteUniform (of at most {_MOST_VALUES} known values). They are "
            "independent of each other."
        )
    if nonempty and law.least < 1:
        raise ValueError(
            f'{record.name} may be 0, but {name} has unknown_keys="nonempty": a key that counts nobody is '
            f'not listed whatever the noise. Declare counts from 1 on, pm.Truncated("{record.name}", '
            "pm.Poisson.dist(rate), lower=1, shape=K) or pm.Geometric."
        )


def _check_shared(name: str, record: TensorVariable, model: Model) -> None:
    """Refuse counts whose law depends on variables that each key has for itself."""
    variables = set(model.basic_RVs)
    params = parameters_of(record)
    n = lengths_of(record)[0]
    for parent in leaves_of(params, variables):
        if has_own_entries(parent, params, n, variables):
            raise ValueError(
                f"{parent.name} has an entry for each key of {record.name}, and keys that {name} does not "
                "list have theirs, too: the probability to be listed is an average over it. Integrate it out "
                "of the law of the counts (pm.NegativeBinomial is pm.Poisson with a gamma rate by key), or "
                "give the keys parameters that they share, or that data tell apart."
            )


def add_listed(name: str, rv: TensorVariable, model: Model) -> None:
    """Add what the listing of keys says of the parameters to a model.

    Parameters
    ----------
    name : str
        Name of the release, as it was declared.
    rv : TensorVariable
        The release.
    model : pymc.Model
    """
    query, *noise = parameters_of(rv)
    counts = clamped_record(query, set(model.free_RVs))
    assert counts is not None
    law = law_of(counts.record)
    assert law is not None
    log_share = log_listed(law, rv.owner.op, noise, (counts.lo, counts.hi))
    # where no key is ever listed, those that are have no density
    term = pt.switch(pt.gt(log_share, -np.inf), -log_share, -np.inf)
    size = _size_of(counts.record)
    total = pt.sum(term if size is None else pt.broadcast_to(term, size))
    pm.Potential(f"{name}{LISTED}", total, model=model)


def _size_of(record: TensorVariable) -> Any:
    """Return the shape of counts as a graph without these, None if it is that of their parameters."""
    if None not in record.type.shape:
        return record.type.shape
    node: Any = record.owner
    # of a truncated law, it is that of the law itself
    size = node.op.size_param(node) if isinstance(node.op, RandomVariable) else node.inputs[1]
    return None if isinstance(size.type, NoneTypeT) else size


def log_listed(
    law: CountLaw, channel: Any, noise: list[Any], ends: tuple[float, float] = (-math.inf, math.inf)
) -> TensorVariable:
    """Return the log probability that a key is listed, given the parameters of the law of its count.

    Parameters
    ----------
    law : CountLaw
    channel : ProcessedRV
        What draws the release.
    noise : list of TensorVariable
        Its parameters after the query.
    ends : (float, float)
        What counts are clamped to before the noise.
    """
    rows = [pt.as_tensor_variable(p)[..., None] for p in law.params]
    levels = [pt.as_tensor_variable(p)[..., None] for p in noise]

    def log_f(k: Any) -> TensorVariable:
        row = law.op.make_node(pt.random.shared_rng(seed=None), NoneConst, *rows).outputs[1]
        return pm.logp(row, pt.cast(k, row.dtype))

    def log_shown(k: Any) -> TensorVariable:
        return channel.log_published(pt.clip(pt.cast(k, "float64"), *ends), *levels)

    if law.support is not None:
        k = pt.constant(law.support)
        return log_sum(log_f(k) + log_shown(k))
    end = _surely_listed(channel, noise, ends[1], law.least)
    _check_terms(end + _BEYOND, rows, levels)
    before: Any = 0.0  # counts that there cannot be, the log probability of the others
    if law.least:
        before = log_tail(law.op, rows, log_f, pt.constant([law.least]))[..., 0]
    short: Any = True
    if not isinstance(end, int) or end > _MANY:
        level = before + log_shown(pt.constant([law.least]))[..., 0] + math.log(_TOLERANCE)
        last = few_beyond(law.op, law.params, level)
        assert last is not None
        end = pt.minimum(end, pt.maximum(pt.cast(pt.max(last), "int64"), law.least))
        short = pt.le(end - law.least, _MOST_TERMS)
        end = pt.switch(short, end, law.least)
    end = end + _BEYOND
    k = pt.arange(law.least, end)
    summed = log_sum(log_f(k) + log_shown(k))
    end = pt.as_tensor_variable(end)[None]
    rest = (log_tail(law.op, rows, log_f, end) + log_shown(end))[..., 0]
    total = log_sum(pt.stack(pt.broadcast_arrays(summed, rest), axis=-1)) - before
    return total if short is True else pt.switch(short, total, -np.inf)


def _check_terms(end: Any, rows: list[Any], levels: list[Any]) -> None:
    """Refuse sums whose length follows from threshold and noise alone and is too large."""
    shape = np.broadcast_shapes(*(tuple(n or 1 for n in p.type.shape) for p in (*rows, *levels)))
    if isinstance(end, int) and end * math.prod(shape) > _MOST_TERMS:
        raise ValueError(
            f"The probability that a key is listed takes {end} terms for each of {math.prod(shape)} laws of "
            "counts, since the threshold is high or the noise large: give keys that are alike the same "
            "parameters, by pm.Poisson(..., rate[kind]) of a few kinds or one rate for all."
        )


def _surely_listed(channel: Any, noise: list[Any], highest: float, least: int) -> Any:
    """Return a count from on which keys are listed with a probability of 1, or all with the same."""
    noise = [pt.as_tensor_variable(p) for p in noise]
    known = constant_fold(noise, raise_not_constant=False)
    fixed = all(isinstance(p, np.ndarray) for p in known)
    reach = channel.noise.tail_reach(
        pt.constant(math.log(_TOLERANCE)), *(map(pt.constant, known) if fixed else noise)
    )
    first = pt.ceil(pt.max(reach) + channel.processing.least_published(channel.whole))
    first = pt.switch(pt.lt(first, 2.0**52), first, 2.0**52)  # of infinite noise, too
    first = pt.cast(pt.clip(first, least, max(highest, least)), "int64")
    return int(first.eval(mode="FAST_COMPILE")) if fixed else disconnected_grad(first)
