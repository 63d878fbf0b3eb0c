"""Joint moves of tables against the model: what a move adds to its log density, but for the counts' own law.

A part is moved by itself; what the step asks for its acceptance has to be the model's own difference less
that of the law of the counts of the part, wherever the parameters go, and the counts have to be where their
noise says, by distribution functions of SciPy.
"""

from functools import cache

import numpy as np
import pytensor.tensor as pt
import pytest
from scipy import stats

import pymc_dp as dp
from pymc_dp.step_methods.tables import joint, joint_groups
from pymc_dp.step_methods.tables.state import NOISE
from tests.tables.joint_models import CASES
from tests.universal.reference import log_density
from tests.universal.test_tables import wrong

pytestmark = pytest.mark.compiles(4)


class Placed:
    """A model with its step."""

    def __init__(self, name):
        self.model = CASES[name].build()
        self.step = dp.TableImputation(model=self.model)
        (self.part,) = self.step.parts
        self.logp = log_density(self.model)
        self.of_counts = log_density(self.model, [self.model["c"]])


placed_once = cache(Placed)


def ratios(placed, rng, n=40):
    """Log ratios of moves: what the step asks, and what the model says."""
    moves, found, part = placed.part.joint, [], placed.part
    start = placed.model.initial_point()
    for at in range(n):
        point = {k: v + rng.normal(0, 0.3, v.shape) if v.dtype.kind == "f" else v for k, v in start.items()}
        point["c"] = rng.integers(0, 5, (2, 2))
        if not np.isfinite(placed.logp(point)):
            continue
        group = moves.groups[at % len(moves.groups)]
        chosen = rng.integers(group.movable.size)
        part.read(point)
        values = moves._values(point)
        noise, terms = moves._before(*values, point["c"].ravel().astype(float), rng.random(4))
        where, moved = moves._places(group), list(values)
        theta = np.concatenate([values[k].ravel() for k in where])
        step = rng.normal(0, 1.5 if at % 3 else 6.0, theta.size) * (group.parts == chosen)
        moves._put(theta + step, where, moved)
        counts, allowed, after = moves._after(*moved, noise)
        cells = group.members[group.begins[chosen] : group.begins[chosen + 1]]
        table = point["c"].ravel().copy()
        table[cells] = counts[cells]
        there = {**point, "c": table.reshape((2, 2))}
        there |= {str(moves._inputs[k].name): moved[k] for k in where}
        before = part._rows[NOISE].sum()
        with np.errstate(invalid="ignore"):
            ours = group.change_of(after - terms)[chosen]
        part._set(table.astype(float))
        ours = ours + part._rows[NOISE].sum() - before if allowed[cells].all() else -np.inf
        model = placed.logp(there)
        if np.isfinite(model):
            model -= placed.logp(point) + placed.of_counts(there) - placed.of_counts(point)
        found.append((ours, model))
    return np.array(found).T


@pytest.mark.parametrize("name", CASES)
def test_ratios_are_the_models(name, rng):
    ours, models = ratios(placed_once(name), rng)
    assert np.isfinite(models).sum() > 10
    assert not wrong(ours, models).any()


def laws(name, point):
    """Law of the counts by SciPy, at a point."""
    sizes = np.array([[1.0, 2.0], [0.5, 1.5]])
    e = point["e"]
    if name.startswith("poisson"):
        return stats.poisson(np.exp(point["a"] + e)[:, None] * sizes)
    if name == "negative binomial with spread":
        mu = np.exp(np.exp(point["s_log__"]) * e)[:, None] * sizes
        return stats.nbinom(2.0, 2.0 / (2.0 + mu))
    assert name == "binomial with columns"
    return stats.binom(np.array([[9, 4], [6, 9]]), 1 / (1 + np.exp(-(e[:, None] + point["f"] - 0.5))))


@pytest.mark.parametrize("name", [name for name in CASES if name != "rate that may be none"])
def test_counts_are_where_their_noise_says(name, rng):
    """There and back, far out in both tails, too: 30 against a mean of 1 has 1e-32 above it."""
    placed = placed_once(name)
    moves, point = placed.part.joint, placed.model.initial_point()
    for count in (0, 1, 3, 4):
        table = np.full((2, 2), count)
        noise, _ = moves._before(*moves._values(point), table.ravel().astype(float), rng.random(4))
        law = laws(name, point)
        assert (law.cdf(table - 1).ravel() <= noise + 1e-12).all()
        assert (noise <= law.cdf(table).ravel() + 1e-12).all()
        moved = {k: v + rng.normal(0, 0.7, v.shape) if v.dtype.kind == "f" else v for k, v in point.items()}
        counts, allowed, _ = moves._after(*moves._values(moved), noise)
        there = counts.reshape((2, 2))[allowed.reshape((2, 2))]
        tested = noise.reshape((2, 2))[allowed.reshape((2, 2))]
        ends = [laws(name, moved).cdf(counts.reshape((2, 2)) + by)[allowed.reshape((2, 2))] for by in (-1, 0)]
        assert there.size and (ends[0] <= tested + 1e-12).all() and (tested <= ends[1] + 1e-12).all()
        back, _, _ = moves._after(*moves._values(point), noise)
        assert (back[allowed] == count).all()


def prior_left_out(monkeypatch):
    for kind in (joint_groups.OneByOne, joint_groups.Together):
        monkeypatch.setattr(
            kind, "change_of", lambda self, terms: np.where(self.movable, 0.0, -np.inf), raising=False
        )


def domain_left_out(monkeypatch):
    monkeypatch.setattr(joint, "lawful", lambda law, counts: pt.ge(counts, 0))


@pytest.mark.parametrize("fault", [prior_left_out, domain_left_out])
def test_faults_are_seen(fault, rng, monkeypatch):
    fault(monkeypatch)
    names = ["rate that may be none"] if fault is domain_left_out else list(CASES)[:1]
    assert any(wrong(*ratios(Placed(name), rng, 60)).any() for name in names)
