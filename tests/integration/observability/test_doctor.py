"""``speciate doctor`` checks a service as if it ran on another machine."""

from __future__ import annotations

import json

import pytest

from speciate import __version__
from speciate.cli.app import app
from speciate.cli.doctor import service as service_checks
from speciate.cli.errors import ExitCode
from tests.integration.observability.conftest import TOKEN, Deployment

pytestmark = pytest.mark.servers


def _doctor(capfd: pytest.CaptureFixture[str], url: str, *, code: int) -> dict[str, dict[str, str]]:
    with pytest.raises(SystemExit) as ended:
        app(["--url", url, "doctor", "--service-only", "--json"], prog_name="speciate")
    out = capfd.readouterr().out
    assert (int(ended.value.code or 0), TOKEN in out) == (code, False)
    return {each["name"]: each for each in json.loads(out)["checks"]}


def test_every_check_is_reported_with_its_remedy(
    deployment: Deployment, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECIATE_TOKEN", TOKEN)
    url = deployment.stack.settings.base_url
    found = _doctor(capfd, url, code=ExitCode.OK)
    assert {each["status"] for each in found.values()} == {"good"}, found
    assert {"api", "postgresql", "redis", "clock", "tiers", "work", "reconciler", "runs"} <= set(found)
    assert found["policy mutator"]["detail"] == "responds"
    assert {f"queue {queue}" for queue in ("generate", "evaluate", "retry", "control")} <= set(found)
    assert found["tiers"]["detail"].startswith("evaluate@")
    assert not {"data", "sandbox", "kernel"} & set(found)

    with monkeypatch.context() as other:
        other.setattr(service_checks, "__version__", "9.9")
        other.setattr(service_checks, "MAX_SKEW_S", -1.0)
        found = _doctor(capfd, url, code=ExitCode.OK)
    assert found["api"]["status"] == found["clock"]["status"] == found["versions"]["status"] == "warning"
    assert __version__ in found["api"]["detail"]
    assert all(found[name]["remedy"] for name in ("api", "clock", "versions"))

    monkeypatch.setenv("SPECIATE_TOKEN", "another")
    refused = _doctor(capfd, url, code=ExitCode.FAILED)
    assert (refused["api"]["status"], refused["access"]["status"]) == ("good", "bad")

    found = _doctor(capfd, "http://127.0.0.1:1", code=ExitCode.FAILED)
    assert found["api"]["status"] == "bad"
