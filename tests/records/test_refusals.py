"""Rows that are no conditionally independent records are refused, in words, before sampling."""

from __future__ import annotations

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import stats

import pymc_dp as dp
from pymc_dp.query.records import find_record_blocks

N = 6
TIED = r"tied together by one multivariate distribution.*pm.MvNormal\(\.\.\., shape=\(n, d\)\)"
TABLES = (
    r"linear with known coefficients.*pm.Categorical\('c', p, shape=n\).*dp.RandomizedResponse\(name, p, n=n"
)
ROWS = r"The rows of {} are not conditionally independent records.*may depend on the same row"
APART = (
    r"about the . rows of [ab] and the . rows of [ab], which meet only when they are added up or joined.*"
    r"records move along one axis. Put people of all groups there.*records=\['[ab]'\]"
)


def release(query, **kwargs):
    query = pt.as_tensor_variable(query)
    ones = np.ones(tuple(query.shape.eval()))
    return dp.LaplaceMechanism("z", query, scale=1, observed=ones, **kwargs)


def normal(name="x", mu=0.0, **kwargs):
    return pm.Normal(name, mu, 1, shape=N, **kwargs)


def mv_normal():
    release(pm.MvNormal("x", np.zeros(N), np.eye(N)).sum())


def one_vector_of_weights():
    release(pm.Dirichlet("x", np.ones(N)))


def matrix_normal():
    x = pm.MatrixNormal("x", mu=np.zeros((N, 2)), rowcov=np.eye(N), colcov=np.eye(2))
    release(x.sum(axis=0))


def random_walk():
    release(pm.GaussianRandomWalk("x", 0, 1, init_dist=pm.Normal.dist(), shape=N).sum())


def autoregression():
    init = pm.Normal.dist(shape=1)
    release(pm.AR("x", rho=[0.5], sigma=1, init_dist=init, shape=N).sum())


def zero_sum():
    release(pm.ZeroSumNormal("x", shape=N).sum())


def multinomial():
    release(pm.math.maximum(pm.Multinomial("x", 10, np.ones(N) / N), 1))


def partly_observed_vectors():
    data = np.ma.masked_invalid([[1, 2], [np.nan, 0], [np.nan, 1]])
    release(dp.record_sum(pm.MvNormal("x", np.zeros(2), np.eye(2), observed=data)))


def latent_process(reparameterize):
    def declare():
        gp = pm.gp.Latent(cov_func=pm.gp.cov.ExpQuad(1, 1.0))
        release(gp.prior("f", np.arange(N)[:, None] * 1.0, reparameterize=reparameterize).sum())

    return declare


def correlated_by_hand():
    root = np.linalg.cholesky(np.eye(N) + 0.5)
    release(pm.Deterministic("x", pt.as_tensor(root) @ normal("w")).mean())


def mean_of_the_others():
    x = normal()
    release(dp.record_sum(x * normal("y", x.mean())))


def lagged():
    x = normal()
    release((x * normal("y", pt.concatenate([[0.0], x[:-1]]))).sum())


def cumulated():
    x = normal()
    release((x * normal("y", pt.cumsum(x))).sum())


def backwards():
    x = normal()
    release(pt.stack([x, normal("y", x[::-1])], axis=1).sum(axis=0))


def ordered():
    transform = pm.distributions.transforms.ordered
    release(normal(transform=transform, initval=np.arange(float(N))).sum())


def no_record():
    release(2 * pm.Normal("mu"))


def child_of_all():
    x = normal()
    release(x.sum())
    pm.Normal("o", x.mean(), 1, observed=1.0)


def child_of_two():
    x = normal()
    release(x.sum())
    pm.Normal("o", x[1:] - x[:-1], 1, observed=np.zeros(N - 1))


def child_of_people_chosen_by_data():
    x = normal()
    release(x.sum())
    pm.Normal("o", x[pm.Data("who", [0, 2])], 1, observed=np.zeros(2))


def record_that_depends_on_some():
    x = normal()
    release(dp.record_sum(x * normal("y", x[[0, 0, 1, 2, 3, 4]])))


def nobody():
    release(pm.Normal("x", shape=0))


def nobody_by_name():
    release(pm.Normal("x", shape=0).sum(), records=["x"])


def table_of_a_dirichlet():
    release(pm.DirichletMultinomial("x", 10, np.ones(N)) ** 2)


def unknown_name():
    release(normal().sum(), records=["people"])


def name_without_a_record_axis():
    release(normal(mu=pm.Normal("mu")).sum(), records=["mu"])


def names_of_different_lengths():
    w = pm.Normal("w", shape=2)
    release((normal()[:, None] * w).sum(axis=0), records=["x", "w"])


def groups(query):
    def declare():
        release(query(pm.Normal("a", pm.Normal("mu"), 1, shape=3), pm.Laplace("b", 0, 1, shape=5)))

    return declare


def groups_by_name():
    a, b = pm.Normal("a", shape=3), pm.Laplace("b", 0, 1, shape=5)
    release(a.mean() - b.mean(), records=["a", "b"])


def name_outside_the_query():
    normal("y")
    release(normal().sum(), records=["y"])


CASES = {
    mv_normal: f"uses x, whose entries are {TIED}",
    one_vector_of_weights: f"uses x, whose entries are {TIED}",
    matrix_normal: f"uses x, whose entries are {TIED}",
    random_walk: f"uses x, whose entries are {TIED}",
    autoregression: f"uses x, whose entries are {TIED}",
    zero_sum: f"uses x, whose entries are {TIED}",
    multinomial: f"uses x, a table of counts.*{TABLES}",
    table_of_a_dirichlet: f"uses x, a table of counts.*{TABLES}",
    partly_observed_vectors: f"uses x_unobserved, whose entries are {TIED}",
    latent_process(False): f"uses f, whose entries are {TIED}",
    latent_process(True): r"several rows of f_rotated_.*Gaussian process.*`records=`",
    correlated_by_hand: "several rows of w, so they are not conditionally independent records",
    mean_of_the_others: ROWS.format("y"),
    lagged: ROWS.format("y"),
    cumulated: ROWS.format("y"),
    backwards: ROWS.format("y"),
    ordered: r"The transform ordered of x ties its 6 rows together.*leave `transform` out",
    no_record: r"touches no record.*shape \(n,\) or \(n, d\); it depends on mu",
    nobody: "query of z is about no record: x has length 0.*leave it and its records out",
    nobody_by_name: "query of z is about no record: x has length 0",
    child_of_all: "o depends on several records at once.*one row per record",
    child_of_two: "o depends on several records at once.*one row per record",
    child_of_people_chosen_by_data: r"o depends.*by what is no constant.*an index that is a NumPy array",
    record_that_depends_on_some: ROWS.format("y"),
    unknown_name: r"`records` of z names \('people',\), not all free variables of the model",
    name_without_a_record_axis: "`records` of z must share one leading record axis",
    names_of_different_lengths: "`records` of z must share one leading record axis",
    groups(lambda a, b: a.mean() - b.mean()): APART,
    groups(lambda a, b: pt.stack([a.sum(), b.sum()])): APART,
    groups(lambda a, b: a.sum() / (1 + pt.exp(b).sum())): APART,
    groups(lambda a, b: a.max() - b.mean()): APART,
    groups(lambda a, b: pt.sort(b)[2] - a.mean()): APART,
    groups(lambda a, b: dp.record_sum(pt.concatenate([a / 3, -b / 5]))): APART,
    groups(lambda a, b: pt.concatenate([a, b])): APART,
    groups_by_name: r"must share one leading record axis.*Put people of all groups there",
    name_outside_the_query: "none of which its query depends on",
}


@pytest.mark.filterwarnings("ignore::pymc.exceptions.ImputationWarning")
@pytest.mark.parametrize(("declare", "message"), CASES.items())
def test_refused(declare, message):
    with pm.Model() as model:
        declare()
    with pytest.raises(ValueError, match=message) as caught:
        find_record_blocks(model)
    assert len(str(caught.value)) < 700


def test_refused_by_sample_too(caplog):
    """`pm.sample` shows this message, not that of a step it fell back to."""
    with pm.Model():
        mv_normal()
        with pytest.raises(ValueError, match=TIED):
            pm.sample(draws=2, tune=2, progressbar=False)


def test_what_is_offered_for_a_table():
    """The people that were counted are records; the answers that they randomized need none."""
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.ones(3))
        c = pm.Categorical("c", p, shape=20)
        release(dp.record_sum(pm.math.eq(c[:, None], np.arange(3))))
        dp.RandomizedResponse("r", p, n=20, epsilon=1, observed=[5, 6, 9])
    (block,) = find_record_blocks(model)
    assert block.names == ["c"] and [r.kind for r in block.releases] == ["central"]
    assert np.isfinite(model.compile_logp()(model.initial_point()))


def test_what_is_offered_for_an_unknown_number_of_people():
    """PyMC's own law has the mechanism's density, and the posterior that adding up numbers gives."""
    released, b = 17.3, 1.5
    with pm.Model():
        n = pm.Poisson("n", 20)
        pm.Laplace("c", n, b, observed=released)
        draws = pm.sample(
            20_000, tune=1000, chains=2, cores=1, random_seed=1, progressbar=False, quiet=True,
            compute_convergence_checks=False,
        ).posterior["n"].values  # fmt: skip
    numbers = np.arange(100)
    noise = dp.LaplaceMechanism.dist(numbers.astype(float), scale=b)
    weights = stats.poisson(20).pmf(numbers) * np.exp(pm.logp(noise, np.full(100, released)).eval())
    exact = numbers @ weights / weights.sum()
    error = draws.reshape(80, -1).mean(axis=1).std(ddof=1) / np.sqrt(80)
    assert abs(draws.mean() - exact) < 4 * error
    assert error < 0.1


@pytest.mark.parametrize("laws", [1, 2])
def test_what_is_offered_for_groups_of_different_sizes(laws):
    """Both groups are records, and the query is what it was."""
    group = np.repeat([0, 1], [3, 5])
    with pm.Model() as model:
        mu = pm.Normal("mu", shape=2)
        if laws == 1:
            y = pm.Normal("y", mu[group], 1)
        else:
            a, b = pm.Normal("a", mu[0], 1, shape=8), pm.Laplace("b", mu[1], 1, shape=8)
            y = pt.where(group == 0, a, b)
        release(dp.record_sum(y * (group == 0)))
        z = dp.record_sum(y * np.where(group == 0, 1 / 3, -1 / 5))
        dp.GaussianMechanism("difference", z, sigma=0.4, observed=1.5)
    (block,) = find_record_blocks(model)
    assert block.names == (["y"] if laws == 1 else ["a", "b"])
    assert [r.kind for r in block.releases] == ["central", "central"]
    people = np.arange(8.0) ** 2
    assert np.isclose(z.eval({y: people}), people[:3].mean() - people[3:].mean())


def not_people(query):
    with pm.Model() as model:
        w, x = pm.Normal("w", shape=2), pm.Normal("x", shape=N)
        release(query(w, x))
    return model


@pytest.mark.parametrize(
    "query",
    [
        lambda w, x: dp.record_sum(x - w[np.arange(N) % 2]),
        lambda w, x: dp.record_sum(x * (np.ones((N, 2)) @ w)),
        lambda w, x: dp.record_sum(dp.clamp(x, -pt.exp(w).sum(), pt.exp(w).sum())),
        lambda w, x: (x[:, None] * w).sum(axis=0),
        lambda w, x: x - w.mean(),
        lambda w, x: x.mean() + w,
    ],
)
def test_parameters_that_meet_records_are_no_people(query):
    (block,) = find_record_blocks(not_people(query))
    assert block.names == ["x"]


def test_parameters_that_are_added_up_are_told_by_naming_the_records():
    with pm.Model() as model:
        w, x = pm.Normal("w", shape=2), pm.Normal("x", shape=N)
        release(x.mean() - w.sum(), records=["x"])
    (block,) = find_record_blocks(model)
    assert block.names == ["x"]
