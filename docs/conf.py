"""Sphinx configuration.

The API reference is made from ``pymc_dp.__all__`` at every build, and programs of pages run, so that a page
shows what they print and draw. Outputs are kept in ``_build/outputs`` until a page's programs change.
"""

import inspect
import os
import re
from importlib import metadata
from pathlib import Path
from types import ModuleType

from pymc.distributions.distribution import Distribution

import pymc_dp

HERE = Path(__file__).parent

project = "pymc_dp"
author = "The pymc_dp developers"
copyright = author
try:
    release = metadata.version("pymc-dp")
except metadata.PackageNotFoundError:  # built from a checkout that is on the path but not installed
    release = "unreleased"

extensions = [
    "myst_nb",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.doctest",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
]
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
templates_path = ["_templates"]
html_theme = "furo"
html_title = f"pymc_dp {release}"

autosummary_generate = True
autodoc_member_order = "bysource"
# Types stand in the numpydoc sections; repeating them in the signature makes it unreadable.
autodoc_typehints = "none"
numpydoc_show_class_members = False
# The `>>>` examples of docstrings run under pytest, once; here only explicit directives of pages.
doctest_test_doctest_blocks = ""


# ---- what programs of pages print and draw ------------------------------------------------------

# "off" shows programs alone: the tests run them all, so that nothing is run twice where these follow.
nb_execution_mode = os.environ.get("DOCS_EXECUTE", "cache")
nb_execution_cache_path = str(HERE / "_build" / "outputs")
nb_execution_in_temp = True  # pages write ledgers and stores
nb_execution_raise_on_error = True
nb_execution_timeout = 600
nb_merge_streams = True

# Pages are plain Markdown, which sites that show repositories know. Here their programs become cells; a
# comment before one says what its figure shows, for those who do not see it; "hidden figure" that the program
# itself is not shown.
PROGRAM = re.compile(
    r"(?:^<!-- (?P<kind>not run|figure|hidden figure): (?P<said>[^>]+) -->\n+)?"
    r"^```python\n(?P<code>.*?)\n```$",
    re.MULTILINE | re.DOTALL,
)
NOTEBOOK = "---\nfile_format: mystnb\nkernelspec:\n  name: python3\n---\n\n"


def as_cell(found: re.Match) -> str:
    """The cell that a program becomes; of one that draws, the value of the last line is not shown."""
    if found["kind"] == "not run":
        return found[0]
    options, code = [], found["code"]
    if found["kind"]:
        alt = " ".join(found["said"].split())
        options = ["---", "mystnb:", "  image:", f"    alt: {alt!r}", "---"]
        code += ";"
    if found["kind"] == "hidden figure":
        options.insert(1, "tags: [remove-input]")
    return "\n".join(["```{code-cell} ipython3", *options, code, "```"])


def programs_run(app, name, source):
    """Make a page with programs a notebook."""
    text = PROGRAM.sub(as_cell, source[0])
    if "```{code-cell}" in text:
        source[0] = NOTEBOOK + text


# ---- the API reference ---------------------------------------------------------------------

# Section of a public name: by the part of the package its definition lives in.
SECTIONS = {
    "mechanisms": "Mechanisms",
    "privacy": "Privacy guarantees",
    "importers": "Releases and models of other tools",
    "records": "Records and queries",
    "marginals": "Records integrated out",
    "step_methods": "Step methods",
    "mixtures": "Random partitions and mixtures",
    "private": "Private sampling",
    "stats": "After sampling",
    "plots": "Plots",
    "testing": "Testing",
}
OTHER = "Other names"


def section_of(thing: object) -> str:
    """Heading under which a public object is listed."""
    home = getattr(thing, "__module__", None) or getattr(thing, "__name__", "")
    part = home.removeprefix("pymc_dp.").partition(".")[0]
    return SECTIONS.get(part, OTHER)


def public_names() -> dict[str, list[str]]:
    """Map each heading to the names listed below it, in the order of ``__all__``."""
    sections: dict[str, list[str]] = {heading: [] for heading in [*SECTIONS.values(), OTHER]}
    for name in getattr(pymc_dp, "__all__", ()):
        thing = getattr(pymc_dp, name)
        if isinstance(thing, ModuleType):
            # A public submodule is documented by the names that it declares itself.
            for inner in getattr(thing, "__all__", ()):
                sections[section_of(getattr(thing, inner))].append(f"{name}.{inner}")
        elif callable(thing):
            sections[section_of(thing)].append(name)
    return {heading: names for heading, names in sections.items() if names}


def write_reference(target: Path) -> None:
    """Write the page that lists every public name; autosummary makes a page of each."""
    sections = public_names()
    pages = {f"pymc_dp.{name}.rst" for names in sections.values() for name in names}
    for page in target.parent.glob("pymc_dp.*.rst"):
        if page.name not in pages:
            page.unlink()  # of a name that is no longer public
    lines = ["Public names", "============", "", ".. currentmodule:: pymc_dp", ""]
    for heading, names in sections.items():
        lines += [heading, "-" * len(heading), "", ".. autosummary::", "   :toctree: ."]
        lines += ["   :nosignatures:", "", *(f"   {name}" for name in names), ""]
    target.parent.mkdir(parents=True, exist_ok=True)
    text = "\n".join(lines)
    # Untouched when nothing changed, so that a rebuild has nothing to do.
    if not target.exists() or target.read_text(encoding="utf-8") != text:
        target.write_text(text, encoding="utf-8")


def skip_foreign_members(app, what, name, obj, skip, options):
    """Document the members that pymc_dp defines, not what it inherits from PyMC."""
    function = inspect.unwrap(obj.fget if isinstance(obj, property) else obj)
    function = getattr(function, "__func__", function)
    documented = callable(function) and bool(inspect.getdoc(function))
    ours = str(getattr(function, "__module__", "")).startswith("pymc_dp")
    return skip or name.startswith("_") or not (documented and ours)


def signature_of_distribution(app, what, name, obj, options, signature, return_annotation):
    """Show what a mechanism takes in a model block: a name, then the arguments of ``dist``."""
    if what == "class" and issubclass(obj, Distribution):
        taken = inspect.signature(obj.dist)
        parameters = [p.replace(annotation=p.empty) for p in taken.parameters.values()]
        first = inspect.Parameter("name", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        return str(inspect.Signature([first, *parameters])), return_annotation
    return None


def setup(app):
    """Connect to Sphinx."""
    write_reference(HERE / "reference" / "generated" / "index.rst")
    if nb_execution_mode != "off":
        app.connect("source-read", programs_run)
    app.connect("autodoc-skip-member", skip_foreign_members)
    app.connect("autodoc-process-signature", signature_of_distribution)
