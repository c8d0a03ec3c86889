"""Convert a directory of another system to a problem: score its initial program, then write the problem's files."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from speciate.cli import output
from speciate.cli.problems.check import evaluate_seed
from speciate.compat.conversion import Converted
from speciate.compat.draft import Draft
from speciate.compat.harbor import SEED, HarborDraft, require_image
from speciate.compat.measuring import require_success
from speciate.compat.rewards import measured_in
from speciate.domain.errors import InvalidInputError
from speciate.domain.numbers import short_number
from speciate.runs.silent_failure import METRIC_LISTS


def print_converted(converted: Converted, files: Sequence[Path]) -> None:
    problem, seed = converted.problem, converted.seed
    texts = {label: text for label, text in converted.artifacts.items() if label not in METRIC_LISTS}
    facts = {"problem": problem.slug, "files": [str(path) for path in files], "rewards": seed, "artifacts": texts}
    output.exit_with_json({**facts, "left_out": converted.left_out, "remarks": list(converted.remarks)})
    rows = [(o.name, short_number(seed[o.name]), o.aim, o.role.value) for o in problem.objectives]
    output.print_table(("reward", ">initial program", "direction", "role"), rows, empty="no rewards")
    output.print_sections(texts.items())
    output.print_line()
    for path in files:
        output.print_line(path)
    for name, why in converted.left_out.items():
        output.print_line(f"omitted: {name} {why}")
    for remark in converted.remarks:
        output.print_line(f"note: {remark}")
    output.print_line(f"Next: review {files[0]}, then run: {output.command_line('problems add', files[0].parent)}")


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
