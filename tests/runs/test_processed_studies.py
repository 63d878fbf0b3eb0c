"""What fits of a study may observe of processed releases, with their records and without."""

import numpy as np
import pymc as pm
import pytest

import pymc_dp as dp
from pymc_dp.runs.releases import observed_by_fit
from pymc_dp.step_methods.release_values import check_releases


def counts():
    x = pm.Poisson("x", pm.Gamma("rate", 2, 0.3), shape=2)
    dp.DiscreteGaussianMechanism("z", x, sigma=1.5, observed=dp.postprocessed([4, 7], suppress_below=3))


def few():
    x = pm.Binomial("x", 9, pm.Beta("p", 1, 1), shape=2)
    dp.LaplaceMechanism("z", x, scale=1.5, observed=dp.postprocessed([4.0, 7.0], suppress_below=3))


def real():
    x = pm.Normal("x", pm.Normal("mu", 0, 3), 1, shape=2)
    dp.GaussianMechanism("z", x, sigma=1.5, observed=dp.postprocessed([4.0, 7.0], suppress_below=3))


@pytest.mark.parametrize("declare", [counts, few, real])
@pytest.mark.parametrize("integrated", [False, True])
def test_suppressed_entries(declare, integrated):
    """Missing numbers are entries that were suppressed; others that nothing gives are refused."""
    with pm.Model() as model:
        declare()
    if integrated:
        model = dp.marginalize(model, "x")
        assert "x" not in model.named_vars
    check_releases(model)
    (fit,) = observed_by_fit(model, {"z": np.array([[np.nan, 6.0]])})
    np.testing.assert_array_equal(fit["z"], [-np.inf, 6.0])
    with pytest.raises(ValueError, match=r"the value 1 was published, below suppress_below = 3"):
        observed_by_fit(model, {"z": np.array([[1.0, 6.0]])})
