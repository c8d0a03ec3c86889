"""Where a candidate comes from."""

from __future__ import annotations

import heapq

from speciate.ports.records import CandidateDetail, CandidateRecord
from speciate.storage.queries import Queries


def ancestors(queries: Queries, candidate: CandidateDetail, limit: int) -> tuple[CandidateRecord, ...]:
    """Return at most ``limit`` ancestors of a candidate, newest first; each once, however often it was a parent."""
    # Numbers count up, so a parent's is below its child's and the largest waiting number is the nearest ancestor.
    waiting = [-number for number in set(candidate.parents)]
    heapq.heapify(waiting)
    seen = set(candidate.parents)
    found: list[CandidateRecord] = []
    while waiting and len(found) < limit:
        ancestor = queries.candidate_of(candidate.run_id, -heapq.heappop(waiting))
        found.append(CandidateRecord.model_validate(ancestor.model_dump()))
        for number in set(ancestor.parents) - seen:
            seen.add(number)
            heapq.heappush(waiting, -number)
    return tuple(found)
