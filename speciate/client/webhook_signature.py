"""Verify the signature of webhook messages."""

import hmac
import time

from speciate.egress.delivery import signature


def verify_webhook(secret: str, header: str, body: bytes, *, tolerance_s: float = 300.0) -> bool:
    """Return True if a message was recently signed with the secret of a webhook.

    Args:
        secret: The secret shown when the webhook was created.
        header: The value of ``Speciate-Signature``.
        body: The body as received, not decoded and encoded again.
        tolerance_s: Maximum age of the message, including clock differences.
    """
    timestamp = dict(part.strip().partition("=")[::2] for part in header.split(",")).get("t", "")
    if not timestamp.isascii() or not timestamp.isdecimal() or len(timestamp) > 12:
        return False
    expected = signature(secret, int(timestamp), body)
    genuine = hmac.compare_digest(expected.encode(), header.replace(" ", "").encode())
    return genuine and abs(time.time() - int(timestamp)) <= tolerance_s
