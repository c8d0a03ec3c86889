"""Call an evaluator written for OpenEvolve: ``evaluate(program_path)``, or its cascade of stages.

This module provides ``openevolve.evaluation_result``, because evaluators import it and the real package, if installed,
takes half a second to load.
"""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Self

EVALUATOR = "evaluator.py"


@dataclass
class EvaluationResult:
    """Return type of evaluators, as an alternative to a plain dict."""

    metrics: dict[str, Any]
    artifacts: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, metrics: dict[str, Any]) -> Self:
        """Return a result without artifacts."""
        return cls(metrics)

    def to_dict(self) -> dict[str, Any]:
        """Return the metrics."""
        return self.metrics

    def has_artifacts(self) -> bool:
        """Return True if there are artifacts."""
        return bool(self.artifacts)


def measure(program_path: str, options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the metrics and artifacts of a program.

    Args:
        program_path: Path of the program.
        options: ``thresholds``: scores that stages 1, 2, … must reach for the next one; absent without a cascade.
            ``features``: metrics that describe a program and do not rate it. ``mean``: ``value`` to report
            the mean, ``names`` to report also whose mean it is.
    """
    metrics, artifacts = _measure(program_path, options)
    rated = _rated(metrics, options)
    if "mean" in options and rated and not isinstance(metrics.get("combined_score"), int | float):
        if len(rated) > 1:
            metrics["mean_of_metrics"] = sum(rated.values()) / len(rated)
        if options["mean"] == "names":
            artifacts["rated metrics"] = ", ".join(rated)
    return metrics, artifacts


def _rated(metrics: dict[str, Any], options: dict[str, Any]) -> dict[str, float]:
    """Return the metrics whose mean OpenEvolve maximizes without a ``combined_score``: neither features nor flags."""
    features = options.get("features", [])
    return {
        name: float(value)
        for name, value in metrics.items()
        if name not in features and not isinstance(value, bool) and isinstance(value, int | float)
    }


def _measure(program_path: str, options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    module = _load()
    stages = [getattr(module, f"evaluate_stage{i}", None) for i in (1, 2, 3)]
    if "thresholds" not in options or stages[0] is None:
        return _ask(module.evaluate, program_path)
    metrics, artifacts = _ask(stages[0], program_path)
    for number, (stage, threshold) in enumerate(zip(stages[1:], options["thresholds"], strict=False), start=2):
        if stage is None or not _reaches(metrics, threshold):
            break
        try:
            further = _ask(stage, program_path)
        except Exception:  # noqa: BLE001  # what the earlier stages measured is kept
            artifacts[f"stage {number}"] = traceback.format_exc()
            break
        metrics, artifacts = metrics | further[0], artifacts | further[1]
    return metrics, artifacts


def _load() -> Any:
    package, results = ModuleType("openevolve"), ModuleType("openevolve.evaluation_result")
    vars(results)["EvaluationResult"] = vars(package)["EvaluationResult"] = EvaluationResult
    vars(package)["evaluation_result"] = results
    sys.modules.update({"openevolve": package, "openevolve.evaluation_result": results})
    spec = importlib.util.spec_from_file_location("evaluation_module", EVALUATOR)
    if spec is None or spec.loader is None:
        raise ImportError(f"{EVALUATOR} does not exist")
    module = importlib.util.module_from_spec(spec)
    # A file beside the evaluator may import it by its name, under which Speciate's script is registered.
    sys.modules["evaluation_module"] = sys.modules["evaluator"] = module
    spec.loader.exec_module(module)
    return module


def _ask(function: Callable[[str], Any], program_path: str) -> tuple[dict[str, Any], dict[str, Any]]:
    result = function(program_path)
    if inspect.isawaitable(result):
        result = asyncio.run(_awaited(result))
    metrics = getattr(result, "metrics", result)
    if not isinstance(metrics, dict):
        raise TypeError(f"the evaluator returned {type(result).__name__}: expected a dict or an EvaluationResult")
    return dict(metrics), dict(getattr(result, "artifacts", None) or {})


async def _awaited(result: Any) -> Any:
    return await result


def _reaches(metrics: dict[str, Any], threshold: float) -> bool:
    """Return True if the mean of a stage's metrics reaches the threshold (OpenEvolve's rule; not a reward here)."""
    if isinstance(score := metrics.get("combined_score"), int | float):
        return score >= threshold
    numbers = [value for name, value in metrics.items() if name != "error" and isinstance(value, int | float)]
    return bool(numbers) and sum(numbers) / len(numbers) >= threshold
