"""SQL files: every statement has a name, a description and a use."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from speciate.storage.statements import Statements

_STORAGE = Path(__file__).parents[3] / "speciate" / "storage"
_SHARED = _STORAGE / "fragments.sql"
_FILES = sorted({*_STORAGE.rglob("*.sql")} - {_SHARED})
_USE = re.compile(r"\b(?:SQL|self\.sql|Store\.sql)\.(?:(?:text|build)\(\s*\"(\w+)\"|(\w+))")
_BUILT = re.compile(r"\bsa\.(?:select|insert|update|delete|text)\(|postgresql import .*\binsert\b")
_PLACEHOLDER = re.compile(r"(?<!')\{(\w+)\}")
_FRAGMENTS = set(re.findall(r"^-- (\w+): \S", _SHARED.read_text(), re.MULTILINE))


def written(folder: Path, text: str) -> Statements:
    (folder / "store.sql").write_text(text)
    return Statements(str(folder / "store.py"), live="running")


def test_statements_have_names(tmp_path: Path) -> None:
    sql = written(
        tmp_path,
        "-- keys: Keys of a row.\nid = :id\n\n"
        "-- save: Save a document.\n-- In one statement.\n"
        "UPDATE g SET doc = cast(:doc AS jsonb), path = '{a}'\n  -- only these\n  WHERE {keys} AND {live}{more}\n",
    )
    text = sql.text("save", more=" LIMIT 1")
    assert text == "UPDATE g SET doc = cast(:doc AS jsonb), path = '{a}'\n  WHERE id = :id AND running LIMIT 1"
    assert str(sql.keys) == "id = :id"
    assert sql.keys is sql.keys
    binds = sql.build("save", more="")._bindparams
    assert {name: str(bind.type) for name, bind in binds.items()} == {"doc": "JSONB", "id": "NULL"}
    with pytest.raises(KeyError, match="more"):
        _ = sql.save
    with pytest.raises(AttributeError, match="'nothing'"):
        _ = sql.nothing


@pytest.mark.parametrize(
    ("text", "message"),
    [("SELECT 1\n", "expected '-- name: description'"), ("-- one: First.\n1\n-- one: Again.\n2\n", "names one twice")],
)
def test_a_wrong_file_is_rejected(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        written(tmp_path, text)


@pytest.mark.parametrize("path", _FILES, ids=lambda path: str(path.relative_to(_STORAGE)))
def test_every_statement_is_used_and_every_used_one_exists(path: Path) -> None:
    sql, module = path.read_text(), path.with_suffix(".py").read_text()
    if "(DeclarationStore[" in module:  # which executes the statements that both kinds have
        module += (path.parent / "store.py").read_text()
    names = set(re.findall(r"^-- (\w+): \S", sql, re.MULTILINE))
    used = {call or name for call, name in _USE.findall(module)}
    assert used <= names | _FRAGMENTS
    assert names - used <= set(_PLACEHOLDER.findall(sql))


def test_every_fragment_is_used() -> None:
    used = {name for path in (*_FILES, _SHARED) for name in _PLACEHOLDER.findall(path.read_text())}
    assert used >= _FRAGMENTS


def test_a_module_has_a_sql_file_or_builds_its_statements() -> None:
    """Plain reads and writes of rows are built with SQLAlchemy; everything else stands in SQL files."""
    for path in _FILES:
        assert not _BUILT.search(path.with_suffix(".py").read_text()), path
