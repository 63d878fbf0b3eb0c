"""Folders of runs and studies with a file that was changed anyhow: the same numbers, or an error."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from pymc_dp.runs import study_store
from tests.properties.conftest import UNTIL_ONE_FAILS
from tests.runs.killed import fits, shared
from tests.runs.test_blocks import assert_same

pytestmark = pytest.mark.statistical

# Where in a folder, where in the file, and what is done there.
damages = st.tuples(
    st.floats(0, 1, exclude_max=True),
    st.floats(0, 1, exclude_max=True),
    st.sampled_from(["flipped", "cut", "longer", "gone", "empty"]),
    st.integers(1, 255),
)


def damaged(folder, damage):
    """Do something to one of the files."""
    which, where, what, bits = damage
    files = sorted(p for p in folder.rglob("*") if p.is_file())
    path = files[int(which * len(files))]
    data = bytearray(path.read_bytes())
    event(f"{path.relative_to(folder).parts[0]}: {what}")
    at = int(where * len(data))
    if what == "gone":
        path.unlink()
        return
    if what == "flipped" and data:
        data[at] ^= bits
    elif what == "cut":
        del data[at:]
    elif what == "longer":
        data += bytes([bits])
    else:
        data.clear()
    path.write_bytes(bytes(data))


def check(run, folder, same, damage):
    """Run again on a damaged copy."""
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / "copy"
        shutil.copytree(folder, copy)
        damaged(copy, damage)
        try:
            found = run(copy)
        except (ValueError, OSError) as error:
            event("refused")
            assert str(copy) in str(error) and len(str(error)) > 60, error
        else:
            same(found)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A run in blocks that can be gone on with, and what that gives."""
    folder = tmp_path_factory.mktemp("run") / "stopped"
    shared(folder, draws=30)
    whole = shared(tmp_path_factory.mktemp("run") / "whole", draws=40)
    return folder, whole


def test_a_run_goes_on_as_it_was_or_not_at_all(stopped):
    folder, whole = stopped

    @settings(max_examples=25)
    @given(damages)
    def over(damage):
        check(
            lambda path: shared(path, draws=40),
            folder,
            lambda found: assert_same(whole, found),
            damage,
        )

    over()


def check_study(tmp_path, **options):
    found = fits(tmp_path / "study", n=3).drop_vars("seconds")

    @settings(max_examples=25, **options)
    @given(damages)
    def over(damage):
        def same(again):
            assert again.drop_vars("seconds").identical(found)

        check(lambda path: fits(path, n=3), tmp_path / "study", same, damage)

    over()


def test_a_study_is_what_it_was_or_nothing(tmp_path):
    check_study(tmp_path)


def test_a_study_without_digests_is_seen(tmp_path, monkeypatch):
    monkeypatch.setattr(study_store, "_check_digests", lambda found, indices: None)
    with pytest.raises(AssertionError):
        check_study(tmp_path, **UNTIL_ONE_FAILS)
