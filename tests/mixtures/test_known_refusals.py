"""Mixtures of known records: what is refused, and who takes what."""

import logging

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_dp as dp

N, H = 4, 6


def labels(**kwargs):
    return dp.ChineseRestaurantProcess(
        "labels", **{"concentration": 1, "shape": N, "max_components": H, **kwargs}
    )


def means():
    return pm.Normal("mu", 0, 2, shape=H)


def normal(make, observed=np.zeros(N)):  # noqa: B008
    """A sound kernel, or one with other data, and a step."""

    def declare():
        pm.Normal("y", means()[labels()], 1, observed=observed)
        return make()

    return declare


def half_normal():
    c = labels()
    pm.Normal("y", means()[c], pm.HalfNormal("sd", shape=H)[c], observed=np.zeros(N))


def conjugate(step):
    def declare():
        half_normal()
        return step()

    return declare


def exposures():
    rates = pm.Gamma("mu", 2, 1, shape=H)
    pm.Poisson("y", np.arange(1.0, N + 1) * rates[labels()], observed=np.zeros(N))
    return dp.Neal2()


def one_vector():
    pm.MvNormal("y", means()[labels()], np.eye(N), observed=np.zeros(N))


def mixture_kernel():
    m = means()[labels()]
    pm.NormalMixture("y", [0.5, 0.5], pt.stack([m, -m], axis=1), 1, observed=np.zeros(N))


def two_kernels():
    c, mu = labels(), means()
    for name in "xy":
        pm.Normal(name, mu[c], 1, observed=np.zeros(N))


def no_kernel():
    labels()
    pm.Normal("y", pm.Normal("m"), 1, observed=np.zeros(N))


def no_labels():
    pm.Normal("y", pm.Normal("m"), 1, observed=np.zeros(N))
    return dp.Neal8()


def confidential():
    dp.LaplaceMechanism("z", pm.Normal("y", means()[labels()], 1), scale=1.0, observed=np.zeros(N))
    return dp.SplitMerge()


def whole_atoms():
    pm.Normal("y", pm.Poisson("mu", 2, shape=H)[labels()], 1, observed=np.zeros(N))


def nothing():
    return None


GAP = np.array([0.0, np.nan, 1.0, 2.0])


def columns():
    sd2 = pm.InverseGamma("sd2", 3, 3, shape=(H, 2))
    mu, c = pm.Normal("mu", 0, pt.sqrt(sd2), shape=(H, 2)), labels()
    pm.Normal("y", mu[c], pt.sqrt(sd2)[c], observed=np.zeros((N, 2)))
    return dp.Neal2()


CASES = {
    "a variance for each column": (
        columns,
        ValueError,
        r"columns with a variance each do not: one number per",
    ),
    "a missing value": (normal(nothing, GAP), ValueError, "have missing values .* leave these records out"),
    "records across": (normal(nothing, np.zeros((3, N))), ValueError, "the first axis must be the records"),
    "Neal 2": (conjugate(dp.Neal2), ValueError, "need atoms that integrate out .* mu, sd .* Use dp.Neal8"),
    "Neal 3": (conjugate(dp.Neal3), ValueError, "need atoms that integrate out .* mu, sd .* Use dp.Neal8"),
    "sweeps of Neal 3": (
        conjugate(lambda: dp.SplitMerge(sweeps="neal3")),
        ValueError,
        "need atoms that integrate",
    ),
    "exposures and Neal 2": (exposures, ValueError, "an exposure differs between records. Use dp.Neal8"),
    "one vector": (one_vector, ValueError, "tied together by one multivariate distribution"),
    "a mixture as kernel": (mixture_kernel, NotImplementedError, "The mixture of y cannot be lowered"),
    "two kernels": (
        two_kernels,
        ValueError,
        r"labels are used by x, y, and one kernel is supported. Known .* one pm\.CustomDist with logp=",
    ),
    "no kernel": (no_kernel, ValueError, "Nothing depends on the labels"),
    "no labels": (no_labels, ValueError, "Neal8 found no mixture in this model whose records are known"),
    "confidential records": (confidential, ValueError, "SplitMerge found no mixture .* dp.PrivateNeal5"),
    "whole atoms": (whole_atoms, NotImplementedError, "mu is an integer"),
    "no auxiliary": (
        normal(lambda: dp.Neal8(n_auxiliary=0)),
        ValueError,
        "`n_auxiliary` must be a positive integer, got 0",
    ),
    "half an auxiliary": (
        normal(lambda: dp.Neal8(n_auxiliary=1.5)),
        ValueError,
        "`n_auxiliary` must be a positive",
    ),
    "true auxiliaries": (
        normal(lambda: dp.Neal8(n_auxiliary=True)),
        ValueError,
        "`n_auxiliary` must be a positive",
    ),
    "no scans": (normal(lambda: dp.SplitMerge(n_scans=0)), ValueError, "`n_scans` must be a positive"),
    "no moves": (normal(lambda: dp.SplitMerge(n_moves=-1)), ValueError, "`n_moves` must be a positive"),
    "other sweeps": (
        normal(lambda: dp.SplitMerge(sweeps="neal5")),
        ValueError,
        "`sweeps` must be one of 'auto', ",
    ),
    "no cycles": (normal(lambda: dp.Neal2(n_cycles=0)), ValueError, "`n_cycles` must be a positive"),
}


@pytest.mark.parametrize(("declare", "error", "message"), CASES.values(), ids=CASES)
@pytest.mark.filterwarnings("ignore:.*contains missing values", "ignore:Numba will use object mode")
def test_refused_before_sampling(declare, error, message, monkeypatch):
    def nothing_is_drawn(*args, **kwargs):
        raise AssertionError("sampling started")

    for kind in (dp.Neal2, dp.Neal3, dp.Neal8, dp.SplitMerge, dp.AtomUpdate):
        monkeypatch.setattr(kind, "step", nothing_is_drawn)
    with pm.Model(), pytest.raises(error, match=f"(?s){message}") as caught:
        declare()
        pm.sample(draws=1, tune=0, chains=1, cores=1, progressbar=False)
    assert len(str(caught.value)) < 500


@pytest.mark.statistical
@pytest.mark.parametrize("step", [dp.SplitMerge, dp.Neal2, dp.Neal3, dp.Neal8])
def test_too_few_slots_end_the_run(step):
    """Nothing is cut off in silence: of three records far from each other, two would have to share."""
    with pm.Model():
        mu, c = pm.Normal("mu", 0, 9, shape=2), labels(shape=3, max_components=2)
        pm.Normal("y", mu[c], 0.5, observed=[-9.0, 0.0, 9.0])
        with pytest.raises(ValueError, match=r"All 2 slots of labels are occupied .* raise max_components"):
            pm.sample(200, tune=0, chains=1, cores=1, step=[step()], random_seed=1, progressbar=False)


@pytest.mark.statistical
def test_default_steps(caplog):
    """Labels, then atoms; the concentration is left to others."""
    caplog.set_level(logging.INFO)
    with pm.Model():
        alpha = pm.Gamma("alpha", 2, 2)
        y = np.array([-4.0, -3.0, 3.0, 3.5])
        pm.Normal("y", means()[labels(concentration=alpha)], 1, observed=y)
        idata = pm.sample(30, tune=30, chains=2, cores=1, random_seed=1, progressbar=False)
    told = caplog.text
    assert "SplitMerge: [labels]" in told and "AtomUpdate: [mu]" in told and "NUTS: [alpha]" in told
    k = [[len(np.unique(draw)) for draw in chain] for chain in idata.posterior["labels"].values]
    assert np.array_equal(idata.sample_stats["n_clusters"].values.reshape(2, 30), k)
    assert "y" not in idata.posterior


@pytest.mark.statistical
@pytest.mark.parametrize("conjugate", [True, False])
def test_whether_the_base_is_conjugate_is_said(conjugate, caplog):
    """Once, by the line of the step that chose its sweeps by it, and by the acceptance of atoms."""
    caplog.set_level(logging.INFO)
    with pm.Model() as model:
        mu = means() if conjugate else pm.Laplace("mu", 0, 2, shape=H)
        pm.Normal("y", mu[labels()], 1, observed=np.array([-4.0, -3.0, 3.0, 3.5]))
        idata = pm.sample(30, tune=30, chains=2, cores=2, random_seed=1, progressbar=False)
    told = [r.getMessage() for r in caplog.records if "sweeps over" in r.getMessage()]
    said = "2: the base of mu is conjugate."
    if not conjugate:
        said = "8: the base of mu is not conjugate, or not in a form that is recognised."
    assert told == [f"SplitMerge sweeps over labels by Neal's algorithm {said}"]
    acceptance = idata.sample_stats["atom_acceptance"]
    assert acceptance.isnull().all() if conjugate else (acceptance > 0).any()
    caplog.clear()
    with model:
        assert dp.SplitMerge(sweeps="neal8").vars  # chosen by the user, who need not be told
    assert "sweeps over" not in caplog.text
