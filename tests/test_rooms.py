"""The rooms of the package: who may import whom, and what every module and public name has."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import pytest

import pymc_dp as dp
from pymc_dp.lowering.version import digest

PACKAGE = Path(dp.__file__).resolve().parent
MODULES = {p.relative_to(PACKAGE).as_posix(): p for p in sorted(PACKAGE.rglob("*.py"))}
TREES = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in MODULES.items()}
EVERY_MODULE = pytest.mark.parametrize("name", MODULES)
MAX_LINES = 400


def imports(name):
    """Modules that a module imports, with the names it takes from them, however it does it."""
    found = set()
    package = ["pymc_dp", *Path(name).parent.parts]
    for node in ast.walk(TREES[name]):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            found |= {module} | {f"{module}.{alias.name}" for alias in node.names}
    return found


def room(name):
    parts = Path(name).parts
    return parts[0] if len(parts) > 1 else ""


def inside(module, package):
    return module == package or module.startswith(package + ".")


def importing(package, rooms=None):
    """Modules (of some rooms) that import from a package."""
    return {
        name
        for name in MODULES
        if (rooms is None or room(name) in rooms) and any(inside(m, package) for m in imports(name))
    }


@EVERY_MODULE
def test_modules_are_short(name):
    assert len(MODULES[name].read_text(encoding="utf-8").splitlines()) <= MAX_LINES


@EVERY_MODULE
def test_modules_say_what_they_are_for(name):
    source = MODULES[name].read_text(encoding="utf-8")
    assert ast.get_docstring(TREES[name]) or not source.strip()


@EVERY_MODULE
def test_nothing_is_printed(name):
    calls = [n for n in ast.walk(TREES[name]) if isinstance(n, ast.Call)]
    assert not [n for n in calls if isinstance(n.func, ast.Name) and n.func.id == "print"]


def test_mechanisms_and_steps_do_not_know_each_other():
    assert not importing("pymc_dp.step_methods", {"mechanisms", "privacy", "lowering"})
    assert not importing("pymc_dp.mechanisms", {"step_methods", "lowering", "privacy"})


def test_arrows_between_the_parts_of_a_step_point_one_way():
    """A block of records, then sweeps over it, then updates of parameters, then the steps themselves."""
    parts = ["block", "sweeps", "updates"]
    steps = {name for name in MODULES if Path(name).parent.as_posix() == "step_methods"}
    assert len(steps) > 5
    for i, part in enumerate(parts):
        inner = {name for name in MODULES if Path(name).parent.as_posix() == f"step_methods/{part}"}
        assert len(inner) > 3, part
        for later in parts[i + 1 :]:
            assert not inner & importing(f"pymc_dp.step_methods.{later}"), (part, later)
        of_steps = {
            f"pymc_dp.step_methods.{Path(step).stem}" for step in steps if Path(step).stem != "__init__"
        }
        assert not {name for name in inner if any(inside(m, s) for m in imports(name) for s in of_steps)}


def test_only_the_lowering_touches_compilers():
    """PyTensor's backends and numba's internals move from release to release."""
    for package in ("pytensor.link", "numba.core", "numba.extending", "numba.np"):
        assert all(room(name) == "lowering" for name in importing(package)), package


def test_lowering_knows_nothing_of_privacy():
    for package in ("pymc_dp.mechanisms", "pymc_dp.mixtures", "pymc_dp.records", "pymc_dp.step_methods"):
        assert not importing(package, {"lowering"})


def test_partitions_are_distributions():
    """Samplers and summaries know them, and they know neither these nor releases."""
    for package in ("pymc_dp.mechanisms", "pymc_dp.privacy", "pymc_dp.stats", "pymc_dp.step_methods"):
        assert not importing(package, {"mixtures"}), package
    known_to = {room(name) for name in importing("pymc_dp.mixtures")}
    assert known_to <= {"", "mixtures", "stats", "step_methods"}
    assert importing("pymc_dp.mixtures", {""}) == {"__init__.py"}


def test_records_are_integrated_out_of_models():
    """Nothing below knows of it, no sampler is needed for it, and a pair is added beside its mechanism."""
    assert {room(name) for name in importing("pymc_dp.marginals")} == {"", "marginals"}
    # the hooks name the way to records that were not stored, where there is one
    assert importing("pymc_dp.marginals", {""}) == {"__init__.py", "hooks.py"}
    for package in ("pymc_dp.step_methods", "pymc_dp.mixtures", "pymc_dp.stats"):
        assert not importing(package, {"marginals"}), package


def test_nothing_rests_on_the_hooks():
    """They are on top of all else, for PyMC's functions to go through."""
    assert importing("pymc_dp.hooks") == {"__init__.py"}


def test_plots_show_what_is_computed_elsewhere():
    """They may use the summaries; nothing uses them."""
    assert importing("pymc_dp.plots") == {"__init__.py"}
    for package in ("lowering", "mechanisms", "mixtures", "privacy", "records", "step_methods"):
        assert not importing(f"pymc_dp.{package}", {"plots"}), package
    drawing = {name for name in MODULES if any(inside(m, "matplotlib") for m in imports(name))}
    assert drawing == {"plots/budget.py", "plots/mixtures.py"}


def test_privacy_is_arithmetic():
    """Guarantees and calibration need no model."""
    for package in ("pymc", "pytensor", "numba"):
        assert not importing(package, {"privacy"})


def test_every_public_name_is_there():
    assert dp.__all__ == sorted(dp.__all__)
    assert all(hasattr(dp, name) for name in dp.__all__)


@pytest.mark.parametrize("name", dp.__all__)
def test_public_names_are_documented(name):
    """A first line, every argument, and an example (which the doctests run)."""
    thing = getattr(dp, name)
    doc = inspect.getdoc(thing)
    assert doc and doc.splitlines()[0].endswith(".")
    assert "Examples\n--------\n" in doc
    assert ">>> " in doc.split("Examples\n--------\n")[1]


TEXTS = [
    p
    for folder in ("pymc_dp", "tests", "docs", "examples", "benchmarks", "scripts")
    for suffix in ("*.py", "*.md")
    for p in sorted((PACKAGE.parent / folder).rglob(suffix))
    if "_build" not in p.parts
]


def test_no_paths_of_one_machine():
    """Nothing in the repository knows where it was written."""
    homes = ["/" + first for first in ("home/", "Users/", "tmp/", "work/")]
    found = [
        (path.name, home)
        for path in TEXTS
        if path != Path(__file__)
        for home in homes
        if f'"{home}' in path.read_text(encoding="utf-8")
    ]
    assert not found


def test_compiled_code_is_kept_under_the_source(tmp_path):
    """A changed sampler is never run from a cache: the source is in every key, not a number kept by hand."""
    file = tmp_path / "sampler.py"
    file.write_text("one")
    before = digest([file])
    file.write_text("another")
    assert digest([file]) != before
    by_hand = re.compile(r"^    return \w+, \d+$|VERSION|version=\d", re.MULTILINE)
    found = [name for name, path in MODULES.items() if by_hand.search(path.read_text(encoding="utf-8"))]
    assert found == ["privacy/release.py"]  # the version of a published format
