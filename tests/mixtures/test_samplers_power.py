"""The suites reject samplers of mixtures that are broken on purpose.

Each breakage is a line of a kernel, replaced on its way to the compiler. Among
them are the defects of the authors' own program that are known: a concentration that never arrives, sticks
broken as far as other slice variables ask, and a component drawn from the base whatever it holds.
"""

from __future__ import annotations

from zlib import crc32

import pytest

from tests.mixtures import models, small
from tests.mixtures.mutants import rewritten
from tests.mixtures.samplers import ALL_SAMPLERS
from tests.mixtures.small import Urn
from tests.mixtures.test_samplers_exact import declared_histogram, histogram_verdict
from tests.mixtures.test_samplers_joint import kernel_of

pytestmark = pytest.mark.statistical

ALPHA = 1e-5
FEW, ONE, MANY, PITMAN_YOR = Urn(0.3), Urn(1.0), Urn(5.0), Urn(0.5, 0.5)


SPLITS = ("splits",)
# name: (pattern, what takes its place, kernels)
LINES = {
    "concentration never arrives": (
        r"alpha, d = urn\(.*\)",
        "alpha, d = 1.0, 0.0",
        ("urn_sweep", "conditional_sweep", "slice_sweep", *SPLITS),
    ),
    "sticks for other slice variables": (
        r"least = min\(least, u\[i\]\)",
        "least = min(least, random(rng) * weights[which[i], 0])",
        ("slice_sweep",),
    ),
    "a component always from the base": (
        r"if counts\[h\] == 0:",
        "if counts[h] == 0 or h == state.labels[0]:",
        ("refresh_atoms",),
    ),
    "lowest free slot": (
        r"g = free_slot\(rng, slots, k\)",
        "g = slots.order[k]\n        for t in slots.order[k:]:\n            g = min(g, t)",
        ("urn_sweep",),
    ),
    "the slot left first": (
        r"left = int\(random\(rng\) \* free\)",
        "left = 0",
        ("slice_sweep",),
    ),
    "free atoms kept": (r"if counts\[h\] == 0:", "if False:", ("refresh_atoms",)),
    "ratio upside down": (
        r"total \+= weight - w\[i\]",
        "total += w[i] - weight",
        ("urn_sweep",),
    ),
    "ratio of means upside down": (
        r"or u \* now < then\), then",
        "or u * then < now), then",
        ("urn_sweep",),
    ),
    "ratio of densities upside down": (
        r"total = (released\(.*\)) - before",
        r"total = before - \1",
        ("urn_sweep",),
    ),
    "half of the ratio of densities": (
        r"total = (released\(.*\)) - before",
        r"total = 0.5 * (\1 - before)",
        ("urn_sweep",),
    ),
    "records kept": (
        r"y = given_release(.*)",
        r"y = given_release\1\n    y = (0.5 * (state.records[i, 0] + y[0]),)",
        ("urn_sweep",),
    ),
    "records from the cluster that was left": (
        r"given_release\((.*)row\(state\.atoms, g, N_ATOMS\)\)",
        r"given_release(\1row(state.atoms, state.labels[i], N_ATOMS))",
        ("urn_sweep",),
    ),
    "no ratio": (r"total \+= weight - w\[i\]", "total += 0.0", ("urn_sweep",)),
    "ratio of means, half of it": (
        r"or u \* now < then\), then",
        "or u * np.sqrt(now) < np.sqrt(then)), then",
        ("urn_sweep",),
    ),
    "ratio of sums, half of it": (
        r"or u \* now < then\):",
        "or u * np.sqrt(now) < np.sqrt(then)):",
        ("urn_sweep",),
    ),
    "sums cut short": (r"edge <= _LEFT_OUT \+", "edge <= 0.7 +", ("urn_sweep",)),
    "largest value forgotten": (
        "return N_VALUES$",
        "return N_VALUES - 1",
        ("urn_sweep",),
    ),
    "refused records from the other cluster": (
        r"weighted\(rng, before, now, m\)",
        "weighted(rng, weights, then, m)",
        ("urn_sweep",),
    ),
    "auxiliaries that may weigh nothing": (
        r"then <= u \* \(now \+ N_AUXILIARY - j\)",
        "then <= u * now",
        ("urn_sweep",),
    ),
    "new cluster without discount": (
        r"if d <= 0\.0 or u \* slots\.counts\[g\] >= d:",
        "if True:",
        ("urn_sweep",),
    ),
    "new cluster's weight without discount": (
        r"rest = weight_of_new_cluster\(alpha, d, k\)",
        "rest = alpha",
        ("conditional_sweep", "slice_sweep"),
    ),
    "old clusters' weights without discount": (
        r"counts\[(\w+)\] - d",
        r"counts[\1]",
        ("conditional_sweep", "slice_sweep"),
    ),
    # Weights cannot be stale between sweeps, which work them out again, and depend on no atoms.
    "weight of the record left out": (
        r"s, w\[i\], seen = (.*)",
        r"s, _, seen = \1\n        w[i] = -3.0",
        ("urn_sweep",),
    ),
    "weights of the records left out": (
        r"w\[i\] = as_it_is\(.*\)",
        "w[i] = -3.0",
        SPLITS,
    ),
    "weights of clusters that are merged, any": (
        r"v = rng\.beta\(.*\)",
        "v = draw_weight(rng, m)",
        SPLITS,
    ),
    "records tried as often on the way back": (
        r"tried = min.*\n.*again = .*",
        "tried = min(1.0, 1.2 * v)\n        weight, again = v / tried, tried",
        SPLITS,
    ),
    "anybody goes": (
        r"goes\[i\] = splits and random\(rng\) \* each < gain",
        "goes[i] = splits and random(rng) < weight",
        SPLITS,
    ),
    "releases as before": (
        r"x\[i, j\] = y\[j\]",
        "pass",
        SPLITS,
    ),
    "half of the change": (
        r"change = change if labels\[i\] == h else -change",
        "change = 0.5 * (change if labels[i] == h else -change)",
        SPLITS,
    ),
    "stale densities": (
        r"labels\[i\], w\[i\] = to, there\[i\]",
        "labels[i] = to",
        SPLITS,
    ),
    "half of the density": (
        r"total = after\[h, 0\] - before\[h, 0\]",
        "total = 0.5 * (after[h, 0] - before[h, 0])",
        ("langevin",),
    ),
    "any auxiliary record": (
        r"weighted\(rng, room\.weights, then, N_AUXILIARY\)",
        "int(random(rng) * N_AUXILIARY)",
        ("urn_sweep",),
    ),
    "weight of the cluster left with the record itself": (
        r"if not alone:$",
        "if False:",
        ("conditional_sweep",),
    ),
    "every empty cluster at full weight": (
        r"np\.log\(rest / n_empty\)",
        "np.log(rest)",
        ("conditional_sweep",),
    ),
    "own atoms of a lonely record forgotten": (
        r"if t > 0 or not alone:",
        "if True:",
        ("conditional_sweep",),
    ),
    "splits as often as merges": (
        r"log_split\((.*)\)",
        r"0.0 * log_split(\1)",
        SPLITS,
    ),
    "splits without the number of clusters": (
        r"log_split\((.*)\)",
        r"log_split(\1) + np.log(k + splits)",
        SPLITS,
    ),
    "variance given means that are integrated out": (
        r"shape - 0\.5 \* N_NORMAL",
        "shape",
        ("conjugate_draws",),
    ),
    "means at the old variance": (r"sums\[h, j\] \*= s / drawn", "pass", ("conjugate_draws",)),
    "count of the new bin only": (r"old\[left\[q\]\] -= 1\.0", "pass", ("urn_sweep",)),
    "sum not brought up to date": (r"old\[POSITIONS\[j\]\] = after\[.*\]", "pass", ("urn_sweep",)),
    "no volume of the transform": (r"\+= of_base\[0\] \+ of_values\[0\]", "+= of_base[0]", ("langevin",)),
}

# sampler, kernel, channel, urn. Splits of all kinds are one kernel: each of its lines is broken for one kind.
BY_EXACT_ANSWERS = [
    ("concentration never arrives", "joint", "NIG", "laplace", MANY),
    ("concentration never arrives", "conditional", "NIG", "laplace", FEW),
    ("concentration never arrives", "slice", "NIG", "laplace", MANY),
    ("sticks for other slice variables", "slice", "NIG", "laplace", ONE),
    ("a component always from the base", "slice", "NIG", "laplace", ONE),
    ("lowest free slot", "joint", "NIG", "laplace", ONE),
    ("the slot left first", "slice", "NIG", "laplace", ONE),
    ("free atoms kept", "joint", "normal", "laplace", ONE),
    ("ratio upside down", "joint", "NIG", "gaussian, clamped", ONE),
    ("ratio of means upside down", "joint of 5", "NIG", "laplace", ONE),
    ("no ratio", "joint", "NIG", "laplace", ONE),
    ("ratio of densities upside down", "closed", "NIG", "gaussian, clamped", ONE),
    ("half of the ratio of densities", "closed", "NIG", "laplace", ONE),
    ("records kept", "closed", "NIG", "laplace", ONE),
    ("records from the cluster that was left", "closed", "normal", "laplace", ONE),
    ("ratio of means, half of it", "joint of 2", "NIG", "laplace", ONE),
    ("ratio of sums, half of it", "closed", "Poisson", "", ONE),
    ("sums cut short", "closed", "Poisson", "", ONE),
    ("refused records from the other cluster", "closed", "Poisson", "", ONE),
    ("new cluster without discount", "joint", "NIG", "laplace", PITMAN_YOR),
    ("new cluster without discount", "joint of 5", "NIG", "laplace", PITMAN_YOR),
    ("new cluster's weight without discount", "conditional", "NIG", "laplace", PITMAN_YOR),
    ("new cluster's weight without discount", "slice", "NIG", "laplace", Urn(0.5, 0.3)),
    ("old clusters' weights without discount", "conditional", "NIG", "laplace", PITMAN_YOR),
    ("old clusters' weights without discount", "slice", "NIG", "laplace", Urn(0.5, 0.3)),
    ("weight of the record left out", "joint", "NIG", "laplace", ONE),
    ("weights of the records left out", "fresh splits", "NIG", "laplace", ONE),
    ("weights of clusters that are merged, any", "released splits", "NIG", "laplace", PITMAN_YOR),
    ("records tried as often on the way back", "fresh splits", "NIG", "laplace", ONE),
    ("anybody goes", "kept splits", "NIG", "laplace", ONE),
    ("releases as before", "released splits", "normal", "laplace", ONE),
    ("half of the change", "fresh splits", "NIG", "laplace", ONE),
    ("stale densities", "released splits", "NIG", "laplace", ONE),
    # conditional sweeps alone leave free atoms at the law of the base; joint ones do not
    ("free atoms kept", "auto", "normal", "laplace", ONE),
    ("half of the density", "joint", "Beta", "", MANY),
    ("any auxiliary record", "joint of 5", "NIG", "laplace", ONE),
    ("auxiliaries that may weigh nothing", "joint of 5", "NIG", "laplace", ONE),
    ("weight of the cluster left with the record itself", "conditional", "NIG", "laplace", ONE),
    ("every empty cluster at full weight", "conditional", "NIG", "laplace", ONE),
    ("own atoms of a lonely record forgotten", "conditional", "NIG", "laplace", ONE),
    ("splits as often as merges", "kept splits", "NIG", "laplace", PITMAN_YOR),
    ("splits without the number of clusters", "fresh splits", "NIG", "laplace", ONE),
    ("no volume of the transform", "joint", "Beta", "", ONE),
]
SLOTS_ONLY = ("lowest free slot", "the slot left first")


def _ids(rows):
    return [" ".join(map(str, row)).replace("  ", " ") for row in rows]


@pytest.mark.parametrize(
    ("line", "sampler", "kernel", "channel", "urn"), BY_EXACT_ANSWERS, ids=_ids(BY_EXACT_ANSWERS)
)
def test_exact_answers_reject(monkeypatch, line, sampler, kernel, channel, urn):
    pattern, by, kernels = LINES[line]
    broken = rewritten(monkeypatch, pattern, by, *kernels)
    n = 3 if kernel == "Beta" else 5
    model = small.declared(kernel, channel, n, urn)
    draws = 40_000 if line.startswith(("sticks", "stale")) else 10_000
    verdict = small.verdict_on(
        ALL_SAMPLERS[sampler], kernel, channel, urn, n=n, draws=draws, seed=3, model=model
    )
    assert broken, f"no line of {kernels} is like {pattern!r}: is the term missing already?"
    assert verdict.outcome == "rejected", verdict
    if line in SLOTS_ONLY:
        # partitions, atoms and records are right all the same
        others = [z for name, z in verdict.checks.items() if not name.startswith(("slot", "order"))]
        assert max(map(abs, others)) < 5


# Levels are those of test_samplers_joint.py where they show the error: what that compiles need not be again.
BY_JOINT_LAW = [
    ("concentration never arrives", "auto", models.NormalInverseGamma, 1.0),
    ("a component always from the base", "conditional", models.PoissonGamma, 50.0),
    ("lowest free slot", "joint of 2", models.Regressions, 0.1),
    ("free atoms kept", "slice", models.KnownVariance, 10.0),
    ("no ratio", "joint", models.PublicOutcomes, 1.0),
    ("weight of the record left out", "joint", models.GammaRates, 10.0),
    ("means at the old variance", "joint", models.NormalInverseGamma, 10.0),
    ("half of the density", "joint", models.HalfNormalScales, 50.0),
    ("any auxiliary record", "joint of 5", models.LatentParents, 10.0),
    ("every empty cluster at full weight", "conditional", models.BinomialBeta, 50.0),
    ("splits as often as merges", "fresh splits", models.HalfNormalScales, 1.0),
    ("splits as often as merges", "kept splits", models.ReleasedSum, 10.0),
    ("half of the change", "kept splits", models.NormalInverseGamma, 10.0),
    ("anybody goes", "fresh splits", models.PoissonGamma, 50.0),
    ("anybody goes", "released splits", models.KnownVariance, 10.0),
    ("largest value forgotten", "closed", models.BinomialBeta, 50.0),
    ("ratio of sums, half of it", "closed", models.BinomialBeta, 50.0),
    ("variance given means that are integrated out", "joint", models.TwoColumns, 1.0),
    ("sum not brought up to date", "joint", models.ReleasedSum, 10.0),
    ("no volume of the transform", "conditional", models.BetaShapes, 0.1),
]


@pytest.mark.parametrize(
    ("line", "sampler", "model_type", "epsilon"),
    BY_JOINT_LAW,
    ids=[f"{line} {m.__name__} {s}" for line, s, m, _ in BY_JOINT_LAW],
)
def test_joint_distribution_test_rejects(monkeypatch, line, sampler, model_type, epsilon):
    pattern, by, kernels = LINES[line]
    broken = rewritten(monkeypatch, pattern, by, *kernels)
    kernel = kernel_of(model_type(epsilon), sampler, crc32(line.encode()))
    verdict = kernel.short_chains(seed=4, alpha=ALPHA, replicates=2000, transitions=2)
    assert broken, f"no line of {kernels} is like {pattern!r}: is the term missing already?"
    assert verdict.outcome == "rejected", verdict


@pytest.mark.parametrize("line", ["count of the new bin only"])
def test_exact_histograms_reject(monkeypatch, line):
    pattern, by, kernels = LINES[line]
    broken = rewritten(monkeypatch, pattern, by, *kernels)
    model = declared_histogram("perturbed", ONE)
    verdict = histogram_verdict(ALL_SAMPLERS["joint"], "perturbed", ONE, 10_000, model=model)
    assert broken, f"no line of {kernels} is like {pattern!r}: is the term missing already?"
    assert verdict.outcome == "rejected", verdict


def test_nothing_is_rejected_when_nothing_is_broken(monkeypatch):
    """The same calls with a pattern that is replaced by itself."""
    broken = rewritten(monkeypatch, r"if counts\[h\] == 0:", "if counts[h]  == 0:", "refresh_atoms")
    model = small.declared("NIG", "laplace", 5, ONE)
    verdict = small.verdict_on(ALL_SAMPLERS["auto"], "NIG", "laplace", ONE, draws=10_000, seed=3, model=model)
    assert verdict.passed, verdict
    kernel = kernel_of(models.PoissonGamma(1.0), "auto", 5)
    verdict = kernel.short_chains(seed=4, alpha=ALPHA, replicates=2000, transitions=2)
    assert verdict.passed, verdict
    assert len(broken) == 2
