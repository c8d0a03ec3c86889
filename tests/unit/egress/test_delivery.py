"""Deliveries to well-behaved and misbehaving receivers."""

from __future__ import annotations

import hashlib
import hmac
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from speciate.client import verify_webhook
from speciate.domain.webhook import GIVE_UP_AFTER_S, MAX_RETRY_DELAY_S, Webhook, WebhookEvent, retry_delay_s
from speciate.egress import transport
from speciate.egress.delivery import DeliveryResponse, send, signature
from speciate.egress.network import AllowedNetworks

BODY = json.dumps({"id": "1", "event": "test"}).encode()
HERE = AllowedNetworks(("loopback",))


class Receiver(ThreadingHTTPServer):
    daemon_threads = True
    status = 200
    said = b""
    headers: dict[str, str] = {}  # noqa: RUF012
    drip_s = 0.0

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.seen: list[tuple[dict[str, str], bytes]] = []

    def handle_error(self, *_: object) -> None: ...

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hook"


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.seen.append((dict(self.headers), body))
        self.send_response(self.server.status)
        for name, value in self.server.headers.items():
            self.send_header(name, value)
        for _ in range(1000 if self.server.drip_s else 0):
            self.send_header("X-Slow", "1")
            self.flush_headers()
            time.sleep(self.server.drip_s)
        self.end_headers()
        self.wfile.write(self.server.said)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    server = Receiver()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def sent(url: str, network: AllowedNetworks = HERE, **options: Any) -> DeliveryResponse:
    return send(url, BODY, {"Content-Type": "application/json"}, network, **options)


def test_any_success_status_counts_as_accepted(receiver: Receiver) -> None:
    for status in (200, 204, 299):
        receiver.status = status
        assert sent(receiver.url) == DeliveryResponse(True, status)
    assert [body for _, body in receiver.seen] == [BODY] * 3


def test_a_refusal_is_reported_in_a_thousand_bytes(receiver: Receiver) -> None:
    receiver.status, receiver.said = 500, b"\x1b[31m<script>\xff" + b"x" * 100_000
    answer = sent(receiver.url)
    assert (answer.taken, answer.status) == (False, 500)
    assert len(answer.error) < 1100


def test_a_redirection_is_not_followed(receiver: Receiver) -> None:
    receiver.status, receiver.headers = 307, {"Location": receiver.url}
    assert "not followed" in sent(receiver.url).error
    assert len(receiver.seen) == 1


def test_a_receiver_that_sends_headers_slowly_times_out(receiver: Receiver) -> None:
    receiver.drip_s = 0.05
    begun = time.monotonic()
    assert sent(receiver.url, timeout_s=0.5) == DeliveryResponse(False, None, "no answer within 0.5 s")
    assert time.monotonic() - begun < 3


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("http://127.0.0.1:1/", "the connection failed (ConnectError)"),
        ("http://missing.invalid/", "the connection failed (ConnectError)"),
        ("http://169.254.169.254/latest", "link-local"),
        ("http://10.0.0.1/", "SPECIATE_ALLOWED_NETWORKS"),
    ],
)
def test_an_unreachable_receiver_is_a_failed_attempt(url: str, told: str) -> None:
    answer = sent(url)
    assert not answer.taken
    assert told in answer.error


def test_a_signature_is_verified_as_documented() -> None:
    secret, now = "whsec_abc", int(time.time())
    header = signature(secret, now, BODY)
    expected = hmac.new(secret.encode(), f"{now}.".encode() + BODY, hashlib.sha256).hexdigest()
    assert header == f"t={now},v1={expected}"
    assert verify_webhook(secret, header, BODY)
    for wrong in (
        ("whsec_abd", header, BODY),
        (secret, header, BODY + b" "),
        (secret, header.replace(f"t={now}", f"t={now + 1}"), BODY),
        (secret, signature(secret, now - 301, BODY), BODY),
        (secret, "", BODY),
        (secret, "t=,v1=", BODY),
        (secret, f"t={now}", BODY),
        (secret, f"t={'9' * 5000},v1={expected}", BODY),
        (secret, f"t=²,v1={expected}", BODY),
    ):
        assert not verify_webhook(*wrong)


def test_retries_back_off_and_end_within_a_day() -> None:
    waits = [retry_delay_s(attempts, 1.0) for attempts in range(1, 30)]
    assert waits[0] == 5
    assert waits == sorted(waits)
    assert max(waits) == MAX_RETRY_DELAY_S
    assert retry_delay_s(1, 0.0) == 2.5
    assert 15 < sum(sum(waits[: i + 1]) < GIVE_UP_AFTER_S for i in range(len(waits))) < 30
    assert retry_delay_s(10**6, 0.5) <= MAX_RETRY_DELAY_S


@pytest.mark.parametrize(
    "changes", [{"url": "ftp://x"}, {"events": []}, {"events": ["test"]}, {"events": ["x"]}, {"description": "\x00"}]
)
def test_an_invalid_webhook_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="validation error"):
        Webhook.model_validate({"url": "https://x.example/"} | changes)
    twice = Webhook.model_validate({"url": "https://x.example/", "events": ["alarm", "alarm"]})
    assert twice.events == (WebhookEvent.ALARM,)


def test_certificates_that_cannot_be_read_are_an_error_of_the_delivery(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    transport.tls_context.cache_clear()
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere.pem")
    assert "SSL_CERT_FILE" in str(sent(receiver.url).error)
