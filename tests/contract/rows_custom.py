"""Rows of the contract table: mechanisms of a user's own, of every kind of density."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytensor.tensor as pt
from scipy.special import logsumexp, softmax

import pymc_dp as dp
from pymc_dp.privacy import PrivacyGuarantee
from tests.contract.form import Imputation, Row, lattice, line, midpoints
from tests.custom_noise import (
    EPSILON,
    WIDTH,
    huber_logp,
    huber_logpdf,
    huber_random,
    staircase_logp,
    staircase_pdf,
    staircase_random,
)


@dataclass(frozen=True)
class Scaled:
    """A function of a noise that is so many times as wide; equal to its copies, as a lambda is not."""

    of: Callable
    scale: float

    def __call__(self, *args, **kwargs):
        return self.of(self.scale, *args, **kwargs)


def wide_staircase_logp(scale, value, query):
    return staircase_logp(value / scale, query / scale) - math.log(scale)


def wide_staircase_random(scale, query, rng, size):
    return scale * staircase_random(query / scale, rng, size)


def scaled_huber_logp(scale, value, query):
    return huber_logp(value, query, np.float64(scale))


def scaled_huber_random(scale, query, rng, size):
    return huber_random(query, scale, rng, size)


def choice_logp(scale, value, query):
    """One of some candidates, by their utilities."""
    at = pt.switch(pt.eq(pt.arange(query.shape[0]), value), query / scale, 0.0)
    return pt.sum(at) - pt.logsumexp(query / scale)


def choice_random(scale, query, rng, size):
    return np.full(size, rng.choice(len(query), p=softmax(query / scale)))


def staircase(factor):
    """Arguments of noise that is so many times as wide."""
    logp, random = Scaled(wide_staircase_logp, factor), Scaled(wide_staircase_random, factor)
    return {"logp": logp, "random": random, "guarantee": PrivacyGuarantee(EPSILON)}


def huber(factor):
    logp, random = Scaled(scaled_huber_logp, 1.5 * factor), Scaled(scaled_huber_random, 1.5 * factor)
    return {"logp": logp, "random": random, "guarantee": PrivacyGuarantee(WIDTH / (1.5 * factor))}


def choice(factor):
    logp, random = Scaled(choice_logp, factor), Scaled(choice_random, factor)
    promise = PrivacyGuarantee(2 / factor)
    kind = {"signature": "(k)->()", "dtype": "int64"}
    return {"logp": logp, "random": random, "guarantee": promise, **kind}


BAD = {
    "no density": ({}, TypeError, "logp must be a function"),
    "a number": ({"logp": 1.0}, TypeError, "logp must be a function .* got float"),
    "unknown keyword": (huber(1.0) | {"scale": 1.0}, TypeError, "unexpected keyword argument 'scale'"),
    "guarantee a number": (huber(1.0) | {"guarantee": 1.0}, TypeError, "guarantee must be a Privacy"),
    "a density that ignores the query": (
        {"logp": lambda value, query: -pt.abs(value) - np.log(2)},
        ValueError,
        "logp ignores the query",
    ),
    "no density of the value": (
        {"logp": lambda value, query: -pt.abs(value - query)},
        ValueError,
        "integrates to 2",
    ),
    "draws of another shape": (
        huber(1.0) | {"random": lambda query, rng, size: np.zeros(7)},
        ValueError,
        "random returned shape",
    ),
}

ROWS = [
    Row(
        dp.CustomMechanism,
        huber(1.0),
        PrivacyGuarantee(WIDTH / 1.5),
        {},
        neighbours=[(1.7, 2.7), (1.7, 2.0)],
        rule=lambda: line(1.7 - 60, 1.7 + 61, 200_001),
        law=lambda q, z: huber_logpdf(z - q, 1.5),
        own=huber,
        far=[1e3, -1e3, 1e9, -1e9],
        imputations=[
            Imputation(lambda x: x.sum(), 4.3, n=3, top=1),
            Imputation(lambda x: x, [2.2, -0.7], top=1, rows_apart=True),
            Imputation(lambda x: x, [0.9, -0.7], top=None, rows_apart=True, honest=False),
        ],
        bad=BAD,
    ),
    Row(
        dp.CustomMechanism,
        staircase(1.0),
        PrivacyGuarantee(EPSILON),
        {},
        neighbours=[(0.3, 1.3), (0.3, 0.8)],
        rule=lambda: midpoints(np.arange(-600, 611) / 10),  # all steps are among these edges
        law=lambda q, z: np.log(staircase_pdf(z - q)),
        own=staircase,
        imputations=[
            Imputation(lambda x: x.sum(), 4.3, n=3, top=1),
            Imputation(lambda x: x, [2.2, -0.7], top=None, rows_apart=True, honest=False),
        ],
    ),
    Row(
        dp.CustomMechanism,
        choice(1.0),
        PrivacyGuarantee(2.0),
        {},
        neighbours=[(np.array([1.5, 0.0, -1.0]), np.array([0.5, 1.0, 0.0]))],
        rule=lambda: lattice(np.arange(3)),
        law=lambda q, z: (q - logsumexp(q))[np.asarray(z, dtype=int)],
        own=choice,
        discrete=True,
        tight=False,  # only with many candidates
        told=0.8,
        imputations=[
            Imputation(lambda x: dp.record_sum(pt.stack([x, 1 - x, 0.5 * x], axis=-1)), 0, n=3, top=1),
            Imputation(lambda x: dp.record_sum(pt.stack([x, 1 - x, x * x], axis=-1)), 2, n=2, top=2),
        ],
    ),
]
