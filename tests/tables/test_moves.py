"""Moves of tables under random invariants, and with faults planted; their densities: tests/universal."""

import inspect
import itertools
import textwrap
from collections import Counter

import arviz as az
import numpy as np
import pymc as pm
import pytest
from scipy import stats

import pymc_dp as dp
from pymc_dp.lowering.addresses.bind import plain
from pymc_dp.step_methods.tables import directions, kernels, proposals
from pymc_dp.step_methods.tables.chain import TableChain
from pymc_dp.step_methods.tables.lattice import integer_kernel
from tests.tables.models import CASES
from tests.tables.test_exact import enumerated


def random_problem(seed):
    """Return small invariants with whole coefficients, and the tables that meet them."""
    rng = np.random.default_rng(seed)
    matrix = rng.integers(0, 4, (rng.integers(1, 3), 4))
    matrix[:, rng.integers(4)] += 1
    matrix[0] += matrix.sum(axis=0) == 0  # a cell in nothing would have no end
    target = matrix @ rng.integers(0, 5, 4)
    most = int(target.max()) + 1
    cells = np.array(list(itertools.product(range(min(most, 20)), repeat=4)))
    return matrix, target, cells[(cells @ matrix.T == target).all(axis=1)]


@pytest.mark.statistical
@pytest.mark.parametrize("seed", range(8))
def test_all_tables_are_reached_under_random_invariants(seed):
    matrix, target, tables = random_problem(seed)
    rate = np.array([1.0, 2.0, 0.5, 1.5])
    with pm.Model() as model:
        c = pm.Poisson("c", rate)
        dp.Invariant("known", pm.math.dot(matrix, c), observed=target)
        step = dp.TableImputation(n_sweeps=300)
    step.setup_chain(np.random.default_rng(seed), 100, 10**6)
    point, seen = model.initial_point(), {tuple(t): 0 for t in tables}
    for draw in range(2100):
        point, _ = step.step(point)
        if draw == 99:
            step.stop_tuning()
        if draw >= 100:
            seen[tuple(point["c"])] += 1
    weights = np.exp(stats.poisson.logpmf(tables, rate).sum(axis=1))
    expected = 2000 * weights / weights.sum()
    counted = np.array([seen[tuple(t)] for t in tables])
    common = expected > 5
    groups = np.append(expected[common], expected[~common].sum())
    counts = np.append(counted[common], counted[~common].sum())
    if groups.size > 2 and groups[-1] > 0:
        assert stats.chisquare(counts, groups).pvalue > 1e-4
    assert (counted[common] > 0).all()


@pytest.mark.parametrize("seed", range(30))
def test_the_basis_spans_all_integer_vectors(seed):
    matrix, _, _ = random_problem(seed)
    basis = integer_kernel(matrix)
    assert basis.shape == (4 - np.linalg.matrix_rank(matrix), 4)
    assert not (matrix @ basis.T).any()
    box = np.array(list(itertools.product(range(-6, 7), repeat=4)))
    kept = box[(box @ matrix.T == 0).all(axis=1)]
    if len(basis):  # every one is a whole combination
        weights = np.linalg.lstsq(basis.T.astype(float), kept.T.astype(float), rcond=None)[0]
        np.testing.assert_allclose(weights, np.round(weights), atol=1e-8)


def with_fault(function, old, new, module=kernels):
    """Return a kernel of a module with a line of its source changed."""
    function = getattr(function, "py_func", function)  # a part is decorated, and will be again
    source = textwrap.dedent(inspect.getsource(function))
    assert old in source
    names = dict(vars(module))
    exec(compile(source.replace(old, new), f"<{old}>", "exec"), names)
    return names[function.__name__]


FAULTS = {
    "a sum is not brought up to date": ("sweep", "rows[q, width + TOTAL] += t * change", "pass"),
    "its density is not": ("sweep", "rows[q, width + NOISE] = new_noises[j]", "pass"),
    "the density of a cell is not": ("sweep", "cells[moved[i], cell_width + LAW] = new_laws[i]", "pass"),
    "the room is not made up for": ("back_and_forth", "    return ratio", "    return 1.0"),
    "one way in place of two is not": ("back_and_forth", "if behind > 0.0", "if ahead > abs(t)"),
    "a query is forgotten": (
        "log_ratio",
        "if change != 0.0 and q < n_releases",
        "if change > 0.0 and q < n_releases",
    ),
}


@pytest.mark.statistical
@pytest.mark.parametrize("fault", FAULTS)
def test_faults_in_the_kernel_are_seen(fault, monkeypatch):
    where, old, new = FAULTS[fault]
    monkeypatch.setattr(kernels, where, with_fault(getattr(kernels, where), old, new))
    assert worst("crossed margins") > 6


@pytest.mark.statistical
def test_a_missing_direction_is_seen(monkeypatch):
    """Rectangles and pairs alone do not reach all tables with a diagonal of zeros."""
    monkeypatch.setattr(
        directions.Classes, "basis", lambda self, most, among=None: np.zeros((0, self.n), dtype=np.int64)
    )
    tables, _ = enumerated("zero diagonal with both margins")
    for chain in sampled("zero diagonal with both margins"):
        assert 2 * len(np.unique(chain, axis=0)) < len(tables)


def sampled(name):
    """Return draws of the cells (chains, draws, cells)."""
    idata = pm.sample(
        model=CASES[name].build(), draws=4000, tune=500, chains=2, cores=1, random_seed=5, progressbar=False,
        quiet=True, compute_convergence_checks=False,
    )  # fmt: skip
    return idata.posterior["c"].values.reshape(2, 4000, -1).astype(float)


def worst(name):
    """Return the largest error of a mean, in standard errors."""
    tables, probabilities = enumerated(name)
    draws = sampled(name)
    errors = []
    for k in range(draws.shape[-1]):
        error = max(float(az.mcse(draws[..., k])), 1e-3) if draws[..., k].std() else 1e-3
        errors.append(abs(draws[..., k].mean() - probabilities @ tables[:, k]) / error)
    return max(errors)


def test_kernels_run_in_plain_python():
    """For coverage and debuggers: the same moves, one after the other."""
    law = lambda which, x, numbers, k: -0.5 * (x - 2.0) ** 2  # noqa: E731
    names = {"law": law, "noise": law}
    ratio = plain(kernels.log_ratio, names)
    cells = np.zeros((2, 4))
    cells[:, 0], cells[:, 1] = [3.0, 1.0], [law(0, 3.0, None, 0), law(0, 1.0, None, 0)]
    rows = np.zeros((1, 6))
    rows[0, 0], rows[0, 1], rows[0, 4] = 4.0, law(0, 4.0, None, 0), 0.0
    moved, steps = np.array([0, 1]), np.array([1.0, -1.0])
    room = np.zeros(2)
    # 3, 1 to 2, 2 with the sum as it was
    assert ratio(-1.0, 2, moved, steps, cells, 0, 1, np.array([0]), rows, 0, 1, room, room.copy()) == 1.0
    assert plain(kernels.room.py_func, {})(1.0, 2, moved, steps, cells, 0) == 1.0
    assert plain(kernels.room.py_func, {})(-1.0, 2, moved, steps, cells, 0) == 3.0


def lengths(scale, up, down):
    """Probabilities of moves by -down to up, by their law; the last number is 60 where there is no end."""
    found = {}
    for sign, most in ((1, up), (-1, down)):
        n = int(min(most, 60))
        tail = np.exp(-np.arange(n + 1) / scale)
        share = -np.diff(tail) / (1.0 - (np.exp(-most / scale) if np.isfinite(most) else 0.0))
        open_ways = (up > 0) + (down > 0)
        found |= {sign * (t + 1): share[t] / open_ways for t in range(n)}
    return found


def unlike_its_law(function, scale, up, down):
    """Return the p-value of a comparison of drawn lengths with their law."""
    draw, rng = plain(function.py_func, {}), np.random.default_rng(1)
    counted = Counter(int(draw(rng, scale, up, down)) for _ in range(8000))
    expected = {t: 8000 * p for t, p in lengths(scale, up, down).items()}
    common = [t for t in expected if expected[t] > 8]
    found, law = [counted[t] for t in common], [expected[t] for t in common]
    if sum(law) < 8000 - 1e-6:
        found, law = [*found, 8000 - sum(found)], [*law, 8000 - sum(law)]
    return stats.chisquare(found, law, sum_check=False).pvalue if sum(found) == 8000 else 0.0


WAYS = [(1.5, np.inf, 5.0), (4.0, 6.0, 1.0), (0.7, 0.0, 3.0)]


@pytest.mark.parametrize("way", WAYS)
def test_lengths_come_as_often_as_said(way):
    assert unlike_its_law(kernels.length, *way) > 1e-3


def test_a_number_that_says_which_way_and_how_far_is_seen():
    fault = with_fault(kernels.length, "u = 2.0 * u if u < 0.5 else 2.0 * u - 1.0", "pass")
    assert unlike_its_law(fault, *WAYS[0]) < 1e-6


@pytest.mark.parametrize(("scale", "up", "down"), WAYS)
def test_the_way_back_is_as_likely_as_said(scale, up, down):
    ratio = plain(kernels.back_and_forth.py_func, {})
    ahead = lengths(scale, up, down)
    for t in (t for t in ahead if abs(t) < 20):
        behind = lengths(scale, up - t, down + t)
        assert ratio(float(t), scale, up, down) == pytest.approx(behind[-t] / ahead[t], rel=1e-9)


def proposed(n, seed=1):
    """Choose directions of a table of 2 x 3, whose first cell is in no group."""
    rng = np.random.default_rng(seed)
    group_begins, group_cells = np.array([0, 5, 7]), np.array([1, 2, 3, 4, 5, 2, 3])
    members = np.stack([group_cells, np.array([0] * 5 + [1] * 2)], axis=1).ravel()
    corners, corner_begins = np.array([0, 2, 2, 3, 3, 1]), np.array([0])
    kinds, places, sizes = np.zeros((3, proposals.AHEAD), int)
    ahead, steps = np.zeros(4 * proposals.AHEAD, int), np.zeros(4 * proposals.AHEAD)
    cells, rows, begins, at = np.zeros((6, 8)), np.zeros((6, 8)), np.arange(7), np.arange(6)
    parts = (getattr(proposals, name) for name in ("begin_proposals", "first_cells", "second_cells"))
    begin, first, second = (plain(part.py_func, {}) for part in parts)
    asked, found = plain(proposals.ask_for_rows.py_func, {}), []
    for _ in range(n // proposals.AHEAD):
        m, shares = proposals.AHEAD, np.array([0.2, 0.7, 1.0, 1.0])
        begin(rng, m, shares, np.array([0, 4]), members, kinds, places)
        lists = (np.array([0, 4]), members, group_begins, group_cells, corners, corner_begins)
        first(rng, m, *lists, kinds, places, sizes, ahead, steps)
        second(m, group_cells, kinds, places, sizes, ahead, begins, cells)
        asked(m, sizes, ahead, begins, at, rows)
        for c in range(m):
            direction = np.zeros(6)
            np.add.at(direction, ahead[4 * c : 4 * c + sizes[c]], steps[4 * c : 4 * c + sizes[c]])
            found.append((kinds[c], *direction))
    return found


def test_directions_come_as_often_as_said():
    """One cell of the list; two of a group, as likely as it has members; corners of any rectangle."""
    n = 16_000
    counted = Counter(proposed(n))
    single = {(0, *np.eye(6)[k]): 0.2 / 2 for k in (0, 4)}
    pairs: Counter = Counter()
    for group in ([1, 2, 3, 4, 5], [2, 3]):
        for one, other in itertools.product(group, group):
            pairs[(1, *(np.eye(6)[one] - np.eye(6)[other]))] += 0.5 / 7 / len(group)
    corners: Counter = Counter()
    for (i, j), k, across in itertools.product(itertools.product(range(2), range(3)), range(2), range(3)):
        for _ in range(2):  # whichever axis comes first
            direction = np.zeros((2, 3))
            if k != i and across != j:
                direction[i, j] += 1
                direction[k, across] += 1
                direction[i, across] -= 1
                direction[k, j] -= 1
            corners[(2, *direction.ravel())] += 0.3 / 72
    expected = {**single, **pairs, **corners}
    assert set(counted) == set(expected)
    p = np.array([expected[d] for d in expected])
    assert stats.chisquare([counted[d] for d in expected], n * p / p.sum()).pvalue > 1e-3


@pytest.mark.statistical
@pytest.mark.parametrize("n_moves", [1, 15, 16, 17])
def test_sweeps_of_any_length_follow_the_law(n_moves, monkeypatch):
    """Directions are chosen sixteen in a row, or what a sweep has left."""
    sweep = TableChain.sweep
    monkeypatch.setattr(
        TableChain, "sweep", lambda self, rng, n, tuning: sum(
            sweep(self, rng, n_moves, tuning) for _ in range(64 // n_moves)
        )
    )  # fmt: skip
    assert worst("crossed margins") < 4
