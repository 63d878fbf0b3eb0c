"""What every step of mixtures is put through: run, stopped, continued, sent, run again."""

from copy import deepcopy

import cloudpickle
import numpy as np

# What the steps of a model have in common lives as long as one of them.
KEPT = []


def keep_alive(steps):
    """Return steps, or one, of a model that other tests take, too."""
    KEPT.append(steps)
    return steps


def run(step, point, n):
    trace = []
    for _ in range(n):
        point, stats = step.step(point)
        trace.append((point, stats))
    return trace


def same(one, other):
    return all(
        all(np.array_equal(p[name], q[name]) for name in p)
        and all(np.array_equal(s[key], t[key], equal_nan=True) for key in s)
        for (p, (s,)), (q, (t,)) in zip(one, other, strict=True)
    )


def equal(one, other):
    return all(np.array_equal(one.posterior[v], other.posterior[v]) for v in one.posterior.data_vars)


def check_continues(make, start, name, least):
    """In the middle of tuning: the same step, another one, or one that was pickled.

    More than ``least`` values of a variable are to be seen on the way.
    """
    step, other = make(), make()
    step.setup_chain(np.random.default_rng(1), 100, 100)
    middle = run(step, start, 40)[-1][0]
    state = deepcopy(step.sampling_state)
    sent = cloudpickle.loads(cloudpickle.dumps(step))
    expected = run(step, dict(middle), 30)
    assert len({tuple(p[name]) for p, _ in expected}) > least
    step.sampling_state = state
    assert same(run(step, dict(middle), 30), expected)
    other.setup_chain(np.random.default_rng(7), 100, 100)
    run(other, start, 5)
    other.sampling_state = state
    assert same(run(other, dict(middle), 30), expected)
    assert same(run(sent, dict(middle), 30), expected)


def check_begins_anew(make, start):
    """No chain learns from the one before it in the same process."""
    step, runs = make(), []
    for _ in range(2):
        step.setup_chain(np.random.default_rng(3), 50, 50)
        runs.append(run(step, start, 60))
    assert same(*runs)
