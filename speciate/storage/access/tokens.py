"""Tokens and sessions. Only hashes are kept.

SHA-256 without salt or stretching is enough here: what is hashed are 256 random bits, so there is nothing to guess and
no two are alike. Whoever reads the table gets nothing that opens a door.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Final
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from speciate.domain.access import TOKEN_PREFIX, Scope
from speciate.domain.errors import NotFoundError
from speciate.ports.records.base import Page
from speciate.ports.records.projects import NewToken, TokenRecord
from speciate.storage import cursors
from speciate.storage.database import reading, with_retries
from speciate.storage.rows import uuid7
from speciate.storage.tables import sessions, tokens

SESSION_LIFE: Final = timedelta(hours=12)

_SHOWN: Final = len(TOKEN_PREFIX) + 8
_SELECT: Final = "SELECT t.*, p.slug AS project FROM tokens t JOIN projects p ON p.id = t.project_id"
_VALID: Final = "t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > clock_timestamp())"
_BEARER: Final = "SELECT t.id, t.project_id, p.slug AS project, t.name, t.prefix, t.scope"
# To the minute: otherwise every request would be a write.
_STALE: Final = "coalesce(t.last_used_at < clock_timestamp() - interval '1 minute', true) AS stale"
_BY_HASH: Final = sa.text(
    f"{_BEARER}, {_STALE} FROM tokens t JOIN projects p ON p.id = t.project_id WHERE t.hash = :hash AND {_VALID}"
)
_BY_SESSION: Final = sa.text(
    f"{_BEARER}, {_STALE}, s.proof FROM sessions s LEFT JOIN tokens t ON t.id = s.token_id"
    f" LEFT JOIN projects p ON p.id = t.project_id WHERE s.hash = :hash AND s.expires_at > clock_timestamp()"
    f" AND (s.token_id IS NULL OR {_VALID})"
)
_USED: Final = sa.text("UPDATE tokens SET last_used_at = clock_timestamp() WHERE id = :id")


@dataclass(frozen=True, slots=True)
class Bearer:
    """Whom a token or session stands for.

    Attributes:
        token_id: The token; None is the operator.
        project_id: Its project, None for the operator.
        project: Name of that project.
        name: Name in the audit log.
        scope: What it allows.
    """

    token_id: UUID | None
    project_id: UUID | None
    project: str
    name: str
    scope: Scope


OPERATOR: Final = Bearer(None, None, "", "operator", Scope.ADMIN)


@dataclass
class TokenStore:
    """Makes, finds and revokes tokens and sessions.

    Attributes:
        retry_for_s: Seconds to retry a call while the server restarts.
    """

    _engine: sa.Engine
    retry_for_s: float = 5.0

    @cached_property
    def _alone(self) -> sa.Engine:
        # What every request asks is one statement: it needs no transaction around it.
        return self._engine.execution_options(isolation_level="AUTOCOMMIT")

    def create(
        self, project_id: UUID, name: str, scope: Scope, *, created_by: str, expires_at: datetime | None = None
    ) -> NewToken:
        """Make a token; what is returned is the only place where it can be read."""
        # Hexadecimal, so that no shell, address or double click takes a part of it for something else.
        token = TOKEN_PREFIX + secrets.token_hex(32)
        values = {
            "id": uuid7(),
            "project_id": project_id,
            "name": name,
            "prefix": token[:_SHOWN],
            "hash": _hash(token),
            "scope": scope.value,
            "created_by": created_by,
            "expires_at": expires_at,
        }
        return self._create(token, values)

    @with_retries
    def _create(self, token: str, values: Mapping[str, Any]) -> NewToken:
        with self._engine.begin() as connection:
            connection.execute(insert(tokens).values(values).on_conflict_do_nothing())
            row = connection.execute(sa.text(f"{_SELECT} WHERE t.id = :id"), {"id": values["id"]}).one()
        return NewToken.model_validate({**row._asdict(), "token": token})

    @with_retries
    def list(self, project_id: UUID, *, limit: int = 100, cursor: str | None = None) -> Page[TokenRecord]:
        """Return the tokens of a project, newest first; revoked and expired ones too."""
        binds: dict[str, Any] = {"project": project_id, "limit": limit + 1}
        older = ""
        if cursor is not None:
            older, binds["after"] = " AND t.id < :after", cursors.decode_id(cursor)
        query = sa.text(f"{_SELECT} WHERE t.project_id = :project{older} ORDER BY t.id DESC LIMIT :limit")
        with reading(self._engine) as connection:
            rows = connection.execute(query, binds).all()
        return cursors.page(rows, limit, _record, lambda row: [str(row.id)])

    @with_retries
    def revoke(self, project_id: UUID, token_id: UUID) -> TokenRecord:
        """Revoke a token from this moment on; one that is revoked already stays so.

        Raises:
            NotFoundError: The project has no such token.
        """
        binds = {"id": token_id, "project": project_id}
        revoke = sa.text(
            "UPDATE tokens SET revoked_at = coalesce(revoked_at, clock_timestamp())"
            " WHERE id = :id AND project_id = :project"
        )
        with self._engine.begin() as connection:
            connection.execute(revoke, binds)
            query = sa.text(f"{_SELECT} WHERE t.id = :id AND t.project_id = :project")
            row = connection.execute(query, binds).one_or_none()
        if row is None:
            raise NotFoundError(f"there is no token {token_id}.")
        return _record(row)

    def bearer(self, token: str) -> Bearer | None:
        """Return whom a token stands for; None where it is unknown, expired or revoked."""
        return self._bearer(_BY_HASH, token)

    def log_in(self, bearer: Bearer, operator_token: str | None) -> str:
        """Begin a session; return its secret, which is kept nowhere else.

        Args:
            bearer: Whom it stands for.
            operator_token: The operator's present token: with another one, the operator's sessions end.
        """
        return self._log_in(secrets.token_hex(32), bearer, operator_token)

    @with_retries
    def _log_in(self, secret: str, bearer: Bearer, operator_token: str | None) -> str:
        values = {
            "hash": _hash(secret),
            "token_id": bearer.token_id,
            "proof": _proof(secret, operator_token) if bearer.token_id is None else None,
            "expires_at": sa.func.clock_timestamp() + SESSION_LIFE,
        }
        with self._engine.begin() as connection:
            connection.execute(sa.delete(sessions).where(sessions.c.expires_at < sa.func.clock_timestamp()))
            connection.execute(insert(sessions).values(values).on_conflict_do_nothing())
        return secret

    def session(self, secret: str, operator_token: str | None) -> Bearer | None:
        """Return whom a session stands for; None where it is unknown or over, or its token is."""
        return self._bearer(_BY_SESSION, secret, operator_token)

    @with_retries
    def log_out(self, secret: str) -> None:
        """End a session."""
        with self._engine.begin() as connection:
            connection.execute(sa.delete(sessions).where(sessions.c.hash == _hash(secret)))

    @with_retries
    def _bearer(self, query: sa.TextClause, secret: str, operator_token: str | None = None) -> Bearer | None:
        with self._alone.connect() as connection:
            row = connection.execute(query, {"hash": _hash(secret)}).one_or_none()
            if row is None:
                return None
            if row.id is None:
                return OPERATOR if hmac.compare_digest(row.proof, _proof(secret, operator_token)) else None
            if row.stale:
                connection.execute(_USED, {"id": row.id})
        return Bearer(row.id, row.project_id, row.project, f"token {row.prefix} {row.name}", Scope(row.scope))


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "replace")).digest()


def _proof(secret: str, operator_token: str | None) -> bytes:
    """Return what only this session with this token of the operator makes; the token itself may be a weak one."""
    return hmac.digest(secret.encode(), (operator_token or "").encode(), "sha256")


def _record(row: sa.Row[Any]) -> TokenRecord:
    return TokenRecord.model_validate(row._asdict())
