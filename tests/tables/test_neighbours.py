"""Neighbours of tables: whose the cells are when people are added or removed."""

import re

import numpy as np
import pymc as pm
import pytest

import pymc_dp as dp


@pytest.mark.parametrize("shape", [(3,), (2, 3)])
@pytest.mark.parametrize("law", ["poisson", "multinomial", "binomial"])
def test_cells_are_not_people_whose_number_could_be_hidden(law, shape):
    """Where people are added or removed, the number of cells stays; rows of people are refused."""
    declare = {
        "poisson": lambda: pm.Poisson("c", 3.0, shape=shape),
        "multinomial": lambda: pm.Multinomial("c", 20, np.ones(shape) / shape[-1]),
        "binomial": lambda: pm.Binomial("c", 20, 0.2, shape=shape),
    }[law]
    noise = {"scale": 2.0, "neighbours": "add-remove"}
    with pm.Model():
        c = declare()
        z = dp.DiscreteLaplaceMechanism("z", c, sensitivity=1, **noise)
        assert dp.guarantee(z) == dp.PrivacyGuarantee(0.5, neighbours="add-remove")
        answers = pm.Bernoulli("answers", 0.3, shape=shape)
        for query in (answers, answers + c):
            with pytest.raises(ValueError, match="hides how many people there are"):
                dp.DiscreteLaplaceMechanism("of people", query, sensitivity=1, **noise)
        with pytest.raises(ValueError, match="hides how many people there are"):
            dp.DiscreteLaplaceMechanism("clamped", pm.Poisson("visits", 3.0, shape=9), bounds=(0, 5), **noise)


def test_an_array_of_counts_is_released_from_rows():
    """The refusal says how, and what it would mean to leave the neighbours out."""
    category = np.array([0, 1, 1, 2])
    noise = {"rho": 0.1, "sensitivity": 1, "neighbours": "add-remove"}
    release = dp.DiscreteGaussianMechanism.release
    with pytest.raises(ValueError, match="hides how many people there are") as refused:
        release(np.bincount(category), **noise)
    message = str(refused.value)
    assert "replace-one: one person is exchanged for another, and how many there are is public" in message
    (code,) = re.findall(r"(dp\.record_sum\(category.*?\)\)), with sensitivity=1", message)
    query = eval(code, {"dp": dp, "np": np, "category": category, "k": 3})
    assert query.eval().tolist() == [1, 2, 1]
    assert release(query, **noise).guarantee == dp.PrivacyGuarantee(np.inf, rho=0.1, neighbours="add-remove")


def test_published_tables_say_that_people_are_added_or_removed():
    """Their guarantee is found without a query; whole numbers were taken for rows of people."""
    people = np.eye(3, dtype=int)[[0, 1, 1, 2]]
    release = dp.DiscreteLaplaceMechanism.release(
        dp.record_sum(people), scale=2.0, bounds=(0, 1), neighbours="add-remove"
    )
    assert dp.guarantee(release) == release.guarantee == dp.PrivacyGuarantee(1.5, neighbours="add-remove")
