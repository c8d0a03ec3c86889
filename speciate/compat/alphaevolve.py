"""Routes of Google's AlphaEvolve API (v1alpha), answered by a Speciate service, for its published client (ADR 30).

An experiment becomes a problem with external evaluation and a run on it: the client's own workers evaluate, and
policies of the service propose. Field names are read in camelCase and snake_case and written in camelCase.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID, uuid4

from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from speciate.client import AsyncClient
from speciate.client.aio.run import AsyncRunHandle
from speciate.compat.alphaevolve_body import identifier, problem_of, program_files, require_shape, submission
from speciate.domain.errors import (
    ConflictError,
    ForbiddenError,
    InvalidInputError,
    NotFoundError,
    SpeciateError,
    TooLargeError,
    TooManyRequestsError,
    UnavailableError,
)
from speciate.domain.problem import Problem
from speciate.domain.run import RunState
from speciate.domain.validation import validation_message
from speciate.problems.template import slug_of_text
from speciate.schema.candidates import CandidateDetail

LEASE_S: Final = 900.0
"""Seconds after which a program without a submission is offered again; the client sends no heartbeats."""

MAX_BODY_BYTES: Final = 16 << 20
"""Largest request body, as that of the service."""

_TAG: Final = "ae-"
_NAME: Final = re.compile(
    r"(?P<session>projects/.+?)/alphaEvolveExperiments(?:/(?P<experiment>[^/:]+)"
    r"(?:/(?P<programs>alphaEvolvePrograms)(?:/(?P<number>[^/:]+))?|/operations/(?P<operation>[^/:]+))?)?"
    r"(?::(?P<verb>\w+))?"
)
_DURATION: Final = re.compile(r"([0-9.]+)s")
_STATES: Final = {
    RunState.CREATED: "CREATED",
    RunState.RUNNING: "RUNNING",
    RunState.PAUSED: "PAUSED",
    RunState.COMPLETED: "COMPLETED",
    RunState.CANCELLED: "COMPLETED",
    RunState.FAILED: "FAILED",
}
_STATUS: Final[Sequence[tuple[type[SpeciateError], int, str]]] = (
    (NotFoundError, 404, "NOT_FOUND"),
    (ConflictError, 409, "FAILED_PRECONDITION"),
    (InvalidInputError, 400, "INVALID_ARGUMENT"),
    (ForbiddenError, 403, "PERMISSION_DENIED"),
    (UnavailableError, 503, "UNAVAILABLE"),
    (TooLargeError, 413, "INVALID_ARGUMENT"),
    (TooManyRequestsError, 429, "RESOURCE_EXHAUSTED"),
)
_SPARE: Final = 5
_FINISH_TRIES: Final = 100
_FINISH_WAIT_S: Final = 0.1
_MOST_PROGRAMS: Final = 10_000
_log = logging.getLogger(__name__)

Json = dict[str, Any]


@dataclass
class _Experiment:
    """An experiment that this process created."""

    name: str
    config: Json
    initial: Json = field(default_factory=dict)
    run: UUID | None = None
    """Id of its run, once it is started."""
    handed_out: set[int] = field(default_factory=set)
    """Numbers of the programs that its workers received."""
    evaluated: set[int] = field(default_factory=set)
    """Numbers of those that they evaluated."""

    @property
    def most(self) -> int:
        """Programs to hand out: the initial one besides those generated."""
        return int((self.config.get("runSettings") or {}).get("maxPrograms") or 100) + 1


@dataclass
class AlphaEvolveService:
    """Answers the routes."""

    client: Callable[[], AsyncClient]
    policy: str
    """Policy that proposes candidates, unless the service has one with the name of a requested model."""
    token: str
    _experiments: dict[str, _Experiment] = field(default_factory=dict, init=False)

    def app(self) -> Starlette:
        return Starlette(routes=[Route("/v1alpha/{path:path}", self._answer, methods=["GET", "POST"])])

    async def _answer(self, request: Request) -> Response:
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if not hmac.compare_digest(token.encode(), self.token.encode()):
            return _error(401, "UNAUTHENTICATED", "the request carries no valid access token")
        try:
            body = await _read(request) if request.method == "POST" else {}
            return JSONResponse(await self._route(request, request.path_params["path"], body))
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"]))
            return _error(400, "INVALID_ARGUMENT", f"{where}: {validation_message(dict(first))}")
        except (ValueError, OverflowError, RecursionError) as error:
            return _error(400, "INVALID_ARGUMENT", f"the body cannot be read: {error}")
        except SpeciateError as error:
            for kind, status, name in _STATUS:
                if isinstance(error, kind):
                    return _error(status, name, str(error))
            return _error(500, "INTERNAL", str(error))

    async def _route(self, request: Request, path: str, body: Json) -> Any:
        if path.endswith(":streamAssist"):
            parent = path.partition("/assistants/")[0]
            return [{"sessionInfo": {"session": f"{parent}/sessions/{uuid4().int % 10**15}"}}]
        match = _NAME.fullmatch(path)
        if match is None:
            if "/sessions/" in path and request.method == "GET":
                return {"name": path, "state": "IN_PROGRESS"}
            raise NotFoundError(f"there is no resource {path[:200]!r}.")
        key = match["experiment"]
        async with self.client() as client:
            if key is None:
                if request.method == "POST":
                    return self._create(match["session"], body)
                return {"alphaEvolveExperiments": [one async for one in self._list(client, match["session"])]}
            name = f"{match['session']}/alphaEvolveExperiments/{key}"
            return await self._of_experiment(client, request, name, match, body)

    async def _of_experiment(
        self, client: AsyncClient, request: Request, name: str, match: re.Match[str], body: Json
    ) -> Any:
        get, key = request.method == "GET", match["experiment"]
        if match["programs"]:
            if not get:
                return self._set_initial(name, key, body)
            if match["number"] == "initial":
                return self._initial(name, self._known(key))
            run = await self._run(client, key)
            if match["number"]:
                return await _program(name, run, _number(match["number"]))
            return await _programs(name, run, request.query_params)
        match match["verb"]:
            case "start":
                return _operation(name, "start", await self._start(client, name, key))
            case "resume":
                run = await self._run(client, key)
                await run.resume()
                return _operation(name, "resume", self._shown(name, key, run))
            case "acquirePrograms":
                return await self._acquire(client, name, key, int(body.get("desiredProgramsCount") or 1))
            case "submitProgramsEvaluations":
                return await self._submit(client, key, body)
            case None:
                experiment = await self._experiment(client, name, key)
                return _operation(name, match["operation"], experiment) if match["operation"] else experiment
            case verb:
                raise NotFoundError(f"there is no method {verb!r}.")

    def _create(self, session: str, body: Json) -> Json:
        config = body.get("config") or {}
        for required in ("title", "problemDescription", "programLanguage"):
            if not str(config.get(required) or "").strip():
                raise InvalidInputError(f"config.{required} is missing.")
        key = uuid4().hex[:16]
        name = f"{session}/alphaEvolveExperiments/{key}"
        self._experiments[key] = _Experiment(name, config)
        return {"name": name, "config": config, "state": "CREATED", "stats": {}}

    def _known(self, key: str) -> _Experiment:
        if (experiment := self._experiments.get(key)) is None:
            raise NotFoundError(f"there is no experiment {key[:60]!r} that waits for its start.")
        return experiment

    def _set_initial(self, name: str, key: str, body: Json) -> Json:
        experiment = self._known(key)
        if experiment.run is not None:
            raise ConflictError(f"experiment {key} has started already.")
        program_files(body)
        experiment.initial = body
        return self._initial(name, experiment)

    def _initial(self, name: str, experiment: _Experiment) -> Json:
        return {"name": f"{name}/alphaEvolvePrograms/initial", "state": "COMPLETED", **experiment.initial}

    async def _start(self, client: AsyncClient, name: str, key: str) -> Json:
        experiment = self._known(key)
        if experiment.run is None:
            if not experiment.initial:
                raise ConflictError(f"experiment {key} has no initial program: create one first.")
            problem = await client.problems.add(problem_of(experiment.config, experiment.initial))
            settings = experiment.config.get("runSettings") or {}
            # The API counts programs that workers receive; the run also counts repeated and unreadable answers.
            evaluations = _SPARE * experiment.most
            duration = _DURATION.fullmatch(str(settings.get("maxDuration") or ""))
            budget: Json = {"evaluations": evaluations} | ({"seconds": float(duration[1])} if duration else {})
            run = await client.runs.create(
                f"{problem.definition.slug}@{problem.version}",
                await self._policies(client, experiment.config),
                budget=budget,
                name=str(experiment.config["title"])[:120],
                tags=(_TAG + key,),
                note=name,
                batch=max(1, min(int(settings.get("concurrency") or 4), 64)),
                idempotency_key=f"alphaevolve-{key}",
            )
            experiment.run = run.id
        return await self._experiment(client, name, key)

    async def _policies(self, client: AsyncClient, config: Json) -> str | dict[str, float]:
        """Return the policies named after the requested models, with their weights, or the default one."""
        models = (config.get("generationSettings") or {}).get("models") or []
        policies: dict[str, float] = {}
        for model in models:
            slug = slug_of_text(str(model.get("name") or ""), "")
            try:
                await client.policies.get(slug)
            except NotFoundError:
                continue
            policies[slug] = policies.get(slug, 0.0) + float(model.get("weight") or 1.0)
        if not policies:
            return self.policy
        return next(iter(policies)) if len(policies) == 1 else policies

    async def _run(self, client: AsyncClient, key: str) -> AsyncRunHandle:
        experiment = self._experiments.get(key)
        if experiment is not None and experiment.run is not None:
            return await client.runs.get(experiment.run)
        async for run in client.runs.list(tags=(_TAG + key,)):
            return run
        raise NotFoundError(f"there is no started experiment {key[:60]!r}.")

    async def _experiment(self, client: AsyncClient, name: str, key: str) -> Json:
        experiment = self._experiments.get(key)
        if experiment is not None and experiment.run is None:
            return {"name": name, "config": experiment.config, "state": "CREATED", "stats": {}}
        return self._shown(name, key, await self._run(client, key))

    def _shown(self, name: str, key: str, run: AsyncRunHandle) -> Json:
        record, experiment = run.record, self._experiments.get(key)
        config = experiment.config if experiment else {"title": record.name, "runSettings": {}}
        return {
            "name": name,
            "config": config,
            "state": _STATES[record.state],
            "createTime": record.created_at.isoformat(),
            "initialAlphaEvolveProgram": f"{name}/alphaEvolvePrograms/1",
            "stats": {
                "candidatesCount": record.candidates + record.spent.reserved_evaluations,
                "evaluatedCandidatesCount": record.candidates,
                "outputTokenCount": str(record.spent.tokens),
            },
        }

    async def _list(self, client: AsyncClient, session: str) -> AsyncIterator[Json]:
        for key, experiment in self._experiments.items():
            if experiment.name.startswith(f"{session}/"):
                yield await self._experiment(client, experiment.name, key)

    async def _acquire(self, client: AsyncClient, name: str, key: str, count: int) -> Json:
        run, experiment = await self._run(client, key), self._experiments.get(key)
        left = experiment.most - len(experiment.handed_out) if experiment else count
        if left <= 0:
            return {}
        leased = await client.evaluations.acquire(run=run.id, count=max(1, min(count, left, 64)), lease_s=LEASE_S)
        if experiment:
            experiment.handed_out.update(one.number for one in leased)
        programs = [
            {
                "name": f"{name}/alphaEvolvePrograms/{one.number}",
                "content": {"files": [{"path": path, "content": text} for path, text in one.files.items()]},
                "lockToken": f"{one.id}.{one.lease}",
                "state": "IN_PROGRESS",
            }
            for one in leased
        ]
        return {"programs": programs} if programs else {}

    async def _submit(self, client: AsyncClient, key: str, body: Json) -> Json:
        submissions = body.get("evaluationSubmissions") or []
        if len(submissions) != 1:
            raise InvalidInputError(f"{len(submissions)} evaluations are submitted: expected exactly one.")
        (outcome,) = await client.evaluations.submit_all([submission(submissions[0])])
        if outcome.reason:
            raise ConflictError(f"the evaluation is refused: {outcome.reason}.")
        if experiment := self._experiments.get(key):
            experiment.evaluated.add(_number(str(submissions[0].get("program") or "").rpartition("/")[2]))
            if len(experiment.evaluated) >= experiment.most:
                await _finish(client, await self._run(client, key), experiment.evaluated)
        return {}


async def _finish(client: AsyncClient, run: AsyncRunHandle, evaluated: set[int]) -> None:
    """End a run whose programs are all evaluated.

    A batch is recorded as a whole, so the rest of the last ones is given up first. Batches are recorded in any order:
    the count of candidates does not tell that those evaluated are among them.
    """
    for _ in range(_FINISH_TRIES):
        rest = await client.evaluations.acquire(run=run.id, count=64, lease_s=LEASE_S)
        unused = {"kind": "rejected", "reason": "limit_reached", "detail": "the experiment has all its programs"}
        if rest:
            await client.evaluations.submit_all(
                [{"id": str(one.id), "lease": str(one.lease), "failure": unused} for one in rest]
            )
        if evaluated <= {one.number async for one in run.export()}:
            break
        await asyncio.sleep(_FINISH_WAIT_S)
    if not (await run.refresh()).state.ended:
        with suppress(ConflictError):  # it has just ended by itself
            await run.cancel("all programs of the experiment are evaluated")


async def _programs(name: str, run: AsyncRunHandle, query: Mapping[str, str]) -> Json:
    """Return the evaluated programs by ``order_by``: a metric with ``asc`` or ``desc``; the newest first by default."""
    candidates = [one async for one in run.export() if one.rewards is not None and one.duplicate_of is None]
    problem = (await run.problem()).definition
    order = (query.get("order_by") or query.get("orderBy") or "").split()
    metric = identifier(order[0].rpartition(".")[2]) if order else ""
    descending = len(order) < 2 or order[1].lower() != "asc"
    if order:
        column = metric if metric in problem.space.names else problem.space.names[0]
        candidates.sort(key=lambda one: (one.rewards or {})[column], reverse=descending)
    else:
        candidates.reverse()
    first = int(query.get("pageToken") or query.get("page_token") or 0)
    size = int(query.get("pageSize") or query.get("page_size") or _MOST_PROGRAMS)
    page = candidates[first : first + size]
    answer: Json = {"alphaEvolvePrograms": [_shown_program(name, problem, one) for one in page]}
    return answer | ({"nextPageToken": str(first + size)} if first + size < len(candidates) else {})


async def _program(name: str, run: AsyncRunHandle, number: int) -> Json:
    return _shown_program(name, (await run.problem()).definition, await run.candidate(number))


def _shown_program(name: str, problem: Problem, candidate: CandidateDetail) -> Json:
    files = problem.files_in(candidate.program)
    metrics = {objective.name: objective.description for objective in problem.objectives}
    scores = [{"metric": metrics[name_], "score": score} for name_, score in (candidate.rewards or {}).items()]
    insights = [{"label": label, "text": text} for label, text in candidate.artifacts.items()]
    return {
        "name": f"{name}/alphaEvolvePrograms/{candidate.number}",
        "createTime": candidate.created_at.isoformat(),
        "content": {"files": [{"path": path, "content": text} for path, text in files.items()]},
        "evaluation": {"scores": {"scores": scores}, "insights": {"insights": insights}},
        "parentPrograms": [f"{name}/alphaEvolvePrograms/{parent}" for parent in candidate.parents],
        "state": "COMPLETED" if candidate.rewards is not None else "FAILED",
    }


def _operation(name: str, verb: str, response: Json) -> Json:
    return {"name": f"{name}/operations/{verb}", "done": True, "response": response}


def _number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 16):
        raise NotFoundError(f"there is no program {text[:40]!r}.")
    return int(text)


async def _read(request: Request) -> Json:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise TooLargeError(f"the body is larger than {MAX_BODY_BYTES} bytes.")
    values: Json = _camel(json.loads(body or b"{}"))
    require_shape(values)
    return values


def _camel(value: Any) -> Any:
    match value:
        case dict():
            return {re.sub(r"_([a-z0-9])", lambda m: m[1].upper(), key): _camel(item) for key, item in value.items()}
        case list():
            return [_camel(item) for item in value]
    return value


def _error(code: int, status: str, message: str) -> Response:
    return JSONResponse({"error": {"code": code, "message": message, "status": status}}, status_code=code)
