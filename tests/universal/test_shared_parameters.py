"""Parameters that several blocks of records read, moved with those of all: against the model's density."""

from __future__ import annotations

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

import pymc_dp as dp
from pymc_dp.step_methods.block.program import RecordProgram
from pymc_dp.step_methods.updates import together
from pymc_dp.step_methods.updates.columns import shape_held
from tests.universal.reference import PYTHON, Evaluated, log_density, places
from tests.universal.steps import _coordinates, _log_slope

pytestmark = pytest.mark.usefixtures("built_only")


class InPython:
    """Stands in for the native function of all blocks: same arguments, evaluated by Python."""

    address, cache_key = 0, None

    def __init__(self, name, inputs, outputs, signature):
        self.function = pytensor.function(inputs, outputs, mode=PYTHON, on_unused_input="ignore")

    def __call__(self, *args):
        with np.errstate(all="ignore"):
            return float(self.function(*args)[0])


@pytest.fixture(autouse=True)
def by_python(monkeypatch):
    monkeypatch.setattr(together, "NativeFunction", InPython)


def evaluated(program, name, inputs, outputs, signature):
    return Evaluated(program, inputs, outputs, signature)


def laplace(name, y, scale=1.5, z=2.0):
    dp.LaplaceMechanism(name, y.sum(), scale=scale, observed=z)


def mean_and_spread():
    mu, s = pm.Normal("mu"), pm.HalfNormal("s")
    laplace("a", pm.Normal("x", mu, s, shape=3))
    x = pm.Normal("y", 1.5 * mu, s, shape=4)
    dp.GaussianMechanism("b", pt.stack([x, x**2], axis=1).sum(axis=0), sigma=1.0, observed=[1.0, 3.0])


def three_blocks_with_covariates():
    b = pm.Normal("b", shape=2)
    known = np.random.default_rng(3).normal(size=(5, 2))
    for n in (2, 3, 5):
        mean = pm.Data(f"known {n}", known[:n]) @ b
        laplace(f"z{n}", pm.Normal(f"y{n}", mean, 0.7, shape=n), z=float(n))


def counts_beside_numbers():
    rate = pm.Gamma("rate", 3, 1)
    x = pm.Poisson("x", rate, shape=3)
    dp.DiscreteLaplaceMechanism("a", x.sum(), epsilon=0.5, sensitivity=1, observed=7)
    laplace("b", pm.Gamma("y", 2.0, 2.0 / rate, shape=3), z=6.0)


def a_spread_that_a_mean_has_too():
    tau, top = pm.HalfNormal("tau"), pm.Normal("top")
    m = pm.Normal("m", top, tau)
    laplace("a", pm.Normal("x", m, tau, shape=3))
    laplace("b", pm.Normal("y", m + 0.3 * top, tau, shape=2))


def an_end_of_a_parameter():
    end = pm.Gamma("end", 3, 1)
    low = pm.Uniform("low", 0, end)
    laplace("a", pm.Uniform("x", -low, end, shape=3))
    laplace("b", pm.Normal("y", end, 1.0, shape=2))


def what_else_reads_records():
    mu = pm.Normal("mu")
    x, y = pm.Normal("x", mu, 1, shape=3), pm.Logistic("y", mu, 0.5, shape=2)
    laplace("a", x)
    dp.GaussianMechanism("b", y.sum(), sigma=pt.exp(0.3 * mu), observed=1.0)
    pm.Normal("told", x * mu, 0.5, observed=[0.3, 0.2, -0.5])
    pm.Potential("held", -0.3 * (y**2).sum() * mu**2)
    pm.Potential("prior", -0.2 * mu**2)


def one_effect_of_three():
    effect = pm.Normal("effect", pm.Normal("m"), 0.8, shape=3)
    laplace("a", pm.Normal("x", effect[np.array([0, 1, 1])], 1))
    laplace("b", pm.Normal("y", effect[np.array([1, 2])], 1))


def effects_of_which_one_is_shared():
    """The others move with their mean and spread, at the noise that they have."""
    top, tau = pm.Normal("top"), pm.HalfNormal("tau")
    effect = pm.Normal("effect", top, tau, shape=4)
    laplace("a", pm.Normal("x", effect[np.array([0, 1])] + top, tau))
    laplace("b", pm.Normal("y", effect[np.array([1, 2])] - top, tau))
    laplace("c", pm.Normal("w", effect[3], 1, shape=2))


def each_record_is_released():
    mu = pm.Normal("mu")
    dp.LaplaceMechanism("a", pm.Normal("x", mu, 1, shape=3), scale=2.0, observed=[0.2, 2.0, -1.0])
    laplace("b", pm.Exponential("y", scale=pt.exp(mu), shape=3))


def one_that_reads_a_record():
    """It is a parameter of two blocks, and of none the noise."""
    mu = pm.Normal("mu")
    x = pm.Normal("x", mu, 1, shape=3)
    laplace("a", x)
    t = pm.Normal("t", x[np.array([0])] + mu, 1)
    laplace("b", pm.Normal("y", t[0], 1, shape=2))
    laplace("c", pm.Normal("w", t[0] + mu, 1, shape=2))


MODELS = [
    mean_and_spread, three_blocks_with_covariates, counts_beside_numbers, a_spread_that_a_mean_has_too,
    an_end_of_a_parameter, what_else_reads_records, one_effect_of_three, effects_of_which_one_is_shared,
    each_record_is_released, one_that_reads_a_record,
]  # fmt: skip
NAMES = {
    "one_that_reads_a_record": ["mu", "t"],
    "mean_and_spread": ["mu", "s"], "three_blocks_with_covariates": ["b"], "counts_beside_numbers": ["rate"],
    "a_spread_that_a_mean_has_too": ["tau", "m"], "an_end_of_a_parameter": ["end"],
    "what_else_reads_records": ["mu"], "one_effect_of_three": ["effect"],
    "effects_of_which_one_is_shared": ["top", "tau", "effect"], "each_record_is_released": ["mu"],
}  # fmt: skip


def built(declare):
    with pm.Model() as model:
        declare()
        step = dp.AncillaryUpdate()
    return model, step._together


def pairs(model, blocks, rng):
    """Changes of the log density, as the model has it and as the step has it."""
    with pytest.MonkeyPatch.context() as patch:  # a step that is built is not compiled
        patch.setattr(RecordProgram, "native", evaluated)
        for share in blocks.shares:
            for name in ("propose", "contribute"):
                vars(share.program).pop(name, None)
        yield from _pairs(model, blocks, rng)


def _pairs(model, blocks, rng):
    shares, programs = blocks.shares, [share.program for share in blocks.shares]
    first, default = programs[0].parameters, model.initial_point()
    logp = log_density(model)
    own = log_density(model, [model[rv.name] for share in shares for rv in share.forms])
    point = dict(default)
    for program in programs:  # where the whole model has a density: drawn from their law, again if need be
        x, w = np.empty((program.n, program.records.width)), np.empty(program.n)
        t = np.empty((program.n, program.n_statistics))
        theta = program.parameters.flatten(point)
        for _ in range(200):
            program.propose.dispatcher(rng, theta, program.data.gather(), program.first_records, x, t, w)
            drawn = {**point, **program.records.unpack(x)}
            if np.isfinite(logp(drawn)):
                break
        point = drawn
    data, noise, totals = [], [], []
    for share, program, n_data in zip(shares, programs, blocks._n_data, strict=True):
        theta, x = program.parameters.flatten(point), program.records.pack(point)
        u = np.empty(shape_held(program.records))
        t, w = np.empty((program.n, program.n_statistics)), np.empty(program.n)
        data.append(program.data.gather())
        share.noise().dispatcher(rng, theta, data[-1], x, u)
        program.contribute.dispatcher(theta, data[-1], x, t, w)
        noise.append(u)
        totals.append(t.sum(axis=0))
        assert data[-1].size >= n_data
    cut = [d[:n] for d, n in zip(data, blocks._n_data, strict=True)]
    given = np.concatenate(cut), np.concatenate([u.ravel() for u in noise])[None], np.concatenate(totals)
    there, back = _coordinates(shares[0])
    records = [share.records().dispatcher for share in shares]
    guards = [share._native("given back", share.u, share._guard(), False).dispatcher for share in shares]

    def moved(at):
        """The point where the parameters are there, and whether all noise is given back."""
        coordinates = {**point, **first.unflatten(at)}
        new, kept = {**point, **first.unflatten(back(at, data[0]))}, True
        for k, program in enumerate(programs):
            x, theta = program.records.pack(new), program.parameters.flatten(coordinates)
            records[k](theta, data[k], noise[k], x)
            new |= program.records.unpack(x)
            kept = kept and np.isfinite(guards[k](theta, data[k], noise[k], totals[k]))
        return new, kept

    def target(new, at):
        whole = logp(new)
        if not np.isfinite(whole):
            return -np.inf
        # numbers that stay as noise move with those of their law: the slope is that of all
        return whole - own(new) + _log_slope(lambda v: back(v, data[0]), at, np.arange(at.size))

    here = there(first.flatten(point), data[0])
    start, kept = moved(here)
    assert kept
    at, value = target(start, here), blocks.density(here, *given)
    assert np.isfinite(value)
    for other in places(here, blocks.moving, rng):
        new, kept = moved(other)
        if kept:
            yield target(new, other) - at, blocks.density(other, *given) - value


def disagree(found):
    return [
        (expected, got)
        for expected, got in found
        if (got > -np.inf if expected == -np.inf else abs(got - expected) > 1e-6 + 2e-6 * abs(expected))
    ]


@pytest.mark.parametrize("declare", MODELS, ids=lambda f: f.__name__)
def test_ratios_are_the_models(declare, rng):
    model, (blocks,) = built(declare)
    assert blocks.names == NAMES[declare.__name__]
    found = [pair for _ in range(3) for pair in pairs(model, blocks, rng)]
    assert len(found) > 20 and not disagree(found)


def test_numbers_that_one_block_reads_do_not_move_with_those_of_others():
    _, (blocks,) = built(one_effect_of_three)
    first = blocks.parts[0].chain.program.parameters
    assert list(blocks.moving) == [first.slice_of("effect").start + 1]


def counted_with_every_block(patch):
    """The prior of the parameters, and what else reads no records, is counted once for each block."""
    original = together.Share._factors

    def factors(self, on):
        return original(self, on) + [f for f in super(together.Share, self)._factors(on) if f in self.moving]

    patch.setattr(together.Share, "_factors", factors)


def first_block_only(patch):
    """What the records of other blocks add is left out."""
    original, first = together.Share.given_noise, ("x", "y2")
    patch.setattr(
        together.Share, "given_noise",
        lambda self: original(self) if self.program.names[0] in first else pt.constant(0.0),
    )  # fmt: skip


def records_of_others_stay(patch):
    """Those of other blocks are in the density as if they stood still."""
    super_ = together.Share.__mro__[1]
    patch.setattr(together.Share, "_factors", lambda self, on: super_._factors(self, on))


@pytest.mark.parametrize("plant", [counted_with_every_block, first_block_only, records_of_others_stay])
@pytest.mark.parametrize("declare", [mean_and_spread, three_blocks_with_covariates])
def test_faults_are_seen(plant, declare, rng, monkeypatch):
    plant(monkeypatch)
    model, (blocks,) = built(declare)
    assert disagree(list(pairs(model, blocks, rng)))


def effects_of_their_own():
    effect = pm.Normal("effect", pm.Normal("m"), pm.HalfNormal("tau"), shape=3)
    for k in range(3):
        laplace(f"z{k}", pm.Normal(f"y{k}", effect[k], 1, shape=2))


def read_together():
    mu = pm.Normal("mu")
    x, y = pm.Normal("x", mu, 1, shape=3), pm.Normal("y", mu, 1, shape=3)
    laplace("a", x)
    laplace("b", y)
    pm.Potential("alike", -((x.sum() - y.sum()) ** 2))


def no_noise():
    mu = pm.Normal("mu", shape=2)
    laplace("a", pm.Normal("x", mu.sum(), 1, shape=3))
    parts = [pm.Normal.dist(mu[0], 1), pm.Normal.dist(mu[1], 2)]
    laplace("b", pm.Mixture("y", [0.4, 0.6], parts, shape=3))


def two_of_three():
    mu = pm.Normal("mu")
    laplace("a", pm.Normal("x", mu, 1, shape=3))
    laplace("b", pm.Mixture("y", [0.4, 0.6], [pm.Normal.dist(mu, 1), pm.Normal.dist(0, 2)], shape=3))
    laplace("c", pm.Logistic("w", mu, 1, shape=3))


@pytest.mark.parametrize(
    ("declare", "n", "said"),
    [
        (effects_of_their_own, 0, False),
        (read_together, 0, True),
        (no_noise, 0, True),
        (two_of_three, 1, True),
    ],
)
def test_blocks_that_move_apart_are_told(declare, n, said, caplog):
    with caplog.at_level("INFO", logger="pymc.dp"):
        _, blocks = built(declare)
    assert len(blocks) == n
    assert (
        "read mu, and the records of one stand still while it moves with those of another" in caplog.text
    ) == said
    assert all([part.block.names for part in each.parts] == [["x"], ["w"]] for each in blocks)


@pytest.mark.parametrize("options", [{"update": "slice"}, {"update": "off"}, {"n_ancillary": 0}])
def test_what_was_asked_for_is_not_added_to(options):
    with pm.Model():
        mean_and_spread()
        assert not dp.AncillaryUpdate(**options)._together


def test_it_is_said(caplog):
    with caplog.at_level("INFO", logger="pymc.dp"):
        built(mean_and_spread)
    assert "also moves mu, s with the records of x, y, whose laws read them, together" in caplog.text


def test_what_several_blocks_read_moves_with_the_first_of_them():
    """Its density has terms of all blocks. Of effects, each block moves those that it reads."""
    with pm.Model() as model:
        s, level, top = pm.HalfNormal("s"), pm.HalfNormal("level"), pm.Normal("top")
        for k in range(2):
            laplace(f"z{k}", pm.Normal(f"y{k}", pm.Normal(f"mu{k}", top), s, shape=3), scale=level)
        by_default, asked = dp.AncillaryUpdate(), dp.AncillaryUpdate([*model.free_RVs[:1], level])
    assert [part.names for part in by_default._parts] == [["s_log__", "top", "mu0"], ["mu1"]]
    # a block without parameters of its own moves what it reads; what is behind no records moves once
    assert [part.names for part in asked._parts] == [["s_log__", "level_log__"], ["s_log__"]]
    with pm.Model():
        effects_of_their_own()
        step = dp.AncillaryUpdate()
    assert [part.names for part in step._parts] == [["m", "tau_log__", "effect"], ["effect"], ["effect"]]


@pytest.mark.parametrize("options", [{}, {"update": "slice"}])
def test_what_cannot_move_with_all_blocks_moves_with_each(options):
    """A large survey that held a number fast would hold it whatever a small one does."""
    with pm.Model():
        s, w = pm.HalfNormal("s"), pm.Beta("w", 2, 2)
        laplace("a", pm.Normal("x", pm.Normal("m"), s, shape=3))
        if options:
            y = pm.Normal("y", w, s, shape=9)
        else:  # a mixture is no function of noise
            y = pm.Mixture(
                "y", pm.math.stack([w, 1 - w]), [pm.Normal.dist(0, s), pm.Normal.dist(1, 2)], shape=9
            )
        laplace("b", y)
        step = dp.AncillaryUpdate(**options)
    assert [part.names for part in step._parts] == [["s_log__", "m"], ["s_log__", "w_logodds__"]]


def test_whole_numbers_move_with_each_block_that_reads_them():
    with pm.Model():
        c, m = pm.Categorical("c", [0.4, 0.6]), pm.Normal("m", shape=2)
        for k in range(2):
            laplace(f"z{k}", pm.Normal(f"y{k}", m[k] + 3.0 * c, 1, shape=3))
        step = dp.AncillaryUpdate()
    assert [part.names for part in step._parts] == [["c", "m"], ["c", "m"]]
