"""Densities and draws of every mechanism."""

import numpy as np
import pytest

from tests.contract.form import goodness_of_fit
from tests.contract.table import drawn_row, each_row


@each_row
def test_log_density_is_the_stated_law(row):
    if row.law is None:
        pytest.skip("no independent formula")
    values = row.points[0][:: max(1, len(row.points[0]) // 300)]
    for query in {q.tobytes(): q for pair in row.neighbours for q in map(np.asarray, pair)}.values():
        exact = row.law(query, values)
        np.testing.assert_allclose(row.log_density(values, query), exact, rtol=1e-9, atol=1e-10)


@each_row
def test_density_integrates_to_one(row):
    values, weights = row.points
    for query in row.neighbours[0]:
        total = np.sum(weights * np.exp(row.log_density(values, query)))
        assert total == pytest.approx(1, abs=row.slack)


@drawn_row
def test_draws_follow_the_density(row):
    draws = row.draws(row.query, row.n_draws, seed=12)
    assert goodness_of_fit(row, draws, row.query) > 1e-3
    # power: they follow neither the density given the neighbouring data, nor that of another noise
    assert goodness_of_fit(row, draws, row.neighbours[0][1]) < 1e-3
    for other in row.others():
        assert goodness_of_fit(row, draws, row.query, **other) < 1e-3


@each_row
def test_log_density_is_finite_far_out(row):
    values = list(row.far)
    if row.discrete:
        values += list(row.points[0])
    if not values:
        pytest.skip("every release is near")
    for noise in (row.noise, *row.extremes):
        for query in row.neighbours[0]:
            assert np.isfinite(row.log_density(np.array(values), query, **noise)).all()


@each_row
def test_impossible_releases_have_no_density(row):
    if not len(row.impossible):
        pytest.skip("every release is possible")
    for query in row.neighbours[0]:
        assert (row.log_density(np.array(row.impossible), query) == -np.inf).all()
