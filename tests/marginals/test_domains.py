"""Where the law of a record is none, the marginal density is none either: noise does not make up for it."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_dp as dp

ONES = np.ones(3)


def gaussian(a):
    dp.GaussianMechanism("z", pm.Normal("y", 0, a, shape=3), sigma=1.0, observed=ONES)


def laplace(a):
    dp.LaplaceMechanism("z", pm.Normal("y", 0, a, shape=3), scale=1.0, observed=ONES)


def clamped(a):
    dp.GaussianMechanism("z", pm.Normal("y", 0, a, shape=3), rho=1.0, bounds=(-1, 1), observed=ONES)


def central(a):
    dp.GaussianMechanism("z", pm.Normal("y", 0, a, shape=3).sum(), sigma=1.0, observed=1.0)


def two_sums(a):
    y = pm.Normal("y", 0, a, shape=3)
    dp.GaussianMechanism("z", pt.stack([y.sum(), (y * np.arange(3)).sum()]), sigma=1.0, observed=ONES[:2])


def vectors(a):
    cov = pt.stack([pt.stack([1.0, 1 - a]), pt.stack([1 - a, 1.0])])
    dp.GaussianMechanism(
        "z", pm.MvNormal("y", np.zeros(2), cov, shape=(3, 2)), sigma=1.0, observed=np.ones((3, 2))
    )


def bernoulli(a):
    dp.RandomizedResponse("z", pm.Bernoulli("y", a, shape=3), epsilon=1.0, observed=[1, 0, 1])


def categorical(a):
    y = pm.Categorical("y", pt.stack([a, 0.7 - a, 0.3]), shape=3)
    dp.RandomizedResponse("z", y, epsilon=1.0, observed=[1, 0, 1])


def mixture(a):
    parts = [pm.Normal.dist(0, 1), pm.Normal.dist(2, 1)]
    y = pm.Mixture("y", pt.stack([a, 1 - a]), parts, shape=3)
    dp.GaussianMechanism("z", y, sigma=1.0, observed=ONES)


BUILD = [gaussian, laplace, clamped, central, two_sums, vectors, bernoulli, categorical, mixture]


@pytest.mark.compiles(3)
@pytest.mark.parametrize("build", BUILD, ids=[build.__name__ for build in BUILD])
def test_outside_of_the_domain(build):
    with pm.Model() as model:
        build(pm.Normal("a", 0.5, 1))
    marginal = dp.marginalize(model, "y").compile_logp()
    assert np.isfinite(marginal({"a": np.array(0.5)}))
    assert marginal({"a": np.array(-0.3)}) == -np.inf
    if build in (gaussian, laplace, clamped):
        # a standard deviation of zero is none, as of the records themselves, and no error of arithmetic
        assert marginal({"a": np.array(0.0)}) == -np.inf
