"""Write the page of the comparison from its runs."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import mean
from typing import Final

import numpy as np
import psutil
from scipy.stats import t as student

from experiments.peers.declaration import (
    COST_EVALUATIONS,
    COST_PROBLEM,
    EVALUATIONS,
    KILL_AT,
    PROBLEMS,
    SEEDS,
    SYSTEMS,
    WORKERS,
)
from experiments.peers.environments import Installed
from experiments.peers.measure import SETTLE_S, accounting
from experiments.peers.result import Result
from experiments.peers.standin import MODEL

OURS: Final = "speciate"
Measure = Callable[[Result], float]


def page(results: Sequence[Result], peers: Mapping[str, Installed], model: str) -> str:
    """Return the page in Markdown."""
    search = [result for result in results if result.kind == "search"]
    seeds = [seed for seed in SEEDS if _whole(search, seed)]
    search = [result for result in search if result.seed in seeds]
    costs = [run for name in SYSTEMS if (run := _cost_run(results, name)) is not None]
    systems = [name for name in SYSTEMS if any(result.system == name for result in search)]
    parts = [
        "# Speciate beside OpenEvolve, ShinkaEvolve and GEPA\n",
        _conclusion(search, systems, costs),
        _method(peers, model, seeds),
        "## Best score\n",
        _comparison(search, systems, lambda result: max(result.curve, default=0.0)),
        "\n## Area under the curve of the best score\n",
        "Mean over the evaluations of the best score so far: high if good programs come early.\n",
        _comparison(search, systems, area),
        "\n## Tokens\n",
        TOKENS,
        _tokens(search, systems),
        "\n### Best score at equal tokens\n",
        _comparison(search, systems, at_equal_tokens(search)),
        "\n## Costs\n",
        _costs(costs),
        "\n## A killed main process\n",
        f"SIGKILL for the main process after {KILL_AT} evaluations, as the kernel does when memory is short.\n",
        _kills(results, systems),
        "\n## Forged scores\n",
        "Every fifth answer patches `math.fsum`, `math.hypot` and `round` when it is imported.\n",
        _forgeries(results, systems),
        _troubles(results),
    ]
    return "\n".join(parts).rstrip() + "\n"


def area(result: Result) -> float:
    """Return the area under the curve of the best score; evaluations that are missing add the last value."""
    curve = result.curve or [0.0]
    return (sum(curve) + curve[-1] * (EVALUATIONS - len(curve))) / EVALUATIONS


def at_equal_tokens(search: Sequence[Result]) -> Measure:
    """Return the measure of a run's best score within the tokens of the thriftiest system on its problem and seed."""
    least: dict[tuple[str, int], int] = {}
    for run in search:
        key = run.problem, run.seed
        least[key] = min(least.get(key, sum(run.tokens)), sum(run.tokens))

    def best(run: Result) -> float:
        share = least[run.problem, run.seed] / max(sum(run.tokens), 1)
        return max(run.curve[: int(share * len(run.curve))], default=0.0)

    return best


def interval(differences: Sequence[float]) -> tuple[float, float, float]:
    """Return mean and 95 % interval of paired differences (Student)."""
    values = np.asarray(differences, dtype=float)
    half = (
        float(student.ppf(0.975, len(values) - 1) * values.std(ddof=1) / len(values) ** 0.5)
        if len(values) > 1
        else np.inf
    )
    return float(values.mean()), float(values.mean()) - half, float(values.mean()) + half


def _whole(search: Iterable[Result], seed: int) -> bool:
    found = [result for result in search if result.seed == seed]
    systems = {result.system for result in search}
    return len(found) == len(PROBLEMS) * len(systems) > 0


def _paired(search: Sequence[Result], problem: str, peer: str, measure: Measure) -> list[float]:
    values = {(r.system, r.seed): measure(r) for r in search if r.problem == problem}
    return [values[OURS, seed] - values[peer, seed] for system, seed in sorted(values) if system == peer]


def _verdict(differences: Sequence[float]) -> str:
    _, low, high = interval(differences)
    return "better" if low > 0 else "worse" if high < 0 else ""


def _conclusion(search: Sequence[Result], systems: Sequence[str], costs: Sequence[Result]) -> str:
    measures: list[tuple[str, Measure]] = [
        ("best score", lambda r: max(r.curve, default=0.0)),
        ("area under the curve", area),
        ("best score at equal tokens", at_equal_tokens(search)),
    ]
    heads = ["Speciate beside", *(name for name, _ in measures)]
    lines = [f"Problems of {len(PROBLEMS)} on which Speciate is better : worse; on the others no difference is seen.\n"]
    lines += [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for peer in systems[1:]:
        cells = []
        for _, measure in measures:
            verdicts = [_verdict(_paired(search, problem, peer, measure)) for problem in PROBLEMS]
            cells.append(f"{verdicts.count('better')} : {verdicts.count('worse')}")
        lines.append(f"| {peer} | {' | '.join(cells)} |")
    spent = ", ".join(f"{r.system} {1000 * per_evaluation(r):.0f} ms" for r in costs)
    lines += [f"\nProcessor time per evaluation: {spent}."] if costs else []
    return "\n".join(lines) + "\n"


def per_evaluation(result: Result) -> float:
    """Return processor seconds per evaluation, the start left out."""
    return result.processor_s / max(len(result.scores) - 1, 1)


TOKENS: Final = f"""Of a search of {EVALUATIONS} evaluations, a mean over problems and seeds. At equal tokens, every
system has as many as the thriftiest one used on the same problem with the same seed; its evaluations are counted as
if each cost the same.
"""


def _tokens(search: Sequence[Result], systems: Sequence[str]) -> str:
    rows = [["system", "prompts", "answers", "all, beside Speciate's"]]
    spent = {
        name: [mean([run.tokens[side] for run in search if run.system == name] or [0.0]) for side in (0, 1)]
        for name in systems
    }
    for name, (prompts, answers) in spent.items():
        ratio = (prompts + answers) / max(sum(spent.get(OURS, [0.0])), 1.0)
        rows.append([name, f"{prompts:,.0f}", f"{answers:,.0f}", f"{ratio:.2f}"])
    return _table(rows)


COSTS: Final = """
One run of `{problem}` for each system: of {evaluations} evaluations, or a shorter one where that is missing.
From the first evaluation on, so that starting is left out; all processes of a system, shared pages counted once.
The processor time is that of {accounting}.
Speciate's contain PostgreSQL, Valkey, the API and both kinds of workers, which also cost when they wait: on a crowded
machine a run takes long, and they wait long."""

STAND_IN: Final = """a stand-in behind the OpenAI protocol that answers each prompt with one mutation of
`program_mutator` of the program to change (crossover with the other programs of the prompt), so that the systems differ
in what they select and show"""

METHOD: Final = """
Written by `make peers` (`python -m experiments.peers`). {versions}, each in an environment of its own. The
model of all systems is {endpoint}. {complete} of {declared} declared seeds ({seeds}) are complete;
{evaluations} evaluations each, the seed program's included; {workers} evaluations and requests at a time. All
systems score with the same evaluators.

The peers maximize one number, the mean of the normalized objectives, and import programs into the evaluating
process as their examples do. Speciate runs as `speciate up` with its default strategy on the vector, and its
candidates are scored with the same number afterwards. Peers' defaults, but: whole programs instead of diffs;
OpenEvolve saves a checkpoint every 10; ShinkaEvolve without embeddings and meta prompts; GEPA
(`optimize_anything`) with its evaluation cache. Speciate's workers run with the priority of the peers.
{machine}, {cores} cores.
"""


def _method(peers: Mapping[str, Installed], model: str, seeds: Sequence[int]) -> str:
    versions = ", ".join(
        f"{name} {peer.version}" if peer.version else f"{name} left out ({peer.trouble})"
        for name, peer in peers.items()
    )
    return METHOD.format(
        versions=versions,
        endpoint=STAND_IN if model == MODEL else f"the model `{model}`",
        complete=len(seeds),
        declared=len(SEEDS),
        seeds=", ".join(map(str, SEEDS)),
        evaluations=EVALUATIONS,
        workers=WORKERS,
        machine=platform.system(),
        cores=psutil.cpu_count(),
    )


def _comparison(search: Sequence[Result], systems: Sequence[str], measure: Measure) -> str:
    rows = [["problem", *systems, *(f"Speciate − {peer} [95 %]" for peer in systems[1:])]]
    for problem in PROBLEMS:
        means = [
            mean([measure(r) for r in search if (r.problem, r.system) == (problem, name)] or [0.0]) for name in systems
        ]
        differences = []
        for peer in systems[1:]:
            paired = _paired(search, problem, peer, measure)
            middle, low, high = interval(paired)
            differences.append(f"{middle:+.4f} [{low:+.4f}, {high:+.4f}] {_verdict(paired)}".rstrip())
        rows.append([f"`{problem}`", *(f"{value:.4f}" for value in means), *differences])
    return _table(rows)


def _cost_run(results: Sequence[Result], system: str) -> Result | None:
    """Return the run that a system's costs are taken from: the long one, or else the first search on its problem."""
    runs = [r for r in results if r.system == system and r.problem == COST_PROBLEM and r.kind in ("cost", "search")]
    return max(runs, key=lambda r: r.kind == "cost", default=None)


def _costs(runs: Sequence[Result]) -> str:
    head = [
        "system",
        "processor ms per evaluation",
        "second half over first half",
        "evaluations",
        "evaluations/s",
        "memory, MB",
    ]
    rows = [
        [r.system, f"{1000 * per_evaluation(r):.0f}", f"{r.halves[1] / max(r.halves[0], 1e-9):.2f}",
         str(len(r.scores)), f"{len(r.scores) / max(r.seconds, 1e-9):.1f}", f"{r.memory / 1e6:.0f}"]
        for r in runs
    ]  # fmt: skip
    told = COSTS.format(evaluations=COST_EVALUATIONS, problem=COST_PROBLEM, accounting=accounting())
    return f"{_table([head, *rows])}\n{told}"


def _kills(results: Sequence[Result], systems: Sequence[str]) -> str:
    head = ["system", "evaluations before", "stored after", f"processes after {SETTLE_S:.0f} s"]
    killed = [r for name in systems for r in results if (r.system, r.kind) == (name, "kill")]
    return _table([head, *([r.system, str(r.before), str(r.survivors), str(r.orphans)] for r in killed)])


def _forgeries(results: Sequence[Result], systems: Sequence[str]) -> str:
    head = ["system", "forged answers", "evaluations", "impossible scores accepted"]
    runs = [r for name in systems for r in results if (r.system, r.kind) == (name, "forge")]
    return _table([head, *([r.system, str(r.sent_forged), str(len(r.scores)), str(r.forged)] for r in runs)])


def _troubles(results: Sequence[Result]) -> str:
    lines = [f"- {r.task.key}: {r.note}" for r in results if r.note and r.kind != "kill"]
    return "\n## Runs that did not end as they should\n\n" + "\n".join(lines) if lines else ""


def _table(rows: Sequence[Sequence[str]]) -> str:
    head, *body = rows
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *body])
