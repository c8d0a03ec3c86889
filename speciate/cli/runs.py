"""``speciate runs``: see, steer and export runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from speciate.cli import output
from speciate.cli.exits import Exit
from speciate.cli.session import (
    AsJson,
    DataDir,
    Limit,
    RunId,
    as_run_id,
    client,
    examples,
    find_run,
    listed,
    noun,
)
from speciate.domain.errors import ConflictError, InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from speciate.ports.records.candidates import ExportedCandidate
    from speciate.ports.records.runs import RunRecord

app = noun("Runs: one problem, one policy, one strategy, one budget, one seed.")

_LABELS: Final = ("name", "tags")
Reason = Annotated[str | None, typer.Option(help="Why; it is kept with the run.")]


@app.command(
    "list",
    epilog=examples(
        "speciate runs list", "speciate runs list --state running --json", "speciate runs list --tag baseline"
    ),
)
def list_(
    ctx: typer.Context,
    problem: Annotated[str | None, typer.Option(help="Only runs on this problem.")] = None,
    policy: Annotated[str | None, typer.Option(help="Only runs of this policy.")] = None,
    state: Annotated[
        str | None, typer.Option(help="Only runs that are created, running, paused, completed, failed or cancelled.")
    ] = None,
    tag: Annotated[list[str] | None, typer.Option(help="Only runs with this tag; repeatable, all of them.")] = None,
    name: Annotated[str | None, typer.Option(help="Only runs with this text in their name.")] = None,
    limit: Limit = 20,
    as_json: AsJson = False,
) -> None:
    """List runs, newest first."""
    with client(ctx) as service:
        matching = service.runs.list(problem=problem, policy=policy, state=state, tags=tag or (), name=name)
        found = [run.record for run in listed(ctx, matching, limit)]
    if as_json:
        for record in found:
            output.json_line(record)
        return
    labelled = any(record.name or record.tags for record in found)
    rows = [
        (r.id, r.state.value, f"{r.problem}@{r.problem_version}", _asked(r), r.spec.strategy,
         _spent(r), "unlocked" if r.unlocked else ", ".join(r.reached), *(_labels(r) if labelled else ()))
        for r in found
    ]  # fmt: skip
    tags = " ".join(tag) if tag else None
    empty = output.nothing(
        "runs", "speciate run --help", problem=problem, policy=policy, state=state, tag=tags, name=name
    )
    columns = ("run", "state", "problem", "policy", "strategy", ">spent", "reached")
    output.table((*columns, *(_LABELS if labelled else ())), rows, empty=empty)


@app.command("show", epilog=examples("speciate runs show RUN", "speciate runs show RUN --json"))
def show(ctx: typer.Context, run_id: RunId, as_json: AsJson = False) -> None:
    """Show a run with its progress and the targets that it reached."""
    with client(ctx) as service:
        run = find_run(service, run_id)
        reached = [] if as_json else list(run.unlocks())
    if as_json:
        output.json_line(run.record)
        return
    _show(run.record)
    if run.record.ensembles:
        output.say()
        members = [
            (m.role.value, f"{m.policy}@{m.policy_version}", output.number(m.weight), m.asked, m.won, m.tokens)
            for m in run.record.ensembles
        ]
        output.table(("role", "policy", ">weight", ">answers", ">in archive", ">tokens"), members, empty="no policies")
    if reached:
        output.say()
        rows = [
            (
                u.target,
                "unlock" if u.unlock else "",
                u.state.value,
                u.number,
                u.evaluations,
                u.tokens,
                f"{u.seconds:.1f}",
            )
            for u in reached
        ]
        columns = ("target", "", "state", ">candidate", ">evaluations", ">tokens", ">seconds")
        output.table(columns, rows, empty="no targets")


@app.command("guidance", epilog=examples("speciate runs guidance RUN", "speciate runs guidance RUN --json"))
def guidance(ctx: typer.Context, run_id: RunId, limit: Limit = 20, as_json: AsJson = False) -> None:
    """Show the advice that a run wrote for its own prompts, and what it led to; with --json, in full."""
    with client(ctx) as service:
        found = listed(ctx, find_run(service, run_id).guidance(), limit)
    if as_json:
        for record in found:
            output.json_line(record)
        return
    from textwrap import shorten

    rows = [
        (a.number, a.parent or "", a.judged, a.won, "" if a.lives else "dropped", shorten(a.text, 200) or "no advice")
        for a in found
    ]
    output.table((">advice", ">of", ">answers", ">in archive", "", "text"), rows, empty="This run writes no advice.")


@app.command("watch", epilog=examples("speciate runs watch RUN", "speciate runs watch RUN --json | jq .kind"))
def watch(ctx: typer.Context, run_id: RunId, as_json: AsJson = False) -> None:
    """Watch a run until it ends or is paused; the exit code is 1 when it failed or was paused."""
    from speciate.cli.watching import follow

    with client(ctx) as service:
        raise typer.Exit(follow(find_run(service, run_id), as_json=as_json))


@app.command("pause", epilog=examples("speciate runs pause RUN --reason 'the endpoint moves'"))
def pause(ctx: typer.Context, run_id: RunId, reason: Reason = None, as_json: AsJson = False) -> None:
    """Stop handing out a run's work; what is in flight is still booked."""
    with client(ctx) as service:
        _tell(find_run(service, run_id).pause(reason), as_json=as_json)


@app.command("resume", epilog=examples("speciate runs resume RUN"))
def resume(ctx: typer.Context, run_id: RunId, as_json: AsJson = False) -> None:
    """Hand out a paused run's work again."""
    with client(ctx) as service:
        _tell(find_run(service, run_id).resume(), as_json=as_json)


@app.command("replay", epilog=examples("speciate runs replay RUN", "speciate runs replay RUN --json"))
def replay(
    run_id: Annotated[str, typer.Argument(metavar="RUN", help="Id of the run, in full.")],
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Make every choice and evaluation of a run again from its recorded completions, and compare the events.

    Only a run with one lane and without a budget of seconds has one order of events. It speaks with the servers of a
    running `speciate up`, or with those that SPECIATE_DATABASE_URL and SPECIATE_REDIS_URL name.
    """
    from contextlib import closing

    from evaluators.choose import open_broker
    from speciate.cli.attached import attached_stores
    from speciate.cli.replaying import replay_run
    from speciate.settings import load_settings

    with (
        attached_stores(data_dir) as stores,
        closing(open_broker(load_settings().sandbox)) as broker,
        output.console(stderr=True).status("Replaying …"),
    ):
        report = replay_run(stores, as_run_id(run_id), broker)
    if as_json:
        output.json_line({"identical": report.identical, "events": report.events, "difference": report.describe()})
    elif report.identical:
        output.say(f"Identical: {report.events:,} events.")
    else:
        output.say(f"Different: {report.describe()}")
    if not report.identical:
        raise typer.Exit(Exit.FAILED)


@app.command(
    "label",
    epilog=examples(
        "speciate runs label RUN --name 'four islands' --tag baseline",
        "speciate runs label RUN --untag baseline --note 'its endpoint was restarted half-way'",
    ),
)
def label(
    ctx: typer.Context,
    run_id: RunId,
    name: Annotated[str | None, typer.Option(help="What to call it, one line; empty: nothing.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="A tag to add; repeatable.")] = None,
    untag: Annotated[list[str] | None, typer.Option(help="A tag to take away; repeatable.")] = None,
    note: Annotated[str | None, typer.Option(help="What is to be known about it; empty: nothing.")] = None,
    as_json: AsJson = False,
) -> None:
    """Change what a run is called, at any time, also after its end."""
    if name is None and note is None and not tag and not untag:
        raise InvalidInputError("nothing is to be changed.", remedy="Give --name, --tag, --untag or --note.")
    with client(ctx) as service:
        run = find_run(service, run_id)
        record = run.label(name=name, add_tags=tag or (), remove_tags=untag or (), note=note)
    if as_json:
        output.json_line(record)
    else:
        output.facts((("run", record.id), *zip(_LABELS, _labels(record), strict=True), ("note", record.note)))


@app.command("cancel", epilog=examples("speciate runs cancel RUN"))
def cancel(ctx: typer.Context, run_id: RunId, reason: Reason = None, as_json: AsJson = False) -> None:
    """End a run; what was committed stays."""
    with client(ctx) as service:
        _tell(find_run(service, run_id).cancel(reason), as_json=as_json)


@app.command(
    "export", epilog=examples("speciate runs export RUN > run.jsonl", "speciate runs export RUN --out run.jsonl")
)
def export(
    ctx: typer.Context,
    run_id: RunId,
    out: Annotated[Path | None, typer.Option("--out", help="File to make; by default standard output.")] = None,
) -> None:
    """Write every candidate with its texts as JSON Lines, in order of number."""
    with client(ctx) as service:
        run = find_run(service, run_id)
        if out is None:
            for candidate in run.export():
                output.json_line(candidate)
            return
        count = _write(out, run.export(), run.record.candidates)
    output.say(f"{output.many(count, 'candidate')} in {out}")


def _write(path: Path, candidates: Iterator[ExportedCandidate], expected: int) -> int:
    from rich.progress import track

    part = path.with_name(path.name + ".part")
    console, count = output.console(stderr=True), 0
    try:
        with part.open("w", encoding="utf-8") as file:
            steps = track(candidates, "Exporting", total=expected, console=console, disable=not console.is_terminal)
            for count, candidate in enumerate(steps, start=1):  # noqa: B007
                file.write(candidate.model_dump_json() + "\n")
        os.replace(part, path)  # noqa: PTH105
    except OSError as error:
        raise ConflictError(f"{path} cannot be written: {error.strerror}.") from None
    finally:
        part.unlink(missing_ok=True)
    return count


def _show(run: RunRecord) -> None:
    budget, spent = run.spec.budget, run.spent
    mutators = [f"{m.policy}@{m.policy_version}" for m in run.ensembles if m.role == "mutate" and run.mutator]
    mutator = " + ".join(mutators) or (f"{run.mutator}@{run.mutator_version}" if run.mutator else None)
    options = "  ".join(f"{key}={value}" for key, value in run.spec.strategy_options.items())
    output.facts(
        (
            ("run", run.id),
            *zip(_LABELS, _labels(run), strict=True),
            ("state", run.state.value + (f": {run.reason}" if run.reason else "")),
            ("problem", f"{run.problem}@{run.problem_version}"),
            ("policy", _asked(run)),
            ("mutator", mutator),
            ("choice", run.spec.policy_choice.value if run.ensembles else None),
            ("strategy", f"{run.spec.strategy}  {options}".strip()),
            ("seed", str(run.spec.seed)),
            ("evaluations", _of(spent.evaluations, budget.evaluations)),
            ("granted", None if run.granted is None else f"{run.granted:,} by its campaign"),
            ("tokens", _of(spent.tokens, budget.tokens)),
            ("seconds", _of(round(spent.seconds, 1), budget.seconds)),
            ("candidates", f"{run.evaluated:,} evaluated, {run.failed:,} failed, {run.duplicates:,} duplicates"),
            ("reused", f"{run.reused:,} results of other runs" if run.spec.reuse_results else None),
            ("failures", "  ".join(f"{reason}: {count:,}" for reason, count in run.reasons.items())),
            ("best", output.rewards(run.best)),
            ("best sum", output.number(run.best_scalar)),
            ("plateau", f"archive unchanged for {_of(run.since_improvement, run.spec.stop_on_plateau)} evaluations"),
            ("reached", ", ".join(run.reached)),
            ("unlocked", "yes" if run.unlocked else "no"),
            ("alarm", run.alarm),
            ("note", run.note),
            ("created", output.moment(run.created_at)),
            ("finished", output.moment(run.finished_at)),
        )
    )


def _labels(run: RunRecord) -> tuple[str, str]:
    return run.name, " ".join(run.tags)


def _asked(run: RunRecord) -> str:
    """Return who proposes."""
    several = [f"{m.policy}@{m.policy_version}" for m in run.ensembles if m.role == "propose"]
    return " + ".join(several) or f"{run.policy}@{run.policy_version}"


def _tell(run: RunRecord, *, as_json: bool) -> None:
    if as_json:
        output.json_line(run)
    else:
        output.say(f"{run.id} is {run.state.value}" + (f": {run.reason}" if run.reason else ""))


def _spent(run: RunRecord) -> str:
    return _of(run.spent.evaluations, run.spec.budget.evaluations)


def _of(used: float, limit: float | None) -> str:
    return output.number(used) if limit is None else f"{output.number(used)} of {output.number(limit)}"
