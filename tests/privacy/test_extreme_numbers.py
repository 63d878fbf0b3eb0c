"""Levels and budgets beyond what floating point computes with: refused in words, at once."""

import json
import math
import re

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

import pymc_dp as dp
from pymc_dp.privacy import calibration

NUMBER = {"dtype": "int64", "shape": [], "data": [4]}
ZEROS = {"dtype": "float64", "shape": [2], "data": [4.0, 3.0]}


def read(mechanism, value=NUMBER, **parameters):
    content = {"format": "pymc_dp.Release", "version": 1, "mechanism": mechanism, "parameters": parameters}
    return dp.Release.from_json(json.dumps({**content, "guarantee": {"epsilon": 1.0}, "value": value}))


COUNT, SUM = ("DiscreteGaussianMechanism", NUMBER), ("LaplaceMechanism", NUMBER)
COUNTS = ("PerturbedHistogram", ZEROS)
FILES = {
    "no noise left": (
        ("DiscreteGaussianMechanism", NUMBER),
        {"rho": 1e308, "sensitivity": 1.0},
        "round to 0",
    ),
    "a histogram without noise": (
        COUNTS,
        {"rho": 1e308, "edges": [0, 1, 2], "noise": "discrete_gaussian"},
        "round to 0",
    ),
    "no finite cost": (
        ("DiscreteGaussianMechanism", NUMBER),
        {"sigma": 1e-300, "sensitivity": 1.0},
        "larger s",
    ),
    "rho below floating point": (
        ("GaussianMechanism", NUMBER),
        {"sigma": 1e170, "sensitivity": 1.0},
        "rounds to 0.*smaller sigma",
    ),
    "text as bounds": (
        ("LaplaceMechanism", NUMBER),
        {"scale": 1, "bounds": [["x"], ["y"]]},
        "no pair of a low",
    ),
    "rows of two lengths": (SUM, {"scale": [[1], [2, 3]]}, "no array of numbers"),
    "several neighbours": (
        COUNTS,
        {"scale": 1.0, "edges": [0, 1, 2], "neighbours": [1, 2]},
        "neighbours must be one of",
    ),
    "calibration of Laplace noise": (
        COUNTS,
        {"epsilon": 1.0, "edges": [0, 1, 2], "calibration": "analytic"},
        "is for Gaussian noise",
    ),
}


@pytest.mark.parametrize(("kind", "parameters", "message"), FILES.values(), ids=FILES)
def test_files_with_extreme_levels_are_refused(kind, parameters, message):
    mechanism, value = kind
    with pytest.raises(ValueError, match=message):
        dp.guarantee(read(mechanism, value, **parameters))


DECLARED = {
    "no noise left": ("GaussianMechanism", {"rho": 1e308, "sensitivity": 1.0}, "smaller rho"),
    "no Laplace noise": ("LaplaceMechanism", {"epsilon": 1e300, "sensitivity": 1e-300}, "smaller epsilon"),
    "no finite rho": ("GaussianMechanism", {"sigma": 5e-324, "sensitivity": 1e-155}, "larger sigma"),
    "no finite epsilon": ("LaplaceMechanism", {"scale": 1e-300, "sensitivity": 1e300}, "larger scale"),
    "rho below floating point": ("GaussianMechanism", {"sigma": 1e170, "sensitivity": 1}, "smaller sigma"),
    "epsilon below it": ("LaplaceMechanism", {"scale": 1e200, "sensitivity": 1e-150}, "smaller scale"),
    "both tiny": (
        "GaussianMechanism",
        {"epsilon": 1e-150, "delta": 1e-150, "sensitivity": 1},
        "at least 1e-100",
    ),
}


@pytest.mark.parametrize(("name", "level", "message"), DECLARED.values(), ids=DECLARED)
def test_extreme_levels_are_refused_in_words(name, level, message):
    mechanism = getattr(dp, name)
    for act in (lambda: mechanism.dist(pt.constant(3.0), **level), lambda: mechanism.release(3.0, **level)):
        with pytest.raises(ValueError, match=message):
            act()


@pytest.mark.parametrize("large", [2**63, 2**64, 10**30, 10**400], ids=["2^63", "2^64", "1e30", "1e400"])
@pytest.mark.parametrize("sign", [1, -1])
def test_whole_numbers_beyond_64_bits_are_what_they_are(large, sign):
    """PyTensor wraps them around, so that the sign is lost."""
    if large < 2**1024:
        released = dp.LaplaceMechanism.release(sign * large, epsilon=1, sensitivity=1).value
        assert released == pytest.approx(sign * float(large))
    else:
        with pytest.raises(ValueError, match="NaN or infinite"):
            dp.LaplaceMechanism.release(sign * large, epsilon=1, sensitivity=1)
    with pytest.raises(ValueError, match=r"query must be below 2\^53|NaN or infinite"):
        dp.DiscreteLaplaceMechanism.release(sign * large, epsilon=1, sensitivity=1)
    bad = sign < 0 or large >= 2**1024
    levels = [
        ("scale", lambda: dp.LaplaceMechanism.release(3.0, scale=sign * large, sensitivity=1)),
        ("sigma", lambda: dp.GaussianMechanism.dist(pt.constant(3.0), sigma=sign * large, sensitivity=1)),
    ]
    if large < 2**64:  # files have no larger ones
        levels.append(("scale", lambda: dp.guarantee(read(*SUM, scale=sign * large, sensitivity=1))))
    for level, declare in levels:
        if bad:
            shown = f"{sign * float(large):g}" if large < 2**1024 else f"{sign * np.inf:g}"
            with pytest.raises(
                ValueError, match=rf"{level} must be finite and > 0 .* got {re.escape(shown)}"
            ):
                declare()
        else:
            declare()


def test_budgets_without_noise_are_refused_when_a_ledger_is_made(tmp_path):
    with pytest.raises(ValueError, match="Give an epsilon or a delta of at least 1e-100"):
        dp.PrivacyLedger(tmp_path / "a.db", epsilon=1e-300, delta=1e-300)
    for epsilon, delta in [(1e-300, 1e-99), (1e-99, 1e-300), (1e6, 1e-300)]:
        ledger = dp.PrivacyLedger(tmp_path / f"{epsilon}.db", epsilon=epsilon, delta=delta)
        assert 0 <= ledger.epsilon_left <= epsilon


def test_privacy_curves_end_where_floating_point_does():
    assert calibration.gaussian_rho(1e-300, 1.0) == math.inf
    assert calibration.gaussian_delta(1.0, 1e149, 1.0) == 0.0
    # at epsilon = 0 it is the total variation distance, mu / sqrt(2 pi)
    assert calibration.gaussian_delta(1e-300, 1e149, 1.0) == pytest.approx(1e-149 / math.sqrt(2 * math.pi))
    sigma = calibration.gaussian_sigma_analytic(1e-300, 1e-99, 1.0)
    assert sigma == pytest.approx(1e99 / math.sqrt(2 * math.pi))
    for curve in (calibration.gaussian_delta, calibration.gaussian_epsilon):
        with pytest.raises(ValueError, match=r"sensitivity / sigma must be"):
            curve(0.5, 1e-300, 1.0)
    with pytest.raises(ValueError, match=r"sensitivity / sigma must be between"):
        calibration.gaussian_delta(0.5, 1e300, 1.0)


@pytest.mark.parametrize("level", [-1.0, 0.0, 1.5, np.inf, np.nan])
@pytest.mark.parametrize(
    "given", [lambda v: 2 * pt.constant(v / 2), pytensor.shared], ids=["graph", "shared"]
)
@pytest.mark.parametrize(
    "mechanism, name, settings",
    [
        (dp.LaplaceMechanism, "scale", {"sensitivity": 1}),
        (dp.GaussianMechanism, "sigma", {"sensitivity": 1}),
        (dp.BinomialMechanism, "theta", {"n_trials": 2}),
        (dp.RandomizedResponse, "p_truth", {"n_categories": 2}),  # of which NaN and infinity told the truth
    ],
)
def test_levels_that_a_graph_computes_are_checked(mechanism, name, settings, given, level):
    """In a model they may be random; where a release is drawn they are numbers like any other."""
    ones = np.ones(3, dtype=int)
    if level == 1.5 and name in ("scale", "sigma"):
        drawn = mechanism.release(dp.record_sum(ones), **{name: given(level)}, **settings)
        assert (
            drawn.guarantee == mechanism.release(dp.record_sum(ones), **{name: level}, **settings).guarantee
        )
    else:
        with pytest.raises(ValueError, match=f"{name} must be"):
            mechanism.release(ones, **{name: given(level)}, **settings)


def test_levels_in_a_list_are_checked():
    """One of them was out of its range, and told the truth of that person."""
    levels = [0.6, 2 * pt.constant(0.75)]
    with pytest.raises(ValueError, match="p_truth must be below 1"):
        dp.RandomizedResponse.release(np.array([0, 1]), n_categories=2, p_truth=levels)


def test_levels_without_a_value_are_refused_in_words():
    with pytest.raises(ValueError, match="depends on p, an input without a value"):
        dp.RandomizedResponse.release(np.array([0, 1]), n_categories=2, p_truth=pt.dscalar("p") / 2)
