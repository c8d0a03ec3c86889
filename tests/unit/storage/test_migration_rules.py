"""Migrations must not disturb processes of the previous release that keep working: their source is checked.

The rules are in docs/howto/operate.md: expand, migrate, contract. A revision that contracts declares ``contracts``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

_VERSIONS = Path(__file__).parents[3] / "migrations" / "versions"
_FILES = sorted(_VERSIONS.glob("[0-9]*.py"))
# Tables that grow with every candidate: an index must be created concurrently, and no row may be rewritten.
_BIG = frozenset({"candidates", "claims", "elites", "events", "prompts", "results", "rollouts", "work"})
_REMOVES = frozenset({"drop_column", "drop_table", "drop_constraint", "rename_table", "alter_column"})
_STATEMENT = re.compile(
    r"\bDROP\b|\bRENAME\b|\bSET\s+NOT\s+NULL\b|\bTYPE\b|\bTRUNCATE\b"
    r"|\b(?:UPDATE|DELETE\s+FROM)\s+(?:" + "|".join(sorted(_BIG)) + r")\b",
    re.IGNORECASE,
)
# The initial schema runs on an empty database: its trigger keeps the audit log from being truncated.
_ALLOWED = {"0210": {"executes TRUNCATE"}}


def _calls(body: ast.FunctionDef) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(body):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) == "op":
            yield node.func.attr, node


def _argument(call: ast.Call, position: int, name: str) -> ast.expr | None:
    named = {keyword.arg: keyword.value for keyword in call.keywords}
    return named.get(name, call.args[position] if len(call.args) > position else None)


def _text(node: ast.expr | None) -> str:
    return str(node.value) if isinstance(node, ast.Constant) else "" if node is None else ast.unparse(node)


def _violations(source: str) -> set[str]:
    """Return the operations of a migration that would disturb other processes."""
    tree = ast.parse(source)
    names = {target.id for node in tree.body if isinstance(node, ast.Assign) for target in node.targets}  # type: ignore[attr-defined]
    (upgrade,) = (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "upgrade")
    calls = list(_calls(upgrade))
    made = {_text(_argument(call, 0, "table_name")) for name, call in calls if name == "create_table"}
    violations = set()
    for name, call in calls:
        second = any(word in name for word in ("index", "constraint", "key"))  # the name comes first
        table = _text(_argument(call, int(second), "table_name"))
        if name in _REMOVES and "contracts" not in names:
            violations.add(
                f"removes or changes something of {table or _text(_argument(call, 0, 'table_name'))} ({name})"
            )
        elif name == "create_index" and table in _BIG - made:
            if _text(_argument(call, 99, "postgresql_concurrently")) != "True":
                violations.add(f"creates an index on {table} that blocks writers")
        elif name in {"create_check_constraint", "create_foreign_key", "create_unique_constraint"}:
            if table not in made and _text(_argument(call, 99, "postgresql_not_valid")) != "True":
                violations.add(f"adds a constraint to {table} that reads every row")
        elif name == "add_column":
            column = _argument(call, 1, "column")
            assert isinstance(column, ast.Call)
            given = {keyword.arg: _text(keyword.value) for keyword in column.keywords}
            if given.get("nullable") == "False" and "server_default" not in given:
                violations.add(f"adds a column to {table} that older processes do not fill")
        elif name == "execute" and "contracts" not in names and (hit := _STATEMENT.search(ast.unparse(call))):
            violations.add(f"executes {hit[0]}")
    return violations


@pytest.mark.parametrize("file", _FILES, ids=lambda file: file.name)
def test_a_migration_does_not_disturb_running_processes(file: Path) -> None:
    assert _violations(file.read_text()) == _ALLOWED.get(file.name[:4], set())


_BAD = {
    "op.drop_column('runs', 'spec')": "removes or changes something of runs (drop_column)",
    "op.alter_column('runs', 'spec', nullable=False)": "removes or changes something of runs (alter_column)",
    "op.add_column('runs', sa.Column('x', sa.Text(), nullable=False))": (
        "adds a column to runs that older processes do not fill"
    ),
    "op.create_index('ix', 'candidates', ['tier'])": "creates an index on candidates that blocks writers",
    "op.create_foreign_key('fk', 'runs', 'problems', ['a'], ['b'])": "adds a constraint to runs that reads every row",
    "op.execute('UPDATE candidates SET tier = 1')": "executes UPDATE candidates",
    "op.execute(f'ALTER TABLE runs RENAME a TO b')": "executes RENAME",
}


@pytest.mark.parametrize("statement", _BAD)
def test_forbidden_operations_are_found(statement: str) -> None:
    assert _violations(f"def upgrade():\n    {statement}\n") == {_BAD[statement]}
    if "drop" in statement or "RENAME" in statement:
        assert _violations(f"contracts = '0001'\ndef upgrade():\n    {statement}\n") == set()


def test_revisions_are_distinct_numbers() -> None:
    names = [file.name[:4] for file in _FILES]
    assert all(name.isdecimal() for name in names)
    assert len(set(names)) == len(names)


_DIGESTS = {"0210_initial_schema.py": "48f46c6c6962821c"}
"""SHA-256 of every migration. Databases that a migration made are not migrated again when its text changes."""


def test_a_migration_is_never_edited() -> None:
    digests = {file.name: sha256(file.read_bytes()).hexdigest()[:16] for file in _FILES}
    edited = {name: digest for name, digest in _DIGESTS.items() if digests.get(name) != digest}
    assert not edited, "write a new revision instead of editing one"
    assert digests == _DIGESTS, f"record the digest of the new revision: {digests}"
