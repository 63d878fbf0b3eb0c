"""Tables with parameters integrated out, against the model: its log density less that of what is drawn anew.

The law of the parameters given a table is written by hand for each model, in natural space: the Jacobian is
the same for all tables.
"""

from functools import cache

import numpy as np
import pytest

import pymc_dp as dp
from pymc_dp.step_methods.tables import families, parameters
from pymc_dp.step_methods.tables.chain import TableChain
from pymc_dp.step_methods.tables.state import LAW, NOISE
from tests.statistics.drive import TRANSFORMS
from tests.tables.parameter_models import CASES
from tests.universal.reference import log_density
from tests.universal.test_tables import wrong

pytestmark = pytest.mark.compiles(3)


class Placed:
    """A model with its step, and a place for each of its variables."""

    def __init__(self, name):
        self.name, self.case = name, CASES[name]
        self.model = self.case.build()
        self.step = dp.TableImputation(model=self.model)
        (self.part,) = self.step.parts
        self.point = self.model.initial_point()
        self.shapes = {n: self.point[n].shape for n in self.part.names}

    def at(self, table, point=None):
        """Return the point with a table in it, and the laws of the parameters there."""
        parts = np.split(table, np.cumsum([int(np.prod(s)) for s in self.shapes.values()])[:-1])
        of = {n: part.reshape(s) for (n, s), part in zip(self.shapes.items(), parts, strict=True)}
        here = {**self.point, **(point or {}), **of}
        values = {}
        for rv in self.model.free_RVs:
            transform = self.model.rvs_to_transforms.get(rv)
            backward = TRANSFORMS[None if transform is None else transform.name][1]
            values[rv.name] = backward(np.asarray(here[self.model.rvs_to_values[rv].name]))
        others = {n: v for n, v in values.items() if n not in of}
        return here, self.case.given(of, **others), values


placed_once = cache(Placed)


def ratios(placed, rng):
    """Log ratios from a table to others, on both sides of every boundary: the step's, and the model's."""
    tables = placed.case.tables()
    exact = {rv.name for rv in placed.model.observed_RVs if type(rv.owner.op).__name__ == "InvariantRV"}
    logp = log_density(placed.model, [v for v in placed.model.basic_RVs if v.name not in exact])
    found = []
    jitter = {
        v.name: placed.point[v.name] + rng.normal(0, 0.3, placed.point[v.name].shape)
        for v in placed.model.value_vars
        if v.name not in placed.shapes and placed.model.rvs_to_transforms.get(placed.model.values_to_rvs[v])
    }
    for change in range(60):
        table = tables[rng.integers(len(tables))].copy()
        if change % 6 == 5 and placed.name.startswith("chances"):  # beyond the end that a count may have
            a, b = rng.integers(len(table), size=2)
            table[a], table[b] = table[a] + table[b], 0
        here, laws, values = placed.at(table, jitter)
        placed.part.read(here)
        ours = placed.part._cells[LAW].sum() + placed.part._rows[NOISE].sum()
        found.append((ours, logp(here) - sum(law.logpdf(values[n]) for n, law in laws.items())))
    ours, models = np.array(found).T
    first = int(np.flatnonzero(np.isfinite(models))[0])
    return ours - ours[first], models - models[first]


@pytest.mark.parametrize("name", CASES)
def test_ratios_are_the_models(name, rng):
    assert not wrong(*ratios(placed_once(name), rng)).any()


def largest_error(placed, rng, draws=1000):
    """Return the largest error of a mean or a square of what is drawn, in standard errors."""
    tables, errors = placed.case.tables(), [0.0]
    for table in tables[rng.integers(len(tables), size=3)]:
        here, laws, _ = placed.at(table)
        placed.part.read(here)
        drawn = {}
        for _ in range(draws):
            new = {**here, **placed.part.draw_parameters(here, rng)}
            for n, value in placed.at(table, new)[2].items():
                drawn.setdefault(n, []).append(value)
        for n, law in laws.items():
            for power, exact in enumerate(law.moments(), start=1):
                seen = np.array(drawn[n]) ** power
                errors.append(np.abs((seen.mean(0) - exact) / seen.std(0)).max() * np.sqrt(draws))
    return max(errors)


@pytest.mark.parametrize("name", CASES)
def test_draws_have_their_law(name, rng):
    assert largest_error(placed_once(name), rng) < 5


# Faults of the density: each must be seen by some model.
def concentration_left_out(patch):
    entry = families._Shares.entry
    patch.setattr(families._Shares, "entry", lambda self, s, e, a, b: entry(self, s, e, a * 0 + 1.0, b))


def exposure_left_out(patch):
    entry = families._Rates.entry
    patch.setattr(families._Rates, "entry", lambda self, s, e, a, b: entry(self, s, e * 0, a, b))


def failures_left_out(patch):
    patch.setattr(families._Chances, "entry", lambda self, s, e, a, b: families.pt.gammaln(a + s))


def sums_forgotten(patch):
    patch.setattr(parameters.Behind, "of_sums", lambda self, s: 0.0 * s)


def cells_counted_alone(patch):
    """Cells that share an entry are taken to have one each."""
    patch.setattr(parameters.Behind, "readers", property(lambda self: np.ones(self.n_entries, dtype=int)))


DENSITY = [concentration_left_out, exposure_left_out, failures_left_out, sums_forgotten, cells_counted_alone]
SEEN_BY = {
    concentration_left_out: "rows of probabilities",
    exposure_left_out: "rates of each cell with exposures",
    failures_left_out: "chances of rows",
    sums_forgotten: "one row of probabilities for two of counts",
    cells_counted_alone: "two tables with the same probabilities",
}


@pytest.mark.parametrize("fault", DENSITY)
def test_faults_of_the_density_are_seen(fault, rng, monkeypatch):
    fault(monkeypatch)
    assert wrong(*ratios(Placed(SEEN_BY[fault]), rng)).any()


# Faults of the draws.
def prior_left_out(patch):
    draw = families._Shares.draw
    patch.setattr(families._Shares, "draw", lambda self, rng, s, e, a, b: draw(self, rng, s, e, a * 0 + 1, b))


def one_count_too_many(patch):
    sums = parameters.Behind.sums
    patch.setattr(parameters.Behind, "sums", lambda self, counts: sums(self, counts) + 1.0)


def counts_of_the_neighbour(patch):
    sums = parameters.Behind.sums
    patch.setattr(parameters.Behind, "sums", lambda self, counts: np.roll(sums(self, counts), 1))


def stale_counts(patch):
    """The draw does not see what the moves did last: the counts of all cells but one."""
    draw = TableChain.draw_parameters

    def stale(self, point, rng):
        here = self._cells[0].copy()
        self._cells[0] = np.roll(here, 1)
        found = draw(self, point, rng)
        self._cells[0] = here
        return found

    patch.setattr(TableChain, "draw_parameters", stale)


@pytest.mark.parametrize("fault", [prior_left_out, one_count_too_many, counts_of_the_neighbour, stale_counts])
def test_faults_of_the_draws_are_seen(fault, rng, monkeypatch):
    fault(monkeypatch)
    assert largest_error(placed_once("rows of probabilities"), rng) > 6
