"""Read the ancestors of a candidate and their children, for policies that learn from what was tried."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Final

import numpy as np

from speciate.domain.candidate import Individual
from speciate.ports.work import RunContext, WorkStore

_MOST: Final = 400
"""Relatives to read; their programs are parsed."""


class Relatives:
    """The lineage of a run, read once and only if a policy asks for it."""

    def __init__(self, work: WorkStore, context: RunContext) -> None:
        self._work = work
        self._context = context

    def of(self, parents: Sequence[int]) -> Sequence[tuple[Individual, float]]:
        """Return what ``SampleRequest.relatives`` returns, the nearest ones."""
        if not parents:
            return ()
        parent_of, children_of = self._lineage
        numbers = dict.fromkeys(parents[:1])
        at = parents[0]
        while at and len(numbers) < _MOST:
            numbers |= dict.fromkeys((at, *reversed(children_of[at])))
            at = parent_of.get(at, 0)
        members = self._work.members(self._context.run_id, list(numbers)[:_MOST])
        return [(member, self._value(member)) for _, member in sorted(members.items())]

    @cached_property
    def _lineage(self) -> tuple[Mapping[int, int], Mapping[int, list[int]]]:
        """Return the first parent of every candidate, and the children of every candidate, oldest first."""
        parent_of, children_of = dict[int, int](), defaultdict[int, list[int]](list)
        for number, parent, _ in self._work.lineage_rows(self._context.run_id):
            parent_of[number] = parent
            children_of[parent].append(number)
        return parent_of, children_of

    def _value(self, member: Individual) -> float:
        if member.rewards is None:
            return -math.inf
        problem = self._context.problem
        return float(np.average(problem.space.normalise([member.rewards])[0], weights=problem.weight_vector))
