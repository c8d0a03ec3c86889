"""Read completions: each becomes a rollout, and its answers become proposals."""

from collections.abc import Sequence
from dataclasses import replace

from speciate.domain.candidate import Proposal
from speciate.domain.policy import PolicyRole
from speciate.domain.rollout import Completion, Rollout
from speciate.domain.values import storable, text_digest
from speciate.ports.policy import SampleResult
from speciate.ports.work import LearnedVersion, RunContext
from speciate.prompts.guidance import read_advice
from speciate.prompts.parse import Answer, parse_completion
from speciate.runs.novelty import shape_of
from speciate.runs.prompting import PlannedRequest, Prompter
from speciate.search.strategy import Selection


def read_answers(
    planned: Sequence[PlannedRequest],
    results: Sequence[SampleResult],
    context: RunContext,
    version: LearnedVersion | None = None,
) -> tuple[tuple[Rollout, ...], tuple[Proposal, ...]]:
    """Return the rollouts of all completions and the proposals of all answers, in order.

    The polisher writes no rollouts. ``version`` is the learned version of the policy that answered, if the run learns.
    """
    rollouts: list[Rollout] = []
    proposals: list[Proposal] = []
    wrote = None if version is None else str(version.policy_id)
    for plan, result in zip(planned, results, strict=True):
        for position, raw in enumerate(result.completions):
            # Parse the text as it will be stored, so that a replay parses the same text.
            completion = replace(raw, text=storable(raw.text))
            advises = plan.selection.role is PolicyRole.ADVISE
            if plan.selection.role is PolicyRole.POLISH:
                proposals += _children(plan, completion, context, None, None)
                continue
            children = [] if advises else _children(plan, completion, context, len(rollouts), wrote)
            rollouts.append(
                Rollout(
                    role=plan.selection.role,
                    prompt=plan.request.prompt,
                    completion=completion,
                    seed=plan.request.seed,
                    prompt_tokens=result.prompt_tokens if position == 0 else 0,
                    latency_s=result.latency_s,
                    answers=sum(child.failure is None for child in children),
                    reason=_no_advice(completion) if advises else no_program(children),
                    policy=plan.position,
                    version=wrote,
                    advice=plan.advice,
                    estimated_tokens=result.estimated_tokens if position == 0 else 0,
                    cost=result.cost_of_each,
                )
            )
            proposals.extend(children)
    return tuple(rollouts), tuple(proposals)


def _children(
    plan: PlannedRequest, completion: Completion, context: RunContext, rollout: int | None, wrote: str | None
) -> list[Proposal]:
    answers = parse_completion(
        completion.text,
        problem=context.problem,
        policy=plan.policy,
        parent=plan.request.parents[0].program if plan.request.parents else context.problem.seed_program or None,
        finish_reason=completion.finish_reason,
    )
    children = proposals_of(answers, plan.selection, rollout, plan.advice)
    return [
        # The shape is computed here, because the program was just parsed.
        replace(
            child,
            policy=plan.position,
            version=wrote,
            shape=None if child.failure else shape_of(context, child.program),
        )
        for child in children
    ]


def repetitions(repeated: Sequence[tuple[Selection, int]], prompter: Prompter) -> tuple[Proposal, ...]:
    """Return the proposals that evaluate programs again, given as selections with a number of evaluations."""
    members = prompter.members([selection for selection, _ in repeated])
    return tuple(
        Proposal(program, text_digest(program), PolicyRole.REPEAT, island=selection.island)
        for selection, evaluations in repeated
        for program in [members[number].program for number in selection.parents] * evaluations
    )


def proposals_of(
    answers: Sequence[Answer], selection: Selection, rollout: int | None, advice: int | None
) -> list[Proposal]:
    """Return the proposals of one completion: at least one, so that every completion costs an evaluation."""
    return [
        Proposal(
            program=answer.program,
            program_hash=text_digest(answer.program),
            role=selection.role,
            island=selection.island,
            parents=selection.parents,
            inspirations=selection.inspirations,
            rollout=rollout,
            answer=position,
            failure=answer.failure,
            advice=advice,
            note=answer.note,
        )
        for position, answer in enumerate(answers)
    ]


def no_program(proposals: Sequence[Proposal]) -> str | None:
    return next((proposal.failure.reason for proposal in proposals if proposal.failure), None)


def _no_advice(completion: Completion) -> str | None:
    if not completion.has_answer:
        return completion.finish_reason
    return None if read_advice(completion.text) else "no_advice"
