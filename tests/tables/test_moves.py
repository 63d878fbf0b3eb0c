"""Moves of tables under random invariants, and with faults planted; their densities: tests/universal."""

import inspect
import itertools
import textwrap

import arviz as az
import numpy as np
import pymc as pm
import pytest
from scipy import stats

import pymc_dp as dp
from pymc_dp.lowering.addresses.bind import plain
from pymc_dp.step_methods.tables import directions, kernels
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
    "the room is not made up for": ("log_back_and_forth", "    return ratio", "    return 0.0"),
    "one way in place of two is not": ("log_back_and_forth", "int(behind > 0.0)", "int(ahead > abs(t))"),
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


def test_all_cells_are_equally_likely_wherever_moves_begin(rng, monkeypatch):
    """Moves come in batches that begin near each other, which must not prefer any cell."""
    monkeypatch.setattr(kernels, "_NEAR", 6)
    near = plain(kernels.near.py_func, {"any_of": lambda rng, begin, end: rng.integers(begin, end)})
    for n, apart in ((20, 1), (20, 3), (4, 1)):
        place = rng.random(40_000)
        seen = np.array([near(rng, p, n, apart) for p in place])
        assert stats.chisquare(np.bincount(seen, minlength=n)).pvalue > 1e-4
        after = (seen - np.floor(place * n)) % n
        assert set(after) == set(range(min(n, 6 // apart + 1)))


@pytest.mark.statistical
def test_large_tables_follow_their_law_in_batches_of_near_moves(monkeypatch):
    """With batches of few cells, crossed margins are as exact as without."""
    monkeypatch.setattr(kernels, "_NEAR", 2)
    for name in ("near", "pair", "rectangle", "sweep"):  # each holds the compiled ones that it calls
        again = with_fault(getattr(kernels, name), "rng", "rng")
        monkeypatch.setattr(kernels, name, again)
    assert worst("crossed margins") < 4
