"""Bases that reach outside of the kernel's domain: no record has a density there, and none is drawn.

PyMC says that a beta law with a negative shape is an error, or of density zero; the expression of its density
is finite all the same. Posteriors are those of the atoms inside of the domain. Atoms of free slots have the
law of the base, wherever they are.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from zlib import crc32

import numpy as np
import pymc as pm
import pytest
from scipy import special, stats

import pymc_dp as dp
from pymc_dp.lowering.rows import domains
from pymc_dp.step_methods import record_step
from tests.mixtures import exact, small
from tests.mixtures.samplers import ALL_KNOWN, ALL_SAMPLERS
from tests.mixtures.small import Kernel, Urn

pytestmark = pytest.mark.compiles(1)

DRAWS, URN, N, SLOTS = 10_000, Urn(1.0), 3, 5
# One atom in four is outside of the domain.
MEAN, SD, SCALE = 0.7, 1.0, 0.3
POINTS = (0.1, 0.5, 0.8)
# Shapes of single records: a record has no law under atoms that others have one under.
SHIFT = np.array([0.0, 0.5, 1.0])
OF_NORMAL = {"a": (lambda p: p["a"], MEAN), "a^2": (lambda p: p["a"] ** 2, MEAN**2 + SD**2)}


@dataclass(frozen=True)
class Case:
    """A kernel, the first axis of its atoms being normal.

    declare(labels, a, known): the records. pdf(x, *atoms): density inside of the domain. ends: of the domain
    of each record. release: of the records, with the density of what is released and moments of the records
    given that, (3, n, G), as functions of the nodes.
    """

    declare: Callable
    pdf: Callable
    x: Sequence[float] = (0.1, 0.8, 4.0)
    ends: tuple[float, ...] = (0.0,)
    release: Callable | None = None
    released: Callable | None = None
    with_rate: bool = False


def _gamma_pdf(x, a, rate=1.0):
    return rate**a * x ** (a - 1) * np.exp(-rate * x) / special.gamma(a)


def _beta_pdf(x, a):
    return x ** (a - 1) * (1 - x) * a * (a + 1)


def _wald_pdf(x, mu):
    return np.sqrt(1 / (2 * np.pi * x**3)) * np.exp(-((x - mu) ** 2) / (2 * mu**2 * x))


def _normal_behind_noise(z, s, order):
    """N(0, s^2) behind Gaussian noise."""
    total = s**2 + SCALE**2
    g, mean = stats.norm.pdf(z[:, None], 0, np.sqrt(total)), z[:, None] * s**2 / total
    return np.array([g, g * mean, g * (mean**2 + s**2 * SCALE**2 / total)])


def _beta_behind_noise(z, a, order):
    return exact.beta_given_release(z, a, 2.0 + 0 * a, SCALE, order=order)


BETA_X = (0.05, 0.3, 0.9)
CASES = {
    "Beta": Case(lambda labels, a, **k: pm.Beta("y", a[labels], 2.0, **k), _beta_pdf, BETA_X),
    "Gamma": Case(lambda labels, a, **k: pm.Gamma("y", a[labels], 1.0, **k), _gamma_pdf),
    # its density is no polynomial in numbers of the record
    "Wald": Case(lambda labels, a, **k: pm.Wald("y", a[labels], 1.0, **k), _wald_pdf),
    "Gamma of each record": Case(
        lambda labels, a, **k: pm.Gamma("y", a[labels] + SHIFT, 1.0, **k), _gamma_pdf, ends=tuple(-SHIFT)
    ),
    # a rate with a known law, beside a shape without one
    "Gamma of two atoms": Case(
        lambda labels, a, **k: pm.Gamma("y", a[labels], pm.Gamma("b", 2, 2, shape=SLOTS)[labels], **k),
        _gamma_pdf,
        with_rate=True,
    ),
    "Beta behind noise": Case(
        lambda labels, a: pm.Beta("y", a[labels], 2.0),
        _beta_pdf,
        BETA_X,
        release=lambda y, z: dp.LaplaceMechanism("z", y, scale=SCALE, observed=z),
        released=lambda z, a, order: _beta_behind_noise(z, a, order),
    ),
    "Beta of each record behind noise": Case(
        lambda labels, a: pm.Beta("y", a[labels] + SHIFT, 2.0),
        _beta_pdf,
        BETA_X,
        tuple(-SHIFT),
        release=lambda y, z: dp.LaplaceMechanism("z", y, scale=SCALE, observed=z),
        released=lambda z, a, order: np.concatenate(
            [_beta_behind_noise(z[i : i + 1], np.maximum(a + s, 1e-9), order) for i, s in enumerate(SHIFT)],
            axis=1,
        ),
    ),
    "Normal behind noise": Case(
        lambda labels, a: pm.Normal("y", 0, a[labels]),
        lambda x, s: stats.norm._pdf(x / s) / s,
        release=lambda y, z: dp.GaussianMechanism("z", y, sigma=SCALE, observed=z),
        released=_normal_behind_noise,
    ),
}  # fmt: skip


def model_of(case):
    what = CASES[case]
    with pm.Model() as model:
        labels = URN.labels(N, SLOTS)
        a = pm.Normal("a", MEAN, SD, shape=SLOTS)
        if what.release is None:
            what.declare(labels, a, observed=np.array(what.x))
        else:
            what.release(what.declare(labels, a), np.array(what.x))
    return model


def _nodes(ends, order):
    """Gauss-Legendre nodes of a normal axis above the lowest end, with the logarithms of their weights."""
    x, w = np.polynomial.legendre.leggauss(order)
    breaks = np.unique([*ends, *(max(ends) + np.array([0.05, 0.2, 0.6, 1.5, 3, 6, 10]))])
    half = np.diff(breaks)[:, None] / 2
    a = (breaks[:-1, None] + half * (1 + x)).ravel()
    return a, np.log((half * w).ravel()) + stats.norm.logpdf(a, MEAN, SD)


@cache
def released_by(case, order=40):
    """Atoms inside of the domain as nodes, and one more for all those that are outside."""
    what = CASES[case]
    x = np.array(what.x)
    a, log_w = _nodes(what.ends, order)
    atoms = (a,)
    if what.with_rate:
        log_b, log_v = exact._log_gamma_axis(2, 2, 4 / order)
        atoms = tuple(m.ravel() for m in np.meshgrid(a, np.exp(log_b), indexing="ij"))
        log_w = (log_w[:, None] + log_v).ravel()
    ends = np.resize(what.ends, N)[:, None]
    shifted = np.maximum(atoms[0] - ends, 1e-9)
    with np.errstate(divide="ignore"):
        if what.released is None:
            log_g = np.log(what.pdf(x[:, None], shifted, *atoms[1:]))
            mean, var = np.broadcast_to(x[:, None], log_g.shape), np.zeros(log_g.shape)
        else:
            g, first, second = what.released(x, a, order)
            log_g, mean = np.log(g), first / g
            var = second / g - mean**2
    beside = ((0, 0), (0, 1))
    return exact.Released(
        (len(log_w) + 1,),
        np.append(log_w, stats.norm.logcdf((min(what.ends) - MEAN) / SD)),
        np.pad(np.where(atoms[0] > ends, log_g, -np.inf), beside, constant_values=-np.inf),
        np.pad(mean, beside),
        np.pad(var, beside),
        lambda points: np.pad(
            np.where(atoms[0] > 0, what.pdf(points[:, None], np.maximum(atoms[0], 1e-9), *atoms[1:]), 0.0),
            beside,
        ),
    )


def kernel_of(case):
    what = CASES[case]

    def density(x, point):
        a, *more = (point[name] for name in ("a", "b") if name in point)
        return np.where(a > 0, what.pdf(x, np.where(a > 0, a, 1.0), *more), 0.0)

    return Kernel(None, density, POINTS, OF_NORMAL)


shared = cache(model_of)


def chain_of(case, sampler, model, draws=DRAWS):
    seed = crc32(f"{case} {sampler.__name__}".encode())
    return small.Chain(model, sampler, URN, draws, seed, keep=model is shared(case))


def check(case, sampler):
    chain, released = chain_of(case, sampler, shared(case)), released_by(case)
    verdict = small.compare(chain, kernel_of(case), released, URN.posterior(released))
    assert verdict.passed, verdict
    own = np.take_along_axis(chain.atoms["a"], chain.labels, axis=1)
    assert (own > np.resize(CASES[case].ends, N)).all()


@pytest.mark.parametrize("sampler", ["neal 8", "split-merge"])
@pytest.mark.parametrize("case", [name for name, what in CASES.items() if what.release is None])
def test_posterior_of_known_records_is_exact(case, sampler):
    check(case, ALL_KNOWN[sampler])


@pytest.mark.statistical
@pytest.mark.parametrize(
    "case, sampler",
    [
        *(("Beta behind noise", s) for s in ("auto", "slice", "joint", "joint of 2", "conditional")),
        *(("Beta of each record behind noise", s) for s in ("auto", "slice", "auto of 2")),
        *(("Normal behind noise", s) for s in ("auto closed", "closed", "joint of 5")),
    ],
)
def test_posterior_of_released_records_is_exact(case, sampler):
    check(case, ALL_SAMPLERS[sampler])


@pytest.mark.statistical
@pytest.mark.parametrize(
    "case, sampler", [("Gamma", "neal 8"), ("Wald", "neal 8"), ("Beta behind noise", "slice")]
)
def test_missing_guards_are_noticed(monkeypatch, case, sampler):
    monkeypatch.setattr(domains.Ranges, "always", lambda self, condition: True)
    # the model itself is asked where chains start and end: what is tried here is whether draws would show it
    monkeypatch.setattr(record_step, "is_possible", lambda model, point: True)
    # more draws than where they have to agree: of the wald law 10,000 do not show it
    model, released = model_of(case), released_by(case)
    chain = chain_of(case, (ALL_KNOWN | ALL_SAMPLERS)[sampler], model, 4 * DRAWS)
    verdict = small.compare(chain, kernel_of(case), released, URN.posterior(released))
    assert verdict.outcome == "rejected", verdict


@pytest.mark.parametrize("case", CASES)
def test_quadrature_has_converged(case):
    once, twice = (URN.posterior(released_by(case, order)) for order in (40, 80))
    assert abs(once.prob - twice.prob).max() < 1e-8


def _two_shapes(mean, private):
    """Declare a base whose mean is data, so that all means are served by what is compiled for one."""
    with pm.Model() as model:
        mean = pm.Data("mean", mean)
        labels = dp.ChineseRestaurantProcess("labels", 1.0, shape=4, max_components=6)
        a, b = (pm.Normal(name, mean, 1, shape=6) for name in ("a", "b"))
        x = np.array([0.05, 0.3, 0.9, 0.4])
        if private:
            # without a transform, draws at negative shapes would not come to an end
            y = pm.Beta("y", a[labels], b[labels], default_transform=None)
            dp.LaplaceMechanism("z", y, scale=SCALE, observed=x)
            return model, dp.PrivateNeal5(n_cycles=1)
        pm.Beta("y", a[labels], b[labels], observed=x)
        return model, dp.Neal8(n_cycles=1)


@pytest.mark.statistical
@pytest.mark.parametrize("private", [True, False])
@pytest.mark.parametrize("mean", [-1.0, 0.5])
def test_chains_start_inside_of_the_domain(mean, private):
    """The default is outside of it, or jitter and free slots are."""
    model, step = _two_shapes(mean, private)
    for seed in range(20):
        step.setup_chain(np.random.default_rng(seed), 10, 10)
        point = model.initial_point()
        for _ in range(3):
            point, _ = step.step(point)
            own = [point[name][point["labels"]] for name in ("a", "b")]
            assert (np.array(own) > 0).all(), seed
            assert not any(np.isnan(v).any() for v in point.values()), seed


@pytest.mark.statistical
def test_a_base_outside_of_the_domain_is_refused():
    model, step = _two_shapes(-1000.0, private=False)
    with pytest.raises(ValueError, match="y has no law at the starting values of the atoms a, b"):
        step.step(model.initial_point())
