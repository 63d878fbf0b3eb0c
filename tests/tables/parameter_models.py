"""Small tables with parameters whose law given the counts is known, written here by hand for each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy import special

import pymc_dp as dp
from tests.tables.models import compositions


class Shares:
    """Rows of probabilities with Dirichlet laws."""

    def __init__(self, a):
        self.a = np.asarray(a, dtype=float)

    def logpdf(self, p):
        norm = special.gammaln(self.a.sum(axis=-1)) - special.gammaln(self.a).sum(axis=-1)
        return (norm + ((self.a - 1) * np.log(p)).sum(axis=-1)).sum()

    def moments(self):
        total = self.a.sum(axis=-1, keepdims=True)
        return self.a / total, self.a * (self.a + 1) / (total * (total + 1))


class Rates:
    """Independent numbers with gamma laws."""

    def __init__(self, shape, rate):
        self.shape, self.rate = np.asarray(shape, dtype=float), np.asarray(rate, dtype=float)

    def logpdf(self, x):
        k, rate = self.shape, self.rate
        return (k * np.log(rate) - special.gammaln(k) + (k - 1) * np.log(x) - rate * x).sum()

    def moments(self):
        return self.shape / self.rate, self.shape * (self.shape + 1) / self.rate**2


class Chances:
    """Independent numbers with beta laws."""

    def __init__(self, a, b):
        self.a, self.b = np.asarray(a, dtype=float), np.asarray(b, dtype=float)

    def logpdf(self, x):
        return ((self.a - 1) * np.log(x) + (self.b - 1) * np.log1p(-x) - special.betaln(self.a, self.b)).sum()

    def moments(self):
        total = self.a + self.b
        return self.a / total, self.a * (self.a + 1) / (total * (total + 1))


@dataclass(frozen=True)
class Case:
    """A model; all tables of counts that matter; and the laws of parameters given one of them.

    `given` takes the counts by name, and the values of parameters by name, on which laws may depend.
    """

    build: Callable[[], pm.Model]
    tables: Callable[[], np.ndarray]
    given: Callable[..., dict]
    # values of another parameter, in value space, over which the posterior is added up
    grid: dict[str, np.ndarray] | None = None


CASES: dict[str, Case] = {}


def case(tables, given, grid=None):
    def note(build):
        def model():
            with pm.Model() as made:
                build()
            return made

        CASES[build.__name__.replace("_", " ")] = Case(model, tables, given, grid)
        return build

    return note


def box(*ends):
    """All tables with counts up to some ends."""
    return np.stack(np.meshgrid(*(np.arange(end + 1) for end in ends), indexing="ij"), -1).reshape(
        -1, len(ends)
    )


def rows_of(*parts):
    """All pairs of tables of two kinds."""
    first, *others = parts
    for other in others:
        first = np.concatenate(
            [np.repeat(first, len(other), axis=0), np.tile(other, (len(first), 1))], axis=1
        )
    return first


def all_noises(table, laplace, gaussian, whole_laplace, whole_gaussian):
    """Noise of all four kinds: on rows, columns, cells and one corner."""
    dp.LaplaceMechanism("rows", table.sum(axis=-1), scale=1.5, observed=laplace)
    dp.GaussianMechanism("columns", table.sum(axis=-2), sigma=1.5, observed=gaussian)
    dp.DiscreteLaplaceMechanism("cells", table, scale=2.0, observed=whole_laplace)
    dp.DiscreteGaussianMechanism("corner", table[..., :1, :2].sum(), sigma=1.0, observed=whole_gaussian)


A6 = np.array([0.5, 1.5, 1, 2, 0.3, 1])


@case(lambda: compositions(6, 6), lambda c, **_: {"p": Shares(A6 + c["c"])})
def two_by_three_with_one_row_of_probabilities():
    p = pm.Dirichlet("p", A6)
    c = pm.Multinomial("c", 6, p)
    all_noises(c.reshape((2, 3)), [3.3, 1.9], [2.2, 0.9, 2.8], [[1, 0, 2], [3, 0, -1]], 2)


A8 = np.array([0.7, 1.5, 1, 2, 0.3, 1, 1, 3])


@case(lambda: compositions(5, 8), lambda c, **_: {"p": Shares(A8 + c["c"])})
def two_by_two_by_two_with_one_row_of_probabilities():
    p = pm.Dirichlet("p", A8)
    c = pm.Multinomial("c", 5, p)
    table = c.reshape((2, 2, 2))
    all_noises(
        table,
        [[3.3, 1.9], [0.3, 1.0]],
        [[2.2, 0.9], [1.0, 2.8]],
        [[[1, 0], [2, 0]], [[0, 3], [0, -1]]],
        2,
    )


A23 = np.array([[0.5, 1.5, 1.0], [2.0, 0.4, 1.0]])


@case(lambda: rows_of(compositions(5, 3), compositions(4, 3)), lambda c, **_: {"p": Shares(A23 + c["c"])})
def rows_of_probabilities():
    p = pm.Dirichlet("p", A23)
    c = pm.Multinomial("c", np.array([5, 4]), p)
    all_noises(c, [5.3, 3.9], [2.2, 0.9, 2.8], [[1, 0, 2], [3, 0, -1]], 2)


@case(
    lambda: rows_of(compositions(4, 3), compositions(5, 3)),
    lambda c, **_: {"p": Shares(A23[0] + c["c"].sum(axis=0))},
)
def one_row_of_probabilities_for_two_of_counts():
    p = pm.Dirichlet("p", A23[0])
    c = pm.Multinomial("c", np.array([4, 5]), p)
    all_noises(c, [5.3, 3.9], [2.2, 0.9, 2.8], [[1, 0, 2], [3, 0, -1]], 2)


def _picked(c):
    first, second = c["c"][[0, 2]].sum(axis=0), c["c"][1]
    return np.stack([first[::-1], second[::-1]])


@case(
    lambda: rows_of(compositions(3, 3), compositions(2, 3), compositions(2, 3)),
    lambda c, **_: {"p": Shares(A23 + _picked(c))},
)
def rows_picked_by_a_group_in_another_order():
    group = pm.Data("group", np.array([0, 1, 0]))
    p = pm.Dirichlet("p", A23)
    c = pm.Multinomial("c", np.array([3, 2, 2]), p[group][:, ::-1])
    dp.LaplaceMechanism("cells", c, scale=1.0, observed=[[2.2, 0.1, 1], [0, 0, 2.3], [1, 1, 1]])
    dp.DiscreteGaussianMechanism("columns", c.sum(axis=0), sigma=1.0, observed=[2, 3, 3])


@case(
    lambda: rows_of(compositions(3, 3), compositions(4, 3)),
    lambda c, **_: {"p": Shares(A23[0] + c["a"] + c["b"])},
)
def two_tables_with_the_same_probabilities():
    p = pm.Dirichlet("p", A23[0])
    a = pm.Multinomial("a", 3, p)
    b = pm.Multinomial("b", 4, p)
    dp.DiscreteLaplaceMechanism("sum", a + b, scale=1.0, observed=[1, 4, 2])
    dp.GaussianMechanism("difference", (a - b)[:2], sigma=1.5, observed=[0.7, -1.0])


EXPOSURE = np.array([[1.0, 0.5, 0.7], [0.8, 1.2, 0.3]])


@case(
    lambda: box(*[6] * 6),
    lambda c, **_: {"rate": Rates(1.5 + c["c"], 2.0 + EXPOSURE)},
)
def rates_of_each_cell_with_exposures():
    exposure = pm.Data("exposure", EXPOSURE)
    rate = pm.Gamma("rate", 1.5, 2.0, shape=(2, 3))
    c = pm.Poisson("c", rate * exposure)
    all_noises(c, [2.3, 0.9], [0.2, 0.9, 1.8], [[1, 0, 1], [1, 0, -1]], 1)


@case(
    lambda: rows_of(compositions(3, 4), box(6, 5, 6, 5)),
    lambda c, **_: {"rate": Rates(1.0 + c["c"].sum(axis=(1, 2)), 0.8 + 3.5)},
)
def rates_shared_by_cells_of_a_cube_with_an_exact_sum():
    rate = pm.Exponential("rate", 0.8, shape=2)
    exposure = np.array([[1.0, 0.5], [1.5, 0.5]])
    c = pm.Poisson("c", rate[:, None, None] * exposure)
    dp.Invariant("first", c[0].sum(), observed=3)
    all_noises(
        c, [[1.3, 0.9], [0.3, 1.0]], [[1.2, 0.9], [0.0, 0.8]], [[[1, 0], [0, 0]], [[0, 1], [0, -1]]], 1
    )


B2 = np.array([1.5, 0.6])
N5 = np.array([[3, 2, 4], [2, 5, 3]])


@case(
    lambda: box(*N5.ravel()),
    lambda c, **_: {"q": Chances(B2 + c["c"].sum(axis=1), 2.0 + N5.sum(axis=1) - c["c"].sum(axis=1))},
)
def chances_of_rows():
    q = pm.Beta("q", B2, 2.0)
    c = pm.Binomial("c", N5, q[:, None])
    all_noises(c, [5.3, 3.9], [2.2, 0.9, 2.8], [[1, 0, 2], [1, 0, 1]], 2)


@case(
    lambda: box(*N5.ravel()),
    lambda c, **_: {"q": Chances(0.4 + c["c"], 2.0 + N5 - c["c"])},
)
def chances_of_each_cell():
    q = pm.Beta("q", 0.4, 2.0, shape=(2, 3))
    c = pm.Binomial("c", N5, q)
    all_noises(c, [5.3, 3.9], [2.2, 0.9, 2.8], [[1, 0, 2], [1, 0, 1]], 2)


@case(
    lambda: compositions(6, 4),
    lambda c, a, **_: {"p": Shares(a * np.array([0.5, 1.0, 1.0, 2.0]) + c["c"])},
    grid={"a_log__": np.linspace(-5, 3, 120)},
)
def a_concentration_that_is_not_known():
    a = pm.HalfNormal("a", 2)
    p = pm.Dirichlet("p", a * np.array([0.5, 1.0, 1.0, 2.0]))
    c = pm.Multinomial("c", 6, p)
    dp.LaplaceMechanism("cells", c, scale=1.0, observed=[2.2, 0.1, 4.1, -0.4])
    dp.DiscreteGaussianMechanism("some", c[:2].sum(), sigma=1.0, observed=2)


@case(
    lambda: box(8, 8, 8),
    lambda c, **_: {"rate": Rates([2.0 + c["c"][0] + c["c"][2], 2.0 + c["c"][1]], [1.0 + 3, 1.0 + 1.5])},
)
def rates_that_are_values_themselves():
    rate = pm.Gamma("rate", 2.0, 1.0, shape=2, default_transform=None)
    c = pm.Poisson("c", pt.stack([rate[0], 1.5 * rate[1], 2 * rate[0]]))
    dp.LaplaceMechanism("cells", c, scale=1.0, observed=[2.2, 0.1, 4.1])
    dp.DiscreteGaussianMechanism("some", c[:2].sum(), sigma=1.0, observed=2)


@case(
    lambda: box(8, 1, 8),
    lambda c, **_: {"rate": Rates(2.0 + c["c"] * np.array([1, 0, 1]), 1.0 + np.array([1.0, 0.0, 2.0]))},
)
def a_cell_without_exposure():
    rate = pm.Gamma("rate", 2.0, 1.0, shape=3)
    c = pm.Poisson("c", rate * np.array([1.0, 0.0, 2.0]))
    dp.LaplaceMechanism("cells", c, scale=1.0, observed=[1.2, 0.1, 2.1])
    dp.DiscreteGaussianMechanism("all", c.sum(), sigma=1.0, observed=3)
