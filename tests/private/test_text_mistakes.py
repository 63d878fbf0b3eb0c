"""Power: what the text of Räisä (2021) has wrong in its algorithms, put in, is seen in the draws.

Its other mistakes are seen elsewhere: the uniform number without its logarithm, no penalty, a stale gradient
(test_hmc.py), the variance of batches (test_minibatch.py), less noise than is claimed (the attacks). A step
of the position without its size leaves the posterior as it is, and only goes astray.
"""

import inspect
import textwrap
from types import MethodType

import numpy as np
import pytest

from pymc_dp.private import hmc as module
from tests.private import models
from tests.private.test_penalty import exact_normal
from tests.statistics.harness import mc_z

ROWS = models.normal_rows()


def other_sign_of_momenta(step):
    """Section 4.1: the momentum's part of the energy with the other sign."""
    right, wrong = "change += 0.5 * float(", "change -= 0.5 * float("
    source = textwrap.dedent(inspect.getsource(module.PrivateHMC.step))
    assert source.count(right) == 1
    names = dict(vars(module))
    exec(source.replace(right, wrong), names)
    step.step = MethodType(names["step"], step)


def many_priors(step):
    """Algorithms 2 and 3: the posterior in the place of the likelihood of each row."""
    right = step.logp_at
    step.logp_at = lambda theta, other: len(ROWS) * right(theta, other)


def variance_of_theorem_11(step):
    """2 b d times the multiplier's square, which is a variance in no unit, for the penalty."""
    noisy = step.noisy_ratio

    def wrong(new, theta, other, distance):
        ratio, _ = noisy(new, theta, other, distance)
        return ratio, np.sqrt(2 * step.clip * distance) * step.plan.noise_multiplier

    step.noisy_ratio = wrong


def verdict(break_it):
    model = models.normal_model(ROWS, clip_gradient=2.0)
    step = models.hmc(model, 0.1, step_size=0.25, n_leapfrog=3, gradient_noise=1.0)
    break_it(step)
    drawn, _ = models.run(step, 25_000)
    return mc_z(drawn.T, exact_normal(*models.normal_posterior(ROWS)))


@pytest.mark.statistical
def test_nothing_put_in():
    found = verdict(lambda step: None)
    assert found.passed, found


@pytest.mark.statistical
@pytest.mark.parametrize("break_it", [other_sign_of_momenta, many_priors, variance_of_theorem_11])
def test_it_is_seen(break_it):
    assert verdict(break_it).outcome == "rejected"
