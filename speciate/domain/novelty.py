"""Duplicates and near-duplicates: programs that a run does not evaluate again, or rejects."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from speciate.domain.documented import Flag
from speciate.domain.values import Value

if TYPE_CHECKING:
    from speciate.domain.problem import Problem


class DuplicateRule(StrEnum):
    TEXT = "text"
    """Equal texts."""
    SYNTAX = "syntax"
    """Equal Python syntax trees; comments, layout and unread docstrings are ignored."""


class Novelty(Value):
    """Options of duplicate and near-duplicate detection.

    A duplicate of an earlier program in the run gets the rewards of that program. A near-duplicate is rejected with
    reason ``near_duplicate``, but only if ``near`` is set.
    """

    same: Annotated[DuplicateRule | None, Flag("--same")] = None
    """Rule for duplicates. Default: by syntax for Python programs whose score cannot depend on their text."""
    near: Annotated[float | None, Flag("--reject-near", metavar="SIMILARITY")] = Field(default=None, gt=0, le=1)
    """Reject programs at least this similar to an earlier one, in (0, 1]: the Jaccard index of the sets of shingles."""
    shingle: int = Field(default=5, ge=1, le=32)
    """Tokens of a shingle in the measure of similarity."""
    window: int = Field(default=64, ge=1, le=1024)
    """Number of latest scored candidates to compare with; as many of the island's latest elites are added."""

    def duplicate_rule(self, problem: Problem) -> DuplicateRule:
        """Return the rule for two candidates of a problem.

        Python programs of one file are compared by ``same``; if it is None, by syntax tree unless their score may
        depend on the text (``Problem.scores_text``). All other candidates are compared by text.
        """
        if not problem.is_python or problem.many_files:
            return DuplicateRule.TEXT
        if self.same is not None:
            return self.same
        return DuplicateRule.TEXT if problem.scores_text else DuplicateRule.SYNTAX
