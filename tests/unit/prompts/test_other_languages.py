"""Programs in other languages: prompts, parsing and protected regions without a syntax check."""

import json

import pytest

from speciate.domain.language import Language
from speciate.domain.policy import Policy
from speciate.domain.problem import Problem
from speciate.policies.mutators.answers import shown
from speciate.prompts.instructions import system_values
from speciate.prompts.parse import parse_completion
from speciate.prompts.render import problem_text

SEED = "#include <cstdio>\n// EVOLVE-BLOCK-START\nint f() { return 1; }\n// EVOLVE-BLOCK-END\nint main() { f(); }\n"


@pytest.fixture
def problem():
    return Problem.model_validate(
        {
            "slug": "cpp",
            "title": "C++",
            "kind": "cases",
            "objectives": [{"name": "right"}],
            "targets": [{"name": "all", "rule": "right >= 1", "unlock": True}],
            "cases": [{"input": ["1"], "expected": "1"}],
            "seed_program": SEED,
            "language": {"name": "C++", "file": "a.cpp", "build": ["g++", "a.cpp"], "run": ["./a.out"]},
        }
    )


POLICY = Policy(slug="p", kind="scripted")


@pytest.mark.parametrize("inner", ['{"steps": 2}', '{"rule": "nearest first", "steps": 2}'])
def test_a_program_in_json_is_no_envelope_of_one(problem, inner):
    seed = '{"steps": 1}\n'
    language = {"name": "JSON", "file": "candidate.json"}
    parameters = problem.model_copy(update={"language": Language.model_validate(language), "seed_program": seed})
    for text in (f"Wider.\n```json\n{inner}\n```", f"```json\n{inner}\n```"):
        (answer,) = parse_completion(text, problem=parameters, policy=POLICY, parent=seed)
        assert (answer.program.strip(), answer.failure) == (inner, None)


def test_a_quoted_line_after_the_program_is_not_the_answer(problem):
    text = f"```cpp\n{SEED}```\nThe key line is:\n```cpp\nreturn 1;\n```"
    (answer,) = parse_completion(text, problem=problem, policy=POLICY, parent=SEED)
    assert answer.failure is None
    assert answer.program == SEED


@pytest.mark.parametrize(
    "sample", ["```\n[1, 2]\n```", "```json\n[1, 2]\n```", '```json\n{"name": "John Smith"}\n```', "```sh\nls\n```"]
)
def test_sample_data_beside_a_program_is_not_the_answer(problem, sample):
    for text in (f"```cpp\n{SEED}```\nExample output:\n{sample}", f"Input:\n{sample}\n```cpp\n{SEED}```"):
        (answer,) = parse_completion(text, problem=problem, policy=POLICY, parent=SEED)
        assert (answer.program, answer.failure) == (SEED, None)


def test_json_in_a_polished_program_is_a_part_of_it(problem):
    program = SEED.replace("return 1", 'const char *rule = R"({ "rule": "nearest first" })"; return 1')
    (answer,) = parse_completion(shown(program, is_python=False), problem=problem, policy=POLICY, parent=program)
    assert (answer.program, answer.failure) == (program, None)


def test_the_prompt_describes_build_run_and_exchange(problem):
    assert system_values(problem, POLICY, with_base=True)["candidates"] == "programs in C++"
    text = problem_text(problem)
    assert "built with `g++ a.cpp` and run with `./a.out`" in text
    assert "standard input" in text
    assert "solve" not in text


@pytest.fixture
def markdown(problem):
    fields = problem.model_dump() | {"kind": "in_process", "evaluator": "def evaluate(program): ...", "cases": []}
    language = {"name": "Markdown", "file": "candidate.md"}
    return Problem.model_validate(fields | {"seed_program": "Be brief.\n", "language": language})


def test_a_text_that_was_edited_in_place_is_read_as_edited(markdown):
    for edited in ("A\n", "A", "\n\nA\n\n", "```\nA\n```\n", "A\n```json\n{}\n```\n", "Write <answer> first.\n"):
        text = shown(edited, is_python=False)
        (answer,) = parse_completion(text, problem=markdown, policy=POLICY, parent="Be brief.\n")
        assert (answer.program, answer.failure) == (edited, None)


def test_a_text_with_labelled_fences_inside_is_read_whole_and_blocks_left_out_are_told(markdown):
    inside = "Answer so:\n```json\n{}\n```\nBe brief.\n"
    (answer,) = parse_completion(f"Idea.\n```md\n{inside}```\n", problem=markdown, policy=POLICY, parent=None)
    assert (answer.program, answer.note) == (inside, "")
    bare = inside.replace("json", "")
    (answer,) = parse_completion(f"Idea.\n```md\n{bare}```\n", problem=markdown, policy=POLICY, parent=None)
    assert answer.note.startswith("Of 2 blocks one was used: ")
    (answer,) = parse_completion(f"````md\n{bare}````\n", problem=markdown, policy=POLICY, parent=None)
    assert (answer.program, answer.note) == (bare, "")


@pytest.mark.parametrize(("name", "file"), [("Text", "candidate.txt"), ("Markdown", "candidate.md")])
def test_a_text_that_the_evaluator_reads_is_no_program(problem, name, file):
    fields = problem.model_dump() | {"kind": "in_process", "evaluator": "def evaluate(program): ...", "cases": []}
    read = Problem.model_validate(fields | {"seed_program": "Be brief.\n", "language": {"name": name, "file": file}})
    values = system_values(read, POLICY, with_base=True)
    assert values["candidates"] == "texts"
    assert "write the complete text in exactly one code fence, longer than any fence inside it:" in values["form"]
    prompt = problem_text(read)
    assert f"The evaluator reads the text, stored as {file}. A text has up to 1024 KiB." in prompt
    assert not any(word in values["form"] + prompt for word in ("rogram", "seeds", "process"))


def test_the_last_fenced_block_is_the_program(problem):
    program = SEED.replace("return 1", "return 2")
    (answer,) = parse_completion(f"Here:\n```cpp\n{program}```\n", problem=problem, policy=POLICY, parent=None)
    assert (answer.program, answer.failure) == (program, None)


@pytest.mark.parametrize("label", ["cpp", "C++"])
def test_a_build_command_is_not_the_program(problem, label):
    program = SEED.replace("return 1", "return 2")
    text = f"```{label}\n{program}```\nBuild and run it:\n```bash\ng++ a.cpp && ./a.out\n```\nIt prints\n```\n4\n```\n"
    (answer,) = parse_completion(text, problem=problem, policy=POLICY, parent=None)
    assert (answer.program, answer.failure) == (program, None)


def test_regions_are_kept_as_in_python(problem):
    program = SEED.replace("return 1", "return 2").replace("main() { f(); }", "main() { return 7; }")
    (answer,) = parse_completion(f"```cpp\n{program}```", problem=problem, policy=POLICY, parent=None)
    assert answer.failure is not None
    assert answer.failure.reason == "protected_region_changed"


def test_comments_are_restored_and_inclusions_move_inside(problem):
    program = SEED.replace("return 1", "return 2").replace(
        "#include <cstdio>", "// Fast.\n#include <cstdio>\n#include <map>"
    )
    (answer,) = parse_completion(f"```cpp\n{program}```", problem=problem, policy=POLICY, parent=None)
    assert answer.failure is None
    assert answer.program == SEED.replace("int f() { return 1;", "#include <map>\nint f() { return 2;")


def test_a_program_in_json_and_one_that_quotes_edits(problem):
    program = SEED.replace("return 1", "return 2")
    quoting = program.replace("int f", 'auto help = R"(\n<<<<<<< SEARCH\na\n=======\nb\n>>>>>>> REPLACE\n)";\nint f')
    for text, expected in (
        (json.dumps({"explanation": "It returns two.", "code": program}), program),
        (f"```cpp\n{quoting}```", quoting),
    ):
        (answer,) = parse_completion(text, problem=problem, policy=POLICY, parent=None)
        assert (answer.program, answer.failure) == (expected, None)


def test_a_completion_without_a_block_is_no_answer(problem):
    (answer,) = parse_completion("   ", problem=problem, policy=POLICY, parent=None)
    assert answer.failure is not None
    assert answer.failure.reason == "no_text"


def test_examples_use_the_exchange_format(problem):
    cases = [{"input": [[True, None], "é"], "expected": {"a": False}}]
    spoken = problem.model_dump() | {"cases": cases, "language": problem.language.model_dump() | {"exchange": "json"}}
    assert '- input ([true, null], "é") -> {"a": false}' in problem_text(Problem.model_validate(spoken))
    assert "- input ('1') -> '1'" in problem_text(problem)


def test_a_program_that_ends_at_the_limit_is_none(problem):
    text = "Loop.\n```cpp\nint f() {\n    int s = 0;\n    for (int i = 0; i < 9; i"
    (answer,) = parse_completion(text, problem=problem, policy=POLICY, parent=SEED, finish_reason="length")
    assert answer.failure is not None
    assert (answer.failure.reason, "max_tokens" in answer.failure.detail) == ("truncated", True)


def test_an_inclusion_above_a_marked_block_moves_into_it(problem):
    block = "#include <regex>\n// EVOLVE-BLOCK-START\nint f() { return 2; }\n// EVOLVE-BLOCK-END\n"
    (answer,) = parse_completion(f"```cpp\n{block}```", problem=problem, policy=POLICY, parent=SEED)
    assert answer.program == SEED.replace("int f() { return 1;", "#include <regex>\nint f() { return 2;")


def test_two_programs_are_told(problem):
    text = "```sh\nmake\n```\n```cpp\nint f() { return 2; }\n```\nor\n```cpp\nint f() { return 3; }\n```\n"
    (answer,) = parse_completion(text, problem=problem, policy=POLICY, parent=SEED)
    assert answer.note.startswith("Your answer held 2 blocks; the last was used.")


@pytest.mark.parametrize("beside", [f"It is:\n```cpp\n{SEED}```\n", "Instead of\n```cpp\nint f() { return 1; }\n```\n"])
def test_quotes_of_the_parent_are_not_the_answer(problem, beside):
    new = "```cpp\nint f() {\n    return 2;\n}\n```\n"
    for text in (beside + new, new + beside):
        (answer,) = parse_completion(text, problem=problem, policy=POLICY, parent=SEED)
        assert "return 2" in answer.program
        assert answer.note == ""


def test_a_program_that_shortens_its_parent_is_no_quote(problem):
    parent = SEED.replace("int f() { return 1; }", "int g() { return 1; }\nint f() { return 1; }")
    text = "```cpp\nint main() { assert(f() == 1); }\n```\nWithout g:\n```cpp\nint f() { return 1; }\n```"
    (answer,) = parse_completion(text, problem=problem, policy=POLICY, parent=parent)
    assert "assert" not in answer.program
    assert "int g" not in answer.program


def test_a_quoted_helper_of_the_parent_is_not_the_answer(problem):
    helper = "int g(int n) { int s = 0; for (int i = 0; i < n; ++i) s += i; return s; }"
    parent = SEED.replace("int f() { return 1; }", f"{helper}\nint f() {{ return g(5); }}")
    new = "int g(int n) { return n * (n - 1) / 2; }\nint f() { return g(5); }"
    text = f"```cpp\n{new}\n```\nIt was\n```cpp\n{helper}\n```\n"
    (answer,) = parse_completion(text, problem=problem, policy=POLICY, parent=parent)
    assert "n * (n - 1) / 2" in answer.program
