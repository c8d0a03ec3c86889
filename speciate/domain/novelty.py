"""What a run calls new: which programs it does not evaluate again, and which it does not evaluate at all."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from speciate.domain.problem import Problem
from speciate.domain.values import Value


class DuplicateRule(StrEnum):
    """When two programs count as the same one."""

    TEXT = "text"
    """Their texts are equal."""
    SYNTAX = "syntax"
    """Their Python syntax trees are equal; comments, layout and unread docstrings make no difference."""


class Novelty(Value):
    """What a run calls new.

    A program that is the same as an earlier one of the run is a duplicate: it gets the rewards of its twin. One that
    is only too much like an earlier one is rejected with reason ``near_duplicate``, and only where ``near`` is given.

    Attributes:
        same: When two programs are the same; None leaves it to the problem (``duplicate_rule``).
        near: Similarity (Jaccard index of the sets of token shingles) from which a program is rejected; None rejects
            none.
        shingle: Tokens in a shingle.
        window: Latest candidates that a new one is compared with, as far as they have rewards; as many of its island's
            latest elites come on top.
    """

    same: DuplicateRule | None = None
    near: float | None = Field(default=None, gt=0, le=1)
    shingle: int = Field(default=5, ge=1, le=32)
    window: int = Field(default=64, ge=1, le=1024)

    def duplicate_rule(self, problem: Problem) -> DuplicateRule:
        """Return when two candidates of a problem are the same.

        Left to the problem, trees are compared where scoring cannot see the text: expected outputs never do, a script
        does by ``candidate.source``. Candidates that are no Python programs are compared by text whatever is asked,
        and so are those of many files: which file holds what is no part of a syntax tree.
        """
        if not problem.is_python or problem.many_files:
            return DuplicateRule.TEXT
        if self.same is not None:
            return self.same
        return DuplicateRule.TEXT if problem.scores_text else DuplicateRule.SYNTAX
