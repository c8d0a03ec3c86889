"""Why an answer is refused on reading. The reasons are stable: runs count them, dashboards and prompts name them."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from speciate.domain.candidate import Failure, FailureKind
from speciate.domain.values import storable
from speciate.prompts.text import bounded

_MAX_DETAIL: Final = 2000


class Reason(StrEnum):
    """Reasons of ``FailureKind.REJECTED``."""

    NO_CODE_BLOCK = "no_code_block"
    """The completion holds no program: no fenced block, no diff, and it is not a program itself."""
    NO_ANSWER = "no_answer"
    """The completion holds no text where a data document was asked for."""
    SYNTAX_ERROR = "syntax_error"
    """The program is not Python."""
    PROGRAM_TOO_LARGE = "program_too_large"
    """The program is over ``MAX_PROGRAM_BYTES``."""
    UNSTORABLE_TEXT = "unstorable_text"
    """The program holds a null byte or half of a surrogate pair."""
    EMPTY_DIFF = "empty_diff"
    """The diff changes nothing."""
    DIFF_MALFORMED = "diff_malformed"
    """A SEARCH/REPLACE block is cut off, or there is nothing it could be applied to."""
    DIFF_SEARCH_NOT_FOUND = "diff_search_not_found"
    """The lines to replace are not in the parent."""
    DIFF_AMBIGUOUS = "diff_ambiguous"
    """The lines to replace are in the parent more than once."""
    FILES_MALFORMED = "files_malformed"
    """The answer is no set of files, or one of them has a name that cannot be."""
    PROTECTED_REGION_CHANGED = "protected_region_changed"
    """Lines outside of the EVOLVE-BLOCKs differ from the parent."""
    DUPLICATE_IN_ROLLOUT = "duplicate_in_rollout"
    """The same program stands earlier in the same completion."""


def rejected(reason: Reason, detail: str) -> Failure:
    """Return the failure; ``detail`` is cut to a length that fits a prompt."""
    return Failure(FailureKind.REJECTED, reason.value, bounded(storable(detail), _MAX_DETAIL))
