"""What releases of a model cost together."""

import math

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_dp as dp
from pymc_dp.privacy import ComposedGuarantee
from pymc_dp.privacy.calibration import gaussian_epsilon


def hospitals(**unknown):
    """Two hospitals; each publishes a sum, and the first one a count as well."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1, shape=2)
        a = pm.Normal("a", mu[0], 1, shape=5)
        b = pm.Normal("b", mu[1], 1, shape=7)
        dp.LaplaceMechanism("sum_a", a.sum(), epsilon=1.0, bounds=(-1, 1), observed=0.0)
        dp.LaplaceMechanism("sum_b", b.sum(), epsilon=1.2, bounds=(-1, 1), observed=0.0)
        dp.LaplaceMechanism("count_a", (a > 0).sum(), **(unknown or {"epsilon": 0.5, "sensitivity": 1}))
    return model


def test_releases_of_a_model_add_up():
    total = dp.guarantee(hospitals())
    assert isinstance(total, ComposedGuarantee) and total.is_pure
    assert total.epsilon == pytest.approx(2.7, rel=1e-15)
    assert {name for name, _ in total.parts} == {"sum_a", "sum_b", "count_a"}
    assert "sum_a" in str(total) and "the same people being behind all of them" in str(total)


def test_disjoint_groups_are_by_shared_records():
    total = dp.guarantee(hospitals(), disjoint=True)
    assert total.epsilon == 1.5  # 1 + 0.5 at the first hospital, 1.2 at the second
    assert "each person being behind one of them only" in str(total)
    with pytest.raises(ValueError, match=r"disjoint=True is about several releases"):
        dp.guarantee(hospitals()["sum_a"], disjoint=True)


def test_gaussian_releases_of_a_model_compose_exactly():
    with pm.Model() as model:
        y = pm.Normal("y", shape=5)
        for k in range(3):
            dp.GaussianMechanism(f"z{k}", y.sum(), epsilon=1, delta=1e-6, bounds=(-1, 1), observed=0.0)
    total, one = dp.guarantee(model), dp.guarantee(model["z0"])
    assert total.mu == pytest.approx(math.sqrt(3) * one.mu) and total.delta == pytest.approx(3e-6)
    assert total.epsilon == pytest.approx(gaussian_epsilon(3e-6, 1.0, total.mu), rel=1e-8)
    assert total.epsilon < 1.8
    at = dp.guarantee(model, delta=1e-6)
    assert at.delta == 1e-6 and at.epsilon == pytest.approx(gaussian_epsilon(1e-6, 1.0, total.mu), rel=1e-8)


def test_unknown_guarantee_is_named():
    with pytest.raises(ValueError, match="guarantee of count_a is not known"):
        dp.guarantee(hospitals(scale=1.0))
    with pytest.raises(ValueError, match="guarantee of LaplaceMechanism is not known"):
        dp.guarantee(dp.Release(1.0, "LaplaceMechanism", {"scale": 1.0}))


def test_lists_of_releases():
    model = hospitals()
    release = dp.LaplaceMechanism.release(3.0, epsilon=0.25, sensitivity=1)
    assert dp.guarantee(release).epsilon == 0.25
    total = dp.guarantee([model["sum_a"], release, release, model["sum_a"]])
    assert total.epsilon == 1.25 and len(total.parts) == 2  # each counted once
    again = dp.LaplaceMechanism.release(3.0, epsilon=0.25, sensitivity=1)
    third = dp.LaplaceMechanism.release(3.0, epsilon=0.25, sensitivity=1)
    total = dp.guarantee((release, again, third))
    assert total.epsilon == 0.75
    assert [name for name, _ in total.parts] == [
        "LaplaceMechanism",
        "LaplaceMechanism (2)",
        "LaplaceMechanism (3)",
    ]
    assert dp.guarantee([release, again], disjoint=True).epsilon == 0.25


def test_one_release_at_another_delta():
    with pm.Model():
        y = pm.Normal("y", shape=5)
        z = dp.GaussianMechanism("z", y.sum(), rho=0.02, bounds=(-1, 1))
    stated = dp.guarantee(z, delta=1e-5)
    assert stated.mu == pytest.approx(0.2) and stated.delta == 1e-5
    assert stated.epsilon == pytest.approx(gaussian_epsilon(1e-5, 1.0, 0.2))


def test_local_releases_promise_each_row():
    with pm.Model() as model:
        y = pm.Normal("y", shape=1000)
        dp.LaplaceMechanism("z", y, epsilon=2, bounds=(-1, 1), observed=np.zeros(1000))
    assert dp.guarantee(model).epsilon == 2


@pytest.mark.parametrize("calibration", ["analytic", "classic"])
def test_gaussian_mu_is_the_inverse_noise_multiplier(calibration):
    z = dp.GaussianMechanism.dist(0.0, epsilon=0.8, delta=1e-5, sensitivity=3, calibration=calibration)
    sigma = float(z.owner.op.dist_params(z.owner)[1].eval())
    stated = dp.guarantee(z)
    assert stated.mu == pytest.approx(3 / sigma, rel=1e-12) and stated.rho == pytest.approx(stated.mu**2 / 2)
    exact = gaussian_epsilon(1e-5, sigma, 3.0)
    if calibration == "analytic":
        assert exact == pytest.approx(0.8, rel=1e-9)
    else:
        assert exact < 0.8  # the textbook formula adds more noise than it needs
    assert dp.guarantee(z, delta=1e-5).epsilon == pytest.approx(min(exact, 0.8), rel=1e-9)


def test_classic_calibration_is_for_small_epsilon_only():
    with pytest.raises(
        ValueError, match='calibration="classic" is proven for epsilon <= 1 only, got epsilon'
    ):
        dp.GaussianMechanism.dist(0.0, epsilon=1.01, delta=1e-5, sensitivity=1, calibration="classic")
    dp.GaussianMechanism.dist(0.0, epsilon=1.0, delta=1e-5, sensitivity=1, calibration="classic")


@pytest.mark.parametrize(
    ("released", "error", "message"),
    [
        (3.0, TypeError, "float is not a release: pass the variable"),
        ([1], TypeError, "int is not a release"),
        ([], ValueError, "No release is listed"),
        (pm.Model(), ValueError, "model publishes nothing"),
    ],
)
def test_bad_input(released, error, message):
    with pytest.raises(error, match=message):
        dp.guarantee(released)


def test_records_that_a_parameter_reads_are_behind_a_release():
    def logp(value, query, other):
        return -pt.abs(value - query - other) / 2 - np.log(4.0)

    with pm.Model():
        level = pm.HalfNormal("level")
        x, y, u = (pm.Normal(name, shape=n) for name, n in (("x", 20), ("y", 30), ("u", 30)))
        said = {"logp": logp, "guarantee": dp.PrivacyGuarantee(0.5)}
        z = dp.CustomMechanism("z", dp.record_sum(x), dp.clamp(y, 0, 1).sum(), observed=3.0, **said)
        v = dp.CustomMechanism("v", dp.record_sum(u), level, observed=3.0, **said)
        t = dp.CustomMechanism("t", dp.record_sum(x), level, observed=3.0, **said)
        w = dp.LaplaceMechanism("w", dp.record_sum(y), scale=2.0, bounds=(0, 1), observed=4.0)
    with pytest.raises(ValueError, match="the releases z and w both read y"):
        dp.guarantee([z, w], disjoint=True)
    for apart in ([t, w], [v, z], [v, t]):  # a parameter of the model that two share is nobody's record
        assert dp.guarantee(apart, disjoint=True).epsilon == 0.5
