"""How the benchmarks measure: CPU seconds of the draws alone, and tables with targets.

CPU seconds are those of this process (`time.process_time`): chains run one after the other in it.
"""

import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import arviz as az
import numpy as np
import pymc as pm
from rich.console import Console
from rich.table import Table
from rich.text import Text

console = Console(width=118)
OUTPUT = Path(__file__).parent / "output"


class DrawClock:
    """A `callback` of `pm.sample` that adds up the CPU seconds of the draws after tuning."""

    def __init__(self):
        self.seconds, self.draws, self._since = 0.0, 0, time.process_time()

    def __call__(self, trace, draw):
        now = time.process_time()
        if not draw.tuning:
            self.seconds += now - self._since
            self.draws += 1
        self._since = now  # the next chain starts with tuning, so nothing between chains is added


@dataclass
class Run:
    """One posterior run: effective draws of its worst parameter, and what they cost."""

    worst: float
    draws: int
    seconds: float  # CPU, draws after tuning
    total: float  # CPU, with tuning and the building of the steps
    extra: dict = field(default_factory=dict)

    @property
    def rate(self) -> float:
        """Effective draws of the worst parameter per CPU second."""
        return self.worst / self.seconds


def together(runs: list[Run]) -> Run:
    """Add up what several runs gave and cost."""
    return Run(*(sum(getattr(run, name) for run in runs) for name in ("worst", "draws", "seconds", "total")))


def sample(
    model: pm.Model,
    names: list[str],
    draws: int,
    tune: int,
    seed: int = 1,
    step: list | None = None,
    starts: list | None = None,
) -> Run:
    """`pm.sample` with its default steps, or those given, and PyMC's own loop; only `names` are kept.

    Two chains, or as many as there are starting points.
    """
    clock = DrawClock()
    start = time.process_time()
    idata = pm.sample(
        draws,
        tune=tune,
        chains=len(starts) if starts else 2,
        initvals=starts,
        cores=1,
        model=model,
        var_names=names,
        random_seed=seed,
        progressbar=False,
        quiet=True,
        compute_convergence_checks=False,
        callback=clock,
        step=step,
    )
    total = time.process_time() - start
    stats = {k: float(v.mean()) for k, v in idata.sample_stats.data_vars.items() if "accept" in k}
    stats |= {name: worst_ess(idata.posterior, [name]) for name in names}
    stats["R-hat"] = max(float(r.max()) for r in az.rhat(idata.posterior.to_dataset()[names]).values())
    return Run(worst_ess(idata.posterior, names), clock.draws, clock.seconds, total, stats)


def nutpie(model: pm.Model, names: list[str], draws: int, tune: int, seed: int = 1) -> Run:
    """The same model with all records as parameters of nutpie: no step of ours.

    nutpie does not say when tuning ended: its seconds are shared out by leapfrog steps.
    """
    import nutpie as library

    compiled = library.compile_pymc_model(model)
    start = time.process_time()
    idata = library.sample(compiled, draws=draws, tune=tune, chains=2, cores=1, seed=seed, progress_bar=False)
    total = time.process_time() - start
    steps = float(idata.sample_stats["n_steps"].sum())
    share = steps / (steps + float(idata.warmup_sample_stats["n_steps"].sum()))
    extra = {"divergences": float(idata.sample_stats["diverging"].sum())}
    worst = worst_ess(idata.posterior, names)
    return Run(worst, 2 * draws, total * share, total, extra)


def worst_ess(posterior, names: list[str]) -> float:
    """Bulk effective draws of the worst of the entries of some variables."""
    found = az.ess(posterior.to_dataset()[names], method="bulk")
    return min(float(found[name].min()) for name in names)


def smallest_time(call: Callable, *args, repeats: int = 5) -> float:
    """Smallest CPU seconds of several calls, after one that may compile."""
    call(*args)
    times = []
    for _ in range(repeats):
        start = time.process_time()
        call(*args)
        times.append(time.process_time() - start)
    return min(times)


def table(title: str, *columns: str) -> Table:
    result = Table(title=title, title_justify="left")
    for column in columns:
        result.add_column(column, justify="right")
    return result


def show(table: Table, name: str) -> None:
    """Print a table, and write it as Markdown to ``benchmarks/output`` for the documentation."""
    console.print(table)
    cells = [[str(c.header), *c.cells] for c in table.columns]
    rows = [[Text.from_markup(str(cell)).plain for cell in row] for row in zip(*cells, strict=True)]
    rows.insert(1, ["---:"] * len(cells))
    OUTPUT.mkdir(exist_ok=True)
    lines = [f"| {' | '.join(row)} |" for row in rows]
    (OUTPUT / f"{name}.md").write_text("\n".join([f"{table.title}", "", *lines, ""]))


def verdict(value: float, target: float | None, at_most: bool = False) -> str:
    """Whether a target is met, and by what factor."""
    if target is None:
        return ""
    factor = target / value if at_most else value / target
    return f"{'[green]yes' if factor >= 1 else '[red]no'}, x{factor:.3g}[/]"


def describe_machine() -> None:
    """Print what the figures belong to, with a warning if something else is running."""
    load = os.getloadavg()[0]
    console.print(
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, "
        f"PyMC {pm.__version__}, NumPy {np.__version__}; load {load:.1f}"
    )
    if load > 0.5:
        console.print("[yellow]The machine is busy: figures are worse than on a quiet one.[/]")
