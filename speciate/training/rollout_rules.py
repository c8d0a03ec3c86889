"""Rollouts that are being written, and rules that end them or write into them."""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile, zip_longest

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from speciate.prompts.compact import between_answers, ended_answers


@dataclass(frozen=True, slots=True)
class Insertion:
    """What a rule writes into a rollout: it drops the last tokens, and the rollout continues after others."""

    dropped: int
    tokens: tuple[int, ...]


Rule = Callable[[int, int], bool | Insertion]
"""Called with the rollout's index and every sampled token; True ends the rollout."""


@dataclass(frozen=True)
class Rollout:
    """Tokens of a rollout, with the one that ends it."""

    ids: list[int] = field(default_factory=list)
    written: list[int] = field(default_factory=list)
    """1 for a token of the policy, 0 for one of a scaffold."""
    logprobs: list[float] = field(default_factory=list)
    """Log-probability of each token if the sampler reports them; 0 for those of a scaffold."""

    def extend(self, ids: Sequence[int], rule: Rule | None, logprobs: Sequence[float] = ()) -> bool:
        """Add sampled tokens up to where ``rule`` ends or inserts; return True if the rollout goes on after these."""
        for token, logprob in zip_longest(ids, logprobs[: len(ids)], fillvalue=0.0):
            if outcome := self.add(int(token), rule, logprob=logprob):
                return isinstance(outcome, Insertion)
        return False

    def add(self, token: int, rule: Rule | None, index: int = 0, *, logprob: float = 0.0) -> bool | Insertion:
        """Add a sampled token and what ``rule`` inserts after it; return the rule's outcome."""
        self.ids.append(token)
        self.written.append(1)
        self.logprobs.append(logprob)
        outcome = rule is not None and rule(index, token)
        if isinstance(outcome, Insertion):
            kept = len(self.ids) - outcome.dropped
            self.ids[kept:] = outcome.tokens
            self.written[kept:] = [0] * len(outcome.tokens)
            self.logprobs[kept:] = [0.0] * len(outcome.tokens)
        return outcome


class BlockRule:
    """Rule that ends a rollout with its last answer; the prompt ends with ``opening``.

    With ``limit``, the most tokens of an answer, it scaffolds: after each answer but the last it writes what stands
    between two. The policy's own tokens stay as far as they are the same, so that it can learn where an answer ends.
    """

    def __init__(
        self, tokenizer: Tokenizer, answers: int, opening: str, *, end: int = -1, limit: int | None = None
    ) -> None:
        self._tokenizer, self._opening, self._end, self._limit = tokenizer, opening, end, limit
        self._turns = answers if limit is not None else 1
        self._answers = answers // self._turns
        self._between = between_answers(opening)
        self._turn: Counter[int] = Counter()
        self._ids: defaultdict[int, list[int]] = defaultdict(list)
        self._texts: defaultdict[int, str] = defaultdict(str)
        self._streams: dict[int, DecodeStream] = {}

    @property
    def longest(self) -> int:
        """Most tokens of a rollout with a scaffold."""
        return self._turns * (self._limit or 0) + (self._turns - 1) * len(self._encoded(self._between))

    def __call__(self, index: int, token: int) -> bool | Insertion:
        self._ids[index].append(token)
        stream = self._streams.setdefault(index, DecodeStream(skip_special_tokens=True))
        self._texts[index] += stream.step(self._tokenizer, token) or ""
        ended = ended_answers(self._opening + self._texts[index], self._opening)
        complete = len(ended) >= self._answers
        cut = self._limit is not None and (token == self._end or len(self._ids[index]) >= self._limit)
        if not complete and not cut:
            return False
        self._turn[index] += 1
        if self._turn[index] == self._turns:
            return True
        end = ended[self._answers - 1][1] - len(self._opening) if complete else None
        del self._streams[index]
        return self._insertion(self._ids.pop(index), self._texts.pop(index)[:end].rstrip())

    def _insertion(self, ids: list[int], answer: str) -> Insertion:
        kept = len(ids)
        while kept and len(self._text(ids[: kept - 1])) >= len(answer):
            kept -= 1
        rest = (answer + self._between).removeprefix(self._text(ids[:kept]))
        # A token may hold the end of an answer together with further line breaks.
        written = self._encoded(rest if len(rest) <= len(self._between) else self._between.lstrip("\n"))
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(ids[kept:], written, strict=False)))
        return Insertion(len(ids) - kept - same, tuple(written[same:]))

    def _encoded(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def _text(self, ids: list[int]) -> str:
        return str(self._tokenizer.decode(ids, skip_special_tokens=True))


class ClosingRule:
    """Rule that ends a rollout with the closing token of its last answer."""

    def __init__(self, close: int, answers: int) -> None:
        self._close, self._answers = close, answers
        self._seen: Counter[int] = Counter()

    def __call__(self, index: int, token: int) -> bool:
        self._seen[index] += token == self._close
        return self._seen[index] >= self._answers
