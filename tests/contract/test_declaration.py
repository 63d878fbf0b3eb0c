"""Declaring every mechanism in a model: what PyMC does to models, and bad input with its message."""

import cloudpickle
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.model.fgraph import clone_model

import pymc_dp as dp
from pymc_dp.mechanisms import Mechanism, MechanismOp, guarantee
from tests.contract.table import ROWS, cases, each_mechanism, first_imputation


def declared(row, imputation, observed, **kwargs):
    return row.model(imputation, observed, **(row.noise | imputation.noise | kwargs))


def value_of(model, point, mode):
    """Log density of the release at a point."""
    fn = model.compile_fn(model.logp(vars=[model["z"]]), mode=mode, point_fn=True, on_unused_input="ignore")
    return float(fn({v.name: point[v.name] for v in model.value_vars}))


@first_imputation
@pytest.mark.filterwarnings("error:.*object mode")
def test_survives_what_pymc_does_to_models(row, imputation):
    model = declared(row, imputation, imputation.observed)
    op, point = model["z"].owner.op, model.initial_point()
    assert isinstance(op, MechanismOp)
    # compiled natively once; beside the copies in Python, which gives the same digits each time
    at_point = value_of(model, point, "FAST_COMPILE")
    assert value_of(model, point, None) == pytest.approx(at_point, rel=1e-9)
    copies = {
        "clone_model": clone_model(model),
        "cloudpickle": cloudpickle.loads(cloudpickle.dumps(model)),
        "do": pm.do(model, {"x": point["x"]}),
    }
    for how, copy in copies.items():
        assert copy["z"].owner.op == op and hash(copy["z"].owner.op) == hash(op), how
        assert guarantee(copy["z"]) == guarantee(model["z"]), how
        assert value_of(copy, point, "FAST_COMPILE") == at_point, how
    unobserved = declared(row, imputation, None)
    start = unobserved.initial_point()
    assert np.shape(start["z"]) == np.shape(imputation.observed)
    assert np.isfinite(value_of(unobserved, start, "FAST_COMPILE"))  # a starting point that is possible
    observed = pm.observe(unobserved, {"z": np.asarray(imputation.observed)})
    assert guarantee(observed["z"]) == guarantee(unobserved["z"])
    assert observed.initial_point().keys() == {"x"}


@first_imputation
@pytest.mark.filterwarnings("error:.*object mode")
def test_predictive_draws(row, imputation):
    model = declared(row, imputation, imputation.observed)
    prior = pm.sample_prior_predictive(50, model=model, random_seed=1)
    z = prior.prior_predictive["z"].values[0]
    assert z.shape == (50, *np.shape(imputation.observed))
    prior["posterior"] = prior["prior"]
    again = pm.sample_posterior_predictive(prior, model=model, random_seed=2, progressbar=False)
    assert again.posterior_predictive["z"].values[0].shape == z.shape
    assert (again.posterior_predictive["z"].values[0] != z).any()
    records, value = model["x"].type(), pt.tensor(dtype=model["z"].dtype, shape=z.shape[1:])
    release = row.declare(imputation.query(records), **(row.noise | imputation.noise))
    logp = pm.logp(release, value).sum()
    for x, drawn in zip(prior.prior["x"].values[0][:5], z[:5], strict=True):
        assert np.isfinite(logp.eval({records: x, value: drawn}))


def test_every_mechanism_is_in_the_table():
    """A new mechanism is one file and its rows."""
    classes = [thing for thing in vars(dp).values() if isinstance(thing, type)]
    public = {thing for thing in classes if issubclass(thing, Mechanism)}
    # a row may wrap a mechanism of several arguments: then its operation tells
    covered = {row.mechanism for row in ROWS}
    operations = {type(row.declare(row.rows_of(row.query, 2)).owner.op) for row in ROWS}
    assert public
    assert not {thing for thing in public - covered if type(thing.rv_op) not in operations}


@each_mechanism
def test_records_by_name(row):
    if not row.imputations:
        pytest.skip("no model for this row")
    imputation = row.imputations[0]
    model = declared(row, imputation, imputation.observed, records=["x"])
    assert clone_model(model)["z"].owner.op.records == ("x",)
    assert declared(row, imputation, imputation.observed)["z"].owner.op.records is None
    with pytest.raises(TypeError, match="records must list variables"):
        declared(row, imputation, imputation.observed, records=[3])


@each_mechanism
def test_bad_declarations(row):
    if not row.imputations:
        pytest.skip("no model for this row")
    imputation = row.imputations[0]
    observed = np.asarray(imputation.observed)
    with pytest.raises(ValueError, match="total_size cannot be given"):
        declared(row, imputation, observed, total_size=9)
    with pytest.raises(ValueError, match="depends on no random variable"), pm.Model():
        row.mechanism(
            "z", *row.arguments(imputation.query(imputation.data())), observed=observed, **row.noise
        )
    with pytest.raises(ValueError, match="one call of a mechanism is one release"):
        declared(row, imputation, None, shape=(9, *observed.shape))
    with pytest.raises(ValueError, match="observed means a release of shape"):
        declared(row, imputation, np.stack([observed] * 9))
    with pytest.raises(TypeError, match="observed must hold real numbers"):
        declared(row, imputation, np.full(observed.shape, "1"))
    with pytest.raises(ValueError, match=r"observed has .* missing"):
        declared(row, imputation, np.full(observed.shape, np.nan))
    with pytest.raises(ValueError, match=r"observed has .* missing"):
        declared(row, imputation, np.ma.masked_array(observed, np.ones(observed.shape, dtype=bool)))


@cases("bad")
def test_bad_noise(row, bad, error, message):
    with pytest.raises(error, match=message):
        row.declare_with(row.rows_of(row.query, 2), bad)


@cases("bad_query")
def test_bad_queries(row, bad, error, message):
    with pytest.raises(error, match=message):
        row.declare(bad)


GENERAL_QUERIES = {
    "a word": ("heights", TypeError, "query must be"),
    "none": (None, TypeError, "query must be"),
    "complex": (np.array([1j]), TypeError, "query must be real, got dtype complex128"),
    "nan": (np.array([1.0, np.nan]), ValueError, "query has NaN or infinite"),
    "masked": (np.ma.masked_equal([1, 2], 2), TypeError, "query must not be a masked array"),
}


@each_mechanism
@pytest.mark.parametrize("bad", GENERAL_QUERIES)
def test_queries_that_nothing_can_release(row, bad):
    query, error, message = GENERAL_QUERIES[bad]
    with pytest.raises(error, match=message):
        row.declare(query)


@cases("bad_observed")
def test_bad_observed(row, bad, error, message):
    rows_apart = [i for i in row.imputations if np.shape(i.observed) or not row.batch]
    with pytest.raises(error, match=message):
        declared(row, rows_apart[0], bad)
