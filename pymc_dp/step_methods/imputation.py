"""Imputation of confidential records beside any other step for the parameters."""

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from pymc.model.core import Model
from pymc.step_methods.compound import Competence
from pytensor.graph.basic import Variable
from rich.progress import ProgressColumn

from pymc_dp.step_methods.discovery import blocks_with, check_no_table, model_of, record_blocks
from pymc_dp.step_methods.record_step import RecordChain, RecordStep, check_positive
from pymc_dp.step_methods.swept import OF_SWEEPS, Swept, progress, progress_columns, warn_of_passes


class RecordImputation(RecordStep):
    r"""Metropolis-within-Gibbs update of confidential records given their releases.

    For every record in turn a new value is proposed from the model, :math:`x_i^* \sim f(\cdot\mid\theta)`,
    and accepted with probability

    .. math:: \min\left\{1, \frac{q(s\mid x_1, \dots, x_i^*, \dots, x_n)}{q(s\mid x)}
              \cdot\frac{\text{other terms at } x_i^*}{\text{other terms at } x_i}\right\}.

    Under pure differential privacy, when nothing else in the model depends on the record, that is at least
    :math:`e^{-\epsilon}`. Records with few possible values that are released themselves (local privacy) are
    drawn from their full conditional. With a budget above 3 nats, other records are drawn from it where it is
    closed, and otherwise proposed by turns from the model and from what the release says: the reversed
    channel under additive noise, the cells or bins that a wavelet or a histogram tells apart, a grid under
    other channels of a clamped record.

    ``pm.sample`` chooses this step by itself for the records behind observed mechanisms, and others for
    the parameters that move together with records. Where :class:`AncillaryUpdate` or
    :class:`ConjugateUpdate` moves parameters of all of them, it sweeps over these, too, and this step is
    left out (below 200,000 records). Given as a step, it stands for the records alone: with
    ``step=[dp.RecordImputation()]`` all parameters that no other given step takes are left to PyMC's own
    choice, which is NUTS for continuous ones. That is exact too, and mixes slowly where privacy is
    strong, because NUTS sees the records as fixed; where a step of this package could have taken a
    parameter, a line in the log says so. To set options of this step and keep the others, pass
    ``record_imputation={...}`` to ``pm.sample``, or give them too.

    Parameters
    ----------
    vars : list of variables, optional
        Record variables; all records of the model if left out.
    proposals : {"auto", "independence", "informed"}, default "auto"
        ``"independence"``: proposals from the model only. ``"informed"``: only proposals that look at the
        record's own release. ``"auto"``: an exact draw where there is one, otherwise both in turn.
    n_sweeps : int, default 1
        Sweeps over all records per draw.
    model : pymc.Model, optional
        Taken from the context if left out.
    rng : optional
        Seed or generator; PyMC sets one per chain.

    Raises
    ------
    ValueError
        If the model has no observed release, a query touches no record, records are not conditionally
        independent, or an argument is out of range.

    Notes
    -----
    One draw costs O(n d) for d statistics per record: about 50 ns per record and sweep for a central release
    of ten statistics of three variables, 15 to 30 ns for a local one. A query that is no sum over records
    costs O(n^2). ``sample_stats`` gets ``record_acceptance`` (share of the draw's proposals accepted) and
    ``record_acceptance_min`` (lowest acceptance probability of any of them).

    References
    ----------
    Ju, Awan, Gong & Rao (2022), "Data Augmentation MCMC for Bayesian Inference from Privatized Data",
    algorithm 1 and proposition 3.1.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dp as dp
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu", 0, 2)
    ...     y = pm.Normal("y", mu, 1, shape=20)
    ...     z = dp.LaplaceMechanism("z", dp.record_sum(y), epsilon=1, bounds=(-3, 3), observed=8.0)
    ...     step = dp.RecordImputation()
    >>> [v.name for v in step.vars]
    ['y']

    AncillaryUpdate for ``mu``, or NUTS:

    >>> short = {"draws": 50, "tune": 50, "chains": 1, "random_seed": 1, "progressbar": False, "quiet": True}
    >>> default = pm.sample(model=model, **short)
    >>> by_nuts = pm.sample(model=model, step=[step], **short)
    >>> "ancillary_acceptance" in default.sample_stats, "tree_depth" in by_nuts.sample_stats
    (True, True)
    """

    name = "record_imputation"
    stats_dtypes_shapes: ClassVar[dict[str, Any]] = OF_SWEEPS

    def __init__(
        self,
        vars: Sequence[Variable] | None = None,
        *,
        proposals: Literal["auto", "independence", "informed"] = "auto",
        n_sweeps: int = 1,
        model: Model | None = None,
        rng: Any = None,
        initial_point: dict[str, Any] | None = None,
        compile_kwargs: dict | None = None,
        blocked: bool = True,
    ):
        if proposals not in ("auto", "independence", "informed"):
            raise ValueError(f"`proposals` must be 'auto', 'independence' or 'informed', got {proposals!r}.")
        check_positive("n_sweeps", n_sweeps)
        self.proposals, self.n_sweeps = proposals, int(n_sweeps)
        self._prepare(vars, model, rng, initial_point)
        for chain in self.chains:
            warn_of_passes(chain.program)

    def _build(self) -> None:
        model, moving = self._sized()
        self.chains = [
            RecordChain(model, block, self.proposals, self._default_point)
            for block in blocks_with(model, [model.rvs_to_values[rv] for rv in moving])
        ]

    def step(self, point: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], list[dict[str, Any]]]:
        """Sweep over all records once (``n_sweeps`` times)."""
        point = self._started(point)
        swept = Swept()
        for chain in self.chains:
            program = chain.program
            theta = program.parameters.flatten(point)
            program.records.pack(point, out=chain.x)
            which = self.n_steps % len(chain.moves)
            tally = chain.sweep(self.rng, theta, chain.x, which, self.n_sweeps)
            swept.add(tally, program.n * self.n_sweeps)
            point.update(program.records.unpack(chain.x))
        self.n_steps += 1
        return self._checked(point), [swept.stats()]

    @classmethod
    def _claimable(cls, model: Model) -> list[Variable]:
        claimed = [model.rvs_to_values[rv] for block in record_blocks(model) for rv in block.records]
        if not claimed:
            check_no_table(model)
            raise ValueError(
                "This model has no confidential records: declare what was released with a mechanism, for "
                "example dp.LaplaceMechanism('z', query, ..., observed=value)."
            )
        return claimed

    @staticmethod
    def competence(var: Variable, has_grad: bool) -> Competence:
        """Answer PyMC: whether this step wants the variable."""
        model = model_of(var)
        if model is None:
            return Competence.INCOMPATIBLE
        records = {rv for block in record_blocks(model) for rv in block.records}
        return Competence.IDEAL if var in records else Competence.INCOMPATIBLE

    @staticmethod
    def _progressbar_config(n_chains: int = 1) -> tuple[list[ProgressColumn], dict[str, list[float]]]:
        return progress_columns(n_chains)

    @staticmethod
    def _make_progressbar_update_functions() -> tuple[Any]:
        return (progress,)
