"""Send one event to one webhook: signed, to an allowed address, within a few seconds whatever the receiver does."""

import hashlib
import hmac
from dataclasses import dataclass
from typing import Final

import httpx

from speciate.domain.errors import ConfigurationError
from speciate.egress.network import AllowedNetworks, ForbiddenAddressError
from speciate.egress.transport import GuardedTransport, within

TIMEOUT_S: Final = 10.0
KEPT_BYTES: Final = 1000
SIGNATURE_HEADER: Final = "Speciate-Signature"


@dataclass(frozen=True, slots=True)
class DeliveryResponse:
    """Whether the receiver accepted the event (status 200 to 299), the status, and the reason of a failure."""

    taken: bool
    status: int | None = None
    error: str = ""


def signature(secret: str, timestamp: int, body: bytes) -> str:
    """Return the value of ``Speciate-Signature``: ``t=…,v1=…``, HMAC-SHA256 of ``timestamp.body`` in hexadecimal.

    The timestamp (Unix time in seconds) lets receivers reject replayed messages.
    """
    digest = hmac.new(secret.encode(), b"%d.%b" % (timestamp, body), hashlib.sha256).hexdigest()
    return f"t={timestamp},v1={digest}"


def send(
    url: str, body: bytes, headers: dict[str, str], network: AllowedNetworks, timeout_s: float = TIMEOUT_S
) -> DeliveryResponse:
    """Send a body and return the result; failures of the receiver never raise."""
    try:
        # A new client for each request: two host names may share an address, but must not share a connection.
        with (
            within(timeout_s),
            httpx.Client(transport=GuardedTransport(network), timeout=TIMEOUT_S) as client,
            client.stream("POST", url, content=body, headers={**headers, "Accept-Encoding": "identity"}) as response,
        ):
            if response.is_success:
                return DeliveryResponse(True, response.status_code)
            answer = next(response.iter_raw(KEPT_BYTES), b"").decode("utf-8", "replace")
            hint = " (redirections are not followed)" if response.is_redirect else ""
            error = f"it answered {response.status_code}{hint}: {answer}".rstrip(": ")
            return DeliveryResponse(False, response.status_code, error)
    except httpx.TimeoutException:
        return DeliveryResponse(False, error=f"no answer within {timeout_s:g} s")
    except (ForbiddenAddressError, ConfigurationError) as error:
        return DeliveryResponse(False, error=str(error))
    except (httpx.HTTPError, httpx.InvalidURL, OSError, UnicodeError) as error:
        return DeliveryResponse(False, error=f"the connection failed ({type(error).__name__})")
