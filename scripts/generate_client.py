"""Generate the blocking client from the asyncio client. Usage: ``generate_client.py [--check]``.

Reads ``speciate/client/aio`` and writes ``speciate/client/sync``. ``unasync`` removes ``async`` and
``await`` and renames tokens: ``AsyncX`` becomes ``X``. ruff formats the result.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import unasync

ROOT = Path(__file__).resolve().parents[1]
SOURCE = Path("speciate/client/aio")
TARGET = Path("speciate/client/sync")
TOKENS = {
    "aio": "sync",
    "asyncio": "time",
    "aclose": "close",
    "aread": "read",
    "aiter_bytes": "iter_bytes",
    "aiter_text": "iter_text",
    "aiter_sse": "iter_sse",
}
FIRST_PARTY = ("--config", 'lint.isort.known-first-party = ["speciate"]')
RUFF = (
    ("check", "--quiet", "--fix", "--unsafe-fixes", "--select", "I,C416,UP028", *FIRST_PARTY),
    ("format", "--quiet"),
)


def generate(root: Path) -> dict[str, str]:
    """Return the text of each generated file by name."""
    sources = sorted((root / SOURCE).glob("*.py"))
    names = {name for path in sources for name in re.findall(r"\bAsync[A-Z]\w+", path.read_text(encoding="utf-8"))}
    rule = unasync.Rule("/aio/", "/sync/", TOKENS | {name: name.removeprefix("Async") for name in names})
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "aio"), Path(folder, "sync")
        source.mkdir()
        for path in sources:
            (source / path.name).write_text(_with_header(path), encoding="utf-8")
        unasync.unasync_files([str(path) for path in sorted(source.iterdir())], [rule])
        for command in RUFF:
            config = ["--config", str(root / "pyproject.toml")]
            subprocess.run([sys.executable, "-m", "ruff", *command, *config, str(target)], check=True)
        return {path.name: path.read_text(encoding="utf-8") for path in sorted(target.glob("*.py"))}


def _with_header(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    first, _, rest = text.partition("\n")
    note = f"Generated from ``{SOURCE.name}/{path.name}`` by ``make client``: do not edit."
    return f'{first.removesuffix(chr(34) * 3)}\n\n{note}\n"""\n{rest}'


def main() -> None:
    """Write the files, or exit with status 1 if ``--check`` finds them out of date."""
    found = generate(ROOT)
    folder = ROOT / TARGET
    present = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.py")}
    if "--check" in sys.argv[1:]:
        stale = sorted(name for name in found.keys() | present.keys() if found.get(name) != present.get(name))
        sys.exit(f"Out of date: {', '.join(stale)}. Run `make client`." if stale else 0)
    folder.mkdir(exist_ok=True)
    for name in present.keys() - found.keys():
        (folder / name).unlink()
    for name, text in found.items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
