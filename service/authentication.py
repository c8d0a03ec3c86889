"""Who is let in: whom a request's token or cookie stands for, how often they may ask, and about which project."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self
from uuid import UUID

from service.principal import Principal, of_bearer
from speciate.domain.access import DEFAULT_PROJECT, TOKEN_PREFIX, Scope
from speciate.domain.errors import ForbiddenError, NotAllowedError, NotFoundError, TooManyRequestsError
from speciate.loopback import same_token
from speciate.settings import Settings
from speciate.storage.access.rate_limit import RateLimiter
from speciate.storage.access.tokens import OPERATOR, Bearer
from speciate.storage.stores import Stores
from speciate.storage.tables import DEFAULT_PROJECT_ID

_REFUSALS_A_SECOND: Final = 0.5
_REFUSALS_AT_ONCE: Final = 20


class RefusedTokenError(NotAllowedError):
    """A token or session that is unknown, expired or revoked."""


@dataclass(frozen=True)
class Credentials:
    """What a request says of its sender.

    Attributes:
        token: Its bearer token, if it has one.
        session: The secret of its cookie, if it has one.
        project: The project that it names.
        chosen: The project that its cookie names.
        address: Where it comes from.
    """

    token: str | None
    session: str | None
    project: str | None
    chosen: str | None
    address: str


@dataclass(frozen=True)
class Authenticator:
    """Asks PostgreSQL at every request, so that what is revoked is out at once; call it in a thread.

    Attributes:
        stores: The stores.
        operator_token: The operator's token; None where the service is open on loopback.
        requests: How often a token may ask; None is any number. The operator, who sets it, is not counted.
        refusals: How often an address may send what is refused.
    """

    stores: Stores
    operator_token: str | None
    requests: RateLimiter | None
    refusals: RateLimiter

    @classmethod
    def of(cls, settings: Settings, stores: Stores) -> Self:
        """Return the one that settings ask for."""
        url = "" if settings.redis_url is None else settings.redis_url.get_secret_value()
        rate, burst = settings.rate_limit, settings.rate_burst
        return cls(
            stores,
            None if settings.token is None else settings.token.get_secret_value(),
            RateLimiter(url, rate=rate, burst=burst) if rate else None,
            RateLimiter(url, rate=_REFUSALS_A_SECOND, burst=_REFUSALS_AT_ONCE),
        )

    def admit(self, credentials: Credentials) -> Principal:
        """Return who asks.

        Raises:
            RefusedTokenError: By a token or session that is none.
            TooManyRequestsError: They, or those who were refused at their address, ask too often.
            ForbiddenError: The token belongs to another project than the one that is named.
            NotFoundError: There is no project of this name.
        """
        bearer = self.bearer(credentials)
        if self.requests is not None and bearer.token_id is not None:
            _require(self.requests.wait_s(f"token:{bearer.token_id}"), "this token asks")
        project_id, project = self._project(bearer, credentials)
        return of_bearer(bearer, project_id, project, session=credentials.token is None)

    def bearer(self, credentials: Credentials) -> Bearer:
        """Return whom a request's token or cookie stands for; raises as ``admit`` does."""
        # 256 random bits: nobody guesses them, so that nobody has to wait for those who try from the same address.
        if credentials.token is not None and not credentials.token.startswith(TOKEN_PREFIX):
            # Whoever chose this one may have chosen badly: it is not even looked at where somebody tried too often.
            _require(self.refusals.wait_s(f"refused:{credentials.address}", count=False), "this address was refused")
        found = self._known(credentials)
        if found is None:
            _require(self.refusals.wait_s(f"refused:{credentials.address}"), "this address was refused")
            raise _refused(credentials)
        return found

    def revalidate(self, credentials: Credentials) -> None:
        """Look whether whoever was let in still may be, for an answer that goes on.

        Nothing is guessed any more, so no limit counts it: those who were refused at the same address end nobody's
        stream, and nobody keeps one open by being refused.

        Raises:
            RefusedTokenError: They may not.
        """
        if self._known(credentials) is None:
            raise _refused(credentials)

    def local(self, credentials: Credentials) -> Principal:
        """Return a program of this machine as who asks, where the service is open; raises as ``admit`` does."""
        project_id, project = self._project(OPERATOR, credentials)
        return local(project_id, project)

    def close(self) -> None:
        """Close every connection."""
        for limit in (self.requests, self.refusals):
            if limit is not None:
                limit.close()

    def _known(self, credentials: Credentials) -> Bearer | None:
        if credentials.token is None:
            return self.stores.tokens.session(credentials.session or "", self.operator_token)
        if credentials.token.startswith(TOKEN_PREFIX):
            return self.stores.tokens.bearer(credentials.token)
        return OPERATOR if self.operator_token and same_token(credentials.token, self.operator_token) else None

    def _project(self, bearer: Bearer, credentials: Credentials) -> tuple[UUID, str]:
        if bearer.project_id is not None:
            if credentials.project not in {None, bearer.project}:
                raise ForbiddenError(f"this token belongs to project {bearer.project}, and to no other.")
            return bearer.project_id, bearer.project
        if credentials.project is not None:
            return self._find(credentials.project)
        try:
            return self._find(credentials.chosen or DEFAULT_PROJECT)
        except NotFoundError:  # a cookie from another installation
            return DEFAULT_PROJECT_ID, DEFAULT_PROJECT

    def _find(self, name: str) -> tuple[UUID, str]:
        if name == DEFAULT_PROJECT:
            return DEFAULT_PROJECT_ID, name
        if "\x00" in name:
            raise NotFoundError("no project has such a name.")
        found = self.stores.projects.get(name)
        return found.id, found.slug


def local(project_id: UUID = DEFAULT_PROJECT_ID, project: str = DEFAULT_PROJECT) -> Principal:
    """Return a program of this machine as who asks."""
    return Principal("local", Scope.ADMIN, project_id, project, all_projects=True)


def _refused(credentials: Credentials) -> RefusedTokenError:
    return RefusedTokenError(
        "the token is unknown, expired or revoked." if credentials.token is not None else "the session is over.",
        remedy="Send another one as 'Authorization: Bearer TOKEN', or log in again.",
    )


def _require(wait_s: float, who: str) -> None:
    if wait_s > 0:
        raise TooManyRequestsError(
            f"{who} too often: the next one is answered in {wait_s:.1f} s.", retry_after_s=wait_s
        )
