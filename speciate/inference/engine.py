"""Continuous batching: sequences of many requests are continued together, and join and leave at every token."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Final, Literal, Self

import numpy as np
import numpy.typing as npt

from speciate.domain.errors import ConfigurationError, InvalidInputError, UnavailableError
from speciate.inference.checkpoint import Array, Checkpoint, load_checkpoint
from speciate.inference.model import Model, padded
from speciate.inference.sampling import Tokens, sample, top_logprobs, uniforms
from speciate.inference.sequences import SequenceTable

MAX_LIVE: Final = 128
"""Default number of sequences that run at once; more gain nothing."""

MEMORY_BYTES: Final = 1 << 30

_PREFILL_TOKENS: Final = 2048

Finish = Literal["stop", "length"]
Alternatives = tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class SamplingParams:
    n: int = 1
    max_tokens: int = 16
    temperature: float = 1.0
    top_p: float = 1.0
    seed: int = 0
    """Completion i uses a generator seeded with (seed, i); its tokens do not depend on other requests."""
    tops: int = 0


Rule = Callable[[int, int], bool]
"""Called with index and token of every sampled token; True ends that completion."""


@dataclass(frozen=True, slots=True)
class SampledCompletion:
    token_ids: tuple[int, ...]
    """Its tokens, including the one that ended it."""
    logprobs: tuple[float, ...]
    """Log-probability of each token, before temperature and top-p."""
    finish_reason: Finish
    """``stop`` (end-of-text, or the caller's rule) or ``length``."""
    tops: tuple[Alternatives, ...] = ()
    """For each position the likeliest tokens with their log-probabilities; empty unless requested."""


@dataclass(eq=False, slots=True)
class GenerationRequest:
    prompt: tuple[int, ...]
    params: SamplingParams
    stops: Rule | None = None
    sampled: dict[int, SampledCompletion] = field(default_factory=dict)
    cancelled: bool = False
    started: int = 0
    """Completions that have joined the batch."""

    @property
    def done(self) -> bool:
        return len(self.sampled) == self.params.n


@dataclass(slots=True)
class _RowOwner:
    request: GenerationRequest
    index: int
    tops: list[Alternatives] = field(default_factory=list)


class Engine:
    """One model with its running sequences. Not thread-safe, except for ``waiting``.

    At most ``max_live`` sequences run at once, with rows of at most ``memory_bytes``.
    """

    def __init__(self, checkpoint: Checkpoint, *, max_live: int = MAX_LIVE, memory_bytes: int = MEMORY_BYTES) -> None:
        self.checkpoint = checkpoint
        self._rows = SequenceTable(checkpoint.config)
        self._owners: list[_RowOwner] = []
        self._waiting: deque[GenerationRequest] = deque()
        self._prefilled: dict[tuple[int, ...], tuple[Array, Array]] = {}
        self._max_live, self._memory_bytes = max_live, memory_bytes
        self._ends = np.zeros(checkpoint.config.vocab_size, np.bool_)
        self._ends[list(checkpoint.eos_ids)] = True
        with np.errstate(over="ignore", invalid="ignore"):  # checked below
            self._model = Model(checkpoint)
            logits, _ = self._model.prefill(np.zeros((1, 1), np.intp))
        if not np.isfinite(logits).all():
            raise ConfigurationError(
                f"the model in {checkpoint.folder} computes NaN or infinity.",
                remedy="The training that wrote it has diverged: use an earlier checkpoint.",
            )

    @classmethod
    def load(cls, folder: Path, *, max_live: int = MAX_LIVE, memory_bytes: int = MEMORY_BYTES) -> Self:
        try:
            return cls(load_checkpoint(folder), max_live=max_live, memory_bytes=memory_bytes)
        except MemoryError:
            raise ConfigurationError(
                f"the model in {folder} does not fit into memory.", remedy="Serve fewer or smaller models."
            ) from None

    @property
    def waiting(self) -> int:
        """Number of sequences that have not started; any thread may read it."""
        # An atomic copy: iterating over a deque raises if another thread changes it.
        return sum(request.params.n - request.started for request in self._waiting.copy())

    def run(self, requests: Sequence[GenerationRequest]) -> None:
        """Complete requests in the calling thread."""
        for request in requests:
            self.check(request)
        for request in requests:
            self.add(request)
        while not all(request.done for request in requests):
            self.step()

    def check(self, request: GenerationRequest) -> None:
        """Refuse a request that cannot be completed."""
        config, params = self.checkpoint.config, request.params
        longest, prompt = config.max_position_embeddings, len(request.prompt)
        if not request.prompt:
            raise InvalidInputError("the prompt has no tokens: expected at least one.")
        if not all(0 <= token < config.vocab_size for token in request.prompt):
            raise InvalidInputError(f"the prompt holds a token id that is not below {config.vocab_size}.")
        if prompt + params.max_tokens > longest:
            raise InvalidInputError(
                f"the prompt has {prompt} tokens and max_tokens is {params.max_tokens}, {prompt + params.max_tokens}"
                f" together: this model reads {longest} tokens at most."
            )
        need = SequenceTable(config).bytes_with(1, prompt + params.max_tokens, params.max_tokens)
        if need > self._memory_bytes:
            raise InvalidInputError(
                f"a sequence of {prompt + params.max_tokens} tokens takes {need} bytes: this server has"
                f" {self._memory_bytes} for one model."
            )

    def add(self, request: GenerationRequest) -> None:
        """Queue a checked request."""
        self._waiting.append(request)

    def step(self) -> list[GenerationRequest]:
        """Sample one token for every running sequence, and return the requests that are complete.

        Out of memory, all requests are dropped, and ``UnavailableError`` is raised.
        """
        try:
            # A closed gate and a masked position overflow to infinity, as intended.
            with np.errstate(over="ignore"):
                return self._step()
        except MemoryError:
            self.drop_all()
            raise UnavailableError(
                f"out of memory for {self.checkpoint.folder.name}.", remedy="Request fewer or shorter completions."
            ) from None

    def drop_all(self) -> None:
        self._waiting.clear()
        self._prefilled.clear()
        self._owners.clear()
        self._rows = SequenceTable(self.checkpoint.config)

    def _step(self) -> list[GenerationRequest]:
        self._forget_cancelled()
        self._admit()
        rows, live = self._rows, self._rows.live
        if not live:
            return []
        state, index = rows.state[:live], np.arange(live)
        count = state["count"]
        logits = rows.logits[:live]
        tokens, logprobs = sample(logits, state["temperature"], state["top_p"], state["uniforms"][index, count])
        self._note_tops(logits, state["tops"])
        state["tokens"][index, count] = tokens
        state["logprobs"][index, count] = logprobs
        state["count"] += 1
        stopped = self._ends[tokens]
        for row, owner in enumerate(self._owners):
            stops = owner.request.stops
            if stops is not None and not stopped[row] and stops(owner.index, int(tokens[row])):
                stopped[row] = True
        complete = self._finish(stopped)
        live = rows.live
        if live:
            state = rows.state[:live]
            last = state["tokens"][np.arange(live), state["count"] - 1]
            rows.logits[:live] = self._model.decode(last.astype(np.intp), state["position"], rows.cache)
            state["position"] += 1
        return complete

    def _note_tops(self, logits: Array, tops: Tokens) -> None:
        asking = np.flatnonzero(tops)
        if not len(asking):
            return
        ids, logprobs = top_logprobs(logits[asking], int(tops.max()))
        for row, tokens, values in zip(asking.tolist(), ids.tolist(), logprobs.tolist(), strict=True):
            self._owners[row].tops.append(tuple(zip(tokens, values, strict=True))[: tops[row]])

    def _finish(self, stopped: npt.NDArray[np.bool_]) -> list[GenerationRequest]:
        """Remove finished sequences, the last row first, so that the row that fills a gap is running."""
        rows, complete = self._rows, []
        state = rows.state[: rows.live]
        for row in np.flatnonzero(stopped | (state["count"] >= state["limit"]))[::-1].tolist():
            owner, record = self._owners[row], rows.state[row]
            count = record["count"]
            owner.request.sampled[owner.index] = SampledCompletion(
                tuple(record["tokens"][:count].tolist()),
                tuple(record["logprobs"][:count].tolist()),
                "stop" if stopped[row] else "length",
                tuple(owner.tops),
            )
            if owner.request.done:
                complete.append(owner.request)
            self._drop(row)
        return complete

    def _drop(self, row: int) -> None:
        self._rows.drop(row)
        last = self._owners.pop()
        if row < len(self._owners):
            self._owners[row] = last

    def _forget_cancelled(self) -> None:
        for row in reversed(range(len(self._owners))):
            if self._owners[row].request.cancelled:
                # Only here do the logits move: after sampling they are outdated anyway.
                self._rows.logits[row] = self._rows.logits[self._rows.live - 1]
                self._drop(row)
        if any(request.cancelled for request in self._waiting):
            self._waiting = deque(request for request in self._waiting if not request.cancelled)

    def _admit(self) -> None:
        """Start waiting sequences, in the order of their requests, while rows and memory suffice."""
        if self._waiting and not self._rows.live:
            # In rows as long as those of earlier requests only few sequences might run at once.
            self._rows = SequenceTable(self.checkpoint.config)
        joining: list[_RowOwner] = []
        while self._waiting:
            request = self._waiting[0]
            count = self._room(request, len(joining))
            if not count:
                break
            joining += [_RowOwner(request, request.started + i) for i in range(count)]
            request.started += count
            if request.started == request.params.n:
                self._waiting.popleft()
        if joining:
            self._join(joining)

    def _room(self, request: GenerationRequest, joining: int) -> int:
        """Reserve rows for as many sequences of a request as possible; return their number."""
        live, params = self._rows.live + joining, request.params
        count = min(params.n - request.started, self._max_live - live)
        length = len(request.prompt) + params.max_tokens
        while count and self._rows.bytes_with(live + count, length, params.max_tokens) > self._memory_bytes:
            count //= 2
        if count:
            self._rows.reserve(live + count, length, params.max_tokens)
        return count

    def _join(self, owners: list[_RowOwner]) -> None:
        """Assign rows to sequences; those of one prompt share its prefill."""
        self._prefill({owner.request.prompt for owner in owners})
        rows = self._rows
        for owner in owners:
            request, row, params = owner.request, rows.live, owner.request.params
            logits, keys_values = self._prefilled[request.prompt]
            rows.cache[:, row, :, :, : len(request.prompt)] = keys_values
            rows.logits[row] = logits
            state = rows.state[row]
            state["position"], state["count"], state["limit"] = len(request.prompt), 0, params.max_tokens
            state["temperature"], state["top_p"], state["tops"] = params.temperature, params.top_p, params.tops
            state["uniforms"][: params.max_tokens] = uniforms(params.seed, owner.index, params.max_tokens)
            rows.live += 1
            self._owners.append(owner)
        # Only the first waiting request may have started.
        started = {request.prompt for request in self._waiting if request.started}
        self._prefilled = {prompt: prefilled for prompt, prefilled in self._prefilled.items() if prompt in started}

    def _prefill(self, prompts: set[tuple[int, ...]]) -> None:
        missing = sorted(prompts - self._prefilled.keys(), key=lambda prompt: (len(prompt), prompt))
        for length, group in groupby(missing, key=len):
            same, at_once = list(group), max(1, _PREFILL_TOKENS // padded(length))
            for begin in range(0, len(same), at_once):
                part = same[begin : begin + at_once]
                logits, keys_values = self._model.prefill(np.array(part))
                self._prefilled |= {prompt: (logits[i], keys_values[:, i]) for i, prompt in enumerate(part)}
