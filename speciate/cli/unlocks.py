"""``speciate unlocks``: list unlocks, reached targets and objective records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from speciate.cli import output
from speciate.cli.common import AsJson, Limit, client, examples, first_records, invalid_option, note_more, resolve_run

if TYPE_CHECKING:
    from speciate.client import Client
    from speciate.ports.records.unlocks import ObjectiveRecord, ProblemUnlocks, UnlockRecord

UNLOCKS_EXAMPLES: Final = examples(
    "speciate unlocks",
    "speciate unlocks --policy qwen --first --json",
    "speciate unlocks --problem maze-7 --who",
    "speciate unlocks --problem packing --records",
    "speciate unlocks --every-target --out unlocks.parquet",
)


def unlocks_command(
    ctx: typer.Context,
    run: Annotated[str | None, typer.Option(help="Only unlocks of this run.")] = None,
    problem: Annotated[str | None, typer.Option(help="Only unlocks of this problem.")] = None,
    policy: Annotated[str | None, typer.Option(help="Only unlocks of this policy.")] = None,
    strategy: Annotated[str | None, typer.Option(help="Only unlocks with this strategy.")] = None,
    first: Annotated[
        bool, typer.Option("--first", help="Only the first per problem, target, policy and strategy.")
    ] = False,
    every_target: Annotated[
        bool, typer.Option("--every-target", help="Include reached targets that do not unlock the problem.")
    ] = False,
    who: Annotated[
        bool, typer.Option("--who", help="Compare the policies on --problem: first, only, never, and effort spent.")
    ] = False,
    records: Annotated[
        bool, typer.Option("--records", help="Show the record history of --problem by objective.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option("--out", help="Write all results to a .jsonl, .csv or .parquet file.")
    ] = None,
    limit: Limit = 50,
    as_json: AsJson = False,
) -> None:
    """List confirmed unlocks with the policy, strategy and effort.

    Every unlock was confirmed by a second evaluation.
    """
    if who or records:
        others = {"--run": run, "--policy": policy, "--strategy": strategy, "--first": first, "--out": out}
        _require_only_problem("--who" if who else "--records", problem, {"--records": who and records, **others})
    with client(ctx) as service:
        if who:
            return _show_who(service.problem_unlocks(problem or ""), every_target=every_target, as_json=as_json)
        if records:
            return _show_records(ctx, service, problem or "", limit, as_json=as_json)
        run_id = None if run is None else resolve_run(service, run).id
        named = {"problem": problem, "policy": policy, "strategy": strategy}
        found = service.unlocks(run=run_id, **named, first=first, unlocks_only=not every_target)
        if out is not None:
            return _write(out, found, as_json=as_json)
        shown = first_records(ctx, found, limit)
    if as_json:
        for record in shown:
            output.print_json(record)
        return None
    rows = [
        (f"{u.problem}@{u.problem_version}", _label(u.target, forgeable=u.forgeable), _proposers(u), _mutator(u),
         u.strategy, u.seed, output.format_number(u.evaluations), output.format_number(u.tokens), f"{u.seconds:.1f}",
         f"{u.run_id}/{u.number}")
        for u in shown
    ]  # fmt: skip
    numbers = (">seed", ">evaluations", ">tokens", ">seconds")
    columns = ("problem", "target", "policy", "mutator", "strategy", *numbers, "candidate")
    what = "reached targets" if every_target else "unlocks"
    hint = "speciate run --help" if every_target else "see --every-target"
    output.print_table(columns, rows, empty=output.empty_message(what, hint, run=run, **named))
    return None


def _show_who(found: ProblemUnlocks, *, every_target: bool, as_json: bool) -> None:
    if as_json:
        output.print_json(found)
        return
    for target in found.targets:
        if not target.unlock and not every_target:
            continue
        marked = _label(target.target, forgeable=found.forgeable)
        output.print_line(f"{found.problem}@{found.version}, {marked}", style="bold")
        if target.first is not None:
            by = f"{target.first.policy_label}, {target.first.strategy}"
            output.print_line(
                f"first: {by}, {output.format_time(target.first.at)}, {target.first.run_id}/{target.first.number}"
            )
        if target.only is not None:
            output.print_line(f"only: {target.only}")
        if target.never:
            output.print_line(f"never: {', '.join(target.never)}")
        rows = [
            (a.policy, a.mutator or "", a.strategy, f"{a.reached} of {a.runs}", output.format_number(a.evaluations),
             output.format_number(a.tokens), f"{a.seconds:.1f}",
             "never" if a.first is None else output.format_number(a.first.evaluations))
            for a in target.attempts
        ]  # fmt: skip
        columns = (
            "policy", "mutator", "strategy", ">reached", ">evaluations", ">tokens", ">seconds", ">evaluations to first",
        )  # fmt: skip
        output.print_table(columns, rows, empty="No policy has attempted it.")


def _show_records(ctx: typer.Context, service: Client, problem: str, limit: int, *, as_json: bool) -> None:
    found = service.problem_records(problem)
    if as_json:
        for record in found:
            output.print_json(record)
        return
    shown = _newest(found, limit)
    if len(shown) < len(found):
        note_more(ctx, limit)
    rows = [
        (_label(r.objective, forgeable=r.forgeable), f"{r.value:.6g}", r.policy or "seed program",
         r.strategy, r.seed, output.format_number(r.evaluations), output.format_time(r.at), f"{r.run_id}/{r.number}")
        for r in shown
    ]  # fmt: skip
    columns = ("objective", ">value", "policy", "strategy", ">seed", ">evaluations", "when", "candidate")
    output.print_table(columns, rows, empty=output.empty_message("records", "speciate run --help", problem=problem))


def _newest(found: Sequence[ObjectiveRecord], limit: int) -> list[ObjectiveRecord]:
    """Return at most ``limit`` records in order, keeping the newest of every objective first."""
    seen: Counter[str] = Counter()
    ages = []
    for record in found:
        ages.append(seen[record.objective])
        seen[record.objective] += 1
    chosen = sorted(range(len(found)), key=ages.__getitem__)[:limit]
    return [found[i] for i in sorted(chosen)]


def _write(out: Path, found: Iterable[UnlockRecord], *, as_json: bool) -> None:
    from speciate.cli.export import WRITERS, write_records
    from speciate.ports.records.unlocks import UnlockRecord as Row

    kind = out.suffix.removeprefix(".")
    if kind not in WRITERS:
        raise invalid_option("--out", f"is {str(out)!r}: expected a name that ends in .{', .'.join(WRITERS)}")
    write_records(out, kind, Row, found)
    if as_json:
        output.print_json({"file": str(out)})
    else:
        output.print_line(f"{out}")


def _require_only_problem(table: str, problem: str | None, others: dict[str, object]) -> None:
    """Reject options that have no effect on the table of one problem."""
    if problem is None:
        raise invalid_option("--problem", f"is missing: {table} requires it")
    for option, given in others.items():
        if given:
            raise invalid_option(option, f"does not apply to {table}: only --problem does")


def _label(name: str, *, forgeable: bool) -> str:
    return f"{name} (forgeable)" if forgeable else name


def _proposers(record: UnlockRecord) -> str:
    return " + ".join(record.ensemble) or f"{record.policy}@{record.policy_version}"


def _mutator(record: UnlockRecord) -> str:
    """Return the mutator if it is a separate policy; ``_proposers`` names an ensemble completely."""
    return f"{record.mutator}@{record.mutator_version}" if record.mutator and not record.ensemble else ""
