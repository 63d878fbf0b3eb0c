"""Truncated counts against the probabilities of their law, in machine code and in plain Python."""

import inspect

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.exceptions import TruncationError
from pytensor.tensor.random import basic as ptr
from scipy import stats

from pymc_dp.lowering.addresses.modes import own_mode
from pymc_dp.lowering.functions import truncated_counts
from pymc_dp.lowering.functions.truncated_counts import LAWS, truncated_count

POISSON, BINOMIAL, NEGATIVE_BINOMIAL = ptr.PoissonRV, ptr.BinomialRV, ptr.NegBinomialRV
EXACT = {POISSON: stats.poisson, BINOMIAL: stats.binom, NEGATIVE_BINOMIAL: stats.nbinom}
# parameters, and ends that hold most of the law, next to none of it above or below, or one number
CASES = [
    (POISSON, (2.3,), (1, np.inf)), (POISSON, (2.3,), (11, np.inf)), (POISSON, (2.3,), (400, 500)),
    (POISSON, (300.0,), (0, 250)), (POISSON, (300.0,), (299.5, 300.5)), (POISSON, (300.0,), (220, 225)),
    (POISSON, (0.001,), (2, np.inf)), (POISSON, (1e6,), (-np.inf, 996_000)),
    (BINOMIAL, (20, 0.1), (8, np.inf)), (BINOMIAL, (20, 0.9), (-np.inf, 12.5)), (BINOMIAL, (7, 0.4), (2, 4)),
    (NEGATIVE_BINOMIAL, (0.4, 0.2), (1, 6)), (NEGATIVE_BINOMIAL, (0.4, 0.2), (40, np.inf)),
    (NEGATIVE_BINOMIAL, (5.0, 0.001), (-np.inf, 400)),
]  # fmt: skip


def wrong(law, seed, draw=None, n=20_000):
    """Return the p-value of a comparison of draws with the probabilities, in at most 30 bins."""
    kind, parameters, (lower, upper) = law
    draw, rng = draw or LAWS[kind][0], np.random.default_rng(seed)
    draws = np.array([draw(rng, *parameters, float(lower), float(upper)) for _ in range(n)])
    whole = EXACT[kind](*parameters)
    if draws.min() < max(lower, 0) or draws.max() > upper:
        return 0.0
    near = np.arange(max(np.ceil(lower), draws.min() - 2000, 0), min(np.floor(upper), draws.max() + 2000) + 1)
    p = np.exp(whole.logpmf(near) - whole.logpmf(near).max())
    cdf = np.cumsum(p / p.sum())
    inner = np.unique(np.searchsorted(cdf, np.linspace(20 / n, 1 - 20 / n, 29)))
    ends = near[inner[cdf[inner] < 1 - 10 / n]]  # each bin holds them and what is below, up to the next
    if not ends.size:
        return 1.0
    expected = np.diff(np.r_[0.0, cdf[np.searchsorted(near, ends)], 1.0]) * n
    found = np.bincount(np.searchsorted(ends, draws), minlength=ends.size + 1)
    return stats.chi2.sf(np.sum((found - expected) ** 2 / expected), ends.size)


@pytest.mark.parametrize("law", CASES, ids=lambda law: f"{law[0].__name__} {law[1]} {law[2]}")
def test_draws_have_the_probabilities_of_the_law(law):
    assert wrong(law, 1) > 1e-4 / len(CASES)


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("written", "fault", "law"),
    [
        ("share = ratio(at, *law) if", "share = ratio(at + 2.0, *law) if", CASES[1]),
        ("at, n_up = at + 1.0", "at, n_up = at + 2.0", CASES[1]),
        ("share = 1.0 / ratio(at - 1.0, *law)", "share = 1.0 / ratio(at, *law)", CASES[9]),
        ("at, n_down = at - 1.0", "at, n_down = at + 0.0", CASES[5]),
        ("np.ceil(numbers[-2])", "np.ceil(numbers[-2]) + 1.0", CASES[1]),
        ("least <= k <= most", "k <= most", CASES[10]),
        ("range(TRIALS)", "range(TRIALS - 9)", None),  # none: what follows is exact by itself
    ],
    ids=["ratio further up", "by two", "ratio below", "stays", "end left out", "beyond an end", "no fault"],
)
def test_faults_are_seen(written, fault, law):
    source = inspect.getsource(truncated_counts._truncated)
    assert written in source
    scope = dict(vars(truncated_counts), njit=lambda function: function, random=lambda rng: rng.random())
    exec(source.replace(written, fault), scope)
    kind = (law or CASES[8])[0]
    name = {POISSON: "poisson", BINOMIAL: "binomial", NEGATIVE_BINOMIAL: "negative_binomial"}[kind]
    parts = (scope[part] for part in (f"_{name}", f"_{name}_mode", f"{name}_ratio"))
    plain = [getattr(part, "py_func", part) for part in parts]
    draw = scope["_truncated"](*plain)
    p_value = wrong(law or CASES[8], 2, draw, n=10_000)
    assert p_value > 1e-3 if law is None else p_value < 1e-6


@pytest.mark.parametrize(
    ("kind", "numbers"),
    [
        (POISSON, (np.nan, 1, 6)), (POISSON, (np.inf, 1, 6)), (POISSON, (-1.0, 0, 3)), (POISSON, (2.0, 5, 4)),
        (POISSON, (2.0, np.nan, 4)), (POISSON, (2.0, 0, np.nan)), (BINOMIAL, (5, np.nan, 1, 4)),
        (BINOMIAL, (5, 1.5, 1, 4)), (NEGATIVE_BINOMIAL, (5, 0.0, 1, 4)),
        (NEGATIVE_BINOMIAL, (0.0, 0.5, 1, 4)),
        (NEGATIVE_BINOMIAL, (np.inf, 0.5, 1, 4)), (NEGATIVE_BINOMIAL, (2.0, 1e-30, 1, 4)),
    ],
)  # fmt: skip
def test_without_a_law_there_is_no_count(kind, numbers):
    """And it comes to an end."""
    assert LAWS[kind][0](np.random.default_rng(1), *numbers[:-2], *map(float, numbers[-2:])) == -1


def test_laws_that_are_spread_over_many_counts():
    """Over more than are summed up, beyond an end: as exponential times, which forget what was before."""
    rng, end = np.random.default_rng(1), 2e9
    draws = np.array([LAWS[NEGATIVE_BINOMIAL][0](rng, 1.0, 1e-9, end, np.inf) for _ in range(1000)])
    assert draws.min() >= end
    assert stats.kstest((draws - end) / 1e9, stats.expon.cdf).pvalue > 1e-3


@pytest.mark.parametrize("kind", LAWS)
def test_laws_without_mass_within_the_ends_come_to_an_end(kind):
    numbers = {POISSON: (0.0,), BINOMIAL: (5, 0.0), NEGATIVE_BINOMIAL: (2.0, 1.0)}[kind]
    rng = np.random.default_rng(1)
    assert LAWS[kind][0](rng, *numbers, 3.0, np.inf) == 3  # it has no density there


def test_arrays_are_drawn_where_pymc_ends_in_an_error():
    mean = pt.vector("mean")
    law = pm.Truncated.dist(pm.Poisson.dist(mean), lower=9, upper=12, shape=(4000, 2), max_n_steps=10)
    with pytest.raises(TruncationError):
        pytensor.function([mean], law)(np.array([0.5, 60.0]))
    draws = pytensor.function([mean], law, mode=own_mode())(np.array([0.5, 60.0]))
    assert draws.shape == (4000, 2)
    for k, mu in enumerate((0.5, 60.0)):
        at = np.arange(9, 13)
        p = stats.poisson.pmf(at, mu) / stats.poisson.pmf(at, mu).sum()
        found = np.array([(draws[:, k] == value).mean() for value in at])
        assert (np.abs(found - p) < 5 * np.sqrt(p * (1 - p) / 4000) + 1e-3).all()


def test_other_laws_are_left_to_pymc():
    assert truncated_count(pm.Truncated.dist(pm.Geometric.dist(0.2), lower=3).owner) is None
    assert truncated_count(pm.Truncated.dist(pm.Normal.dist(), lower=3).owner) is None
    assert truncated_count(pm.Poisson.dist(2).owner) is None
