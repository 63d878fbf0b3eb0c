"""Every step against the model: its log ratio is the change of the model's own log density, everywhere.

Points lie on both sides of every boundary, so that a forgotten domain, Jacobian or term shows at once and is
named. A new step is a row in ``steps.py``, a new law or model one in ``models.py`` (or in the steps' zoo).
"""

from __future__ import annotations

import numpy as np
import pytensor.tensor as pt
import pytest

from pymc_dp.lowering.addresses.native import CONDITIONAL, OF_SUMS
from pymc_dp.step_methods.block.program import RecordProgram
from pymc_dp.step_methods.groups import Grouped
from pymc_dp.step_methods.updates import conditionals, sufficient
from pymc_dp.step_methods.updates.conditionals import Conditionals
from pymc_dp.step_methods.updates.exchangeable import CollapsedConditionals
from tests.universal.models import BOUNDED, MODELS
from tests.universal.reference import Evaluated
from tests.universal.steps import STEPS, placed

N = 3
BY_NAME = {entry.name: entry for entry in MODELS}


@pytest.fixture(autouse=True)
def by_python(monkeypatch):
    compiled = RecordProgram.native

    def native(program, name, inputs, outputs, signature):
        if signature is OF_SUMS:  # called from generated source
            return compiled(program, name, inputs, outputs, signature)
        return Evaluated(program, inputs, outputs, signature)

    monkeypatch.setattr(RecordProgram, "native", native)


def blocks_of(entry, rng):
    return placed(entry.build(max(N, entry.smallest)), rng)


def pairs(blocks, rng, steps=STEPS):
    """Pairs of ratios of a placed model, by step."""
    return {step: list(STEPS[step](blocks, rng)) for step in steps}


def wrong(found):
    """Pairs whose ratios differ, or of which the step allows what has no density, by step."""
    return {step: bad for step, each in found.items() if (bad := [p for p in each if not agrees(*p)])}


def agrees(expected, got):
    if expected == -np.inf:
        return not got > -np.inf  # what is no number is refused, too
    return abs(got - expected) <= 1e-6 + 2e-6 * abs(expected)


@pytest.mark.compiles(40)
@pytest.mark.parametrize("entry", MODELS, ids=lambda entry: entry.name)
def test_ratios_are_the_models(entry, rng):
    blocks, tried = blocks_of(entry, rng), []
    for _ in range(5 if entry in BOUNDED else 1):  # until both sides of a boundary were seen
        found = pairs(blocks, rng)
        assert not wrong(found)
        tried += [p.expected for each in found.values() for p in each]
        if -np.inf in tried and np.isfinite(tried).any():
            break
        for block in blocks:
            block.draw(rng)
    assert tried or not entry.noise_form or entry.name == "discrete uniform"
    if entry in BOUNDED:
        assert -np.inf in tried and np.isfinite(tried).any(), "one side of the boundary was not seen"


def domain_dropped(patch):
    """Records that are left out of a target are left out with the domain of their law."""
    keep = lambda self, graph, reading: graph  # noqa: E731
    patch.setattr(Conditionals, "_where_records_have_laws", keep)


def jacobian_lost(patch):
    patch.setattr(Conditionals, "_jacobian", lambda self, *args: pt.constant(0.0))


def jacobian_of_noise_lost(patch):
    patch.setattr(Conditionals, "_noise_jacobian", lambda self, *args: pt.constant(0.0))


def potential_forgotten(patch):
    original = Conditionals._factors

    def factors(self, on):
        return [f for f in original(self, on) if f not in self.model.potentials]

    patch.setattr(Conditionals, "_factors", factors)


def releases_forgotten(patch):
    patch.setattr(Conditionals, "_central_logp", lambda self, reading: pt.constant(0.0))


def prior_forgotten(patch):
    original = Conditionals._factors

    def factors(self, on):
        return [f for f in original(self, on) if f not in self.moving]

    patch.setattr(Conditionals, "_factors", factors)


def counts_twice(patch):
    original = CollapsedConditionals.collapsed

    def collapsed(self):
        self.counts = 2 * (counts := self.counts)
        graph_of = self.program.native

        def native(name, inputs, outputs, signature):
            return graph_of(name, [inputs[0], counts], outputs, signature)

        self.program.native = native
        try:
            return original(self)
        finally:
            del self.program.native

    patch.setattr(CollapsedConditionals, "collapsed", collapsed)


def slope_too_steep(patch):
    grad = pt.grad

    def steeper(cost, by, **kwargs):
        found = grad(cost, by, **kwargs)
        return found if isinstance(by, list) else 1.001 * found

    patch.setattr(conditionals.pt, "grad", steeper)


def groups_mistaken(patch):
    original = Grouped._summed

    def summed(self, terms, groups):
        return original(self, terms, [np.where(g == 0, 1, np.where(g == 1, 0, g)) for g in groups])

    patch.setattr(Grouped, "_summed", summed)


def effects_forgotten(patch):
    """The law of effects is left out of the density of what they are around."""

    def density_of(self, on):
        prior = self._sum([f for f in self._factors(on) if f.name != "a"], self.program.state)
        return self.program.native("prior", [self.program.x, self.totals], [prior], CONDITIONAL)

    patch.setattr(Conditionals, "density_of", density_of)


def a_record_less(patch):
    """The constant of a law counts one record less than its sums are of."""
    laws = {
        op: (numbers, lambda params, sums, n, density=density: density(params, sums, n - 1))
        for op, (numbers, density) in sufficient._LAWS.items()
    }
    patch.setattr(sufficient, "_LAWS", laws)


GIVEN_SUMS = "AncillaryUpdate, given sums of the records"
BY_GROUP, UPPER = "AncillaryUpdate, by group", "AncillaryUpdate, upper level"
GIVEN_RECORDS, GIVEN_NOISE = "AncillaryUpdate, given the records", "AncillaryUpdate, given the noise"


@pytest.mark.parametrize(
    ("fault", "entry", "step"),
    [
        *((domain_dropped, name, GIVEN_NOISE) for name in (
            "normal scale", "uniform between random ends", "poisson identity link", "laplace scale",
            "bernoulli linear probability", "exponential rate", "moyal scale", "scale of walks",
            "scale of the start of walks", "counts that walk", "scale of autoregressive records",
        )),
        *((domain_dropped, name, "CollapsedUpdate") for name in ("bernoulli answers", "categorical answers")),
        (jacobian_lost, "clamped mean", GIVEN_RECORDS),
        (jacobian_lost, "clamped mean", GIVEN_NOISE),
        *((jacobian_of_noise_lost, name, GIVEN_NOISE) for name in (
            "hierarchy", "autoregression", "autoregressions", "random walk", "random walks",
        )),
        (potential_forgotten, "potentials", GIVEN_RECORDS),
        (potential_forgotten, "an order that a potential demands", GIVEN_NOISE),
        (releases_forgotten, "normal sum", GIVEN_NOISE),
        (releases_forgotten, "a density of ones own", GIVEN_NOISE),
        (prior_forgotten, "a scale in the prior", GIVEN_RECORDS),
        (prior_forgotten, "bernoulli answers", "CollapsedUpdate"),
        (counts_twice, "bernoulli answers by group", "CollapsedUpdate"),
        (groups_mistaken, "effects of areas", BY_GROUP),
        (domain_dropped, "effects of areas", GIVEN_NOISE),
        (effects_forgotten, "effects of areas", UPPER),
        *((a_record_less, name, GIVEN_SUMS) for name in (
            "gamma shape", "gamma mean and sd", "beta shape", "dirichlet concentration",
        )),
        (slope_too_steep, "normal sum", "AncillaryUpdate, slopes given the records"),
        (slope_too_steep, "normal sum", "AncillaryUpdate, slopes given the noise"),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)  # fmt: skip
def test_planted_faults_are_caught(fault, entry, step, rng, monkeypatch):
    assert not wrong(pairs(blocks_of(BY_NAME[entry], rng), rng, [step]))
    fault(monkeypatch)
    assert wrong(pairs(blocks_of(BY_NAME[entry], rng), rng, [step]))
