"""A container image of this machine's shell and tools, for tests: no registry is reached."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from evaluators.images.engine import Engine, engines, find_engine

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


def engine_or_skip() -> Engine:
    """Return the engine of this machine, or skip the test with the reason."""
    if (engine := find_engine()) is None:
        pytest.skip("; ".join(f"{each.name} {each.problem}" for each in engines()))
    return engine


def image(engine: Engine) -> str:
    """Import the image; return its name with the digest."""
    imported = [engine.name, "import", "-", f"{NAME}:latest"]
    subprocess.run(imported, input=_archive(), check=True, capture_output=True)
    found = [engine.name, "image", "inspect", "--format", "{{index .RepoDigests 0}}", f"{NAME}:latest"]
    return subprocess.run(found, check=True, capture_output=True, text=True).stdout.strip()


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
