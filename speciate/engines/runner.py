"""Lease runs that wait for an engine, and run it on each."""

import math
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from speciate.client import Client
from speciate.client.evaluation_worker import retried
from speciate.domain.errors import ConflictError, SpeciateError, UnavailableError
from speciate.engines.installation import Engine
from speciate.engines.launch import run_engine
from speciate.engines.relay import GRACE_S, Relay
from speciate.schema.engines import EngineOutcome, EngineSession

_WAIT_S: Final = 5.0

Report = Callable[[EngineSession, EngineOutcome, str], None]


@dataclass
class EngineRunner:
    """Runs engines on runs that wait for them, until it is stopped or none waits."""

    client: Client
    engines: Mapping[str, Engine]  # those that this machine can start, by name
    folder: Path  # folder of the runs' folders
    tournament: str | None = None
    run: str | None = None
    slots: int = 1  # engines at the same time
    limit_s: float = 14_400.0  # longest duration of one attempt
    idle_s: float | None = None  # seconds without a run after which it ends; None for no end
    lease_s: float = 60.0
    report: Report = lambda *_: None  # receives what became of each session
    stopping: threading.Event = field(default_factory=threading.Event, init=False)
    _sound: set[str] = field(default_factory=set, init=False)  # engines that have sent a request

    def run_until_idle(self) -> None:
        """Run engines.

        Raises:
            SpeciateError: The service refuses the requests of this runner; or an engine that has sent no request fails
                before it sends one, which gives its run back.
        """
        with ThreadPoolExecutor(self.slots, thread_name_prefix="engine") as pool:
            # The context says whether ``report`` prints JSON.
            slots = [pool.submit(copy_context().run, self._serve) for _ in range(self.slots)]
            wait(slots, return_when=FIRST_EXCEPTION)
            if any(slot.done() and slot.exception() for slot in slots):
                self.stopping.set()
        for slot in slots:
            slot.result()

    def _serve(self) -> None:
        versions = {name: engine.version for name, engine in self.engines.items() if engine.version}
        acquire = partial(
            self.client.engines.acquire, engines=self.engines, tournament=self.tournament, run=self.run,
            versions=versions, lease_s=self.lease_s,
        )  # fmt: skip
        idle_since = time.monotonic()
        while not self.stopping.is_set():
            left = _WAIT_S if self.idle_s is None else max(self.idle_s - (time.monotonic() - idle_since), 0.0)
            within_s = math.inf if self.idle_s is None else left
            session = retried(partial(acquire, wait_s=min(_WAIT_S, left)), self.stopping, within_s=within_s)
            if session is not None:
                self._run(session)
                idle_since = time.monotonic()
            elif left == 0:
                return

    def _run(self, session: EngineSession) -> None:
        folder = self.folder / str(session.run_id)[-12:]  # short: paths of sockets have at most 107 characters
        lost: list[str] = []
        renewed_at = time.monotonic()

        def must_end() -> bool:
            nonlocal renewed_at
            if time.monotonic() - renewed_at > self.lease_s / 3 or relay.conflict.is_set():
                relay.conflict.clear()
                renewed_at = time.monotonic()
                lost.extend(self._renew(session, relay))
            return (bool(lost) and relay.spent_at is None) or relay.overdue or self.stopping.is_set()

        with Relay(self.client.engines, session) as relay:
            ended, tail = run_engine(self.engines[session.engine], session, folder, relay, self.limit_s, must_end)
        if relay.asked:
            self._sound.add(session.engine)
        broken = bool(ended.status) and not relay.spent_at and session.engine not in self._sound
        if relay.overdue:
            outcome, reason = EngineOutcome.FINISHED, f"It was ended {GRACE_S:g} s after its budget was spent."
        elif ended.status == 0 or (ended.status and relay.spent_at):
            outcome, reason = EngineOutcome.FINISHED, ""
        elif ended.status:
            said = tail.rpartition("\n")[2] or "no output"  # of a traceback, the error; all of it is in output.log
            outcome = EngineOutcome.RELEASED if broken else EngineOutcome.FAILED
            reason = f"It ended with exit code {ended.status}: {said}"
        elif lost or self.stopping.is_set():
            outcome, reason = EngineOutcome.RELEASED, (*lost, "Its runner was stopped.")[0]
        else:
            outcome, reason = EngineOutcome.FAILED, f"It {ended.exceeded}."
        end = partial(self.client.engines.end, processor_s=ended.processor_s, refused=relay.refused)
        try:
            retried(partial(end, session.id, outcome, reason), self.stopping)
        except SpeciateError as error:  # the run was deleted meanwhile, or its lease lapses: the other slots go on
            reason = f"{reason} The service refused this report: {error}".strip()
        self.report(session, outcome, reason)
        if broken:
            message = (
                f"engine {session.engine!r} failed before its first request, and its run was given back: {reason}."
            )
            raise SpeciateError(message, remedy=f"Mend its command or options. All it printed: {folder}/output.log")

    def _renew(self, session: EngineSession, relay: Relay) -> list[str]:
        """Renew the lease; return why the engine must stop, if it must."""
        try:
            lease = self.client.engines.renew(session.id, lease_s=self.lease_s)
        except UnavailableError:  # the next renewal tries again, or the lease lapses
            return []
        except ConflictError as error:
            return [str(error)]
        if lease.lease_until is None and lease.evaluations_left == 0:  # the last result is on its way to the engine
            relay.spent_at = relay.spent_at or time.monotonic()
        return [] if lease.lease_until is not None else [lease.reason or "The lease is lost."]
