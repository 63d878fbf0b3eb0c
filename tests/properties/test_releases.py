"""Releases of random data with random terms: files that lose nothing, and models that they declare."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath as mp
import numpy as np
import pymc as pm
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pymc_dp as dp

N = 6
epsilons = st.floats(0.01, 20)
wholes = st.lists(st.integers(0, 9), min_size=N, max_size=N).map(np.array)
reals = st.lists(st.floats(-100, 100), min_size=N, max_size=N).map(np.array)
bounds = st.tuples(st.floats(-50, 49), st.floats(0.5, 100)).map(lambda e: (e[0], e[0] + e[1]))
names = st.one_of(
    st.none(),
    st.text(st.characters(codec="utf-8", categories=["L", "N", "Zs"]), min_size=1).filter(str.strip),
)
neighbours = st.sampled_from(["replace-one", "add-remove"])


@st.composite
def tables(draw):
    """Probabilities of answers given the truth, also tiny ones, and answers that nobody gives."""
    k, a = draw(st.integers(2, 5)), draw(st.integers(2, 5))
    weights = np.exp([[draw(st.floats(-40, 0)) for _ in range(a)] for _ in range(k)])
    weights[:, 1:][:, [draw(st.booleans()) and draw(st.booleans()) for _ in range(a - 1)]] = 0
    return weights / weights.sum(axis=1, keepdims=True)


@st.composite
def releases(draw):
    """A release, and the model that an analyst declares for it, without noise level."""
    kind = draw(
        st.sampled_from(["laplace", "gaussian", "whole laplace", "whole gaussian", "answers", "table"])
    )
    name = draw(names)
    if kind == "table":
        table = draw(tables())
        k = len(table)
        made = dp.RandomizedResponse.release(draw(wholes) % k, p_answer=table, name=name)
        return made, lambda: dp.RandomizedResponse(
            "z", pm.Categorical("x", np.ones(k) / k, shape=N), observed=made
        )
    if kind == "answers":
        k = draw(st.integers(2, 6))
        data = draw(wholes) % k
        made = dp.RandomizedResponse.release(data, epsilon=draw(epsilons), n_categories=k, name=name)
        return made, lambda: dp.RandomizedResponse(
            "z", pm.Categorical("x", np.ones(k) / k, shape=N), observed=made
        )
    near = draw(neighbours)
    if kind.startswith("whole"):
        given_by = {"bounds": (0, 9), "neighbours": near}
        law, data = (lambda: pm.Poisson("x", 3, shape=N)), draw(wholes)
    else:
        given_by = {"bounds": draw(bounds), "neighbours": near}
        law, data = (lambda: pm.Normal("x", shape=N)), draw(reals)
    if kind.endswith("laplace"):
        noise = {"epsilon": draw(epsilons)}
        mechanism = dp.DiscreteLaplaceMechanism if kind.startswith("whole") else dp.LaplaceMechanism
    else:
        noise = {"rho": draw(epsilons)}
        mechanism = dp.DiscreteGaussianMechanism if kind.startswith("whole") else dp.GaussianMechanism
    made = mechanism.release(dp.record_sum(data), **noise, **given_by, name=name)
    return made, lambda: mechanism("z", dp.record_sum(law()), observed=made)


@given(releases())
def test_a_file_is_the_release_and_declares_what_was_done(case):
    made, declare = case
    again = dp.Release.from_json(made.to_json())
    assert again == made and again.name == made.name and again.guarantee == made.guarantee
    np.testing.assert_array_equal(again.value, made.value)
    assert dp.guarantee(again) == dp.guarantee(made)
    with pm.Model() as model:
        z = declare()
    for name in ("epsilon", "delta", "rho", "mu"):
        declared, promised = getattr(dp.guarantee(z), name), getattr(made.guarantee, name)
        assert declared == (promised if promised is None else pytest.approx(promised, rel=1e-9))
    np.testing.assert_array_equal(model.rvs_to_values[z].data, made.value)


@given(
    releases(),
    st.sampled_from(
        [{"clip": (-5, 30)}, {"round_to": 5}, {"suppress_below": 3}, {"clip": (0, 20), "round_to": 2}]
    ),
)
def test_what_is_published_has_a_density(case, processing):
    made, _ = case
    if made.mechanism == "RandomizedResponse":
        with pytest.raises(TypeError, match="by RandomizedResponse cannot be processed"):
            made.postprocessed(**processing)
        return
    published = made.postprocessed(**processing)
    again = dp.Release.from_json(published.to_json())
    assert again == published and published.guarantee == made.guarantee
    with pm.Model() as model:
        mechanism = getattr(dp, made.mechanism)
        x = pm.Poisson("x", 3, shape=N) if made.mechanism.startswith("Discrete") else pm.Normal("x", shape=N)
        mechanism("z", dp.record_sum(x), observed=again)
    density = model.compile_logp(vars=[model["z"]], mode="FAST_COMPILE")
    assert np.isfinite(density(model.initial_point()))


@given(tables())
def test_a_table_promises_its_largest_ratio(table):
    """In exact arithmetic, of the numbers that answers are drawn with; never less, and hardly more."""
    made = dp.RandomizedResponse.release(np.arange(N) % len(table), p_answer=table)
    drawn_with = [[Fraction(p) for p in row] for row in made.parameters["p_answer"]]
    laws = [[p / sum(row) for p in row] for row in drawn_with]
    columns = [column for column in zip(*laws, strict=True) if any(column)]
    worst = max(max(column) / min(column) for column in columns)
    promised = made.guarantee.epsilon
    assert promised <= math.log(worst) * (1 + 1e-12) + 1e-12
    with mp.workdps(40):
        assert mp.mpf(promised) >= mp.log(mp.mpf(worst.numerator) / worst.denominator)
