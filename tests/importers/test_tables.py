"""Tables of Tumult Analytics and PipelineDP, written by hand as these tools do."""

import gzip
import math
from enum import Enum
from pathlib import Path

import numpy as np
import pandas
import pytest

import pymc_dp as dp
from tests.importers.models import check_declared

DATA = Path(__file__).parent / "data"
COUNTS = DATA / "tumult_counts.csv"
METRICS = DATA / "pipelinedp_metrics.csv"
GEOMETRIC = {"noise_mechanism": "GEOMETRIC", "noise_parameter": 2.0}


class NoiseMechanism(Enum):
    """Names of Tumult's enumeration."""

    LAPLACE = 1
    GEOMETRIC = 2
    DISCRETE_GAUSSIAN = 3
    EXPONENTIAL = 4
    GAUSSIAN = 5


def counts(**other):
    return {"county": ["a", "b"], "count": [3, 4], **other}


def test_tumult_from_a_file():
    table = dp.importers.tumult(COUNTS, "count", axes=("county", "sex"))
    assert table.labels["county"].tolist() == ["01001", "01003"] and table.labels["sex"].tolist() == [
        "F",
        "M",
    ]
    assert table.release.value.tolist() == [[31, -2], [7, 18]] and table.release.value.dtype == np.int64
    assert table.release.guarantee is None and dict(table.release.parameters) == {"scale": 2.0}
    check_declared(table.release, dp.DiscreteLaplaceMechanism, scale=2.0)


def test_tumult_by_row():
    table = dp.importers.tumult(COUNTS, "count", epsilon=0.5)
    assert table.release.value.tolist() == [31, -2, 7, 18]
    assert table.labels["sex"].tolist() == ["F", "M", "F", "M"]
    assert table.release.guarantee == dp.PrivacyGuarantee(0.5, neighbours="add-remove")
    assert table.release.parameters["sensitivity"] == 1
    assert dp.guarantee(table.release) == table.release.guarantee
    by_hand = {"scale": 2.0, "sensitivity": 1, "neighbours": "add-remove"}
    check_declared(table.release, dp.DiscreteLaplaceMechanism, **by_hand)


@pytest.mark.parametrize(
    ("word", "mechanism", "level"),
    [
        ("LAPLACE", dp.LaplaceMechanism, {"scale": 9.0}),
        ("GEOMETRIC", dp.DiscreteLaplaceMechanism, {"scale": 9.0}),
        ("GAUSSIAN", dp.GaussianMechanism, {"sigma": 3.0}),  # the parameter is a variance
        ("DISCRETE_GAUSSIAN", dp.DiscreteGaussianMechanism, {"sigma": 3.0}),
    ],
)
def test_tumult_noise_information(word, mechanism, level):
    """As text, as a member of the enumeration, as its text in a column, and in a list of one."""
    releases = [
        dp.importers.tumult(counts(), "count", noise=noise).release
        for noise in (
            {"noise_mechanism": word, "noise_parameter": 9},
            {"noise_mechanism": NoiseMechanism[word], "noise_parameter": 9.0},
            [{"noise_mechanism": f"_NoiseMechanism.{word}", "noise_parameter": 9.0}],
        )
    ]
    columns = counts(noise_mechanism=[f"_NoiseMechanism.{word}"] * 2, noise_parameter=[9.0, 9.0])
    releases.append(dp.importers.tumult(columns, "count").release)
    assert all(r == releases[0] for r in releases)
    check_declared(releases[0], mechanism, **level)


def test_tumult_noise_that_differs():
    columns = counts(noise_mechanism=["DISCRETE_GAUSSIAN"] * 2, noise_parameter=[4.0, 9.0])
    release = dp.importers.tumult(columns, "count", sensitivity=1.0).release
    assert release.parameters["sigma"] == (2, 3) and release.guarantee.rho == pytest.approx(1 / 8)
    check_declared(
        release, dp.DiscreteGaussianMechanism, sigma=[2, 3], sensitivity=1, neighbours="add-remove"
    )
    with pytest.raises(
        ValueError, match="sensitivity is missing: it does not follow from a budget where the sigma"
    ):
        dp.importers.tumult(columns, "count", rho=0.1)


def test_geometric_noise_of_a_zero_concentrated_budget():
    """Tumult's scale is then sensitivity over the root of 2 rho."""
    noise = {"noise_mechanism": "GEOMETRIC", "noise_parameter": 1 / math.sqrt(0.2)}
    release = dp.importers.tumult(counts(), "count", noise=noise, rho=0.1).release
    assert release.parameters["sensitivity"] == pytest.approx(1)
    assert release.guarantee.rho == pytest.approx(0.1)


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_pipelinedp_from_a_file(kind):
    table = dp.importers.pipelinedp(METRICS, "count", noise_kind=kind, axes="day")
    mechanism, level = {
        "laplace": (dp.LaplaceMechanism, {"scale": 6.0}),  # the standard deviation over sqrt 2
        "gaussian": (dp.GaussianMechanism, {"sigma": 8.48528137423857}),
    }[kind]
    assert table.labels["day"].tolist() == ["Mon", "Tue", "Wed"] and table.release.guarantee is None
    ((name, known),) = level.items()
    assert table.release.parameters[name] == pytest.approx(known, rel=1e-15)
    check_declared(table.release, mechanism, **{name: table.release.parameters[name]})
    other = dp.importers.pipelinedp(METRICS, "sum", noise_kind=kind)
    assert other.release.value.tolist() == [1200, 1100, 40] and list(other.labels) == ["day"]


def test_pipelinedp_guarantees():
    given = {"noise_kind": "gaussian", "axes": "day"}
    sigma = 8.48528137423857
    release = dp.importers.pipelinedp(METRICS, "count", sensitivity=2.0, **given).release
    assert release.guarantee.mu == pytest.approx(2 / sigma)
    release = dp.importers.pipelinedp(
        METRICS, "count", sensitivity=2.0, epsilon=2, delta=1e-6, **given
    ).release
    assert (release.guarantee.epsilon, release.guarantee.delta) == (2, 1e-6)
    with pytest.raises(ValueError, match="The budget contradicts the noise"):
        dp.importers.pipelinedp(METRICS, "count", sensitivity=2.0, epsilon=0.1, delta=1e-6, **given)
    with pytest.raises(
        ValueError, match="sensitivity is missing: it does not follow from epsilon with delta"
    ):
        dp.importers.pipelinedp(METRICS, "count", epsilon=2, delta=1e-6, **given)
    with pytest.raises(ValueError, match="epsilon is missing: delta alone"):
        dp.importers.pipelinedp(METRICS, "count", delta=1e-6, **given)


def test_pipelinedp_noise_on_aggregated_data():
    """What ``DPEngine.add_dp_noise`` gives, with the kind of noise in a column."""
    columns = {
        "key": ["a", "b"], "noised_value": [1.5, 2.5], "noise_stddev": [3.0, 3.0],
        "noise_kind": ["gaussian"] * 2,
    }  # fmt: skip
    table = dp.importers.pipelinedp(columns)
    assert table.release.mechanism == "GaussianMechanism" and list(table.labels) == ["key"]
    columns["noise_kind"] = ["gaussian", "laplace"]
    with pytest.raises(ValueError, match="'noise_kind' has gaussian and laplace, and one release is of one"):
        dp.importers.pipelinedp(columns)


def test_the_same_from_all_kinds_of_tables(tmp_path):
    """Text, compressed text, tabs, folders of part files, frames, arrays; keys stay as they are written."""
    expected = dp.importers.tumult(COUNTS, "count", axes=("county", "sex"))
    text = COUNTS.read_text()
    (tmp_path / "counts.csv.gz").write_bytes(gzip.compress(text.encode()))
    (tmp_path / "counts.tsv").write_text(text.replace(",", "\t"))
    header, *rows = text.splitlines()
    (tmp_path / "parts").mkdir()
    for k in range(2):
        part = [header, *rows[2 * k : 2 * k + 2]]
        (tmp_path / "parts" / f"part-{k:05}.csv").write_text("\n".join(part) + "\n")
    (tmp_path / "parts" / "_SUCCESS").write_text("")
    frame = pandas.read_csv(COUNTS, dtype={"county": str})
    tables = [tmp_path / "counts.csv.gz", str(tmp_path / "counts.tsv"), tmp_path / "parts", frame]
    tables += [{name: frame[name].to_numpy() for name in frame}, frame.sample(frac=1, random_state=0)]
    for table in tables[:-1]:
        found = dp.importers.tumult(table, "count", axes=("county", "sex"))
        assert found.release == expected.release
        assert {k: v.tolist() for k, v in found.labels.items()} == {
            k: v.tolist() for k, v in expected.labels.items()
        }
    shuffled = dp.importers.tumult(tables[-1], "count", axes=("county", "sex"))
    i, j = (np.argsort(shuffled.labels[axis]) for axis in ("county", "sex"))
    assert (shuffled.release.value[np.ix_(i, j)] == expected.release.value).all()


def test_parquet(tmp_path, monkeypatch):
    """Read by pandas, with what it needs for that; without it, a message says what to install."""
    frame = pandas.read_csv(COUNTS, dtype={"county": str})
    path = tmp_path / "counts.parquet"
    path.touch()
    seen = []
    monkeypatch.setattr(pandas, "read_parquet", lambda p: seen.append(p) or frame)
    expected = dp.importers.tumult(COUNTS, "count", axes=("county", "sex"))
    assert dp.importers.tumult(path, "count", axes=("county", "sex")).release == expected.release
    assert seen == [path]

    def lacking(path):
        raise ImportError("Unable to find a usable engine; tried using: 'pyarrow', 'fastparquet'.")

    monkeypatch.setattr(pandas, "read_parquet", lacking)
    with pytest.raises(ImportError, match=r"counts.parquet is a parquet file, which needs pyarrow"):
        dp.importers.tumult(path, "count")


def test_parquet_files_themselves(tmp_path):
    pytest.importorskip("pyarrow")
    frame = pandas.read_csv(COUNTS, dtype={"county": str})
    frame.to_parquet(tmp_path / "counts.parquet")
    expected = dp.importers.tumult(COUNTS, "count", axes=("county", "sex"))
    found = dp.importers.tumult(tmp_path / "counts.parquet", "count", axes=("county", "sex"))
    assert found.release == expected.release


@pytest.mark.parametrize(
    ("table", "given", "message"),
    [
        (counts(), {}, "column 'noise_mechanism' is missing from the table .the noise; or give it as noise="),
        (counts(noise_mechanism=["LAPLACE"] * 2), {}, "column 'noise_parameter' is missing"),
        (counts(), {"value": "sum"}, "column 'sum' is missing.*Its columns are 'county', 'count'"),
        (counts(), {"noise": {"noise_mechanism": "LAPLACE"}}, "field noise_parameter is missing from noise"),
        (counts(), {"noise": [GEOMETRIC, GEOMETRIC]}, "noise has 2 parts"),
        (
            counts(),
            {"noise": "GEOMETRIC"},
            "noise must be a mapping of noise_mechanism and noise_parameter, got str",
        ),
        (
            counts(),
            {"noise": {**GEOMETRIC, "noise_parameter": "2"}},
            "noise_parameter must be one real number",
        ),
        (
            counts(count=[[3], [4]]),
            {"noise": GEOMETRIC},
            "'count' must have one number in each row, got lists",
        ),
        (
            counts(county=[["a"], ["b"]]),
            {"noise": GEOMETRIC},
            "'county' must be words or numbers, to be a key",
        ),
        (counts(), {"noise": GEOMETRIC, "axes": []}, "axes must name key columns, each once"),
        (counts(), {"noise": GEOMETRIC, "axes": ["county"] * 2}, "axes must name key columns, each once"),
        (
            counts(),
            {"noise": {**GEOMETRIC, "noise_mechanism": "EXPONENTIAL"}},
            "EXPONENTIAL, which is not noise",
        ),
        (
            counts(),
            {"noise": {**GEOMETRIC, "noise_parameter": -2}},
            "noise_parameter must be finite and > 0, got -2",
        ),
        (counts(), {"noise": {**GEOMETRIC, "noise_parameter": 0}}, "noise_parameter must be .*> 0, got 0"),
        (
            counts(),
            {"noise": {"noise_mechanism": "GAUSSIAN", "noise_parameter": -4.0}},
            "noise_parameter must be finite and > 0, got -4",
        ),
        (counts(count=[3.5, 4]), {"noise": GEOMETRIC}, "count must be whole numbers, got 3.5"),
        (counts(count=[3, None]), {"noise": GEOMETRIC}, r"count has missing or infinite entries.*\(1,\)"),
        (counts(count=["3", "x"]), {"noise": GEOMETRIC}, "column 'count' must be numbers, got 'x' in row 2"),
        (counts(count=[3 + 1j, 4]), {"noise": GEOMETRIC}, "column 'count' must be real numbers"),
        (counts(count=[3, 4, 5]), {"noise": GEOMETRIC}, "columns of one length"),
        (counts(county=["a", "a"]), {"noise": GEOMETRIC}, "two rows for county = a"),
        (counts(county=["a", "a"]), {"noise": GEOMETRIC, "axes": "county"}, "two rows for county = a"),
        (
            counts(),
            {"noise": GEOMETRIC, "axes": "sex"},
            "column 'sex' is missing from the table .named in axes",
        ),
        (
            counts(sex=["F", "M"]),
            {"noise": GEOMETRIC, "axes": ["county", "sex"]},
            r"do not fill the shape \(2, 2\) of its axes: there is none for county = a, sex = M",
        ),
        (counts(), {"noise": GEOMETRIC, "epsilon": -1}, "epsilon must be a finite number > 0, got -1"),
        (counts(), {"noise": GEOMETRIC, "sensitivity": 0}, "sensitivity must be a finite number > 0"),
        (
            counts(),
            {"noise": GEOMETRIC, "sensitivity": 3, "epsilon": 0.5},
            "budget contradicts the noise.*epsilon = 0.5.*scale and sensitivity = 3 gives.*epsilon = 1.5",
        ),
        ({"count": [], "county": []}, {"noise": GEOMETRIC}, "table has no rows"),
        ([1, 2], {"noise": GEOMETRIC}, "must be a path, a data frame or columns by name, got list"),
        ("counts.xlsx", {"noise": GEOMETRIC}, "must end in .csv, .tsv, .parquet"),
    ],
)
def test_refusals_of_tumult(table, given, message):
    with pytest.raises((TypeError, ValueError), match=message):
        dp.importers.tumult(table, given.pop("value", "count"), **given)


@pytest.mark.parametrize(
    ("table", "given", "message"),
    [
        (counts(), {}, "column 'noise_kind' is missing from the table .the kind of noise; or give it"),
        (counts(), {"noise_kind": "laplace"}, "column 'count_noise_stddev' is missing"),
        (
            counts(),
            {"noise_kind": "generic"},
            "noise_kind must be one of 'laplace', 'gaussian', got 'generic'",
        ),
        (
            counts(count_noise_stddev=[1.0, 0.0]),
            {"noise_kind": "laplace"},
            "count_noise_stddev must be finite and > 0, got 0",
        ),
        (
            counts(count_noise_stddev=[1.0, np.nan]),
            {"noise_kind": "gaussian"},
            "count_noise_stddev must be finite and > 0, got nan",
        ),
    ],
)
def test_refusals_of_pipelinedp(table, given, message):
    with pytest.raises((TypeError, ValueError), match=message):
        dp.importers.pipelinedp(table, "count", **given)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"a.csv": "county,count\nx,1,2\n"}, "3 fields in row 1, and 2 columns: county, count"),
        ({"a.csv": "county,count,count\nx,1,2\n"}, "two columns of one name"),
        ({"a.csv": "county,count\n"}, "table has no rows"),
        ({"a.csv": "county,count\nx,1_0\n"}, "column 'count' must be numbers, got '1_0' in row 1"),
        (
            {"a.csv": "county,count\nx," + 200_000 * "1" + "\n"},
            "cannot be read as text with columns .field larger",
        ),
        ({"a.csv": b"county,count\n\xff,1\n"}, "cannot be read as text with columns .*decode"),
        ({"a.csv.gz": "county,count\nx,1\n"}, "cannot be read as text with columns .Not a gzipped file"),
        ({"a.csv": ""}, "table has no rows"),
        (
            {"a/part-0.csv": "county,count\nx,1\n", "a/part-1.csv": "count\n1\n"},
            "part files with different columns",
        ),
        ({"a/other.csv": "county,count\nx,1\n"}, "a folder without part files"),
    ],
)
def test_refusals_of_files(tmp_path, files, message):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    path = tmp_path / next(iter(files)).split("/")[0]
    with pytest.raises(ValueError, match=message):
        dp.importers.tumult(path, "count", noise=GEOMETRIC)


def test_marks_of_byte_order_are_no_part_of_a_name(tmp_path):
    path = tmp_path / "counts.csv"
    path.write_text("county,count\nx, 7 \n", encoding="utf-8-sig")
    table = dp.importers.tumult(path, "count", noise=GEOMETRIC)
    assert list(table.labels) == ["county"] and table.release.value.tolist() == [7]


def test_frames_of_spark_are_not_collected():
    class Frame:
        columns = ("county", "count")

        def toPandas(self):
            raise AssertionError("collected")

    with pytest.raises(TypeError, match=r"pass table.toPandas\(\)"):
        dp.importers.tumult(Frame(), "count", noise=GEOMETRIC)
