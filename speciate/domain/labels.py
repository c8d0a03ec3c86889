"""Labels of runs: what people call them and look for them by. Nothing that a run does depends on them."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import AfterValidator, Field, StringConstraints

from speciate.domain.errors import FieldError, InvalidInputError
from speciate.domain.values import LINE, TAG, UNSTORABLE, Value

MOST_TAGS: Final = 16
MAX_NAME_CHARS: Final = 120
MAX_TAG_CHARS: Final = 40
MAX_NOTE_CHARS: Final = 4000


def _storable(text: str) -> str:
    if UNSTORABLE.search(text):
        raise ValueError("holds characters that cannot be stored")
    return text


RunName = Annotated[
    str,
    StringConstraints(strip_whitespace=True, max_length=MAX_NAME_CHARS, pattern=LINE),
    AfterValidator(_storable),
]
"""One line, or nothing."""

Tag = Annotated[str, StringConstraints(min_length=1, max_length=MAX_TAG_CHARS, pattern=TAG)]
"""A word without blanks and commas, so that lists of them can be written with either between."""

Tags = Annotated[tuple[Tag, ...], Field(max_length=MOST_TAGS), AfterValidator(lambda tags: tuple(dict.fromkeys(tags)))]
"""Every tag once, in the order in which they were given."""

Note = Annotated[str, StringConstraints(strip_whitespace=True, max_length=MAX_NOTE_CHARS), AfterValidator(_storable)]
"""Plain text of any number of lines."""


class Labels(Value):
    """What people call a run; no part of its spec.

    Attributes:
        name: One line; several runs may have the same.
        tags: Words that runs share, such as ``baseline`` or ``arm:a``.
        note: What is to be known about it.
    """

    name: RunName = ""
    tags: Tags = ()
    note: Note = ""


class Relabelling(Value):
    """What is changed in labels. What is left out or null stays; an empty text or list takes away what was there.

    Attributes:
        name: The new name.
        tags: The new tags, all of them.
        add_tags: Tags to add, whatever others there are.
        remove_tags: Tags to take away, those just added among them; one that is not there is no mistake.
        note: The new note.
    """

    name: RunName | None = None
    tags: Tags | None = None
    add_tags: Tags = ()
    remove_tags: Tags = ()
    note: Note | None = None

    def of(self, labels: Labels) -> Labels:
        """Return labels with the changes.

        Raises:
            InvalidInputError: There would be too many tags.
        """
        held = labels.tags if self.tags is None else self.tags
        tags = tuple(tag for tag in dict.fromkeys((*held, *self.add_tags)) if tag not in self.remove_tags)
        if len(tags) > MOST_TAGS:
            flaw = FieldError(f"would make it {len(tags)} tags: expected at most {MOST_TAGS}", where="add_tags")
            raise InvalidInputError(f"The labels are not valid: {flaw}", flaws=(flaw,))
        return Labels(
            name=labels.name if self.name is None else self.name,
            tags=tags,
            note=labels.note if self.note is None else self.note,
        )
