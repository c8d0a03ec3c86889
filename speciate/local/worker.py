"""Execute work units in threads of this process, as the workers of a service do in theirs."""

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Final, cast
from uuid import UUID

from sqlalchemy.exc import SQLAlchemyError

from speciate import __version__
from speciate.domain.capabilities import IMAGE_CAPABILITIES
from speciate.domain.errors import ConflictError, SpeciateError
from speciate.domain.known_languages import LANGUAGE_PROGRAMS
from speciate.local.ownership import FOLDER, OwnRuns, take_left_behind
from speciate.local.sandbox import LocalSandbox
from speciate.local.slots import ThreadSlots
from speciate.messaging.memory import MemoryRedis
from speciate.messaging.presence import WORKER_KEY_PREFIX
from speciate.messaging.replays import TASK as REPLAY
from speciate.messaging.seed_checks import TASK as CHECK_SEED
from speciate.ports.runs import NewRun
from speciate.ports.work import Commit, Queue, WorkKind, WorkRef
from speciate.schema.runs import WorkerProcess
from speciate.settings import Settings
from speciate.storage.runs.store import PostgresRunStore
from speciate.storage.stores import Messages, Stores, open_stores
from speciate.storage.work.reconciler import abandon, beat, exclude_downtime
from workers.composition import UnitWorker
from workers.reconciler import pause_when_full, recover

_PASS_S: Final = 1.0
_DRAIN_S: Final = 3.0
"""Most seconds for work in progress when the process ends: the user waits."""
_INTERRUPTION_S: Final = 1.0
_TOOLS: Final = LANGUAGE_PROGRAMS | IMAGE_CAPABILITIES
_log = logging.getLogger(__name__)


class LocalSignals:
    """Hands the units that commits make ready to the worker, and wakes event streams. A ``CommitListener``."""

    def __init__(self, own: OwnRuns) -> None:
        self.own = own
        self.wake: Callable[[UUID], None] = lambda _: None
        self.send: Callable[[WorkRef], None] = lambda _: None

    def committed(self, commit: Commit) -> None:
        """Queue the units of a commit, if this process executes its run: another process finds them by itself."""
        if commit.last_event:
            self.wake(commit.run_id)
        for ref in commit.dispatch if commit.run_id in self.own.ids else ():
            self.send(ref)


@dataclass
class LocalRunStore(PostgresRunStore):
    """Adopts the runs that it starts or resumes."""

    adopt: Callable[[UUID], None] = field(kw_only=True)

    def launch(self, new: NewRun) -> tuple[UUID, bool, Commit | None]:
        run_id, is_new, commit = super().launch(new)
        if is_new:
            self.adopt(run_id)
        return run_id, is_new, commit

    def resume(self, run_id: UUID) -> Commit:
        commit = super().resume(run_id)
        self.adopt(run_id)
        return commit


class _Tasks:
    """The part of Celery that sends tasks."""

    send: Callable[[str, str], None]

    def send_task(self, name: str, *, args: Sequence[str], queue: str, ignore_result: bool) -> None:  # noqa: ARG002
        self.send(name, *args)

    def close(self) -> None:
        """Keep nothing open."""


def open_local_stores(settings: Settings, signals: LocalSignals) -> Stores:
    stores = open_stores(settings, messages=Messages(cast("Any", MemoryRedis()), cast("Any", _Tasks()), signals))
    return replace(stores, runs=LocalRunStore(stores.engine, adopt=signals.own.add))


class LocalWorker:
    """Executes the units of the runs of this process, and recovers those whose lease expires."""

    def __init__(self, settings: Settings, stores: Stores, signals: LocalSignals, sandbox: LocalSandbox) -> None:
        self._settings, self._stores, self._signals = settings, stores, signals
        self._folder = settings.data_dir / FOLDER
        self._sandbox = sandbox
        nice = settings.work_nice
        self._generate = ThreadSlots("generate", settings.generate_slots, nice=nice)
        self._evaluate = ThreadSlots("evaluate", settings.slots, nice=nice)
        self._waiting: set[UUID] = set()
        self._opening = threading.Thread(target=self._announce, name="sandbox", daemon=True)
        self._stopping = threading.Event()
        signals.send = self._send
        cast("Any", stores.celery).send = self._send_task

    def start(self, *, warm: bool) -> None:
        """Recover and reconcile in the background; ``warm`` opens the sandbox, which the first unit does otherwise."""
        self.recover()
        self._list(tools=tuple(_TOOLS))  # an evaluation says what is missing, until it is known
        threading.Thread(target=self._reconcile, name="reconciler", daemon=True).start()
        if warm:
            self._open()

    def recover(self) -> None:
        """Pause the runs of killed processes: they must not spend again by themselves."""
        for run_ids, alive_at in take_left_behind(self._folder):
            abandon(self._stores.engine, run_ids, alive_at)
            self._pause(run_ids, "its command was killed")
            self._stores.work.reconcile(run_ids)

    def stop(self, reason: str) -> None:
        """Pause the unfinished runs of this process, finish what is in progress or release it."""
        self._stopping.set()
        for slots in (self._generate, self._evaluate):
            slots.stop()
        self._pause(self._signals.own.ids, reason)
        deadline = time.monotonic() + min(self._settings.drain_s, _DRAIN_S)
        if not (self._evaluate.join(deadline) and self._generate.join(deadline)):
            self._worker.keeper.interrupt()
            self._generate.join(time.monotonic() + _INTERRUPTION_S)
            with suppress(SQLAlchemyError):  # they expire
                self._stores.work.expire_leases(self._worker.keeper.leases())
                self._stores.work.reconcile(self._signals.own.ids)  # whoever resumes the runs finds their units ready
        self._worker.keeper.close()
        self._worker.counters.close()
        self._sandbox.close()

    def _pause(self, run_ids: Sequence[UUID], reason: str) -> None:
        for run_id in run_ids:
            try:
                self._signals.committed(self._stores.runs.pause(run_id, reason))
            except ConflictError:
                continue  # it has ended or is paused
            except (SpeciateError, SQLAlchemyError) as error:
                self._signals.own.ended = False
                _log.warning("run %s could not be paused: %s", run_id, error)

    @cached_property
    def _worker(self) -> UnitWorker:
        return UnitWorker(self._settings, self._stores, self._sandbox)

    def _send(self, ref: WorkRef) -> None:
        """Queue a unit unless it waits already."""
        self._open()
        if ref.id in self._waiting:
            return
        self._waiting.add(ref.id)
        (self._generate if ref.kind is WorkKind.GENERATE else self._evaluate).put(partial(self._execute, ref.id))

    def _execute(self, work_id: UUID) -> None:
        self._waiting.discard(work_id)
        self._worker.executor.execute(work_id)

    def _send_task(self, name: str, argument: str) -> None:
        self._evaluate.put(partial({REPLAY: self._replay, CHECK_SEED: self._check_seed}[name], argument))

    def _replay(self, candidate_id: str) -> None:
        candidate = self._stores.queries.candidate(UUID(candidate_id))
        self._worker.replay(candidate)
        self._signals.wake(candidate.run_id)

    def _check_seed(self, key: str) -> None:
        self._worker.check_seed(key, "local", self._sandbox.sandbox().can_evaluate)

    def _open(self) -> None:
        with suppress(RuntimeError):  # started before
            self._opening.start()

    def _announce(self) -> None:
        with suppress(SpeciateError):  # the first evaluation reports it
            sandbox = self._sandbox.sandbox()
            self._list(tier=sandbox.tier, languages=sandbox.languages(), tools=sandbox.capabilities(_TOOLS))

    def _list(self, *, tools: tuple[str, ...], tier: str = "", languages: dict[str, str] | None = None) -> None:
        """List this process as a worker; pages and seed checks read that."""
        worker = WorkerProcess(
            name="local",
            pid=os.getpid(),
            version=__version__,
            queues=(Queue.EVALUATE.value, Queue.GENERATE.value),
            slots=self._settings.slots,
            tier=tier,
            tools=tools,
            languages=languages or {},
        )
        self._stores.redis.set(WORKER_KEY_PREFIX + worker.name, worker.model_dump_json())

    def _reconcile(self) -> None:
        while not self._stopping.wait(_PASS_S):
            try:
                self._one_pass()
            except Exception:  # noqa: BLE001 - without it lost work is never recovered
                _log.exception("the reconciler failed and retries")

    def _one_pass(self) -> None:
        self._signals.own.show_life()
        self.recover()
        if not (own := self._signals.own.ids):
            return
        exclude_downtime(self._stores.engine, own)  # the sleep of the computer
        with self._stores.engine.begin() as connection:
            beat(connection, local=True)
        recover(self._stores, lambda: self._worker.counters, own)
        pause_when_full(self._stores, self._settings.data_dir, self._settings.min_free_bytes)
