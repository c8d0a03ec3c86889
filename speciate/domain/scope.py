"""What a token allows."""

from __future__ import annotations

from enum import StrEnum


class Scope(StrEnum):
    """What a token allows; each one includes those before it."""

    READ = "read"
    SUBMIT = "submit"
    ADMIN = "admin"

    def includes(self, other: Scope) -> bool:
        """Tell whether whoever has this one may do what needs the other."""
        order = [*Scope]
        return order.index(self) >= order.index(other)
