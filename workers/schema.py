"""What a worker does about the database's schema before it works: an old one is waited for, a new one is told."""

from __future__ import annotations

import logging
import time
from typing import Final

import psycopg

from speciate.settings import Settings
from speciate.storage.revision import NEWEST, Standing, revision_of, standing_of

_LOOK_S: Final = 0.2
_TELL_S: Final = 10.0
_log = logging.getLogger(__name__)


def wait_for_schema(settings: Settings) -> None:
    """Return once the schema has everything that this program needs; whoever migrates may come later."""
    url = "" if settings.database_url is None else settings.database_url.get_secret_value()
    told = time.monotonic()
    while (missing := _missing(url)) is not None:
        if time.monotonic() - told >= _TELL_S:
            told = time.monotonic()
            _log.warning("this worker waits: %s", missing)
        time.sleep(_LOOK_S)


def _missing(url: str) -> str | None:
    try:
        revision = revision_of(url)
    except psycopg.Error as error:
        return f"the schema of the database cannot be read ({type(error).__name__})"
    match standing_of(revision):
        case Standing.OLDER:
            return f"the schema has revision {revision or 'none'}, {NEWEST} is needed: run `speciate migrate`"
        case Standing.NEWER:
            _log.warning("the schema has revision %s; this program, made for %s, works on with it", revision, NEWEST)
    return None
