"""``speciate doctor`` checks the secret key against the sealed secrets and never shows a key."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from pydantic import SecretStr

from service.metrics import InstallationCollector, ServiceMetrics
from speciate.cli.doctor import service
from speciate.cli.doctor.findings import Finding, Status
from speciate.cli.doctor.secret_key import check_local_key
from speciate.domain.policy import Policy
from speciate.domain.webhook import Webhook
from speciate.settings import Settings
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
    return next(each for each in found if each.name == "service's secret key")


def _both(settings: Settings) -> tuple[Finding, Finding]:
    (here,) = check_local_key(settings)
    there = _remotely(settings)
    for finding in (here, there):
        assert OTHER not in str(finding)
        assert "a secret key of tests" not in str(finding)
    return here, there


def test_secret_key_is_checked_against_sealed_secrets(settings: Settings, stores: Stores) -> None:
    keyless = settings.model_copy(update={"secret_key": None})
    other = settings.model_copy(update={"secret_key": SecretStr(OTHER)})
    for each in (settings, keyless):
        assert {(f.status, f.detail) for f in _both(each)} == {(Status.GOOD, "no sealed secrets yet")}

    key_id = stores.policy_keys.new_id()
    stores.policy_keys.store(key_id, "sk-something")
    endpoint = {"kind": "openai_compatible", "base_url": "http://127.0.0.1:9/v1", "model": "m", "api_key_id": key_id}
    stores.catalog.add_policy(Policy.model_validate({"slug": "hosted", **endpoint}))
    webhook = stores.webhooks.add(Webhook(url="http://127.0.0.1:9/"))
    assert {(f.status, f.detail) for f in _both(settings)} == {(Status.GOOD, "decrypts all 2 sealed secrets")}

    here, there = _both(keyless)
    assert here.status == there.status == Status.BAD
    assert here.detail.startswith("SPECIATE_SECRET_KEY is not set, but 2 sealed secrets require it: the key of policy")
    assert there.detail.startswith("the API's SPECIATE_SECRET_KEY is not set, but 2 sealed secrets require it")
    assert f"hosted, webhook {webhook.id}" in here.detail
    assert "SPECIATE_SECRET_KEY_FILE" in here.remedy

    here, there = _both(other)
    assert here.status == there.status == Status.BAD
    assert here.detail.startswith("SPECIATE_SECRET_KEY does not decrypt 2 of 2 sealed secrets: the key of policy")
    assert there.detail.startswith("the API's SPECIATE_SECRET_KEY does not decrypt 2 of 2 sealed secrets")
    assert "SPECIATE_SECRET_KEY=new,old" in here.remedy
    assert "speciate secrets renew" in here.remedy


def test_key_file_of_a_data_directory_is_named(settings: Settings, stores: Stores, tmp_path: Path) -> None:
    stores.webhooks.add(Webhook(url="http://127.0.0.1:9/"))
    at_hand = settings.model_copy(update={"secret_key": None, "data_dir": tmp_path})
    file = tmp_path / "secret.key"
    file.write_text("a secret key of tests that is long enough\n")
    assert [each.status for each in check_local_key(at_hand)] == [Status.GOOD]
    file.write_text(OTHER)
    (found,) = check_local_key(at_hand)
    assert (found.status, str(file) in found.detail) == (Status.BAD, True)
    file.write_text("too-short-a-key")
    # With and without a database.
    for each in (at_hand, at_hand.model_copy(update={"database_url": None, "redis_url": None})):
        (found,) = check_local_key(each)
        assert found.status is Status.BAD
        assert f"the secret key in {file} cannot be used: expected one or several keys" in found.detail
        assert "backup" in found.remedy
        assert "too-short-a-key" not in str(found)


def test_outdated_schema_is_a_warning(settings: Settings, stores: Stores) -> None:
    with stores.engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE webhooks CASCADE")
    (found,) = check_local_key(settings)
    assert (found.status, found.remedy) == (Status.WARNING, "Run `speciate migrate`.")
