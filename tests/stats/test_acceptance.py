"""The acceptance report, on hand-made draws: exact numbers and the sentences a user reads."""

import math

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
import xarray as xr

import pymc_dp as dp
from pymc_dp.stats.acceptance import acceptance_report
from pymc_dp.step_methods.mixture.chain import MixtureChain
from pymc_dp.step_methods.mixture.counters import ACCEPTED, GIVEN_LABELS, PROPOSED


def tree(acceptance, lowest, **posterior):
    """What `pm.sample` returns, as far as the report reads it; arrays of (chain, draw, ...)."""
    groups = {
        "sample_stats": {"record_acceptance": acceptance, "record_acceptance_min": lowest},
        "posterior": posterior or {"mu": np.random.default_rng(1).normal(size=np.shape(lowest))},
    }
    return xr.DataTree.from_dict(
        {
            group: xr.Dataset(
                {
                    name: (("chain", "draw", *(f"d{i}" for i in range(np.ndim(v) - 2))), v)
                    for name, v in variables.items()
                }
            )
            for group, variables in groups.items()
        }
    )


def good(mean=0.9, lowest=0.8, **posterior):
    return tree(np.full((4, 100), mean), np.full((4, 100), lowest), **posterior)


def sums(second=None, extra=None, shape=8):
    """Records with a sum released at epsilon = 1, perhaps another release or term."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 2)
        x = pm.Normal("x", mu, 1, shape=shape)
        dp.LaplaceMechanism("s", dp.record_sum(x), epsilon=1, bounds=(-3, 3), observed=4.0)
        if second is not None:
            second(x)
        if extra is not None:
            extra(x)
    return model


def walk(size=(4, 500), seed=3):
    """Random walks: hundreds of iterations for an effective draw."""
    return np.random.default_rng(seed).normal(size=size).cumsum(axis=1)


def test_numbers_are_those_of_the_chain():
    acceptance = np.array([[0.90, 0.80, 1.00], [0.70, 0.60, 0.80]])
    lowest = np.array([[0.50, 0.45, 0.60], [0.55, 0.41, 0.70]])
    report = acceptance_report(tree(acceptance, lowest), sums())
    assert report.mean == pytest.approx(0.8)
    assert report.minimum == 0.41
    (bound,) = report.bounds
    assert (bound.records, bound.n, bound.releases) == (("x",), 8, ("s",))
    assert bound.epsilon == 1.0
    assert bound.bound == pytest.approx(math.exp(-1))
    assert bound.reason == ""


def test_epsilon_is_summed_over_the_releases():
    def second(x):
        squares = dp.record_sum(x**2)
        dp.LaplaceMechanism("q", squares, epsilon=0.5, bounds=(0, 9), observed=9.0)

    report = acceptance_report(good(), sums(second))
    (bound,) = report.bounds
    assert set(bound.releases) == {"s", "q"}
    assert bound.epsilon == 1.5
    assert bound.bound == pytest.approx(math.exp(-1.5))


def test_sets_of_records_are_told_apart():
    model = sums()
    with model:
        y = pm.Bernoulli("y", 0.3, shape=5)
        dp.LaplaceMechanism("count", dp.record_sum(y), epsilon=2, bounds=(0, 1), observed=2.0)
    report = acceptance_report(good(lowest=0.3), model)
    assert {b.records: b.bound for b in report.bounds} == {
        ("x",): pytest.approx(math.exp(-1)),
        ("y",): pytest.approx(math.exp(-2)),
    }
    # .3 is below exp(-1), but the chain does not say whose it was: no false alarm
    assert not any("below" in w for w in report.warnings)
    assert "of all records of the model together" in " ".join(str(report).split())


def gaussian(x):
    dp.GaussianMechanism("g", dp.record_sum(x), rho=0.1, bounds=(-3, 3), observed=4.0)


def unknown(x):
    dp.LaplaceMechanism("u", dp.record_sum(x), scale=3.0, observed=4.0)


def local(x):
    dp.LaplaceMechanism("z", x, epsilon=1, bounds=(-3, 3), observed=np.zeros(8))


@pytest.mark.parametrize(
    ("second", "extra", "reason"),
    [
        (gaussian, None, "does not promise pure privacy"),
        (unknown, None, "guarantee of u is not known"),
        (local, None, "look at the release"),
        (None, lambda x: pm.Normal("w", x, 1, observed=np.zeros(8)), "w depends on the records"),
        (None, lambda x: pm.Potential("pot", -(x**2)), "pot depends on the records"),
    ],
)
def test_no_bound_where_it_does_not_hold(second, extra, reason):
    report = acceptance_report(good(lowest=0.01), sums(second, extra))
    (bound,) = report.bounds
    assert math.isnan(bound.bound)
    assert reason in bound.reason
    assert reason in " ".join(str(report).split())
    assert not any("below" in w for w in report.warnings)


def test_independence_proposals_have_the_bound_on_a_local_release():
    report = acceptance_report(good(), sums(local), proposals="independence")
    assert report.bounds[0].bound == pytest.approx(math.exp(-2))


def test_informed_proposals_have_none():
    assert math.isnan(acceptance_report(good(), sums(), proposals="informed").bounds[0].bound)


def test_add_remove_neighbours_count_twice():
    model = sums()
    op = model["s"].owner.op
    object.__setattr__(op, "guarantee", dp.PrivacyGuarantee(1.0, neighbours="add-remove"))
    assert acceptance_report(good(), model).bounds[0].epsilon == 2.0


def test_a_stated_epsilon_is_said_to_be_one():
    def own(x):
        query = dp.record_sum(dp.clamp(x, 0, 1))
        promise = dp.PrivacyGuarantee(0.5)
        dp.CustomMechanism(
            "own", query, logp=lambda v, q: -pt.abs(v - q) / 2 - np.log(4.0), guarantee=promise, observed=3.0
        )

    said = "The epsilon of own is stated by the user, not proven"
    report = acceptance_report(good(), sums(own))
    assert report.bounds[0].stated == ("own",)
    assert report.bounds[0].epsilon == 1.5
    assert said in " ".join(str(report).split())
    assert said not in " ".join(str(acceptance_report(good(), sums())).split())


def test_a_rate_below_the_bound_is_reported():
    report = acceptance_report(good(lowest=0.2), sums())
    (warning,) = report.warnings
    assert "0.2 only" in warning and "0.368" in warning and "one person" in warning


def test_a_rate_at_the_bound_is_no_violation():
    assert not acceptance_report(good(lowest=math.exp(-1)), sums()).warnings


def test_slow_mixing_is_said_in_words_although_acceptance_is_high():
    report = acceptance_report(good(mean=0.98, mu=walk()), sums())
    assert report.worst_parameter == "mu"
    expected = 4 * 500 / report.effective_draws
    assert report.iterations_per_effective_draw == pytest.approx(expected)
    (warning,) = report.warnings
    for part in (
        f"{expected:.0f} iterations",
        "although",
        "0.98",
        "AncillaryUpdate",
        "draw longer",
    ):
        assert part in warning


def test_the_largest_r_hat_is_named():
    """Chains that stand apart, beside one that does not; of a single chain there is none."""
    apart = np.random.default_rng(1).normal(size=(4, 500, 2))
    apart[0, :, 1] += 3
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=2)
        y = pm.Normal("y", beta.sum(), 1, shape=8)
        dp.LaplaceMechanism("s", dp.record_sum(y), scale=1.0, observed=1.0)
    report = acceptance_report(good(beta=apart), model)
    assert report.r_hat_of == "beta[1]" and report.r_hat > 1.2
    assert f"Largest R-hat: {report.r_hat:.3f}, of beta[1]." in str(report)
    alone = acceptance_report(good(beta=apart).isel(chain=[1]), model)
    assert alone.r_hat_of is None and math.isnan(alone.r_hat) and "R-hat" not in str(alone)


def beside(idata, **stats):
    """The same with further statistics in `sample_stats`."""
    for name, value in stats.items():
        shape = idata.sample_stats["record_acceptance"].shape
        idata.sample_stats[name] = xr.DataArray(np.full(shape, value), dims=("chain", "draw"))
    return idata


def test_advice_looks_at_what_ran():
    """No advice to turn on what was on; nor to turn on what would do nothing."""
    asked_for = "leave AncillaryUpdate on"
    for rate, words in ((0.3, "AncillaryUpdate ran already"), (0.0, asked_for)):
        idata = beside(good(mean=0.98, mu=walk()), ancillary_acceptance=rate, ancillary_cycles=3)
        (warning,) = acceptance_report(idata, sums()).warnings
        assert words in warning and (asked_for in warning) == (rate == 0)
        assert ("{'n_cycles': 30}" in warning) == ("'hamiltonian'" in warning) == (rate > 0)
    with pm.Model() as counted:  # whose records are no smooth functions of their noise
        mu = pm.Gamma("mu", 2, 1)
        dp.LaplaceMechanism("r", pm.Poisson("y", mu, shape=3).sum(), epsilon=1, sensitivity=3, observed=4.0)
    idata = beside(good(mean=0.98, mu=walk()), ancillary_acceptance=0.3, ancillary_cycles=3)
    (warning,) = acceptance_report(idata, counted).warnings
    assert "{'n_cycles': 30}" in warning and "'hamiltonian'" not in warning
    followed = beside(idata, ancillary_acceptance=0.8, ancillary_trajectories=True)
    (warning,) = acceptance_report(followed, sums()).warnings
    assert "ran already, by trajectories" in warning and "'hamiltonian'" not in warning
    with pm.Model() as model:
        k = pm.Poisson("k", 3)
        x = pm.Normal("x", pm.Normal("mean", k, 1), 1, shape=8)
        dp.LaplaceMechanism("s", dp.record_sum(x), epsilon=1, bounds=(-3, 3), observed=4.0)
    (warning,) = acceptance_report(good(k=walk()), model).warnings
    assert "does not move this parameter" in warning and asked_for not in warning


def mixture(plain=False):
    """Records of a mixture under local releases, perhaps beside other records."""
    with pm.Model() as model:
        labels = dp.ChineseRestaurantProcess("labels", concentration=1, shape=3, max_components=3)
        y = pm.Normal("y", pm.Normal("mu", 0, 3, shape=3)[labels], 1)
        dp.LaplaceMechanism("z", y, epsilon=5, bounds=(-10, 10), observed=[-4.0, 2.2, 3.0])
        if plain:
            x = pm.Normal("x", pm.Normal("nu", 0, 2), 1, shape=8)
            dp.LaplaceMechanism("s", dp.record_sum(x), epsilon=1, bounds=(-3, 3), observed=4.0)
    return model


def test_mixtures_are_reported_by_the_shares_of_their_draws():
    idata = good()
    del idata.sample_stats["record_acceptance_min"]
    idata.sample_stats["record_acceptance"][2, 7] = 0.25
    report = acceptance_report(idata, mixture())
    assert report.minimum == 0.25 and report.mean == pytest.approx(0.9 - 0.65 / 400)
    (bound,) = report.bounds
    assert math.isnan(bound.bound) and "moved with their labels" in bound.reason
    with pytest.raises(ValueError, match=r"no record_acceptance_min: .* not sampled by PrivateNeal5"):
        acceptance_report(idata, mixture(plain=True))


@pytest.mark.parametrize("step", [dp.PrivateNeal5, dp.PrivateSlice])
def test_a_sampled_mixture(step, monkeypatch):
    """What the chain keeps is the share of all its proposals for records, with labels or given them."""
    tallies = []
    run = MixtureChain.run

    def seen(*args):
        moved, tally = run(*args)
        tallies.append(tally)
        return moved, tally

    monkeypatch.setattr(MixtureChain, "run", seen)
    with mixture() as model:
        idata = pm.sample(
            60, tune=20, chains=1, cores=1, random_seed=2, progressbar=False, quiet=True,
            compute_convergence_checks=False, step=[step()],
        )  # fmt: skip
    report = acceptance_report(idata, model)
    drawn = np.array(tallies[-60:])
    proposed = drawn[:, [PROPOSED, GIVEN_LABELS + 1]].sum(axis=1)
    shares = drawn[:, [ACCEPTED, GIVEN_LABELS]].sum(axis=1) / proposed
    assert (proposed >= 3).all() and (proposed % 3 == 0).all()
    assert report.mean == pytest.approx(shares.mean()) and report.minimum == pytest.approx(shares.min())
    assert 0 < report.minimum <= report.mean <= 1


def test_the_worst_entry_of_an_array_is_named():
    rng = np.random.default_rng(8)
    beta = rng.normal(size=(4, 500, 3))
    beta[..., 2] = walk()
    with pm.Model() as model:
        coefficients = pm.Normal("beta", 0, 1, shape=3)
        x = pm.Normal("x", coefficients.sum(), 1, shape=8)
        dp.LaplaceMechanism("s", dp.record_sum(x), epsilon=1, bounds=(-3, 3), observed=4.0)
    assert acceptance_report(good(beta=beta), model).worst_parameter == "beta[2]"


def test_the_threshold_can_be_moved():
    idata = good(mu=walk())
    assert acceptance_report(idata, sums()).warnings
    assert not acceptance_report(idata, sums(), max_iterations=1e6).warnings


def test_a_parameter_that_never_moved():
    report = acceptance_report(good(mu=np.zeros((4, 100))), sums())
    (warning,) = report.warnings
    assert report.effective_draws == 0 and "mu did not move" in warning


def test_draws_without_parameters():
    report = acceptance_report(good(x=np.zeros((4, 100, 8))), sums())
    assert report.worst_parameter is None and math.isnan(report.iterations_per_effective_draw)
    assert not report.warnings


def test_data_frame():
    frame = acceptance_report(good(), sums()).to_dataframe()
    assert list(frame.index) == ["x"] and frame.index.name == "records"
    row = frame.loc["x"]
    assert row["mean"] == pytest.approx(0.9) and row["minimum"] == 0.8
    assert row["bound"] == pytest.approx(math.exp(-1))


def test_the_table_is_readable():
    text = str(acceptance_report(good(), sums()))
    for part in ("exp(-epsilon)", "0.368", "0.900", "0.800", "Slowest parameter: mu"):
        assert part in text
    assert max(map(len, text.splitlines())) <= 96


def test_a_mixture_of_known_records_has_no_acceptance():
    """It was told to declare a release, as if something had been forgotten."""
    with pm.Model() as model:
        labels = dp.ChineseRestaurantProcess("labels", concentration=1, shape=4, max_components=4)
        pm.Normal("y", pm.Normal("mu", shape=4)[labels], 1, observed=np.zeros(4))
    with pytest.raises(ValueError, match="y is a mixture of known records") as refusal:
        acceptance_report(None, model)
    assert "with a mechanism" not in str(refusal.value) and "dp.mixture_density" in str(refusal.value)
    with model:
        idata = pm.sample(5, tune=5, chains=1, progressbar=False, random_seed=1, quiet=True)
    for name in ("n_clusters", "labels_moved", "splits_accepted"):
        assert name in str(refusal.value) and name in idata.sample_stats
    assert {"r_hat", "ess"} <= set(dp.mixture_density(idata, model, [0.0], random_seed=1))


def test_names_with_brackets_are_shown_as_they_are():
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 2)
        x = pm.Normal("x[kg]", mu, 1, shape=8)
        dp.LaplaceMechanism("s", dp.record_sum(x), epsilon=1, bounds=(-3, 3), observed=4.0)
    assert "x[kg]" in str(acceptance_report(good(), model))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda a: a.update(idata=3), TypeError, "idata must be the xarray.DataTree"),
        (lambda a: a.update(model="m"), TypeError, "model must be a pymc.Model, got str"),
        (lambda a: a.update(model=pm.Model()), ValueError, "model has no confidential records"),
        (lambda a: a.update(proposals="blind"), ValueError, "proposals must be"),
        (lambda a: a.update(max_iterations=0), ValueError, "max_iterations must be"),
        (
            lambda a: a.update(idata=a["idata"].filter(lambda node: node.name != "sample_stats")),
            ValueError,
            "no group 'sample_stats'",
        ),
        (
            lambda a: a.update(idata=xr.DataTree.from_dict({"sample_stats": xr.Dataset()})),
            ValueError,
            "has no record_acceptance and no record_acceptance_min",
        ),
        (
            lambda a: a.update(idata=tree(np.zeros((4, 0)), np.zeros((4, 0)))),
            ValueError,
            "idata holds no draws",
        ),
    ],
)
def test_bad_input(change, error, message):
    arguments = {"idata": good(), "model": sums()}
    change(arguments)
    with pytest.raises(error, match=message):
        acceptance_report(**arguments)


def test_records_that_were_integrated_out_have_no_acceptance(python_mode):
    with pm.Model() as model:
        p = pm.Beta("p", 1, 1)
        y = pm.Bernoulli("y", p, shape=3)
        dp.RandomizedResponse("z", y, epsilon=1, observed=[0, 1, 1])
    with pytest.raises(ValueError, match=r"releases \(z\) but no records .* integrated out"):
        dp.acceptance_report(None, dp.marginalize(model, "y"))
