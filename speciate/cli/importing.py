"""Submitting the problems of a task as a set, and making problems of directories that other systems use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from speciate.cli import output
from speciate.compat import FORMATS
from speciate.domain.errors import ConflictError, InvalidInputError, NotFoundError

if TYPE_CHECKING:
    from speciate.client import Client
    from speciate.compat.draft import Draft
    from speciate.domain.candidate import Evaluation
    from speciate.domain.objective import Objective
    from speciate.ports.records.problems import ProblemSet


def import_task(
    service: Client,
    name: str,
    split: str,
    count: int,
    *,
    start: int = 0,
    data: Path | None = None,
    into: str | None = None,
) -> ProblemSet:
    """Submit problems of a task and return the set of them.

    Args:
        service: Where to.
        name: The task.
        split: ``train`` or ``test``.
        count: How many.
        start: Number of the first.
        data: Folder of a dataset.
        into: Name of the set.

    Raises:
        InvalidInputError: There is no such task or split.
        ConflictError: A set of that name holds other problems.
    """
    from rich.progress import track

    from speciate.training.tasks import Split, open_task

    if split not in tuple(Split):
        raise InvalidInputError(f"there is no split {split!r}.", remedy=f"Splits: {', '.join(Split)}.")
    problems = open_task(name, data).problems(Split(split), count, start=start)
    slug = into or f"{name}-{split}-{start}-{start + count - 1}"
    console = output.console(stderr=True)
    shown = track(problems, f"Submitting {slug}", total=count, console=console, disable=not console.is_terminal)
    added = [str(service.problems.add(problem).id) for problem in shown]
    try:
        known = service.problem_sets.get(slug)
    except NotFoundError:
        return service.problem_sets.create(
            slug, added, title=f"{output.many(count, 'problem')} of task {name}, {split}"
        )
    if [str(problem.id) for problem in known.problems] != added:
        raise ConflictError(f"the set {slug!r} holds other problems.", remedy="Choose another name with --into.")
    return known


@dataclass(frozen=True, slots=True)
class Imported:
    """A problem that was made of another system's directory.

    Attributes:
        draft: What was read.
        files: What was written.
        objectives: Its rewards.
        seed: What the initial program has, by name.
        texts: What the evaluation of the initial program left behind, by label.
    """

    draft: Draft
    files: Sequence[Path]
    objectives: Sequence[Objective]
    seed: Mapping[str, float]
    texts: Mapping[str, str]

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "problem": self.draft.slug,
            "files": [str(path) for path in self.files],
            "rewards": dict(self.seed),
            "artifacts": dict(self.texts),
            "left_out": dict(self.draft.left_out),
            "remarks": list(self.draft.remarks),
        }

    def show(self) -> None:
        """Print it for people."""
        rows = [(o.name, f"{self.seed[o.name]:.6g}", o.direction.value, o.role.value) for o in self.objectives]
        output.table(("reward", ">initial program", "direction", "role"), rows, empty="no rewards")
        for label, text in self.texts.items():
            output.say(f"--- {label}")
            output.raw(text)
        output.say()
        for path in self.files:
            output.say(path)
        for name, why in self.draft.left_out.items():
            output.say(f"left out: {name} {why}")
        for remark in self.draft.remarks:
            output.say(f"note: {remark}")
        folder = self.files[0].parent
        output.say(f"Next: look through {self.files[0]}, then: speciate problems add {folder}")


def import_folder(kind: str, folder: Path, rewards: Sequence[str], into: Path | None) -> Imported:
    """Write a problem that is made of another system's directory.

    Its initial program is scored once, in the sandbox, to learn which metrics there are.

    Args:
        kind: A key of ``FORMATS``.
        folder: The directory.
        rewards: ``name:max`` or ``name:min``, as the user said.
        into: Where to; by default beside where the user is.

    Raises:
        NotFoundError: There is no such directory, or not what it needs.
        InvalidInputError: Something in it cannot be used, the initial program fails, or a reward has no direction.
        ConflictError: Where it would be written, there is something.
    """
    from speciate.cli.checking import score_seed
    from speciate.compat.draft import measured_in, rewards_of, write

    draft = FORMATS[kind](folder)
    evaluation = score_seed(draft.trial()).evaluation
    if evaluation is None or evaluation.failure is not None:
        raise InvalidInputError(_unscored(draft, evaluation), remedy=_remedy(draft))
    seed = measured_in(evaluation.artifacts)
    objectives = rewards_of(draft, rewards, seed)
    files = write(draft.written(objectives, seed), into or Path(f"{draft.slug}-problem"))
    texts = {label: text for label, text in evaluation.artifacts.items() if label not in _OF_THE_TRIAL}
    return Imported(draft, files, objectives, seed, texts)


_OF_THE_TRIAL = ("other metrics", "not measured")


def _unscored(draft: Draft, evaluation: Evaluation | None) -> str:
    if evaluation is None or evaluation.failure is None:
        return f"{draft.seed} is empty: there is nothing to score."
    failure, texts = evaluation.failure, evaluation.artifacts
    said = "\n".join([failure.detail, *(f"--- {label}\n{text}" for label, text in texts.items())]).strip()
    return f"{draft.seed} cannot be scored: {failure.kind.value} ({failure.reason})\n{output.clean(said)}\n"


def _remedy(draft: Draft) -> str:
    notes = "".join(f"{remark}. " for remark in draft.remarks)
    return f"{notes}Evaluators run in the sandbox, without network, with the packages of this Python."
