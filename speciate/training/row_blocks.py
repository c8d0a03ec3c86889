"""Rollouts that are being written, in blocks of rows that share a prompt."""

from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from speciate.training.rollout_rules import Insertion, Rollout, Rule

WIDTH: Final = 4
"""Rows of a block. More share a prompt's keys and values among more; fewer leave fewer places empty."""


@dataclass(eq=False, slots=True)
class Row:
    """A rollout that is being written."""

    index: int
    prompt: tuple[int, ...]
    limit: int
    rule: Rule | None
    rollout: Rollout = field(default_factory=Rollout)
    pending: deque[int] = field(default_factory=deque)
    """Tokens of the rollout to read before the next is sampled."""

    def next_pending(self, count: int) -> list[int]:
        return [self.pending.popleft() for _ in range(min(count, len(self.pending)))]

    def take(self, tokens: Iterable[int], ends: Collection[int]) -> bool | tuple[int, int]:
        """Add sampled tokens; return whether they end the rollout, or where it goes on after an insertion.

        That is a token to read and its place among those that were read: the prompt's last one and the rollout's.
        """
        ids = self.rollout.ids
        for token in tokens:
            read = len(ids) + 1
            outcome = self.rollout.add(token, self.rule, self.index)
            if len(ids) >= self.limit:
                return True
            if isinstance(outcome, Insertion):
                sequence = (self.prompt[-1], *ids)
                place = min(read, read + 1 - outcome.dropped, len(ids))
                self.pending = deque(sequence[place + 1 :])
                return sequence[place], place
            if outcome or token in ends:
                return True
        return False


Block = list[Row | None]
"""``WIDTH`` places for rows of one prompt."""


def blocks_of(rows: Iterable[Row]) -> list[Block]:
    """Return the rows in blocks, those of a prompt one after another, each block beginning with a row."""
    by_prompt: defaultdict[tuple[int, ...], Block] = defaultdict(list)
    for row in rows:
        by_prompt[row.prompt].append(row)
    padded = ([*same, *[None] * (-len(same) % WIDTH)] for same in by_prompt.values())
    return [same[begin : begin + WIDTH] for same in padded for begin in range(0, len(same), WIDTH)]


def compact(blocks: Sequence[Block]) -> tuple[list[Block], dict[int, int], dict[int, int]]:
    """Return as few blocks as suffice, and for each row and each prompt that moved its new and its old place."""
    rows = [row for block in blocks for row in block]
    source = list(range(len(rows)))
    for same in _by_prompt(blocks).values():
        places = [block * WIDTH + i for block in same for i in range(WIDTH)]
        live = sum(map(len, same.values()))
        if len(same) > -(-live // WIDTH):
            gaps = [place for place in places[:live] if rows[place] is None]
            for to, place in zip(gaps, (place for place in places[live:] if rows[place] is not None), strict=True):
                rows[to], rows[place], source[to] = rows[place], None, place
    moved = [rows[begin : begin + WIDTH] for begin in range(0, len(rows), WIDTH)]
    used = [number for number, block in enumerate(moved) if any(block)]
    count = len(used)
    free = sorted({*range(count)} - {*used})
    prompts = dict(zip(free, (number for number in used if number >= count), strict=True))
    for to, number in prompts.items():
        moved[to] = moved[number]
        source[to * WIDTH : (to + 1) * WIDTH] = source[number * WIDTH : (number + 1) * WIDTH]
    return moved[:count], {i: old for i, old in enumerate(source[: count * WIDTH]) if i != old}, prompts


def _by_prompt(blocks: Sequence[Block]) -> dict[tuple[int, ...], dict[int, list[Row]]]:
    """Return the numbers of each prompt's blocks that hold rows, with the rows."""
    by_prompt: defaultdict[tuple[int, ...], dict[int, list[Row]]] = defaultdict(dict)
    for number, block in enumerate(blocks):
        if live := [row for row in block if row is not None]:
            by_prompt[live[0].prompt][number] = live
    return by_prompt
