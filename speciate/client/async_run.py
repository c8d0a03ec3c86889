"""A run as an object for asyncio; the same as ``speciate.client.run``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any
from uuid import UUID

from speciate.client import endpoints, notebook
from speciate.client.async_transport import AsyncTransport
from speciate.client.course import Course
from speciate.client.requests import relabelling
from speciate.domain.candidate import CandidateStatus
from speciate.domain.event import EventKind
from speciate.domain.policy import PolicyRole
from speciate.domain.run import RunState
from speciate.ports.records.candidates import (
    AdviceRecord,
    CandidateDetail,
    CandidateRecord,
    EliteRecord,
    ExportedCandidate,
    RolloutRecord,
)
from speciate.ports.records.problems import ProblemVersion
from speciate.ports.records.runs import EventRecord, RunRecord
from speciate.ports.records.unlocks import UnlockRecord


class AsyncRunHandle:
    """A run of the service. Every method may raise ``speciate.domain.errors.SpeciateError``.

    Attributes:
        record: The run as it was when it was last read; ``refresh`` reads it again.
    """

    def __init__(self, transport: AsyncTransport, record: RunRecord) -> None:
        self._transport = transport
        self.record = record

    @property
    def id(self) -> UUID:
        """Its id."""
        return self.record.id

    @property
    def state(self) -> RunState:
        """Its state when it was last read."""
        return self.record.state

    async def refresh(self) -> RunRecord:
        """Read the run again."""
        return self._keep(await self._transport.send(endpoints.run(self.id)))

    async def pause(self, reason: str | None = None) -> RunRecord:
        """Stop handing out its work; what is in flight is still booked."""
        return self._keep(await self._transport.send(endpoints.steer(self.id, "pause", reason)))

    async def resume(self) -> RunRecord:
        """Hand out its work again."""
        return self._keep(await self._transport.send(endpoints.steer(self.id, "resume")))

    async def cancel(self, reason: str | None = None) -> RunRecord:
        """End it; what was committed stays."""
        return self._keep(await self._transport.send(endpoints.steer(self.id, "cancel", reason)))

    async def label(
        self,
        *,
        name: str | None = None,
        tags: Iterable[str] | None = None,
        add_tags: Iterable[str] = (),
        remove_tags: Iterable[str] = (),
        note: str | None = None,
    ) -> RunRecord:
        """Change what it is called, at any time; what is not named stays, and an empty text or list takes it away."""
        change = relabelling(name, tags, add_tags, remove_tags, note)
        return self._keep(await self._transport.send(endpoints.label(self.id, change)))

    def watch(self, *, after: int = 0) -> AsyncIterator[EventRecord]:
        """Yield its events as they happen, each once and in order, until it has ended.

        A connection that breaks is made again and continues where it stopped.

        Args:
            after: Sequence number after which to begin; 0 begins with the first event.
        """
        return self._transport.events(Course(self.id, after=after))

    async def wait(self) -> RunRecord:
        """Wait until the run has ended or is paused, and return it as it is then."""
        record = await self.refresh()
        if record.state in {RunState.CREATED, RunState.RUNNING}:
            async for event in self.watch(after=record.last_event):
                # One that is over already, as between two slices of a campaign, ends nothing.
                if event.kind == EventKind.RUN_PAUSED and (await self.refresh()).state is RunState.PAUSED:
                    break
        return await self.refresh()

    async def problem(self) -> ProblemVersion:
        """Return the problem version that it is about, as it was submitted."""
        return await self._transport.send(endpoints.problem(self.record.problem_id))

    def candidates(
        self,
        *,
        status: CandidateStatus | str | None = None,
        island: int | None = None,
        role: PolicyRole | str | None = None,
        policy: str | UUID | None = None,
        target: str | None = None,
        rule: str | None = None,
        elite: bool = False,
        sort: str | None = None,
    ) -> AsyncIterator[CandidateRecord]:
        """Yield its candidates without their texts, newest first.

        Args:
            status: Only those with this outcome.
            island: Only those of an island.
            role: Only those for which a policy was asked to do this.
            policy: Only those that a policy version was asked for.
            target: Only those whose rewards meet a target; ``any``: one of the targets.
            rule: Only those whose rewards meet a rule as targets have, such as ``"gain >= 5 and cost < 9"``.
            elite: Only those that hold a cell of the archive now.
            sort: Name of a reward, or ``scalar``, of which the best come first.
        """
        call = endpoints.candidates(
            self.id,
            status=status,
            island=island,
            role=role,
            policy=policy,
            target=target,
            rule=rule,
            elite=elite or None,
            sort=sort,
        )
        return self._transport.items(call)

    async def candidate(self, number: int) -> CandidateDetail:
        """Return the candidate with a number, with its texts."""
        return await self._transport.send(endpoints.candidate_of(self.id, number))

    async def front(self) -> tuple[EliteRecord, ...]:
        """Return the elites that no other dominates, best first by the first objective."""
        return await self._transport.send(endpoints.front(self.id))

    async def archive(self) -> tuple[EliteRecord, ...]:
        """Return the holder of every cell."""
        return await self._transport.send(endpoints.archive(self.id))

    def rollouts(self) -> AsyncIterator[RolloutRecord]:
        """Yield its completions without their texts, newest first."""
        return self._transport.items(endpoints.rollouts(self.id))

    def guidance(self) -> AsyncIterator[AdviceRecord]:
        """Yield the advice that it wrote for its own prompts, newest first, with what it led to."""
        return self._transport.items(endpoints.guidance(self.id))

    def unlocks(self) -> AsyncIterator[UnlockRecord]:
        """Yield the targets that it reached."""
        return self._transport.items(endpoints.run_unlocks(self.id))

    def export(self) -> AsyncIterator[ExportedCandidate]:
        """Yield every candidate with its texts, in order of number."""
        return self._transport.lines(endpoints.export(self.id))

    async def to_pandas(self) -> Any:
        """Return its candidates as a ``pandas.DataFrame`` with one row each and one column per reward, by number."""
        return notebook.frame([candidate async for candidate in self.candidates()])

    def _keep(self, record: RunRecord) -> RunRecord:
        self.record = record
        return record

    def __repr__(self) -> str:
        return f"<run {self.id} {self.state.value}: {notebook.progress(self.record)}>"

    def _repr_html_(self) -> str:
        return notebook.html(self.record)
