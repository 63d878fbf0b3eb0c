"""Densities of truncated counts against sums of probabilities, far out in tails as well as in the middle."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.tensor.random import basic as ptr
from scipy import special, stats

from pymc_dp.lowering.addresses.modes import own_mode
from pymc_dp.lowering.functions import truncated_masses
from pymc_dp.lowering.functions.truncated_masses import log_mass, with_all_digits

POISSON, BINOMIAL, NEGATIVE_BINOMIAL = ptr.PoissonRV, ptr.BinomialRV, ptr.NegBinomialRV
EXACT = {POISSON: stats.poisson, BINOMIAL: stats.binom, NEGATIVE_BINOMIAL: stats.nbinom}
INF = np.inf
# parameters and ends: most of a law, next to none of it on either side, one number, all that can be
CASES = [
    (POISSON, (2.3,), (1, INF)), (POISSON, (2.3,), (11, INF)), (POISSON, (2.3,), (150, INF)),
    (POISSON, (300.0,), (0, 250)), (POISSON, (300.0,), (299.5, 300.5)), (POISSON, (300.0,), (100, 105)),
    (POISSON, (300.0,), (500, 520)), (POISSON, (0.001,), (15, 22)), (POISSON, (0.8,), (15, 22)),
    (POISSON, (1e6,), (-INF, 996_000)), (POISSON, (1e6,), (1_004_000, INF)), (POISSON, (0.0,), (0, 3)),
    (POISSON, (2.3,), (-INF, INF)), (BINOMIAL, (20, 0.1), (8, INF)), (BINOMIAL, (20, 0.9), (-INF, 12.5)),
    (BINOMIAL, (7, 0.4), (2, 4)), (BINOMIAL, (2000, 0.01), (200, 210)), (BINOMIAL, (2000, 0.3), (200, 210)),
    (BINOMIAL, (20, 0.1), (20, 25)), (BINOMIAL, (20, 0.5), (0, 20)), (BINOMIAL, (0, 0.5), (0, 3)),
    (BINOMIAL, (20, 1.0), (3, 20)), (NEGATIVE_BINOMIAL, (0.4, 0.2), (1, 6)),
    (NEGATIVE_BINOMIAL, (0.4, 0.2), (40, INF)), (NEGATIVE_BINOMIAL, (5.0, 0.001), (-INF, 400)),
    (NEGATIVE_BINOMIAL, (5.0, 0.4), (200, 205)), (NEGATIVE_BINOMIAL, (5.0, 0.01), (3, 4)),
]  # fmt: skip


def summed(kind, law, lower, upper):
    """Log of the sum of the probabilities between two ends, from the likeliest of them on."""
    whole = EXACT[kind](*law)
    least, most = max(np.ceil(lower), 0.0), np.floor(upper)
    top = min(max(np.floor(whole.mean()), least), most)
    reach = 40 * whole.std() + 1000
    return special.logsumexp(whole.logpmf(np.arange(max(least, top - reach), min(most, top + reach) + 1)))


def wrong(case, module=truncated_masses, constant_ends=False):
    """Return by how much a log mass differs from the sum."""
    kind, law, ends = case
    numbers = [pt.dscalar() for _ in law]
    limits = [pt.constant(float(e)) for e in ends] if constant_ends else [pt.dscalar(), pt.dscalar()]
    inputs = [*numbers, *([] if constant_ends else limits)]
    compiled = pytensor.function(
        inputs, module.log_mass(kind, numbers, *limits), mode=own_mode(), on_unused_input="ignore"
    )
    values = [*law, *([] if constant_ends else ends)]
    return abs(float(compiled(*map(float, values))) - summed(*case[:2], *ends))


@pytest.mark.compiles(2)
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0].__name__} {case[1]} {case[2]}")
@pytest.mark.parametrize("constant_ends", [False, True])
def test_masses_are_sums_of_probabilities(case, constant_ends):
    # 1e-10 is what differences of logarithms of gamma functions of a million leave of SciPy's own sum
    assert wrong(case, constant_ends=constant_ends) < (1e-10 if max(case[1]) < 1e5 else 1e-7)


@pytest.mark.parametrize("ends", [(-4.3, -0.5), (-np.inf, -1.0)])
def test_no_count_is_below_zero(ends):
    mass = log_mass(POISSON, [pt.constant(3.0, dtype="float64")], *map(pt.constant, ends))
    assert mass.eval() == -np.inf


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("name", "fault", "case"),
    [
        ("_poisson_above", lambda k, mean: 1.0 - pt.gammaincc(k + 1.0, mean), CASES[2]),  # what PyMC has
        ("_poisson_above", lambda k, mean: pt.gammainc(k, mean), CASES[1]),
        ("_binomial_below", lambda k, n, p: pt.betainc(n - k, k, 1.0 - p), CASES[15]),
        ("_negative_binomial_above", lambda k, n, p: pt.betainc(k + 1.0, n, p), CASES[23]),
    ],
    ids=["no digits", "one count further", "one count less", "probabilities exchanged"],
)
def test_faults_are_seen(name, fault, case, monkeypatch):
    tails = {
        kind: tuple(fault if tail.__name__ == name else tail for tail in pair)
        for kind, pair in truncated_masses._TAILS.items()
    }
    monkeypatch.setattr(truncated_masses, "_TAILS", tails)
    assert not wrong(case) < 1e-10


LAWS = {
    "Poisson": (lambda a: pm.Poisson.dist(a), 3.0),
    "binomial": (lambda a: pm.Binomial.dist(12, pm.math.sigmoid(a)), 0.4),
    "negative binomial": (lambda a: pm.NegativeBinomial.dist(mu=a, alpha=2 * a), 2.0),
}


@pytest.mark.compiles(3)
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("ends", [(1, None), (None, 6), (2, 5), (2.5, 4.5)])
def test_densities_and_slopes_are_those_of_pymc_where_it_has_digits(law, ends):
    build, at = LAWS[law]
    a, value = pt.dscalar("a"), np.arange(-1, 9)
    rv = pm.Truncated.dist(build(a), lower=ends[0], upper=ends[1], shape=value.size)
    theirs, ours = pm.logp(rv, value), pm.logp(with_all_digits(rv), value)
    inside = (value >= (ends[0] or 0)) & (value <= (ends[1] or np.inf))
    slopes = [pt.grad(pt.sum(logp[inside]), a) for logp in (theirs, ours)]
    # ends that are no whole numbers: PyMC divides by what is from 1.5 on, where 2.5 leaves out two counts
    whole = all(e is None or e == int(e) for e in ends)
    found = pytensor.function([a], [theirs, ours, *slopes], mode=own_mode())(at)
    expected = found[0] if whole else found[1] - special.logsumexp(found[1])
    np.testing.assert_allclose(found[1], expected, rtol=1e-12, atol=1e-12)
    if whole:
        np.testing.assert_allclose(found[3], found[2], rtol=1e-6)  # slopes of incomplete beta functions


def test_laws_made_of_truncated_counts_are_changed_inside():
    rate = pt.dscalar("rate")
    hurdle = pm.HurdlePoisson.dist(0.3, rate, shape=4)
    k = np.arange(4)
    theirs, ours = (pm.logp(rv, k).eval({rate: 1e-14}) for rv in (hurdle, with_all_digits(hurdle)))
    expected = np.log([0.7, 0.3, 0.3 * 1e-14 / 2, 0.3 * 1e-28 / 6])
    assert ours == pytest.approx(expected, rel=1e-9)
    assert theirs != pytest.approx(expected, rel=1e-6)
    normal = pm.Normal.dist()
    assert with_all_digits(normal) is normal


def test_ends_that_cross_are_refused():
    low = pt.dscalar("low")
    rv = with_all_digits(pm.Truncated.dist(pm.Poisson.dist(2.0), lower=low, upper=3))
    assert np.isfinite(pm.logp(rv, 3).eval({low: 3.0}))
    with pytest.raises(Exception, match="lower_bound <= upper_bound"):
        pm.logp(rv, 3).eval({low: 4.0})
