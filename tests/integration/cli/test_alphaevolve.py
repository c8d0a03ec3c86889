"""The AlphaEvolve routes over HTTPS with a worker as its published client has: create, start, acquire, submit, list."""

from __future__ import annotations

import json
import re
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from speciate.client import Client
from speciate.compat.alphaevolve_body import problem_of
from speciate.domain.errors import InvalidInputError

pytestmark = pytest.mark.servers

PARENT = "projects/p/locations/global/collections/c/engines/e"
PROGRAM = "# EVOLVE-BLOCK-START\nx = 1.0\n# EVOLVE-BLOCK-END\n"
CONFIG = {
    "title": "Largest x",
    "problem_description": "Assign a large number to x.",
    "program_language": "python",
    "run_settings": {"max_programs": 6, "concurrency": 4},
    "generation_settings": {"models": [{"name": "gemini-3.5-flash", "weight": 0.7}]},
}


def initial(score: float = 1.0, **files: str) -> dict[str, Any]:
    content = files or {"main.py": PROGRAM}
    return {
        "content": {"files": [{"path": path, "content": text} for path, text in content.items()]},
        "evaluation": {"scores": {"scores": [{"metric": "value of x", "score": score}]}},
    }


@dataclass
class Facade:
    """The routes as the published client calls them."""

    http: httpx.Client

    def post(self, path: str, body: Any, status: int = 200) -> Any:
        answer = self.http.post(f"/v1alpha/{path}", json=body)
        assert answer.status_code == status, answer.text
        return answer.json()

    def get(self, path: str, status: int = 200, **query: str) -> Any:
        answer = self.http.get(f"/v1alpha/{path}", params=query)
        assert answer.status_code == status, answer.text
        return answer.json()


@pytest.fixture(scope="module")
def facade(url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Facade]:
    home = tmp_path_factory.mktemp("alphaevolve")
    command = ["-m", "speciate.cli", "--url", url, "alphaevolve", "--port", "0", "--data-dir", str(home)]
    with subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            variables = dict(process.stdout.readline().removeprefix("export ").strip().split("=", 1) for _ in range(4))
            credentials = Path(variables["GOOGLE_APPLICATION_CREDENTIALS"])
            assert credentials.stat().st_mode & 0o077 == 0
            token = json.loads(credentials.read_text())["token"]
            with httpx.Client(
                base_url=variables["BASE_URL"],
                verify=ssl.create_default_context(cafile=variables["REQUESTS_CA_BUNDLE"]),
                headers={"Authorization": f"Bearer {token}"},
                timeout=60,
            ) as http:
                for _ in range(100):
                    try:
                        http.get("/v1alpha/x")
                        break
                    except httpx.TransportError:
                        time.sleep(0.1)
                yield Facade(http)
        finally:
            process.terminate()


def evaluate(program: dict[str, Any]) -> dict[str, Any]:
    """Score a program as a worker of the client does."""
    found = ([None, *re.findall(r"x = (\S+)", program["content"]["files"][0]["content"])])[-1]
    score = float(found) if found and re.fullmatch(r"-?[0-9.e+-]+", found) else None
    insights = {"insights": [{"label": "Runtime Error", "text": "not a number"}]} if score is None else None
    return {"scores": {"scores": [{"metric": "value of x", "score": score}]}, "insights": insights}


def test_an_experiment_of_the_published_client_runs_to_its_end(facade: Facade, url: str) -> None:
    (answer,) = facade.post(f"{PARENT}/assistants/a:streamAssist", {"query": {"text": "hello"}})
    session = answer["sessionInfo"]["session"]
    assert facade.get(session)["name"] == session
    experiment = facade.post(f"{session}/alphaEvolveExperiments", {"config": CONFIG})
    name = experiment["name"]
    assert (experiment["state"], experiment["config"]["problemDescription"]) == (
        "CREATED", CONFIG["problem_description"],
    )  # fmt: skip
    assert "no initial program" in facade.post(f"{name}:start", {"name": name}, 409)["error"]["message"]
    facade.post(f"{name}/alphaEvolvePrograms", initial())
    started = facade.post(f"{name}:start", {"name": name})
    assert (started["done"], started["response"]["state"]) == (True, "RUNNING")
    evaluated: dict[str, float | None] = {}
    deadline = time.monotonic() + 60
    while len(evaluated) < 7:
        assert time.monotonic() < deadline
        programs = facade.post(f"{name}:acquirePrograms", {"parent": name, "desired_programs_count": 5}).get(
            "programs", []
        )
        for program in programs:
            assert program["name"] not in evaluated
            evaluation = evaluate(program)
            evaluated[program["name"]] = evaluation["scores"]["scores"][0]["score"]
            given = {"program": program["name"], "lock_token": program["lockToken"], "evaluation": evaluation}
            body = {"parent": name, "evaluation_submissions": [given]}
            if len(evaluated) == 1:
                token = program["lockToken"]
                other = token[:-1] + ("1" if token[-1] == "0" else "0")
                forged = body | {"evaluation_submissions": [given | {"lock_token": other}]}
                assert "refused" in json.dumps(facade.post(f"{name}:submitProgramsEvaluations", forged, 409))
                other = {"scores": {"scores": [{"metric": "other", "score": 1}]}}
                unknown = body | {"evaluation_submissions": [given | {"evaluation": other}]}
                assert "unknown other" in json.dumps(facade.post(f"{name}:submitProgramsEvaluations", unknown, 409))
                facade.post(f"{name}:submitProgramsEvaluations", body | {"evaluation_submissions": []}, 400)
            assert facade.post(f"{name}:submitProgramsEvaluations", body) == {}
        time.sleep(0.05)
    shown = facade.get(name)
    assert (shown["state"], shown["config"]["title"]) == ("COMPLETED", "Largest x")
    assert facade.post(f"{name}:acquirePrograms", {"desiredProgramsCount": 5}) == {}
    listed = facade.get(f"{name}/alphaEvolvePrograms", order_by="value of x desc")["alphaEvolvePrograms"]
    scores = [one["evaluation"]["scores"]["scores"][0]["score"] for one in listed]
    known = sorted({score for score in evaluated.values() if score is not None}, reverse=True)
    assert sorted(set(scores), reverse=True) == known
    assert scores == sorted(scores, reverse=True)
    assert facade.get(listed[0]["name"])["content"] == listed[0]["content"]
    assert name in [one["name"] for one in facade.get(f"{session}/alphaEvolveExperiments")["alphaEvolveExperiments"]]
    with Client(url) as service:
        (run,) = service.runs.list(name="Largest x")
        assert run.record.problem == "largest-x"
        attested = [c for c in run.candidates() if c.attested_by]
        assert len(attested) >= 7


def test_bad_requests_are_answered_as_google_answers_them(facade: Facade) -> None:
    session = f"{PARENT}/sessions/1"
    lacking = facade.post(f"{session}/alphaEvolveExperiments", {"config": {"title": "x"}}, 400)
    assert lacking["error"]["status"] == "INVALID_ARGUMENT"
    assert facade.get(f"{session}/alphaEvolveExperiments/nosuch", 404)["error"]["status"] == "NOT_FOUND"
    facade.post(f"{session}/alphaEvolveExperiments/nosuch:acquirePrograms", {}, 404)
    stranger = httpx.Client(base_url=facade.http.base_url, verify=False)
    with stranger:
        assert stranger.post(f"/v1alpha/{session}/alphaEvolveExperiments", json={}).status_code == 401


def _with_wrong_values(body: Any) -> Iterator[Any]:
    """Yield a body with each of its values, at every depth, replaced by values of other types."""
    yield from ([], [[]], {}, "x", 5, -1, None, True, 1e400, 10**400, "\ud800", {"a": []})
    for key, value in body.items() if isinstance(body, dict) else enumerate(body) if isinstance(body, list) else ():
        for wrong in _with_wrong_values(value):
            changed = body.copy()
            changed[key] = wrong
            yield changed


def test_no_malformed_body_is_an_internal_error(facade: Facade) -> None:
    experiments = f"{PARENT}/sessions/2/alphaEvolveExperiments"
    name = facade.post(experiments, {"config": CONFIG})["name"]
    submission = {"lockToken": "a.b", "program": f"{name}/1", "evaluation": evaluate(initial())}
    bodies = {
        experiments: {"config": CONFIG},
        f"{name}/alphaEvolvePrograms": initial(),
        f"{name}:acquirePrograms": {"desiredProgramsCount": 1},
        f"{name}:submitProgramsEvaluations": {"evaluationSubmissions": [submission]},
    }
    sent = 0
    for path, valid in bodies.items():
        texts = [json.dumps(body) for body in _with_wrong_values(valid)]
        for text in [*texts, "", "{", "[" * 100_000, '{"config":' * 50_000, "\x00", "NaN"]:
            answer = facade.http.post(f"/v1alpha/{path}", content=text.encode())
            assert answer.status_code < 500, (path, text[:200], answer.text)
            sent += 1
    assert sent > 300
    assert facade.http.post(f"/v1alpha/{experiments}", content=b" " * (17 << 20)).status_code == 413
    # What was accepted can be started, or is refused with a reason.
    for index, body in enumerate(_with_wrong_values(CONFIG)):
        created = facade.http.post(f"/v1alpha/{experiments}", content=json.dumps({"config": body}).encode())
        if index % 5 == 0 and created.status_code == 200:
            other = created.json()["name"]
            facade.post(f"{other}/alphaEvolvePrograms", initial())
            started = facade.http.post(f"/v1alpha/{other}:start", content=b"{}")
            assert started.status_code < 500, started.text


def test_an_experiment_as_a_problem() -> None:
    config = {"title": "Two Files", "problemDescription": "d", "programLanguage": "cpp"}
    problem = problem_of(config, initial(-3.5, **{"main.cpp": "int main() {}\n"}))
    assert problem.language is not None
    assert (problem.language.file, problem.targets[0].rule) == ("main.cpp", "value_of_x > -3.5")
    assert problem.objectives[0].range == (-1e5, 1e5)
    failed = problem_of(config, initial(-1e12))
    assert (failed.targets[0].name, failed.targets[0].rule) == ("end_of_range", "value_of_x >= 10000")
    several = problem_of(config, initial(1.0, **{"a.py": "x = 1\n", "b.py": "y = 2\n"}))
    assert several.files_in(several.seed_program) == {"a.py": "x = 1\n", "b.py": "y = 2\n"}
    with pytest.raises(InvalidInputError, match="no scores"):
        problem_of(config, {"content": {"files": [{"path": "a.py", "content": "x"}]}})
