"""Labels of runs with both clients."""

from __future__ import annotations

from typing import Any

import pytest

from speciate.domain.errors import InvalidInputError
from tests.unit.client.conftest import Ask
from tests.unit.client.fake_service import RUN, FakeService, page, run_json, say


def test_given_labels_are_sent_with_a_run(ask: Ask, service: FakeService) -> None:
    service.on("POST", "/v1/runs", say(run_json(), 202))
    ask(lambda client: client.runs.create("packing", "m", budget=5))
    ask(lambda client: client.runs.create("packing", "m", budget=5, name="n", tags=["a", "b"], note="why"))
    plain, labelled = (request.body for request in service.requests)
    assert not {"name", "tags", "note"} & plain.keys()
    assert {name: labelled[name] for name in labelled.keys() - plain.keys()} == {
        "name": "n",
        "tags": ["a", "b"],
        "note": "why",
    }


def test_only_changed_labels_are_sent(ask: Ask, service: FakeService) -> None:
    service.on("GET", f"/v1/runs/{RUN}", say(run_json(name="old")))
    service.on("PATCH", f"/v1/runs/{RUN}", say(run_json(name="new")))
    changes: tuple[dict[str, Any], ...] = (
        {"name": "new"},
        {"name": "", "tags": []},
        {"add_tags": ["a"], "remove_tags": ["b"]},
        {"note": "why"},
    )
    for change in changes:
        record = ask(lambda client: client.runs.get(RUN), lambda run, change=change: run.label(**change))
        assert record.name == "new"
        assert (service.requests[-1].method, service.requests[-1].body) == ("PATCH", change)
    # One tag is not taken for its letters.
    ask(lambda client: client.runs.get(RUN), lambda run: run.label(add_tags="baseline"))
    assert service.requests[-1].body == {"add_tags": ["baseline"]}


def test_list_filters_by_tags_and_name(ask: Ask, service: FakeService) -> None:
    service.on("GET", "/v1/runs", page(run_json(), cursor="next"), page(run_json()))
    assert len(ask(lambda client: client.runs.list(tags=["a", "b:c"], name="is 1"))) == 2
    for request in service.requests:
        assert (request.query["tag"], request.query["name"]) == (["a", "b:c"], ["is 1"])


def test_invalid_labels_are_rejected_before_sending(ask: Ask, service: FakeService) -> None:
    for values in ({"name": "two\nlines"}, {"tags": ["two words"]}, {"note": "x" * 4001}):
        with pytest.raises(InvalidInputError):
            ask(lambda client, values=values: client.runs.create("packing", "m", budget=5, **values))
    assert service.requests == []
