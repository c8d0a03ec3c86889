"""A report as text tables in reading order, for the terminal and the HTML file."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from speciate.domain.candidate import mark_of
from speciate.domain.entrant import Entrant
from speciate.domain.tournament import Metric, StoppingRule
from speciate.tournaments.rendering import quality_tables
from speciate.tournaments.rendering.cells import Section, ends, estimate, p_value, shown, withheld
from speciate.tournaments.rendering.conclusion import null_verdict
from speciate.tournaments.rendering.method_tables import methods, training_runs
from speciate.tournaments.report.methods import methods_power
from speciate.tournaments.report.models import Comparison, Design, MethodComparison, Report, Verdict

_COMPARED: Final = ("compared", ">Δ", ">win/tie/loss", ">pairs", ">missing", ">p", ">Holm p", ">e", "verdict")
_ERT: Final = "ERT: evaluations of all runs, each until its target or its end, ÷ successes"
_AREA: Final = "area: mean over the budgets of a run's best score so far"
_MEASURED: Final = {
    Metric.BEST_SCORE: ((">best@1",), "best@1: expected best score of one run"),
    Metric.AREA: ((">area",), _AREA),
}
"""Columns of the short standings with their explanation, where they are not pass@1 and ERT."""


def sections(report: Report) -> tuple[Section, ...]:
    all_tables = (
        _design(report.design),
        _problems(report.design),
        _standings(report),
        methods(report),
        training_runs(report),
        _comparisons(report),
        _nulls(report),
        _sets(report),
        quality_tables.draws(report),
        quality_tables.noisy(report),
        _matrix(report),
        _only(report),
        _reached(report),
        *quality_tables.laws(report),
        _pairwise(report),
        _strengths(report),
        quality_tables.qualities(report),
        quality_tables.health(report),
        _costs(report),
        _executions(report),
        _missing(report),
    )
    return tuple(section for section in all_tables if section.rows or section.note)


def short_sections(report: Report) -> tuple[Section, ...]:
    """Return who is ahead: methods, standings and differences with the columns that most readers need."""
    standings, comparisons = report.standings.standings, report.standings.comparisons
    stops = report.design.declared.stopping is StoppingRule.E_PROCESS
    evidence = "e: betting e-process" if stops else "p: sign-flip test, Holm over all comparisons"
    differences = _narrow(
        _comparisons(report),
        f"Δ: mean paired difference of {report.standings.metric} over problems; {evidence}." + withheld(comparisons),
        ("compared", ">Δ", ">win/tie/loss", ">e" if stops else ">Holm p", "verdict"),
    )
    verdicts = tuple((*row[:-1], c.verdict.value) for row, c in zip(differences.rows, comparisons, strict=True))
    metric = report.design.declared.metric
    measured, told = _MEASURED.get(metric, ((">pass@1", ">ERT"), f"pass@1: probability that a run does; {_ERT}"))
    tables = (
        _narrow(
            methods(report),
            "The training run is the unit.",
            ("methods", "search", "training runs", ">Δ", ">win/tie/loss", ">Holm p", "verdict"),
        ),
        _narrow(
            _standings(report),
            f"unlocked: problems on which a run reached the target; {told}; brackets: 95 % intervals over problems."
            + withheld(
                each for s in standings for each in (s.measure(metric), *(() if metric.of_scores else (s.ert,)))
            ),
            ("entrant", ">runs", ">missing", ">unlocked", *measured),
        ),
        replace(differences, rows=verdicts),
    )
    return tuple(section for section in tables if section.rows)


def _narrow(section: Section, note: str, columns: tuple[str, ...]) -> Section:
    at = [section.columns.index(name) for name in columns]
    return replace(section, note=note, columns=columns, rows=tuple(tuple(row[i] for i in at) for row in section.rows))


def verdict(compared: Comparison | MethodComparison) -> str:
    subject = compared.subject.value if isinstance(compared, Comparison) else "method"
    if compared.verdict in (Verdict.BETTER, Verdict.WORSE):
        ahead = f"{subject.capitalize()} {compared.a} is {compared.verdict.value} than {subject} {compared.b}"
        return f"{ahead} ({compared.note})"
    a, b = (compared.a, compared.b) if subject != "method" else (f"Method {compared.a}", f"method {compared.b}")
    return f"{a} against {b}: {compared.verdict.value} ({compared.note})"


def _design(design: Design) -> Section:
    declared = design.declared
    tokens = "" if declared.budget.tokens is None else f" and {declared.budget.tokens:,} tokens"
    tokens += "" if declared.budget.dollars is None else f" and ${declared.budget.dollars:,.2f}"
    rule = "fixed: tests when every planned run has ended, not before"
    if declared.stopping is StoppingRule.E_PROCESS:
        rule = "e-process: ends when every comparison is decided; valid at any time"
    counts = (design.planned, design.ended, design.missing, design.pending)
    runs = "{:,} planned, {:,} completed, {:,} missing, {:,} pending".format(*counts)
    rows = [
        ("declaration", f"sha256 {design.digest}"),
        ("budget of each run", f"{declared.budget.evaluations:,} evaluations{tokens}"),
        ("metric", f"{declared.metric.value}, target {declared.target or 'unlock target of each problem'}"),
        ("stopping rule", f"{rule}; α = {declared.alpha:g}"),
        ("seeds", ", ".join(map(str, design.seeds))),
        ("runs", runs),
    ]
    rows += [("power, methods", each) for each in methods_power(declared)]
    if design.decided_after is not None:
        rows.append(("decided", f"after {design.decided_after} problems; later ones are excluded"))
    for amendment in design.amendments:
        more = amendment.extension
        added = f"{len(more.problems)} problems, seeds {', '.join(map(str, more.seeds)) or 'none'}"
        rows.append(("amendment", f"{added}, after {amendment.ended_runs:,} runs had ended: {more.reason}"))
    rows += [(f"entrant {entrant.name}", entrant_text(entrant, declared.baseline)) for entrant in declared.entrants]
    for policy in design.policies:
        checkpoint = f", checkpoint {policy.checkpoint_digest}" if policy.checkpoint_digest else ""
        trained = f", trained by {policy.training_method}" if policy.training_method else ""
        rows.append((f"policy {policy.name}", f"sha256 {policy.digest}{checkpoint}{trained}"))
    return Section("design", "Design, declared before the first run", "", ("field", "value"), tuple(rows))


def _problems(design: Design) -> Section:
    rows = tuple(
        (
            p.name,
            p.target,
            *(f"sha256 {digest[:16]}" for digest in (p.digest, p.evaluator_digest)),
            mark_of(attested=p.attested, forgeable=p.forgeable),
        )
        for p in design.problems
    )
    return Section("problems", "Problems", "", ("problem", "target", "definition", "evaluator", "mark"), rows)


def entrant_text(entrant: Entrant, baseline: str) -> str:
    proposer, mutator = entrant.role_labels()
    policies = proposer + (f", mutator {mutator}" if mutator else "")
    choice = f", chosen by {entrant.choice.value}" if entrant.policies or entrant.mutators else ""
    against = "baseline" if entrant.name == baseline else f"against {entrant.against or baseline}"
    if entrant.duplicate_of is not None:
        against = f"duplicate of {entrant.duplicate_of}"
    how = " ".join([entrant.searched_by, *(f"{key}={value}" for key, value in entrant.search_options.items())])
    trained = "" if entrant.method is None else f"; method {entrant.method}, training seed {entrant.training_seed}"
    return f"{policies}{choice}{trained}; {how}; {entrant.batch} answers per batch; {against}"


def _standings(report: Report) -> Section:
    k, metric = report.design.k, report.design.declared.metric
    measures = {"pass@1": "pass_1", "best@1": "best_1"}
    measures |= {f"pass@{k}": "pass_k", f"best@{k}": "best_k"} if k > 1 else {}
    measures |= {"area": "area"} if metric is Metric.AREA else {}
    measures |= {"ERT": "ert", "ERT tokens": "ert_tokens"}
    note = (
        "A sample is a run. pass@k: probability that one of k runs reaches the target; best@k: their expected best"
        f" score; {f'{_AREA}; ' if 'area' in measures else ''}{_ERT}. n counts problems;"
        " brackets are 95 % percentile bootstrap intervals over problems. The tables below test the differences."
    )
    standings = sorted(report.standings.standings, key=lambda each: -(each.measure(metric).value or 0.0))
    note += withheld(standings)
    rows = tuple(
        (
            s.entrant, f"{s.ended:,}", f"{s.missing:,}", f"{s.unlocked} of {s.pass_1.problems}",
            *(estimate(getattr(s, field)) for field in measures.values()),
        )
        for s in standings
    )  # fmt: skip
    columns = ("entrant", ">runs", ">missing", ">unlocked", *(f">{name}" for name in measures))
    return Section("standings", "Standings", note, columns, rows)


def _comparisons(report: Report) -> Section:
    metric, stops = report.standings.metric, report.design.declared.stopping is StoppingRule.E_PROCESS
    decides = "decides at its threshold" if stops else "does not decide under this stopping rule"
    note = (
        f"Δ: mean paired difference of {metric} over problems, with an interval as in the standings; p: paired"
        f" sign-flip test, two-sided, Holm over all comparisons; e: betting e-process, which {decides} and is valid at"
        " any time. Pairs with a failed run are excluded."
    ) + withheld(report.standings.comparisons)
    rows = tuple((*_compared(c), f"{c.verdict.value}: {c.note}") for c in report.standings.comparisons)
    return Section("comparisons", "Differences", note, _COMPARED, rows)


def _nulls(report: Report) -> Section:
    note = (
        "Entrants that repeat another one with other seeds. Each is tested for itself, and rejected by chance with"
        f" probability {report.design.declared.alpha:g} at most."
    )
    rows = tuple((*_compared(c), f"{null_verdict(c)}: {c.note}") for c in report.standings.nulls)
    return Section("nulls", "Planted nulls", note if rows else "", _COMPARED, rows)


def _compared(c: Comparison) -> tuple[str, ...]:
    return (
        f"{c.a} − {c.b}", estimate(c.difference, "+.3g"), f"{c.wins} / {c.ties} / {c.losses}", f"{c.pairs:,}",
        f"{c.missing_pairs:,}", p_value(c.p_value, exact=c.exact), p_value(c.holm),
        "–" if c.e_value is None else f"{c.e_value:.3g} of {c.e_threshold:.3g} n={c.e_problems}",
    )  # fmt: skip


def _sets(report: Report) -> Section:
    rows = tuple(
        (f"{c.a} − {c.b}", str(c.both), str(len(c.only_a)), str(len(c.only_b)), str(c.neither), p_value(c.mcnemar))
        for c in report.standings.comparisons
    )
    note = (
        "A description, which decides nothing: problems that at least one run unlocked, on the pairs above. p: exact"
        " McNemar test of these sets, two-sided, unadjusted."
    )
    return Section("sets", "Unlock sets", note, ("compared", ">both", ">only A", ">only B", ">neither", ">p"), rows)


def _matrix(report: Report) -> Section:
    rows = tuple(
        (row.problem, *(f"{c} of {n}" for c, n in zip(row.successes, row.runs, strict=True)))
        for row in report.matrix.rows
    )
    columns = ("problem", *(f">{name}" for name in report.matrix.entrants))
    return Section("matrix", "Unlock matrix: runs that reached the target, of n", "", columns, rows)


def _only(report: Report) -> Section:
    rows = tuple(
        (entrant, other, ", ".join(problems))
        for c in report.standings.comparisons
        for entrant, other, problems in ((c.a, c.b, c.only_a), (c.b, c.a, c.only_b))
        if problems
    )
    return Section("only", "Unlocked by one of two", "", ("unlocked by", "not by", "problems"), rows)


def _reached(report: Report) -> Section:
    rows = tuple(
        (
            curve.entrant, curve.unit, f"{curve.share[-1] if curve.share else 0:.3g}", f"{curve.pairs:,}",
            f"{curve.censored:,}", "–" if curve.sound_until is None else f"{curve.sound_until:,.0f}",
        )
        for curve in report.reached
    )  # fmt: skip
    note = (
        "Share of (problem, seed) pairs that reached the target, by cost. Pairs that ended earlier are censored: beyond"
        " the first such end a curve is a lower bound, drawn dotted. The share at the end is a solve rate, whose"
        " interval is that of pass@1; not tested."
    )
    columns = ("entrant", "unit", ">share at the end", ">n pairs", ">censored", ">exact until")
    return Section("reached", "Targets reached by evaluations and tokens", note, columns, rows)


def _pairwise(report: Report) -> Section:
    rows = tuple((pair.a, pair.b, estimate(pair.chance)) for pair in report.pairwise)
    note = "Probability that a run of A reaches the target before one of B, in evaluations; ties halved; not tested."
    note += withheld(report.pairwise)
    return Section("pairwise", "P(A > B)", note, ("A", "B", ">chance"), rows)


def _strengths(report: Report) -> Section:
    rows = tuple((s.entrant, f"{shown(s.strength, '+.3g')}{ends(s.low, s.high, '+.3g')}") for s in report.strengths)
    n = sum(any(row.runs) for row in report.matrix.rows)
    note = f"Bradley–Terry with ties, log odds, mean 0; 95 % intervals clustered by problem, n={n}; not tested."
    note += withheld(report.strengths)
    return Section("strengths", "Strengths", note if rows else "", ("entrant", ">strength"), rows)


def _costs(report: Report) -> Section:
    priced = any(c.dollars for c in report.costs)
    rows = tuple(
        (c.entrant, f"{c.runs:,}", f"{c.evaluations:,}", f"{c.tokens:,}", *((_dollars(c.dollars),) if priced else ()),
         f"{c.evaluated:,}", f"{c.failed:,}", f"{c.duplicates:,}",
         f"{c.duplicates / c.evaluations:.1%}" if c.evaluations else "–")
        for c in report.costs
    )  # fmt: skip
    spent = (">evaluations", ">tokens", *((">dollars",) if priced else ()))
    columns = ("entrant", ">runs", *spent, ">scored", ">failed", ">duplicates", ">duplicate rate")
    return Section("costs", "Failures and cost", "", columns, rows)


def _executions(report: Report) -> Section:
    rows = tuple(
        (each.entrant, _counts(each.failures), ", ".join(each.versions) or "–",
         f"{each.processor_s:,.0f}" if each.versions else "–", _counts(each.refused), f"{each.lost:,}")
        for each in report.executions
    )  # fmt: skip
    note = "Engines: their versions, processor seconds of their own processes, and requests that were refused."
    columns = ("entrant", "failures by kind", "engine", ">processor s", "refused", ">lost runners")
    return Section("executions", "Failures by kind, and engines", note if rows else "", columns, rows)


def _counts(numbers: Mapping[str, int]) -> str:
    ordered = sorted(numbers.items(), key=lambda each: (-each[1], each[0]))
    return ", ".join(f"{kind} {number:,}" for kind, number in ordered) or "–"


def _dollars(amount: float) -> str:
    """Format an amount; completions of a small model cost less than a cent."""
    return f"${amount:,.2f}" if amount >= 0.01 or amount == 0 else f"${amount:.2g}"


def _missing(report: Report) -> Section:
    rows = tuple((run.entrant, run.problem, str(run.seed), run.reason) for run in report.missing)
    return Section("missing", "Missing runs", "", ("entrant", "problem", ">seed", "reason"), rows)
