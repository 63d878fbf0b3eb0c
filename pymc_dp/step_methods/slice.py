"""Conditional sampler of mixtures behind private releases."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from pymc.model.core import Model
from pytensor.graph.basic import Variable

from pymc_dp.step_methods.mixture.cycles import STICKS, Plan
from pymc_dp.step_methods.mixture.step import MixtureStep
from pymc_dp.step_methods.record_step import check_positive


class PrivateSlice(MixtureStep):
    r"""Labels given the weights of the clusters, and confidential records given the labels.

    Weights are drawn given the labels, a slice variable :math:`u_i \sim U(0, w_{c_i})` for every record, as
    many further components as have a weight above the least of them, and then every label among the
    components with :math:`w_h > u_i`, in proportion to the density of the record. The records follow by the
    moves of :class:`RecordImputation`. Given weights and atoms all records are independent.

    Parameters
    ----------
    vars : list of variables, optional
        Labels and records; all that are behind a release if left out.
    proposals : {"auto", "independence", "informed"}
        As for :class:`RecordImputation`.
    n_cycles : int, optional
        Sweeps per draw, with an update of the atoms after each; by default more for fewer records.
    model : pymc.Model, optional
        Taken from the context if left out.
    rng : optional
        Seed or generator; PyMC sets one per chain.

    Raises
    ------
    ValueError
        If the model has no such mixture, an argument is out of range, or, while sampling, all
        ``max_components`` slots are occupied and a new cluster needs one.
    NotImplementedError
        If the kernel or the law of the atoms has no scalar form.

    Notes
    -----
    A sweep costs O(components above the slice variable) per record. With a discount, the smallest slice
    variable may ask for very many components; a sweep that would need more than 10,000 leaves the labels as
    they are. ``sample_stats`` are those of
    :class:`PrivateNeal5`, which mixes better under strong privacy.

    References
    ----------
    Beraha, Favaro & Rao, "MCMC for Bayesian nonparametric mixture
    modeling under differential privacy", section 3.2; Kalli,
    Griffin & Walker (2011), "Slice sampling mixture models".

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dp as dp
    >>> with pm.Model():
    ...     labels = dp.ChineseRestaurantProcess("labels", concentration=1, shape=4, max_components=4)
    ...     mu = pm.Normal("mu", 0, 3, shape=4)
    ...     y = pm.Normal("y", mu[labels], 1)
    ...     z = dp.LaplaceMechanism("z", y, epsilon=5, bounds=(-10, 10), observed=[-4.0, -3.1, 2.2, 3.0])
    ...     step = dp.PrivateSlice()
    >>> [v.name for v in step.vars]
    ['labels', 'y']
    """

    name = "private_slice"

    def __init__(
        self,
        vars: Sequence[Variable] | None = None,
        *,
        proposals: Literal["auto", "independence", "informed"] = "auto",
        n_cycles: int | None = None,
        model: Model | None = None,
        rng: Any = None,
        initial_point: dict[str, Any] | None = None,
        compile_kwargs: dict | None = None,
        blocked: bool = True,
    ):
        check_positive("n_cycles", n_cycles, or_none=True)
        if proposals not in ("auto", "independence", "informed"):
            raise ValueError(f"`proposals` must be 'auto', 'independence' or 'informed', got {proposals!r}.")
        self.proposals, self.n_cycles = proposals, n_cycles
        self._prepare(vars, model, rng, initial_point)

    @property
    def _kernels(self) -> dict[str, Any]:
        return {"n_auxiliary": 0, "conditional": "slice"}

    def _plan(self, m: int, n_cycles: int) -> Plan:
        return Plan(np.full(n_cycles, STICKS))
