"""Densities of noisy normal numbers by the short way, beside the one with derivatives."""

import math

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.graph.traversal import ancestors

from pymc_dp.lowering.functions.noisy_normal import (
    NoisyNormal,
    gaussian_parts,
    gaussian_value,
    laplace_parts,
    laplace_value,
    log_normal_laplace,
    without_derivatives,
)

PAIRS = [(laplace_value, laplace_parts), (gaussian_value, gaussian_parts)]


@pytest.mark.parametrize(("value", "parts"), PAIRS, ids=["laplace", "gaussian"])
@pytest.mark.parametrize("ends", ["none", "low", "high", "both"])
def test_value_is_that_with_derivatives(value, parts, ends, rng):
    for _ in range(20_000):
        z, mu, lo = rng.normal(size=3) * 10 ** rng.uniform(-3, 3, 3)
        s, noise, width = 10 ** rng.uniform(-3, 3, 3)
        hi = lo + width if ends in ("high", "both") else math.inf
        lo = lo if ends in ("low", "both") else -math.inf
        expected = parts(z, mu, s, noise, lo, hi)[0]
        assert value(z, mu, s, noise, lo, hi) == pytest.approx(expected, rel=2e-14, abs=2e-14)


@pytest.mark.parametrize(("value", "parts"), PAIRS, ids=["laplace", "gaussian"])
@pytest.mark.parametrize("s", [-1.0, 0.0, math.inf, math.nan])
def test_outside_of_the_domain(value, parts, s):
    for lo, hi in ((-math.inf, math.inf), (-1.0, 1.0)):
        np.testing.assert_equal(value(0.3, 0.1, s, 0.5, lo, hi), parts(0.3, 0.1, s, 0.5, lo, hi)[0])


def test_graphs_take_the_short_way():
    z, mu = pt.dvector("z"), pt.dvector("mu")
    graph = log_normal_laplace(z, mu, 1.5, 0.7, -2.0, 2.0) + pm.logp(pm.Normal.dist(mu, 1), z)
    short = without_derivatives(graph)
    ops = [getattr(v.owner.op, "scalar_op", None) for v in ancestors([short]) if v.owner is not None]
    assert not any(isinstance(op, NoisyNormal) for op in ops)
    at = {z: np.array([-3.0, 0.2, 5.0]), mu: np.array([1.0, -0.5, 2.5])}
    np.testing.assert_allclose(short.eval(at), graph.eval(at), rtol=1e-14)
    assert without_derivatives(z + mu).eval(at).tolist() == (at[z] + at[mu]).tolist()
