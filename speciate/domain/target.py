"""Targets: the named rules whose first confirmed fulfilment is put on record."""

from __future__ import annotations

from pydantic import Field

from speciate.domain.values import Identifier, Value


class Target(Value):
    """A named rule over the reward vector.

    Attributes:
        name: Name in the record, such as ``record_level``.
        rule: Rule in the grammar of ``speciate.domain.rule``, over raw rewards.
        unlock: Whether meeting it unlocks the problem; exactly one target of a problem does.
        description: One line on what meeting it means.
    """

    name: Identifier
    rule: str = Field(min_length=1, max_length=10_000)
    unlock: bool = False
    description: str = Field(default="", max_length=2000)
