"""Calibration of a user's own model: a right sampler passes, wrong ones do not, and messages help."""

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_dp as dp
from pymc_dp.runs.calibration import DATA

SHORT = {"kept": 19, "draws": 250, "tune": 150, "random_seed": 1, "progressbar": False}


def sums(n=10):
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        y = pm.Normal("y", mu, 1, shape=n)
        dp.LaplaceMechanism("z", dp.record_sum(y), epsilon=1, bounds=(-3, 3), observed=0.0)
    return model


@pytest.fixture(scope="module")
def right():
    return dp.testing.calibrate(sums(), simulations=100, **SHORT)


@pytest.mark.statistical
def test_a_right_sampler_passes(right):
    assert not right.rejected and right.p_value > 0.01
    assert list(right.ranks.data_vars) == ["mu", DATA]
    assert str(right).startswith("Calibrated as far as 100 simulations, 19 draws each;")
    assert "Not covered: y themselves." in str(right)


def test_ranks_are_those_of_the_truth(right):
    """By hand, for one simulation: pm.sample of its release, and the truth among its draws."""
    model = sums()
    mu, z = pm.draw([model["mu"], model["z"], pm.logp(model["z"], model["z"])], draws=100, random_seed=1)[:2]
    for k in (0, 57):
        alone = sums()
        alone.rvs_to_values[alone["z"]].data[...] = z[k]
        drawn = pm.sample(
            model=alone, draws=250, tune=150, chains=1, random_seed=int(right.fits.seed[k]), quiet=True,
            progressbar=False, compute_convergence_checks=False,
        )["posterior"]["mu"].values[0]  # fmt: skip
        spread = np.linspace(0, 249, 19).round().astype(int)
        assert int(right.ranks["mu"][k]) == int((drawn[spread] < mu[k]).sum())


class Prior(dp.AncillaryUpdate):
    """Draws everything from the prior, whatever was released."""

    def step(self, point):
        point = dict(point)
        point["mu"] = np.asarray(self.rng.normal())
        point["y"] = self.rng.normal(point["mu"], 1, np.shape(point["y"]))
        return point, [{"centred_acceptance": 1.0, "ancillary_acceptance": 1.0}]


class Narrow(dp.AncillaryUpdate):
    """Records a parameter nearer to its mean than it was drawn."""

    def step(self, point):
        self.kept = getattr(self, "kept", None)
        point, stats = super().step({**point, "mu": self.kept} if self.kept is not None else point)
        self.kept = point["mu"]
        return {**point, "mu": np.asarray(0.3 + 0.5 * (point["mu"] - 0.3))}, stats

    def setup_chain(self, *given):
        super().setup_chain(*given)
        self.kept = None


def test_a_sampler_that_ignores_the_data_is_rejected():
    """For parameters alone it is calibrated: the data's own density tells."""
    steps = lambda m: [dp.RecordImputation(model=m), Prior([m["mu"]], model=m)]  # noqa: E731
    found = dp.testing.calibrate(sums(), simulations=100, step=steps, **SHORT)
    assert found.rejected and str(found).startswith("Rejected: ranks are not uniform")
    assert float(found.p_values["mu"]) > 1e-3 > 10 * float(found.p_values[DATA])


@pytest.mark.statistical
def test_a_sampler_that_is_too_sure_is_rejected():
    steps = lambda m: [Narrow([m["mu"]], model=m), dp.RecordImputation(model=m)]  # noqa: E731
    found = dp.testing.calibrate(sums(), simulations=100, step=steps, **SHORT)
    assert found.rejected and float(found.p_values["mu"]) < 1e-4


@pytest.mark.statistical
def test_whole_numbers_vectors_and_integrated_records():
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.ones(3))
        pm.Deterministic("first_is_likely", pt.gt(p[0], 0.5))
        y = pm.Categorical("y", p, shape=20)
        dp.RandomizedResponse("z", y, epsilon=1, observed=np.zeros(20, dtype=int))
    asked = SHORT | {"simulations": 60, "chains": 2, "draws": 150}
    found = dp.testing.calibrate(dp.marginalize(model, ["y"]), **asked)
    assert not found.rejected
    assert found.ranks["p"].dims == ("simulation", "p_dim_0") and found.p_values["p"].shape == (3,)
    assert set(found.ranks["first_is_likely"].values) <= set(range(20))


def test_arviz_draws_the_ranks(right):
    tree = right.to_datatree()
    assert dict(tree["prior_sbc"].sizes) == {"chain": 1, "draw": 100}
    az.plot_ecdf_pit(tree)


def test_few_effective_draws_are_told():
    with pytest.raises(
        ValueError, match=r"have fewer than 400 effective draws of a variable: give more draws"
    ):
        dp.testing.calibrate(sums(), simulations=20, **SHORT | {"kept": 200, "draws": 400})


def improper():
    with pm.Model() as model:
        pm.Normal("seen", pm.Flat("mu"), 1, observed=0.0)
    return model


def with_potential():
    model = sums()
    with model:
        pm.Potential("extra", -model["mu"])
    return model


def unobserved():
    with pm.Model() as model:
        pm.Normal("mu")
    return model


def taken():
    model = sums()
    with model:
        pm.Deterministic(DATA, model["mu"] * 2)
    return model


@pytest.mark.parametrize(
    ("model", "changed", "told"),
    [
        (improper, {}, r"model cannot be simulated from .*give proper priors"),
        (with_potential, {}, r"has the potential extra, .*Leave potentials out"),
        (unobserved, {}, r"has no observed variable"),
        (taken, {}, r"has a variable data_log_density, as the check has: rename it"),
        (sums, {"simulations": 3}, r"simulations must be a whole number of at least 10"),
        (sums, {"kept": 2}, r"kept must be"),
        (sums, {"kept": 400}, r"kept = 400 takes at least 800 draws of a fit, and there are 250"),
        (sums, {"var_names": ["m"]}, r"var_names has 'm'; the model's variables are mu, y"),
    ],
)
def test_bad_input(model, changed, told):
    with pytest.raises(ValueError, match=told):
        dp.testing.calibrate(model(), **{"simulations": 20} | SHORT | changed)
