"""Numbers against OpenDP and dp-accounting, where they are installed (the extra ``oracles``)."""

import math

import numpy as np
import pytest

from pymc_dp.privacy import PrivacyGuarantee, RenyiGuarantee, compose
from pymc_dp.privacy.calibration import (
    gaussian_epsilon,
    gaussian_rho,
    gaussian_sigma_analytic,
    gaussian_sigma_zcdp,
    laplace_epsilon,
    laplace_scale,
)
from pymc_dp.privacy.guarantee import zcdp_epsilon

WHY = "an independent check: pip install 'pymc-dp[oracles]'"


@pytest.fixture(scope="module")
def opendp():
    prelude = pytest.importorskip("opendp.prelude", reason=WHY)
    prelude.enable_features("contrib")
    return prelude


@pytest.fixture(scope="module")
def accounting():
    return pytest.importorskip("dp_accounting", reason=WHY)


@pytest.mark.parametrize("scale", [0.3, 2.0, 50.0])
@pytest.mark.parametrize("sensitivity", [1.0, 7.0])
def test_opendp_laplace(opendp, scale, sensitivity):
    space = opendp.atom_domain(T=float, nan=False), opendp.absolute_distance(T=float)
    theirs = opendp.m.make_laplace(*space, scale=scale).map(sensitivity)
    assert laplace_epsilon(scale, sensitivity) == pytest.approx(theirs, rel=1e-12)
    found = opendp.binary_search_param(
        lambda s: opendp.m.make_laplace(*space, scale=s), d_in=sensitivity, d_out=0.7
    )
    assert laplace_scale(0.7, sensitivity) == pytest.approx(found, rel=1e-9)


@pytest.mark.parametrize("scale", [0.3, 2.0, 50.0])
@pytest.mark.parametrize("sensitivity", [1.0, 7.0])
def test_opendp_gaussian(opendp, scale, sensitivity):
    space = opendp.atom_domain(T=float, nan=False), opendp.absolute_distance(T=float)
    measurement = opendp.m.make_gaussian(*space, scale=scale)
    rho = measurement.map(sensitivity)
    assert gaussian_rho(scale, sensitivity) == pytest.approx(rho, rel=1e-12)
    assert gaussian_sigma_zcdp(rho, sensitivity) == pytest.approx(scale, rel=1e-12)
    curve = opendp.c.make_zCDP_to_approxDP(measurement).map(sensitivity)
    for delta in (1e-9, 1e-6, 1e-3):
        # the same bound, minimised to the same digits as far as their search goes
        assert zcdp_epsilon(rho, delta) == pytest.approx(curve.epsilon(delta), rel=1e-5)
        assert gaussian_epsilon(delta, scale, sensitivity) <= curve.epsilon(delta)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-5, 1e-2])
def test_google_analytic_gaussian(accounting, epsilon, delta):
    ours = gaussian_sigma_analytic(epsilon, delta, 1.0)
    # theirs is a search to an absolute tolerance in sigma
    assert ours == pytest.approx(accounting.get_sigma_gaussian(epsilon, delta), rel=2e-5)
    assert gaussian_epsilon(delta, ours, 1.0) == pytest.approx(epsilon, rel=1e-9)
    assert accounting.get_epsilon_gaussian(ours, delta) == pytest.approx(epsilon, rel=1e-5)


CASES = {
    "pure, equal": ([0.1] * 30, [], []),
    "pure, different": ([0.1, 0.2, 0.5, 1.3], [], []),
    "many different": (list(np.linspace(0.01, 0.5, 40)), [], []),
    "Gaussian": ([], [1.0, 0.5], []),
    "pure and Gaussian": ([0.5, 0.7], [0.3, 0.2], []),
    "strong": ([1.0] * 5, [2.0, 3.0], []),
    "all kinds": ([0.3], [0.4], [(0.5, 1e-7), (1.0, 1e-6)]),
}


@pytest.mark.parametrize(("epsilons", "mus", "failing"), CASES.values(), ids=CASES)
@pytest.mark.parametrize("delta", [1e-3, 1e-5])
def test_google_composition(accounting, epsilons, mus, failing, delta):
    """Their privacy loss distributions are rounded upwards to a grid of 1e-4."""
    pld = accounting.pld.privacy_loss_distribution
    step = 1e-4
    parts = [
        pld.from_privacy_parameters(
            accounting.pld.common.DifferentialPrivacyParameters(e, d), value_discretization_interval=step
        )
        for e, d in [*((e, 0.0) for e in epsilons), *failing]
    ]
    parts += [pld.from_gaussian_mechanism(1 / mu, value_discretization_interval=step) for mu in mus]
    theirs = parts[0]
    for part in parts[1:]:
        theirs = theirs.compose(part)
    ours = compose(
        [PrivacyGuarantee(e) for e in epsilons]
        + [PrivacyGuarantee(math.inf, mu=mu) for mu in mus]
        + [PrivacyGuarantee(e, d) for e, d in failing],
        delta=delta,
    )
    assert ours.epsilon == pytest.approx(theirs.get_epsilon_for_delta(delta), rel=1e-6, abs=step * len(parts))


@pytest.mark.parametrize("delta", [1e-2, 1e-5, 1e-9])
@pytest.mark.parametrize("noise", [0.8, 3.0])
def test_google_renyi(accounting, noise, delta):
    """Gaussian and Laplace releases, at the orders of theirs; ours uses those between them, too."""
    rdp = accounting.rdp
    accountant = rdp.RdpAccountant()
    events = [accounting.GaussianDpEvent(noise)] * 3 + [accounting.LaplaceDpEvent(4 * noise)] * 2
    parts = []
    for event in events:
        accountant.compose(event)
        one = rdp.RdpAccountant().compose(event)
        known = np.isfinite(one._rdp) & (np.array(one._orders) > 1)
        parts.append(RenyiGuarantee(np.array(one._orders)[known], np.array(one._rdp)[known]))
    theirs = accountant.get_epsilon(delta)
    ours = compose(parts, delta=delta).epsilon
    assert 0.999 * theirs <= ours <= theirs * (1 + 1e-9)
