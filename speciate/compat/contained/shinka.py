"""Run an evaluation script written for ShinkaEvolve: ``evaluate.py --program_path P --results_dir D``.

The script writes ``metrics.json`` and ``correct.json`` to the folder, or calls ``shinka.core.run_shinka_eval``. This
module provides that function, which keeps the results in memory because tier B forbids writing files.
"""

import importlib.util
import json
import runpy
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

_KEPT: dict[str, Any] = {}


def measure(program_path: str, options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return ``combined_score``, ``correct`` and the public metrics of a program, and its text feedback."""
    core = ModuleType("shinka.core")
    vars(core).update(run_shinka_eval=run_shinka_eval, save_json_results=save_json_results)
    package = ModuleType("shinka")
    vars(package)["core"] = core
    sys.modules.update({"shinka": package, "shinka.core": core, "shinka.core.wrap_eval": core})
    results = _folder()
    script = options.get("evaluator", "evaluate.py")
    sys.path.insert(0, str(Path(script).parent.absolute()))
    sys.argv = [script, "--program_path", program_path, "--results_dir", results]
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        _KEPT["exit"] = f"{script} ended with {end.code}"
    metrics, verdict = (_read(results, name) for name in ("metrics", "correct"))
    if not isinstance(metrics, dict) or not isinstance(verdict, dict):
        raise RuntimeError(_KEPT.get("exit") or f"{script} left no metrics.json and correct.json")  # noqa: TRY004
    public = metrics.get("public")
    measured = {**(public if isinstance(public, dict) else {}), "correct": bool(verdict.get("correct"))}
    if "combined_score" in metrics:
        measured["combined_score"] = metrics["combined_score"]
    texts = {"feedback": metrics.get("text_feedback"), "error": verdict.get("error")}
    return measured, {label: text for label, text in texts.items() if text}


def run_shinka_eval(
    program_path: str,
    results_dir: str,
    experiment_fn_name: str,
    num_runs: int,
    get_experiment_kwargs: Callable[[int], dict[str, Any]] | None = None,
    aggregate_metrics_fn: Callable[[list[Any]], dict[str, Any]] | None = None,
    validate_fn: Callable[[Any], Any] | None = None,
    **_: Any,
) -> tuple[dict[str, Any], bool, str | None]:
    """Call a function of the program several times; return its metrics, whether all results are valid, and the error.

    Further options, such as the number of processes, are ignored.
    """
    error: str | None = None
    metrics: dict[str, Any] = {}
    try:
        experiment = getattr(_load(program_path), experiment_fn_name)
        outcomes = []
        for i in range(num_runs):
            outcomes.append(experiment(**(get_experiment_kwargs(i) if get_experiment_kwargs else {"seed": i + 1})))
            error = error or _why_not(validate_fn, outcomes[-1])
        metrics = aggregate_metrics_fn(outcomes) if aggregate_metrics_fn else {"num_successful_runs": len(outcomes)}
    except Exception as raised:  # noqa: BLE001  # the program's failure is a result
        traceback.print_exc()
        metrics, error = {"combined_score": 0.0}, f"{type(raised).__name__}: {raised}"
    save_json_results(results_dir, metrics, error is None, error)
    return metrics, error is None, error


def save_json_results(_: str, metrics: dict[str, Any], correct: bool, error: str | None = None) -> None:
    """Keep in memory what a script would write."""
    _KEPT.update(metrics=metrics, correct={"correct": correct, "error": error})


def _load(program_path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location("program", program_path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{program_path} is not a Python module")
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    return program


def _why_not(validate: Callable[[Any], Any] | None, outcome: Any) -> str | None:
    if validate is None:
        return None
    valid, why = validate(outcome)
    return None if valid else str(why or "not valid")


def _folder() -> str:
    try:
        return tempfile.mkdtemp()
    except OSError:
        return "."  # tier B: exists, but is read-only


def _read(folder: str, name: str) -> Any:
    path = Path(folder, f"{name}.json")
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else _KEPT.get(name)
