"""Which steps met which mechanisms in which kind of test: what the page of the trust report is made from.

With ``--record=FILE`` the tests write there, for each that ran: its outcome, the pairs of a step that
moved and a mechanism of its model. ``scripts/trust`` makes the page.
"""

from __future__ import annotations

import json
import re
from functools import wraps
from pathlib import Path

import pymc as pm
import pytest
from pymc.step_methods.compound import BlockedStep

from pymc_dp.mechanisms.mechanism import MechanismOp
from pymc_dp.private.confidential import confidential_terms

NO_MECHANISM = "no mechanism"

# Kinds of tests by what their names say, the first that fits; others compare nothing with a law.
KINDS = {
    "planted errors": r"reject|caught|fault|broken|wrong|(is|are)_seen|power|they_are_not|mutant|forgotten",
    "universal": r"^tests/universal/",
    "calibration": r"calibration",
    "joint distribution": r"joint_distribution|geweke",
    "exact answers": r"exact|posterior|enumerat|oracle|law|conditional|is_that_of|same_draws|integrated_out",
}


def kind_of(node: str) -> str | None:
    """Return the kind of a test by its file and name, its parameters left out."""
    name = node.partition("[")[0].lower()
    return next((kind for kind, words in KINDS.items() if re.search(words, name)), None)


class Recorder:
    """What steps of this package and mechanisms of their models the running test has moved."""

    def __init__(self) -> None:
        self.met: set[tuple[str, str]] = set()
        self._mechanisms: dict[int, tuple[str, ...]] = {}

    def watch(self) -> None:
        """See every step that moves from now on."""
        made = BlockedStep.__new__

        @wraps(made)  # so that the package still knows it as its own
        def new(cls, *args, **kwargs):
            step = made(cls, *args, **kwargs)
            if cls.__module__.startswith("pymc_dp"):
                self._mechanisms[id(step)] = mechanisms_of(pm.modelcontext(kwargs.get("model")))
                self._see(cls)
            return step

        BlockedStep.__new__ = new

    def _see(self, cls) -> None:
        owner = next(c for c in cls.__mro__ if "step" in vars(c))
        if getattr(owner.step, "recorded", None) is self:
            return
        moved = owner.step

        @wraps(moved)
        def step(this, point):
            name = type(this).__name__
            self.met.update((name, mechanism) for mechanism in self._mechanisms.get(id(this), ()))
            return moved(this, point)

        step.recorded = self
        owner.step = step


def mechanisms_of(model: pm.Model) -> tuple[str, ...]:
    """Return the names of a model's mechanisms; of what is observed instead, if there is none."""
    ops = [rv.owner.op for rv in model.basic_RVs]
    found = {type(op).__name__.removesuffix("RV") for op in ops if isinstance(op, MechanismOp)}
    if confidential_terms(model):
        found.add("ConfidentialLikelihood")
    return tuple(sorted(found or {NO_MECHANISM}))


class Plugin:
    """Collects in the process that runs a test, and writes in the one that reports."""

    def __init__(self, path: Path, writes: bool) -> None:
        self.path, self.writes = path, writes
        self.recorder, self.tests = Recorder(), {}
        self.recorder.watch()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item):
        self.recorder.met.clear()
        try:
            return (yield)
        finally:
            item.user_properties.append(("met", sorted(self.recorder.met)))

    def pytest_runtest_logreport(self, report):
        if report.when == "call" and self.writes:
            met = dict(report.user_properties).get("met", [])
            self.tests[report.nodeid] = {"outcome": report.outcome, "met": met}

    def pytest_sessionfinish(self):
        if self.writes:
            self.path.write_text(json.dumps(self.tests))
