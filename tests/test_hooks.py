"""Which step may get variables behind a mechanism, and what predictive sampling draws anew."""

from __future__ import annotations

import copy
import logging
import re
import warnings

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
import xarray as xr
from pymc.pytensorf import collect_default_updates
from pymc.sampling import forward, mcmc
from pymc.step_methods.compound import BlockedStep, CompoundStep, flatten_steps
from pytensor.compile.mode import Mode

import pymc_dp as dp
from pymc_dp import hooks
from pymc_dp.lowering.addresses.modes import CalledLinker
from pymc_dp.step_methods.behind import behind_mechanisms
from tests.steps import assigned

pytestmark = pytest.mark.compiles(1)

QUICK = {
    "draws": 5,
    "tune": 5,
    "chains": 1,
    "cores": 1,
    "random_seed": 1,
    "progressbar": False,
    "quiet": True,
}
QUICK["compute_convergence_checks"] = False


def normal(**noise):
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 2)
        y = pm.Normal("y", mu, 1, shape=6)
        dp.LaplaceMechanism("z", dp.record_sum(y), scale=2.0, **noise or {"observed": 3.0})
    return model


def bernoulli(declare):
    with pm.Model() as model:
        p = pm.Beta("p", 1, 1)
        declare(pm.Bernoulli("c", p, shape=6))
    return model


def noisy(c, size=None):
    return dp.LaplaceMechanism.dist(dp.record_sum(c), scale=2.0)


def scanned(c, size):
    def row(value):
        drawn = dp.LaplaceMechanism.dist(value, scale=2.0)
        return drawn, collect_default_updates([drawn])

    return pytensor.scan(row, sequences=[c])[0]


WRAPPED = {
    "Censored": lambda c: pm.Censored("z", noisy(c), lower=0, upper=6, observed=3.0),
    "CustomDist": lambda c: pm.CustomDist("z", c, dist=noisy, observed=3.0),
    "Truncated": lambda c: pm.Truncated("z", noisy(c), lower=-1, observed=3.0),
    "CustomDist of Censored": lambda c: pm.CustomDist(
        "z", c, dist=lambda c, size: pm.Censored.dist(noisy(c), lower=0, upper=6), observed=3.0
    ),
    "scan": lambda c: pm.CustomDist("z", c.astype("float64"), dist=scanned, observed=np.ones(6)),
}


@pytest.mark.filterwarnings("ignore:Scan return signature will change")
@pytest.mark.parametrize("declare", WRAPPED.values(), ids=WRAPPED)
def test_a_mechanism_inside_another_distribution(declare, caplog):
    """Its records went to BinaryGibbsMetropolis, in silence."""
    model = bernoulli(declare)
    said = r"z has a mechanism inside another distribution.* c would be moved by BinaryGibbsMetropolis"
    with pytest.raises(ValueError, match=said) as refusal:
        pm.sample(model=model, **QUICK)
    # both remedies
    assert "step=[pm.BinaryGibbsMetropolis([c])]" in str(refusal.value)
    with model, caplog.at_level(logging.INFO, logger="pymc"):
        named = assigned(model, step=[pm.BinaryGibbsMetropolis([model["c"]])])
    assert named == {"p": "NUTS", "c": "BinaryGibbsMetropolis"}
    assert "BinaryGibbsMetropolis moves c behind the mechanism z, as it was asked to" in caplog.text
    assert "declare the mechanism itself, with observed=" in str(refusal.value)
    censored = declare is WRAPPED["Censored"]
    assert ("observed=dp.postprocessed(values, clip=(lower, upper))" in str(refusal.value)) == censored
    own = bernoulli(lambda c: dp.LaplaceMechanism("z", dp.record_sum(c), scale=2.0, observed=3.0))
    assert assigned(own)["c"] == "AncillaryUpdate"


@pytest.mark.parametrize("value", [0.0, 3.0, 6.0])
def test_the_remedy_for_a_censored_mechanism_means_the_same(value, python_mode):
    """Also at an end, where PyMC's density is that of a tail."""
    said = dp.postprocessed(value, clip=(0, 6))
    inside = bernoulli(lambda c: pm.Censored("z", noisy(c), lower=0, upper=6, observed=value))
    own = bernoulli(lambda c: dp.LaplaceMechanism("z", dp.record_sum(c), scale=2.0, observed=said))
    point = {"c": np.array([0, 1, 1, 0, 1, 0]), "p_logodds__": 0.0}
    found, expected = (m.compile_logp(vars=[m["z"]])(point) for m in (own, inside))
    assert abs(found - expected) < 1e-7  # PyMC's tail has a logarithm of single precision


def test_a_mechanism_without_a_value():
    """Forgotten, `observed` left a chain on the prior, in silence."""
    model = normal(shape=())
    with pytest.raises(
        ValueError, match=r"z is a mechanism without an observed value.* y, z would be moved by NUTS"
    ):
        pm.sample(model=model, **QUICK)
    assert pm.sample_prior_predictive(3, model=model, random_seed=1).prior["z"].size == 3
    with model:
        named = assigned(model, step=[pm.NUTS([model["y"], model["z"]])])
    assert set(named.values()) == {"NUTS"}


def test_records_that_a_mechanism_inside_cannot_be_told_from_parameters():
    """All variables with a record axis count, and parents of the same length; numbers do not."""
    with pm.Model() as model:
        tau = pm.HalfNormal("tau")
        x = pm.Normal("x", 0, tau, shape=6)
        y = pm.Normal("y", x, 1)
        weight = pm.Normal("weight")
        inner = dp.LaplaceMechanism.dist(weight * dp.record_sum(y), scale=2.0)
        z = pm.Censored("z", inner, lower=0, upper=6, observed=3.0)
        pm.Normal("after", z, 1)  # its parameter is a model variable, which has its own place
    assert behind_mechanisms(model) == {x: z, y: z}


BARE = {
    "NUTS": lambda model: pm.NUTS(),
    "Metropolis": lambda model: [pm.Metropolis()],
    "Slice": lambda model: [pm.Slice()],
    "HamiltonianMC": lambda model: CompoundStep([pm.HamiltonianMC()]),
    "DEMetropolisZ": lambda model: [pm.DEMetropolisZ()],
}


@pytest.mark.parametrize("name", BARE)
def test_a_step_for_all_variables_is_refused(name, caplog):
    model = normal()
    with model, pytest.raises(ValueError, match="would also move y behind the mechanism z") as refusal:
        pm.sample(step=BARE[name](model), **QUICK)
    # the remedies: as said, for the parameters alone, and for the records by name
    alone, together = re.findall(name + r"\(\[(.*?)\]\)", str(refusal.value))
    assert (alone, together) == ("mu", "mu, y")
    kind = getattr(pm, name)
    with model, caplog.at_level(logging.INFO, logger="pymc"):
        assert assigned(model, step=[kind([model["mu"]])]) == {"mu": name, "y": "RecordImputation"}
        assert not caplog.text
        assert assigned(model, step=kind([model["mu"], model["y"]])) == {"mu": name, "y": name}
    assert f"{name} moves y behind the mechanism z, as it was asked to" in caplog.text


BY_VALUE = {
    "all": lambda model: pm.NUTS(vars=model.value_vars),
    "one": lambda model: pm.NUTS([model.rvs_to_values[model["y"]]]),
    "one by one": lambda model: pm.Metropolis(vars=model.value_vars),
    "inside": lambda model: CompoundStep([pm.Slice(model.value_vars)]),
}


@pytest.mark.parametrize("name", BY_VALUE)
def test_value_variables_are_names_too(name):
    """An unnamed step is made with the same ones, so that the two look alike afterwards."""
    model = normal()
    with model:
        assert assigned(model, step=[BY_VALUE[name](model)])["y"] in ("NUTS", "Metropolis", "Slice")


def test_no_name_at_all_stays_none():
    model = normal()
    for step in (pm.NUTS(vars=None, model=model), copy.copy(pm.Metropolis(model=model))):
        with pytest.raises(ValueError, match="would also move y"):
            assigned(model, step=[step])


def test_records_of_no_known_structure():
    """No step of ours takes a random walk; a step for all variables would have taken it in silence."""
    with pm.Model() as model:
        y = pm.GaussianRandomWalk("y", mu=pm.Normal("mu"), init_dist=pm.Normal.dist(), shape=(2, 6))
        dp.LaplaceMechanism("z", dp.record_sum(y[0].cumsum() * y.sum()), scale=2.0, observed=3.0)
        with pytest.raises(ValueError, match="would also move y behind the mechanism z"):
            assigned(model, step=pm.NUTS())
        assert assigned(model, step=pm.NUTS([model["mu"], y])) == {"mu": "NUTS", "y": "NUTS"}


def test_what_stays_possible():
    """Whatever is no choice of steps for records."""
    with pm.Model() as plain:
        pm.Normal("x", pm.Normal("mu"), 1, shape=3)
        assert assigned(plain, step=pm.NUTS()) == {"mu": "NUTS", "x": "NUTS"}
        assert assigned(plain, step=[pm.Metropolis()]) == {"mu": "Metropolis", "x": "Metropolis"}
    with pm.Model() as local:
        y = pm.Normal("y", pm.Normal("mu"), 1, shape=3)
        dp.GaussianMechanism("z", y, sigma=1.0, observed=np.zeros(3))
    with dp.marginalize(local, "y") as marginal:
        assert assigned(marginal, step=pm.NUTS()) == {"mu": "NUTS"}
    model = normal()
    assert np.isfinite(model.compile_logp()(model.initial_point()))
    assert np.isfinite(model.compile_dlogp()(model.initial_point())).all()
    assert pm.sample_prior_predictive(2, model=model, random_seed=1).prior["y"].shape == (1, 2, 6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of what find_MAP will return one day
        assert "y" in pm.find_MAP(model=model, progressbar=False)


def test_models_without_a_mechanism_are_left_alone():
    """Of whatever kind their variables are."""
    with pm.Model() as model:
        mu, sigma = pm.Normal("mu"), pm.HalfNormal("sigma")
        pm.Normal("partly", mu, sigma, observed=np.ma.masked_array([1.0, 2.0, 3.0], [False, True, False]))
        pm.MvNormal(
            "rows", np.zeros(2), np.eye(2), observed=np.ma.masked_array(np.ones((3, 2)), np.eye(3, 2))
        )
        pm.Simulator("simulated", lambda rng, mu, size: rng.normal(mu, size=size), mu, observed=np.ones(3))
        pm.CustomDist("custom", mu, logp=lambda value, mu: -((value - mu) ** 2), observed=np.ones(3))
        pm.Censored("censored", pm.Normal.dist(mu, sigma), lower=0, upper=None, observed=np.ones(3))
        pm.GaussianRandomWalk("walk", mu=mu, init_dist=pm.Normal.dist(), shape=4)
        pm.NormalMixture("mixture", np.ones(2) / 2, [mu, 1.0], sigma, observed=np.ones(3))
        pm.Potential("pull", -(mu**2))
        assert behind_mechanisms(model) == {}
        assert set(assigned(model, step=[pm.Metropolis()]).values()) == {"Metropolis"}


def clusters(confidential=False):
    with pm.Model() as model:
        alpha = pm.Gamma("alpha", 2, 2)
        labels = dp.ChineseRestaurantProcess("labels", concentration=alpha, shape=6, max_components=6)
        mu = pm.Normal("mu", 0, 3, shape=6)
        velocities = np.array([-8.0, -4.0, -3.9, 3.0, 3.1, 9.0])
        if confidential:
            y = pm.Normal("y", mu[labels], 0.5)
            dp.LaplaceMechanism("z", y, scale=1.0, observed=velocities)
        else:
            pm.Normal("y", mu[labels], 0.5, observed=velocities)
    return model


# Those of PyMC's steps that take discrete variables too where none are named, in the forms that users give.
DISCRETE = {
    "alone": ("Metropolis", lambda: pm.Metropolis()),
    "in a list": ("Metropolis", lambda: [pm.Metropolis()]),
    "in a compound": ("Slice", lambda: CompoundStep([pm.Slice()])),
    "beside a step that knows them": ("Metropolis", lambda: [dp.Neal8(), pm.Metropolis()]),
}


@pytest.mark.parametrize("form", DISCRETE)
def test_labels_of_known_records_are_refused_to_steps_for_all_variables(form):
    """The number of clusters stood still at its start, in silence, whatever the data were."""
    name, step = DISCRETE[form]
    model = clusters()
    said = f"{name} was made without the names of its variables, so it would also move labels of a random"
    with model, pytest.raises(ValueError, match=said) as refusal:
        pm.sample(step=step(), **QUICK)
    # the remedies: the step left out, for the parameters alone, and beside a step of this package
    assert f"Leave {name} out" in str(refusal.value)
    remedies = re.findall(
        r"make it for parameters alone, (.*\]\)), or .* step=(\[.*\])\.", str(refusal.value)
    )
    alone, beside = remedies[0]
    names = {"pm": pm, "dp": dp, **{rv.name: rv for rv in model.free_RVs}}
    with model:
        default = {"alpha": "NUTS", "labels": "SplitMerge", "mu": "AtomUpdate"}
        assert assigned(model) == default
        others = {"alpha": name, "mu": name}
        assert assigned(model, step=eval(f"pm.{alone}", names)) == {**others, "labels": "SplitMerge"}
        steps = eval(beside, names)
        assert assigned(model, step=steps) == {**others, "labels": "Neal8"}
        idata = pm.sample(step=steps, **{**QUICK, "draws": 200, "tune": 200})
    # there are six records a long way from each other, but for two pairs
    assert idata.sample_stats["n_clusters"].values.mean() > 3.5


@pytest.mark.parametrize("kind", [pm.Metropolis, pm.Slice, pm.NUTS])
def test_atoms_are_anyones(kind, caplog):
    model = clusters()
    with model, caplog.at_level(logging.INFO, logger="pymc.dp"):
        taken = assigned(model, step=[kind([model["mu"]])])
        assert taken == {"alpha": "NUTS", "labels": "SplitMerge", "mu": kind.__name__}
        for own in (dp.SplitMerge, dp.Neal2, dp.Neal3, dp.Neal8):
            by_name = kind([model["alpha"], model["mu"]])
            taken = assigned(model, step=CompoundStep([own([model["labels"]]), by_name]))
            assert taken == {"alpha": kind.__name__, "labels": own.__name__, "mu": kind.__name__}
    assert "asked to" not in caplog.text


def test_labels_are_given_by_name(caplog):
    """With a warning, since draws that stand still look like draws."""
    model = clusters()
    with model, caplog.at_level(logging.INFO, logger="pymc.dp"):
        assert assigned(model, step=pm.Metropolis([model["labels"]]))["labels"] == "Metropolis"
        (record,) = caplog.records
        assert record.levelno == logging.WARNING
        assert "Metropolis moves labels of a random partition, as it was asked to." in record.getMessage()
        assert "dp.SplitMerge and dp.Neal8 know them" in record.getMessage()


def test_labels_of_confidential_records_are_behind_the_mechanism():
    """The remedy that was named gave labels away, and the next call was refused."""
    model = clusters(confidential=True)
    said = "also move labels, y behind the mechanism z"
    with model, pytest.raises(ValueError, match=said) as refusal:
        pm.sample(step=pm.Metropolis(), **QUICK)
    alone = re.search(r"Metropolis\(\[(.*?)\]\)", str(refusal.value))[1]
    assert alone == "alpha, mu" and "random partition" not in str(refusal.value)
    with model:
        step = pm.Metropolis([model[name] for name in alone.split(", ")])
        taken = {"alpha": "Metropolis", "labels": "PrivateNeal5", "mu": "Metropolis", "y": "PrivateNeal5"}
        assert assigned(model, step=step) == taken
        pm.sample(step=step, **QUICK)


def test_labels_that_our_steps_refuse_are_named_too():
    """Two laws by one partition: only steps of others can move it, and only if they are asked to."""
    with pm.Model() as model:
        labels = dp.ChineseRestaurantProcess("c", concentration=1, shape=4, max_components=4)
        mu = pm.Normal("mu", shape=4)
        for name in "xy":
            pm.Normal(name, mu[labels], 1, observed=np.zeros(4))
        with pytest.raises(ValueError, match="would also move c of a random partition"):
            assigned(model, step=pm.Metropolis())
        assert assigned(model, step=pm.Metropolis([labels, mu])) == {"c": "Metropolis", "mu": "Metropolis"}


def test_pymcs_functions_are_wrapped_once():
    """By the names that `pm.sample` and `pm.sample_posterior_predictive` look up."""

    def wrapped():
        new = BlockedStep.__new__
        return mcmc.assign_step_methods, forward.compile_forward_sampling_function, new

    before = wrapped()
    hooks.install()
    assert wrapped() == before
    assert not hasattr(mcmc.assign_step_methods.__wrapped__, "__wrapped__")
    assert "assign_step_methods" in pm.sample.__code__.co_names
    assert "compile_forward_sampling_function" in pm.sample_posterior_predictive.__code__.co_names


# -- how densities are compiled -------------------------------------------------------------------


def ordinary():
    with pm.Model() as model:
        pm.Normal("x", pm.Normal("mu"), 1, observed=[0.5, 1.0])
    return model


@pytest.mark.parametrize(
    ("build", "step", "given", "ours"),
    [
        (lambda: dp.marginalize(normal(), "y"), None, {}, True),
        (lambda: dp.marginalize(normal(), "y"), None, {"compile_kwargs": {"mode": "NUMBA"}}, False),
        (normal, dp.RecordImputation, {}, False),
        (ordinary, None, {}, False),
    ],
    ids=["nuts alone", "a mode that was given", "nuts beside records", "no release"],
)
def test_nuts_is_compiled_in_a_mode_of_ours(build, step, given, ours, monkeypatch):
    """Alone, for models with a release, where the user asks for no other: all else is as without us.

    Beside other steps it is made with them, by a function whose flags would change their code.
    """
    made, init_traces = [], mcmc.init_traces
    monkeypatch.setattr(mcmc, "init_traces", lambda **k: (made.append(k["step"]), init_traces(**k))[1])
    with build() as model:
        # PyMC leaves models without other steps to nutpie where that is installed
        pm.sample(**QUICK, step=step and [step(model=model)], nuts_sampler="pymc", **given)
    nuts = next(s for s in flatten_steps(made[0]) if isinstance(s, pm.NUTS))
    linker = nuts._logp_dlogp_func._pytensor_function.maker.linker
    assert isinstance(linker, CalledLinker) == ours
    assert not isinstance(pytensor.config.mode, Mode) and pytensor.config.numba__fastmath  # as they were


# -- where labels start ---------------------------------------------------------------------------


@pytest.mark.parametrize("first", [7, -1, 1.5])
def test_starting_labels_are_slots(first):
    """PyMC looks atoms up by them before any step sees them."""
    start = np.array([0, 1, 2, first])
    with pm.Model():
        labels = dp.ChineseRestaurantProcess("labels", concentration=1, shape=4, max_components=5)
        y = pm.Normal("y", pm.Normal("mu", shape=5)[labels], 1)
        dp.LaplaceMechanism("z", y, scale=1, observed=np.zeros(4))
        message = rf"of the labels must be slots.* 0 to 4 .*got {first} at index 3"
        for given in ({"labels": start}, [{labels: start}, None]):
            with pytest.raises(ValueError, match=message):
                pm.sample(draws=1, tune=0, chains=2, initvals=given, progressbar=False)
        with pytest.raises(ValueError, match="labels others must be slots"):
            dp.ChineseRestaurantProcess("others", concentration=1, shape=4, max_components=5, initval=start)


# -- records given a step, parameters left to PyMC ------------------------------------------------


def table(c):
    return dp.LaplaceMechanism(
        "z", dp.record_sum(pm.math.eq(c[:, None], np.arange(3))), scale=2.0, observed=np.full(3, 2.0)
    )


def categories(declare):
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.ones((20, 3)))
        declare(pm.Categorical("c", p[np.arange(6)], shape=6))
    return model


PARAMETERS = {
    "AncillaryUpdate": ("mu", normal),
    "CollapsedUpdate": (
        "p",
        lambda: bernoulli(lambda c: dp.RandomizedResponse("z", c, epsilon=1, observed=[0, 1, 1, 0, 1, 1])),
    ),
    "ConjugateUpdate": ("p", lambda: categories(table)),
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_are_pymcs_where_records_were_given_a_step(name, caplog):
    """Only listing every parameter kept NUTS for them."""
    parameter, build = PARAMETERS[name]
    with build() as model, caplog.at_level(logging.INFO, logger="pymc"):
        assert assigned(model)[parameter] == name
        assert not caplog.text
        assert assigned(model, step=[dp.RecordImputation()])[parameter] == "NUTS"
        assert f"so {parameter} is left to NUTS" in caplog.text
        assert f"Expect slow mixing where privacy is strong; dp.{name}() beside it" in caplog.text
        caplog.clear()
        both = [dp.RecordImputation(), getattr(dp, name)()]
        assert assigned(model, step=both)[parameter] == name
        assert not caplog.text


@pytest.mark.parametrize("options", [{"target_accept": 0.9}, {"nuts": {"max_treedepth": 8}}], ids=str)
def test_options_of_nuts_where_nothing_is_left_to_it(options):
    """PyMC's own error would name a step that nobody asked for."""
    (name,) = options if "nuts" not in options else options["nuts"]
    with normal():
        said = rf"AncillaryUpdate moves mu .* Leave out {name}, or give step=\[dp"
        with pytest.raises(ValueError, match=said) as e:
            pm.sample(**QUICK, **options)
        remedy = re.search(r"step=\[(.*?)\]", str(e.value))[1]
        pm.sample(**QUICK, **options, step=[eval(remedy)])
        pm.sample(**QUICK)


def test_options_of_nuts_beside_a_table():
    """Where the parameters are integrated out, no remedy is offered that would not be one."""
    with pm.Model():
        c = pm.Multinomial("c", 9, pm.Dirichlet("p", np.ones(3)))
        dp.LaplaceMechanism("z", c, scale=2.0, observed=[3.0, 4.0, 1.0])
        with pytest.raises(ValueError, match=r"TableImputation moves .* Leave out target_accept\.$"):
            pm.sample(**QUICK, target_accept=0.9)


def test_a_parameter_that_no_given_step_names_is_pymcs():
    with pm.Model() as model:
        mu, sigma = pm.Normal("mu"), pm.HalfNormal("sigma")
        y = pm.Normal("y", mu, sigma, shape=6)
        dp.LaplaceMechanism("z", dp.record_sum(y), scale=2.0, observed=3.0)
        steps = [dp.RecordImputation(), dp.AncillaryUpdate([mu])]
        assert assigned(model, step=steps) == {
            "mu": "AncillaryUpdate", "sigma": "NUTS", "y": "RecordImputation",
        }  # fmt: skip


# -- what predictive sampling draws anew ----------------------------------------------------------


def predicted(idata, model, **how):
    """Predictive draws of the release, and what was warned of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        found = pm.sample_posterior_predictive(idata, model=model, random_seed=2, progressbar=False, **how)
    ours = [w for w in caught if "no draws of the records" in str(w.message)]
    assert all(w.filename == __file__ for w in ours)
    return found.posterior_predictive["z"].values, [str(w.message) for w in ours]


@pytest.fixture(scope="module")
def many():
    """A release of 200 records with little noise, and draws of the parameter alone."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 3)
        y = pm.Normal("y", mu, 3.0, shape=200)
        dp.GaussianMechanism("z", dp.record_sum(y), sigma=14.0, observed=300.0)
    how = {"draws": 1000, "tune": 500, "chains": 2, "cores": 1, "random_seed": 1, "progressbar": False}
    return model, pm.sample(model=model, var_names=["mu"], **how), pm.sample(model=model, **how)


def test_records_that_were_not_stored(many):
    """The release came out as that of other people, in silence: sd 63 for 19."""
    model, few, whole = many
    other_people, said = predicted(few, model)
    (message,) = said
    assert "trace has no draws of the records y" in message and "as if z had not been observed" in message
    sd = np.sqrt(2) * 14  # of the noise that was published and of that of the prediction, nearly
    assert other_people.std() > 2.5 * sd
    # the remedies: records stored, records recovered, other people meant
    stored, said = predicted(whole, model)
    assert abs(stored.std() / sd - 1) < 0.1 and not said
    assert "dp.recover_records(idata, model)" in message
    records = dp.recover_records(few, model, random_seed=1)
    joined = xr.DataTree.from_dict({"posterior": few.posterior.dataset.merge(records)})
    recovered, said = predicted(joined, model)
    assert abs(recovered.std() / sd - 1) < 0.1 and not said
    assert "say so: sample_vars=['y']" in message
    meant, said = predicted(few, model, sample_vars=["y"], var_names=["z"])
    np.testing.assert_array_equal(meant, other_people)
    assert not said


def test_no_remedy_that_does_not_work():
    """Clamped records of a central release cannot be recovered, and the words do not say so."""
    model = normal(bounds=(-2, 2), observed=3.0)
    few = pm.sample(model=model, var_names=["mu"], **QUICK)
    (message,) = predicted(few, model)[1]
    assert "recover_records" not in message
    with pytest.raises(ValueError):
        dp.recover_records(few, model)


def test_predictions_that_need_no_records(many):
    """Nothing is said where the records are not asked for, or of the prior."""
    model, few, _ = many
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pm.sample_posterior_predictive(few, model=model, var_names=["mu"], progressbar=False)
        pm.sample_prior_predictive(2, model=model, random_seed=1)
    with pm.Model() as latent:  # the parent of the records is not stored either, but is not needed
        x = pm.Normal("x", pm.Normal("mu"), 1, shape=6)
        y = pm.Normal("y", x, 1)
        dp.LaplaceMechanism("z", dp.record_sum(y), scale=2.0, observed=3.0)
    idata = pm.sample(model=latent, var_names=["mu", "y"], **QUICK)
    assert not predicted(idata, latent)[1]


@pytest.mark.parametrize("law", ["bernoulli", "poisson"])
def test_models_without_their_records_go_to_nuts(law):
    """The law of a release with its records summed out holds the mechanism, but hides no record."""
    with pm.Model() as model:
        if law == "bernoulli":
            s = pm.Bernoulli("s", pm.Beta("p", 1, 1), shape=4)
            dp.RandomizedResponse("z", s, epsilon=2, observed=[0, 1, 1, 0])
        else:
            s = pm.Poisson("s", pm.Gamma("p", 2, 1), shape=4)
            dp.DiscreteLaplaceMechanism("z", s, scale=1.0, observed=[0, 1, 1, 0])
    with dp.marginalize(model, "s"):
        idata = pm.sample(20, tune=20, chains=1, cores=1, progressbar=False, compute_convergence_checks=False)
    assert idata.posterior["p"].shape == (1, 20)


# -- parameters that a query compares -------------------------------------------------------------

THRESHOLDS = {
    "compared": lambda y, t, s: dp.record_sum(pt.stack([y > t, y > t + 1], axis=1)),
    "rounded": lambda y, t, s: dp.record_sum(pt.floor(y - t)),
    "an index": lambda y, t, s: dp.record_sum(
        y * pt.as_tensor([1.0, 2.0])[pt.cast(pm.math.sigmoid(t) > 0.5, int)]
    ),
    "both": lambda y, t, s: dp.record_sum(pt.switch(y > t, y - t, 0.0)),
}
SMOOTH = {
    "added": lambda y, t, s: dp.record_sum(y + t),
    "an end": lambda y, t, s: dp.record_sum(dp.clamp(y, -s, s)),
    "only the records": lambda y, t, s: dp.record_sum((y > 0) * t),
    "a length": lambda y, t, s: y.mean() * (t[None].shape[0] + s),
}


def with_query(query):
    with pm.Model() as model:
        t, s = pm.Normal("t"), pm.HalfNormal("s")
        q = query(pm.Normal("y", pm.Normal("mu"), 1, shape=4), t, s)
        dp.LaplaceMechanism("z", q, scale=1.0, observed=np.ones(q.type.shape))
    return model


@pytest.mark.parametrize("name", THRESHOLDS)
def test_thresholds_are_named(name, caplog):
    model = with_query(THRESHOLDS[name])
    with model, caplog.at_level(logging.INFO, logger="pymc"):
        assert assigned(model)["t"] == "NUTS"
        assert "t is compared or rounded in the query of z" in caplog.text
        assert "step=[pm.Slice([t])]" in caplog.text
        caplog.clear()
        taken = assigned(model, step=[pm.Slice([model["t"]])])
        assert taken["t"] == "Slice" and taken["y"] == "AncillaryUpdate" and taken["mu"] == "AncillaryUpdate"
        assert not caplog.text


@pytest.mark.parametrize("name", SMOOTH)
def test_other_parameters_are_no_thresholds(name, caplog):
    model = with_query(SMOOTH[name])
    with model, caplog.at_level(logging.INFO, logger="pymc"):
        assigned(model)
    assert "compared" not in caplog.text
