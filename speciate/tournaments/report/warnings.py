"""What makes the results of a tournament doubtful, in sentences."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from speciate.domain.tournament import Schedule
from speciate.tournaments.report.measures import PolicyHealth
from speciate.tournaments.report.results import Results

_MOST_UNREADABLE: Final = 0.9
_REASON_CHARACTERS: Final = 300


def warnings(schedule: Schedule, results: Results, health: Sequence[PolicyHealth]) -> Iterator[str]:
    if results.reasons:
        ((reason, _),) = Counter(results.reasons.values()).most_common(1)
        without = f"{len(results.reasons):,} of {results.state.size:,} runs have no result"
        yield f"{without}, most often: {reason[:_REASON_CHARACTERS].rstrip('.')}."
    for each in health:
        if (share := each.unreadable.value or 0.0) > _MOST_UNREADABLE:
            yield f"{share:.0%} of the answers of {each.policy} to {each.entrant} were refused or could not be read."
    if not schedule.declared.metric.of_scores:
        yield from _useless_targets(results)
    for group in schedule.declared.method_groups:
        columns = [schedule.declared.entrants.index(entrant) for entrant in group.runs]
        if len({_fingerprint(results, i) for i in columns}) < len(columns) and results.ended[..., columns].all():
            yield (
                f"Training runs of method {group.method} have identical results in all their runs: they are no"
                " independent training runs if their policies serve the same weights."
            )


def _useless_targets(results: Results) -> Iterator[str]:
    reached, ended = results.reached & results.ended, results.ended
    at_once = (reached & (results.evaluations <= 1)).sum(axis=(1, 2)) == ended.sum(axis=(1, 2))
    if count := int((at_once & ended.any(axis=(1, 2))).sum()):
        yield (
            f"{count} of {len(at_once)} problems are met by the first program of every run, such as the seed program:"
            " they decide nothing."
        )
    if results.finished and ended.any() and not reached.any():
        yield "No run reached its target: metric best_score, a larger budget or a nearer target can tell more."


def _fingerprint(results: Results, entrant: int) -> bytes:
    numbers = (results.score, results.evaluations, results.spent_tokens, results.duplicates, results.diversity_all)
    return np.stack([each[..., entrant] for each in numbers]).tobytes()
