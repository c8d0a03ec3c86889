"""Learning curves of a run, or a campaign, that trains its policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from service.dashboard.charts import Chart, Table, axis, hover, step_line, thinned

_MAX_STEPS: Final = 400
_CURVE: Final = {"reward": "mean reward", "best": "best of a group"}
_DRIFT: Final = {"entropy": "entropy", "kl": "KL from the base"}
_GAP: Final = {"gap": "mean difference"}
_AGE: Final = {"age": "mean age"}


def learning_chart(steps: Sequence[Mapping[str, Any]]) -> Chart:
    note = (
        "Rewards of the completions of each step, averaged over objectives on their declared ranges, and of the best"
        " completion of each prompt. Prompts differ from step to step, so compare trends."
    )
    return _chart("learning", "Learning curve", note, steps, _CURVE, "reward")


def drift_chart(steps: Sequence[Mapping[str, Any]]) -> Chart:
    note = (
        "Mean entropy of a token, and KL divergence from the policy at the beginning. Entropy near 0 means that the"
        " policy repeats itself."
    )
    return _chart("drift", "Drift of the policy", note, steps, _DRIFT, "nats per token")


def gap_chart(steps: Sequence[Mapping[str, Any]]) -> Chart:
    note = (
        "Mean difference between the log-probabilities of the server that sampled and of the trainer, for the same"
        " weights and tokens: only steps whose groups are of age 0 measure it. It should stay near 0; learning ends at"
        " 0.5."
    )
    return _chart("gap", "Sampler against trainer", note, steps, _GAP, "nats per token")


def age_chart(steps: Sequence[Mapping[str, Any]]) -> Chart:
    note = "Steps between the version that wrote the groups and the version that learned from them; 0 is on-policy."
    return _chart("age", "Staleness", note, steps, _AGE, "steps")


def version_chart(steps: Sequence[Mapping[str, Any]]) -> Chart:
    at = [(0, 0), *((int(step["evaluations"]), int(step["step"])) for step in steps)] if steps else []
    drawn = [at[i] for i in thinned(len(at), _MAX_STEPS)]
    note = (
        "Batches that begin after so many evaluations are written by this version; 0 is the policy at the beginning."
        " A candidate's page names the version that wrote it."
    )
    template = hover("version %{y}", "after %{x:,} evaluations")
    data = [step_line(0, [x for x, _ in drawn], [y for _, y in drawn], template, name="version")] if drawn else []
    layout = {"xaxis": axis("evaluations"), "yaxis": axis("version", rangemode="tozero"), "showlegend": False}
    return Chart("version", "Version in use", note, data, layout, Table(("evaluations", "version"), at))


def learning_charts(steps: Sequence[Mapping[str, Any]]) -> list[Chart]:
    return [make(steps) for make in (learning_chart, drift_chart, gap_chart, age_chart)]


def _chart(
    name: str, title: str, note: str, steps: Sequence[Mapping[str, Any]], measures: Mapping[str, str], unit: str
) -> Chart:
    data: list[dict[str, Any]] = []
    rows: list[tuple[str, int, float]] = []
    for rank, (measure, label) in enumerate(measures.items()):
        points = [(int(s["step"]), float(s["measures"][measure])) for s in steps if measure in s["measures"]]
        drawn = [points[i] for i in thinned(len(points), _MAX_STEPS)]
        rows += [(label, step, value) for step, value in drawn]
        template = hover(f"{label}: %{{y:.4g}}", "step %{x}")
        if drawn:
            # One point has no line.
            mode = "lines" if len(drawn) > 1 else "markers"
            data.append(step_line(rank, [x for x, _ in drawn], [y for _, y in drawn], template, name=label, mode=mode))
    layout = {
        "xaxis": axis("training steps"),
        "yaxis": axis(unit, rangemode="tozero"),
        "showlegend": len(measures) > 1,
    }
    return Chart(name, title, note, data, layout, Table(("measure", "step", "value"), rows))
