"""Posteriors that cannot be normalised are refused by name, and others are not."""

from __future__ import annotations

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import stats

import pymc_dp as dp
from pymc_dp import propriety
from pymc_dp.propriety import refuse_improper

X = np.array([-1.0, -0.5, 0.0, 0.5, 1.0])


def _sum(y, **kwargs):
    dp.LaplaceMechanism("z", dp.record_sum(y), **{"scale": 1.0, "observed": 1.0, **kwargs})


def _answers(p):
    c = pm.Bernoulli("c", p, shape=5)
    dp.RandomizedResponse("z", c, epsilon=1, n_categories=2, observed=[0, 1, 1, 0, 1])


def clamped_sum():
    _sum(pm.Normal("y", pm.Flat("b"), 1, shape=5), bounds=(-3, 3))


def clamped_from_below_only():
    _sum(pt.maximum(pm.Normal("y", pm.Flat("b"), 1, shape=5), 0))


def clamped_records():
    y = pm.Normal("y", pm.Flat("b"), 1, shape=5)
    dp.GaussianMechanism("z", y, sigma=1.0, bounds=(-1, 1), observed=np.zeros(5))


def behind_a_parameter():
    _sum(pm.Normal("y", pm.Normal("mu", pm.Flat("b"), 1), 1, shape=5), bounds=(-3, 3))


def scale():
    _sum(pm.Normal("y", 0, pm.HalfFlat("b"), shape=5), bounds=(-3, 3))


def logarithm_of_a_scale():
    """At minus infinity all records stand at their mean, which an unclamped sum allows as well."""
    _sum(pm.Normal("y", 0, pt.exp(pm.Flat("b")), shape=5))


def slope():
    b = pm.Flat("b", shape=2)
    _sum(pm.Normal("y", b[0] + b[1] * X, 1), bounds=(-3, 3))


def logit():
    _answers(pm.math.sigmoid(pm.Flat("b")))


def log_rate():
    _sum(pm.Poisson("y", pt.exp(pm.Flat("b")), shape=5), bounds=(0, 3))


def one_of_two_without_data():
    """A slope on a covariate that is zero throughout."""
    b = pm.Flat("b", shape=2)
    _sum(pm.Normal("y", b[0] + b[1] * np.zeros(5), 1))


def a_scale_towards_zero():
    """Jeffreys' law of a scale behind releases of each record."""
    s = pm.HalfFlat("b")
    pm.Potential("jeffreys", -pt.log(s))
    y = pm.Normal("y", 0, s, shape=5)
    dp.GaussianMechanism("z", y, sigma=1.0, observed=np.ones(5))


IMPROPER = [
    clamped_sum, clamped_from_below_only, clamped_records, behind_a_parameter, scale, logarithm_of_a_scale,
    slope, logit, log_rate, one_of_two_without_data, a_scale_towards_zero,
]  # fmt: skip


def unclamped_sum():
    _sum(pm.Normal("y", pm.Flat("b"), 1, shape=5))


def unclamped_sum_of_large_numbers():
    _sum(pm.Normal("y", pm.Flat("b"), 1e5, shape=5), scale=1e6)


def squares():
    """Bounded from below, but large on both sides."""
    _sum(pm.Normal("y", pm.Flat("b"), 1, shape=5) ** 2)


def public_data_too():
    b = pm.Flat("b")
    _sum(pm.Normal("y", b, 1, shape=5), bounds=(-3, 3))
    pm.Normal("public", b, 1, observed=2.0)


def heavy_tailed_public_data():
    b = pm.Flat("b")
    _sum(pm.Normal("y", b, 1, shape=5), bounds=(-3, 3))
    pm.Cauchy("public", b, 1, observed=2.0)


def an_observed_child():
    y = pm.Normal("y", pm.Flat("b"), 1, shape=5)
    _sum(y, bounds=(-3, 3))
    pm.Normal("child", y, 1, observed=np.zeros(5))


def a_potential():
    b = pm.Flat("b")
    _sum(pm.Normal("y", b, 1, shape=5), bounds=(-3, 3))
    pm.Potential("soft", -(b**2))


def two_statistics():
    b = pm.Flat("b", shape=2)
    y = pm.Normal("y", b[0] + b[1] * X, 1)
    dp.LaplaceMechanism("z", dp.record_sum(pt.stack([y, X * y], axis=1)), scale=1, observed=[1.0, 1.0])


def a_factor_that_starts_at_zero():
    """Where the model starts, the parameter does not matter; elsewhere it does."""
    _sum(pm.Normal("y", pm.Flat("b") * pm.Normal("k"), 1, shape=5))


PROPER = [
    unclamped_sum, unclamped_sum_of_large_numbers, squares, public_data_too, heavy_tailed_public_data,
    an_observed_child, a_potential, two_statistics, a_factor_that_starts_at_zero,
]  # fmt: skip
REFUSED = r"b has an improper law \((Half)?Flat\).*posterior is improper.*proper law"


def built(declare):
    with pm.Model() as model:
        declare()
    return model


@pytest.mark.parametrize("declare", IMPROPER, ids=lambda f: f.__name__)
def test_improper_posteriors_are_refused(declare):
    with pytest.raises(ValueError, match=REFUSED):
        refuse_improper(built(declare))


@pytest.mark.parametrize("declare", PROPER, ids=lambda f: f.__name__)
def test_proper_ones_are_not(declare, monkeypatch):
    """The fall decides, which is therefore known: with any fall taken for none, each is refused."""
    model = built(declare)
    refuse_improper(model)
    monkeypatch.setattr(propriety, "_MORE_OR_LESS", np.inf)
    with pytest.raises(ValueError, match=REFUSED):
        refuse_improper(model)


@pytest.mark.parametrize("step", [dp.RecordImputation, dp.AncillaryUpdate])
def test_steps_refuse_before_sampling(step):
    with built(clamped_sum), pytest.raises(ValueError, match=REFUSED):
        step()


def test_pm_sample_refuses():
    with built(clamped_sum), pytest.raises(ValueError, match=REFUSED):
        pm.sample(10, tune=10, chains=1, progressbar=False)


def test_mechanisms_without_records_are_asked_too():
    with pm.Model(), pytest.raises(ValueError, match=REFUSED):
        b = pm.Flat("b", shape=3)
        dp.RandomizedResponse("z", pm.math.softmax(b), n=600, epsilon=1.0, observed=[200, 200, 200])
        pm.sample(10, tune=10, chains=1, progressbar=False)


def test_marginalized_models_are_refused():
    with pytest.raises(ValueError, match=REFUSED):
        dp.marginalize(built(clamped_records), ["y"])


@pytest.mark.parametrize("declare", IMPROPER, ids=lambda f: f.__name__)
def test_a_proper_law_is_taken_in_the_same_place(declare, monkeypatch):
    monkeypatch.setattr(pm, "Flat", lambda name, **kwargs: pm.Normal(name, 0, 10, **kwargs))
    monkeypatch.setattr(pm, "HalfFlat", lambda name, **kwargs: pm.HalfNormal(name, 10, **kwargs))
    refuse_improper(built(declare))


def density_of_clamped_sum(b, n, half, scale, observed, cells=300):
    """Density of a release of n normal numbers clamped to [-half, half], on a grid."""
    at = np.linspace(-half, half, cells + 1)
    ends = np.concatenate([[-np.inf], (at[1:] + at[:-1]) / 2, [np.inf]])
    law = np.fft.rfft(np.diff(stats.norm.cdf(ends - b)), n * cells + 1)
    of_sum = np.fft.irfft(law**n, n * cells + 1)
    return of_sum @ stats.laplace.pdf(observed, np.linspace(-n * half, n * half, n * cells + 1), scale)


def test_the_remedy_is_exact():
    """What the refusal recommends has the posterior that convolutions give."""
    grid = np.linspace(-45, 45, 4001)
    mass = stats.norm.pdf(grid, 0, 10) * [density_of_clamped_sum(b, 5, 3, 1.0, 1.0) for b in grid]
    exact = (mass * grid).sum() / mass.sum()
    spread = np.sqrt((mass * (grid - exact) ** 2).sum() / mass.sum())
    with pm.Model():
        _sum(pm.Normal("y", pm.Normal("b", 0, 10), 1, shape=5), bounds=(-3, 3))
        idata = pm.sample(
            3000, tune=500, chains=2, cores=1, random_seed=1, progressbar=False, quiet=True,
            compute_convergence_checks=False,
        )  # fmt: skip
    draws = idata.posterior["b"].values
    assert abs(draws.mean() - exact) < 4 * float(az.mcse(draws))
    assert abs(draws.std() - spread) < 4 * float(az.mcse(draws, method="sd"))
