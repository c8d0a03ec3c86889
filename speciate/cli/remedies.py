"""Where to look for what was not found: the service says what is missing, the command line how to see what is there."""

from __future__ import annotations

import re
from typing import Final

from speciate.domain.errors import NotFoundError

_MISSING: Final = re.compile(
    r"there is no (problem set|problem|policy|run|candidate|tournament|campaign|webhook)\b(?: '([^']*)')?"
)
_LISTS: Final = {
    "problem set": "speciate sets list",
    "problem": "speciate problems list",
    "policy": "speciate policies list",
    "run": "speciate runs list",
    "candidate": "speciate candidates list RUN",
    "tournament": "speciate tournament list",
    "campaign": "speciate campaign list",
    "webhook": "speciate webhooks list",
}


def with_remedy(error: NotFoundError) -> NotFoundError:
    """Return the error with the command that shows what is there; one that has a remedy, or is about else, as it is."""
    missing = _MISSING.match(str(error))
    if missing is None or error.remedy is not None:
        return error
    what, name = missing[1], missing[2] or ""
    remedy = f"See `{_LISTS[what]}`."
    if what == "problem" and (slug := name.partition("@")[0]) in _bundled():
        remedy = f"It comes with Speciate: `speciate problems add {slug}` submits it."
    return NotFoundError(str(error), remedy=remedy)


def _bundled() -> frozenset[str]:
    from speciate.problems.loader import bundled

    return frozenset(bundled())
