"""Programs of several files: modules in Python, files in the working folder otherwise."""

from __future__ import annotations

import shutil
from contextlib import closing
from typing import Any

import pytest

from evaluators.canary import probe_tier
from evaluators.evaluator import SandboxEvaluator
from speciate.domain.candidate import Evaluation, FailureKind
from speciate.domain.files import text_of
from tests.unit.evaluators.conftest import MakeProblem

TIER_A = "A"
MAIN = "import geometry\nfrom shapes.circle import area\n\n\ndef solve(x):\n    return geometry.double(area(x))\n"
FILES = {
    "candidate.py": MAIN,
    "geometry.py": "from shapes import one\n\n\ndef double(x):\n    return 2 * x * one()\n",
    "shapes/__init__.py": "def one():\n    return 1\n",
    "shapes/circle.py": "from . import one\n\n\ndef area(x):\n    return x * one()\n",
}


def evaluate(sandbox: SandboxEvaluator, make_problem: MakeProblem, files: dict[str, str], **changes: Any) -> Evaluation:
    fields: dict[str, Any] = {"cases": [{"input": [x], "expected": 2 * x} for x in range(3)], "many_files": True}
    problem = make_problem("cases", **(fields | changes))
    return sandbox.evaluate(problem, [text_of(files)], seeds=[0])[0]


def test_files_are_modules_of_each_other(sandbox: SandboxEvaluator, make_problem: MakeProblem) -> None:
    assert evaluate(sandbox, make_problem, FILES).rewards == (1.0,)
    bare = {name: text for name, text in FILES.items() if name != "shapes/__init__.py"}
    bare["shapes/circle.py"] = "def area(x):\n    return x\n"
    bare["geometry.py"] = "import candidate\n\n\ndef double(x):\n    return 2 * x * callable(candidate.solve)\n"
    assert evaluate(sandbox, make_problem, bare).rewards == (1.0,)


@pytest.mark.parametrize("tier", ["A", "B"])
def test_no_tier_needs_a_folder_for_modules(tier: str, make_problem: MakeProblem) -> None:
    if not probe_tier(tier).holds:
        pytest.skip(f"tier {tier} does not hold here: {probe_tier(tier).breaches}")
    with closing(SandboxEvaluator(tier)) as sandbox:
        assert evaluate(sandbox, make_problem, FILES).rewards == (1.0,)


def test_nothing_is_left_for_the_next_program(sandbox: SandboxEvaluator, make_problem: MakeProblem) -> None:
    problem = make_problem("cases", cases=[{"input": [1], "expected": 2}], many_files=True)
    alone = text_of({"candidate.py": MAIN})
    first, second = sandbox.evaluate(problem, [text_of(FILES), alone], seeds=[0, 0])
    assert first.rewards == (1.0,)
    assert second.failure is not None
    assert "No module named 'geometry'" in second.failure.detail


def test_what_fails_in_another_file_is_told_with_its_name(sandbox: SandboxEvaluator, make_problem: MakeProblem) -> None:
    broken = FILES | {"geometry.py": "def double(x):\n    return x / 0\n"}
    failure = evaluate(sandbox, make_problem, broken).failure
    assert failure is not None
    assert (failure.kind, failure.reason) == (FailureKind.CRASHED, "raised")
    assert 'File "geometry.py", line 2, in double' in failure.detail
    assert "ZeroDivisionError" in failure.detail
    missing = evaluate(sandbox, make_problem, {"candidate.py": "import nowhere\n"}).failure
    assert missing is not None
    assert "No module named 'nowhere'" in missing.detail


def test_generators_are_seeded_whichever_file_uses_them(sandbox: SandboxEvaluator, make_problem: MakeProblem) -> None:
    files = {
        "candidate.py": "import draws\n\n\ndef solve(x):\n    return draws.draw()\n",
        "draws.py": "import numpy.random\n\n\ndef draw():\n    return float(numpy.random.random())\n",
    }
    script = "def evaluate(candidate, context):\n    return {'score': candidate.call('solve', 0).unwrap()}\n"
    problem = make_problem("evaluator", evaluator=script, many_files=True, preload=[])
    first, again, other = sandbox.evaluate(problem, [text_of(files)] * 3, seeds=[0, 0, 1])
    assert first.rewards == again.rewards != other.rewards


def test_a_script_calls_the_main_file_and_sees_the_whole_text(
    sandbox: SandboxEvaluator, make_problem: MakeProblem
) -> None:
    script = (
        "def evaluate(candidate, context):\n"
        "    right = candidate.call('solve', 21).unwrap() == 42\n"
        "    return {'score': right * candidate.source.count('=== file: ') / 4}\n"
    )
    problem = make_problem("evaluator", evaluator=script, many_files=True)
    assert sandbox.evaluate(problem, [text_of(FILES)], seeds=[0])[0].rewards == (1.0,)


def test_a_text_without_headings_fails_as_a_program(sandbox: SandboxEvaluator, make_problem: MakeProblem) -> None:
    problem = make_problem("cases", cases=[{"input": [1], "expected": 2}], many_files=True)
    failure = sandbox.evaluate(problem, ["import geometry\n"], seeds=[0])[0].failure
    assert failure is not None
    assert failure.kind is FailureKind.CRASHED


def test_files_lie_in_the_folder_where_programs_are_built(sandbox: SandboxEvaluator, make_problem: MakeProblem) -> None:
    if sandbox.tier != TIER_A or shutil.which("g++") is None:
        pytest.skip("programs in C++ need tier A and g++, which are not here")
    language = {"name": "C++", "file": "main.cpp", "build": ["g++", "main.cpp", "lib/twice.cpp"], "run": ["./a.out"]}
    files = {
        "lib/twice.hpp": "long twice(long x);\n",
        "main.cpp": '#include "lib/twice.hpp"\n#include <iostream>\n'
        "int main() { long x; std::cin >> x; std::cout << twice(x); }\n",
        "lib/twice.cpp": '#include "twice.hpp"\nlong twice(long x) { return 2 * x; }\n',
    }
    cases = [{"input": [str(x)], "expected": str(2 * x)} for x in range(2)]
    limits = {"wall_s": 10, "cpu_s": 5}
    changes: dict[str, Any] = {"language": language, "cases": cases, "limits": limits}
    assert evaluate(sandbox, make_problem, files, **changes).rewards == (1.0,)
    failure = evaluate(sandbox, make_problem, {"main.cpp": files["main.cpp"]}, **changes).failure
    assert failure is not None
    assert failure.reason == "build_failed"
