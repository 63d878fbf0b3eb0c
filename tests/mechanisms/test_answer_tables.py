"""Randomized response by a table of probabilities: laws by hand, exact posteriors, guarantees, messages."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
import scipy.stats as st
from pymc.logprob.utils import ParameterValueError

import pymc_dp as dp
from pymc_dp.mechanisms import _answers
from pymc_dp.mechanisms._response_forms import AnswerTables
from pymc_dp.privacy.entropy import NoEntropyError

DIE = np.array([[4 / 6, 2 / 6], [1 / 6, 5 / 6]])  # 1 and 2 force a yes, 6 a no
ONE_SIDED = np.array([[5 / 6, 1 / 6], [0, 1]])
TOLD = np.array([[0.5, 0.3, 0.2], [0.1, 0.6, 0.3], [0.25, 0.25, 0.5], [0.2, 0.45, 0.35]])
EACH = np.random.default_rng(3).dirichlet(np.ones(3), (5, 2))


def worst_ratio(table):
    """Largest log ratio by brute force: every answer, every pair of truths."""
    found = [0.0]
    for row, other in itertools.permutations(table, 2):
        for p, q in zip(row, other, strict=True):
            if p > 0:
                found.append(math.log(p / q) if q > 0 else math.inf)
    return max(found)


# --- densities and draws ---------------------------------------------------------------------------


def test_density_of_an_answer():
    truth, answer = np.divmod(np.arange(12), 3)
    given = pm.logp(dp.RandomizedResponse.dist(truth, p_answer=TOLD), answer).eval()
    np.testing.assert_allclose(np.exp(given).reshape(4, 3), TOLD, rtol=1e-14)
    outside = pm.logp(dp.RandomizedResponse.dist(1, p_answer=TOLD), [-1, 3, 8]).eval()
    np.testing.assert_array_equal(outside, -np.inf)


@pytest.mark.parametrize("answers", [[0, 1, 2, 1, 0], 1])
def test_a_table_for_each_person(answers):
    truth = [0, 1, 1, 0, 1]
    given = pm.logp(dp.RandomizedResponse.dist(truth, p_answer=EACH), answers).eval()
    np.testing.assert_allclose(np.exp(given), EACH[np.arange(5), truth, answers], rtol=1e-14)


def test_a_table_may_be_random():
    a = pt.dscalar("a")
    z = dp.RandomizedResponse.dist([0, 1], p_answer=[[a, 1 - a], [0.2, 0.8]])
    logp = pm.logp(z, [1, 1])
    fn = pytensor.function([a], [logp, pt.grad(logp.sum(), a)])
    value, slope = fn(0.6)
    np.testing.assert_allclose(value, np.log([0.4, 0.8]))
    assert slope == pytest.approx(-1 / 0.4)
    with pytest.raises(ParameterValueError, match="rows of p_answer sum to 1"):
        fn(-0.1)
    with pytest.raises(ValueError, match="is not known: p_answer is itself random"):
        dp.guarantee(z)


def test_uniform_lies_are_a_special_case():
    table = np.full((4, 4), 0.1) + 0.6 * np.eye(4)
    truth, answer = np.divmod(np.arange(16), 4)
    one, other = (
        dp.RandomizedResponse.dist(truth, n_categories=4, **noise)
        for noise in ({"p_truth": 0.7}, {"p_answer": table})
    )
    np.testing.assert_allclose(pm.logp(one, answer).eval(), pm.logp(other, answer).eval(), rtol=1e-12)
    assert dp.guarantee(other).epsilon == pytest.approx(dp.guarantee(one).epsilon, rel=1e-14)


@pytest.mark.filterwarnings("error")  # numba would warn if it left native code
@pytest.mark.parametrize("table", [TOLD, np.array([[0.0, 0.3, 0.0, 0.7, 0], [0.5, 0.0, 0.0, 0.5, 0]])])
def test_draws_follow_the_table(table):
    k = len(table)
    truth = np.repeat(np.arange(k), 20_000)
    z = dp.RandomizedResponse.dist(truth, p_answer=table)
    by_numpy = AnswerTables.draw(np.random.default_rng(2), truth, table, k, None)
    exact = _answers.draw_exactly(np.random.default_rng(4), table[truth])
    for draws in (pm.draw(z, random_seed=3), by_numpy, exact):
        for c in range(k):
            counts = np.bincount(draws[truth == c], minlength=table.shape[1])
            possible = table[c] > 0
            assert not counts[~possible].any()
            assert st.chisquare(counts[possible], 20_000 * table[c][possible]).pvalue > 1e-4
        # power: rows of other truths are seen
        other = np.bincount(draws[truth == 0], minlength=table.shape[1])[table[1] > 0]
        assert st.chisquare(other, other.sum() * table[1][table[1] > 0]).pvalue < 1e-4


def test_exact_draws_compare_as_many_digits_as_it_takes():
    """The first word is that of an end, the second decides; thirds have no end in binary digits."""
    ends = [Fraction(1, 3), Fraction(2, 3)]
    third = 2**64 // 3
    for words, reached in [
        ([third - 1], 0), ([third + 1], 1), ([third, third - 1], 0), ([third, third + 1], 1),
        ([2 * third, 2 * third + 1], 2), ([third, third, 0], 0),
    ]:  # fmt: skip
        left = iter(words)
        found = _answers._by_inversion(ends, 1, lambda n, left=left: np.array([next(left)], dtype=np.uint64))
        assert found.tolist() == [reached] and next(left, None) is None


# --- counts ----------------------------------------------------------------------------------------


def test_density_of_counts_is_the_sum_over_confidential_tables():
    n, probs, exact = 3, np.array([0.1, 0.2, 0.4, 0.3]), {}
    for c in np.ndindex(*(4,) * n):
        for z in np.ndindex(*(3,) * n):
            counts = tuple(np.bincount(z, minlength=3))
            weight = probs[list(c)].prod() * TOLD[list(c), list(z)].prod()
            exact[counts] = exact.get(counts, 0) + weight
    tables = np.array(list(exact))
    release = dp.RandomizedResponse.dist(np.tile(probs, (len(tables), 1)), n=n, p_answer=TOLD)
    np.testing.assert_allclose(np.exp(pm.logp(release, tables).eval()), list(exact.values()), rtol=1e-11)
    assert dp.guarantee(release).epsilon == pytest.approx(math.log(5), rel=1e-14)


@pytest.mark.filterwarnings("error")
def test_counts_of_several_tables_with_devices_of_their_own():
    probs, n = np.array([[0.3, 0.7], [0.9, 0.1]]), np.array([40, 10**9])
    devices = np.array([[[0.5, 0.5, 0.0], [0.2, 0.8, 0.0]], [[0.1, 0.3, 0.6], [0.3, 0.3, 0.4]]])
    z = dp.RandomizedResponse.dist(probs, n=n, p_answer=devices)
    means = np.stack([n[k] * probs[k] @ devices[k] for k in range(2)])
    draws = pm.draw(z, 500, random_seed=3)
    assert (draws.sum(-1) == n).all() and not draws[:, 0, 2].any()
    shares = means / n[:, None]
    spread = np.sqrt(n[:, None] * shares * (1 - shares) / 500)
    assert (abs(draws.mean(0) - means) <= 4.5 * spread + 1e-9).all()
    value = np.array([[18, 22, 0], [10**8, 3 * 10**8, 6 * 10**8]])
    exact = [st.multinomial.logpmf(v, k, p) for v, k, p in zip(value, n, shares, strict=True)]
    # differences of log gamma functions of 1e9
    np.testing.assert_allclose(pm.logp(z, value).eval(), exact, rtol=1e-8)
    assert pm.logp(z, [[18, 21, 1], value[1]]).eval()[0] == -np.inf
    with pm.Model() as model:
        dp.RandomizedResponse("z", probs, n=n, p_answer=devices)
    assert np.isfinite(model.compile_logp()(model.initial_point()))


# --- exact posteriors ------------------------------------------------------------------------------


def exact_posterior(table, z, prior=(1.5, 0.8)):
    """Mean and standard deviation of the share of yes, and each person's chance of yes, on a grid."""
    p = (np.arange(20_000) + 0.5) / 20_000
    yes, no = table[1][z][:, None] * p, table[0][z][:, None] * (1 - p)
    w = st.beta.pdf(p, *prior) * (yes + no).prod(axis=0)
    w /= w.sum()
    mean = w @ p
    return mean, math.sqrt(w @ (p - mean) ** 2), (yes / (yes + no)) @ w


@pytest.mark.compiles(6)
@pytest.mark.statistical
@pytest.mark.parametrize("table", [DIE, ONE_SIDED], ids=["die", "one-sided"])
def test_posterior_is_that_of_a_grid(table):
    """By the steps that pm.sample chooses, by imputation beside NUTS, integrated out, and on counts."""
    z = np.array([1, 0, 1, 1, 0, 1])
    mean, sd, chances = exact_posterior(table, z)
    with pm.Model() as on_records:
        p = pm.Beta("p", 1.5, 0.8)
        truth = pm.Bernoulli("truth", p, shape=z.size)
        dp.RandomizedResponse("z", truth, p_answer=table, observed=z)
        imputed = [dp.RecordImputation(), pm.NUTS([p])]
    with pm.Model() as on_counts:
        p = pm.Beta("p", 1.5, 0.8)
        both = pm.math.stack([1 - p, p])
        dp.RandomizedResponse("z", both, n=z.size, p_answer=table, observed=np.bincount(z))
    marginal = dp.marginalize(on_records, "truth")
    for model, step in ((on_records, None), (on_records, imputed), (marginal, None), (on_counts, None)):
        idata = pm.sample(
            3000, tune=500, chains=2, cores=1, model=model, step=step, random_seed=3, progressbar=False,
            quiet=True, compute_convergence_checks=False,
        )  # fmt: skip
        summary = pm.stats.summary(idata, var_names=["p"], kind="all", round_to="none")
        assert abs(summary["mean"].item() - mean) < 4.5 * summary["mcse_mean"].item()
        assert summary["sd"].item() == pytest.approx(sd, rel=0.05)
        if model is marginal:
            idata.posterior["truth"] = dp.recover_records(idata, on_records, random_seed=1)["truth"]
        if model is not on_counts:
            drawn = idata.posterior["truth"].mean(("chain", "draw")).values
            assert (drawn[chances == 0] == 0).all() and (drawn[chances == 1] == 1).all()
            np.testing.assert_allclose(drawn, chances, atol=0.05)


def test_a_law_written_by_hand_is_the_same(python_mode):
    """Of an unequal device, as a mechanism of one's own declares it."""

    def logp(value, query):
        says_yes = 2 / 6 + 3 / 6 * query
        says = pt.log(pt.switch(pt.eq(value, 1), says_yes, 1 - says_yes))
        return pt.switch(pt.eq(value, 0) | pt.eq(value, 1), says, -np.inf)

    def model(mechanism, **settings):
        with pm.Model() as model:
            truth = pm.Bernoulli("truth", pm.Beta("p", 1, 1, default_transform=None), shape=3)
            mechanism("z", truth, observed=[1, 0, 0], **settings)
        return model

    own = model(dp.CustomMechanism, logp=logp, dtype="int64")
    table = model(dp.RandomizedResponse, p_answer=DIE)
    marginals = [dp.marginalize(m, "truth") for m in (own, table)]
    for p in (0.2, 0.9):
        for models, point in (((own, table), {"truth": np.array([1, 1, 0])}), (marginals, {})):
            one, other = (m.compile_logp()({"p": np.array(p), **point}) for m in models)
            assert one == pytest.approx(other, rel=1e-12)


# --- guarantees ------------------------------------------------------------------------------------


@pytest.mark.parametrize("table", [DIE, TOLD, EACH[0], np.array([[0.2, 0.8, 0], [0.9, 0.1, 0]])])
def test_guarantee_is_the_largest_log_ratio(table):
    promised = dp.guarantee(dp.RandomizedResponse.dist(0, p_answer=table)).epsilon
    assert promised >= worst_ratio(table)
    assert promised == pytest.approx(worst_ratio(table), rel=1e-14)


def test_guarantee_of_several_tables_is_the_largest():
    z = dp.RandomizedResponse.dist([0] * 5, p_answer=EACH)
    assert dp.guarantee(z).epsilon == pytest.approx(max(map(worst_ratio, EACH)), rel=1e-14)
    # the ratio is of two truths of one person: columns of two persons say nothing
    assert max(map(worst_ratio, EACH)) < worst_ratio(EACH.reshape(-1, 3))


def test_answers_that_say_nothing_cost_nothing():
    z = dp.RandomizedResponse.dist(0, p_answer=np.full((3, 7), 1 / 7))
    assert dp.guarantee(z).epsilon == 0


def test_rows_that_were_rounded_are_laws():
    z = dp.RandomizedResponse.dist([0, 0, 0], p_answer=[[0.3333333, 0.3333333, 0.3333333], [0.2, 0.3, 0.5]])
    assert np.exp(pm.logp(z, [0, 1, 2]).eval()).sum() == pytest.approx(1, abs=1e-15)


def test_no_guarantee_where_an_answer_rules_out_a_truth():
    reason = "answer 0 is never given where the truth is 1, but where it is another"
    with pm.Model() as model:
        truth = pm.Bernoulli("truth", pm.Beta("p", 1, 1), shape=3)
        z = dp.RandomizedResponse("z", truth, p_answer=ONE_SIDED, observed=[0, 1, 1])
    for released in (z, model, dp.marginalize(model, "truth"), dp.marginalize(model, "truth")["z"]):
        with pytest.raises(ValueError, match=f"guarantee of z is not known: {reason}"):
            dp.guarantee(released)
    with pm.Model() as model:
        truth = pm.Categorical("truth", [0.2, 0.3, 0.5], shape=3)
        dp.RandomizedResponse("z", truth, p_answer=np.eye(3), observed=[0, 1, 1])
    with pytest.raises(ValueError, match="answer 1 is never given where the truth is 0"):
        dp.guarantee(dp.marginalize(model, "truth"))


def test_nothing_is_released_without_a_guarantee(monkeypatch):
    def never(*args):
        raise AssertionError("something was drawn")

    monkeypatch.setattr(AnswerTables, "draw_for_release", never)
    ledger = dp.PrivacyLedger(epsilon=5.0, delta=0)
    for paid in ({}, {"ledger": ledger}):
        with pytest.raises(ValueError, match="would guarantee nothing with this p_answer: answer 0 is never"):
            dp.RandomizedResponse.release([0, 1, 1], p_answer=ONE_SIDED, **paid)
    assert ledger.epsilon_spent == 0


def test_release_and_back(seeded_entropy):
    ledger = dp.PrivacyLedger(epsilon=math.log(4), delta=0)
    release = dp.RandomizedResponse.release([0, 1, 1], p_answer=DIE, ledger=ledger)  # fits to rounding
    assert dp.Release.from_json(release.to_json()) == release
    assert release.guarantee == dp.guarantee(release)
    assert ledger.epsilon_spent == release.guarantee.epsilon
    np.testing.assert_array_equal(release.parameters["p_answer"], DIE)
    with pm.Model():
        truth = pm.Bernoulli("truth", 0.5, shape=3)
        z = dp.RandomizedResponse("z", truth, observed=release)
        assert dp.guarantee(z) == release.guarantee
        again = dp.RandomizedResponse("again", truth, p_answer=DIE, observed=release)
        assert dp.guarantee(again) == release.guarantee
        with pytest.raises(ValueError, match="contradicts the release"):
            dp.RandomizedResponse("other", truth, p_answer=DIE[::-1], observed=release)
    each = dp.RandomizedResponse.release([0, 1, 1, 0, 0], p_answer=EACH)
    assert dp.guarantee(dp.Release.from_json(each.to_json())) == each.guarantee
    np.testing.assert_allclose(each.parameters["p_answer"], EACH, rtol=1e-15)


def test_counts_as_a_published_file():
    file = dp.Release(
        [30, 20, 10], "RandomizedResponse", {"p_answer": TOLD, "n": 60}, dp.PrivacyGuarantee(1.7)
    )
    assert dp.guarantee(file).epsilon == 1.7
    with pytest.raises(ValueError, match="better than its own noise"):
        dp.guarantee(dp.Release(file.value, file.mechanism, file.parameters, dp.PrivacyGuarantee(1.5)))
    with pm.Model():
        p = pm.Dirichlet("p", np.ones(4))
        z = dp.RandomizedResponse("z", p, n=60, observed=file)
        assert z.type.shape == (3,) and dp.guarantee(z).epsilon == 1.7


def test_releases_need_entropy(monkeypatch):
    def none(count):
        raise OSError("no entropy")

    monkeypatch.setattr("os.urandom", none)
    with pytest.raises(NoEntropyError):
        dp.RandomizedResponse.release([0, 1], p_answer=DIE)


# --- planted faults --------------------------------------------------------------------------------


def by_row(known):
    """The largest log ratio of two answers under one truth: another number, which may be smaller."""
    return float(np.log(known.max(axis=-1) / known.min(axis=-1)).max())


def test_a_guarantee_by_row_is_caught(monkeypatch):
    table = np.array([[0.5, 0.5], [0.4, 0.6]])
    test_guarantee_is_the_largest_log_ratio(table)
    monkeypatch.setattr(_answers, "log_ratio", by_row)
    with pytest.raises(AssertionError):
        test_guarantee_is_the_largest_log_ratio(table)
    with pytest.raises(AssertionError):
        test_guarantee_is_the_largest_log_ratio(TOLD)


def test_a_transposed_table_is_caught(monkeypatch):
    """In the density, where the numbers of truths and answers do not tell."""
    told = AnswerTables.log_report
    wrong = staticmethod(lambda z, c, table, k: told(c, z, table, k))
    monkeypatch.setattr(AnswerTables, "log_report", wrong)
    with pytest.raises(AssertionError):
        test_density_of_an_answer()
    with pytest.raises(AssertionError):
        test_a_law_written_by_hand_is_the_same(None)


def test_normalising_columns_is_caught(monkeypatch):
    def sums(known, totals):
        assert known.shape == totals.shape + known.shape[-1:]

    monkeypatch.setattr(_answers, "_check_numbers", sums)
    given = [[0.5, 0.3], [0.5, 0.7]]
    z = dp.RandomizedResponse.dist([0, 0], p_answer=given)
    assert np.exp(pm.logp(z, [0, 1]).eval()).sum() == pytest.approx(1)  # the rows are the laws
    assert np.exp(pm.logp(z, [0, 1]).eval())[0] == pytest.approx(0.625)


# --- messages --------------------------------------------------------------------------------------

BAD = {
    "columns sum to one": (
        0, {"p_answer": [[0.6, 0.9], [0.4, 0.1]]}, ValueError,
        r"Row 0 of p_answer sums to 1\.5, .* its columns do, so that it may have to be transposed",
    ),
    "rounded too far": (
        0, {"p_answer": [[0.5, 0.5], [0.3, 0.699]]}, ValueError,
        r"Row 1 of p_answer sums to 0\.999, .* divide each row by its sum",
    ),
    "one person's rows": (
        [0, 1], {"p_answer": [DIE, DIE.T]}, ValueError, r"Row 0 of p_answer\[1\] sums to 0\.83",
    ),
    "negative": (0, {"p_answer": [[1.2, -0.2], [0, 1]]}, ValueError, r"p_answer has 1\.2 at index \(0, 0\)"),
    "nan": (0, {"p_answer": [[0.5, math.nan], [0, 1]]}, ValueError, r"p_answer has nan at index \(0, 1\)"),
    "words": (0, {"p_answer": "die"}, TypeError, "p_answer must be a table of real numbers"),
    "ragged": (0, {"p_answer": [[0.5, 0.5], [1.0]]}, TypeError, "p_answer must be a table of real numbers"),
    "masked": (0, {"p_answer": np.ma.masked_less(DIE, 0.2)}, TypeError, "p_answer must be a table"),
    "masked rows": (0, {"p_answer": [*np.ma.masked_less(DIE, 0.2)]}, TypeError, "p_answer must be a table"),
    "one number": (0, {"p_answer": 0.8}, ValueError, r"p_answer has shape \(\), but must have a"),
    "a row": (0, {"p_answer": [0.8, 0.2]}, ValueError, r"p_answer has shape \(2,\), but must have a row"),
    "lengths unknown": (0, {"p_answer": pt.dmatrix("P")}, ValueError, r"pt\.specify_shape\(p_answer, "),
    "rows of other categories": (
        pm.Categorical.dist([0.2, 0.3, 0.5]), {"p_answer": DIE}, ValueError,
        "p_answer has 2 rows, but the query has 3 categories: give a row for each",
    ),
    "more rows than categories": (
        pm.Bernoulli.dist(0.3), {"p_answer": TOLD}, ValueError, "has 4 rows, but the query has 2 categories",
    ),
    "rows and n_categories": (
        0, {"p_answer": DIE, "n_categories": 3}, ValueError, "has 2 rows, but n_categories says 3",
    ),
    "two noise levels": (0, {"p_answer": DIE, "p_truth": 0.9}, ValueError, "got both p_truth= and p_answer="),
    "tables of other people": (
        [0, 1], {"p_answer": EACH}, ValueError, r"more than one table .* for each person, .* \(2,\)",
    ),
    "tables of one person": (0, {"p_answer": EACH}, ValueError, "more than one table of truths by answers"),
    "probabilities of other categories": (
        [0.2, 0.3, 0.5], {"n": 3, "p_answer": DIE}, ValueError,
        "has 2 rows, but the query has probabilities of 3 categories",
    ),
    "tables of other counts": (
        np.full((2, 2), 0.5), {"n": 3, "p_answer": EACH}, ValueError, "for each table of counts",
    ),
    "truth out of range": ([0, 2], {"p_answer": DIE}, ValueError, "query has the value 2 at"),
}  # fmt: skip


@pytest.mark.parametrize(("query", "kwargs", "error", "message"), BAD.values(), ids=BAD)
def test_bad_arguments(query, kwargs, error, message):
    with pytest.raises(error, match=message):
        dp.RandomizedResponse.dist(query, **kwargs)


def test_what_messages_offer_is_taken():
    """Transposed, divided by the sums, with lengths, with as many rows as there are categories."""
    offered = np.array([[0.6, 0.9], [0.4, 0.1]]).T
    rounded = np.array([[0.5, 0.5], [0.3, 0.699]])
    for table in (offered, rounded / rounded.sum(axis=1, keepdims=True)):
        assert np.isfinite(dp.guarantee(dp.RandomizedResponse.dist(0, p_answer=table)).epsilon)
    known = pt.specify_shape(pt.dmatrix("P"), (2, 2))
    assert dp.RandomizedResponse.dist(0, p_answer=known).owner.op.n_answers == 2
    more = dp.RandomizedResponse.dist(pm.Bernoulli.dist(0.3), p_answer=TOLD, n_categories=4)
    assert more.owner.op.n_categories == 4
    every = np.where(ONE_SIDED == 0, 0.01, ONE_SIDED)
    every /= every.sum(axis=1, keepdims=True)
    assert dp.RandomizedResponse.release([0, 1], p_answer=every).guarantee is not None


NEVER = np.array([[0.2, 0.8, 0], [0.9, 0.1, 0]])
EITHER = np.stack([NEVER, NEVER[:, ::-1]])


@pytest.mark.parametrize(
    ("table", "observed", "message"),
    [
        (NEVER, [0, 2], r"observed has answer 2 at index \(1,\), which p_answer makes impossible whatever"),
        (EITHER, [0, 0], r"observed has answer 0 at index \(1,\), which p_answer makes impossible"),
        (NEVER, [0, 3], r"observed has the value 3 at index \(1,\), which is not an answer 0, \.\.\., 2"),
        (NEVER, [0, 0.5], r"observed has the value 0\.5 at index \(1,\)"),
        (NEVER, [0, 1, 1], "observed means a release of shape"),
    ],
)
def test_bad_answers(table, observed, message):
    with pm.Model():
        truth = pm.Bernoulli("truth", 0.5, shape=2)
        with pytest.raises(ValueError, match=message):
            dp.RandomizedResponse("z", truth, p_answer=table, observed=observed)
        dp.RandomizedResponse("z", truth, p_answer=table, observed=[1, 1])


@pytest.mark.parametrize(
    ("observed", "message"),
    [
        ([3, 4, 2], "observed has answer 2, which p_answer makes impossible"),
        ([3, 5, 0], "observed adds up to 8, but n = 9"),
        ([4, 5], "observed means a release of shape"),
    ],
)
def test_bad_counts(observed, message):
    with pm.Model():
        p = pm.Dirichlet("p", np.ones(2))
        with pytest.raises(ValueError, match=message):
            dp.RandomizedResponse("z", p, n=9, p_answer=NEVER, observed=observed)
        dp.RandomizedResponse("z", p, n=9, p_answer=NEVER, observed=[4, 5, 0])


def test_tables_are_not_computed_from_data():
    """They are published as they are."""
    secret = pytensor.shared(np.array([[0.3, 0.7], [0.6, 0.4]]))
    with pytest.raises(ValueError, match="p_answer is computed from arrays, and would be published"):
        dp.RandomizedResponse.release([0, 1], p_answer=pt.special.softmax(secret, axis=1))
    with pytest.raises(ValueError, match="would guarantee nothing with this p_answer: p_answer is itself"):
        dp.RandomizedResponse.release([0, 1], p_answer=[[secret[0, 0], 1 - secret[0, 0]], [0.5, 0.5]])


def test_a_plan_says_why_the_cost_is_not_known():
    with pm.Model() as model:
        truth = pm.Bernoulli("truth", pm.Beta("p", 1, 1), shape=20)
        dp.RandomizedResponse("z", truth, p_answer=[[0.5, 0.3, 0.2], [0.0, 0.4, 0.6]])
    plan = dp.plan(model, n_simulations=0, n_prior=20, random_seed=1)
    assert "answer 0 is never given where the truth is 1" in plan.warnings[-1]
    assert plan.releases[0].noise_sd > 0
