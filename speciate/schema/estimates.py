"""Estimates of what a run will spend, and what they come from."""

from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID

from speciate.schema.base import Record


class Range(Record):
    low: float
    expected: float
    high: float


class EstimateSource(Record):
    """Earlier runs that tell what the answers of a policy cost."""

    policy: str
    """The policy, as ``slug@version``."""
    same: tuple[str, ...] = ()
    """What these runs share with the new one: ``policy``, ``problem`` and ``strategy``, or some of them."""
    runs: tuple[UUID, ...] = ()
    """The runs, newest first; empty if no run tells, and documented defaults are assumed."""


class RunEstimate(Record):
    """What a run will spend if it spends its whole budget."""

    evaluations: Range
    failed: Range | None = None
    """Candidates without rewards; None if no earlier run tells."""
    calls: Range
    """Requests to policies."""
    completions: Range
    prompt_tokens: Range
    completion_tokens: Range
    tokens: Range
    dollars: Range | None = None
    """US dollars; None if no policy has a price."""
    seconds: Range | None = None
    """Running seconds; None if no run of the policy on the problem with as many lanes tells."""
    first_prompt_bytes: int
    """Length of the first prompt that the run will send, of its longest if several policies get one."""
    sources: tuple[EstimateSource, ...]

    def ranges(self) -> Iterator[tuple[str, Range]]:
        """Yield the known amounts by name; a policy without tokens has none."""
        for name in type(self).model_fields:
            if isinstance(value := getattr(self, name), Range) and value.high > 0:
                yield name.replace("_", " "), value

    @property
    def basis(self) -> str:
        """The sources in words."""
        texts = []
        for source in self.sources:
            runs = ", ".join(f"…{str(run)[-8:]}" for run in source.runs)
            told = f"earlier runs of the same {' and '.join(source.same)} ({runs})" if runs else "documented defaults"
            texts.append(f"{source.policy}: {told}")
        return "; ".join(texts)


@dataclass(frozen=True, slots=True)
class ObservedRun:
    """What the answers of a policy cost in an earlier run."""

    run: UUID
    alike: int
    """Sum of 4 for the same policy version, 2 for a version of the same problem, and 1 for the same strategy."""
    evaluations: int
    failed: int
    seconds: float
    lanes: int
    completions: int
    calls: int
    """Requests of which prompt tokens are known."""
    prompt_tokens: int
    completion_tokens: int
    first_bytes: int
    """Length of the first prompt."""
