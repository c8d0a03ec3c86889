"""Texts of progress that a long evaluation reports while it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_RECEIVER: ContextVar[Callable[[str], None] | None] = ContextVar("receiver", default=None)


@contextmanager
def reporting_to(receive: Callable[[str], None]) -> Iterator[None]:
    """Pass what ``report_progress`` receives in this thread within the block to a function."""
    token = _RECEIVER.set(receive)
    try:
        yield
    finally:
        _RECEIVER.reset(token)


def report_progress(text: str) -> None:
    """Report an untrusted text of progress; without a receiver it is dropped."""
    if (receive := _RECEIVER.get()) is not None:
        receive(text)
