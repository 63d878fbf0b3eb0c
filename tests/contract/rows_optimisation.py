"""Rows of the contract table: choices among candidates, and minimisers of a perturbed loss."""

import math

import numpy as np
import pytensor.tensor as pt
import scipy.stats as st
from scipy.special import expit, log_softmax

import pymc_dp as dp
from pymc_dp.mechanisms import ExponentialMechanism, KNormGradient, ObjectivePerturbation
from pymc_dp.mechanisms._checks import as_query
from pymc_dp.privacy import PrivacyGuarantee
from pymc_dp.privacy.calibration import gaussian_sigma_analytic
from tests.contract.form import Imputation, Row, lattice, line

E = ValueError
BAD = {
    "no noise level": ({"sensitivity": 1}, E, "got none. Choose epsilon= with sensitivity= or bounds="),
    "no sensitivity": ({"epsilon": 1}, E, "epsilon needs the sensitivity of"),
    "epsilon zero": ({"epsilon": 0, "sensitivity": 1}, E, "epsilon must be a finite number > 0, got 0"),
    "epsilon negative": ({"epsilon": -1, "sensitivity": 1}, E, "epsilon must be a finite number > 0"),
    "epsilon nan": ({"epsilon": math.nan, "sensitivity": 1}, E, "epsilon must be a finite number > 0"),
    "epsilon inf": ({"epsilon": math.inf, "sensitivity": 1}, E, "epsilon must be a finite number > 0"),
    "epsilon a tensor": ({"epsilon": pt.scalar(), "sensitivity": 1}, TypeError, "must be one real number"),
    "sensitivity zero": ({"epsilon": 1, "sensitivity": 0}, E, "sensitivity must be a finite number > 0"),
    "bounds reversed": ({"epsilon": 1, "bounds": (3, 0)}, E, "bounds must have lo < hi"),
    "unknown keyword": ({"epsilon": 1, "sensitivity": 1, "scale": 1}, TypeError, "unexpected keyword"),
}
BAD_CHOICES = {
    "out of range": (3, E, "whole numbers from 0 to 2, got 3"),
    "negative": (-1, E, "whole numbers from 0 to 2, got -1"),
    "a fraction": (0.5, E, "whole numbers from 0 to 2, got 0.5"),
    "too many": ([0, 1], E, "observed means a release of shape"),
}


def votes(x):
    """Utilities of three candidates, which one record changes by at most 1."""
    x = pt.as_tensor(x)
    return dp.record_sum(pt.stack([x / 3, 1 - x / 3, pt.eq(x, 1)], axis=1))


def each_vote(x):
    x = pt.as_tensor(x)
    return pt.stack([x / 3, 1 - x / 3, 0.7 * pt.eq(x, 1)], axis=1)


def exponential(epsilon, sensitivity, **kwargs):
    noise = {"epsilon": epsilon, "sensitivity": sensitivity}
    # an unlikely candidate gains where all others lose: then the log ratio is epsilon
    gap = 70 * sensitivity / epsilon
    pairs = [
        (np.array([3.0, 5, 4]), np.array([4.0, 4, 5])),
        (np.array([0.0, 0, -gap]), np.array([-1.0, -1, 1 - gap])),
        (np.array([0.0, -gap, 0]), np.array([1.0, -gap - 1, 1])),
    ]
    pairs[0] = tuple(sensitivity * v for v in pairs[0])
    pairs[1:] = [(a, a + sensitivity * (b - a)) for a, b in pairs[1:]]
    return Row(
        ExponentialMechanism,
        noise,
        PrivacyGuarantee(epsilon),
        native=noise,
        told=0.8,
        neighbours=pairs,
        rule=lambda: lattice(np.arange(3)),
        law=lambda q, z: log_softmax(epsilon * (q - q.max()) / (2 * sensitivity))[z],
        discrete=True,
        impossible=[-1, 3, 0.5, 1e9],
        extremes=[noise | {"epsilon": 1e3}, noise | {"epsilon": 1e-9}],
        **kwargs,
    )


def gradients(x):
    """Mean and mean square of the records at three candidates."""
    return dp.record_sum(each_gradient(x))


def each_gradient(x):
    x, table = pt.as_tensor(x), np.array([[0.0, 0.5], [1.0, 1.5], [2.0, 4.0]])
    return 0.2 * (table - pt.stack([x, x**2 / 3], axis=1)[:, None, :])


def knorm(epsilon, norm, **kwargs):
    noise = {"epsilon": epsilon, "sensitivity": 1.0, "norm": norm}
    unit = np.array([1.0, 1.0]) / np.linalg.norm([1, 1], norm)
    near, far = 3 * unit, 80 / epsilon * unit
    worst = np.array([near, near, near]), np.array([near + unit, near - unit, near])
    return Row(
        KNormGradient,
        noise,
        PrivacyGuarantee(epsilon),
        native=noise,
        neighbours=[
            worst[::-1],
            (np.array([near, far, near]), np.array([near + unit, far - unit, near + unit])),
            (np.array([near, near, far]), np.array([near - unit, near - unit, far + unit])),
        ],
        told=0.8,
        rule=lambda: lattice(np.arange(3)),
        law=lambda q, z: log_softmax(-epsilon / 2 * np.linalg.norm(q, norm, axis=1))[z],
        discrete=True,
        impossible=[-1, 3, 0.5],
        extremes=[noise | {"epsilon": 1e3}, noise | {"epsilon": 1e-9}],
        **kwargs,
    )


def quadratic(epsilon):
    """A mean of one number, with five records."""
    noise = {"epsilon": epsilon, "sensitivity": 3.0, "hessian": [[5.0]]}
    scale = 3.0 / epsilon
    return Row(
        KNormGradient,
        noise,
        PrivacyGuarantee(epsilon),
        native=noise,
        neighbours=[(np.zeros(1), np.array([3.0])), (np.zeros(1), np.array([-1.5]))],
        rule=lambda: line(-12 / epsilon, 12 / epsilon, 100_001, shape=(1,)),
        law=lambda q, z: st.laplace(-q[0] / 5, scale / 5).logpdf(z[:, 0]),
        far=[[1e6], [-1e12]],
        extremes=[noise | {"epsilon": 1e3}, noise | {"epsilon": 1e-9}],
        imputations=[Imputation(lambda x: dp.record_sum(-pt.as_tensor(x)[:, None]), [0.9])],
        bad={name: (noise | {"hessian": [[1.0]]}, *rest) for name, (noise, *rest) in BAD.items()},
        bad_observed={"too many": ([0.1, 0.2], E, "observed means a release of shape")},
    )


def parts(query):
    """Features and labels, which are in one array."""
    query = as_query(query)
    return (query[:, :-1], query[:, -1]) if query.type.ndim == 2 else (query, query)


def fit_law(scale, regularization, gaussian):
    def law(q, z):
        x, y = q[:, 0], q[:, 1]
        p = expit(z * x)
        noise = (p - y) @ x + regularization * z[:, 0]
        laplace = -np.abs(noise) / scale - math.log(2 * scale)  # scipy's underflows
        density = st.norm(0, scale).logpdf(noise) if gaussian else laplace
        return density + np.log((p * (1 - p)) @ x**2 + regularization)

    return law


def fit_rule():
    u, step = np.linspace(-9, 9, 6001, retstep=True)
    return np.sinh(u)[:, None], step * np.cosh(u)


def labelled(x):
    """Features between 0 and 1, and whether the record is above its middle."""
    x = pt.as_tensor(x)
    return pt.stack([0.2 + 0.25 * x, pt.ge(x, 2)], axis=1)


def fit(noise, promise, scale, **kwargs):
    """Row of a logistic fit; `scale` is that of the noise by the published formula, given epsilon."""
    noise = noise | {"regularization": 0.5}

    def law_at(epsilon):
        return fit_law(scale(epsilon), 0.5, "delta" in noise)

    rest = np.array([[0.4, 1.0], [-0.7, 0.0]])
    rows = [np.vstack([rest, r]) for r in ([1.0, 1.0], [1.0, 0.0], [-0.3, 1.0], [0.0, 0.0])]
    return Row(
        ObjectivePerturbation,
        noise,
        promise,
        native=noise,
        neighbours=[(rows[0], rows[1]), (rows[1], rows[2]), (rows[0], rows[3]), (rows[2], rows[3])],
        rule=fit_rule,
        law=law_at(promise.epsilon),
        law_at=law_at,
        batch=False,
        arguments=parts,
        tight=False,
        weak="a bound on what no neighbours attain: three records differ by a fraction of it",
        slack=1e-4,
        far=[[1e3], [-1e6]],
        imputations=[Imputation(labelled, [1.2])],
        **kwargs,
    )


ROWS = [
    exponential(
        0.8,
        1.0,
        imputations=[
            Imputation(votes, 1),
            Imputation(each_vote, [0, 2, 1], n=3, rows_apart=True),
        ],
        bad=BAD,
        bad_observed=BAD_CHOICES,
        bad_query={"a number": (3.0, E, "utility must have the candidates on its last axis")},
    ),
    exponential(4.0, 2.5),
    Row(
        ExponentialMechanism,
        {"epsilon": 0.3, "sensitivity": 1.0},
        PrivacyGuarantee(0.3, rho=0.3**2 / 8),
        native={"epsilon": 0.3, "sensitivity": 1.0},
        # half and half, and the change that moves the odds most: where the bound on rho is reached,
        # up to terms of the fourth order in epsilon
        neighbours=[(np.array([1.0, -1.0]), np.zeros(2))],
        told=0.7,
        rule=lambda: lattice(np.arange(2)),
        discrete=True,
        tight=False,
    ),
    knorm(
        0.8,
        2,
        # of data as long as the table of candidates it could not be told which of the two are people
        imputations=[Imputation(gradients, 1), Imputation(each_gradient, [1, 0, 2, 0], n=4, rows_apart=True)],
        bad=BAD,
        bad_observed=BAD_CHOICES,
    ),
    knorm(3.0, 1),
    knorm(1.5, math.inf),
    quadratic(1.2),
    fit(
        {"epsilon": 1.5},
        PrivacyGuarantee(1.5),
        lambda epsilon: 2 / (epsilon - math.log(1.5)),
        bad={
            "no noise level": ({"regularization": 1}, E, "got none. Choose epsilon="),
            "no regularization": ({"epsilon": 1}, E, "regularization is missing"),
            "too little": ({"epsilon": 1, "regularization": 0.1}, E, "is too small for epsilon = 1"),
            "epsilon zero": ({"epsilon": 0, "regularization": 1}, E, "epsilon must be a finite number > 0"),
            "epsilon inf": ({"epsilon": math.inf, "regularization": 1}, E, "epsilon must be a finite"),
            "delta": ({"epsilon": 1, "delta": 1, "regularization": 1}, E, "delta must be strictly between"),
            "sensitivity": ({"epsilon": 1, "regularization": 1, "sensitivity": 1}, TypeError, "unexpected"),
        },
        bad_query={"a vector": (np.zeros(3), E, r"x must have shape \(n, d\)")},
        bad_observed={"too many": ([0.1, 0.2], E, "observed means a release of shape")},
    ),
    fit(
        {"epsilon": 1.5, "calibration": "chaudhuri"},
        PrivacyGuarantee(1.5),
        lambda epsilon: 2 / (epsilon - 2 * math.log(1.5)),
    ),
    fit(
        {"epsilon": 1.0, "delta": 0.01},
        PrivacyGuarantee(1.0, 0.01),
        # epsilon less what the determinant costs, and half of delta, or a quarter for a small epsilon
        lambda epsilon: gaussian_sigma_analytic(
            epsilon - math.log(1.5), 0.005 if epsilon > 1.2 else 0.0025, 2.0
        ),
    ),
]
