"""Reject runs that cannot work, before they are stored."""

from collections.abc import Sequence
from uuid import UUID

from speciate.domain.budget import Budget
from speciate.domain.ensemble import PolicyChoice
from speciate.domain.errors import InvalidInputError
from speciate.domain.learning import MIN_GROUP, Learning
from speciate.domain.policy import PolicyRole, PromptStyle
from speciate.domain.problem import Problem
from speciate.domain.rollout import TemplateName
from speciate.domain.run import EngineOptions, RunSpec
from speciate.prompts.codecs import codec_of
from speciate.prompts.template import uses
from speciate.schema.policies import Ensembles, PolicyVersion, RunPolicies, WeightedPolicyVersion
from speciate.schema.problems import ProblemVersion
from speciate.search.strategies import strategy_of


def check_run(problem: ProblemVersion, policies: RunPolicies, spec: RunSpec) -> None:
    """Reject a run that cannot work.

    Raises:
        InvalidInputError: The strategy or an option is invalid, a codec cannot encode the problem, an ensemble names a
            policy twice or has weights that its choice ignores, guidance cannot work, or a price is missing.
    """
    strategy_of(spec)
    _check_ensembles(policies.ensembles, spec)
    _check_external(policies, spec)
    if spec.engine is not None:
        _check_engine(policies, spec)
    if spec.keeps_tokens:
        _check_tokens(policies, "keep_tokens" if spec.learning is None else "learning")
    if spec.learning is not None:
        _check_learning(policies, spec, spec.learning)
    check_spending(_versions(policies), spec.budget)
    if spec.guidance is not None:
        _check_guidance(problem.definition, policies)
    for version in _versions(policies):
        if version.definition.codec is not None:
            codec_of(version.definition.codec).prompt(problem.definition, answers=1)


def _check_ensembles(ensembles: Ensembles, spec: RunSpec) -> None:
    learns = spec.policy_choice is PolicyChoice.UCB
    if spec.policy_discount != 1.0 and not learns:
        raise InvalidInputError("policy_discount other than 1 requires policy_choice 'ucb'.")
    if learns and not ensembles:
        raise InvalidInputError("policy_choice 'ucb' requires at least two policies for a role.")
    for role, members in ensembles.items():
        _check_members("mutator" if role is PolicyRole.MUTATE else "policy", members, learns=learns)


def _check_external(policies: RunPolicies, spec: RunSpec) -> None:
    """An external policy must be the only one; proposals over the API need no policy entry."""
    versions = _versions(policies)
    external = next((version.name for version in versions if version.definition.is_external), None)
    if external is None:
        return
    if any(not version.definition.is_external for version in versions) or policies.ensembles:
        raise InvalidInputError(
            f"policy {external} proposes from outside: expected it as the only policy of a run.",
            remedy="Leave it out: a running run of any policy takes proposals.",
        )
    if spec.guidance is not None:
        raise InvalidInputError(f"guidance: policy {external} cannot write advice.")


def _check_engine(policies: RunPolicies, spec: RunSpec) -> None:
    """The policy of an engine is the model that it asks: one that answers any prompt in words."""
    version, policy = policies.policy, policies.policy.definition
    if spec.strategy_options or spec.strategy not in {
        t.model_fields["strategy"].default for t in (RunSpec, EngineOptions)
    }:
        raise InvalidInputError(
            f"engine {spec.engine} proposes all candidates: expected no strategy besides, here {spec.strategy!r}."
        )
    if policies.mutator is not None or policies.ensembles:
        raise InvalidInputError(
            f"engine {spec.engine}: expected one policy, the model that it asks.", remedy="Leave the others out."
        )
    if not policy.can_advise or policy.answers_per_rollout > 1:
        raise InvalidInputError(
            f"engine {spec.engine}: policy {version.name} does not answer every prompt with one text.",
            remedy="Use a policy of a model server with prompt format 'chat' and one answer per completion.",
        )
    if spec.guidance is not None or spec.keeps_tokens:
        raise InvalidInputError(
            f"engine {spec.engine} writes its own prompts: leave guidance, keep_tokens and learning out."
        )


def _check_tokens(policies: RunPolicies, field: str) -> None:
    for version in _versions(policies):
        if not version.definition.asks_model or version.definition.bills_afterwards:  # agents print texts
            raise InvalidInputError(
                f"{field}: policy {version.name} of kind {version.definition.kind!r} writes no tokens.",
                remedy=f"Use a policy of a model server, or leave {field} out.",
            )


def _check_used(learning: Learning) -> None:
    users = {"kappa": ("max_at_k", "vector_max_at_k", "pkpo"), "draws": ("vpo", "vector_max_at_k")}
    for name, estimators in users.items():
        default = Learning.model_fields[name].default
        if learning.estimator not in estimators and getattr(learning, name) != default:
            raise InvalidInputError(f"learning: estimator {learning.estimator.value} does not use {name}: omit it.")


def _check_learning(policies: RunPolicies, spec: RunSpec, learning: Learning) -> None:
    if policies.mutator is not None or policies.ensembles:
        raise InvalidInputError(
            "learning: expected one policy, which is trained.", remedy="Leave the mutator and further policies out."
        )
    policy = policies.policy.definition
    answers = policy.answers_per_rollout
    if answers > 1 and policy.prompt_style is PromptStyle.SCAFFOLDED:
        raise InvalidInputError(
            f"learning: policy {policies.policy.name} has the prompt_style 'scaffolded', whose sets take several"
            " requests: their tokens are not known as one text.",
            remedy="Use prompt_style 'prefilled', or one answer per completion.",
        )
    if (answers > 1) != learning.estimator.takes_sets:  # of one answer, VPO and Multi-RLVR are GRPO
        takes = "several answers" if learning.estimator.takes_sets else "one answer"
        raise InvalidInputError(
            f"learning: estimator {learning.estimator.value} takes {takes} per completion, and policy"
            f" {policies.policy.name} writes {answers}.",
            remedy="Use vpo or multi_rlvr for several answers, another estimator for one, or another policy.",
        )
    if min(spec.batch, spec.samples_per_prompt) < MIN_GROUP * answers:
        raise InvalidInputError(
            f"learning: compares the completions of one prompt: expected samples_per_prompt and batch of at least"
            f" {MIN_GROUP * answers}, not {spec.samples_per_prompt} and {spec.batch}."
        )
    if spec.batch % answers or spec.samples_per_prompt % answers:
        # Otherwise answers of the last completion are not evaluated, and it looks worse than it is.
        raise InvalidInputError(
            f"learning: a completion holds {answers} answers: expected multiples of that for samples_per_prompt and"
            f" batch, not {spec.samples_per_prompt} and {spec.batch}."
        )
    few, least = spec.budget.evaluations, learning.min_group * answers
    if few is not None and few < least:
        raise InvalidInputError(
            f"learning: {few} evaluations, of a run or of a slice, fill no group of {least} answers, which it compares."
        )
    _check_used(learning)
    size = min(spec.samples_per_prompt, spec.batch) // answers
    if learning.kappa is not None and learning.kappa >= size:
        raise InvalidInputError(f"learning.kappa: expected less than the {size} completions of a prompt.")
    if (policy.kind == "embedded") == (learning.lora_rank > 0):
        expected = (
            "0: the embedded server loads whole checkpoints" if learning.lora_rank else "at least 1: it loads adapters"
        )
        raise InvalidInputError(
            f"learning.lora_rank: expected {expected}, for policy {policies.policy.name} of kind {policy.kind!r}."
        )


def check_spending(versions: Sequence[PolicyVersion], budget: Budget) -> None:
    """Reject a budget of dollars for models and agents without a price, and one that a policy never spends.

    Any policy may be the only one that is asked from some point on. An external policy spends nothing by itself: its
    run waits for proposals, and ends when it is cancelled.
    """
    for version in versions:
        policy = version.definition
        if budget.dollars is not None and policy.asks_model and policy.price is None:
            raise InvalidInputError(
                f"budget.dollars: policy {version.name} has no price.",
                remedy=f"Run `{policy.command_with('--price', 'input=1', 'output=2')}` with its dollars per million"
                f" tokens, and name it with --policy {policy.slug}.",
            )
        if budget.evaluations is not None or budget.seconds is not None or policy.is_external:
            continue
        writes = budget.tokens is not None and policy.asks_model
        costs = budget.dollars is not None and policy.price is not None and policy.price.dearest > 0
        if not writes and not costs:
            resource = "dollars" if budget.tokens is None else "tokens"
            raise InvalidInputError(
                f"budget.{resource}: policy {version.name} spends no known {resource}: the run might never end.",
                remedy="Add a budget of evaluations or seconds.",
            )


def _versions(policies: RunPolicies) -> list[PolicyVersion]:
    members = [member.version for of_role in policies.ensembles.values() for member in of_role]
    return [policies.policy, *([] if policies.mutator is None else [policies.mutator]), *members]


def _check_members(where: str, members: Sequence[WeightedPolicyVersion], *, learns: bool) -> None:
    seen: set[UUID] = set()
    for version in (member.version for member in members):
        if version.id in seen:
            raise InvalidInputError(f"{where} names {version.name} twice: expected each policy once.")
        seen.add(version.id)
    if learns and len({member.weight for member in members}) > 1:
        raise InvalidInputError(f"policy_choice 'ucb' learns the weights of each {where}: expected equal weights.")


def _check_guidance(problem: Problem, policies: RunPolicies) -> None:
    role = PolicyRole.PROPOSE if policies.mutator is None else PolicyRole.MUTATE
    mutating = [member.version for member in policies.ensembles.get(role, ())] or [policies.mutator or policies.policy]
    for version in mutating:
        if not version.definition.can_advise:
            raise InvalidInputError(
                f"guidance: policy {version.name} cannot write advice: expected a mutating policy without a codec,"
                " with prompt format 'chat'."
            )
    check_advice_shown(problem, "guidance")


def check_advice_shown(problem: Problem, what: str) -> None:
    """Raise ``InvalidInputError``, which begins with ``what``, if a problem's own template omits the advice."""
    template = problem.prompts.get(TemplateName.CHANGE)
    if template is not None and not uses(template, "advice"):
        raise InvalidInputError(f"{what}: the template change.txt of problem {problem.slug} does not show $advice.")
