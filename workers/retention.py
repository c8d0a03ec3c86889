"""Delete old data once an hour: texts of ended runs, deleted objects, entries of the audit log, and environments."""

from __future__ import annotations

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
        steps: list[Callable[[], object]] = []
        if environments is not None:
            steps.append(partial(prune_environments, environments))
        if purge_days:
            steps.append(partial(purge_deleted, stores, purge_days))
        if retain_days is not None:
            steps.append(partial(prune_runs, stores, retain_days))
        if audit_days:
            steps.append(partial(prune_audit_log, stores, audit_days))
        due = self._last is None or time.monotonic() - self._last >= _INTERVAL_S
        if steps and due and (self._thread is None or not self._thread.is_alive()):
            self._last = time.monotonic()
            self._thread = threading.Thread(target=_pass, args=(steps,), name="retention", daemon=True)
            self._thread.start()


def _pass(steps: Sequence[Callable[[], object]]) -> None:
    for step in steps:  # one that fails does not hold up the others
        try:
            step()
        except SpeciateError as error:
            _log.warning("pruning failed and is repeated in an hour: %s", error)
        except Exception:  # noqa: BLE001 - the boundary of a thread: logged, and repeated in an hour
            _log.exception("pruning failed unexpectedly and is repeated in an hour")


def prune_environments(environments: EnvironmentStore) -> int:
    removed = environments.prune()
    if removed:
        _log.warning("removed %d unused environments of problems", removed)
    return removed


def prune_audit_log(stores: Stores, audit_days: float) -> int:
    deleted = stores.audit.delete_old(datetime.now(UTC) - timedelta(days=audit_days), "retention")
    if deleted:
        _log.warning("deleted %d entries of the audit log older than %g days", deleted, audit_days)
    return deleted


def purge_deleted(stores: Stores, purge_days: float) -> int:
    purge, now = PurgeStore(stores.engine), datetime.now(UTC)
    before = now - timedelta(days=purge_days)
    removed = purge.purge(before, now, "retention")
    if removed:
        _log.warning("removed %d runs, problems and policies deleted more than %g days ago", removed, purge_days)
    return removed


def prune_runs(stores: Stores, retain_days: float) -> int:
    retention, now = RetentionStore(stores.engine), datetime.now(UTC)
    runs = retention.prunable(now - timedelta(days=retain_days), (*UNSUCCESSFUL, RunState.COMPLETED))
    retention.prune(runs, now)
    if runs:
        _log.warning("pruned %d runs that ended more than %g days ago", len(runs), retain_days)
    return len(runs)
