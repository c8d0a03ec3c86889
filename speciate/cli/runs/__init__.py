"""``speciate runs``: list, control, label and export runs."""

from __future__ import annotations

from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Annotated, Final

import typer

from speciate.cli import output
from speciate.cli.best_program import best_fields, check_out_options
from speciate.cli.common import Limit, LogTo, NoOut, OutDirectory, RunId, client, command, command_group, first_records
from speciate.cli.export import replaced_file
from speciate.cli.runs import propose
from speciate.cli.runs.replay import replay_command
from speciate.cli.visibility import Listed, add_visibility_commands, filter_value, hidden_fields, marked
from speciate.domain.capabilities import CALLABLE
from speciate.domain.errors import ConflictError, InvalidInputError
from speciate.domain.visibility import Visibility

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from speciate.schema.base import Record
    from speciate.schema.runs import RunRecord

app = command_group()

_COLUMNS: Final = (
    "run", "state", "problem", "policy", "strategy", ">spent", ">tokens", ">cost", ">seconds", "best", "reached",
)  # fmt: skip
_LABELS: Final = ("name", "tags")
Reason = Annotated[str | None, typer.Option(help="Reason, stored with the run.")]


@command(
    app,
    "list",
    "speciate runs list",
    "speciate runs list --state running --json",
    "speciate runs list --tag baseline --sort best",
    "speciate runs list --group all",
)
def list_(
    problem: Annotated[str | None, typer.Option(help="Only runs on this problem.")] = None,
    policy: Annotated[str | None, typer.Option(help="Only runs of this policy.")] = None,
    state: Annotated[
        str | None,
        typer.Option(help="Only runs in this state: created, running, paused, completed, failed or cancelled."),
    ] = None,
    tag: Annotated[list[str] | None, typer.Option(help="Only runs with this tag; repeat to require several.")] = None,
    name: Annotated[str | None, typer.Option(help="Only runs whose name contains this text.")] = None,
    group: Annotated[
        str,
        typer.Option(
            help="own: without the runs of tournaments and campaigns; all; or the NAME of a tournament or campaign."
        ),
    ] = "own",
    sort: Annotated[
        str, typer.Option(help="Order: started, state, problem, policy, best, duration, evaluations, tokens or cost.")
    ] = "started",
    reverse: Annotated[bool, typer.Option("--reverse", help="List in the opposite order.")] = False,
    visibility: Listed = Visibility.VISIBLE,
    limit: Limit = 20,
) -> None:
    """List runs, newest first by default.

    --sort lists names from A to Z, active states first, times and amounts from the largest.
    """
    matching = client().runs.list(
        problem=problem, policy=policy, state=state, tags=tag or (), name=name, group=group, sort=sort,
        reverse=reverse, visibility=visibility,
    )  # fmt: skip
    records = [run.record for run in first_records(matching, limit)]
    labelled = any(record.name or record.tags for record in records)
    stopped = any(map(_stop_reason, records))
    columns = (*_COLUMNS, *(_LABELS if labelled else ()), *(("reason",) if stopped else ()))

    def row(run: RunRecord) -> tuple[object, ...]:
        return (*_row(run), *(_labels(run) if labelled else ()), *((_stop_reason(run),) if stopped else ()))

    filters = {"problem": problem, "policy": policy, "state": state, "tag": " ".join(tag or ()) or None, "name": name}
    filters |= {"group": None if group == "own" else group, "visibility": filter_value(visibility)}
    empty = output.empty_message("runs", "speciate run --help", **filters)
    empty += "\nThose of tournaments and campaigns are left out: add --group all." if group == "own" else ""
    output.print_records(records, columns, row, empty=empty)


@command(app, "show", "speciate runs show RUN", "speciate runs show RUN --json")
def show(run_id: RunId) -> None:
    """Show a run, its progress and the targets it reached."""
    run = client().runs.get(run_id)
    reached = [] if output.wants_json() else list(run.unlocks())
    best = [] if output.wants_json() else best_fields(run)
    output.exit_with_json(run.record)
    _print_run(run.record, best)
    output.print_diagnosis(run.record)
    if run.record.estimate is not None:
        output.print_line()
        output.print_estimate(run.record.estimate, run.record.actual)
    if run.record.ensembles:
        output.print_line()
        output.print_table(
            ("role", "policy", ">weight", ">answers", ">in archive", ">tokens"),
            [(m.role.value, f"{m.policy}@{m.policy_version}", output.format_number(m.weight), m.asked, m.won, m.tokens)
             for m in run.record.ensembles],
            empty="no policies",
        )  # fmt: skip
    if reached:
        output.print_line()
        output.print_table(
            ("target", "", "state", ">candidate", ">evaluations", ">tokens", ">seconds"),
            [(u.target, "unlock" if u.unlock else "", u.state.value, u.number, *output.format_effort(u))
             for u in reached],
            empty="no targets",
        )  # fmt: skip


@command(app, "evaluations", "speciate runs evaluations RUN", "speciate runs evaluations RUN --json")
def evaluations(run_id: RunId) -> None:
    """List the evaluations in progress that last long, with the last text of progress of each.

    A script reports one with context.progress(TEXT), and a script of kind in_process prints it.
    """
    active = [*client().runs.get(run_id).evaluations()]
    output.print_records(
        active,
        (">candidate", "batch", "worker", ">seconds", "text"),
        lambda e: (e.candidate, "-".join(map(str, dict.fromkeys(e.candidates))), e.worker, f"{e.seconds:.0f}", e.text),
        empty="No evaluation of this run has lasted long.",
    )


@command(app, "guidance", "speciate runs guidance RUN", "speciate runs guidance RUN --json")
def guidance(run_id: RunId, limit: Limit = 20) -> None:
    """List the advice a run wrote for its own prompts, and how often it helped.

    The table shortens the texts; --json prints them in full.
    """
    advice = first_records(client().runs.get(run_id).guidance(), limit)
    output.print_records(
        advice,
        (">advice", ">parent", ">answers", ">in archive", "", "text"),
        lambda a: (a.number, a.parent or "", a.judged, a.won, "" if a.lives else "dropped",
                   shorten(a.text, 200) or "no advice"),
        empty="This run has no advice.",
    )  # fmt: skip


@command(
    app,
    "watch",
    "speciate runs watch RUN",
    "speciate runs watch RUN --json | jq .kind",
    "speciate runs watch RUN --log trackio",
)
def watch(run_id: RunId, out: OutDirectory = None, no_out: NoOut = False, log: LogTo = None) -> None:
    """Watch a run until it ends or is paused; then print its best candidate and write the program.

    Exit code: 0 if it completed with a confirmed unlock, 9 if it completed without one, 10 if it is paused, 1 if it
    has no result, failed or was cancelled.
    """
    from speciate.cli.runs.tracking import load_tracker
    from speciate.cli.runs.watch import watch_run

    check_out_options(out, no_out=no_out)
    tracker = load_tracker(log)
    service = client()
    raise typer.Exit(
        watch_run(
            service, service.runs.get(run_id), out, write=not no_out, tracker=tracker, lasts=not service.in_process
        )
    )


@command(app, "pause", "speciate runs pause RUN --reason 'the endpoint moves'")
def pause(run_id: RunId, reason: Reason = None) -> None:
    """Pause a run; results of work in flight are still recorded."""
    _print_state(client().runs.get(run_id).pause(reason))


@command(app, "resume", "speciate runs resume RUN")
def resume(run_id: RunId) -> None:
    """Resume a paused run. Without a service, the command executes it and watches it as ``watch`` does."""
    service = client()
    run = service.runs.get(run_id)
    if service.in_process and any(each.startswith(CALLABLE) for each in run.problem().definition.capabilities):
        raise ConflictError(
            f"a function of a Python script scores the candidates of run {run.id}.",
            remedy="Run the script again: the same call of speciate.evolve continues the run.",
        )
    if service.in_process:
        from speciate.cli.runs.start import is_executed_here
        from speciate.evolution.task import check_evaluated

        is_executed_here(run.record.spec.model_dump(exclude_none=True))
        check_evaluated(service, run.problem().definition)
    record = run.resume()
    if service.in_process:
        from speciate.cli.runs.watch import watch_run

        raise typer.Exit(watch_run(service, run, None, write=True))
    _print_state(record)


command(app, "ask", *propose.ASK_USAGES)(propose.ask)
command(app, "propose", *propose.PROPOSE_USAGES)(propose.propose)
command(app, "proposals", "speciate runs proposals RUN")(propose.proposals)
command(app, "hint", *propose.HINT_USAGES)(propose.hint)
command(app, "replay", "speciate runs replay RUN", "speciate runs replay RUN --json")(replay_command)


@command(
    app,
    "label",
    "speciate runs label RUN --name 'four islands' --tag baseline",
    "speciate runs label RUN --untag baseline --note 'its endpoint was restarted half-way'",
)
def label(
    run_id: RunId,
    name: Annotated[str | None, typer.Option(help="Display name, one line; an empty text removes it.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="Tag to add; repeatable.")] = None,
    untag: Annotated[list[str] | None, typer.Option(help="Tag to remove; repeatable.")] = None,
    note: Annotated[str | None, typer.Option(help="Free-text note; an empty text removes it.")] = None,
) -> None:
    """Change the name, tags or note of a run, even after it has ended."""
    if name is None and note is None and not tag and not untag:
        raise InvalidInputError("no change is given.", remedy="Set --name, --tag, --untag or --note.")
    record = client().runs.get(run_id).label(name=name, add_tags=tag or (), remove_tags=untag or (), note=note)
    output.exit_with_json(record)
    output.print_fields(("run", record.id), *zip(_LABELS, _labels(record), strict=True), ("note", record.note))


@command(app, "cancel", "speciate runs cancel RUN")
def cancel(run_id: RunId, reason: Reason = None) -> None:
    """Cancel a run; its recorded results remain."""
    _print_state(client().runs.get(run_id).cancel(reason))


@command(
    app,
    "export",
    "speciate runs export RUN > run.jsonl",
    "speciate runs export RUN --out run.jsonl",
    "speciate runs export RUN --rollouts --out rollouts.jsonl",
    has_json=False,
)
def export(
    run_id: RunId,
    out: Annotated[Path | None, typer.Option(help="File to write (default: standard output).")] = None,
    rollouts: Annotated[
        bool,
        typer.Option(
            "--rollouts", help="Export completions with prompts, known tokens and rewards instead, for trainers."
        ),
    ] = False,
) -> None:
    """Export every candidate with its texts as JSON Lines, ordered by number."""
    run = client().runs.get(run_id)
    kind, expected = ("rollout", run.record.rollouts) if rollouts else ("candidate", run.record.candidates)
    records: Iterator[Record] = run.export_rollouts() if rollouts else run.export()
    if out is None:
        for record in records:
            output.print_json(record)
        return
    output.print_line(f"{output.pluralize(_write(out, records, expected), kind)} in {out}")


add_visibility_commands(app, "runs", "runs that have ended", "RUN", "{0.id}")


def _write(path: Path, records: Iterator[Record], expected: int) -> int:
    from rich.progress import track

    console, count = output.console(stderr=True), 0
    with replaced_file(path) as part, part.open("w", encoding="utf-8") as file:
        steps = track(records, "Exporting", total=expected, console=console, disable=not console.is_terminal)
        for count, record in enumerate(steps, start=1):  # noqa: B007
            file.write(record.model_dump_json() + "\n")
    return count


def _row(run: RunRecord) -> tuple[object, ...]:
    return (
        run.id,
        marked(run.outcome, run),
        f"{run.problem}@{run.problem_version}",
        run.policies_of("propose"),
        run.spec.searched_by,
        output.format_spent(run.spent.evaluations, run.spec.budget.evaluations),
        f"{run.spent.tokens:,}",
        f"${run.spent.cost:,.2f}" if run.spent.cost else "–",
        f"{run.spent.seconds:,.0f}",
        output.format_result(run.result),
        "unlocked" if run.unlocked else ", ".join(run.reached),
    )


def _stop_reason(run: RunRecord) -> str:
    """Return the shortened reason of a run that is paused, failed or waits for a worker."""
    reason = run.reason if run.state.value in {"paused", "failed", "running"} else None
    return shorten(run.no_result or reason or "", 100, placeholder=" …")


def _print_run(run: RunRecord, best: Sequence[tuple[str, str | None]]) -> None:
    from speciate.cli.model_options import written_options

    plateau = output.format_spent(run.since_improvement, run.spec.stop_on_plateau)
    sources = (
        f"run {s.run}: {s.evaluations:,} evaluations, {s.tokens:,} tokens, {s.seconds:.1f} s" for s in run.sources
    )
    candidates = (f"{value:,} {each.label}" for _, each, value in run.displayed() if each.of_candidates)
    output.print_fields(
        ("run", run.id),
        *zip(_LABELS, _labels(run), strict=True),
        ("state", output.format_state(run.outcome, run.cause)),
        ("waits for", run.engine_command),
        ("problem", f"{run.problem}@{run.problem_version}"),
        ("policy", run.policies_of("propose")),
        ("mutator", run.policies_of("mutate")),
        ("proposers", ", ".join(run.proposers)),
        ("strategy", run.spec.searched_by),
        ("options", written_options(run.spec)),
        ("starts from", output.pluralize(run.seeds, "given program") if run.seeds else None),
        ("sources", "\n".join(sources)),
        *((unit, output.format_spent(round(spent, 1), limit)) for unit, spent, limit in run.spending),
        ("granted", None if run.granted is None else f"{run.granted:,} by its campaign"),
        ("candidates", ", ".join(candidates)),
        *((each.label, f"{value:,}") for _, each, value in run.displayed() if not each.of_candidates),
        *output.learning_fields(run.learning, over=run.state.ended),
        ("failures", "  ".join(f"{reason}: {count:,}" for reason, count in run.reasons.items())),
        *best,
        ("plateau", f"archive unchanged for {plateau} evaluation{'' if plateau == '1' else 's'}"),
        ("unlocked", "yes" if run.unlocked else "no"),
        ("alarm", run.alarm),
        ("note", run.note),
        ("created", output.format_time(run.created_at)),
        ("finished", output.format_time(run.finished_at)),
        *hidden_fields(run),
    )


def _labels(run: RunRecord) -> tuple[str, str]:
    return run.name, " ".join(run.tags)


def _print_state(run: RunRecord) -> None:
    output.print_result(run, f"{run.id} is {output.format_state(run.state.value, run.reason)}")
