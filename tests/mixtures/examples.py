"""Small examples that the tests of mixtures share."""

import itertools

import numpy as np

from tests.mixtures import exact
from tests.mixtures.exact import Channel

Z = np.array([-4.0, -3.2, 0.3, 2.5, 6.0, 7.9])
BETA_Z = np.array([-0.3, 0.02, 0.4, 0.45, 0.9, 1.4])
SCALE_Z = np.array([-0.4, 0.5, 1.1, 3.0, 9.0])
POISSON_Z = np.array([-3, 0, 2, 5, 5, 19])
CHANNELS = {
    "laplace": Channel("laplace", 2.0),
    "gaussian": Channel("gaussian", 1.5),
    "laplace, clamped": Channel("laplace", 2.0, -5.0, 5.0),
    "gaussian, clamped": Channel("gaussian", 1.5, -5.0, 5.0),
    "little noise": Channel("laplace", 0.1),
    "hardly any noise": Channel("laplace", 0.001),
    "much noise": Channel("laplace", 20.0),
    "little noise, clamped": Channel("laplace", 0.2, -3.0, 3.0),
}
MODELS = {
    **{f"NIG, {name}": (exact.normal_nig, Z, channel) for name, channel in CHANNELS.items()},
    **{f"normal, {name}": (exact.normal_known, Z, channel) for name, channel in CHANNELS.items()},
    "Poisson": (exact.poisson_gamma, POISSON_Z, 1.0),
    "Beta": (exact.beta_gamma, BETA_Z[[1, 5]], 0.3),
    "Beta, little noise": (exact.beta_gamma, BETA_Z[[2]], 0.05),
}


def every_block(n, largest=None):
    sizes = range(1, 1 + (largest or n))
    return [b for r in sizes for b in itertools.combinations(range(n), r)]


def line(kinks):
    """Nodes and weights for a heavy-tailed integrand on the line, smooth between kinks."""
    kinks = np.arcsinh([k for k in kinks if np.isfinite(k)])
    ends = np.unique([*kinks, *np.linspace(-12, 12, 49)])
    x, w = np.polynomial.legendre.leggauss(10)
    half = np.diff(ends)[:, None] / 2
    u = (ends[:-1, None] + half * (1 + x)).ravel()
    return np.sinh(u), (half * w).ravel() * np.cosh(u)
