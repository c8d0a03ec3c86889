"""Restrict a server without a token to programs of this machine, and compare tokens in constant time.

Without a token, web pages in a browser on this machine remain a danger: a page may send requests to loopback under a
host name of its own (DNS rebinding) or from its own origin. The headers ``Host`` and ``Origin`` expose both.
"""

import re
import secrets
from collections.abc import Mapping
from typing import Final

from speciate.settings import is_loopback

_HOST: Final = re.compile(r"(\[[^]]*\]|[^:]*)(?::[0-9]*)?")


def bearer_token(headers: Mapping[str, str]) -> str | None:
    """Return the token of ``Authorization: Bearer``; None without such a header."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def same_token(sent: str | None, token: str) -> bool:
    """Return True if the tokens are equal; takes constant time, so that the delay reveals nothing."""
    return sent is not None and secrets.compare_digest(sent.encode("utf-8", "replace"), token.encode())


def from_own_page(headers: Mapping[str, str]) -> bool:
    """Return True if a page of this server sent the request, by its own headers."""
    host = headers.get("host")
    ours = headers.get("origin") in {f"{scheme}://{host}" for scheme in ("http", "https")}
    return ours and headers.get("sec-fetch-site") in {None, "same-origin"}


def refusal_reason(client: str | None, headers: Mapping[str, str], variable: str, *, changes: bool) -> str | None:
    """Return the reason to refuse a request to a server without a token, or None.

    ``variable`` names the setting that opens the server to other machines. ``changes`` is True if the request changes
    something, so that pages of another origin must not send it.
    """
    host, origin = headers.get("host", ""), headers.get("origin")
    name = _HOST.fullmatch(host)
    if client is not None and not is_loopback(client):
        return f"Without a token this server admits requests of its own machine only: set {variable} to open it."
    if name is None or not is_loopback(name[1]):
        return f"Without a token this server admits requests to localhost only: set {variable} to open it."
    if changes and origin is not None and origin not in {f"http://{host}", f"https://{host}"}:
        return "A page of another origin sent the request."
    return None
