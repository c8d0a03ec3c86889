"""A container image of this machine's shell and tools, for tests: no registry is reached."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shutil
import socket
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from evaluators.images.engine import Engine, engines

NAME = "localhost/speciate-test"
TOOLS = (
    "bash",
    "cat",
    "chmod",
    "cp",
    "env",
    "grep",
    "head",
    "id",
    "ls",
    "mkdir",
    "mknod",
    "mount",
    "rm",
    "sleep",
    "tee",
    "touch",
    "tr",
)
FILES = {"app/start.txt": b"of the image\n"}


def engine_or_skip(name: str = "") -> Engine:
    """Return the engine of this machine, or the one of that name, or skip the test with the reason."""
    known = [each for each in engines() if name in ("", each.name)]
    if (engine := next((each for each in known if not each.problem), None)) is None:
        pytest.skip("; ".join(f"{each.name} {each.problem}" for each in known))
    return engine


def image(engine: Engine) -> str:
    """Import the image; return its name with the digest."""
    if engine.name == "docker":
        with _registry() as host:  # docker gives an image a digest when it is pushed
            return _imported(engine, f"{host}/speciate-test:latest", push=True)
    return _imported(engine, f"{NAME}:latest", push=False)


def _imported(engine: Engine, name: str, *, push: bool) -> str:
    subprocess.run([engine.name, "import", "-", name], input=_archive(), check=True, capture_output=True)
    if push:
        subprocess.run([engine.name, "push", name], check=True, capture_output=True)
    found = [engine.name, "image", "inspect", "--format", "{{index .RepoDigests 0}}", name]
    return subprocess.run(found, check=True, capture_output=True, text=True).stdout.strip()


@contextlib.contextmanager
def _registry() -> Iterator[str]:
    """Serve a registry of images on this machine."""
    program = shutil.which("docker-registry")
    if program is None:
        pytest.skip("docker-registry is not installed (Debian: docker-registry)")
    with tempfile.TemporaryDirectory() as folder:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            host = f"127.0.0.1:{free.getsockname()[1]}"
        storage = {"filesystem": {"rootdirectory": folder}}
        config = Path(folder, "config.yml")
        config.write_text(json.dumps({"version": "0.1", "storage": storage, "http": {"addr": host}}))
        quiet = subprocess.DEVNULL
        process = subprocess.Popen([program, "serve", str(config)], stdin=quiet, stdout=quiet, stderr=quiet)
        try:
            with httpx.Client(transport=httpx.HTTPTransport(retries=10), trust_env=False) as client:
                client.get(f"http://{host}/v2/")
            yield host
        finally:
            process.terminate()
            process.wait()


def containers(engine: Engine) -> list[str]:
    """Return the names of Speciate's containers that exist."""
    listed = [engine.name, "ps", "--all", "--filter", "label=speciate.host", "--format", "{{.Names}}"]
    return subprocess.run(listed, check=True, capture_output=True, text=True).stdout.split()


def _archive() -> bytes:
    """Return the files of the image; always the same bytes, so that the digest does not change."""
    programs = {f"usr/bin/{name}": Path(found).resolve() for name in TOOLS if (found := shutil.which(name))}
    paths = dict(programs)
    for program in programs.values():
        listed = subprocess.run(["ldd", program], check=False, capture_output=True, text=True).stdout
        for library in re.findall(r"/\S+\.so\S*", listed):
            paths[library.lstrip("/")] = Path(library).resolve()
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, content in sorted(
            [*FILES.items(), *((name, path.read_bytes()) for name, path in paths.items())], key=lambda item: item[0]
        ):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o755
            archive.addfile(entry, io.BytesIO(content))
        for folder in ("tmp", "logs", "tests"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(entry)
        link = tarfile.TarInfo("bin")
        link.type, link.linkname = tarfile.SYMTYPE, "usr/bin"
        archive.addfile(link)
    return packed.getvalue()
