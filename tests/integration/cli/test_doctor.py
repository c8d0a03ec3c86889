"""``speciate doctor`` checks the schema, and the secret key against the sealed secrets; it never shows a key."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import sqlalchemy as sa
from pydantic import SecretStr

from service.metrics import InstallationCollector, ServiceMetrics
from speciate.cli.doctor import machine, service
from speciate.cli.doctor.findings import Finding, Status, run_check
from speciate.domain.policy import Policy
from speciate.domain.webhook import Webhook
from speciate.settings import Settings
from speciate.storage.migrate import NEWEST_REVISION
from speciate.storage.stores import Stores, open_stores

pytestmark = pytest.mark.servers

OTHER = "o" * 40


def _remotely(settings: Settings) -> Finding:
    """Return the secret key finding from the metrics of an API with these settings."""
    assert settings.database_url is not None
    stores, metrics = open_stores(settings), ServiceMetrics()
    collector = InstallationCollector(stores, settings.database_url.get_secret_value(), stall_s=900, streams=lambda: 0)
    metrics.watch(collector)
    answer = SimpleNamespace(status_code=200, text=metrics.text().decode())
    found = list(service._work(SimpleNamespace(get=lambda _: answer)))
    metrics.forget(collector)
    stores.close()
    return next(each for each in found if each.name == "secret key")


@pytest.mark.parametrize(
    ("revision", "status", "detail", "remedy"),
    [
        (NEWEST_REVISION, Status.GOOD, f", schema {NEWEST_REVISION}", ""),
        ("9000", Status.WARNING, ", schema 9000", "upgrade Speciate"),
        ("0001", Status.BAD, "revision 0001 of an unreleased version", "Use another database."),
    ],
)
def test_the_schema_is_one_that_this_version_works_with(
    settings: Settings, stores: Stores, revision: str, status: Status, detail: str, remedy: str
) -> None:
    with stores.engine.begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = :to"), {"to": revision})
    finding = run_check("postgres", machine.postgres, settings)
    assert finding.status is status
    assert detail in finding.detail
    assert remedy in finding.remedy


def test_secret_key_is_checked_against_sealed_secrets(settings: Settings, stores: Stores) -> None:
    keyless = settings.model_copy(update={"secret_key": None})
    other = settings.model_copy(update={"secret_key": SecretStr(OTHER)})
    for each in (settings, keyless):
        finding = _remotely(each)
        assert (finding.status, finding.detail) == (Status.GOOD, "no sealed secrets yet")

    key_id = stores.policy_keys.new_id()
    stores.policy_keys.store(key_id, "sk-something")
    endpoint = {"kind": "openai_compatible", "base_url": "http://127.0.0.1:9/v1", "model": "m", "api_key_id": key_id}
    stores.catalog.add_policy(Policy.model_validate({"slug": "hosted", **endpoint}))
    stores.webhooks.add(Webhook(url="http://127.0.0.1:9/"))
    assert _remotely(settings).detail == "decrypts all 2 sealed secrets"

    # Without a service, the command looks into the database itself.
    assert [each.detail for each in machine.secret_key(settings)] == ["decrypts all 2 sealed secrets"]
    for secret_key, reason in (
        (None, "is not set, but 2 sealed"),
        (other.secret_key, "does not decrypt 2 of 2 sealed"),
    ):
        (finding,) = machine.secret_key(settings.model_copy(update={"secret_key": secret_key}))
        assert finding.status is Status.BAD
        assert finding.detail.startswith(f"SPECIATE_SECRET_KEY {reason} secrets")

    absent, wrong = _remotely(keyless), _remotely(other)
    assert absent.status == wrong.status == Status.BAD
    assert absent.detail.startswith("SPECIATE_SECRET_KEY of the API is not set, but 2 sealed secrets require it")
    assert "SPECIATE_SECRET_KEY_FILE" in absent.remedy
    assert wrong.detail.startswith("SPECIATE_SECRET_KEY of the API does not decrypt 2 of 2 sealed secrets")
    assert "SPECIATE_SECRET_KEY=new,old" in wrong.remedy
    assert OTHER not in str(wrong)
