"""A small HTTP server with scripted responses, including malformed ones."""

from __future__ import annotations

import json
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

from speciate.domain.budget import Budget
from speciate.domain.objective import Objective
from speciate.domain.policy import Policy
from speciate.domain.problem import Problem, ProblemKind
from speciate.domain.run import RunSpec, RunState
from speciate.domain.target import Target
from speciate.schema.candidates import CandidateDetail
from speciate.schema.policies import PolicyVersion
from speciate.schema.problems import ProblemVersion
from speciate.schema.runs import EventRecord, RankedCandidate, RunRecord, SpentRecord

RUN = UUID(int=7)
AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@dataclass
class Request:
    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: Any


Answer = Callable[["Handler"], None]


class FakeService:
    """Answers of a path are given one after another; the last one again and again."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.url = ""
        self._answers: dict[tuple[str, str], deque[Answer]] = defaultdict(deque)

    def on(self, method: str, path: str, *answers: Answer) -> None:
        self._answers[method, path].extend(answers)

    def answer(self, method: str, path: str) -> Answer:
        waiting = self._answers[method, path]
        if not waiting:
            return problem(404, "not-found", f"there is no {path}.")
        return waiting.popleft() if len(waiting) > 1 else waiting[0]

    def asked(self, path: str) -> list[Request]:
        return [request for request in self.requests if request.path == path]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    fake_service: FakeService

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def do_DELETE(self) -> None:
        self._serve()

    def do_PATCH(self) -> None:
        self._serve()

    def chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def log_message(self, *args: object) -> None:
        pass

    def _serve(self) -> None:
        parts = urlsplit(self.path)
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = json.loads(data) if data else None
        request = Request(self.command, parts.path, parse_qs(parts.query), dict(self.headers.items()), body)
        self.fake_service.requests.append(request)
        self.fake_service.answer(self.command, parts.path)(self)


@contextmanager
def run_fake_service() -> Iterator[FakeService]:
    made = FakeService()
    handler = type("BoundHandler", (Handler,), {"fake_service": made})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        made.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield made
        finally:
            server.shutdown()
            thread.join()


def say(value: Any, status: int = 200, kind: str = "application/json") -> Answer:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()

    def answer(handler: Handler) -> None:
        handler.send_response(status)
        handler.send_header("Content-Type", kind)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    return answer


def problem(status: int, slug: str, detail: str, **more: Any) -> Answer:
    return say(
        {"type": f"urn:speciate:error:{slug}", "title": slug, "status": status, "detail": detail, **more}, status
    )


def hang_up(handler: Handler) -> None:
    """Take the request and close the connection."""
    handler.close_connection = True


def stream(*chunks: bytes, broken: bool = False, kind: str = "text/event-stream") -> Answer:
    """Send chunks; a broken stream ends in the middle of the body."""

    def answer(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", kind)
        handler.send_header("Transfer-Encoding", "chunked")
        # Otherwise a client may reuse a connection that is about to close, and that request is lost.
        handler.send_header("Connection", "close")
        handler.end_headers()
        for chunk in chunks:
            handler.chunk(chunk)
        if not broken:
            handler.chunk(b"")

    return answer


def event(seq: int, kind: str = "batch.evaluated", **data: Any) -> bytes:
    record = EventRecord(run_id=RUN, seq=seq, kind=kind, data=data, at=AT)
    return f"id: {seq}\nevent: {kind}\ndata: {record.model_dump_json()}\n\n".encode()


END = b"event: end\ndata: {}\n\n"


def best(*targets: str, **rewards: float) -> RankedCandidate:
    return RankedCandidate(id=UUID(int=109), number=9, rewards=rewards, targets=targets)


def run_json(**values: Any) -> dict[str, Any]:
    record = RunRecord(
        id=RUN,
        problem_id=UUID(int=1),
        problem="packing",
        problem_version=1,
        policy_id=UUID(int=2),
        policy="mutator",
        policy_version=3,
        spec=RunSpec(budget=Budget(evaluations=100)),
        state=RunState.RUNNING,
        reason=None,
        created_at=AT,
        started_at=AT,
        finished_at=None,
        spent=SpentRecord(evaluations=40, tokens=0, seconds=1.5, reserved_evaluations=16, reserved_tokens=0),
        candidates=40,
        evaluated=36,
        failed=4,
        duplicates=2,
        rollouts=10,
        failures={"crashed": 4},
        reasons={"exited": 4},
        best=best(radius=1.5),
        reached=(),
        unlocked=False,
        alarm=None,
        last_event=0,
        revision=9,
    )
    document = record.model_dump(mode="json") | values
    rewards = {} if document["best"] is None else document["best"]["rewards"]
    verdicts = {name: "equal" if value == 1.0 else "better" for name, value in rewards.items()}
    compared = [{"objective": n, "value": rewards[n], "seed": 1.0, "verdict": verdicts[n]} for n in rewards]
    return document | {"best_rewards": values.get("best_rewards", compared)}


def problem_json(**values: Any) -> dict[str, Any]:
    """The problem version of ``run_json``, with other values in its definition."""
    definition = Problem(
        slug="packing",
        title="Packing",
        kind=ProblemKind.EVALUATOR,
        objectives=(Objective(name="radius", range=(0.0, 10.0)),),
        targets=(Target(name="first", rule="radius >= 2", unlock=True),),
        seed_program="x = 1\n",
        evaluator="def evaluate(candidate, context):\n    raise SystemExit\n",
    ).model_copy(update=values)
    record = ProblemVersion(
        id=UUID(int=1), version=1, digest="d", evaluator_digest="e", created_at=AT, definition=definition
    )
    return record.model_dump(mode="json")


def candidate_json(number: int = 1, **values: Any) -> dict[str, Any]:
    record = CandidateDetail(
        id=UUID(int=100 + number),
        run_id=RUN,
        number=number,
        status="evaluated",
        role="seed" if number == 1 else "mutate",
        policy_id=None,
        rollout_id=None,
        island=0,
        parents=(),
        inspirations=(),
        rewards={"radius": float(number)},
        scalar=None,
        targets=(),
        failure=None,
        failure_reason=None,
        duplicate_of=None,
        program_hash="0" * 64,
        tier="A",
        wall_s=0.1,
        cpu_s=0.1,
        memory_bytes=1 << 20,
        stopped_at=None,
        created_at=AT,
        program="def solve():\n    return 1\n",
        failure_detail=None,
        artifacts={},
    )
    return record.model_dump(mode="json") | values


def serve_best(service: FakeService, number: int = 9, definition: dict[str, Any] | None = None, **values: Any) -> None:
    """Answer what a client reads to show a candidate of ``run_json`` as the best one, except the run."""
    policy = PolicyVersion(
        id=UUID(int=2),
        version=3,
        digest="policy-digest",
        created_at=AT,
        definition=Policy(slug="mutator", kind="program_mutator", training_method="none"),
    )
    service.on("GET", f"/v1/problems/{UUID(int=1)}", say(problem_json(**definition or {})))
    service.on("GET", f"/v1/runs/{RUN}/front", page(*[best(radius=float(n)).model_dump(mode="json") for n in (9, 8)]))
    service.on("GET", f"/v1/policies/{UUID(int=2)}", say(policy.model_dump(mode="json")))
    service.on("GET", f"/v1/runs/{RUN}/candidates/{number}", say(candidate_json(number, **values)))
    service.on("GET", f"/v1/candidates/{UUID(int=100 + number)}/lineage", page(candidate_json(1)))


def page(*items: Any, cursor: str | None = None) -> Answer:
    return say({"items": list(items), "next_cursor": cursor})
