"""Tables of several groups under one release, by enumeration: each person is in one of them."""

import itertools
import math

import numpy as np
import pymc as pm
import pytest

import pymc_dp as dp

K, PEOPLE = 3, (2, 1)  # categories, and the number of people in each group
PROBS = np.array([[0.6, 0.3, 0.1], [0.2, 0.3, 0.5]])


def reports(mechanism, epsilon):
    """All that one person can add to a table, and its probability given each category."""
    if mechanism == "RandomizedResponse":
        channel = np.ones((K, K)) + (math.exp(epsilon) - 1) * np.eye(K)
        return np.eye(K, dtype=int), channel / channel.sum(1, keepdims=True)
    bits = np.array(list(itertools.product([0, 1], repeat=K)))
    p = 1 / (1 + math.exp(-epsilon / 2))  # a bit is told as it is
    return bits, np.array([np.prod(np.where(bits == np.eye(K)[c], p, 1 - p), axis=1) for c in range(K)])


def law_of_table(categories, given):
    """Probability of each total of the reports of people with these categories."""
    contributions, channel = given
    law = {(0,) * K: 1.0}
    for c in categories:
        after = {}
        for (table, mass), (own, weight) in itertools.product(
            law.items(), zip(contributions, channel[c], strict=True)
        ):
            key = tuple(int(v) for v in np.add(table, own))
            after[key] = after.get(key, 0.0) + mass * weight
        law = after
    return law


def groups(size):
    return list(itertools.product(range(K), repeat=size))


NOISES = [
    ("RandomizedResponse", {"epsilon": 0.9}, (0.9, 0.9)),
    ("RandomizedResponse", {"p_truth": [0.5, 0.7]}, (math.log(2), math.log(14 / 3))),
    ("UnaryEncoding", {"epsilon": 0.9}, (0.9, 0.9)),
]
each = pytest.mark.parametrize(("mechanism", "noise", "epsilons"), NOISES)


@each
def test_density_is_that_of_people_who_report(mechanism, noise, epsilons):
    laws = []
    for size, probs, epsilon in zip(PEOPLE, PROBS, epsilons, strict=True):
        total = {}
        for people in groups(size):
            for table, mass in law_of_table(people, reports(mechanism, epsilon)).items():
                total[table] = total.get(table, 0.0) + mass * math.prod(probs[list(people)])
        laws.append(total)
    pairs = list(itertools.product(*laws))[::5]
    release = getattr(dp, mechanism).dist(np.tile(PROBS, (len(pairs), 1, 1)), n=PEOPLE, **noise)
    found = pm.logp(release, np.array(pairs)).eval(mode="FAST_COMPILE")
    exact = np.log([laws[0][one] * laws[1][other] for one, other in pairs])
    np.testing.assert_allclose(found.reshape(len(pairs), -1).sum(1), exact, rtol=1e-9)


@each
def test_a_person_is_in_one_table(mechanism, noise, epsilons):
    """Replacing one person changes one table: the costs of the groups do not add up."""
    promise = dp.guarantee(getattr(dp, mechanism).dist(PROBS, n=PEOPLE, **noise))
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.ones(K), shape=(2, K))
        getattr(dp, mechanism)("z", p, n=PEOPLE, **noise)
    assert dp.guarantee(model).epsilon == promise.epsilon
    worst, of_both = 0.0, 0.0
    for group, size in enumerate(PEOPLE):
        laws = {people: law_of_table(people, reports(mechanism, epsilons[group])) for people in groups(size)}
        change = 0.0
        for one, other in itertools.permutations(laws, 2):
            if np.sum(np.not_equal(one, other)) == 1:  # the other group's table is as likely as before
                change = max(change, max(math.log(mass / laws[other][t]) for t, mass in laws[one].items()))
        worst, of_both = max(worst, change), of_both + change
    assert promise.epsilon == pytest.approx(worst, rel=1e-12)
    assert of_both > 1.5 * promise.epsilon or "p_truth" in noise  # power: of a person in both
