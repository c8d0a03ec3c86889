"""Proposals from outside the service: prompts that proposers ask for, and admission of what they send (ADR 38)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

import numpy as np

from speciate.domain.candidate import NOT_THE_PROGRAMS_FAULT, FailureKind, Individual, Proposal
from speciate.domain.errors import ConflictError, InvalidInputError
from speciate.domain.policy import Policy, PolicyRole
from speciate.domain.problem import Problem, ProblemKind
from speciate.domain.rollout import Completion, Prompt, Rollout
from speciate.domain.run import RunState
from speciate.domain.target import TargetSet
from speciate.domain.values import storable
from speciate.ports.work import ProposedBatch, RunContext, WeightedPolicy, WorkStore
from speciate.prompts.diff import read_edits
from speciate.prompts.failures import is_of_program
from speciate.prompts.fences import filled_blocks, unfenced
from speciate.prompts.parse import Answer, parse_completion, read_program
from speciate.prompts.python_source import is_program
from speciate.prompts.rejection import Reason
from speciate.prompts.render import noun_of, secret_objectives, violations_text
from speciate.runs import ledger
from speciate.runs.answers import no_program, proposals_of
from speciate.runs.checks import check_advice_shown
from speciate.runs.progress import RunChange
from speciate.runs.prompting import Prompter, ShownPrompt
from speciate.runs.stored_population import StoredPopulation
from speciate.schema.candidates import CandidateDetail
from speciate.schema.proposals import (
    AskRecord,
    ProposalReceipt,
    ProposalRecord,
    ProposalState,
    ProposedCandidate,
    ReceiptStatus,
    ShownProgram,
)
from speciate.search.archive import draw_diverse, pool_of
from speciate.search.strategies import strategy_of
from speciate.search.strategy import Selection

_NO_PROMPT = Prompt("", "")
_BESIDE_BEST = 2
"""Programs shown beside the best candidate."""
_LAST = 0.1
"""Share of the evaluations, and at least two, at the end of which proposers change the best candidate."""


@dataclass(frozen=True, slots=True)
class Ask:
    id: UUID  # token that ties an answer to it
    selection: Selection  # role, island, parents and inspirations
    shown: ShownPrompt
    seed: int


def plan_asks(
    context: RunContext,
    work: WorkStore,
    policy: Policy,
    ids: Sequence[UUID],
    *,
    batch: int,
    hinted: bool,
    parents: Sequence[int] = (),
    own: int | None = None,
) -> list[Ask]:
    """Return prompts as the run's own policies would receive them; ``policy`` determines the form of the answers.

    The run's seed and the ``ids`` of the prompts determine all random choices; ``batch`` is the clock of the search.
    The strategy selects the parents, unless the proposer names some. Where it would have a program written from
    scratch, and near the end of the budget, the best feasible candidate is changed instead. If the proposer's latest
    candidate ``own`` failed, the first prompt asks to repair it.
    """
    strategy = strategy_of(context.spec)
    population = StoredPopulation(work, context, batch)
    prompter = Prompter(context, work, strategy, population, hinted=hinted, readers=[policy])
    rngs = [np.random.default_rng([context.spec.seed, int(context.problem.digest, 16), id_.int]) for id_ in ids]
    requested = _selection(context, work, parents) if parents else None
    best, left, most = population.standing.best, population.standing.evaluations_left, context.spec.budget.evaluations
    ending = left is not None and 0 < left <= max(2, _LAST * (most or 0)) and not parents
    selections = []
    for rng in rngs:
        selection = requested or prompter.select(rng)
        if selection.role is PolicyRole.POLISH:
            selection = _change_of(selection.parents[0], selection.island, population, rng)
        changed = ending or selection.role is PolicyRole.PROPOSE
        if strategy.changes_programs and changed and best is not None and selection.parents[:1] != (best,):
            selection = _change_of(best, selection.island, population, rng)
        selections.append(selection)
    if strategy.changes_programs and not parents and own is not None and (repair := _repair(context, work, own)):
        selections[0] = repair
    members = prompter.members(selections)
    return [
        Ask(id_, selection, prompter.show(selection, members, policy, rng), int(rng.integers(2**31)))
        for id_, selection, rng in zip(ids, selections, rngs, strict=True)
    ]


def _selection(context: RunContext, work: WorkStore, parents: Sequence[int]) -> Selection:
    members = work.members(context.run_id, parents)
    if missing := [number for number in parents if number not in members]:
        raise InvalidInputError(f"run {context.run_id} has no evaluated candidate {missing[0]} to change.")
    return Selection(PolicyRole.MUTATE, members[parents[0]].island, tuple(parents))


def _change_of(number: int, island: int, view: StoredPopulation, rng: np.random.Generator) -> Selection:
    """Return a change of a candidate, beside elites with other rewards."""
    pool = pool_of(view.problem.space, view.elites(island))
    rows = np.flatnonzero(pool.numbers == number).tolist()
    others = draw_diverse(pool, rows, _BESIDE_BEST, rng) if rows else []
    return Selection(PolicyRole.MUTATE, island, (number,), tuple(pool.numbers[others].tolist()))


def _repair(context: RunContext, work: WorkStore, number: int) -> Selection | None:
    """Return the repair of a candidate beside its parent; None if it works, or no program was run."""
    member = work.members(context.run_id, [number])[number]
    if member.failure is None or member.failure.kind is FailureKind.REJECTED or not is_of_program(member.failure):
        return None
    return Selection(PolicyRole.MUTATE, member.island, (number,), member.parents[:1])


def check_hint(context: RunContext) -> None:
    """Reject a hint to a run without a policy that reads prompts, or whose problem's template omits the advice."""
    readers = [share.policy for share in context.policies(PolicyRole.MUTATE) if context.spec.engine is None]
    if not any(policy.is_external or policy.can_advise for policy in readers):
        names = ", ".join(policy.slug for policy in readers) or f"engine {context.spec.engine}"
        raise InvalidInputError(
            f"run {context.run_id} takes no hints: {names} reads no prompts of the service.",
            remedy="Use a policy that answers prompts in words, or propose programs instead.",
        )
    check_advice_shown(context.problem, "hint")


@dataclass(frozen=True, slots=True)
class StoredAsk:
    """A stored prompt: what its answers inherit."""

    selection: Selection  # role, island, parents and inspirations
    prompt: Prompt = _NO_PROMPT
    seed: int = 0
    advice: int | None = None  # number of the advice in it


def _answer_in(program: str, problem: Problem) -> str | None:
    """Return a text sent as a program if it is an answer with fences or edits around one, else None."""
    if problem.kind is ProblemKind.DATA or (problem.is_python and is_program(program)):
        return None
    # A text may hold fences, as a README does.
    inner = not problem.many_files and noun_of(problem) != "text" and "```" in program
    fenced = unfenced(program) != program or (inner and bool(filled_blocks(program)))
    return program if fenced or read_edits(program, several=False) else None


@dataclass(frozen=True, slots=True)
class ReadProposal:
    sent: ProposedCandidate
    rollout: Rollout
    children: tuple[Proposal, ...]  # its programs, rejected ones included


@dataclass(frozen=True, slots=True)
class Admission:
    receipts: tuple[ProposalReceipt, ...]  # one for each program, and one for each refused proposal
    # Admitted completions with their positions, by ordinal of the batch that evaluates them.
    rollouts: Mapping[int, Sequence[tuple[int, Rollout]]]


def require_open(run_id: UUID, state: RunState, reason: str | None) -> None:
    """Raise ``ConflictError`` for a run that takes no proposals in its state."""
    if state is RunState.RUNNING:
        return
    why = f" ({reason})" if reason else ""
    paused = state is RunState.PAUSED
    raise ConflictError(
        f"run {run_id} takes no proposals: it is {state.value}{why}.",
        remedy="Resume it first." if paused else "Start another run, such as one of policy 'external'.",
    )


def read_proposal(
    context: RunContext,
    policy: WeightedPolicy,
    sent: ProposedCandidate,
    author: str,
    asks: Mapping[UUID, StoredAsk],
    members: Mapping[int, Individual],
) -> ReadProposal | str:
    """Return a proposal as read, with one child at least, so that it costs an evaluation; or why it is refused."""
    if isinstance(answered := _answered(sent, asks, members), str):
        return answered
    selection, problem, proposed_by = answered.selection, context.problem, str(policy.policy_id)
    parent = members.get(selection.parents[0]) if selection.parents else None
    base = parent.program if parent is not None else problem.seed_program or None
    completion = sent.completion or _answer_in(sent.program or "", problem)
    if completion is not None:
        answers = parse_completion(completion, problem=problem, policy=policy.policy, parent=base)
    else:
        answers = [read_program((sent.program or "").replace("\r\n", "\n"), base, problem)]
    if completion is not None and parent is not None:
        answers = [_with_place(answer, completion, parent, members) for answer in answers]
    children = proposals_of(answers, selection, 0, answered.advice)
    text = storable("\n\n".join(filter(None, (sent.rationale, completion))))
    rollout = Rollout(
        role=selection.role,
        prompt=answered.prompt,
        completion=Completion(text, sent.completion_tokens, finish_reason="external"),
        seed=answered.seed,
        prompt_tokens=sent.prompt_tokens,
        answers=sum(child.failure is None for child in children),
        reason=no_program(children),
        advice=answered.advice,
        proposed_by=proposed_by,
        author=author,
        model=None if sent.model is None else storable(sent.model),
        cost=sent.cost,
    )
    return ReadProposal(sent, rollout, tuple(replace(child, proposed_by=proposed_by) for child in children))


def _with_place(answer: Answer, completion: str, parent: Individual, members: Mapping[int, Individual]) -> Answer:
    """Return the answer; if its SEARCH is in another program than the parent, its failure names that one."""
    if answer.failure is None or answer.failure.reason != Reason.DIFF_SEARCH_NOT_FOUND:
        return answer
    searched = ["\n".join(edit.search) for edits in read_edits(completion, several=False) for edit in edits]
    lacking = [text for text in searched if text not in parent.program]
    others = [number for number, each in sorted(members.items()) if any(text in each.program for text in lacking)]
    if not others:
        return answer
    place = f"It is in Program {others[-1]}; the program to change is Program {parent.number}."
    return replace(answer, failure=replace(answer.failure, detail=f"{place}\n{answer.failure.detail}"))


def _answered(
    sent: ProposedCandidate, asks: Mapping[UUID, StoredAsk], members: Mapping[int, Individual]
) -> StoredAsk | str:
    """Return the prompt of a proposal, or what stands for it; or why the proposal is refused."""
    if not (sent.completion or sent.program or "").strip():
        return "it is empty"
    if sent.ask is not None:
        return asks.get(sent.ask, f"the run has no prompt {sent.ask}")
    missing = [number for number in (*sent.parents, *sent.inspirations) if number not in members]
    if missing:
        return f"the run has no candidate {missing[0]}, or it is not evaluated yet"
    role = PolicyRole.MUTATE if sent.parents else PolicyRole.PROPOSE
    island = members[sent.parents[0]].island if sent.parents else 0
    return StoredAsk(Selection(role, island, sent.parents, sent.inspirations))


def admit(
    context: RunContext,
    change: RunChange,
    request_id: UUID,
    proposals: Sequence[ReadProposal | tuple[ProposalReceipt, ...] | str],
    duplicates: Mapping[str, int],
) -> Admission:
    """Admit proposals in order, as far as the budget allows, and count them in ``change``.

    A refusal stands for a proposal that is refused, receipts for one that was admitted before. ``request_id``
    determines the islands of programs from scratch; ``duplicates`` are candidates by program hash.
    """
    budget = context.spec.budget
    islands = strategy_of(context.spec).islands
    receipts: list[ProposalReceipt] = []
    progress, rollouts, batch = change.progress, dict[int, list[tuple[int, Rollout]]](), _Batch()
    evaluations, tokens = progress.evaluations_left(budget), progress.tokens_left(budget)
    dollars, position = progress.dollars_left(context), 0
    for index, proposal in enumerate(proposals):
        if isinstance(proposal, tuple):
            receipts += proposal
            continue
        refusal = proposal if isinstance(proposal, str) else _unaffordable(proposal, evaluations, tokens, dollars)
        if refusal or isinstance(proposal, str):
            receipts.append(ProposalReceipt(index=index, status=ReceiptStatus.REFUSED, reason=refusal))
            continue
        evaluations = None if evaluations is None else evaluations - len(proposal.children)
        tokens = None if tokens is None else tokens - proposal.rollout.tokens
        dollars = None if dollars is None else dollars - proposal.sent.cost
        first = progress.numbers + len(batch.proposals) + 1
        receipts += [_receipt(index, first + i, child, duplicates) for i, child in enumerate(proposal.children)]
        batch.add(proposal, position, island=(first + request_id.int) % islands)
        position += 1
        if len(batch.proposals) >= context.spec.batch:
            rollouts[progress.batches] = batch.rollouts
            batch.receive(change, context)
            batch = _Batch()
    if batch.proposals:
        rollouts[progress.batches] = batch.rollouts
        batch.receive(change, context)
    return Admission(tuple(receipts), rollouts)


@dataclass
class _Batch:
    """Proposals that one unit evaluates."""

    rollouts: list[tuple[int, Rollout]] = field(default_factory=list)
    proposals: list[Proposal] = field(default_factory=list)

    def add(self, proposal: ReadProposal, position: int, island: int) -> None:
        self.rollouts.append((position, proposal.rollout))
        scratch = proposal.rollout.role is PolicyRole.PROPOSE
        self.proposals += [
            replace(child, rollout=position, island=island if scratch else child.island) for child in proposal.children
        ]

    def receive(self, change: RunChange, context: RunContext) -> None:
        batch = ProposedBatch(tuple(rollout for _, rollout in self.rollouts), tuple(self.proposals))
        ledger.record_external_batch(change, context, batch)


def _unaffordable(proposal: ReadProposal, evaluations: int | None, tokens: int | None, dollars: float | None) -> str:
    if evaluations is not None and len(proposal.children) > evaluations:
        return f"the run's budget leaves {evaluations:,} evaluations, besides those in flight"
    if tokens is not None and proposal.rollout.tokens > tokens:
        return f"the run's budget leaves {tokens:,} tokens"
    if dollars is not None and proposal.sent.cost > dollars:
        return f"the run's budget leaves ${dollars:,.4g}"
    return ""


def _receipt(index: int, number: int, child: Proposal, duplicates: Mapping[str, int]) -> ProposalReceipt:
    if child.failure is not None:
        reason = f"{child.failure.reason}: {child.failure.detail}"
        return ProposalReceipt(index=index, number=number, status=ReceiptStatus.REJECTED, reason=reason)
    twin = duplicates.get(child.program_hash)
    status = ReceiptStatus.ACCEPTED if twin is None else ReceiptStatus.DUPLICATE
    return ProposalReceipt(index=index, number=number, status=status, duplicate_of=twin)


def without_secrets(candidate: CandidateDetail, problem: Problem) -> CandidateDetail:
    """Return a candidate without the rewards that its author must not select on, and what tells them."""
    secret = secret_objectives(problem)
    if not secret or candidate.rewards is None:
        return candidate
    vector = tuple(candidate.rewards.values())
    repeats = [each if isinstance(each, str) else tuple(each.values()) for each in candidate.repeats]
    refuted = {
        target.name: problem.ranking.refutation(i, vector, repeats, secret)
        for i, target in enumerate(problem.targets)
        if target.name in candidate.refuted
    }
    rewards = {name: value for name, value in candidate.rewards.items() if name not in secret}
    scalar = None if any(o.name in secret for o in problem.space.selected) else candidate.scalar
    return candidate.model_copy(update={"rewards": rewards, "refuted": refuted, "scalar": scalar})


def standing_text(
    problem: Problem, candidate: CandidateDetail, best: tuple[int, Sequence[float], TargetSet] | None
) -> str:
    """Return which candidate is the best of a run and why it ranks before this one; empty without rewards.

    ``best`` is the number of the best one, its raw rewards and the targets that it meets.
    """
    if best is None or candidate.rewards is None:
        return ""
    number, rewards, met = best
    if number == candidate.number:
        return f"The best is candidate {number}: it meets {met.bit_count()} of {len(problem.targets)} targets."
    own = sum(1 << i for i, target in enumerate(problem.targets) if target.name in candidate.targets)
    merits = problem.ranking.merits([rewards, tuple(candidate.rewards.values())], [met, own])
    return f"The best is candidate {number}: {problem.ranking.advantage(*merits)}."


def next_step(
    result: ProposalRecord,
    state: RunState,
    reason: str | None,
    evaluations_left: int | None,
    problem: Problem,
    confirmed: TargetSet,
    flaw: str = "",
) -> str:
    """Return what the proposer of a candidate with a ``flaw_of`` can do next; ``confirmed`` are the run's targets."""
    parents = f"with parents [{result.number}]"
    unlocked, _ = problem.ranking.standing(confirmed)
    unconfirmed = ", ".join(target.name for i, target in enumerate(problem.targets) if not confirmed >> i & 1)
    status = f"The problem is unlocked; not met yet: {unconfirmed}." if unconfirmed else "All targets are confirmed."
    steps = (
        (state.ended, f"The run has ended ({reason or state.value}): report its best candidate."),
        (state is RunState.PAUSED, f"The run is paused ({reason or 'by request'}): it goes on when it is resumed."),
        (evaluations_left == 0 and not result.waited_for(), "Wait for its result."),
        (result.state is ProposalState.PENDING, "Wait for its result, or ask for another prompt meanwhile."),
        (evaluations_left == 0, "No evaluation is left: report the best candidate."),
        (result.duplicate_of is not None, f"It repeats candidate {result.duplicate_of}: change the idea."),
        (result.failure_reason in NOT_THE_PROGRAMS_FAULT, "The program did not cause the failure: ask again."),
        (result.failure is FailureKind.REJECTED, "Correct the answer, and send it for the same prompt or parents."),
        (result.failure is not None, f"Repair it: ask again, or send the repaired program {parents}."),
        (bool(result.refuted), f"Make its rewards independent of seed and time, and send it {parents}."),
        (bool(result.confirming), "Wait for the repeated evaluation, or ask meanwhile."),
        (flaw != "" and not result.best, flaw),
        (unlocked, f"{status} Improve it further, or stop."),
        (result.best, "It is the best so far: ask again."),
        (result.elite, "It is in the archive: keep the idea, and ask again."),
        (True, "It is not in the archive: change the idea, or ask again."),
    )
    step = next(text for holds, text in steps if holds)
    return step if state.ended or not evaluations_left else f"{step} Evaluations left: {evaluations_left:,}."


def flaw_of(problem: Problem, member: Individual, parent: Individual | None) -> str:
    """Return what a program violates, or that no reward that authors see is better than a feasible parent's."""
    if violated := violations_text(problem, member.rewards, member.stopped_at):
        return f"It {violated}: mend that first."
    if not member.rewards or not parent or not parent.rewards or violations_text(problem, parent.rewards):
        return ""
    worse = secret_objectives(problem).issuperset(problem.space.gains(member.rewards, parent.rewards))
    return f"No better than its parent {parent.number} in any reward: change the idea." if worse else ""


def ask_record(context: RunContext, ask: Ask) -> AskRecord:
    return AskRecord(
        ask=ask.id,
        run_id=context.run_id,
        role=ask.selection.role,
        parents=tuple(_shown_program(context.problem, each) for each in ask.shown.parents),
        inspirations=tuple(_shown_program(context.problem, each) for each in ask.shown.inspirations),
        system=ask.shown.prompt.system,
        user=ask.shown.prompt.user,
        seed=ask.seed,
        seed_program=context.problem.seed_program,
    )


def _shown_program(problem: Problem, candidate: Individual) -> ShownProgram:
    failure, names, secret = candidate.failure, problem.space.names, secret_objectives(problem)
    rewards = candidate.rewards and zip(names, candidate.rewards, strict=True)
    return ShownProgram(
        number=candidate.number,
        program=candidate.program,
        rewards=rewards and {name: value for name, value in rewards if name not in secret},
        failure=None if failure is None else f"{failure.kind.value}: {failure.detail or failure.reason}",
        feedback=dict(candidate.artifacts),
    )
