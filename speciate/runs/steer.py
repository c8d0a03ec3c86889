"""Check, start, pause, resume, cancel and label runs."""

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
from speciate.ports.records.policies import PolicyVersion, WeightedPolicyVersion
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
    """Reject a run that cannot work.

    Raises:
        InvalidInputError: The strategy or an option is invalid, a codec cannot encode the problem, an ensemble names a
            policy twice or has weights that its choice ignores, or guidance cannot work.
    """
    build_strategy(spec.strategy, spec.strategy_options)
    _check_ensembles(ensembles, spec)
    if spec.guidance is not None:
        _check_guidance(problem.definition, _mutating(policy, mutator, ensembles), can_advise)
    members = (member.version for of_role in ensembles.values() for member in of_role)
    for version in (policy, mutator, *members):
        if version is not None and version.definition.codec is not None:
            codec_of(version.definition.codec).prompt(problem.definition, answers=1)


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
    """Create a run and start it. A repeated idempotency key returns the run of the first request.

    The arguments are those of ``check_run`` and ``RunStore.create``.

    Returns:
        The run's ID, and True if the run is new.

    Raises:
        InvalidInputError: The run cannot work; see ``check_run``.
        ConflictError: The key belongs to a different request.
    """
    check_run(problem, policy, mutator, spec, ensembles, can_advise)
    run_id, new = store.create(
        problem, policy, mutator, spec, ensembles=ensembles, labels=labels, idempotency_key=idempotency_key
    )
    if new:
        add_log_context(run=str(run_id))
    # An interrupted first request may have created the run without starting it.
    if new or store.get(run_id).state is RunState.CREATED:
        try:
            signals.committed(store.start(run_id))
        except ConflictError:
            # A concurrent request with the same key may have started it meanwhile.
            if store.get(run_id).state is RunState.CREATED:
                raise
    return run_id, new


def _check_ensembles(ensembles: Ensembles, spec: RunSpec) -> None:
    learns = spec.policy_choice is PolicyChoice.UCB
    if spec.policy_discount != 1.0 and not learns:
        raise InvalidInputError("policy_discount other than 1 requires policy_choice 'ucb'.")
    if learns and not ensembles:
        raise InvalidInputError("policy_choice 'ucb' requires at least two policies for a role.")
    for role, members in ensembles.items():
        _check_members("mutator" if role is PolicyRole.MUTATE else "policy", members, learns=learns)


def _check_members(where: str, members: Sequence[WeightedPolicyVersion], *, learns: bool) -> None:
    seen: set[UUID] = set()
    for version in (member.version for member in members):
        if version.id in seen:
            raise InvalidInputError(f"{where} names {version.name} twice: expected each policy once.")
        seen.add(version.id)
    if learns and len({member.weight for member in members}) > 1:
        raise InvalidInputError(f"policy_choice 'ucb' learns the weights of each {where}: expected equal weights.")


def _mutating(policy: PolicyVersion, mutator: PolicyVersion | None, ensembles: Ensembles) -> list[PolicyVersion]:
    role = PolicyRole.PROPOSE if mutator is None else PolicyRole.MUTATE
    return [member.version for member in ensembles.get(role, ())] or [mutator or policy]


def _check_guidance(problem: Problem, mutating: Sequence[PolicyVersion], can_advise: CanAdvise) -> None:
    for version in mutating:
        if not can_advise(version.definition):
            raise InvalidInputError(
                f"guidance: policy {version.name} cannot write advice: expected a mutating policy without a codec,"
                " with prompt format 'chat'."
            )
    own = problem.prompts.get(TemplateName.CHANGE)
    if own is not None and not uses(own, "advice"):
        raise InvalidInputError(f"guidance: the template change.txt of problem {problem.slug} does not show $advice.")


def pause_run(store: RunStore, signals: CommitListener, run_id: UUID, reason: str | None = None) -> None:
    """Stop dispatching a run's work. Results of work in flight are still recorded."""
    signals.committed(store.pause(run_id, reason))


def resume_run(store: RunStore, signals: CommitListener, run_id: UUID) -> None:
    """Dispatch a paused run's work again."""
    signals.committed(store.resume(run_id))


def cancel_run(store: RunStore, signals: CommitListener, run_id: UUID, reason: str | None = None) -> None:
    """End a run. Committed results stay, work in flight is discarded."""
    signals.committed(store.cancel(run_id, reason))


def label_run(store: RunStore, signals: CommitListener, run_id: UUID, change: Relabelling) -> None:
    """Change name, tags or note of a run, in any state. Open pages show the change at once."""
    signals.committed(store.label(run_id, change))
