"""Discrete records added up over their values in joint sweeps, beside posteriors by enumeration."""

from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from zlib import crc32

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import special, stats

import pymc_dp as dp
from pymc_dp.lowering.addresses.bind import part_of_kernel
from pymc_dp.step_methods.mixture import conjugate_atoms
from pymc_dp.step_methods.mixture.released import closed_release
from tests.mixtures import exact, small
from tests.mixtures.samplers import ALL_SAMPLERS, CLOSED_SAMPLERS, SAMPLERS
from tests.mixtures.small import Urn

# Some twenty verdicts.
ALPHA = 1e-5
DRAWS = 10_000  # as many as planted errors need to be seen
A, B = 1.5, 0.8
BITS, NOISY = np.array([0, 1, 1, 0, 1]), np.array([-1.2, 0.4, 2.5, 1.1, 1.0])
UNARY = np.array([[1, 0, 0], [0, 0, 1], [1, 1, 1], [0, 1, 0], [0, 0, 1]])
COUNTS = np.array([-3, 0, 2, 9, 19])
FAR, LEVELS = np.array([-9900, 0, 2, 9, 19]), np.array([70.0, 2.0, 2.0, 2.0, 2.0])


def probabilities(f, log_q):
    """What is known of the posterior, from the mass of each value (p) -> (K, G) and log q (n, K)."""
    t, h = np.linspace(-45, 30, 3001, retstep=True)
    p = special.expit(t)
    log_w = stats.beta.logpdf(p, A, B) + np.log(p) + special.log_expit(-t) + np.log(h)
    return with_values(np.arange(log_q.shape[1]), f(p), log_q, log_w)


def with_values(values, f, log_q, log_w):
    q = np.exp(log_q - log_q.max(axis=1, keepdims=True))  # what all values have in common changes nothing
    g = q @ f
    mean = (q * values) @ f / g
    var = (q * values**2) @ f / g - mean**2
    return exact.Released(log_w.shape, log_w, np.log(g), mean, var, lambda x: f[np.asarray(x, dtype=int)])


def answers(p):
    return np.stack([1 - p, p])


def genotypes(p):
    return np.stack([(1 - p) ** 2, 2 * p * (1 - p), p**2])


def counts(released, sigma):
    t, h = np.linspace(-25, 6, 2001, retstep=True)
    y, rate = np.arange(200), np.exp(t)
    log_w = stats.gamma.logpdf(rate, 2, scale=2.5) + t + np.log(h)
    log_q = -0.5 * ((released - y[:, None]) / sigma).T ** 2
    return with_values(y, stats.poisson.pmf(y[:, None], rate), log_q, log_w)


def two_releases(labels, slots):
    p = pm.Beta("p", A, B, shape=slots)
    y = pm.Bernoulli("y", p[labels])
    dp.RandomizedResponse("z", y, epsilon=1.0, observed=BITS)
    dp.LaplaceMechanism("w", 2.0 * y, scale=1.5, observed=NOISY)


def log_q_of_two():
    answer = np.where(BITS[:, None] == [0, 1], 1, 0) - np.log1p(np.e)
    return answer - abs(NOISY[:, None] - [0.0, 2.0]) / 1.5 - np.log(3.0)


def one_of_three(labels, slots):
    p = pm.Beta("p", A, B, shape=slots)[labels]
    y = pm.Categorical("y", p=pt.stack([(1 - p) ** 2, 2 * p * (1 - p), p**2], axis=-1))
    dp.UnaryEncoding("z", y, epsilon=2.0, n_categories=3, observed=UNARY)


def by_softmax(labels, slots):
    p = pm.Beta("p", A, B, shape=slots)[labels]
    logs = pt.stack([2 * pt.log1p(-p), np.log(2) + pt.log(p) + pt.log1p(-p), 2 * pt.log(p)], axis=-1)
    y = pm.Categorical("y", p=pm.math.softmax(logs, axis=-1))
    dp.UnaryEncoding("z", y, epsilon=2.0, n_categories=3, observed=UNARY)


ALPHAS = np.array([1.5, 0.8, 2.0])
ANSWERS = np.array([0, 2, 2, 1, 0])


def any_of_three(labels, slots):
    p = pm.Dirichlet("p", ALPHAS, shape=(slots, 3))
    y = pm.Categorical("y", p=p[labels])
    dp.RandomizedResponse("z", y, epsilon=2.0, n_categories=3, observed=ANSWERS)


def three_probabilities():
    """By the first probability, and the share of the second in what is left."""
    t, h = np.linspace(-32, 22, 361, retstep=True)
    a, b = special.expit(t)[:, None], special.expit(t)
    log_w = special.log_expit(t)[:, None] + special.log_expit(-t)[:, None] + special.log_expit(t)
    log_w = log_w + special.log_expit(-t) + 2 * np.log(h) + stats.beta.logpdf(a, ALPHAS[0], ALPHAS[1:].sum())
    log_w = log_w + stats.beta.logpdf(b, *ALPHAS[1:])
    p = np.stack([a + 0 * b, (1 - a) * b, (1 - a) * (1 - b)])
    log_q = np.where(ANSWERS[:, None] == [0, 1, 2], 2.0, 0.0)
    known = with_values(np.arange(3), p.reshape(3, -1), log_q, log_w.ravel())
    return replace(known, shape=log_w.shape)


def each_of_three(p):
    """Of draws, (..., 3); the quadrature has its own."""
    return np.moveaxis(np.asarray(p), -1, 0)


def log_q_of_bits():
    right = UNARY[:, None, :] == np.eye(3)
    return np.where(right, -np.log1p(np.exp(-1.0)), -np.log1p(np.e)).sum(axis=2)


def gaussian_counts(released, sigma):
    def declare(labels, slots):
        rate = pm.Gamma("rate", 2, 0.4, shape=slots)
        dp.DiscreteGaussianMechanism("z", pm.Poisson("y", rate[labels]), sigma=sigma, observed=released)

    return declare


BETA_MEAN = {"p": (lambda a: a["p"], A / (A + B))}
DIRICHLET_MEAN = {"p": (lambda a: a["p"][..., 0], ALPHAS[0] / ALPHAS.sum())}
GAMMA_MEAN = {"rate": (lambda a: np.exp(-a["rate"]), (1 + 1 / 0.4) ** -2.0)}


def zero_or_one(rate):
    return stats.poisson.pmf([[[0]], [[1]]], rate)


def _at(f, name):
    return lambda x, point: f(point[name])[int(x)]


CASES = {
    "two releases": (two_releases, lambda: probabilities(answers, log_q_of_two()), answers, BETA_MEAN),
    "categories": (one_of_three, lambda: probabilities(genotypes, log_q_of_bits()), genotypes, BETA_MEAN),
    "softmax": (by_softmax, lambda: probabilities(genotypes, log_q_of_bits()), genotypes, BETA_MEAN),
    "Dirichlet": (any_of_three, three_probabilities, each_of_three, DIRICHLET_MEAN),
    "counts": (gaussian_counts(COUNTS, 2.0), lambda: counts(COUNTS, 2.0), zero_or_one, GAMMA_MEAN),
    # any count is ten thousand nats away from the first release
    "far counts": (gaussian_counts(FAR, LEVELS), lambda: counts(FAR, LEVELS), zero_or_one, GAMMA_MEAN),
}
URNS = [Urn(1.0), Urn(1.0, 0.3), Urn(0.5), Urn(3.0)]
# categories are no other test's kernel
ROWS = [(case, sampler) for case in CASES for sampler in CLOSED_SAMPLERS]
ROWS += [(case, sampler) for case in ("categories", "Dirichlet") for sampler in SAMPLERS]


@pytest.mark.statistical
@pytest.mark.parametrize(("case", "sampler"), ROWS)
def test_posterior_is_exact(case, sampler):
    draws = 2000 if case.startswith("far") else DRAWS  # ten thousand terms for the first record
    urn = URNS[ROWS.index((case, sampler)) % len(URNS)]
    verdict = verdict_on(case, sampler, urn, draws, shared(case))
    assert verdict.passed, verdict


def declared(case, slots=7):
    """The model in PyMC, for any of the urns."""
    with pm.Model() as model:
        CASES[case][0](URNS[0].labels(5, slots), slots)
    return model


shared, exactly = cache(declared), cache(lambda case: CASES[case][1]())


def verdict_on(case, sampler, urn, draws, model):
    declare, _, f, unchanging = CASES[case]
    known, seed, keep = exactly(case), crc32(f"{case} {sampler}".encode()), model is shared(case)
    chain = small.Chain(model, ALL_SAMPLERS[sampler], urn, draws, seed, keep=keep)
    kernel = small.Kernel(declare, _at(f, next(iter(unchanging))), (0.0, 1.0), unchanging)
    return small.compare(chain, kernel, known, urn.posterior(known), ALPHA)


def _half_a_record_more(patch):
    draw = part_of_kernel(lambda rng, c, a, b: max(rng.standard_gamma(a + 1.4), 1e-300))
    patch.setitem(conjugate_atoms._DRAWS, "probability", draw)
    return [draw]


def _not_divided(patch):
    """Draws of one cycle are divided when they are stored."""
    rows = []
    patch.setattr(conjugate_atoms, "_with_row", lambda before, numbers: rows.append(numbers) or before)
    return rows


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("fault", "sampler"), [(_half_a_record_more, "joint"), (_not_divided, "kept splits")],
    ids=["half a record more", "not divided"],
)  # fmt: skip
def test_wrong_probabilities_are_rejected(monkeypatch, fault, sampler):
    planted = fault(monkeypatch)
    verdict = verdict_on("Dirichlet", sampler, Urn(1.0), DRAWS, declared("Dirichlet"))
    assert planted
    assert verdict.outcome == "rejected"


def test_known_records_are_not_added_up():
    with pm.Model():
        y = pm.Poisson("y", 1.0, shape=3)
    block = SimpleNamespace(releases=[], records=[y], terms=[], potentials=[])
    assert isinstance(closed_release(block, y, {}), str)


@pytest.mark.parametrize("case", CASES)
def test_quadrature_has_converged(case):
    assert CASES[case][1]().error() < 1e-6
