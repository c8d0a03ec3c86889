"""Options of the policy kind ``openai_compatible``."""

import re
from typing import Annotated, Final, Literal

from pydantic import Field, StringConstraints, field_validator

from speciate.policies.request_fields import RequestFields

_RESERVED_HEADERS: Final = frozenset({
    "accept", "accept-encoding", "connection", "content-encoding", "content-length", "content-type", "expect", "host",
    "keep-alive", "te", "trailer", "transfer-encoding", "upgrade",
})  # fmt: skip
KEY_PLACE: Final = "{key}"
"""What stands for the policy's key in the value of a header."""
_SECRET: Final = re.compile(r"auth|key|token|secret|cookie|passw|credential|signature", re.IGNORECASE)

HeaderName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$", max_length=100)]
HeaderValue = Annotated[str, StringConstraints(pattern=r"^[\x20-\x7e]*$", max_length=2000)]


class OpenAICompatibleOptions(RequestFields):
    max_retries: int = Field(default=4, ge=0, le=20)
    """Attempts after the first one."""
    backoff_s: float = Field(default=0.5, ge=0, le=60)
    """Ceiling of the first wait between attempts; it doubles with every attempt."""
    longest_wait_s: float = Field(default=30.0, ge=0, le=600)
    """Longest wait between attempts, even if the server requests more."""
    outage_s: float = Field(default=300.0, ge=0, le=86_400)
    """Time for further attempts at an endpoint that has given an answer before."""
    concurrency: int = Field(default=8, ge=1, le=256)
    """Requests of one call that run at the same time."""
    chat_overhead_tokens: int = Field(default=512, ge=0, le=100_000)
    """Tokens that the chat template may add to a prompt; only the token ceiling counts them."""
    max_response_bytes: int = Field(default=64 << 20, ge=1 << 10, le=1 << 28)
    """Largest response to read."""
    check: bool = True
    """True to read the list of models before a run; some gateways have none."""
    base_model: str | None = Field(default=None, min_length=1, max_length=500)
    """Base model of an adapter, which must be served."""
    adapter_path: str | None = Field(default=None, min_length=1, max_length=4000)
    """Path of the adapter ``model`` on the server's machine, to load it when it is not loaded; None for an adapter that
    the server was started with."""
    stream: bool = False
    """True to request streams, for endpoints that answer long requests in no other way."""
    system_role: Literal["system", "user"] = "system"
    """``user`` puts the system text before the user's, for chat templates without a system role."""
    headers: dict[HeaderName, HeaderValue] = Field(default_factory=dict, max_length=20)
    """Further headers of every request. ``{key}`` in a value stands for the policy's key, which is then not sent as
    ``Authorization``."""

    @field_validator("headers")
    @classmethod
    def _leaves_connection_and_secrets(cls, headers: dict[str, str]) -> dict[str, str]:
        for name, value in headers.items():
            if name.lower() in _RESERVED_HEADERS or name.lower().startswith("proxy-"):
                raise ValueError(f"{name} belongs to the connection: expected another header")
            if _SECRET.search(name) and KEY_PLACE not in value:
                raise ValueError(
                    f"{name} seems to hold a secret, and options are readable: expected {KEY_PLACE} in its value, which"
                    " stands for the key that is stored with the policy"
                )
        return headers
