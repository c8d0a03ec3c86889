"""How secret keys are given: one or several in a text."""

from __future__ import annotations

from typing import Final

VARIABLE: Final = "SPECIATE_SECRET_KEY"
SHORTEST: Final = 32
"""Characters of a secret key: less could be guessed."""


def split_keys(text: str) -> tuple[str, ...]:
    """Return the secret keys of a comma-separated text.

    Raises:
        ValueError: There is none, or one is too short; the message does not repeat it.
    """
    keys = tuple(part.strip() for part in text.replace("\n", ",").split(",") if part.strip())
    if not keys or any(len(key) < SHORTEST for key in keys):
        raise ValueError(f"expected one or several keys of at least {SHORTEST} characters, separated by commas")
    return keys
