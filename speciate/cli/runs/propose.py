"""``speciate runs ask``, ``propose`` and ``hint``: take part in a run from outside."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final
from uuid import UUID

import typer

from speciate.cli import output
from speciate.cli.common import RunId, client
from speciate.cli.errors import ExitCode
from speciate.domain.errors import InvalidInputError, SpeciateError

if TYPE_CHECKING:
    from speciate.schema.proposals import ProposalReceipt, ProposalRecord

Policy = Annotated[
    str | None, typer.Option("--policy", "-p", help="External policy to propose as.", show_default="that of the run")
]
Parents = Annotated[list[int] | None, typer.Option("--parent", help="Number of a candidate to change; repeatable.")]

ASK_USAGES: Final = (
    "speciate runs ask RUN",
    "speciate runs ask RUN --parent 17 --json",
    "speciate runs ask RUN --json | my-agent > answer.txt",
)
PROPOSE_USAGES: Final = (
    "speciate runs propose RUN better.py --parent 17 --rationale 'hexagonal start'",
    "speciate runs propose RUN answer.txt --ask TOKEN --model my-model",
    "my-generator | speciate runs propose RUN -",
)
HINT_USAGES: Final = ("speciate runs hint RUN 'The optimum is symmetric: use half of the variables.'",)


def ask(
    run_id: RunId,
    count: Annotated[int, typer.Option("--count", "-n", min=1, max=64, help="Number of prompts.")] = 1,
    parent: Parents = None,
    policy: Policy = None,
) -> None:
    """Print prompts as the policies of a run receive them, for a model or agent of your own.

    Send each answer with `speciate runs propose RUN FILE --ask TOKEN`.
    """
    run = client().runs.get(run_id)
    for prompt in run.ask(count, parents=parent or (), policy=policy):
        if output.wants_json():
            output.print_json(prompt)
            continue
        output.print_text(f"{prompt.system}\n\n{prompt.user}")
        answer = output.command_line("runs propose", str(run.id)[-8:], "FILE", "--ask", prompt.ask)
        output.print_note(f"Answer with: {answer}")


def propose(
    run_id: RunId,
    files: Annotated[list[Path], typer.Argument(metavar="FILE…", help="Programs or answers; - is standard input.")],
    parent: Parents = None,
    ask_token: Annotated[
        UUID | None, typer.Option("--ask", metavar="TOKEN", help="The file answers this prompt.")
    ] = None,
    rationale: Annotated[str, typer.Option(help="Why it should be better.")] = "",
    model: Annotated[str | None, typer.Option(help="Model that wrote it, for the record.")] = None,
    policy: Policy = None,
    wait: Annotated[float, typer.Option(min=0, help="Seconds to wait for the results; 0 does not wait.")] = 600.0,
) -> None:
    """Propose candidates to a run and print their results.

    Each file costs an evaluation of the run's budget. Exits with 1 if no candidate has rewards.
    """
    texts = [_read(file) for file in files]
    field = "completion" if ask_token else "program"
    shared = {"parents": parent or [], "ask": ask_token and str(ask_token), "rationale": rationale, "model": model}
    run = client().runs.get(run_id)
    receipts = run.propose_all([{field: text, **shared} for text in texts], policy=policy)
    if output.wants_json() and not wait:
        for receipt in receipts:
            output.print_json(receipt)
        return
    scored = False
    for i, receipt in enumerate(receipts):
        try:
            record = None if receipt.number is None else run.proposal(receipt.number, wait_s=wait)
        except (KeyboardInterrupt, SpeciateError):
            left = ", ".join(str(each.number) for each in receipts[i:] if each.number is not None)
            output.print_note(
                f"The run keeps candidate {left}, and evaluates it within its budget."
                f" What still waits: {output.command_line('runs proposals', run_id)}"
            )
            raise
        scored |= record is not None and record.rewards is not None
        if output.wants_json():
            output.print_json(record or receipt)
        else:
            _print(str(files[receipt.index]), receipt, record)
    if wait and not scored:
        raise typer.Exit(ExitCode.FAILED)


def proposals(run_id: RunId) -> None:
    """List the proposals of a run that wait for an evaluation, or whose targets are being confirmed."""
    records = client().runs.get(run_id).proposals()
    output.print_records(
        records,
        (">candidate", "state", "confirming", ">evaluations before it"),
        lambda r: (r.number, r.state.value, ", ".join(r.confirming), r.ahead),
        empty="Every proposal has its result; see `speciate candidates list RUN`.",
    )


def hint(run_id: RunId, text: Annotated[str, typer.Argument(help="At most 1,000 characters.")]) -> None:
    """Give a hint to the policies of a run: later prompts for changes show it as long as it helps."""
    advice = client().runs.get(run_id).hint(text)
    output.print_result(advice, f"Hint {advice.number} is in use.")


def _read(file: Path) -> str:
    try:
        return sys.stdin.read().removeprefix("\ufeff") if str(file) == "-" else file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"{file} cannot be read: {error}.") from None


def _print(file: str, receipt: ProposalReceipt, record: ProposalRecord | None) -> None:
    if record is None:
        output.print_line(f"{file}  refused: {receipt.reason}")
        return
    result = record.summary
    if record.failure is not None:
        result = f"{record.failure.value}: {record.failure_detail or record.failure_reason}"
    marks = [
        *(f"meets {name}{_confirmation(record, name)}" for name in record.targets),
        *(f"target {name}: {measured}" for name, measured in record.refuted.items()),
        *([f"duplicate of {record.duplicate_of}"] if record.duplicate_of else []),
        *(["best of the run"] if record.best else ["in the archive"] if record.elite else []),
    ]
    output.print_line(f"{file}  candidate {record.number}  {'  '.join([result or record.state.value, *marks])}")
    output.print_note(record.next)
    output.print_sections((name, text) for name, text in record.feedback.items() if text.strip())


def _confirmation(record: ProposalRecord, name: str) -> str:
    first = record.confirmed_by.get(name)
    return f" (confirmed by {first})" if first else "" if name in record.confirmed else " (unconfirmed)"
