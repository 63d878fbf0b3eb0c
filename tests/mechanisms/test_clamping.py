"""Bounds: what is clamped, what it costs, and that the likelihood knows."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
import scipy.stats as st

import pymc_dp as dp
from pymc_dp.mechanisms import GaussianMechanism, LaplaceMechanism, guarantee
from pymc_dp.privacy.calibration import gaussian_delta

N = 8


@pytest.fixture
def model():
    with pm.Model() as model:
        pm.Normal("y", 0, 5, shape=(N, 2))
        pm.Poisson("k", 9, shape=N)
        yield model


def known(name):
    """Covariates held in a pm.Data, whose lengths PyTensor does not know in advance."""
    x = np.random.default_rng(2).normal(size=(N, 3))
    return pm.Data(f"{name}{len(pm.modelcontext(None).data_vars)}", x)


def other_records():
    """Of other people, one of whom changes all rows that these are in."""
    return pm.Normal("x", 0, 1, shape=N + 5)


def noise_of(release):
    return release.owner.op.dist_params(release.owner)[1].eval()


QUERIES = {
    # query of (y, k), bounds, widths of the statistics, shape of the release
    "sum": (lambda y, k: y.sum(0), (-1, 1), [2, 2], (2,)),
    "sum, a pair each": (lambda y, k: y.sum(0), [(-1, 1), (0, 3)], [2, 3], (2,)),
    "mean": (lambda y, k: y.mean(0), [(-1, 1), (0, 4)], [2 / N, 4 / N], (2,)),
    "scaled": (lambda y, k: 3 * y[:, 0].sum(), (0, 1), [3], ()),
    "counts": (lambda y, k: k.sum(), (0, 5), [5], ()),
    "covariates": (lambda y, k: (known("x") * y[:, :1]).sum(0), (-1, 1), [2, 2, 2], (None,)),
    "stacked": (lambda y, k: pt.stack([k.sum(), y[:, 0].sum()]), (0, 5), [5, 5], (2,)),
    "stacked counts": (lambda y, k: pt.stack([k.sum(), k[:5].sum()]), (0, 5), [5, 5], (2,)),
    "joined": (
        lambda y, k: pt.concatenate([y.sum(0), k.sum()[None]]),
        [(0, 1), (0, 2), (0, 3)],
        [1, 2, 3],
        (3,),
    ),
    "local scalar": (lambda y, k: y[:, 0], (-1, 1), [2], (N,)),
    "local counts": (lambda y, k: k, (0, 5), [5], (N,)),
    "local rows": (lambda y, k: y, [(-1, 1), (0, 3)], [2, 3], (N, 2)),
}
each_query = pytest.mark.parametrize(("query", "bounds", "width", "shape"), QUERIES.values(), ids=QUERIES)


@each_query
def test_sensitivities(model, query, bounds, width, shape):
    q = query(model["y"], model["k"])
    l1, l2 = np.sum(width), np.linalg.norm(width)
    laplace = LaplaceMechanism.dist(q, epsilon=0.5, bounds=bounds)
    assert laplace.type.shape == shape
    assert noise_of(laplace) == pytest.approx(l1 / 0.5)
    gaussian = GaussianMechanism.dist(q, rho=0.5, bounds=bounds)
    assert noise_of(gaussian) == pytest.approx(l2)
    gaussian = GaussianMechanism.dist(q, epsilon=1, delta=1e-5, bounds=bounds)
    sigma = float(np.ravel(noise_of(gaussian))[0])
    assert gaussian_delta(1, sigma, l2) == pytest.approx(1e-5)
    # the same the other way round
    assert guarantee(LaplaceMechanism.dist(q, scale=3.0, bounds=bounds)).epsilon == pytest.approx(l1 / 3)
    assert guarantee(GaussianMechanism.dist(q, sigma=3.0, bounds=bounds)).rho == pytest.approx(
        (l2 / 3) ** 2 / 2
    )


@each_query
@pytest.mark.parametrize("mechanism", [LaplaceMechanism, GaussianMechanism])
def test_one_record_cannot_exceed_the_guarantee(model, mechanism, query, bounds, width, shape):
    """Exchange one record at random and far out: the query moves by no more than the widths."""
    noise = {"scale": 1.0} if mechanism is LaplaceMechanism else {"sigma": 1.0}
    release = mechanism.dist(query(model["y"], model["k"]), bounds=bounds, **noise)
    clamped = release.owner.op.dist_params(release.owner)[0]
    f = pytensor.function([model["y"], model["k"]], clamped, on_unused_input="ignore")
    rng = np.random.default_rng(0)
    worst = np.zeros(len(width))
    for scale in (0.5, 1e6):
        for _ in range(200):
            y, k = rng.normal(0, scale, (N, 2)), rng.poisson(10, N)
            y2, k2 = y.copy(), k.copy()
            y2[3], k2[3] = rng.normal(0, scale, 2), rng.integers(0, 2) * 1000
            change = np.abs(f(y, k) - f(y2, k2))
            if shape[:1] == (N,):
                assert not np.delete(change, 3, axis=0).any()
                change = change[3]
            worst = np.maximum(worst, np.ravel(change))
    np.testing.assert_array_less(worst, np.array(width) + 1e-9)
    np.testing.assert_allclose(worst, width, rtol=1e-9)  # and it is reached


def test_likelihood_uses_the_clamped_value(model):
    y = model["y"]
    LaplaceMechanism("a", y.sum(0), epsilon=1, bounds=(-1, 1), observed=[0.5, 2.0])
    GaussianMechanism("b", y[:, 0], sigma=2.0, bounds=(-1, 1), observed=np.arange(N))
    rng = np.random.default_rng(1)
    point = {"y": rng.normal(0, 5, (N, 2)), "k": np.ones(N, int)}
    logps = model.point_logps(point, round_vals=10)
    clamped = np.clip(point["y"], -1, 1)
    a = st.laplace(clamped.sum(0), 4.0).logpdf([0.5, 2.0]).sum()
    b = st.norm(clamped[:, 0], 2.0).logpdf(np.arange(N)).sum()
    assert logps["a"] == pytest.approx(a, abs=1e-8)
    assert logps["b"] == pytest.approx(b, abs=1e-8)


def test_bounds_are_on_the_operation(model):
    one = LaplaceMechanism.dist(model["y"].sum(0), epsilon=1, bounds=(0, 1))
    assert one.owner.op.bounds == (0.0, 1.0)
    two = LaplaceMechanism.dist(model["y"].sum(0), epsilon=1, bounds=[(0, 1), (2, 3)])
    assert two.owner.op.bounds == ((0.0, 2.0), (1.0, 3.0))
    assert hash(two.owner.op)
    assert LaplaceMechanism.dist(model["y"], scale=1).owner.op.bounds is None


def test_noise_per_statistic(model):
    bounds = [(0, 1), (0, 4)]
    central = LaplaceMechanism.dist(model["y"].sum(0), scale=[1.0, 2.0], bounds=bounds)
    assert guarantee(central).epsilon == pytest.approx(1 / 1 + 4 / 2)
    central = GaussianMechanism.dist(model["y"].sum(0), sigma=[1.0, 2.0], bounds=bounds)
    assert guarantee(central).rho == pytest.approx((1 + 4) / 2)
    # a total alone says nothing of how it splits: the smallest noise has to cover all of it
    total = LaplaceMechanism.dist(model["y"].sum(0), scale=[1.0, 2.0], sensitivity=5)
    assert guarantee(total).epsilon == pytest.approx(5.0)
    # rows with their own noise: a person is in one of them
    rows = LaplaceMechanism.dist(model["k"], scale=np.arange(1.0, N + 1), bounds=(0, 4))
    assert guarantee(rows).epsilon == pytest.approx(4.0)


def test_sensitivity_beside_bounds(model):
    q = model["y"].sum(0)
    more = LaplaceMechanism.dist(q, epsilon=1, sensitivity=10, bounds=(-1, 1))
    assert noise_of(more) == pytest.approx(10.0)
    same = LaplaceMechanism.dist(q, epsilon=1, sensitivity=4, bounds=(-1, 1))
    assert noise_of(same) == pytest.approx(4.0)
    with pytest.raises(ValueError, match=r"sensitivity = 3 contradicts bounds.* by 4 \(L1\)"):
        LaplaceMechanism.dist(q, epsilon=1, sensitivity=3, bounds=(-1, 1))
    with pytest.raises(ValueError, match=r"by 2.82843 \(L2\)"):
        GaussianMechanism.dist(q, rho=1, sensitivity=2, bounds=(-1, 1))


@pytest.mark.parametrize(
    ("bounds", "error", "message"),
    [
        ((1, -1), ValueError, "lo < hi"),
        ((0, 0), ValueError, "lo < hi"),
        ((np.nan, 1), ValueError, "bounds must be finite"),
        ((-np.inf, 1), ValueError, "bounds must be finite"),
        ((0, pt.scalar("hi")), TypeError, "neither tensors nor random variables"),
        ("01", TypeError, "bounds must be a pair"),
        ([(0, 1), (0, 1), (0, 1)], ValueError, "bounds"),
    ],
)
@pytest.mark.parametrize("mechanism", [LaplaceMechanism, GaussianMechanism])
def test_bad_bounds(model, mechanism, bounds, error, message):
    noise = {"scale": 1.0} if mechanism is LaplaceMechanism else {"sigma": 1.0}
    with pytest.raises(error, match=message):
        mechanism.dist(model["y"].sum(0), bounds=bounds, **noise)


@pytest.mark.parametrize(
    "query",
    [
        lambda y: y.max(),
        lambda y: pt.exp(y[:, 0].sum()),
        lambda y: pt.exp(y.sum(0)),
        lambda y: y.T,
        lambda y: y[:, 0].cumsum(),
        lambda y: y - y.mean(0),
        lambda y: ((y - y.mean(0)) ** 2).sum(0),
        lambda y: y.sum(0) * pm.HalfNormal.dist(),
        lambda y: y[:, 0].sum() * y[:, 1].sum(),
        lambda y: y.sum() / y[y > 0].shape[0],
        lambda y: y * y[y > 0].shape[0],
        lambda y: y * other_records().sum(),
        lambda y: pt.sum(y - other_records().mean()),
        lambda y: y[:, :1] * other_records()[None, :],
        lambda y: y.sum() / pm.Data("total", 50.0),
        lambda y: y.sum() * (1 + pm.Data("factors", [0.5, 2.0]).sum()),
    ],
    ids=[
        "max",
        "exp of a sum",
        "exp of sums",
        "transposed",
        "cumulated",
        "centred",
        "sum of squares about the mean",
        "scaled by a random number",
        "product of sums",
        "over a number that is random",
        "rows times a number that is random",
        "times a sum over other records",
        "less a mean over other records",
        "times other records",
        "over data that can be set anew",
        "times a sum of data that can be set anew",
    ],
)
def test_what_cannot_be_clamped_is_refused(model, query):
    """The width of one record's change would be wrong, so no guarantee may be stated."""
    with pytest.raises(ValueError, match="bounds"):
        LaplaceMechanism.dist(query(model["y"]), epsilon=1, bounds=(0, 1))


@pytest.mark.parametrize("of", [dp.record_sum, lambda rows: dp.clamp(rows, 0, 1)])
def test_masks_are_not_dropped(of):
    """NumPy makes an array of a list of masked ones, with the numbers behind their masks."""
    with pytest.raises(TypeError, match="must not be masked"):
        of([np.ma.masked_equal([1.0, 2.0], 2.0)] * 2)
