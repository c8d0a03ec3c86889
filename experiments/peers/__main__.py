"""``python -m experiments.peers``: declare the tournaments, run what is not done yet, and write the page."""

from __future__ import annotations

import argparse
import csv
import io
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final
from zipfile import ZipFile

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from experiments.peers.declaration import ENGINES, EVALUATIONS, MODEL, PROBLEMS, SEEDS, tournament
from experiments.peers.page import page
from experiments.standin import ANY, stand_in
from experiments.standin import MODEL as STAND_IN
from speciate.client import Client
from speciate.domain.declaration import DeclarationState
from speciate.domain.errors import ConflictError, SpeciateError
from speciate.domain.policy import Policy
from speciate.domain.tournament import Tournament
from speciate.problems.loader import known_problems, load_problem
from speciate.tournaments.bundle import DECLARATION, RUNS, VERSIONS, Declared, Versions, write

PAGE: Final = Path(__file__).parents[2] / "docs" / "evidence" / "peers.md"
EARLIER: Final = PAGE.with_name("peers-earlier.csv")
_SLOTS: Final = 2
_READY_S: Final = 240.0
_COMMAND: Final = str(Path(sys.executable).with_name("speciate"))


def main() -> int:
    """Run the tournaments; a later call goes on with them."""
    parser = argparse.ArgumentParser(prog="python -m experiments.peers", description=__doc__)
    parser.add_argument("--home", type=Path, default=Path(".peers"), help="folder of engines and runs (.peers)")
    parser.add_argument("--evaluations", type=int, nargs="+", default=EVALUATIONS, help="budgets")
    parser.add_argument("--problems", type=int, default=len(PROBLEMS), help="number of problems, held-out ones first")
    parser.add_argument("--seeds", type=int, default=len(SEEDS), help="number of seeds")
    parser.add_argument("--url", default="", help="OpenAI-compatible endpoint of a real model (default: the stand-in)")
    parser.add_argument("--model", default=STAND_IN, help="its name; its key is in OPENAI_API_KEY")
    parser.add_argument("--page-only", action="store_true", help="write the page from the bundles beside it")
    parser.add_argument("--reseal", action="store_true", help="write the bundles beside the page anew, then the page")
    parser.add_argument("--page", type=Path, default=PAGE, help="file of the page")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped; the same command goes on"))
    if options.reseal:
        for file in bundles_beside(options.page):
            file.write_bytes(_resealed(file))
    elif not options.page_only:
        home = options.home.resolve()
        home.mkdir(parents=True, exist_ok=True)
        with stand_in(options.url, port=_port(home, "endpoint")) as server, _service(home) as client:
            for problem in PROBLEMS[: options.problems]:
                client.problems.add(load_problem(known_problems()[problem]))
            url = options.url or f"{server.url}/{ANY}/{ANY}/v1"
            client.policies.add(_policy(url, options.model), api_key=os.environ.get("OPENAI_API_KEY"))
            for evaluations in options.evaluations:
                bundle = _played(client, home, tournament(evaluations, options.problems, options.seeds))
                options.page.with_name(f"peers-{evaluations}.zip").write_bytes(bundle)
    options.page.write_text(page(bundles_beside(options.page), options.model, EARLIER), encoding="utf-8")
    print(f"wrote {options.page}")  # noqa: T201
    return 0


def bundles_beside(file: Path) -> list[Path]:
    return sorted(file.parent.glob("peers-*.zip"), key=lambda path: int(path.stem.partition("-")[2]))


def _resealed(bundle: Path) -> bytes:
    """Return a bundle of the same declaration and runs, whose report has the fields of today, under a new key."""
    with ZipFile(bundle) as archive:
        declared = Declared.model_validate_json(archive.read(DECLARATION))
        versions = Versions.model_validate_json(archive.read(VERSIONS))
        _, *runs = csv.reader(io.StringIO(archive.read(RUNS).decode()))
    write(file := io.BytesIO(), declared, versions, runs, Ed25519PrivateKey.generate())
    return file.getvalue()


def _policy(url: str, model: str) -> Policy:
    return Policy.model_validate({
        "slug": MODEL, "kind": "openai_compatible", "base_url": url, "model": model, "prompt_format": "chat",
        "sampling": {"max_tokens": 8192, "temperature": 0.8},
    })  # fmt: skip


def _played(client: Client, home: Path, declared: Tournament) -> bytes:
    """Play a tournament to its end, and return its bundle."""
    name = declared.slug
    client.tournaments.create(declared)  # an equal one of an earlier call goes on
    with suppress(ConflictError):  # it is not paused
        client.tournaments.resume(name)
    engines = [_COMMAND, "engines", "run", *ENGINES, "--tournament", name, "--slots", str(_SLOTS)]
    runner = subprocess.Popen([*engines, "--data-dir", str(home / "data")], stdout=subprocess.DEVNULL)
    try:
        while not (record := client.tournaments.get(name)).state.ended:
            if record.state is DeclarationState.PAUSED:
                raise SystemExit(f"{name} is paused: {record.reason}")
            print(f"{name}: {record.ended} of {record.planned} runs have ended", flush=True)  # noqa: T201
            time.sleep(20)
            if runner.poll() is not None:
                raise SystemExit(f"speciate engines run ended with code {runner.returncode}")
    finally:
        runner.send_signal(signal.SIGTERM)
        runner.wait()
    return client.tournaments.bundle(name)


@contextmanager
def _service(home: Path) -> Iterator[Client]:
    """Start a service on the data of an earlier one, and install the engines."""
    port = _port(home, "service")
    # Engines do not stand back behind other processes either.
    environment = os.environ | {"SPECIATE_WORK_NICE": "0"}
    command = ["up", "--port", str(port), "--data-dir", str(home / "data"), "--evaluate-slots", str(_SLOTS)]
    with (home / "output.log").open("ab") as log:
        process = subprocess.Popen([_COMMAND, *command], env=environment, stdout=log, stderr=log)
    client = Client(f"http://127.0.0.1:{port}")
    try:
        _wait(client, process, home)
        for engine in ENGINES:
            subprocess.run([_COMMAND, "engines", "install", engine, "--data-dir", str(home / "data")], check=True)
        yield client
    finally:
        client.close()
        process.terminate()
        process.wait()


def _wait(client: Client, process: subprocess.Popen[bytes], home: Path) -> None:
    deadline = time.monotonic() + _READY_S
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(SpeciateError):
            client.ready()
            return
        time.sleep(0.5)
    raise SystemExit(f"speciate up did not start:\n{(home / 'output.log').read_text()[-2000:]}")


def _port(home: Path, name: str) -> int:
    """Return a free port, the same in every call: the policy's version holds the address of its endpoint."""
    file = home / f"{name}.port"
    if not file.exists():
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            file.write_text(str(free.getsockname()[1]))
    return int(file.read_text())


if __name__ == "__main__":
    sys.exit(main())
