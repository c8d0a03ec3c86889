"""Keep a failed part of the reconciler's pass from holding up the others."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import InterfaceError, OperationalError

from speciate.domain.errors import NewerRecordError, UnavailableError

_log = logging.getLogger(__name__)


@contextmanager
def guarded(part: str) -> Iterator[None]:
    """Log an error of a part of the pass. One of a required service that is away is raised: it ends the pass."""
    try:
        yield
    except NewerRecordError as error:
        _log.warning("%s: %s", part, error)
    except (UnavailableError, OperationalError, InterfaceError):
        raise
    except Exception:  # noqa: BLE001 - the other parts must still run
        _log.exception("%s", part)
