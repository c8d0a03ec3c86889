"""Stable reasons for rejecting an answer when it is read. Runs count them; dashboards and prompts show them."""

from enum import StrEnum
from typing import Final

from speciate.domain.candidate import Failure, FailureKind
from speciate.domain.values import storable
from speciate.prompts.text import bounded

_MAX_DETAIL: Final = 2000


class Reason(StrEnum):
    """Reasons of ``FailureKind.REJECTED``."""

    REFUSED = "refused"
    """The endpoint, its filter or the model refused the prompt."""
    ONLY_REASONING = "only_reasoning"
    """The endpoint sent reasoning and no answer, although the completion is complete."""
    NO_TEXT = "no_text"
    """The completion is empty, although it is complete."""
    NO_CODE_BLOCK = "no_code_block"
    """The completion has no program: no fenced block, no diff, and it is not a program itself."""
    NO_ANSWER = "no_answer"
    """The completion has no text for a data document."""
    TOOL_CALL = "tool_call"
    """The completion calls a tool, without a program among the arguments; no tools are offered."""
    TRUNCATED = "truncated"
    """The completion reached its limit of tokens before its last program was complete."""
    TRUNCATED_THINKING = "truncated_thinking"
    """The completion reached its limit of tokens while the model was still reasoning."""
    SYNTAX_ERROR = "syntax_error"
    CODE_LEFT_OUT = "code_left_out"
    """A line such as ``# ... rest unchanged`` stands for code that the program lacks."""
    PROGRAM_TOO_LARGE = "program_too_large"
    UNSTORABLE_TEXT = "unstorable_text"
    """The program has a null byte or half of a surrogate pair."""
    EMPTY_DIFF = "empty_diff"
    DIFF_MALFORMED = "diff_malformed"
    """A SEARCH/REPLACE block is truncated, or there is no program to apply it to."""
    DIFF_SEARCH_NOT_FOUND = "diff_search_not_found"
    """The lines to replace are not in the parent."""
    DIFF_AMBIGUOUS = "diff_ambiguous"
    """The lines to replace occur in the parent more than once."""
    FILES_MALFORMED = "files_malformed"
    """The answer is not a set of files, or a file name is invalid."""
    PROTECTED_REGION_CHANGED = "protected_region_changed"
    """Lines outside of the EVOLVE-BLOCKs differ from the parent."""
    DUPLICATE_IN_ROLLOUT = "duplicate_in_rollout"


def rejected(reason: Reason, detail: str) -> Failure:
    return Failure(FailureKind.REJECTED, reason.value, bounded(storable(detail), _MAX_DETAIL))
