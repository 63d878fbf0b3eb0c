"""Joint distribution tests and calibration of the samplers of mixtures whose records are known."""

from __future__ import annotations

from functools import cache
from zlib import crc32

import pytest

from pymc_dp.lowering.addresses.bind import part_of_kernel
from pymc_dp.step_methods.mixture import slot_sums
from tests.mixtures.models import CONJUGATE_MODELS, KNOWN_MODELS, laws_by_name
from tests.mixtures.mutants import rewritten
from tests.mixtures.samplers import ALL_KNOWN, CONJUGATE_SAMPLERS
from tests.statistics.drive import Shared, StepKernel
from tests.statistics.test_sbc import calibration

# About 40 verdicts: this keeps the chance of a false alarm anywhere below one in a thousand.
ALPHA = 1e-5
BY_NAME = {m.__name__.removeprefix("Known"): m for m in KNOWN_MODELS}


@cache
def shared(model_type):
    return Shared(model_type(1.0))


@cache
def shared_kernel(model_type, sampler):
    """Kept, so that what is compiled is kept."""
    return kernel_of(shared(model_type), sampler, crc32(f"{model_type.__name__} {sampler}".encode()))


def kernel_of(model, sampler, seed=0):
    """The steps of a sampler as a transition of a test model, after the update of the concentration."""
    return StepKernel(model, lambda _: ALL_KNOWN[sampler](), gibbs=True, seed=seed)


# test_known_exact.py runs both of these samplers, and all splits, beside exact posteriors
def _rows():
    for k, model in enumerate(KNOWN_MODELS):
        conjugate = [list(CONJUGATE_SAMPLERS)[k % 2]] if model in CONJUGATE_MODELS else []
        fitting = [*conjugate, "neal 8"]
        if model.__name__ != "KnownLatentClasses":  # its probabilities have no mode that scans could use
            fitting.append(("splits", "split-merge of neal 8")[k % 2])
        for sampler in fitting:
            yield pytest.param(model, sampler, id=f"{model.__name__} {sampler}")


@pytest.mark.statistical
@pytest.mark.parametrize(("model_type", "sampler"), list(_rows()))
def test_joint_distribution(model_type, sampler):
    seed = crc32(f"{sampler} {model_type.__name__}".encode())
    kernel = shared_kernel(model_type, sampler)
    verdict = kernel.short_chains(seed=seed, alpha=ALPHA, replicates=2000, transitions=2)
    assert verdict.passed, verdict


CALIBRATED = [
    ("NormalInverseGamma", "neal 2"), ("KnownVariance", "neal 3"), ("GammaRates", "neal 8"),
    ("Regressions", "split-merge of neal 8"), ("HalfNormalScales", "split-merge"), ("CutVariances", "neal 2"),
]  # fmt: skip


@pytest.mark.statistical
@pytest.mark.parametrize(("name", "sampler"), CALIBRATED)
def test_calibration(name, sampler):
    seed = crc32(f"{name} {sampler}".encode())
    verdict = calibration(shared_kernel(BY_NAME[name], sampler), 200, seed, alpha=ALPHA)
    assert verdict.passed, verdict


@pytest.mark.statistical
@pytest.mark.parametrize("model_type", KNOWN_MODELS, ids=lambda m: m.__name__)
def test_laws_of_atoms_are_recognised(model_type):
    """As if the records were confidential; those that integrate out are taken for such."""
    lowered = shared_kernel(model_type, "neal 8").steps[0]._mixtures[0].lowered
    assert laws_by_name(lowered) == (model_type.laws, model_type.other)
    assert lowered.integrates_out == (model_type in CONJUGATE_MODELS)


def hardly_any_end(patch):
    """The number is taken to have hardly any lower end where it is integrated out."""
    fill_in, end, broken = slot_sums._of_end, 1e-9, []

    def of_end(program, k, r):
        as_it_is = fill_in(program, k, r)
        broken.append(k)

        @part_of_kernel
        def filled_in(c, s, scale, weights, empty):
            as_it_is(c, s, scale, weights, empty)
            empty[r] = end

        return filled_in

    patch.setattr(slot_sums, "_of_end", of_end)
    return broken


# what is broken: (line, what takes its place, kernel, sampler, model)
BROKEN = {
    "no factor of the density": (
        r"dot_from\(start, .*\)", "start",
        "conjugate_gibbs", "neal 2", "NormalInverseGamma",
    ),
    "a new cluster without the base": (
        r"N_NORMAL\) - z_empty", "N_NORMAL)", "conjugate_gibbs", "neal 2", "PoissonGamma",
    ),
    "atoms of a new cluster from the base": (
        r"draw_atoms\(rng, sums,", "draw_atoms(rng, empty,",
        "conjugate_gibbs", "neal 2", "NormalInverseGamma",
    ),
    "lowest free slot": (
        r"g = free_slot\(rng, slots, k\)", "g = order[k:].min()", "conjugate_gibbs", "neal 2", "Regressions",
    ),
    "no mass above the end": (
        None, hardly_any_end, "collapsed_sweep", "neal 3", "CutVariances",
    ),
    "another shape above the end": (
        r"draw_inverse_gamma\(rng, c, ", "draw_inverse_gamma(rng, c, 1.0 + ",
        "conjugate_draws", "neal 8", "CutVariances",
    ),
    "proposals without their probability": (
        r"chosen -= np\.log1p\(.*\)", "chosen -= 0.0", "collapsed_scans", "splits", "NormalInverseGamma",
    ),
    "the last scan of a merge draws": (
        r"if splits or scan < N_SCANS:", "if True:", "collapsed_scans", "splits", "PoissonGamma",
    ),
    "splits without the partition": (
        r"total \+= split_ratio\(.*\)", "total += 0.0", "collapsed_scans", "splits", "KnownVariance",
    ),
    "proposed atoms without their density": (
        r"part = out\[0\] - student_logp\(.*\)", "part = out[0]",
        "laplace_scans", "splits", "HalfNormalScales",
    ),
    "no law of the atoms": (
        r"part = out\[0\] - ", "part = -",
        "laplace_scans", "split-merge of neal 8", "BetaShapes",
    ),
    "labels without their probability": (
        r"total = -chosen", "total = 0.0", "laplace_scans", "splits", "Precisions",
    ),
}  # fmt: skip


@pytest.mark.statistical
@pytest.mark.parametrize("name", BROKEN)
def test_broken_on_purpose(monkeypatch, name):
    """A line of a kernel, replaced on its way to the compiler: the joint distribution test rejects."""
    pattern, by, kernel, sampler, model = BROKEN[name]
    broken = by(monkeypatch) if pattern is None else rewritten(monkeypatch, pattern, by, kernel)
    kernel = kernel_of(BY_NAME[model](1.0), sampler, 3)
    verdict = kernel.short_chains(seed=4, alpha=ALPHA, replicates=2000, transitions=2)
    assert broken
    assert verdict.outcome == "rejected", verdict
