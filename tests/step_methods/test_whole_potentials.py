"""Potentials on all records together: no sum of one term per record."""

import itertools

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import stats

import pymc_dp as dp

pytestmark = pytest.mark.compiles(2)

N, P, SCALE, RELEASED = 5, 0.45, 1.5, 4.2
POTENTIALS = {
    "a bound": lambda y: pt.switch(y.sum() < 4, 0.0, -np.inf),
    "a pull": lambda y: -0.4 * (y.sum() - 2) ** 2,
    "neighbours": lambda y: 1.0 * (y[1:] * y[:-1]).sum(),
    "a vector": lambda y: -0.3 * pt.abs(y - y.mean()) - 0.2 * y.sum(),
}
RELEASES = {
    "total": lambda y: dp.LaplaceMechanism("z", dp.record_sum(y), scale=SCALE, observed=RELEASED),
    "each": lambda y: dp.LaplaceMechanism("z", y, scale=SCALE, observed=np.linspace(-1.0, 2.0, N)),
}


def declared(potential, release):
    with pm.Model() as model:
        y = pm.Bernoulli("y", P, shape=N)
        pm.Potential("c", POTENTIALS[potential](y))
        RELEASES[release](y)
    return model


def exact(model):
    """Probability of each value of the records, by the model's own density at all of them."""
    values = np.array(list(itertools.product([0, 1], repeat=N)))
    logp = model.compile_logp(mode="FAST_COMPILE")
    with np.errstate(all="ignore"):
        log_p = np.array([logp({"y": v}) for v in values])
    p = np.exp(log_p - log_p.max())
    return values, p / p.sum()


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("potential", POTENTIALS)
def test_posterior_is_the_enumerated_one(potential, release):
    model = declared(potential, release)
    values, p = exact(model)
    with pytest.warns(UserWarning, match="The potential c is no sum over records"):
        step = dp.RecordImputation(model=model)
    step.setup_chain(np.random.default_rng(3), 0, 4000)
    point, draws = model.initial_point(), []
    for _ in range(4000):
        point, _ = step.step(point)
        draws.append(point["y"])
    found = np.array(draws[100:]) @ 2 ** np.arange(N)
    every = 10  # draws far enough apart to count as independent
    codes = values @ 2 ** np.arange(N)
    assert set(found) <= set(codes[p > 0])
    thinned = found[::every]
    counts = np.array([(thinned == code).sum() for code in codes])
    likely = p * len(thinned) >= 5
    observed = np.append(counts[likely], counts[~likely].sum())
    expected = np.append(p[likely], p[~likely].sum()) * len(thinned)
    kept = expected > 0
    assert stats.chisquare(observed[kept], expected[kept]).pvalue > 1e-3


def test_whole_models_with_a_bounded_total():
    """As a user writes it: pm.sample refused the model, with a remedy that nobody could follow."""
    with pm.Model():
        p = pm.Beta("p", 2, 2)
        y = pm.Bernoulli("y", p, shape=N)
        pm.Potential("c", pt.switch(y.sum() < 4, 0, -np.inf))
        RELEASES["total"](y)
        with pytest.warns(UserWarning, match="The potential c is no sum over records"):
            idata = pm.sample(
                20, tune=20, chains=1, cores=1, random_seed=1, progressbar=False, quiet=True,
                compute_convergence_checks=False,
            )  # fmt: skip
    assert (idata.posterior["y"].sum("y_dim_0") < 4).all()
