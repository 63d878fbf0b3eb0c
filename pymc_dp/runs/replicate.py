"""Many fits: one model and many releases, or many models, on one core, many, or a cluster."""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import xarray as xr
from pymc.model.core import Model
from rich.progress import TextColumn

from pymc_dp.private.confidential import confidential_terms
from pymc_dp.runs.asked import check_names, progress_bar
from pymc_dp.runs.digests import digest_of, told
from pymc_dp.runs.fits import Case, Shared, Study, built, kept_names
from pymc_dp.runs.locks import locked
from pymc_dp.runs.releases import observed_by_fit
from pymc_dp.runs.steps import unknown
from pymc_dp.runs.structures import digest
from pymc_dp.runs.study_store import RESERVED, StudyStore, beside
from pymc_dp.runs.ways import Way, in_turn, on_client, on_cores

_log = logging.getLogger("pymc.dp")  # below PyMC's own, which prints to the console

# What pm.sample does unless it is told otherwise; a study always says it, because results depend on it.
_DRAWS, _TUNE, _CHAINS = 1000, 1000, 4
# Arguments of pm.sample that a study does not take, and what to do in their place.
_NOT_TAKEN = {
    "cores": "each fit runs in one process, its chains one after the other; n_jobs is the number of "
    "processes",
    "mp_ctx": "each fit runs in one process",
    "model": "the model is the first argument",
    "trace": "path= keeps what was found",
    "callback": "a fit runs in any process, where nobody would see what it does",
    "return_inferencedata": "keep= says what is kept",
    "discard_tuned_samples": "keep= says what is kept",
    "idata_kwargs": "keep= says what is kept",
    "keep_warning_stat": "status says of each fit whether it converged",
    "nuts_sampler_kwargs": "say it to the step, nuts={...}",
    "nuts_sampler": "fits are compiled once, which other samplers cannot do; leave it out",
    "compute_convergence_checks": "status says of each fit whether it converged",
    "quiet": "progressbar=False says nothing",
}


def replicate(
    model: Model | Callable[[Any], Model],
    observed: Mapping[str, Any] | Sequence[Any],
    *,
    path: str | Path | None = None,
    client: Any = None,
    n_jobs: int | None = None,
    part: tuple[int, int] | None = None,
    var_names: Sequence[str] | None = None,
    keep: str | int = "summary",
    random_seed: Any = None,
    step: Callable[[Model], Any] | None = None,
    progressbar: bool = True,
    **sample_kwargs: Any,
) -> xr.Dataset:
    """Fit one model to many releases, or a function's models to many settings.

    For studies of coverage, planning and sensitivity: a model compiles once in each process, not once for
    each fit. The numbers are the same, to the bit, in one process, on several cores, on the workers of a Dask
    cluster, and in parts; fit `k` is that of ``pm.sample`` with the model's release replaced by the k-th and
    ``random_seed`` equal to the result's ``seed[k]`` (and one core, PyMC's NUTS); up to rounding where the
    release is no ``pm.Data`` and NUTS moves every variable or the release is an ``ObjectivePerturbation``.

    Parameters
    ----------
    model : pymc.Model or callable
        The model, which is not changed; or a function that builds one from a setting.
    observed : mapping, sequence of mappings, or sequence of settings
        What each fit observes: by name of a release (or of another observed variable), an array with a
        leading axis of fits, or one mapping for each fit. NaN stands for suppressed entries of a processed
        release. Where `model` is a function, the settings that it is called with.
    path : path_like, optional
        Folder of a zarr store, in which each fit is kept when it ends. A second call makes the fits that are
        missing, and no other. ``xarray.open_zarr`` reads it.
    client : dask.distributed.Client, optional
        Where fits are made: the workers of this client, whatever runs them (``LocalCluster``, or SLURM and
        others by ``dask_jobqueue``).
    n_jobs : int, optional
        Processes of this machine that make fits, by joblib; -1 for as many as there are cores. By default
        fits are made in this process, one after the other.
    part : (int, int), optional
        ``(i, n)`` makes the fits i, i + n, i + 2n and so on only: the i-th of n jobs of an array, which may
        share a `path`. Give such jobs a `random_seed`.
    var_names : sequence of str, optional
        Variables that are kept; by default all but records and labels.
    keep : {"summary", "draws"} or int, default "summary"
        What is kept of each fit: summaries; besides, all draws, or so many of each chain.
    random_seed : int, optional
        Seed of the study: fit k has the same seed whichever way, and with whatever others, it is made.
    step : callable, optional
        A function that takes a model and returns steps for ``pm.sample``, such as
        ``lambda model: [dp.RecordImputation()]``.
    progressbar : bool, default True
    **sample_kwargs
        Further arguments of ``pm.sample``: ``draws`` (1000), ``tune`` (1000), ``chains`` (4),
        ``target_accept``, ``initvals``, options of steps.

    Returns
    -------
    xarray.Dataset
        Along ``replicate``: each variable with a dimension ``summary`` (mean, sd, effective draws, R-hat,
        quantiles), and ``<name>_draws`` where draws are kept; ``seconds``, ``acceptance`` by statistic of the
        steps, ``seed``; ``status``, which is "done", "unconverged" (by PyMC's thresholds), "failed" or
        "missing", and ``error``, which says why. Of a part, its fits only.

    Raises
    ------
    TypeError, ValueError
        Before any fit: an argument is of another kind or out of range; a name is none of a release; releases
        have other shapes than the model's, or values that cannot be; the model cannot be pickled, or holds
        confidential rows; `path` holds something else than this study.
    BlockingIOError
        Another process is making fits of the same part in `path`.
    ConnectionError
        The scheduler of `client` has gone.

    Notes
    -----
    A fit costs its draws, and some 80 to 100 ms for what surrounds them (two parameters, a hundred records),
    besides one compilation for each structure of models in each process. Where models are built, those that
    differ in observed values alone share it. An interrupt returns what has been made.

    Each fit of a model with confidential rows would spend budget, so that there are none of these here.

    Examples
    --------
    Does a 90 % interval cover the mean of people of whom a clamped sum was released?

    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_dp as dp
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu", 0, 1)
    ...     y = pm.Normal("y", mu, 1, shape=20)
    ...     z = dp.LaplaceMechanism("z", dp.record_sum(y), epsilon=1, bounds=(-3, 3), observed=0.0)
    >>> drawn = pm.draw([mu, z], draws=4, random_seed=1)
    >>> fits = dp.replicate(
    ...     model, {"z": drawn[1]}, draws=100, tune=100, chains=2, random_seed=1, progressbar=False
    ... )
    >>> fits["mu"].dims
    ('replicate', 'summary')
    >>> mu = fits["mu"]
    >>> covered = (mu.sel(summary="q0.05") < drawn[0]) & (drawn[0] < mu.sel(summary="q0.95"))
    >>> covered.sizes["replicate"]
    4
    """
    options = _options(sample_kwargs)
    way = _way(client, n_jobs)
    kept = _kept(keep)
    if step is not None and not callable(step):
        raise TypeError(
            f"step must be a function that makes steps for a model, got {type(step).__name__}: steps hold "
            "the model that they were made for, and fits have models of their own. Give step=lambda model: "
            "[...]."
        )
    first, cases, names = _cases(model, observed)
    _check_variables(first, var_names)
    indices = _indices(len(cases), part)
    study = _pickled(
        Shared(model, names, None if var_names is None else tuple(var_names), step, kept, options)
    )
    description = {
        "fits": len(cases),
        "entropy": _entropy(random_seed),
        "model": digest(first),
        "observed": digest_of(cases),
        "var_names": kept_names(first, None if var_names is None else tuple(var_names)),
        "keep": keep if isinstance(keep, str) else int(keep),
        "steps": None if step is None else digest_of(step),
        "arguments": {name: told(value) for name, value in sorted(options.items())},
    }
    where = None if path is None else Path(path).resolve()  # of a link, where it leads
    store = StudyStore(where, description)
    if description["entropy"] is None and part is not None and where is None:
        _log.warning("replicate: part= without random_seed= or path= gives every part seeds of its own.")
    lock = nullcontext() if where is None else locked(
        beside(where, f"part-{'-'.join(map(str, part or (0, 1)))}"),
        f"path: another process is making these fits in {path}. Wait for it, or give each job its part=(i, "
        "n).",
    )  # fmt: skip
    with lock:
        missing = [Case(k, _seed(store.entropy, k), cases[k]) for k in store.missing(indices)]
        _make(way, study, missing, store, len(indices), progressbar)
        return store.read(indices)


def _make(way: Way, study: Study, cases: list[Case], store: StudyStore, n: int, progressbar: bool) -> None:
    failed = unconverged = 0
    with progress_bar(progressbar, TextColumn("{task.fields[told]}")) as progress:
        task = progress.add_task("fits", total=n, completed=n - len(cases), told="")
        try:
            for outcome in way(study, cases):
                store.write(outcome)
                failed += outcome.status == "failed"
                unconverged += outcome.status == "unconverged"
                progress.update(task, advance=1, told=f"{failed} failed, {unconverged} unconverged")
        except KeyboardInterrupt:
            _log.warning("replicate was interrupted: fits that had ended are in the result.")
    if failed:
        _log.warning("%d of %d fits failed: their `error` says why.", failed, n)


# -- arguments ------------------------------------------------------------------------------------


def _cases(model: Any, observed: Any) -> tuple[Model, list[Any], tuple[str, ...]]:
    """Return a model to check against, what each fit gets, and the names that differ between fits."""
    if isinstance(model, Model):
        _refuse_confidential(model)
        cases: list[Any] = observed_by_fit(model, observed)
        return model, cases, tuple(cases[0])
    if not callable(model):
        raise TypeError(
            "model must be a pm.Model, or a function that builds one from a setting, got "
            f"{type(model).__name__}."
        )
    if isinstance(observed, Mapping | str) or not isinstance(observed, Sequence | np.ndarray):
        raise TypeError(
            "observed must be a list of settings where model is a function, which is called with each, got "
            f"{type(observed).__name__}."
        )
    settings = list(observed)
    if not settings:
        raise ValueError("observed has no settings in it: give at least one.")
    first = built(model, settings[0])
    _refuse_confidential(first)
    return first, settings, ()


def _refuse_confidential(model: Model) -> None:
    found = [str(term.name) for term, _ in confidential_terms(model)]
    if found:
        raise ValueError(
            f"model has the confidential rows of {', '.join(found)}: every fit would spend budget on them. "
            "Fit it once, with pm.sample and a ledger; replicate is for models of what was released."
        )


def _options(given: dict[str, Any]) -> dict[str, Any]:
    for name in given:
        if name in _NOT_TAKEN:
            raise TypeError(f"replicate takes no {name}=: {_NOT_TAKEN[name]}.")
    if found := unknown(list(given)):
        raise TypeError(f"replicate got {', '.join(found)}: no argument of pm.sample, and no name of a step.")
    options = {"draws": _DRAWS, "tune": _TUNE, "chains": _CHAINS, **given}
    for name, least in (("draws", 4), ("tune", 0), ("chains", 1)):
        value = options[name]
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
            raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}.")
        options[name] = int(value)
    return options


def _way(client: Any, n_jobs: Any) -> Way:
    if client is not None:
        if n_jobs is not None:
            raise ValueError("n_jobs is for this machine and client for a cluster: give one of them.")
        status = getattr(client, "status", None)
        if not hasattr(client, "submit"):
            raise TypeError(f"client must be a dask.distributed.Client, got {type(client).__name__}.")
        if status not in (None, "running"):
            raise ConnectionError(f"client is {status}, not connected to a scheduler: make a new one.")
        return on_client(client)
    if n_jobs is None or n_jobs == 1:
        return in_turn
    if isinstance(n_jobs, bool) or not isinstance(n_jobs, int | np.integer) or n_jobs == 0:
        raise ValueError(f"n_jobs must be a number of processes, or -1 for all cores, got {n_jobs!r}.")
    return on_cores(int(n_jobs))


def _kept(keep: Any) -> int | None:
    if keep == "summary":
        return 0
    if keep == "draws":
        return None
    if isinstance(keep, bool) or not isinstance(keep, int | np.integer) or keep < 1:
        raise ValueError(f"keep must be 'summary', 'draws', or how many draws of each chain, got {keep!r}.")
    return int(keep)


def _indices(n: int, part: Any) -> list[int]:
    if part is None:
        return list(range(n))
    whole = (
        isinstance(part, Sequence) and len(part) == 2 and all(isinstance(k, int | np.integer) for k in part)
    )
    if not whole or not 0 <= part[0] < part[1]:
        raise ValueError(f"part must be (i, n), the i-th of n parts with 0 <= i < n, got {part!r}.")
    return list(range(int(part[0]), n, int(part[1])))


def _check_variables(model: Model, var_names: Any) -> None:
    check_names(model, var_names)
    names = kept_names(model, None if var_names is None else tuple(var_names))
    dims = {str(d) for name in names for d in model.named_vars_to_dims.get(name, ())}
    taken = sorted((set(names) | dims) & set(RESERVED))
    if taken:
        raise ValueError(
            f"The model has variables or dimensions named {', '.join(taken)}, which the result has for the "
            "fits themselves: rename them, or leave them out of var_names."
        )
    if not names:
        raise ValueError(
            "var_names is empty: name at least one variable to keep."
            if var_names is not None
            else "All variables of the model are records or labels, of which none is kept: name those to "
            "keep in var_names."
        )


def _entropy(random_seed: Any) -> int | None:
    if random_seed is None:
        return None
    if isinstance(random_seed, np.random.Generator):
        return int(random_seed.integers(2**63))
    if isinstance(random_seed, bool) or not isinstance(random_seed, int | np.integer) or random_seed < 0:
        raise ValueError(f"random_seed must be a whole number of at least 0, got {random_seed!r}.")
    return int(random_seed)


def _seed(entropy: int, index: int) -> int:
    """Return the seed of a fit, which pm.sample takes."""
    return int(np.random.SeedSequence(entropy, spawn_key=(index,)).generate_state(1, np.uint64)[0] >> 1)


def _pickled(shared: Shared) -> Study:
    try:
        study = Study.of(shared)
        cloudpickle.loads(study.pickled)
    except Exception as error:
        raise ValueError(
            f"model cannot be pickled ({type(error).__name__}: {error}), and fits are made in other "
            "processes, or by copies of it. Leave out what holds open files, locks or connections, in the "
            "model and in functions that it or step= refers to."
        ) from error
    return study
