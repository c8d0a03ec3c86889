"""Evaluator in OpenEvolve's form."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from adapter import evaluate_file  # OpenEvolve loads this file by its path


def evaluate(program_path):
    """Return the metrics of a program."""
    found = evaluate_file(program_path)
    return {"combined_score": found["score"], **found.get("rewards", {})}
