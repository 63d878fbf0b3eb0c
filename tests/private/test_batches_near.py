"""Batches of rows beside coordinates and approximations: other distances and proposals, the same law."""

import numpy as np
import pymc as pm
import pytest

import pymc_dp as dp
from tests.private import models
from tests.private.test_penalty import exact_normal
from tests.statistics.harness import mc_z

TEMPER, BATCH = 0.05, 200
# noise and length of moves at which no bias is seen
SETTINGS = {dp.MinibatchPenalty: (3.0, 0.15), dp.BarkerMetropolis: (0.2, 0.1)}


def model_of(rows, how):
    """Mean of normal rows; coordinates are twice as far apart, and cost half as much."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 2)
        more = {"coordinates": 2 * mu, "clip": 2.0} if how == "coordinates" else {"clip": 4.0}
        dp.ConfidentialLikelihood("x", pm.Normal.dist(mu, 1), data=rows, temper=TEMPER, **more)
    return model


def steps_of(cls, how, rows):
    """The step, and a move of it."""
    noise, scale = SETTINGS[cls]
    mean, sd = models.normal_posterior(rows, TEMPER)
    kwargs = {"scale": scale}
    if how != "coordinates":  # off by half a standard deviation, and too wide
        near = dp.NormalApproximation(
            "x", ("mu",), ((),), np.array([mean + 0.5 * sd]), np.array([[1.5 * sd**2]]), np.eye(1), 4.0, 4.0
        )
        kwargs = {"approximation": near, "updates": how, "scale": scale / sd}
    return models.driven(cls, model_of(rows, how), noise, batch_size=BATCH, **kwargs)


@pytest.mark.statistical
@pytest.mark.parametrize("how", ["coordinates", "joint", "guided", "autoregressive"])
@pytest.mark.parametrize("cls", SETTINGS)
def test_draws_follow_the_posterior(cls, how):
    rows = models.normal_rows(1000)
    step = steps_of(cls, how, rows)
    exact = exact_normal(*models.normal_posterior(rows, TEMPER))
    drawn = models.run(step, 60_000)[0].T
    found = mc_z(drawn, exact)
    assert found.passed, found
    assert mc_z(drawn, exact_normal(exact.mean, 1.2 * exact.sd)).outcome == "rejected"


@pytest.mark.statistical
@pytest.mark.parametrize("how", ["coordinates", "joint"])
@pytest.mark.parametrize("cls", SETTINGS)
def test_noise_follows_the_distance(cls, how):
    """What a row is clipped to, and the noise, are the same in either unit."""
    step = steps_of(cls, how, models.normal_rows(1000))
    new, old, other = np.array([0.72]), np.array([0.7]), np.zeros(0)
    distance = step.distance(new, old, other)
    assert np.isclose(distance, 0.04 if how == "coordinates" else 0.02)
    change = 2 * TEMPER * 1000 / BATCH * 4.0 * 0.02
    if cls is dp.BarkerMetropolis:
        sd = step.noisy_ratio_and_variance(new, old, other, distance)[2]
        expected = change * 0.2 * np.hypot(1, 1 / step.variance_noise)
    else:
        sd = step.noisy_ratio(new, old, other, distance)[1]
        expected = 3.0 * (change + (1 - BATCH / 1000) * change**2 / 2)
    assert np.isclose(sd, expected, rtol=1e-6)
