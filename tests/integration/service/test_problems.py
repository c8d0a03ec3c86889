"""Problems and problem sets over HTTP."""

from __future__ import annotations

import json
import re
from uuid import uuid4

import pytest
import sqlalchemy as sa

from speciate.domain.values import MAX_PROGRAM_BYTES
from speciate.problems.loader import bundled
from tests.integration.service.conftest import Api, refused
from tests.support.runs import toy_problem

pytestmark = pytest.mark.servers

TOML = """slug = "toy"
title = "Two numbers"
kind = "data"
evaluator = "score.py"

[[objectives]]
name = "x"

[[targets]]
name = "half"
rule = "x >= 0.5"
unlock = true
"""
SCORE = "def score(text, context):\n    return {'x': float(text)}\n"


def test_problem_submission_is_versioned(api: Api) -> None:
    definition = toy_problem().model_dump(mode="json")
    first = api.post("/v1/problems", {"definition": definition})
    assert first.status_code == 201
    assert first.json()["version"] == 1
    again = api.post("/v1/problems", {"definition": definition})
    assert (again.status_code, again.json()) == (200, first.json())
    second = api.post("/v1/problems", {"definition": definition | {"title": "Other words"}})
    assert (second.status_code, second.json()["version"]) == (201, 2)

    by_location = api.get(first.headers["location"]).json()
    assert by_location == first.json() == api.get("/v1/problems/toy@1").json()
    assert api.get("/v1/problems/toy").json() == second.json()
    versions = api.get("/v1/problems/toy/versions").json()
    assert [item["version"] for item in versions["items"]] == [2, 1]
    assert "There are other versions of 'toy'." in api.get("/v1/problems/toy@9").json()["detail"]
    assert "belong under 'definition'" in api.post("/v1/problems", definition).json()["detail"]


def test_files_become_a_definition(api: Api) -> None:
    answer = api.post("/v1/problems", {"toml": TOML, "files": {"score.py": SCORE}})
    assert answer.status_code == 201, answer.text
    assert answer.json()["definition"]["evaluator"] == SCORE


def test_templates_are_part_of_the_problem(api: Api) -> None:
    plain = api.post("/v1/problems", {"toml": TOML, "files": {"score.py": SCORE}}).json()
    assert plain["definition"]["prompts"] == {}
    files = {"score.py": SCORE, "prompts/change_requests.txt": "Count higher.\n"}
    own = api.post("/v1/problems", {"toml": 'prompts = ["change_requests.txt"]\n' + TOML, "files": files}).json()
    assert own["definition"]["prompts"] == {"change_requests": "Count higher.\n"}
    assert (own["version"], own["evaluator_digest"]) == (plain["version"] + 1, plain["evaluator_digest"])
    assert api.get(f"/v1/problems/toy@{own['version']}").json() == own
    again = api.post("/v1/problems", {"definition": own["definition"]})
    assert (again.status_code, again.json()) == (200, own)
    wrong = own["definition"] | {"prompts": {"change": "$problem\n\n$request\n"}}
    details = refused(api.post("/v1/problems", {"definition": wrong}), 422, "invalid-input")
    assert [field_error["where"] for field_error in details["errors"]] == ["prompts.change"]


def test_every_bundled_problem_can_be_submitted(api: Api) -> None:
    for directory in bundled().values():
        shared = directory.parent.glob("*.py")  # files that several problems name
        files = {p.name: p.read_text() for p in (*shared, *directory.iterdir()) if p.is_file()}
        answer = api.post("/v1/problems", {"toml": files.pop("problem.toml"), "files": files})
        assert answer.status_code == 201, answer.text


def test_errors_name_file_line_and_expected_value(api: Api) -> None:
    toml = TOML.replace("x >= 0.5", "speed >= 0.5")
    answer = api.post("/v1/problems", {"toml": toml, "files": {"score.py": SCORE}, "file": "my.toml"})
    details = refused(answer, 422, "invalid-input")
    (field_error,) = details["errors"]
    assert (field_error["file"], field_error["line"], field_error["where"]) == ("my.toml", 11, "targets.0.rule")
    assert field_error["label"] in details["detail"]
    assert "unknown objective 'speed'" in field_error["message"]
    assert "expected one of x" in field_error["message"]
    assert api.get("/v1/problems").json()["items"] == []


def test_broken_toml_names_the_line(api: Api) -> None:
    answer = api.post("/v1/problems", {"toml": "slug = 'toy'\ntitle = \n"})
    (field_error,) = refused(answer, 422, "invalid-input")["errors"]
    assert (field_error["file"], field_error["line"]) == ("problem.toml", 2)


def test_too_large_program_is_rejected(api: Api) -> None:
    definition = toy_problem().model_dump(mode="json") | {"seed_program": "#" * (MAX_PROGRAM_BYTES + 1)}
    details = refused(api.post("/v1/problems", {"definition": definition}), 413, "too-large")
    assert str(MAX_PROGRAM_BYTES) in details["detail"]


def test_malformed_bodies_are_rejected(api: Api) -> None:
    for body in [{}, {"definition": {}, "toml": ""}, {"toml": 3}, {"definition": {}}, [], "x", 3, None]:
        refused(api.post("/v1/problems", body), 422, "invalid-input")


UNSTORABLE: list[str] = ["\x00", "\ud800"]


def test_unstorable_text_is_rejected_anywhere(api: Api) -> None:
    for text in UNSTORABLE:
        # httpx would not send what Python's own writer does.
        body = json.dumps({"definition": toy_problem().model_dump(mode="json") | {"title": f"a{text}b"}})
        answer = api.http.post("/v1/problems", content=body, headers={"Content-Type": "application/json"})
        (error,) = refused(answer, 422, "invalid-input")["errors"]
        assert error["where"] == "definition.title"
        cases = (
            '[{"input": ["\\u0000"], "expected": 1}]' if text == "\x00" else '[{"input": ["\\ud800"], "expected": 1}]'
        )
        toml = TOML.replace('"data"', '"cases"').replace('evaluator = "score.py"', 'cases = "cases.json"')
        refused(api.post("/v1/problems", {"toml": toml, "files": {"cases.json": cases}}), 422, "invalid-input")


def test_unknown_problem_is_not_found(api: Api) -> None:
    for name in ("nothing", "nothing@3", "toy@x", str(uuid4()), "a%00b", "%F0%28", "x" * 300, "..%2F..%2Fetc"):
        for path in (f"/v1/problems/{name}", f"/v1/problems/{name}/versions", f"/v1/problem-sets/{name}"):
            refused(api.get(path), 404, "not-found")


def test_pages_have_no_gap_or_repetition(api: Api) -> None:
    for title in "abcde":
        api.post("/v1/problems", {"definition": toy_problem().model_dump(mode="json") | {"title": title}})
    page = api.get("/v1/problems", params={"limit": 2}).json()
    seen = [item["title"] for item in page["items"]]
    while page["next_cursor"]:
        page = api.get("/v1/problems", params={"limit": 2, "cursor": page["next_cursor"]}).json()
        seen += [item["title"] for item in page["items"]]
    assert seen == list("edcba")
    for cursor in ("x", "bnVsbA", "WyJ4Il0", "Ww", "WzFd"):
        refused(api.get("/v1/problems", params={"cursor": cursor}), 422, "invalid-input")
    for limit in ("0", "501", "-1", "x"):
        refused(api.get("/v1/problems", params={"limit": limit}), 422, "invalid-input")


def test_problem_set_is_frozen(api: Api) -> None:
    api.post("/v1/problems", {"definition": toy_problem().model_dump(mode="json")})
    made = api.post("/v1/problem-sets", {"slug": "all", "problems": ["toy@1"]})
    assert made.status_code == 201
    assert api.get(made.headers["location"]).json() == made.json()
    assert api.get("/v1/problem-sets").json()["items"] == [made.json()]
    refused(api.post("/v1/problem-sets", {"slug": "all", "problems": ["toy"]}), 409, "conflict")
    refused(api.post("/v1/problem-sets", {"slug": "other", "problems": ["nothing"]}), 404, "not-found")
    refused(api.post("/v1/problem-sets", {"slug": "none", "problems": []}), 422, "invalid-input")
    twice = refused(api.post("/v1/problem-sets", {"slug": "twice", "problems": ["toy", "toy@1"]}), 422, "invalid-input")
    assert twice["errors"][0]["where"] == "problems.1"


def test_lists_omit_definitions(api: Api) -> None:
    api.post("/v1/problems", {"definition": toy_problem().model_dump(mode="json")})
    asked: list[str] = []

    def note(*values: object) -> None:
        asked.append(str(values[2]))

    engine = api.app.state.app_state.stores.engine
    sa.event.listen(engine, "before_cursor_execute", note)
    assert api.post("/v1/problem-sets", {"slug": "all", "problems": ["toy"]}).status_code == 201
    listed = api.get("/v1/problems").json()["items"]
    assert api.get("/v1/problem-sets").json()["items"][0]["problems"] == listed
    sa.event.remove(engine, "before_cursor_execute", note)
    assert not [query for query in asked if re.search(r"\bdefinition\b(?!\[| ->)", query)]
