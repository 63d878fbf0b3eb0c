"""Bad input is refused before sampling starts, in a sentence that says what to do."""

from __future__ import annotations

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_dp as dp

N = 6


def normal(name="y", mu=None, **kwargs):
    mu = pm.Normal("mu") if mu is None else mu
    return pm.Normal(name, mu, 1, **{"shape": N, **kwargs})


def total(observed=1.0, **kwargs):
    """A release of a sum, with something wrong in it."""
    return dp.LaplaceMechanism("z", normal().sum(), observed=observed, **kwargs)


def gaussian(**kwargs):
    return dp.GaussianMechanism("z", normal().sum(), observed=1.0, **kwargs)


def released(query, **kwargs):
    query = pt.as_tensor_variable(query)
    ones = np.ones(tuple(query.shape.eval()))
    return dp.LaplaceMechanism("z", query, **{"scale": 1, "observed": ones, **kwargs})


def with_step(make):
    """A sound model with a step that is not."""

    def declare():
        total(epsilon=1, bounds=(-1, 1))
        return make()

    return declare


def child_on_the_mean():
    x = normal("x")
    released(dp.record_sum(x * pm.Normal("y", x.mean(), 1, shape=N)))


def child_between_records():
    y = pm.HalfNormal("y", 1, shape=N)
    pm.Normal("o", pm.Uniform("w", 0, y, shape=N), 0.5, observed=np.ones(N))
    released(dp.record_sum(y))


def several_children():
    y = normal(shape=1)
    pm.Normal("o", y, 1, observed=np.ones(N))
    released(dp.record_sum(y))


def mixture_parameters():
    w = pm.Beta("w", 1, 1)
    released(pm.NormalMixture("k", pt.stack([w, 1 - w]), [0, 1], 1, shape=N).sum())
    return dp.AncillaryUpdate(update="random_walk")


def no_release():
    pm.Normal("o", normal(), 1, observed=np.zeros(N))


def records_only():
    released(pm.Normal("y", 0, 1, shape=N).sum())
    return dp.AncillaryUpdate()


def half_of_the_records():
    x = normal("x")
    released((x * normal("y", mu=x)).sum())
    return dp.RecordImputation(vars=[x])


def improper_record():
    released(pm.Flat("y", shape=N).sum())
    return dp.RecordImputation()


def nobody(**kwargs):
    released(normal(shape=0), **kwargs)


def nobody_in_a_group():
    mu = pm.Normal("mu")
    released(normal("x", mu).sum())
    dp.LaplaceMechanism("b", normal("y", mu, shape=0).sum(), epsilon=1, bounds=(-1, 1), observed=0.3)


def density_without_draws():
    y = pm.CustomDist("y", pm.Normal("mu"), logp=lambda v, mu: -((v - mu) ** 2), shape=N)
    released(y.sum())


def longer_data():
    covariates = pm.Data("D", np.zeros((4, 2)))
    y = pm.Normal("y", pm.Normal("mu") * covariates, 1, shape=covariates.shape)
    dp.LaplaceMechanism("z", dp.record_sum(y), scale=1.0, observed=[0.0, 0.0])
    step = dp.RecordImputation()
    pm.set_data({"D": np.zeros((6, 2))})
    pm.sample(draws=1, tune=0, chains=1, cores=1, progressbar=False, step=[step])


# What is declared (and possibly returned: steps), the error, what the message has to say.
CASES = {
    "child between records": (
        child_between_records,
        ValueError,
        "w is sampled between ends that are records.*give it default_transform=None",
    ),
    "several children of one record": (
        several_children,
        ValueError,
        "o depends on several records at once",
    ),
    "no record": (nobody, ValueError, "about no record: y has length 0.*leave it and its records out"),
    "the mean of no record": (
        lambda: dp.LaplaceMechanism("z", normal(shape=0).mean(), epsilon=1, bounds=(-1, 1), observed=0.1),
        ValueError,
        "query divides by 0, as a mean over no record does",
    ),
    "no record in a group": (nobody_in_a_group, ValueError, "query of b is about no record: y has length 0"),
    "records that cannot be drawn": (
        density_without_draws,
        ValueError,
        "y was built from a log density alone.*random= beside logp=, or dist=",
    ),
    "steps that are known numbers": (
        lambda: released(
            pm.RandomWalk(
                "y",
                init_dist=pm.Normal.dist(),
                innovation_dist=pm.Censored.dist(pm.Normal.dist(0, pm.HalfNormal("s")), -1, 1),
                shape=(4, 3),
            ).sum(axis=1)
        ),
        ValueError,
        "steps of the random walk y .*records of their own",
    ),
    "a table of counts": (
        lambda: released(pm.Multinomial("c", 20, pm.Dirichlet("p", np.ones(3))) ** 2),
        ValueError,
        "c, a table of counts.*linear with known coefficients.*pm.Categorical.*dp.RandomizedResponse",
    ),
    "more people than slots": (
        lambda: released(dp.record_sum(pm.Normal("x", shape=5), count=pm.DiscreteUniform("n", 0, 9))),
        ValueError,
        r"prior of n allows more people than the 5 slots of x.*shape=.*pm.Truncated",
    ),
    "query without a length": (
        lambda: dp.LaplaceMechanism("z", pt.vector("v"), epsilon=1, bounds=(0, 1)),
        TypeError,
        "a length that nothing gives, since v is an input of a graph",
    ),
    "query without a length, each row for itself": (
        lambda: dp.BinomialMechanism("z", 2 * pt.vector("v"), epsilon=1, n_trials=3),
        ValueError,
        "an input of it has no value: pass data",
    ),
    "none released": (
        lambda: dp.SmoothedHistogramSample(
            "z", normal(), n_bins=3, epsilon=1, bounds=(0, 1), n_released=0, observed=[0.1, 0.2]
        ),
        ValueError,
        "n_released",
    ),
    "observed NaN": (lambda: total(np.nan, scale=1), ValueError, "observed has 1 missing"),
    "observed infinite": (lambda: total(np.inf, scale=1), ValueError, "missing or infinite"),
    "observed masked": (
        lambda: released(normal(), observed=np.ma.masked_invalid([1, np.nan, 2, 3, 4, 5])),
        ValueError,
        "a mechanism releases all entries",
    ),
    "observed of another shape": (
        lambda: total([1.0, 2.0], scale=1),
        ValueError,
        r"release of shape \(2,\), but the query gives one of shape \(\)",
    ),
    "observed text": (lambda: total("17", scale=1), TypeError, "observed must hold real numbers"),
    "observed complex": (lambda: total(1 + 2j, scale=1), TypeError, "observed must hold real"),
    "query complex": (
        lambda: dp.LaplaceMechanism("z", pt.zmatrix().sum(), scale=1, observed=1.0),
        TypeError,
        "query must be real",
    ),
    "query NaN": (
        lambda: dp.LaplaceMechanism("z", [1.0, np.nan], scale=1, observed=[1.0, 1.0]),
        ValueError,
        "query has NaN",
    ),
    "epsilon 0": (
        lambda: total(epsilon=0, sensitivity=1),
        ValueError,
        "epsilon must be a finite number > 0, got 0",
    ),
    "epsilon negative": (
        lambda: total(epsilon=-1, sensitivity=1),
        ValueError,
        "epsilon must be a finite number > 0, got -1",
    ),
    "epsilon NaN": (
        lambda: total(epsilon=np.nan, sensitivity=1),
        ValueError,
        "epsilon must be a finite number > 0, got nan",
    ),
    "epsilon text": (
        lambda: total(epsilon="1", sensitivity=1),
        TypeError,
        "epsilon must be one real number, got str",
    ),
    "epsilon random": (
        lambda: total(epsilon=pm.HalfNormal("e"), sensitivity=1),
        TypeError,
        "epsilon must be one real number",
    ),
    "epsilon data": (
        lambda: total(epsilon=pm.Data("e", 1.0), sensitivity=1),
        TypeError,
        r"is declared by that level, where the mechanism has one \(scale=",
    ),
    "epsilon without sensitivity": (
        lambda: total(epsilon=1),
        ValueError,
        r"epsilon needs the sensitivity.*or\s+bounds=",
    ),
    "delta 0": (
        lambda: gaussian(epsilon=1, delta=0, sensitivity=1),
        ValueError,
        "delta must be strictly between 0 and 1, got 0",
    ),
    "delta above 1": (
        lambda: gaussian(epsilon=1, delta=1.5, sensitivity=1),
        ValueError,
        "delta must be strictly between 0 and 1, got 1.5",
    ),
    "epsilon without delta": (
        lambda: gaussian(epsilon=1, sensitivity=1),
        ValueError,
        "epsilon was given without delta",
    ),
    "classic calibration above 1": (
        lambda: gaussian(epsilon=3, delta=1e-6, sensitivity=1, calibration="classic"),
        ValueError,
        "analytic",
    ),
    "unknown calibration": (
        lambda: gaussian(epsilon=1, delta=1e-6, sensitivity=1, calibration="exact"),
        ValueError,
        "calibration must be one of 'analytic', 'classic', got 'exact'",
    ),
    "no noise level": (lambda: total(), ValueError, "exactly one way.*got none"),
    "two noise levels": (
        lambda: total(scale=1, epsilon=1, sensitivity=1),
        ValueError,
        "exactly one way.*got both scale= and epsilon=",
    ),
    "scale 0": (lambda: total(scale=0.0), ValueError, "scale must be finite and > 0"),
    "scale per what": (
        lambda: total(scale=[1.0, 2.0]),
        ValueError,
        r"scale has shape \(2,\), which is more than the query's",
    ),
    "bounds reversed": (
        lambda: total(epsilon=1, bounds=(1, -1)),
        ValueError,
        "bounds must have lo < hi, got lo = 1 and hi = -1",
    ),
    "bounds NaN": (
        lambda: total(epsilon=1, bounds=(np.nan, 1)),
        ValueError,
        "bounds must be finite",
    ),
    "too many bounds": (
        lambda: total(epsilon=1, bounds=[(0, 1), (0, 1), (0, 1)]),
        ValueError,
        "one record contributes an array of shape",
    ),
    "bounds of a nonlinear query": (
        lambda: released(pt.sort(normal()), scale=None, epsilon=1, bounds=(0, 1)),
        ValueError,
        r"`bounds` cannot be applied.*dp.record_sum\(dp.clamp",
    ),
    "sensitivity 0": (
        lambda: total(epsilon=1, sensitivity=0),
        ValueError,
        "sensitivity must be a finite number > 0",
    ),
    "sensitivity below the bounds'": (
        lambda: total(epsilon=1, sensitivity=0.5, bounds=(-1, 1)),
        ValueError,
        "sensitivity = 0.5 contradicts bounds",
    ),
    "unknown keyword": (
        lambda: total(scale=1, epsilom=1),
        TypeError,
        "unexpected keyword argument 'epsilom'",
    ),
    "query of no variable": (
        lambda: released(np.ones(3)),
        ValueError,
        "query depends on no random variable",
    ),
    "query of no record": (
        lambda: released(2 * pm.Normal("mu")),
        ValueError,
        r"touches no record.*shape \(n,\) or \(n, d\)",
    ),
    "one vector over the people": (
        lambda: released(pm.MvNormal("y", np.zeros(N), np.eye(N)).sum()),
        ValueError,
        r"tied together.*pm.MvNormal\(..., shape=\(n, d\)\)",
    ),
    "random walk": (
        lambda: released(pm.GaussianRandomWalk("y", init_dist=pm.Normal.dist(), steps=4).sum()),
        ValueError,
        "tied together",
    ),
    "child on the mean": (
        child_on_the_mean,
        ValueError,
        r"rows of y are not conditionally independent.*mean over\s+records",
    ),
    "record_sum of a scalar": (
        lambda: dp.record_sum(normal().sum()),
        ValueError,
        "`t` is a scalar: record_sum needs per-record contributions",
    ),
    "clamp upside down": (
        lambda: dp.clamp(normal(), 1, 0),
        ValueError,
        "`lo` and `hi` must be numbers with lo < hi everywhere; got lo=1.0, hi=0.0",
    ),
    "clamp to NaN": (lambda: dp.clamp(normal(), np.nan, 0), ValueError, "with lo < hi everywhere"),
    "records= by an unknown name": (
        lambda: total(scale=1, records=["people"]),
        ValueError,
        r"`records` of z names \('people',\), not all free variables",
    ),
    "records= by a number": (
        lambda: total(scale=1, records=[3]),
        TypeError,
        "records must list variables of the model",
    ),
    "unknown proposals": (
        with_step(lambda: dp.RecordImputation(proposals="smart")),
        ValueError,
        "`proposals` must be 'auto', 'independence' or 'informed', got 'smart'",
    ),
    "informed proposals of a sum": (
        with_step(lambda: dp.RecordImputation(proposals="informed")),
        ValueError,
        r"no informed move is known for the records y.*'auto' or 'independence'",
    ),
    "no sweeps": (
        with_step(lambda: dp.RecordImputation(n_sweeps=0)),
        ValueError,
        "`n_sweeps` must be a positive integer, got 0",
    ),
    "a fraction of a sweep": (
        with_step(lambda: dp.RecordImputation(n_sweeps=1.5)),
        ValueError,
        "`n_sweeps` must be a positive integer, got 1.5",
    ),
    "a step for what is no record": (
        with_step(lambda: dp.RecordImputation(vars=[pm.modelcontext(None)["mu"]])),
        ValueError,
        "mu in `vars` are no confidential records",
    ),
    "a step for some of the variables": (
        half_of_the_records,
        ValueError,
        "records x, y have to move together; `vars` leaves out y",
    ),
    "records without a release": (
        lambda: (no_release(), dp.RecordImputation()),
        ValueError,
        r"no confidential records: declare.*dp.LaplaceMechanism\('z'",
    ),
    "improper records": (
        improper_record,
        ValueError,
        "record variable y has an improper law.*give it a proper one",
    ),
    "ancillary update without a release": (
        lambda: (no_release(), dp.AncillaryUpdate()),
        ValueError,
        "no continuous parameter in the law of a confidential record",
    ),
    "ancillary update without parameters": (
        records_only,
        ValueError,
        "no continuous parameter in the law of a confidential record",
    ),
    "ancillary update without a noise form": (
        mixture_parameters,
        ValueError,
        "k has the law.*for which no quantile function",
    ),
    "unknown update": (
        with_step(lambda: dp.AncillaryUpdate(update="hmc")),
        ValueError,
        "'random_walk', 'slice', 'hamiltonian', 'by_group', 'redraw', 'off', got 'hmc'",
    ),
    "negative updates": (
        with_step(lambda: dp.AncillaryUpdate(n_centred=-1)),
        ValueError,
        "`n_centred` must be a whole number, got -1",
    ),
    "no cycles": (
        with_step(lambda: dp.AncillaryUpdate(n_cycles=0)),
        ValueError,
        "`n_cycles` must be a",
    ),
    "data of another shape than the step has": (
        longer_data,
        ValueError,
        r"D had shape \(4, 2\) when the step was made, and has shape \(6, 2\) now: make the step after",
    ),
    "guarantee of what is no release": (
        lambda: dp.guarantee(normal()),
        TypeError,
        "y is not a release",
    ),
}


def nothing_is_drawn(*args, **kwargs):
    raise AssertionError("sampling started")


@pytest.mark.parametrize(("declare", "error", "message"), CASES.values(), ids=CASES)
def test_refused_before_sampling(declare, error, message, monkeypatch):
    """The declaration, or the call of `pm.sample`, raises; not a single draw is made."""
    for step in (dp.RecordImputation, dp.AncillaryUpdate):
        monkeypatch.setattr(step, "step", nothing_is_drawn)
    with pm.Model(), pytest.raises(error, match=f"(?s){message}") as caught:
        declare()
        pm.sample(draws=1, tune=0, chains=1, cores=1, progressbar=False)
    assert len(str(caught.value)) < 700  # a sentence or two, not a page


def test_steps_outside_a_model():
    for step in (dp.RecordImputation, dp.AncillaryUpdate):
        with pytest.raises(TypeError, match="model"):
            step()
