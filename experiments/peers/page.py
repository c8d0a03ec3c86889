"""Write the page of the comparison from the bundles of its tournaments."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Final
from zipfile import ZipFile

import numpy as np

from experiments.arena.problems import HELD_OUT
from experiments.peers.declaration import OURS
from experiments.standin import MODEL as STAND_IN
from speciate.tournaments.report.models import Comparison, Report
from speciate.tournaments.statistics.significance import sign_flips

_TIE: Final = 1e-9

Scores = Mapping[str, Mapping[str, float]]
"""Mean best score over seeds, by problem and entrant."""

_STAND_IN: Final = """a stand-in behind the OpenAI protocol that answers each prompt with one mutation of
`program_mutator` of the program to change (crossover with the other programs of the prompt), so that the entrants
differ in what they select and show"""


def page(bundles: Sequence[Path], model: str, earlier: Path) -> str:
    """Return the page in Markdown; ``earlier`` holds the results of the comparison before engines were entrants."""
    parts = [_HEAD.format(null=f"{OURS}-null", model=_STAND_IN if model == STAND_IN else f"the model `{model}`")]
    for path in bundles:
        report, scores = read(path)
        evaluations = report.design.declared.budget.evaluations
        design = report.design
        size = f"{len(design.problems)} problems × {len(design.seeds)} seeds, {design.planned} runs"
        parts += [
            f"## After {evaluations} evaluations\n\n{size}, declared as `{design.digest[:16]}`.\n",
            _standings(report),
            "\n### Beside Speciate\n",
            _comparisons(report, scores),
            "\n### Spent\n",
            _costs(report),
            "\n### Mean best score by problem\n",
            _problems(report, scores),
            _missing(report),
        ]
    parts += [_EARLIER, _leads_of_earlier(earlier)]
    return "\n".join(part for part in parts if part).rstrip() + "\n"


_EARLIER: Final = """## An earlier comparison

Before engines could enter tournaments, each system ran by itself, with evaluators in its own process, three seeds, an
earlier default of Speciate's and the same stand-in. Problems on which Speciate's mean is ahead : behind; its mean lead
as a share of the range of all runs on the problem; sign-flip test over 23 problems, two-sided.
"""


def _leads_of_earlier(results: Path) -> str:
    with results.open(encoding="utf-8") as file:
        runs = list(csv.DictReader(file))
    marks = ("after_60", "after_120", "after_240")
    rows = [["beside", *(mark.replace("_", " ") for mark in marks)]]
    for peer in dict.fromkeys(run["system"] for run in runs if run["system"] != OURS):
        rows.append([peer, *(_lead(runs, peer, mark) for mark in marks)])
        rows.append([f"{peer}, held-out half", *(_lead(runs, peer, mark, HELD_OUT) for mark in marks)])
    return _table(rows)


def _lead(runs: Sequence[Mapping[str, str]], peer: str, mark: str, among: Collection[str] = ()) -> str:
    leads = []
    for problem in dict.fromkeys(run["problem"] for run in runs if not among or run["problem"] in among):
        values = {
            name: [float(run[mark]) for run in runs if run["problem"] == problem and name in ("", run["system"])]
            for name in ("", OURS, peer)
        }
        scale = max(max(values[""]) - min(values[""]), _TIE)
        leads.append((mean(values[OURS]) - mean(values[peer])) / scale)
    flip = sign_flips([leads], np.random.default_rng(0), draws=100_000)[0]
    ahead, behind = sum(lead > _TIE for lead in leads), sum(lead < -_TIE for lead in leads)
    return f"{ahead} : {behind}, {100 * mean(leads):+.1f} %, p = {flip.p_value:.2g}"


def read(bundle: Path) -> tuple[Report, Scores]:
    """Return the report of a bundle, and the mean best score of every entrant on every problem."""
    with ZipFile(bundle) as archive:
        report = Report.model_validate_json(archive.read("report.json"))
        rows = list(csv.DictReader(io.StringIO(archive.read("runs.csv").decode())))
    runs: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row["state"] == "completed":
            runs[row["problem"]][row["entrant"]].append(float(row["score"]))
    means = {
        problem: {name: mean(values) for name, values in entrants.items()}
        for problem, entrants in sorted(runs.items(), key=lambda each: report.design.declared.problems.index(each[0]))
    }
    return report, means


_HEAD: Final = """# Speciate beside OpenEvolve, ShinkaEvolve, GEPA and two baselines

Written by `make peers` (`python -m experiments.peers`) from declared tournaments, whose bundles are beside this page:
`speciate tournaments verify docs/evidence/peers-60.zip` recomputes their reports. They are written and signed anew from
the same declaration and runs when reports get new fields (`--reseal`). The service evaluates all programs in its
sandbox and books evaluations and tokens. All entrants ask {model}. Engines run
unchanged with their defaults, but: whole programs instead of diffs, ShinkaEvolve without embeddings and meta prompts.
They maximize the score; Speciate searches on the vector, with its default options. The score is the mean of the
normalized objectives. `{null}` is Speciate again with other seeds: a difference between the two would be chance.
Figures before these are withdrawn: in 6 to 10 % of Speciate's answers the stand-in took an error message in the prompt
for the program to change. `make peers` declares eight seeds with 60 and 240 evaluations: two cores for a day. A
budget with fewer problems or seeds was declared so before its first run (`--problems 12 --seeds 4 --evaluations 240`:
100 minutes).
"""


def _standings(report: Report) -> str:
    rows = [["entrant", "problems unlocked", "best score [95 %]", "runs", "missing"]]
    for each in report.standings.standings:
        best = each.best_1
        ends = "" if best.low is None or best.high is None else f" [{best.low:.3f}, {best.high:.3f}]"
        value = "–" if best.value is None else f"{best.value:.3f}{ends}"
        rows.append([each.entrant, str(each.unlocked), value, str(each.ended), str(each.missing)])
    return _table(rows)


def _comparisons(report: Report, scores: Scores) -> str:
    rows = [["entrant", "ahead : level : behind", "held-out half", "difference [95 %]", "p", "Holm p", "verdict"]]
    for each in report.standings.comparisons:
        difference = each.difference
        ends = "" if difference.low is None else f" [{difference.low:+.3f}, {difference.high:+.3f}]"
        value = "–" if difference.value is None else f"{difference.value:+.4f}{ends}"
        rows.append([
            each.a, f"{each.wins} : {each.ties} : {each.losses}", _held_out(each, scores), value, _p(each.p_value),
            _p(each.holm), each.verdict.value,
        ])  # fmt: skip
    return _NOTE + _table(rows)


_NOTE: Final = """Entrant − Speciate: problems on which the entrant's mean over seeds is ahead, level and behind; mean
difference of the best score; sign-flip test over problems, two-sided, Holm over entrants. The held-out half are
problems on which Speciate's default was not developed.

"""


def _held_out(compared: Comparison, scores: Scores) -> str:
    leads = [
        entrants[compared.a] - entrants[compared.b]
        for problem, entrants in scores.items()
        if problem.partition("@")[0] in HELD_OUT and {compared.a, compared.b} <= entrants.keys()
    ]
    ahead, behind = sum(lead > 0 for lead in leads), sum(lead < 0 for lead in leads)
    return f"{ahead} : {len(leads) - ahead - behind} : {behind}"


def _p(value: float | None) -> str:
    return "–" if value is None else f"{value:.2g}"


def _costs(report: Report) -> str:
    rows = [["entrant", "evaluations", "tokens", "beside Speciate's", "duplicates", "failures by kind", "engine"]]
    ours = next(each.tokens for each in report.costs if each.entrant == OURS)
    executions = {each.entrant: each for each in report.executions}
    for each in report.costs:
        execution = executions.get(each.entrant)
        failures = execution.failures if execution else {}
        kinds = ", ".join(f"{kind} {count:,}" for kind, count in sorted(failures.items(), key=lambda item: -item[1]))
        rows.append([
            each.entrant, f"{each.evaluations:,}", f"{each.tokens:,}", f"{each.tokens / max(ours, 1):.2f}",
            f"{each.duplicates:,}", kinds or "–", ", ".join(execution.versions) if execution else "",
        ])  # fmt: skip
    return _table(rows)


def _problems(report: Report, scores: Scores) -> str:
    names = [entrant.name for entrant in report.design.declared.entrants]
    rows = [["problem", *names]]
    for problem, entrants in scores.items():
        rows.append([f"`{problem}`", *(f"{entrants[name]:.4f}" if name in entrants else "–" for name in names)])
    return _table(rows)


def _missing(report: Report) -> str:
    lines = [f"- {each.entrant}, {each.problem}, seed {each.seed}: {each.reason}" for each in report.missing]
    return "\n### Runs that failed\n\n" + "\n".join(lines) + "\n" if lines else ""


def _table(rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]]) + "\n"
