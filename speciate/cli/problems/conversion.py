"""Convert a directory of another system to a problem: score its initial program, then write the problem's files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from speciate.cli import output
from speciate.cli.problems.check import evaluate_seed
from speciate.compat.conversion import Converted, settled
from speciate.compat.draft import Draft, problem_of
from speciate.compat.harbor import SEED, HarborDraft, require_image
from speciate.compat.measuring import measured, require_success
from speciate.compat.rewards import Directions, measured_in
from speciate.domain.errors import InvalidInputError
from speciate.domain.numbers import short_number
from speciate.problems.writing import write
from speciate.runs.silent_failure import METRIC_LISTS


@dataclass(frozen=True, slots=True)
class ConvertedProblem:
    """A problem converted from another system's directory."""

    converted: Converted
    files: Sequence[Path]

    @property
    def texts(self) -> dict[str, str]:
        """Artifacts of evaluating the initial program, by label."""
        return {label: text for label, text in self.converted.artifacts.items() if label not in METRIC_LISTS}

    def as_json(self) -> dict[str, Any]:
        draft = self.converted.draft
        return {
            "problem": draft.slug,
            "files": [str(path) for path in self.files],
            "rewards": dict(self.converted.rewards.seed),
            "artifacts": self.texts,
            "left_out": dict(draft.left_out),
            "remarks": list(draft.remarks),
        }

    def show(self) -> None:
        rewards, draft = self.converted.rewards, self.converted.draft
        rows = [(o.name, short_number(rewards.seed[o.name]), o.aim, o.role.value) for o in rewards.objectives]
        output.print_table(("reward", ">initial program", "direction", "role"), rows, empty="no rewards")
        for label, text in self.texts.items():
            output.print_line(f"--- {label}")
            output.print_text(text)
        output.print_line()
        for path in self.files:
            output.print_line(path)
        for name, why in draft.left_out.items():
            output.print_line(f"omitted: {name} {why}")
        for remark in draft.remarks:
            output.print_line(f"note: {remark}")
        folder = self.files[0].parent
        output.print_line(f"Next: review {self.files[0]}, then run: speciate problems add {folder}")


def in_image(draft: Draft, folder: Path, image: str | None, *, anyway: bool) -> tuple[Draft, bool]:
    """Return a Harbor task with its image, and True because its empty script may score 0; other drafts unchanged."""
    if not isinstance(draft, HarborDraft):
        if image is not None:
            raise InvalidInputError("--image is for tasks of Harbor.", remedy="Omit it, or import harbor:DIR.")
        return draft, anyway
    draft = draft if image is None else replace(draft, image=image)
    require_image(draft, folder)
    if draft.reference and not anyway:
        (evaluation,) = evaluate_seed(draft.trial().model_copy(update={"seed_program": draft.reference}), [0])
        if not any(value > 0 for value in measured_in(evaluation.artifacts).values()):
            require_success(draft, evaluation)
            texts = "".join(f"--- {label}\n{text}\n" for label, text in evaluation.artifacts.items())
            raise InvalidInputError(
                f"the task's own {SEED} gets no positive reward:\n{texts}\n",
                remedy="Install what the test downloads in the image: containers have no network. If it is right, pass"
                " --anyway.",
            )
    return draft, True


def convert(
    draft: Draft, directions: Directions, into: Path | None, *, targets: Sequence[str] = (), anyway: bool = False
) -> ConvertedProblem:
    """Convert another system's directory to a problem directory.

    The initial program is scored in the sandbox to determine the available metrics: three times, or once if that takes
    longer than a minute.
    """
    converted = settled(measured(draft, evaluate_seed, anyway=anyway), directions, targets)
    problem_of(converted.files)
    folder = into or Path(f"{draft.slug}-problem")
    return ConvertedProblem(converted, write(converted.files, folder, remedy="Name a new directory with --into."))
