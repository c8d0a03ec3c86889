from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from speciate.client import Client
from speciate.domain.errors import ConfigurationError
from tests.unit.client.stand_in import RUN, StandIn, candidate_json, page, run_json, say


@pytest.fixture
def client(service: StandIn) -> Iterator[Client]:
    with Client(service.url) as made:
        yield made


def _run(client: Client, service: StandIn, **values: Any) -> Any:
    service.on("GET", f"/v1/runs/{RUN}", say(run_json(**values)))
    return client.runs.get(RUN)


def test_html_is_escaped(client: Client, service: StandIn) -> None:
    html = _run(client, service, alarm="<script>alert(1)</script>", best={"<b>": 1.0})._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert "best &lt;b&gt;" in html
    assert "40 of 100 evaluations" in html


def test_repr_says_where_the_run_is(client: Client, service: StandIn) -> None:
    assert repr(_run(client, service)) == f"<run {RUN} running: 40 of 100 evaluations>"


def test_without_pandas_the_message_says_how_to_get_it(
    client: Client, service: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)  # as if it were not installed
    service.on("GET", f"/v1/runs/{RUN}/candidates", page())
    with pytest.raises(ConfigurationError, match="pip install pandas"):
        _run(client, service).to_pandas()


def test_a_frame_has_a_row_for_each_candidate(client: Client, service: StandIn) -> None:
    service.on("GET", f"/v1/runs/{RUN}/candidates", page(candidate_json(2), candidate_json(1)))
    frame = _run(client, service).to_pandas()
    assert list(frame["number"]) == [1, 2]
    assert list(frame["reward.radius"]) == [1.0, 2.0]
