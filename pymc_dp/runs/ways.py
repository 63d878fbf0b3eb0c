"""Ways to make the fits of a study: one after the other, on the cores of a machine, on a cluster."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pymc_dp.runs.fits import Case, Outcome, Study, fit

Way = Callable[[Study, Sequence[Case]], Iterator[Outcome]]
# How often workers may die one after the other, without a fit between, before what is left is said to have
# failed.
_DEATHS = 3


def in_turn(study: Study, cases: Sequence[Case]) -> Iterator[Outcome]:
    """Yield outcomes in this process, in the order of the cases."""
    for case in cases:
        yield fit(study, case)


def on_cores(n_jobs: int) -> Way:
    """Return a way that yields outcomes of processes of this machine, as they come, by joblib."""

    def way(study: Study, cases: Sequence[Case]) -> Iterator[Outcome]:
        from joblib import Parallel, delayed
        from joblib.externals.loky.process_executor import TerminatedWorkerError

        left, deaths = {case.index: case for case in cases}, 0
        while left:
            parallel = Parallel(n_jobs=n_jobs, backend="loky", return_as="generator_unordered", batch_size=1)
            try:
                for outcome in parallel(delayed(fit)(study, case) for case in list(left.values())):
                    deaths = 0
                    del left[outcome.index]
                    yield outcome
            except TerminatedWorkerError as error:
                deaths += 1
                if deaths == _DEATHS:
                    yield from _lost(left.values(), f"its worker died: {error}")
                    return

    return way


def on_client(client: Any) -> Way:
    """Return a way that yields outcomes of the workers of a Dask client, as they come."""

    def way(study: Study, cases: Sequence[Case]) -> Iterator[Outcome]:
        from distributed import as_completed

        # `pure=False`: a fit is no function of its arguments' names, and is not to be looked up in the
        # cluster
        futures = {client.submit(fit, study, case, pure=False): case for case in cases}
        try:
            for future in as_completed(futures):
                if future.status == "finished":
                    yield future.result()
                elif future.status == "cancelled":
                    raise ConnectionError(
                        "client lost its scheduler, or its futures were cancelled. With path=, all fits that "
                        "had ended are kept: connect again, and call replicate again."
                    )
                else:
                    yield from _lost([futures[future]], f"its worker died: {future.exception()!r}")
        finally:
            client.cancel(list(futures))

    return way


def _lost(cases: Any, why: str) -> Iterator[Outcome]:
    for case in cases:
        yield Outcome(case.index, case.seed, "failed", why)
