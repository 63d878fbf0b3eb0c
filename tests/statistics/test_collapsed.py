"""CollapsedUpdate: calibration, joint distribution tests, exact answers, and that they can fail."""

from __future__ import annotations

from itertools import product
from zlib import crc32

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_dp as dp
from pymc_dp.mechanisms._response_forms import AnswerTables
from pymc_dp.step_methods import collapsed
from pymc_dp.step_methods.updates import exchangeable
from tests.statistics import harness
from tests.statistics.drive import StepKernel
from tests.statistics.oracles import _beta_mixture
from tests.statistics.response_models import GroupedBits, LogitAnswers, Responses, SoftmaxBits, Told
from tests.statistics.test_sbc import calibration

ALPHA = 1e-4


def _alone(model):
    return [dp.CollapsedUpdate(n_updates=20)]


def _chosen(model):
    """As `pm.sample` chooses them: each must notice what the other moved."""
    return [dp.CollapsedUpdate(n_updates=10), dp.RecordImputation()]


def _short_chains(model, make_steps, gibbs):
    seed = crc32(f"{model}/{make_steps.__name__}/{gibbs}".encode())
    kernel = StepKernel(model, make_steps, gibbs=gibbs, seed=seed)
    # doubled counts are seen with as many, and not with half of them
    return kernel.short_chains(seed=seed, alpha=ALPHA, replicates=3000, transitions=3)


# Every model with the step alone; beside the model's own update and imputation, one of each kind of law: one
# table, groups, and a parameter behind the parameter. In the calibration below all models have both steps.
JOINT = {
    "alone": [
        (Responses, 0.1), (Responses, 10.0), (GroupedBits, 1.0), (LogitAnswers, 1.0), (SoftmaxBits, 50.0),
        (Told, 1.0),
    ],
    "beside gibbs": [(Responses, 0.1), (GroupedBits, 1.0), (LogitAnswers, 1.0)],
}  # fmt: skip


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("model_type", "epsilon", "gibbs"),
    [
        pytest.param(*case, how == "beside gibbs", id=f"{case[0].__name__}-{case[1]}-{how}")
        for how, cases in JOINT.items()
        for case in cases
    ],
)
def test_joint_distribution(model_type, epsilon, gibbs):
    verdict = _short_chains(model_type(epsilon), _chosen if gibbs else _alone, gibbs)
    assert verdict.passed, verdict


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("model_type", "epsilon"),
    [
        (Responses, 0.1), (GroupedBits, 1.0), (LogitAnswers, 10.0), (Responses, 10.0),
        (SoftmaxBits, 1.0), (LogitAnswers, 50.0), (Told, 1.0),
    ],
)  # fmt: skip
def test_calibration(model_type, epsilon):
    seed = crc32(f"{model_type.__name__}/{epsilon}".encode())
    kernel = StepKernel(model_type(epsilon), _chosen, gibbs=False, seed=seed)
    verdict = calibration(kernel, 200, seed)
    assert verdict.passed, verdict


# --- breakages -----------------------------------------------------------------------------------


def doubled_counts(patch):
    """The releases count twice in the target."""
    original = collapsed._Part.group

    def group(self):
        self.seen = self.seen[:0]
        original(self)
        self.counts = 2 * self.counts

    patch.setattr(collapsed._Part, "group", group)


def without_prior(patch):
    patch.setattr(exchangeable.CollapsedConditionals, "_factors", lambda self, on: [])


def without_jacobian(patch):
    patch.setattr(exchangeable.CollapsedConditionals, "_jacobian", lambda self, *args: pt.constant(0.0))


def stale_records(patch):
    """The records are not drawn again after the parameters moved."""
    original = collapsed._Part.run

    def run(self, step, point, *args):
        moved = original(self, step, point, *args)
        return {name: moved[name] for name in self.names}

    patch.setattr(collapsed._Part, "run", run)


def records_from_the_model(patch):
    """The records are drawn without their releases."""
    original = exchangeable.CollapsedConditionals._shares

    def shares(self):
        graph = original(self)
        return graph / self.channel[:, : self.case.n_categories]

    law = exchangeable.CollapsedConditionals.shares

    def law_only(self):
        type(self)._shares = shares
        try:
            return law(self)
        finally:
            type(self)._shares = original

    patch.setattr(exchangeable.CollapsedConditionals, "shares", law_only)


def stale_groups(patch):
    """Releases are grouped once, and not again when they have changed."""
    original = collapsed._Part.group

    def group(self):
        if not hasattr(self, "counts"):
            original(self)

    patch.setattr(collapsed._Part, "group", group)


def one_row_for_all(patch):
    """All records are taken to have the first row of the table."""

    def shares(self):
        return self._table()[:1] * self.channel[:, : self.case.n_categories]

    patch.setattr(exchangeable.CollapsedConditionals, "_shares", shares)


def answers_after_the_next(patch):
    """Each answer has the probabilities of the one after it."""
    told = AnswerTables.log_report
    wrong = staticmethod(lambda z, c, table, k: told(z, c, pt.roll(table, 1, axis=-1), k))
    patch.setattr(AnswerTables, "log_report", wrong)


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("breakage", "model_type", "epsilon"),
    [
        (doubled_counts, Responses, 2.0),
        (without_prior, Responses, 1.0),
        (without_jacobian, Responses, 1.0),
        (stale_records, Responses, 0.1),
        (records_from_the_model, GroupedBits, 2.0),
        (stale_groups, Responses, 2.0),
        (one_row_for_all, GroupedBits, 2.0),
        (doubled_counts, LogitAnswers, 2.0),
        (answers_after_the_next, Told, 1.0),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_joint_distribution_test_rejects(monkeypatch, breakage, model_type, epsilon):
    breakage(monkeypatch)
    verdict = _short_chains(model_type(epsilon), _alone, gibbs=False)
    assert verdict.outcome == "rejected", verdict


# --- exact answers -------------------------------------------------------------------------------


def mixture_of_betas(z, k, likelihood, prior):
    """Exact marginals of Dirichlet probabilities, by enumeration of all confidential records."""
    weight = {}
    for c in product(range(k), repeat=len(z)):
        table = tuple(np.bincount(c, minlength=k))
        weight[table] = weight.get(table, 0.0) + np.prod([likelihood(z[i], c[i]) for i in range(len(z))])
    tables = np.array(list(weight))
    posterior = prior + tables
    log = np.array([harness_log_beta(a) for a in posterior]) + np.log(list(weight.values()))
    share = np.exp(log - log.max())
    share /= share.sum()
    total = posterior.sum(1)
    return [_beta_mixture(share, posterior[:, j], total - posterior[:, j]) for j in range(k)]


def harness_log_beta(a):
    from scipy.special import gammaln

    return gammaln(a).sum() - gammaln(a.sum())


@pytest.mark.statistical
@pytest.mark.parametrize("epsilon", [0.3, 3.0])
def test_posterior_is_that_of_enumeration(epsilon):
    """The step that `pm.sample` chooses, the count form under NUTS, and the exact answer."""
    prior, z = np.array([1.0, 2.0, 0.8]), np.array([0, 2, 2, 2, 1, 2, 0])
    truth = np.exp(epsilon) / (np.exp(epsilon) + 2)
    exact = mixture_of_betas(z, 3, lambda r, c: truth if r == c else (1 - truth) / 2, prior)
    with pm.Model() as on_records:
        theta = pm.Dirichlet("theta", prior)
        c = pm.Categorical("c", theta, shape=z.size)
        dp.RandomizedResponse("z", c, epsilon=epsilon, observed=z)
    with pm.Model() as on_counts:
        theta = pm.Dirichlet("theta", prior)
        dp.RandomizedResponse("z", theta, n=z.size, epsilon=epsilon, observed=np.bincount(z))
    for model in (on_records, on_counts):
        idata = pm.sample(
            4000, tune=1000, chains=2, cores=1, model=model, random_seed=3, progressbar=False,
            nuts_sampler="pymc", compute_convergence_checks=False,
        )  # fmt: skip
        for j, marginal in enumerate(exact):
            draws = idata.posterior["theta"].values[..., j]
            verdict = harness.mc_z(draws, marginal, prefix=f"theta{j} ", alpha=1e-3 / 6)
            assert verdict.passed, verdict


@pytest.mark.statistical
def test_mixes_where_imputation_does_not():
    rng = np.random.default_rng(4)
    z = rng.integers(0, 8, 300)
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.ones(8))
        c = pm.Categorical("c", p, shape=300)
        dp.RandomizedResponse("z", c, epsilon=0.1, observed=z)
        imputation = [dp.RecordImputation(), pm.NUTS([p])]
    ess = []
    for step in (None, imputation):
        idata = pm.sample(
            500, tune=500, chains=2, cores=1, model=model, step=step, random_seed=1, progressbar=False,
            var_names=["p"], compute_convergence_checks=False,
        )  # fmt: skip
        ess.append(float(az.ess(idata.posterior["p"].values[..., 0])))
    assert ess[0] > 300
    assert ess[0] > 10 * ess[1]
