"""Small tables of counts behind releases, whose posteriors can be enumerated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pymc as pm
import pytensor.sparse as ps
import pytensor.tensor as pt
from scipy import sparse

import pymc_dp as dp


@dataclass(frozen=True)
class Case:
    """A model, and the largest count of each cell that matters."""

    build: Callable[[], pm.Model]
    largest: int
    # values of a parameter, in value space, over which the posterior is added up
    grid: dict[str, np.ndarray] | None = None


CASES: dict[str, Case] = {}


def compositions(n: int, k: int) -> np.ndarray:
    """All tables of k counts that add up to n."""
    if k == 1:
        return np.array([[n]])
    parts = [(first, compositions(n - first, k - 1)) for first in range(n + 1)]
    return np.concatenate([np.column_stack([np.full(len(rest), first), rest]) for first, rest in parts])


def case(largest: int, grid: dict[str, np.ndarray] | None = None) -> Callable:
    def note(build: Callable[[], None]) -> Callable:
        def model() -> pm.Model:
            with pm.Model() as made:
                build()
            return made

        CASES[build.__name__.replace("_", " ")] = Case(model, largest, grid)
        return build

    return note


@case(11)
def crossed_margins() -> None:
    c = pm.Poisson("c", np.array([[2.0, 1, 1], [1, 0.5, 1]]))
    dp.DiscreteGaussianMechanism("rows", c.sum(axis=1), sigma=1.5, observed=[6, 2])
    dp.DiscreteLaplaceMechanism("columns", c.sum(axis=0), scale=1.0, observed=[2, 3, 5])
    dp.GaussianMechanism("cells", c, sigma=2.0, observed=[[1.5, 2.0, 3.0], [0, 1.0, 3]])


@case(8)
def multinomial_with_sums() -> None:
    c = pm.Multinomial("c", 8, np.array([0.1, 0.2, 0.3, 0.25, 0.15]))
    dp.LaplaceMechanism("pairs", pt.stack([c[0] + c[1], c[2] + 2 * c[4]]), scale=1.0, observed=[5.2, 2.1])


@case(6)
def multinomial_with_an_exact_part() -> None:
    c = pm.Multinomial("c", 6, np.array([0.1, 0.2, 0.3, 0.2, 0.2]))
    dp.DiscreteGaussianMechanism("cells", c, sigma=1.0, observed=[2, 0, 1, 0, 4])
    dp.Invariant("part", c[1:3].sum(), observed=2)


@case(5)
def cube_with_two_exact_margins() -> None:
    c = pm.Poisson("c", np.arange(1.0, 9).reshape((2, 2, 2)) / 3)
    dp.Invariant("first", c.sum(axis=(1, 2)), observed=[5, 5])
    dp.Invariant("second", c.sum(axis=(0, 2)), observed=[4, 6])
    dp.DiscreteLaplaceMechanism("third", c.sum(axis=(0, 1)), scale=2.0, observed=[4, 7])
    dp.LaplaceMechanism("cells", c, scale=3.0, observed=np.ones((2, 2, 2)))


@case(10)
def whole_coefficients() -> None:
    # a basis of the rational kernel, made whole, would not reach all of these
    c = pm.Poisson("c", np.array([3.0, 2.0, 1.5]))
    dp.Invariant("weighed", pt.dot(np.array([2, 3, 5]), c), observed=20)
    dp.GaussianMechanism("first", c[0], sigma=2.0, observed=2.0)


@case(2)
def zero_diagonal_with_both_margins() -> None:
    # swaps of two by two cells connect nothing here
    c = pm.Poisson("c", 1.0 - np.eye(3))
    dp.Invariant("rows", c.sum(axis=1), observed=[2, 2, 2])
    dp.Invariant("columns", c.sum(axis=0), observed=[2, 2, 2])
    dp.GaussianMechanism("cells", c, sigma=1.5, observed=np.array([[0, 1.5, 0], [0, 0, 1], [2.5, 0, 0]]))


@case(4)
def binomial_counts() -> None:
    c = pm.Binomial("c", 4, np.array([[0.2, 0.5], [0.7, 0.4], [0.9, 0.1]]))
    dp.DiscreteGaussianMechanism("rows", c.sum(axis=1), sigma=1.0, observed=[3, 6, 2])
    dp.DiscreteGaussianMechanism("columns", c.sum(axis=0), sigma=2.0, observed=[9, 1])
    dp.Invariant("all", c.sum(), observed=11)


@case(5)
def dirichlet_multinomial_rows() -> None:
    c = pm.DirichletMultinomial("c", np.array([5, 3]), np.array([[0.5, 1.5, 1], [2.0, 0.7, 0.4]]))
    dp.DiscreteLaplaceMechanism("columns", c.sum(axis=0), scale=0.8, observed=[1, 3, 3])
    dp.DiscreteGaussianMechanism("cells", c, sigma=2.0, observed=[[1, 1, 2], [4, 0, 0]])


@case(14)
def counts_with_too_many_zeros() -> None:
    c = pm.ZeroInflatedPoisson("c", 0.6, np.array([2.0, 3.0, 1.0]))
    dp.LaplaceMechanism("cells", c, scale=1.5, observed=[0.3, 4.0, 1.0])
    dp.DiscreteGaussianMechanism("total", c.sum(), sigma=1.0, observed=4)


@case(7)
def two_tables_in_one_release() -> None:
    a = pm.Multinomial("a", 4, np.array([0.5, 0.3, 0.2]))
    b = pm.NegativeBinomial("b", mu=np.array([1.0, 0.5, 1.0]), alpha=2.0)
    dp.DiscreteLaplaceMechanism("both", a + b, scale=1.0, observed=[3, 1, 3])
    dp.GaussianMechanism("difference", (a - b)[:2] + 1.0, sigma=1.0, observed=[0.5, 3.0])


@case(9)
def sums_by_an_index_and_a_sparse_matrix() -> None:
    c = pm.Poisson("c", np.array([1.0, 2.0, 0.5, 1.0]))
    dp.DiscreteGaussianMechanism(
        "groups", pt.zeros(2, dtype="int64")[np.array([0, 1, 0, 1])].inc(c), sigma=1.0, observed=[4, 3]
    )
    w = sparse.csr_matrix(np.array([[1.0, 1, 0, 0], [0, 0, 2, 1]]))
    product = ps.structured_dot(ps.as_sparse_variable(w), pt.cast(c, "float64")[:, None])[:, 0]
    dp.LaplaceMechanism("product", product, scale=1.0, observed=[2.0, 4.5])


@case(13, {"rate_log__": np.linspace(-5, 3, 81)})
def rate_that_is_not_known() -> None:
    rate = pm.Gamma("rate", 2, 1)
    c = pm.Poisson("c", rate * np.array([1.0, 2.0, 0.5]))
    dp.DiscreteGaussianMechanism("cells", c, sigma=1.5, observed=[3, 3, 1])
    dp.DiscreteLaplaceMechanism("total", c.sum(), scale=0.5, observed=8)


@case(6, {"p_logodds__": np.linspace(-6, 6, 121)})
def probabilities_that_are_not_known() -> None:
    p = pm.Beta("p", 1, 2)
    c = pm.Multinomial("c", 6, pt.stack([p * p, 2 * p * (1 - p), (1 - p) ** 2]))
    dp.DiscreteGaussianMechanism("cells", c, sigma=1.0, observed=[1, 4, 0])


@case(12, {"noise_log__": np.linspace(-4, 3, 141)})
def noise_that_is_not_known() -> None:
    noise = pm.HalfNormal("noise", 2)
    c = pm.Poisson("c", np.array([2.0, 3.0]))
    dp.LaplaceMechanism("cells", c, scale=noise, observed=[4.3, 2.2])
    dp.DiscreteGaussianMechanism("total", c.sum(), sigma=0.8, observed=5)


@case(11)
def cells_suppressed_and_sums_rounded() -> None:
    c = pm.Poisson("c", np.array([2.0, 0.7, 1.0]))
    cells = dp.postprocessed([3.0, np.nan, np.nan], suppress_below=3)
    dp.DiscreteGaussianMechanism("cells", c, sigma=1.5, observed=cells)
    dp.LaplaceMechanism(
        "total", c.sum(), scale=1.0, observed=dp.postprocessed(5.0, clip=(0, None), round_to=5)
    )


@case(1)
def whole_coefficients_of_counts_with_an_end() -> None:
    # no cell alone has room for the two or three that a class of them gives or takes
    c = pm.Bernoulli("c", np.array([0.3, 0.5, 0.6, 0.4, 0.5, 0.7]))
    dp.Invariant("weighed", 2 * c[:3].sum() + 3 * c[3:].sum(), observed=6)
    dp.DiscreteGaussianMechanism("two", c[0] + c[3], sigma=1.5, observed=1)


@case(2)
def cells_of_zero_that_leave_one_cycle() -> None:
    # two cells in each row and column: all tables are one step along the cycle apart
    c = pm.Poisson("c", np.array([[1.0, 2, 0], [0, 1, 0.5], [1, 0, 1]]))
    dp.Invariant("rows", c.sum(axis=1), observed=[2, 2, 2])
    dp.Invariant("columns", c.sum(axis=0), observed=[2, 2, 2])
    dp.GaussianMechanism("cells", c, sigma=1.5, observed=np.array([[0, 1.5, 0], [0, 0, 1], [2.5, 0, 0]]))


@case(7)
def counts_of_an_observed_total() -> None:
    n = pm.Poisson("n", 20.0, observed=7)
    c = pm.Multinomial("c", n, np.array([0.3, 0.5, 0.2]))
    dp.DiscreteGaussianMechanism("cells", c, sigma=1.5, observed=[2, 3, 1])
