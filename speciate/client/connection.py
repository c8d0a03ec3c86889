"""How the service is reached: address, token, patience. Shared by both clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import httpx

from speciate import __version__
from speciate.client.calls import ApiCall
from speciate.domain.errors import ConfigurationError, SpeciateError, UnavailableError
from speciate.settings import is_loopback, load_settings

MAX_TRIES: Final = 3
"""How often a call that may be repeated is sent when its connection breaks."""

RETRY_DELAY_S: Final = 0.2

TIMEOUT: Final = httpx.Timeout(connect=5, read=30, write=30, pool=30)

STREAM_TIMEOUT: Final = httpx.Timeout(connect=5, read=60, write=30, pool=30)
"""For streams, which send a comment when they have nothing to tell."""


@dataclass(frozen=True)
class Connection:
    """What both kinds of HTTP client are made with.

    Attributes:
        url: Address of the service, without a slash at the end.
        token: Bearer token, or None.
        project: The project to work in, or None for the token's own.
    """

    url: str
    token: str | None
    project: str | None = None

    @classmethod
    def to(cls, url: str | None, token: str | None, project: str | None = None) -> Connection:
        """Return the connection that arguments and settings lead to.

        Raises:
            ConfigurationError: The address is none, or the token cannot be sent.
        """
        settings = load_settings(url=url, token=token, project=project)
        given = settings.token.get_secret_value() if settings.token is not None else None
        if given is not None and not (given.isascii() and given.isprintable() and " " not in given):
            raise ConfigurationError("the token holds characters that no token has.", remedy="Check SPECIATE_TOKEN.")
        return cls(_checked(settings.base_url), given, settings.project)

    def options(self) -> dict[str, Any]:
        """Return the arguments of ``httpx.Client`` and ``httpx.AsyncClient``."""
        headers = {"User-Agent": f"speciate/{__version__}", "Accept": "application/json"}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        if self.project is not None:
            headers["Speciate-Project"] = self.project
        # No redirections: a token belongs to the address it was given for. No proxy to one's own machine.
        return {
            "base_url": self.url,
            "headers": headers,
            "timeout": TIMEOUT,
            "follow_redirects": False,
            "trust_env": not is_loopback(httpx.URL(self.url).host),
        }

    def arguments(self, call: ApiCall[Any]) -> dict[str, Any]:
        """Return the arguments of ``request`` for a call; raises as ``Call.content`` does."""
        arguments: dict[str, Any] = {
            "method": call.method,
            "url": call.path,
            "params": dict(call.query),
            "content": call.content(),
            "headers": call.headers,
        }
        if call.timeout_s is not None:
            arguments["timeout"] = httpx.Timeout(**{**TIMEOUT.as_dict(), "read": call.timeout_s})
        return arguments

    def unreachable(self, error: httpx.RequestError) -> SpeciateError:
        """Return the error for a request that got no answer."""
        match error:
            case httpx.UnsupportedProtocol():
                return _no_address(self.url)
            case httpx.ConnectError() | httpx.ConnectTimeout():
                reason, remedy = str(error) or "no answer", "Start it with `speciate up`, or set SPECIATE_URL."
            case httpx.TimeoutException():
                reason, remedy = "no answer in time", "See whether it is overloaded with `speciate doctor`."
            case _:
                reason, remedy = str(error) or type(error).__name__, "The connection broke: try again."
        return UnavailableError(f"the service at {self.url} cannot be reached: {reason.rstrip('.')}.", remedy=remedy)


def should_retry(call: ApiCall[Any], error: httpx.RequestError, tries: int) -> bool:
    """Tell whether a call should be sent again after ``tries`` tries.

    A refused connection is not: nobody is there, and whoever waits wants to know.
    """
    passing = isinstance(error, httpx.NetworkError | httpx.RemoteProtocolError) and not isinstance(
        error, httpx.ConnectError
    )
    return passing and call.repeatable and tries < MAX_TRIES


def _checked(url: str) -> str:
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, UnicodeError):
        raise _no_address(url) from None
    if parsed.scheme not in {"http", "https"} or not parsed.host:
        raise _no_address(url)
    if parsed.userinfo:
        raise ConfigurationError(
            "the address of the service holds a password.", remedy="Put the token into SPECIATE_TOKEN instead."
        )
    return url


def _no_address(url: str) -> ConfigurationError:
    return ConfigurationError(
        f"{url!r} is no address of a service.", remedy="Expected http://HOST:PORT in SPECIATE_URL."
    )
