"""Paper 003's two models and generating parameters, and what their reproductions share.

Paper: Ju, Awan, Gong & Rao (2022), "Data Augmentation MCMC for Bayesian Inference from Privatized
Data", NeurIPS, arXiv:2206.00710. Parameters: the authors' repository,
github.com/nianqiaoju/dataaugmentation-mcmc-differentialprivacy.
"""

import argparse
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path

import joblib
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from matplotlib.figure import Figure

import pymc_dp as dp

EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
N = 100
OUTPUT = Path(__file__).resolve().parent / "output"

# --- section 5: linear regression -----------------------------------------------------------------

BETA = np.array([-1.7949707226263, -2.88900280055484, -0.662027156709289])
PREDICTOR_MEAN = np.array([0.900141986388868, -1.17334577255249])  # covariance: the identity
VARIANCE, PRIOR_SD, BOUND = 2.0, 2.0, 10.0
# L1 sensitivity of the nine sums as the authors bound it: p^2 + 3p + 3 for p predictors.
SENSITIVITY = 13.0


def regression_rows(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw predictors (n, 2) and outcomes (n,)."""
    x = rng.normal(PREDICTOR_MEAN, 1, size=(n, 2))
    return x, rng.normal(BETA[0] + x @ BETA[1:], VARIANCE**0.5)


def regression_contributions(x, y, clip: Callable, stack: Callable):
    """Nine products of every person's clamped and scaled values; for NumPy and PyTensor alike."""
    a, b = (clip(x[:, j], -BOUND, BOUND) / BOUND for j in range(2))
    z = clip(y, -BOUND, BOUND) / BOUND
    return stack([z, a * z, b * z, z * z, a, b, a * b, a * a, b * b], axis=1)


def release_regression(x: np.ndarray, y: np.ndarray, epsilon: float, rng) -> np.ndarray:
    """Draw the custodian's release of the nine sums."""
    sums = regression_contributions(x, y, np.clip, np.stack).sum(axis=0)
    return sums + rng.laplace(scale=SENSITIVITY / epsilon, size=9)


def regression_model(epsilon: float, released: np.ndarray, n: int = N) -> pm.Model:
    """Return the analyst's model; epsilon and the release are data, so that they can be changed."""
    with pm.Model() as model:
        epsilon = pm.Data("epsilon", epsilon)
        beta = pm.Normal("beta", 0, PRIOR_SD, shape=3)
        x = pm.Normal("x", PREDICTOR_MEAN, 1, shape=(n, 2))
        y = pm.Normal("y", beta[0] + x @ beta[1:], VARIANCE**0.5, shape=n)
        dp.LaplaceMechanism(
            "release",
            dp.record_sum(regression_contributions(x, y, dp.clamp, pt.stack)),
            scale=SENSITIVITY / epsilon,
            observed=pm.Data("released", released),
        )
    return model


# --- section 4: naive Bayes log-linear model ------------------------------------------------------

CLASSES, QUESTIONS, ANSWERS = 5, 5, 3
CLASS_PROBABILITIES = np.array([0.09786, 0.14811, 0.14471, 0.44628, 0.16304])
# By question and class, P(answer | class).
ANSWER_PROBABILITIES = np.array(
    [
        [[0.27184, 0.33017, 0.39800], [0.18589, 0.63454, 0.17957], [0.34887, 0.17438, 0.47675],
         [0.25830, 0.36834, 0.37336], [0.40260, 0.31024, 0.28716]],
        [[0.44506, 0.39956, 0.15538], [0.32952, 0.56314, 0.10734], [0.17298, 0.42092, 0.40610],
         [0.27890, 0.07301, 0.64808], [0.52410, 0.30939, 0.16651]],
        [[0.27613, 0.66085, 0.06302], [0.60549, 0.18495, 0.20956], [0.50372, 0.35615, 0.14014],
         [0.74473, 0.11498, 0.14028], [0.35917, 0.44773, 0.19310]],
        [[0.35294, 0.27814, 0.36892], [0.38520, 0.37656, 0.23824], [0.53463, 0.18263, 0.28275],
         [0.44768, 0.17930, 0.37302], [0.38848, 0.25831, 0.35321]],
        [[0.47141, 0.33092, 0.19767], [0.56115, 0.29994, 0.13891], [0.42482, 0.06956, 0.50563],
         [0.27626, 0.70686, 0.01688], [0.47605, 0.32884, 0.19510]],
    ]
)  # fmt: skip
CLASS_PROBABILITIES /= CLASS_PROBABILITIES.sum()
ANSWER_PROBABILITIES /= ANSWER_PROBABILITIES.sum(axis=-1, keepdims=True)


def naive_bayes_rows(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw classes (n,) and answers (n, QUESTIONS)."""
    classes = rng.choice(CLASSES, n, p=CLASS_PROBABILITIES)
    answers = [[rng.choice(ANSWERS, p=ANSWER_PROBABILITIES[k, i]) for k in range(QUESTIONS)] for i in classes]
    return classes, np.array(answers)


def release_naive_bayes(classes: np.ndarray, answers: np.ndarray, epsilon: float, rng) -> np.ndarray:
    """Draw the custodian's release: noisy counts by question, class and answer, flat."""
    counts = np.zeros((QUESTIONS, CLASSES, ANSWERS))
    np.add.at(counts, (np.arange(QUESTIONS), classes[:, None], answers), 1)
    # Somebody replaced by somebody else leaves one cell per question and enters another.
    return (counts + rng.laplace(scale=2 * QUESTIONS / epsilon, size=counts.shape)).ravel()


def naive_bayes_model(epsilon: float, released: np.ndarray, n: int = N) -> pm.Model:
    """Return the analyst's model; epsilon and the release are data, so that they can be changed."""
    with pm.Model() as model:
        epsilon = pm.Data("epsilon", epsilon)
        p = pm.Dirichlet("p", 2 * np.ones(CLASSES))
        q = pm.Dirichlet("q", 2 * np.ones((QUESTIONS, CLASSES, ANSWERS)))
        g = pm.Categorical("g", p, shape=n)
        cells = []
        for k in range(QUESTIONS):
            x = pm.Categorical(f"x{k}", q[k][g])
            cells.append(pt.eq((ANSWERS * g + x)[:, None], np.arange(CLASSES * ANSWERS)))
        dp.LaplaceMechanism(
            "release",
            dp.record_sum(pt.cast(pt.concatenate(cells, axis=1), "float64")),
            scale=2 * QUESTIONS / epsilon,
            observed=pm.Data("released", released),
        )
    return model


# --- experiments over many releases ---------------------------------------------------------------


def arguments(description: str, **full_and_quick: tuple) -> argparse.Namespace:
    """Command line: sizes as (full, quick) pairs, each of which can be given by name as well."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few releases and draws, for CI")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="folder of the figures")
    parser.add_argument("--jobs", type=int, default=joblib.cpu_count(), help="processes")
    for name, (full, quick) in full_and_quick.items():
        parser.add_argument(f"--{name}", type=int, help=f"default {full}, quick {quick}")
    args = parser.parse_args()
    for name, (full, quick) in full_and_quick.items():
        if getattr(args, name) is None:
            setattr(args, name, quick if args.quick else full)
    return args


@lru_cache(maxsize=1)
def built(make: Callable[..., pm.Model], n_released: int, steps: tuple[type, ...]) -> tuple[pm.Model, list]:
    """Build a model with its steps once per process: from release to release only data change."""
    with make(1.0, np.zeros(n_released)) as model:
        return model, [step() for step in steps]


def run_chain(
    model: pm.Model,
    steps: Sequence,
    data: dict,
    *,
    draws: int,
    tune: int,
    rng: np.random.Generator,
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Run one chain given other data, without building anything again.

    `pm.sample` would do the same, and build a trace and a starting point for each release. Steps
    are plain transition kernels from point to point, so a loop is enough.

    Parameters
    ----------
    model : pymc.Model
        Its releases are ``pm.Data``.
    steps : sequence of step methods
        They run in turn.
    data : dict
        New values of ``pm.Data``.
    draws, tune : int
        Length of the chain.
    rng : numpy.random.Generator
        Of this chain alone, so that results do not depend on the number of processes.

    Returns
    -------
    points : dict
        Draws of the value variables, (draws, ...).
    stats : dict
        Statistics of the steps, (draws,).
    """
    pm.set_data(data, model=model)
    for step, stream in zip(steps, rng.spawn(len(steps)), strict=True):
        step.setup_chain(stream, tune, draws)
    point, points, stats = model.initial_point(), [], []
    for i in range(tune + draws):
        if i == tune:
            for step in steps:
                step.stop_tuning()
        drawn: dict = {}
        for step in steps:
            point, (found,) = step.step(point)
            drawn |= found
        if i >= tune:
            points.append(point)
            stats.append(drawn)
    return _stacked(points), _stacked(stats)


def _stacked(rows: list[dict]) -> dict[str, np.ndarray]:
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


@lru_cache(maxsize=1)
def natural(model: pm.Model, name: str) -> Callable[[dict], np.ndarray]:
    """Return a function from draws of the value variables to draws of one variable itself."""
    rv, transform = model[name], model.rvs_to_transforms[model[name]]
    value = pt.tensor("value", shape=(None,) * (rv.ndim + 1))
    backward = pytensor.function([value], transform.backward(value, *rv.owner.inputs))
    return lambda points: backward(points[model.rvs_to_values[rv].name])


def over_releases(task: Callable[[float, int], dict], n_releases: int, jobs: int) -> dict:
    """Call ``task(epsilon, release)`` for every epsilon and release, on several processes.

    Returns arrays of shape (epsilon, release, ...), one for each name in the task's results.
    """
    calls = [(epsilon, r) for epsilon in EPSILONS for r in range(n_releases)]
    results = joblib.Parallel(n_jobs=jobs)(joblib.delayed(task)(*call) for call in calls)
    return {
        name: array.reshape(len(EPSILONS), n_releases, *array.shape[1:])
        for name, array in _stacked(results).items()
    }


def panels(names: Sequence[str], title: str, size: tuple[float, float]):
    """One panel per name, with epsilon along the horizontal axis."""
    figure = Figure(figsize=size, layout="constrained")
    figure.suptitle(title)
    axes = figure.subplots(1, len(names), sharey=True, squeeze=False)[0]
    for axis, name in zip(axes, names, strict=True):
        axis.set(title=name, xlabel="epsilon")
        axis.set_xticks(range(len(EPSILONS)), [f"{e:g}" for e in EPSILONS])
    return figure, axes


def draw_means(
    means: np.ndarray,
    exact: np.ndarray,
    prior: float,
    names: Sequence[str],
    size: tuple[float, float],
    path: Path,
) -> None:
    """Draw posterior means (epsilon, release, parameter) beside those without noise and of the prior."""
    figure, axes = panels(names, "Posterior means given a release, one point per release", size)
    for j, axis in enumerate(axes):
        cloud(axis, means[:, :, j], color="tab:blue")
        axis.axhline(exact[j], color="black", label="non-private posterior mean")
        axis.axhline(prior, color="black", ls="--", label="prior mean")
    axes[0].set_ylabel("posterior mean")
    axes[0].legend(fontsize=7)
    save(figure, path)


def cloud(axis, values: np.ndarray, color: str, label: str | None = None) -> None:
    """Draw one point per release, (epsilon, release), side by side at each epsilon."""
    spread = np.linspace(-0.3, 0.3, values.shape[1])
    at = np.arange(len(EPSILONS))[:, None] + spread
    axis.plot(at.ravel(), values.ravel(), "o", ms=2, alpha=0.6, color=color, label=label)


def save(figure: Figure, path: Path) -> None:
    """Write a figure, and say where."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    print(f"Figure: {path}")
