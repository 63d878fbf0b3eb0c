"""Write the page of the trust report from what the tests recorded: ``python scripts/trust.py FILE ...``.

FILE is made by ``make test FULL=1 ARGS="--record=FILE"``. The page says what was tried with which result, and
what was not tried.
"""

from __future__ import annotations

import argparse
import inspect
import json
import subprocess
import sys
import textwrap
from collections import Counter, defaultdict
from datetime import date
from pathlib import Path

from pymc.step_methods.compound import BlockedStep

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import pymc_dp as dp  # noqa: E402
from pymc_dp.mechanisms.mechanism import Mechanism  # noqa: E402
from tests.trust import NO_MECHANISM, kind_of  # noqa: E402
from tests.universal.models import MODELS  # noqa: E402
from tests.universal.steps import STEPS  # noqa: E402

PAGE, TEMPLATE = ROOT / "docs/explanation/trust.md", ROOT / "scripts/trust_page.md"
COLUMNS = ("exact answers", "calibration", "joint distribution", "planted errors")
# Parts of a mechanism's promise, by the files of the contract tests that try them.
CONTRACT = {
    "density": "density", "guarantee": "privacy", "release": "releases", "records behind it": "imputation",
    "declaration": "declaration",
}  # fmt: skip
# Operations by the mechanism that users know them as, where names differ.
PUBLIC = {
    "Histogram": "PerturbedHistogram", "Projection": "ProjectionMechanism", "Processed": "postprocessed",
    "QuadraticKNormGradient": "KNormGradient",
}  # fmt: skip
NONE = "models without a release"
# Why a step has no test of a kind; a cell without its reason is an error.
_APPROXIMATE = (
    "the step is approximate, so that a test of its exactness would reject it: its distance from the "
    "posterior is measured instead ({doc}`exactness`)."
)
_ONE_RUN = (
    "the rows of a private step are those that its run was debited for, and cannot be drawn anew between "
    "draws, as this test does."
)
_OF_TABLES = (
    "it draws the people behind tables that TableImputation has moved, from their exact law, and has been "
    "compared with enumeration alone."
)
_NOT_PLANTED = "none was planted in this step; its sums, noise and costs have planted errors of their own."
WHY_NOT: dict[tuple[str, str], str] = {
    **{
        (step, kind): why
        for step in ("BarkerMetropolis", "MinibatchPenalty")
        for kind, why in zip(COLUMNS[1:], (_APPROXIMATE, _APPROXIMATE, _NOT_PLANTED))
    },
    ("PenaltyMetropolis", "joint distribution"): _ONE_RUN,
    ("PrivateHMC", "joint distribution"): _ONE_RUN,
    ("TabulatedImputation", "calibration"): _OF_TABLES,
    ("TabulatedImputation", "joint distribution"): _OF_TABLES,
}
# Why a part of a mechanism's promise was not tried.
WHY_NO_PART = {
    (
        "CustomMechanism",
        "release",
    ): "it releases nothing: a user's function draws no noise to be trusted.",
}


def public_steps() -> list[str]:
    """Return the names of the public step methods."""
    found = [name for name in dp.__all__ if inspect.isclass(getattr(dp, name))]
    return [name for name in found if issubclass(getattr(dp, name), BlockedStep)]


def public_mechanisms() -> list[str]:
    """Return the names of the public mechanisms."""
    found = [name for name in dp.__all__ if inspect.isclass(getattr(dp, name))]
    return [name for name in found if issubclass(getattr(dp, name), Mechanism)]


def public_name(operation: str) -> str:
    """Return the mechanism that users know an operation as."""
    if operation == NO_MECHANISM:
        return NONE
    return next((name for start, name in PUBLIC.items() if operation.startswith(start)), operation)


def by_step(tests: dict) -> dict[str, dict[str, Counter]]:
    """Numbers of tests that passed: of each step and mechanism, by kind."""
    found: dict[str, dict[str, Counter]] = defaultdict(lambda: defaultdict(Counter))
    known = set(public_steps())
    for node, test in tests.items():
        kind = kind_of(node)
        if kind is None or test["outcome"] != "passed":
            continue
        pairs = {(step, public_name(operation)) for step, operation in test["met"]}
        for step, mechanism in pairs:
            if step in known:
                found[step][mechanism][kind] += 1
    return found


def by_mechanism(tests: dict) -> dict[str, Counter]:
    """Numbers of contract tests that passed, of each mechanism by part of its promise."""
    found: dict[str, Counter] = {name: Counter() for name in public_mechanisms()}
    for node, test in tests.items():
        if not node.startswith("tests/contract/") or test["outcome"] != "passed":
            continue
        part = next((p for p, file in CONTRACT.items() if f"/test_{file}.py" in node), None)
        words = node.partition("[")[2].rstrip("]").split("-")
        for name in {w.split(" ")[0] for w in words} & found.keys():
            if part is not None:
                found[name][part] += 1
    return found


def table(head: list[str], rows: list[list[str]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(row) + " |" for row in lines)


def cell(number: int) -> str:
    """Return a number, or a dash for none."""
    return str(number) if number else "-"


def page(tests: dict, commit: str, not_begun: int = 0) -> str:
    """Return the page."""
    steps, mechanisms = by_step(tests), by_mechanism(tests)
    outcomes = Counter(test["outcome"] for test in tests.values())
    tables = []
    for step in public_steps():
        rows = [
            [name if name == NONE else f"`{name}`", *(cell(counts[kind]) for kind in COLUMNS)]
            for name, counts in sorted(steps[step].items(), key=lambda item: -item[1].total())
        ]
        total = sum(steps[step].values(), Counter())
        rows.append(["all", *(cell(total[kind]) for kind in COLUMNS)])
        tables += [f"### {step}\n", table(["mechanism", *COLUMNS], rows)]
        reasons = [f"* *{kind}*: {WHY_NOT[step, kind]}" for kind in COLUMNS if not total[kind]]
        wrapped = [textwrap.fill(reason, 118, subsequent_indent="  ") for reason in reasons]
        tables += ["", *wrapped, ""] if reasons else [""]
    rows = [[f"`{name}`", *(cell(counts[part]) for part in CONTRACT)] for name, counts in mechanisms.items()]
    missing = [
        f"* `{name}`, *{part}*: {WHY_NO_PART[name, part]}"
        for name, counts in mechanisms.items()
        for part in CONTRACT
        if not counts[part]
    ]
    return TEMPLATE.read_text(encoding="utf-8").format(
        commit=commit,
        day=date.today().isoformat(),
        passed=outcomes["passed"],
        failed=outcomes["failed"],
        skipped=outcomes["skipped"],
        left=f" {not_begun} tests were not begun in the time given." if not_begun else "",
        models=len(MODELS),
        claims=len(STEPS),
        steps="\n".join(tables),
        mechanisms=table(["mechanism", *CONTRACT], rows) + "\n\n" + "\n".join(missing) + "\n",
    )


def main() -> None:
    """Read what was recorded, in one run or several, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("record", type=Path, nargs="+")
    parser.add_argument("--commit", default="HEAD", help="what was tested")
    parser.add_argument("--not-begun", type=int, default=0, help="tests that time did not suffice for")
    given = parser.parse_args()
    tests: dict = {}
    for path in given.record:
        tests |= json.loads(path.read_text())
    commit = subprocess.run(
        ["git", "rev-parse", "--short=12", given.commit], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()
    PAGE.write_text(page(tests, commit, given.not_begun), encoding="utf-8")


if __name__ == "__main__":
    main()
