"""Models of imported releases, and of the same mechanisms declared by hand."""

import numpy as np
import pymc as pm
import pytest

import pymc_dp as dp


def check_declared(release, mechanism, **by_hand):
    """The release goes through JSON, and its model has the density of the mechanism declared by hand."""
    assert dp.Release.from_json(release.to_json()) == release
    values = np.array(release.value)
    densities = []
    for given in ({"observed": release}, {"observed": values, **by_hand}):
        with pm.Model() as model:
            counts = pm.Poisson("counts", pm.Gamma("rate", 2, 0.1, shape=values.shape), shape=values.shape)
            mechanism("z", counts, **given)
        densities.append(model.compile_logp())
    rng = np.random.default_rng(1)
    point = model.initial_point()
    for _ in range(3):
        point["counts"] = rng.poisson(10, values.shape)
        first, second = (float(d(point)) for d in densities)
        assert np.isfinite(first) and first == pytest.approx(second, rel=1e-12)
