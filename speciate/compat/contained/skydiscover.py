"""Call an evaluator written for SkyDiscover: ``evaluate(program_path)``, or a script that prints JSON."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import os
import runpy
import sys
from typing import Any


def measure(program_path: str, options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    folder, name = os.path.split(os.path.abspath(options["evaluator"]))  # noqa: PTH100
    os.chdir(folder)
    sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location("evaluator", name)
    if spec is None or spec.loader is None:
        raise ImportError(f"{name} does not exist")
    module = importlib.util.module_from_spec(spec)
    sys.modules["evaluator"] = module
    spec.loader.exec_module(module)
    result = module.evaluate(program_path) if hasattr(module, "evaluate") else _printed(name, program_path)
    metrics = getattr(result, "metrics", result)
    if not isinstance(metrics, dict):
        raise TypeError(f"the evaluator returned {type(result).__name__}: expected a dict")
    if isinstance(metrics.get("metrics"), dict):
        artifacts = dict(metrics.get("artifacts") or {})
        return {"combined_score": metrics.get("combined_score", 0.0), **metrics["metrics"]}, artifacts
    return {"combined_score": 0.0, **metrics}, dict(getattr(result, "artifacts", None) or {})


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
