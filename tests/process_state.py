"""What an import may change in a process; run as a script, it prints what importing the package changes."""

import atexit
import gc
import importlib
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import warnings

LIBRARIES = ("numba", "numpy", "pymc", "pytensor")
LOADED = (
    "import json, sys, pymc_dp\n"
    "print(json.dumps([m for m in sys.modules if m.partition('.')[0] not in ('pymc_dp', '__main__')]))"
)


def load_libraries():
    """Import what the package imports of others, so that what they change is not taken for ours."""
    run = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    for name in json.loads(run.stdout):
        try:
            importlib.import_module(name)
        except ImportError:  # a module that another one makes
            pass


def recorded(calls, function):
    """Return the function, which notes its calls."""

    def call(*args, **kwargs):
        calls.append(f"{args} {kwargs}")
        return function(*args, **kwargs)

    return call


def is_ours(kind):
    return str(getattr(kind, "__module__", "")).partition(".")[0] == "pymc_dp"


def modules():
    return {n: m for n, m in sys.modules.items() if n.partition(".")[0] in LIBRARIES and m is not None}


def rewrites(database, name):
    """Names of the rewrites in a database and in those inside it, by their tags."""
    from pytensor.graph.rewriting.db import RewriteDatabase

    found = {}
    for tag, objects in database.__db__.items():
        found[f"{name} {tag}"] = sorted(str(getattr(o, "name", o)) for o in objects)
        for inner in objects:
            if isinstance(inner, RewriteDatabase) and inner.name == tag:
                found |= rewrites(inner, f"{name}.{tag}")
    return found


def dispatched():
    """Return what functions are chosen by the type of an argument, for types that are not ours."""
    return {
        f"{module}.{name} {kind}": id(function)
        for module, contents in modules().items()
        for name, value in list(vars(contents).items())
        if hasattr(value, "registry") and hasattr(value, "dispatch")
        for kind, function in value.registry.items()
        if not is_ours(kind)
    }


def names():
    """Return what the names of modules, and of the classes in them, mean."""
    found = {}
    for module, contents in modules().items():
        for name, value in list(vars(contents).items()):
            if name.startswith("__") or is_ours(value):  # a module that was imported is an attribute too
                continue
            found[f"{module}.{name}"] = id(value)
            if isinstance(value, type) and value.__module__ == module:
                attributes = {k: v for k, v in vars(value).items() if callable(v) or k == "__new__"}
                found |= {f"{module}.{name}.{k}": id(v) for k, v in attributes.items()}
    return found


def state():
    import numba
    import numpy as np
    import pytensor
    from pytensor.compile.mode import optdb, predefined_modes, predefined_optimizers

    loggers = {name: logging.getLogger(name) for name in ("root", "pymc", "pytensor", "numba")}
    return {
        "names": names(),
        "dispatched": dispatched(),
        "rewrites": rewrites(optdb, "optdb"),
        "modes": {str(k): id(v) for k, v in {**predefined_modes, **predefined_optimizers}.items()},
        "pytensor": {k: str(getattr(pytensor.config, k)) for k in pytensor.config._config_var_dict},
        "numba": {k: str(v) for k, v in vars(numba.config).items() if k.isupper()},
        "caches": {"places": str(numba.core.caching.CacheImpl._locator_classes)},
        "numpy": {"errors": str(np.geterr()), "printing": str(np.get_printoptions())},
        "random": {"numpy": str(np.random.get_state(legacy=False))},  # noqa: NPY002
        "signals": {str(s): str(signal.getsignal(s)) for s in signal.valid_signals()},
        "logging": {name: f"{log.level} {log.handlers}" for name, log in loggers.items()},
        "process": {
            "warnings": str(warnings.filters),
            "environment": str(sorted(os.environ.items())),
            "threads": threading.active_count(),
            "collector": str((gc.isenabled(), gc.get_threshold())),
            "limits": str((sys.getrecursionlimit(), sys.getswitchinterval())),
            "excepthook": id(sys.excepthook),
        },
    }


def changes(before, after):
    """Names of what is new, other or gone."""
    return sorted(k for k in before.keys() | after.keys() if before.get(k) != after.get(k))


def main():
    load_libraries()
    state()  # looks at modules that others load when they are looked at
    forks, exits = [], []
    os.register_at_fork = recorded(forks, os.register_at_fork)
    atexit.register = recorded(exits, atexit.register)
    before = state()
    import pymc_dp  # noqa: F401

    after = state()
    found = {what: changes(before[what], after[what]) for what in before}
    print(json.dumps({**found, "hooks of forks": forks, "hooks of the exit": exits}))


if __name__ == "__main__":
    main()
