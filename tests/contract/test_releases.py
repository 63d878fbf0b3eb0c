"""Releases of every mechanism: drawn, published, declared again."""

import json
from dataclasses import replace

import numpy as np
import pymc as pm
import pytest

import pymc_dp as dp
from pymc_dp.mechanisms import guarantee
from pymc_dp.privacy.release import Release
from tests.contract.form import goodness_of_fit
from tests.contract.table import each_imputation, each_row


@each_row
def test_releases_follow_the_density(row):
    n = 20_000 if row.batch else 300
    # these draws have no seed: at this level all rows together raise a false alarm in 1 of 300,000 runs
    assert goodness_of_fit(row, row.published(row.query, n), row.query) > 1e-7


@each_row
def test_releases_know_no_seed(row):
    query = row.rows_of(row.query, 2000)

    def publish():
        np.random.seed(7)  # noqa: NPY002  # the global seed is what some people set
        return [row.release(query).value for _ in range(1 if row.batch else 30)]

    assert any((a != b).any() for a, b in zip(publish(), publish(), strict=True))


@each_imputation
def test_published_and_declared_again(row, imputation):
    noise = row.noise | imputation.noise
    release = row.release(imputation.query(imputation.data()), **noise)
    text = release.to_json()
    again = Release.from_json(text)
    assert again == release and again.to_json() == text
    assert again.value.dtype == release.value.dtype and (again.value == release.value).all()
    assert again.guarantee == release.guarantee
    from_release = row.model(imputation, again)
    by_hand = row.model(imputation, release.value, **noise)
    assert guarantee(from_release["z"]) == guarantee(by_hand["z"]) == release.guarantee
    for seed in range(3):
        x = {"x": pm.draw(imputation_prior(imputation), random_seed=seed)}
        assert from_release.point_logps(x)["z"] == pytest.approx(by_hand.point_logps(x)["z"], rel=1e-9)


def imputation_prior(imputation):
    with pm.Model():
        return imputation.prior()


@each_row
def test_contradictions_are_refused(row):
    if not row.imputations:
        pytest.skip("no model for this row")
    imputation = row.imputations[0]
    release = row.release(imputation.query(imputation.data()), **(row.noise | imputation.noise))
    other = dp.GaussianMechanism if row.mechanism is dp.LaplaceMechanism else dp.LaplaceMechanism
    with pytest.raises(ValueError, match=f"observed is a release of {release.mechanism}, not of"):
        replace(row, mechanism=other).model(imputation, release)
    # everything that the release states, but for one number
    stated = dict(release.parameters)
    level = next(key for key, value in stated.items() if isinstance(value, float))
    with pytest.raises(ValueError, match=f"{level} = .* contradicts the release, which states {level} ="):
        row.model(imputation, release, **stated | {level: 0.9 * stated[level]})
    newer = json.loads(release.to_json())
    newer["version"] += 1
    with pytest.raises(ValueError, match="newer"):
        Release.from_json(json.dumps(newer))
