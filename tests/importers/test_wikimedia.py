"""Wikimedia's pageviews, written by hand as its daily files, which have no header."""

import math
from pathlib import Path

import numpy as np
import pymc as pm
import pytest

import pymc_dp as dp

DAY = Path(__file__).parent / "data" / "2024-05-01.tsv"
FRANCE = {"country_code": "FR", "project": "fr.wikipedia"}
PAGES = {"page_title": ["Ada_Lovelace", "Albert_Einstein", "Alan_Turing"]}
SIGMA = {"threshold": 90, "sigma": 18.3}


def density_of(mechanism, **given):
    with pm.Model() as model:
        views = pm.Poisson("views", pm.Gamma("rate", 2, 0.02, shape=3), shape=3)
        mechanism("z", views, **given)
    point = model.initial_point()
    point["views"] = np.array([99, 140, 80])
    return float(model.compile_logp()(point))


def test_what_has_no_row_is_suppressed():
    views = dp.importers.wikimedia(DAY, PAGES, where=FRANCE, **SIGMA)
    release = views.release
    np.testing.assert_array_equal(release.value, [95, 131, np.nan])
    assert views.labels["page_title"].tolist() == PAGES["page_title"]
    assert release.processing.suppress_below == 90 and release.guarantee is None
    assert dict(release.parameters) == {"sigma": 18.3} and release.mechanism == "DiscreteGaussianMechanism"
    assert dp.Release.from_json(release.to_json()) == release
    by_hand = dp.postprocessed([95, 131, np.nan], suppress_below=90)
    found = density_of(dp.DiscreteGaussianMechanism, observed=release)
    assert found == pytest.approx(density_of(dp.DiscreteGaussianMechanism, sigma=18.3, observed=by_hand))
    naive = density_of(dp.DiscreteGaussianMechanism, sigma=18.3, observed=[95, 131, 0])
    assert abs(found - naive) > 1  # a suppressed entry is no zero


def test_the_noise_that_a_budget_means():
    """The readme's rho for 10 pages a day; its noise scale of 10 would be another budget."""
    budget = {"rho": 0.015, "sensitivity": math.sqrt(10)}
    release = dp.importers.wikimedia(DAY, PAGES, where=FRANCE, threshold=90, **budget).release
    assert release.parameters["sigma"] == pytest.approx(math.sqrt(10 / 0.03))
    assert release.guarantee.rho == 0.015 and release.guarantee.neighbours == "add-remove"
    assert dp.guarantee(release) == release.guarantee
    with pytest.raises(ValueError, match=r"The budget contradicts the noise.*rho = 0.015.*rho = 0.05"):
        dp.importers.wikimedia(DAY, PAGES, where=FRANCE, threshold=90, sigma=10, **budget)


def test_laplace_noise_of_the_historical_files():
    where = {"country_code": "DE"}
    keys = {"page_title": ['"Heroes"']}
    given = {"threshold": 400, "epsilon": 1, "sensitivity": 30}
    release = dp.importers.wikimedia(DAY, keys, where=where, **given).release
    assert release.mechanism == "DiscreteLaplaceMechanism" and release.parameters["scale"] == 30
    assert release.value.tolist() == [412]
    assert dp.importers.wikimedia(DAY, keys, where=where, threshold=400, scale=30).release.guarantee is None


def test_files_before_items(tmp_path):
    path = tmp_path / "2016-01-01.tsv"
    path.write_text("France\tFR\tfr.wikipedia\t\tAda_Lovelace\t3600\n")
    release = dp.importers.wikimedia(path, PAGES, threshold=3500, scale=300).release
    np.testing.assert_array_equal(release.value, [3600, np.nan, np.nan])


def test_two_axes_and_headers(tmp_path):
    path = tmp_path / "views.csv"
    path.write_text("country,page_id,gbc\nFrance,1,95\nFrance,2,131\nChad,2,101\n")
    keys = {"country": ["Chad", "France"], "page_id": [1, 2]}
    views = dp.importers.wikimedia(path, keys, value="gbc", **SIGMA)
    np.testing.assert_array_equal(views.release.value, [[np.nan, 101], [95, 131]])
    assert views.labels["page_id"].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("keys", "given", "message"),
    [
        (PAGES, {"sigma": None}, "sigma is missing: nothing states how much noise was added to count"),
        (PAGES, {"sigma": None, "rho": 0.015}, "sigma is missing"),
        (PAGES, {"sigma": None, "epsilon": 1}, "scale is missing"),
        (PAGES, {"scale": 3}, "sigma and scale are both given"),
        (PAGES, {"sigma": -1}, "sigma must be finite and > 0, got -1"),
        (PAGES, {"threshold": 96}, "count has 95, which is below threshold = 96"),
        (PAGES, {"threshold": "90"}, "threshold must be one real number"),
        (PAGES, {"value": "gbc"}, "column 'gbc' is missing from the table .the pageviews"),
        (PAGES, {"where": None}, "two rows for page_title = Ada_Lovelace"),
        (PAGES, {"where": {"country_code": "US"}}, "No row of the table has"),
        ({"title": ["Ada_Lovelace"]}, {}, "column 'title' is missing from the table .named in keys"),
        ({"page_title": ["Ada_Lovelace"] * 2}, {}, "a label twice for page_title"),
        ({"page_title": []}, {}, "no label for page_title"),
        (["Ada_Lovelace"], {}, "keys must map columns to their labels"),
    ],
)
def test_refusals(keys, given, message):
    with pytest.raises((TypeError, ValueError), match=message):
        dp.importers.wikimedia(DAY, keys, **{"where": FRANCE, **SIGMA, **given})


def test_files_of_another_width(tmp_path):
    path = tmp_path / "views.tsv"
    path.write_text("France\t95\n")
    with pytest.raises(ValueError, match="2 columns and no header: 7 or 6 are known"):
        dp.importers.wikimedia(path, PAGES, **SIGMA)
