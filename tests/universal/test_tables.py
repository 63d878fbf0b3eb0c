"""The step of tables against the model: its log ratio is that of the model's own log density, everywhere."""

import numpy as np
import pytest

import pymc_dp as dp
from pymc_dp.step_methods.discovery import table_blocks
from pymc_dp.step_methods.tables.chain import TableChain
from pymc_dp.step_methods.tables.lattice import integer_kernel
from pymc_dp.step_methods.tables.state import LAW, NOISE
from tests.tables.models import CASES
from tests.universal.reference import log_density


def ratios(name, rng):
    """Log ratios from a table to others, on both sides of every boundary: the step's, and the model's."""
    case = CASES[name]
    with case.build() as model:
        # given their parameters; with these integrated out, see test_table_parameters.py
        step = dp.TableImputation([rv for tables in table_blocks(model) for rv in tables.variables])
    (part,) = step.parts
    point = model.initial_point()
    logp = log_density(model)
    exact = {rv.name for rv in model.observed_RVs if type(rv.owner.op).__name__ == "InvariantRV"}
    of_others = log_density(model, [v for v in model.basic_RVs if v.name not in exact])
    point |= part.start(point, np.random.default_rng(1), 5, False)
    shapes = {name: np.shape(point[name]) for name in part.names}
    start = np.concatenate([np.ravel(point[name]) for name in part.names]).astype(int)
    basis = integer_kernel(part.held.matrix)
    found = []
    for change in range(150):
        some = rng.integers(len(basis), size=min(2, len(basis)))
        by = rng.choice(
            [-25, -2, -1, 1, 2, 25], size=len(some)
        )  # beyond counts of laws that have an end, too
        counts = start + (change > 0) * (by @ basis[some])
        if (counts < 0).any():  # moves never get there
            continue
        parts = np.split(counts, np.cumsum([np.prod(s, dtype=int) for s in shapes.values()])[:-1])
        table = {name: of.reshape(shapes[name]) for name, of in zip(shapes, parts, strict=True)}
        part.read({**point, **table})
        ours = part._cells[LAW].sum() + part._rows[NOISE].sum()
        assert np.isfinite(logp({**point, **table})) == np.isfinite(of_others({**point, **table}))
        found.append((ours, of_others({**point, **table})))
    ours, models = np.array(found).T
    return ours - ours[0], models - models[0]


def wrong(ours, models):
    """Which of the ratios differ, or allow what has no density."""
    same = np.isfinite(models)
    off = np.isfinite(ours) != same
    off[same] |= ~np.isclose(ours[same], models[same], rtol=1e-6, atol=1e-5)
    return off


@pytest.mark.parametrize("name", CASES)
def test_ratios_are_the_models(name, rng):
    assert not wrong(*ratios(name, rng)).any()


def domain_dropped(part):
    """Cells that their law does not allow are."""
    laws = part._cells[LAW]
    part._cells[LAW] = np.where(np.isfinite(laws), laws, -5.0)


def law_forgotten(part):
    part._cells[LAW] = np.where(np.isfinite(part._cells[LAW]), 0.0, -np.inf)


def releases_forgotten(part):
    part._rows[NOISE] = 0.0


@pytest.mark.parametrize("fault", [domain_dropped, law_forgotten, releases_forgotten])
def test_faults_are_seen(fault, rng, monkeypatch):
    read = TableChain.read

    def faulty(self, point):
        read(self, point)
        fault(self)

    monkeypatch.setattr(TableChain, "read", faulty)
    assert any(wrong(*ratios(name, rng)).any() for name in CASES), "no model has seen it"
