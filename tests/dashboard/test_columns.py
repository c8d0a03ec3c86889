"""The columns of the charts equal the candidates' records."""

from __future__ import annotations

import numpy as np
import pytest

from speciate.storage.candidates.arrays import ArrayReader
from tests.dashboard.conftest import Site

pytestmark = pytest.mark.servers


@pytest.mark.parametrize("name", ["done", "doomed", "cases", "empty"])
def test_columns_equal_the_records(name: str, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id = getattr(site, name)
    run = site.stores.runs.get(run_id)
    names = site.stores.catalog.problem(run.problem_id).definition.space.names
    # Several queries, as for a run with millions of candidates.
    monkeypatch.setattr("speciate.storage.candidates.arrays._MOST_BYTES", 20_000)
    columns = ArrayReader(site.stores.engine).arrays(run_id, len(names))
    records = site.stores.queries.candidates(run_id, limit=500).items
    assert len(columns) == len(records) == run.candidates
    place = {number: row for row, number in enumerate(columns.number.tolist())}
    for record in records:
        row = place[record.number]
        expected = [(record.rewards or {}).get(objective, np.nan) for objective in names]
        np.testing.assert_array_equal(columns.rewards[row], expected)
        assert columns.parent[row] == (record.parents or (0,))[0]
        assert columns.island[row] == record.island
        assert columns.seed[row] == (record.role.value == "seed")
        assert columns.duplicate[row] == (record.duplicate_of is not None)
        assert columns.failure[row].partition(":")[0] == (record.failure.value if record.failure else "")
        assert columns.at[row] == pytest.approx(record.created_at.timestamp())
    assert (np.diff(columns.evaluations) > 0).all()
