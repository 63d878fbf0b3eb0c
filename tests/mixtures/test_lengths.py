"""Steps of mixtures take lengths as they are when sampling begins, however a model writes them."""

import numpy as np
import pymc as pm
import pytest

import pymc_dp as dp

pytestmark = pytest.mark.compiles(2)

Z = np.array([-3.0, -2.5, 2.0, 2.4, 2.2, -2.7])
X = np.random.default_rng(0).normal(size=(6, 3))
LENGTHS = {"row": 6, "slot": 6, "d": 2}


def regression(way, confidential):
    """A mixture of regressions on as many covariates as the data have."""

    def axes(*names):
        return {"shape": tuple(LENGTHS[n] for n in names)} if way == "shape" else {"dims": names}

    with pm.Model(coords={"slot": range(LENGTHS["slot"])}) as model:
        x = pm.Data("x", X[:, :2] if way == "shape" else X, dims=None if way == "shape" else ("row", "d"))
        labels = dp.ChineseRestaurantProcess("labels", concentration=1, shape=6)
        mu, beta = pm.Normal("mu", 0, 3, **axes("slot")), pm.Normal("beta", 0, 1, **axes("slot", "d"))
        mean = mu[labels] + (x * beta[labels]).sum(axis=1)
        if confidential:
            dp.LaplaceMechanism("z", pm.Normal("y", mean, 1, **axes("row")), scale=0.5, observed=Z)
        else:
            pm.Normal("y", mean, 1, observed=Z)
        if way != "shape":
            pm.set_data({"x": X[:, :2]})
    return model


@pytest.mark.compiles(1)
@pytest.mark.parametrize("confidential", [True, False], ids=["confidential", "known"])
def test_draws_do_not_depend_on_how_lengths_are_written(confidential):
    found = {}
    for way in ("shape", "dims"):
        with regression(way, confidential):
            found[way] = pm.sample(
                8, tune=8, chains=1, cores=1, random_seed=3, progressbar=False, quiet=True,
                compute_convergence_checks=False,
            )  # fmt: skip
    assert set(found["dims"].sample_stats) == set(found["shape"].sample_stats)
    for name, values in found["shape"].posterior.items():
        # code that was just compiled and code from the disk differ in rounding
        np.testing.assert_allclose(found["dims"].posterior[name], values, rtol=1e-9, err_msg=name)


def by_data(z, confidential):
    with pm.Model() as model:
        data = pm.Data("data", z, dims="row")
        labels = dp.ChineseRestaurantProcess("labels", concentration=1, dims="row", max_components=6)
        mean = pm.Normal("mu", 0, 3, shape=6)[labels]
        if confidential:
            dp.LaplaceMechanism("z", pm.Normal("y", mean, 1, dims="row"), scale=0.5, observed=data)
        else:
            pm.Normal("y", mean, 1, observed=data, dims="row")
    return model


@pytest.mark.usefixtures("built_only")
@pytest.mark.parametrize("confidential", [True, False], ids=["confidential", "known"])
def test_another_number_of_records_is_refused(confidential):
    """Labels have the length that they were declared with; the remedy is to declare them again."""
    with by_data(Z[:4], confidential):
        pm.set_data({"data": Z})
        with pytest.raises(ValueError, match=r"of 4.*build the model again"):
            dp.AtomUpdate()
    with by_data(Z, confidential):
        assert [v.name for v in dp.AtomUpdate().vars] == ["mu"]
