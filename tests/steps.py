"""Which step moves which variable, as PyMC itself decides it."""

from __future__ import annotations

from typing import Any

import pymc as pm
from pymc.sampling import mcmc
from pymc.step_methods.compound import flatten_steps

from pymc_dp.hooks import swept_with_parameters


def assigned(model: pm.Model, step: Any = None) -> dict[str, str]:
    """Return the name of the step that `pm.sample` would give each free variable; nothing is compiled."""
    provided, selected = mcmc.assign_step_methods(model, step)
    return by_variable(model, provided, swept_with_parameters(model, selected))


def by_variable(model: pm.Model, provided: list[Any], selected: dict[Any, list[Any]]) -> dict[str, str]:
    """Return the names of steps by those of their variables, as `assign_step_methods` returned the steps."""
    found = {v: type(s).__name__ for p in provided for s in flatten_steps(p) for v in s.vars}
    found |= {v: kind.__name__ for kind, values in selected.items() for v in values}
    assert set(found) == set(model.value_vars)
    return {str(model.values_to_rvs[v].name): found[v] for v in model.value_vars}
