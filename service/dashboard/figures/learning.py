"""Learning curve of a run that trains its policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from service.dashboard.charts import Chart, Table, axis, hover, step_line, thinned

_MAX_STEPS: Final = 400
_CURVE: Final = {"reward": "mean reward", "best": "best of a group"}
_DRIFT: Final = {
    "entropy": "entropy",
    "kl": "KL from the base",
    "gap": "gap between sampler and trainer",
    "age": "age of the groups, in steps",
}


def learning_chart(steps: Sequence[Mapping[str, Any]]) -> Chart:
    """Draw mean reward and best reward of the groups of every training step."""
    note = (
        "Rewards of the completions of each step, averaged over objectives on their declared ranges, and of the best"
        " completion of each prompt. Prompts differ from step to step, so compare trends."
    )
    return _chart("learning", "Learning curve", note, steps, _CURVE, "reward")


def drift_chart(steps: Sequence[Mapping[str, Any]]) -> Chart:
    """Draw how far the policy has moved and how old its data were at every training step."""
    note = (
        "Mean entropy of a token and KL divergence from the policy that the run began with, in nats; the mean"
        " difference between the log-probabilities of server and trainer, which should stay near 0; and the"
        " age of the groups."
    )
    return _chart("drift", "Drift of the policy", note, steps, _DRIFT, "nats per token, or steps")


def _chart(
    name: str, title: str, note: str, steps: Sequence[Mapping[str, Any]], measures: Mapping[str, str], unit: str
) -> Chart:
    at = [int(step["step"]) for step in steps]
    keep = thinned(len(at), _MAX_STEPS)
    data: list[dict[str, Any]] = []
    rows: list[tuple[str, int, float]] = []
    for rank, (measure, label) in enumerate(measures.items() if steps else ()):
        values = [float(step["measures"][measure]) for step in steps]
        rows += [(label, at[i], values[i]) for i in keep]
        template = hover(f"{label}: %{{y:.4g}}", "step %{x}")
        data.append(step_line(rank, [at[i] for i in keep], [values[i] for i in keep], template, name=label))
    layout = {"xaxis": axis("training steps"), "yaxis": axis(unit), "showlegend": True}
    return Chart(name, title, note, data, layout, Table(("measure", "step", "value"), rows))
