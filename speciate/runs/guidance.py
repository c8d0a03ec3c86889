"""Guidance: draw advice for prompts, request new advice, and count the success of each piece."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Final

import numpy as np

from speciate.domain.candidate import Individual
from speciate.domain.event import EventKind
from speciate.domain.guidance import NO_ADVICE, Advice, Gain, Guidance, draw
from speciate.domain.policy import Policy, PolicyRole
from speciate.domain.rollout import Prompt, Rollout
from speciate.domain.values import text_digest
from speciate.ports.work import Lease, RunContext, WorkStore
from speciate.prompts.guidance import guidance_prompt, read_advice
from speciate.runs.progress import RunChange, RunProgress
from speciate.search.strategy import PopulationView

_LATEST: Final = "latest"
_HINTED: Final = "hinted"
_LOOKED_AT: Final = 64
_SHOWN: Final = 3


class Adviser:
    """Adds advice to the prompts of one batch. Its state is read from the run, so any worker can use it."""

    def __init__(
        self, context: RunContext, work: WorkStore, view: PopulationView, islands: int, *, hinted: bool = False
    ) -> None:
        """Read the advice in use. Reads nothing for a run without guidance and hints."""
        self._context, self._work, self._view, self._islands = context, work, view, islands
        self.pieces = work.advice(context.run_id) if hinted or context.spec.guidance is not None else ()

    def pick(self, rng: np.random.Generator) -> Advice | None:
        return draw(self.pieces, rng) if self.pieces else None

    def prompt(self, parent: Advice, policy: Policy, latest: int) -> Prompt:
        """Return the prompt that requests a new piece of advice, to improve on ``parent``.

        ``latest`` is the highest candidate number assigned so far.
        """
        members = self._work.members(self._context.run_id, range(max(1, latest - _LOOKED_AT + 1), latest + 1))
        newest = [members[number] for number in sorted(members, reverse=True)]
        tables = [self._view.elites(island) for island in range(self._islands)]
        best = {number for table in tables for number in table.numbers.tolist()}
        improved: list[Individual] = [member for member in newest if member.number in best][:_SHOWN]
        failed = [member for member in newest if member.failure is not None][:_SHOWN]
        return guidance_prompt(self._context.problem, policy, self.pieces, parent, improved, failed)

    def read(self, batch: int, rollouts: Sequence[Rollout]) -> Advice | None:
        """Return the new piece of advice of a batch, or None if it wrote none or repeated an existing one."""
        for rollout in rollouts:
            advises = rollout.role is PolicyRole.ADVISE and rollout.reason is None
            text = read_advice(rollout.completion.text) if advises else ""
            if text and text not in {piece.text for piece in self.pieces}:
                return Advice(batch, text, rollout.advice or NO_ADVICE)
        return None


def due(guidance: Guidance | None, progress: RunProgress) -> dict[str, int]:
    """Return the payload entries about advice for the next ``generate`` unit.

    One requests a new piece, if that is due. Another says that a run without guidance has hints.
    """
    if guidance is None:
        return {_HINTED: 1} if progress.advice else {}
    return {} if progress.batches == 0 or progress.batches % guidance.every else {_LATEST: progress.numbers}


def has_hints(lease: Lease) -> bool:
    """Return True if users gave hints to the run of a ``generate`` unit, which has no guidance."""
    return _HINTED in lease.payload


def latest_of(lease: Lease) -> int | None:
    """Return the highest candidate number if this unit requests a new piece, else None."""
    latest = lease.payload.get(_LATEST)
    return None if latest is None else int(latest)


def read_gains(stored: Mapping[str, Mapping[str, Any]]) -> dict[int, Gain]:
    """Return the statistics of the pieces in use, ordered by number. No advice (number 0) is always included."""
    gains = {int(number): Gain(**counts) for number, counts in stored.items()}
    return dict(sorted({NO_ADVICE: Gain(), **gains}.items()))


def count_gain(change: RunChange, advice: int | None, *, won: bool) -> None:
    """Count an evaluated answer for the advice in its prompt, even if that piece was dropped meanwhile."""
    if advice is None:
        return
    if (gain := read_gains(change.progress.advice).get(advice)) is not None:
        change.progress.advice[str(advice)] = asdict(gain.plus(won=won))
    else:
        change.retired[advice] = change.retired.get(advice, Gain()).plus(won=won)


def adopt(change: RunChange, most: int, advice: Advice, author: str | None = None) -> None:
    """Add a new piece, and drop the least successful one if there are more than ``most``.

    ``author`` is the name of the token whose holder gave it as a hint; None if a policy wrote it.
    """
    gains = {number: gain.aged() for number, gain in read_gains(change.progress.advice).items()}
    dropped = None
    if len(gains) > most:
        dropped = min(gains.keys() - {NO_ADVICE}, key=lambda number: (gains[number].mean, number))
        change.retired[dropped] = gains.pop(dropped)
    gains[advice.number] = advice.gain
    change.progress.advice = {str(number): asdict(gain) for number, gain in gains.items()}
    digest = text_digest(advice.text)[:16]
    by = {} if author is None else {"author": author}
    change.event(
        EventKind.ADVICE_WRITTEN, advice=advice.number, parent=advice.parent, text=digest, dropped=dropped, **by
    )


def with_gains(texts: Mapping[int, Advice], stored: Mapping[str, Mapping[str, Any]]) -> tuple[Advice, ...]:
    """Return the pieces in use, ordered by number, with their texts and statistics."""
    return tuple(replace(texts.get(number, Advice()), gain=gain) for number, gain in read_gains(stored).items())
