"""Guarded transports over real connections."""

from __future__ import annotations

import datetime as dt
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from speciate.egress import transport
from speciate.egress.network import AllowedNetworks, ForbiddenAddressError
from speciate.egress.transport import GuardedTransport, check_url
from tests.support.openai_endpoint import serve

HERE = AllowedNetworks(("loopback",))


class Names:
    """Consecutive answers of a name server; the last one repeats."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)
        self.asked = 0

    def __call__(self, _: str, __: int) -> list[str]:
        self.asked += 1
        return self.answers[min(self.asked, len(self.answers)) - 1]


def test_the_checked_address_is_used_under_the_host_name() -> None:
    with serve() as endpoint, httpx.Client(transport=GuardedTransport(HERE, resolve=Names(["127.0.0.1"]))) as client:
        url = endpoint.url.replace("127.0.0.1", "policy.test")
        assert client.get(f"{url}/models").status_code == 200
        assert endpoint.headers[0]["Host"].startswith("policy.test:")


def test_a_name_that_resolves_differently_later_is_checked_again() -> None:
    """The check before connecting decides, whatever the check at registration found."""
    with serve() as endpoint:
        names = Names(["8.8.8.8"], ["127.0.0.1"])
        url = endpoint.url.replace("127.0.0.1", "rebinding.test")
        assert check_url(url, AllowedNetworks(), resolve=names) is None
        client = httpx.Client(transport=GuardedTransport(AllowedNetworks(), resolve=names))
        with client, pytest.raises(ForbiddenAddressError, match=r"rebinding\.test"):
            client.get(f"{url}/models")
        assert endpoint.headers == []


def test_the_name_is_not_resolved_again_after_the_check() -> None:
    with serve() as endpoint:
        names = Names(["127.0.0.1"], ["169.254.169.254"])
        with httpx.Client(transport=GuardedTransport(HERE, resolve=names)) as client:
            assert client.get(f"{endpoint.url.replace('127.0.0.1', 'policy.test')}/models").status_code == 200
        assert names.asked == 1


def test_the_first_address_that_accepts_is_used() -> None:
    """``localhost`` resolves to ::1 first on most machines, and vLLM listens on 127.0.0.1."""
    with serve() as endpoint:
        url = f"{endpoint.url.replace('127.0.0.1', 'policy.test')}/models"
        both = Names(["::1", "127.0.0.1"])
        with httpx.Client(transport=GuardedTransport(HERE, resolve=both)) as client:
            assert [client.get(url).status_code for _ in range(2)] == [200, 200]
        mixed = Names(["::1", "10.0.0.1"])
        with httpx.Client(transport=GuardedTransport(HERE, resolve=mixed)) as client, pytest.raises(httpx.ConnectError):
            client.get(url)


def test_a_redirection_is_not_followed() -> None:
    with serve() as endpoint, httpx.Client(transport=GuardedTransport(HERE)) as client:
        endpoint.misbehave = lambda _: (307, {"Location": "http://169.254.169.254/latest/meta-data"}, b"")
        assert client.get(f"{endpoint.url}/models").status_code == 307


@pytest.mark.parametrize("host", ["2130706433", "0x7f.1", "[::ffff:127.0.0.1]", "localhost", "127.1"])
def test_every_spelling_of_this_machine_is_refused(host: str) -> None:
    with serve() as endpoint, httpx.Client(transport=GuardedTransport(AllowedNetworks())) as client:
        with pytest.raises(ForbiddenAddressError):
            client.get(f"{endpoint.url.replace('127.0.0.1', host)}/models")
        assert endpoint.headers == []


def test_a_name_without_an_address_is_a_failed_connection() -> None:
    with httpx.Client(transport=GuardedTransport(AllowedNetworks())) as client, pytest.raises(httpx.ConnectError):
        client.get("http://missing.invalid/")


@pytest.mark.parametrize(
    ("url", "wrong"),
    [
        ("http://example.org:0/", "invalid URL"),
        ("https://8.8.8.8/v1", None),
        ("http://missing.invalid/v1", None),
        ("http://10.0.0.1:8000/v1", "private"),
        ("http://user:pw@8.8.8.8/v1", "password"),
        ("http://user@8.8.8.8/v1", "password"),
        ("ftp://8.8.8.8/", "invalid URL"),
        ("http://", "invalid URL"),
        ("http:///v1", "invalid URL"),
        ("http://[::1/", "invalid URL"),
        ("http://8.8.8.8:99999/", "invalid URL"),
        ("http://8.8.8.8\\@10.0.0.1/", "password"),
        ("http://0177.0.0.1/", "invalid URL"),
        ("http://\u24db\u24de\u24d2\u24d0\u24db\u24d7\u24de\u24e2\u24e3/", "invalid URL"),
        ("http://127.0.0.1%23.example.com/", None),
    ],
)
def test_urls_that_users_submit(url: str, wrong: str | None) -> None:
    found = check_url(url, AllowedNetworks())
    assert (found is None) if wrong is None else (wrong in (found or "nothing is wrong"))


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for policy.test, with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "policy.test")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("policy.test")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    plain = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path.write_bytes(key.private_bytes(*plain) + made.public_bytes(serialization.Encoding.PEM))
    return path


@pytest.fixture
def tls_port(certificate: Path) -> Iterator[int]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Handler)
    server.handle_error = lambda *_: None  # type: ignore[method-assign,assignment]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server.server_port
    server.shutdown()
    server.server_close()
    thread.join()


def test_certificates_of_the_environment_are_trusted(
    certificate: Path, tls_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    monkeypatch.setattr(transport, "tls_context", transport.tls_context.__wrapped__)
    with httpx.Client(transport=GuardedTransport(HERE, resolve=Names(["127.0.0.1"]))) as client:
        assert client.get(f"https://policy.test:{tls_port}/").status_code == 204
    assert transport.tls_context().cert_store_stats()["x509_ca"] > 1  # the public ones, too


def test_the_certificate_has_to_be_for_the_name(certificate: Path, tls_port: int) -> None:
    context = ssl.create_default_context(cafile=str(certificate))
    guarded = GuardedTransport(HERE, resolve=Names(["127.0.0.1"]), verify=context)
    with httpx.Client(transport=guarded) as client:
        assert client.get(f"https://policy.test:{tls_port}/").status_code == 204
        with pytest.raises(httpx.ConnectError) as caught:
            client.get(f"https://another.test:{tls_port}/")
    assert "Hostname mismatch" in str(transport.refused_certificate(caught.value))
