from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from speciate.client import Client
from speciate.domain.errors import ConfigurationError
from tests.unit.client.fake_service import RUN, FakeService, candidate_json, page, run_json, say


@pytest.fixture
def client(service: FakeService) -> Iterator[Client]:
    with Client(service.url) as made:
        yield made


def _run(client: Client, service: FakeService, **values: Any) -> Any:
    service.on("GET", f"/v1/runs/{RUN}", say(run_json(**values)))
    return client.runs.get(RUN)


def test_html_is_escaped(client: Client, service: FakeService) -> None:
    html = _run(client, service, alarm="<script>alert(1)</script>", best={"<b>": 1.0})._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert "best &lt;b&gt;" in html
    assert "40 of 100 evaluations" in html


def test_repr_shows_progress(client: Client, service: FakeService) -> None:
    assert repr(_run(client, service)) == f"<run {RUN} running: 40 of 100 evaluations>"


def test_missing_pandas_has_a_remedy(client: Client, service: FakeService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)  # as if it were not installed
    service.on("GET", f"/v1/runs/{RUN}/candidates", page())
    with pytest.raises(ConfigurationError, match="pip install pandas"):
        _run(client, service).to_pandas()


def test_frame_has_a_row_per_candidate(client: Client, service: FakeService) -> None:
    service.on("GET", f"/v1/runs/{RUN}/candidates", page(candidate_json(2), candidate_json(1)))
    frame = _run(client, service).to_pandas()
    assert list(frame["number"]) == [1, 2]
    assert list(frame["reward.radius"]) == [1.0, 2.0]
