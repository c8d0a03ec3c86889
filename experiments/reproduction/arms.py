"""Declare the reproduction: the compared arms, the tasks, and the hypotheses, fixed before any arm was tested."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from speciate.training.config import TrainConfig

_VMK: Final = "vector_max_at_k"
_VMK_24: Final = "vector_max_at_k_24"


@dataclass(frozen=True, slots=True)
class TrainingArm:
    """A training configuration that is compared with others.

    Attributes:
        name: Name in files and tables.
        method: Estimator, or ``base``.
        label: Label in the report.
        steps: Updates, as a multiple of the default; a part of them is early stopping.
        group: Rollouts of a prompt; None for the method's default.
        settings: Further options, as for ``speciate train --set``.
        earlier: Whether an option has gone since its measurement: it stays in the report and is not trained again.
    """

    name: str
    method: str
    label: str
    steps: float = 1
    group: int | None = None
    settings: tuple[str, ...] = ()
    earlier: bool = False

    def config(self, task: str, seed: int) -> TrainConfig:
        """Return the choices of its run."""
        usual = TrainConfig.tiny(self.method, task, seed=seed)
        return replace(usual, steps=round(self.steps * usual.steps), group=self.group or usual.group)


ARMS: Final = (
    TrainingArm("base", "base", "base"),
    TrainingArm("grpo", "grpo", "GRPO"),
    TrainingArm("grpo3x", "grpo", "GRPO, 3× steps", steps=3),
    TrainingArm("multi_rlvr", "multi_rlvr", "Multi-RLVR"),
    TrainingArm("max_at_k", "max_at_k", "Max-at-K, κ = 4, n = 8"),
    TrainingArm("max_at_k_24", "max_at_k", "Max-at-K, κ = 8, n = 24", group=24),
    TrainingArm("vpo", "vpo", "VPO"),
    TrainingArm("vector_max_at_k", "vector_max_at_k", "Vector Max-at-K, κ = 4, n = 8"),
    TrainingArm("vector_max_at_k_24", "vector_max_at_k", "Vector Max-at-K, κ = 8, n = 24", group=24),
)
"""All arms. VPO's rollouts hold 3 answers and its groups 8 rollouts: n = 24 is as many answers, n = 8 a third."""


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """Measurements on one task.

    Attributes:
        task: Key of ``GENERATED``.
        problems: Number of held-out problems.
        targets: Named targets of its problems; a problem counts once for each target.
        within: Answers within which a target must be met in the primary comparison.
        start: Number of the first problem in the test split.
        answers: Answers to every problem.
        arms: Names of the arms.
    """

    task: str
    problems: int
    targets: tuple[str, ...]
    within: int
    answers: int = 90
    start: int = 2000
    arms: tuple[str, ...] = tuple(arm.name for arm in ARMS)


PLANS: Final = {
    "programs": TaskPlan("programs", 400, ("all_cases",), 90),
    "maze": TaskPlan("maze", 200, ("all_gold", "all_diamonds"), 30),
    "programs-hard": TaskPlan("programs-hard", 400, ("all_cases",), 90, arms=("base", "grpo", "vpo", _VMK)),
}
"""The tasks in the order of the report."""


VARIANTS: Final = (
    TrainingArm("vmk_kappa_2", _VMK, "κ = 2", settings=("estimator.kappa=2",)),
    TrainingArm("vmk_kappa_6", _VMK, "κ = 6", settings=("estimator.kappa=6",)),
    TrainingArm("vmk_alpha_0.3", _VMK, "α = 0.3", settings=("estimator.alpha=0.3",)),
    TrainingArm("vmk_alpha_3", _VMK, "α = 3", settings=("estimator.alpha=3",)),
    TrainingArm("vmk_draws_1", _VMK, "K = 1", settings=("estimator.draws=1",)),
    TrainingArm("vmk_draws_10", _VMK, "K = 10", settings=("estimator.draws=10",)),
    TrainingArm("vmk_norm_none", _VMK, "no division", settings=("estimator.norm=none",)),
    TrainingArm("vmk_norm_batch_std", _VMK, "divided by the batch's deviation", settings=("estimator.norm=batch_std",)),
    TrainingArm("vmk_n_16", _VMK, "n = 16, κ = 4", group=16, settings=("estimator.kappa=4",)),
    TrainingArm("vmk_n_24", _VMK, "n = 24, κ = 4", group=24, settings=("estimator.kappa=4",)),
)
"""Variants that differ in one option from Vector Max-at-K with n = 8: κ = 4, α = 1, K = 100, the group's deviation."""

ABLATIONS: Final = TaskPlan(
    "programs", 400, ("all_cases",), 90, arms=("max_at_k", "vpo", _VMK, *(arm.name for arm in VARIANTS))
)
"""Task on which the variants are compared."""

SEEDS: Final = (0, 1, 2)
"""Training seeds, fixed in advance."""

REPLICATION: Final = TaskPlan("programs", 400, ("all_cases",), 90, arms=("vpo", "vector_max_at_k_24"))
"""Evaluated again with new seeds, since the declared test just missed its level."""

NEW_SEEDS: Final = (3, 4, 5)
"""Training seeds of the replication, fixed before any of them was trained."""


METHODS: Final = {
    task: replace(PLANS[task], arms=("base", "grpo", "multi_rlvr", "vpo", _VMK_24)) for task in ("maze", "programs")
}
"""Tasks on which training methods, rather than checkpoints, are compared: the training run is the unit."""

METHOD_SEEDS: Final = {"maze": (0, 1, 2, 3, 4, 5, 6, 7), "programs": (0, 1, 2, 6, 7, 8, 9, 10)}
"""Training seeds of that comparison. The first three were known when it was declared, the other five were not.

Seeds 3 to 5 of ``programs`` belong to the replication, which trained two of the four arms.
"""

CONTROL_SEEDS: Final = {"maze": (3, 4, 5), "programs": (6, 7, 8)}
"""Training seeds of the controls: the first new ones."""

CONTROLS: Final = (
    TrainingArm("grpo_third", "grpo", "GRPO, 50 steps", steps=1 / 3),
    TrainingArm("grpo_two_thirds", "grpo", "GRPO, 100 steps", steps=2 / 3),
    # ``loss.entropy_bonus``, which commit 50711485 removed.
    TrainingArm("grpo_entropy_0.01", "grpo", "GRPO, entropy bonus 0.01 (earlier version)", earlier=True),
    TrainingArm("grpo_entropy_0.05", "grpo", "GRPO, entropy bonus 0.05 (earlier version)", earlier=True),
    TrainingArm("grpo_rate_1e-4", "grpo", "GRPO, learning rate 1e-4", settings=("learning_rate=1e-4",)),
    TrainingArm("grpo_rate_1e-3", "grpo", "GRPO, learning rate 1e-3", settings=("learning_rate=1e-3",)),
)
"""Other trainings of GRPO, which might keep its diversity without training for a set."""

RETRAINED: Final = tuple(arm for arm in CONTROLS if not arm.earlier)


@dataclass(frozen=True, slots=True)
class SamplingControl:
    """Another way to sample a checkpoint than the one that it was trained with.

    Attributes:
        name: Name in files.
        label: Label in the report.
        temperature: Softmax temperature.
        top_p: Nucleus mass.
        answers: Answers in a completion; None for as many as in training.
    """

    name: str
    label: str
    temperature: float = 1.0
    top_p: float = 1.0
    answers: int | None = None


SAMPLING: Final = (
    SamplingControl("t1", "as trained"),
    *(SamplingControl(f"t{t}", f"T = {t}", temperature=t) for t in (0.7, 1.3, 1.6, 2.0)),
    *(SamplingControl(f"t{t}_p0.95", f"T = {t}, p = 0.95", temperature=t, top_p=0.95) for t in (1.3, 1.6, 2.0)),
    SamplingControl("single", "single answers", answers=1),
    SamplingControl("sets", "sets of 3", answers=3),
)
"""Sampling of every arm: as trained, by temperature and top-p, and with the other answer format."""


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A refutable statement about two arms.

    Attributes:
        text: The statement.
        task: Key of ``PLANS``.
        better: Arm that unlocks more.
        worse: Arm that unlocks less.
        margin: Smallest difference of their exclusive unlocks, as a share of the problems.
        p_value: Largest exact McNemar p, pooled over seeds.
        seeds: Training seeds.
    """

    text: str
    task: str
    better: str
    worse: str
    margin: float
    p_value: float
    seeds: tuple[int, ...] = SEEDS


HYPOTHESES: Final = (
    Hypothesis("VPO unlocks mazes that GRPO does not", "maze", "vpo", "grpo", 0.20, 1e-6),
    Hypothesis("VPO unlocks programs that GRPO does not", "programs", "vpo", "grpo", 0.08, 1e-6),
    Hypothesis("VPO unlocks programs that longer GRPO does not", "programs", "vpo", "grpo3x", 0.0, 1e-3),
    Hypothesis("VPO unlocks more hard programs than the base", "programs-hard", "vpo", "base", 0.0, 1e-3),
    Hypothesis("mazes, equal answers: Vector Max-at-K against VPO", "maze", _VMK_24, "vpo", 0.0, 1e-4),
    Hypothesis("… against Max-at-K", "maze", _VMK_24, "max_at_k_24", 0.0, 1e-4),
    Hypothesis("programs, equal answers: Vector Max-at-K against VPO", "programs", _VMK_24, "vpo", 0.0, 1e-4),
    # The new seeds alone, then all seeds at half the declared level, since this is the second test.
    Hypothesis("programs, the same, seeds 3 to 5", "programs", _VMK_24, "vpo", 0.0, 0.01, NEW_SEEDS),
    Hypothesis("programs, the same, all six seeds", "programs", _VMK_24, "vpo", 0.0, 5e-5, SEEDS + NEW_SEEDS),
    Hypothesis("programs, equal answers: against Max-at-K", "programs", _VMK_24, "max_at_k_24", 0.0, 1e-4),
    Hypothesis("mazes, a third of the answers: Vector Max-at-K against VPO", "maze", _VMK, "vpo", 0.0, 0.05),
    Hypothesis("programs, a third of the answers: the same", "programs", _VMK, "vpo", 0.0, 0.05),
    Hypothesis("mazes: VPO against Max-at-K", "maze", "vpo", "max_at_k_24", 0.0, 0.05),
    Hypothesis("programs: VPO against Max-at-K", "programs", "vpo", "max_at_k_24", 0.0, 0.05),
)
"""Hypotheses about pairs of arms; the report states the result of each."""


@dataclass(frozen=True, slots=True)
class MethodHypothesis:
    """A refutable statement about two training methods.

    Attributes:
        text: The statement.
        task: Key of ``METHODS``.
        better: Arm whose training runs unlock more, on average.
        worse: Arm whose training runs unlock less.
        p_value: Largest p of the exact sign-flip test over training runs, paired by seed. With eight seeds the
            smallest possible p is 2 / 2**8 = 0.0078.
    """

    text: str
    task: str
    better: str
    worse: str
    p_value: float = 0.05


METHOD_HYPOTHESES: Final = (
    MethodHypothesis("VPO unlocks more than GRPO", "maze", "vpo", "grpo"),
    MethodHypothesis("VPO unlocks more than GRPO", "programs", "vpo", "grpo"),
    MethodHypothesis("VPO unlocks more than Multi-RLVR, which shares its format", "maze", "vpo", "multi_rlvr"),
    MethodHypothesis("VPO unlocks more than Multi-RLVR, which shares its format", "programs", "vpo", "multi_rlvr"),
    MethodHypothesis("Vector Max-at-K unlocks more than VPO", "maze", _VMK_24, "vpo"),
    MethodHypothesis("Vector Max-at-K unlocks more than VPO", "programs", _VMK_24, "vpo"),
)
"""Hypotheses about methods; Holm corrects over the three of a task."""
