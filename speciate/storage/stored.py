"""Reading definitions that another process wrote, perhaps one of a newer version."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import ValidationError

from speciate import __version__
from speciate.domain.errors import NewerRecordError
from speciate.domain.values import Value

V = TypeVar("V", bound=Value)


def read_stored(kind: type[V], values: Any) -> V:
    """Return a value from its JSON in a table, as ``Value.stored_json`` wrote it.

    Raises:
        NewerRecordError: It holds something that this version does not know.
    """
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        # Texts of users are not repeated, only where they stand.
        places = ", ".join(".".join(map(str, flaw["loc"])) or "all of it" for flaw in error.errors()[:3])
        raise NewerRecordError(
            f"A {kind.__name__} in the database cannot be read by this process, of version {__version__}: {places}.",
            remedy="A newer version wrote it: restart this process with that version.",
        ) from None
