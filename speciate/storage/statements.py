"""Named SQL statements, read from the ``.sql`` file beside the module that executes them.

A file holds blocks. Each begins with a comment that names it and says what it does::

    -- extend: Renew a lease.
    UPDATE work SET lease_until = clock_timestamp() + make_interval(secs => :lease_s) WHERE id = :id

``SQL = Statements(__file__)`` reads it, and ``SQL.extend`` is the statement. ``{name}`` in a block stands for another
block, of the file or of ``fragments.sql``, or for a text that the module passes. A parameter ``cast(:name AS jsonb)``
takes any JSON value. Name the columns that a statement returns: a prepared ``SELECT *`` fails once when a newer version
adds one.
"""

import re
from pathlib import Path
from typing import Final

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

_HEAD: Final = re.compile(r"^-- (\w+): \S.*$", re.MULTILINE)
_COMMENT: Final = re.compile(r"^\s*--.*\n?", re.MULTILINE)
_JSON: Final = re.compile(r"cast\(:(\w+) AS jsonb\)")
_PLACEHOLDER: Final = re.compile(r"(?<!')\{(\w+)\}")


def _read(path: Path) -> dict[str, str]:
    head, *blocks = _HEAD.split(path.read_text(encoding="utf-8"))
    if _COMMENT.sub("", head).strip():
        raise ValueError(f"{path.name}: expected '-- name: description' before the first statement.")
    texts: dict[str, str] = {}
    for name, block in zip(blocks[::2], blocks[1::2], strict=True):
        if name in texts:
            raise ValueError(f"{path.name} names {name} twice.")
        texts[name] = _COMMENT.sub("", block).strip()
    return texts


_FRAGMENTS: Final = _read(Path(__file__).with_name("fragments.sql"))


class Statements:
    def __init__(self, module_file: str, **fragments: str) -> None:
        """Read the statements of the module with this ``__file__``; ``fragments`` are texts of placeholders.

        Raises:
            ValueError: The file holds a text without a name, or a name twice.
        """
        path = Path(module_file).with_suffix(".sql")
        blocks, fragments = _read(path), {**_FRAGMENTS, **fragments}
        if twice := blocks.keys() & fragments.keys():
            raise ValueError(f"{path.name} names {min(twice)} twice.")
        self._texts = fragments | blocks

    def text(self, name: str, **parts: str) -> str:
        """The SQL of a block, with ``parts`` in place of its own placeholders."""
        return _PLACEHOLDER.sub(
            lambda match: parts[match[1]] if match[1] in parts else self.text(match[1], **parts), self._texts[name]
        )

    def build(self, name: str, **parts: str) -> sa.TextClause:
        """The statement of a block, with ``parts`` in place of its own placeholders."""
        sql = self.text(name, **parts)
        return sa.text(sql).bindparams(*(sa.bindparam(bind, type_=JSONB) for bind in _JSON.findall(sql)))

    def __getattr__(self, name: str) -> sa.TextClause:
        if name.startswith("_") or name not in self._texts:
            raise AttributeError(f"there is no statement {name!r}.")
        statement = self.build(name)
        setattr(self, name, statement)
        return statement
