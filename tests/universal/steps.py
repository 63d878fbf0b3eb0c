"""What each step claims, as pairs of numbers: its log ratio between two points, and the model's own.

A row is one target of a step: a function from a placed model to pairs. The expected ratio is the change of
the model's log density (:mod:`.reference`), less the change of whatever the step redraws from its own law, or
with what it integrates out summed over. Functions of a step are evaluated by Python there.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import NamedTuple

import numpy as np
import pytensor
from scipy import special, stats

import pymc_dp as dp
from pymc_dp.query.records import find_record_blocks
from pymc_dp.query.supports import finite_support, has_no_draws
from pymc_dp.step_methods.block.parents import ancestors_of_records
from pymc_dp.step_methods.block.program import RecordProgram
from pymc_dp.step_methods.claims import integrates_out, without_slopes
from pymc_dp.step_methods.conjugate import _picked, conjugate_parameters
from pymc_dp.step_methods.groups import Grouped
from pymc_dp.step_methods.updates.columns import shape_held
from pymc_dp.step_methods.updates.conditionals import Conditionals
from pymc_dp.step_methods.updates.exchangeable import exchangeable
from pymc_dp.step_methods.updates.noncentred import NoNoiseForm
from pymc_dp.step_methods.updates.quadratic import quadratic
from pymc_dp.step_methods.updates.redrawn import RedrawnConditionals
from pymc_dp.step_methods.updates.sufficient import given_sums
from pymc_dp.step_methods.updates.upper import upper
from pymc_dp.step_methods.whole_numbers import whole_numbers_of
from tests.universal.reference import PYTHON, log_density, places


class Pair(NamedTuple):
    """Log ratio of a step between two points, and what it should be."""

    expected: float
    got: float


# From the places of a model's blocks of records, and a generator, to pairs.
Claim = Callable[["list[Placed]", np.random.Generator], Iterator[Pair]]
STEPS: dict[str, Claim] = {}


def claim(name: str) -> Callable[[Claim], Claim]:
    def register(function: Claim) -> Claim:
        STEPS[name] = function
        return function

    return register


class Placed:
    """One block of records at a point inside of the domain: parameters, records, and their sums."""

    def __init__(self, model, block, logp, rng):
        self.model, self.block, self.logp = model, block, logp
        self.default = model.initial_point()  # PyMC compiles it at each call
        self.program = RecordProgram(model, block, self.default)
        self.theta = self.program.parameters.flatten(self.default)
        self._kept = {}
        self.draw(rng)
        self.moving = [*ancestors_of_records(model, block), *whole_numbers_of(model, block)]
        try:
            self.conditionals = Conditionals(self.program, self.moving) if self.moving else None
        except NoNoiseForm:
            self.conditionals = None
        if self.conditionals is not None:  # what one claim lowers, others and later draws take
            for name in ("centred", "ancillary", "marginal", "noise", "records", "coordinates"):
                setattr(self.conditionals, name, cache(getattr(self.conditionals, name)))

    def kept(self, name, make):
        """Return what a claim makes of the block, made once."""
        if name not in self._kept:
            self._kept[name] = make()
        return self._kept[name]

    def draw(self, rng):
        """Place the records where the whole model has a density: drawn from their law, again if need be."""
        program = self.program
        x = np.empty((program.n, program.records.width))
        t, w = np.empty((program.n, program.n_statistics)), np.empty(program.n)
        propose = program.propose
        for _ in range(200):
            propose.dispatcher(rng, self.theta, program.data.gather(), program.first_records, x, t, w)
            self.totals = t.sum(axis=0)
            if np.isfinite(self.logp(self.point(self.theta, x))):
                self.x = x.copy()
                return
        raise AssertionError("no records were found at which the model has a density")

    @property
    def held(self):
        """The records as densities of parameters read them."""
        return np.ascontiguousarray(self.x.T)

    def noise(self, data, rng):
        """The noise behind the records, as densities of parameters read it."""
        u = np.empty(shape_held(self.program.records))
        self.conditionals.noise().dispatcher(rng, self.theta, data, self.x, u)
        return u

    def point(self, theta, x):
        own = self.program.parameters.unflatten(theta), self.program.records.unpack(x)
        return {**self.default, **own[0], **own[1]}

    def where(self, variables):
        layout = self.program.parameters
        index = [layout.slices[layout.variables.index(rv)] for rv in variables]
        return np.concatenate([np.arange(layout.size)[s] for s in index])


def placed(model, rng) -> list[Placed]:
    """Place each block of records of a model."""
    logp = log_density(model)
    return [Placed(model, block, logp, rng) for block in find_record_blocks(model)]


@claim("AncillaryUpdate, given the records")
def given_records(blocks, rng):
    for placed in (b for b in blocks if b.moving):
        # records that are no function of noise have this target, too
        without = partial(Conditionals, placed.program, placed.moving, with_noise=False)
        conditionals = placed.conditionals or placed.kept("without noise", without)
        density, x = placed.kept("centred", partial(conditionals.centred, False)).dispatcher, placed.x
        data, held = placed.program.data.gather(), placed.held
        here, at = placed.theta, placed.logp(placed.point(placed.theta, x))
        for other in places(here, placed.where(placed.moving), rng):
            expected = placed.logp(placed.point(other, x)) - at
            found = (density(theta, data, held, placed.totals) for theta in (other, here))
            yield Pair(expected, np.subtract(*found))


@claim("AncillaryUpdate, given sums of the records")
def given_sums_of_records(blocks, rng):
    for placed in (b for b in blocks if b.moving):
        program = placed.program
        without = placed.kept("for sums", partial(Conditionals, program, placed.moving, with_noise=False))
        found = placed.kept("given sums", partial(given_sums, without))
        if found is None:
            continue
        summed, density, size = found
        here, data, sums = placed.theta, program.data.gather(), np.empty((1, size))
        summed.dispatcher(here, data, placed.x, sums)
        value, at = (
            density.dispatcher(here, data, sums, placed.totals),
            placed.logp(placed.point(here, placed.x)),
        )
        for other in places(here, placed.where(placed.moving), rng):
            expected = placed.logp(placed.point(other, placed.x)) - at
            yield Pair(expected, density.dispatcher(other, data, sums, placed.totals) - value)


def _slopes(placed, given, density, with_slopes, rng):
    """Pairs of a derivative by differences of a density, and along its slopes."""
    here, data = placed.theta, placed.program.data.gather()
    where = placed.where([rv for rv in placed.moving if rv.dtype.startswith("float")])
    out = np.empty(1 + len(here))
    with_slopes(here, data, given, placed.totals, out)
    yield Pair(density(here, data, given, placed.totals), out[0])
    for _ in range(2):
        direction = np.zeros_like(here)
        direction[where] = rng.normal(size=len(where))
        along = lambda t, d=direction: density(here + t * d, data, given, placed.totals)  # noqa: E731
        by_differences, by_smaller = (_difference(along, step) for step in (1e-4, 5e-5))
        # They differ over the kink of a Laplace law, and are infinite or no number at the end of a domain.
        if abs(by_differences - by_smaller) <= 1e-6 + 2e-6 * abs(by_smaller):
            yield Pair(by_differences, float(out[1:] @ direction))


def _difference(function, step):
    """Slope at zero by differences of the fourth order, whose own error is below what is tolerated."""
    with np.errstate(invalid="ignore"):
        return np.dot([1, -8, 8, -1], [function(k * step) for k in (-2, -1, 1, 2)]) / (12 * step)


@claim("AncillaryUpdate, slopes given the records")
def slopes_given_records(blocks, rng):
    for placed in (b for b in blocks if b.conditionals and has_slopes(b)):
        functions = (placed.conditionals.centred(slopes).dispatcher for slopes in (False, True))
        yield from _slopes(placed, placed.held, *functions, rng)


@claim("AncillaryUpdate, slopes given the noise")
def slopes_given_noise(blocks, rng):
    for placed in (b for b in blocks if b.conditionals and has_slopes(b)):
        conditionals, data = placed.conditionals, placed.program.data.gather()
        u = placed.noise(data, rng)
        there, _ = _coordinates(conditionals)
        moved = copy.copy(placed)
        moved.theta = there(placed.theta, data)
        if not np.isfinite(conditionals.ancillary(False).dispatcher(moved.theta, data, u, placed.totals)):
            continue  # a record so far out that its noise would not give it back: nothing moves
        functions = (conditionals.ancillary(slopes).dispatcher for slopes in (False, True))
        yield from _slopes(moved, u, *functions, rng)


@claim("AncillaryUpdate, by group")
def by_group(blocks, rng):
    """Terms by group add up to the density, and a group that moves changes it by its own terms."""
    for placed in (b for b in blocks if b.conditionals):
        grouped = placed.kept("groups", partial(Grouped, placed.program, placed.moving, False))
        if not grouped.n:
            continue
        conditionals, where = placed.conditionals, placed.where(placed.moving)
        functions, (there, _) = placed.kept("terms", grouped.functions), _coordinates(conditionals)
        densities = conditionals.centred(False), conditionals.ancillary(False)
        # what is lowered reads data of its own: they are gathered last
        data = placed.program.data.gather()
        u = placed.noise(data, rng)
        for function, density, here, given in (
            (functions[0], densities[0], placed.theta, placed.held),
            (functions[1], densities[1], there(placed.theta, data), u),
        ):

            def both(at, function=function, density=density, given=given):
                terms = np.empty(grouped.n + 1)  # noqa: B023
                function.dispatcher(at, data, given, placed.totals, terms)  # noqa: B023
                return density.dispatcher(at, data, given, placed.totals), terms  # noqa: B023

            whole, terms = both(here)
            yield Pair(whole, terms.sum())
            if not np.isfinite(whole):
                continue  # nothing moves
            for group in range(grouped.n):
                at = here.copy()
                own = where[grouped.part == group]
                at[own] += 0.3 * rng.normal(size=len(own))
                moved, of_groups = both(at)
                yield Pair(moved - whole, of_groups[group] - terms[group])


@claim("AncillaryUpdate, upper level")
def upper_level(blocks, rng):
    """Parameters of parameters given these, in whose density no record is."""
    for placed in (b for b in blocks if b.conditionals):
        above, density = placed.kept("upper", partial(upper, placed.conditionals))
        if density is None:
            continue
        data, x, here = placed.program.data.gather(), placed.x, placed.theta
        at = placed.logp(placed.point(here, x))
        for other in places(here, above, rng):
            expected = placed.logp(placed.point(other, x)) - at
            found = (density.dispatcher(theta, data, x, placed.totals) for theta in (other, here))
            yield Pair(expected, np.subtract(*found))


def has_slopes(placed):
    """Whether records are smooth functions of their noise, and the releases have slopes."""
    forms = placed.conditionals.forms
    smooth = all(form.smooth for form in forms.values())
    return smooth and not without_slopes(placed.model, placed.block, forms)


def _coordinates(conditionals):
    """Functions between parameters and the coordinates of the density given the noise."""
    native = conditionals.coordinates()
    if native is None:
        return (lambda values, data: values,) * 2

    def call(function):
        def run(values, data):
            out = np.empty_like(values)
            function.dispatcher(values, data, out)
            return out

        return run

    return tuple(map(call, native))


def _log_slope(function, at, where, step=1e-5):
    """Log absolute determinant of the derivative of a function, by differences."""
    columns = []
    for k in where:
        up, down = at.copy(), at.copy()
        up[k] += step
        down[k] -= step
        columns.append((function(up)[where] - function(down)[where]) / (2 * step))
    return np.linalg.slogdet(np.array(columns))[1]


@claim("AncillaryUpdate, given the noise")
def given_noise(blocks, rng):
    """Less the law of the records that move along, with the Jacobian of parameters written as noise."""
    for placed in (b for b in blocks if b.conditionals):
        program, conditionals = placed.program, placed.conditionals
        own = placed.kept("own", partial(log_density, placed.model, list(conditionals.forms)))
        density = conditionals.ancillary(False).dispatcher
        to_records = conditionals.records().dispatcher
        there, back = _coordinates(conditionals)
        guard = lambda c=conditionals: c._native("given back", c.u, c._guard(), False)  # noqa: E731
        data = program.data.gather()
        u = placed.noise(data, rng)
        if not np.isfinite(density(placed.theta, data, u, placed.totals)):
            continue  # a record so far out that its noise would not give it back: nothing moves
        where = placed.where(placed.moving)

        def target(at, p=placed, own=own, f=to_records, back=back, data=data, u=u, w=where):
            records = np.empty_like(p.x)
            f(at, data, u, records)
            point = p.point(back(at, data), records)
            whole = p.logp(point)
            if not np.isfinite(whole):
                return -np.inf
            return whole - own(point) + _log_slope(lambda v: back(v, data), at, w)

        here = there(placed.theta, data)
        at, value = target(here), density(here, data, u, placed.totals)
        for other in places(here, where, rng):
            got = density(other, data, u, placed.totals) - value
            # A move to where a record does not give its noise back is refused, and so is the one from there.
            given_back = got > -np.inf or np.isfinite(
                placed.kept("guard", guard).dispatcher(other, data, u, placed.totals)
            )
            if given_back:
                yield Pair(target(other) - at, got)


@claim("AncillaryUpdate, Gaussian draws")
def gaussian(blocks, rng):
    """A conditional that is drawn as Gaussian is one wherever it is asked, without an end."""
    for placed in (b for b in blocks if b.conditionals):
        found = placed.kept("quadratic", partial(quadratic, placed.conditionals))
        if found is None:
            continue
        exact, function = found
        where, x, data = placed.where(exact), placed.x, placed.program.data.gather()
        gradient, precision = np.empty(len(where)), np.empty((len(where), len(where)))
        function.dispatcher(placed.theta, data, x, placed.totals, gradient, precision.reshape(-1))
        precision = np.tril(precision) + np.tril(precision, -1).T
        at = placed.logp(placed.point(placed.theta, x))
        for other in places(placed.theta, where, rng):
            step = (other - placed.theta)[where]
            got = gradient @ step - 0.5 * step @ precision @ step
            yield Pair(placed.logp(placed.point(other, x)) - at, got)


@claim("CollapsedUpdate")
def collapsed_records(blocks, rng):
    """With every value that the records may have summed over."""
    for placed in blocks:
        case = exchangeable(placed.model, placed.block)
        if case is None:
            continue
        step = placed.kept("step", partial(dp.CollapsedUpdate, model=placed.model))
        (part,) = (p for p in step._parts if p.chain.program.block.names == placed.block.names)
        part.chain.refresh_data()
        part.group()
        data, program = part.chain.data, part.chain.program
        channel = np.empty((part.counts.size, part.wide))
        part.channels.dispatcher(placed.theta, data, part.distinct, channel)
        values = np.array(list(itertools.product(range(case.n_categories), repeat=program.n)), dtype=float)

        def target(theta, p=placed, values=values):
            with np.errstate(divide="ignore"):
                return special.logsumexp([p.logp(p.point(theta, x[:, None])) for x in values])

        at = target(placed.theta)
        density = part.collapsed.dispatcher
        value = density(placed.theta, data, channel, part.counts)
        for other in places(placed.theta, placed.where(case.parameters), rng, 12):
            yield Pair(target(other) - at, density(other, data, channel, part.counts) - value)


@claim("AncillaryUpdate, with all records")
def with_records(blocks, rng):
    """Less the law of the records, which are drawn anew; and minus infinity where they have none."""
    for placed in (b for b in blocks if b.moving and not any(map(has_no_draws, b.block.records))):
        program = placed.program
        redrawn = partial(RedrawnConditionals, program, placed.moving, with_noise=False)
        conditionals = placed.kept("redrawn", redrawn)
        if placed.kept("may lack a law", conditionals.may_lack_a_law):  # refused
            continue
        functions = placed.kept("with records", conditionals.with_records)
        density, possible = (f.dispatcher for f in functions)
        data = program.data.gather()
        records = list(placed.block.records)
        own, x = placed.kept("of records", partial(log_density, placed.model, records)), placed.x
        x_new, t, w = np.empty_like(x), np.empty((program.n, program.n_statistics)), np.empty(program.n)

        def target(theta, records, p=placed, own=own):
            whole = p.logp(p.point(theta, records))
            return whole - own(p.point(theta, records)) if np.isfinite(whole) else -np.inf

        at, value = target(placed.theta, x), density(placed.theta, data, x, placed.totals)
        for other in places(placed.theta, placed.where(placed.moving), rng):
            if not possible(other, data, x, placed.totals) > -np.inf:
                yield Pair(-np.inf if not np.isfinite(placed.logp(placed.point(other, x))) else 0.0, -np.inf)
                continue
            program.propose.dispatcher(rng, other, data, x, x_new, t, w)
            yield Pair(target(other, x_new) - at, density(other, data, x_new, t.sum(axis=0)) - value)


@claim("AncillaryUpdate, records summed over")
def summed_records(blocks, rng):
    """With every value that the records may have, and parameters written as noise."""
    for placed in (b for b in blocks if b.conditionals and integrates_out(b.model, b.block)):
        conditionals, program = placed.conditionals, placed.program
        (record,) = placed.block.records
        values = itertools.product(finite_support(record), repeat=program.n)
        points = [np.array(x, dtype=float)[:, None] for x in values]
        if len(points) > 5000:
            continue
        data, where = program.data.gather(), placed.where(placed.moving)
        there, back = _coordinates(conditionals)

        def target(at, p=placed, points=points, back=back, data=data, w=where):
            with np.errstate(divide="ignore"):
                whole = special.logsumexp([p.logp(p.point(back(at, data), x)) for x in points])
            return whole + _log_slope(lambda v: back(v, data), at, w) if np.isfinite(whole) else -np.inf

        density = conditionals.marginal(False).dispatcher
        here = there(placed.theta, data)
        at, value = target(here), density(here, data, placed.held, placed.totals)
        for other in places(here, where, rng, 12):
            yield Pair(target(other) - at, density(other, data, placed.held, placed.totals) - value)
        moved = copy.copy(placed)
        moved.theta = here
        yield from _slopes(moved, placed.held, density, conditionals.marginal(True).dispatcher, rng)


@claim("ConjugateUpdate")
def conjugate(blocks, rng):
    """Tables that it draws have the Dirichlet law of their counts given the records, and nothing else."""
    for placed in blocks:
        model, block = placed.model, placed.block
        mine = [rv for rv in conjugate_parameters(model) if _picked(model, block, rv) is not None]
        if not mine:
            continue
        logp = log_density(model, jacobian=False)
        point = placed.point(placed.theta, placed.x)
        for rv in mine:
            name = model.rvs_to_values[rv].name
            start = _probabilities(point[name])
            alpha = np.broadcast_to(_value(model, rv.owner.op.dist_params(rv.owner)[0], point), start.shape)
            counts = np.zeros(start.size)
            for child, rows in _picked(model, block, rv):
                values = point[model.rvs_to_values[child].name]
                cells = np.broadcast_to(_value(model, rows, point), (*values.shape, start.shape[-1]))
                mine = np.take_along_axis(cells, values[..., None].astype(int), axis=-1)
                np.add.at(counts, mine.astype(int), 1)
            law = [
                stats.dirichlet(a) for a in (alpha + counts.reshape(start.shape)).reshape(-1, start.shape[-1])
            ]

            def ratio(at, name=name, point=point, law=law, logp=logp):
                rows = _probabilities(at).reshape(len(law), -1)
                own = sum(each.logpdf(row / row.sum()) for each, row in zip(law, rows, strict=True))
                return logp({**point, name: at}), own

            whole, own = ratio(point[name])
            for _ in range(6):
                moved, moved_own = ratio(point[name] + rng.normal(size=point[name].shape))
                yield Pair(moved - whole, moved_own - own)


def _value(model, graph, point):
    """Value of a graph over a model's variables at a point."""
    (graph,) = model.replace_rvs_by_values([graph])
    inputs = model.value_vars
    function = pytensor.function(inputs, graph, mode=PYTHON, on_unused_input="ignore")
    return function(*(point[v.name] for v in inputs))


def _probabilities(v):
    """From PyMC's simplex values, in the last axis."""
    return special.softmax(np.concatenate([v, -v.sum(-1, keepdims=True)], axis=-1), axis=-1)
