"""Every module that queries runs leaves out deleted ones, or has a reason not to."""

from __future__ import annotations

import re
from pathlib import Path

_STORAGE = Path(__file__).parents[3] / "speciate" / "storage"
_QUERY = re.compile(r"\b(?:FROM|JOIN) runs\b")
_REASONS = {
    "candidates/population.sql": "reads one run",
    "candidates/queries.sql": "reads one run",
    "fragments.sql": "looks at a run that is running",
    "access/quotas.sql": "what was spent was spent",
    "runs/context.sql": "reads one run",
    "runs/queries.sql": "reads one run",
    "runs/retention.sql": "prunes deleted runs, too",
    "runs/records.sql": "reads one run, and filters the list by a condition that is passed",
    "runs/store.sql": "changes one run",
    "webhooks/queue.sql": "reads one run",
    "work/fairness.sql": "work belongs to runs that have not ended",
    "work/proposals.sql": "only ended runs are deleted, and these take no proposals",
    "work/waiting_runs.sql": "work belongs to runs that have not ended",
}


def test_every_query_of_runs_decides_on_deleted_ones() -> None:
    paths = [*_STORAGE.rglob("*.py"), *_STORAGE.rglob("*.sql")]
    texts = {str(path.relative_to(_STORAGE)): path.read_text() for path in paths}
    querying = {name: text for name, text in texts.items() if _QUERY.search(text)}
    undecided = {name for name, text in querying.items() if "deleted_at" not in text} - set(_REASONS)
    assert not undecided, "leave out deleted runs (deleted_at IS NULL), or give the reason here"
    assert set(_REASONS) <= set(querying)
