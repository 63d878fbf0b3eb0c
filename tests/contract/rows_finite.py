"""Rows of the contract table: randomized response and unary encoding, on records."""

import math

import numpy as np
import pytensor.tensor as pt

from pymc_dp.mechanisms import RandomizedResponse, UnaryEncoding
from pymc_dp.privacy import PrivacyGuarantee
from tests.contract.form import Imputation, Row, lattice

EPSILON_BAD = {
    "no noise level": ({"n_categories": 4}, ValueError, "got none. Choose epsilon="),
    "epsilon zero": ({"n_categories": 4, "epsilon": 0}, ValueError, "epsilon must be a finite number > 0"),
    "epsilon negative": ({"n_categories": 4, "epsilon": -1}, ValueError, "epsilon must be a finite"),
    "epsilon nan": ({"n_categories": 4, "epsilon": math.nan}, ValueError, "epsilon must be a finite"),
    "epsilon inf": ({"n_categories": 4, "epsilon": math.inf}, ValueError, "epsilon must be a finite"),
    "epsilon a tensor": (
        {"n_categories": 4, "epsilon": pt.scalar("e")},
        TypeError,
        "must be one real number",
    ),
    "categories unknown": ({"epsilon": 1}, ValueError, "Give n_categories="),
    "categories one": ({"epsilon": 1, "n_categories": 1}, ValueError, "n_categories must be at least 2"),
    "categories real": ({"epsilon": 1, "n_categories": 4.5}, TypeError, "n_categories must be a whole"),
    "category out of range": ({"epsilon": 1, "n_categories": 2}, ValueError, "query has the value 2"),
    "unknown keyword": ({"epsilon": 1, "n_categories": 4, "scale": 1}, TypeError, "unexpected keyword"),
}
BAD_QUERIES = {
    "category out of range": ([0, 4], ValueError, r"query has the value 4 at index \(1,\)"),
    "negative category": ([-1], ValueError, "query has the value -1"),
    "no whole number": ([0.5], ValueError, "query has the value 0.5"),
    "two answers a person": (np.zeros((3, 2)), ValueError, "each person has one category"),
}


def response(noise, epsilon, k=4, **kwargs):
    """Row of k-ary randomized response; the worst change is of the reported category itself."""
    observed = np.array([1, 0, k - 1])
    return Row(
        RandomizedResponse,
        noise | {"n_categories": k},
        PrivacyGuarantee(epsilon),
        native={"p_truth": math.exp(epsilon) / (math.exp(epsilon) + k - 1), "n_categories": k},
        neighbours=[(k // 2, 0), (0, k - 1), (k - 1, k // 2)],
        rule=lambda: lattice(np.arange(k)),
        law=lambda q, z: epsilon * (z == q) - math.log(math.exp(epsilon) + k - 1),
        discrete=True,
        impossible=[-1, k, k + 5],
        extremes=[{"epsilon": 1e3, "n_categories": k}, {"epsilon": 1e-9, "n_categories": k}],
        imputations=[Imputation(lambda x: x, observed, n=3, top=k - 1, rows_apart=True)],
        **kwargs,
    )


def encoding(epsilon, variant, k=4, **kwargs):
    """Row of unary encoding with k bits."""
    noise = {"epsilon": epsilon, "variant": variant, "n_categories": k}
    p = 0.5 if variant == "optimized" else 1 / (1 + math.exp(-epsilon / 2))
    q = 1 / (1 + math.exp(epsilon)) if variant == "optimized" else 1 / (1 + math.exp(epsilon / 2))

    def law(c, z):
        one = np.where(np.arange(k) == c, p, q)
        return np.log(np.where(z == 1, one, 1 - one)).sum(-1)

    observed = np.array([[1, 0, 0, 0], [1, 1, 0, 1], [0, 0, 0, 0]])
    return Row(
        UnaryEncoding,
        noise,
        PrivacyGuarantee(epsilon),
        native=noise,
        told=0.8,
        neighbours=[(k // 2, 0), (0, k - 1)],
        rule=lambda: lattice(*[[0, 1]] * k),
        law=law,
        discrete=True,
        impossible=[(2, 0, 0, 0), (0, -1, 0, 0)],
        extremes=[noise | {"epsilon": 1e3}, noise | {"epsilon": 1e-9}],
        imputations=[Imputation(lambda x: x, observed, n=3, top=k - 1, rows_apart=True)],
        **kwargs,
    )


ROWS = [
    response(
        {"epsilon": 0.8},
        0.8,
        bad=EPSILON_BAD
        | {
            "two noise levels": (
                {"epsilon": 1, "p_truth": 0.9, "n_categories": 4},
                ValueError,
                "got both epsi",
            ),
            "p_truth low": (
                {"p_truth": 0.2, "n_categories": 4},
                ValueError,
                "at least 1/n_categories = 0.25",
            ),
            "p_truth one": ({"p_truth": 1.0, "n_categories": 4}, ValueError, "p_truth must be below 1"),
        },
        bad_query=BAD_QUERIES,
        bad_observed={
            "out of range": ([0, 1, 4], ValueError, "observed has the value 4"),
            "no whole number": ([0.5, 1, 2], ValueError, "observed has the value 0.5"),
            "too short": ([0, 1], ValueError, "observed means a release of shape"),
        },
    ),
    response({"p_truth": math.exp(3) / (math.exp(3) + 3)}, 3.0),
    response({"epsilon": 5.0}, 5.0),
    encoding(
        0.8,
        "symmetric",
        bad=EPSILON_BAD
        | {
            "variant": (
                {"epsilon": 1, "variant": "best", "n_categories": 4},
                ValueError,
                "variant must be one",
            )
        },
        bad_query=BAD_QUERIES,
        bad_observed={
            "no bit": (2 * np.ones((3, 4)), ValueError, "observed has the value 2"),
            "no bits": ([0, 1, 1], ValueError, "observed means a release of shape"),
            "too few bits": (np.ones((3, 3)), ValueError, "observed means a release of shape"),
        },
    ),
    encoding(0.8, "optimized"),
    encoding(6.0, "symmetric"),
]
