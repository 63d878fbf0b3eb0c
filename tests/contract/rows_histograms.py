"""Rows of the contract table: wavelets, histograms, projections."""

import math

import numpy as np
import pytensor.tensor as pt
import scipy.stats as st
from scipy.optimize import minimize_scalar

from pymc_dp.mechanisms import (
    PerturbedHistogram,
    ProjectionMechanism,
    SmoothedHistogramSample,
    WaveletMechanism,
)
from pymc_dp.privacy import PrivacyGuarantee
from tests.contract.form import Imputation, Row, combined, lattice, line, midpoints

E = ValueError
WHOLE = {"bounds": (-0.5, 3.5)}  # cells around the values 0, ..., 3 of counted records


def pieces(kinks, scale, order=4):
    """Gaussian quadrature between the kinks of Laplace densities, and in their tails."""
    steps = scale * np.array([0.6, 1.5, 3, 6, 12, 25])
    breaks = np.concatenate([kinks[0] - steps[::-1], kinks, kinks[-1] + steps])
    nodes, weights = np.polynomial.legendre.leggauss(order)
    middle, half = 0.5 * (breaks[1:] + breaks[:-1]), 0.5 * np.diff(breaks)
    return (middle[:, None] + half[:, None] * nodes).ravel(), (half[:, None] * weights).ravel()


def bad_settings(good, budget, level):
    """Bad input that all of these share, given the settings that are in order."""
    rest = {k: v for k, v in good.items() if k not in (budget, level)}
    return {
        "no noise level": (rest, E, "got none. Choose"),
        "two noise levels": ({**rest, budget: 1, level: 0.5}, E, "got both"),
        "budget zero": ({**rest, budget: 0}, E, f"{budget} must be a finite number > 0, got 0"),
        "budget negative": ({**rest, budget: -1}, E, f"{budget} must be a finite number > 0, got -1"),
        "budget infinite": ({**rest, budget: math.inf}, E, f"{budget} must be a finite number > 0, got inf"),
        "budget nan": ({**rest, budget: math.nan}, E, f"{budget} must be a finite number > 0, got nan"),
        "budget a tensor": ({**rest, budget: pt.scalar("e")}, TypeError, f"{budget} must be one real number"),
        "bounds reversed": ({**good, "bounds": (1, 0)}, E, "lo < hi"),
        "bounds infinite": ({**good, "bounds": (0, math.inf)}, E, "bounds must be finite"),
        "two intervals": ({**good, "bounds": [(0, 1), (0, 2), (0, 3)]}, E, "bounds must be one interval"),
        "unknown keyword": ({**good, "spread": 1}, TypeError, "unexpected keyword .*'spread'"),
    }


BAD_QUERIES = {
    "two numbers per record": (np.zeros((3, 2)), E, r"one number per record, shape \(n,\), got shape"),
    "a sum": (pt.matrix("x", shape=(5, 2)).sum(0), E, "its rows are not one record's each"),
}

# -- wavelets -----------------------------------------------------------------------------------------


def wavelet_law(scale, level):
    def law(y, z):
        u, mean = float(y), []
        for j in range(level + 1):
            for k in range(2**j):
                x = 2**j * u - k
                mean.append(2 ** (j / 2) * ((0 <= x < 0.5) - float(0.5 <= x < 1 or x == 1 == u)))
        return st.laplace(np.array(mean), scale).logpdf(z).sum(-1)

    return law


def wavelet(noise, promise, native, scale, level, rule, **kwargs):
    size = 2 ** (level + 1) - 1
    release = 0.4 * scale * np.array([1.5, -0.8, 1.1])[:size]
    return Row(
        WaveletMechanism,
        noise | {"level": level},
        PrivacyGuarantee(promise),
        native | {"level": level},
        neighbours=[(0.1, 0.9), (0.5, np.nextafter(0.5, 0)), (0.3, 0.1), (1.0, 0.6)],
        rule=rule,
        law=wavelet_law(scale, level),
        far=np.multiply.outer([1e3, -1e3, 1e9, -1e100], np.ones(size)),
        imputations=[
            Imputation(lambda x: x, np.stack([release, -release]), rows_apart=True, noise=WHOLE),
            Imputation(lambda x: x, np.stack([release, -release]), top=None, rows_apart=True),
        ],
        bad_query=BAD_QUERIES,
        **kwargs,
    )


HAAR = {1: 2 * (1 + math.sqrt(2))}
BUTUCEA = 12 * math.sqrt(2) / (math.sqrt(2) - 1)
WAVELETS = [
    wavelet(
        {"epsilon": 2.0},
        2.0,
        {"scale": HAAR[1] / 2},
        HAAR[1] / 2,
        1,
        lambda: combined(
            pieces([-1, 1], HAAR[1] / 2), *[pieces([-math.sqrt(2), 0, math.sqrt(2)], HAAR[1] / 2)] * 2
        ),
        slack=1e-5,
        bad=bad_settings({"epsilon": 1, "level": 1}, "epsilon", "scale")
        | {
            "no level": ({"epsilon": 1}, E, "needs level="),
            "level negative": ({"epsilon": 1, "level": -1}, E, "level must be a whole number"),
            "calibration": ({"epsilon": 1, "level": 1, "calibration": "db4"}, E, "one of 'haar', 'butucea'"),
        },
    ),
    wavelet({"scale": 0.8}, 2.5, {"scale": 0.8}, 0.8, 0, lambda: line(-40, 40, 100_001, (1,))),
    wavelet(
        {"epsilon": 1.0, "calibration": "butucea"},
        1.0,
        {"scale": BUTUCEA},
        BUTUCEA,
        0,
        lambda: line(-40 * BUTUCEA, 40 * BUTUCEA, 100_001, (1,)),
        tight=False,
        weak="its noise is twenty times what the promise needs",
    ),
]

# -- perturbed histograms -----------------------------------------------------------------------------

HERE, THERE = np.array([0.2, 0.7, 0.8]), np.array([0.9, 0.7, 0.8])  # counts 1, 2 and 0, 3


def histogram_law(law):
    return lambda y, z: law(z - np.histogram(np.clip(y, 0, 1), 2, (0, 1))[0]).sum(-1)


def histogram(noise, promise, native, law, rule, observed, **kwargs):
    return Row(
        PerturbedHistogram,
        noise | {"n_bins": 2},
        promise,
        native | {"n_bins": 2},
        neighbours=[(HERE, THERE), (HERE, np.array([0.2, 0.7, 0.1])), (HERE, np.array([0.4, 0.7, 0.8]))],
        rule=rule,
        law=histogram_law(law),
        batch=False,
        far=[[1e3, -1e3], [1e9, 1e9]],
        imputations=[
            Imputation(lambda x: x, observed, n=3, noise=WHOLE),
            Imputation(lambda x: x, observed, top=None),
        ],
        bad_query=BAD_QUERIES,
        **kwargs,
    )


def discrete_gaussian(sigma):
    k = np.arange(-300, 301)
    total = np.log(np.exp(-0.5 * (k / sigma) ** 2).sum())
    return lambda z: -0.5 * (z / sigma) ** 2 - total


BAD_BINS = {
    "no bins": ({"epsilon": 1}, E, "exactly one of n_bins= and edges="),
    "bins twice": ({"epsilon": 1, "n_bins": 2, "edges": [0, 1, 2]}, E, "exactly one of n_bins= and edges="),
    "one bin": ({"epsilon": 1, "n_bins": 1}, E, "n_bins must be a whole number from 2"),
    "edges unordered": ({"epsilon": 1, "edges": [0, 2, 1]}, E, "ascending edges"),
    "unknown noise": ({"epsilon": 1, "n_bins": 2, "noise": "cauchy"}, E, "noise must be one of"),
    "noise without that level": ({"rho": 1, "n_bins": 2, "noise": "laplace"}, E, "takes no rho="),
    "gaussian without delta": ({"epsilon": 1, "n_bins": 2, "noise": "gaussian"}, E, "without delta"),
}
HISTOGRAMS = [
    histogram(
        {"epsilon": 2.0},
        PrivacyGuarantee(2.0),
        {"scale": 1.0},
        st.laplace.logpdf,
        lambda: combined(*[pieces([0, 1, 2, 3], 1.0)] * 2),
        [0.3, 2.2],
        slack=1e-5,
        bad=bad_settings({"epsilon": 1, "n_bins": 2}, "epsilon", "scale") | BAD_BINS,
    ),
    histogram(
        {"rho": 0.5},
        PrivacyGuarantee(math.inf, rho=0.5),
        {"sigma": math.sqrt(2)},
        st.norm(scale=math.sqrt(2)).logpdf,
        lambda: combined(*[line(-24, 27, 103)] * 2),
        [0.3, 2.2],
        bad=bad_settings({"rho": 1, "n_bins": 2}, "rho", "sigma"),
    ),
    histogram(
        {"epsilon": 2.0, "noise": "discrete_laplace"},
        PrivacyGuarantee(2.0),
        {"scale": 1.0, "noise": "discrete_laplace"},
        st.dlaplace(1.0).logpmf,
        lambda: lattice(*[np.arange(-22, 26)] * 2),
        [0, 2],
        discrete=True,
        impossible=[[0.5, 1.0], [1.0, -0.25]],
        bad_observed={"a fraction": ([1.0, 2.5], E, "observed must be whole numbers, got 2.5")},
    ),
    histogram(
        {"rho": 0.5, "noise": "discrete_gaussian"},
        PrivacyGuarantee(math.inf, rho=0.5),
        {"sigma": math.sqrt(2), "noise": "discrete_gaussian"},
        discrete_gaussian(math.sqrt(2)),
        lambda: lattice(*[np.arange(-20, 24)] * 2),
        [0, 2],
        discrete=True,
        impossible=[[0.5, 1.0]],
    ),
]

# -- samples of smoothed histograms -------------------------------------------------------------------

ALONE, GONE = np.array([0.1, 0.5, 0.5]), np.array([0.6, 0.5, 0.5])  # counts 1, 2, 0 and 0, 3, 0
SMOOTHING = 3 / (3 + 3 * math.expm1(2.0 / 2))
SMOOTHED = {"n_bins": 3, "n_released": 2}


def smoothed_law(y, w):
    counts = np.histogram(np.clip(y, 0, 1), 3, (0, 1))[0]
    bins = np.minimum((3 * np.asarray(w)).astype(int), 2)
    return np.log((1 - SMOOTHING) * 3 * counts[bins] / 3 + SMOOTHING).sum(-1)


SAMPLES = [
    Row(
        SmoothedHistogramSample,
        {"epsilon": 2.0} | SMOOTHED,
        PrivacyGuarantee(2.0),
        {"smoothing": SMOOTHING} | SMOOTHED,
        neighbours=[(ALONE, GONE), (ALONE, np.array([0.1, 0.9, 0.5])), (ALONE, np.array([0.2, 0.5, 0.5]))],
        rule=lambda: combined(*[midpoints(np.linspace(0, 1, 61))] * 2),
        law=smoothed_law,
        batch=False,
        impossible=[[1.2, 0.5], [0.5, -0.1]],
        extremes=[{"smoothing": 1e-200} | SMOOTHED, {"smoothing": 1 - 1e-9} | SMOOTHED],
        far=[[0.0, 1.0], [1.0, 1.0]],
        imputations=[
            Imputation(lambda x: x, [0.3, 0.9], n=3, noise=WHOLE),
            Imputation(lambda x: x, [0.3, 0.9], top=None),
        ],
        bad=bad_settings({"epsilon": 1} | SMOOTHED, "epsilon", "smoothing")
        | {
            "smoothing zero": (
                {"smoothing": 0.0} | SMOOTHED,
                E,
                "smoothing must be strictly between 0 and 1",
            ),
            "smoothing one": ({"smoothing": 1.0} | SMOOTHED, E, "smoothing must be strictly between 0 and 1"),
            "no bins": ({"epsilon": 1, "n_released": 2}, E, "needs n_bins="),
            "number not told": ({"epsilon": 1, "n_bins": 3}, E, "needs n_released="),
        },
        bad_query=BAD_QUERIES,
        bad_observed={"outside": ([0.3, 3.6], E, r"1 of 2 values outside of bounds = \(-0.5, 3.5\)")},
    )
]

# -- projections --------------------------------------------------------------------------------------


def projection_law(basis, law):
    def functions(u):
        if basis == "cosine":
            return np.sqrt(2) * np.cos(np.pi * np.arange(1, 3) * u[:, None])
        return np.sqrt(2) * np.stack([np.cos(2 * np.pi * u), np.sin(2 * np.pi * u)], axis=1)

    return lambda y, z: law(z - functions(np.clip(y, 0, 1)).mean(0)[: np.shape(z)[-1]]).sum(-1)


# both means for each of the four data sets that the row below compares: where its densities have kinks
FOURIER_MEANS = np.array(
    [
        np.sqrt(2)
        * np.mean([[np.cos(2 * np.pi * u), np.sin(2 * np.pi * u)] for u in (first, 0.4, 0.7)], axis=0)
        for first in (3 / 8, 7 / 8, 0.3, 0.8)
    ]
)


def change_of_two_cosines(a):
    return np.sqrt(2) * np.hypot(1 - np.cos(a), 1 - np.cos(2 * a))


# one record at the end of the interval, the other where its two cosines differ most
FURTHEST = minimize_scalar(
    lambda a: -change_of_two_cosines(a), bounds=(1.5, 2.2), method="bounded", options={"xatol": 1e-12}
).x
L2_TWO = change_of_two_cosines(FURTHEST) / 3


def projection(noise, promise, native, law, worst, rule, observed, **kwargs):
    basis = noise.get("basis", "cosine")
    settings = {"n_terms": len(observed)}
    rest = [0.4, 0.7]
    return Row(
        ProjectionMechanism,
        noise | settings,
        promise,
        native | settings,
        neighbours=[
            (np.array([worst[0], *rest]), np.array([worst[1], *rest])),
            (np.array([0.3, *rest]), np.array([0.8, *rest])),
        ],
        rule=rule,
        law=projection_law(basis, law),
        batch=False,
        far=[[1e3] * len(observed), [-1e9] * len(observed)],
        imputations=[
            Imputation(lambda x: x, observed, n=3, noise=WHOLE),
            Imputation(lambda x: x, observed, top=None),
        ],
        bad_query=BAD_QUERIES,
        **kwargs,
    )


ONE = 2 * math.sqrt(2) / 3
PROJECTIONS = [
    projection(
        {"epsilon": 1.0},
        PrivacyGuarantee(1.0),
        {"scale": ONE},
        st.laplace(scale=ONE).logpdf,
        (0.0, 1.0),
        lambda: line(-30, 30, 3001, (1,)),
        [0.6],
        slack=1e-3,
        bad=bad_settings({"epsilon": 1, "n_terms": 1}, "epsilon", "scale")
        | {
            "no terms": ({"epsilon": 1}, E, "needs n_terms="),
            "unknown basis": ({"epsilon": 1, "n_terms": 1, "basis": "db4"}, E, "basis must be one of"),
            "half a resolution": ({"epsilon": 1, "n_terms": 2, "basis": "haar"}, E, r"1, 3, 7, 15"),
        },
    ),
    projection(
        {"rho": 0.5},
        PrivacyGuarantee(math.inf, rho=0.5),
        {"sigma": L2_TWO},
        st.norm(scale=L2_TWO).logpdf,
        (0.0, FURTHEST / math.pi),
        lambda: combined(*[line(-16, 16, 91)] * 2),
        [0.6, -0.4],
        bad=bad_settings({"rho": 1, "n_terms": 2}, "rho", "sigma"),
    ),
    projection(
        {"epsilon": 1.5, "basis": "fourier"},
        PrivacyGuarantee(1.5),
        {"scale": 4 / 3 / 1.5, "basis": "fourier"},
        st.laplace(scale=4 / 3 / 1.5).logpdf,
        (3 / 8, 7 / 8),
        lambda: combined(*[pieces(means, 4 / 3 / 1.5) for means in np.sort(FOURIER_MEANS.T)]),
        [0.6, -0.4],
        slack=1e-5,
    ),
]

ROWS = [*WAVELETS, *HISTOGRAMS, *SAMPLES, *PROJECTIONS]
