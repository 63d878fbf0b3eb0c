"""Guarantees: immutable, printable, converted only by proven bounds."""

import math
import pickle
from dataclasses import FrozenInstanceError

import pytest

import pymc_dp as dp
from pymc_dp.privacy import PrivacyGuarantee
from pymc_dp.privacy.calibration import gaussian_epsilon, gaussian_sigma_zcdp


def test_is_a_hashable_value():
    one, same = PrivacyGuarantee(1), PrivacyGuarantee(1.0, 0.0)
    assert one == same and hash(one) == hash(same)
    assert pickle.loads(pickle.dumps(one)) == one
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'epsilon'"):
        one.epsilon = 2.0
    assert one.epsilon == 1.0


@pytest.mark.parametrize(
    ("guarantee", "sentence"),
    [
        (
            PrivacyGuarantee(0.5),
            "Pure differential privacy with epsilon = 0.5, for replace-one neighbours.",
        ),
        (
            PrivacyGuarantee(1, 1e-6, neighbours="add-remove"),
            "Approximate differential privacy with epsilon = 1 and delta = 1e-06, for add-remove neighbours.",
        ),
        (
            PrivacyGuarantee(math.inf, rho=0.5),
            "Zero-concentrated differential privacy with rho = 0.5, for replace-one neighbours.",
        ),
        (
            PrivacyGuarantee(1, 1e-6, mu=0.2),
            "Approximate differential privacy with epsilon = 1 and delta = 1e-06, zero-concentrated "
            "differential privacy with rho = 0.02 and Gaussian differential privacy with mu = 0.2, for "
            "replace-one neighbours.",
        ),
    ],
)
def test_prints_as_a_sentence(guarantee, sentence):
    assert str(guarantee) == sentence


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"epsilon": -1}, "epsilon must be"),
        ({"epsilon": math.nan}, "epsilon must be"),
        ({"epsilon": 1, "delta": 1.0}, "delta must be"),
        ({"epsilon": 1, "rho": math.inf}, "rho must be"),
        ({"epsilon": 1, "mu": -1}, "mu must be"),
        ({"epsilon": 1, "mu": math.inf}, "mu must be"),
        ({"epsilon": math.inf}, "promises nothing"),
        ({"epsilon": 1, "neighbours": "friends"}, "neighbours must be one of"),
    ],
)
def test_refuses_what_is_no_promise(kwargs, message):
    with pytest.raises(ValueError, match=message):
        PrivacyGuarantee(**kwargs)


def test_pure_to_zcdp_to_approximate():
    pure = PrivacyGuarantee(0.1)
    assert pure.to_zcdp().rho == pytest.approx(0.005)
    # Many compositions would go through rho; a single pure release stays at its own epsilon.
    assert pure.to_approximate(1e-6).epsilon == 0.1
    assert pure.to_approximate(0.99).epsilon < 0.1
    with pytest.raises(ValueError, match="no finite rho"):
        PrivacyGuarantee(1, 1e-6).to_zcdp()
    with pytest.raises(ValueError, match="below the 1e-06"):
        PrivacyGuarantee(1, 1e-6).to_approximate(1e-9)
    with pytest.raises(ValueError, match="delta must be in"):
        pure.to_approximate(0)


@pytest.mark.parametrize("rho", [1e-3, 0.5, 10.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-3])
def test_zcdp_to_approximate_never_promises_too_much(rho, delta):
    converted = PrivacyGuarantee(math.inf, rho=rho).to_approximate(delta).epsilon
    exact = gaussian_epsilon(delta, gaussian_sigma_zcdp(rho, 1.0), 1.0)
    assert exact <= converted <= 1.35 * exact  # valid, and tight up to what rho alone can tell
    assert converted <= rho + 2 * math.sqrt(rho * math.log(1 / delta))


@pytest.mark.parametrize("mu", [1e-3, 0.5, 6.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-3])
def test_mu_gives_the_exact_curve(mu, delta):
    stated = PrivacyGuarantee(math.inf, mu=mu)
    assert stated.rho == mu**2 / 2
    assert stated.to_approximate(delta).epsilon == gaussian_epsilon(delta, 1.0, mu)
    assert PrivacyGuarantee(0.01, 1e-12, mu=mu).to_approximate(delta).epsilon <= 0.01
    assert PrivacyGuarantee(math.inf, mu=0.0).to_approximate(delta).epsilon == 0


def test_removing_and_adding_makes_an_exchange():
    once = PrivacyGuarantee(0.5, 1e-6, 0.02, "add-remove", 0.2)
    twice = once.to_replace_one()
    assert (twice.epsilon, twice.rho, twice.mu) == (1.0, 0.08, 0.4)
    assert twice.delta == pytest.approx(1e-6 * (1 + math.exp(0.5)))
    assert twice.neighbours == "replace-one" and twice.to_replace_one() is twice
    # of Gaussian noise both statements are exact: the group's delta covers what the curve says
    gaussian = PrivacyGuarantee(gaussian_epsilon(1e-6, 1.0, 0.2), 1e-6, mu=0.2, neighbours="add-remove")
    group = gaussian.to_replace_one()
    assert gaussian_epsilon(group.delta, 1.0, 0.4) <= group.epsilon
    lost = PrivacyGuarantee(20.0, 1e-3, 0.1, "add-remove").to_replace_one()
    assert (lost.epsilon, lost.delta, lost.rho) == (math.inf, 0.0, 0.4)
    with pytest.raises(ValueError, match="promises nothing under replace-one"):
        PrivacyGuarantee(20.0, 1e-3, neighbours="add-remove").to_replace_one()


@pytest.mark.parametrize("stated", [{"epsilon": 1e300}, {"epsilon": math.inf, "mu": 1e200}])
def test_numbers_whose_squares_are_none_are_refused(stated):
    """They raised a bare OverflowError where costs were added up."""
    name = "mu" if "mu" in stated else "epsilon"
    with pytest.raises(ValueError, match=rf"{name} = .* is larger than 1e\+150, and promises nothing"):
        PrivacyGuarantee(**stated)
    largest = PrivacyGuarantee(1e150)
    assert dp.guarantee([largest], delta=1e-4).epsilon == 1e150
    with pytest.raises(ValueError, match="is larger than"):
        dp.guarantee([largest] * 2, delta=1e-4)
