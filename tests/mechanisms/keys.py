"""Counts of keys of which only those are listed that passed a threshold, by sums over counts and noise."""

from __future__ import annotations

import numpy as np
import pymc as pm
import scipy.stats as st

import pymc_dp as dp

ALPHA = np.float64(1.5)  # a float of Python's would be of single precision in a graph
COUNTS = np.arange(4000)
REACH = np.arange(-400, 401)

# Laws of counts with a mean or so: how they are declared, and SciPy's.
LAWS = {
    "Poisson": (lambda v, **shape: pm.Poisson("people", v, **shape), st.poisson),
    "negative binomial": (
        lambda v, **shape: pm.NegativeBinomial("people", mu=v, alpha=ALPHA, **shape),
        lambda v: st.nbinom(ALPHA, ALPHA / (ALPHA + v)),
    ),
    "geometric": (
        lambda v, **shape: pm.Geometric("people", 1 / (1 + v), **shape),
        lambda v: st.geom(1 / (1 + v)),
    ),
    "binomial": (
        lambda v, **shape: pm.Binomial("people", 40, v / (40 + v), **shape),
        lambda v: st.binom(40, v / (40 + v)),
    ),
    "Bernoulli": (
        lambda v, **shape: pm.Bernoulli("people", v / (40 + v), **shape),
        lambda v: st.bernoulli(v / (40 + v)),
    ),
}


def whole(weight):
    """Probability that whole-numbered noise lifts counts to a number or more, by adding up the noise."""
    weight = weight / weight.sum()
    above = np.append(np.cumsum(weight[::-1])[::-1], 0.0)
    return lambda t, k: above[np.clip(np.ceil(t) - k - REACH[0], 0, len(weight)).astype(int)]


LEVEL = 2.5
# Noise: the mechanism, the name of its level, P(count + noise >= t), and its log density.
NOISES = {
    "laplace": (dp.LaplaceMechanism, "scale", lambda t, k: st.laplace(k, LEVEL).sf(t)),
    "gaussian": (dp.GaussianMechanism, "sigma", lambda t, k: st.norm(k, LEVEL).sf(t)),
    "discrete laplace": (
        dp.DiscreteLaplaceMechanism,
        "scale",
        lambda t, k: st.dlaplace(1 / LEVEL).sf(np.ceil(t) - 1 - k),
    ),
    "discrete gaussian": (
        dp.DiscreteGaussianMechanism,
        "sigma",
        whole(np.exp(-0.5 * (REACH / LEVEL) ** 2)),
    ),
}
# What is done to noisy values, in each case with another least noisy value that is listed.
PROCESSINGS = [
    {"suppress_below": 8},
    {"round_to": 5, "suppress_below": 8},
    {"round_to": 4, "suppress_below": 8},
    {"clip": (0, 30), "round_to": 5, "suppress_below": 5},
    {"round_to": 5, "suppress_below": 8, "order": ("suppress_below", "round_to")},
]


def published(processing, z):
    """What is published of noisy values, NaN where that is nothing."""
    y, hidden = np.asarray(z, dtype=float), np.zeros(np.shape(z), dtype=bool)
    order = processing.get("order", [n for n in ("clip", "round_to", "suppress_below") if n in processing])
    for name in order:
        if name == "clip":
            y = np.clip(y, *processing["clip"])
        elif name == "round_to":
            y = processing["round_to"] * np.rint(y / processing["round_to"])
        else:
            hidden = y < processing["suppress_below"]
    return np.where(hidden, np.nan, y)


def least_listed(processing, is_whole):
    """The least noisy value that is listed, by trying."""
    if is_whole:
        z = np.arange(-100, 100)
        return z[~np.isnan(published(processing, z))].min()
    low, high = -100.0, 100.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (low, middle) if not np.isnan(published(processing, middle)) else (middle, high)
    return high


def share(law, noise, processing, rate):
    """Probability that a key is listed at a rate, or at several, by the sum over thousands of counts."""
    least = least_listed(processing, noise.startswith("discrete"))
    return LAWS[law][1](np.asarray(rate)[..., None]).pmf(COUNTS) @ NOISES[noise][2](least, COUNTS)


def declared(law, noise, processing, K=3, values=None):
    """A model of K listed keys."""
    values = np.full(K, 20) if values is None else np.asarray(values)
    mechanism, label, _ = NOISES[noise]
    if values.max() < processing["suppress_below"]:
        values = np.full(K, processing["suppress_below"])
    with pm.Model() as model:
        rate = pm.Gamma("rate", 2, 0.3)
        people = LAWS[law][0](rate, shape=len(values))
        observed = dp.postprocessed(values, **processing, unknown_keys=True)
        mechanism("z", people, **{label: LEVEL}, observed=observed)
    return model
