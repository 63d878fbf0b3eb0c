"""Every Python block of the README and of the documentation runs.

The blocks of one page run in order and share their names. A block under the comment
``<!-- not run: reason -->`` is skipped.
"""

import math
import re
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest

import pymc_dp as dp
from pymc_dp.mechanisms.wavelet import butucea_sensitivity, haar_sensitivity

pytestmark = pytest.mark.compiles(1)

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>[\w{}-]*)[^\n]*\n(?P<code>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
SKIPPED = re.compile(r"<!-- not run: .+ -->\s*\Z")
LANGUAGES = {"", "python", "bash", "sh", "text", "json", "{toctree}"}


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, its text, and the line of the page it starts at."""

    language: str
    code: str
    line: int


def blocks_of(page):
    text = page.read_text(encoding="utf-8")
    blocks = []
    for match in FENCE.finditer(text):
        if SKIPPED.search(text[: match.start()]):
            continue
        line = text.count("\n", 0, match.start("code"))
        blocks.append(Block(match["language"], match["code"], line))
    return blocks


def python_blocks(page):
    return [block for block in blocks_of(page) if block.language == "python"]


def run(block, page, names):
    """Run one block; line numbers in a traceback are those of the page."""
    exec(compile("\n" * block.line + block.code, str(page), "exec"), names)


def readme(names):
    assert names["release"].parameters["scale"] == pytest.approx(10)  # "here of scale 10"
    (bound,) = dp.acceptance_report(names["idata"], names["model"]).bounds
    assert bound.bound == pytest.approx(math.exp(-1))  # "the lower bound exp(-epsilon)"


def count_the_cost(names):
    alone = [1, 1, 0.1]
    total = dp.guarantee(names["model"])
    assert total.delta == pytest.approx(2e-6) and total.epsilon < 0.9 * sum(alone)  # "and mostly less"


def densities(names):
    ratios = [butucea_sensitivity(level) / haar_sensitivity(level) for level in (0, 2, 4, 6)]
    assert [float(f"{r:.2g}") for r in ratios] == [20, 9.3, 7.3, 6.6]


def private_mcmc_budget(names):
    spent, half = names["dp"].accounting.epsilon(names["run"], 1e-6), 4 / 2
    assert spent < half  # "Twice the noise costs less than half of epsilon"
    ledger = names["ledger"]
    assert ledger.epsilon_left > ledger.epsilon - ledger.epsilon_spent  # "what is left is more than"
    assert [entry.claimed for entry in ledger.entries()] == [2] and "refusal" not in names


def publish_and_analyse(names):
    sd = math.sqrt(2) * names["total"].parameters["scale"]
    assert round(sd, -1) == 340 and sd / 400 < 1  # "about 340 mmHg, which is less than 1 mmHg for the mean"


def private_draws(names):
    assert np.sqrt(1.5) < names["clip"]  # "with `clip` above that, no row is ever clipped"
    assert np.abs(names["x"]).max(axis=0).tolist() == [1, 0.5, 0.5]
    # the posterior has standard deviations of .02 and .04, and few effective draws
    assert np.abs(names["mean"].values - names["fit"].params).max() < 0.25
    assert names["ledger"].epsilon_left < 0.1


# Numbers that a page states in its text.
STATED = {
    "README.md": readme,
    "docs/how-to/count-the-cost.md": count_the_cost,
    "docs/how-to/densities.md": densities,
    "docs/how-to/private-mcmc-budget.md": private_mcmc_budget,
    "docs/tutorials/private-draws.md": private_draws,
    "docs/tutorials/publish-and-analyse.md": publish_and_analyse,
}


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if python_blocks(page)],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_python_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    try:
        for block in python_blocks(page):
            run(block, page, names)
        STATED.get(str(page.relative_to(ROOT)), lambda names: None)(names)
    finally:
        plt.close("all")


def test_no_code_escapes():
    """All fences have a form that is found above, and Python in them is called so."""
    for page in [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]:
        text = page.read_text(encoding="utf-8")
        # other forms: tildes, more than three backquotes, directives with colons, in quotations
        assert not re.search(r"^[ >]*(~~~|````|:::)|^ *>[ >]*```", text, re.MULTILINE), page
        fences = FENCE.findall(text)
        assert 2 * len(fences) == len(re.findall(r"^\s*```", text, re.MULTILINE)), page
        assert {language for _, language, _ in fences} <= LANGUAGES, page
        for _, language, code in fences:
            assert language == "python" or not re.search(r"^(>>>|import |from \w+ import)", code, re.M), page
            assert language != "python" or ">>>" not in code, (
                page
            )  # its output would be compared with nothing


def test_readme_opens_with_the_two_commands():
    shell = [block for block in blocks_of(ROOT / "README.md") if block.language in {"bash", "sh"}]
    commands = [line.partition("#")[0].strip() for line in shell[0].code.splitlines()]
    assert [command for command in commands if command] == ["make demo", "make test"]
