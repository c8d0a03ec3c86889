"""Write the page of the comparison from its runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import mean
from typing import Final

import numpy as np
from scipy.stats import t as student

from experiments.arena.problems import HELD_OUT
from experiments.peers.declaration import (
    COST_PROBLEM,
    EVALUATIONS,
    KILL_AT,
    MARKS,
    PROBLEMS,
    SEEDS,
    SYSTEMS,
    WORKERS,
)
from experiments.peers.measure import SETTLE_S, accounting
from experiments.peers.result import Result
from experiments.peers.standin import MODEL
from speciate.tournaments.statistics.significance import holm, sign_flips

OURS: Final = "speciate"
Measure = Callable[[Result], float]
_TIE: Final = 1e-9
_LEVEL: Final = 0.05


def page(results: Sequence[Result], model: str) -> str:
    """Return the page in Markdown."""
    search = [result for result in results if result.kind == "search"]
    seeds = [seed for seed in SEEDS if _whole(search, seed)]
    search = [result for result in search if result.seed in seeds]
    costs = [run for name in SYSTEMS if (run := _cost_run(results, name)) is not None]
    systems = [name for name in SYSTEMS if any(result.system == name for result in search)]
    measures = _measures(search)
    parts = [
        "# Speciate beside OpenEvolve, ShinkaEvolve and GEPA\n",
        _over_problems(search, systems, measures),
        _spent(costs),
        _method(search, systems, model, seeds),
        "## Single problems\n",
        _single(search, systems, measures),
        f"\n### Best score after {MARKS[-1]} evaluations\n",
        _comparison(search, systems, best_after(MARKS[-1])),
        "\n## Tokens\n",
        TOKENS,
        _tokens(search, systems),
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


def _measures(search: Sequence[Result]) -> dict[str, Measure]:
    return {
        **{f"after {mark} evaluations": best_after(mark) for mark in MARKS},
        "at equal tokens": at_equal_tokens(search),
        "area under the curve": area,
    }


def best_after(evaluations: int) -> Measure:
    """Return the measure of a run's best score after so many evaluations."""
    return lambda run: max(run.curve[:evaluations], default=0.0)


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


def _leads(search: Sequence[Result], peer: str, measure: Measure) -> list[float]:
    """Return Speciate's mean lead on each problem, as a share of the measure's range over all systems and seeds."""
    leads = []
    for problem in PROBLEMS:
        values = [measure(run) for run in search if run.problem == problem] or [0.0]
        scale = max(max(values) - min(values), _TIE)
        leads.append(mean(_paired(search, problem, peer, measure) or [0.0]) / scale)
    return leads


def _over_problems(search: Sequence[Result], systems: Sequence[str], measures: Mapping[str, Measure]) -> str:
    rows = [["beside", *measures]]
    held_out = [PROBLEMS.index(problem) for problem in HELD_OUT]
    for peer in systems[1:]:
        leads = {name: _leads(search, peer, measure) for name, measure in measures.items()}
        for label, chosen in ((peer, range(len(PROBLEMS))), (f"{peer}, held-out half", held_out)):
            rows.append([label, *(_cell([values[i] for i in chosen]) for values in leads.values())])
    return OVER_PROBLEMS.format(count=len(PROBLEMS), half=len(HELD_OUT)) + _table(rows) + "\n"


def _cell(leads: Sequence[float]) -> str:
    ahead, behind = sum(lead > _TIE for lead in leads), sum(lead < -_TIE for lead in leads)
    flip = sign_flips([leads], np.random.default_rng(0), draws=100_000)[0]
    return f"{ahead} : {behind}, {100 * mean(leads):+.1f} %, p = {flip.p_value:.2g}"


def _single(search: Sequence[Result], systems: Sequence[str], measures: Mapping[str, Measure]) -> str:
    """Return on which problems alone a difference is seen, adjusted over problems for each peer and measure."""
    rows = [["beside", *measures]]
    for peer in systems[1:]:
        cells = []
        for measure in measures.values():
            paired = [_paired(search, problem, peer, measure) for problem in PROBLEMS]
            adjusted = holm([_p_value(differences) for differences in paired])
            seen = [mean(d) for d, p in zip(paired, adjusted, strict=True) if p < _LEVEL]
            cells.append(f"{sum(value > 0 for value in seen)} : {sum(value < 0 for value in seen)}")
        rows.append([peer, *cells])
    return SINGLE + _table(rows)


def _p_value(differences: Sequence[float]) -> float:
    if len(differences) < 2 or max(map(abs, differences)) <= _TIE:
        return 1.0
    spread = float(np.std(differences, ddof=1))
    if spread == 0.0:
        return 0.0
    return float(2 * student.sf(abs(mean(differences)) / (spread / len(differences) ** 0.5), len(differences) - 1))


def _spent(costs: Sequence[Result]) -> str:
    spent = ", ".join(f"{run.system} {1000 * per_evaluation(run):.0f} ms" for run in costs)
    return f"Processor time per evaluation: {spent}.\n" if costs else ""


def per_evaluation(result: Result) -> float:
    """Return processor seconds per evaluation, the start left out."""
    return result.processor_s / max(result.evaluations - 1, 1)


OVER_PROBLEMS: Final = """Best scores with default options: problems of {count} on which Speciate's mean over seeds is
ahead : behind; its mean lead, a share of the range over all systems and seeds on the problem; and the sign-flip test
over problems, two-sided. The held-out half are {half} problems on which Speciate's default was not developed.

"""

SINGLE: Final = """Problems on which Speciate is better : worse by themselves (Student's t over seeds, Holm over
problems, p < .05).

"""

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
The first search on `{problem}` of each system. From the first evaluation on, so that
starting is left out; all processes of a system, shared pages counted once.
The processor time is that of {accounting}.
Speciate's contain PostgreSQL, Valkey, the API and both kinds of workers, which also cost when they wait: on a crowded
machine a run takes long, and they wait long."""

STAND_IN: Final = """a stand-in behind the OpenAI protocol that answers each prompt with one mutation of
`program_mutator` of the program to change (crossover with the other programs of the prompt), so that the systems differ
in what they select and show"""

METHOD: Final = """
Written by `make peers` (`python -m experiments.peers`). {versions}, each peer in an environment of its own. The
model of all systems is {endpoint}. {complete} of {declared} declared seeds ({seeds}) are complete;
{evaluations} evaluations each, the seed program's included; {workers} evaluations and requests at a time. All
systems score with the same evaluators.

The peers maximize one number, the mean of the normalized objectives, and import programs into the evaluating
process as their examples do. Speciate runs as `speciate up` with its default strategy on the vector, and its
candidates are scored with the same number afterwards. Peers' defaults, but: whole programs instead of diffs;
OpenEvolve saves a checkpoint every 10; ShinkaEvolve without embeddings and meta prompts; GEPA
(`optimize_anything`) with its evaluation cache, so that a repeated program costs it a proposal and no evaluation.
Speciate's workers run with the priority of the peers.
{machine}.
"""


def _method(search: Sequence[Result], systems: Sequence[str], model: str, seeds: Sequence[int]) -> str:
    versions = {run.system: run.version for run in search}
    return METHOD.format(
        versions=", ".join(f"{name} {versions[name]}" for name in systems),
        endpoint=STAND_IN if model == MODEL else f"the model `{model}`",
        complete=len(seeds),
        declared=len(SEEDS),
        seeds=", ".join(map(str, SEEDS)),
        evaluations=EVALUATIONS,
        workers=WORKERS,
        machine="; ".join(sorted({run.machine for run in search})),
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
            differences.append(f"{middle:+.4f} [{low:+.4f}, {high:+.4f}] ".rstrip())
        rows.append([f"`{problem}`", *(f"{value:.4f}" for value in means), *differences])
    return _table(rows)


def _cost_run(results: Sequence[Result], system: str) -> Result | None:
    runs = (r for r in results if (r.system, r.problem, r.kind) == (system, COST_PROBLEM, "search"))
    return next(runs, None)


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
         str(r.evaluations), f"{r.evaluations / max(r.seconds, 1e-9):.1f}", f"{r.memory / 1e6:.0f}"]
        for r in runs
    ]  # fmt: skip
    told = COSTS.format(problem=COST_PROBLEM, accounting=accounting())
    return f"{_table([head, *rows])}\n{told}"


def _kills(results: Sequence[Result], systems: Sequence[str]) -> str:
    head = ["system", "evaluations before", "stored after", f"processes after {SETTLE_S:.0f} s"]
    killed = [r for name in systems for r in results if (r.system, r.kind) == (name, "kill")]
    return _table([head, *([r.system, str(r.before), str(r.survivors), str(r.orphans)] for r in killed)])


def _forgeries(results: Sequence[Result], systems: Sequence[str]) -> str:
    head = ["system", "forged answers", "evaluations", "impossible scores accepted"]
    runs = [r for name in systems for r in results if (r.system, r.kind) == (name, "forge")]
    return _table([head, *([r.system, str(r.sent_forged), str(r.evaluations), str(r.forged)] for r in runs)])


def _troubles(results: Sequence[Result]) -> str:
    lines = [f"- {r.task.key}: {r.note}" for r in results if r.note and r.kind != "kill"]
    return "\n## Runs that did not end as they should\n\n" + "\n".join(lines) if lines else ""


def _table(rows: Sequence[Sequence[str]]) -> str:
    head, *body = rows
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *body])
