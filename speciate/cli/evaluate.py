"""``speciate evaluate``: lease candidates and evaluate each with a command."""

import json
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from speciate.cli import output
from speciate.cli.common import client, command, command_group
from speciate.client import CandidateFailedError, Client, EvaluationWorker, Rewards
from speciate.client.run_names import is_whole_id
from speciate.domain.errors import ForbiddenError, InvalidInputError, UnavailableError
from speciate.schema.evaluations import LeasedEvaluation, SubmittedEvaluation
from speciate.subprocesses import CommandLimits, run_command

app = command_group()

_TAIL: Final = 4000
_MOST_PRINTED: Final = 1 << 30


@command(
    app,
    "evaluate",
    "speciate evaluate --problem fast-kernel -- ./measure.sh",
    "speciate evaluate --problem fast-kernel --capability gpu --slots 4 --timeout 600 -- python measure.py",
    "speciate evaluate --idle 300 --most 100 -- ./measure.sh    # in a job of a cluster",
    context_settings={"ignore_unknown_options": True},
)
def evaluate(
    command: Annotated[
        list[str],
        typer.Argument(metavar="-- COMMAND", help="Command and arguments; the path of the candidate's file is added."),
    ],
    problem: Annotated[str | None, typer.Option("--problem", "-P", help="Limit to a problem version.")] = None,
    run: Annotated[str | None, typer.Option(help="Limit to a run: id, or name for tokens that read.")] = None,
    capability: Annotated[
        list[str] | None, typer.Option("--capability", "-c", help="What this machine offers, such as gpu. Repeatable.")
    ] = None,
    slots: Annotated[int, typer.Option(min=1, max=1024, help="Candidates at the same time.")] = 1,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds for one candidate; then its command is killed.")] = (
        3600.0
    ),
    lease: Annotated[
        float, typer.Option(min=3, max=86_400, help="Seconds after which others get the candidates of a dead worker.")
    ] = 60.0,
    most: Annotated[
        int | None, typer.Option(min=1, help="End after this many candidates.", show_default="no limit")
    ] = None,
    idle: Annotated[
        float | None, typer.Option(min=0, help="End after this many seconds without one.", show_default="never")
    ] = None,
) -> None:
    """Evaluate candidates on this machine with a command of your own.

    The command runs once for each candidate of problems with external evaluation, with the path of its file as last
    argument, and prints one JSON object as its last line: rewards by objective, or {"rewards": {…}, "feedback": "…"},
    or {"failure": "…"}. Another exit status than 0 is a failure of the candidate. If the command fails for the seed
    program or each of the first five candidates, by its exit status, without JSON or with rewards that are refused, it
    is taken for broken: the candidate is given back, and the exit code is 1.

    Candidates are programs from a model: contain them as this machine requires. The command does not see
    SPECIATE_TOKEN. Its environment has SPECIATE_SEED, SPECIATE_RUN, SPECIATE_NUMBER, SPECIATE_PROBLEM, SPECIATE_FILES
    (the directory) and SPECIATE_MEASURED (rewards of earlier stages, as JSON).

    Ctrl-C or SIGTERM gives unfinished candidates back.
    """
    if shutil.which(command[0]) is None:
        raise InvalidInputError(
            f"{command[0]!r} is not a command.",
            remedy="Give the path of an executable file, such as ./measure.sh, or an interpreter with its script.",
        )
    offered = capability or ()
    service = client()
    service.ready()  # later it may be away for a while
    if run is not None and not is_whole_id(run):
        try:
            run = str(service.runs.get(run).id)
        except ForbiddenError as error:
            raise ForbiddenError(str(error), remedy="With this token, --run takes the whole id of a run.") from None
    worker: EvaluationWorker = EvaluationWorker(
        service,
        lambda candidate: _evaluate(candidate, command, timeout, give_up=lambda: worker.gave_up(candidate)),
        problem=problem,
        run=run,
        capabilities=offered,
        slots=slots,
        lease_s=lease,
        report=_print_json if output.wants_json() else _print,
        on_idle=_waiting_note(service, problem, run, offered),
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: worker.stop())
    what = f"candidates of {problem}" if problem else "candidates"
    output.print_note(f"Evaluating {what} with {command[0]}. Ctrl-C stops and gives unfinished ones back.")
    output.print_note(f"{worker.run_until(most=most, idle_s=idle)} candidates leased.")


def _waiting_note(service: Client, problem: str | None, run: str | None, offered: Sequence[str]) -> Callable[[], None]:
    """Return a function that notes which candidates wait for capabilities not offered here, whenever they change."""
    noted: set[str] = set()

    def note() -> None:
        with suppress(UnavailableError):
            for entry in service.evaluations.waiting(problem=problem, run=run):
                options = " ".join(f"--capability {each}" for each in entry.capabilities if each not in offered)
                text = f"{output.pluralize(entry.waiting, 'candidate')} of {entry.problem} left out: add {options}."
                if options and text not in noted:
                    noted.add(text)
                    output.print_note(text)

    return note


def _print(candidate: LeasedEvaluation, result: Mapping[str, Any], outcome: SubmittedEvaluation) -> None:
    if result.get("rewards") is not None:
        outcome_text = output.format_rewards(result["rewards"])
    else:
        detail = result["failure"]["detail"].strip() or result["failure"]["reason"]
        outcome_text = f"{result['failure']['kind']}: {detail.splitlines()[-1][-200:]}"
    refused = f"  refused: {outcome.reason}" if outcome.reason else ""
    output.print_line(f"{candidate.problem} {str(candidate.run_id)[-6:]}/{candidate.number}  {outcome_text}{refused}")


def _print_json(candidate: LeasedEvaluation, result: Mapping[str, Any], outcome: SubmittedEvaluation) -> None:
    about = candidate.model_dump(mode="json", include={"id", "run_id", "number", "problem", "seed", "attempt"})
    output.print_json(about | dict(result) | outcome.model_dump(mode="json", include={"status", "reason"}))


def _evaluate(
    candidate: LeasedEvaluation, command: list[str], timeout_s: float, *, give_up: Callable[[], bool]
) -> Rewards:
    """Run the command of the user for a candidate, and kill it when ``give_up`` returns True."""
    with tempfile.TemporaryDirectory(prefix="speciate-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        for file, text in candidate.files.items():
            path = folder / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
        whole = [*command, str(folder / next(iter(candidate.files)))]
        limits = CommandLimits(timeout_s, _MOST_PRINTED)
        ended = run_command(whole, _environment(candidate, folder), limits, give_up=give_up)
    if ended.status is None:
        raise CandidateFailedError(f"it {ended.exceeded}", kind="timeout", reason="wall_time")
    if ended.status != 0:
        raise CandidateFailedError(
            f"exit status {ended.status}\n{ended.errors or ended.output[-_TAIL:]}", reason="exit_status"
        )
    return _read(ended.output)


def _environment(candidate: LeasedEvaluation, folder: Path) -> dict[str, str]:
    """Return the environment of the command: this process's, without the service's secrets."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("SPECIATE_")}
    return inherited | {
        "SPECIATE_FILES": str(folder),
        "SPECIATE_SEED": str(candidate.seed),
        "SPECIATE_RUN": str(candidate.run_id),
        "SPECIATE_NUMBER": str(candidate.number),
        "SPECIATE_PROBLEM": candidate.problem,
        "SPECIATE_MEASURED": json.dumps(candidate.measured),
    }


def _read(printed: str) -> Rewards:
    lines = [line for line in printed.split("\n") if line.strip()]
    expected = 'expected a JSON object as the last line, such as {"speed": 1.5}'
    try:
        values = json.loads(lines[-1]) if lines else None
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        last = lines[-1][:200] if lines else "nothing"
        raise CandidateFailedError(f"printed {last!r}: {expected}", kind="invalid_output", reason="no_json")
    if (failure := values.pop("failure", None)) is not None:
        raise CandidateFailedError(str(failure), reason="reported")
    rewards = values["rewards"] if isinstance(values.get("rewards"), dict) else values
    feedback = values.get("feedback") or {} if rewards is not values else {}
    texts = feedback if isinstance(feedback, dict) else {"feedback": feedback}
    return Rewards(rewards, {str(name): str(text) for name, text in texts.items()})
