"""Which parameters go with a table: told by the graph, and left to other steps where anything differs."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_dp as dp
from tests.steps import assigned
from tests.tables.parameter_models import CASES

WITH_TABLE, NUTS = "TableImputation", "NUTS"


def noisy(c):
    dp.DiscreteGaussianMechanism("z", c, sigma=2.0, observed=np.ones(c.type.shape, dtype=int))
    dp.DiscreteGaussianMechanism("total", c.sum(), sigma=2.0, observed=7)


@pytest.mark.parametrize("name", CASES)
def test_small_tables_take_their_parameters(name):
    found = assigned(CASES[name].build())
    assert found.pop("a", WITH_TABLE) == (NUTS if CASES[name].grid else WITH_TABLE)
    assert set(found.values()) == {WITH_TABLE}


def ordered():
    return pm.distributions.transforms.ordered


def read_by_a_release():
    rate = pm.Gamma("p", 2, 1, shape=3)
    noisy(pm.Poisson("c", rate))
    dp.LaplaceMechanism("other", pm.Normal("y", rate, 1.0), scale=1.0, observed=np.zeros(3))


def read_by_a_noise_level():
    rate = pm.Gamma("p", 2, 1, shape=3)
    c = pm.Poisson("c", rate)
    noisy(c)
    dp.LaplaceMechanism("other", c[:2].sum(), scale=rate[0], observed=1.0)


def read_by_public_data():
    p = pm.Dirichlet("p", np.ones(3))
    noisy(pm.Multinomial("c", 10, p))
    pm.Multinomial("public", 7, p, observed=[3, 3, 1])


def read_by_a_potential():
    p = pm.Dirichlet("p", np.ones(3))
    noisy(pm.Multinomial("c", 10, p))
    pm.Potential("more", pt.log(p[0]))


def read_by_another_law():
    p = pm.Gamma("p", 2, 1, shape=3)
    noisy(pm.Poisson("c", p * pm.Gamma("other", p.sum(), 1)))


def another_transform():
    noisy(pm.Poisson("c", pm.Gamma("p", 2, 1, shape=3, transform=ordered(), initval=[1.0, 2, 3])))


def a_sum_of_two_rates():
    p = pm.Gamma("p", 2, 1, shape=3)
    noisy(pm.Poisson("c", p + p[::-1]))


def a_rate_and_a_constant():
    noisy(pm.Poisson("c", 0.5 + pm.Gamma("p", 2, 1, shape=3)))


def an_unknown_exposure():
    noisy(pm.Poisson("c", pm.HalfNormal("e") * pm.Gamma("p", 2, 1, shape=3)))


def a_power():
    noisy(pm.Poisson("c", pm.Gamma("p", 2, 1, shape=3) ** 2))


def probabilities_of_two_rows():
    p = pm.Dirichlet("p", np.ones((2, 3)))
    noisy(pm.Multinomial("c", 10, pt.stack([p[0, 0], p[0, 1], p[1, 2]])))


def halves_of_two_rows():
    p = pm.Dirichlet("p", np.ones((2, 2)))
    noisy(pm.Multinomial("c", 10, p.ravel() / 2))


def a_mean_of_two_rows():
    p = pm.Dirichlet("p", np.ones((2, 3)))
    noisy(pm.Multinomial("c", 10, 0.5 * p[0] + 0.5 * p[1]))


def a_multiple_of_a_chance():
    noisy(pm.Binomial("c", 5, 0.5 * pm.Beta("p", 1, 2, shape=3)))


def a_chance_that_is_the_number_of_trials():
    p = pm.Gamma("p", 2, 1, shape=3)
    noisy(pm.Binomial("c", pt.cast(5 + p, "int64"), 0.5))


def another_law_of_the_parameter():
    noisy(pm.Poisson("c", pm.LogNormal("p", 0, 1, shape=3)))


def another_law_of_the_counts():
    noisy(pm.NegativeBinomial("c", mu=pm.Gamma("p", 2, 1, shape=3), alpha=2.0))


def counts_with_too_many_zeros():
    noisy(pm.ZeroInflatedPoisson("c", 0.5, pm.Gamma("p", 2, 1, shape=3)))


LEFT = [
    read_by_a_release, read_by_a_noise_level, read_by_public_data, read_by_a_potential, read_by_another_law,
    another_transform, a_sum_of_two_rates, a_rate_and_a_constant, an_unknown_exposure, a_power,
    probabilities_of_two_rows, halves_of_two_rows, a_mean_of_two_rows, a_multiple_of_a_chance,
    a_chance_that_is_the_number_of_trials, another_law_of_the_parameter, another_law_of_the_counts,
    counts_with_too_many_zeros,
]  # fmt: skip


@pytest.mark.parametrize("build", LEFT)
def test_left_to_other_steps(build):
    with pm.Model() as model:
        build()
    found = assigned(model)
    assert found["c"] == WITH_TABLE
    assert found["p"] != WITH_TABLE


def test_lengths_do_not_decide():
    """As many rates as cells, of which the cells read one: told by the graph, not by lengths."""
    for pick, shared in ((slice(None), 0), (np.array([0, 0, 2]), 1)):
        with pm.Model() as model:
            rate = pm.Gamma("p", 2, 1, shape=3)
            noisy(pm.Poisson("c", rate[pick]))
            (part,) = dp.TableImputation(model=model).parts
        assert part.behind[0].shared.size == shared


def table():
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.ones(3))
        c = pm.Multinomial("c", 10, p)
        dp.DiscreteGaussianMechanism("z", c, sigma=2.0, observed=[3, 4, 2])
    return model


def test_asked_for_and_refused_by_name():
    model = table()
    p, c = model["p"], model["c"]
    with model:
        both, counts, drawn = (dp.TableImputation(v) for v in ([c, p], [c], [p]))
        nuts = pm.NUTS([p])
    assert both.parts[0].parameters == ["p_simplex__"]
    assert not counts.parts[0].parameters
    assert not drawn.parts
    assert assigned(model, [counts, nuts]) == {"p": NUTS, "c": WITH_TABLE}
    assert assigned(model, [nuts]) == {"p": NUTS, "c": WITH_TABLE}
    assert drawn.stats_dtypes == [{}]
    idata = pm.sample(
        model=model, step=[counts, drawn], draws=20, tune=20, chains=1, progressbar=False, quiet=True
    )
    assert idata.sample_stats["table_acceptance"].dims == ("chain", "draw")


def test_parameters_that_are_not_known_are_refused_by_name():
    with pm.Model() as model:
        p = pm.LogNormal("p", 0, 1, shape=3)
        noisy(pm.Poisson("c", p))
        with pytest.raises(ValueError, match=r"p in `vars`: TableImputation does not move"):
            dp.TableImputation([model["c"], p])


def test_exposures_that_are_data_are_read_again():
    with pm.Model() as model:
        exposure = pm.Data("exposure", np.ones(3))
        rate = pm.Gamma("rate", 2, 1, shape=3)
        c = pm.Poisson("c", rate * exposure)
        dp.DiscreteGaussianMechanism("z", c, sigma=0.5, observed=[50, 50, 50])
        dp.DiscreteGaussianMechanism("total", c.sum(), sigma=0.5, observed=150)
        step = dp.TableImputation()
    means = []
    for value in (1.0, 100.0):
        pm.set_data({"exposure": np.full(3, value)}, model=model)
        step.setup_chain(1, 0, 50)
        point, seen = model.initial_point(), []
        for _ in range(50):
            point, _ = step.step(point)
            seen.append(np.exp(point["rate_log__"]))
        means.append(np.mean(seen))
    assert 20 < means[0] < 60
    assert means[1] < 1


def test_small_concentrations_do_not_underflow():
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.full(4, 1e-3))
        c = pm.Multinomial("c", 5, p)
        dp.DiscreteGaussianMechanism("z", c, sigma=1.0, observed=[3, 2, 0, 0])
        step = dp.TableImputation()
    step.setup_chain(1, 0, 30)
    point = model.initial_point()
    logp = model.compile_logp()
    for _ in range(30):
        point, _ = step.step(point)
        assert np.isfinite(point["p_simplex__"]).all()
        assert np.isfinite(logp(point))


def test_one_cell():
    with pm.Model() as model:
        rate = pm.Gamma("rate", 2, 1, shape=(1, 1))
        c = pm.Poisson("c", rate)
        dp.DiscreteGaussianMechanism("z", c, sigma=1.0, observed=[[3]])
        dp.Invariant("known", c, observed=[[4]])
        step = dp.TableImputation()
    step.setup_chain(1, 0, 30)
    point, _ = step.step(model.initial_point())
    assert point["c"] == 4
