"""The figure of `rand_health_insurance.py`."""

from pathlib import Path
from textwrap import fill
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from rand_custodian import MOST_VISITS, ReportsRelease, SumsRelease

# Colours that stay apart for colour-blind readers (Okabe & Ito), and in print by their lightness.
ANALYSES = {
    "exact": ("Non-private: the exact numbers", "#333333", "o"),
    "ours": ("pymc_dp: noisy numbers, noise in the model", "#0072B2", "s"),
    "naive": ("Naive: noisy numbers taken for exact", "#D55E00", "^"),
}
LEFT, RIGHT = 0.035, 0.53  # where the two halves begin
Answer = dict[str, tuple[float, float, float]]  # analysis -> median, low, high


def draw(
    path: Path,
    *,
    effects: dict[str, Answer],
    mean: Answer,
    coverage: dict[str, Any],
    shapes: dict[str, np.ndarray],
    shares: np.ndarray,
    sums: SumsRelease,
    reports: ReportsRelease,
) -> None:
    """Draw effects (left) and the distribution of visits (right), and save the figure."""
    style = {"font.size": 10, "axes.spines.top": False, "axes.spines.right": False}
    with plt.rc_context(style):
        figure = plt.figure(figsize=(13, 7.4))
        _heading(figure, sums, reports)
        bottoms = (0.545, 0.28)
        for bottom, (title, answer) in zip(bottoms, effects.items()):
            axes = figure.add_axes((LEFT, bottom, 0.44, 0.18))
            _effect(axes, title, answer, label=bottom == bottoms[-1])
        axes = figure.add_axes((RIGHT + 0.03, 0.28, 0.42, 0.445))
        _distribution(axes, shapes, shares)
        _what_came_in(axes.inset_axes((0.5, 0.36, 0.48, 0.36)), reports)
        _takeaways(figure, next(iter(effects.values())), mean, coverage)
        figure.savefig(path, dpi=140)
        plt.close(figure)


def _heading(figure: Any, sums: SumsRelease, reports: ReportsRelease) -> None:
    title = "Does free care send people to the doctor? Answers from noisy releases alone"
    figure.text(LEFT, 0.947, title, fontsize=17, weight="bold")
    about = (
        "RAND health insurance experiment, 1974-82. Differential privacy protects every person: "
        "noise is added before anything is published, more of it for a smaller epsilon."
    )
    figure.text(LEFT, 0.912, about, color="#444444")
    handles = [
        plt.Line2D([], [], color=colour, marker=marker, linewidth=2.5, label=label)
        for label, colour, marker in ANALYSES.values()
    ]
    figure.legend(
        handles=handles, loc="upper left", bbox_to_anchor=(LEFT - 0.009, 0.9), ncols=3,
        frameon=False, fontsize=10.5,
    )  # fmt: skip
    halves = (
        (LEFT, f"Effects, from 8 noisy sums over {sums.n:,} people (epsilon = {sums.epsilon:g})"),
        (
            RIGHT,
            f"Visits, from {len(reports.values):,} noisy answers (epsilon = {reports.epsilon:g} per person)",
        ),
    )
    for x, text in halves:
        figure.text(x, 0.8, text, fontsize=12.5, weight="bold")


def _effect(axes: Any, title: str, answer: Answer, *, label: bool) -> None:
    for height, (key, (_, colour, marker)) in enumerate(reversed(ANALYSES.items())):
        middle, low, high = answer[key]
        if np.isnan(middle):
            text = "no answer: the noisy sums contradict each other"
            place = axes.get_yaxis_transform()
            axes.text(1, height, text, color=colour, ha="right", va="center", transform=place)
            continue
        axes.plot([low, high], [height, height], color=colour, linewidth=3, solid_capstyle="butt")
        axes.plot(middle, height, marker, color=colour, markersize=8)
        axes.annotate(
            f"{middle:+.0f} %   [{low:+.0f}, {high:+.0f}]", (1.0, height),
            xycoords=("axes fraction", "data"), ha="right", va="center", color=colour,
        )  # fmt: skip
    axes.axvline(0, color="#999999", linewidth=1)
    axes.axvline(answer["exact"][0], color="#333333", linewidth=0.8, linestyle=":")
    ends = [v for values in answer.values() for v in values if not np.isnan(v)] + [0.0]
    low, high = min(ends), max(ends)
    axes.set_xlim(low - 0.05 * (high - low), high + 0.4 * (high - low))
    axes.set_ylim(-0.6, 2.6)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:+.0f} %" if x else "0")
    axes.xaxis.set_major_locator(plt.MaxNLocator(7, integer=True))
    axes.set_title(title, loc="left", fontsize=11)
    if label:
        axes.set_xlabel("change in 1 + doctor visits per year (median and 95 % interval)")


def _distribution(axes: Any, shapes: dict[str, np.ndarray], shares: np.ndarray) -> None:
    counts = np.arange(MOST_VISITS + 1)
    axes.bar(counts, 100 * shares, width=0.9, color="#DDDDDD", label="these people's exact numbers")
    for key, (_, colour, marker) in ANALYSES.items():
        flat = 100 * shapes[key].reshape(-1, counts.size)
        low, middle, high = np.quantile(flat, [0.025, 0.5, 0.975], axis=0)
        axes.plot(counts[:-1], middle[:-1], marker=marker, color=colour, markersize=5)
        # "so many or more" is another kind of number: the line does not lead there
        error = [[middle[-1] - low[-1]], [high[-1] - middle[-1]]]
        axes.errorbar(counts[-1], middle[-1], error, marker=marker, color=colour, markersize=5)
        axes.fill_between(counts[:-1], low[:-1], high[:-1], color=colour, alpha=0.2, linewidth=0)
    ticks = counts[[0, 2, 4, 6, 8, 10, 12, -1]]
    axes.set_xticks(ticks, [*map(str, ticks[:-1]), f"{MOST_VISITS} or\nmore"])
    axes.set_xlim(-0.7, MOST_VISITS + 0.7)
    axes.set_ylim(0, None)
    axes.yaxis.set_major_formatter(lambda y, _: f"{y:.0f} %")
    axes.set_xlabel("doctor visits in one year")
    axes.set_title("Share of people (median and 95 % band)", loc="left", fontsize=11)
    axes.legend(loc="upper right", frameon=False)


def _what_came_in(axes: Any, reports: ReportsRelease) -> None:
    """All that the analyst saw: a histogram of the answers."""
    axes.hist(reports.values, bins=np.arange(-25, 41, 1.0), color="#888888")
    axes.axvspan(0, MOST_VISITS, color="#333333", alpha=0.1, linewidth=0)
    axes.set_title("what came in: number of visits + noise", fontsize=9.5, loc="left")
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.set_xlabel(f"noisy answer (shaded: 0 to {MOST_VISITS})", fontsize=9)
    axes.tick_params(labelsize=9)


def _takeaways(figure: Any, paying: Answer, mean: Answer, coverage: dict[str, Any]) -> None:
    worst, best = sorted(f"{100 * c:.0f}" for c in coverage["effects"])
    told = (
        "Through the noise it still shows that people who pay go to the doctor less."
        if paying["ours"][2] < 0
        else "With this much noise one cannot be sure whether people who pay go less often."
    )
    left = (
        f"{told} The naive interval is as narrow as if no noise had been added: when the study is "
        f"repeated on the computer, it contains the population's value only {worst} to {best} % of "
        "the time, not 95 %. The blue one is as wide as it must be."
    )
    (exact, *_), (ours, low, high), (naive, *_) = (mean[k] for k in ANALYSES)
    right = (
        f"No single answer can be trusted, but together they tell the distribution: a mean of "
        f"{ours:.1f} visits, between {low:.1f} and {high:.1f}; without privacy {exact:.1f}. Taken "
        f"for exact (and impossible answers for the nearest possible one) they give {naive:.1f}, "
        "with far too many people at 15 or more."
    )
    for x, text in ((LEFT, left), (RIGHT, right)):
        figure.text(x, 0.16, fill(text, 76), fontsize=11, va="top", linespacing=1.35)
