"""Laws of atoms are recognised where they hold everywhere, not only where the chain begins."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.scalar import basic as ps

import pymc_dp as dp
from pymc_dp.lowering.rows.intervals import REAL, Interval
from pymc_dp.step_methods.mixture.conjugacy import _ROUNDED, _kink

COUNTS = np.array([0, 2, 5, 9])
SLOTS = 5


def counts(rate):
    """Poisson records whose rates are gamma atoms, changed by a function."""
    with pm.Model() as model:
        labels = dp.ChineseRestaurantProcess("labels", concentration=1.0, shape=4, max_components=SLOTS)
        atoms = pm.Gamma("rate", 2, 0.4, shape=SLOTS)
        pm.Poisson("y", rate(atoms[labels]), observed=COUNTS)
    return model


def recognised(model):
    with model:
        step = dp.AtomUpdate()
    return step, [family for _, family in step._mixtures[0].lowered.laws.single]


# all but the last are conjugate at the initial point, or for most records, or for most atoms
RATES = [
    pytest.param(lambda r: r + pm.Normal("b", 0, 1) ** 2, id="a real parameter that starts at 0"),
    pytest.param(lambda r: r + pm.Bernoulli("b", 0.3), id="a discrete parameter that starts at 0"),
    pytest.param(lambda r: r + np.array([0.0, 0.0, 3.0, 0.0]), id="one record"),
    pytest.param(lambda r: pt.maximum(r, 1e-3), id="clip"),
    pytest.param(lambda r: pt.switch(r > 1e-3, r, 1e-3), id="switch"),
]


@pytest.mark.statistical  # takes a second for each
@pytest.mark.usefixtures("built_only")
@pytest.mark.parametrize("rate", RATES)
def test_laws_that_do_not_hold_everywhere(rate):
    assert recognised(counts(rate))[1] == []


@pytest.mark.compiles(1)
@pytest.mark.usefixtures("built_only")
@pytest.mark.parametrize(
    "rate",
    [
        pytest.param(lambda r: r, id="plain"),
        pytest.param(lambda r: r * pt.exp(pm.Normal("b", 0, 1) * COUNTS), id="regression"),
        pytest.param(lambda r: r * pm.Uniform("b", 0, 1), id="bounded parameter"),
    ],
)
def test_laws_that_hold_for_any_parameters(rate):
    assert recognised(counts(rate))[1] == ["gamma"]


@pytest.mark.parametrize("bends", [True, False])
def test_what_bends_a_density(bends):
    """PyMC takes signs and absolute values of precisions, which are positive."""
    number = ps.float64("number")
    tau = pt.tensor_from_scalar(number)
    density = pt.log(pt.sign(tau) * pt.abs(tau) ** -0.5)
    if bends:
        assert _kink(density, number, REAL, _ROUNDED)
        assert _kink(density + pt.maximum(tau, 1.0), number, Interval(0.0), _ROUNDED)
        assert _kink(pt.abs(tau - 1), number, Interval(0.0), _ROUNDED)
    else:
        assert not _kink(density, number, Interval(0.0), _ROUNDED)
        assert not _kink(pt.abs(pt.dscalar("x")), number, REAL, _ROUNDED)


def test_sampling_with_a_scale_that_starts_without_noise():
    """The variance of a slot is that of its records at the initial point only."""
    with pm.Model():
        labels = dp.ChineseRestaurantProcess("labels", concentration=1.0, shape=4, max_components=SLOTS)
        tau = pm.Normal("tau", 0, 1)
        s2 = pm.InverseGamma("s2", 3, 3, shape=SLOTS)
        mu = pm.Normal("mu", 0, pt.sqrt(10 * s2), shape=SLOTS)
        pm.Normal("y", mu[labels], pt.sqrt(s2[labels] + tau**2), observed=COUNTS)
        with pytest.raises(ValueError, match="need atoms that integrate out"):
            dp.Neal2()


@pytest.mark.statistical
@pytest.mark.usefixtures("built_only")
def test_data_that_change_the_law():
    """A background of zero may be another in the next chain, of the same step or of a new one."""
    model = counts(lambda r: r + pm.Data("background", np.zeros(4)))
    step, families = recognised(model)
    assert families == ["gamma"]
    with model:
        pm.set_data({"background": np.full(4, 3.0)})
    step.setup_chain(np.random.default_rng(1), 10, 10)
    assert step._mixtures[0].lowered.laws.single == []
    assert recognised(model)[1] == []
