"""``speciate alphaevolve``: answer the published client of Google's AlphaEvolve API."""

from __future__ import annotations

import datetime as dt
import ipaddress
import json
import secrets
import socket
from pathlib import Path
from typing import Annotated, Final

import typer
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from speciate.cli import output
from speciate.cli.common import PROJECT_FLAG, URL_FLAG, DataDir, client, command_group, examples
from speciate.cli.serve import serve_on
from speciate.cli.up import StopRequested, stop_on_signals
from speciate.client import AsyncClient
from speciate.compat.alphaevolve import AlphaEvolveService
from speciate.domain.policy import MUTATOR
from speciate.embedded.placement import write_private
from speciate.settings import load_settings

app = command_group()

_FOLDER: Final = "alphaevolve"
_VALID: Final = dt.timedelta(days=365)


@app.command(
    "alphaevolve",
    epilog=examples(
        "speciate alphaevolve",
        "speciate alphaevolve --policy qwen --port 8443",
        "set -a; . ~/.local/share/speciate/alphaevolve/env; set +a; python -m examples.tsp.src.run_evolution",
    ),
)
def alphaevolve_command(
    ctx: typer.Context,
    policy: Annotated[
        str, typer.Option("--policy", "-p", help="Policy that proposes, unless one has the name of a requested model.")
    ] = MUTATOR,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of 127.0.0.1; 0 selects a free one.")] = 8443,
    data_dir: DataDir = None,
) -> None:
    """Answer Google's AlphaEvolve client with this service, until Ctrl-C.

    An experiment of that client becomes a problem with external evaluation and a run: its own workers evaluate, a
    policy of this service proposes. The client requires HTTPS and Google credentials: the command creates a certificate
    for 127.0.0.1 and a file of credentials that only it accepts, and prints the variables to set.
    """
    with client(ctx) as service:
        service.policies.get(policy)  # a missing policy is reported before any experiment starts
    flags = ctx.find_root().obj or {}
    folder = (data_dir or load_settings().data_dir) / _FOLDER
    token = secrets.token_urlsafe(32)
    facade = AlphaEvolveService(
        lambda: AsyncClient(flags.get(URL_FLAG), project=flags.get(PROJECT_FLAG)), policy, token
    )
    with socket.create_server(("127.0.0.1", port)) as listener:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        certificate, key = _write_certificate(folder)
        variables = {
            "BASE_URL": f"https://127.0.0.1:{listener.getsockname()[1]}",
            "REQUESTS_CA_BUNDLE": str(certificate),
            "GOOGLE_APPLICATION_CREDENTIALS": str(_write_credentials(folder, token)),
            "GOOGLE_CLOUD_PROJECT": "speciate",
        }
        write_private(folder / "env", "".join(f"{name}={value}\n" for name, value in variables.items()))
        output.print_note(
            f"Answering the AlphaEvolve client at {variables['BASE_URL']}. Ctrl-C stops. Set for the client:"
        )
        for name, value in variables.items():
            output.print_line(f"export {name}={value}")
        with stop_on_signals():
            try:
                serve_on(listener, facade.app(), ssl_certfile=certificate, ssl_keyfile=key)
            except StopRequested:
                output.print_note("Stopping …")


def _write_credentials(folder: Path, token: str) -> Path:
    """Write credentials in Google's format for users of an application; the token never expires."""
    about = {
        "type": "authorized_user",
        "client_id": "speciate",
        "client_secret": "unused",
        "refresh_token": "unused",
        "token": token,
        "expiry": "2099-01-01T00:00:00Z",
        "quota_project_id": "speciate",
    }
    path = folder / "credentials.json"
    write_private(path, json.dumps(about, indent=2))
    return path


def _write_certificate(folder: Path) -> tuple[Path, Path]:
    """Write a self-signed certificate for this machine and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "speciate alphaevolve")])
    now = dt.datetime.now(dt.UTC)
    addresses = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(minutes=5))
        .not_valid_after(now + _VALID)
        .add_extension(x509.SubjectAlternativeName(addresses), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    plain = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    public = certificate.public_bytes(serialization.Encoding.PEM)
    paths = folder / "certificate.pem", folder / "key.pem"
    for path, text in zip(paths, (public, plain), strict=True):
        write_private(path, text.decode())
    return paths
