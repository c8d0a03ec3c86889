"""Tournaments with both clients."""

from __future__ import annotations

from uuid import UUID

from speciate.domain.declaration import DeclarationState
from speciate.schema.declarations import TournamentRecord, TournamentRun
from tests.unit.client.conftest import Ask
from tests.unit.client.fake_service import AT, FakeService, page, say, stream
from tests.unit.tournaments.synthetic import report_of, results_of, schedule_of

PATH = "/v1/tournaments/synthetic"


def _record() -> TournamentRecord:
    declared = schedule_of(3, 2, 2).declared
    return TournamentRecord(
        id=UUID(int=9),
        slug=declared.slug,
        declaration=declared,
        digest=declared.digest,
        state=DeclarationState.RUNNING,
        reason=None,
        created_at=AT,
        finished_at=None,
        amendments=(),
        planned=12,
        started=0,
        ended=0,
    )


def test_tournament_create_get_steer(ask: Ask, service: FakeService) -> None:
    record = _record()
    whole = record.model_dump(mode="json")
    service.on("POST", "/v1/tournaments", say(whole, 202))
    service.on("GET", "/v1/tournaments", page(whole))
    service.on("GET", PATH, say(whole))
    for action in ("pause", "resume", "cancel", "extend"):
        service.on("POST", f"{PATH}:{action}", say(whole))
    assert ask(lambda client: client.tournaments.create(record.declaration)) == record
    assert service.requests[0].body == record.declaration.model_dump(mode="json")
    assert service.requests[0].headers["Idempotency-Key"]
    assert ask(lambda client: client.tournaments.list(state="running")) == [record]
    assert ask(lambda client: client.tournaments.get("synthetic")) == record
    assert ask(lambda client: client.tournaments.pause("synthetic", "lunch")) == record
    assert service.requests[-1].body == {"reason": "lunch"}
    assert ask(lambda client: client.tournaments.resume("synthetic")) == record
    assert ask(lambda client: client.tournaments.cancel("synthetic")) == record
    assert ask(lambda client: client.tournaments.extend("synthetic", reason="power", seeds=[9])) == record
    assert service.requests[-1].body == {"reason": "power", "problems": [], "seeds": [9]}


def test_report_is_unchanged(ask: Ask, service: FakeService) -> None:
    schedule = schedule_of(32, 2, 4)
    report = report_of(schedule, results_of(schedule))
    service.on("GET", f"{PATH}/report", say(report.model_dump(mode="json")))
    assert ask(lambda client: client.tournaments.report("synthetic")) == report


def test_tournament_bundle_is_bytes(ask: Ask, service: FakeService) -> None:
    service.on("GET", f"{PATH}/bundle", say(b"PK\x03\x04", kind="application/zip"))
    assert ask(lambda client: client.tournaments.bundle("synthetic")) == b"PK\x03\x04"


def test_tournament_export_is_streamed(ask: Ask, service: FakeService) -> None:
    run = TournamentRun(
        tournament="synthetic", number=1, problem="p", seed=0, entrant="a", policy="p@1", mutator=None,
        strategy="best_of_n", run_id=None, state="planned", reason=None,
    )  # fmt: skip
    line = run.model_dump_json().encode() + b"\n"
    service.on("GET", f"{PATH}/export", stream(line[:20], line[20:] + line, kind="application/x-ndjson"))
    assert ask(lambda client: client.tournaments.export("synthetic")) == [run, run]
