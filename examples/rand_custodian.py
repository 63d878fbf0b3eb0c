"""The custodian's side of `rand_health_insurance.py`: confidential rows, noise, releases.

Everything that the two sides agree on in public stands at the top. The rows stay inside
:class:`Custodian`; what leaves it are the releases and, for this demonstration only, the answers
that an analyst with full access would have got.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import statsmodels.api as sm

import pymc_dp as dp

# -- public: fixed before anybody looked at the data ----------------------------------------------

PEOPLE_IN_SUMS = 4000
PEOPLE_REPORTING = 1250
EPSILON_SUMS = 1.0
EPSILON_REPORTS = 3.0
MOST_VISITS = 15  # in the reports: 15 stands for "15 or more"

# Units in which one person's numbers lie in about [-1, 1].
LOG_VISITS_CENTRE, LOG_VISITS_UNIT = 1.0, 2.5
DISEASE_CENTRE, DISEASE_UNIT = 10.0, 20.0

# What one person may contribute to each published sum. Who pays counts as +-1/2, and the other two
# are clamped to [-1, 1], so every product is bounded too.
STATISTICS = {
    "pays": (-0.5, 0.5),
    "disease": (-1.0, 1.0),
    "disease^2": (0.0, 1.0),
    "visits": (-1.0, 1.0),
    "visits^2": (0.0, 1.0),
    "pays * disease": (-0.5, 0.5),
    "pays * visits": (-0.5, 0.5),
    "disease * visits": (-1.0, 1.0),
}
LOW, HIGH = np.array(list(STATISTICS.values())).T


def contributions(pays: Any, disease: Any, visits: Any, stack: Callable) -> Any:
    """What each person adds to the sums; `stack` is that of NumPy or of PyTensor."""
    columns = [
        pays,
        disease,
        disease**2,
        visits,
        visits**2,
        pays * disease,
        pays * visits,
        disease * visits,
    ]
    return stack(columns, axis=1)


@dataclass(frozen=True)
class SumsRelease:
    """Noisy sums over `n` people, under `epsilon` for each of them."""

    values: np.ndarray
    n: int
    epsilon: float


@dataclass(frozen=True)
class ReportsRelease:
    """One noisy number of doctor visits for each person, under `epsilon` for that person."""

    values: np.ndarray
    epsilon: float


# -- confidential ---------------------------------------------------------------------------------


def laplace(scale: float, size: int, source: random.Random) -> np.ndarray:
    """Laplace noise, as the difference of two exponential waiting times; for simulations only.

    The last bits of floating-point noise can betray what it was added to (Mironov 2012): what is
    published goes through the mechanism's own ``release``.
    """
    u = 1.0 - np.array([[source.random() for _ in range(size)] for _ in range(2)])
    return scale * (np.log(u[0]) - np.log(u[1]))


def _people() -> dict[str, np.ndarray]:
    """Who pays, index of chronic diseases, and doctor visits in the first year of each person.

    The file has one row per person and year, 20,190 in all, and no identifiers; covariates are
    those at enrolment, so consecutive rows with the same covariates count as one person (5,294).
    Privacy is promised to people, so each may have one row only.
    """
    rows = sm.datasets.randhie.load_pandas().data
    covariates = rows.drop(columns="mdvis")
    first = rows[(covariates != covariates.shift()).any(axis=1)]
    return {
        "pays": (first["lncoins"] > 0).to_numpy(),
        "disease": first["disea"].to_numpy(dtype=float),
        "visits": first["mdvis"].to_numpy(dtype=float),
    }


class Custodian:
    """Holds the rows; releases never show one, and `repr` shows nothing.

    Parameters
    ----------
    source : random.Random
        ``secrets.SystemRandom()``: releases are drawn by the mechanism, from the operating
        system's entropy. Any other source can be repeated, protects nobody, and is for figures.
    people_in_sums, people_reporting : int
        Sizes of the two groups of people.
    """

    def __init__(
        self,
        source: random.Random,
        people_in_sums: int = PEOPLE_IN_SUMS,
        people_reporting: int = PEOPLE_REPORTING,
    ) -> None:
        people = _people()
        self.__source = source
        self.__rows = contributions(
            people["pays"] - 0.5,
            np.clip((people["disease"] - DISEASE_CENTRE) / DISEASE_UNIT, -1, 1),
            np.clip((np.log1p(people["visits"]) - LOG_VISITS_CENTRE) / LOG_VISITS_UNIT, -1, 1),
            np.stack,
        )
        self.__visits = np.clip(people["visits"], 0, MOST_VISITS)
        # Groups are drawn without a look at the data, and nobody is in both.
        order = np.random.default_rng(1974).permutation(len(self.__visits))
        self.__in_sums = order[:people_in_sums]
        self.__reporting = order[people_in_sums:][:people_reporting]

    def release_sums(self, epsilon: float = EPSILON_SUMS) -> SumsRelease:
        """Publish the sums. One person changes them by at most sum(HIGH - LOW) in all."""
        if not isinstance(self.__source, random.SystemRandom):
            return self.__noisy_sums(self.__in_sums, epsilon)
        rows = self.__rows[self.__in_sums]
        release = dp.LaplaceMechanism.release(dp.record_sum(rows), epsilon=epsilon, bounds=(LOW, HIGH))
        return SumsRelease(release.value, len(rows), epsilon)

    def release_reports(self, epsilon: float = EPSILON_REPORTS) -> ReportsRelease:
        """Publish each person's number of visits with noise of its own (local privacy)."""
        if not isinstance(self.__source, random.SystemRandom):
            return self.__noisy_reports(self.__reporting, epsilon)
        visits = self.__visits[self.__reporting]
        release = dp.LaplaceMechanism.release(visits, epsilon=epsilon, bounds=(0, MOST_VISITS))
        return ReportsRelease(release.value, epsilon)

    def __noisy_sums(self, people: np.ndarray, epsilon: float) -> SumsRelease:
        noise = laplace((HIGH - LOW).sum() / epsilon, len(LOW), self.__source)
        return SumsRelease(self.__rows[people].sum(axis=0) + noise, len(people), epsilon)

    def __noisy_reports(self, people: np.ndarray, epsilon: float) -> ReportsRelease:
        noise = laplace(MOST_VISITS / epsilon, len(people), self.__source)
        return ReportsRelease(self.__visits[people] + noise, epsilon)

    # For the comparison only: a custodian would show none of the following to anybody.

    def exact(self) -> tuple[SumsRelease, ReportsRelease]:
        """What would be released without privacy."""
        return self.__noisy_sums(self.__in_sums, np.inf), self.__noisy_reports(self.__reporting, np.inf)

    def population(self) -> tuple[SumsRelease, ReportsRelease]:
        """The same about everybody."""
        everybody = np.arange(len(self.__visits))
        return self.__noisy_sums(everybody, np.inf), self.__noisy_reports(everybody, np.inf)

    def repeated_study(self, epsilons: tuple[float, float]) -> tuple[SumsRelease, ReportsRelease]:
        """Releases about other people of the same population, with fresh noise."""
        size = len(self.__in_sums) + len(self.__reporting)
        people = np.array(self.__source.choices(range(len(self.__visits)), k=size))
        first, second = np.split(people, [len(self.__in_sums)])
        return self.__noisy_sums(first, epsilons[0]), self.__noisy_reports(second, epsilons[1])

    def shares(self) -> np.ndarray:
        """Share of the reporting people by number of visits."""
        visits = self.__visits[self.__reporting].astype(int)
        return np.bincount(visits, minlength=MOST_VISITS + 1) / len(visits)
