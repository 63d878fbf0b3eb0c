"""What every mechanism must do, over one table: a new mechanism is one more row."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import cloudpickle
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
import scipy.stats as st
from pymc.model.fgraph import clone_model

from pymc_dp.mechanisms import (
    GaussianMechanism,
    LaplaceMechanism,
    Mechanism,
    MechanismOp,
    guarantee,
)
from pymc_dp.privacy import PrivacyGuarantee


@dataclass(frozen=True)
class Row:
    """One mechanism with one way of giving its noise level, on a scalar query.

    `noise` holds the keyword arguments; `promise` what they must promise; `law` the release's
    distribution given the query, by scipy; `native` the noise level itself, as the keyword
    arguments that give the same promise; `tight` whether less noise would break the promise.
    """

    mechanism: type[Mechanism]
    noise: dict[str, Any]
    promise: PrivacyGuarantee
    law: Callable[[float], Any]
    sensitivity: float
    native: dict[str, Any]
    tight: bool = True
    bad: dict[str, tuple[dict[str, Any], type[Exception], str]] = field(default_factory=dict)

    def release(self, query: Any = 0.0, **kwargs: Any) -> Any:
        return self.mechanism.dist(query, **(self.noise | kwargs))

    def __str__(self) -> str:
        return f"{self.mechanism.__name__}-{'-'.join(self.noise)}"


LAPLACE_BAD = {
    "no noise level": ({}, ValueError, r"got none. Choose scale=, or epsilon= with sensitivity="),
    "two noise levels": (
        {"scale": 1, "epsilon": 1, "sensitivity": 1},
        ValueError,
        "got both scale= and epsilon=",
    ),
    "no sensitivity": ({"epsilon": 1}, ValueError, "needs the sensitivity"),
    "scale zero": ({"scale": 0.0}, ValueError, "scale must be finite and > 0 everywhere, got 0"),
    "scale nan": ({"scale": math.nan}, ValueError, "scale must be finite and > 0"),
    "scale a word": ({"scale": "wide"}, TypeError, "scale must be a real number"),
    "scale complex": ({"scale": 1j}, TypeError, "scale must be a real number"),
    "scale larger than the query": (
        {"scale": [1.0, 2.0]},
        ValueError,
        "more than the query's shape",
    ),
    "epsilon zero": ({"epsilon": 0, "sensitivity": 1}, ValueError, "epsilon must be a finite"),
    "epsilon negative": ({"epsilon": -1, "sensitivity": 1}, ValueError, "epsilon must be a finite"),
    "epsilon nan": (
        {"epsilon": math.nan, "sensitivity": 1},
        ValueError,
        "epsilon must be a finite number > 0, got nan",
    ),
    "epsilon inf": (
        {"epsilon": math.inf, "sensitivity": 1},
        ValueError,
        "epsilon must be a finite",
    ),
    "epsilon a tensor": (
        {"epsilon": pt.scalar("e"), "sensitivity": 1},
        TypeError,
        "epsilon must be one real number",
    ),
    "sensitivity zero": ({"epsilon": 1, "sensitivity": 0}, ValueError, "sensitivity must be"),
    "sensitivity beside scale": (
        {"scale": 1, "sensitivity": -1},
        ValueError,
        "sensitivity must be a finite number > 0, got -1",
    ),
    "unknown keyword": ({"scale": 1, "sigma": 1}, TypeError, "unexpected keyword argument 'sigma'"),
}
GAUSSIAN_BAD = {
    "no noise level": ({}, ValueError, r"got none. Choose sigma=, or epsilon= with delta=, or rho"),
    "two noise levels": (
        {"sigma": 1, "rho": 1, "sensitivity": 1},
        ValueError,
        "got both sigma= and rho=",
    ),
    "epsilon beside rho": (
        {"epsilon": 1, "delta": 1e-6, "rho": 1, "sensitivity": 1},
        ValueError,
        "got both epsilon= with delta= and rho=",
    ),
    "delta beside sigma": ({"sigma": 1, "delta": 1e-6}, ValueError, "got both"),
    "epsilon alone": ({"epsilon": 1, "sensitivity": 1}, ValueError, "epsilon was given without"),
    "delta alone": ({"delta": 1e-6, "sensitivity": 1}, ValueError, "delta was given without"),
    "no sensitivity": ({"epsilon": 1, "delta": 1e-6}, ValueError, "epsilon needs the sensitivity"),
    "rho, no sensitivity": ({"rho": 1}, ValueError, "rho needs the sensitivity"),
    "sigma negative": ({"sigma": -2.0}, ValueError, "sigma must be finite and > 0 everywhere"),
    "sigma inf": ({"sigma": math.inf}, ValueError, "sigma must be finite and > 0 everywhere"),
    "epsilon nan": (
        {"epsilon": math.nan, "delta": 1e-6, "sensitivity": 1},
        ValueError,
        "epsilon must be a finite number > 0",
    ),
    "delta zero": (
        {"epsilon": 1, "delta": 0.0, "sensitivity": 1},
        ValueError,
        "delta must be strictly between 0 and 1, got 0",
    ),
    "delta one": (
        {"epsilon": 1, "delta": 1, "sensitivity": 1},
        ValueError,
        "delta must be strictly between 0 and 1, got 1",
    ),
    "rho zero": ({"rho": 0, "sensitivity": 1}, ValueError, "rho must be a finite number > 0"),
    "rho negative": ({"rho": -1, "sensitivity": 1}, ValueError, "rho must be a finite number > 0"),
    "unknown calibration": (
        {"epsilon": 1, "delta": 1e-6, "sensitivity": 1, "calibration": "exact"},
        ValueError,
        "calibration must be one of 'analytic', 'classic', got 'exact'",
    ),
    "classic beyond one": (
        {"epsilon": 1.5, "delta": 1e-6, "sensitivity": 1, "calibration": "classic"},
        ValueError,
        "proven for epsilon <= 1 only",
    ),
    "calibration without use": (
        {"rho": 1, "sensitivity": 1, "calibration": "classic"},
        ValueError,
        "has no effect with rho=",
    ),
}

ROWS = [
    Row(
        LaplaceMechanism,
        {"epsilon": 0.7, "sensitivity": 2.0},
        PrivacyGuarantee(0.7),
        lambda q: st.laplace(q, 2 / 0.7),
        2.0,
        {"scale": 2 / 0.7, "sensitivity": 2.0},
        bad=LAPLACE_BAD,
    ),
    Row(
        LaplaceMechanism,
        {"scale": 0.05, "sensitivity": 1.0},
        PrivacyGuarantee(20.0),
        lambda q: st.laplace(q, 0.05),
        1.0,
        {"scale": 0.05, "sensitivity": 1.0},
    ),
    Row(
        GaussianMechanism,
        {"epsilon": 1.0, "delta": 1e-6, "sensitivity": 1.0},
        PrivacyGuarantee(1.0, 1e-6, 1 / (2 * 4.224678889326835**2)),
        lambda q: st.norm(q, 4.224678889326835),
        1.0,
        {"sigma": 4.224678889326835, "sensitivity": 1.0},
        bad=GAUSSIAN_BAD,
    ),
    Row(
        GaussianMechanism,
        {"epsilon": 1.0, "delta": 1e-6, "sensitivity": 3.0, "calibration": "classic"},
        PrivacyGuarantee(1.0, 1e-6, 1 / (4 * math.log(1.25e6))),
        lambda q: st.norm(q, 3 * math.sqrt(2 * math.log(1.25e6))),
        3.0,
        {"sigma": 3 * math.sqrt(2 * math.log(1.25e6)), "sensitivity": 3.0},
        tight=False,
    ),
    Row(
        GaussianMechanism,
        {"rho": 0.125, "sensitivity": 3.0},
        PrivacyGuarantee(math.inf, rho=0.125),
        lambda q: st.norm(q, 6.0),
        3.0,
        {"sigma": 6.0, "sensitivity": 3.0},
    ),
    Row(
        GaussianMechanism,
        {"sigma": 0.5, "sensitivity": 1.0},
        PrivacyGuarantee(math.inf, rho=2.0),
        lambda q: st.norm(q, 0.5),
        1.0,
        {"sigma": 0.5, "sensitivity": 1.0},
    ),
]
each_row = pytest.mark.parametrize("row", ROWS, ids=str)
each_mechanism = pytest.mark.parametrize(
    "row", [row for row in ROWS if row.bad], ids=lambda row: row.mechanism.__name__
)


def log_density(row, values, query=0.0):
    """Evaluate pm.logp of one release at many values."""
    value = pt.dvector("value")
    # Each value is one release of its own: the query is repeated, the mechanism is not.
    release = row.mechanism.dist(pt.full_like(value, query), **row.native)
    fn = pytensor.function([value], pm.logp(release, value), mode="FAST_COMPILE")
    return fn(np.asarray(values, dtype=float))


def grid_of(row, query=0.0, half_width=40.0, size=200_001):
    scale = row.law(query).std()
    return np.linspace(query - half_width * scale, query + half_width * scale, size)


@each_row
def test_log_density_is_the_stated_law(row):
    values = np.concatenate([[1.7], grid_of(row, 1.7, 30, 301)])
    exact = row.law(1.7).logpdf(values)
    np.testing.assert_allclose(log_density(row, values, 1.7), exact, rtol=1e-12, atol=1e-12)
    # the same through the release that the row itself declares
    one = pm.logp(row.release(1.7), 2.0).eval()
    np.testing.assert_allclose(one, row.law(1.7).logpdf(2.0), rtol=1e-12)


@each_row
def test_density_integrates_to_one(row):
    grid = grid_of(row)
    assert np.trapezoid(np.exp(log_density(row, grid)), grid) == pytest.approx(1, abs=1e-6)


@each_row
@pytest.mark.filterwarnings("error")  # numba would warn if it left native code
def test_draws_follow_the_density(row):
    draws = pm.draw(row.release(np.full(20_000, -3.0)), random_seed=12)
    grid = grid_of(row, -3.0)
    density = np.exp(log_density(row, grid, -3.0))
    cdf = np.concatenate([[0], np.cumsum(0.5 * (density[1:] + density[:-1]) * np.diff(grid))])
    assert st.kstest(draws, lambda x: np.interp(x, grid, cdf)).pvalue > 1e-3
    # power: the same test sees noise that is 8 % too large
    assert st.kstest(1.08 * (draws + 3) - 3, lambda x: np.interp(x, grid, cdf)).pvalue < 1e-3


@each_row
def test_log_density_is_finite_far_out(row):
    value, query = pt.dvector("value"), pt.dvector("query")
    logp = pm.logp(row.mechanism.dist(query, **row.native), value)
    fn = pytensor.function([value, query], [logp, pt.grad(logp.sum(), query)])
    far = np.array([1e3, -1e3, 1e9, -1e9, 1e100])
    for out in fn(far, np.zeros(5)):
        assert np.isfinite(out).all()


@each_row
def test_states_its_guarantee(row):
    for stated in (guarantee(row.release()), row.release().owner.op.guarantee):
        assert stated.epsilon == pytest.approx(row.promise.epsilon, rel=1e-12)
        assert stated.delta == row.promise.delta
        assert stated.neighbours == row.promise.neighbours == "replace-one"
        if row.promise.rho is None:
            assert stated.rho is None
        else:
            assert stated.rho == pytest.approx(row.promise.rho, rel=1e-12)


@each_row
def test_guarantee_holds_and_is_tight(row):
    """Compare the releases of neighbouring data, over the changes that the sensitivity allows."""
    grid = grid_of(row, size=400_001)
    here = log_density(row, grid)
    changes = row.sensitivity * np.linspace(-1, 1, 9)
    ratios = [here - log_density(row, grid, change) for change in changes]
    promise = row.promise
    if promise.is_pure:
        worst = max(np.abs(ratio).max() for ratio in ratios)
        assert worst <= promise.epsilon * (1 + 1e-9) + 1e-9
        if row.tight:
            assert worst >= promise.epsilon * (1 - 1e-9)
    elif math.isfinite(promise.epsilon):
        # mass by which one release exceeds exp(epsilon) times the other
        excess = [
            np.trapezoid(np.exp(here) * -np.expm1(np.minimum(promise.epsilon - r, 0)), grid) for r in ratios
        ]
        assert max(excess) <= promise.delta * (1 + 1e-4)
        if row.tight:
            assert max(excess) >= promise.delta * (1 - 1e-4)
    if promise.rho is not None:
        for alpha in (1.5, 2.0, 8.0):
            divergence = max(
                np.log(np.trapezoid(np.exp(here + (alpha - 1) * r), grid)) / (alpha - 1) for r in ratios
            )
            assert divergence == pytest.approx(promise.rho * alpha, rel=1e-6)


@each_row
def test_calibration_inverts_the_guarantee(row):
    """The noise that the budget buys, given as a noise level, costs that budget."""
    (noise,) = row.release().owner.op.dist_params(row.release().owner)[1:]
    (native,) = (k for k in row.native if k != "sensitivity")
    assert float(noise.eval()) == pytest.approx(row.native[native], rel=1e-10)
    back = guarantee(row.mechanism.dist(0.0, **row.native))
    if row.promise.is_pure:
        assert back.epsilon == pytest.approx(row.promise.epsilon, rel=1e-10)
    if row.promise.rho is not None:
        assert back.rho == pytest.approx(row.promise.rho, rel=1e-10)


def two_releases(row, **kwargs):
    with pm.Model(coords={"stat": ["a", "b"]}) as model:
        mu = pm.Normal("mu", 0, 1)
        y = pm.Normal("y", mu, 1, shape=(6, 2))
        row.mechanism("z", y.sum(0), **row.noise, dims="stat", observed=[1.0, 2.0], **kwargs)
        row.mechanism("local", y, **row.noise, observed=np.zeros((6, 2)))
    return model


@each_row
@pytest.mark.filterwarnings("error:.*object mode")
def test_survives_what_pymc_does_to_models(row):
    model = two_releases(row)
    op = model["z"].owner.op
    assert isinstance(op, MechanismOp) and op.ndim_supp == 0
    copies = {
        "clone_model": clone_model(model),
        "cloudpickle": cloudpickle.loads(cloudpickle.dumps(model)),
        "do": pm.do(model, {"mu": 0.5}),
    }
    at = {k: v for k, v in model.initial_point().items() if k != "mu"}
    for how, copy in copies.items():
        assert copy["z"].owner.op == op and hash(copy["z"].owner.op) == hash(op), how
        assert guarantee(copy["z"]) == guarantee(model["z"]), how
        point = at if how == "do" else at | {"mu": np.array(0.0)}
        logps = copy.point_logps(point)
        assert logps["z"] == model.point_logps(at | {"mu": np.array(0.0)})["z"], how
    with pm.Model() as unobserved:
        x = pm.Normal("x", shape=3)
        row.mechanism("z", x, **row.noise)
    assert (unobserved.initial_point()["z"] == 0).all()  # the query, at its own starting point
    observed = pm.observe(unobserved, {"z": np.zeros(3)})
    assert guarantee(observed["z"]) == guarantee(unobserved["z"])
    assert observed.initial_point().keys() == {"x"}


@each_mechanism
@pytest.mark.filterwarnings("error:.*object mode")
def test_predictive_draws(row):
    model = two_releases(row)
    prior = pm.sample_prior_predictive(200, model=model, random_seed=1)
    z = prior.prior_predictive["z"]
    assert z.dims == ("chain", "draw", "stat")
    noise = (z - prior.prior["y"].sum("y_dim_0").values).values.ravel()
    assert st.kstest(noise, row.law(0.0).cdf).pvalue > 1e-3
    prior["posterior"] = prior["prior"]
    again = pm.sample_posterior_predictive(prior, model=model, random_seed=2, progressbar=False)
    noise = (again.posterior_predictive["z"] - prior.prior["y"].sum("y_dim_0").values).values
    assert st.kstest(noise.ravel(), row.law(0.0).cdf).pvalue > 1e-3


@each_mechanism
def test_integer_and_boolean_queries_become_real(row):
    for query in (pt.lvector("q"), pt.bvector("q") > 0, np.array([1, 2]), np.True_):
        assert row.release(query).dtype == pytensor.config.floatX
    counts = pm.Poisson.dist(3, shape=4)
    assert row.release(counts.sum()).type.shape == ()


@each_mechanism
def test_shape_is_the_query_s(row):
    assert row.release(np.zeros((3, 2))).type.shape == (3, 2)
    assert row.release(np.zeros(3), shape=3).type.shape == (3,)
    assert row.release(np.zeros(3), size=(3,)).type.shape == (3,)
    assert row.release(pt.dvector("q"), shape=3).type.ndim == 1
    for kwargs in ({"shape": 5}, {"shape": (5, 3)}, {"size": (5, 3)}):
        with pytest.raises(ValueError, match="one call of a mechanism is one release"):
            row.release(np.zeros(3), **kwargs)
    with pytest.raises(ValueError, match="shape or size, not both"):
        row.release(0.0, shape=(), size=())


@each_mechanism
def test_records_by_name(row):
    with pm.Model() as model:
        x, y = pm.Normal("x", shape=3), pm.Normal("y", shape=3)
        row.mechanism("z", (x + y).sum(), **row.noise, records=[x, "y"], observed=1.0)
        row.mechanism("w", y.sum(), **row.noise, records=y, observed=1.0)
        with pytest.raises(TypeError, match="records must list variables"):
            row.mechanism("v", y.sum(), **row.noise, records=[3])
    assert clone_model(model)["z"].owner.op.records == ("x", "y")
    assert model["w"].owner.op.records == ("y",)
    assert row.release().owner.op.records is None


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


BAD = [
    pytest.param(row, *case, id=f"{row.mechanism.__name__}-{name}")
    for row in ROWS
    for name, case in row.bad.items()
]


@pytest.mark.parametrize(("row", "kwargs", "error", "message"), BAD)
def test_bad_noise_levels(row, kwargs, error, message):
    with pytest.raises(error, match=message):
        row.mechanism.dist(0.0, **kwargs)


BAD_QUERIES = {
    "a word": ("heights", TypeError, "query must be"),
    "none": (None, TypeError, "query must be"),
    "complex": (pt.zvector("q"), TypeError, "query must be real, got dtype complex128"),
    "nan": (np.array([1.0, np.nan]), ValueError, "query has NaN or infinite"),
    "masked": (np.ma.masked_equal([1, 2], 2), TypeError, "query must not be a masked array"),
    "a generator": (pytensor.shared(np.random.default_rng()), TypeError, "query must be a tensor"),
}


@each_mechanism
@pytest.mark.parametrize(("query", "error", "message"), BAD_QUERIES.values(), ids=BAD_QUERIES)
def test_bad_queries(row, query, error, message):
    with pytest.raises(error, match=message):
        row.release(query)


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
