"""Random numbers depend on the seed and problem of a run and on nothing else."""

from __future__ import annotations

from dataclasses import replace
from uuid import uuid4

from speciate.ports.work import RunContext
from speciate.runs.evaluation import evaluation_seed
from speciate.runs.prompting import batch_rng
from tests.support.runs import toy_policy, toy_problem, toy_spec


def _context(confirmations: int = 1) -> RunContext:
    return RunContext(uuid4(), toy_problem(confirmations=confirmations), toy_policy(), uuid4(), toy_spec(seed=3))


def _drawn(context: RunContext) -> tuple[float, int]:
    return batch_rng(context, 5).random(), evaluation_seed(context, 5)


def test_policies_on_one_problem_share_random_numbers_and_problems_do_not() -> None:
    first, again, other = _context(), _context(), _context(confirmations=2)
    another_policy = replace(again, proposer=toy_policy().model_copy(update={"slug": "another"}))
    assert _drawn(first) == _drawn(again) == _drawn(another_policy)
    for mine, theirs in zip(_drawn(first), _drawn(other), strict=True):
        assert mine != theirs


def test_batches_evaluations_and_seeds_differ() -> None:
    context = _context()
    other = replace(context, spec=toy_spec(seed=4))
    assert len({batch_rng(each, i).random() for each in (context, other) for i in range(3)}) == 6
    drawn = {evaluation_seed(each, i, repeat) for each in (context, other) for i in range(3) for repeat in range(3)}
    assert len(drawn) == 18
    assert all(0 <= seed < 2**31 for seed in drawn)
