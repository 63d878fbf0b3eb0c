"""Rows of the contract table: Laplace and Gaussian noise."""

import math

import pytensor.tensor as pt
import scipy.stats as st

from pymc_dp.mechanisms import GaussianMechanism, LaplaceMechanism
from pymc_dp.privacy import PrivacyGuarantee
from tests.contract.form import Imputation, Row, line

LAPLACE_BAD = {
    "no noise level": ({}, ValueError, r"got none. Choose scale=, or epsilon= with sensitivity="),
    "two noise levels": (
        {"scale": 1, "epsilon": 1, "sensitivity": 1},
        ValueError,
        "got both scale= and epsilon=",
    ),
    "no sensitivity": ({"epsilon": 1}, ValueError, "needs the sensitivity"),
    "scale zero": ({"scale": 0.0}, ValueError, "scale must be finite and > 0 everywhere, got 0"),
    "scale nan": ({"scale": math.nan}, ValueError, "scale must be finite and > 0"),
    "scale a word": ({"scale": "wide"}, TypeError, "scale must be a real number"),
    "scale complex": ({"scale": 1j}, TypeError, "scale must be a real number"),
    "scale larger than the query": (
        {"scale": [1.0, 2.0, 3.0]},
        ValueError,
        "more than the query's shape",
    ),
    "epsilon zero": ({"epsilon": 0, "sensitivity": 1}, ValueError, "epsilon must be a finite"),
    "epsilon negative": ({"epsilon": -1, "sensitivity": 1}, ValueError, "epsilon must be a finite"),
    "epsilon nan": (
        {"epsilon": math.nan, "sensitivity": 1},
        ValueError,
        "epsilon must be a finite number > 0, got nan",
    ),
    "epsilon inf": (
        {"epsilon": math.inf, "sensitivity": 1},
        ValueError,
        "epsilon must be a finite",
    ),
    "epsilon a tensor": (
        {"epsilon": pt.scalar("e"), "sensitivity": 1},
        TypeError,
        "epsilon must be one real number",
    ),
    "sensitivity zero": ({"epsilon": 1, "sensitivity": 0}, ValueError, "sensitivity must be"),
    "sensitivity beside scale": (
        {"scale": 1, "sensitivity": -1},
        ValueError,
        "sensitivity must be a finite number > 0, got -1",
    ),
    "unknown keyword": ({"scale": 1, "sigma": 1}, TypeError, "unexpected keyword argument 'sigma'"),
}
GAUSSIAN_BAD = {
    "no noise level": ({}, ValueError, r"got none. Choose sigma=, or epsilon= with delta=, or rho"),
    "two noise levels": (
        {"sigma": 1, "rho": 1, "sensitivity": 1},
        ValueError,
        "got both sigma= and rho=",
    ),
    "epsilon beside rho": (
        {"epsilon": 1, "delta": 1e-6, "rho": 1, "sensitivity": 1},
        ValueError,
        "got both epsilon= with delta= and rho=",
    ),
    "delta beside sigma": ({"sigma": 1, "delta": 1e-6}, ValueError, "got both"),
    "epsilon alone": ({"epsilon": 1, "sensitivity": 1}, ValueError, "epsilon was given without"),
    "delta alone": ({"delta": 1e-6, "sensitivity": 1}, ValueError, "delta was given without"),
    "no sensitivity": ({"epsilon": 1, "delta": 1e-6}, ValueError, "epsilon needs the sensitivity"),
    "rho, no sensitivity": ({"rho": 1}, ValueError, "rho needs the sensitivity"),
    "sigma negative": ({"sigma": -2.0}, ValueError, "sigma must be finite and > 0 everywhere"),
    "sigma inf": ({"sigma": math.inf}, ValueError, "sigma must be finite and > 0 everywhere"),
    "epsilon nan": (
        {"epsilon": math.nan, "delta": 1e-6, "sensitivity": 1},
        ValueError,
        "epsilon must be a finite number > 0",
    ),
    "delta zero": (
        {"epsilon": 1, "delta": 0.0, "sensitivity": 1},
        ValueError,
        "delta must be strictly between 0 and 1, got 0",
    ),
    "delta one": (
        {"epsilon": 1, "delta": 1, "sensitivity": 1},
        ValueError,
        "delta must be strictly between 0 and 1, got 1",
    ),
    "rho zero": ({"rho": 0, "sensitivity": 1}, ValueError, "rho must be a finite number > 0"),
    "rho negative": ({"rho": -1, "sensitivity": 1}, ValueError, "rho must be a finite number > 0"),
    "unknown calibration": (
        {"epsilon": 1, "delta": 1e-6, "sensitivity": 1, "calibration": "exact"},
        ValueError,
        "calibration must be one of 'analytic', 'classic', got 'exact'",
    ),
    "classic beyond one": (
        {"epsilon": 1.5, "delta": 1e-6, "sensitivity": 1, "calibration": "classic"},
        ValueError,
        "proven for epsilon <= 1 only",
    ),
    "calibration without use": (
        {"rho": 1, "sensitivity": 1, "calibration": "classic"},
        ValueError,
        "has no effect with rho=",
    ),
}


def additive(mechanism, noise, promise, native, law, sensitivity, imputations=(), **kwargs):
    """Row of a scalar query with continuous noise; `law` is scipy's, centred at 0."""
    sd, query = law.std(), 1.7
    reach = 40 * sd + sensitivity
    return Row(
        mechanism,
        noise,
        promise,
        native,
        neighbours=[(query, query + sensitivity), (query, query + 0.3 * sensitivity)],
        rule=lambda: line(query - reach, query + reach, 200_001),
        law=lambda q, z: law.logpdf(z - q),
        far=[1e3, -1e3, 1e9, -1e9, 1e100],
        imputations=imputations,
        **kwargs,
    )


BOUNDS = {"sensitivity": None, "bounds": (0, 1)}
IMPUTATIONS = [
    Imputation(lambda x: x.sum(), 4.3, n=3, top=1),
    Imputation(lambda x: x, [2.2, -0.7], top=1, rows_apart=True),
    Imputation(lambda x: x, [0.9, -0.7], top=None, rows_apart=True, honest=False),
    Imputation(lambda x: x, [0.9, -0.7], top=None, rows_apart=True, noise=BOUNDS),
]
ROWS = [
    additive(
        LaplaceMechanism,
        {"epsilon": 0.7, "sensitivity": 2.0},
        PrivacyGuarantee(0.7),
        {"scale": 2 / 0.7, "sensitivity": 2.0},
        st.laplace(0, 2 / 0.7),
        2.0,
        IMPUTATIONS,
        bad=LAPLACE_BAD,
    ),
    additive(
        LaplaceMechanism,
        {"scale": 0.05, "sensitivity": 1.0},
        PrivacyGuarantee(20.0),
        {"scale": 0.05, "sensitivity": 1.0},
        st.laplace(0, 0.05),
        1.0,
        IMPUTATIONS,
    ),
    additive(
        GaussianMechanism,
        {"epsilon": 1.0, "delta": 1e-6, "sensitivity": 1.0},
        PrivacyGuarantee(1.0, 1e-6, 1 / (2 * 4.224678889326835**2)),
        {"sigma": 4.224678889326835, "sensitivity": 1.0},
        st.norm(0, 4.224678889326835),
        1.0,
        IMPUTATIONS,
        bad=GAUSSIAN_BAD,
    ),
    additive(
        GaussianMechanism,
        {"epsilon": 1.0, "delta": 1e-6, "sensitivity": 3.0, "calibration": "classic"},
        PrivacyGuarantee(1.0, 1e-6, 1 / (4 * math.log(1.25e6))),
        {"sigma": 3 * math.sqrt(2 * math.log(1.25e6)), "sensitivity": 3.0},
        st.norm(0, 3 * math.sqrt(2 * math.log(1.25e6))),
        3.0,
        tight=False,
    ),
    additive(
        GaussianMechanism,
        {"rho": 0.125, "sensitivity": 3.0},
        PrivacyGuarantee(math.inf, rho=0.125),
        {"sigma": 6.0, "sensitivity": 3.0},
        st.norm(0, 6.0),
        3.0,
    ),
    additive(
        GaussianMechanism,
        {"sigma": 0.5, "sensitivity": 1.0},
        PrivacyGuarantee(math.inf, rho=2.0),
        {"sigma": 0.5, "sensitivity": 1.0},
        st.norm(0, 0.5),
        1.0,
        IMPUTATIONS,
    ),
]
