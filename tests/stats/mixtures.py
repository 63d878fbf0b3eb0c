"""Small mixtures, and their posterior draws made by hand."""

import numpy as np
import pymc as pm
import xarray as xr

import pymc_dp as dp


def tree(**posterior):
    """What `pm.sample` returns, as far as summaries read it; arrays of (chain, draw, ...)."""
    variables = {
        name: (("chain", "draw", *(f"{name}_dim_{j}" for j in range(np.ndim(v) - 2))), v)
        for name, v in posterior.items()
    }
    return xr.DataTree.from_dict({"posterior": xr.Dataset(variables)})


def repeated(size, **state):
    """So many draws of one state, in two chains."""
    half = size // 2
    return tree(**{k: np.broadcast_to(v, (2, half, *np.shape(v))).copy() for k, v in state.items()})


def normal_mixture(n=3, slots=4, sd=1.0, tau=3.0, **partition):
    """Normal records around normal means."""
    partition = {"concentration": 1.0, **partition}
    with pm.Model() as model:
        labels = dp.ChineseRestaurantProcess("labels", shape=n, max_components=slots, **partition)
        mu = pm.Normal("mu", 0, tau, shape=slots)
        pm.Normal("y", mu[labels], sd)
    return model
