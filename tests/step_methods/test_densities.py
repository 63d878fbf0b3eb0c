"""Densities that a model is lowered to against the model itself, on every model of the zoo.

None of this draws a posterior: densities are compared number by number, so that a missing term, a
forgotten Jacobian or a stale total shows at once and is named. The graphs are evaluated by Python,
because compiling hundreds of functions would take minutes; compiled code has its own tests. Ratios of steps,
on both sides of boundaries, are compared in ``tests/universal``.
"""

from __future__ import annotations

import numpy as np
import pytest

from pymc_dp.lowering.addresses.native import OF_SUMS
from pymc_dp.query.records import find_record_blocks
from pymc_dp.step_methods.block.parents import parents_of_records
from pymc_dp.step_methods.block.program import RecordProgram
from pymc_dp.step_methods.updates.conditionals import Conditionals
from pymc_dp.step_methods.updates.noncentred import NoNoiseForm
from pymc_dp.step_methods.updates.quadratic import quadratic
from tests.step_methods.zoo import EVERY, jittered
from tests.universal.reference import Evaluated


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
    propose.dispatcher(rng, theta, program.data.gather(), program.first_records, x, t, w)
    return theta, x


def contributions(program, theta, x):
    t, w = np.empty((program.n, program.n_statistics)), np.empty(program.n)
    contribute = program.contribute
    contribute.dispatcher(theta, program.data.gather(), x, t, w)
    return t, w


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
            propose.dispatcher(rng, theta, program.data.gather(), program.first_records, x, t, w)
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
def test_gaussian_conditionals_are_gaussian(entry, rng):
    """Where a conditional is taken for Gaussian, it is quadratic far from where it was expanded."""
    model = entry.build(max(4, entry.smallest))
    for program, _, conditionals in with_noise_form(entry, model):
        found = quadratic(conditionals)
        if found is None:
            continue
        exact, function = found
        centred = conditionals.centred().dispatcher
        data = program.data.gather()
        theta, x = at(program, jittered(model, rng), rng)
        totals = contributions(program, theta, x)[0].sum(axis=0)
        where = positions(program, exact)
        held = np.ascontiguousarray(x.T)
        gradient, precision = np.empty(len(where)), np.empty((len(where), len(where)))
        function.dispatcher(theta, data, x, totals, gradient, precision.reshape(-1))
        assert not np.triu(precision, 1).any()  # only the lower triangle is computed
        precision = np.tril(precision) + np.tril(precision, -1).T
        for scale in (0.3, 3.0):
            step = scale * rng.normal(size=len(where))
            other = theta.copy()
            other[where] += step
            got = centred(other, data, held, totals) - centred(theta, data, held, totals)
            expected = gradient @ step - 0.5 * step @ precision @ step
            assert got == pytest.approx(expected, rel=1e-7, abs=1e-7), [v.name for v in exact]
