"""Small types that every domain value is made of."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

MAX_PROGRAM_BYTES = 1 << 20
"""Largest program text that is accepted, in bytes of UTF-8."""

SLUG: Final = r"^[a-z0-9]+(?:-[a-z0-9]+)*$"
IDENTIFIER: Final = r"^[A-Za-z_][A-Za-z0-9_]*$"
FILE_NAME: Final = r"^[A-Za-z0-9_][A-Za-z0-9._-]*$"
MODULE_NAME: Final = r"^[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*$"
WEB_ADDRESS: Final = r"^https?://"

Slug = Annotated[str, StringConstraints(pattern=SLUG, min_length=1, max_length=80)]
"""Name of a problem, set or policy: lower-case words joined by hyphens."""

Identifier = Annotated[str, StringConstraints(pattern=IDENTIFIER, min_length=1, max_length=80)]
"""Name that may stand in a rule or a program."""

FileName = Annotated[str, StringConstraints(pattern=FILE_NAME, min_length=1, max_length=80)]
"""Name of a file without a folder."""

ModuleName = Annotated[str, StringConstraints(pattern=MODULE_NAME, max_length=120)]
"""Name of a Python module."""

Finite = Annotated[float, Field(allow_inf_nan=False)]
"""A float that is neither NaN nor infinite."""


UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")
"""Characters that cannot be stored: PostgreSQL refuses NUL, UTF-8 refuses surrogates."""


class Value(BaseModel):
    """Base of the frozen models: unknown fields are refused, so that a typing mistake is never silently ignored."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def canonical_json(value: Any) -> str:
    """Return the one JSON text of ``value``: sorted keys, no blanks, NaN refused."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def digest_of(value: Any) -> str:
    """Return the SHA-256 of ``canonical_json(value)`` as 64 hexadecimal digits."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def digest_without_defaults(value: Value, came_later: Iterable[str]) -> str:
    """Return the SHA-256 of a value's JSON text, without fields that came later as long as they are at their defaults.

    So what was registered before such a field was there is still the same version.
    """
    fields = type(value).model_fields
    unset = {name for name in came_later if getattr(value, name) == fields[name].get_default(call_default_factory=True)}
    return digest_of(value.model_dump(mode="json", exclude=unset))


def text_digest(text: str) -> str:
    """Return the SHA-256 of a text as 64 hexadecimal digits."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def storable(text: str) -> str:
    """Return the text without what PostgreSQL and JSON refuse: NUL characters and lone surrogates become U+FFFD."""
    return UNSTORABLE.sub("\ufffd", text)
