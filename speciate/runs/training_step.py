"""Take one training step: read the groups of a ``learn`` unit, call the learner, and commit the new policy version."""

from collections.abc import Callable
from uuid import UUID

from speciate.domain.errors import ConfigurationError, LearningError
from speciate.domain.learning import Lineage, learned_slug
from speciate.domain.policy import Policy
from speciate.ports.learner import LearnedCheckpoint, Learner, LearningGroup, LearningRollout, LearningTask
from speciate.ports.work import Commit, GroupRef, LearnedStep, Lease, RunContext, StoredGroup, WorkStore
from speciate.runs.learning import learned_rewards, learning_context


def learn(lease: Lease, work: WorkStore, learner_for: Callable[[], Learner] | None) -> Commit | None:
    """Take the step of a unit; None if the lease was lost, ``UnavailableError`` if it may succeed later."""
    if learner_for is None:
        raise ConfigurationError("this process takes no learn units.", remedy="Start a worker with -Q learn.")
    context = work.context(lease.run_id)
    learning = context.spec.learning
    if learning is None:
        raise ConfigurationError(f"run {lease.run_id} does not learn.")
    used = work.learned(lease.run_id)
    parent = context.proposer if used is None else used.policy
    refs = [GroupRef(**group) for group in lease.payload["groups"]]
    step = int(lease.payload["step"])
    groups = [*zip(refs, work.groups(lease.run_id, refs), strict=True)]
    contexts = {
        run: learning_context(
            context if run is None else work.context(UUID(run)),
            [rollout.rewards for ref, stored in groups if ref.run == run for rollout in stored.rollouts],
        )
        for run in {ref.run for ref in refs}
    }
    task = LearningTask(
        learning=learning,
        seed=context.spec.seed,
        step=step,
        base=context.proposer,
        parent=parent,
        slug=lease.payload.get("slug") or learned_slug(context.proposer.slug, context.run_id.hex),
        groups=tuple(_group(contexts[ref.run], stored, step - ref.step) for ref, stored in groups),
    )
    try:
        checkpoint = learner_for().step(task)
    except LearningError as error:
        return work.end_learning(lease, str(error))
    policy = _version(context, parent, task, checkpoint, lease.payload.get("campaign"))
    return work.commit_step(lease, LearnedStep(step + 1, policy, checkpoint.seconds, checkpoint.metrics))


def _version(
    context: RunContext, parent: Policy, task: LearningTask, checkpoint: LearnedCheckpoint, campaign: str | None
) -> Policy:
    base = f"{context.proposer.slug}@{context.proposer_version}"
    lineage = Lineage(
        base=base,
        parent=base if task.step == 0 else f"{task.slug}@{task.step}",
        run=str(context.run_id),
        step=task.step + 1,
        estimator=task.learning.estimator,
        groups=len(task.groups),
        campaign=campaign,
    )
    learner = f"run {context.run_id}" if campaign is None else f"campaign {campaign}"
    return parent.model_copy(
        update={
            "slug": task.slug,
            "model": checkpoint.model,
            "description": f"Learned from {context.proposer.slug} in {learner}, step {task.step + 1}.",
            "training_method": task.learning.estimator.value,
            "checkpoint_digest": checkpoint.digest,
            "training": None,
            "probe": None,
            "served": None,
            "lineage": lineage,
            "options": {**parent.options, **checkpoint.options},
        }
    )


def _group(context: RunContext, stored: StoredGroup, age: int) -> LearningGroup:
    rollouts = tuple(
        LearningRollout(rollout.token_ids, rollout.logprobs, learned_rewards(context, rollout.rewards))
        for rollout in stored.rollouts
    )
    weights = context.problem.weight_vector
    return LearningGroup(stored.prompt, rollouts, age, None if weights is None else tuple(weights))
