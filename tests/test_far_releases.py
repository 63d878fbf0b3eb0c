"""Releases that the draws contradict are told, and no others."""

import numpy as np
import pymc as pm
import pytest
import xarray as xr

import pymc_dp as dp
from pymc_dp.far_releases import _DISCRETE, told_far

# How far the noise of one number goes with a chance of 1e-6.
SCALE = 2.0
LAPLACE, GAUSSIAN = SCALE * np.log(1e6), SCALE * (2 * np.log(1e6)) ** 0.5
MECHANISMS = {
    dp.LaplaceMechanism: ("scale", float, LAPLACE),
    dp.GaussianMechanism: ("sigma", float, GAUSSIAN),
    dp.DiscreteLaplaceMechanism: ("scale", round, LAPLACE),
    dp.DiscreteGaussianMechanism: ("sigma", round, GAUSSIAN),
}


def drawn(draws=100, **values):
    """Results with these values, one per chain, in all draws."""
    variables = {}
    for name, of_chains in values.items():
        of_draws = np.repeat(np.asarray(of_chains)[:, None], draws, axis=1)
        axes = [f"{name}_{k}" for k in range(of_draws.ndim - 2)]
        variables[name] = (("chain", "draw", *axes), of_draws)
    return xr.DataTree.from_dict({"posterior": xr.Dataset(variables)})


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_noise_that_does_not_occur_is_told(mechanism):
    """Of a sum of three counts that is 6 in one chain and 7 in the other."""
    level, number, far = MECHANISMS[mechanism]
    for released in (6 + far + 3, 6 - far - 2, 6 + far - 2, 7 - far + 2):
        with pm.Model() as model:
            c = pm.Poisson("c", pm.Gamma("rate", 1, 1), shape=3)
            mechanism("z", c.sum(), **{level: SCALE}, observed=number(released))
        found = told_far(drawn(c=[[1, 2, 3], [1, 2, 4]], rate=[1.0, 2.0]), model)
        assert len(found) == (released > 7 + far or released < 6 - far)
        assert all("contradicts the release" in said.message for said in found)


def entries(*observed):
    with pm.Model() as model:
        y = pm.Normal("y", 0, 10, shape=2)
        dp.LaplaceMechanism("z", y, scale=pm.HalfNormal("noise"), observed=observed)
    return model


def test_the_entry_is_named_and_the_noise_may_be_random():
    near = drawn(y=[[0.0, 9.0], [0.5, 8.0]], noise=[2.0, 2.0])
    (said,) = told_far(drawn(y=[[0.0, 9.0], [0.5, 8.0]], noise=[0.4, 0.4]), entries(0.0, 1.0))
    assert said.message.startswith("z[1] was released as 1, and the last draws of all chains have 8.5 there")
    assert "noise of 17.5 times its level" in said.message
    assert not told_far(near, entries(0.0, 1.0))


def test_nothing_is_said_of_what_is_not_known():
    """One chain that is elsewhere is for R-hat; few draws, or variables that were left out, tell nothing."""
    model, far = entries(0.0, 100.0), {"y": [[0.0, 0.0], [0.0, 0.0]], "noise": [1.0, 1.0]}
    assert told_far(drawn(**far), model)
    assert not told_far(drawn(y=[[0.0, 0.0], [0.0, 99.0]], noise=[1.0, 1.0]), model)
    assert not told_far(drawn(draws=99, **far), model)
    assert not told_far(drawn(y=far["y"]), model)
    with pm.Model() as flips:
        dp.RandomizedResponse("z", pm.Bernoulli("c", 0.5, shape=2), epsilon=9.0, observed=[0, 0])
    assert not told_far(drawn(c=[[1, 1], [1, 1]]), flips)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_processed_value_is_as_far_as_the_nearest_noisy_value_that_gives_it(mechanism):
    """Published are 24 (noisy values of 22 to 26), and nothing of what is below 20 after rounding."""
    level, _, far = MECHANISMS[mechanism]
    with pm.Model() as model:
        c = pm.Poisson("c", 30, shape=2)
        published = dp.postprocessed([24, np.nan], round_to=4, suppress_below=20)
        mechanism("z", c, **{level: SCALE}, observed=published)
    # of two numbers, each has half of the chance
    reach = far + 2
    for counts, entry in {
        (24, 5): None,
        (26 + far - 2, 5): None,
        (26 + reach + 2, 5): "z[0] was released as 24",
        (24, 18 + far - 2): None,
        (24, 18 + reach + 2): "z[1] was suppressed",
    }.items():
        told = [said.message for said in told_far(drawn(c=[counts, counts]), model)]
        assert len(told) == (entry is not None) and all(said.startswith(entry) for said in told)


def test_observed_variables_in_the_query_have_their_values():
    """A covariate of which one value is missing: PyMC draws that one, and has seen the other."""
    for weight, told in ((3.0, False), (90.0, True)):
        with pm.Model() as model:
            x = pm.Normal("x", 0, 1, observed=np.ma.masked_invalid([weight, np.nan]))
            dp.GaussianMechanism("z", x.sum(), sigma=SCALE, observed=5.0)
        assert bool(told_far(drawn(x_unobserved=[[2.0], [1.0]]), model)) == told


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_too_much_noise_in_all_numbers_together_is_told(mechanism):
    """A wrong number of people moves every cell a little, and none by more than noise may."""
    level, number, far = MECHANISMS[mechanism]
    for cells, off, told in ((20, 0.7 * far, True), (20, SCALE, False), (400, 2 * SCALE, True)):
        with pm.Model() as model:
            c = pm.Poisson("c", 30, shape=cells)
            mechanism("z", c, **{level: SCALE}, observed=[number(30 + off)] * cells)
        found = told_far(drawn(c=np.full((2, cells), 30)), model)
        assert bool(found) == told
        if told:
            assert found[0].message.startswith(f"the {cells} numbers of z differ")
            assert "times the level of noise on average, in place of" in found[0].message


def test_discrete_noise_has_more_at_its_numbers_than_between_them():
    """Of 200,000 draws of noise, no more are told than should be, for chances of 5 and of 1 per cent."""
    rng = np.random.default_rng(1)
    law = dp.DiscreteLaplaceMechanism.dist(np.zeros(200_000, int), scale=0.33)
    noise = np.abs(pm.draw(law, random_seed=rng)) / 0.33
    for chance in (0.05, 0.01):
        assert np.mean(noise > -np.log(chance) + _DISCRETE) < chance
    assert np.mean(noise > -np.log(0.05)) > 0.05  # what the law of numbers between them would say


def test_large_counts_are_shown_in_full():
    with pm.Model() as model:
        c = pm.Poisson("c", 1.2e7, shape=2)
        dp.LaplaceMechanism("z", c, scale=1.0, observed=[12345678.0, 12345699.0])
    (said,) = told_far(drawn(c=np.full((2, 2), 12345678)), model)
    assert said.message.startswith(
        "z[1] was released as 12345699, and the last draws of all chains have 12345678"
    )


def test_keys_that_were_listed_for_their_noise_are_not_looked_at():
    with pm.Model() as model:
        c = pm.Poisson("c", 3, shape=2)
        listed = dp.postprocessed([60, 90], suppress_below=50, unknown_keys=True)
        dp.DiscreteLaplaceMechanism("z", c, scale=1.0, observed=listed)
    assert not told_far(drawn(c=[[1, 1], [1, 1]]), model)


def right(release):
    release(pm.DirichletMultinomial("c", n=1798, a=np.ones(12)).reshape((4, 3)))


def wrong(release):
    release(pm.DirichletMultinomial("c", n=1798, a=np.ones((4, 3))))


@pytest.mark.parametrize("declare", [right, wrong])
def test_a_wrong_number_of_people_is_told_by_sample(declare, caplog):
    """PyMC's multinomial of a table has as many people in each row as it is told of."""
    released = np.array([[163, 455, 199], [114, 26, 130], [133, 216, 124], [7, 129, 102]])
    with pm.Model():
        declare(lambda c: dp.DiscreteLaplaceMechanism("z", c, epsilon=0.8, sensitivity=2, observed=released))
        pm.sample(100, tune=100, chains=1, cores=1, random_seed=1, progressbar=False)
    assert ("contradicts the release" in caplog.text) == (declare is wrong)
