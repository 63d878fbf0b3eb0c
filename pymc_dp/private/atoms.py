"""Refusal of laws of confidential rows with atoms for which PyMC's log density would be wrong."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pymc.model.core import Model
from pytensor.graph.basic import Variable
from pytensor.graph.replace import graph_replace

from pymc_dp.private.tails import behind_tails
from pymc_dp.query.supports import adds_to_atoms, behind_atoms, has_no_draws
from pymc_dp.step_methods.block.repeated import behind_repeated


def check_atoms(name: str, law: Any, covariates: Iterable[Variable], model: Model) -> None:
    """Refuse a law that mixes an atom with a density at the same place, or whose atoms move with a parameter.

    The check replaces covariates by random numbers, so that its outcome does not depend on the rows.

    Raises
    ------
    ValueError
    """
    rng = np.random.default_rng(0)
    numbers: dict[Variable, Variable] = {
        v: pt.constant(rng.uniform(size=v.type.shape).astype(v.type.dtype))  # type: ignore[attr-defined]
        for v in covariates
    }
    law = graph_replace([law], numbers, strict=False)[0] if numbers else law
    if adds_to_atoms(law, model.basic_RVs):
        raise ValueError(
            f"dist of '{name}' is a mixture in which one component has values of positive probability where "
            "another has a density, or may have some (a law that a user wrote): PyMC adds the two in its log "
            "density, and draws would follow another law. Write the log density of a row by hand: "
            "pm.Mixture.dist([w, 1 - w], [pm.DiracDelta.dist(c), law]) is pm.CustomDist.dist(w, mu, logp=f), "
            "where f(value, w, mu) is "
            "pt.switch(pt.eq(value, c), pt.log(w), pt.log1p(-w) + pm.logp(law, value)) and law depends on mu."
        )
    unseen = behind_tails if has_no_draws(law) else behind_repeated
    behind = {*behind_atoms(law, model.basic_RVs), *unseen(law, model)}
    if behind:
        names = ", ".join(sorted(str(v.name) for v in behind))
        raise ValueError(
            f"dist of '{name}' has values of positive probability at places that depend on {names} (an end "
            "at which it is censored, a constant in a mixture, the width of a grid). Densities of a row "
            f"given two values of {names} are of different kinds there, a probability and a density, and "
            "their ratio says nothing. Give these places as numbers, or as covariates={...} of the rows."
        )
