"""The application on a real server, with PostgreSQL and Valkey."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import httpx
import pytest
from fastapi import FastAPI

from service.app import create_app
from service.run_events import EventHub
from speciate.domain.policy import Policy
from speciate.policies import build_client
from speciate.ports.learner import Learner
from speciate.ports.policy import PolicyClient
from speciate.runs.executor import WorkExecutor
from speciate.settings import Settings
from speciate.storage.stores import Stores
from tests.support.http_server import WAIT_S, serve_app
from tests.support.runs import ToyEvaluator, toy_policy, toy_problem

COMPLETIONS = [f"```python\nx = {x}\ny = {9 - x}\n```" for x in range(10)]


@dataclass
class Api:
    """A running service."""

    app: FastAPI
    http: httpx.Client

    @property
    def hub(self) -> EventHub:
        return self.app.state.app_state.hub

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.http.get(path, **options)

    def post(self, path: str, json: Any = None, **options: Any) -> httpx.Response:
        return self.http.post(path, json=json, **options)


@contextmanager
def serving(settings: Settings, **client_options: Any) -> Iterator[Api]:
    """Serve an application on a free port until the block is left."""
    app = create_app(settings)
    with (
        serve_app(app) as url,
        # Without certificates: reading them takes longer than most requests.
        httpx.Client(base_url=url, timeout=WAIT_S, trust_env=False, verify=False, **client_options) as http,
    ):
        yield Api(app, http)


def scripted(completions: Sequence[str] = COMPLETIONS, **changes: Any) -> Policy:
    """A policy that answers with toy programs; the best of the usual ones meets both targets."""
    return toy_policy(options={"completions": list(completions)}, **changes)


@pytest.fixture
def serve() -> Iterator[Callable[..., Api]]:
    """Starts services with settings of the test's own."""
    with ExitStack() as stack:
        yield lambda settings, **options: stack.enter_context(serving(settings, **options))


@pytest.fixture
def api(settings: Settings) -> Iterator[Api]:
    with serving(settings) as served:
        yield served


@dataclass
class Lab:
    """A service with a toy problem and a policy for it, and hands that do a run's work in this process."""

    api: Api
    stores: Stores

    def start(self, evaluations: int = 13, **changes: Any) -> UUID:
        """Start a run through the API."""
        body = {"problem": "toy", "policy": "scripted", "budget": {"evaluations": evaluations}, "lanes": 1, "batch": 4}
        answer = self.api.post("/v1/runs", body | {"strategy": "islands_map_elites"} | changes)
        assert answer.status_code == 202, answer.text
        return UUID(answer.json()["id"])

    def send_form(self, path: str, fields: dict[str, str]) -> httpx.Response:
        """Send a form as a page of the dashboard does."""
        headers = {"Origin": str(self.api.http.base_url).rstrip("/"), "Accept": "text/html"}
        return self.api.http.post(path, data=fields, headers=headers)

    def work(
        self,
        units: int | None = None,
        client_for: Callable[[Policy], PolicyClient] = build_client,
        learner_for: Callable[[], Learner] | None = None,
        evaluator: ToyEvaluator | None = None,
    ) -> int:
        """Do units of work, all there are by default; return how many were done."""
        executor = WorkExecutor(
            self.stores.work, self.stores.signals, evaluator or ToyEvaluator(), client_for, learner_for=learner_for
        )
        done = 0
        while (units is None or done < units) and (waiting := self.stores.runs.work_in_flight(limit=1)):
            assert executor.execute(waiting[0].work_id)
            done += 1
        return done


@pytest.fixture
def lab(api: Api, stores: Stores) -> Lab:
    stores.catalog.add_problem(toy_problem())
    stores.catalog.add_policy(scripted())
    return Lab(api, stores)


def refused(answer: httpx.Response, status: int, slug: str) -> dict[str, Any]:
    """Check that an answer refuses as every refusal does; return its problem details."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["x-content-type-options"] == "nosniff"
    details: dict[str, Any] = answer.json()
    assert details["type"] == f"urn:speciate:error:{slug}"
    assert details["status"] == status
    assert details["title"]
    assert details["detail"]
    return details
