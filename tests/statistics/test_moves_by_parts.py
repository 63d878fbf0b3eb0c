"""Parameters of whole-numbered records, which move apart from others, too: beside exact answers."""

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import special, stats

import pymc_dp as dp
from pymc_dp.lowering.addresses.bind import plain
from pymc_dp.step_methods import parameter_updates
from pymc_dp.step_methods.updates import walks
from pymc_dp.step_methods.updates.state import ParameterState, of_random_walk
from tests.kernels import planted
from tests.statistics.harness import mc_z
from tests.statistics.marginal import from_log_density

SLOTS, SCALE, RELEASED = 12, np.array([1.5, 1.5, 3.0]), np.array([7.0, 3.0, 8.0])


def spenders(slots=SLOTS, released=RELEASED):
    """An unknown number of people, some of whom spend; released are both numbers, and what is spent."""
    with pm.Model() as model:
        people = pm.DiscreteUniform("people", 2, slots)
        p, mu = pm.Beta("p", 1, 2), pm.Normal("mu", 1, 2)
        spends = pm.Bernoulli("spends", p, shape=slots)
        spent = pm.Normal("spent", mu * spends, 1, shape=slots)
        rows = pt.stack([pt.ones(slots), spends, spends * spent], axis=1)
        dp.LaplaceMechanism("z", dp.record_sum(rows, count=people), scale=SCALE, observed=released)
    return model


def exact():
    """Posteriors of the number of people, p and mu, by sums over who there is and a grid."""
    people, mu = np.arange(2, SLOTS + 1), np.linspace(-8, 10, 3601)
    p = (np.arange(400) + 0.5) / 400
    of_people, of_p, of_mu = np.zeros(len(people)), np.zeros(len(p)), np.zeros(len(mu))
    laplace = [stats.laplace(z, b) for z, b in zip(RELEASED, SCALE, strict=True)]
    for i, n in enumerate(people):
        for m in range(n + 1):
            weight = np.exp(laplace[0].logpdf(n) + laplace[1].logpdf(m))
            on_p = stats.binom.pmf(m, n, p) * stats.beta.pdf(p, 1, 2)
            on_mu = stats.norm.pdf(mu, 1, 2) * np.exp(normal_laplace(RELEASED[2] - m * mu, m**0.5, SCALE[2]))
            of_people[i] += weight * on_p.mean() * on_mu.sum()
            of_p += weight * on_p * on_mu.sum()
            of_mu += weight * on_p.mean() * on_mu
    return people, of_people / of_people.sum(), (p, of_p), (mu, of_mu)


def normal_laplace(x, s, b):
    """Log density of normal and Laplace noise together (Reed, 2006)."""
    if s == 0:
        return stats.laplace.logpdf(x, scale=b)
    halves = [u / b + s * s / (2 * b * b) + stats.norm.logcdf(-u / s - s / b) for u in (x, -x)]
    return np.logaddexp(*halves) - np.log(2 * b)


def on_grid(grid, density):
    return from_log_density(
        lambda x: np.log(np.maximum(np.interp(x, grid, density / density.max()), 1e-300)), grid[0], grid[-1]
    )


def worst(seed, draws=12_000):
    """The least p-value of all comparisons."""
    with spenders():
        idata = pm.sample(
            draws, tune=1000, chains=2, cores=1, random_seed=seed, progressbar=False, quiet=True,
            compute_convergence_checks=False, step=[dp.AncillaryUpdate(), dp.RecordImputation()],
        )  # fmt: skip
    values, chances, of_p, of_mu = exact()
    people = idata.posterior["people"].values
    found = [
        mc_z(idata.posterior[name].values, on_grid(*of)).p_value for name, of in (("p", of_p), ("mu", of_mu))
    ]
    for value, chance in zip(values, chances, strict=True):
        hit = (people == value).astype(float)
        error = np.sqrt(chance * (1 - chance) / float(az.ess(hit, method="mean")))
        found.append(2 * stats.norm.sf(abs(hit.mean() - chance) / error))
    return min(found)


@pytest.mark.statistical
def test_people_who_spend():
    assert worst(1) > 1e-4


def one_way(patch):
    """Steps of one part go in the direction of its first number only: they could not be taken back."""
    names = planted(
        walks,
        (walks.draw_in_part, "z[i] = standard_normal(rng)", "z[i] = abs(standard_normal(rng))"),
        (walks.random_walk, "cache=True", "cache=False"),
    )
    patch.setattr(parameter_updates, "random_walk", names["random_walk"])


@pytest.mark.statistical
def test_a_planted_error_is_seen(monkeypatch):
    one_way(monkeypatch)
    assert worst(1, 4000) < 1e-6


def test_parts():
    """Whole numbers by themselves, parameters of whole-numbered records, and others."""
    (part,) = dp.AncillaryUpdate(model=spenders())._parts
    assert part.names == ["people", "p_logodds__", "mu"] and part.part.tolist() == [2, 1, 0]
    with pm.Model() as numbers:
        y = pm.Normal("y", pm.Normal("mu"), pm.HalfNormal("s"), shape=5)
        dp.LaplaceMechanism("z", dp.record_sum(y), scale=1.0, observed=1.0)
    with pm.Model() as counts:
        y = pm.Poisson("y", pm.Gamma("rate", 2, 1), shape=5)
        dp.LaplaceMechanism("z", dp.record_sum(y), scale=1.0, observed=6.0)
    for model in (numbers, counts):
        assert not dp.AncillaryUpdate(model=model)._parts[0].part.size


def direction(rng, factor, z, line):
    z[:] = rng.normal(size=z.size)
    line[:] = factor @ z


def test_the_walk_moves_parts_apart_and_together():
    """In plain Python: which numbers moved at once, and the law that they are drawn from."""
    k, part = 4, np.array([2, 1, 0, 0])
    learnt = of_random_walk(k, 1, part)
    learnt.apart[:] = np.array([[3.0, 0, 0, 0], [0, 1.5, 0, 0], [0, 0, 1.5, 0], [0, 0, 1.2, 0.8]])
    learnt.factor[:] = np.diag([2.0, 0.8, 0.8, 0.8])
    normal = {"standard_normal": lambda rng: rng.normal()}
    names = {
        "random": lambda rng: rng.random(),
        "function_at": lambda target, kind: target,
        "draw_direction": direction,
        "step_alone": plain(walks.step_alone.py_func, {"random": lambda rng: rng.random()}),
        "draw_in_part": plain(walks.draw_in_part.py_func, normal),
        "round_steps": plain(walks.round_steps.py_func, {}),
    }
    kernel, theta = plain(walks.random_walk.py_func, names), np.array([4.0, 0.0, 0.0, 0.0])
    none = np.zeros((0, 0))
    state = ParameterState(
        theta, np.zeros(0), none, np.zeros(0), np.arange(k), np.array([[0.0, np.inf]]), learnt, 0, 0,
        np.zeros(2),
    )  # fmt: skip

    def target(theta, data, given, totals):
        """A count, a number that depends on it, and two that depend on each other."""
        n, a, b, c = theta
        log_count = n * np.log(4.0) - special.gammaln(n + 1)
        return log_count - 0.5 * (a - 0.3 * n) ** 2 - 0.5 * b * b - 0.5 * ((c - 0.8 * b) / 0.6) ** 2

    rng, moved, found = np.random.default_rng(1), set(), []
    for _ in range(30_000):
        before = theta.copy()
        kernel(1, rng, target, state)
        moved.add(tuple(np.flatnonzero(theta != before).tolist()))
        found.append(theta.copy())
    assert {(), (0,), (1,), (2, 3), (0, 1, 2, 3)} <= moved
    assert moved <= {(), (0,), (1,), (2, 3), (1, 2, 3), (0, 1, 2, 3)}
    n, a, b, c = np.array(found[1000:]).T
    assert n.mean() == pytest.approx(4, abs=0.2) and n.var() == pytest.approx(4, rel=0.15)
    assert a.mean() == pytest.approx(1.2, abs=0.1) and a.var() == pytest.approx(1.36, rel=0.15)
    assert b.mean() == pytest.approx(0, abs=0.1) and np.corrcoef(b, c)[0, 1] == pytest.approx(0.8, abs=0.05)
