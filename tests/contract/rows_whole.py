"""Rows of the contract table: noise on whole numbers."""

import math

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import scipy.stats as st

from pymc_dp.mechanisms import BinomialMechanism, DiscreteGaussianMechanism, DiscreteLaplaceMechanism
from pymc_dp.privacy import PrivacyGuarantee
from tests.contract.form import Imputation, Row, lattice

E = ValueError
BAD_LEVELS = {
    "zero": (0.0, E, "{level} must be finite and > 0 everywhere, got 0"),
    "negative": (-2.0, E, "{level} must be finite and > 0 everywhere, got -2"),
    "nan": (math.nan, E, "{level} must be finite and > 0"),
    "infinite": (math.inf, E, "{level} must be finite and > 0"),
    "a word": ("wide", TypeError, "{level} must be a real number"),
    "larger than the query": (np.full(7, 0.2), E, "more than the query's shape"),
}
BAD_BUDGETS = {
    "zero": (0, E, "{budget} must be a finite number > 0, got 0"),
    "negative": (-1, E, "{budget} must be a finite number > 0, got -1"),
    "nan": (math.nan, E, "{budget} must be a finite number > 0, got nan"),
    "infinite": (math.inf, E, "{budget} must be a finite number > 0, got inf"),
    "a tensor": (pt.scalar("e"), TypeError, "{budget} must be one real number"),
}


def bad_noise(level, budget, others):
    """Bad values of the noise level and of the budget, the `others` being in order."""
    out = {}
    for name, (value, error, message) in BAD_LEVELS.items():
        out[f"{level} {name}"] = ({level: value, **others}, error, message.format(level=level))
    for name, (value, error, message) in BAD_BUDGETS.items():
        out[f"{budget} {name}"] = ({budget: value, **others}, error, message.format(budget=budget))
    out["no noise level"] = (others, E, f"got none. Choose .*{level}=")
    out["two noise levels"] = ({level: 0.2, budget: 1, **others}, E, f"got both {level}= and {budget}=")
    out["unknown keyword"] = ({level: 0.2, **others, "spread": 1}, TypeError, "unexpected keyword .*'spread'")
    return out


def bad_discrete(level, budget):
    return bad_noise(level, budget, {"sensitivity": 1}) | {
        "no sensitivity": ({budget: 1}, E, f"{budget} needs the sensitivity"),
        "sensitivity zero": ({budget: 1, "sensitivity": 0}, E, "sensitivity must be a finite number > 0"),
        "bounds reversed": ({budget: 1, "bounds": (3, 0)}, E, "bounds must have lo < hi"),
        "bounds of fractions": ({budget: 1, "bounds": (0, 2.5)}, E, "bounds must be whole numbers .*2.5"),
    }


BAD_QUERIES = {
    "fractions": (np.array([1.0, 0.5]), E, "query must be whole numbers .*, but an array holds fractions"),
    "a mean": (pm.Poisson.dist(3, shape=4).mean(), E, "query must be whole numbers .* true_div"),
    "continuous records": (pm.Normal.dist(shape=4).sum(), E, "query must be whole numbers .* is continuous"),
}
BAD_OBSERVED = {
    "a fraction": ([1.0, 2.5], E, "observed must be whole numbers, got 2.5"),
    "too many": ([1, 2, 3], E, r"observed means a release of shape \(3,\)"),
    "missing": ([1, np.nan], E, "observed has 1 missing"),
}


def discrete_laplace_law(scale):
    return lambda q, z: st.dlaplace(1 / scale).logpmf(z - q)


def discrete_gaussian_law(sigma):
    k = np.arange(-3000, 3001)
    total = np.log(np.sum(np.exp(-0.5 * (k / sigma) ** 2)))
    return lambda q, z: -0.5 * ((z - q) / sigma) ** 2 - total


def discrete(mechanism, noise, promise, native, law, sensitivity, reach, **kwargs):
    query = 3
    return Row(
        mechanism,
        noise,
        promise,
        native,
        neighbours=[(query, query + k) for k in range(sensitivity, 0, -1)],
        rule=lambda: lattice(np.arange(-reach, reach + 1)),
        law=law,
        discrete=True,
        far=[10**6, -(10**6), 1e15, 1e100],
        impossible=[0.5, -3.25],
        imputations=[
            Imputation(lambda x: x.sum(), 4, n=3, top=sensitivity),
            Imputation(lambda x: x, [2, -1], top=sensitivity, rows_apart=True),
            Imputation(lambda x: pt.stack([x.sum(), pt.eq(x, 2).sum()]), [6, 1], n=3, honest=False),
            Imputation(lambda x: x, [1, 5], rows_apart=True, noise={"sensitivity": None, "bounds": (0, 2)}),
        ][: 4 if "bad" in kwargs else 2],
        **kwargs,
    )


def binomial(noise, promise, theta, m, **kwargs):
    return Row(
        BinomialMechanism,
        noise,
        promise,
        {"theta": theta, "n_trials": m},
        neighbours=[(0.0, 1.0), (0.0, 0.3), (1.7, -2.0)],
        rule=lambda: lattice(np.arange(m + 1)),
        law=lambda q, z: st.binom.logpmf(z, m, 0.5 + theta * (2 * np.clip(q, 0, 1) - 1)),
        discrete=True,
        impossible=[-1, m + 1, 0.5, 1e100, -1e100],
        extremes=[{"n_trials": m, "epsilon": 250.0}, {"n_trials": m, "epsilon": 1e-6}],
        imputations=[
            Imputation(lambda x: x / 3.0, [min(3, m), 0], rows_apart=True),
            Imputation(lambda x: x, [m, 1], top=None, rows_apart=True),
            Imputation(lambda x: x, [m, 1], top=None, rows_apart=True, noise={"bounds": (-1.0, 0.5)}),
        ][: 3 if "bad" in kwargs else 1],
        **kwargs,
    )


BINOMIAL_BAD = bad_noise("theta", "epsilon", {"n_trials": 5}) | {
    "theta one half": ({"theta": 0.5, "n_trials": 5}, E, "theta must be below 1/2, got 0.5"),
    "no trials": ({"theta": 0.2}, E, "needs n_trials="),
    "no toss at all": ({"theta": 0.2, "n_trials": 0}, E, "n_trials must be a whole number from 1 .*got 0"),
    "half a toss": ({"theta": 0.2, "n_trials": 2.5}, E, "n_trials must be a whole number .*got 2.5"),
    "random tosses": ({"theta": 0.2, "n_trials": pt.lscalar()}, TypeError, "n_trials must be a whole"),
    "bounds reversed": ({"theta": 0.2, "n_trials": 5, "bounds": (1, 0)}, E, "bounds must have lo < hi"),
    "two pairs of bounds": (
        {"theta": 0.2, "n_trials": 5, "bounds": [(0, 1), (0, 2), (0, 3)]}, E, "one interval",
    ),
}  # fmt: skip
SIGMA = math.sqrt(0.5)
ROWS = [
    discrete(
        DiscreteLaplaceMechanism,
        {"epsilon": 0.7, "sensitivity": 2},
        PrivacyGuarantee(0.7),
        {"scale": 2 / 0.7, "sensitivity": 2},
        discrete_laplace_law(2 / 0.7),
        2,
        150,
        extremes=[{"scale": 1e8}, {"scale": 1e-3}],
        bad=bad_discrete("scale", "epsilon"),
        bad_query=BAD_QUERIES,
        bad_observed=BAD_OBSERVED,
    ),
    discrete(
        DiscreteLaplaceMechanism,
        {"scale": 0.5, "sensitivity": 1},
        PrivacyGuarantee(2.0),
        {"scale": 0.5, "sensitivity": 1},
        discrete_laplace_law(0.5),
        1,
        40,
    ),
    discrete(
        DiscreteGaussianMechanism,
        {"rho": 1.0, "sensitivity": 1},
        PrivacyGuarantee(math.inf, rho=1.0),
        {"sigma": SIGMA, "sensitivity": 1},
        discrete_gaussian_law(SIGMA),
        1,
        30,
        extremes=[{"sigma": 1e8}, {"sigma": 1e-3}],
        bad=bad_discrete("sigma", "rho"),
        bad_query=BAD_QUERIES,
        bad_observed=BAD_OBSERVED,
    ),
    discrete(
        DiscreteGaussianMechanism,
        {"sigma": 6.0, "sensitivity": 3},
        PrivacyGuarantee(math.inf, rho=0.125),
        {"sigma": 6.0, "sensitivity": 3},
        discrete_gaussian_law(6.0),
        3,
        250,
    ),
    binomial(
        {"epsilon": 2.0, "n_trials": 7},
        PrivacyGuarantee(2.0),
        0.5 * math.tanh(2 / 14),
        7,
        bad=BINOMIAL_BAD,
        bad_query={
            "a matrix": (np.zeros((3, 2)), E, "needs a query of one number per record"),
        },
        bad_observed={
            "a fraction": ([1.0, 2.5], E, "observed must be whole numbers, got 2.5"),
            "more than the tosses": ([8, 0], E, "observed must be counts from 0 to n_trials = 7, got 8"),
            "negative": ([1, -1], E, "observed must be counts from 0 to n_trials = 7, got -1"),
        },
    ),
    binomial(
        {"theta": 0.4, "n_trials": 1},
        PrivacyGuarantee(math.log(9)),
        0.4,
        1,
    ),
]
