"""Store API tokens and login sessions as hashes.

SHA-256 without salt or stretching suffices: the hashed secrets are 256 random bits, which cannot be guessed.
"""

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from speciate.domain.access import TOKEN_PREFIX, Scope
from speciate.ids import uuid7
from speciate.schema.base import Page
from speciate.schema.projects import NewToken, TokenRecord
from speciate.storage import cursors
from speciate.storage.database import Store, with_retries, writing_once
from speciate.storage.lookup import require_row
from speciate.storage.tables.access import projects, sessions, tokens

SESSION_LIFE: Final = timedelta(hours=12)

_SHOWN: Final = len(TOKEN_PREFIX) + 8
_PROJECT_OF_TOKEN: Final = projects.c.id == tokens.c.project_id
_SELECT: Final = sa.select(tokens, projects.c.slug.label("project")).join_from(tokens, projects, _PROJECT_OF_TOKEN)
_NOW: Final = sa.func.clock_timestamp()
_VALID: Final = sa.and_(
    tokens.c.revoked_at.is_(None), sa.or_(tokens.c.expires_at.is_(None), tokens.c.expires_at > _NOW)
)
_BEARER: Final = sa.select(
    *(tokens.c[name] for name in ("id", "project_id", "name", "prefix", "scope")),
    projects.c.slug.label("project"),
    # Updated once a minute, because otherwise every request would write.
    sa.func.coalesce(tokens.c.last_used_at < _NOW - timedelta(minutes=1), True).label("stale"),
)
_BY_HASH: Final = _BEARER.join_from(tokens, projects, _PROJECT_OF_TOKEN).where(
    tokens.c.hash == sa.bindparam("hash"), _VALID
)
_BY_SESSION: Final = (
    _BEARER.add_columns(sessions.c.proof)
    .select_from(sessions.outerjoin(tokens, tokens.c.id == sessions.c.token_id).outerjoin(projects, _PROJECT_OF_TOKEN))
    .where(
        sessions.c.hash == sa.bindparam("hash"),
        sessions.c.expires_at > _NOW,
        sa.or_(sessions.c.token_id.is_(None), _VALID),
    )
)


@dataclass(frozen=True, slots=True)
class Bearer:
    """Identity that a token or session authenticates; the operator has no token and no project.

    ``name`` is that in the audit log.
    """

    token_id: UUID | None
    project_id: UUID | None
    project: str
    name: str
    scope: Scope


OPERATOR: Final = Bearer(None, None, "", "operator", Scope.ADMIN)


class TokenStore(Store):
    """Creates, finds and revokes tokens and sessions."""

    def create(
        self, project_id: UUID, name: str, scope: Scope, *, created_by: str, expires_at: datetime | None = None
    ) -> NewToken:
        """Create a token; only the returned record holds its text."""
        # Hexadecimal, so that shells, URLs and double clicks treat it as one word.
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
            row = connection.execute(_SELECT.where(tokens.c.id == values["id"])).one()
        return NewToken.model_validate({**row._asdict(), "token": token})

    def list(self, project_id: UUID, *, limit: int = 100, cursor: str | None = None) -> Page[TokenRecord]:
        """Return the tokens of a project, newest first, including revoked and expired ones."""
        query = _SELECT.where(tokens.c.project_id == project_id).order_by(tokens.c.id.desc()).limit(limit + 1)
        if cursor is not None:
            query = query.where(tokens.c.id < cursors.decode_id(cursor))
        rows = self._rows(query)
        return cursors.page(rows, limit, lambda row: TokenRecord.model_validate(row._asdict()), cursors.by_id)

    @with_retries
    def revoke(self, project_id: UUID, token_id: UUID) -> TokenRecord:
        """Revoke a token at once; repeating it changes nothing. Raises ``NotFoundError`` for an unknown one."""
        mine = sa.and_(tokens.c.id == token_id, tokens.c.project_id == project_id)
        with self._engine.begin() as connection:
            revoked_at = sa.func.coalesce(tokens.c.revoked_at, _NOW)
            connection.execute(sa.update(tokens).where(mine).values(revoked_at=revoked_at))
            row = connection.execute(_SELECT.where(mine)).one_or_none()
        return TokenRecord.model_validate(require_row(row, f"token {token_id}")._asdict())

    def bearer(self, token: str) -> Bearer | None:
        """Return the identity of a token, or None if it is unknown, expired or revoked."""
        return self._bearer(_BY_HASH, token)

    def log_in(self, bearer: Bearer, operator_token: str | None) -> str:
        """Start a session and return its secret, which is stored nowhere.

        Changing the operator token ends the operator's sessions.
        """
        return self._log_in(secrets.token_hex(32), bearer, operator_token)

    @with_retries
    def _log_in(self, secret: str, bearer: Bearer, operator_token: str | None) -> str:
        values = {
            "hash": _hash(secret),
            "token_id": bearer.token_id,
            "proof": _proof(secret, operator_token) if bearer.token_id is None else None,
            "expires_at": _NOW + SESSION_LIFE,
        }
        with self._engine.begin() as connection:
            connection.execute(sa.delete(sessions).where(sessions.c.expires_at < _NOW))
            connection.execute(insert(sessions).values(values).on_conflict_do_nothing())
        return secret

    def session(self, secret: str, operator_token: str | None) -> Bearer | None:
        """Return the identity of a session, or None if it or its token is unknown, expired or revoked."""
        return self._bearer(_BY_SESSION, secret, operator_token)

    def log_out(self, secret: str) -> None:
        self._execute(sa.delete(sessions).where(sessions.c.hash == _hash(secret)))

    @with_retries
    def _bearer(self, query: sa.Select[Any], secret: str, operator_token: str | None = None) -> Bearer | None:
        with writing_once(self._engine) as connection:  # the row, and the time of its use
            row = connection.execute(query, {"hash": _hash(secret)}).one_or_none()
            if row is None:
                return None
            if row.id is None:
                return OPERATOR if hmac.compare_digest(row.proof, _proof(secret, operator_token)) else None
            if row.stale:
                connection.execute(sa.update(tokens).where(tokens.c.id == row.id).values(last_used_at=_NOW))
        return Bearer(row.id, row.project_id, row.project, f"token {row.prefix} {row.name}", Scope(row.scope))


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "replace")).digest()


def _proof(secret: str, operator_token: str | None) -> bytes:
    """Bind an operator session to the operator token, which may be a weak secret."""
    return hmac.digest(secret.encode(), (operator_token or "").encode(), "sha256")
