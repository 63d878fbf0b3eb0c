"""Models of all kinds of steps, with releases to fit them to."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt

import pymc_dp as dp


def sums(z=(12.0, 60.0)):
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 2)
        sigma = pm.HalfNormal("sigma", 1)
        y = pm.Normal("y", mu, sigma, shape=50)
        pm.Deterministic("ratio", mu / sigma)
        query = dp.record_sum(pt.stack([y, y**2], axis=-1))
        dp.LaplaceMechanism("z", query, epsilon=1, bounds=[(-3, 3), (0, 9)], observed=np.array(z))
    return model


def answers(z=(0, 1, 2, 1, 0, 0) * 5, as_data=False):
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.ones(3))
        y = pm.Categorical("y", p, shape=30)
        released = pm.Data("released", np.array(z)) if as_data else np.array(z)
        dp.RandomizedResponse("z", y, epsilon=1.5, observed=released)
    return model


def integrated(z=(0, 1, 2, 1, 0, 0) * 5):
    """NUTS alone; as data, because of constants PyTensor evaluates some sums once, in another order."""
    return dp.marginalize(answers(z, as_data=True), ["y"])


def public(z=(12.0, 60.0)):
    """Parameters that are seen in public data too, and integers among them."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 2)
        k = pm.Poisson("k", 3)
        pm.Normal("seen", mu + k, 1, observed=np.array([3.5, 4.2]))
        y = pm.Normal("y", mu, 1, shape=50)
        query = dp.record_sum(pt.stack([y, y**2], axis=-1))
        dp.LaplaceMechanism("z", query, epsilon=1, bounds=[(-3, 3), (0, 9)], observed=np.array(z))
    return model


def clusters(z=tuple(range(-10, 10))):
    with pm.Model() as model:
        labels = dp.ChineseRestaurantProcess("labels", concentration=1, shape=20, max_components=20)
        mu = pm.Normal("mu", 0, 5, shape=20)
        y = pm.Normal("y", mu[labels], 1)
        dp.LaplaceMechanism("z", y, scale=1, observed=np.array(z))
    return model


def tables(z=((12, 7, 30), (9, 0, 21))):
    with pm.Model() as model:
        rate = pm.Gamma("rate", 2, 0.1, shape=(2, 3))
        counts = pm.Poisson("counts", rate)
        dp.DiscreteLaplaceMechanism("z", counts, epsilon=0.5, sensitivity=1, observed=np.array(z))
        dp.DiscreteLaplaceMechanism("total", counts.sum(), epsilon=0.5, sensitivity=1, observed=80)
    return model


def processed(z=(35.0, 20.0, np.nan, np.nan)):
    published = dp.postprocessed(list(z), clip=(0, None), round_to=5, suppress_below=10)
    with pm.Model() as model:
        rate = pm.Gamma("rate", 2, 0.1)
        people = pm.Poisson("people", rate, shape=4)
        dp.DiscreteLaplaceMechanism("z", people, epsilon=0.5, sensitivity=1, observed=published)
    return model


def coefficients(z=(0.0, 0.0), as_data=True):
    """A release whose query is evaluated at the released value itself, when it is declared."""
    x = np.column_stack([np.full(30, 0.7), np.linspace(-0.7, 0.7, 30)])
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 3, shape=2)
        y = pm.Bernoulli("y", logit_p=x @ beta)
        released = pm.Data("released", np.array(z)) if as_data else np.array(z)
        dp.ObjectivePerturbation("z", x, y, epsilon=1, regularization=1, observed=released)
    return model


def by_nuts(model):
    return [dp.RecordImputation()]


# By name: a function of the release, steps if not those by default, and three releases.
CASES = {
    "sums": (sums, None, [(12.0, 60.0), (-20.0, 80.0), (3.0, 20.0)]),
    "sums, NUTS": (sums, by_nuts, [(12.0, 60.0), (-20.0, 80.0), (3.0, 20.0)]),
    "answers": (answers, None, [(k, 1, 2, 1, 0, k) * 5 for k in (0, 1, 2)]),
    "integrated": (integrated, None, [(k, 1, 2, 1, 0, k) * 5 for k in (0, 1, 2)]),
    "public": (public, None, [(12.0, 60.0), (-20.0, 80.0), (3.0, 20.0)]),
    "clusters": (clusters, None, [tuple(np.linspace(-k, 6, 20)) for k in (6, 1, 12)]),
    "tables": (tables, None, [((12, 7, 30), (9, 0, k)) for k in (21, 5, 40)]),
    "coefficients": (coefficients, None, [(0.4, 1.1), (-3.0, 2.0), (0.0, -6.0)]),
    "processed": (
        processed,
        None,
        [(35.0, 20.0, np.nan, np.nan), (10.0, 15.0, 20.0, 90.0), (10.0,) + (np.nan,) * 3],
    ),
}
