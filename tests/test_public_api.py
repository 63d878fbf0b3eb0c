"""What users may rely on: public names and their arguments are those that are written down.

A change that is meant is written down by ``python -m tests.test_public_api > tests/public_api.txt``, and told
in ``CHANGELOG.md``.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from types import ModuleType

from pymc.distributions.distribution import Distribution
from pymc.step_methods.compound import BlockedStep

import pymc_dp as dp

WRITTEN = Path(__file__).with_name("public_api.txt")


def signatures():
    """Yield each public name with its arguments and their defaults, without types."""
    for name in dp.__all__:
        thing = getattr(dp, name)
        inside = thing.__all__ if isinstance(thing, ModuleType) else []
        for full, one in [(f"{name}.{n}", getattr(thing, n)) for n in inside] or [(name, thing)]:
            yield f"{full}{arguments(one)}"
            if inspect.isclass(one):
                yield from (f"{full}.{n}{arguments(getattr(one, n))}" for n in methods(one))


def methods(of):
    """Names that users call; those of steps are called by PyMC."""
    if issubclass(of, BlockedStep):
        return []
    if issubclass(of, Distribution):
        return [name for name in ("dist", "release") if hasattr(of, name)]
    ours = (n for c in of.__mro__ if c.__module__.startswith("pymc_dp") for n in vars(c))
    return sorted({name for name in ours if not name.startswith("_") and callable(getattr(of, name, None))})


def arguments(thing):
    if not callable(thing):
        return ""
    try:
        found = inspect.signature(thing)
    except ValueError:  # of a class that is made by its base's constructor
        return "(...)"
    plain = [p.replace(annotation=p.empty) for p in found.parameters.values()]
    return str(found.replace(parameters=plain, return_annotation=found.empty))


def test_public_names_are_those_that_are_written_down():
    assert list(signatures()) == WRITTEN.read_text(encoding="utf-8").splitlines()


def test_no_internals_in_dir():
    assert dir(dp) == sorted([*dp.__all__, "__version__"])


if __name__ == "__main__":
    print("\n".join(signatures()))
