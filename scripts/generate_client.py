"""Generate the blocking client from the asyncio client. Usage: ``generate_client.py [--check]``.

Reads ``speciate/client/aio`` and writes ``speciate/client/sync``, which git ignores: a build (``hatch_build.py``) and
make run this script. ``unasync`` removes ``async`` and ``await`` and renames tokens: ``AsyncX`` becomes ``X``.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

import unasync

SOURCE = Path(__file__).resolve().parents[1] / "speciate/client/aio"
TARGET = SOURCE.with_name("sync")
TOKENS = {
    "aio": "sync",
    "asyncio": "time",
    "aclose": "close",
    "aread": "read",
    "aiter_bytes": "iter_bytes",
    "aiter_text": "iter_text",
    "aiter_sse": "iter_sse",
}


def generate() -> dict[str, str]:
    """Return the text of each generated file by name."""
    sources = {path.name: path.read_text(encoding="utf-8") for path in sorted(SOURCE.glob("*.py"))}
    classes = set(re.findall(r"\bAsync[A-Z]\w+", "".join(sources.values())))
    rule = unasync.Rule("/aio/", "/sync/", TOKENS | {name: name.removeprefix("Async") for name in classes})
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "aio")
        source.mkdir()
        for name, text in sources.items():
            (source / name).write_text(_with_header(name, text), encoding="utf-8")
        unasync.unasync_files([str(path) for path in source.iterdir()], [rule])
        return {name: Path(folder, "sync", name).read_text(encoding="utf-8") for name in sources}


def _with_header(name: str, text: str) -> str:
    first, _, rest = text.partition("\n")
    note = f"Generated from ``aio/{name}`` by ``make client``: do not edit."
    return f'{first.removesuffix(chr(34) * 3)}\n\n{note}\n"""\n{rest}'


def main() -> None:
    """Write the files, or exit with status 1 if ``--check`` finds them out of date."""
    texts = generate()
    present = {path.name: path.read_text(encoding="utf-8") for path in TARGET.glob("*.py")}
    if "--check" in sys.argv[1:]:
        stale = sorted(name for name in texts.keys() | present.keys() if texts.get(name) != present.get(name))
        sys.exit(f"Out of date: {', '.join(stale)}. Run `make client`." if stale else 0)
    TARGET.mkdir(exist_ok=True)
    for name in present.keys() - texts.keys():
        (TARGET / name).unlink()
    for name, text in texts.items():
        (TARGET / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
