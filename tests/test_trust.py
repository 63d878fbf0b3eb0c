"""The trust report: what counts as which kind of test, what is recorded, which names the page has."""

import json

import numpy as np
import pymc as pm
import pytest

import pymc_dp as dp
from scripts import trust as report
from tests import trust


@pytest.mark.parametrize(
    ("node", "kind"),
    [
        ("tests/statistics/test_sbc.py::test_calibration[ClampedNormal-1-together]", "calibration"),
        ("tests/statistics/test_power.py::test_calibration_rejects[doubled ratio]", "planted errors"),
        ("tests/mixtures/test_samplers_joint.py::test_joint_distribution[wrong]", "joint distribution"),
        ("tests/statistics/test_geweke.py::test_ancillary_update[x]", "joint distribution"),
        ("tests/mixtures/test_samplers_exact.py::test_posterior_is_exact[x]", "exact answers"),
        ("tests/universal/test_universal.py::test_ratios_are_the_models[x]", "universal"),
        ("tests/test_bad_input.py::test_messages[x]", None),
    ],
)
def test_kinds(node, kind):
    assert trust.kind_of(node) == kind


def test_what_moves_is_recorded():
    recorder = trust.Recorder()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trust.BlockedStep, "__new__", trust.BlockedStep.__new__)
        patch.setattr(dp.RecordImputation, "step", dp.RecordImputation.step)
        recorder.watch()
        with pm.Model():
            x = pm.Bernoulli("x", 0.5, shape=3)
            dp.LaplaceMechanism("z", x.sum(), scale=1.0, observed=2.0)
            step = dp.RecordImputation()
            point = {"x": np.array([0, 1, 1])}
            assert not recorder.met
            step.step(point)
    assert recorder.met == {("RecordImputation", "LaplaceMechanism")}


def test_counts_are_of_tests_that_passed():
    met = [["RecordImputation", "HistogramLaplace"]]
    name = "tests/statistics/test_exact.py::test_posterior_is_exact"
    tests = {
        f"{name}[1]": {"outcome": "passed", "met": met},
        f"{name}[2]": {"outcome": "failed", "met": met},
        "tests/contract/test_density.py::test_x[LaplaceMechanism-scale]": {"outcome": "passed", "met": []},
    }
    assert report.by_step(tests)["RecordImputation"]["PerturbedHistogram"] == {"exact answers": 1}
    assert report.by_mechanism(tests)["LaplaceMechanism"] == {"density": 1}


def test_only_the_reporting_process_writes(tmp_path):
    for writes in (True, False):
        plugin = object.__new__(trust.Plugin)
        plugin.path, plugin.writes, plugin.tests = tmp_path / f"{writes}.json", writes, {}
        plugin.pytest_sessionfinish()
    assert json.loads((tmp_path / "True.json").read_text()) == {}
    assert not (tmp_path / "False.json").exists()


def test_the_page_has_every_step_and_mechanism():
    """And a reason for each kind of test that a step was not given, as the generator asks for."""
    page = report.PAGE.read_text(encoding="utf-8")
    for step in report.public_steps():
        _, found, after = page.partition(f"### {step}\n")
        total = next(line for line in after.splitlines() if line.startswith("| all"))
        part = after.partition("###")[0]
        missing = [kind for kind, cell in zip(report.COLUMNS, total.split("|")[2:]) if cell.strip() == "-"]
        assert found and all(f"* *{kind}*: " in part for kind in missing), step
    for mechanism in report.public_mechanisms():
        assert f"\n| `{mechanism}` | " in page, mechanism
    assert ", 0 failed" in page
