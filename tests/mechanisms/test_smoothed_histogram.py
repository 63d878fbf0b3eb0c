"""Samples of smoothed histograms: the density by hand, the corrected budget, draws, messages."""

import itertools
import math

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
import scipy.stats as st
from pymc.model.fgraph import clone_model

import pymc_dp as dp
from pymc_dp.mechanisms.smoothed_histogram import smoothed_epsilon, smoothing_for
from pymc_dp.query.records import find_record_blocks
from tests.mechanisms.grids import check_histogram_posterior

Y = np.array([0.05, 0.1, 0.3, 0.35, 0.95, 1.0, 1.3, -0.2])  # counts 3, 2, 0, 3 in quarters
COUNTS = np.array([3, 2, 0, 3])
MOVED = np.array([1, -1, 0, 0])  # one record in another bin


def by_hand(w, counts, smoothing, lo=0.0, hi=1.0):
    """Log density of each released value."""
    m = len(counts)
    b = np.minimum(((w - lo) / (hi - lo) * m).astype(int), m - 1)
    return np.log(((1 - smoothing) * m * counts[b] / counts.sum() + smoothing) / (hi - lo))


@pytest.mark.usefixtures("python_mode")
@pytest.mark.parametrize("bounds", [(0.0, 1.0), (-2.0, 6.0)])
def test_density(bounds):
    lo, hi = bounds
    w = np.random.default_rng(1).uniform(lo, hi, (40, 3))
    w[0], w[1] = lo, hi
    rv = dp.SmoothedHistogramSample.dist(
        lo + (hi - lo) * Y, n_bins=4, smoothing=0.2, n_released=3, bounds=bounds
    )
    assert rv.type.shape == (3,) and rv.owner.op.cells == tuple(np.linspace(lo, hi, 5))
    np.testing.assert_array_equal(rv.owner.op.dist_params(rv.owner)[0].eval(), COUNTS)
    value = pt.matrix("value")
    density = pytensor.function([value], pm.logp(rv, value), mode="FAST_COMPILE")
    np.testing.assert_allclose(density(w), by_hand(w, COUNTS, 0.2, lo, hi).sum(1), rtol=1e-12)
    # it integrates to one on the bounds, for one value
    one = dp.SmoothedHistogramSample.dist(
        lo + (hi - lo) * Y, n_bins=4, smoothing=0.2, n_released=1, bounds=bounds
    )
    middle = lo + (hi - lo) * (np.arange(4) + 0.5) / 4
    total = sum(math.exp(pm.logp(one, [x]).eval()) for x in middle) * (hi - lo) / 4
    assert total == pytest.approx(1, rel=1e-12)
    outside = density(np.array([[lo, hi, hi + 1e-9], [lo - 1e-9, lo, lo]]))
    assert (outside == -np.inf).all()
    for smoothing in (1e-300, 1e-9, 1 - 1e-9):
        rv = dp.SmoothedHistogramSample.dist(Y, n_bins=4, smoothing=smoothing, n_released=3)
        assert np.isfinite(pm.logp(rv, [0.1, 0.6, 0.9]).eval())


def test_density_is_a_sum_over_bins():
    """What steps use: one record that changes bins changes two terms."""
    w = np.array([0.1, 0.2, 0.6, 0.9, 0.91, 0.25])
    rv = dp.SmoothedHistogramSample.dist(Y, n_bins=4, smoothing=0.3, n_released=6)
    op = rv.owner.op
    released = op.summary(pt.constant(w)).eval()
    np.testing.assert_array_equal(released, [2, 1, 1, 2])
    totals = []
    for counts in (COUNTS, COUNTS + MOVED, COUNTS - MOVED[::-1]):
        y = np.repeat([0.1, 0.3, 0.6, 0.9], counts)
        logp = pm.logp(dp.SmoothedHistogramSample.dist(y, n_bins=4, smoothing=0.3, n_released=6), w).eval()
        totals.append(logp - op.term(released, counts, 0.3, 8.0).eval().sum())
    np.testing.assert_allclose(totals, totals[0], atol=1e-12)


# -- privacy ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("m", "n", "k"), [(2, 1, 1), (3, 3, 2), (4, 2, 3)])
def test_guarantee_holds_and_is_attained(m, n, k):
    """Over all neighbouring counts and all bins of the released values."""
    smoothing = 0.15
    epsilon = smoothed_epsilon(smoothing, m, n, k)
    worst = 0.0
    for y in itertools.product(range(m), repeat=n):
        here = np.bincount(y, minlength=m)
        for v in range(m):
            there = np.bincount([v, *y[1:]], minlength=m)
            for bins in itertools.product(range(m), repeat=k):
                w = (np.array(bins) + 0.5) / m
                worst = max(worst, (by_hand(w, here, smoothing) - by_hand(w, there, smoothing)).sum())
    assert worst == pytest.approx(epsilon, rel=1e-12)
    y = (np.zeros(n) + 0.5) / m
    rv = dp.SmoothedHistogramSample.dist(y, n_bins=m, smoothing=smoothing, n_released=k)
    assert dp.guarantee(rv) == dp.PrivacyGuarantee(epsilon)
    back = dp.SmoothedHistogramSample.dist(y, n_bins=m, epsilon=epsilon, n_released=k)
    assert back.owner.op.dist_params(back.owner)[1].eval() == pytest.approx(smoothing, rel=1e-12)
    # power: less smoothing would break the promise
    assert smoothed_epsilon(0.9 * smoothing, m, n, k) > 1.02 * epsilon


def test_published_inequality_is_not_private():
    """The printed one has - 1 for 1 +: the smoothing that it allows spends more than epsilon."""
    m, n, k, epsilon = 8, 250, 28, 10.0
    printed = m / (m + n * (math.exp(epsilon / k) + 1))  # solves k log((1 - d) m / (n d) - 1) = epsilon
    assert k * math.log((1 - printed) * m / (n * printed) - 1) == pytest.approx(epsilon)
    assert smoothed_epsilon(printed, m, n, k) > 2.5 * epsilon


@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 1.0, 50.0, 5000.0])
def test_smoothing_inverts_its_epsilon(epsilon):
    for m, n, k in ((2, 10, 1), (16, 250, 28), (1000, 10**9, 100)):
        smoothing = smoothing_for(epsilon, m, n, k) if epsilon / k < 600 else None
        if smoothing is not None:
            assert smoothed_epsilon(smoothing, m, n, k) == pytest.approx(epsilon, rel=1e-6)
    with pytest.raises(ValueError, match="gives a smoothing of 0 to machine precision"):
        smoothing_for(1e4, 2, 10, 1)
    with pytest.raises(ValueError, match="gives a smoothing of 1 to machine precision"):
        smoothing_for(1e-18, 2, 10, 1)


# -- draws --------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("error")  # numba would warn if it left native code
def test_draws_and_releases_follow_the_density(seeded_entropy):
    k, smoothing = 20_000, 0.3
    noise = {"n_bins": 4, "smoothing": smoothing, "n_released": k, "bounds": (-1, 1)}
    y = 2 * Y - 1
    rv = dp.SmoothedHistogramSample.dist(y, **noise)
    op = rv.owner.op
    expected = k * ((1 - smoothing) * COUNTS / 8 + smoothing / 4)
    for w in (
        pm.draw(rv, random_seed=1),
        op.rng_fn(np.random.default_rng(2), COUNTS, smoothing, 8.0),
        op.secure_draw(np.random.default_rng(3), COUNTS, np.array([smoothing]), np.array(8.0)),
        dp.SmoothedHistogramSample.release(y, **noise).value,
    ):
        assert w.shape == (k,) and w.min() >= -1 and w.max() <= 1
        bins = np.minimum((2 * (w + 1)).astype(int), 3)
        seen = np.bincount(bins, minlength=4)
        assert st.chisquare(seen, expected).pvalue > 1e-4
        # power: a bin with one record more
        other = k * ((1 - smoothing) * (COUNTS + MOVED) / 8 + smoothing / 4)
        assert st.chisquare(seen, other).pvalue < 1e-4
        # and less smoothing
        less = k * ((1 - 0.8 * smoothing) * COUNTS / 8 + 0.8 * smoothing / 4)
        assert st.chisquare(seen, less).pvalue < 1e-4
        assert st.kstest(2 * (w + 1) - bins, "uniform").pvalue > 1e-4  # even within the bins
    batch = op.rng_fn(np.random.default_rng(2), np.stack([COUNTS, COUNTS[::-1]]), smoothing, 8.0)
    assert batch.shape == (2, k) and (batch[0] > 0).mean() < 0.5 < (batch[1] > 0).mean() + 0.1


@pytest.mark.statistical
def test_number_released_is_told_by_observed_shape_or_dims():
    with pm.Model(coords={"draw_no": range(5)}) as model:
        y = pm.Beta("y", 2, 2, shape=8)
        noise = {"n_bins": 4, "epsilon": 2.0}
        by = {
            "observed": dp.SmoothedHistogramSample("a", y, **noise, observed=[0.1, 0.9]),
            "data": dp.SmoothedHistogramSample("b", y, **noise, observed=pm.Data("d", np.array([0.1, 0.9]))),
            "shape": dp.SmoothedHistogramSample("c", y, **noise, shape=2),
            "dims": dp.SmoothedHistogramSample("e", y, **noise, dims="draw_no"),
            "number": dp.SmoothedHistogramSample("f", y, **noise, n_released=2, observed=[0.1, 0.9]),
        }
        with pytest.raises(ValueError, match=r"shape \(2,\), but the query gives one of shape \(3,\)"):
            dp.SmoothedHistogramSample("g", y, **noise, n_released=3, observed=[0.1, 0.9])
    assert [rv.owner.op.n_released for rv in by.values()] == [2, 2, 2, 5, 2]
    assert all(dp.guarantee(rv) == dp.PrivacyGuarantee(2.0) for rv in by.values())
    logps = model.point_logps()
    assert logps["a"] == logps["b"] == logps["f"]
    assert (model.initial_point()["e"] == 0.5).all()
    prior = pm.sample_prior_predictive(30, model=model, random_seed=1)
    w = prior.prior_predictive["a"].values
    assert w.shape == (1, 30, 2) and ((w >= 0) & (w <= 1)).all()


def test_published_and_declared_again():
    release = dp.SmoothedHistogramSample.release(Y, n_bins=5, epsilon=3, n_released=7, bounds=(0, 2))
    again = dp.Release.from_json(release.to_json())
    with pm.Model() as model:
        y = pm.Beta("y", 2, 2, shape=8)
        z = dp.SmoothedHistogramSample("z", y, observed=again)
        dp.SmoothedHistogramSample("w", y, n_bins=5, epsilon=3, bounds=(0, 2), observed=again.value)
        with pytest.raises(ValueError, match="contradicts the release"):
            dp.SmoothedHistogramSample("v", y, n_bins=6, observed=again)
    assert dp.guarantee(z) == release.guarantee == dp.PrivacyGuarantee(3.0)
    logps = model.point_logps()
    assert logps["z"] == pytest.approx(logps["w"], rel=1e-12)
    (block,) = find_record_blocks(clone_model(model))
    assert [r.kind for r in block.releases] == ["central"] * 2


@pytest.mark.statistical
def test_posterior_is_that_of_enumeration():
    """Discrete records, whose histograms can be listed."""
    observed, smoothing = np.array([0.2, 0.3, 0.9, 0.25]), 0.1
    check_histogram_posterior(
        lambda x: dp.SmoothedHistogramSample(
            "w", x, n_bins=3, smoothing=smoothing, bounds=(0, 3), observed=3 * observed
        ),
        lambda counts: math.exp(by_hand(observed, counts, smoothing).sum()),
    )


# -- messages -----------------------------------------------------------------------------------------

GOOD = {"n_bins": 4, "epsilon": 1, "n_released": 2}
BAD = {
    "no noise level": ({"epsilon": None}, ValueError, "got none. Choose smoothing=, or epsilon="),
    "two noise levels": ({"smoothing": 0.1}, ValueError, "got both smoothing= and epsilon="),
    "smoothing zero": (
        {"epsilon": None, "smoothing": 0.0},
        ValueError,
        "smoothing must be strictly between 0",
    ),
    "smoothing one": ({"epsilon": None, "smoothing": 1}, ValueError, "smoothing must be strictly between 0"),
    "smoothing random": (
        {"epsilon": None, "smoothing": pt.scalar()},
        TypeError,
        "smoothing must be one real",
    ),
    "epsilon zero": ({"epsilon": 0}, ValueError, "epsilon must be a finite number > 0"),
    "epsilon nan": ({"epsilon": math.nan}, ValueError, "epsilon must be a finite number > 0"),
    "epsilon too large": ({"epsilon": 1e5}, ValueError, "gives a smoothing of 0"),
    "no bins": ({"n_bins": None}, ValueError, "needs n_bins="),
    "one bin": ({"n_bins": 1}, ValueError, "n_bins must be a whole number from 2"),
    "no number": ({"n_released": None}, ValueError, "needs n_released="),
    "none released": ({"n_released": 0}, ValueError, "n_released must be a whole number from 1"),
    "bounds reversed": ({"bounds": (2, 0)}, ValueError, "lo < hi"),
    "unknown keyword": ({"sensitivity": 2}, TypeError, "unexpected keyword argument 'sensitivity'"),
}


@pytest.mark.parametrize(("kwargs", "error", "message"), BAD.values(), ids=BAD)
def test_bad_arguments(kwargs, error, message):
    with pytest.raises(error, match=message):
        dp.SmoothedHistogramSample.dist(Y, **(GOOD | kwargs))


def test_bad_queries_and_observed():
    with pm.Model():
        y = pm.Beta("y", 2, 2, shape=4)
        pairs = pm.Beta("pairs", 2, 2, shape=(4, 2))
        for query in (pairs, pairs.sum(0), y.cumsum(), y.sum()):
            with pytest.raises(ValueError, match="SmoothedHistogramSample needs a query of one number per"):
                dp.SmoothedHistogramSample("z", query, **GOOD)
        for observed in ([0.5, 1.2], pm.Data("data", np.array([0.5, 1.2]))):
            with pytest.raises(
                ValueError, match=r"1 of 2 values outside of bounds = \(0, 1\), the first being 1.2"
            ):
                dp.SmoothedHistogramSample("z", y, **GOOD, observed=observed)
        with pytest.raises(ValueError, match="observed has 1 missing"):
            dp.SmoothedHistogramSample("z", y, **GOOD, observed=[0.5, np.nan])
        with pytest.raises(ValueError, match="observed means a release of shape"):
            dp.SmoothedHistogramSample("z", y, **GOOD, observed=np.full((2, 2), 0.5))
