"""Stores of studies: odd names, coordinates and folders; full disks and damaged files."""

import datetime
import errno
import os

import numpy as np
import pymc as pm
import pytest

import pymc_dp as dp
from pymc_dp.runs.study_store import StudyStore, _values, _written
from tests.runs.killed import many_releases

TINY = {"draws": 6, "tune": 6, "chains": 1, "random_seed": 1, "progressbar": False}


def small(name="mu", dim="group", coords=(0, 1)):
    with pm.Model(coords={dim: coords}) as model:
        mu = pm.Normal(name, 0, 1, dims=dim)
        pm.Normal("z", mu, 1, observed=np.zeros(2), dims=dim)
    return model


def fits(path=None, model=None, **changed):
    return dp.replicate(
        small() if model is None else model, {"z": many_releases(2)["z"]}, path=path, **TINY | changed
    )


@pytest.mark.parametrize(
    "coords",
    [
        [datetime.date(2020, 1, 1), datetime.date(2020, 1, 2)],
        [datetime.datetime(2020, 1, 1), datetime.datetime(2020, 1, 2, 3)],
        np.array(["2020-01-01", "2020-01-02"], dtype="datetime64[D]"),
        [1.0, np.nan],
        [True, False],
        ["Zürich", "Genève"],
    ],
)
def test_coordinates(coords, tmp_path):
    """Those that JSON does not know ended the study after its first fit."""
    model = small(coords=coords)
    found = fits(tmp_path / "s", model)
    assert found.identical(fits(tmp_path / "s", model))
    assert found.sizes["group"] == 2


@pytest.mark.parametrize(
    "values",
    [
        np.array(["2020-01-01", "2020-01-02"], dtype="datetime64[D]"),
        np.array([3, 7], dtype="timedelta64[h]"),
        np.array([1.5, np.inf]),
        np.array(["a", "é"]),
        np.array([1, None, "a"], dtype=object),
    ],
)
def test_coordinates_come_back_as_they_were(values):
    back = _values(_written(values))
    assert back.dtype == values.dtype
    np.testing.assert_array_equal(back, values)


@pytest.mark.parametrize("dim", ["summary", "replicate", "statistic"])
def test_a_dimension_with_a_name_of_the_result(dim):
    with pytest.raises(ValueError, match=rf"variables or dimensions named {dim}, .*rename them"):
        fits(model=small(dim=dim))


def test_nothing_to_keep():
    with pm.Model() as model:
        y = pm.Normal("y", 0, 1, shape=2)
        dp.LaplaceMechanism("z", y, scale=1, observed=np.zeros(2))
    with pytest.raises(ValueError, match="records or labels, of which none is kept: name those to keep"):
        fits(model=model)
    assert "y" in fits(model=model, var_names=["y"])


def test_numbers_of_numpy(tmp_path):
    assert fits(tmp_path / "s", keep=np.int64(3), draws=np.int64(6)).sizes["draw"] == 3


@pytest.mark.parametrize("name", ["plain", "with a space", "Zürich 日本"])
@pytest.mark.parametrize("kind", ["none", "empty", "link", "link to nothing"])
def test_folders(tmp_path, name, kind):
    path = tmp_path / name
    if kind == "empty":
        path.mkdir()
    elif kind.startswith("link"):
        path.symlink_to(tmp_path / "there")
        if kind == "link":
            (tmp_path / "there").mkdir()
    found = fits(path)
    assert found.identical(fits(path))


@pytest.mark.parametrize("run", ["fits", "blocks"])
def test_a_path_that_leads_through_a_file(tmp_path, run):
    (tmp_path / "file").write_text("x")
    with pytest.raises(OSError, match=r"path: .*cannot be made \(.*Give a folder"):
        if run == "fits":
            fits(tmp_path / "file" / "s")
        else:
            dp.sample_in_blocks(4, 4, 1, tmp_path / "file" / "s", model=small())
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_no_space_left(tmp_path, monkeypatch):
    write = StudyStore._write

    def full(self, outcome):
        if outcome.index == 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(self, outcome)

    monkeypatch.setattr(StudyStore, "_write", full)
    with pytest.raises(OSError, match=r"no space is left in .*call replicate again"):
        fits(tmp_path / "s")
    monkeypatch.undo()
    assert fits(tmp_path / "s").drop_vars("seconds").identical(fits(tmp_path / "t").drop_vars("seconds"))


@pytest.mark.parametrize("name", ["mu", "status"])
def test_a_damaged_store(tmp_path, name):
    fits(tmp_path / "s")
    chunk = max((p for p in (tmp_path / "s" / name / "c").rglob("*") if p.is_file()), key=os.path.getsize)
    data = bytearray(chunk.read_bytes())
    del data[len(data) // 2 :]
    chunk.write_bytes(bytes(data))
    with pytest.raises(ValueError, match=r"cannot be read .*left as they are. Restore them from a copy"):
        fits(tmp_path / "s")


@pytest.mark.parametrize("name", ["mu", "mu_draws", "acceptance", "sha256"])
def test_a_file_that_is_gone(tmp_path, name):
    """zarr reads missing values in its place."""
    fits(tmp_path / "s", keep="draws")
    next(p for p in (tmp_path / "s" / name / "c" / "1").parent.rglob("*") if p.is_file()).unlink()
    with pytest.raises(ValueError, match=r"numbers of fit [01] are not those .* Restore them from a copy"):
        fits(tmp_path / "s", keep="draws")


def test_a_status_that_is_gone_is_a_fit_made_again(tmp_path):
    found = fits(tmp_path / "s").drop_vars("seconds")
    next(p for p in (tmp_path / "s" / "status" / "c").rglob("*") if p.is_file()).unlink()
    assert fits(tmp_path / "s").drop_vars("seconds").identical(found)


def test_numbers_that_do_not_exist_are_kept(tmp_path):
    """A variable that is missing everywhere writes no file, and is not taken for a lost one."""
    model = small()
    with model:
        pm.Deterministic("nothing", np.nan * model["mu"])
    found = fits(tmp_path / "s", model, var_names=["mu", "nothing"])
    assert np.isnan(found["nothing"].sel(summary="mean")).all()
    assert found.identical(fits(tmp_path / "s", model, var_names=["mu", "nothing"]))
