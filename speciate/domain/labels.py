"""Labels of runs: name, tags and note for people. They do not affect the run."""

from typing import Annotated, Final

from pydantic import AfterValidator, Field, StringConstraints

from speciate.domain.errors import invalid_field
from speciate.domain.values import LINE, TAG, Value, stored_text

MAX_TAGS: Final = 16
MAX_NAME_CHARS: Final = 120
MAX_TAG_CHARS: Final = 40
MAX_NOTE_CHARS: Final = 4000


RunName = Annotated[
    str, StringConstraints(strip_whitespace=True, max_length=MAX_NAME_CHARS, pattern=LINE), AfterValidator(stored_text)
]
"""One line, or empty."""

Tag = Annotated[str, StringConstraints(min_length=1, max_length=MAX_TAG_CHARS, pattern=TAG)]
"""A word without blanks or commas, so that lists of tags can use either as separator."""

Tags = Annotated[tuple[Tag, ...], Field(max_length=MAX_TAGS), AfterValidator(lambda tags: tuple(dict.fromkeys(tags)))]
"""Distinct tags, in the given order."""

Note = Annotated[str, StringConstraints(strip_whitespace=True, max_length=MAX_NOTE_CHARS), AfterValidator(stored_text)]
"""Plain text of any number of lines."""


class Labels(Value):
    """Labels of a run; not part of its spec."""

    name: RunName = ""
    """One line; several runs may share it."""
    tags: Tags = ()
    """Words that runs share, such as ``baseline`` or ``arm:a``."""
    note: Note = ""
    """Free text."""


NO_LABELS: Final = Labels()


class Relabelling(Value):
    """A change of labels. Fields left out or null stay; an empty text or list clears the label."""

    name: RunName | None = None
    """The new name."""
    tags: Tags | None = None
    """The complete new tags."""
    add_tags: Tags = ()
    """Tags to add."""
    remove_tags: Tags = ()
    """Tags to remove, applied after ``add_tags``; unknown ones are ignored."""
    note: Note | None = None
    """The new note."""

    def of(self, labels: Labels) -> Labels:
        """Return the labels with the changes applied; raises ``InvalidInputError`` if there would be too many tags."""
        before = labels.tags if self.tags is None else self.tags
        tags = tuple(tag for tag in dict.fromkeys((*before, *self.add_tags)) if tag not in self.remove_tags)
        if len(tags) > MAX_TAGS:
            message = f"would give {len(tags)} tags: expected at most {MAX_TAGS}"
            raise invalid_field("The set of labels", "add_tags", message)
        return Labels(
            name=labels.name if self.name is None else self.name,
            tags=tags,
            note=labels.note if self.note is None else self.note,
        )
