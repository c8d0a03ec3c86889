"""Draw the training curve: reward, diversity, entropy, and the law between reward and entropy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from speciate.domain.errors import InvalidInputError
from speciate.tournaments.statistics.entropy_law import fit_entropy_law

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MEAN_OF = 10


def draw_training_curve(history: Sequence[dict[str, float]], path: Path, title: str) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 3.4), layout="constrained")
    rewards, spread, law = figure.subplots(1, 3)
    for name, label in (("mean", "an answer"), ("best", "best of a prompt"), ("best_weighted", "E_w[best]")):
        rewards.plot(*_series(history, name), label=label)
    if any("mutation_mean" in entry for entry in history):
        rewards.plot(*_series(history, "mutation_mean"), label="a change", linestyle=":")
    rewards.set(title="mean reward", xlabel="step", ylim=(0, 1))
    rewards.legend(fontsize=8)
    spread.plot(*_series(history, "diversity"), label="diversity (pairwise L1)")
    spread.plot(*_series(history, "entropy"), label="entropy of a token, nats")
    spread.set(title="diversity", xlabel="step")
    spread.legend(fontsize=8)
    _draw_law(law, history)
    figure.suptitle(title)
    save_svg(figure, path)


def _draw_law(axes: Axes, history: Sequence[dict[str, float]]) -> None:
    points = [(entry["entropy"], entry["mean"]) for entry in history if "entropy" in entry and "mean" in entry]
    size = min(_MEAN_OF, max(1, len(points) // 5))
    means = np.array([np.mean(points[i : i + size], axis=0) for i in range(0, len(points) - size + 1, size)])
    axes.set(title="entropy law", xlabel="entropy", ylabel="mean reward")
    if not len(means):
        return
    axes.scatter(means[:, 0], means[:, 1], s=12)
    try:
        fitted = fit_entropy_law(means[:, 0].tolist(), means[:, 1].tolist())
    except InvalidInputError:
        return
    line = np.linspace(means[:, 0].min(), means[:, 0].max(), 50)
    fits = f"R² {fitted.r_squared:.2f} (a line in H: {fitted.r_squared_line:.2f})"
    text = f"R = {-fitted.a:.3g}·exp(H) + {fitted.b:.3g}\n{fits}"
    axes.plot(line, fitted.reward(line), label=text)
    axes.legend(fontsize=8)


def _series(history: Sequence[dict[str, float]], name: str) -> tuple[list[float], list[float]]:
    points = [(entry["step"], entry[name]) for entry in history if name in entry]
    return [step for step, _ in points], [value for _, value in points]


def save_svg(figure: Figure, path: Path) -> None:
    """Write a figure as SVG without a timestamp and with stable ids: an unchanged figure is an unchanged file."""
    from matplotlib import rc_context

    with rc_context({"svg.hashsalt": "speciate"}):
        figure.savefig(path, metadata={"Date": None})
