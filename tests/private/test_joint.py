"""Calibration and joint distribution tests of the private steps, where no row is ever clipped.

A logistic regression on covariates of bounded length: a row's change of log likelihood is at most that length
times the move, and so is its gradient, so that the stationary law is the posterior whatever the noise.
"""

from zlib import crc32

import arviz as az
import numpy as np
import pymc as pm
import pytest

import pymc_dp as dp
from tests.private import models
from tests.statistics import harness

pytestmark = pytest.mark.statistical

N, SCALE, CLIP, ALPHA = 12, 1.5, 1.2, 1e-4
X = np.column_stack([np.ones(N), np.tile([-0.5, 0.5], N // 2)])
NAMES = ("a", "b", "a^2", "b^2", "ab", "a sum", "b contrast", "fit", "fit^2")


def logit_model():
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, SCALE, shape=2)
        dp.ConfidentialLikelihood(
            "y", lambda x: pm.Bernoulli.dist(logit_p=x @ beta), np.zeros(N, int), covariates={"x": X},
            clip=CLIP, clip_gradient=CLIP,
        )  # fmt: skip
    return model


class Kernel:
    """A private step as a transition of (parameters, rows), with the rows exchanged under it."""

    def __init__(self, step_type, noise_multiplier, **kwargs):
        seed = crc32(f"{step_type.__name__}/{noise_multiplier}".encode())
        self.step = models.driven(step_type, logit_model(), noise_multiplier, seed, **kwargs)
        self._rows = self.step.term.rows.columns()

    def draw_prior(self, rng):
        return self.redraw({"beta": rng.normal(0, SCALE, 2)}, rng)

    def redraw(self, state, rng):
        """Rows given the parameters."""
        self.put((rng.uniform(size=N) < 1 / (1 + np.exp(-X @ state["beta"]))).astype(float))
        return {**state, "y": self._rows[0].copy()}

    def put(self, y):
        """Exchange the rows: what the step knows of the old ones is forgotten."""
        self._rows[0] = y
        self.step._at = self.step._kept = None

    def transition(self, state, rng):
        if not np.array_equal(self._rows[0], state["y"]):
            self.put(state["y"])
        self.step.rng, self.step._at = rng, None  # a state of the test's own
        point, _ = self.step.step({"beta": state["beta"]})
        return {**state, "beta": point["beta"]}

    @staticmethod
    def fit(state):
        eta = X @ state["beta"]
        return float(state["y"] @ eta - np.logaddexp(0, eta).sum())

    def functionals(self, state):
        (a, b), y, fit = state["beta"], state["y"], self.fit(state)
        return np.array([a, b, a**2, b**2, a * b, a * y.sum(), b * (y @ X[:, 1]), fit, fit**2])

    def quantities(self, state):
        return np.array([*state["beta"], self.fit(state)])


KERNELS = {
    "penalty, little noise": (dp.PenaltyMetropolis, 0.05, {"scale": 0.8}),
    "penalty, much noise": (dp.PenaltyMetropolis, 0.8, {"scale": 0.8}),
    "component": (dp.PenaltyMetropolis, 0.3, {"scale": 1.0, "updates": "component"}),
    "guided": (dp.PenaltyMetropolis, 0.3, {"scale": 1.0, "updates": "guided"}),
    "hmc, little noise": (dp.PrivateHMC, 0.05, {"step_size": 0.4, "n_leapfrog": 3, "gradient_noise": 2.0}),
    "hmc, much noise": (dp.PrivateHMC, 0.5, {"step_size": 0.3, "n_leapfrog": 4, "gradient_noise": 1.0}),
}


def kernel_of(case):
    step_type, noise_multiplier, kwargs = KERNELS[case]
    return Kernel(step_type, noise_multiplier, **kwargs)


def joint(kernel, case, redraw, replicates=6000):
    """Short chains that begin in the joint law, with the rows redrawn between transitions, or kept."""
    return harness.geweke_replicated(
        kernel.draw_prior, kernel.transition, kernel.redraw if redraw else None, kernel.functionals,
        replicates=replicates, transitions=4, names=NAMES, seed=crc32(case.encode()), alpha=ALPHA,
    )  # fmt: skip


@pytest.mark.parametrize("redraw", [True, False])
@pytest.mark.parametrize("case", KERNELS)
def test_joint_law(case, redraw):
    verdict = joint(kernel_of(case), case, redraw)
    assert verdict.passed, verdict


def test_no_row_is_clipped():
    """What the other tests rest on, at proposals of all sizes."""
    kernel, rng = kernel_of("penalty, much noise"), np.random.default_rng(1)
    step = kernel.step
    for size in (0.01, 1.0, 10.0):
        kernel.draw_prior(rng)
        new, old = rng.normal(size=(2, 2)) * size
        bound = CLIP * np.linalg.norm(new - old)
        numbers = step.numbers_at(new, np.zeros(0)), step.numbers_at(old, np.zeros(0))
        assert step._sums.exceeding(*numbers, bound) == 0 < step._sums.exceeding(*numbers, bound / 20)


def without_penalty(step):
    noisy = step.noisy_ratio
    step.noisy_ratio = lambda *args: (noisy(*args)[0], 0.0)


def prior_twice(step):
    real = step.logp_at
    step.logp_at = lambda *args: 2 * real(*args)


# What is seen with the rows redrawn and with the rows kept; noisy gradients forget less where they are kept.
BREAKS = [
    ("penalty, much noise", without_penalty, (True, False)),
    ("guided", prior_twice, (True, False)),
    ("hmc, much noise", without_penalty, (False,)),
]


@pytest.mark.parametrize(("case", "break_it", "redrawn"), BREAKS)
def test_a_wrong_decision_is_seen(case, break_it, redrawn):
    """Power of the joint tests."""
    for redraw in redrawn:
        kernel = kernel_of(case)
        break_it(kernel.step)
        verdict = joint(kernel, case, redraw)
        assert verdict.outcome == "rejected", verdict


def calibration(kernel, case, replicates=200, draws=15):
    """Ranks of the truth among draws of chains that begin at it, nearly independent of each other."""
    rng, longest = np.random.default_rng(crc32(case.encode())), 1.0
    for _ in range(4):
        chain = run(kernel, kernel.draw_prior(rng), 1500, 1, rng)
        longest = max(longest, *(1500 / float(az.ess(q[None], method="mean")) for q in chain.T))
    thin = min(int(np.ceil(1.5 * longest)), 25)

    def simulate(rng):
        state = kernel.draw_prior(rng)
        return kernel.quantities(state), state

    return harness.sbc(
        simulate, lambda state, rng: run(kernel, state, draws, thin, rng), replicates,
        seed=crc32(case.encode()), names=("a", "b", "fit"), alpha=ALPHA,
    )  # fmt: skip


def run(kernel, state, draws, thin, rng):
    out = []
    for _ in range(draws):
        for _ in range(thin):
            state = kernel.transition(state, rng)
        out.append(kernel.quantities(state))
    return np.array(out)


@pytest.mark.parametrize("case", KERNELS)
def test_calibration(case):
    verdict = calibration(kernel_of(case), case)
    assert verdict.passed, verdict


def test_a_wrong_decision_is_not_calibrated():
    case = "penalty, much noise"
    kernel = kernel_of(case)
    without_penalty(kernel.step)
    verdict = calibration(kernel, case)
    assert verdict.outcome == "rejected", verdict
