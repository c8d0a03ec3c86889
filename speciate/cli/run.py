"""``speciate run``: start a run, and watch it."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from speciate.cli import output
from speciate.cli.session import AsJson, client, examples, key_values
from speciate.domain.errors import InvalidInputError

RUN_EXAMPLES: Final = examples(
    "speciate run circle-packing-26 --policy program-mutator --budget 2000 --watch",
    "speciate run circle-packing-26 -p qwen --strategy best_of_n --tokens 2000000 --seed 7 --stop-on-unlock",
    "speciate run my-problem -p base --mutator qwen -s islands_map_elites --option islands=4 --seconds 600 --json",
    "speciate run my-problem -p base -b 2000 --name 'four islands, second try' --tag baseline --tag sweep:3",
)

# The defaults are those of ``RunSpec``, which takes too long to load for a help text; a test compares them.
_STRATEGY: Final = "islands_map_elites"
_CAST: Final = "NAME[=WEIGHT]"
_CHOICE: Final = "weights"
_SEED, _LANES, _BATCH, _SAMPLES = "0", "4", "16", "4"


def run_command(
    ctx: typer.Context,
    problem: Annotated[str, typer.Argument(metavar="PROBLEM", help="Name, name@version or id.")],
    policy: Annotated[
        list[str],
        typer.Option("--policy", "-p", metavar=_CAST, help="Who is asked: name, name@version or id; repeatable."),
    ],
    mutator: Annotated[
        list[str] | None, typer.Option(metavar=_CAST, help="Who changes parents instead; repeatable.")
    ] = None,
    choice: Annotated[
        str | None,
        typer.Option(help="How one of several is chosen: weights or ucb.", show_default=_CHOICE),
    ] = None,
    discount: Annotated[
        float | None,
        typer.Option(help="What a batch leaves of the weight of older answers, for ucb: in (0, 1].", show_default="1"),
    ] = None,
    strategy: Annotated[
        str | None, typer.Option("--strategy", "-s", help="See `speciate strategies`.", show_default=_STRATEGY)
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", "-o", metavar="KEY=VALUE", help="Option of the strategy; repeatable."),
    ] = None,
    budget: Annotated[
        int | None, typer.Option("--budget", "--evaluations", "-b", help="Evaluations it may spend.")
    ] = None,
    tokens: Annotated[int | None, typer.Option(help="Tokens it may spend.")] = None,
    seconds: Annotated[float | None, typer.Option(help="Running seconds it may spend.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of every random choice.", show_default=_SEED)] = None,
    lanes: Annotated[
        int | None, typer.Option(help="Batches in flight; one makes the run replayable.", show_default=_LANES)
    ] = None,
    batch: Annotated[
        int | None, typer.Option(help="Answers asked for in one unit of work.", show_default=_BATCH)
    ] = None,
    samples_per_prompt: Annotated[
        int | None, typer.Option(help="Answers drawn for one prompt.", show_default=_SAMPLES)
    ] = None,
    stop_on_unlock: Annotated[
        bool, typer.Option("--stop-on-unlock", help="Complete when the unlock is confirmed.")
    ] = False,
    stop_on_plateau: Annotated[
        int | None,
        typer.Option(metavar="EVALUATIONS", help="Complete when the archive has not improved for so long."),
    ] = None,
    reuse_results: Annotated[
        bool, typer.Option("--reuse-results", help="Share results of equal programs with other such runs.")
    ] = False,
    same: Annotated[
        str | None,
        typer.Option(help="When programs are duplicates: text or syntax.", show_default="as the problem is scored"),
    ] = None,
    reject_near: Annotated[
        float | None,
        typer.Option(metavar="SIMILARITY", help="Reject programs that are this much like earlier ones, up to 1."),
    ] = None,
    guidance: Annotated[
        int | None,
        typer.Option(metavar="BATCHES", help="Have advice for changes written, a new piece every so many batches."),
    ] = None,
    name: Annotated[str | None, typer.Option(help="What to call it, one line.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="A word that it shares with other runs; repeatable.")] = None,
    note: Annotated[str | None, typer.Option(help="What is to be known about it.")] = None,
    idempotency_key: Annotated[
        str | None, typer.Option(help="The same request with the same key again is the same run.")
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Watch until it ends or is paused.")] = False,
    as_json: AsJson = False,
) -> None:
    """Start a run: one problem, one policy or several, one strategy, one budget, one seed.

    With --json the run is printed as it starts, and with --watch its events follow, one a line.
    """
    limits = {"evaluations": budget, "tokens": tokens, "seconds": seconds}
    if all(value is None for value in limits.values()):
        raise InvalidInputError("the run has no budget.", remedy="Give --budget N, --tokens N or --seconds S.")
    with client(ctx) as service:
        run = service.runs.create(
            problem,
            cast(policy, "--policy"),
            mutator=cast(mutator, "--mutator") if mutator else None,
            budget={name: value for name, value in limits.items() if value is not None},
            name=name or "",
            tags=tag or (),
            note=note or "",
            idempotency_key=idempotency_key,
            strategy=strategy,
            policy_choice=choice,
            policy_discount=discount,
            strategy_options=key_values(option, "--option"),
            seed=seed,
            lanes=lanes,
            batch=batch,
            samples_per_prompt=samples_per_prompt,
            stop_on_unlock=stop_on_unlock,
            stop_on_plateau=stop_on_plateau,
            reuse_results=reuse_results,
            novelty=_given(same=same, near=reject_near),
            guidance=_given(every=guidance),
        )
        if as_json:
            output.json_line(run.record)
        elif not watch:
            output.say(run.id)
            output.aside(f"Watch it with: speciate runs watch {run.id}")
        if watch:
            from speciate.cli.watching import follow

            raise typer.Exit(follow(run, as_json=as_json))


def cast(named: list[str], option: str) -> str | dict[str, float]:
    """Return the one policy that is named, or several with their weights.

    Raises:
        InvalidInputError: A weight is no number, or a policy is named twice.
    """
    pairs = [name.partition("=") for name in named]
    if len(pairs) == 1 and not pairs[0][1]:
        return named[0]
    try:
        weights = {name: float(weight) if equals else 1.0 for name, equals, weight in pairs}
    except ValueError:
        raise InvalidInputError(
            f"{option} {' '.join(named)}: expected NAME or NAME=WEIGHT, a positive number."
        ) from None
    if len(weights) < len(named):
        raise InvalidInputError(f"{option} {' '.join(named)}: expected every policy once.")
    return weights


def _given(**values: object) -> dict[str, object] | None:
    """Return the options that were given, or None without any."""
    return {name: value for name, value in values.items() if value is not None} or None
