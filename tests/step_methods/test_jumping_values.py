"""Atoms at places that jump with a variable are refused; atoms whose probability jumps are taken."""

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import stats

import pymc_dp as dp
from pymc_dp.step_methods.block.lawdraws import LawDraws, settings_of
from pymc_dp.step_methods.block.repeated import behind_repeated
from tests.statistics import harness
from tests.step_methods.test_random_atoms import SCALE, Z, marginal
from tests.step_methods.test_repeated_values import (
    anywhere_logp,
    by_hand,
    capped,
    capped_logp,
    drawn,
    on_the_grid_logp,
    rounded,
)

pytestmark = pytest.mark.compiles(2)

N = pm.Normal.dist


def at_a_function(place, logp=capped_logp, random=capped):
    law = by_hand(logp, random)
    return lambda mu, c, shape: law(mu, place(c), shape)


def some_at_logp(value, mu, c):
    at = pt.abs(value - c) < 1e-9
    return pt.switch(at, np.log(0.3), np.log(0.7) + pm.logp(N(mu, 1), value))


def some_at(mu, c, rng=None, size=None):
    return np.where(rng.random(size) < 0.3, c, rng.normal(mu, 1, size=size))


def vectors_logp(value, mu, c):
    return pm.logp(N(mu, 1), value[..., 1]) + pt.switch(
        value[..., 0] >= c, pm.logccdf(N(mu, 1), c), pm.logp(N(mu, 1), value[..., 0])
    )


def vectors(mu, c, rng=None, size=None):
    found = rng.normal(mu, 1, size=(*size, 2))
    found[..., 0] = np.minimum(found[..., 0], c)
    return found


MOVED = {
    "floor": drawn(lambda mu, c, size: pt.maximum(N(mu, 1, size=size), pt.floor(c))),
    "ceil, from above": drawn(lambda mu, c, size: pt.minimum(N(mu, 1, size=size), pt.ceil(c))),
    "one of two": drawn(lambda mu, c, size: pt.maximum(N(mu, 1, size=size), pt.switch(c > 2.5, 0.5, -0.5))),
    "a fine grid": drawn(lambda mu, c, size: pt.maximum(N(mu, 1, size=size), pt.floor(100 * c) / 100)),
    "an atom and then none": drawn(
        lambda mu, c, size: pt.maximum(N(mu, 1, size=size), pt.switch(c > 2.5, 0.0, -50.0))
    ),
    "an inequality": at_a_function(pt.floor),
    "one for each row": lambda mu, c, shape: by_hand(capped_logp, capped)(
        mu, pt.floor(c * np.linspace(1, 2, shape)), shape
    ),
    "one for each row, seldom": lambda mu, c, shape: by_hand(some_at_logp, some_at)(
        mu, pt.floor(c * np.linspace(1, 2, shape)), shape
    ),
    "nearly there": at_a_function(pt.floor, some_at_logp, some_at),
    "the width of a grid": at_a_function(lambda c: 1 + pt.floor(c), anywhere_logp, rounded),
    "a grid from somewhere": drawn(
        lambda mu, c, size: pt.floor(c) / 3 + pt.floor(N(mu, 1, size=size)),
    ),
    "vectors": lambda mu, c, shape: pm.CustomDist.dist(
        mu, pt.floor(c), logp=vectors_logp, random=vectors, signature="(),()->(2)", shape=(shape, 2)
    ),
}


def inflated_logp(value, mu, w):
    return pt.switch(pt.eq(value, 0), pt.log(w), pt.log1p(-w) + pm.logp(N(mu, 1), value))


def added_logp(value, mu, w):
    """Where there is no atom, zero has the density of the others: a choice's mean was .16 instead of .86."""
    smooth = pt.log1p(-w) + pm.logp(N(mu, 1), value)
    return pt.switch(pt.eq(value, 0) & (w > 0), pt.log(w), smooth)


def inflated(mu, w, rng=None, size=None):
    return np.where(rng.random(size) < w, 0.0, rng.normal(mu, 1, size=size))


def one_of_logp(value, mu, c):
    w = pm.math.sigmoid(mu * c)
    return pt.switch(value < 0.2, pt.log(w), pt.log1p(-w))


def one_of(mu, c, rng=None, size=None):
    return np.where(rng.random(size) < 1 / (1 + np.exp(-mu * c)), 0.1, 0.7)


def halves_logp(value, mu, c):
    return pm.logp(pm.Poisson.dist(c), pt.cast(2 * value, "int64"))


def halves(mu, c, rng=None, size=None):
    return rng.poisson(c, size=size) / 2


FIXED = {
    "an unknown weight": at_a_function(lambda c: pt.exp(-c), inflated_logp, inflated),
    "a weight that ends at 0": at_a_function(lambda c: pt.clip(1 - c / 3, 0, 1), inflated_logp, inflated),
    "a weight that jumps to 0": at_a_function(
        lambda c: pt.switch(c > 2.5, 0.4, 0.0), inflated_logp, inflated
    ),
    "two constants": by_hand(one_of_logp, one_of),
    "halves of counts": by_hand(halves_logp, halves),
    "a fixed grid": drawn(lambda mu, c, size: pt.floor(N(mu, c, size=size))),
    "a fixed grid, and a mean that jumps": drawn(lambda mu, c, size: pt.floor(N(pt.floor(c), 1, size=size))),
    "a fixed grid, and a narrow law": drawn(lambda mu, c, size: pt.round(N(mu * c, 0.01, size=size))),
    "fixed ends": drawn(lambda mu, c, size: pt.clip(N(mu, c, size=size), 0, 1)),
    "fixed ends, and a mean that jumps": drawn(
        lambda mu, c, size: pt.clip(N(pt.floor(3 * c) / 3, 1, size=size), 0, 3)
    ),
    "fixed ends of a gamma law": drawn(lambda mu, c, size: pt.minimum(pm.Gamma.dist(c, 1, size=size), 2.0)),
}


def declared(law, shape=3):
    with pm.Model() as model:
        mu, c = pm.Normal("mu"), pm.Gamma("c", 4, 2)
        y = model.register_rv(law(mu, c, shape), "y")
    return model, y


@pytest.mark.parametrize("shape", [3, 400])
@pytest.mark.parametrize("law", MOVED)
def test_places_that_jump_are_seen(law, shape):
    model, y = declared(MOVED[law], shape)
    assert [v.name for v in behind_repeated(y, model)] == ["c"]


@pytest.mark.parametrize("shape", [3, 400])
@pytest.mark.parametrize("law", FIXED)
def test_places_that_stay_are_not(law, shape):
    model, y = declared(FIXED[law], shape)
    assert behind_repeated(y, model) == []


def test_places_that_jump_far_away_are_seen():
    with pm.Model() as model:
        mu, c = pm.Normal("mu", 5000, 800), pm.Normal("c", 5000, 800)
        y = pm.CustomDist("y", mu, c, shape=3, dist=lambda mu, c, size: pt.maximum(
            N(mu, 800, size=size), 1000 * pt.floor(c / 1000)
        ))  # fmt: skip
    assert [v.name for v in behind_repeated(y, model)] == ["c"]


WHOLE = {
    "a weight": (lambda k: 0.3 * k, inflated_logp, inflated, []),
    "a weight, or a density": (lambda k: 0.3 * k, added_logp, inflated, ["k"]),
    "a weight that is all or nothing": (lambda k: pt.minimum(1.0 * k, 1), inflated_logp, inflated, ["k"]),
    "a tiny weight": (lambda k: pt.exp(-10.0 * k - 1), inflated_logp, inflated, []),
    "a place": (lambda k: 1.0 * k, capped_logp, capped, ["k"]),
    "a place for two": (lambda k: 1.0 * (k // 2), capped_logp, capped, ["k"]),
    "a grid": (lambda k: 2.0 + k, on_the_grid_logp, rounded, []),
}


@pytest.mark.parametrize("start", [0, 1])
@pytest.mark.parametrize("law", [lambda: pm.Binomial("k", 3, 0.5), lambda: pm.Bernoulli("k", 0.5)])
@pytest.mark.parametrize("case", WHOLE)
def test_whole_numbers_may_say_how_probable_but_not_where(case, law, start):
    place, logp, random, behind = WHOLE[case]
    with pm.Model() as model:
        k = law()
        y = pm.CustomDist("y", 0.2, place(k), logp=logp, random=random, shape=4)
    model.rvs_to_initial_values[k] = start
    if case == "a place for two" and k.owner.op.name == "bernoulli":
        behind = []
    assert [v.name for v in behind_repeated(y, model)] == behind


FAR = {
    "above half of a support": (lambda: pm.Categorical("k", np.full(8, 1 / 8)), lambda k: k >= 5),
    "one of a support": (lambda: pm.Categorical("k", np.full(8, 1 / 8)), lambda k: pt.eq(k, 6)),
    "the end of a support": (lambda: pm.DiscreteUniform("k", 0, 20), lambda k: k >= 16),
    "a count": (lambda: pm.Poisson("k", 4), lambda k: pt.eq(k, 8)),
}


@pytest.mark.parametrize(("law", "is_there"), FAR.values(), ids=FAR)
def test_whole_numbers_far_from_the_start_are_looked_at(law, is_there):
    """P(k >= 5) was 1.00 instead of .865: only three values beside the start were tried."""
    with pm.Model() as model:
        y = pm.CustomDist("y", 0.2, 1.0 * is_there(law()), logp=capped_logp, random=capped, shape=4)
    assert [v.name for v in behind_repeated(y, model)] == ["k"]


ROWS = np.arange(6)


def of_two_bits():
    a, b = (pm.Bernoulli(name, 0.6, initval=0) for name in "ab")
    return 1.0 * a * b


def of_unequal_bits():
    k = pm.Bernoulli("k", 0.5, shape=2)
    return 1.0 * pt.neq(k[0], k[1])


def of_a_bit_and_a_number():
    k, b, c = pm.Bernoulli("k", 0.4), pm.Bernoulli("b", 0.4), pm.Gamma("c", 4, 2)
    return pt.switch(k * b, pt.floor(c), 0.0)


def in_a_window():
    c = pm.Normal("c", 0, 3)
    return 1.0 * ((c > 3) & (c < 3.5))


# Places of a cap, by variables or by rows; and how likely one is under the prior, if that is little.
HIDDEN = {
    "two bits": of_two_bits,
    "unequal bits": of_unequal_bits,
    "two bits and a number": of_a_bit_and_a_number,
    "a window": in_a_window,  # .037
    "a large count": lambda: 1.0 * (pm.Poisson("k", 100) >= 115),  # .08
    "the upper part of a large support": lambda: 1.0 * (pm.DiscreteUniform("k", 0, 1000) >= 800),
    "from a row on": lambda: pt.switch(ROWS >= pm.DiscreteUniform("t", 1, 5), 1.0, 0.0),
    "from a row on, by a real number": lambda: pt.switch(ROWS > pm.Uniform("t", 0.5, 4.5), 0.0, 1.0),
    "one row": lambda: pt.switch(pt.eq(ROWS, pm.Categorical("k", np.full(6, 1 / 6))), 1.0, 0.0),
    "even rows or odd ones": lambda: pt.switch(pt.eq(ROWS % 2, pm.Bernoulli("k", 0.5)), 1.0, 0.0),
}


@pytest.mark.parametrize("place", HIDDEN.values(), ids=HIDDEN)
def test_places_of_several_variables_and_of_rows_are_seen(place):
    """P(k0 != k1) was .5 whatever was released, and P(c in the window) was 0."""
    with pm.Model() as model:
        y = pm.CustomDist("y", 0.2, place(), logp=capped_logp, random=capped, shape=6)
    assert behind_repeated(y, model)


def test_a_law_that_is_all_or_nothing_far_from_the_start_is_seen():
    with pm.Model() as model:
        k = pm.Categorical("k", np.full(8, 1 / 8))
        y = pm.CustomDist("y", 0.2, 1.0 * (k >= 5), logp=inflated_logp, random=inflated, shape=4)
    assert behind_repeated(y, model) == [k]


def test_a_law_that_is_all_or_nothing_from_a_real_number_on_is_seen():
    """No chain passes it, where one passes a weight that comes to its end."""
    with pm.Model() as model:
        c = pm.Gamma("c", 4, 2)
        y = pm.CustomDist("y", 0.2, 1.0 * (c > 2.5), logp=inflated_logp, random=inflated, shape=4)
    assert behind_repeated(y, model) == [c]


POSITIVE = {
    "exponential": lambda c, **size: pm.Exponential.dist(c, **size),
    "gamma": lambda c, **size: pm.Gamma.dist(2, c, **size),
    "normal": lambda c, **size: N(c, 1, **size),
    "wald": lambda c, **size: pm.Wald.dist(c, 1, **size),
    "beta": lambda c, **size: pm.Beta.dist(c, 1, **size),
}


def product(law, w, c, shape):
    """A bit times a law: zero, or a number."""

    def dist(w, c, size):
        return pm.Bernoulli.dist(w, size=size) * law(c, size=size)

    def logp(value, w, c):
        return pt.switch(pt.eq(value, 0), pt.log1p(-w), pt.log(w) + pm.logp(law(c), value))

    return pm.CustomDist("y", w, c, dist=dist, logp=logp, shape=shape)


@pytest.mark.parametrize("law", POSITIVE.values(), ids=POSITIVE)
def test_draws_that_are_no_numbers_say_nothing(law):
    """Of a rate of 5.6e-309 draws are infinite, and zero times that is no number: the zeros were gone."""
    with pm.Model() as model:
        y = product(law, pm.Uniform("w"), pm.Gamma("c", 3, 3), 5)
    assert behind_repeated(y, model) == []


def test_a_product_with_zeros_is_exact():
    z, scale = np.array([0.1, -0.2, 2.0, 0.05, 3.0]), 0.3
    ws, cs = (np.arange(200) + 0.5) / 200, np.linspace(0.02, 7, 350)
    at, noise = np.linspace(0, 60, 30_001), stats.laplace(0, scale)
    density = np.array([stats.expon(scale=1 / c).pdf(at) for c in cs])
    each = np.array([np.trapezoid(density * noise.pdf(value - at), at, axis=1) for value in z])
    likelihood = (1 - ws[:, None, None]) * noise.pdf(z)[:, None] + ws[:, None, None] * each
    posterior = likelihood.prod(axis=1) * stats.gamma(3, scale=1 / 3).pdf(cs)
    exact = {"w": marginal(ws, posterior.sum(axis=1)), "c": marginal(cs, posterior.sum(axis=0))}
    with pm.Model():
        y = product(POSITIVE["exponential"], pm.Uniform("w"), pm.Gamma("c", 3, 3), 5)
        dp.LaplaceMechanism("z", y, scale=scale, observed=z)
        idata = pm.sample(
            5000, tune=1000, chains=2, cores=1, random_seed=6, progressbar=False, quiet=True,
            compute_convergence_checks=False,
        )  # fmt: skip
    for name, answer in exact.items():
        verdict = harness.mc_z(idata.posterior[name].values, answer, minimum_ess=150)
        assert verdict.passed, (name, verdict)


@pytest.mark.parametrize("shape", [4, 400])
def test_whole_numbers_may_shift_a_law_on_a_grid(shape):
    with pm.Model() as model:
        k, s = pm.Poisson("k", 3), pm.HalfNormal("s")
        y = pm.CustomDist("y", k, s, dist=lambda k, s, size: pt.floor(N(k, s, size=size)), shape=shape)
    assert behind_repeated(y, model) == []


def test_laws_without_draws_are_told():
    """It was passed over in silence that nothing is known of such a law."""

    def random(mu, c, rng=None, size=None):
        raise RuntimeError("rows of somebody")

    model, y = declared(by_hand(capped_logp, random))
    with pytest.warns(UserWarning, match=r"law of y.* failed \(RuntimeError\) at all places") as told:
        assert behind_repeated(y, model) == []
    assert "somebody" not in str(told[0].message)


def test_laws_that_fail_at_most_places_are_told():
    def random(mu, c, rng=None, size=None):
        if abs(c) > 0.3:
            raise RuntimeError("rows of somebody")
        return np.minimum(rng.normal(mu, 1, size=size), 0)

    with pm.Model() as model:
        mu, c = pm.Normal("mu"), pm.Normal("c")
        y = pm.CustomDist("y", mu, c, logp=lambda v, mu, c: capped_logp(v, mu, 0), random=random, shape=3)
    with pytest.warns(UserWarning, match=r"law of y.* failed \(RuntimeError\) at [0-9]+ of [0-9]+ places"):
        assert behind_repeated(y, model) == []


def test_a_model_is_refused_and_the_query_is_exact():
    """The mean of c was 1.40 instead of 2.03; quadrature over the whole part of c."""
    mus, cs = np.linspace(-4, 4, 161), (np.arange(1800) + 0.5) / 200
    at, noise = np.linspace(-14, 0, 7001), stats.laplace(0, SCALE)
    posterior = stats.norm.pdf(mus)[:, None] * stats.gamma(4, scale=0.5).pdf(cs)
    for row, mu in zip(posterior, mus, strict=True):
        law = stats.norm(mu, 1)
        for f in range(9):
            below = [np.trapezoid(law.pdf(f + at) * noise.pdf(z - f - at), at) for z in Z]
            row[np.floor(cs) == f] *= np.prod(law.sf(f) * noise.pdf(Z - f) + below)
    exact = {"mu": marginal(mus, posterior.sum(axis=1)), "c": marginal(cs, posterior.sum(axis=0))}
    model, y = declared(MOVED["an inequality"])
    with model:
        dp.LaplaceMechanism("z", y, scale=SCALE, observed=Z)
        with pytest.raises(ValueError, match=r"record variable y has .* depend on c .*dp\.clamp\(x, a, c\)"):
            pm.sample(10, tune=10, chains=1, progressbar=False, quiet=True)
    with pm.Model():
        mu, c = pm.Normal("mu"), pm.Gamma("c", 4, 2)
        x = pm.Normal("x", mu, 1, shape=3)
        dp.LaplaceMechanism("z", pt.minimum(x, pt.floor(c)), scale=SCALE, observed=Z)
        idata = pm.sample(
            5000, tune=1000, chains=2, cores=1, step=[pm.Slice([c])], random_seed=6, progressbar=False,
            quiet=True, compute_convergence_checks=False,
        )  # fmt: skip
    for name, answer in exact.items():
        verdict = harness.mc_z(idata.posterior[name].values, answer, minimum_ess=150)
        assert verdict.passed, (name, verdict)


def test_a_choice_between_an_atom_and_none_is_exact():
    """It was refused as a place that moves; the probability of each choice is a product over the records."""
    z, scale, weight = np.array([0.02, -0.9, 1.1, -0.05]), 0.1, 0.4
    at = np.linspace(-9, 9, 18_001)
    noise = stats.laplace(0, scale)
    smooth = np.array([np.trapezoid(stats.norm.pdf(at) * noise.pdf(each - at), at) for each in z])
    likelihood = [np.prod(w * noise.pdf(z) + (1 - w) * smooth) for w in (0.0, weight)]
    exact = likelihood[1] / sum(likelihood)
    with pm.Model():
        k = pm.Bernoulli("k", 0.5)
        y = pm.CustomDist("y", 0.0, weight * k, logp=inflated_logp, random=inflated, shape=4)
        dp.LaplaceMechanism("z", y, scale=scale, observed=z)
        idata = pm.sample(
            20_000, tune=500, chains=2, cores=1, random_seed=6, progressbar=False, quiet=True,
            compute_convergence_checks=False,
        )  # fmt: skip
    error = az.mcse(idata, var_names="k").k.item()
    assert error < 0.02
    assert abs(float(idata.posterior["k"].mean()) - exact) < 4 * error


def test_draws_in_a_copy_of_a_model_follow_its_own_parameters():
    """PyMC's law of another size has the parameters of the first model, drawn at random."""
    model, _ = declared(drawn(lambda mu, c, size: c * pt.floor(N(mu, 1, size=size))))
    model = model.copy()
    draws = LawDraws(model["y"], [model["mu"], model["c"]])
    numbers = draws.at(0, [np.array(0.0), np.array(7.0)])
    assert numbers.shape == (334, 3)  # by one call
    assert np.all(numbers % 7 == 0)


def one_size(mu, rng=None, size=None):
    if np.prod(size) > 3:
        raise ValueError("three numbers only\nin detail")
    return rng.normal(mu, 1, size)


def other_size(mu, rng=None, size=None):
    return rng.normal(mu, 1, size)[:1] if np.prod(size) > 3 else rng.normal(mu, 1, size)


@pytest.mark.parametrize(
    ("function", "reason"), [(one_size, "ValueError: three numbers only"), (other_size, "ValueError")]
)
def test_functions_of_one_size_are_drawn_one_by_one_and_that_is_said(function, reason, caplog):
    with pm.Model() as model:
        mu = pm.Normal("mu")
        pm.CustomDist("y", mu, logp=lambda value, mu: pm.logp(N(mu, 1), value), random=function, shape=3)
    draws = LawDraws(model["y"], [mu])
    with caplog.at_level("INFO", logger="pymc.dp"):
        numbers = draws.at(0, [np.array(0.0)])
        assert draws.at(0, [np.array(0.0)]).shape == numbers.shape == (67, 3)
    (record,) = caplog.records  # once
    assert "among 200 draws of y" in record.message
    assert reason in record.message
    assert "in detail" not in record.message


def test_a_function_that_fails_for_its_values_says_so_itself():
    def fails(mu, rng=None, size=None):
        raise ZeroDivisionError("of the user")

    with pm.Model() as model:
        mu = pm.Normal("mu")
        pm.CustomDist("y", mu, logp=lambda value, mu: pm.logp(N(mu, 1), value), random=fails, shape=3)
    with pytest.raises(ZeroDivisionError, match="of the user"):
        LawDraws(model["y"], [mu]).at(0, [np.array(0.0)])


def test_a_prior_that_cannot_be_drawn_is_said(caplog):
    with pm.Model() as model:
        mu = pm.Flat("mu")
        pm.Normal("y", mu, 1, shape=3)
    with caplog.at_level("INFO", logger="pymc.dp"):
        settings = settings_of(model, [mu])
    assert 0 < len(settings) < 20
    assert "about the starting values only, since mu cannot be" in caplog.text
