"""Entries of several arrays that one loop of PyTensor's would write."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt

import pymc_dp as dp
from pymc_dp.lowering.addresses import modes
from pymc_dp.lowering.addresses.modes import default_mode

ROWS, OTHERS = np.array([1, 3, 4]), np.array([0, 2])


def several_writes():
    """Two arrays that are added to, and one that is set, and then set where nothing was set."""
    x = pt.vector("x", dtype="float64")
    e = pt.exp(x)
    first, second = (pt.zeros(5)[ROWS].inc(k * e) for k in (1.0, 2.0))
    third = pt.empty((5,))[ROWS].set(3 * e)[OTHERS].set(np.array([7.0, 8.0]))
    conditions = pt.switch(pt.eq(first, 0), pt.switch(pt.eq(second, 0), 1.0, 3.0), 2.0)
    return x, [conditions, pt.clip(third, 0, 50)]


def wrong(mode):
    """How many of some calls have another result than Python has."""
    x, outputs = several_writes()
    ours, python = (pytensor.function([x], outputs, mode=m) for m in (mode, "FAST_COMPILE"))
    rng = np.random.default_rng(1)
    values = [rng.normal(size=3) for _ in range(50)]
    same = [all(map(np.allclose, [o.copy() for o in ours(v)], python(v))) for v in values]
    return len(same) - sum(same)


def test_each_array_has_its_own_numbers():
    assert wrong(default_mode()) == 0


def test_what_is_written_is_in_no_loop_of_several(monkeypatch):
    """A planted fault: without the rewrite, one loop writes all three."""

    def loops(mode):
        x, outputs = several_writes()
        nodes = pytensor.function([x], outputs, mode=mode).maker.fgraph.apply_nodes
        return [n for n in nodes if len(n.op.destroy_map) > 1]

    assert not loops(default_mode())
    monkeypatch.setattr(modes, "written_apart", modes.joined_in_parts)
    assert loops(default_mode())


def test_sums_of_two_partly_observed_covariates(rng):
    """The sweep's sums are those of the records that it leaves, row by row as NumPy computes them."""
    known = np.array([[np.nan, -2.5, 0.4, -0.5, np.nan], [3.0, np.nan, 0.7, np.nan, np.nan]])
    hidden = np.isnan(known)
    with pm.Model() as model:
        a = pm.Normal("a", pm.Normal("mu"), 1, observed=np.ma.masked_invalid(known[0]))
        w = pm.LogNormal("w", 0, pm.HalfNormal("s"), observed=np.ma.masked_invalid(known[1]))
        y = pm.Normal("y", a + 0.5 * w, 1.0, shape=5)
        rows = pt.stack([dp.clamp(y, -4, 4), dp.clamp(w, 0, 5)], axis=1)
        dp.LaplaceMechanism("z", dp.record_sum(rows), scale=2.0, observed=[6.0, 14.0])
    (chain,) = dp.RecordImputation(proposals="independence", model=model).chains
    theta = chain.program.parameters.flatten(model.initial_point())
    x = chain.draw(rng, theta)
    for _ in range(50):
        chain.sweep(rng, theta, x, 0)
        values, weights = chain.program.records.unpack(x), known[1].copy()
        weights[hidden[1]] = np.exp(values["w_unobserved_log__"])
        expected = np.clip(values["y"], -4, 4).sum(), np.clip(weights, 0, 5).sum()
        np.testing.assert_allclose(chain.totals, expected, rtol=1e-12)
