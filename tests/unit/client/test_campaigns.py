"""Campaigns with both clients."""

from __future__ import annotations

from typing import Any

from speciate.schema.declarations import CampaignRecord, SliceRecord
from tests.unit.client.campaign_records import campaign, slice_record
from tests.unit.client.conftest import Ask
from tests.unit.client.fake_service import FakeService, page, say

PATH = "/v1/campaigns/sweep"


def test_campaign_create_get_steer(ask: Ask, service: FakeService) -> None:
    whole = campaign()
    record = CampaignRecord.model_validate(whole)
    service.on("POST", "/v1/campaigns", say(whole, 202))
    service.on("GET", "/v1/campaigns", page(whole))
    service.on("GET", PATH, say(whole))
    for action in ("pause", "resume", "cancel"):
        service.on("POST", f"{PATH}:{action}", say(whole))
    assert ask(lambda client: client.campaigns.create(record.declaration, idempotency_key="k")) == record
    assert service.requests[0].body == record.declaration.model_dump(mode="json")
    assert service.requests[0].headers["Idempotency-Key"] == "k"
    assert ask(lambda client: client.campaigns.create({"slug": "sweep"})) == record
    assert service.requests[1].headers["Idempotency-Key"] not in {"", "k"}
    assert ask(lambda client: client.campaigns.list(state="running")) == [record]
    assert service.requests[-1].query["state"] == ["running"]
    assert ask(lambda client: client.campaigns.get("sweep")) == record
    assert ask(lambda client: client.campaigns.pause("sweep", "lunch")) == record
    assert service.requests[-1].body == {"reason": "lunch"}
    assert ask(lambda client: client.campaigns.resume("sweep")) == record
    assert ask(lambda client: client.campaigns.cancel("sweep")) == record


def test_slices_are_paged(ask: Ask, service: FakeService) -> None:
    made: list[dict[str, Any]] = [slice_record(ord=ordinal) for ordinal in (3, 2, 1)]
    service.on("GET", f"{PATH}/slices", page(*made[:2], cursor="c"), page(made[2]))
    found = ask(lambda client: client.campaigns.slices("sweep"))
    assert found == [SliceRecord.model_validate(each) for each in made]
