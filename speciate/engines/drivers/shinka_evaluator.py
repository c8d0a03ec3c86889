"""Evaluator in ShinkaEvolve's form: a script that writes ``metrics.json`` and ``correct.json``."""

import json
import sys
from pathlib import Path

from addresses import evaluate

if __name__ == "__main__":
    arguments = dict(zip(sys.argv[1::2], sys.argv[2::2], strict=True))
    result = evaluate(Path(arguments["--program_path"]).read_text(encoding="utf-8"))
    folder = Path(arguments["--results_dir"])
    folder.mkdir(parents=True, exist_ok=True)
    metrics = {"combined_score": result["score"], "public": result["rewards"] or {}, "private": {}}
    (folder / "metrics.json").write_text(json.dumps(metrics), encoding="utf-8")
    correct = {"correct": result["failure"] is None, "error": result["failure_detail"]}
    (folder / "correct.json").write_text(json.dumps(correct), encoding="utf-8")
