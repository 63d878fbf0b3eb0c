"""Distances of a clip that are measured in numbers which follow from the parameters."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_dp as dp
from tests.private import models
from tests.statistics.harness import mc_z


def banana_model(rows, clip, sd=1.0):
    """The banana of the other tests, with the bound in standard deviations of a row's change."""
    with pm.Model() as model:
        theta = pm.Normal("theta", 0, 1.5, shape=2)
        middle = pm.math.stack([theta[0], theta[1] + theta[0] ** 2])
        dp.ConfidentialLikelihood(
            "x", pm.Normal.dist(middle, sd), data=rows, clip=clip, coordinates=middle / sd
        )
    return model


@pytest.fixture(scope="module")
def rows():
    return np.random.default_rng(2).normal([0.8, 0.5], 1.0, (6, 2))


def test_bound_and_noise_follow_the_coordinates(rows):
    """Of two rows far away, what their bounds are; symmetric; and no noise where the law does not change."""
    step = models.penalty(banana_model(np.full((2, 2), 1e6), 3.0), 0.4)
    new, old, other = np.array([0.7, -0.2]), np.array([-0.1, 0.4]), np.zeros(0)
    change = np.array([0.8, (-0.2 + 0.49) - (0.4 + 0.01)])
    distance = step.distance(new, old, other)
    assert np.isclose(distance, np.linalg.norm(change)) and distance == step.distance(old, new, other)
    ratios, sds = zip(*(step.noisy_ratio(new, old, other, distance) for _ in range(2000)), strict=True)
    assert np.allclose(sds, 2 * 3.0 * distance * 0.4)
    assert abs(np.mean(ratios) - 2 * 3.0 * distance) < 6 * sds[0] / 2000**0.5
    lengths = step._lengths()  # of the axes, at the model's initial point, and the default scale
    assert np.allclose(lengths, 1, atol=1e-4)
    assert np.allclose(step.scale, 2.38 / (2 * 3.0 * 0.4 * 2**0.5))


@pytest.mark.statistical
@pytest.mark.parametrize("updates", ["joint", "guided"])
def test_draws_follow_the_posterior(rows, updates):
    step = models.penalty(banana_model(rows, 20.0), 0.01, updates=updates, scale=0.8)
    drawn, _ = models.run(step, 40_000)
    for k, exact in enumerate(models.banana_posterior(rows)):
        found = mc_z(drawn[None, :, k], exact)
        assert found.passed, (k, found)


def test_refused():
    with pm.Model():
        mu, tau = pm.Normal("mu"), pm.Normal("tau")
        for coordinates, error, message in (
            (2.0, TypeError, "must be numbers that follow from"),
            (pt.constant(2.0) + 0.0, ValueError, "no variable of the model"),
            (mu * tau, ValueError, "depend on tau"),
            (mu > 0, TypeError, "must be numbers"),
        ):
            with pytest.raises(error, match=message):
                dp.ConfidentialLikelihood(
                    "x", pm.Normal.dist(mu, 1), data=np.zeros(5), clip=1, coordinates=coordinates
                )
