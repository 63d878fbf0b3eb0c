"""Updates by group: which groups a graph has, the kernel by itself, and hierarchies with known posteriors."""

import logging

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import special, stats

import pymc_dp as dp
from pymc_dp.lowering.addresses.bind import plain
from pymc_dp.step_methods.groups import Grouped
from pymc_dp.step_methods.updates import by_group
from pymc_dp.step_methods.updates.columns import shape_held
from pymc_dp.step_methods.updates.state import ParameterState
from tests.statistics import harness
from tests.statistics.marginal import from_log_density

# ---- which groups there are ------------------------------------------------------------------------

AREA = np.array([2, 0, 1, 0, 2, 1, 1, 0])


def sums(values, area=AREA, n=3):
    return pt.zeros(n)[area].inc(values)


def released(values, **of):
    dp.LaplaceMechanism("z", sums(values, **of), scale=2.0, observed=np.ones(of.get("n", 3)))


def effects_and_scales():
    a, s = pm.Normal("a", pm.Normal("m"), 1, shape=3), pm.HalfNormal("s", 1, shape=3)
    released(pm.Normal("y", a[AREA], s[AREA]))


def an_array_for_each_area():
    b = pm.Normal("b", shape=(3, 2))
    released(pm.Normal("y", b[AREA, 0] + b[AREA, 1] * np.arange(8.0), 1))


def areas_in_data():
    area = pm.Data("area", AREA)
    a = pm.Normal("a", shape=3)
    y = pm.Normal("y", a[area], 1)
    dp.LaplaceMechanism("z", pt.zeros(3)[area].inc(y), scale=2.0, observed=np.ones(3))


def nested():
    """Areas in two states: the effect of a state ties its areas to one group."""
    a = pm.Normal("a", pm.Normal("state", shape=2)[np.array([0, 0, 1])], 1, shape=3)
    released(pm.Normal("y", a[AREA], 1))


def crossed():
    """Effects of areas, and of kinds that have people in all areas."""
    a, k = pm.Normal("a", shape=3), pm.Normal("k", shape=2)
    released(pm.Normal("y", a[AREA] + k[np.arange(8) % 2], 1))


def a_term_for_each():
    a = pm.Normal("a", shape=3)
    pm.Potential("p", -pt.sum(a**4))
    released(pm.Normal("y", a[AREA], 1))


def a_term_of_all():
    a = pm.Normal("a", shape=3)
    pm.Potential("p", -(pt.sum(a) ** 2))
    released(pm.Normal("y", a[AREA], 1))


def neighbours():
    """Effects that walk from area to area."""
    a = pm.GaussianRandomWalk("a", 0, 1, init_dist=pm.Normal.dist(0, 1), shape=3)
    released(pm.Normal("y", a[AREA], 1))


def a_term_for_each_by_a_shared_number():
    a, s = pm.Normal("a", shape=3), pm.HalfNormal("s")
    pm.Potential("p", -s * pt.sum(a**2))
    released(pm.Normal("y", a[AREA], s))


def one_sum():
    a = pm.Normal("a", shape=3)
    dp.LaplaceMechanism("z", dp.record_sum(pm.Normal("y", a[AREA], 1)), scale=2.0, observed=1.0)


def told_one_by_one():
    a = pm.Normal("a", shape=3)
    dp.LaplaceMechanism("z", pm.Normal("y", a[AREA], 1), scale=2.0, observed=np.ones(8))


def counts():
    """Whole numbers are found by a search, entry by entry."""
    a = pm.Normal("a", shape=3)
    released(pm.Poisson("y", pt.exp(a[AREA])))


def gamma_amounts():
    a = pm.Normal("a", shape=3)
    released(pm.Gamma("y", 2.0, pt.exp(a[AREA])))


def answers():
    """Summed over: of each person there are two terms in a logarithm."""
    a = pm.Normal("a", shape=3)
    y = pm.Bernoulli("y", logit_p=a[AREA])
    dp.RandomizedResponse("z", y, epsilon=1.0, observed=np.ones(8, dtype=int))


def high(a):
    return a[pt.gt(a, 1)]


# potentials that are no sum of what their parts say, or whose parts come and go with the effects
TYING = {
    "how many are high, at the start none": lambda a: -pt.sum(high(a)),
    "how many, without a look at them": lambda a: -3.0 * pt.ones_like(high(a)).sum(),
    "a length": lambda a: -(pt.cast(high(a).shape[0], "float64") ** 2),
    "rounded down": lambda a: -0.5 * pt.cast(pt.sum(a**2), "int64"),
    "rounded down, then negative": lambda a: -pt.cast(pt.sum(a**2), "int64"),
    "of bits": lambda a: pt.switch(pt.cast(pt.floor(a[0]), "int64") & pt.cast(a[1], "int64"), 0.0, -np.inf),
    "either or": lambda a: -2.0 * (pt.gt(a[0], 0) + pt.gt(a[1], 0)),
}
NOT_TYING = {
    "of booleans": lambda a: -pt.sum(pt.gt(a, 0)),
    "of one boolean": lambda a: -pt.cast(pt.gt(a[0], 0), "float64"),
    "of nothing": lambda a: -pt.sum(a[:, None][:, :0], axis=1) - a**2,
}


def with_potential(density):
    def build():
        a = pm.Normal("a", shape=3)
        pm.Potential("p", density(a))
        released(pm.Normal("y", a[AREA], 1))

    return build


GROUPS = {
    effects_and_scales: ["a0 s0", "a1 s1", "a2 s2", "m"],
    an_array_for_each_area: ["b0 b1", "b2 b3", "b4 b5"],
    areas_in_data: ["a0", "a1", "a2"],
    nested: ["a0 a1 state0", "a2 state1"],
    crossed: ["a0", "a1", "a2", "k0 k1"],
    a_term_for_each: ["a0", "a1", "a2"],
    a_term_for_each_by_a_shared_number: ["a0", "a1", "a2", "s"],
    told_one_by_one: ["a0", "a1", "a2"],
    counts: ["a0", "a1", "a2"],
    gamma_amounts: ["a0", "a1", "a2"],
    answers: ["a0", "a1", "a2"],
    a_term_of_all: None,
    neighbours: None,
    one_sum: None,
}


def grouped(build, **kwargs):
    with pm.Model() as model:
        build()
    with model:
        (part,) = dp.AncillaryUpdate(update="by_group", **kwargs)._parts
    return part


def named(part):
    """The numbers of each group, and those of none last."""
    names = [
        f"{rv.name}{k}" if rv.ndim else rv.name
        for rv in part.mine
        for k in range(part.chain.program.parameters.slice_length(rv))
    ]
    groups = part.grouped.part
    told = [" ".join(sorted(n for n, g in zip(names, groups, strict=True) if g == k)) for k in range(-1, 99)]
    return [*sorted(filter(None, told[1:])), *filter(None, told[:1])]


@pytest.mark.usefixtures("built_only")
@pytest.mark.parametrize("build", GROUPS, ids=lambda build: build.__name__)
def test_groups(build):
    if GROUPS[build] is None:
        with pytest.raises(ValueError, match="none have entries that are independent of each other"):
            grouped(build)
        return
    assert named(grouped(build)) == GROUPS[build]


@pytest.mark.usefixtures("built_only")
@pytest.mark.parametrize("name", TYING)
def test_potentials_that_tie(name):
    with pytest.raises(ValueError, match="none have entries that are independent of each other"):
        grouped(with_potential(TYING[name]))


@pytest.mark.usefixtures("built_only")
@pytest.mark.parametrize("name", NOT_TYING)
def test_potentials_that_do_not_tie(name):
    assert named(grouped(with_potential(NOT_TYING[name]))) == ["a0", "a1", "a2"]


def terms_at(theta, function, data, given, totals, n):
    out = np.empty(n + 1)
    function.dispatcher(theta, data, given, totals, out)
    return out


@pytest.mark.parametrize("build", [effects_and_scales, nested, an_array_for_each_area, counts, answers])
def test_each_group_has_its_own_terms(build):
    """Terms by group add up to the density, and a group that moves changes its own term only."""
    part, rng = grouped(build), np.random.default_rng(2)
    program, own = part.chain.program, part.grouped.part
    x, data, totals = program.first_records, program.data.gather(), np.zeros(program.n_statistics)
    shape = shape_held(program.records)
    u = rng.uniform(0.2, 0.8, shape) if build is counts else rng.normal(size=shape)
    conditionals = part.conditionals
    whole = conditionals.marginal() if part.summed else conditionals.ancillary()
    for function, density, given in (
        (part.updates.centred, conditionals.centred(), np.ascontiguousarray(x.T)),
        (part.updates.ancillary, whole, u),
    ):
        of = (function, data, given, totals, part.grouped.n)
        at = rng.normal(size=program.parameters.size) * 0.3
        before, expected = terms_at(at, *of), density.dispatcher(at, data, given, totals)
        assert np.isfinite(expected)
        np.testing.assert_allclose(before.sum(), expected, rtol=1e-12)
        for g in range(part.grouped.n):
            moved = at.copy()
            moved[part.moving[own == g]] += rng.normal(size=np.sum(own == g))
            changed = terms_at(moved, *of) != before
            assert changed[g] and changed.sum() == 1


# ---- the kernel, in plain Python -------------------------------------------------------------------

N_GROUPS = 3
PART = np.array([-1, 0, 1, -1, 2, 0, 1, 2])  # a scale and a mean that all share, two numbers of each group
IS_LOG = (np.arange(8) == 0).astype(float)


def hierarchy(theta, data, given, totals, out):
    """Two numbers of each group around the mean, the first with the scale; theta has an entry more."""
    t, at = np.exp(theta[1]), theta[1:]
    for g in range(N_GROUPS):
        one, other = at[g == PART]
        out[g] = -0.5 * ((one - at[3]) / t) ** 2 - np.log(t) - 0.5 * (other - one) ** 2
    out[-1] = -0.5 * t * t + theta[1] - 0.5 * at[3] ** 2


def drawn(rng):
    t, mean = abs(rng.normal()), rng.normal()
    one = rng.normal(mean, t, N_GROUPS)
    other = rng.normal(one, 1.0)
    return np.array([np.log(t), one[0], one[1], mean, one[2], other[0], other[1], other[2]])


def error_of_moments(seed, replicates=2000, **patched):
    """Probability of changes of moments that are as large, from a start in equilibrium."""
    rng = np.random.default_rng(seed)
    names = {
        "function_at": lambda address, kind: address,
        "standard_normal": lambda rng: rng.normal(),
        "random": lambda rng: rng.random(),
    }
    kernel = plain(by_group.by_group.py_func, names | patched)
    learnt = by_group.begun(PART, IS_LOG)
    learnt.factor[:], learnt.apart[:] = 10 * learnt.factor, 8 * learnt.apart
    found, tally = [], np.zeros(2)
    for _ in range(replicates):
        start = drawn(rng)
        theta = np.concatenate([[7.0], start])
        state = ParameterState(
            theta, None, None, None, np.arange(1, 9), np.empty((0, 2)), learnt, 0, 0, tally
        )
        kernel(4, rng, hierarchy, state)
        assert theta[0] == 7.0
        moments = [[np.exp(v[0]), *v[1:], *v[1:] ** 2, *(v[1:3] * v[5:7])] for v in (start, theta[1:])]
        found.append(np.subtract(*moments))
    assert (tally[1] == 8 * replicates and 0.2 < tally[0] / tally[1] < 0.9) or patched
    z = np.mean(found, axis=0) / (np.std(found, axis=0) / np.sqrt(replicates))
    return 2 * stats.norm.sf(np.abs(z).max()) * z.size


def test_the_kernel_keeps_its_target():
    assert error_of_moments(1) > 1e-3


def without_jacobian(*args):
    """Take the density of a logarithm for that of the number."""
    change = plain(by_group.move_shared.py_func, {})(*args)
    return change if change == np.inf else 0.0


def all_with_the_first(theta, place, moving, part, shared, moves):
    """Groups move where the first one does."""
    plain(by_group.settle.py_func, {})(theta, place, moving, part, shared, np.full_like(moves, moves[0]))


FAULTS = {
    "acceptance": {"chance": lambda there, here: 1.0},
    "jacobian": {"move_shared": without_jacobian, "replicates": 8000},
    "all groups at once": {"settle": all_with_the_first},
    "terms of no group": {"total": lambda terms: terms[:-1].sum()},
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.statistical)])
def test_planted_faults_of_the_kernel_are_caught(fault, seed):
    assert error_of_moments(seed, **FAULTS[fault]) < 1e-6


def test_steps_are_learnt_by_each_group():
    """A group with a narrow law takes shorter steps than the others."""
    rng, learnt = np.random.default_rng(4), by_group.begun(PART, IS_LOG)
    names = {
        "function_at": lambda address, kind: address,
        "standard_normal": lambda rng: rng.normal(),
        "random": lambda rng: rng.random(),
    }

    def narrow(theta, data, given, totals, out):
        at = theta[1:]
        for g, scale in enumerate((1.0, 0.01, 1.0)):
            out[g] = -0.5 * np.sum((at[g == PART] / scale) ** 2)
        out[-1] = -0.5 * np.sum(at[PART < 0] ** 2)

    theta = np.zeros(9)
    state = ParameterState(
        theta, None, None, None, np.arange(1, 9), np.empty((0, 2)), learnt, 0, 1, np.zeros(2)
    )
    plain(by_group.by_group.py_func, names)(2000, rng, narrow, state)
    steps = np.sqrt(np.diag(learnt.apart @ learnt.apart.T)).reshape(3, 2)
    assert (steps[1] < 0.1).all() and (steps[[0, 2]] > 0.3).all()


# ---- hierarchies with known posteriors -------------------------------------------------------------

AREAS, PEOPLE = 45, 4
OF_AREA = np.repeat(np.arange(AREAS), PEOPLE)
M, TAU = np.linspace(-1.5, 2.5, 161), np.linspace(1e-4, 3.5, 176)


def areas(counts, seed=5):
    """Areas with an effect each, more than 40 in all, behind noisy sums of counts or of numbers."""
    rng = np.random.default_rng(seed)
    effects = rng.normal(0.6, 0.5, AREAS)
    if counts:
        noisy = rng.poisson(PEOPLE * np.exp(effects)) + rng.laplace(0, 3, AREAS)
    else:
        noisy = rng.normal(PEOPLE * effects, np.hypot(PEOPLE**0.5, 3.0))
    with pm.Model() as model:
        m, tau = pm.Normal("m", 0, 1), pm.HalfNormal("tau", 1)
        a = pm.Normal("a", m, tau, shape=AREAS)
        if counts:
            y = pm.Poisson("y", pt.exp(a[OF_AREA]))
            dp.LaplaceMechanism("z", sums(y, OF_AREA, AREAS), scale=3.0, observed=noisy)
        else:
            y = pm.Normal("y", a[OF_AREA], 1)
            dp.GaussianMechanism("z", sums(y, OF_AREA, AREAS), sigma=3.0, observed=noisy)
    return model, noisy


def exact_of_areas(counts, noisy):
    """Marginals of m and tau on a grid, effects and records integrated out."""
    m, tau = M[:, None], TAU[None, :]
    total = stats.norm.logpdf(m) + stats.halfnorm.logpdf(tau) + np.zeros((M.size, TAU.size))
    if not counts:
        sd = np.sqrt((PEOPLE * tau) ** 2 + PEOPLE + 9.0)
        for z in noisy:
            total += stats.norm.logpdf(z, PEOPLE * m, sd)
    else:
        at, k = np.linspace(-40, 40, 8001), np.arange(400)
        e = np.clip(at, -12, 4)
        of_count = np.exp(-np.abs(noisy - k[:, None]) / 3.0)  # counts x areas
        rate = PEOPLE * np.exp(e)[:, None]
        likelihood = np.exp(k * np.log(rate) - rate - special.gammaln(k + 1)) @ of_count  # effects x areas
        x = np.linspace(-8, 8, 81)
        effects = m[..., None] + tau[..., None] * x
        for area in range(AREAS):
            total += np.log(np.interp(effects, at, likelihood[:, area]) @ stats.norm.pdf(x))
    density = np.exp(total - total.max())
    return (M, density.sum(axis=1)), (TAU, density.sum(axis=0))


def on_grid(grid, density):
    return from_log_density(
        lambda x: np.log(np.maximum(np.interp(x, grid, density / density.max()), 1e-300)), grid[0], grid[-1]
    )


def worst(counts, seed, draws=2500):
    """The least p-value of all comparisons, with the steps that pm.sample chooses."""
    model, noisy = areas(counts)
    with model:
        idata = pm.sample(
            draws, tune=800, chains=2, cores=1, random_seed=seed, progressbar=False, quiet=True,
            compute_convergence_checks=False,
        )  # fmt: skip
    of_m, of_tau = exact_of_areas(counts, noisy)
    assert (
        "ancillary_acceptance" in idata.sample_stats
        and not idata.sample_stats["ancillary_trajectories"].any()
    )
    return [
        harness.mc_z(idata.posterior[name].values, on_grid(*of))
        for name, of in (("m", of_m), ("tau", of_tau))
    ]


@pytest.mark.statistical
@pytest.mark.parametrize("counts", [False, True], ids=["numbers", "counts"])
@pytest.mark.parametrize("seed", [1, 2])
def test_known_posteriors(counts, seed):
    for verdict in worst(counts, seed):
        assert verdict.passed, verdict


def term_of_a_neighbour(patch):
    """Terms of one group are taken for those of the next one."""
    original = Grouped._summed

    def summed(self, terms, groups):
        return original(self, terms, [np.where(g < 0, g, (g + 1) % self.n) for g in groups])

    patch.setattr(Grouped, "_summed", summed)


@pytest.mark.statistical
def test_a_planted_error_in_the_groups_is_seen(monkeypatch):
    term_of_a_neighbour(monkeypatch)
    assert min(verdict.p_value for verdict in worst(False, 1)) < 1e-6


# ---- what is said and refused ----------------------------------------------------------------------


@pytest.mark.usefixtures("built_only")
def test_parameters_without_slopes_are_taken_and_told(caplog):
    model, _ = areas(True)
    with caplog.at_level(logging.INFO, "pymc.dp"), model:
        step = dp.AncillaryUpdate()
    assert {rv.name for rv in step.vars} >= {"m", "tau_log__", "a"}
    assert "AncillaryUpdate moves a in 45 groups" in caplog.text and "Expect slow" not in caplog.text


@pytest.mark.usefixtures("built_only")
def test_refusals():
    def many_of_none():
        b = pm.Normal("b", shape=41)
        x = np.random.default_rng(1).normal(size=(8, 41))
        released(pm.Normal("y", pm.Normal("a", shape=3)[AREA] + pt.dot(x, b), 1))

    with pytest.raises(ValueError, match="41 numbers are in no group, more than the 40"):
        grouped(many_of_none)


def test_data_that_tie_groups_are_refused():
    """Areas that data tell: two of them become one state."""
    with pm.Model() as model:
        state = pm.Data("state", np.array([0, 1, 2]))
        effect = pm.Normal("effect", shape=3)
        released(pm.Normal("y", (effect[state] + pm.Normal("a", shape=3))[AREA], 1))
        step = dp.AncillaryUpdate(update="by_group")
        pm.set_data({"state": np.array([2, 0, 1])})
    with pytest.raises(ValueError, match=r"Data of the model were set anew.*make the step again"):
        step.setup_chain(1, 10, 10)
    with model:
        pm.set_data({"state": np.array([0, 1, 2])})
    step.setup_chain(1, 10, 10)
