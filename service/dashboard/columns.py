"""Candidates of runs as columns, kept by this process and read on from the last booking."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from speciate.storage.series import Columns, Series

_RUNS: Final = 16


@dataclass
class ColumnCache:
    """Columns of the runs that were asked about last."""

    series: Series
    _kept: OrderedDict[UUID, Columns] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, run_id: UUID, dimensions: int) -> Columns:
        """Return all candidates of a run, of which only those that are new are read."""
        with self._lock:
            held = self._kept.get(run_id)
        if held is None:
            found = self.series.columns(run_id, dimensions)
        else:
            found = held.followed_by(self.series.columns(run_id, dimensions, after=held.last))
        with self._lock:
            newest = self._kept.get(run_id)
            # Somebody else may have read further meanwhile.
            if newest is None or newest.last <= found.last:
                self._kept[run_id] = found
            self._kept.move_to_end(run_id)
            while len(self._kept) > _RUNS:
                self._kept.popitem(last=False)
        return found
