"""Releases of every mechanism: drawn, published, declared again."""

import hashlib
import json
import sys
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import pymc_dp as dp
from pymc_dp.mechanisms import guarantee
from pymc_dp.mechanisms._releases import evaluate
from pymc_dp.privacy import entropy as noise
from pymc_dp.privacy import exact_noise
from pymc_dp.privacy.release import Release
from tests.contract.form import goodness_of_fit, release_logp
from tests.contract.table import ROWS, over, released_imputation, released_mechanism, released_row

adds_noise = over([row for row in ROWS if row.level is not None])
SAMPLERS = {"discrete_laplace": "scale", "discrete_gaussian": "sigma"}


def test_every_additive_mechanism_is_compared_with_its_level():
    for row in ROWS:
        op = row.declare(row.rows_of(row.query, 2)).owner.op
        assert row.level is not None or not op.additive_noise, row
    assert {row.mechanism.__name__ for row in ROWS if row.level is not None} == {
        "LaplaceMechanism",
        "GaussianMechanism",
        "DiscreteLaplaceMechanism",
        "DiscreteGaussianMechanism",
        "WaveletMechanism",
        "PerturbedHistogram",
        "ProjectionMechanism",
    }


@adds_noise
def test_noise_is_that_of_the_exact_sampler(row, monkeypatch):
    """What is added is an exact draw of the published level, which is the level that the budget asks for."""
    asked, told = [], []
    for module in [m for name, m in sys.modules.items() if name.startswith("pymc_dp.mechanisms.")]:
        for sampler in SAMPLERS.keys() & vars(module).keys():

            def spy(level, count, words=None, sampler=sampler):
                asked.append((sampler, Fraction(level), count))
                told.append(np.arange(1, count + 1) * (1 - 2 * (np.arange(count) % 2)))  # 1, -2, 3, -4, ...
                return told[-1]

            monkeypatch.setattr(module, sampler, spy)
    for given in (row.noise, row.native):
        asked.clear()
        query = row.rows_of(row.query, 3)
        release = row.release(query, **given)
        ((sampler, level, count),) = asked
        assert SAMPLERS[sampler] == row.level and count == release.value.size
        granule = Fraction(release.parameters.get("granularity", 1))
        published = Fraction(release.parameters[row.level])
        assert level == published / granule
        exact = Fraction(row.native[row.level])
        assert abs(published / exact - 1) <= Fraction(1, 10**9)
        declared = row.declare(query, **given)
        statistics = evaluate(declared.owner.op.dist_params(declared.owner)[0])
        if row.mechanism.__name__ == "WaveletMechanism":
            statistics = declared.owner.op.coefficients(statistics)
        whole = [round(Fraction(float(v)) / granule) for v in statistics.ravel()]
        expected = [float((k + int(d)) * granule) for k, d in zip(whole, told[-1], strict=True)]
        slack = 0 if row.batch else float(granule)  # means are of contributions that were rounded
        np.testing.assert_allclose(release.value.ravel(), expected, rtol=1e-15, atol=slack)


@released_row
def test_releases_follow_the_density(row, seeded_entropy):
    draws = row.published(row.query, row.n_draws)
    assert goodness_of_fit(row, draws, row.query) > 1e-3
    for other in row.others():  # power
        assert goodness_of_fit(row, draws, row.query, **other) < 1e-3


class Poisoned(np.random.Generator):
    """Generator that may be made, but not drawn from."""

    def __getattribute__(self, name):
        if not name.startswith("_") and name not in {"bit_generator", "spawn"}:
            raise AssertionError(f"a release drew from a generator of NumPy's: {name}")
        return super().__getattribute__(name)


def forbid_numpy(monkeypatch):
    """Let every generator of NumPy's own raise; what runs on given bits still works."""
    real = np.random.PCG64

    def refuse(*args, **kwargs):
        raise AssertionError("a release made a generator of NumPy's own")

    for name in ("PCG64", "PCG64DXSM", "Philox", "SFC64", "MT19937", "SeedSequence", "RandomState"):
        monkeypatch.setattr(np.random, name, refuse)
    for name in ("random", "laplace", "normal", "standard_normal", "randint", "bytes", "seed", "uniform"):
        monkeypatch.setattr(np.random, name, refuse)
    # PyTensor gives each random variable a generator when it is made
    monkeypatch.setattr(np.random, "default_rng", lambda *_, **__: Poisoned(real(0)))


@released_mechanism
def test_releases_are_made_of_the_system_s_entropy(row, monkeypatch):
    """The same bytes give the same release, other bytes another, and nothing else is drawn from."""
    forbid_numpy(monkeypatch)
    query = row.rows_of(row.query, 200)

    def publish(seed):
        # a stream of blocks, in any lengths
        given = bytearray()

        def entropy(count):
            block = b"".join(
                hashlib.sha256(b"%d %d %d" % (seed, len(given), k)).digest() for k in range(count // 32 + 1)
            )[:count]
            given.extend(block)
            return block

        with monkeypatch.context() as patch:
            patch.setattr(exact_noise.secrets, "token_bytes", entropy)
            patch.setattr(noise.os, "urandom", entropy)
            values = [row.release(query).value for _ in range(1 if row.batch else 10)]
        assert given
        return np.stack(values)

    one, same, other = publish(1), publish(1), publish(2)
    assert (one == same).all() and (one != other).any()


@released_mechanism
def test_releases_know_no_seed(row):
    query = row.rows_of(row.query, 2000)

    def publish():
        np.random.seed(7)  # noqa: NPY002  # the global seed is what some people set
        return [row.release(query).value for _ in range(1 if row.batch else 30)]

    assert any((a != b).any() for a, b in zip(publish(), publish(), strict=True))


@released_imputation
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
    stated, computed = release.guarantee, guarantee(by_hand["z"])
    if imputation.rows_apart and row.mechanism is dp.KNormGradient:
        # a table beside the data cannot be told from data: the choices are taken to be about the same people
        assert stated.epsilon == pytest.approx(imputation.n * computed.epsilon)
    else:
        assert guarantee(from_release["z"]) == computed == stated
    rng = np.random.default_rng(3)
    x = rng.choice(imputation.points()[0], size=(20, imputation.n))
    np.testing.assert_allclose(release_logp(from_release)(x), release_logp(by_hand)(x), rtol=1e-9)


@released_row
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
    level = next(key for key, value in stated.items() if isinstance(value, float) or key == "p_answer")
    message = rf"(?s){level} = .* contradicts the release, which states {level} ="
    with pytest.raises(ValueError, match=message):
        row.model(imputation, release, **stated | {level: 0.9 * np.asarray(stated[level])})
    newer = json.loads(release.to_json())
    newer["version"] = Release.version + 1
    with pytest.raises(ValueError, match="newer"):
        Release.from_json(json.dumps(newer))
