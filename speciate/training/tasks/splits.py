"""Keeping the problems of training and of testing apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from speciate.domain.values import digest_of, text_digest
from speciate.training.tasks.task import Split

Content = dict[str, object]

_PARITY: Final = {Split.TRAIN: 1, Split.TEST: 0}


def drawn_problems(
    task: str, split: Split, count: int, start: int, draw: Callable[[np.random.Generator], Content]
) -> Iterator[tuple[int, Content]]:
    """Yield numbered contents of a split.

    A content belongs to one split by the parity of its digest, so that no problem can be in both whatever is drawn.
    Every number has a generator of its own: problem 7 is the same whether or not problem 6 was asked for.

    Args:
        task: Name of the task.
        split: Which side.
        count: How many.
        start: Number of the first.
        draw: Makes the content of a problem.
    """
    for number in range(start, start + count):
        rng = np.random.default_rng([int(text_digest(f"{task}/{split}")[:8], 16), number])
        content = draw(rng)
        while int(digest_of(content)[-1], 16) % 2 != _PARITY[split]:
            content = draw(rng)
        yield number, content
