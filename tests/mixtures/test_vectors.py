"""Mixtures of vectors, with covariances: beside exact posteriors, by joint laws, and broken on purpose."""

from dataclasses import replace
from functools import cache
from itertools import combinations
from zlib import crc32

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

import pymc_dp as dp
from pymc_dp.lowering.functions import normals
from pymc_dp.lowering.functions.exponential import SPARE
from pymc_dp.lowering.rows import noisy_vectors, rowdraws
from pymc_dp.step_methods.mixture import slots
from tests.mixtures import small, vectors
from tests.mixtures.samplers import ALL_KNOWN, ALL_SAMPLERS
from tests.mixtures.small import Urn
from tests.mixtures.test_samplers_joint import kernel_of, shared_kernel
from tests.mixtures.vectors import EXAMPLES
from tests.statistics import harness

# About 40 verdicts: this keeps the chance of a false alarm anywhere below one in a thousand.
ALPHA = 2e-5
# As many as planted errors need to be seen.
DRAWS, REPLICATES = 15_000, 1000
ONE, PITMAN_YOR = Urn(1.0), Urn(0.5, 0.3)
SLOTS = 5


@cache
def _model(name):
    return EXAMPLES[name].model(ONE, SLOTS)


@cache
def _marginal(name):
    return dp.marginalize(_model(name), "y")


def verdict_on(sampler, name, urn, draws=DRAWS, model=None, samplers=ALL_SAMPLERS, keep=True):
    """Compare a chain with everything that is known of the posterior."""
    example = EXAMPLES[name]
    seed = crc32(f"{sampler} {name} {urn}".encode())
    chain = small.Chain(model or _model(name), samplers[sampler], urn, draws, seed, keep=keep)
    post = example.exact.posterior(urn.alpha, urn.d)
    n = len(example.exact.z)
    pairs = tuple(np.transpose(list(combinations(range(n), 2))))
    weights = (chain.sizes - urn.d * (chain.sizes > 0)) / (n + urn.alpha)
    free = chain.sizes == 0
    new = (urn.alpha + urn.d * chain.k) / (n + urn.alpha) / free.sum(axis=1)
    weights = weights + free * new[:, None]
    points = example.points
    density = [(weights * example.density(x, chain.atoms)).sum(axis=1) for x in points]
    pmf, together = post.n_clusters(), post.coclustering()[pairs]
    same = chain.labels[:, pairs[0]] == chain.labels[:, pairs[1]]
    checks = {
        **small.z_scores(chain.k[:, None] == np.arange(1, n + 1), pmf, "k"),
        **small.z_scores(same, together, "same"),
        **small.z_scores(np.transpose(density), example.exact.mean_density(post, points), "density"),
        **small.slot_checks(chain),
        **small.base_checks(chain, example),
    }
    if chain.y is not None:
        mean, second = example.exact.record_moments(post)
        products = np.einsum("tij,tik->tijk", chain.y, chain.y)
        checks |= small.z_scores(chain.y, mean.ravel(), "y")
        checks |= small.z_scores(products, second.ravel(), "y y")
    return harness.two_sample_z(checks, ALPHA)


# every kind of sweep for the constant covariance; the others by turns, and all kinds of moves together
# ("auto") where the law of the atoms is known and where it is not
RUNS = [
    *(("constant", sampler, (ONE, PITMAN_YOR)[j % 2]) for j, sampler in enumerate(ALL_SAMPLERS)),
    ("little noise", "conditional", ONE),
    ("little noise", "auto", PITMAN_YOR),
    ("public", "joint", PITMAN_YOR),
    ("public", "conditional", ONE),
    ("five", "joint", ONE),
    ("five", "auto", ONE),
    ("five", "slice", ONE),
    ("scaled", "closed", PITMAN_YOR),
    ("correlations", "closed", ONE),
    ("scaled", "joint", ONE),
    ("scaled", "conditional", ONE),
    ("scaled", "auto", PITMAN_YOR),
    ("rescaled", "joint of 2", ONE),
    ("rescaled", "slice", ONE),
    ("correlations", "joint", ONE),
    ("correlations", "slice", PITMAN_YOR),
    ("correlations", "auto of 2", ONE),
]


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("name", "sampler", "urn"), [pytest.param(*run, id=" ".join(map(str, run))) for run in RUNS]
)
def test_posterior_is_exact(name, sampler, urn):
    verdict = verdict_on(sampler, name, urn)
    assert verdict.passed, verdict


# of the releases, once the records are integrated out
KNOWN_RUNS = [
    *(("constant", sampler, (ONE, PITMAN_YOR)[j % 2]) for j, sampler in enumerate(ALL_KNOWN)),
    ("public", "neal 2", ONE),
    ("five", "neal 8", PITMAN_YOR),
    ("scaled", "neal 8", ONE),
    ("scaled", "split-merge of neal 8", PITMAN_YOR),
    ("correlations", "neal 8", ONE),
]


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("name", "sampler", "urn"), [pytest.param(*run, id=" ".join(map(str, run))) for run in KNOWN_RUNS]
)
def test_posterior_without_records_is_exact(name, sampler, urn):
    verdict = verdict_on(sampler, name, urn, model=_marginal(name), samplers=ALL_KNOWN)
    assert verdict.passed, verdict


@pytest.mark.parametrize("name", ["scaled", "rescaled", "correlations"])
def test_covariances_are_summed_over_finely_enough(name):
    """Half of the nodes give the same; the error left is about the square of the difference."""
    answers = EXAMPLES[name].exact
    base = answers.base if answers.base.ndim == 2 else answers.base[::2]
    coarse = replace(answers, weights=2 * answers.weights[::2], cov=answers.cov[::2], base=base)
    posts = [v.posterior(1.0) for v in (answers, coarse)]
    np.testing.assert_allclose(posts[0].prob, posts[1].prob, rtol=1e-4)
    assert posts[0].prob.min() > 0.01


@pytest.mark.statistical
@pytest.mark.usefixtures("built_only")
@pytest.mark.parametrize("name", EXAMPLES)
def test_laws_of_atoms_are_recognised(name):
    with _model(name):
        (step,) = ALL_SAMPLERS["auto"]()
    laws = step._mixtures[0].lowered.laws
    assert (laws.normal, laws.scale, laws.single, laws.other) == EXAMPLES[name].laws


# one level for each model, so that each is compiled once
JOINT = [
    (vectors.OneCovariance, 10.0, "joint"),
    (vectors.OneCovariance, 10.0, "slice"),
    (vectors.CovarianceOfEachSlot, 1.0, "conditional"),
    (vectors.CovarianceOfEachSlot, 1.0, "auto"),
]


@pytest.mark.statistical
@pytest.mark.parametrize(("model_type", "epsilon", "sampler"), JOINT)
def test_joint_distribution(model_type, epsilon, sampler):
    kernel = shared_kernel(model_type, epsilon, sampler)
    seed = crc32(f"{model_type.__name__} {epsilon} {sampler}".encode())
    verdict = kernel.short_chains(seed=seed, alpha=ALPHA, replicates=REPLICATES, transitions=2)
    assert verdict.passed, verdict


@pytest.mark.statistical
@pytest.mark.parametrize("n_auxiliary", [1, np.inf])
def test_chains_start_inside_of_the_domain(n_auxiliary):
    """Jitter of atoms that are next to the end of it, and slots that nobody was in."""
    with pm.Model() as model:
        labels = dp.ChineseRestaurantProcess("labels", 1.0, shape=3, max_components=5)
        mu = pm.Normal("mu", 0, 2, shape=(5, 2))
        r = pm.Normal("r", 0.3, 1.2, shape=5)[labels]
        one = pt.ones_like(r)
        cov = pt.stack([pt.stack([one, r], axis=-1), pt.stack([r, one], axis=-1)], axis=-2)
        dp.GaussianMechanism("z", pm.MvNormal("y", mu[labels], cov), sigma=1.5, observed=vectors.Z2)
        step = dp.PrivateNeal5(moves="joint", n_auxiliary=n_auxiliary)
    for seed in range(30):
        step.setup_chain(np.random.default_rng(seed), 10, 10)
        point = model.initial_point()
        for _ in range(2):
            point, _ = step.step(point)
        assert not any(np.isnan(v).any() for v in point.values()), seed


def test_weights_that_are_no_numbers_are_zero():
    """Of atoms outside of the kernel's domain: never chosen, wherever they stand."""
    rng, nan = np.random.default_rng(1), np.nan
    for logs, chosen in (([nan, 0.0, 1.0], {1, 2}), ([0.0, nan, 1.0], {0, 2}), ([nan, -np.inf], {-1})):
        padded = [*logs, *[nan] * SPARE]
        assert {slots.pick(rng, np.array(padded), len(logs)) for _ in range(100)} == chosen


# --- broken on purpose --------------------------------------------------------------------------------------


def _diagonal(factor_of):
    """Forget what stands off the diagonal of the Cholesky factor."""

    def broken(cov, size, name):
        factor = factor_of(cov, size, name)
        return [
            [v if k == j else pt.zeros_like(v) for k, v in enumerate(row)] for j, row in enumerate(factor)
        ]

    return broken


def _break(patch, what):
    if what in ("density", "both"):
        patch.setattr(normals, "factor_of", _diagonal(normals.factor_of))
    if what in ("draws", "both"):
        patch.setattr(rowdraws, "factor_of", _diagonal(rowdraws.factor_of))
    if what == "noisy vectors":
        original = noisy_vectors.root_of
        patch.setattr(
            noisy_vectors, "root_of", lambda matrix: _diagonal(lambda *_: original(matrix))(0, 2, "")
        )
    if what == "log determinant":
        patch.setattr(normals, "_log_det", lambda inverse: pt.constant(0.0))


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("what", "name", "sampler"),
    [
        ("both", "constant", "joint"),
        ("both", "public", "slice"),
        ("draws", "constant", "joint"),
        ("density", "constant", "conditional"),
        ("log determinant", "scaled", "conditional"),
        ("log determinant", "rescaled", "slice"),
        ("noisy vectors", "constant", "closed"),
    ],
)
def test_exact_answers_reject(monkeypatch, what, name, sampler):
    _break(monkeypatch, what)
    verdict = verdict_on(sampler, name, ONE, model=EXAMPLES[name].model(ONE, SLOTS), keep=False)
    assert verdict.outcome == "rejected", verdict


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("what", "model_type", "sampler"),
    [
        ("both", vectors.OneCovariance, "joint"),
        ("draws", vectors.OneCovariance, "auto"),
        ("log determinant", vectors.CovarianceOfEachSlot, "conditional"),
    ],
)
def test_joint_distribution_test_rejects(monkeypatch, what, model_type, sampler):
    _break(monkeypatch, what)
    verdict = kernel_of(model_type(10.0), sampler, 3).short_chains(
        seed=4, alpha=ALPHA, replicates=REPLICATES, transitions=2
    )
    assert verdict.outcome == "rejected", verdict


# --- chosen by pm.sample ------------------------------------------------------------------------------------


@pytest.mark.statistical
@pytest.mark.parametrize("kind", ["columns", "random factor", "random precision"])
def test_chosen_by_sample(kind):
    """Everything that `pm.sample` does by itself, and what is looked at afterwards."""
    rng = np.random.default_rng(3)
    z = np.concatenate([rng.normal(-4, 1, (10, 2)), rng.normal(4, 1, (10, 2))])
    with pm.Model() as model:
        labels = dp.ChineseRestaurantProcess("labels", concentration=1.0, shape=20, max_components=10)
        mu = pm.Normal("mu", 0, 4, shape=(10, 2))
        # no spread so small that the grid below would miss its component
        if kind == "columns":
            sigma = pm.Gamma("sigma", 20, 20, shape=(10, 2))
            y = pm.Normal("y", mu[labels], sigma[labels], shape=(20, 2))
        elif kind == "random factor":
            chol, *_ = pm.LKJCholeskyCov("chol", n=2, eta=2, sd_dist=pm.Gamma.dist(20, 20, shape=2))
            y = pm.MvNormal("y", mu[labels], chol=chol)
        else:
            tau = pm.Gamma("tau", 3, 3)
            y = pm.MvNormal("y", mu[labels], tau=tau * np.linalg.inv(vectors.correlated(2, 0.5)))
        dp.LaplaceMechanism("z", y, scale=0.5, bounds=(-8, 8), observed=z)
        pm.Deterministic("k", dp.n_clusters(labels))
    # slopes in a factor or a precision matrix take a minute to compile, for NUTS alone
    mode = pytensor.config.mode if kind == "columns" else "FAST_COMPILE"
    with model, pytensor.config.change_flags(mode=mode):
        idata = pm.sample(200, tune=300, chains=1, cores=1, progressbar=False, random_seed=1)
    assert {"cluster_acceptance", "atom_acceptance"} <= set(idata.sample_stats.data_vars)
    similarity = dp.similarity_matrix(idata).values
    assert similarity[:10, :10].mean() > 0.5 > 0.1 > similarity[:10, 10:].mean()
    partition = dp.point_partition(idata).values
    assert not set(partition[:10]) & set(partition[10:])
    grid = np.stack(np.meshgrid(*2 * [np.linspace(-10, 10, 41)], indexing="ij"), axis=-1).reshape(-1, 2)
    density = dp.mixture_density(idata, model, grid, n_draws=50, random_seed=1)
    assert density["density"].shape[-1] == 41**2
    np.testing.assert_allclose(float(density["mean"].sum()) * 0.25, 1.0, atol=0.03)
    taught = dp.informativeness(idata, model, grid[::40], n_draws=100, random_seed=1)
    assert np.isfinite(taught["distance"]).all()
