"""Kernels with an error in them: a pattern of the source is replaced before a model's kernel is compiled.

The pattern may also stand in one of the kernel's parts.
"""

import inspect
import re
import textwrap
from hashlib import sha256

from pytensor.link.numba.cache import CACHED_SRC_FUNCTIONS

from pymc_dp.lowering.addresses import bind
from pymc_dp.step_methods.mixture.bound import part_with_arrays


def rewritten(patch, pattern, by, *kernels):
    """Replace a pattern in some kernels, as ``re.sub``; return a list of those compiled with the error."""
    broken = []
    bound = bind.Kernel.__init__

    def from_function(self, kernel, signature, names):
        if kernel.__name__ in kernels and (found := mutant(kernel, names, pattern, by)):
            broken.append(kernel.__name__)
            kernel, names = found
        bound(self, kernel, signature, names)

    patch.setattr(bind.Kernel, "__init__", from_function)
    return broken


def mutant(function, names, pattern, by):
    """Return a function and the meanings of its names with the pattern replaced, None if it is nowhere."""
    parts = {}
    for name in function.__code__.co_names:
        part = names.get(name, function.__globals__.get(name))
        python = getattr(part, "py_func", None)
        if bind._is_part(part) and not python.__closure__:
            found = mutant(python, {}, pattern, by)
            if found is not None:
                kind = part_with_arrays if part.targetoptions["_nrt"] else bind.part_of_kernel
                parts[name] = kind(bind.rebound(*found))
    own = _replaced_in(function, pattern, by)
    if own is None and not parts:
        return None
    own = own or function
    return own, {name: v for name, v in {**names, **parts}.items() if name in own.__code__.co_names}


def _replaced_in(function, pattern, by):
    """Return the function with the pattern replaced, None if it is not there."""
    if function.__name__ == "<lambda>":
        return None
    text = textwrap.dedent(inspect.getsource(function))
    text = text[re.search(r"^def ", text, re.MULTILINE).start() :]
    after = re.sub(pattern, by, text.rstrip(), flags=re.MULTILINE)
    if after == text.rstrip():
        return None
    defined = {}
    exec(compile(after, f"<{function.__name__}, broken>", "exec"), function.__globals__, defined)
    (broken,) = defined.values()
    # the key tells it from the function as it is, whose module, name and line it has
    CACHED_SRC_FUNCTIONS[broken] = sha256(f"{bind.key_of(function)}{after}".encode()).hexdigest()
    return broken
