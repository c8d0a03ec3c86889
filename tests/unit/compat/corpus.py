"""Programs and evaluators that follow the public contracts, each with a way to score its seed without Speciate."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from tests.unit.compat.directories import OPENEVOLVE, SHINKA

_LOAD = """\
import importlib.util


def load(path):
    spec = importlib.util.spec_from_file_location("program", path)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    return program
"""
_SEED = "# EVOLVE-BLOCK-START\ndef run(n=3):\n    return [i * 0.5 for i in range(n)]\n# EVOLVE-BLOCK-END\n"
_RESULT = """\
class EvaluationResult:
    def __init__(self, metrics, artifacts=None):
        self.metrics = metrics
"""
_OUTSIDE = """\
import asyncio, importlib.util, inspect, json, sys
program, evaluator, function = sys.argv[1:]
sys.path.insert(0, ".")
spec = importlib.util.spec_from_file_location("evaluator", evaluator)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
result = getattr(module, function)(program)
result = asyncio.run(result) if inspect.iscoroutine(result) else result
result = getattr(result, "metrics", result)
result = result if isinstance(result, dict) else {"score": result}
json.dump({k: float(v) for k, v in result.items() if isinstance(v, int | float) and abs(v) < 1e300}, sys.stdout)
"""


@dataclass(frozen=True)
class Entry:
    """A program and its evaluator."""

    files: dict[str, str]
    objectives: tuple[str, ...] = ("combined_score ↑",)
    """Objectives without options, with their directions."""
    program: str = "initial_program.py"
    evaluator: str = "evaluator.py"
    folder: bool = True
    """True to name the folder, False to name the two files."""
    writes: bool = False
    """True if the evaluation writes files or starts processes."""
    scores: dict[str, float] = field(default_factory=dict)
    """Score of the seed where the other system itself would be needed to measure it."""
    function: str = "evaluate"

    def scored_outside(self, folder: Path) -> dict[str, float]:
        """Return the score of the seed as the author's evaluator gives it in a plain Python process."""
        if self.scores:
            return self.scores
        if self.function == "__main__":
            output = folder.parent / "outside"
            output.mkdir()
            options = ["--program_path", self.program, "--results_dir", str(output)]
            subprocess.run([sys.executable, self.evaluator, *options], cwd=folder, check=True)
            return dict(json.loads((output / "metrics.json").read_text()))
        results = folder.parent / "outside" / "openevolve"
        results.mkdir(parents=True)
        (results / "evaluation_result.py").write_text(_RESULT)
        found = subprocess.run(
            [sys.executable, "-c", _OUTSIDE, self.program, self.evaluator, self.function],
            cwd=folder,
            env={"PYTHONPATH": str(results.parent), "PATH": "/usr/bin:/bin"},
            capture_output=True,
            check=True,
        )
        return dict(json.loads(found.stdout.splitlines()[-1]))


def _openevolve(evaluator: str, **fields: object) -> Entry:
    files = {"initial_program.py": _SEED, "evaluator.py": _LOAD + evaluator}
    extra = fields.pop("extra", {})
    assert isinstance(extra, dict)
    return Entry({**files, **extra}, **fields)  # type: ignore[arg-type]


CORPUS = {
    "cascade, helper and data": Entry(OPENEVOLVE, function="evaluate_stage2"),
    "score with further numbers": _openevolve(
        "def evaluate(path):\n    total = sum(load(path).run())\n"
        "    return {'combined_score': total / 3, 'total': total, 'ok': True, 'note': 'fine'}\n"
    ),
    "a number": _openevolve(
        "def evaluate(path):\n    return sum(load(path).run()) / 7\n", objectives=("score ↑",), folder=False
    ),
    "one name": _openevolve(
        "def evaluate(path):\n    return {'gain': sum(load(path).run()) / 7}\n", objectives=("gain ↑",), folder=False
    ),
    "awaited": _openevolve("async def evaluate(path):\n    return {'combined_score': load(path).run()[1] / 3}\n"),
    "mean of all numbers": _openevolve(
        "def evaluate(path):\n    return {'accuracy': load(path).run()[1] / 7, 'speed': 3.0}\n",
        objectives=("accuracy ↑", "speed ↑"),
        extra={"config.yaml": "evaluator: {timeout: 20}\n"},
    ),
    "time limit by a thread": _openevolve(
        "from concurrent.futures import ThreadPoolExecutor\n\n\ndef evaluate(path):\n"
        "    with ThreadPoolExecutor(1) as pool:\n"
        "        values = pool.submit(load(path).run, 4).result(timeout=5)\n"
        "    return {'combined_score': sum(values) / 7, 'loss': -2.5}\n"
    ),
    "child process with a result file": _openevolve(
        "import json, os, subprocess, sys, tempfile\n\n\ndef evaluate(path):\n"
        "    with tempfile.TemporaryDirectory() as folder:\n"
        "        result = os.path.join(folder, 'result.json')\n"
        "        code = 'import json, runpy, sys; found = runpy.run_path(sys.argv[1]);"
        ' json.dump(found["run"](5), open(sys.argv[2], "w"))\'\n'
        "        subprocess.run([sys.executable, '-c', code, path, result], check=True, timeout=20)\n"
        "        return {'combined_score': sum(json.load(open(result))) / 9}\n",
        writes=True,
    ),
    "numpy and scipy": _openevolve(
        "import numpy as np\nfrom scipy.spatial.distance import pdist\n\n\ndef evaluate(path):\n"
        "    points = np.array(load(path).run(6)).reshape(3, 2)\n"
        "    return {'combined_score': np.float64(pdist(points).min() / pdist(points).max()), 'n': np.int64(3)}\n"
    ),
    "text as program": Entry(
        {
            "initial_program.txt": "Answer with one word.\n",
            "evaluator.py": "def evaluate(path):\n    return {'combined_score': len(open(path).read().split()) / 7}\n",
        },
        program="initial_program.txt",
    ),
    "another language": Entry(
        {
            "initial_program.rs": 'fn main() { println!("3"); }\n',
            "config.yaml": "file_suffix: .rs\n",
            "evaluator.py": "def evaluate(path):\n    return {'combined_score': open(path).read().count('3') / 7}\n",
        },
        program="initial_program.rs",
    ),
    "record that is not finite": _openevolve(
        "def evaluate(path):\n    return {'combined_score': 0.75, 'ratio': float('nan'), 'product': 10**400}\n"
    ),
    "score below zero": _openevolve("def evaluate(path):\n    return {'combined_score': -sum(load(path).run())}\n"),
    "byte order mark and line ends": Entry(
        {
            "initial_program.py": "\ufeff" + _SEED.replace("\n", "\r\n"),
            "evaluator.py": "\ufeff"
            + _LOAD
            + "def evaluate(path):\n    return {'combined_score': load(path).run()[2] / 3}\n",
        }
    ),
    "ShinkaEvolve, aggregated": Entry(
        SHINKA,
        program="initial.py",
        evaluator="evaluate.py",
        scores={"combined_score": -15, "correct": 1, "length": 15},
    ),
    "ShinkaEvolve, written by the script": Entry(
        {
            "initial.py": _SEED,
            "evaluate.py": _LOAD + "import argparse, json, os\nparser = argparse.ArgumentParser()\n"
            "parser.add_argument('--program_path')\nparser.add_argument('--results_dir')\n"
            "given = parser.parse_args()\nscore = sum(load(given.program_path).run(5)) / 7\n"
            "for name, values in {'metrics': {'combined_score': score}, 'correct': {'correct': True}}.items():\n"
            "    json.dump(values, open(os.path.join(given.results_dir, name + '.json'), 'w'))\n",
        },
        program="initial.py",
        evaluator="evaluate.py",
        function="__main__",
        writes=True,
        folder=False,
    ),
    "SkyDiscover": Entry(
        {
            "initial_program.py": _SEED,
            "evaluator/evaluator.py": _LOAD
            + "def evaluate(path):\n    return {'combined_score': load(path).run()[2] / 3}\n",
        },
        evaluator="evaluator/evaluator.py",
    ),
    "AlphaEvolve": Entry(
        {
            "initial_program.py": _SEED,
            "evaluator.py": _LOAD
            + "import argparse, json\nparser = argparse.ArgumentParser()\nparser.add_argument('--input-program-file')\n"
            "parser.add_argument('--output-file')\ngiven = parser.parse_args()\n"
            "json.dump({'score': sum(load(given.input_program_file).run()) / 2}, open(given.output_file, 'w'))\n",
        },
        objectives=("score ↑",),
        scores={"score": 0.75},
        writes=True,
    ),
    "Speciate": Entry(
        {
            "program.py": _SEED,
            "judge.py": "import helper\n\n\ndef evaluate(candidate, context):\n"
            "    values = candidate.call('run', 4).unwrap()\n    context.note('count', len(values))\n"
            "    return {'combined_score': sum(values) / helper.whole(context), 'count': len(values)}\n",
            "helper.py": "def whole(context):\n    return float(context.files['whole.txt'])\n",
            "whole.txt": "6",
        },
        program="program.py",
        evaluator="judge.py",
        folder=False,
        scores={"combined_score": 0.5, "count": 4},
    ),
}
