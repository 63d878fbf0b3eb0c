"""What is special to additive noise of real numbers: Laplace and Gaussian."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
import scipy.stats as st

from pymc_dp.mechanisms import guarantee
from tests.contract.rows_additive import ROWS
from tests.contract.table import over

each_mechanism = over([row for row in ROWS if row.bad])


def release(row, query, **kwargs):
    return row.mechanism.dist(query, **row.noise, **kwargs)


def noise_cdf(row):
    """Distribution function of the noise alone."""
    values, weights = row.rule()
    cdf = np.cumsum(weights * np.exp(row.law(row.query, values)))
    return lambda x: np.interp(x, values - row.query, cdf)


def two_releases(row, **kwargs):
    with pm.Model(coords={"stat": ["a", "b"]}) as model:
        mu = pm.Normal("mu", 0, 1)
        y = pm.Normal("y", mu, 1, shape=(6, 2))
        row.mechanism("z", y.sum(0), **row.noise, dims="stat", observed=[1.0, 2.0], **kwargs)
        row.mechanism("local", y, **row.noise, observed=np.zeros((6, 2)))
    return model


@each_mechanism
@pytest.mark.filterwarnings("error:.*object mode")
@pytest.mark.statistical
def test_predictive_draws(row):
    model = two_releases(row)
    prior = pm.sample_prior_predictive(200, model=model, random_seed=1)
    z = prior.prior_predictive["z"]
    assert z.dims == ("chain", "draw", "stat")
    noise = (z - prior.prior["y"].sum("y_dim_0").values).values.ravel()
    assert st.kstest(noise, noise_cdf(row)).pvalue > 1e-3
    prior["posterior"] = prior["prior"]
    again = pm.sample_posterior_predictive(prior, model=model, random_seed=2, progressbar=False)
    noise = (again.posterior_predictive["z"] - prior.prior["y"].sum("y_dim_0").values).values
    assert st.kstest(noise.ravel(), noise_cdf(row)).pvalue > 1e-3


@each_mechanism
def test_integer_and_boolean_queries_become_real(row):
    for query in (pt.lvector("q"), pt.bvector("q") > 0, np.array([1, 2]), np.True_):
        assert row.declare(query).dtype == pytensor.config.floatX
    counts = pm.Poisson.dist(3, shape=4)
    assert row.declare(counts.sum()).type.shape == ()


@each_mechanism
def test_shape_is_the_query_s(row):
    assert release(row, np.zeros((3, 2))).type.shape == (3, 2)
    assert release(row, np.zeros(3), shape=3).type.shape == (3,)
    assert release(row, np.zeros(3), size=(3,)).type.shape == (3,)
    assert release(row, pt.dvector("q"), shape=3).type.ndim == 1
    for kwargs in ({"shape": 5}, {"shape": (5, 3)}, {"size": (5, 3)}):
        with pytest.raises(ValueError, match="one call of a mechanism is one release"):
            release(row, np.zeros(3), **kwargs)
    with pytest.raises(ValueError, match="shape or size, not both"):
        release(row, 0.0, shape=(), size=())


@each_mechanism
def test_random_noise_level_has_no_known_guarantee(row):
    (level,) = (k for k in row.native if k != "sensitivity")
    release = row.mechanism.dist(0.0, **{level: pm.HalfNormal.dist()}, sensitivity=1)
    assert release.owner.op.guarantee is None
    with pytest.raises(ValueError, match="is not known"):
        guarantee(release)
    with pytest.raises(TypeError, match="not a release"):
        guarantee(pm.Normal.dist())
    unknown = row.mechanism.dist(0.0, **{level: 2.0})
    assert unknown.owner.op.guarantee is None


BAD_QUERIES = {
    "a word": ("heights", TypeError, "query must be"),
    "none": (None, TypeError, "query must be"),
    "complex": (pt.zvector("q"), TypeError, "query must be real, got dtype complex128"),
    "nan": (np.array([1.0, np.nan]), ValueError, "query has NaN or infinite"),
    "masked": (np.ma.masked_equal([1, 2], 2), TypeError, "query must not be a masked array"),
    "masked in a list": ([np.ma.masked_equal([1, 2], 2)] * 2, TypeError, "query must not be a masked array"),
    "a generator": (pytensor.shared(np.random.default_rng()), TypeError, "query must be a tensor"),
}


@each_mechanism
@pytest.mark.parametrize(("query", "error", "message"), BAD_QUERIES.values(), ids=BAD_QUERIES)
def test_bad_queries(row, query, error, message):
    with pytest.raises(error, match=message):
        row.declare(query)


BAD_OBSERVED = {
    "too long": ([1.0, 2.0, 3.0], ValueError, r"observed means a release of shape \(3,\), but"),
    "scalar": (1.0, ValueError, r"observed means a release of shape \(\), but the query gives"),
    "nan": ([1.0, np.nan], ValueError, r"observed has 1 missing .* the first at index \(1,\)"),
    "inf": (np.array([-np.inf, np.inf]), ValueError, "observed has 2 missing or infinite entries"),
    "masked": (np.ma.masked_equal([1.0, 2.0], 2), ValueError, "observed has 1 missing entry"),
    "words": (["1", "2"], TypeError, "observed must hold real numbers"),
    "none inside": ([1.0, None], TypeError, "observed must hold real numbers"),
    "complex": (np.array([1j, 2]), TypeError, "observed must hold real numbers"),
    "boolean": ([True, False], TypeError, "observed must hold real numbers"),
    "shared, too long": (pytensor.shared(np.zeros(3)), ValueError, "observed means a release"),
    "shared nan": (pytensor.shared(np.array([0, np.nan])), ValueError, "observed has 1 missing"),
}


@each_mechanism
@pytest.mark.parametrize(("observed", "error", "message"), BAD_OBSERVED.values(), ids=BAD_OBSERVED)
def test_bad_observed(row, observed, error, message):
    with pm.Model():
        y = pm.Normal("y", shape=(4, 2))
        with pytest.raises(error, match=message):
            row.mechanism("z", y.sum(0), **row.noise, observed=observed)


@each_mechanism
def test_bad_declarations(row):
    with pm.Model(coords={"three": range(3)}):
        y = pm.Normal("y", shape=(4, 2))
        with pytest.raises(ValueError, match="depends on no random variable"):
            row.mechanism("fixed", np.zeros(2), **row.noise, observed=np.zeros(2))
        with pytest.raises(ValueError, match="depends on no random variable"):
            row.mechanism("data", pm.Data("d", np.zeros(2)), **row.noise, observed=np.zeros(2))
        with pytest.raises(ValueError, match=r"dims means a release of shape \(3,\)"):
            row.mechanism("dims", y.sum(0), **row.noise, dims="three")
        with pytest.raises(ValueError, match="total_size cannot be given"):
            row.mechanism("part", y.sum(0), **row.noise, observed=np.zeros(2), total_size=9)


@each_mechanism
def test_good_observed(row):
    """A pm.Data release, a pandas-like or integer one, and one of a length not known yet."""
    pandas = pytest.importorskip("pandas")
    with pm.Model() as model:
        n = pm.Data("n", np.array(3))
        y = pm.Normal("y", shape=n)
        data = pm.Data("data", np.arange(3.0))
        row.mechanism("a", y, **row.noise, observed=data)
        row.mechanism("b", y, **row.noise, observed=pandas.Series([1, 2, 3]))
        row.mechanism("c", y.sum(), **row.noise, observed=2)
    before = model.point_logps()["a"]
    with model:
        pm.set_data({"data": np.arange(3.0) + 1})
    assert model.point_logps()["a"] != before
