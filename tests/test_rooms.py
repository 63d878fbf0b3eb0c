"""The rooms of the package: who may import whom, and what every module and public name has."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import numba
import numpy as np
import pytest

import pymc_dp as dp
from pymc_dp.lowering.compiling.nopython import njit, njit_for_graphs

PACKAGE = Path(dp.__file__).resolve().parent
MODULES = {p.relative_to(PACKAGE).as_posix(): p for p in sorted(PACKAGE.rglob("*.py"))}
TREES = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in MODULES.items()}
IMPORTED_AS = {
    ".".join(["pymc_dp", *Path(name).with_suffix("").parts]).removesuffix(".__init__"): name
    for name in MODULES
}
PAGE = PACKAGE.parent / "docs/explanation/architecture.md"
# What users call and the package does not, by the page that tells them.
FOR_USERS = {"privacy/discrete_gaussian.py": "docs/how-to/noise-level.md"}
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


def modules_read(name):
    """Modules of the package that one of its modules imports."""
    return {IMPORTED_AS[m] for m in imports(name) if m in IMPORTED_AS} - {name}


def room_on_the_page(name):
    """A folder, a part of the steps, or a file beside them."""
    path = Path(name)
    if len(path.parts) > 1:
        return path.parent.as_posix()
    return path.stem


def blocks_of_the_page():
    """What stands between fences: the tree of files, then the arrows."""
    page = PAGE.read_text(encoding="utf-8").split("## The rooms")[1].split("\n## ")[0]
    return page.split("```\n")[1::2]


def named_on_the_page():
    """Paths of the files in the tree; a folder stands for its ``__init__.py`` too."""
    found, folders = [], []
    for line in blocks_of_the_page()[0].splitlines():
        level = (len(line) - len(line.lstrip())) // 2
        folders = folders[:level]
        if folder := re.match(r"(\w+)/(\s|$)", line.lstrip()):
            folders.append(folder[1])
            found.append("/".join([*folders[1:], "__init__.py"]))
        found += ["/".join([*folders[1:], file]) for file in re.findall(r"\w+\.py\b", line)]
    return found


def arrows_of_the_page():
    lines = blocks_of_the_page()[1].replace("\n ", " ").splitlines()
    rows = dict(line.split(" -> ") for line in lines)
    assert len(rows) == len(lines)
    return {(first, second) for first, listed in rows.items() for second in re.split(r",\s+", listed)}


def test_the_page_names_every_file_once():
    named = named_on_the_page()
    unnamed, stale = sorted(MODULES.keys() - set(named)), sorted(set(named) - MODULES.keys())
    twice = sorted({name for name in named if named.count(name) > 1})
    assert not unnamed, f"{PAGE.name} does not say what these are for: {unnamed}"
    assert not stale, f"{PAGE.name} names files that are not there: {stale}"
    assert not twice, f"{PAGE.name} names files twice: {twice}"


def test_files_in_the_text_of_the_page_are_there():
    text = "".join(PAGE.read_text(encoding="utf-8").split("```")[::2])
    names = set(re.findall(r"`([\w/]+\.py)`", text))
    assert names
    stale = sorted(name for name in names if not any(f"/{path}".endswith(f"/{name}") for path in MODULES))
    assert not stale, f"{PAGE.name} names files that are not there: {stale}"


def test_arrows_on_the_page_are_those_of_the_code():
    stated, found = arrows_of_the_page(), {}
    for name in MODULES:
        for other in modules_read(name):
            first, second = room_on_the_page(name), room_on_the_page(other)
            if first != second:
                found.setdefault((first, second), []).append(f"{name} imports {other}")
    new = [f"{' -> '.join(arrow)} ({'; '.join(why)})" for arrow, why in found.items() if arrow not in stated]
    assert not new, f"{PAGE.name} does not state these arrows; state them, or remove the imports: {new}"
    gone = [" -> ".join(arrow) for arrow in sorted(stated - found.keys())]
    assert not gone, f"{PAGE.name} states arrows that no import makes: {gone}"


def test_every_module_is_used():
    """By what a user imports, or by the user: the rest would be dead."""
    reached, waiting = set(), ["__init__.py", *FOR_USERS]
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            folders = Path(name).parents[:-1]
            waiting += [*modules_read(name), *(f"{folder.as_posix()}/__init__.py" for folder in folders)]
    dead = sorted(MODULES.keys() - reached)
    assert not dead, f"nothing imports these: {dead}"
    for name, page in FOR_USERS.items():
        dotted = next(m for m, n in IMPORTED_AS.items() if n == name)
        assert dotted in (PACKAGE.parent / page).read_text(encoding="utf-8")
        assert not any(name in modules_read(other) for other in MODULES), f"{name} is used: no exception"


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


def test_private_parts_of_others_are_used_in_one_place():
    """They move from release to release, and ``docs/explanation/upstream.md`` says what each is for."""
    for package in ("pytensor.link", "numba.core", "numba.np"):
        assert {room(name) for name in importing(package)} == {"upstream"}, package
    assert {room(name) for name in importing("numba.extending")} == {"lowering", "upstream"}
    others = ("pymc", "pytensor", "numba")
    hidden = {name: {m for m in imports(name) if inside_of_others(m, others)} for name in MODULES}
    assert not {name: found for name, found in hidden.items() if found and room(name) != "upstream"}
    assert not importing("pymc_dp", {"upstream"})
    read = re.compile(r"\._(props_dict|random_fn|defn)\b|[\"']_print_name[\"']")
    assert {room(name) for name, path in MODULES.items() if read.search(path.read_text())} == {"upstream"}


def inside_of_others(module, packages):
    """Whether a name, or a module on the way to it, is marked as private by one of some packages."""
    first, *rest = module.split(".")
    return first in packages and any(part.startswith("_") for part in rest)


def test_flags_are_changed_under_one_lock():
    """Two threads that change PyTensor's flags at once do not put back what was there before."""
    for name, tree in TREES.items():
        locked = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.With):
                held = [isinstance(i.context_expr, ast.Name) and i.context_expr.id for i in node.items]
                after = held.index("flags_lock") + 1 if "flags_lock" in held else len(held)
                under = [*node.items[after:], *(node.body if "flags_lock" in held else [])]
                locked |= {inner for part in under for inner in ast.walk(part)}
        calls = {n for n in ast.walk(tree) if isinstance(n, ast.Attribute) and n.attr == "change_flags"}
        assert calls <= locked, name


def test_division_by_zero_is_numpys_in_all_machine_code():
    """Compiled functions raise Python's error otherwise, unless whoever compiles them first does not."""
    compilers = re.compile(r"\b(numba\.(njit|jit|vectorize|guvectorize|cfunc)|numba_njit|numba_basic)\b")
    found = {
        name
        for name in MODULES
        if compilers.search(MODULES[name].read_text(encoding="utf-8"))
        or any(m in {"numba.njit", "numba.jit", "numba.vectorize", "numba.cfunc"} for m in imports(name))
    }
    assert found - {"upstream/pytensor_private.py"} == {"lowering/compiling/nopython.py"}
    with pytest.raises(ZeroDivisionError):
        numba.njit(lambda x: 1.0 / x)(0.0)
    inverse = njit_for_graphs(lambda x: 1.0 / x)
    assert numba.njit(lambda x: inverse(x))(0.0) == np.inf
    assert njit(lambda x: 1.0 / x)(0.0) == np.inf


def test_other_code_for_a_function_is_in_its_key():
    """Numba's own decorator would keep it from :func:`pymc_dp.lowering.compiling.keys.key_of`."""
    assert importing("numba.extending.overload") == {"lowering/compiling/keys.py"}


def test_lowering_knows_nothing_of_privacy():
    for package in (
        "pymc_dp.mechanisms",
        "pymc_dp.mixtures",
        "pymc_dp.query.records",
        "pymc_dp.step_methods",
    ):
        assert not importing(package, {"lowering"})


def test_partitions_are_distributions():
    """Samplers and summaries know them, and they know neither these nor releases."""
    for package in ("pymc_dp.mechanisms", "pymc_dp.privacy", "pymc_dp.stats", "pymc_dp.step_methods"):
        assert not importing(package, {"mixtures"}), package
    known_to = {room(name) for name in importing("pymc_dp.mixtures")}
    assert known_to <= {"", "mixtures", "runs", "stats", "step_methods"}
    assert importing("pymc_dp.mixtures", {""}) == {"__init__.py"}


def test_records_are_integrated_out_of_models():
    """Nothing below knows of it, no sampler is needed for it, and a pair is added beside its mechanism."""
    assert {room(name) for name in importing("pymc_dp.marginals")} == {"", "marginals"}
    # the hooks name the way to records that were not stored, and their advice names tables of people,
    # and so does the step that moves people as the table into which they are counted
    assert importing("pymc_dp.marginals", {""}) == {
        "__init__.py", "advice.py", "hooks.py", "tabulated_imputation.py",
    }  # fmt: skip
    for package in ("pymc_dp.step_methods", "pymc_dp.mixtures", "pymc_dp.stats"):
        assert not importing(package, {"marginals"}), package


def test_nothing_rests_on_the_hooks():
    """They are on top of all else, for PyMC's functions to go through."""
    assert importing("pymc_dp.hooks") == {"__init__.py"}


def test_plots_show_what_is_computed_elsewhere():
    """They may use the summaries; nothing uses them."""
    assert {room(name) for name in importing("pymc_dp.plots")} == {"", "plots"}
    assert importing("pymc_dp.plots", {""}) == {"__init__.py"}
    for package in ("lowering", "mechanisms", "mixtures", "query", "step_methods"):
        assert not importing(f"pymc_dp.{package}", {"plots"}), package
    drawing = {name for name in MODULES if any(inside(m, "matplotlib") for m in imports(name))}
    assert {room(name) for name in drawing} == {"plots"}


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


def test_no_key_of_compiled_code_is_kept_by_hand():
    """A changed sampler is never run from a cache: keys follow from code (tests/lowering/test_keys.py)."""
    by_hand = re.compile(r"^    return \w+, \d+$|VERSION|version=\d", re.MULTILINE)
    found = [name for name, path in MODULES.items() if by_hand.search(path.read_text(encoding="utf-8"))]
    assert found == ["privacy/release.py"]  # the version of a published format
