"""A long run that survives a kill: ``pm.sample`` with a checkpoint after each block."""

import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
from pymc.model.core import BaseModel, modelcontext
from pymc.step_methods.arraystep import PopulationArrayStepShared
from rich.progress import Progress
from xarray import DataTree

from pymc_dp.private.confidential import confidential_terms
from pymc_dp.runs.asked import check_names, progress_bar
from pymc_dp.runs.chains import Chain
from pymc_dp.runs.checkpoint import Checkpoint, one_at_a_time
from pymc_dp.runs.digests import digest_of, told
from pymc_dp.runs.steps import Begun, begun, unknown
from pymc_dp.runs.structures import digest
from pymc_dp.upstream.pymc_private import as_result

_log = logging.getLogger("pymc.dp")  # below PyMC's own, which prints to the console

# Arguments of pm.sample that a run in blocks does not take, and why.
_NOT_TAKEN = {
    "callback": "draws are in the folder at the end of each block",
    "trace": "path= is where draws are kept",
    "return_inferencedata": "the result is what pm.sample returns by default",
    "nuts_sampler": "only PyMC's own sampler says where it stands; leave it out",
    "nuts_sampler_kwargs": "say it to the step, nuts={...}",
    "mp_ctx": "processes are joblib's",
    "blas_cores": "each chain runs on one core; OMP_NUM_THREADS limits BLAS",
    "discard_tuned_samples": "draws of the tuning are in the folder, and not in the result",
    "keep_warning_stat": "warnings are not written",
    "idata_kwargs": "leave it out, and call pm.compute_log_likelihood on the result",
    "quiet": "progressbar=False and compute_convergence_checks=False say nothing",
    "progressbar_theme": "leave it out",
}


def sample_in_blocks(
    draws: int = 1000,
    tune: int = 1000,
    chains: int = 4,
    path: str | Path | None = None,
    block: int = 500,
    *,
    model: BaseModel | None = None,
    step: Any = None,
    var_names: Sequence[str] | None = None,
    random_seed: int | None = None,
    cores: int = 1,
    progressbar: bool = True,
    compute_convergence_checks: bool = True,
    **kwargs: Any,
) -> DataTree:
    """Sample as ``pm.sample`` does, and keep what there is after each block of draws.

    Called again with the same arguments, after whatever happened, it goes on from the last block of each
    chain; the draws are, to the bit, those of a run that was not interrupted and had its compiled code from
    the disk as well (code that was compiled in the same process may differ in the last digit). Called with
    more `draws`, it adds to them.

    Parameters
    ----------
    draws, tune, chains : int
        As for ``pm.sample``.
    path : path_like
        Folder of the run: made if there is none, continued if there is one.
    block : int, default 500
        Draws of a chain between two checkpoints; at most so many are drawn again after a kill.
    model : pymc.Model, optional
        Taken from the context if left out.
    step : step or list of steps, optional
        As for ``pm.sample``.
    var_names : sequence of str, optional
        Variables that are kept; by default all, records among them.
    random_seed : int, optional
        Seed of the run. Without, one is drawn when the run begins, and kept in the folder.
    cores : int, default 1
        Processes; each runs one chain after another.
    progressbar, compute_convergence_checks : bool
        As for ``pm.sample``.
    **kwargs
        Further arguments of ``pm.sample``: ``initvals``, ``target_accept``, options of steps.

    Returns
    -------
    xarray.DataTree
        As of ``pm.sample``. After an interrupt from the keyboard, the draws so far.

    Raises
    ------
    ValueError
        Before any draw: `path` holds another run (another model, other data or arguments), a damaged one, or
        one of a newer version; the model has confidential rows; an argument is out of range.
    BlockingIOError
        Another process runs this run.
    OSError
        There is no space left; everything before the block is kept.

    Warns
    -----
    UserWarning
        As ``pm.sample`` does, of chains that have not converged.

    Notes
    -----
    What is kept: draws and statistics as arrays of a zarr store, and for each chain where it stands (its
    steps' state, with what tuning learnt, generators, the values of all variables, imputed records included).
    A file of a state is read by a reader that makes nothing but such states, so that a folder from somebody
    else runs no program. A block costs some milliseconds, and what writing its draws takes.

    Steps forget at the end of each block what they keep between draws for speed alone. For that reason the
    draws depend, by rounding, on `block`; with one of at least ``tune + draws`` they are those of
    ``pm.sample(cores=1)``.

    Steps on confidential rows are refused: a resumed run would draw its noise anew, and spend again, unseen.

    Examples
    --------
    >>> import tempfile
    >>> import pymc as pm
    >>> import pymc_dp as dp
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu", 0, 1)
    ...     y = pm.Normal("y", mu, 1, shape=20)
    ...     z = dp.LaplaceMechanism("z", dp.record_sum(y), epsilon=1, bounds=(-3, 3), observed=5.0)
    >>> folder = tempfile.mkdtemp()
    >>> short = {"tune": 100, "chains": 2, "path": folder, "block": 50, "model": model, "random_seed": 1,
    ...          "progressbar": False, "compute_convergence_checks": False}
    >>> first = dp.sample_in_blocks(100, **short)
    >>> more = dp.sample_in_blocks(200, **short)
    >>> bool((more.posterior["mu"].sel(draw=slice(0, 99)) == first.posterior["mu"]).all())
    True
    """
    model = modelcontext(model)
    _check(draws, tune, chains, block, cores, random_seed, kwargs)
    if path is None:
        raise TypeError("sample_in_blocks needs path=, the folder of the run.")
    if terms := confidential_terms(model):
        raise ValueError(
            f"model has the confidential rows of {', '.join(str(t.name) for t, _ in terms)}: a run that is "
            "resumed would draw its noise anew, and spend again. Use pm.sample, with a ledger."
        )
    check_names(model, var_names)
    _refuse_populations(step)
    where = Path(path)
    described = {
        "model": digest(model, observed=True),
        "draws": int(draws), "tune": int(tune), "chains": int(chains), "block": int(block),
        "var_names": None if var_names is None else list(var_names),
        "steps": _named_steps(step),
        "arguments": {name: told(value) for name, value in sorted(kwargs.items())},
    }  # fmt: skip
    with one_at_a_time(where):
        checkpoint = Checkpoint(where, _with_seed(where, described, random_seed))
        start = time.perf_counter()
        with progress_bar(progressbar) as progress:
            run = _Run(model, step, var_names, kwargs, described, checkpoint.seed)
            traces = run.all_chains(checkpoint, progress, int(cores))
        return as_result(
            traces,
            model,
            tune=int(tune),
            seconds=time.perf_counter() - start,
            checks=compute_convergence_checks,
        )


class _Run:
    """Chains of a run, in this process or in others."""

    def __init__(
        self,
        model: BaseModel,
        step: Any,
        var_names: Any,
        kwargs: dict[str, Any],
        described: dict[str, Any],
        seed: int,
    ):
        self.model, self.step, self.var_names = model, step, var_names
        self.kwargs, self.described, self.seed = kwargs, described, seed
        self._made: Begun | None = None

    def chain(self, chain: int) -> Chain:
        """Return a chain, its steps made once for all of this process."""
        d = self.described
        if self._made is None:
            with self.model as model:
                self._made = begun(model, self.step, self.kwargs, d["chains"], d["tune"], self.seed)
        return Chain(self.model, self._made, chain, d["tune"], d["draws"], d["block"], self._trace_vars())

    def all_chains(self, checkpoint: Checkpoint, progress: Progress, cores: int) -> list[Any]:
        """Run what is left of all chains, and return their traces."""
        total, n = self.described["tune"] + self.described["draws"], self.described["chains"]
        task = progress.add_task("draws", total=n * total)
        left = []
        for k in range(n):
            kept = checkpoint.chain(k)
            done = 0 if kept is None else int(kept["done"])
            progress.advance(task, done)
            left += [k] * (done < total)
        traces: list[Any] = []
        try:
            if cores > 1 and len(left) > 1:
                self._elsewhere(left, checkpoint, cores, lambda: progress.advance(task, total))
            for k in range(n):
                chain = self.chain(k)
                traces.append(chain.trace)
                chain.run(checkpoint, _often(lambda many: progress.advance(task, many)))
        except KeyboardInterrupt:
            traces = self._so_far(traces, checkpoint)
            if not traces:
                raise
            _log.warning(
                "Interrupted: blocks that had ended are in %s; call again to go on.", checkpoint.path
            )
        finally:
            if self._made is not None:  # steps given by the caller go into the next call as they came
                self._made.step.sampling_state = self._made.state
        return traces

    def _so_far(self, traces: list[Any], checkpoint: Checkpoint) -> list[Any]:
        """Return the traces that have draws after the tuning, those of chains in other processes as kept."""
        for trace in traces:
            trace.close()
        for k in range(len(traces), self.described["chains"]):
            if checkpoint.chain(k) is not None:
                chain = self.chain(k)
                chain.read(checkpoint)
                chain.trace.close()
                traces.append(chain.trace)
        return [trace for trace in traces if len(trace) > self.described["tune"]]

    def _elsewhere(
        self, chains: list[int], checkpoint: Checkpoint, cores: int, told: Callable[[], None]
    ) -> None:
        """Run chains in processes, which keep their blocks themselves."""
        from joblib import Parallel, delayed

        pickled = cloudpickle.dumps(
            (self.model, self.step, self.var_names, self.kwargs, self.described, self.seed)
        )
        parallel = Parallel(n_jobs=min(cores, len(chains)), backend="loky", return_as="generator_unordered")
        for _ in parallel(delayed(_run_chain)(pickled, k, checkpoint.path) for k in chains):
            told()

    def _trace_vars(self) -> Any:
        if self.var_names is None:
            return None
        kept = [v for v in self.model.unobserved_RVs if v.name in self.var_names]
        return self.model.replace_rvs_by_values(kept)


def _run_chain(pickled: bytes, chain: int, path: Path) -> None:
    model, step, var_names, kwargs, described, seed = cloudpickle.loads(pickled)
    run = _Run(model, step, var_names, kwargs, described, seed)
    run.chain(chain).run(Checkpoint(path, {**described, "seed": seed}))


def _often(advance: Callable[[int], None], every: float = 0.2) -> Callable[[int], None]:
    """Tell of draws a few times a second: a progress bar takes longer than a draw."""
    held, last = 0, time.perf_counter()

    def told(many: int) -> None:
        nonlocal held, last
        held += many
        now = time.perf_counter()
        if now - last > every:
            advance(held)
            held, last = 0, now

    return told


# -- arguments ------------------------------------------------------------------------------------


def _check(
    draws: Any, tune: Any, chains: Any, block: Any, cores: Any, random_seed: Any, kwargs: dict[str, Any]
) -> None:
    for name, value, least in (
        ("draws", draws, 1), ("tune", tune, 0), ("chains", chains, 1), ("block", block, 1), ("cores", cores,
        1),
    ):  # fmt: skip
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
            raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}.")
    seeded = random_seed is None or (isinstance(random_seed, int | np.integer) and random_seed >= 0)
    if not seeded or isinstance(random_seed, bool):
        raise ValueError(f"random_seed must be a whole number of at least 0, got {random_seed!r}.")
    for name in kwargs:
        if name in _NOT_TAKEN:
            raise TypeError(f"sample_in_blocks takes no {name}=: {_NOT_TAKEN[name]}.")
    if found := unknown(list(kwargs)):
        raise TypeError(
            f"sample_in_blocks got {', '.join(found)}: no argument of pm.sample, and no name of a step."
        )


def _refuse_populations(step: Any) -> None:
    steps = step if isinstance(step, list | tuple) else [step]
    found = [type(s).__name__ for s in steps if isinstance(s, PopulationArrayStepShared)]
    if found:
        raise TypeError(
            f"step: {', '.join(found)} moves all chains together, and here each goes on by itself. Use "
            "pm.DEMetropolisZ in its place, or pm.sample."
        )


def _named_steps(step: Any) -> list[str] | None:
    """Return what steps are: their classes, and all that was said to them."""
    if step is None:
        return None
    given = step if isinstance(step, list | tuple) else [step]
    return [f"{type(s).__name__} {digest_of(getattr(s, 'sampling_state', None))[:16]}" for s in given]


def _with_seed(path: Path, described: dict[str, Any], seed: int | None) -> dict[str, Any]:
    """Add the seed: the one given, that of the run in the folder, or a new one."""
    import json
    import secrets
    from contextlib import suppress

    if seed is None:
        with suppress(OSError, ValueError, KeyError):
            seed = int(json.loads((path / "run.json").read_bytes())["seed"])
    return {**described, "seed": secrets.randbits(63) if seed is None else int(seed)}
