"""Base types of all domain values: names, frozen models, canonical JSON and digests."""

import hashlib
import json
import re
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, ClassVar, Final, Self

from pydantic import ConfigDict, Field, StringConstraints

from speciate.domain.documented import Documented

MAX_PROGRAM_BYTES = 1 << 20
"""Largest accepted program text, in bytes of UTF-8."""

SLUG: Final = r"^[a-z0-9]+(?:-[a-z0-9]+)*$"
IDENTIFIER: Final = r"^[A-Za-z_][A-Za-z0-9_]*$"
FILE_NAME: Final = r"^[A-Za-z0-9_][A-Za-z0-9._-]*$"
FILE_PATH: Final = r"^[A-Za-z0-9_][A-Za-z0-9._-]*(/[A-Za-z0-9_][A-Za-z0-9._-]*)*$"
MODULE_NAME: Final = r"^[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*$"
WEB_ADDRESS: Final = r"^https?://"
WORD: Final = r"^[\x21-\x7e]{1,255}$"
ONE_LINE: Final = r"^[^\x00-\x1f\x7f]+$"
LINE: Final = r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]*$"
# Without a slash, so that the name of a file is never taken for ``run/number``.
NAME: Final = r"^[^/\x00-\x1f\x7f-\x9f\u2028\u2029]*$"
RUN_ID: Final = r"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"
TAG: Final = r"^[A-Za-z0-9][A-Za-z0-9._:/=+-]*$"
NO_NUL: Final = r"^[^\x00]+$"
KEY_ID: Final = r"^[0-9a-f-]{36}$"

MAX_REASON: Final = 2000
MAX_SLUG: Final = 80
Slug = Annotated[str, StringConstraints(pattern=SLUG, min_length=1, max_length=MAX_SLUG)]
"""Name of a problem, set or policy: lower-case words joined by hyphens."""

Identifier = Annotated[str, StringConstraints(pattern=IDENTIFIER, min_length=1, max_length=80)]
"""Name that is valid in rules and programs."""

FilePath = Annotated[str, StringConstraints(pattern=FILE_PATH, min_length=1, max_length=160)]
"""Path of a file below a folder, with slashes."""

FileName = Annotated[str, StringConstraints(pattern=FILE_NAME, min_length=1, max_length=80)]
"""Name of a file without a folder."""

ModuleName = Annotated[str, StringConstraints(pattern=MODULE_NAME, max_length=120)]
"""Name of a Python module."""

REQUIREMENT: Final = (
    r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?( *\[[A-Za-z0-9._, -]+\])?( *(===?|~=|!=|<=?|>=?) *[A-Za-z0-9.*+!_-]+"
    r"( *,)?)*( *;[A-Za-z0-9_.'\"<>=!~ ()]+)?( +--hash=sha256:[0-9a-f]{64})* *$"
)

Requirement = Annotated[str, StringConstraints(pattern=REQUIREMENT, max_length=20_000)]
"""Name of a package with versions, extras, a marker and hashes (PEP 508), without URLs, paths and other options."""

Finite = Annotated[float, Field(allow_inf_nan=False)]
"""A float that is neither NaN nor infinite."""


UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")
"""Characters that cannot be stored: PostgreSQL refuses NUL, UTF-8 refuses surrogates."""


def slug_of(text: str, otherwise: str) -> str:
    return "-".join(re.findall("[a-z0-9]+", text.lower()))[:MAX_SLUG].rstrip("-") or otherwise


def identifier_of(text: str) -> str:
    return re.sub(r"\W|^(?=\d)|^$", "_", text, flags=re.ASCII)


class Value(Documented):
    """Base of the frozen models. Unknown fields are errors, so that typing mistakes are never ignored."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    omitted_at_default: ClassVar[frozenset[str]] = frozenset()
    """Fields that enter the stored JSON and the digest only when they differ from their default. Their defaults never
    change."""

    def stored_json(self) -> dict[str, Any]:
        """Return the value as JSON to store, without nested ``omitted_at_default`` fields at their defaults.

        A definition keeps its digest when such a field is added. During an upgrade, older processes can read records of
        newer ones as long as the field is not used.
        """
        values: dict[str, Any] = _omit_defaults(self, self.model_dump(mode="json"))
        return values

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy with changes; cached properties, such as a digest, are computed again if anything changes."""
        copied = super().model_copy(update=update, deep=deep)
        if update:
            for name in copied.__dict__.keys() - type(self).model_fields.keys():
                del copied.__dict__[name]
        return copied


class Digested(Value):
    @cached_property
    def digest(self) -> str:
        """SHA-256 of the stored JSON: values with equal digests are the same."""
        return digest_of(self.stored_json())


def merged(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of both; those of the second win, key by key also inside of tables."""
    values = dict(first)
    for key, value in second.items():
        tables = isinstance(value, Mapping) and isinstance(values.get(key), Mapping)
        values[key] = merged(values[key], value) if tables else value
    return values


def canonical_json(value: Any) -> str:
    """Return the canonical JSON text of a value: sorted keys, no blanks, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def digest_of(value: Any) -> str:
    """Return the SHA-256 of ``canonical_json(value)`` as 64 hexadecimal digits."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def _omit_defaults(value: object, dumped: Any) -> Any:
    match value:
        case Value():
            stored = dumped.keys() - {name for name in value.omitted_at_default if _is_default(value, name)}
            return {name: _omit_defaults(getattr(value, name), dumped[name]) for name in dumped if name in stored}
        case tuple() | list():
            return [_omit_defaults(*pair) for pair in zip(value, dumped, strict=True)]
        case dict() if all(key in dumped for key in value):
            return {key: _omit_defaults(inner, dumped[key]) for key, inner in value.items()}
        case _:
            return dumped


def _is_default(value: Value, name: str) -> bool:
    return bool(getattr(value, name) == type(value).model_fields[name].get_default(call_default_factory=True))


def text_digest(text: str) -> str:
    """Return the SHA-256 of a text as 64 hexadecimal digits."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def spreadsheet_text(text: str) -> str:
    """Return a text for a cell of a CSV file, which no spreadsheet takes for a formula or for two rows."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")  # which the csv module quotes
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\n")) else text


def storable(text: str) -> str:
    """Replace NUL characters and lone surrogates, which PostgreSQL and JSON refuse, by U+FFFD."""
    return UNSTORABLE.sub("\ufffd", text)


def stored_text(text: str) -> str:
    if UNSTORABLE.search(text):
        raise ValueError("holds characters that cannot be stored")
    return text
