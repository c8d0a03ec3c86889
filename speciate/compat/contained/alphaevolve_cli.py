"""Run an evaluator written for the command line of AlphaEvolve, which writes its result to ``--output-file``."""

import json
import os
import runpy
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

_FOLDER = "--program-dir"


def measure(program_path: str, options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the scores of a program by metric, and the evaluator's insights by label.

    The option ``seed`` is the name of the initial program, under which ``--program-dir`` holds a candidate.
    """
    script = options.get("evaluator", "evaluator.py")
    sys.path.insert(0, str(Path(script).parent.absolute()))
    folder = Path(tempfile.mkdtemp())
    output = folder / "scores.json"
    program = ["--input-program-file", program_path]
    if _FOLDER in Path(script).read_text(encoding="utf-8"):
        programs = folder / "program"
        programs.mkdir()
        shutil.copyfile(program_path, programs / options["seed"])
        program = [_FOLDER, str(programs)]
    sys.argv = [script, "--output-file", str(output), *program]
    ended: Any = 0
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        ended = end.code
    if not os.path.isfile(output):  # noqa: PTH113
        raise RuntimeError(f"{script} wrote no result (exit {ended})")
    result = json.loads(output.read_text(encoding="utf-8"))
    insights: dict[str, Any] = {}
    for entry in result.get("insights") or []:
        label = str(entry.get("label", "insight"))
        insights[label] = "\n".join(filter(None, (insights.get(label), str(entry.get("text", "")))))
    scores = {entry["metric"]: entry["score"] for entry in result.get("scores") or []}
    if "score" in result:
        scores["score"] = result["score"]
    if not any(isinstance(score, int | float) for score in scores.values()):
        told = "; ".join(f"{label}: {text}" for label, text in insights.items()) or json.dumps(result)[:200]
        raise RuntimeError(f"the evaluator gave no score: {told}")
    return scores, insights
