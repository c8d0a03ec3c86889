"""``speciate unlocks``: the record of reached targets."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Annotated, Final

import typer

from speciate.cli import output
from speciate.cli.session import AsJson, Limit, client, examples, find_run

if TYPE_CHECKING:
    from speciate.ports.records import UnlockRecord

UNLOCKS_EXAMPLES: Final = examples(
    "speciate unlocks", "speciate unlocks --policy qwen --json", "speciate unlocks --run RUN --every-target"
)


def unlocks_command(
    ctx: typer.Context,
    run: Annotated[str | None, typer.Option(help="Only those of this run.")] = None,
    problem: Annotated[str | None, typer.Option(help="Only those of this problem.")] = None,
    policy: Annotated[str | None, typer.Option(help="Only those of this policy.")] = None,
    every_target: Annotated[
        bool, typer.Option("--every-target", help="Also reached targets that do not unlock the problem.")
    ] = False,
    limit: Limit = 50,
    as_json: AsJson = False,
) -> None:
    """List the problems that policies unlocked, with what it took; every one was confirmed by evaluating again."""
    with client(ctx) as service:
        run_id = None if run is None else find_run(service, run).id
        records = service.unlocks(run=run_id, problem=problem, policy=policy, unlocks_only=not every_target)
        found = list(islice(records, limit))
    if as_json:
        for record in found:
            output.json_line(record)
        return
    rows = [
        (f"{u.problem}@{u.problem_version}", _target(u), _asked(u), u.strategy, u.seed,
         output.number(u.evaluations), output.number(u.tokens), f"{u.seconds:.1f}", f"{u.run_id}/{u.number}")
        for u in found
    ]  # fmt: skip
    columns = ("problem", "target", "policy", "strategy", ">seed", ">evaluations", ">tokens", ">seconds", "candidate")
    what = "reached targets" if every_target else "unlocks"
    hint = "speciate run --help" if every_target else "see --every-target"
    output.table(columns, rows, empty=output.nothing(what, hint, run=run, problem=problem, policy=policy))


def _target(record: UnlockRecord) -> str:
    return f"{record.target} (forgeable)" if record.forgeable else record.target


def _asked(record: UnlockRecord) -> str:
    return " + ".join(record.ensemble) or f"{record.policy}@{record.policy_version}"
