"""Whole-numbered noise that is clipped, rounded and suppressed: probabilities of what can be published."""

from __future__ import annotations

import numpy as np
import pymc as pm
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pymc_dp as dp
from pymc_dp.privacy import processing as processing_of
from tests.properties.conftest import UNTIL_ONE_FAILS

# Noise beyond this many scales has no probability that floating point adds to one.
FAR = 45

steps = st.sampled_from([2, 3, 5, 10])
operations = {
    "clip": st.tuples(st.integers(-20, 20), st.integers(1, 30)).map(lambda e: (e[0], e[0] + e[1])),
    "round_to": steps,
    "suppress_below": st.integers(-15, 25),
}


@st.composite
def processings(draw):
    """Some operations in some order."""
    names = draw(st.lists(st.sampled_from(sorted(operations)), min_size=1, max_size=3, unique=True))
    return {name: draw(operations[name]) for name in names} | {"order": tuple(names)}


def published(noisy, processing):
    """What is published of noisy values, written here once more; nothing is a missing value."""
    values = noisy.astype(float)
    for name in processing["order"]:
        argument = processing[name]
        if name == "clip":
            values = np.clip(values, *argument)  # a suppressed entry stays one
        elif name == "round_to":
            values = argument * np.rint(values / argument)
        else:
            values = np.where(values >= argument, values, np.nan)
    return values


def laws(kind, scale):
    """Noise and its probabilities."""
    z = np.arange(-int(FAR * scale) - 1, int(FAR * scale) + 2)
    logs = -np.abs(z) / scale if kind is dp.DiscreteLaplaceMechanism else -0.5 * (z / scale) ** 2
    p = np.exp(logs)
    return z, p / p.sum()


MECHANISMS = {dp.DiscreteLaplaceMechanism: "scale", dp.DiscreteGaussianMechanism: "sigma"}


def check(**options):
    @settings(**options)
    @given(
        st.sampled_from(sorted(MECHANISMS, key=str)),
        st.sampled_from([0.4, 1.3, 4.0]),
        st.integers(-12, 30),
        processings(),
    )
    def over(mechanism, scale, query, processing):
        noise, p = laws(mechanism, scale)
        seen = published(query + noise, processing)
        keys = np.where(np.isnan(seen), -np.inf, seen)
        values, which = np.unique(keys, return_inverse=True)
        expected = np.bincount(which, weights=p)
        values = np.where(np.isinf(values), np.nan, values)
        declaration = {MECHANISMS[mechanism]: scale}
        with pm.Model() as model:
            x = pm.DiscreteUniform("x", -20, 40, shape=len(values))
            mechanism("z", x, **declaration, observed=dp.postprocessed(values, **processing))
        density = model.compile_logp(vars=[model["z"]], sum=False, mode="FAST_COMPILE")
        (logp,) = density({"x": np.full(len(values), query)})
        assert abs(np.exp(logp).sum() - 1) < 1e-9
        told = expected > 1e-12
        np.testing.assert_allclose(np.exp(logp)[told], expected[told], rtol=1e-7)

    over()


def test_every_published_value_has_the_probability_of_what_gives_it():
    check()


def test_halves_that_went_to_the_odd_multiple_are_seen(monkeypatch):
    odd = processing_of._is_odd
    monkeypatch.setattr(processing_of, "_is_odd", lambda xp, k: ~odd(xp, k))
    with pytest.raises((AssertionError, ValueError)):  # a value that nothing gives is refused
        check(**UNTIL_ONE_FAILS)
