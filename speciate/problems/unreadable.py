"""Error of files beside a problem definition."""

from __future__ import annotations


class UnreadableError(Exception):
    """A file beside the definition cannot be used; the message states the reason and the expected file."""
