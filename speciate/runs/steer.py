"""Starting and steering runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from uuid import UUID

from speciate.domain.ensemble import PolicyChoice
from speciate.domain.errors import ConflictError, InvalidInputError
from speciate.domain.labels import Labels, Relabelling
from speciate.domain.policy import Policy, PolicyRole
from speciate.domain.problem import Problem
from speciate.domain.rollout import TemplateName
from speciate.domain.run import RunSpec, RunState
from speciate.ports.records.policies import PolicyVersion
from speciate.ports.records.problems import ProblemVersion
from speciate.ports.runs import NO_ENSEMBLES, NO_LABELS, Ensembles, RunStore
from speciate.ports.work import CommitListener
from speciate.prompts.codecs import codec_of
from speciate.prompts.template import uses
from speciate.search.strategies import build_strategy
from speciate.telemetry.logs import add_log_context

CanAdvise = Callable[[Policy], bool]
"""Return True if a policy can write advice; kinds of policies differ."""


def writes_text(policy: Policy) -> bool:
    """Return True if a policy answers in free text, whatever its kind."""
    return policy.writes_text


def check_run(
    problem: ProblemVersion,
    policy: PolicyVersion,
    mutator: PolicyVersion | None,
    spec: RunSpec,
    ensembles: Ensembles = NO_ENSEMBLES,
    can_advise: CanAdvise = writes_text,
) -> None:
    """Let a run go on only if it can work.

    Raises:
        InvalidInputError: The strategy or one of its options is not valid, a codec cannot write the problem, an
            ensemble names a policy twice or weights that its choice does not use, or advice is wanted that could
            neither be written nor shown.
    """
    build_strategy(spec.strategy, spec.strategy_options)
    _check_ensembles(ensembles, spec)
    if spec.guidance is not None:
        _check_guidance(problem.definition, _who_changes(policy, mutator, ensembles), can_advise)
    shares = (share.version for of_role in ensembles.values() for share in of_role)
    for asked in (policy, mutator, *shares):
        if asked is not None and asked.definition.codec is not None:
            codec_of(asked.definition.codec).prompt(problem.definition, answers=1)


def start_run(
    store: RunStore,
    signals: CommitListener,
    *,
    problem: ProblemVersion,
    policy: PolicyVersion,
    mutator: PolicyVersion | None,
    spec: RunSpec,
    ensembles: Ensembles = NO_ENSEMBLES,
    labels: Labels = NO_LABELS,
    idempotency_key: str | None = None,
    can_advise: CanAdvise = writes_text,
) -> tuple[UUID, bool]:
    """Create a run and begin it; with an idempotency key that was used before, return the run of then.

    ``ensembles`` are the policies of all roles where one of them has several; ``policy`` and ``mutator`` are the first
    ones of theirs.

    Returns:
        The run's id, and whether it is new.

    Raises:
        InvalidInputError: The run could not work, see ``check_run``.
        ConflictError: The key was used for another request.
    """
    check_run(problem, policy, mutator, spec, ensembles, can_advise)
    run_id, new = store.create(
        problem, policy, mutator, spec, ensembles=ensembles, labels=labels, idempotency_key=idempotency_key
    )
    if new:
        add_log_context(run=str(run_id))
    # A first request may have been cut off between the two steps: the repetition begins the run.
    if new or store.get(run_id).state is RunState.CREATED:
        try:
            signals.committed(store.start(run_id))
        except ConflictError:
            # Whoever sent the same key may have begun it meanwhile; that is what was asked for.
            if store.get(run_id).state is RunState.CREATED:
                raise
    return run_id, new


def _check_ensembles(ensembles: Ensembles, spec: RunSpec) -> None:
    learns = spec.policy_choice is PolicyChoice.UCB
    if spec.policy_discount != 1.0 and not learns:
        raise InvalidInputError("policy_discount is an option of policy_choice 'ucb': expected that, or 1.")
    if learns and not ensembles:
        raise InvalidInputError("policy_choice 'ucb' chooses between several policies: expected at least two.")
    for role, shares in ensembles.items():
        where = "mutator" if role is PolicyRole.MUTATE else "policy"
        versions = [share.version for share in shares]
        for i, version in enumerate(versions):
            if version.id in {other.id for other in versions[:i]}:
                raise InvalidInputError(f"{where} names {version.name} twice: expected every policy once.")
        if learns and len({share.weight for share in shares}) > 1:
            raise InvalidInputError(f"'ucb' finds the shares of each {where} itself: expected equal weights.")


def _who_changes(policy: PolicyVersion, mutator: PolicyVersion | None, ensembles: Ensembles) -> list[PolicyVersion]:
    role = PolicyRole.PROPOSE if mutator is None else PolicyRole.MUTATE
    return [share.version for share in ensembles.get(role, ())] or [mutator or policy]


def _check_guidance(problem: Problem, asked: Sequence[PolicyVersion], can_advise: CanAdvise) -> None:
    for version in asked:
        if not can_advise(version.definition):
            raise InvalidInputError(
                f"guidance: policy {version.name} can be asked for programs only, not for"
                " advice: expected one that changes programs without a codec, in the prompt format 'chat'."
            )
    own = problem.prompts.get(TemplateName.CHANGE)
    if own is not None and not uses(own, "advice"):
        raise InvalidInputError(f"guidance: the template change.txt of problem {problem.slug} does not show $advice.")


def pause_run(store: RunStore, signals: CommitListener, run_id: UUID, reason: str | None = None) -> None:
    """Stop handing out a run's work; what is in flight is still booked."""
    signals.committed(store.pause(run_id, reason))


def resume_run(store: RunStore, signals: CommitListener, run_id: UUID) -> None:
    """Hand out a paused run's work again."""
    signals.committed(store.resume(run_id))


def cancel_run(store: RunStore, signals: CommitListener, run_id: UUID, reason: str | None = None) -> None:
    """End a run; what is in flight is thrown away, what was committed stays."""
    signals.committed(store.cancel(run_id, reason))


def label_run(store: RunStore, signals: CommitListener, run_id: UUID, change: Relabelling) -> None:
    """Change what people call a run, at any time; whoever looks at it sees it at once."""
    signals.committed(store.label(run_id, change))
