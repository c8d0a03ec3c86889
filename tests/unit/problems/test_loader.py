import json
import time
import tomllib
from pathlib import Path

import pytest

from speciate.domain.errors import FieldError, InvalidInputError, NotFoundError, TooLargeError
from speciate.domain.problem import ProblemKind
from speciate.domain.unstorable import MAX_VALUES
from speciate.domain.values import MAX_PROGRAM_BYTES
from speciate.problems.loader import load_problem, parse_problem
from speciate.problems.toml_places import MAX_DEPTH, MAX_KEY_PARTS, limit_error

TOML = """\
slug = "small"
title = "Small"
kind = "evaluator"
seed = "seed.py"
evaluator = "evaluate.py"

[[objectives]]
name = "value"

[[objectives]]
name = "cost"
direction = "minimize"

[[targets]]
name = "easy"
rule = "value >= 1"

[[targets]]
name = "hard"
rule = "value >= 2 and cost <= 1"
unlock = true
"""
FILES = {"seed.py": "def solve():\n    return 1\n", "evaluate.py": "def evaluate(candidate, context):\n    return {}\n"}


def field_errors_of(text: str = TOML, files: dict[str, str] = FILES) -> list[FieldError]:
    with pytest.raises(InvalidInputError) as caught:
        parse_problem(text, files)
    assert str(caught.value.field_errors[0]) in str(caught.value)
    return list(caught.value.field_errors)


def the_field_error(text: str = TOML, files: dict[str, str] = FILES) -> FieldError:
    (field_error,) = field_errors_of(text, files)
    return field_error


def test_a_definition_is_read_with_its_files() -> None:
    problem = parse_problem(TOML + "\n[limits]\nwall_s = 3\n", FILES)
    assert problem.kind is ProblemKind.EVALUATOR
    assert problem.seed_program == FILES["seed.py"]
    assert problem.evaluator == FILES["evaluate.py"]
    assert problem.limits.wall_s == 3
    assert [target.unlock for target in problem.targets] == [False, True]


def test_an_unknown_objective_in_a_rule_names_file_line_and_what_was_expected() -> None:
    field_error = the_field_error(TOML.replace("value >= 2", "speed >= 2"))
    assert (field_error.file, field_error.line, field_error.where) == ("problem.toml", 20, "targets.1.rule")
    assert "unknown objective 'speed' at column 1: expected one of value, cost" in field_error.message
    assert str(field_error).startswith("problem.toml:20 target 'hard', rule: ")


def test_all_field_errors_are_told_at_once_in_the_order_of_the_file() -> None:
    text = TOML.replace('title = "Small"', 'title = ""\ncolour = "red"').replace('"minimize"', '"down"')
    field_errors = field_errors_of(text.replace("value >= 1", "value => 1"))
    assert [(f.line, f.where) for f in field_errors] == [
        (2, "title"),
        (3, "colour"),
        (13, "objectives.1.direction"),
        (17, "targets.0.rule"),
    ]
    assert "expected one of slug, title" in field_errors[1].message
    assert "'maximize' or 'minimize'" in field_errors[2].message


@pytest.mark.parametrize(
    ("old", "new", "line", "where", "words"),
    [
        ('title = "Small"\n', "", 1, "title", "missing"),
        ('title = "Small"', "title = Small problem", 2, "", "in 'title = Small problem': write texts in quotes"),
        ('name = "cost"\n', "", 10, "objectives.1.name", "missing"),
        ('name = "cost"', 'name = "cost"\nrange = [2, 1]', 10, "objectives.1", "expected low < high"),
        ('name = "cost"', 'name = "cost"\nrange = [0, inf]', 12, "objectives.1.range.1", "finite"),
        ('name = "cost"', 'name = "cost"\nweight = 2', 12, "objectives.1.weight", "expected one of name, direction"),
        ('name = "hard"', 'name = "easy"', 19, "targets.1.name", "'easy' is declared 2 times"),
        ("unlock = true", "unlock = false", 14, "targets", "expected exactly one"),
        ('name = "hard"', 'name = "hard"\n[limits]\nwall_s = -1\n[unused]', 21, "limits.wall_s", "greater than 0"),
        ('slug = "small"', 'slug = "Too Big"', 1, "slug", "expected lower-case words joined by hyphens"),
        ('kind = "evaluator"', 'kind = "guess"', 3, "kind", "'cases', 'evaluator', 'data' or 'in_process'"),
        ('seed = "seed.py"', 'seed = "seed.py"\nweights = { cost = -1 }', 5, "weights", "weights must be"),
        ('evaluator = "evaluate.py"\n', "", 3, "kind", "needs an evaluator script"),
        ('seed = "seed.py"', 'seed = "seed.py"\nseed_program = "x = 1"', 5, "seed_program", "beside seed"),
        ('seed = "seed.py"', 'program = "x = 1"', 4, "program", "unknown key"),
        ('seed = "seed.py"', 'seed = "seed.py"\n"²" = 1', 5, "²", "unknown key"),
    ],
)
def test_a_field_error_is_placed_on_its_line(old: str, new: str, line: int, where: str, words: str) -> None:
    field_errors = field_errors_of(TOML.replace(old, new))
    assert any((f.line, f.where) == (line, where) and words in f.message for f in field_errors), field_errors


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [('slug = "a\n', 1, 10), ("slug = 1\nslug = 2\n", 2, None), ("a = 1\nb = = 2\n", 2, 5), ("[x", 1, None)],
)
def test_a_syntax_error_has_line_and_column(text: str, line: int, column: int | None) -> None:
    field_error = the_field_error(text)
    assert field_error.line == line
    assert column is None or field_error.column == column
    assert "not valid TOML" in field_error.message


def test_nesting_without_end_is_a_field_error_and_no_crash() -> None:
    assert "nested deeper" in the_field_error("a = " + "[" * 10_000).message


@pytest.mark.parametrize("digits", ["7" * 5000, "0x" + "7" * 5000])
def test_a_number_that_python_cannot_write_down_is_a_field_error_and_no_crash(digits: str) -> None:
    field_error = the_field_error(TOML + f"\n[limits]\nwall_s = {digits}\n")
    assert (field_error.file, field_error.line) == ("problem.toml", 24)
    assert "thousands of digits" in field_error.message
    assert field_errors_of(f'{TOML}\n[data_files]\n"{digits}" = 3\n')  # as a key
    assert "thousands of digits" in field_errors_of(f"seed = {digits}\n" + TOML.replace("seed =", "files ="))[0].message


def test_a_missing_file_is_named() -> None:
    field_error = the_field_error(files={"evaluate.py": FILES["evaluate.py"]})
    assert (field_error.line, field_error.where) == (4, "seed")
    assert "'seed.py'" in field_error.message


@pytest.mark.parametrize(
    "name", ['"../seed.py"', '"/etc/passwd"', '"a/../../b"', '".."', '"a\\\\b"', '""', "3", '["seed.py"]']
)
def test_a_name_that_is_not_of_a_file_beside_is_refused(name: str) -> None:
    field_error = the_field_error(TOML.replace('"seed.py"', name))
    assert (field_error.line, field_error.where) == (4, "seed")
    assert "in the same directory" in field_error.message


def test_a_seed_that_is_not_python_is_placed_in_its_own_file() -> None:
    field_error = the_field_error(files=FILES | {"seed.py": "x = 1\ndef solve(:\n"})
    assert (field_error.file, field_error.line, field_error.where) == ("seed.py", 2, "seed")
    assert field_error.column is not None


@pytest.mark.parametrize(
    ("program", "words"),
    [("\0", "null"), ("return 1\n", "outside function"), ("x = " + "(" * 5000 + ")" * 5000, "compile")],
)
def test_whatever_does_not_compile_is_a_field_error(program: str, words: str) -> None:
    assert words in the_field_error(files=FILES | {"seed.py": program}).message


def test_an_evaluator_without_the_function_is_told_so() -> None:
    field_error = the_field_error(files=FILES | {"evaluate.py": "def score(text, context):\n    return {}\n"})
    assert (field_error.file, field_error.where) == ("evaluate.py", "evaluator")
    assert "def evaluate(...)" in field_error.message


@pytest.mark.parametrize(
    ("lines", "flawed"),
    [
        ("# EVOLVE-BLOCK-START\nx = 1\n# EVOLVE-BLOCK-START\n# EVOLVE-BLOCK-END\n", 3),
        ("x = 1\n# EVOLVE-BLOCK-END\n", 2),
        ("x = 1\n# EVOLVE-BLOCK-START\n", 2),
        ("# EVOLVE-BLOCK-START EVOLVE-BLOCK-END\n", 1),
    ],
)
def test_marks_that_do_not_pair_are_placed(lines: str, flawed: int) -> None:
    field_error = the_field_error(files=FILES | {"seed.py": lines})
    assert (field_error.file, field_error.line, field_error.where) == ("seed.py", flawed, "seed")


def test_several_blocks_are_right() -> None:
    block = "# EVOLVE-BLOCK-START\nx = 1\n# EVOLVE-BLOCK-END\n"
    assert parse_problem(TOML, FILES | {"seed.py": block * 2}).seed_program == block * 2


CASES = TOML.replace('"evaluator"', '"cases"').replace('evaluator = "evaluate.py"', 'cases = "cases.json"')


def test_cases_come_from_a_json_file() -> None:
    cases = [{"input": [1], "expected": 1}, {"input": [2], "expected": 4, "reward": "cost", "hidden": True}]
    problem = parse_problem(CASES, FILES | {"cases.json": json.dumps(cases)})
    assert [case.reward for case in problem.cases] == [None, "cost"]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("[\n{]", 2, "not valid JSON"),
        ('{"input": []}', 1, "a JSON list of cases"),
        ('[\n{"input": [], "expected": 1},\n\n{"input": [],\n"expects": 1}]', 4, "missing"),
        ('[\n{"input": [], "expected": 1},\n{"input": ["\\ud800"], "expected": 1}]', 3, "half of a surrogate pair"),
        ('[\n{"input": [], "expected": "\\u0000"}]', 2, "NUL character"),
        ('[{"input": [], "expected": %s}]' % ("7" * 5000), 1, "thousands of digits"),
    ],
)
def test_field_errors_of_cases_are_placed_in_their_file(text: str, line: int, words: str) -> None:
    field_errors = field_errors_of(CASES, FILES | {"cases.json": text})
    assert any((f.file, f.line) == ("cases.json", line) and words in f.message for f in field_errors), field_errors


def test_of_thousands_of_cases_the_flawed_one_is_placed() -> None:
    # Searching for every element from the beginning of the text would take half a minute.
    many = ['{"input": [1], "expected": 1}'] * 30_000
    assert field_errors_of(CASES, FILES | {"cases.json": "[\n" + ",\n".join([*many, "3"]) + "]"})[-1].where == "cases"
    many = [*many[:9000], '{"input": [],\n"expects": 1}', *many[:900]]
    field_errors = field_errors_of(CASES, FILES | {"cases.json": "[\n" + ",\n".join(many) + "]"})
    assert {(field_error.file, field_error.line) for field_error in field_errors} == {("cases.json", 9002)}
    unknown = "".join(f"key_{i} = 1\n" for i in range(10_000))
    assert [field_error.line for field_error in field_errors_of(unknown + TOML)] == [*range(1, 10_001)]


INLINE = """\
slug = "small"
title = "Small"
kind = "cases"
objectives = [{ name = "value" }]
targets = [{ name = "all", rule = "value >= 1", unlock = true }]
seed_program = "def solve(number):\\n    return number\\n"
cases = [
  { input = [1], expected = 1 },
  { input = [2], expected = 2, hidden = true },
]
files = { "a.txt" = "text" }
"""


def test_texts_may_stand_in_the_definition() -> None:
    problem = parse_problem(INLINE, {})
    assert problem.seed_program == "def solve(number):\n    return number\n"
    assert [case.hidden for case in problem.cases] == [False, True]
    assert problem.files == {"a.txt": "text"}
    table = "\n[[cases]]\ninput = [1]\nexpected = 1\n"
    assert parse_problem(INLINE.partition("cases = ")[0] + table, {}).cases == problem.cases[:1]


SCRIPT = """\
evaluator = '''
import math

def score(text, context):
    return {}
'''
"""


@pytest.mark.parametrize(
    ("old", "new", "line", "where", "words"),
    [
        ("{ input = [2],", "{ inputs = [2],", 9, "cases.1.inputs", "unknown key"),
        ('"text"', "3", 11, "files.a.txt", "valid string"),
        ("def solve", "def run", 6, "seed_program", "def solve(...)"),
        ('"cases"', '"data"', 3, "kind", "needs an evaluator"),
        ('files = { "a.txt" = "text" }', 'files = "a.txt"', 11, "files", "or a table of texts"),
        ('"cases"', '"data"\nevaluator = "score text"', 4, "evaluator", "no file 'score text'"),
        ('"cases"', '"data"\nevaluator = "def score(text):"', 4, "evaluator", "or a script of several lines"),
        ('"cases"\n', '"data"\n' + SCRIPT.replace("{}", "{"), 8, "evaluator", "does not compile"),
        ('"cases"\n', '"data"\n' + SCRIPT.replace("'''\nimport", "'''import x y"), 4, "evaluator", "compile"),
    ],
)
def test_field_errors_of_texts_in_the_definition_are_placed_in_it(
    old: str, new: str, line: int, where: str, words: str
) -> None:
    field_errors = field_errors_of(INLINE.replace(old, new), {})
    assert any(
        (f.file, f.line, f.where) == ("problem.toml", line, where) and words in f.message for f in field_errors
    ), field_errors


def test_a_cases_seed_must_define_the_entry_point() -> None:
    cases = '[{"input": [], "expected": 1}, {"input": [], "expected": 1, "reward": "cost"}]'
    field_error = the_field_error('entry_point = "run"\n' + CASES, FILES | {"cases.json": cases})
    assert (field_error.file, field_error.where) == ("seed.py", "seed")
    assert "def run(...)" in field_error.message


@pytest.mark.parametrize(("file", "what"), [("seed.py", "seed program"), ("evaluate.py", "evaluator")])
def test_a_program_over_the_limit_is_too_large(file: str, what: str) -> None:
    assert file in FILES
    with pytest.raises(TooLargeError, match=f"the {what} has .* at most {MAX_PROGRAM_BYTES}"):
        parse_problem(TOML, FILES | {file: "#" * (MAX_PROGRAM_BYTES + 1)})


def _write(directory: Path, text: str = TOML) -> Path:
    (directory / "problem.toml").write_text(text)
    for name, content in FILES.items():
        (directory / name).write_text(content)
    return directory


def test_a_directory_or_its_file_can_be_named(tmp_path: Path) -> None:
    _write(tmp_path, 'files = ["a.json"]\n' + TOML)
    (tmp_path / "a.json").write_text("{}")
    problem = load_problem(tmp_path)
    assert problem == load_problem(tmp_path / "problem.toml")
    assert problem.files == {"a.json": "{}"}


def test_nothing_there_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"problem\.toml.*speciate problems init"):
        load_problem(tmp_path)


def test_what_cannot_be_looked_for_is_not_found(tmp_path: Path) -> None:
    # Since Python 3.14 `exists` says False of a name that is too long.
    with pytest.raises(NotFoundError, match=r"aaa cannot be read: .* Name a directory|there is no .*aaa"):
        load_problem(tmp_path / ("a" * 300))


def test_a_file_that_cannot_be_looked_for_is_a_field_error(tmp_path: Path) -> None:
    _write(tmp_path, TOML.replace("seed.py", "a" * 300))
    (tmp_path / "evaluate.py").unlink()
    (tmp_path / "evaluate.py").symlink_to("evaluate.py")
    with pytest.raises(InvalidInputError) as caught:
        load_problem(tmp_path)
    assert [(field_error.line, field_error.where) for field_error in caught.value.field_errors] == [
        (4, "seed"),
        (5, "evaluator"),
    ]


def test_a_link_out_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secret.py").write_text("x = 1\n")
    inside = tmp_path / "inside"
    inside.mkdir()
    _write(inside)
    (inside / "seed.py").unlink()
    (inside / "seed.py").symlink_to(tmp_path / "secret.py")
    with pytest.raises(InvalidInputError, match="leads out of the directory"):
        load_problem(inside)


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    _write(tmp_path)
    (tmp_path / "seed.py").write_bytes(b"x = '\xff'\n")
    with pytest.raises(InvalidInputError, match="not UTF-8"):
        load_problem(tmp_path)
    (tmp_path / "problem.toml").write_bytes(b"\xff")
    with pytest.raises(InvalidInputError, match="not UTF-8"):
        load_problem(tmp_path)


def test_templates_lie_in_their_own_folder_or_in_the_definition() -> None:
    text = "Task: $request\n\n$problem\n\n$parent\n"
    named = parse_problem('prompts = ["change.txt"]\n' + TOML, FILES | {"prompts/change.txt": text})
    inline = parse_problem(TOML + f"\n[prompts]\nchange = {json.dumps(text)}\n", FILES)
    assert named == inline
    assert dict(named.prompts) == {"change": text}
    assert named.digest == inline.digest != parse_problem(TOML, FILES).digest
    assert named.evaluator_digest == parse_problem(TOML, FILES).evaluator_digest


def test_a_field_error_of_a_template_names_its_file_and_line() -> None:
    files = FILES | {"prompts/change.txt": "$problem\n\n$parant\n$parent\n$request\n"}
    field_error = the_field_error('prompts = ["change.txt"]\n' + TOML, files)
    assert (field_error.file, field_error.line, field_error.where) == ("prompts/change.txt", 3, "prompts.change")
    assert "unknown placeholder $parant: expected one of $problem, $parent, $feedback" in field_error.message
    assert (
        "'system', 'propose', 'change'"
        in the_field_error('prompts = ["chance.txt"]\n' + TOML, FILES | {"prompts/chance.txt": "x"}).message
    )
    for name in ("../evaluate.py", "change.txt", "prompts/change.txt"):
        field_error = the_field_error(f'prompts = ["{name}"]\n' + TOML)
        assert field_error.file == "problem.toml"
        assert (
            "expected the name of a file" in field_error.message
            or "no file 'prompts/change.txt'" in field_error.message
        )
    assert "texts by name" in the_field_error('prompts = "change.txt"\n' + TOML).message


def test_a_folder_of_templates_is_read(tmp_path: Path) -> None:
    (tmp_path / "prompts").mkdir()
    (tmp_path / "problem.toml").write_text('prompts = ["propose_requests.txt"]\n' + TOML)
    (tmp_path / "prompts" / "propose_requests.txt").write_text("Begin.\n")
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    assert dict(load_problem(tmp_path).prompts) == {"propose_requests": "Begin.\n"}


MANY = TOML.replace('seed = "seed.py"', 'many_files = true\nseed = ["candidate.py", "geometry.py"]')
SEEDS = FILES | {"candidate.py": "import geometry\n", "geometry.py": "area = 1"}


def test_a_seed_of_many_files_is_one_text() -> None:
    named = parse_problem(MANY, SEEDS)
    assert named.seed_program == (
        "# === file: candidate.py ===\nimport geometry\n# === file: geometry.py ===\narea = 1\n"
    )
    table = '{ "candidate.py" = "import geometry", "geometry.py" = "area = 1" }'
    assert parse_problem(MANY.replace('["candidate.py", "geometry.py"]', table), FILES) == named
    assert parse_problem(TOML, FILES).evaluator_digest != named.evaluator_digest


@pytest.mark.parametrize(
    ("old", "new", "files", "place", "words"),
    [
        ("", "", {"geometry.py": "x = 1\ny = (\n"}, ("geometry.py", 2), "does not compile"),
        ("", "", {"geometry.py": "# EVOLVE-BLOCK-START\n"}, ("problem.toml", 5), "without an EVOLVE-BLOCK-END"),
        ("many_files = true", "", {}, ("problem.toml", 5), "or many_files = true beside it"),
        ('"candidate.py", ', "", {}, ("problem.toml", 5), "has no main file 'candidate.py'"),
        ('"geometry.py"', '"table.json"', {"table.json": "1"}, ("problem.toml", 5), "expected Python modules"),
        ('"geometry.py"', '"nowhere.py"', {}, ("problem.toml", 5), "there is no file 'nowhere.py'"),
        ('["candidate.py", "geometry.py"]', "{ a = 1 }", {}, ("problem.toml", 5), "expected texts by name"),
        ('["candidate.py", "geometry.py"]', '{ "../a" = "" }', {}, ("problem.toml", 5), "is not a file name"),
        ('["candidate.py", "geometry.py"]', '"seed.py"', {}, ("problem.toml", 5), "expected a heading"),
        ('kind = "evaluator"', 'kind = "in_process"', {}, ("problem.toml", 4), "is one text"),
    ],
)
def test_a_field_error_of_many_files_names_its_place(
    old: str, new: str, files: dict[str, str], place: tuple[str, int], words: str
) -> None:
    field_errors = field_errors_of(MANY.replace(old, new), SEEDS | files)
    assert any(
        words in field_error.message and (field_error.file, field_error.line) == place for field_error in field_errors
    ), field_errors


def test_values_without_end_are_refused_before_they_are_read() -> None:
    (toml,) = field_errors_of("\n".join(f"k{i} = 1" for i in range(100_001)))
    assert "more than 100000 values" in toml.message
    text = TOML.replace('"evaluator"', '"cases"').replace("[[", 'cases = "cases.json"\n[[', 1)
    found = field_errors_of(text, FILES | {"cases.json": f"[{'1,' * MAX_VALUES}1]"})
    assert [(f.message, f.file) for f in found if f.file != "problem.toml"] == [
        ("holds more than 1000000 values", "cases.json")
    ]


@pytest.mark.parametrize("quotes", ['"', "'", '"""', "'''"])
def test_signs_inside_texts_and_comments_are_no_values_of_toml(quotes: str) -> None:
    signs = "a = [1, 2] " * 100_001
    escaped = '\\"' if quotes[0] == '"' else ""
    text = f"text = {quotes}{signs}{escaped}{signs}{quotes} # '{signs}\n"
    assert limit_error(text) is None
    assert limit_error(f"{text}more = [{'1,' * 100_001}]") is not None


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{} = 1", f"more than {MAX_KEY_PARTS} parts"),
        ("[{}]", f"more than {MAX_KEY_PARTS} parts"),
        ("[[ {} ]]", f"more than {MAX_KEY_PARTS} parts"),
        ("x = {{ {} = 1 }}", f"more than {MAX_KEY_PARTS} parts"),
        ("x = " + "[" * (MAX_DEPTH + 1), f"deeper than {MAX_DEPTH}"),
        ("x = " + "{{x = " * (MAX_DEPTH + 1), f"deeper than {MAX_DEPTH}"),
    ],
)
def test_long_keys_and_deep_values_are_refused_with_their_line(line: str, words: str) -> None:
    text = 'text = """\na.\n"""\n# a.b\n'
    for key in ("a." * MAX_KEY_PARTS + "a", " . ".join('"a"' for _ in range(MAX_KEY_PARTS + 1))):
        error = limit_error(text + line.format(key))
        assert error is not None
        assert (words in error.message, error.line) == (True, 5)
    allowed = f"{text}{'a.' * (MAX_KEY_PARTS - 1)}a = {'[' * MAX_DEPTH}1.5, '{'.' * 99}'{']' * MAX_DEPTH}"
    assert limit_error(allowed) is None
    tomllib.loads(allowed)


def test_quotes_that_never_close_are_looked_through_once() -> None:
    begun = time.monotonic()
    for broken in ('="\\x', '\\"""x', "'''x'", '"""\\"'):
        limit_error("," * 100_001 + broken * 20_000)
    assert time.monotonic() - begun < 30  # followed from every quote to the end, each of them takes minutes
