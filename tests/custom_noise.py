"""Noise that this package has no mechanism of: densities in PyTensor and, independently, in NumPy; draws."""

from __future__ import annotations

import math

import numpy as np
import pytensor.tensor as pt
import scipy.stats as st

EPSILON, GAMMA = 0.8, 0.4  # of the staircase, for queries that change by 1
WIDTH = 1.3  # where Huber's function turns from a parabola into a line


# -- staircase noise of Geng and Viswanath (2014): piecewise constant --------------------------------


def staircase_logp(value, query):
    u = pt.abs(value - query)
    step = pt.floor(u)
    lower = pt.cast(u - step >= GAMMA, "float64")
    return -EPSILON * (step + lower) + _STAIRCASE_HEIGHT


_STAIRCASE_HEIGHT = math.log(
    (1 - math.exp(-EPSILON)) / (2 * (GAMMA + math.exp(-EPSILON) * (1 - GAMMA)))
)  # fmt: skip


def staircase_pieces(most=200):
    """Edges of the steps to the right of 0, and the density on each, made to have mass one by its own sum."""
    edges = np.sort(np.concatenate([np.arange(most + 1.0), np.arange(most) + GAMMA]))
    height = np.exp(-EPSILON * np.ceil(np.arange(2 * most) / 2))
    return edges, height / (2 * (height @ np.diff(edges)))


def staircase_pdf(u):
    edges, height = staircase_pieces()
    return height[np.searchsorted(edges, np.abs(u), side="right") - 1]


def staircase_random(query, rng, size):
    """Sign, step, and which part of it (Geng and Viswanath, algorithm 1)."""
    b = math.exp(-EPSILON)
    sign = rng.choice([-1.0, 1.0], size=size)
    step = rng.geometric(1 - b, size=size) - 1
    low = rng.random(size) < GAMMA / (GAMMA + (1 - GAMMA) * b)
    u = rng.random(size)
    return query + sign * (step + np.where(low, GAMMA * u, GAMMA + (1 - GAMMA) * u))


# -- Huber noise: normal in the middle, exponential in the tails -------------------------------------


def huber_logp(value, query, scale):
    u = pt.abs(value - query) / scale
    middle, tail = 0.5 * u**2, WIDTH * u - 0.5 * WIDTH**2
    mass = math.sqrt(2 * math.pi) * math.erf(WIDTH / math.sqrt(2)) + 2 / WIDTH * math.exp(-0.5 * WIDTH**2)
    return -pt.switch(u <= WIDTH, middle, tail) - pt.log(scale) - math.log(mass)


def huber_logpdf(u, scale):
    u = np.abs(u) / scale
    inner, outer = _huber_masses()
    middle = st.norm.logpdf(u) + math.log(2 * math.pi) / 2
    tail = -WIDTH * (u - WIDTH) - WIDTH**2 / 2
    return np.where(u <= WIDTH, middle, tail) - math.log(scale * (inner + outer))


def _huber_masses():
    inner = math.sqrt(2 * math.pi) * (2 * st.norm.cdf(WIDTH) - 1)
    return inner, 2 * math.exp(-(WIDTH**2) / 2) / WIDTH


def huber_random(query, scale, rng, size):
    inner, outer = _huber_masses()
    lo, hi = st.norm.cdf([-WIDTH, WIDTH])
    middle = st.norm.ppf(lo + (hi - lo) * rng.random(size))
    tail = rng.choice([-1.0, 1.0], size=size) * (WIDTH + rng.exponential(1 / WIDTH, size))
    return query + scale * np.where(rng.random(size) < inner / (inner + outer), middle, tail)


# -- noise in the plane whose density falls with the distance: one density for the whole release -----


def plane_logp(value, query, scale):
    return -pt.sqrt(pt.sum((value - query) ** 2)) / scale - 2 * pt.log(scale) - math.log(2 * math.pi)


def plane_logpdf(u, scale):
    return -np.hypot(u[..., 0], u[..., 1]) / scale - math.log(2 * math.pi * scale**2)


def plane_random(query, scale, rng, size):
    angle, radius = rng.uniform(0, 2 * math.pi), rng.gamma(2.0, scale)
    return query + radius * np.array([math.cos(angle), math.sin(angle)]).reshape(size)
