"""Sums over an unknown number of people: what is read from them, their sensitivity, and what is refused."""

from __future__ import annotations

import itertools

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import stats

import pymc_dp as dp
from pymc_dp.query.records import find_record_blocks

SLOTS = 20
DRAWS = {"draws": 20, "tune": 20, "chains": 1, "progressbar": False, "quiet": True, "random_seed": 1}
SHORT = {**DRAWS, "compute_convergence_checks": False}


def model_of(declare, people=lambda: pm.DiscreteUniform("people", 0, SLOTS)):
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        declare(people(), pm.Normal("x", mu, 1, shape=SLOTS))
    return model


def test_slots_beyond_the_people_contribute_nothing():
    """With bounds that exclude 0, clamping must not make people of empty slots."""

    def declare(people, x):
        rows = pt.stack([x, x**2], axis=1)
        total = dp.record_sum(rows, count=people)
        dp.LaplaceMechanism(
            "z", total, epsilon=1, bounds=(1, 3), neighbours="add-remove", observed=[4.0, 9.0]
        )

    model = model_of(declare)
    (block,) = find_record_blocks(model)
    assert block.count is model["people"]
    assert block.releases[0].kind == "central"
    x = np.linspace(-2, 4, SLOTS)
    query = block.releases[0].query.eval({model["people"]: 5, model["x"]: x})
    np.testing.assert_allclose(query, [np.clip(x[:5], 1, 3).sum(), np.clip(x[:5] ** 2, 1, 3).sum()])


@pytest.mark.parametrize(
    ("bounds", "replace_one", "add_remove"),
    [((-1, 3), 4, 3), ((-3, 1), 4, 3), ((0, 1), 1, 1), ((2, 5), 3, 5), ([(-1, 1), (0, 4)], 6, 5)],
)
def test_sensitivity(bounds, replace_one, add_remove):
    """Widths of intervals with one record exchanged, largest sizes with one more or less: in the L1 norm."""
    rows = pt.as_tensor(np.zeros((SLOTS, 2) if isinstance(bounds, list) else SLOTS))
    for neighbours, expected in (("replace-one", replace_one), ("add-remove", add_remove)):
        z = dp.LaplaceMechanism.dist(dp.record_sum(rows), scale=2.0, bounds=bounds, neighbours=neighbours)
        promised = dp.guarantee(z)
        assert promised.epsilon == pytest.approx(expected / 2)
        assert promised.neighbours == neighbours


def test_sensitivity_of_gaussian_noise_is_in_the_other_norm():
    rows = pt.as_tensor(np.zeros((SLOTS, 2)))
    bounds = [(-1, 3), (-2, 0)]
    z = dp.GaussianMechanism.dist(dp.record_sum(rows), sigma=1.0, bounds=bounds, neighbours="add-remove")
    assert dp.guarantee(z).rho == pytest.approx((3**2 + 2**2) / 2)


@pytest.mark.parametrize("noise", [{"epsilon": 0.7}, {"scale": 2.5}])
@pytest.mark.parametrize("mechanism", [dp.LaplaceMechanism, dp.DiscreteLaplaceMechanism])
def test_a_published_sum_and_count_are_declared_with_an_unknown_number(mechanism, noise, tmp_path):
    data = np.arange(12) % 3
    given = {**noise, "neighbours": "add-remove"}
    total = mechanism.release(dp.record_sum(data), bounds=(0, 2), **given)
    number = mechanism.release(dp.record_sum(np.ones(12, dtype=int)), sensitivity=1, **given)
    texts = [release.to_json() for release in (total, number)]
    assert not any("n_records" in text for text in texts), "the number of people is what is hidden"
    total, number = map(dp.Release.from_json, texts)
    assert total.guarantee.neighbours == number.guarantee.neighbours == "add-remove"
    assert dp.guarantee(total).neighbours == "add-remove"
    with pm.Model() as model:
        people = pm.DiscreteUniform("people", 0, SLOTS)
        x = pm.Categorical("x", [0.3, 0.3, 0.4], shape=SLOTS)
        z = mechanism("z", dp.record_sum(x, count=people), observed=total)
        mechanism("c", people, observed=number)
    assert dp.guarantee(z).epsilon == pytest.approx(total.guarantee.epsilon)
    assert dp.guarantee(model).neighbours == "add-remove"
    assert dp.guarantee(model).epsilon == pytest.approx(total.guarantee.epsilon + number.guarantee.epsilon)
    pm.sample(model=model, **SHORT)


def test_pure_numbers_of_people_need_no_records():
    with pm.Model() as model:
        people = pm.Poisson("people", 10)
        dp.LaplaceMechanism("c", people, epsilon=1, sensitivity=1, neighbours="add-remove", observed=12.2)
        posterior = pm.sample(2000, tune=500, chains=2, cores=1, random_seed=2, progressbar=False).posterior
    assert find_record_blocks(model) == []
    n = np.arange(60)
    weight = stats.poisson.pmf(n, 10) * np.exp(-np.abs(n - 12.2))
    error = float(posterior["people"].std()) / np.sqrt(float(az.ess(posterior, var_names="people")["people"]))
    assert abs(float(posterior["people"].mean()) - weight @ n / weight.sum()) < 4 * error


def test_sums_of_normal_records_are_integrated_out_given_their_number():
    sigma, z = 2.0, 8.0
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        people = pm.DiscreteUniform("people", 0, SLOTS)
        x = pm.Normal("x", mu, 1.5, shape=SLOTS)
        dp.GaussianMechanism("z", dp.record_sum(x, count=people), sigma=sigma, observed=z)
    marginal = dp.marginalize(model, ["x"])
    density = marginal.compile_logp(vars=[marginal["z"]])
    for mu, people in itertools.product((-0.5, 0.2, 1.3), (0, 1, 7, SLOTS)):
        got = density({"mu": np.array(mu), "people": np.array(people)})
        expected = stats.norm.logpdf(z, people * mu, np.sqrt(people * 1.5**2 + sigma**2))
        assert got == pytest.approx(expected, rel=1e-9)


def test_the_cost_of_numbers_and_sums_shows_in_a_plan():
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        people = pm.Binomial("people", SLOTS, 0.5)
        x = pm.Normal("x", mu, 1, shape=SLOTS)
        noise = {"epsilon": 0.5, "neighbours": "add-remove"}
        dp.LaplaceMechanism("z", dp.record_sum(x, count=people), bounds=(-2, 2), **noise)
        dp.LaplaceMechanism("c", people, sensitivity=1, **noise)
    text = str(dp.plan(model, n_simulations=1, draws=100, tune=100, random_seed=1))
    assert "epsilon = 1, for add-remove" in text
    assert "people" in text


def other_count(people, x):
    again = pm.DiscreteUniform("again", 0, SLOTS)
    dp.LaplaceMechanism("z", dp.record_sum(x, count=people), scale=1, observed=1.0)
    dp.LaplaceMechanism("w", dp.record_sum(x**2, count=again), scale=1, observed=1.0)


def all_slots(people, x):
    dp.LaplaceMechanism("z", dp.record_sum(x, count=people), scale=1, observed=1.0)
    dp.LaplaceMechanism("w", dp.record_sum(x**2), scale=1, observed=1.0)


def one_by_one(people, x):
    dp.LaplaceMechanism("z", dp.record_sum(x, count=people), scale=1, observed=1.0)
    dp.LaplaceMechanism("w", x, scale=1, observed=np.zeros(SLOTS))


def covariates_in_the_query(people, x):
    known = np.linspace(0, 1, SLOTS)
    dp.LaplaceMechanism("z", dp.record_sum(x * known, count=people), scale=1, observed=1.0)


def covariates_in_the_law(people, x):
    known = pm.Data("known", np.linspace(0, 1, SLOTS))
    y = pm.Normal("y", x + known, 1, shape=SLOTS)
    dp.LaplaceMechanism("z", dp.record_sum(y, count=people), scale=1, observed=1.0)


@pytest.mark.parametrize(
    ("declare", "names"),
    [
        (other_count, ["again", "people", "same variable"]),
        (all_slots, ["w", "count=people"]),
        (one_by_one, ["w", "one by one", "leave count= out"]),
        (covariates_in_the_query, ["people", "Covariates"]),
        (covariates_in_the_law, ["people", "Covariates"]),
    ],
    ids=lambda v: getattr(v, "__name__", ""),
)
def test_models_in_which_slots_are_no_people(declare, names):
    with pytest.raises(ValueError) as error:
        pm.sample(model=model_of(declare), **SHORT)
    assert all(name in str(error.value) for name in names), error.value


def summed(people, x):
    dp.LaplaceMechanism("z", dp.record_sum(x, count=people), scale=1, observed=1.0)


@pytest.mark.parametrize(
    ("people", "says"),
    [
        (lambda: pm.DiscreteUniform("people", 0, 50), "allows more people than the 20 slots"),
        (lambda: pm.Binomial("people", 21, 0.1), "allows more people than the 20 slots"),
        (lambda: pm.Poisson("people", 400), "more people than the 20 slots"),
    ],
)
def test_too_few_slots_are_refused_before_sampling(people, says):
    with pytest.raises(ValueError, match=says) as error:
        pm.sample(model=model_of(summed, people), **SHORT)
    assert "pm.Truncated('people', pm.Poisson.dist(...), upper=20)" in str(error.value)
    remedy = lambda: pm.Truncated("people", pm.Poisson.dist(6), upper=SLOTS)  # noqa: E731
    pm.sample(model=model_of(summed, remedy), **SHORT)


@pytest.mark.parametrize("step", [None, "records"])
def test_a_chain_that_reaches_more_people_than_slots_ends(step):
    def declare(people, x):
        summed(people, x)
        dp.LaplaceMechanism("c", people, scale=2, observed=26.0)

    with model_of(declare, lambda: pm.Poisson("people", 16)) as model:
        steps = {} if step is None else {"step": [dp.RecordImputation()]}
        with pytest.raises(ValueError, match="more people than the 20 slots of x"):
            pm.sample(model=model, **{**SHORT, "draws": 500}, **steps)


@pytest.mark.parametrize("fewer", [0, 1])
def test_masks_that_a_user_wrote(fewer):
    """By a variable they are counts, by an expression ordinary masks; neither makes people of empty slots."""
    with pm.Model() as model:
        people = pm.DiscreteUniform("people", 0, SLOTS)
        x = pm.Normal("x", pm.Normal("mu", 0, 1), 1, shape=SLOTS)
        rows = pt.switch(pt.arange(SLOTS) < (people - fewer if fewer else people), x, 0.0)
        dp.LaplaceMechanism("z", dp.record_sum(rows), scale=1, bounds=(1, 3), observed=2.0)
    (block,) = find_record_blocks(model)
    assert block.count is (None if fewer else people)
    values = {people: 5, x: np.linspace(-2, 4, SLOTS)}
    expected = np.clip(values[x][: 5 - fewer], 1, 3).sum()
    assert block.releases[0].query.eval(values) == pytest.approx(expected)
    pm.sample(model=model, **SHORT)


@pytest.mark.parametrize("count", [7, 7.0, np.int64(7), "people", pt.scalar("n", dtype="int64")])
def test_counts_that_are_no_variable(count):
    with pytest.raises(TypeError, match="`count` must be one whole-numbered random variable"):
        dp.record_sum(np.ones(3), count=count)


@pytest.mark.parametrize("dist", [lambda: pm.Gamma("n", 2, 1), lambda: pm.Poisson("n", 3, shape=2)])
def test_counts_of_another_kind(dist):
    with pm.Model(), pytest.raises(TypeError, match="`count` must be one whole-numbered random variable"):
        dp.record_sum(np.ones(3), count=dist())


def test_add_remove_is_refused_where_the_number_shows():
    x = np.linspace(0, 1, 7)
    with pytest.raises(ValueError, match="a row for each"):
        dp.LaplaceMechanism.release(pt.as_tensor(x), epsilon=1, bounds=(0, 1), neighbours="add-remove")
    for mean in (pt.as_tensor(x).mean(), dp.record_sum(x) / 7):
        with pytest.raises(ValueError, match="divides by that number"):
            dp.LaplaceMechanism.release(mean, epsilon=1, bounds=(0, 1), neighbours="add-remove")
    with pytest.raises(ValueError, match="neighbours"):
        dp.LaplaceMechanism.release(dp.record_sum(x), epsilon=1, bounds=(0, 1), neighbours="add")
    with pytest.raises(TypeError, match="takes no neighbours="):
        dp.RandomizedResponse.dist(np.array([0, 1]), epsilon=1, n_categories=2, neighbours="add-remove")
    with pytest.raises(ValueError, match="bounds="):
        dp.LaplaceMechanism.release(dp.record_sum(x), epsilon=1, neighbours="add-remove")


def test_the_number_of_people_moves_with_the_parameters():
    with model_of(summed):
        step = dp.AncillaryUpdate()
        assert {v.name for v in step.vars} == {"mu", "people"}
        with pytest.raises(ValueError, match="moves no whole numbers such as people"):
            dp.AncillaryUpdate(update="slice")
        dp.AncillaryUpdate([pm.modelcontext(None)["mu"]], update="slice")


# -- found by trying what the tests above had not ----------------------------------------------------


X, Y = (pt.as_tensor(np.linspace(0, 1, n)) for n in (7, 5))
NUMBER_SHOWS = {
    "means in a stack": lambda: pt.stack([X.mean(), Y.mean()]),
    "a mean beside a sum": lambda: pt.stack([X.mean(), dp.record_sum(Y)]),
    "rows times their number": lambda: dp.record_sum(X * X.shape[0]),
    "rows and their number": lambda: dp.record_sum(X + X.size),
    "rows over their number": lambda: dp.record_sum(X / X.shape[0]),
}


@pytest.mark.parametrize("name", NUMBER_SHOWS)
def test_queries_that_compute_with_the_number(name):
    """One record more changes all rows, and what is published would follow the number."""
    with pytest.raises(ValueError, match="computes with a length"):
        dp.LaplaceMechanism.release(NUMBER_SHOWS[name](), epsilon=1, bounds=(0, 10), neighbours="add-remove")


@pytest.mark.parametrize("query", [lambda: dp.clamp(X, 0, 1), lambda: X + 1], ids=["clamped", "computed"])
def test_a_row_for_each_is_refused_with_a_sensitivity_too(query):
    with pytest.raises(ValueError, match="a row for each"):
        dp.LaplaceMechanism.release(query(), epsilon=1, sensitivity=1, neighbours="add-remove")
    with model_of(lambda people, x: None) as model, pytest.raises(ValueError, match="a row for each"):
        dp.LaplaceMechanism("z", model["x"], epsilon=1, sensitivity=1, neighbours="add-remove")


def test_slots_are_no_number_of_people():
    """A sum over 1000 stays what was published, also where there are as many slots."""
    data = np.linspace(0, 1, 23)
    noise = {"epsilon": 1, "bounds": (0, 1), "neighbours": "add-remove"}
    released = dp.LaplaceMechanism.release(dp.record_sum(data) / SLOTS, **noise)
    model = model_of(
        lambda people, x: dp.LaplaceMechanism("z", dp.record_sum(x, count=people) / SLOTS, observed=released)
    )
    assert dp.guarantee(model).epsilon == 1


def test_messages_hide_values_and_numbers():
    secret = np.array([0.123456, 0.654321])
    for count in (secret, 97):
        with pytest.raises(TypeError) as error:
            dp.record_sum(secret, count)
        assert "97" not in str(error.value) and "0.12" not in str(error.value)
    with pytest.raises(ValueError) as error:
        dp.PerturbedHistogram.release(
            np.zeros((97, 4)), bounds=(0, 1), n_bins=3, epsilon=1, neighbours="add-remove"
        )
    assert "97" not in str(error.value)


OTHER_MASKS = {
    "along another axis": lambda k, x: pt.switch(pt.arange(3) < k, x, 0.0),
    "from another number": lambda k, x: pt.switch(pt.arange(3, 9)[:, None] < k, x, 0.0),
    "of every second": lambda k, x: pt.switch(pt.arange(0, 12, 2)[:, None] < k, x, 0.0),
}


@pytest.mark.parametrize("name", OTHER_MASKS)
def test_masks_that_count_no_people(name):
    """They are clamped with the rest of what a record contributes."""
    with pm.Model() as model:
        k = pm.DiscreteUniform("k", 0, 12)
        x = pm.Normal("x", pm.Normal("mu", 0, 1), 1, shape=(6, 3))
        dp.LaplaceMechanism(
            "z", dp.record_sum(OTHER_MASKS[name](k, x)), scale=2.0, bounds=(-2, 1), observed=[1.0, 0.0, 1.0]
        )
    (block,) = find_record_blocks(model)
    assert block.count is None
    values = np.linspace(-4, 4, 18).reshape(6, 3)
    rows = OTHER_MASKS[name](pt.constant(4), pt.as_tensor(values)).eval()
    query = block.releases[0].query.eval({k: 4, x: values})
    np.testing.assert_allclose(query, np.clip(rows, -2, 1).sum(axis=0))


def test_nobody_has_no_mean():
    with pm.Model():
        people = pm.DiscreteUniform("people", 0, SLOTS)
        x = pm.Normal("x", pm.Normal("mu", 0, 1), 1, shape=SLOTS)
        dp.LaplaceMechanism("z", dp.record_sum(x, count=people) / people, scale=5.0, observed=2.0)
        idata = pm.sample(400, tune=200, chains=2, cores=1, random_seed=1, progressbar=False, quiet=True)
    assert int(idata.posterior["people"].min()) > 0
    assert int(idata.posterior["people"].min()) < 6


def test_steps_that_would_leave_the_number_where_it_is():
    with model_of(summed) as model:
        with pytest.raises(ValueError, match="`n_ancillary` = 0 moves no whole numbers such as people"):
            dp.AncillaryUpdate(n_ancillary=0)
        dp.AncillaryUpdate([model["mu"]], n_ancillary=0)
    with pm.Model() as model:
        people = pm.DiscreteUniform("people", 0, SLOTS)
        x = pm.VonMises("x", pm.Normal("mu", 0, 1), 2, shape=SLOTS)
        summed(people, x)
        with pytest.raises(ValueError, match=r"people in `vars`.*pm.sample chooses a step"):
            dp.AncillaryUpdate([people])


def test_a_number_that_is_set_is_none():
    """Then the first six of the records are summed, and nothing counts them."""
    with model_of(summed) as model:
        known = pm.do(model, {"people": 6})
    (block,) = find_record_blocks(known)
    assert block.count is None
    x = np.linspace(-2, 4, SLOTS)
    assert block.releases[0].query.eval({known["x"]: x}) == pytest.approx(x[:6].sum())
    assert "people" not in pm.sample(model=known, **SHORT).posterior


def test_a_number_that_no_model_has():
    with pm.Model():
        x = pm.Normal("x", shape=SLOTS)
        with pytest.raises(TypeError, match="random variable of the model"):
            dp.record_sum(x, count=pm.Poisson.dist(3))


def alike(query):
    with pm.Model() as model:
        people = pm.DiscreteUniform("people", 0, 3)
        g = pm.Categorical("g", pm.Dirichlet("p", np.ones(3)), shape=3)
        dp.LaplaceMechanism("z", query(people, g), scale=1.0, observed=[1.0, 1.0, 0.0])
    return model


@pytest.mark.parametrize(
    "query",
    [
        lambda n, g: dp.record_sum(pt.eq(g[:, None], np.arange(3)), count=n),
        lambda n, g: dp.record_sum(pt.eq(g[:, None], pt.arange(3)), count=n),
        lambda n, g: dp.record_sum(g[:, None] ** pt.arange(3), count=n),
    ],
    ids=["categories", "an index of them", "powers"],
)
def test_what_is_public_of_all_may_be_as_long_as_the_slots(query):
    (block,) = find_record_blocks(alike(query))
    assert str(block.count.name) == "people"


def test_observed_covariates_are_covariates():
    with pm.Model() as model:
        people = pm.DiscreteUniform("people", 0, SLOTS)
        known = pm.Normal("known", pm.Normal("m"), 1, observed=np.linspace(0, 1, SLOTS))
        x = pm.Normal("x", 0, 1, shape=SLOTS)
        summed(people, x * known)
    with pytest.raises(ValueError, match=r"known of shape .* differs between slots"):
        find_record_blocks(model)


def test_a_count_in_the_form_of_a_sum():
    """As the custodian may write it: bounds are for ones, of which as many are added as there are people."""
    noise = {"epsilon": 1, "neighbours": "add-remove", "bounds": (0, 1)}
    number = dp.LaplaceMechanism.release(dp.record_sum(np.ones(9)), **noise)

    def declare(people, x):
        dp.LaplaceMechanism("z", dp.record_sum(x, count=people), **noise, observed=3.0)
        dp.LaplaceMechanism("c", dp.record_sum(np.ones(SLOTS), count=people), observed=number)

    model = model_of(declare)
    assert dp.guarantee(model).epsilon == 2
    pm.sample(model=model, **SHORT)


def test_slots_in_data_that_are_set_anew():
    with pm.Model() as model:
        rows = pm.Data("rows", np.zeros(SLOTS))
        people = pm.DiscreteUniform("people", 0, 12)
        x = pm.Normal("x", pm.Normal("mu") + rows, 1, shape=rows.shape)
        z = dp.LaplaceMechanism(
            "z",
            dp.record_sum(x, count=people),
            epsilon=1,
            bounds=(-1, 2),
            neighbours="add-remove",
            observed=1.0,
        )
        pm.set_data({"rows": np.zeros(15)})
    assert dp.guarantee(z).epsilon == 1
    pm.sample(model=model, **SHORT)
