"""``speciate unlocks``: list unlocks, reached targets and objective records."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from speciate.cli import output
from speciate.cli.common import Limit, client, command, command_group, first_records, invalid_argument
from speciate.cli.export import WRITERS, write_records
from speciate.domain.numbers import short_number

if TYPE_CHECKING:
    from speciate.schema.unlocks import ObjectiveRecord, ProblemUnlocks, TargetUnlocks, UnlockRecord


app = command_group()

_COLUMNS: Final = (
    "problem", "target", "policy", "mutator", "strategy", ">seed", ">evaluations", ">tokens", ">seconds", "candidate",
)  # fmt: skip

_SEED: Final = " (by the seed program)"


@command(
    app,
    "unlocks",
    "speciate unlocks",
    "speciate unlocks --policy qwen --first --json",
    "speciate unlocks --problem maze-test-7 --by-policy",
    "speciate unlocks --problem packing --records",
    "speciate unlocks --every-target --out unlocks.parquet",
)
def unlocks_command(
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
    by_policy: Annotated[
        bool, typer.Option("--by-policy", help="Compare policies on --problem: first, only, never, and effort.")
    ] = False,
    records: Annotated[
        bool, typer.Option("--records", help="Show the record history of --problem by objective.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Write all results to a .jsonl, .csv or .parquet file.")] = None,
    limit: Limit = 50,
) -> None:
    """List confirmed unlocks with the policy, strategy and effort.

    Every unlock was confirmed as its problem demands. `forgeable`: the program runs inside its evaluator, and could
    fake its rewards. `attested`: an external evaluator reported them.
    """
    filters = {"problem": problem, "policy": policy, "strategy": strategy}
    if by_policy or records:
        others: dict[str, object] = {"--records": by_policy and records, "--run": run, "--policy": policy}
        others |= {"--strategy": strategy, "--first": first, "--out": out, "--every-target": records and every_target}
        only_problem = _only_problem("--by-policy" if by_policy else "--records", problem, others)
        if by_policy:
            _print_by_policy(only_problem, every_target=every_target)
        else:
            _print_records(only_problem, limit)
        return
    service = client()
    run_id = None if run is None else service.runs.get(run).id
    unlocks = service.unlocks(run=run_id, **filters, first=first, unlocks_only=not every_target)
    if out is not None:
        _write(out, unlocks)
        return
    rows = first_records(unlocks, limit)
    what, hint = ("reached targets", "speciate run --help") if every_target else ("unlocks", "see --every-target")
    output.print_records(rows, _COLUMNS, _row, empty=output.empty_message(what, hint, run=run, **filters))


def _row(unlock: UnlockRecord) -> tuple[object, ...]:
    return (
        f"{unlock.problem}@{unlock.problem_version}",
        _label(unlock.target, unlock) + _SEED * unlock.by_seed,
        " + ".join(unlock.ensemble) or f"{unlock.policy}@{unlock.policy_version}",
        f"{unlock.mutator}@{unlock.mutator_version}" if unlock.mutator and not unlock.ensemble else "",
        unlock.strategy,
        unlock.seed,
        *output.format_effort(unlock),
        f"{unlock.run_id}/{unlock.number}",
    )


def _print_by_policy(problem: str, *, every_target: bool) -> None:
    by_policy = client().problem_unlocks(problem)
    output.exit_with_json(by_policy)
    for target in by_policy.targets:
        if target.unlock or every_target:
            label = _label(target.target, by_policy)
            output.print_line(f"{by_policy.problem}@{by_policy.version}, {label}", style="bold")
            _print_attempts(target)


def _print_attempts(target: TargetUnlocks) -> None:
    if (first := target.first) is not None:
        when = output.format_time(first.at)
        what = f"{first.policy_label}, {first.strategy}{_SEED * first.by_seed}"
        output.print_line(f"first: {what}, {when}, {first.run_id}/{first.number}")
    if target.only is not None:
        output.print_line(f"only: {target.only}")
    if target.never:
        output.print_line(f"never: {', '.join(target.never)}")
    output.print_table(
        ("policy", "mutator", "strategy", ">reached", ">evaluations", ">tokens", ">seconds", ">evaluations to first"),
        [(a.policy, a.mutator or "", a.strategy, f"{a.reached} of {a.runs}", output.format_number(a.evaluations),
          output.format_number(a.tokens), f"{a.seconds:.1f}",
          "never" if a.first is None else output.format_number(a.first.evaluations)) for a in target.attempts],
        empty="No policy has attempted it.",
    )  # fmt: skip


def _print_records(problem: str, limit: int) -> None:
    records = client().problem_records(problem)
    output.print_records(
        records if output.wants_json() else first_records(records, limit),
        ("objective", ">value", "policy", "strategy", ">seed", ">evaluations", "time", "candidate"),
        lambda r: (_label(r.objective, r), short_number(r.value),
                   r.policy or ("polished numbers" if r.role == "polish" else "seed program"), r.strategy, r.seed,
                   output.format_number(r.evaluations), output.format_time(r.at), f"{r.run_id}/{r.number}"),
        empty=output.empty_message("records", "speciate run --help", problem=problem),
    )  # fmt: skip


def _write(out: Path, unlocks: Iterable[UnlockRecord]) -> None:
    from speciate.schema.unlocks import UnlockRecord as Row

    kind = out.suffix.removeprefix(".")
    if kind not in WRITERS:
        raise invalid_argument("--out", f"is {str(out)!r}: expected a name that ends in .{', .'.join(WRITERS)}")
    write_records(out, kind, Row, unlocks)
    output.print_result({"file": str(out)}, f"{out}")


def _only_problem(table: str, problem: str | None, others: dict[str, object]) -> str:
    """Return the problem, and reject options that have no effect on its table."""
    if problem is None:
        raise invalid_argument("--problem", f"is missing: {table} requires it")
    for option, value in others.items():
        if value:
            raise invalid_argument(option, f"does not apply to {table}: only --problem does")
    return problem


def _label(name: str, of: UnlockRecord | ProblemUnlocks | ObjectiveRecord) -> str:
    return name + (" (attested)" if of.attested else " (forgeable)" if of.forgeable else "")
