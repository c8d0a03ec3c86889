"""Authentication: map a token or session cookie to a principal, apply rate limits, and select the project."""

from dataclasses import dataclass
from typing import Final, Self
from uuid import UUID

from service.principal import Principal, principal_of_bearer
from speciate.domain.access import DEFAULT_PROJECT, TOKEN_PREFIX, Scope
from speciate.domain.errors import ForbiddenError, NotAllowedError, NotFoundError, TooManyRequestsError
from speciate.loopback import same_token
from speciate.settings import Settings
from speciate.storage.access.rate_limit import RateLimiter
from speciate.storage.access.tokens import OPERATOR, Bearer
from speciate.storage.stores import Stores
from speciate.storage.tables.columns import DEFAULT_PROJECT_ID

_FAILURES_PER_S: Final = 0.5
_FAILURE_BURST: Final = 20
_STRONG_LENGTH: Final = 32  # of an operator's token that cannot be guessed


class InvalidTokenError(NotAllowedError):
    """The token or session is unknown, expired or revoked."""


@dataclass(frozen=True)
class Credentials:
    token: str | None
    session: str | None
    project: str | None
    project_cookie: str | None
    address: str


@dataclass(frozen=True)
class Authenticator:
    """Authenticates requests. Reads PostgreSQL on every request, so that revocation has immediate effect. Blocks."""

    stores: Stores
    operator_token: str | None  # None if the service is open on loopback
    requests: RateLimiter | None  # per token, but not for the operator
    failures: RateLimiter  # of authentication, per address

    @classmethod
    def of(cls, settings: Settings, stores: Stores) -> Self:
        # Without Redis nothing is limited.
        url = "unix:///" if settings.redis_url is None else settings.redis_url.get_secret_value()
        rate, burst = settings.rate_limit, settings.rate_burst
        return cls(
            stores,
            None if settings.token is None else settings.token.get_secret_value(),
            RateLimiter(url, rate=rate, burst=burst) if rate else None,
            RateLimiter(url, rate=_FAILURES_PER_S, burst=_FAILURE_BURST),
        )

    def authenticate(self, credentials: Credentials) -> Principal:
        """Return the principal of a request.

        Raises:
            InvalidTokenError: The token or session is not valid.
            TooManyRequestsError: The token, or failed attempts from its address, exceed the rate limit.
            ForbiddenError: The token belongs to another project than the request names.
            NotFoundError: The project does not exist.
        """
        bearer = self.bearer(credentials)
        if self.requests is not None and bearer.token_id is not None:
            _require_rate(self.requests.wait_s(f"token:{bearer.token_id}"), "Too many requests with this token")
        project_id, project = self._project(bearer, credentials)
        return principal_of_bearer(bearer, project_id, project, session=credentials.token is None)

    def bearer(self, credentials: Credentials) -> Bearer:
        """Return the bearer of a token or cookie. Raises as ``authenticate`` does."""
        # Tokens that cannot be guessed are not blocked by failures from their address, as generated ones of 256 bits.
        key, excess = f"failed:{credentials.address}", "Too many failed sign-ins from this address"
        weak = len(self.operator_token or "") < _STRONG_LENGTH
        if credentials.token is not None and not credentials.token.startswith(TOKEN_PREFIX) and weak:
            # The operator chose this token: after too many failures it is not even checked.
            _require_rate(self.failures.wait_s(key, count=False), excess)
        bearer = self._find_bearer(credentials)
        if bearer is None:
            _require_rate(self.failures.wait_s(key), excess)
            raise _invalid_token(credentials)
        return bearer

    def revalidate(self, credentials: Credentials) -> None:
        """Check the credentials of an open stream again; ``InvalidTokenError`` if they are no longer valid.

        No rate limit applies, so that failed attempts from the same address do not end the stream.
        """
        if self._find_bearer(credentials) is None:
            raise _invalid_token(credentials)

    def authenticate_local(self, credentials: Credentials) -> Principal:
        project_id, project = self._project(OPERATOR, credentials)
        return local_principal(project_id, project)

    def close(self) -> None:
        for limit in (self.requests, self.failures):
            if limit is not None:
                limit.close()

    def _find_bearer(self, credentials: Credentials) -> Bearer | None:
        if credentials.token is None:
            return self.stores.tokens.session(credentials.session or "", self.operator_token)
        if credentials.token.startswith(TOKEN_PREFIX):
            return self.stores.tokens.bearer(credentials.token)
        return OPERATOR if self.operator_token and same_token(credentials.token, self.operator_token) else None

    def _project(self, bearer: Bearer, credentials: Credentials) -> tuple[UUID, str]:
        if bearer.project_id is not None:
            if credentials.project not in {None, bearer.project}:
                raise ForbiddenError(f"this token belongs to project {bearer.project}.")
            return bearer.project_id, bearer.project
        if credentials.project is not None:
            return self._find_project(credentials.project)
        try:
            return self._find_project(credentials.project_cookie or DEFAULT_PROJECT)
        except NotFoundError:  # a cookie from another installation
            return DEFAULT_PROJECT_ID, DEFAULT_PROJECT

    def _find_project(self, name: str) -> tuple[UUID, str]:
        if name == DEFAULT_PROJECT:
            return DEFAULT_PROJECT_ID, name
        project = self.stores.projects.get(name)
        return project.id, project.slug


def local_principal(project_id: UUID = DEFAULT_PROJECT_ID, project: str = DEFAULT_PROJECT) -> Principal:
    return Principal("local", Scope.ADMIN, project_id, project, all_projects=True)


def _invalid_token(credentials: Credentials) -> InvalidTokenError:
    return InvalidTokenError(
        "the token is unknown, expired or revoked." if credentials.token is not None else "the session has ended.",
        remedy="Send a valid token as 'Authorization: Bearer TOKEN', or log in again.",
    )


def _require_rate(wait_s: float, what: str) -> None:
    if wait_s > 0:
        raise TooManyRequestsError(f"{what}; retry in {wait_s:.1f} s.", retry_after_s=wait_s)
