"""Densities that a model is lowered to against the model itself, on every model of the zoo.

None of this draws a posterior: densities are compared number by number, so that a missing term, a
forgotten Jacobian or a stale total shows at once and is named. The graphs are evaluated by Python,
because compiling hundreds of functions would take minutes; compiled code has its own tests.
"""

from __future__ import annotations

import numpy as np
import pytensor
import pytest
from pymc.pytensorf import collect_default_updates

from pymc_dp.lowering.native import OF_SUMS
from pymc_dp.records import find_record_blocks
from pymc_dp.step_methods.block.parents import parents_of_records
from pymc_dp.step_methods.block.program import RecordProgram
from pymc_dp.step_methods.updates.conditionals import Conditionals
from pymc_dp.step_methods.updates.noise import NoNoiseForm
from tests.step_methods.zoo import EVERY, PYTHON, evaluation_mode, jittered


class Evaluated:
    """Stands in for a native function: same arguments, evaluated by Python."""

    def __init__(self, program, inputs, outputs, signature):
        self.takes_generator = "NumPyRandomGeneratorType" in str(signature.args[0])
        self.n_inputs = 2 + len(inputs)
        lifted = program.data.lift(outputs)
        self.function = pytensor.function(
            [program.theta, program.data.data, *inputs],
            lifted,
            mode=evaluation_mode(lifted),
            on_unused_input="ignore",
            updates=collect_default_updates(lifted),
        )
        self.address, self.cache_key = 0, None

    def dispatcher(self, *args):
        args = args[1:] if self.takes_generator else args
        results = self.function(*args[: self.n_inputs])
        if len(args) == self.n_inputs:
            return float(results[0])
        for out, value in zip(args[self.n_inputs :], results, strict=True):
            out[...] = value
        return None


@pytest.fixture(autouse=True)
def by_python(monkeypatch):
    compiled = RecordProgram.native

    def native(program, name, inputs, outputs, signature):
        if signature is OF_SUMS:  # called from generated source
            return compiled(program, name, inputs, outputs, signature)
        return Evaluated(program, inputs, outputs, signature)

    monkeypatch.setattr(RecordProgram, "native", native)


def programs(model):
    point = model.initial_point()
    return [RecordProgram(model, b, point) for b in find_record_blocks(model)]


def at(program, point, rng):
    """Flat parameters, and records drawn from their law there (a point in the support)."""
    theta = program.parameters.flatten(point)
    x = np.empty((program.n, program.records.width))
    t, w = np.empty((program.n, program.n_statistics)), np.empty(program.n)
    propose = program.propose  # compiled before the data are gathered, which it may add to
    propose.dispatcher(rng, theta, program.data.gather(), x, t, w)
    return theta, x


def point_of(program, theta, x):
    return {**program.parameters.unflatten(theta), **program.records.unpack(x)}


def contributions(program, theta, x):
    t, w = np.empty((program.n, program.n_statistics)), np.empty(program.n)
    contribute = program.contribute
    contribute.dispatcher(theta, program.data.gather(), x, t, w)
    return t, w


def moved(theta, where, rng, scale=0.3):
    other = theta.copy()
    other[where] += scale * rng.uniform(-1, 1, len(where))
    return other


def positions(program, variables):
    layout = program.parameters
    index = [layout.slices[layout.variables.index(rv)] for rv in variables]
    return np.concatenate([np.arange(layout.size)[s] for s in index])


@EVERY
def test_proposals_bring_their_own_contributions(entry, rng):
    """What `propose` returns with its candidates is what `contribute` gives for them."""
    model = entry.build(max(4, entry.smallest))
    for program in programs(model):
        theta, propose = program.parameters.flatten(jittered(model, rng)), program.propose
        x = np.empty((program.n, program.records.width))
        t, w = np.empty((program.n, program.n_statistics)), np.empty(program.n)
        for _ in range(3):
            propose.dispatcher(rng, theta, program.data.gather(), x, t, w)
            t_again, w_again = contributions(program, theta, x)
            np.testing.assert_allclose(t, t_again, rtol=1e-9, atol=1e-12)
            np.testing.assert_allclose(w, w_again, rtol=1e-9, atol=1e-9)


def with_noise_form(entry, model):
    """Programs whose records are a function of noise, with the parameters that move and their densities."""
    for program in programs(model):
        moving = parents_of_records(model, program.block)
        if not moving:
            continue
        try:
            conditionals = Conditionals(program, moving)
        except NoNoiseForm:
            assert not entry.noise_form
            continue
        yield program, moving, conditionals


@EVERY
def test_parameters_given_records(entry, rng):
    """The centred log density is the model's, as a function of the parameters that move."""
    model = entry.build(max(4, entry.smallest))
    logp = model.compile_logp(mode=PYTHON)
    for program, moving, conditionals in with_noise_form(entry, model):
        assert entry.noise_form
        centred = conditionals.centred().dispatcher
        data = program.data.gather()
        point = jittered(model, rng)
        theta, x = at(program, point, rng)
        totals = contributions(program, theta, x)[0].sum(axis=0)
        where = positions(program, moving)
        for _ in range(4):
            other = moved(theta, where, rng)
            expected = logp(point_of(program, other, x)) - logp(point_of(program, theta, x))
            if not np.isfinite(expected):
                continue
            got = centred(other, data, x, totals) - centred(theta, data, x, totals)
            assert got == pytest.approx(expected, rel=1e-8, abs=1e-8)


def coordinates(conditionals):
    """Functions between parameters and the coordinates of the ancillary density."""
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


def log_slope(function, at, where, step=1e-5):
    """Log absolute determinant of the derivative of a function, by differences."""
    columns = []
    for k in where:
        up, down = at.copy(), at.copy()
        up[k] += step
        down[k] -= step
        columns.append((function(up) - function(down)) / (2 * step))
    return np.linalg.slogdet(np.array(columns))[1]


@EVERY
def test_parameters_given_noise(entry, rng):
    """The ancillary log density is the model's without the records' own; records move along."""
    model = entry.build(max(4, entry.smallest))
    logp = model.compile_logp(mode=PYTHON)
    tested = 0
    for program, moving, conditionals in with_noise_form(entry, model):
        own = model.compile_logp(vars=list(conditionals.forms), mode=PYTHON)
        ancillary = conditionals.ancillary().dispatcher
        to_noise, to_records = (f().dispatcher for f in (conditionals.noise, conditionals.records))
        data = program.data.gather()
        theta, x = at(program, jittered(model, rng), rng)
        totals = contributions(program, theta, x)[0].sum(axis=0)
        u, back = np.empty_like(x), np.empty_like(x)
        to_noise(rng, theta, data, x, u)
        there, onto = coordinates(conditionals)
        data = program.data.gather()
        noise = there(theta, data)
        np.testing.assert_allclose(onto(noise, data), theta, rtol=1e-8, atol=1e-9)
        to_records(noise, data, u, back)
        np.testing.assert_allclose(back, x, rtol=1e-7, atol=1e-9)
        where = positions(program, moving)

        def target(at, p=program, own=own, f=to_records, onto=onto, data=data, u=u, w=where):
            records = np.empty_like(u)
            f(at, data, u, records)
            point = point_of(p, onto(at, data), records)
            return logp(point) - own(point) + log_slope(lambda v: onto(v, data)[w], at, w)

        for _ in range(4):
            other = moved(noise, where, rng)
            expected = target(other) - target(noise)
            if not np.isfinite(expected):
                continue
            got = ancillary(other, data, u, totals) - ancillary(noise, data, u, totals)
            assert got == pytest.approx(expected, rel=1e-6, abs=1e-6)
            tested += 1
    assert tested or not entry.noise_form or entry.name == "discrete uniform"


@EVERY
def test_gaussian_conditionals_are_gaussian(entry, rng):
    """Where a conditional is taken for Gaussian, it is quadratic far from where it was expanded."""
    model = entry.build(max(4, entry.smallest))
    for program, _, conditionals in with_noise_form(entry, model):
        quadratic = conditionals.quadratic()
        if quadratic is None:
            continue
        exact, function = quadratic
        centred = conditionals.centred().dispatcher
        data = program.data.gather()
        theta, x = at(program, jittered(model, rng), rng)
        totals = contributions(program, theta, x)[0].sum(axis=0)
        where = positions(program, exact)
        gradient, precision = np.empty(len(where)), np.empty((len(where), len(where)))
        function.dispatcher(theta, data, x, totals, gradient, precision.reshape(-1))
        assert not np.triu(precision, 1).any()  # only the lower triangle is computed
        precision = np.tril(precision) + np.tril(precision, -1).T
        for scale in (0.3, 3.0):
            step = scale * rng.normal(size=len(where))
            other = theta.copy()
            other[where] += step
            got = centred(other, data, x, totals) - centred(theta, data, x, totals)
            expected = gradient @ step - 0.5 * step @ precision @ step
            assert got == pytest.approx(expected, rel=1e-7, abs=1e-7), [v.name for v in exact]
