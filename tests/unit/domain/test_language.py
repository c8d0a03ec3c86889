"""Languages: known ones by name, with their commands, and others."""

import pytest
from pydantic import ValidationError

from speciate.domain.known_languages import KNOWN, known_language, programs_of
from speciate.domain.language import Language
from speciate.domain.problem import Problem

BASE = {
    "slug": "a",
    "title": "A",
    "kind": "cases",
    "objectives": [{"name": "x"}],
    "targets": [{"name": "t", "rule": "x >= 1", "unlock": True}],
    "cases": [{"input": ["1"], "expected": "1"}],
}


def language_of(given, **fields) -> Language:
    found = Problem.model_validate(BASE | {"language": given} | fields).language
    assert found is not None
    return found


@pytest.mark.parametrize("name", KNOWN)
def test_a_known_language_needs_its_name_only(name):
    found = language_of(name)
    assert found.file == KNOWN[name].file
    assert found.run
    assert found.fence in found.labels
    assert not any("{" in word for word in (*found.build, *found.run))
    assert found == language_of({"name": KNOWN[name].name})


def test_the_rest_of_a_table_is_filled_in():
    found = language_of({"name": "c++", "file": "a.cc", "exchange": "json"})
    assert (found.name, found.file, found.build[-1], found.exchange) == ("C++", "a.cc", "a.cc", "json")


def test_a_run_command_stands_for_itself():
    given = {"name": "C++", "file": "a.cpp", "run": ["./script"]}
    assert language_of(given) == Language(name="C++", file="a.cpp", run=("./script",))


def test_a_script_that_runs_programs_gets_no_commands():
    fields = {"kind": "in_process", "evaluator": "def evaluate(path): ...", "cases": []}
    assert language_of("rust", **fields) == Language(name="Rust", file="main.rs")


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(ValidationError, match="'zig' is unknown: expected one of c, cpp"):
        language_of("zig")
    with pytest.raises(ValidationError, match=r"language\.file"):
        language_of({"name": "Zig"})


def test_limits_of_the_build_enter_the_digest_only_if_they_are_set():
    plain = Problem.model_validate(BASE | {"language": "rust"})
    assert plain.language is not None
    same = plain.language.model_dump() | {"build_bytes": 32 << 20}
    assert Problem.model_validate(BASE | {"language": same}).digest == plain.digest
    assert Problem.model_validate(BASE | {"language": same | {"build_bytes": 1 << 20}}).digest != plain.digest


@pytest.mark.parametrize(
    ("build", "run", "tools"),
    [
        ((), ("node", "a.js"), ("node",)),
        (("g++", "a.cpp"), ("./a.out",), ("g++",)),
        (("env", "A=1", "cc"), ("/bin/sh", "x"), ("cc", "/bin/sh")),
        (("cc",), ("cc", "-run"), ("cc",)),
        ((), ("bin/x",), ()),
    ],
)
def test_tools_are_what_a_machine_must_have(build, run, tools):
    assert programs_of(build, run) == tools


def test_names_and_labels_find_a_language():
    assert known_language("C++") is known_language("cpp") is KNOWN["cpp"]
    assert known_language("golang") is KNOWN["go"]
    assert known_language("sh") is None
