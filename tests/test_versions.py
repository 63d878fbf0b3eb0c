"""Version and dependencies are the same wherever they are written down; releases leave nothing out."""

import re
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
RECIPE = yaml.safe_load((ROOT / "packaging/recipe.yaml").read_text(encoding="utf-8"))
# Packages that have another name on conda channels: without what only a display or a compiler needs.
ON_CONDA = {"matplotlib": "matplotlib-base", "pytensor": "pytensor-base"}


def test_version_is_one():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    found = {citation["version"], citation["preferred-citation"]["version"], RECIPE["context"]["version"]}
    assert found == {PROJECT["version"]}
    assert "## [Unreleased]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_recipe_needs_what_the_package_needs():
    needed = {f"python {PROJECT['requires-python']}"}
    for requirement in PROJECT["dependencies"]:
        name, versions = re.fullmatch(r"([a-z]+)(.*)", requirement).groups()
        needed.add(f"{ON_CONDA.get(name, name)} {versions}")
    assert set(RECIPE["requirements"]["run"]) == needed


def test_what_is_linked_exists():
    """In the checklist of a release: the files and commands that it names."""
    text = (ROOT / "RELEASING.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:\.ci|scripts|tests|docs|packaging)/[\w./]+)", text))
    assert len(named) >= 6
    assert all((ROOT / name).exists() for name in named), named
