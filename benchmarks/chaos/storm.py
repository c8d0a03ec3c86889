"""Runs, clients, faults and a watch over all of them, together; then what must be true."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from uuid import UUID, uuid5

import httpx
import sqlalchemy as sa

import speciate
from benchmarks.chaos.faults import KILL, Breaker, Fault, order
from benchmarks.chaos.fleet import Fleet
from benchmarks.chaos.round_robin import RoundRobin
from benchmarks.chaos.watch import Watch, leaks
from speciate.domain.errors import ConflictError, SpeciateError
from speciate.domain.policy import Policy
from speciate.domain.problem import ProblemKind
from speciate.domain.run import RunState
from speciate.embedded.errors import EmbeddedServerError
from speciate.policies.bundled import bundled_policies
from speciate.schema.runs import RunRecord
from speciate.settings import Settings
from speciate.storage.database import with_retries
from speciate.storage.stores import Stores, open_stores
from speciate.training.tasks import GENERATED, Split
from tests.support.runs import toy_problem

_KEYS = UUID("01a1ff00-0000-7000-8000-000000000000")
_EVALUATOR = """
import re, time
def score(text, context):
    time.sleep({seconds})
    x, y = (float(value) for value in re.findall(r"= *([0-9.]+)", text))
    return {{"x": x, "y": y}}
"""
_ROOT: Final = Path(speciate.__file__).parents[1]
_ERROR: Final = re.compile(r"[\w.]+(Error|Exception|Interrupt|Exit|Timeout)\b")
"""How the line of a traceback begins that says what it is."""


@dataclass(frozen=True)
class Plan:
    """Parameters of a storm.

    Attributes:
        seconds: How long faults happen; then everything is let come to its end.
        runs: Runs that go on at once.
        budget: Evaluations of each.
        asking: Share of the runs that ask the inference server, the others have scripted policies.
        rate: Requests a second that are aimed at.
        pause_s: Mean seconds between two faults.
        slack_s: What a busy machine is allowed beyond lease + 3 s.
        only: Faults to do, each once; by default random ones as long as there is time.
    """

    seconds: float = 1800.0
    runs: int = 100
    budget: int = 160
    asking: float = 0.1
    rate: float = 1000.0
    viewers: int = 100
    pause_s: float = 20.0
    lease_s: float = 10.0
    slack_s: float = 0.0
    evaluation_s: float = 0.002
    seed: int = 0
    only: tuple[tuple[str, str], ...] = ()


@dataclass
class Outcome:
    """Findings; ``violations`` must be empty. ``failures`` are the unexpected errors in the logs of the API.

    ``learned`` has the number of ``runs`` that trained their policy, their ``steps``, ``groups`` and ``used`` groups.
    """

    plan: Plan
    seconds: float
    runs: int
    evaluations: int
    resumed: int
    faults: list[Fault]
    seen: dict[str, Any]
    watch: Watch
    left_files: int
    left_connections: int
    violations: list[str] = field(default_factory=list)
    failures: Counter[str] = field(default_factory=Counter)
    learned: Counter[str] = field(default_factory=Counter)


@dataclass
class Storm:
    """One storm over one fleet."""

    fleet: Fleet
    stores: Stores
    home: Path
    plan: Plan
    retry_for_s: float = 60.0

    def __post_init__(self) -> None:
        self._engine = self.stores.engine
        self._begun = time.monotonic()
        self._client = RoundRobin([f"http://127.0.0.1:{port}" for port in self.fleet.ports.values()])
        self._runs: dict[UUID, str] = {}
        self._resumed = 0
        self._done = threading.Event()
        self._enough = threading.Event()
        self._errors: list[str] = []

    def run(self) -> Outcome:
        """Break, mend, wait for the end of every run, and check."""
        plan = self.plan
        watch = Watch(self.fleet, self.stores, self.home / "tmp", self._begun, every_s=min(5.0, plan.seconds / 8))
        breaker = Breaker(self.fleet, self.stores, self._begun)
        self._prepare()
        self._keep_running(plan.runs)
        clients = self._start_clients()
        reviver = threading.Thread(target=self._revive, daemon=True)
        reviver.start()
        keeper = threading.Thread(target=self._keep, daemon=True)
        keeper.start()
        try:
            self._break(breaker)
            self._enough.set()
            keeper.join(300)
            breaker.wait()
            self._finish()
        finally:
            self._enough.set()
            seen = self._stop_clients(clients)
            self._done.set()
            reviver.join(60)
            watch.stop()
            self._client.close()
        seconds = time.monotonic() - self._begun
        time.sleep(2.0)
        watch.look()
        return self._outcome(seconds, breaker, watch, seen)

    # Runs -------------------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        problem = toy_problem().model_copy(
            update={
                "kind": ProblemKind.DATA,
                "evaluator": _EVALUATOR.format(seconds=self.plan.evaluation_s),
                "slug": "storm",
            }
        )
        policy = Policy(slug="storm", kind="scripted", options={"template": "x = 1.{number}\ny = 3\n"})
        (maze,) = GENERATED["maze"].problems(Split.TEST, 1)
        self._mazes = maze.slug
        for each in (problem, maze):
            self.stores.catalog.add_problem(each)
        base = next(each for each in bundled_policies() if each.slug == "maze-base")
        for registered in (policy, base):
            self.stores.catalog.add_policy(registered)

    def _keep(self) -> None:
        while not self._enough.wait(0.3):
            try:
                self._keep_running(self.plan.runs)
            except (RuntimeError, SpeciateError) as error:
                self._errors.append(f"runs could not be kept going: {error}")

    def _keep_running(self, wanted: int) -> None:
        """Begin runs through the API until as many as wanted go on."""
        records = self.stores.runs.list(state=RunState.RUNNING, limit=500).items
        paused = self.stores.runs.list(state=RunState.PAUSED, limit=500).items
        for record in paused:
            # Its policy or evaluator was unavailable for too long, so the operator resumes it.
            with suppress(ConflictError):
                self.stores.signals.committed(self.stores.runs.resume(record.id))
                self._resumed += 1
        for _ in range(wanted - len(records) - len(paused)):
            if self._enough.is_set():
                return
            self._begin()

    def _begin(self) -> None:
        number = len(self._runs)
        asks = number % 10 < self.plan.asking * 10
        body = {
            "problem": self._mazes if asks else "storm",
            "policy": "maze-base" if asks else "storm",
            "strategy": "best_of_n" if number % 2 else "islands_map_elites",
            "budget": {"evaluations": self.plan.budget},
            "lanes": 2,
            "seed": number,
        }
        if number % 20 < self.plan.asking * 10:  # half of the runs that ask also learn
            body |= {"samples_per_prompt": 8, "batch": 16, "learning": {"groups": 2}}
        headers = {"Idempotency-Key": str(uuid5(_KEYS, f"{self.plan.seed}/{number}"))}
        deadline = time.monotonic() + 120
        while True:
            try:
                answer = self._client.ask("POST", "/v1/runs", json=body, headers=headers)
            except httpx.TransportError:
                answer = None
            if answer is not None and answer.status_code == 202:
                run_id = UUID(answer.json()["id"])
                self._runs[run_id] = headers["Idempotency-Key"]
                with (self.home / "runs").open("a") as file:
                    file.write(f"{run_id}\n")
                return
            if answer is not None and answer.status_code < 500:
                raise RuntimeError(f"a run was refused: {answer.text}")
            if time.monotonic() > deadline:
                raise RuntimeError("no run can be begun")
            time.sleep(0.2)

    def _finish(self) -> None:
        """Wait until every run has ended."""
        deadline = time.monotonic() + max(600.0, self.plan.seconds)
        while time.monotonic() < deadline:
            self._keep_running(0)
            if not self._unfinished():
                return
            time.sleep(0.5)

    @with_retries
    def _unfinished(self) -> int:
        query = "SELECT count(*) FROM run_progress WHERE state NOT IN ('completed', 'failed', 'cancelled')"
        with self._engine.connect() as connection:
            return int(connection.execute(sa.text(query)).scalar_one())

    # Faults -----------------------------------------------------------------------------------------------------

    def _break(self, breaker: Breaker) -> None:
        rng = random.Random(self.plan.seed)
        faults = iter(self.plan.only) if self.plan.only else order(rng)
        end = time.monotonic() + self.plan.seconds
        for kind, part in faults:
            pause_s = rng.expovariate(1 / self.plan.pause_s)
            calm = time.monotonic() + min(pause_s, 3 * self.plan.pause_s)
            time.sleep(max(0.0, (calm if self.plan.only else min(calm, end)) - time.monotonic()))
            if not self.plan.only and time.monotonic() >= end:
                return
            breaker.break_one(kind, part)

    def _revive(self) -> None:
        while not self._done.wait(0.2):
            with suppress(EmbeddedServerError):
                self.fleet.restart_ended()

    # Clients ----------------------------------------------------------------------------------------------------

    def _start_clients(self) -> subprocess.Popen[bytes]:
        order_ = {
            "ports": list(self.fleet.ports.values()),
            "runs": str(self.home / "runs"),
            "rate": self.plan.rate,
            "viewers": self.plan.viewers,
            "seed": self.plan.seed,
        }
        (self.home / "clients.json").write_text(json.dumps(order_))
        command = [sys.executable, "-m", "benchmarks.chaos.callers", str(self.home / "clients.json")]
        return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])})

    def _stop_clients(self, clients: subprocess.Popen[bytes]) -> dict[str, Any]:
        time.sleep(1.0)  # for the last events
        clients.terminate()
        clients.wait(60)
        found: dict[str, Any] = json.loads((self.home / "clients.seen").read_text())
        return found

    # What must be true ------------------------------------------------------------------------------------------

    def _outcome(self, seconds: float, breaker: Breaker, watch: Watch, seen: dict[str, Any]) -> Outcome:
        outcome = Outcome(
            plan=self.plan,
            seconds=seconds,
            runs=len(self._runs),
            evaluations=0,
            resumed=self._resumed,
            faults=breaker.faults,
            seen=seen,
            watch=watch,
            left_files=watch.files[-1],
            left_connections=watch.connections[-1] if watch.connections else 0,
            violations=[*self._errors, *seen["violations"], *map(str, leaks(watch.samples))],
        )
        stored = self.stores.runs.list(limit=500)
        ids = [run.id for run in stored.items]
        while stored.next_cursor:
            stored = self.stores.runs.list(limit=500, cursor=stored.next_cursor)
            ids += [run.id for run in stored.items]
        if set(ids) != set(self._runs) or len(ids) != len(self._runs):
            outcome.violations.append(f"{len(self._runs)} runs were asked for, {len(ids)} were made")
        for run_id in ids:
            outcome.violations += self._violations_of(run_id)
            run = self.stores.runs.get(run_id)
            outcome.evaluations += run.spent.evaluations
            if (found := run.learning) is not None:
                outcome.learned.update(runs=1, steps=found.taken, groups=found.seen, used=found.used)
        for fault in breaker.faults:
            # Recovery needs PostgreSQL, so the time counts from its return.
            away_s = (fault.back_s or 0.0) if fault.part == "postgres" else 0.0
            limit = self.plan.lease_s + 3 + away_s + self.plan.slack_s
            if fault.freed_s is None or fault.freed_s > limit:
                outcome.violations.append(f"{fault.kind} of {fault.part}: leases were free after {fault.freed_s} s")
            if fault.back_s is None:
                outcome.violations.append(f"{fault.kind} of {fault.part}: it did not come back")
        return outcome

    def _violations_of(self, run_id: UUID) -> list[str]:
        run, violations = self.stores.runs.get(run_id), []
        if run.state is not RunState.COMPLETED:
            violations.append(f"run {run_id} is {run.state.value}: {run.reason}")
        if (run.spent.evaluations, run.spent.reserved_evaluations) != (self.plan.budget, 0):
            violations.append(f"run {run_id} spent {run.spent.evaluations} of {self.plan.budget}")
        with self._engine.connect() as connection:
            for what, query in _WHOLE.items():
                count, distinct, last = connection.execute(sa.text(query), {"id": run_id}).one()
                expected = run.last_event if what == "events" else run.spent.evaluations
                if not count == distinct == last == expected:
                    violations.append(
                        f"run {run_id}: {count} {what}, {distinct} different, the last {last} of {expected}"
                    )
            open_work = "SELECT count(*) FROM work WHERE run_id = :id AND state <> 'done'"
            if left := connection.execute(sa.text(open_work), {"id": run_id}).scalar_one():
                violations.append(f"run {run_id} leaves {left} units of work")
            violations += _lost_groups(run, connection)
        return violations


def _lost_groups(run: RunRecord, connection: sa.Connection) -> list[str]:
    """Return what is wrong with the groups of a run that learns: each is used at most once, and none is lost."""
    found = run.learning
    if found is None:
        return []
    query = sa.text("SELECT data -> 'groups' FROM events WHERE run_id = :id AND kind = 'learning.step'")
    used = [tuple(group) for groups in connection.execute(query, {"id": run.id}).scalars() for group in groups]
    prompts = "SELECT count(DISTINCT (batch, prompt_digest, seed)) FROM rollouts WHERE run_id = :id"
    written = connection.execute(sa.text(prompts), {"id": run.id}).scalar_one()
    booked = found.used + found.flat + found.stale + found.dropped + found.waiting
    if not len(used) == len(set(used)) == found.used or not booked == found.seen == written:
        return [f"run {run.id}: {written} groups, {booked} booked, {len(used)} used, {len(set(used))} different"]
    return []


_WHOLE = {
    what: f"SELECT count(*), count(DISTINCT {name}), coalesce(max({name}), 0) FROM {what} WHERE run_id = :id"
    for what, name in (("candidates", "number"), ("events", "seq"))
}


def _left_behind(folder: Path, outcome: Outcome) -> list[str]:
    left = sorted(path.name for path in folder.rglob("*"))
    # A process of multiprocessing that is killed cannot remove its own empty folder.
    killed = sum(fault.kind == KILL and fault.part == "evaluate" for fault in outcome.faults)
    empty = [name for name in left if name.startswith("pymp-")]
    names = left if len(empty) > killed else [name for name in left if name not in empty]
    return [f"left when everything had stopped: {', '.join(names[:10])}"] if names else []


def _failures(logs: Path) -> Counter[str]:
    """Count the unexpected errors of the API by the last lines of their tracebacks: where, and what."""
    found: Counter[str] = Counter()
    for path in sorted(logs.glob("api*.log")):
        for block in (
            path.read_text("utf-8", "replace").replace(f"{_ROOT}/", "").split("Exception in ASGI application")[1:]
        ):
            lines = [
                line.strip() for line in re.split(r"\n(?=\d{4}-\d\d-\d\d )", block)[0].splitlines() if line.strip()
            ]
            where = [line for line in lines if line.startswith("File ") and "site-packages" not in line]
            # An error of SQLAlchemy goes on below its first line, and is met in a helper: who called that tells more.
            what = next((line for line in reversed(lines) if _ERROR.match(line)), lines[-1])
            found[" <- ".join([what[:300], *where[:-3:-1]])] += 1
    return found


def storm(plan: Plan) -> Outcome:
    """Start a fleet, let a storm go over it, and stop it."""
    home = Path(tempfile.mkdtemp(prefix="speciate-chaos-"))
    home.chmod(0o711)
    (home / "tmp").mkdir(mode=0o1777)
    (home / "tmp").chmod(0o1777)
    before = os.environ.get("TMPDIR")
    os.environ["TMPDIR"] = str(home / "tmp")  # what the processes leave there is theirs
    settings = Settings(data_dir=home / "data", port=0, lease_s=plan.lease_s, evaluate_slots=2, generate_slots=8)
    try:
        with Fleet(settings, drain_s=1.0, learns=True) as fleet:
            for _ in fleet.start():
                pass
            stores = open_stores(fleet.settings)
            stores.runs.retry_for_s = 60.0
            try:
                outcome = Storm(fleet, stores, home, plan).run()
            finally:
                stores.close()
        outcome.violations += _left_behind(home / "tmp", outcome)
        outcome.failures = _failures(home / "data" / "logs")
        return outcome
    finally:
        if before is None:
            del os.environ["TMPDIR"]
        else:
            os.environ["TMPDIR"] = before
        shutil.rmtree(home, ignore_errors=True)
