"""Draw the training curve: reward, diversity and entropy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_training_curve(history: Sequence[dict[str, float]], path: Path, title: str) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.4), layout="constrained")
    rewards, spread = figure.subplots(1, 2)
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
    figure.suptitle(title)
    save_svg(figure, path)


def _series(history: Sequence[dict[str, float]], name: str) -> tuple[list[float], list[float]]:
    points = [(entry["step"], entry[name]) for entry in history if name in entry]
    return [step for step, _ in points], [value for _, value in points]


def save_svg(figure: Figure, path: Path) -> None:
    """Write a figure as SVG without a timestamp and with stable ids: an unchanged figure is an unchanged file."""
    from matplotlib import rc_context

    with rc_context({"svg.hashsalt": "speciate"}):
        figure.savefig(path, metadata={"Date": None})
