"""Rows of the contract table: randomized response and unary encoding, on records."""

import math

import numpy as np
import pytensor.tensor as pt
from scipy.optimize import brentq

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


TOLD = np.array([[0.5, 0.3, 0.2], [0.1, 0.6, 0.3], [0.25, 0.25, 0.5], [0.2, 0.45, 0.35]])


def sharper(factor):
    """The table whose rows differ so much more that the largest log ratio is `factor` times as large."""

    def at(t):
        return TOLD.mean(axis=0) + t * (TOLD - TOLD.mean(axis=0))

    def ratio(t):
        return np.log(at(t).max(axis=0) / at(t).min(axis=0)).max()

    most = next(t for t in np.linspace(4, 1, 3001) if at(t).min() > 1e-3)
    return at(brentq(lambda t: ratio(t) - factor * math.log(5), 0, most, xtol=1e-15, rtol=1e-14))


class TableRow(Row):
    """Randomized response by a table of probabilities, of four truths and three answers."""

    def budget(self, factor=1.0):
        return {"p_answer": sharper(factor)}

    def noisier(self, factor):
        return self.budget(1 / factor)


TABLE = TableRow(
    RandomizedResponse,
    {"p_answer": TOLD},
    PrivacyGuarantee(math.log(5)),
    native={"p_answer": TOLD},
    told=0.8,
    neighbours=[(0, 1), (1, 2), (3, 0)],
    rule=lambda: lattice(np.arange(3)),
    law=lambda q, z: np.log(TOLD[int(q), np.asarray(z, dtype=int)]),
    discrete=True,
    impossible=[-1, 3, 8],
    extremes=[{"p_answer": [[1, 1e-300, 1e-17], [1e-17, 1, 1e-200], [1e-9, 1e-9, 1], [0.5, 0.5, 1e-300]]}],
    imputations=[Imputation(lambda x: x, np.array([1, 0, 2]), n=3, top=3, rows_apart=True)],
    bad={
        "table and budget": ({"p_answer": TOLD, "epsilon": 1}, ValueError, "got both epsilon= and p_answer="),
        "table transposed": ({"p_answer": TOLD.T}, ValueError, "Row 0 of p_answer sums to 1.05"),
        "table of other truths": (
            {"p_answer": TOLD, "n_categories": 3}, ValueError, "has 4 rows, but n_categories says 3",
        ),
        "table of one answer": ({"p_answer": np.ones((4, 1))}, ValueError, r"p_answer has shape \(4, 1\)"),
    },
    bad_query=BAD_QUERIES,
    bad_observed={
        "no answer": ([0, 1, 3], ValueError, r"observed has the value 3 at .* not an answer 0, \.\.\., 2"),
        "no whole number": ([0.5, 1, 2], ValueError, "observed has the value 0.5"),
    },
)  # fmt: skip
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
    TABLE,
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
