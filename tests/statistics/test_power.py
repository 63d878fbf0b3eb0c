"""The statistical suites reject steps that are broken on purpose.

Each breakage is one line of the step or of the graphs it compiles, replaced while the step is built.
"""

from __future__ import annotations

import dataclasses
import inspect

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.tensor.random.basic import BernoulliRV

import pymc_dp as dp
from pymc_dp.lowering.addresses.bind import Kernel, part_of_kernel
from pymc_dp.lowering.functions import interval_mass
from pymc_dp.mechanisms import processed
from pymc_dp.privacy import processing
from pymc_dp.privacy.processing import Processing
from pymc_dp.step_methods.block import changes, program
from pymc_dp.step_methods.sweeps import blocks, discrete, fused, kernels, moves, tabled
from pymc_dp.step_methods.updates import conditionals, dirichlet, noncentred, series
from tests.statistics import harness, oracles
from tests.statistics.conjugate_models import (
    PublicTerms,
    RandomConcentration,
    SharedTable,
    conjugate_steps,
    conjugate_update,
)
from tests.statistics.drive import StepKernel, records_and_nuts
from tests.statistics.models import (
    BernoulliTotal,
    ClampedNormal,
    Exponentials,
    LocalPoisson,
    Regression,
    ThreeCategories,
    TwoReleases,
)
from tests.statistics.processed_models import ProcessedCounts, ProcessedSums
from tests.statistics.special_models import (
    AutoregressiveRecords,
    LocalGamma,
    NeighbourProducts,
    PublicOutcome,
    WalkingRecords,
)
from tests.statistics.test_exact import tables_verdict
from tests.statistics.test_sbc import calibration

pytestmark = [
    pytest.mark.statistical,
    pytest.mark.filterwarnings("ignore:The query of s is no sum over records"),
]


def _imputation(model):
    return [dp.RecordImputation()]


def _ancillary(model):
    return [dp.AncillaryUpdate(n_centred=0, n_cycles=1)]


def _conjugate(model):
    return [conjugate_update(model)]


def _short_chains(model, make_steps, gibbs=True):
    return StepKernel(model, make_steps, gibbs=gibbs, seed=5).short_chains(seed=6, alpha=1e-4)


# --- breakages -----------------------------------------------------------------------------------


def doubled_ratio_of_sums(patch):
    """The change of a central release's log density counts twice."""
    patch.setattr(changes, "difference", lambda after, before: 2 * (after - before))


def doubled_ratio_of_rows(patch):
    """The log weight of every record counts twice."""
    rows, vectorised = fused.FusedSweep._weight_graphs, program.RecordProgram.weights
    patch.setattr(fused.FusedSweep, "_weight_graphs", lambda self: [2 * g for g in rows(self)])
    patch.setattr(program.RecordProgram, "weights", lambda self, r: 2 * vectorised(self, r))


def _rebound(patch, module, **parts):
    """Give names of a module's kernels other meanings."""

    def kernel(function, signature, names):
        there = set(parts) & set(function.__code__.co_names)
        broken = {name: part_of_kernel(parts[name]) for name in there}
        return Kernel(function, signature, {**names, **broken})

    patch.setattr(module, "Kernel", kernel)


def stale_sums(patch):
    """The cached sums are not brought up to date when a record is accepted."""

    names = {**vars(blocks), "__name__": __name__}
    source = inspect.getsource(blocks.few_sums_sweep)
    assert "old = new\n" in source
    exec(source.replace("old = new\n", "pass\n"), names)
    patch.setattr(blocks, "few_sums_sweep", names["few_sums_sweep"])
    _rebound(patch, discrete, shift=lambda sums, left, entered, statistic, amount: None)


def suppression_read_as_missing(patch):
    """An entry that was not published tells nothing."""
    found = Processing._before_suppression

    def before(self, xp, lower, upper, hidden, whole):
        lower, upper, some = found(self, xp, lower, upper, hidden, whole)
        return lower, dataclasses.replace(upper, at=xp.where(hidden, np.inf, upper.at)), some

    patch.setattr(Processing, "_before_suppression", before)


def halves_away_from_even(patch):
    """Halves are thought to have gone to the odd multiple."""
    odd = processing._is_odd
    patch.setattr(processing, "_is_odd", lambda xp, k: ~odd(xp, k))


def intervals_as_points(patch):
    """What was published is taken for the noisy value, where there is one."""

    def at_the_nearer_end(law, lower, upper, query, level):
        middle = pt.switch(lower < -1e30, upper, pt.switch(upper > 1e30, lower, pt.ceil((lower + upper) / 2)))
        return interval_mass.log_mass(law, middle, middle, query, level)

    patch.setattr(processed, "log_mass", at_the_nearer_end)


def stale_density(patch):
    """The density of a release of no sum is not brought up to date when a record is accepted."""
    names = dict(vars(kernels))
    for kernel in ("accept_all", "vectorised_sweep"):
        source = inspect.getsource(names[kernel].py_func).replace("cache=True", "cache=False")
        exec(source.replace("            current = proposed\n", ""), names)
    patch.setattr(kernels, "vectorised_sweep", names["vectorised_sweep"])


def weak_density(patch):
    """The ratio of a release of no sum is taken to a power."""
    original = program.RecordProgram.release_logp
    patch.setattr(program.RecordProgram, "release_logp", lambda self, *args: 0.85 * original(self, *args))


def joint_moves_without_release(patch):
    """Rows of a table move with their records whatever was released."""
    _rebound(patch, dirichlet, accepts=lambda rng, log_ratio: True)


def joint_moves_from_the_middle(patch):
    """Records keep the middle of their category as their place, not a uniform one in it."""
    patch.setattr(dirichlet, "_place", part_of_kernel(lambda rng: 0.5))


def joint_moves_without_prior(patch):
    """Rows of a table walk as if their law were flat in the logarithms of the probabilities."""
    walk = dirichlet.walk_row
    _rebound(patch, dirichlet, walk_row=lambda *args: (0.0, walk(*args)[1]))


def candidates_from_the_wrong_row(patch):
    """Records are proposed from the first row of their table, whoever their parents are."""
    original = discrete.drawn_in_turn

    def drawn_in_turn(looks, sizes):
        return original([look._replace(strides=tuple(0 * s for s in look.strides)) for look in looks], sizes)

    patch.setattr(discrete, "drawn_in_turn", drawn_in_turn)


def stale_records(patch):
    """A step works on the records it knew last, not on those of the point."""
    pack = program.RecordLayout.pack
    seen = set()

    def stale(self, point, out=None):
        if id(out) in seen:
            return out
        seen.add(id(out))
        return pack(self, point, out=out)

    patch.setattr(program.RecordLayout, "pack", stale)


def without_channel_density(patch):
    """Reversed-channel proposals whose own density is left out of the ratio."""
    patch.setattr(moves, "_noise_logp", lambda prog, *args: pt.zeros(prog.n))
    graphs = tabled.ReversedSweep._weight_graphs
    patch.setattr(tabled.ReversedSweep, "_weight_graphs", lambda self: graphs(self)[:-1])


def without_prior(patch):
    _drop_factors(patch, lambda self, factor: factor in self.moving)


def without_outcome(patch):
    _drop_factors(patch, lambda self, factor: factor.name == "w")


def _drop_factors(patch, dropped):
    """Leave factors out of the ancillary target."""
    original = conditionals.Conditionals.ancillary

    def ancillary(self, *args):
        kept = self._factors
        self._factors = lambda on: [f for f in kept(on) if not dropped(self, f)]
        try:
            return original(self, *args)
        finally:
            del self._factors

    patch.setattr(conditionals.Conditionals, "ancillary", ancillary)


def without_release(patch):
    """The ancillary target without the density of the release."""
    patch.setattr(conditionals.Conditionals, "_central_logp", lambda self, reading: pt.constant(0.0))


def without_jacobian(patch):
    """The ancillary target of a transformed parameter without its Jacobian."""
    patch.setattr(conditionals.Conditionals, "_jacobian", lambda self, *args: pt.constant(0.0))


def without_spread_noise(patch):
    """Discrete records whose noise is the middle of their step, not uniform on it."""

    def middle(x, rv):
        below, at = noncentred._steps(rv, x)
        return 0.5 * (below + at)

    form = noncentred.NoiseForm(middle, noncentred._discrete_record, smooth=False)
    patch.setitem(noncentred._FORMS, BernoulliRV, form)


def entries_moved_as_steps(patch):
    """Records that are series move along as if each of their entries were a step."""
    for name in ("_random_walk", "_autoregression"):
        original = getattr(series, name)

        def form(*args, original=original):
            right = original(*args)
            return dataclasses.replace(right, to_record=right.steps)

        patch.setattr(series, name, form)


def another_concentration(patch):
    """The steps are told that the concentration is the same in every cell."""
    original = RandomConcentration.build

    def build(self, release):
        told = RandomConcentration(self.epsilon)
        told.base = np.ones(3)
        return original(told, release)

    patch.setattr(RandomConcentration, "build", build)


def tables_of_other_records(patch):
    """Tables are drawn given records that the point does not get."""
    original = dp.ConjugateUpdate.step

    def step(self, point):
        moved, stats = original(self, point)
        tables = dp.ConjugateUpdate._claimable(self.model)
        return {**point, **{v.name: moved[v.name] for v in tables}}, stats

    patch.setattr(dp.ConjugateUpdate, "step", step)


def records_seen_once(patch):
    """NUTS keeps the records that it was shown first."""
    original = pm.NUTS.step

    def step(self, point):
        if not hasattr(self, "first"):
            self.first = {name: point[name] for name in self.shared}
        moved, stats = original(self, {**point, **self.first})
        return {**point, **{v.name: moved[v.name] for v in self.vars}}, stats

    patch.setattr(pm.NUTS, "step", step)


BREAKAGES = [
    (doubled_ratio_of_sums, ClampedNormal, 2.0, _imputation),
    (doubled_ratio_of_sums, Regression, 10.0, _imputation),
    (doubled_ratio_of_rows, LocalPoisson, 3.0, _imputation),
    (stale_sums, ClampedNormal, 2.0, _imputation),
    (stale_sums, BernoulliTotal, 1.0, _imputation),
    (stale_records, ClampedNormal, 50.0, _imputation),
    (suppression_read_as_missing, ProcessedCounts, 10.0, _imputation),
    (halves_away_from_even, ProcessedCounts, 10.0, _imputation),
    (intervals_as_points, ProcessedCounts, 10.0, _imputation),
    (intervals_as_points, ProcessedSums, 10.0, _ancillary),
    (stale_density, NeighbourProducts, 10.0, _imputation),
    (weak_density, NeighbourProducts, 10.0, _imputation),
    (without_channel_density, LocalGamma, 10.0, _imputation),
    # unclamped sums: without the prior the target must still be proper, or tuning runs away
    (without_prior, TwoReleases, 0.3, _ancillary),
    (without_outcome, PublicOutcome, 1.0, _ancillary),
    (without_release, ClampedNormal, 2.0, _ancillary),
    (without_jacobian, Exponentials, 1.0, _ancillary),
    (without_spread_noise, BernoulliTotal, 1.0, _ancillary),
    (entries_moved_as_steps, AutoregressiveRecords, 10.0, _ancillary),
    (without_release, WalkingRecords, 10.0, _ancillary),
    (joint_moves_without_release, ThreeCategories, 10.0, _conjugate),
    (joint_moves_from_the_middle, ThreeCategories, 1.0, _conjugate),
    (joint_moves_without_prior, ThreeCategories, 0.1, _conjugate),
    (candidates_from_the_wrong_row, SharedTable, 1.0, _imputation),
    (another_concentration, RandomConcentration, 1.0, _conjugate),
    (tables_of_other_records, PublicTerms, 1.0, _conjugate),
    (records_seen_once, ClampedNormal, 10.0, records_and_nuts),
    (doubled_ratio_of_sums, BernoulliTotal, 1.0, records_and_nuts),
]


@pytest.mark.parametrize(
    "breakage, model_type, epsilon, make_steps",
    BREAKAGES,
    ids=[f"{b.__name__}-{m.__name__}" for b, m, *_ in BREAKAGES],
)
def test_joint_distribution_test_rejects(monkeypatch, breakage, model_type, epsilon, make_steps):
    breakage(monkeypatch)
    verdict = _short_chains(model_type(epsilon), make_steps, gibbs=make_steps is not records_and_nuts)
    assert verdict.outcome == "rejected", verdict


@pytest.mark.parametrize(
    "breakage, model_type, epsilon, make_steps, gibbs",
    [
        (doubled_ratio_of_sums, BernoulliTotal, 2.0, _imputation, True),
        (stale_sums, BernoulliTotal, 1.0, _imputation, True),
        (without_release, ClampedNormal, 2.0, _ancillary, False),
        (doubled_ratio_of_sums, BernoulliTotal, 2.0, records_and_nuts, False),
        (records_seen_once, BernoulliTotal, 2.0, records_and_nuts, False),
    ],
    ids=["doubled ratio", "stale sums", "without release", "doubled ratio beside NUTS", "records seen once"],
)
def test_calibration_rejects(monkeypatch, breakage, model_type, epsilon, make_steps, gibbs):
    breakage(monkeypatch)
    kernel = StepKernel(model_type(epsilon), make_steps, gibbs=gibbs, seed=7)
    verdict = calibration(kernel, 300, seed=8, alpha=1e-3)
    assert verdict.outcome == "rejected", verdict


def _posterior(steps):
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.5, 1.5)
        x = pm.Normal("x", mu, 0.8, shape=4)
        dp.LaplaceMechanism("s", dp.record_sum(x), scale=4.0, observed=11.0)
        step = steps(mu)
    idata = pm.sample(
        6000,
        tune=500,
        chains=2,
        cores=1,
        model=model,
        step=step,
        random_seed=1,
        progressbar=False,
        compute_convergence_checks=False,
    )
    exact = oracles.normal_sum(11.0, 4, 0.8, 4.0, prior=(0.5, 1.5))
    return harness.mc_z(idata.posterior["mu"].values, exact, minimum_ess=200)


def _records_and_nuts(mu):
    return [dp.RecordImputation(), pm.NUTS([mu])]


def _automatic(mu):
    return None


@pytest.mark.parametrize(
    "breakage, steps",
    [
        (doubled_ratio_of_sums, _records_and_nuts),
        (without_release, _automatic),
        (without_prior, _automatic),
    ],
    ids=["doubled ratio", "without release", "without prior"],
)
def test_exact_answer_rejects(monkeypatch, breakage, steps):
    breakage(monkeypatch)
    verdict = _posterior(steps)
    assert verdict.outcome == "rejected", verdict


def test_exact_tables_reject(monkeypatch):
    another_concentration(monkeypatch)
    verdict = tables_verdict(RandomConcentration, 3.0, conjugate_steps)
    assert verdict.outcome == "rejected", verdict


@pytest.mark.parametrize("steps", [_records_and_nuts, _automatic])
def test_exact_answer_passes_unbroken_steps(steps):
    verdict = _posterior(steps)
    assert verdict.passed, verdict


def test_nothing_is_rejected_when_nothing_is_broken():
    """The same call, unbroken: the rejections above are due to the breakages."""
    assert (verdict := _short_chains(ClampedNormal(2.0), _imputation)).passed, verdict
    assert np.isfinite(list(verdict.checks.values())).all()
