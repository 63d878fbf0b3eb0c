"""Models whose laws exist in a part of the parameters' space only: the other part has density zero.

A row is a name and a function that declares a model of n records; a law, a link or a release is one row.
"""

from __future__ import annotations

import numpy as np
import pymc as pm
import pytensor.tensor as pt

import pymc_dp as dp
from tests.custom_noise import huber_logp, plane_logp
from tests.step_methods.zoo import ZOO, Entry

X = np.array([-1.0, -0.4, 0.3, 0.9, 0.1, -0.7, 0.6, -0.2])
WEIGHT = np.array([1.0, 2.0, 3.0])
GROUP = np.array([0, 1, 1, 0, 1, 0, 0, 1])

BOUNDED: list[Entry] = []


def bounded(smallest=1, noise_form=True):
    def register(declare):
        BOUNDED.append(Entry(declare.__name__.replace("_", " "), declare, smallest, noise_form))
        return declare

    return register


def _sum(y, **kwargs):
    dp.LaplaceMechanism("z", dp.record_sum(y), **{"scale": 1.0, "observed": 1.0, **kwargs})


def _each(y, n, **kwargs):
    dp.LaplaceMechanism("z", y, scale=0.8, observed=np.linspace(0.1, 0.9, n), **kwargs)


def _answers(c, n, k):
    dp.RandomizedResponse("z", c, epsilon=1.0, n_categories=k, observed=np.arange(n) % k)


def _slope(mean=1.0):
    return pm.Normal("b", mean, 0.7)


# -- a parameter of the law itself ------------------------------------------------------------------


@bounded()
def normal_scale(n):
    _sum(pm.Normal("y", 0, _slope(), shape=n))


@bounded()
def normal_scale_on_covariates(n):
    _sum(pm.Normal("y", pm.Normal("mu"), pm.Normal("s0", 1, 0.5) + pm.Normal("s1", 0, 0.7) * X[:n]))


@bounded()
def normal_precision(n):
    _sum(pm.Normal("y", 0, tau=_slope(), shape=n))


@bounded()
def laplace_scale(n):
    _sum(pm.Laplace("y", 0, _slope(), shape=n))


@bounded()
def logistic_scale(n):
    _each(pm.Logistic("y", 0, _slope(), shape=n), n)


@bounded()
def cauchy_scale(n):
    _each(pm.Cauchy("y", 0, _slope(), shape=n), n, bounds=(-3, 3))


@bounded()
def gumbel_scale(n):
    _sum(pm.Gumbel("y", 0, _slope(), shape=n))


@bounded()
def moyal_scale(n):
    _sum(pm.Moyal("y", 0, _slope(), shape=n))


@bounded()
def student_scale(n):
    _each(pm.StudentT("y", nu=4, mu=0, sigma=_slope(), shape=n), n, bounds=(-3, 3))


@bounded()
def half_normal_scale(n):
    _sum(pm.HalfNormal("y", _slope(), shape=n))


@bounded()
def log_normal_scale(n):
    _each(pm.LogNormal("y", 0, _slope(), shape=n), n)


@bounded()
def exponential_rate(n):
    _sum(pm.Exponential("y", _slope(), shape=n))


@bounded()
def uniform_between_random_ends(n):
    y = pm.Uniform("y", pm.Normal("lo", -1, 1), pm.Normal("hi", 1, 1), shape=n, default_transform=None)
    _sum(y)


@bounded()
def gamma_shape(n):
    _sum(pm.Gamma("y", _slope(), 1, shape=n))


@bounded()
def gamma_mean_and_sd(n):
    _sum(pm.Gamma("y", mu=_slope(), sigma=1, shape=n))


@bounded()
def inverse_gamma_scale(n):
    _sum(pm.InverseGamma("y", 4, _slope(), shape=n))


@bounded()
def beta_shape(n):
    _each(pm.Beta("y", _slope(), 1.5, shape=n), n)


@bounded(noise_form=False)
def dirichlet_concentration(n):
    x = pm.Dirichlet("x", pt.stack([_slope(), 1.5, 2.0]), shape=(n, 3))
    _sum(pt.clip(pt.log(x), -3, 0), sensitivity=9, observed=[-5.0, -4.0, -3.0])


@bounded()
def weibull_shape(n):
    _sum(pm.Weibull("y", _slope(), 1, shape=n))


@bounded()
def kumaraswamy_shape(n):
    _each(pm.Kumaraswamy("y", _slope(), 1.5, shape=n), n)


@bounded()
def pareto_shape(n):
    _each(pm.Pareto("y", _slope(2.0), 1.0, shape=n), n, bounds=(0, 9))


@bounded()
def wald_mean(n):
    _sum(pm.Wald("y", _slope(), 2, shape=n))


@bounded()
def ex_gaussian_tail(n):
    _sum(pm.ExGaussian("y", mu=pm.Normal("mu"), sigma=1, nu=_slope(), shape=n))


@bounded()
def skew_normal_scale(n):
    _sum(pm.SkewNormal("y", mu=0, sigma=_slope(), alpha=pm.Normal("alpha", 0, 2), shape=n))


@bounded()
def asymmetric_laplace_scale(n):
    _sum(pm.AsymmetricLaplace("y", kappa=pm.HalfNormal("kappa"), mu=0, b=_slope(), shape=n))


@bounded()
def poisson_identity_link(n):
    _sum(pm.Poisson("y", _slope() + 0.6 * X[:n]))


@bounded()
def negative_binomial_mean(n):
    _sum(pm.NegativeBinomial("y", _slope(), 1.2, shape=n))


@bounded()
def binomial_linear_probability(n):
    _sum(pm.Binomial("y", 4, 0.5 + _slope(0.0) * X[:n]))


@bounded()
def geometric_probability(n):
    _sum(pm.Geometric("y", _slope(0.5), shape=n))


@bounded()
def bernoulli_linear_probability(n):
    _sum(pm.Bernoulli("y", pm.Normal("b", 0.4, 0.4) + 0.3 * GROUP[:n]))


@bounded()
def bernoulli_answers(n):
    _answers(pm.Bernoulli("y", pm.Normal("b", 0.5, 0.5), shape=n), n, 2)


@bounded()
def bernoulli_answers_by_group(n):
    p = pm.Normal("b", 0.5, 0.5, shape=2)
    _answers(pm.Bernoulli("y", p[GROUP[:n]]), n, 2)


@bounded()
def answers_of_a_device_that_is_not_known(n):
    y = pm.Bernoulli("y", pm.Normal("b", 0.5, 0.5), shape=n)
    no, yes = pm.Beta("no", 2, 8), pm.Beta("yes", 2, 8)
    device = pt.stack([pt.stack([1 - no, no]), pt.stack([yes, 1 - yes])])
    dp.RandomizedResponse("z", y, p_answer=device, observed=np.arange(n) % 2)


@bounded()
def categories_told_by_a_table(n):
    a, b = pm.Uniform("a", 0, 1), pm.Uniform("b", 0, 1)
    y = pm.Categorical("y", pt.stack([a, b, 1 - a - b]), shape=n)
    told = np.array([[0.6, 0.1, 0.2, 0.1], [0.2, 0.4, 0.1, 0.3], [0.1, 0.2, 0.3, 0.4]])
    dp.RandomizedResponse("z", y, p_answer=told, observed=np.arange(n) % 4)


@bounded()
def answers_at_a_level_of_each(n):
    a, b = pm.Uniform("a", 0, 1), pm.Uniform("b", 0, 1)
    y = pm.Categorical("y", pt.stack([a, b, 1 - a - b]), shape=n)
    p_truth = np.where(np.arange(n) % 2, 0.5, 0.7)
    dp.RandomizedResponse("z", (y + 1) % 3, n_categories=3, p_truth=p_truth, observed=np.arange(n) % 3)
    device = np.array([[0.8, 0.2], [0.3, 0.7]])[[[0, 1], [1, 0]]][np.arange(n) % 2]
    dp.RandomizedResponse("w", pt.eq(y, 1), n_categories=2, p_answer=device, observed=np.arange(n) % 2)


@bounded()
def answers_turned_round(n):
    y = pm.Bernoulli("y", _slope(0.7) * np.linspace(0.5, 1, n), shape=n)
    dp.RandomizedResponse("z", 1 - y, n_categories=2, epsilon=1.0, observed=np.arange(n) % 2)
    dp.LaplaceMechanism("w", 3 * y * y - 1, scale=2.0, observed=np.linspace(-1, 2, n))


@bounded()
def categorical_answers(n):
    a, b = pm.Uniform("a", 0, 1), pm.Uniform("b", 0, 1)
    _answers(pm.Categorical("y", pt.stack([a, b, 1 - a - b]), shape=n), n, 3)


@bounded()
def categorical_answers_without_a_transform(n):
    a = pm.Uniform("a", 0, 1, default_transform=None)
    _answers(pm.Categorical("y", pt.stack([a, 1 - a]), shape=n), n, 2)


@bounded()
def shares_that_add_up_in_a_part(n):
    a = pm.Normal("a", 0.25, 0.3)
    _answers(pm.Categorical("y", pt.stack([pt.abs(a), pt.abs(0.5 - a), pt.as_tensor(0.5)]), shape=n), n, 3)


@bounded()
def counts_of_shares_that_add_up_in_a_part(n):
    a = pm.Normal("a", 0.25, 0.3)
    c = pm.Categorical("y", pt.stack([pt.abs(a), pt.abs(0.5 - a), pt.as_tensor(0.5)]), shape=n)
    dp.LaplaceMechanism("z", dp.record_sum(pt.eq(c[:, None], np.arange(3))), scale=1.0, observed=[1.0, 1, 2])


@bounded()
def categorical_counts(n):
    a, b = pm.Uniform("a", 0, 1), pm.Uniform("b", 0, 1)
    c = pm.Categorical("y", pt.stack([a, b, 1 - a - b]), shape=n)
    dp.LaplaceMechanism("z", dp.record_sum(pt.eq(c[:, None], np.arange(3))), scale=1.0, observed=[1.0, 1, 2])


@bounded()
def correlation_of_normal_rows(n):
    r = pm.Normal("r", 0, 0.8)
    cov = pt.stack([pt.stack([1.0, r]), pt.stack([r, 1.0])])
    y = pm.MvNormal("y", np.zeros(2), cov, shape=(n, 2))
    _sum(y[:, 0] * y[:, 1])


@bounded()
def correlation_that_no_query_sees(n):
    r = pm.Normal("r", 0, 0.8)
    cov = pt.stack([pt.stack([1.0, r]), pt.stack([r, 1.0])])
    _sum(pm.MvNormal("y", np.zeros(2), cov, shape=(n, 2))[:, 0])


@bounded()
def scale_of_walks(n):
    _sum(
        pm.GaussianRandomWalk("y", sigma=_slope(), init_dist=pm.Normal.dist(), shape=(n, 3))
        @ np.arange(1.0, 4.0)
    )


@bounded()
def scale_of_the_start_of_walks(n):
    start, steps = pm.Laplace.dist(0, _slope()), pm.Normal.dist(pm.Normal("drift"), 1)
    _sum(pm.RandomWalk("y", init_dist=start, innovation_dist=steps, shape=(n, 3)) @ WEIGHT)


@bounded()
def spread_of_the_steps_of_walks(n):
    steps = pm.LogNormal.dist(0, _slope())
    _sum(
        pm.RandomWalk("y", init_dist=pm.Normal.dist(), innovation_dist=steps, shape=(n, 3))
        @ np.arange(1.0, 4.0)
    )


@bounded()
def counts_that_walk(n):
    start, steps = pm.Poisson.dist(1.5), pm.Poisson.dist(_slope())
    _sum(pm.RandomWalk("y", init_dist=start, innovation_dist=steps, shape=(n, 3)) @ WEIGHT)


@bounded()
def scale_of_autoregressive_records(n):
    sigma = _slope()
    rho, start = pm.Normal("rho", 0.3, 0.5), pm.Normal.dist(0, sigma)
    _sum(pm.AR("y", rho, sigma=sigma, init_dist=start, shape=(n, 3)) @ WEIGHT)


# -- a boundary elsewhere: priors, other terms, releases, records behind records --------------------


@bounded()
def a_prior_without_its_transform(n):
    _sum(pm.Normal("y", pm.Uniform("mu", -0.5, 0.5, default_transform=None), 1, shape=n))


@bounded()
def a_scale_in_the_prior(n):
    s = pm.Normal("s", 1, 0.7)
    _sum(pm.Normal("y", pm.Normal("mu", 0, s), 1, shape=n))


@bounded()
def an_order_that_a_potential_demands(n):
    a, b = pm.Normal("a"), pm.Normal("b", 1)
    pm.Potential("order", pt.switch(a < b, 0.0, -np.inf))
    _sum(pm.Normal("y", a + b * X[:n], 1))


@bounded()
def a_public_likelihood_with_ends(n):
    mu = pm.Normal("mu", 1)
    pm.Uniform("public", 0, mu, observed=[0.2, 0.4])
    _sum(pm.Normal("y", mu, 1, shape=n))


@bounded()
def a_random_level_of_the_noise(n):
    level = pm.Normal("level", 1, 0.6)
    _sum(pm.Normal("y", pm.Normal("mu") + 0.3 * level, 1, shape=n), scale=level)


@bounded()
def a_density_of_ones_own(n):
    level = pm.Normal("level", 1, 0.6)
    y = pm.Normal("y", pm.Normal("mu") + 0.3 * level, 1, shape=n)
    dp.CustomMechanism("z", dp.record_sum(y), level, logp=huber_logp, observed=1.0)


@bounded()
def a_density_of_ones_own_on_each_record(n):
    level = pm.Normal("level", 1, 0.6)
    y = pm.Normal("y", pm.Normal("mu") + 0.3 * level, 1, shape=n)
    dp.CustomMechanism("z", y, level, logp=huber_logp, observed=np.linspace(0.1, 0.9, n))


@bounded()
def a_density_of_ones_own_for_two_sums(n):
    level = pm.Normal("level", 1, 0.6)
    y = pm.Normal("y", pm.Normal("mu") + 0.3 * level, 1, shape=n)
    sums = dp.record_sum(pt.stack([y, y**2], axis=1))
    dp.CustomMechanism("z", sums, level, logp=plane_logp, observed=[0.3, 1.0])


@bounded()
def processed_sums(n):
    level = pm.Normal("level", 1, 0.6)
    y = pm.Normal("y", pm.Normal("mu") + 0.3 * level, 1, shape=n)
    sums = dp.record_sum(pt.stack([y, y**2, -y], axis=1))
    observed = dp.postprocessed([0.5, 2.0, np.nan], clip=(-1, 2), round_to=0.5, suppress_below=0)
    dp.LaplaceMechanism("z", sums, scale=level, observed=observed)


@bounded()
def processed_records(n):
    level = pm.Normal("level", 1, 0.6)
    y = pm.Normal("y", pm.Normal("mu") + 0.3 * level, 1, shape=n)
    values = np.resize([np.nan, 0.7, 1.5], n)
    observed = dp.postprocessed(values, clip=(None, 1.5), suppress_below=0)
    dp.GaussianMechanism("z", y, sigma=level, observed=observed)


@bounded()
def processed_counts(n):
    rate = pm.Normal("rate", 2, 1)
    y = pm.Poisson("y", rate, shape=n)
    observed = dp.postprocessed(np.resize([np.nan, 4, 2], n), clip=(0, 4), round_to=2, suppress_below=1)
    dp.DiscreteGaussianMechanism("z", y, sigma=1.3, observed=observed)


@bounded()
def a_level_that_is_a_scale_too(n):
    s = _slope()
    _sum(pm.Normal("y", 0, s, shape=n), scale=s)


@bounded()
def records_that_are_parameters_of_records(n):
    b = _slope()
    k = pm.Poisson("k", b, shape=n)
    _sum(pm.Gamma("y", k + b, 1))


@bounded()
def a_record_that_picks_from_a_table(n):
    b = pm.Normal("b", 0.5, 0.5)
    k = pm.Binomial("k", 2, b, shape=n)
    _sum(pm.Normal("y", pm.Normal("t", shape=3)[k], b))


@bounded()
def an_observed_child_with_a_scale(n):
    s = _slope()
    y = pm.Normal("y", 0, 1 + 0 * s, shape=n)
    pm.Normal("o", y, s, observed=X[:n])
    _sum(y)


@bounded()
def an_observed_child_that_is_censored(n):
    s = _slope()
    y = pm.Normal("y", pm.Normal("mu"), 1 + 0 * s, shape=n)
    pm.Censored("o", pm.Normal.dist(y, s), lower=-0.5, upper=0.5, observed=np.clip(X[:n], -0.5, 0.5))
    _sum(pt.exp(y), bounds=(0, 6))


@bounded(smallest=2)  # PyMC does not say how many rows such a child has, so that one might be repeated
def an_observed_child_with_a_law_of_ones_own(n):
    s = _slope()
    y = pm.Normal("y", pm.Normal("mu"), 1 + 0 * s, shape=n)
    law = lambda y, s, size: y - 3.0 + pm.Exponential.dist(s, size=size)  # noqa: E731
    pm.CustomDist("o", y, s, dist=law, observed=X[:n])
    _each(y, n)


@bounded()
def two_sums_and_one_scale(n):
    s = _slope()
    y = pm.Normal("y", pm.Normal("mu"), s, shape=n)
    dp.GaussianMechanism("z", dp.record_sum(pt.stack([y, y**2], axis=1)), sigma=2.0, observed=[0.3, 1.0])


@bounded()
def many_sums_by_group(n):
    y = pm.Normal("y", pm.Normal("mu"), _slope(), shape=n)
    sums = pt.zeros((9, 2))[8 * GROUP[:n] - 5].inc(pt.stack([y, y**2], axis=1))
    dp.GaussianMechanism("z", sums, sigma=2.0, sensitivity=4.0, observed=np.linspace(-1, 1, 18).reshape(9, 2))


@bounded(smallest=2)
def effects_of_areas(n):
    """Each area has a mean, a scale that may be negative, and a sum of its own."""
    area = GROUP[:n]
    a, s = pm.Normal("a", pm.Normal("m"), pm.HalfNormal("tau"), shape=2), pm.Normal("s", 1, 0.7, shape=2)
    y = pm.Normal("y", a[area], s[area], shape=n)
    dp.LaplaceMechanism("z", pt.zeros(2)[area].inc(y), scale=1.0, observed=[1.0, -0.4])


@bounded(smallest=2)
def rates_of_areas(n):
    area = GROUP[:n]
    a = pm.Normal("a", pm.Normal("m", 1, 0.3), pm.HalfNormal("tau"), shape=2)
    y = pm.Poisson("y", a[area], shape=n)
    dp.GaussianMechanism("z", pt.zeros(2)[area].inc(dp.clamp(y, 0, 4)), sigma=1.0, observed=[1.0, 2.0])


@bounded()
def a_total_that_a_potential_bounds(n):
    y = pm.Normal("y", _slope(), 1, shape=n)
    pm.Potential("bound", pt.switch(y.sum() < 1.5 * n, 0.0, -np.inf))
    _sum(y)


def triangular_mode(n):
    """A law that NumPy refuses to draw from where it does not exist."""
    _sum(pm.Triangular("y", lower=-1, c=3 * pm.math.invlogit(pm.Normal("c")) - 1, upper=2, shape=n))


# -- a record that says where another law exists ----------------------------------------------------


@bounded()
def child_with_a_record_for_its_probability(n):
    y = pm.Normal("y", pm.Normal("b", 0.5, 0.3), 0.4, shape=n)
    pm.Bernoulli("w", y, observed=np.arange(n) % 2)
    _sum(y)


@bounded()
def child_with_a_record_for_its_shape(n):
    y = pm.Normal("y", _slope(), 1, shape=n)
    pm.Gamma("w", y, 1, observed=np.linspace(0.3, 1.2, n))
    _each(y, n)


@bounded(noise_form=False)
def mixture_with_a_scale_of_one_component(n):
    parts = [pm.Normal.dist(0, _slope(0.6)), pm.Normal.dist(0.5, 1)]
    _sum(pm.Mixture("y", [0.2, 0.8], parts, shape=n))


@bounded(noise_form=False)
def hurdle_with_a_shape(n):
    _sum(pm.HurdleGamma("y", 0.6, alpha=_slope(), beta=1, shape=n))


def child_without_a_law_at_some_values(n):
    """Its boundary is one of the records, which no update of parameters sees."""
    c = pm.Categorical("c", [0.4, 0.3, 0.2, 0.1], shape=n)
    pm.Bernoulli("w", pm.Normal("a", 0.8, 0.2) - 0.3 * c, observed=np.arange(n) % 2)
    _answers(c, n, 4)


@bounded()
def density_in_a_potential_at_some_values(n):
    c = pm.Categorical("c", pm.Dirichlet("p", np.ones(3)), shape=n)
    pm.Potential("w", pm.logp(pm.Gamma.dist(c - 0.5, 1), np.linspace(0.4, 2, n)))
    _answers(c, n, 3)


@bounded()
def density_that_is_no_number_at_some_values(n):
    c = pm.Binomial("c", 3, pm.Beta("p", 2, 2), shape=n)
    pm.Potential("w", 2 * pt.log(c - 1.0))
    dp.LaplaceMechanism("z", c, scale=1.0, observed=np.arange(n) + 1.0)


def noise_with_a_scale_by_record(n):
    c = pm.Categorical("c", [0.3, 0.3, 0.2, 0.2], shape=n)
    dp.LaplaceMechanism("z", c, scale=_slope() - 0.3 * c, observed=np.arange(n) + 0.3)


@bounded()
def probabilities_of_another_record(n):
    y = pm.Normal("y", pm.Normal("mu", 0.2, 0.2), 0.3, shape=n)
    pair = [pt.abs(y), pt.abs(0.5 - y), 0.5 + 0 * y]  # they add up to one between 0 and a half
    c = pm.Categorical("c", pt.stack(pair, axis=1))
    dp.LaplaceMechanism("total", dp.record_sum(y), scale=1.0, observed=0.5)
    _answers(c, n, 3)


@bounded()
def law_within_ends_of_another_record(n):
    k = pm.Poisson("k", pm.Gamma("rate", 2, 1), shape=n)
    y = pm.DiscreteUniform("y", 0, k - 1)
    _sum(y)


@bounded()
def scale_of_another_record(n):
    x = pm.Normal("x", _slope(0.5), 0.7, shape=n)
    _sum(pt.clip(pm.LogNormal("y", 0, x), 0, 3))


# -- an unknown number of people --------------------------------------------------------------------


@bounded()
def number_of_people(n):
    people = pm.DiscreteUniform("people", 0, n)
    y = pm.Normal("y", 0, _slope(), shape=n)
    dp.LaplaceMechanism("z", dp.record_sum(y, count=people), scale=1.0, bounds=(1, 4), observed=3.0)
    dp.LaplaceMechanism("c", people, scale=1.0, observed=1.4)


@bounded()
def number_of_people_with_a_rate(n):
    rate = pm.Gamma("rate", 2, 1)
    people = pm.Truncated("people", pm.Poisson.dist(rate), upper=n)
    y = pm.Gamma("y", 2, pm.Gamma("b", 2, 1), shape=n)
    total = dp.record_sum(pt.stack([y, y**2], axis=1), count=people)
    dp.LaplaceMechanism("z", total / 2, scale=1.0, observed=[3.0, 5.0])


@bounded()
def number_of_people_in_a_scale(n):
    people = pm.Binomial("people", n, 0.6)
    y = pm.Bernoulli("y", pm.Beta("p", 2, 2), shape=n)
    dp.LaplaceMechanism("z", dp.record_sum(y, count=people) ** 2, scale=1.0 + people, observed=2.0)


# -- whole numbers in the law of records -------------------------------------------------------------


@bounded()
def whole_number_in_a_scale(n):
    _sum(pm.Normal("y", 0, _slope() + pm.DiscreteUniform("k", -2, 3), shape=n))


@bounded()
def whole_number_of_trials(n):
    _sum(pm.Binomial("y", pm.Poisson("k", 4), pm.Beta("p", 2, 2), shape=n), bounds=(0, 5))


@bounded()
def whole_number_behind_a_mean_too(n):
    k = pm.Binomial("k", 4, pm.Beta("p", 2, 2))
    _each(pm.Normal("y", pm.Normal("mu", k, 0.5), 0.4 * k - 0.3, shape=n), n)


@bounded()
def degrees_of_freedom_that_are_whole(n):
    _sum(pm.StudentT("y", nu=pm.Geometric("k", 0.3), mu=_slope(), sigma=1, shape=n))


@bounded()
def number_of_people_beside_a_whole_number(n):
    people, k = pm.DiscreteUniform("people", 0, n), pm.Bernoulli("k", 0.4, shape=2)
    y = pm.Normal("y", _slope() * k[0], 0.5 + k[1], shape=n)
    dp.LaplaceMechanism("z", dp.record_sum(y, count=people), scale=1.0, bounds=(1, 4), observed=3.0)


MODELS = [
    *ZOO,
    *BOUNDED,
    Entry("triangular mode", triangular_mode),
    Entry("child without a law at some values", child_without_a_law_at_some_values, noise_form=False),
    Entry("noise with a scale by record", noise_with_a_scale_by_record, noise_form=False),
]
