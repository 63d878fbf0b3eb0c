"""Unary encoding: density by hand, draws, guarantees, messages."""

import itertools
import math

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
import scipy.stats as st

import pymc_dp as dp

both_variants = pytest.mark.parametrize("variant", ["symmetric", "optimized"])


def bit_probabilities(epsilon, variant):
    if variant == "symmetric":
        return 1 / (1 + math.exp(-epsilon / 2)), 1 / (1 + math.exp(epsilon / 2))
    return 0.5, 1 / (1 + math.exp(epsilon))


def channel(k, epsilon, variant):
    """All bit patterns, and the matrix of their probabilities by category."""
    p, q = bit_probabilities(epsilon, variant)
    patterns = np.array(list(itertools.product([0, 1], repeat=k)))
    one = np.where(np.eye(k, dtype=bool), p, q)
    return patterns, np.where(patterns == 1, one[:, None], 1 - one[:, None]).prod(-1)


@pytest.mark.usefixtures("python_mode")
@both_variants
@pytest.mark.parametrize(("k", "epsilon"), [(2, 0.1), (3, 1.0), (5, 4.0)])
def test_density_and_guarantee(k, epsilon, variant):
    patterns, q = channel(k, epsilon, variant)
    for c in range(k):
        z = dp.UnaryEncoding.dist(c, epsilon=epsilon, variant=variant, n_categories=k)
        np.testing.assert_allclose(pm.logp(z, patterns).eval(), np.log(q[c]), rtol=1e-11)
    assert z.type.shape == (k,)
    z = dp.UnaryEncoding.dist(np.arange(k), epsilon=epsilon, variant=variant, n_categories=k)
    np.testing.assert_allclose(pm.logp(z, patterns[:k]).eval(), np.log(q[np.arange(k), np.arange(k)]))
    worst = np.abs(np.log(q[:, None, :] / q[None, :, :])).max()
    assert dp.guarantee(z).epsilon == pytest.approx(worst, rel=1e-12)


@both_variants
def test_density_at_any_epsilon_and_outside(variant):
    z = dp.UnaryEncoding.dist(1, epsilon=3000, variant=variant, n_categories=3)
    logp = pm.logp(z, [[0, 1, 0], [0, 0, 0], [1, 0, 0], [0, 2, 0]]).eval()
    half = math.log(0.5) if variant == "optimized" else 0.0
    miss = math.log(0.5) if variant == "optimized" else -1500.0
    spurious = miss - (3000 if variant == "optimized" else 1500)
    np.testing.assert_allclose(logp, [half, miss, spurious, -np.inf])


@both_variants
@pytest.mark.filterwarnings("error")  # numba would warn if it left native code
def test_draws_follow_the_density(variant, seeded_entropy):
    truth = np.repeat(np.arange(3), 20_000)
    _, q = channel(3, 0.8, variant)
    z = dp.UnaryEncoding.dist(truth, epsilon=0.8, variant=variant, n_categories=3)
    secure = dp.UnaryEncoding.release(truth, epsilon=0.8, variant=variant, n_categories=3).value
    for draws in (pm.draw(z, random_seed=3), secure):
        which = draws @ [4, 2, 1]
        for c in range(3):
            counts = np.bincount(which[truth == c], minlength=8)
            assert st.chisquare(counts, 20_000 * q[c]).pvalue > 1e-4
        # power: another epsilon is seen
        wrong = channel(3, 1.0, variant)[1][0]
        assert st.chisquare(np.bincount(which[truth == 0], minlength=8), 20_000 * wrong).pvalue < 1e-4


@pytest.mark.statistical
@both_variants
def test_posterior_is_that_of_enumeration(variant):
    k, n, epsilon = 3, 4, 1.5
    z = np.array([[1, 0, 1], [0, 0, 0], [0, 1, 0], [0, 1, 1]])
    _, q = channel(k, epsilon, variant)
    which = z @ [4, 2, 1]
    tables, weights = np.array(list(np.ndindex(*(k,) * n))), []
    for c in tables:
        counts = np.bincount(c, minlength=k)
        log_prior = sum(math.lgamma(1 + a) for a in counts) - math.lgamma(k + n)
        weights.append(q[c, which].prod() * math.exp(log_prior))
    weights = np.array(weights) / np.sum(weights)
    exact = sum(w * (1 + np.bincount(c, minlength=k)) for w, c in zip(weights, tables, strict=True)) / (k + n)
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.ones(k))
        c = pm.Categorical("c", p, shape=n)
        dp.UnaryEncoding("z", c, epsilon=epsilon, variant=variant, observed=z)
    idata = pm.sample(2000, tune=500, chains=2, cores=1, model=model, random_seed=3, progressbar=False)
    summary = pm.stats.summary(idata, var_names=["p"], kind="all", round_to="none")
    np.testing.assert_array_less(abs(summary["mean"] - exact), 4.5 * summary["mcse_mean"])


BAD = {
    "no noise level": ({"n_categories": 3}, ValueError, "got none. Choose epsilon="),
    "epsilon negative": (
        {"n_categories": 3, "epsilon": -1},
        ValueError,
        "epsilon must be a finite number > 0",
    ),
    "epsilon nan": ({"n_categories": 3, "epsilon": math.nan}, ValueError, "epsilon must be a finite"),
    "variant": ({"n_categories": 3, "epsilon": 1, "variant": "best"}, ValueError, "one of 'symmetric', 'opt"),
    "categories": ({"epsilon": 1}, ValueError, "Give n_categories="),
    "p_truth": ({"n_categories": 3, "epsilon": 1, "p_truth": 0.9}, TypeError, "unexpected keyword argument"),
}


@pytest.mark.parametrize(("kwargs", "error", "message"), BAD.values(), ids=BAD)
def test_bad_arguments(kwargs, error, message):
    with pytest.raises(error, match=message):
        dp.UnaryEncoding.dist(0, **kwargs)


@pytest.mark.parametrize(
    ("observed", "message"),
    [
        ([[0, 1, 2], [0, 0, 0]], r"observed has the value 2 at index \(0, 2\), which is not a bit"),
        ([[0, 1, 0.5], [0, 0, 0]], "observed has the value 0.5"),
        ([[0, 1], [0, 0]], r"shape \(2, 2\), but the query gives one of shape \(2, 3\)"),
        ([0, 1], "observed means a release of shape"),
    ],
)
def test_bad_bits(observed, message):
    with pm.Model() as model:
        c = pm.Categorical("c", np.ones(3) / 3, shape=2)
        with pytest.raises(ValueError, match=message):
            dp.UnaryEncoding("z", c, epsilon=1, observed=observed)
    assert "z" not in model.named_vars


def test_release_and_back():
    release = dp.UnaryEncoding.release([0, 1, 2, 2], epsilon=3, variant="optimized", n_categories=3)
    assert dp.Release.from_json(release.to_json()) == release
    with pm.Model():
        c = pm.Categorical("c", np.ones(3) / 3, shape=4)
        z = dp.UnaryEncoding("z", c, observed=release)
        assert dp.guarantee(z).epsilon == 3 and z.owner.op.variant == "optimized"
        with pytest.raises(ValueError, match="contradicts the release"):
            dp.UnaryEncoding("w", c, variant="symmetric", observed=release)


# --- counts --------------------------------------------------------------------------------------


def exact_totals(probs, n, z, p, q):
    """Log probability of totals, and expected table, by a sum over all confidential tables.

    The table is a vector of independent Poisson numbers given that they add up to n.
    """
    c = np.arange(n + 1)

    def of_category(j):
        noisy = [
            np.convolve(st.binom.pmf(c[: m + 1], m, p), st.binom.pmf(c[: n - m + 1], n - m, q)) for m in c
        ]
        return st.poisson.pmf(c, n * probs[j]) * np.array([law[z[j]] for law in noisy])

    def adding_up(sequences):
        out = np.ones(1)
        for s in sequences:
            out = np.convolve(out, s)[: n + 1]
        return out[n]

    terms = [of_category(j) for j in range(len(probs))]
    total = adding_up(terms)
    weighted = [adding_up([t * c if i == j else t for i, t in enumerate(terms)]) for j in range(len(probs))]
    return math.log(total) - st.poisson.logpmf(n, n), np.array(weighted) / total


@pytest.mark.usefixtures("python_mode")
@pytest.mark.compiles(1)
@both_variants
@pytest.mark.parametrize(("k", "n"), [(2, 1), (3, 3), (3, 11), (4, 60), (3, 250)])
def test_law_of_totals_is_the_sum_over_confidential_tables(k, n, variant):
    rng = np.random.default_rng(k * n)
    cases = []
    for epsilon in (0.1, 1.0, 4.0, 12.0):
        p, q = bit_probabilities(epsilon, variant)
        for concentration in (1.0, 0.3, 0.05):
            probs = np.maximum(rng.dirichlet(np.full(k, concentration)), 1e-9)
            probs /= probs.sum()
            # totals as expected, and far from that where the sum does not underflow
            for at in (probs, np.full(k, 1 / k)) if n < 100 else (probs,):
                c = rng.multinomial(n, at)
                cases.append((epsilon, probs, rng.binomial(c, p) + rng.binomial(n - c, q)))
        if n < 20:  # beyond, the sum underflows
            cases.append((epsilon, np.full(k, 1 / k), np.full(k, n)))
            cases.append((epsilon, np.full(k, 1 / k), np.r_[n, np.zeros(k - 1, dtype=int)]))
    for epsilon in (0.1, 1.0, 4.0, 12.0):
        mine = [(probs, z) for e, probs, z in cases if e == epsilon]
        probs = pt.as_tensor(np.array([m[0] for m in mine]))
        logp = pm.logp(
            dp.UnaryEncoding.dist(probs, n=n, epsilon=epsilon, variant=variant),
            np.array([m[1] for m in mine]),
        )
        value, gradient = pytensor.function([], [logp, pt.grad(logp.sum(), probs)])()
        for i, (pi, z) in enumerate(mine):
            exact, table = exact_totals(pi, n, z, *bit_probabilities(epsilon, variant))
            assert value[i] == pytest.approx(exact, rel=1e-9, abs=1e-9)
            np.testing.assert_allclose(gradient[i] * pi, table, rtol=1e-6, atol=1e-6)


@pytest.mark.usefixtures("python_mode")
@both_variants
def test_totals_of_two_people_by_enumeration(variant):
    probs, k, n = np.array([0.2, 0.5, 0.3]), 3, 2
    patterns, q = channel(k, 0.9, variant)
    exact = {}
    for c in itertools.product(range(k), repeat=n):
        for a in itertools.product(range(len(patterns)), repeat=n):
            totals = tuple(patterns[list(a)].sum(0))
            exact[totals] = exact.get(totals, 0) + probs[list(c)].prod() * q[list(c), list(a)].prod()
    tables = np.array(list(exact))
    z = dp.UnaryEncoding.dist(np.tile(probs, (len(tables), 1)), n=n, epsilon=0.9, variant=variant)
    np.testing.assert_allclose(np.exp(pm.logp(z, tables).eval()), list(exact.values()), rtol=1e-10)
    outside = pm.logp(dp.UnaryEncoding.dist(probs, n=n, epsilon=0.9), [[3, 0, 0], [0, -1, 0]])
    np.testing.assert_array_equal(outside.eval(), -np.inf)
    assert dp.guarantee(z).epsilon == 0.9


@both_variants
@pytest.mark.parametrize("n", [10**4, 10**6, 10**9])
def test_totals_of_many_people(n, variant):
    """Close to the normal law that the totals tend to, and much closer the more people there are."""
    rng = np.random.default_rng(n)
    probs = rng.dirichlet(np.ones(8))
    p, q = bit_probabilities(1.0, variant)
    z = dp.UnaryEncoding.dist(probs, n=n, epsilon=1.0, variant=variant)
    totals = pm.draw(z, random_seed=1)
    mean = n * (q + (p - q) * probs)
    cov = (p - q) ** 2 * (np.diag(probs) - np.outer(probs, probs))
    cov = n * (cov + np.diag(probs * p * (1 - p) + (1 - probs) * q * (1 - q)))
    assert pm.logp(z, totals).eval() == pytest.approx(
        st.multivariate_normal.logpdf(totals, mean, cov), abs=30 / math.sqrt(n) + 2e-4
    )


@pytest.mark.filterwarnings("error")
@both_variants
def test_totals_are_drawn_from_their_law(variant):
    probs = np.array([0.7, 0.2, 0.1])
    z = dp.UnaryEncoding.dist(np.tile(probs, (6000, 1)), n=3, epsilon=1.5, variant=variant)
    draws = pm.draw(z, random_seed=4)
    tables = np.array(list(itertools.product(range(4), repeat=3)))
    law = dp.UnaryEncoding.dist(np.tile(probs, (64, 1)), n=3, epsilon=1.5, variant=variant)
    mass = np.exp(pm.logp(law, tables).eval())
    assert mass.sum() == pytest.approx(1)
    counts = np.bincount(draws @ [16, 4, 1], minlength=64)
    rare = 6000 * mass < 5
    seen, meant = np.append(counts[~rare], counts[rare].sum()), np.append(mass[~rare], mass[rare].sum())
    assert st.chisquare(seen, 6000 * meant).pvalue > 1e-4


@pytest.mark.statistical
def test_posterior_from_totals():
    """NUTS on totals of many people finds their proportions; messages of what cannot be."""
    truth = np.array([0.5, 0.3, 0.2])
    totals = pm.draw(dp.UnaryEncoding.dist(truth, n=10**6, epsilon=2), random_seed=2)
    with pm.Model():
        p = pm.Dirichlet("p", np.ones(3))
        dp.UnaryEncoding("z", p, n=10**6, epsilon=2, observed=totals)
        idata = pm.sample(300, tune=500, chains=2, cores=1, random_seed=1, progressbar=False)
    draws = idata.posterior["p"].values.reshape(-1, 3)
    assert (abs(draws.mean(0) - truth) < 4 * draws.std(0)).all()
    # each total says as much as a binomial count with this slope, or a little more
    a, b = bit_probabilities(2, "symmetric")
    rate = a * truth + b * (1 - truth)
    alone = np.sqrt(rate * (1 - rate) / 1e6) / (a - b)
    assert (draws.std(0) < 1.1 * alone).all() and (draws.std(0) > 0.6 * alone).all()


@pytest.mark.parametrize(
    ("observed", "message"),
    [
        ([3, 4, 11], r"observed has the value 11 at index \(2,\), which is not a count: .* at most n = 10"),
        ([3, -4, 1], "observed has the value -4"),
        ([3, 4.5, 1], "observed has the value 4.5"),
        ([3, 4], "observed means a release of shape"),
    ],
)
def test_bad_totals(observed, message):
    with pm.Model():
        p = pm.Dirichlet("p", np.ones(3))
        with pytest.raises(ValueError, match=message):
            dp.UnaryEncoding("z", p, n=10, epsilon=1, observed=observed)
    with pytest.raises(ValueError, match="without n="):
        dp.UnaryEncoding.release(np.ones(3) / 3, n=10, epsilon=1)


def test_tables_of_one_release_are_of_different_people():
    """A person is in one of them: epsilon once; two releases are of the same people, and add up."""
    counts = [3, 3, 4]
    with pm.Model() as one:
        p = pm.Dirichlet("p", np.ones(3), shape=(2, 3))
        dp.UnaryEncoding("z", p, n=10, epsilon=1, observed=[counts, counts])
    with pm.Model() as two:
        p = pm.Dirichlet("p", np.ones(3), shape=(2, 3))
        for j in range(2):
            dp.UnaryEncoding(f"z{j}", p[j], n=10, epsilon=1, observed=counts)
    assert (dp.guarantee(one).epsilon, dp.guarantee(two).epsilon) == (1, 2)
    assert "must be of different people" in dp.UnaryEncoding.__doc__


@pytest.mark.usefixtures("python_mode")
@pytest.mark.parametrize("form", ["an array", "a list", "a release"])
def test_bits_may_be_booleans(form):
    bits = np.array([[True, False, True], [False, False, True]])
    with pm.Model() as model:
        c = pm.Categorical("c", np.ones(3) / 3, shape=2)
        observed = {
            "an array": bits, "a list": bits.tolist(),
            "a release": dp.Release(bits, "UnaryEncoding", {"epsilon": 1.0, "n_categories": 3}),
        }[form]  # fmt: skip
        given = {} if form == "a release" else {"epsilon": 1.0}
        dp.UnaryEncoding("z", c, observed=observed, **given)
        dp.UnaryEncoding("same", c, observed=bits.astype(int), epsilon=1.0)
        answer = pm.Bernoulli("answer", 0.5, shape=2)
        dp.RandomizedResponse("yes", answer, observed=bits[:, 0], epsilon=1.0)
    logs = model.point_logps({"c": np.array([0, 2]), "answer": np.array([1, 1])}, round_vals=12)
    assert logs["z"] == logs["same"] != 0 and np.isfinite(logs["yes"])


@pytest.mark.parametrize(
    ("query", "message"),
    [(pm.Normal.dist(shape=4), "it uses"), (pm.Binomial.dist(3, 0.5, shape=4), r"the values 0, \.\.\., 3")],
)
def test_records_that_are_no_categories_are_refused(query, message):
    with pytest.raises(ValueError, match=message):
        dp.UnaryEncoding.dist(query, n_categories=3, epsilon=1)
