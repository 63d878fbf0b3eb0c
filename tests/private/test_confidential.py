"""Declaring confidential rows: what is refused, who may sample, and that no row is found anywhere."""

import copy
import logging
import pickle
import sys

import arviz as az
import cloudpickle
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.model_graph import ModelGraph
from pymc.sampling.mcmc import assign_step_methods
from pymc.step_methods import CompoundStep
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import ancestors

import pymc_dp as dp
from pymc_dp.private.rows import ConfidentialRows
from tests.private import models

CANARY = 98765.4321
ROWS = np.append(models.normal_rows(40), CANARY)


def declared(dist, data=ROWS, **kwargs):
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 2)
        vector = pm.Normal("vector", 0, 2, shape=3)
        dp.ConfidentialLikelihood("x", dist(mu, vector), data, **{"clip": 3.0, **kwargs})
    return model


def normal(mu, vector):
    return pm.Normal.dist(mu, 1)


MISSING = np.append(ROWS, np.nan)
REFUSED = {
    "missing": (normal, {"data": MISSING}, ValueError, r"data has missing values .*Leave those rows out"),
    "missing covariate": (
        lambda mu, v: lambda z: pm.Normal.dist(mu * z, 1),
        {"covariates": {"z": np.append(ROWS[1:], np.nan)}}, ValueError,
        r"covariates\['z'\] has missing values",
    ),
    "masked in a list": (
        normal, {"data": [np.ma.masked_equal([1.0, 2.0], 2)] * 2}, ValueError, "whose masks NumPy drops",
    ),
    "text": (normal, {"data": ["a", "b"]}, TypeError, "data must be an array of numbers"),
    "ragged": (normal, {"data": [[CANARY], [1.0, 2.0]]}, TypeError, "data must be an array of numbers"),
    "empty": (normal, {"data": []}, ValueError, "data is empty"),
    "cube": (normal, {"data": np.zeros((2, 2, 2))}, ValueError, "one row for each person"),
    "in a graph": (normal, {"data": pt.as_tensor(ROWS)}, TypeError, "written to disk"),
    "clip": (normal, {"clip": 0.0}, ValueError, "clip must be a finite number > 0"),
    "negative clip": (normal, {"clip": -1}, ValueError, "clip must be a finite number > 0"),
    "random clip": (normal, {"clip": "1"}, TypeError, "clip must be one real number"),
    "gradient": (normal, {"clip_gradient": 0}, ValueError, "clip_gradient must be"),
    "temper": (normal, {"temper": 0}, ValueError, "temper must be"),
    "lengths": (
        lambda mu, v: lambda z: pm.Normal.dist(mu * z, 1),
        {"covariates": {"z": ROWS[1:]}}, ValueError, r"covariates\['z'\] has 40 rows, data has 41",
    ),
    "no function": (normal, {"covariates": {"z": ROWS}}, TypeError, "must be a function of the covariates"),
    "other names": (
        lambda mu, v: lambda w: pm.Normal.dist(mu * w, 1),
        {"covariates": {"z": ROWS}}, TypeError, r"called with the covariates by name, \['z'\]",
    ),
    "no law": (lambda mu, v: mu + 1, {}, TypeError, "must be a distribution"),
    "a variable": (lambda mu, v: mu, {}, TypeError, "is the variable mu of a model"),
    "no parameter": (lambda mu, v: pm.Normal.dist(0, 1), {}, ValueError, "no free variable of the model"),
    "not in the model": (
        lambda mu, v: pm.Normal.dist(mu + pm.Normal.dist(), 1), {}, ValueError, "not in the model",
    ),
    "shape": (lambda mu, v: pm.Normal.dist(v, 1), {}, ValueError, r"has shape \(3,\), and data of shape"),
    "a process": (
        lambda mu, v: pm.MvNormal.dist(mu * np.ones(41), np.eye(41)), {}, ValueError,
        "Rows must be independent",
    ),
    "not independent": (
        lambda mu, v: lambda z: pm.Normal.dist(mu * z.mean() + z, 1),
        {"covariates": {"z": ROWS}}, ValueError, "not independent given the parameters",
    ),
    "neighbours": (
        lambda mu, v: lambda z: pm.Normal.dist(mu * pt.concatenate([z[1:], z[:1]]), 1),
        {"covariates": {"z": ROWS}}, ValueError, "not independent given the parameters",
    ),
    "rows in the graph": (
        lambda mu, v: lambda z: pm.Normal.dist(mu * z + pt.as_tensor(ROWS), 1),
        {"covariates": {"z": ROWS}}, ValueError, r"Pass what is known of each row in covariates",
    ),
    "a covariate behind a density's back": (
        lambda mu, v: lambda z: pm.CustomDist.dist(mu, logp=lambda x, m: -((x - m * z) ** 2)),
        {"covariates": {"z": ROWS}}, ValueError, "a function that reads z from around it",
    ),
    "a covariate behind a law's back": (
        lambda mu, v: lambda z: pm.CustomDist.dist(mu, dist=lambda m, size: pm.Normal.dist(m * z, 1)),
        {"covariates": {"z": ROWS}}, ValueError, "a function that reads z from around it",
    ),
    "a parameter behind a density's back": (
        lambda mu, v: pm.CustomDist.dist(mu, logp=lambda x, m: -((x - m * v[0]) ** 2)),
        {}, ValueError, "a function that reads vector from around it",
    ),
    "a parameter behind a law's back": (
        lambda mu, v: pm.CustomDist.dist(mu, dist=lambda m, size: pm.Normal.dist(m * v[0], 1, size=size)),
        {}, ValueError, "a function that reads a random variable from around it",
    ),
    "covariance": (
        lambda mu, v: pm.MvNormal.dist(v, -np.eye(3)), {"data": ROWS[:39].reshape(13, 3)}, ValueError,
        "not positive definite",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused_where_it_is_declared(case):
    """With a message that names the argument, and no row."""
    dist, kwargs, error, message = REFUSED[case]
    with pytest.raises(error, match=message) as caught:
        declared(dist, **kwargs)
    assert "98765" not in str(caught.value)


def test_whole_numbers_are_no_parameters():
    with pytest.raises(ValueError, match="takes whole numbers only"), pm.Model():
        k = pm.Poisson("k", 3)
        dp.ConfidentialLikelihood("x", pm.Normal.dist(k, 1), ROWS, clip=1)


def test_no_model():
    with pytest.raises(TypeError, match="with model"):
        dp.ConfidentialLikelihood("x", pm.Normal.dist(0, 1), ROWS, clip=1)


# -- steps --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model():
    """A confidential likelihood, with a hyperparameter that is public."""
    with pm.Model() as model:
        spread = pm.HalfNormal("spread", 2)
        mu = pm.Normal("mu", 0, spread)
        dp.ConfidentialLikelihood("x", pm.Normal.dist(mu, 1), ROWS, clip=3)
    return model


def ledger(**kwargs):
    return dp.PrivacyLedger(**{"epsilon": 2.0, "delta": 1e-6, **kwargs})


PLAN = {"draws": 20, "tune": 10, "chains": 2}
WRONG = {
    "no noise": ({}, ValueError, "give either ledger= with the plan"),
    "two ways": ({"noise_multiplier": 1.0, "ledger": "here", **PLAN}, ValueError, "not both"),
    "no plan": ({"ledger": "here"}, ValueError, "draws must be a whole number >= 1, got None"),
    "no chains": ({"ledger": "here", "draws": 5, "tune": 0}, ValueError, "chains must be a whole number"),
    "tune": ({"ledger": "here", **PLAN, "tune": -1}, ValueError, "tune must be a whole number >= 0"),
    "plan alone": ({"noise_multiplier": 1.0, "draws": 3}, ValueError, "draws: a plan belongs to a ledger"),
    "a path": ({"ledger": "study.db", **PLAN}, TypeError, "must be a dp.PrivacyLedger"),
    "noise": ({"noise_multiplier": -1.0}, ValueError, "noise_multiplier must be"),
    "little noise": ({"noise_multiplier": 1e-9}, ValueError, "noise_multiplier = 1e-09 is out of range"),
    "updates": ({"noise_multiplier": 1.0, "updates": "all"}, ValueError, "updates='all' is none of joint"),
    "scale": ({"noise_multiplier": 1.0, "scale": 0}, ValueError, "scale must be one or more"),
    "scales": ({"noise_multiplier": 1.0, "scale": [1, 2]}, ValueError, r"scale has shape \(2,\)"),
    "matrix": (
        {"noise_multiplier": 1.0, "scale": [[1.0]], "updates": "guided"}, ValueError, 'needs updates="joint"',
    ),
    "public": ({"noise_multiplier": 1.0, "vars": "spread"}, ValueError, "'spread' is no parameter of a conf"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_wrong_steps_spend_nothing(case, model):
    kwargs, error, message = WRONG[case]
    book = ledger()
    kwargs = {k: book if v == "here" else model["spread"] if v == "spread" else v for k, v in kwargs.items()}
    with pytest.raises(error, match=message):
        dp.PenaltyMetropolis(model=model, **kwargs)
    assert book.entries() == ()


def test_a_plan_that_does_not_fit_spends_nothing(model):
    book = ledger()
    dp.PenaltyMetropolis(model=model, ledger=book, **PLAN)
    (entry,) = book.entries()
    assert (entry.likelihood, entry.step, entry.chains) == ("x", "PenaltyMetropolis", 2)
    assert abs(book.epsilon_spent - 2.0) < 1e-3  # the noise followed from the budget
    assert book.spent[0].releases == 2 * 30
    with pytest.raises(ValueError):
        dp.PenaltyMetropolis(model=model, ledger=book, **PLAN)
    assert len(book.entries()) == 1


def test_more_than_was_planned_claims_nothing(model):
    book = ledger()
    step = dp.PenaltyMetropolis(model=model, ledger=book, **PLAN)
    point = model.initial_point()
    with pytest.raises(
        dp.BudgetExceededError, match=r"asks for 11 \+ 20 draws of each chain, and 30 are planned"
    ):
        step.setup_chain(1, 11, 20)
    quiet = {
        "model": model,
        "progressbar": False,
        "cores": 1,
        "random_seed": 1,
        "compute_convergence_checks": False,
    }
    with pytest.raises(dp.BudgetExceededError, match="asks for 3 chains, and 2 are planned"):
        pm.sample(5, tune=5, chains=3, step=[step, pm.NUTS([model["spread"]], model=model)], **quiet)
    other = dp.PenaltyMetropolis(model=model, noise_multiplier=1.0)
    with pytest.raises(ValueError, match="mu: sampled by two steps"):
        pm.sample(5, tune=5, chains=1, step=[step, other], **quiet)
    for twice in ([step, step], [CompoundStep([step]), step], [CompoundStep([step, step])]):
        with pytest.raises(ValueError, match="mu: sampled by two steps"):
            pm.sample(5, tune=5, chains=1, step=twice, **quiet)
    assert book.entries()[0].claimed == 0
    alone = CompoundStep([step, pm.NUTS([model["spread"]], model=model)])
    pm.sample(5, tune=5, chains=1, step=[alone], **quiet)  # a compound within PyMC's own is no second step
    step.setup_chain(1, 10, 20)
    step.step(point)
    assert book.entries()[0].claimed == 2
    with pytest.raises(dp.BudgetExceededError, match="All 2 chains that entry 1 of the ledger paid for"):
        step.setup_chain(1, 10, 20)


def test_a_parameter_of_two_tables():
    with pm.Model() as both:
        mu, nu = pm.Normal("mu"), pm.Normal("nu")
        dp.ConfidentialLikelihood("x", pm.Normal.dist(mu, 1), ROWS, clip=3)
        dp.ConfidentialLikelihood("y", pm.Normal.dist(mu + nu, 1), ROWS, clip=3)
        with pytest.raises(ValueError, match="likelihoods x, y; name the parameters of one"):
            dp.PenaltyMetropolis(noise_multiplier=1.0)
        with pytest.raises(ValueError, match="'mu' is a parameter of x, y"):
            dp.PenaltyMetropolis([mu], noise_multiplier=1.0)
    with pm.Model(), pytest.raises(ValueError, match="has no confidential likelihood"):
        pm.Normal("mu")
        dp.PenaltyMetropolis(noise_multiplier=1.0)
    assert both.free_RVs == [mu, nu]


def test_other_samplers_are_refused(model):
    """They would see the prior. What they are given is refused when they are built, before any draw."""
    mu, message = model["mu"], "mu: the rows behind 'x' are confidential"
    for build in (pm.NUTS, pm.HamiltonianMC, pm.Metropolis, pm.Slice, pm.DEMetropolisZ):
        with pytest.raises(NotImplementedError, match=message), model:
            build([mu])
    with pytest.raises(NotImplementedError, match=message), model:
        pm.find_MAP(progressbar=False)
    with pytest.raises(NotImplementedError, match=message), model:
        pm.fit(10, progressbar=False)


@pytest.mark.statistical
def test_sequential_monte_carlo_and_nutpie_are_refused(model):
    with pytest.raises(Exception, match="the rows behind 'x' are confidential"), model:
        pm.sample_smc(10, chains=1, progressbar=False)
    with pytest.raises(Exception, match=r"nutpie.* requires all variables to be differentiable"), model:
        pm.sample(5, tune=5, nuts_sampler="nutpie", progressbar=False)


def test_without_a_step_the_noise_is_asked_for(model):
    """``pm.sample()`` finds the private step, which wants to know its noise; public variables keep NUTS."""
    _, chosen = assign_step_methods(model)
    assert {cls.__name__: [v.name for v in values] for cls, values in chosen.items()} == {
        "PenaltyMetropolis": ["mu"], "NUTS": ["spread_log__"],
    }  # fmt: skip
    with pytest.raises(ValueError, match="give either ledger="):
        pm.sample(5, tune=5, model=model, progressbar=False)


def test_log_densities_are_refused(model, python_mode):
    """They would lack the rows' part in silence."""
    message = "in a log density, they would look as if there were no data"
    point = model.initial_point()
    for evaluate in (
        model.compile_logp,
        model.point_logps,
        lambda: model.logp().eval({v: point[v.name] for v in model.value_vars}),
        lambda: model.compile_logp(vars=model.potentials),
        lambda: pytensor.function(model.value_vars, model.logp()),
    ):
        with pytest.raises(NotImplementedError, match=message):
            evaluate()
    with pytest.raises(NotImplementedError, match="the rows behind 'x' are confidential"):
        model.compile_dlogp()
    # the other terms have one
    assert np.isfinite(model.compile_logp(vars=model.free_RVs)(point))


def test_starting_values_can_be_checked_and_public_steps_built(model, python_mode):
    model.check_start_vals(model.initial_point())
    with pytest.raises(pm.exceptions.SamplingError):
        model.check_start_vals({"spread_log__": 0.0, "mu": np.inf})
    with_step = pm.NUTS([model["spread"]], model=model)
    assert [v.name for v in with_step.vars] == ["spread_log__"]


def test_log_likelihoods_have_nothing_of_the_rows(model, python_mode):
    """PyMC computes them of observed variables, and asks nobody else: there is nothing of ours in them."""
    idata = az.from_dict({"posterior": {"mu": np.zeros((1, 2)), "spread": np.ones((1, 2))}})
    with pytest.raises(ValueError, match="var_names must refer to observed_RVs"):
        pm.compute_log_likelihood(idata, var_names=["x"], model=model, progressbar=False)
    found = pm.compute_log_likelihood(idata, model=model, progressbar=False)
    assert not found["log_likelihood"].data_vars


# -- leaks --------------------------------------------------------------------------------------------


def shows(thing):
    """Whether bytes or text show the canary: as a number in memory, or written out."""
    if isinstance(thing, str):
        return "98765" in thing or "9.8765" in thing
    return (
        any(np.array(CANARY, dtype=t).tobytes() in thing for t in ("<f8", "<f4", ">f8")) or b"98765" in thing
    )


def test_the_search_finds_what_is_there():
    """Power of what follows: rows held in the usual ways are seen."""
    with pm.Model() as usual:
        pm.Normal("y", pm.Normal("mu"), 1, observed=ROWS)
    assert shows(cloudpickle.dumps(usual)) and shows(str(ROWS)) and shows(pickle.dumps(ROWS))


def test_graph_and_representations(model):
    texts = [repr(model), model.str_repr(), str(model["x"]), pytensor.dprint(model.logp(), file="str")]
    texts += [repr(p) for p in model.potentials] + [str(ModelGraph(model).get_plates())]
    term = (
        model["x"].owner.inputs[0].owner.op.term
        if model["x"].owner.op.__class__.__name__ != "Sentinel"
        else None
    )
    term = term or model["x"].owner.op.term
    texts += [
        repr(term),
        str(term.rows),
        f"{term.rows!r:>30}",
        repr(vars(term)) if hasattr(term, "__dict__") else "",
    ]
    assert not any(shows(text) for text in texts)
    for v in ancestors([model.logp(), *model.basic_RVs, *model.potentials]):
        held = v.data if isinstance(v, Constant) else v.get_value() if isinstance(v, SharedVariable) else None
        assert held is None or not np.any(
            np.isclose(np.asarray(held, dtype=object).astype(str) == str(CANARY), True)
        )


def test_pickles_and_copies(model):
    step = dp.PenaltyMetropolis(model=model, noise_multiplier=1.0)
    step.setup_chain(1, 5, 5)
    step.step(model.initial_point())
    for thing in (model, step, step.sampling_state, model["x"]):
        assert not shows(cloudpickle.dumps(thing))
    term = step.term
    assert copy.deepcopy(term).rows is term.rows is copy.copy(term.rows)
    assert pickle.loads(pickle.dumps(term.rows)) is term.rows


def test_a_pickle_outlives_its_rows_as_a_message():
    rows = ConfidentialRows(np.array([[CANARY, 1.0]]))
    kept = pickle.dumps(rows)
    assert not shows(kept)
    del rows
    with pytest.raises(RuntimeError, match="no longer there"):
        pickle.loads(kept)


def test_clones_of_the_model_see_the_same_rows(model):
    """`pm.do` and `pm.observe` keep the likelihood, and its parameters."""
    fixed = pm.do(model, {"spread": 1.0})
    step = dp.PenaltyMetropolis(model=fixed, noise_multiplier=1.0)
    assert [v.name for v in step.vars] == ["mu"] and step.term is dp.PenaltyMetropolis(
        model=model, noise_multiplier=1.0
    ).term


@pytest.mark.statistical
@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_nothing_of_a_run_shows_a_row(model, start, tmp_path, caplog, capfd):
    """Result, files, log, progress bar and what workers say; one run for each way to start workers."""
    book = ledger(path=tmp_path / "study.db")
    with caplog.at_level(logging.DEBUG):
        step = dp.PenaltyMetropolis(model=model, ledger=book, draws=30, tune=20, chains=2)
        idata = pm.sample(30, tune=20, chains=2, cores=2, step=step, model=model, mp_ctx=start, random_seed=1)
        with pytest.raises(Exception) as caught:
            pm.sample(30, tune=20, chains=2, cores=2, step=step, model=model, mp_ctx=start, random_seed=1)
    assert "All 2 chains that entry 1 of the ledger paid for" in str(caught.value) + repr(
        caught.value.__cause__
    )
    assert set(idata.sample_stats.data_vars) >= {"private_accepted", "private_log_ratio"}
    assert "log_likelihood" not in idata.children
    assert not any(
        idata[group].data_vars for group in {"observed_data", "constant_data"} & set(idata.children)
    )
    idata.to_zarr(tmp_path / "draws.zarr")
    out = capfd.readouterr()
    texts = [
        caplog.text,
        out.out,
        out.err,
        str(caught.value),
        repr(caught.value.__cause__),
        str(idata),
        repr(step),
    ]
    held = [cloudpickle.dumps(idata), *(p.read_bytes() for p in tmp_path.rglob("*") if p.is_file())]
    for group in idata.children.values():
        held += [np.ascontiguousarray(v.values).tobytes() for v in group.data_vars.values()]
    assert not any(shows(thing) for thing in [*texts, *held])


def test_noise_differs_where_the_seed_does_not(model):
    """Proposals follow `random_seed`; the noise does not."""
    ratios = []
    for _ in range(2):
        step = dp.PenaltyMetropolis(model=model, noise_multiplier=1.0)
        step.setup_chain(np.random.default_rng(7), 0, 3)
        point = model.initial_point()
        move = step._proposed()[0]
        _, (stats,) = step.step(point)
        ratios.append((float(move[0]), stats["private_log_ratio"]))
    assert ratios[0][0] == ratios[1][0] and ratios[0][1] != ratios[1][1]


def test_errors_inside_a_step_show_no_row(model, monkeypatch):
    """Whatever fails while the rows are read, the traceback's text has none of them."""
    step = dp.PenaltyMetropolis(model=model, noise_multiplier=1.0)
    step.setup_chain(1, 5, 5)
    with pytest.raises(Exception) as caught:
        step._sums._ratio.total(np.zeros(1), np.zeros(1), step.term.rows.columns().astype(str), 0, 1, 1.0, 30)
    assert not shows(str(caught.value))
    assert "98765" not in repr(sys.exc_info())


def test_a_chain_makes_no_more_releases_than_it_paid_for(model):
    """After the run the step is still there, and so is its noise."""
    book = ledger()
    step = dp.PenaltyMetropolis(model=model, ledger=book, **PLAN)
    point = model.initial_point()
    with pytest.raises(dp.BudgetExceededError, match="all ratios that this chain was begun for"):
        step.step(point)
    step.setup_chain(1, 10, 20)
    for _ in range(30):
        point, _ = step.step(point)
    spent = book.epsilon_spent
    with pytest.raises(dp.BudgetExceededError, match="all ratios that this chain was begun for"):
        step.step(point)
    copied = cloudpickle.loads(cloudpickle.dumps(step))
    with pytest.raises(dp.BudgetExceededError, match="all ratios that this chain was begun for"):
        copied.step(point)
    assert book.epsilon_spent == spent
    assert dp.accounting.epsilon(step.cost(20, 10, 2), book.delta) == pytest.approx(spent)


def test_no_step_for_each_variable(model):
    book = ledger()
    with pytest.raises(ValueError, match="blocked=False would make a step of each variable"):
        dp.PenaltyMetropolis(model=model, ledger=book, blocked=False, **PLAN)
    assert not book.entries()


def test_likelihoods_of_submodels_are_told_apart():
    """Both were called by the name that their submodels give them."""
    with pm.Model() as model:
        for prefix in ("a", "b"):
            with pm.Model(name=prefix):
                mu = pm.Normal("mu", 0, 1)
                dp.ConfidentialLikelihood("x", pm.Normal.dist(mu, 1), data=np.zeros(5), clip=3)
    with pytest.raises(ValueError, match=r"confidential likelihoods a::x, b::x; name the parameters of one"):
        dp.PenaltyMetropolis(model=model, noise_multiplier=1.0)
    steps = [dp.PenaltyMetropolis([model[f"{k}::mu"]], model=model, noise_multiplier=1.0) for k in "ab"]
    assert [step.likelihood for step in steps] == ["a::x", "b::x"]


def mixture(n, k=3):
    with pm.Model() as model:
        w = pm.Dirichlet("w", np.ones(k))
        mu, sigma = pm.Normal("mu", 0, 1, shape=k), pm.HalfNormal("sigma", 1, shape=k)
        dp.ConfidentialLikelihood("x", pm.NormalMixture.dist(w, mu, sigma), np.linspace(-1, 2, n), clip=1.0)
    return model


@pytest.mark.parametrize("n", [2, 3, 4])
def test_a_mixture_may_have_as_many_components_as_there_are_rows(n):
    """Scales of three components, checked to be positive, were taken for those of three rows."""
    assert [rv.name for rv in mixture(n).free_RVs] == ["w", "mu", "sigma"]


@pytest.mark.parametrize("n", [3, 4])
def test_shared_checks_of_a_mixture_are_those_of_all_rows(n):
    """The log density of rows is that of PyMC inside of the domain, and minus infinity outside of it."""
    from pymc_dp.lowering.rows.domains import row_checks_to_values

    w, mu, sigma, x = pt.vector("w"), pt.vector("mu"), pt.vector("sigma"), pt.vector("x", shape=(n,))
    logp = pm.logp(pm.NormalMixture.dist(pt.specify_shape(w, 3), mu, pt.specify_shape(sigma, 3)), x)
    asked = []
    by_row = row_checks_to_values(logp, lambda v: asked.append(v) or False)
    values = {w: [0.2, 0.3, 0.5], mu: [0.0, 1.0, 2.0], x: np.linspace(-1, 2, n)}
    inside, outside = (
        by_row.eval(values | {sigma: [1.0, 2.0, 0.5]}),
        by_row.eval(values | {sigma: [1.0, -2.0, 0.5]}),
    )
    assert inside.shape == (n,) and np.isfinite(inside).all() and np.isneginf(outside).all() and asked
