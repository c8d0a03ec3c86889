"""Directories in the style of other systems, made by hand: every test has its own to break."""

from __future__ import annotations

from pathlib import Path

OPENEVOLVE = {
    "initial_program.py": '''\
"""Guesses a line."""


# EVOLVE-BLOCK-START
def guess(count):
    return [0.5 for _ in range(count)]
# EVOLVE-BLOCK-END


def run(count):
    return guess(count)
''',
    "evaluator.py": """\
import importlib.util
import os

from openevolve.evaluation_result import EvaluationResult

import distance

HERE = os.path.dirname(os.path.abspath(__file__))


def load(path):
    spec = importlib.util.spec_from_file_location("program", path)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    return program


def evaluate_stage1(program_path):
    return {"runs": True, "combined_score": 0.5 if len(load(program_path).run(3)) == 3 else 0.0}


async def evaluate_stage2(program_path):
    wanted = [float(word) for word in open(os.path.join(HERE, "wanted.txt")).read().split()]
    loss = distance.between(load(program_path).run(len(wanted)), wanted)
    metrics = {"combined_score": 1 / (1 + loss), "loss": loss, "verdict": "close" if loss < 1 else "far"}
    return EvaluationResult(metrics=metrics, artifacts={"advice": "mind the slope"})


def evaluate(program_path):
    raise AssertionError("a cascade has no use for this")
""",
    "distance.py": "def between(a, b):\n    return sum(abs(x - y) for x, y in zip(a, b))\n",
    "wanted.txt": "0.5 1.0 1.5\n",
    "config.yaml": '''\
max_iterations: 100
llm:
  primary_model: "some-model"
  api_key: ${SOME_KEY}
prompt:
  system_message: |
    Guess "the line", with \\ and """ in mind.
evaluator:
  timeout: 30
  cascade_thresholds: [0.5, 0.75]
''',
}
"""A line is guessed; the initial program is at a loss of 1.5, and at a score of 0.4."""

SHINKA = {
    "initial.py": """\
# EVOLVE-BLOCK-START
def tour(count):
    return [0, 5, 1, 4, 2, 3][:count]
# EVOLVE-BLOCK-END


def run_experiment(seed):
    return tour(6)
""",
    "evaluate.py": """\
import argparse
import os

from shinka.core import run_shinka_eval


def validate(tour):
    return sorted(tour) == list(range(6)), "not every place is visited once"


def aggregate(tours):
    length = sum(abs(a - b) for tour in tours for a, b in zip(tour, tour[1:])) / len(tours)
    return {
        "combined_score": -length,
        "public": {"length": length, "places": "6 of 6"},
        "private": {"secret": 7},
        "text_feedback": "walk less",
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--program_path")
    parser.add_argument("--results_dir")
    given = parser.parse_args()
    os.makedirs(given.results_dir, exist_ok=True)
    run_shinka_eval(
        program_path=given.program_path,
        results_dir=given.results_dir,
        experiment_fn_name="run_experiment",
        num_runs=2,
        validate_fn=validate,
        aggregate_metrics_fn=aggregate,
    )
""",
    "run_evo.py": 'search_task_sys_msg = """Walk a short tour."""\nraise SystemExit("this is never run")\n',
}
"""A tour of six places in a line; the initial one has a length of 15."""


def made(folder: Path, files: dict[str, str], **changes: str) -> Path:
    """Write files into a new folder and return it; a change replaces the file whose name has _ for the dot."""
    folder.mkdir()
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(changes.get(name.replace(".", "_"), text))
    return folder
