"""Parts of PyMC, PyTensor and numba that are not public are where they were, and take what they took.

Nothing of the package is imported here: were one gone, the import would fail with its first error. This test
names all that moved, from the tables of ``docs/explanation/upstream.md``.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs/explanation/upstream.md").read_text(encoding="utf-8")
ROWS = {
    name: [argument for argument in arguments.strip().split(", ") if argument]
    for name, arguments in re.findall(r"^\| `([\w.]+)` \|([^|]*)\|", PAGE, re.MULTILINE)
}


def imported():
    """Names that the files of the room import, with their modules."""
    for path in (ROOT / "pymc_dp/upstream").glob("*_private.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module != "typing":
                yield from (f"{node.module}.{alias.name}" for alias in node.names)


def wrapped():
    """Names of the functions that ``hooks.install`` wraps."""
    tree = ast.parse((ROOT / "pymc_dp/hooks.py").read_text(encoding="utf-8"))
    install = next(n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "install")
    loop = next(n for n in install.body if isinstance(n, ast.For))
    return [f"{ast.unparse(row.elts[0])}.{row.elts[1].value}" for row in loop.iter.elts]


def found(name):
    """What a dotted name means: a module as far as there is one, then attributes."""
    thing, at = None, ""
    for part in name.split("."):
        at = f"{at}.{part}".strip(".")
        if thing is not None and hasattr(thing, part):
            thing = inspect.getattr_static(thing, part) if inspect.isclass(thing) else getattr(thing, part)
        else:
            thing = importlib.import_module(at)
    return thing


def arguments_of(thing):
    thing = getattr(thing, "__func__", thing)
    thing = getattr(thing, "__wrapped__", thing) if hasattr(thing, "_of_pymc_dp") else thing
    return list(inspect.signature(thing).parameters) if callable(thing) else []


def test_the_page_names_all():
    names = sorted({*imported()})
    assert len(names) > 25
    assert not [name for name in names if name not in ROWS]
    assert len(wrapped()) == 8
    assert not [name for name in wrapped() if not any(row.endswith(f".{name}") for row in ROWS)]
    stated = [name for name in ROWS if not any(name.endswith(f".{w}") for w in wrapped())]
    assert not [name for name in stated if not any(f"{name}.".startswith(f"{known}.") for known in names)]


@pytest.mark.parametrize("name", ROWS)
def test_it_is_where_it_was(name):
    try:
        thing = found(name)
    except ImportError as error:
        pytest.fail(f"{name} has moved ({error}): see docs/explanation/upstream.md for what it is used for")
    assert arguments_of(thing) == ROWS[name], (
        f"{name} takes other arguments: see docs/explanation/upstream.md"
    )


def test_what_moved_is_named():
    """The test above can fail."""
    with pytest.raises(ImportError, match="no_such_module"):
        found("numba.core.no_such_module.thing")
    with pytest.raises(ImportError, match="no_such_name"):
        found("pymc.logprob.abstract.no_such_name")
    assert arguments_of(found("pytensor.link.numba.cache.hash_from_pickle_dump")) == ["obj"]
