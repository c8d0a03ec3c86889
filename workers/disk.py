"""Pausing runs before the disk of the embedded servers is full.

PostgreSQL stops altogether when it cannot extend its write-ahead log. A run that is paused while there is still some
space loses nothing and can be resumed.
"""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

from speciate.domain.errors import ConflictError
from speciate.domain.run import RunState
from speciate.storage.stores import Stores

_log = logging.getLogger(__name__)


def pause_when_full(stores: Stores, data_dir: Path, min_free_bytes: int) -> int:
    """Pause every running run when the embedded servers' disk has less than ``min_free_bytes`` left.

    Returns:
        Runs that were paused; 0 also where no embedded server keeps its data in ``data_dir``.
    """
    cluster = data_dir / "postgres"
    if not cluster.exists():
        return 0
    free = shutil.disk_usage(cluster).free
    if free >= min_free_bytes:
        return 0
    reason = (
        f"the disk is full: {free >> 20} MiB are left for {data_dir}, {min_free_bytes >> 20} MiB are needed."
        " Free space, then resume the run."
    )
    paused = 0
    while running := stores.runs.list(state=RunState.RUNNING).items:
        for run in running:
            try:
                stores.signals.committed(stores.runs.pause(run.id, reason, fault=True))
                paused += 1
            except ConflictError as error:
                _log.info("%s", error)
    if paused:
        _log.warning("paused %d runs: %s", paused, reason)
    return paused
