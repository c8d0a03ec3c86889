"""Evaluator in OpenEvolve's form."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from addresses import evaluate as evaluate_program  # OpenEvolve loads this file by its path


def evaluate(program_path):
    """Return the metrics of a program."""
    result = evaluate_program(Path(program_path).read_text(encoding="utf-8"))
    return {**(result["rewards"] or {}), "combined_score": result["score"]}
