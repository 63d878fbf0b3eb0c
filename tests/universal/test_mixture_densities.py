"""The steps of mixtures against the model: the change of density when the atoms of one slot move.

Sweeps over labels, splits and updates of atoms decide by two functions of numbers: the kernel's density of a
record given the atoms of a slot, and the base's density of these atoms. Their sum over a slot is what the
model's own log density changes by, on both sides of where the kernel has a law.
"""

from __future__ import annotations

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_dp as dp
from pymc_dp.lowering.rows.domains import Domain
from pymc_dp.step_methods.mixture.step import lowered_mixture, private_mixtures
from pymc_dp.step_methods.mixture.transfer import places_of
from pymc_dp.step_methods.record_step import RecordChain
from tests.universal.reference import log_density, places
from tests.universal.test_universal import agrees

pytestmark = pytest.mark.compiles(1)

N, SLOTS = 4, 4
Z = np.array([0.2, 0.9, 0.4, 1.3])
LABELS = np.array([2, 0, 2, 1])
X = np.array([-1.0, 0.3, 0.9, -0.4])


def labels():
    return dp.ChineseRestaurantProcess("labels", concentration=1.0, shape=N, max_components=SLOTS)


def released(y):
    dp.LaplaceMechanism("z", y, scale=0.7, observed=Z)


def scales_below_zero():
    c, sd = labels(), pm.Normal("sd", 1, 0.7, shape=SLOTS)
    released(pm.Normal("y", pm.Normal("mu", 0, 2, shape=SLOTS)[c], sd[c]))


def scales_on_a_covariate():
    c, s0, s1 = labels(), pm.Normal("s0", 1.5, 0.5, shape=SLOTS), pm.Normal("s1", 0, 0.7, shape=SLOTS)
    released(pm.Normal("y", 0, s0[c] + s1[c] * X))


def conjugate():
    c, s2 = labels(), pm.InverseGamma("s2", 3, 3, shape=SLOTS)
    mu = pm.Normal("mu", 0, pt.sqrt(10 * s2), shape=SLOTS)
    released(pm.Normal("y", mu[c], pt.sqrt(s2[c])))


def shapes_below_zero():
    c, a = labels(), pm.Normal("a", 2, 1, shape=SLOTS)
    released(pm.Beta("y", a[c], 2.0))


def rates_below_zero():
    c, rate = labels(), pm.Normal("rate", 2, 1, shape=SLOTS)
    released(pm.Poisson("y", rate[c]))


def latent_classes():
    c, p = labels(), pm.Dirichlet("p", np.array([1.0, 2.0, 3.0]), shape=(SLOTS, 3))
    y = pm.Categorical("y", p[c])
    dp.RandomizedResponse("z", y, epsilon=1.0, n_categories=3, observed=np.array([0, 2, 1, 2]))


MODELS = [
    scales_below_zero, conjugate, shapes_below_zero, rates_below_zero, latent_classes, scales_on_a_covariate,
]  # fmt: skip
BOUNDED = {scales_below_zero, shapes_below_zero, rates_below_zero, scales_on_a_covariate}


class Slots:
    """Densities that the steps of a mixture share at a point, by slot."""

    def __init__(self, model, rng):
        self.model = model
        ((mixture, block),) = private_mixtures(model)
        default = model.initial_point()  # PyMC compiles it at each call
        chain = RecordChain(model, block, "independence", default)
        self.program = lowered_mixture(chain.program, mixture).program
        self.layout = self.program.program.parameters
        self.start = {**default, "labels": LABELS}
        self.theta = self.layout.flatten(self.start)
        self.functions = self.program.functions
        self.constants, self.columns = self.program.hoisted_at(self.theta)
        chain.refresh_data()
        self.x = chain.draw(rng, self.theta).copy()

    def point(self, theta):
        records = self.program.program.records.unpack(self.x)
        return {**self.start, **self.layout.unflatten(theta), **records, "labels": LABELS}

    def where(self, slot):
        return np.array([start + step * slot for start, step in places_of(self.program)])

    def density(self, theta, slot):
        """What a step takes for the log density of a slot: its base, and its records' kernel."""
        given = [[*self.constants, *self.columns[:, i]] for i in range(N)]
        atoms = self.functions["load"](*given[0], *theta[self.where(slot)])
        total = self.functions["base_logp"](*given[0], *atoms)[0]
        for i in np.flatnonzero(LABELS == slot):
            numbers = self.functions["features"](*given[i], *self.x[i])
            total += self.functions["own"](*given[i], *numbers, *atoms)[0]
        return total


def pairs(model, rng):
    slots, logp = Slots(model, rng), log_density(model, jacobian=False)
    whole = logp(slots.point(slots.theta))
    assert np.isfinite(whole)
    for slot in range(3):
        here = slots.density(slots.theta, slot)
        for other in places(slots.theta, slots.where(slot), rng):
            expected = logp(slots.point(other)) - whole
            yield expected, slots.density(other, slot) - here


@pytest.mark.parametrize("declare", MODELS, ids=lambda f: f.__name__)
def test_densities_of_slots_are_the_models(declare, rng):
    with pm.Model() as model:
        declare()
    found = list(pairs(model, rng))
    assert not [pair for pair in found if not agrees(*pair)]
    assert (declare in BOUNDED) == any(expected == -np.inf for expected, _ in found)


def test_a_dropped_domain_is_caught(rng, monkeypatch):
    """A beta density with a negative shape is a number like any other."""

    def without(self, logp, is_free):
        self.logp, self._is_free, self._left_out, self._open, self.conditions = logp, is_free, [], {}, []

    with pm.Model() as model:
        shapes_below_zero()
    monkeypatch.setattr(Domain, "__init__", without)
    assert [pair for pair in pairs(model, rng) if not agrees(*pair)]
