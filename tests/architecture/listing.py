"""The listing in ``docs/architecture.md``: one line per file, taken from the file's own docstring.

``python -m tests.architecture.listing`` writes it; ``test_listing.py`` fails when it is out of date.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- files: begin -->", "<!-- files: end -->"
PACKAGES = ("speciate", "evaluators", "workers", "service", "migrations")
_LEFT_OUT = ("bundled", "versions", "starters")


def listing() -> str:
    """Return the listing of every module with what its docstring says first."""
    return "\n".join(line for package in PACKAGES for line in _package(ROOT / package))


def page_with(lines: str) -> str:
    """Return the page with the listing replaced."""
    head, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n{lines}\n{END}{tail}"


def _package(folder: Path) -> Iterator[str]:
    name = str(folder.relative_to(ROOT))
    yield f"\n### `{name}/`"
    if (init := folder / "__init__.py").exists():
        yield f"{_first_line(init)}\n"
    for path in sorted(folder.glob("*.py")):
        if path.name != "__init__.py":
            yield f"- `{path.name}` – {_first_line(path)}"
    for inner in sorted(p for p in folder.iterdir() if p.is_dir() and p.name not in _LEFT_OUT):
        if any(inner.rglob("*.py")):
            yield from _package(inner)


def _first_line(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text()))
    if not text:
        raise SystemExit(f"{path} has no docstring: say what the room is for")
    return " ".join(text.split("\n\n")[0].split())


if __name__ == "__main__":
    PAGE.write_text(page_with(listing()))
