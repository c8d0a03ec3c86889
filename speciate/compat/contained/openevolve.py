"""Call an evaluator written for OpenEvolve or SkyDiscover: ``evaluate(program_path)``, or its cascade of stages.

One of SkyDiscover works in its own folder, and may be a script that prints JSON.

This module provides ``openevolve.evaluation_result``, because evaluators import it and the real package, if installed,
takes half a second to load.
"""

import asyncio
import contextlib
import importlib.util
import inspect
import io
import json
import math
import os
import runpy
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from types import ModuleType
from typing import Any, Self


@dataclass
class EvaluationResult:
    """Return type of evaluators, as an alternative to a plain dict."""

    metrics: dict[str, Any]
    artifacts: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, metrics: dict[str, Any]) -> Self:
        return cls(metrics)

    def to_dict(self) -> dict[str, Any]:
        return self.metrics

    def has_artifacts(self) -> bool:
        return bool(self.artifacts)


def measure(program_path: str, options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    if options.get("skydiscover"):
        return _measure_skydiscover(program_path, options["evaluator"])
    metrics, artifacts = _measure(program_path, options)
    rated = _rated(metrics, options)
    if "mean" in options and rated and _number(metrics.get("combined_score")) is None:
        if len(rated) > 1:
            metrics["mean_of_metrics"] = sum(rated.values()) / len(rated)
        if options["mean"] == "names":
            artifacts["rated metrics"] = ", ".join(rated)
    return metrics, artifacts


def _rated(metrics: dict[str, Any], options: dict[str, Any]) -> dict[str, float]:
    """Return the metrics whose mean OpenEvolve maximizes without a ``combined_score``: neither features nor flags."""
    others = {name: value for name, value in metrics.items() if name not in options.get("features", [])}
    numbers = {name: _number(value) for name, value in others.items() if not isinstance(value, bool)}
    return {name: number for name, number in numbers.items() if number is not None}


def _number(value: Any) -> float | None:
    """Return a metric that counts in a mean: not NaN and, unlike in OpenEvolve, not infinite or beyond float."""
    try:
        return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
    except OverflowError:
        return None


def _measure(program_path: str, options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    module = _load(options.get("evaluator", "evaluator.py"))
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


def _measure_skydiscover(program_path: str, evaluator: str) -> tuple[dict[str, Any], dict[str, Any]]:
    folder, name = os.path.split(os.path.abspath(evaluator))  # noqa: PTH100
    os.chdir(folder)
    metrics, artifacts = _ask(getattr(_load(name), "evaluate", partial(_printed, name)), program_path)
    if isinstance(metrics.get("metrics"), dict):
        artifacts = dict(metrics.get("artifacts") or {})
        metrics = {"combined_score": metrics.get("combined_score", 0.0), **metrics["metrics"]}
    return {"combined_score": 0.0, **metrics}, artifacts


def _printed(name: str, program_path: str) -> dict[str, Any]:
    """Return the result that a script prints as its last line of JSON."""
    sys.argv = [name, program_path]
    printed, ended = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        try:
            runpy.run_path(name, run_name="__main__")
        except SystemExit as end:
            ended = end.code
    for text in (printed.getvalue(), *reversed(printed.getvalue().splitlines())):
        with contextlib.suppress(ValueError):
            if isinstance(result := json.loads(text), dict):
                return result
    raise RuntimeError(f"{name} printed no JSON object (exit {ended}): {printed.getvalue()[-500:]!r}")


def _load(evaluator: str) -> Any:
    package, results = ModuleType("openevolve"), ModuleType("openevolve.evaluation_result")
    vars(results)["EvaluationResult"] = vars(package)["EvaluationResult"] = EvaluationResult
    vars(package)["evaluation_result"] = results
    sys.modules.update({"openevolve": package, "openevolve.evaluation_result": results})
    path = os.path.abspath(evaluator)  # noqa: PTH100
    sys.path.insert(0, os.path.dirname(path))  # noqa: PTH120
    spec = importlib.util.spec_from_file_location("evaluation_module", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{evaluator} does not exist")
    module = importlib.util.module_from_spec(spec)
    # A file beside the evaluator may import it by its name, under which Speciate's script is registered.
    name = os.path.basename(path).partition(".")[0]  # noqa: PTH119
    sys.modules["evaluation_module"] = sys.modules["evaluator"] = sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _ask(function: Callable[[str], Any], program_path: str) -> tuple[dict[str, Any], dict[str, Any]]:
    result = function(program_path)
    if inspect.isawaitable(result):
        result = asyncio.run(_awaited(result))
    metrics = getattr(result, "metrics", result)
    if not isinstance(metrics, dict | str):
        with contextlib.suppress(TypeError, ValueError):
            metrics = {"score": float(metrics)}
    if not isinstance(metrics, dict):
        raise TypeError(f"the evaluator returned {type(result).__name__}: expected a dict, or a number")
    return dict(metrics), dict(getattr(result, "artifacts", None) or {})


async def _awaited(result: Any) -> Any:
    return await result


def _reaches(metrics: dict[str, Any], threshold: float) -> bool:
    """Return True if the mean of a stage's metrics reaches the threshold (OpenEvolve's rule; not a reward here)."""
    if isinstance(score := metrics.get("combined_score"), int | float):
        return score >= threshold
    numbers = [number for name, value in metrics.items() if name != "error" and (number := _number(value)) is not None]
    return bool(numbers) and sum(numbers) / len(numbers) >= threshold
