"""Connection settings: base URL, token, timeouts and retries."""

from dataclasses import dataclass
from typing import Any, Final

import httpx

from speciate import __version__
from speciate.client.calls import ApiCall
from speciate.domain.errors import ConfigurationError, SpeciateError, UnavailableError
from speciate.egress.transport import refused_certificate, tls_context
from speciate.service_address import service_url
from speciate.settings import default_data_dir, is_loopback, load_settings

MAX_TRIES: Final = 3
"""Attempts for a repeatable request whose connection breaks."""

RETRY_DELAY_S: Final = 0.2

TIMEOUT: Final = httpx.Timeout(connect=5, read=30, write=30, pool=30)

STREAM_TIMEOUT: Final = httpx.Timeout(connect=5, read=60, write=30, pool=30)
"""Timeout of event streams, which send comments while they have no events."""

START_REMEDY: Final = "Start it with `speciate up`, or set SPECIATE_URL."
"""Remedy if nothing listens at the address of the service."""


@dataclass(frozen=True)
class Connection:
    """Connection settings of a client."""

    url: str
    token: str | None
    project: str | None = None
    socket: str | None = None

    @classmethod
    def to(
        cls, url: str | None, token: str | None, project: str | None = None, socket: str | None = None
    ) -> "Connection":
        """Return the connection for the given arguments, completed from the settings."""
        settings = load_settings(url=url, token=token, project=project)
        configured = settings.token.get_secret_value() if settings.token is not None and socket is None else None
        if configured == "":
            raise ConfigurationError("SPECIATE_TOKEN is empty.", remedy="Set it to a valid token, or unset it.")
        if configured is not None and not (configured.isascii() and configured.isprintable() and " " not in configured):
            raise ConfigurationError("the token has invalid characters.", remedy="Check SPECIATE_TOKEN.")
        address = service_url(settings)
        named = not settings.model_fields_set.isdisjoint({"host", "port"}) or settings.data_dir == default_data_dir()
        if address is None and socket is None and not named:
            # At the default address may be the service of another data directory.
            raise UnavailableError(f"no service runs on {settings.data_dir}.", remedy=START_REMEDY)
        return cls(_valid_url(address or settings.base_url), configured, settings.project, socket)

    def options(self) -> dict[str, Any]:
        headers = {"User-Agent": f"speciate/{__version__}", "Accept": "application/json"}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        if self.project is not None:
            headers["Speciate-Project"] = self.project
        url = httpx.URL(self.url)
        local = is_loopback(url.host)
        verify = tls_context() if url.scheme == "https" else not local
        # No redirects, because a token is meant for one host only. No proxy for this machine, and no certificates for
        # plain HTTP to it: reading them takes longer than a request.
        return {
            "base_url": self.url,
            "headers": headers,
            "timeout": TIMEOUT,
            "follow_redirects": False,
            "trust_env": not local,
            "verify": verify,
        }

    def arguments(self, call: ApiCall[Any]) -> dict[str, Any]:
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
        match error:
            case httpx.UnsupportedProtocol():
                return _invalid_url(self.url)
            case httpx.ConnectError() if (refusal := refused_certificate(error)) is not None:
                reason, remedy = "no trusted connection", refusal
            case httpx.ConnectError() | httpx.ConnectTimeout():
                reason, remedy = str(error) or "no response", START_REMEDY
            case httpx.TimeoutException():
                reason, remedy = "no response in time", "Check its load with `speciate doctor`."
            case _:
                reason, remedy = str(error) or type(error).__name__, "The connection broke. Retry."
        return UnavailableError(f"cannot reach the service at {self.url}: {reason.rstrip('.')}.", remedy=remedy)


def should_retry(call: ApiCall[Any], error: httpx.RequestError, tries: int) -> bool:
    """Return True if a request should be repeated after ``tries`` attempts.

    A refused connection is not repeated, because the service is not running.
    """
    transient = isinstance(error, httpx.NetworkError | httpx.RemoteProtocolError)
    return transient and not isinstance(error, httpx.ConnectError) and call.repeatable and tries < MAX_TRIES


def _valid_url(url: str) -> str:
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, UnicodeError):
        raise _invalid_url(url) from None
    if parsed.scheme not in {"http", "https"} or not parsed.host:
        raise _invalid_url(url)
    if parsed.userinfo:
        raise ConfigurationError(
            "the URL of the service contains a password.", remedy="Set the token in SPECIATE_TOKEN instead."
        )
    return url


def _invalid_url(url: str) -> ConfigurationError:
    return ConfigurationError(f"{url!r} is not the URL of a service.", remedy="Set SPECIATE_URL to http://HOST:PORT.")
