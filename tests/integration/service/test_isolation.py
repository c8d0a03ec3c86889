"""Isolation of projects: every route rejects callers of another project and callers without the scope.

The routes come from the application. A route with parameters unknown to this file fails, so that none is skipped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID, uuid4

import httpx
import pytest
import sqlalchemy as sa
from fastapi import FastAPI
from fastapi.routing import iter_route_contexts
from pydantic import SecretStr

from speciate.domain.access import Scope
from speciate.domain.campaign import Campaign
from speciate.domain.labels import Labels
from speciate.domain.tournament import Tournament
from speciate.domain.webhook import Webhook
from speciate.policies import build_client
from speciate.runs.declarations import pin_campaign, pin_tournament
from speciate.runs.executor import WorkExecutor
from speciate.runs.start import prepare_run, start_run
from speciate.schema.engines import EngineSession
from speciate.schema.policies import RunPolicies
from speciate.settings import Settings
from speciate.storage.stores import Stores
from tests.integration.service.conftest import Api
from tests.support.runs import ToyEvaluator, toy_policy, toy_problem, toy_spec
from workers.campaigns import CampaignController
from workers.tournaments import TournamentController

pytestmark = pytest.mark.servers

OPERATOR: Final = "0perat0r"
MARK: Final = "zebra"
"""Occurs in every name and program of the other project."""

OPEN: Final = frozenset(
    {"/healthz", "/readyz", "/v1/schemas/problem.json", "/static/{digest}/{name}", "/login", "/theme"}
)
DESCRIBED: Final = frozenset({"/v1/openapi.json"})
"""For every token."""
PERSONAL: Final = frozenset({"/logout", "/project"})
FORMS: Final = frozenset({"/runs/new", "/campaigns/new", "/policies/new", "/tournaments/new"})
"""Forms whose submission changes nothing."""
METRICS: Final = "/metrics"
"""Covers the whole installation: only the operator and the metrics token read it."""
OPERATORS: Final = frozenset(
    {"/v1/projects", "/v1/projects/{name}:quota", "/access/projects", "/access/projects/{name}/quota", "/project"}
)
"""Routes that only the operator may post to."""
EVALUATIONS: Final = "/v1/evaluations:"
"""Routes for external evaluators, who may do nothing else."""

SESSIONS: Final = "/v1/engine-sessions"
PROPOSALS: Final = {
    *(f"/v1/runs/{{run_id}}{end}" for end in ("/proposals", ":ask", "/guidance")),
    *(f"/runs/{{run_id}}/{end}" for end in ("propose", "guidance")),
    f"{SESSIONS}:acquire",
    *(f"{SESSIONS}/{{session_id}}{end}" for end in (":renew", ":end", "/completions", "/evaluations")),
}
"""Routes for external proposers, who may read besides."""

NEAR: Final = {"problems": "problem", "policies": "policy", "problem-sets": "set"}

_EVENTS: Final = {"Accept": "text/event-stream"}


@dataclass
class World:
    """A service with a project full of data, and a stranger from a project without any.

    Attributes:
        api: The service.
        fills: What parameters of paths are filled with, by the beginning of the path where names are ambiguous.
        secrets: Whatever the stranger must not see.
        tokens: The stranger's tokens by scope.
        owner: A token of the project.
    """

    api: Api
    fills: dict[str, dict[str, list[str]]]
    secrets: set[str]
    tokens: dict[Scope, str]
    owner: str
    run: UUID
    problem: UUID
    policy: UUID
    stores: Stores = field(repr=False)


def routes(app: FastAPI) -> list[tuple[str, str]]:
    """Return method and path of every route."""
    found = {
        (method, context.path)
        for context in iter_route_contexts(app.routes)
        for method in (context.methods or ())
        if context.path is not None and method != "HEAD"
    }
    # Reads first: what is asked after is written down, with the ids that were asked for.
    return sorted(found, key=lambda route: (route[0] != "GET", route))


def work(stores: Stores) -> None:
    executor = WorkExecutor(stores.work, stores.signals, ToyEvaluator(), build_client)
    while waiting := stores.runs.work_in_flight(limit=1):
        assert executor.execute(waiting[0].work_id)


def fill_project(stores: Stores) -> tuple[UUID, UUID, UUID]:
    """Make one of everything; return the ids of problem, policy and run."""
    problem, _ = stores.catalog.add_problem(
        toy_problem(seed_program=f"x = 1\ny = 9\n# {MARK}\n").model_copy(update={"slug": f"{MARK}-problem"})
    )
    texts = [f"```python\n# {MARK}\nx = {x}\ny = {9 - x}\n```" for x in range(10)]
    policy, _ = stores.catalog.add_policy(toy_policy(slug=f"{MARK}-policy", options={"completions": texts}))
    stores.catalog.add_problem_set(f"{MARK}-set", "", [problem.id])
    run_id, _ = start_run(
        stores.runs,
        stores.signals,
        prepare_run(
            stores.runs, problem=problem, policies=RunPolicies(policy), spec=toy_spec(13),
            labels=Labels(name=f"a {MARK}", tags=(MARK,), note=f"about {MARK}"), idempotency_key="the same key",
        ),
    )  # fmt: skip
    work(stores)
    entrants = [
        {"name": name, "policy": f"{MARK}-policy", "strategy": "best_of_n", "batch": batch}
        for name, batch in (("a", 1), ("b", 2))
    ]
    tournament = Tournament.model_validate(
        {
            "slug": f"{MARK}-tournament",
            "problems": [f"set:{MARK}-set"],
            "entrants": entrants,
            "baseline": "a",
            "seeds": [1],
            "budget": {"evaluations": 3},
        }
    )
    stores.tournaments.create(pin_tournament(tournament, stores.catalog), request_digest="t")
    campaign = Campaign(
        slug=f"{MARK}-campaign", problems=(f"{MARK}-problem",), policy={f"{MARK}-policy": 1.0}, evaluations=8, slice=4
    )
    stores.campaigns.create(pin_campaign(campaign, stores.catalog), request_digest="c")
    return problem.id, policy.id, run_id


def engine_session(stores: Stores) -> EngineSession:
    """Start a run that an engine proposes for, and lease it."""
    catalog = stores.catalog
    policies = RunPolicies(catalog.policy(f"{MARK}-policy"))
    problem, spec = catalog.problem(f"{MARK}-problem"), toy_spec(13, engine="mine", strategy="vector_evolution")
    start_run(stores.runs, stores.signals, prepare_run(stores.runs, problem=problem, policies=policies, spec=spec))
    work(stores)
    session, _ = stores.engines.acquire(holder="test", lease_s=600, versions={})
    assert session is not None
    return session


def play(stores: Stores) -> None:
    """Let control do for every project what it does, and workers too."""
    tournaments, campaigns = TournamentController(), CampaignController()
    for _ in range(20):
        tournaments.run(stores)
        campaigns.run(stores)
        work(stores)
        if not stores.tournaments.pending() and not stores.campaigns.pending():
            return
    raise AssertionError("the tournament or campaign does not end")


@pytest.fixture
def world(settings: Settings, serve: Callable[..., Api], stores: Stores) -> World:
    # In the default project there is a problem of the same name, which is another one.
    stores.catalog.add_problem(toy_problem().model_copy(update={"slug": f"{MARK}-problem", "title": "Another one"}))
    home = stores.projects.create(f"{MARK}-project")
    away = stores.projects.create("away")
    bound = stores.within(home.id)
    problem, policy, run_id = fill_project(bound)
    play(stores)
    session = engine_session(bound)
    hook = bound.webhooks.add(Webhook(url=f"https://8.8.8.8/{MARK}"))
    owner = stores.tokens.create(home.id, f"{MARK}-owner", Scope.ADMIN, created_by="test")
    tokens = {s: stores.tokens.create(away.id, s.value, s, created_by="test").token for s in Scope}
    with stores.engine.connect() as connection:
        ids = {
            table: [str(each) for each in connection.execute(sa.text(f"SELECT id FROM {table}")).scalars()]
            for table in ("runs", "candidates", "rollouts", "tournaments", "campaigns", "policies", "problem_sets")
        }
    assert all(ids.values())
    candidates = bound.queries.candidates(run_id).items
    fills = {
        "": {
            "run_id": [str(run_id), f"%20{run_id}"],
            "candidate_id": [str(candidates[0].id), f"%20{candidates[0].id}"],
            "rollout_id": [str(bound.queries.rollouts(run_id).items[0].id)],
            "number": ["1"],
            "session_id": [str(session.id)],
            "token_id": [str(owner.id)],
            "webhook_id": [str(hook.id)],
            "text": ["program"],
            "chart": ["reached"],
            "verb": ["pause"],
        },
        "/problems": {"name": [str(problem), f"{MARK}-problem", f"{MARK}-problem@1"]},
        "/problem-sets": {"name": [*ids["problem_sets"], f"{MARK}-set"]},
        "/policies": {"name": [str(policy), f"{MARK}-policy"]},
        "/tournaments": {"name": [*ids["tournaments"], f"{MARK}-tournament"]},
        "/campaigns": {"name": [*ids["campaigns"], f"{MARK}-campaign"]},
        "/projects": {"name": [f"{MARK}-project"]},
        "/access": {"name": [f"{MARK}-project"]},
        "/runs": {"name": ["population"]},
        "/compare": {"name": ["curves", "fronts"]},
        "/docs": {"name": ["tutorial"]},
    }
    secrets = {
        MARK,
        str(home.id),
        str(hook.id),
        hook.secret,
        str(owner.id),
        str(problem),
        *(each for found in ids.values() for each in found),
    }
    api = serve(settings.model_copy(update={"token": SecretStr(OPERATOR), "rate_limit": 0.0}))
    return World(api, fills, secrets, tokens, owner.token, run_id, problem, policy, stores)


def filled(world: World, path: str) -> list[str]:
    """Return a path with its parameters filled in, in every known way."""
    path = path.replace(":path}", "}")
    found = [path]
    for name in re.findall(r"{(\w+)}", path):
        of_path = "/" + path.removeprefix("/v1").split("/")[1]
        values = world.fills.get(of_path, {}).get(name) or world.fills[""].get(name)
        assert values, f"{path}: unknown parameter {{{name}}}. Add its values to this file to test the route."
        found = [each.replace(f"{{{name}}}", value) for each in found for value in values]
    return found


def ask(world: World, method: str, path: str, token: str | None, **options: Any) -> httpx.Response:
    """Send a request; of a stream, read what comes at once."""
    headers = {"Origin": str(world.api.http.base_url), **options.pop("headers", {})}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    json_body = options.pop("json", None)
    if method in {"POST", "PATCH"} and path.startswith("/v1"):
        options["json"] = json_body
    elif method == "POST":
        options.setdefault("data", {"reason": "none"})
    with world.api.http.stream(method, path, headers=headers, **options) as answer:
        if answer.headers.get("content-type", "").startswith("text/event-stream"):
            text = b""
            for chunk in answer.iter_raw():
                text += chunk
                if b"event: part" in text and text.endswith(b"\n\n"):
                    break
            return httpx.Response(answer.status_code, headers=answer.headers, content=text, request=answer.request)
        answer.read()
    return answer


def seen(world: World, answer: httpx.Response, asked: str) -> list[str]:
    """Return what an answer shows that its sender did not name."""
    shown = answer.text + json.dumps(dict(answer.headers))
    return [secret for secret in world.secrets if secret not in asked and secret in shown]


def test_token_of_another_project_sees_nothing(world: World) -> None:
    token, problems = world.tokens[Scope.ADMIN], []
    for method, path in routes(world.api.app):
        if path in OPEN | PERSONAL:
            continue
        for target in filled(world, path):
            for headers in ({}, {"Accept": "text/html"}, _EVENTS) if method == "GET" else ({},):
                body = {"seeds": [99], "reason": "more"} if path.endswith(":extend") else {}
                answer = ask(world, method, target, token, headers=headers, json=body)
                if "{" in path and path != "/docs/{name:path}":
                    expected = {403} if method == "POST" and path in OPERATORS else {404}
                elif path == METRICS:
                    expected = {403}
                elif method == "GET" or path in FORMS or path in (f"{EVALUATIONS}acquire", f"{SESSIONS}:acquire"):
                    expected = {200}
                else:
                    expected = {403} if path in OPERATORS else {422}
                if answer.status_code not in expected:
                    problems.append(f"{method} {target} {headers}: {answer.status_code}")
                problems += [f"{method} {target}: shows {secret}" for secret in seen(world, answer, target)]
    assert not problems, "\n".join(problems)
    # And nothing has been done to it either.
    run = world.stores.runs.get(world.run)
    assert (run.state.value, world.stores.tokens.bearer(world.owner) is not None) == ("completed", True)
    assert (run.name, run.tags, run.note) == (f"a {MARK}", (MARK,), f"about {MARK}")


def test_owner_sees_the_data_on_the_same_routes(world: World) -> None:
    """Otherwise the test before would prove nothing."""
    found = {
        path: ask(world, method, filled(world, path)[0], world.owner).status_code
        for method, path in routes(world.api.app)
        if method == "GET" and path not in OPEN and "{" in path and "live" not in path
    }
    # Figures that such a run or tournament does not have, those of no runs, and a pair without its names.
    missing = {path for path, status in found.items() if status >= 400}
    unfilled = ("/figures/", "{text}", "/compare/", "/pair")
    assert missing <= {path for path in found if any(part in path for part in unfilled)}, missing
    pages = [path for path in found if not path.startswith("/v1")]
    assert len(found) > 35
    assert len(pages) > 15


def test_ids_and_names_of_another_project_are_not_found(world: World) -> None:
    token, run, problem, policy = world.tokens[Scope.ADMIN], world.run, world.problem, world.policy
    names = {"problem": (str(problem), f"{MARK}-problem"), "policy": (str(policy), f"{MARK}-policy")}
    asked = [
        *(f"/v1/runs?{kind}={name}" for kind, both in names.items() for name in both),
        *(f"/v1/unlocks?{kind}={name}" for kind, both in names.items() for name in both),
        *(f"/runs?{kind}={name}" for kind, both in names.items() for name in both),
        *(f"/live/runs?{kind}={name}" for kind, both in names.items() for name in both),
        f"/v1/unlocks?run={run}",
        f"/compare?run={run}",
        *(f"/compare/{name}.{ending}?run={run}" for name in ("curves", "fronts") for ending in ("json", "csv")),
        f"/runs/new?like={run}",
        f"/unlocks?a={MARK}-policy&b={policy}",
        f"/unlocks/matrix.csv?problems={MARK}-set",
        # One letter is missing: an error suggests names of the caller's project only.
        *(f"/v1/{kind}/{MARK[1:]}-{name}" for kind, name in NEAR.items()),
    ]
    for path in asked:
        answer = ask(world, "GET", path, token)
        empty = path.startswith("/live") and "event: part" not in answer.text
        assert answer.status_code == 404 or empty, (path, answer.text)
        assert not seen(world, answer, path), path
    for path in (f"/v1/runs?tag={MARK}", f"/v1/runs?name={MARK}", f"/runs?tag={MARK}", f"/runs?name={MARK}"):
        answer = ask(world, "GET", path, token)
        assert answer.status_code == 200, path
        assert not seen(world, answer, path), path
    budget = {"evaluations": 5}
    entrants = [{"name": n, "policy": str(policy), "strategy": "best_of_n"} for n in "ab"]
    runs = [{"problem": p, "policy": q, "budget": budget} for p, q in zip(*names.values(), strict=True)]
    bodies: dict[str, list[dict[str, Any]]] = {
        **dict.fromkeys(("/v1/runs", "/v1/runs:estimate"), runs),
        "/v1/problem-sets": [{"slug": "mine", "problems": [name]} for name in names["problem"]],
        "/v1/tournaments": [
            {"slug": "mine", "problems": [name], "entrants": entrants, "baseline": "a", "seeds": [1], "budget": budget}
            for name in (*names["problem"], f"set:{MARK}-set")
        ],
        "/v1/campaigns": [
            {"slug": "mine", "problems": [name], "policy": str(policy), "evaluations": 50}
            for name in (*names["problem"], f"set:{MARK}-set")
        ],
        f"{EVALUATIONS}acquire": [*({"problem": name} for name in names["problem"]), {"run": str(run)}],
        f"{SESSIONS}:acquire": [{"tournament": f"{MARK}-tournament"}, {"run": str(run)}],
        # These name nothing, or report on each lease (test_external_evaluation.py).
        **{path: [] for path in ("/v1/problems", "/v1/policies", "/v1/tokens", "/v1/projects", "/v1/webhooks")},
        **{f"{EVALUATIONS}{verb}": [] for verb in ("heartbeat", "submit")},
    }
    posted = {path for method, path in routes(world.api.app) if method == "POST" and path.startswith("/v1")}
    assert {path for path in posted if "{" not in path} == set(bodies), "say what the body of a new route may name"
    for path, each in bodies.items():
        for body in each:
            answer = ask(world, "POST", path, token, json=body)
            assert answer.status_code == 404, (path, body, answer.text)
            assert not seen(world, answer, json.dumps(body)), path
    forms: dict[str, dict[str, str]] = {
        "/runs": {"problem": str(problem), "policy": str(policy), "budget.evaluations": "5"},
        "/tournaments": {"slug": "mine", "problems": str(problem), "policies": f"{policy}, {uuid4()}",
                         "budget.evaluations": "5", "seeds": "1"},
    }  # fmt: skip
    for path, form in forms.items():
        answer = ask(world, "POST", path, token, data=form)
        assert answer.status_code == 422, (path, answer.text)
        assert "there is no" in answer.text.lower()
        assert not seen(world, answer, json.dumps(form)), path


def test_names_keys_and_results_belong_to_a_project(world: World, stores: Stores) -> None:
    token = world.tokens[Scope.SUBMIT]
    definition = toy_problem().model_copy(update={"slug": f"{MARK}-problem"}).model_dump(mode="json")
    made = ask(world, "POST", "/v1/problems", token, json={"definition": definition}).json()
    assert made["version"] == 1
    listed = ask(world, "GET", "/v1/problems", token).json()["items"]
    assert [item["id"] for item in listed] == [made["id"]]
    policy = toy_policy(slug="mine", options={"completions": ["```python\nx = 9\ny = 0\n```"]})
    ask(world, "POST", "/v1/policies", token, json={"definition": policy.model_dump(mode="json")})
    body = {
        "problem": f"{MARK}-problem",
        "policy": "mine",
        "budget": {"evaluations": 5},
        "lanes": 1,
        "reuse_results": True,
    }
    key = {"Idempotency-Key": "the-same-key"}
    mine = ask(world, "POST", "/v1/runs", token, json=body, headers=key)
    assert mine.status_code == 202, mine.text
    assert ask(world, "POST", "/v1/runs", token, json=body, headers=key).json()["id"] == mine.json()["id"]
    operator = {"Speciate-Project": "default", **key}
    ask(world, "POST", "/v1/policies", OPERATOR, json={"definition": policy.model_dump(mode="json")})
    theirs = ask(world, "POST", "/v1/runs", OPERATOR, json=body, headers=operator)
    assert theirs.status_code == 202, theirs.text
    assert theirs.json()["id"] != mine.json()["id"]
    work(stores)
    for owner, headers, run in ((token, {}, mine), (OPERATOR, operator, theirs)):
        record = ask(world, "GET", f"/v1/runs/{run.json()['id']}", owner, headers=headers).json()
        assert (record["state"], record["reused"]) == ("completed", 0)
    for name in (str(world.policy), f"{MARK}-policy"):
        for path in (f"/v1/runs/{mine.json()['id']}/candidates", f"/runs/{mine.json()['id']}/candidates"):
            found = ask(world, "GET", f"{path}?policy={name}", token)
            assert found.status_code == 404, path
            assert not seen(world, found, name), path
    again = ask(world, "POST", "/v1/runs", token, json=body)
    work(stores)
    assert ask(world, "GET", f"/v1/runs/{again.json()['id']}", token).json()["reused"] > 0


def test_each_route_requires_its_scope(world: World) -> None:
    """Reading is for all but evaluators, tokens and the log for admin, projects for the operator, most for submit."""
    nothing = str(uuid4())
    for method, path in routes(world.api.app):
        target = re.sub(r"{\w+}", nothing, path)
        refused = {
            scope.value
            for scope, token in world.tokens.items()
            if ask(world, method, target, token, json={}).status_code == 403
        }
        admins = path.startswith(("/v1/tokens", "/v1/audit", "/v1/webhooks")) or (
            method == "POST" and path.startswith("/access")
        )
        if path in OPEN | DESCRIBED or (path in PERSONAL and path not in OPERATORS):
            expected = set()
        elif path == METRICS or (method == "POST" and path in OPERATORS):
            expected = {*Scope}
        elif admins:
            expected = {*Scope} - {Scope.ADMIN}
        elif path.startswith(EVALUATIONS):
            expected = {Scope.READ, Scope.PROPOSE}
        elif method == "POST" and path in PROPOSALS:
            expected = {Scope.READ, Scope.EVALUATE}
        else:
            expected = {Scope.EVALUATE} if method == "GET" else {Scope.READ, Scope.PROPOSE, Scope.EVALUATE}
        assert refused == expected, (method, path)
        stranger = ask(world, method, target, None, json={}, follow_redirects=False)
        if path not in OPEN:
            assert stranger.status_code == 401, (method, path)
            page = ask(world, method, target, None, headers={"Accept": "text/html"})
            if method == "GET" and not path.startswith("/v1"):
                assert page.headers["location"].startswith("/login?next=%2F"), path
            else:
                assert page.status_code == 401
