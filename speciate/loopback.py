"""Who is let in by a server without tokens: programs of this machine. And how the one token of a server is compared.

Without a token a web page in a browser on this machine is the remaining danger: it may send requests to loopback under
a name of its own (DNS rebinding) or blindly from its own origin. Both are refused by what browsers say of themselves.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from speciate.settings import is_loopback


def bearer_token(headers: Mapping[str, str]) -> str | None:
    """Return what follows ``Authorization: Bearer``; None where there is no such header."""
    scheme, _, given = headers.get("authorization", "").partition(" ")
    return given.strip() if scheme.lower() == "bearer" else None


def same_token(given: str | None, token: str) -> bool:
    """Tell whether a token is the one, in constant time, so that the delay says nothing about it."""
    return given is not None and secrets.compare_digest(given.encode("utf-8", "replace"), token.encode())


def from_own_page(headers: Mapping[str, str]) -> bool:
    """Tell whether a request says that a page of this very server sent it."""
    host = headers.get("host")
    ours = headers.get("origin") in {f"{scheme}://{host}" for scheme in ("http", "https")}
    return ours and headers.get("sec-fetch-site") in {None, "same-origin"}


def stranger(client: str | None, headers: Mapping[str, str], variable: str, *, changes: bool) -> str | None:
    """Return why a request to an open server does not come from a program of this machine, or None.

    Args:
        client: Address that it came from, where that is known.
        headers: Its headers.
        variable: Name of the setting that opens the server.
        changes: Whether a page of another origin must not even ask.
    """
    host, origin = headers.get("host", ""), headers.get("origin")
    name = host[: host.find("]") + 1] if host.startswith("[") else host.partition(":")[0]
    if client is not None and not is_loopback(client):
        return f"Without a token this server answers its own machine only: set {variable} to open it."
    if not is_loopback(name):
        return f"Without a token this server answers under the name localhost only: set {variable} to open it."
    if changes and origin is not None and origin not in {f"http://{host}", f"https://{host}"}:
        return "The request was sent by a page of another origin."
    return None
