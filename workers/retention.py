"""Delete old data once an hour: texts of ended runs, deleted objects, entries of the audit log, and environments."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

from evaluators.environments import EnvironmentStore
from speciate.domain.errors import SpeciateError
from speciate.domain.run import RunState
from speciate.storage.runs.purge import PurgeStore
from speciate.storage.runs.retention import UNSUCCESSFUL, RetentionStore
from speciate.storage.stores import Stores

_INTERVAL_S: Final = 3600.0
_Step = tuple[Callable[[], int], str]
"""Removes something; returns the number of things, which the text describes."""

_log = logging.getLogger(__name__)


class RetentionJob:
    """Run each pass in a thread of its own: a pass may take minutes, and the reconciler must not wait."""

    def __init__(self) -> None:
        self._last: float | None = None
        self._thread: threading.Thread | None = None

    def run(
        self,
        stores: Stores,
        retain_days: float | None,
        audit_days: float,
        purge_days: float,
        environments: EnvironmentStore | None = None,
    ) -> None:
        """Start a pass if one is due. Two concurrent passes, after a leader election, do no harm."""
        steps: list[_Step] = []
        now = datetime.now(UTC)
        if environments is not None:
            steps.append((environments.prune, "unused environments of problems"))
        if purge_days:
            deleted = f"runs, problems and policies deleted more than {purge_days:g} days ago"
            steps.append((partial(purge_deleted, stores, purge_days), deleted))
        if retain_days is not None:
            ended = f"runs (their texts) that ended more than {retain_days:g} days ago"
            steps.append((partial(prune_runs, stores, retain_days), ended))
        if audit_days:
            old, before = f"entries of the audit log older than {audit_days:g} days", now - timedelta(days=audit_days)
            steps.append((partial(stores.audit.delete_old, before, "retention"), old))
        due = self._last is None or time.monotonic() - self._last >= _INTERVAL_S
        if steps and due and (self._thread is None or not self._thread.is_alive()):
            self._last = time.monotonic()
            self._thread = threading.Thread(target=_pass, args=(steps,), name="retention", daemon=True)
            self._thread.start()


def _pass(steps: Sequence[_Step]) -> None:
    for remove, what in steps:  # one that fails does not hold up the others
        try:
            if removed := remove():
                _log.warning("removed %d %s", removed, what)
        except SpeciateError as error:
            _log.warning("pruning failed and is repeated in an hour: %s", error)
        except Exception:  # noqa: BLE001 - the boundary of a thread: logged, and repeated in an hour
            _log.exception("pruning failed unexpectedly and is repeated in an hour")


def purge_deleted(stores: Stores, purge_days: float) -> int:
    now = datetime.now(UTC)
    return PurgeStore(stores.engine).purge(now - timedelta(days=purge_days), now, "retention")


def prune_runs(stores: Stores, retain_days: float) -> int:
    retention, now = RetentionStore(stores.engine), datetime.now(UTC)
    runs = retention.prunable(now - timedelta(days=retain_days), (*UNSUCCESSFUL, RunState.COMPLETED))
    retention.prune(runs, now)
    return len(runs)
