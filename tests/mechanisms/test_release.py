"""Releases of confidential data: exact on their grid, unpredictable, and showing nothing else."""

import math
import os
import pickle
import struct
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
import scipy.stats as st

import pymc_dp as dp
from pymc_dp.mechanisms import _grid

ROWS = np.array([0.12345678901234, -3.456789012345, 2.7182818284590, 4.8765432123, -0.7071067811865])
NOISE = {
    "LaplaceMechanism": {"epsilon": 1.0},
    "GaussianMechanism": {"epsilon": 1.0, "delta": 1e-6},
}
each = pytest.mark.parametrize("name", NOISE)


def draw(name, query, **kwargs):
    return getattr(dp, name).release(query, **(kwargs or NOISE[name] | {"bounds": (-5, 5)}))


# ---- the law --------------------------------------------------------------------------------


@each
def test_follows_the_declared_density(name, seeded_entropy):
    n = 20_000
    rows = np.linspace(-6, 6, n)
    release = draw(name, rows)
    noise = release.value - np.clip(rows, -5, 5)
    scale = release.parameters.get("scale", release.parameters.get("sigma"))
    law = {"LaplaceMechanism": st.laplace, "GaussianMechanism": st.norm}[name](0, scale)
    assert st.kstest(noise, law.cdf).pvalue > 1e-3
    for factor in (0.9, 1 / 0.9):  # power
        assert st.kstest(factor * noise, law.cdf).pvalue < 1e-3
    assert abs(st.spearmanr(noise, rows).statistic) < 5 / math.sqrt(n)


QUERIES = {
    "sum": dp.record_sum(ROWS),
    "mean": pt.as_tensor(ROWS).mean(),
    "sums": pt.stack([pt.as_tensor(ROWS).sum(), pt.as_tensor(ROWS**2).sum()]),
    "sums, joined": pt.concatenate(
        [pt.as_tensor(ROWS).sum(keepdims=True), dp.record_sum(ROWS[:, None] ** 2)]
    ),
    "sum of rows": dp.record_sum(np.stack([ROWS, ROWS], 1)),
    "sums, turned": dp.record_sum(np.stack([ROWS] * 6, 1).reshape((5, 2, 3))).T,
    "local": ROWS,
    "local rows": np.stack([ROWS, ROWS], 1),
}


@pytest.mark.parametrize("order", [(0, 1), (1, 0), (1, "x", 0)], ids=str)
def test_turned_sums_are_added_in_integers(order):
    """Added in floating point, at 10^15 one person changes such a table by 16 instead of 4."""
    rows = 1e15 + np.random.default_rng(1).random((100, 2, 2))
    total = pt.as_tensor(rows).sum(axis=0)
    query = dp.LaplaceMechanism.dist(total.dimshuffle(*order), epsilon=1, bounds=(1e15, 1e15 + 1))
    count = _grid.in_granules(query.owner.op.dist_params(query.owner)[0], 2.0**-20, False).count
    exact = [[sum(round(Fraction(float(v)) * 2**20) for v in rows[:, i, j]) for j in (0, 1)] for i in (0, 1)]
    expected = np.array(exact, dtype=object)
    expected = expected if order == (0, 1) else expected.T.reshape(count.shape)
    assert (count == expected).all()


@pytest.mark.parametrize("n", [3, 4, 7])
def test_sums_under_a_pair_of_bounds_each_are_added_in_integers(n):
    """Also where there are as many statistics as people, or more."""
    query = dp.LaplaceMechanism.dist(dp.record_sum(np.ones((n, 4))), epsilon=1, bounds=[(0, 1)] * 4)
    assert _grid._sum_in_granules(query.owner.op.dist_params(query.owner)[0], 2.0**-20) is not None


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("name", "bounds", "dtype", "n"),
    [  # mechanisms, bounds and types in half of their combinations, every two of them together
        ("DiscreteLaplaceMechanism", None, "float32", 2**24 + 3),
        ("DiscreteLaplaceMechanism", (0, 1), "float16", 4099),
        ("DiscreteGaussianMechanism", None, "float16", 4099),
        ("DiscreteGaussianMechanism", (0, 1), "float32", 2**24 + 3),
    ],
)
def test_counts_of_short_floats_are_exact(name, bounds, dtype, n):
    """Added up in the data's own type, one person changes a count by 2 or 4, where 1 is stated."""
    level = {"scale": 0.01} if "Laplace" in name else {"sigma": 0.01}
    level |= {"sensitivity": 1} if bounds is None else {"bounds": bounds}
    one, other = np.ones(n, dtype), np.ones(n, dtype)
    other[0] = 0
    for data, total in ((one, n), (other, n - 1)):
        assert getattr(dp, name).release(dp.record_sum(data), **level).value == total
    both = pt.stack([dp.record_sum(one[:5]), 2 * dp.record_sum(one)])
    if bounds is None:
        assert list(getattr(dp, name).release(both, **level).value) == [5, 2 * n]
        with pytest.raises(ValueError, match="convert the records before"):
            getattr(dp, name).release(1 + dp.record_sum(one), **level)


@each
@pytest.mark.parametrize("how", QUERIES)
def test_grid_costs_nothing(name, how):
    """What one record changes, with rounding, over the noise: exactly at most what is promised."""
    release = draw(name, QUERIES[how])
    granule = Fraction(release.parameters["granularity"])
    level = Fraction(release.parameters.get("scale", release.parameters.get("sigma")))
    assert granule.numerator == 1 and granule.denominator & (granule.denominator - 1) == 0
    assert Fraction(1, 2**42) < granule / level < Fraction(1, 2**39)
    k = np.asarray(release.value) / float(granule)
    assert (k == np.rint(k)).all()
    n = 5 if how == "mean" else 1
    size = np.size(release.value)
    entries = {"local": 1, "local rows": 2}.get(how, size)  # of one record
    change = Fraction(10, n) + granule  # per entry, in the worst case
    if name == "LaplaceMechanism":
        assert entries * change / level <= Fraction(release.guarantee.epsilon)
        assert entries * change / level >= Fraction(release.guarantee.epsilon) * (1 - Fraction(1, 10**9))
    else:
        assert entries * (change / level) ** 2 <= Fraction(release.guarantee.mu) ** 2
        assert release.guarantee.mu == pytest.approx(0.23670438, rel=1e-7)


def test_sums_are_exact_whatever_the_order(rng):
    """A floating-point sum depends on the order of the records; the released one does not."""
    rows = rng.normal(size=2_000) * 10.0 ** rng.integers(-8, 9, size=2_000)
    orders = [rng.permutation(2_000) for _ in range(20)]
    granule = 2.0**-60
    found = {int(_grid.in_granules(dp.record_sum(rows[o]), granule, False).count) for o in orders}
    exact = sum(round(Fraction(float(x)) / Fraction(granule)) for x in rows)
    assert found == {exact}
    assert len({float(np.add.reduce(rows[o])) for o in orders}) > 1  # what is avoided


@pytest.mark.parametrize("rows", [[2**60 + 129, -(2**60)], [2**53 + 1, 1]], ids=str)
def test_sums_of_large_whole_numbers_are_exact(rows):
    """Between floats of this size there are gaps, over which one record would change more than stated."""
    data = np.array(rows)
    for granule, factor in ((1.0, 1), (2.0**-10, 3), (2.0**60, 5)):
        exact = sum(round(r * factor / Fraction(granule)) for r in rows)
        assert int(_grid.in_granules(dp.record_sum(data) * factor, granule, False).count) == exact
    counts = _grid.whole_counts(dp.record_sum(data))
    assert int(counts) == sum(rows)


@pytest.mark.parametrize("dtype", ["int64", "uint64"])
def test_large_whole_numbers_are_exact(dtype):
    """Half of them are no floats: an entry that changes by 1 would change by 0 or 2."""
    data = np.array([2**53 + 1, 2**62 + 3, 0], dtype=dtype)
    for query in (pt.cast(data, "float64"), pt.cast(pt.as_tensor(data)[::-1][::-1], "float64")):
        assert _grid.in_granules(query, 0.5, True).count.tolist() == [2 * int(v) for v in data]


def test_sums_are_recognised_in_every_form():
    """Otherwise they would be added up in floating point, which no other test would notice."""
    for how, query in QUERIES.items():
        graph = pt.as_tensor(query)
        recognised = _grid._sum_in_granules(graph, 2.0**-30)
        assert (recognised is None) == how.startswith("local"), how
        if recognised is not None:
            found = np.asarray(recognised[0]).astype(float) * 2.0**-30
            in_floats = graph.eval(mode="FAST_COMPILE")
            np.testing.assert_allclose(found, in_floats, atol=2.0**-26)
            assert found.shape == in_floats.shape


def test_one_record_moves_a_sum_by_at_most_its_width_and_a_granule(rng):
    granule = 2.0**-10
    rows = rng.uniform(-5, 5, size=(200, 2))
    base = _grid.in_granules(dp.record_sum(np.clip(rows, -5, 5)), granule, False)
    for _ in range(200):
        other = rows.copy()
        other[rng.integers(200)] = rng.choice([-5.0, 5.0, 0.0004], size=2)
        moved = _grid.in_granules(dp.record_sum(other), granule, False).count - base.count
        assert np.abs(moved).max() <= 10 / granule + base.slack
    mean = _grid.in_granules(pt.as_tensor(rows).mean(axis=0), granule, False)
    # each record's share of the mean is rounded by itself
    shares = [[round(Fraction(float(v)) / 200 / Fraction(granule)) for v in row] for row in rows]
    assert mean.count.tolist() == np.sum(shares, axis=0).tolist()
    assert mean.slack == 1


def test_low_bits_do_not_tell_the_query_apart(seeded_entropy):
    """Mironov's attack: floating-point noise on 0 reaches numbers that noise on 1 never does."""
    n = 20_000
    reached = {}
    for query in (0.0, 1.0):
        naive = query + np.random.default_rng(1).laplace(size=n) * 1e-3
        reached[query] = np.mean(naive * 2**53 == np.rint(naive * 2**53))
    assert reached[1.0] == 1 and reached[0.0] < 0.1  # one release tells 0 from 1 with certainty
    for query in (0.0, 1.0):
        release = dp.LaplaceMechanism.release(np.full(n, query), scale=1e-3, sensitivity=1)
        k = (release.value - query) / release.parameters["granularity"]
        assert (k == np.rint(k)).all()
        assert st.chisquare(np.bincount(np.mod(k, 64).astype(int), minlength=64)).pvalue > 1e-3


def test_large_and_small_noise(seeded_entropy):
    tiny = dp.LaplaceMechanism.release(1e15 / 3, scale=1e-4, sensitivity=1)
    assert tiny.value == pytest.approx(1e15 / 3, abs=0.2)  # as near as floats come
    huge = dp.GaussianMechanism.release(np.zeros(2000), sigma=np.array(1e200), sensitivity=1e195)
    assert st.kstest(huge.value / 1e200, st.norm.cdf).pvalue > 1e-3
    with pytest.raises(ValueError, match="query is too large for the noise level"):
        dp.LaplaceMechanism.release(np.array(1e308), scale=1e-5, sensitivity=1)


def test_one_scale_for_each_entry():
    release = dp.LaplaceMechanism.release(np.zeros((4000, 2)), scale=np.array([1.0, 100.0]), bounds=(-1, 1))
    assert np.shape(release.parameters["scale"]) in {(2,), (1, 2)}
    assert np.abs(release.value).mean(0) == pytest.approx([1, 100], rel=0.1)
    assert release.guarantee.epsilon == pytest.approx(2.02)


@pytest.mark.parametrize(
    ("mechanism", "level", "law"),
    [(dp.LaplaceMechanism, "scale", st.laplace), (dp.GaussianMechanism, "sigma", st.norm)],
)
def test_levels_far_apart_have_the_whole_law(mechanism, level, law, seeded_entropy):
    """Granules fit the smallest; a draw of more than 2^63 of them was refused, which cut off the largest."""
    levels = np.tile([1.0, 1e-6, 1e-8, 1e12], 1000)
    release = mechanism.release(np.zeros(4000), **{level: levels}, sensitivity=1)
    for k in range(4):
        assert st.kstest((release.value / levels)[k::4], law.cdf).pvalue > 1e-3


def test_noise_beyond_floating_point_is_refused_before_it_is_drawn(monkeypatch):
    monkeypatch.setattr("pymc_dp.privacy.exact_noise.uniform_below", None)
    with pytest.raises(ValueError, match=r"^scale = 1e\+300 asks for so much noise .* give a smaller scale"):
        dp.LaplaceMechanism.release(1.0, scale=1e300, sensitivity=1e299)
    with pytest.raises(ValueError, match=r"noise levels that are too far apart.* in a release of their own"):
        dp.LaplaceMechanism.release([1.0, 2.0], scale=[1e280, 1e-20], sensitivity=1)
    monkeypatch.undo()
    for scale in (1e280, 1e-20):  # the remedy
        assert np.isfinite(dp.LaplaceMechanism.release(1.0, scale=scale, sensitivity=scale).value)


@pytest.mark.parametrize(
    ("mechanism", "level", "most"),
    [(dp.DiscreteLaplaceMechanism, "scale", 2.0**56), (dp.DiscreteGaussianMechanism, "sigma", 2.0**56)],
)
def test_noise_beyond_64_bits_is_refused_before_it_is_drawn(mechanism, level, most, monkeypatch):
    """Whether a draw fits would tell something about it."""
    assert abs(mechanism.release(3, **{level: most}, sensitivity=1).value) > 0
    refused = f"^{level} = .* asks for so much noise .* give a smaller {level}"
    monkeypatch.setattr("pymc_dp.privacy.exact_noise.uniform_below", None)
    with pytest.raises(ValueError, match=refused):
        mechanism.release(3, **{level: most * 1.01}, sensitivity=1)


# ---- nobody can predict it --------------------------------------------------------------------


@each
def test_seeds_have_no_influence(name, monkeypatch):
    fixed = np.random.default_rng(3)
    monkeypatch.setattr(np.random, "default_rng", lambda *_: fixed)
    monkeypatch.setattr(np.random, "laplace", lambda *_, **__: 0.0)
    seen = set()
    for _ in range(4):
        np.random.seed(1)  # noqa: NPY002
        seen.add(float(draw(name, dp.record_sum(ROWS)).value))
    assert len(seen) == 4
    for key in ("random_seed", "rng"):
        with pytest.raises(TypeError, match=f"takes no {key}=: the noise of a release comes from the"):
            draw(name, dp.record_sum(ROWS), **NOISE[name], bounds=(-5, 5), **{key: 1})


def test_a_generator_that_fails_releases_nothing(monkeypatch):
    import pymc_dp.privacy.exact_noise as exact

    def broken(count):
        raise OSError("no entropy")

    monkeypatch.setattr(exact.secrets, "token_bytes", broken)
    with pytest.raises(OSError, match="no entropy"):
        draw("LaplaceMechanism", dp.record_sum(ROWS))


# ---- nothing else is in it --------------------------------------------------------------------


def forms_of(number):
    """Ways in which a confidential number could be found in text or bytes."""
    text = f"{number!r}".split("(")[-1].rstrip(")")
    return [text.lstrip("-")[:9].encode(), struct.pack("<d", number), struct.pack(">d", number)]


@each
@pytest.mark.parametrize("query", [dp.record_sum(ROWS), ROWS], ids=["sum", "local"])
def test_holds_nothing_confidential(name, query):
    release = draw(name, query)
    confidential = [*ROWS, float(np.clip(ROWS, -5, 5).sum()), float(ROWS.mean())]
    published = [
        release.to_json().encode(),
        repr(release).encode(),
        str(release).encode(),
        *(pickle.dumps(release, protocol=p) for p in range(2, 6)),
    ]
    for number in confidential:
        for form in forms_of(number):
            assert not any(form in text for text in published)
    assert any(forms_of(float(np.ravel(release.value)[0]))[1] in text for text in published)  # power


BAD_DATA = {
    "not whole": lambda: dp.DiscreteLaplaceMechanism.release(ROWS, epsilon=1, sensitivity=1),
    "not whole, a sum": lambda: dp.DiscreteGaussianMechanism.release(
        dp.record_sum(ROWS), rho=1, sensitivity=1
    ),
    "a hole": lambda: dp.LaplaceMechanism.release([*ROWS, None], epsilon=1, bounds=(0, 1)),
    "words": lambda: dp.LaplaceMechanism.release([*ROWS, "x"], epsilon=1, bounds=(0, 1)),
    "nan": lambda: dp.LaplaceMechanism.release([*ROWS, np.nan], epsilon=1, bounds=(0, 1)),
    "ragged": lambda: dp.LaplaceMechanism.release([ROWS.tolist(), [1.0]], epsilon=1, bounds=(0, 1)),
    "a table of features": lambda: dp.ObjectivePerturbation.release(
        {"age": ROWS.tolist()}, ROWS, epsilon=1, regularization=1
    ),
    "a table to be summed": lambda: dp.record_sum({"age": ROWS.tolist()}),
    "a table to be clamped": lambda: dp.clamp({"age": ROWS.tolist()}, 0, 1),
    "data in the place of a release": lambda: dp.guarantee(ROWS),
    "data among releases": lambda: dp.guarantee([pt.as_tensor(ROWS)]),
    "too many bounds": lambda: dp.LaplaceMechanism.release(
        dp.record_sum(ROWS), epsilon=1, bounds=[(0, 1), (0, 1)]
    ),
    "too large": lambda: dp.LaplaceMechanism.release(ROWS * 1e305, scale=1e-9, sensitivity=1),
    "shapes that do not fit": lambda: dp.LaplaceMechanism.release(
        pt.as_tensor(ROWS).reshape((2, 3)), epsilon=1, bounds=(0, 1)
    ),
    "an index out of range": lambda: dp.LaplaceMechanism.release(
        pt.as_tensor(ROWS)[pt.as_tensor([9])], epsilon=1, sensitivity=1
    ),
}


@pytest.mark.parametrize("act", BAD_DATA.values(), ids=BAD_DATA)
def test_errors_show_nothing_confidential(act):
    with pytest.raises((TypeError, ValueError)) as caught:
        act()
    error, texts = caught.value, []
    while error is not None:
        texts.append(str(error))
        error = error.__cause__ or error.__context__
    for row in ROWS:
        assert not any(f"{abs(row):.9f}"[:6] in text for text in texts), texts


def test_messages_of_any_mechanism_are_cleaned(monkeypatch):
    """A mechanism, or a library below it, that is not careful."""

    def careless(query, epsilon):
        try:
            raise KeyError(f"{query[2]!r}")
        except KeyError as error:
            raise ValueError(f"value {query[0]:g} of row 3 at epsilon {epsilon:g}, {query[1]:g}") from error

    monkeypatch.setattr(dp.LaplaceMechanism, "dist", careless)
    with pytest.raises(ValueError, match="at epsilon") as caught:
        dp.LaplaceMechanism.release(ROWS, epsilon=0.5)
    hidden = "(a number not shown)"
    assert str(caught.value) == f"value {hidden} of row {hidden} at epsilon 0.5, {hidden}"
    assert caught.value.__cause__ is None and caught.value.__context__ is None


def test_messages_about_an_only_person_are_cleaned(monkeypatch):
    def careless(query, epsilon):
        raise ValueError(f"category {query.eval()[0]}")

    monkeypatch.setattr(dp.LaplaceMechanism, "dist", careless)
    with pytest.raises(ValueError, match=r"category \(a number not shown\)"):
        dp.LaplaceMechanism.release(pt.as_tensor(np.array([47])) + 0, epsilon=0.5)


def test_compilers_keep_nothing(tmp_path):
    """PyTensor keeps compiled code on disk, where constants of a graph could be."""
    code = (
        "import numpy as np, pymc_dp as dp\n"
        f"rows = np.array({ROWS.tolist()})\n"
        "dp.LaplaceMechanism.release(dp.record_sum(rows), epsilon=1, bounds=(-5, 5))\n"
        "dp.GaussianMechanism.release(rows, rho=1, bounds=(-5, 5))\n"
    )
    environment = os.environ | {
        "PYTENSOR_FLAGS": f"base_compiledir={tmp_path / 'pytensor'}",
        "TMPDIR": str(tmp_path),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, timeout=300)
    kept = [path.read_bytes() for path in Path(tmp_path).rglob("*") if path.is_file()]
    for number in [*ROWS, float(ROWS.sum())]:
        for form in forms_of(number):
            assert not any(form in content for content in kept)


# ---- what an analyst does with it -------------------------------------------------------------


@each
def test_a_release_declares_its_mechanism(name):
    release = draw(name, dp.record_sum(np.stack([ROWS, ROWS], 1)))
    release = dp.Release.from_json(release.to_json())
    with pm.Model() as model:
        y = pm.Normal("y", shape=(5, 2))
        z = getattr(dp, name)("z", dp.record_sum(y), observed=release)
        same = getattr(dp, name)("same", dp.record_sum(y), observed=release, **NOISE[name], bounds=(-5, 5))
    assert dp.guarantee(z) == release.guarantee == dp.guarantee(same)
    op, (_, level) = z.owner.op, z.owner.op.dist_params(z.owner)
    assert op.bounds == (-5.0, 5.0)
    stated = release.parameters.get("scale", release.parameters.get("sigma"))
    assert level.eval().item() == stated
    y_now = np.linspace(-7, 7, 10).reshape(5, 2)
    by_hand = {"LaplaceMechanism": st.laplace, "GaussianMechanism": st.norm}[name](
        np.clip(y_now, -5, 5).sum(0), stated
    )
    found = model.compile_logp(model["z"])({"y": y_now})
    assert found == pytest.approx(by_hand.logpdf(release.value).sum(), rel=1e-10)


@each
def test_parameters_are_keyword_arguments(name):
    release = draw(name, dp.record_sum(ROWS))
    again = getattr(dp, name).dist(pt.as_tensor(ROWS).sum(), **release.parameters)
    assert again.owner.op.bounds == (-5.0, 5.0)
    stated = release.parameters.get("scale", release.parameters.get("sigma"))
    assert again.owner.op.dist_params(again.owner)[1].eval().item() == stated


def test_pairs_of_bounds_come_back():
    """Two pairs could be read in two ways; a release is never misread."""
    release = dp.LaplaceMechanism.release(
        dp.record_sum(np.stack([ROWS, ROWS], 1)), epsilon=1, bounds=[(-1, 2), (0, 3)]
    )
    with pm.Model():
        y = pm.Normal("y", shape=(5, 2))
        z = dp.LaplaceMechanism(
            "z", dp.record_sum(y), observed=dp.Release.from_json(release.to_json()), bounds=[(-1, 2), (0, 3)]
        )
    assert z.owner.op.bounds == ((-1.0, 0.0), (2.0, 3.0))


CONTRADICTIONS = {
    "another epsilon": ({"epsilon": 2}, r"epsilon = 2 contradicts the release, which states epsilon = 1.0"),
    "another scale": ({"scale": 1.0}, "scale = 1.0 contradicts the release, which states scale = 10.0"),
    "other bounds": ({"bounds": (-5, 6)}, r"bounds = \(-5, 6\) contradicts the release"),
    "no bounds at all": ({"bounds": "wide"}, "bounds = 'wide' contradicts"),
    "a sensitivity": ({"sensitivity": 10}, "sensitivity= was given beside a release, which does not state"),
}


@pytest.mark.parametrize(("kwargs", "message"), CONTRADICTIONS.values(), ids=CONTRADICTIONS)
def test_contradictions_are_refused(kwargs, message):
    release = draw("LaplaceMechanism", dp.record_sum(ROWS))
    with pm.Model():
        y = pm.Normal("y", shape=5)
        with pytest.raises(ValueError, match=message):
            dp.LaplaceMechanism("z", dp.record_sum(y), observed=release, **kwargs)


def test_releases_of_something_else_are_refused():
    release = draw("LaplaceMechanism", dp.record_sum(ROWS))
    with pm.Model():
        y = pm.Normal("y", shape=(5, 2))
        with pytest.raises(
            ValueError,
            match=r"release of LaplaceMechanism, not of GaussianMechanism: declare it with dp.Laplace",
        ):
            dp.GaussianMechanism("z", dp.record_sum(y), observed=release)
        with pytest.raises(ValueError, match=r"observed means a release of shape \(\), but the query"):
            dp.LaplaceMechanism("z", dp.record_sum(y), observed=release)


@pytest.mark.parametrize(
    "name", ["guarantee", "params", "prepared", "op_class", "props", "expected", "nonsense"]
)
def test_names_inside_of_mechanisms_are_no_arguments(name):
    unexpected = pytest.raises(
        TypeError, match=f"^LaplaceMechanism got an unexpected keyword argument '{name}'"
    )
    given = {"scale": 2.0, "sensitivity": 1, name: None}
    with unexpected:
        dp.LaplaceMechanism.release(1.0, **given)
    with pm.Model(), unexpected:
        dp.LaplaceMechanism("z", pm.Normal("y"), **given)


def test_unknown_guarantee_warns():
    with pytest.warns(UserWarning, match="guarantee of this release by LaplaceMechanism is not known"):
        release = dp.LaplaceMechanism.release(1.0, scale=2.0)
    assert release.guarantee is None and release.parameters["scale"] == 2.0


def test_models_are_not_data():
    with pm.Model():
        y = pm.Normal("y", shape=5)
        with pytest.raises(ValueError, match=r"LaplaceMechanism.release works on data, but its arguments"):
            dp.LaplaceMechanism.release(y.sum(), epsilon=1, bounds=(0, 1))
    never = {"observed": 1.0, "dims": "x", "records": ["y"], "shape": 3, "granularity": 1.0, "changes": 1.0}
    for key, value in {**never, "n_records": 1}.items():
        with pytest.raises(TypeError, match=f"takes no {key}="):
            dp.LaplaceMechanism.release(1.0, epsilon=1, sensitivity=1, **{key: value})
