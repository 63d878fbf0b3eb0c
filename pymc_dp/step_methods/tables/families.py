"""Laws of parameters that are known given counts: what they leave when they are integrated out, and draws.

Of each family, the counts enter an entry of the parameter through one sum alone, s, and what they were
exposed to through another, E. With the parameter integrated out, the density of a table is then a product of
a term of each cell and a term of each s: the same form that releases have, so that the same moves know it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.dist_math import logpow
from pymc.logprob.transforms import LogOddsTransform, LogTransform, SimplexTransform
from pytensor.tensor.random.basic import (
    BetaRV,
    BinomialRV,
    DirichletRV,
    ExponentialRV,
    GammaRV,
    MultinomialRV,
    PoissonRV,
)
from pytensor.tensor.variable import TensorVariable
from scipy import special

type Array = np.ndarray


class Family(ABC):
    """A law of a parameter and one of counts that go together.

    Attributes
    ----------
    laws, transform
        Operations of the parameter, and the transform that its value may have.
    counts, position
        Operation of the counts, and which of its parameters is a known multiple of entries.
    has_factors : bool
        Whether a cell may have a multiple, such as an exposure, and not the entry itself only.
    in_rows : bool
        Whether the law of the parameter is of rows, which have to be read as a whole.
    """

    laws: ClassVar[tuple[type, ...]]
    transform: ClassVar[type]
    counts: ClassVar[type]
    position: ClassVar[int]
    has_factors: ClassVar[bool]
    in_rows: ClassVar[bool]

    @abstractmethod
    def settings(self, rv: Any) -> list[TensorVariable]:
        """Return the two parameters of the law of a parameter."""

    @abstractmethod
    def exposure(self, counts: Any, shape: tuple[int, ...], factors: Array) -> Any:
        """Return what each cell adds to E."""

    @abstractmethod
    def cell(self, x: Any, exposure: Any) -> TensorVariable:
        """Return the log density of a cell at x, up to what depends on the parameter."""

    @abstractmethod
    def entry(self, s: Any, exposed: Any, first: Any, second: Any) -> TensorVariable:
        """Return the log of what is left of an entry when it is integrated out, up to a constant."""

    @abstractmethod
    def draw(self, rng: np.random.Generator, s: Array, exposed: Array, first: Array, second: Array) -> Array:
        """Draw each entry given the counts: its logarithm, its log odds, or a share's logarithm."""

    @abstractmethod
    def value(self, drawn: Array, transformed: bool) -> Array:
        """Return a draw as a value of the model's variable."""


class _Shares(Family):
    """Dirichlet probabilities of multinomial counts."""

    laws, transform = (DirichletRV,), SimplexTransform
    counts, position = MultinomialRV, 1
    has_factors, in_rows = False, True

    def settings(self, rv: Any) -> list[TensorVariable]:
        (a,) = rv.owner.op.dist_params(rv.owner)
        return [a, pt.zeros_like(a)]

    def exposure(self, counts: Any, shape: tuple[int, ...], factors: Array) -> Any:
        return pt.constant(np.zeros(factors.size))

    def cell(self, x: Any, exposure: Any) -> TensorVariable:
        return -pt.gammaln(x + 1.0)

    def entry(self, s: Any, exposed: Any, first: Any, second: Any) -> TensorVariable:
        return pt.gammaln(first + s)  # the sum over a row is known, and with it the other term

    def draw(self, rng: np.random.Generator, s: Array, exposed: Array, first: Array, second: Array) -> Array:
        return log_gamma(rng, first + s)

    def value(self, drawn: Array, transformed: bool) -> Array:
        # the same value, where a probability is too small for a number but its logarithm is not
        if transformed:
            return drawn[..., :-1] - drawn.mean(axis=-1, keepdims=True)
        return special.softmax(drawn, axis=-1)


class _Rates(Family):
    """Gamma rates of Poisson counts, each with a known exposure."""

    laws, transform = (GammaRV, ExponentialRV), LogTransform
    counts, position = PoissonRV, 0
    has_factors, in_rows = True, False

    def settings(self, rv: Any) -> list[TensorVariable]:
        *shape, scale = rv.owner.op.dist_params(rv.owner)
        return [*shape, scale] if shape else [pt.ones_like(scale), scale]

    def exposure(self, counts: Any, shape: tuple[int, ...], factors: Array) -> Any:
        return pt.constant(factors)

    def cell(self, x: Any, exposure: Any) -> TensorVariable:
        return logpow(exposure, x) - pt.gammaln(x + 1.0)

    def entry(self, s: Any, exposed: Any, first: Any, second: Any) -> TensorVariable:
        return pt.gammaln(first + s) - s * pt.log(1.0 / second + exposed)

    def draw(self, rng: np.random.Generator, s: Array, exposed: Array, first: Array, second: Array) -> Array:
        return log_gamma(rng, first + s) - np.log(1.0 / second + exposed)

    def value(self, drawn: Array, transformed: bool) -> Array:
        return drawn if transformed else np.exp(drawn)


class _Chances(Family):
    """Beta probabilities of binomial counts."""

    laws, transform = (BetaRV,), LogOddsTransform
    counts, position = BinomialRV, 1
    has_factors, in_rows = False, False

    def settings(self, rv: Any) -> list[TensorVariable]:
        return list(rv.owner.op.dist_params(rv.owner))

    def exposure(self, counts: Any, shape: tuple[int, ...], factors: Array) -> Any:
        n = pt.cast(counts.owner.op.dist_params(counts.owner)[0], "float64")
        return pt.broadcast_to(n, shape).reshape((factors.size,))

    def cell(self, x: Any, exposure: Any) -> TensorVariable:
        inside = pt.and_(pt.ge(x, 0.0), pt.le(x, exposure))
        return pt.switch(inside, -pt.gammaln(x + 1.0) - pt.gammaln(exposure - x + 1.0), -np.inf)

    def entry(self, s: Any, exposed: Any, first: Any, second: Any) -> TensorVariable:
        # beyond the support, where a cell has no density, this must be a number
        return pt.gammaln(first + s) + pt.gammaln(second + pt.maximum(exposed - s, 0.0))

    def draw(self, rng: np.random.Generator, s: Array, exposed: Array, first: Array, second: Array) -> Array:
        return log_gamma(rng, first + s) - log_gamma(rng, second + exposed - s)

    def value(self, drawn: Array, transformed: bool) -> Array:
        return drawn if transformed else special.expit(drawn)


FAMILIES: Sequence[Family] = (_Shares(), _Rates(), _Chances())


def log_gamma(rng: np.random.Generator, shape: Array) -> Array:
    """Draw logarithms of gamma variables.

    A gamma variable of shape a is one of shape a + 1 times a uniform variable to the power 1/a, so that its
    logarithm does not underflow where a is small.
    """
    return np.log(rng.standard_gamma(shape + 1.0)) - rng.standard_exponential(shape.shape) / shape
