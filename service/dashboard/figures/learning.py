"""Learning curves of a run, or a campaign, that trains its policy."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from service.dashboard.charts import Chart, Table, axis, hover, step_line, thinned

_MAX_STEPS: Final = 400


@dataclass(frozen=True)
class _Curves:
    title: str
    note: str
    measures: Mapping[str, str]  # labels by name
    unit: str


_CURVES: Final = {
    "learning": _Curves(
        "Learning curve",
        "Rewards of the completions of each step, averaged over objectives on their declared ranges, and of the best"
        " completion of each prompt. Prompts differ from step to step, so compare trends.",
        {"reward": "mean reward", "best": "best of a group"},
        "reward",
    ),
    "drift": _Curves(
        "Drift of the policy",
        "Mean entropy of a token, and KL divergence from the policy at the beginning. Entropy near 0 means that the"
        " policy repeats itself.",
        {"entropy": "entropy", "kl": "KL from the base"},
        "nats per token",
    ),
    "gap": _Curves(
        "Sampler against trainer",
        "Mean difference between the log-probabilities of the server that sampled and of the trainer, for the same"
        " weights and tokens: only steps whose groups are of age 0 measure it. It should stay near 0; learning ends at"
        " 0.5.",
        {"gap": "mean difference"},
        "nats per token",
    ),
    "age": _Curves(
        "Staleness",
        "Steps between the version that wrote the groups and the version that learned from them; 0 is on-policy.",
        {"age": "mean age"},
        "steps",
    ),
}
LEARNING_CHARTS: Final = tuple(_CURVES)
"""Names of the charts of measures of training steps, which a run and a campaign share."""


def learning_chart(name: str, steps: Sequence[Mapping[str, Any]]) -> Chart:
    """Draw the measures of every training step that one of ``LEARNING_CHARTS`` shows."""
    curves = _CURVES[name]
    data: list[dict[str, Any]] = []
    rows: list[tuple[str, int, float]] = []
    for rank, (measure, label) in enumerate(curves.measures.items()):
        points = [(int(s["step"]), float(s["measures"][measure])) for s in steps if measure in s["measures"]]
        drawn = [points[i] for i in thinned(len(points), _MAX_STEPS)]
        rows += [(label, step, value) for step, value in points]
        template = hover(f"{label}: %{{y:.4g}}", "step %{x}")
        if drawn:
            # One point has no line.
            mode = "lines" if len(drawn) > 1 else "markers"
            data.append(step_line(rank, [x for x, _ in drawn], [y for _, y in drawn], template, name=label, mode=mode))
    layout = {
        "xaxis": axis("training steps"),
        "yaxis": axis(curves.unit, rangemode="tozero"),
        "showlegend": len(curves.measures) > 1,
    }
    return Chart(name, curves.title, curves.note, data, layout, Table(("measure", "step", "value"), rows))
