"""A run as an object: its record, its actions and its results."""

import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final
from uuid import UUID, uuid4

from speciate import schema
from speciate.client import notebook
from speciate.client.aio.transport import AsyncRestTransport
from speciate.client.arguments import relabelling
from speciate.client.calls import get, get_list, get_page, patch, path_segment, post
from speciate.client.event_cursor import EventCursor
from speciate.domain.candidate import CandidateStatus
from speciate.domain.errors import UnavailableError
from speciate.domain.event import EventKind
from speciate.domain.policy import PolicyRole
from speciate.domain.run import RunState
from speciate.schema.base import Page
from speciate.schema.proposals import AskRecord, ProposalReceipt, ProposalRecord
from speciate.schema.runs import EventRecord, RunRecord

_LONGEST_WAIT_S: Final = 30.0


class AsyncRunHandle:
    """A run of the service. Every method may raise ``speciate.domain.errors.SpeciateError``.

    Attributes:
        record: The run as last read. ``refresh`` reads it again.
    """

    def __init__(self, transport: AsyncRestTransport, record: RunRecord) -> None:
        self._transport = transport
        self._path = f"/v1/runs/{path_segment(record.id, 'run')}"
        self.record = record

    @property
    def id(self) -> UUID:
        """Id of the run."""
        return self.record.id

    @property
    def url(self) -> str:
        """Address of the run on the dashboard."""
        return f"{self._transport.connection.url}/runs/{self.id}"

    @property
    def state(self) -> RunState:
        """State of the run as last read."""
        return self.record.state

    async def refresh(self) -> RunRecord:
        """Read the run again."""
        return self._keep(await self._transport.send(get(self._path, RunRecord)))

    async def pause(self, reason: str | None = None) -> RunRecord:
        """Pause the run. Work in flight still counts."""
        return await self._steer("pause", reason)

    async def resume(self) -> RunRecord:
        """Resume a paused run."""
        return await self._steer("resume")

    async def cancel(self, reason: str | None = None) -> RunRecord:
        """Cancel the run. Committed results stay."""
        return await self._steer("cancel", reason)

    async def label(
        self,
        *,
        name: str | None = None,
        tags: Iterable[str] | None = None,
        add_tags: Iterable[str] = (),
        remove_tags: Iterable[str] = (),
        note: str | None = None,
    ) -> RunRecord:
        """Change name, tags or note, in any state. Omitted values stay; an empty text or list clears the value."""
        change = relabelling(name, tags, add_tags, remove_tags, note).model_dump(mode="json", exclude_defaults=True)
        return self._keep(await self._transport.send(patch(self._path, RunRecord, change)))

    async def watch(self, *, after: int = 0, until_paused: bool = False) -> AsyncIterator[EventRecord]:
        """Yield the events of the run as they happen, each once and in order, until the run ends.

        Broken connections are reopened and continue after the last event.

        Args:
            after: Sequence number of the last event to skip. With 0, begin with the first event.
            until_paused: End also when the run is paused and nothing happens for some seconds.
        """
        async for event in self._transport.events(EventCursor(self.id, after=after)):
            if event is not None:
                yield event
            elif until_paused:  # a pause on a full disk has no event
                with suppress(UnavailableError):
                    if (await self.refresh()).stays_paused:
                        return

    async def wait(self) -> RunRecord:
        """Wait until the run has ended or is paused, other than for its campaign's next slice, and return it."""
        record = await self.refresh()
        if not (record.state.ended or record.stays_paused):
            async for event in self.watch(after=record.last_event, until_paused=True):
                if event.kind == EventKind.RUN_PAUSED and (await self.refresh()).stays_paused:
                    break
        return await self.refresh()

    async def problem(self) -> schema.problems.ProblemVersion:
        """Return the problem version of the run, as submitted."""
        return await self._transport.send(get(f"/v1/problems/{self.record.problem_id}", schema.problems.ProblemVersion))

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
    ) -> AsyncIterator[schema.candidates.CandidateRecord]:
        """Yield candidates without their texts, newest first.

        Args:
            status: Limit to an outcome.
            island: Limit to an island.
            role: Limit to candidates that a policy generated in this role.
            policy: Limit to candidates of a policy version.
            target: Limit to candidates whose rewards meet a target, or any target with ``any``.
            rule: Limit to candidates whose rewards satisfy a rule, such as ``"gain >= 5 and cost < 9"``.
            elite: Limit to the current elites of the archive.
            sort: Reward name, or ``scalar``, to sort by, best first.
        """
        call = get_page(
            f"{self._path}/candidates", schema.candidates.CandidateRecord, status=status, island=island, role=role,
            policy=policy, target=target, rule=rule, elite=elite or None, sort=sort,
        )  # fmt: skip
        return self._transport.items(call)

    async def candidate(self, number: int) -> schema.candidates.CandidateDetail:
        """Return the candidate with a number, including its texts."""
        return await self._transport.send(get(f"{self._path}/candidates/{number}", schema.candidates.CandidateDetail))

    async def best(self) -> schema.candidates.CandidateDetail | None:
        """Return the best feasible candidate so far with its texts; None before the first one."""
        ranked = (await self.refresh()).best
        if ranked is None:
            return None
        candidate, problem = await self.candidate(ranked.number), await self.problem()
        best = candidate.model_copy(update={"targets": ranked.targets})
        best._notebook_view = partial(notebook.candidate_html, problem.definition)
        return best

    async def front(self) -> notebook.Front:
        """Return the Pareto front, best candidate first."""
        records = await self._transport.send(get_list(f"{self._path}/front", schema.runs.RankedCandidate))
        return notebook.Front(records)

    async def archive(self) -> tuple[schema.candidates.ArchiveCell, ...]:
        """Return the elite of every cell."""
        return await self._transport.send(get_list(f"{self._path}/archive", schema.candidates.ArchiveCell))

    def rollouts(self) -> AsyncIterator[schema.candidates.RolloutRecord]:
        """Yield rollouts without their texts, newest first."""
        return self._transport.items(get_page(f"{self._path}/rollouts", schema.candidates.RolloutRecord))

    async def evaluations(self) -> tuple[schema.runs.ActiveEvaluation, ...]:
        """Return the evaluations in progress that last long, oldest first, with their last texts of progress."""
        return await self._transport.send(get_list(f"{self._path}/evaluations", schema.runs.ActiveEvaluation))

    def guidance(self) -> AsyncIterator[schema.candidates.AdviceRecord]:
        """Yield the advice that the run wrote for its own prompts, newest first, with its effect."""
        return self._transport.items(get_page(f"{self._path}/guidance", schema.candidates.AdviceRecord))

    async def hint(self, text: str) -> schema.candidates.AdviceRecord:
        """Give a hint of at most 1,000 characters, which later prompts for changes show as long as it helps."""
        call = post(f"{self._path}/guidance", schema.candidates.AdviceRecord, {"text": text})
        return await self._transport.send(call)

    async def ask(
        self, count: int = 1, *, parents: Iterable[int] = (), policy: str | None = None
    ) -> tuple[AskRecord, ...]:
        """Return prompts as the policies of the run receive them. Send each answer with ``propose(…, ask=it.ask)``.

        Args:
            count: Number of prompts, at most 64.
            parents: Numbers of the candidates to change; by default the strategy selects them.
            policy: Policy of kind ``external`` that will answer; see ``propose``.
        """
        body = {"count": count, "parents": list(parents), "policy": policy}
        return (await self._transport.send(post(f"{self._path}:ask", Page[AskRecord], body))).items

    async def propose(
        self,
        program: str | None = None,
        *,
        completion: str | None = None,
        parents: Iterable[int] = (),
        ask: str | UUID | None = None,
        policy: str | None = None,
        **more: Any,
    ) -> ProposalReceipt:
        """Propose a candidate: either a whole program or the completion of a prompt. It costs an evaluation.

        Args:
            program: The program.
            completion: Text from which its program is read, as a model answers a prompt.
            parents: Numbers of the candidates that it changes, the main one first.
            ask: Token of the prompt that it answers, in place of ``parents``.
            policy: Policy of kind ``external`` in whose name it is proposed: by default that of the run, else
                ``external``.
            more: Further fields of ``speciate.schema.proposals.ProposedCandidate``: rationale, model, cost, …
        """
        proposal = {"program": program, "completion": completion, "parents": list(parents), "ask": ask and str(ask)}
        return (await self.propose_all([proposal | more], policy=policy))[0]

    async def propose_all(
        self, proposals: Iterable[Mapping[str, Any]], *, policy: str | None = None, idempotency_key: str | None = None
    ) -> tuple[ProposalReceipt, ...]:
        """Propose up to 256 candidates at once, each a mapping of the arguments of ``propose``, and return receipts.

        The receipts come in order. A completion with several programs has several receipts.
        """
        body = {"proposals": [dict(proposal) for proposal in proposals], "policy": policy}
        key = idempotency_key or str(uuid4())
        call = post(f"{self._path}/proposals", Page[ProposalReceipt], body, idempotency_key=key)
        return (await self._transport.send(call)).items

    async def proposal(self, number: int, *, wait_s: float = 0.0, settled: bool = True) -> ProposalRecord:
        """Return the result of a candidate by number, waiting up to ``wait_s`` seconds for it.

        With ``settled``, also wait until its targets are confirmed or refuted.
        """
        deadline = time.monotonic() + wait_s
        while True:
            left = max(0.0, min(_LONGEST_WAIT_S, deadline - time.monotonic()))
            call = get(f"{self._path}/proposals/{number}", ProposalRecord)
            query = {"wait": f"{left:g}", "settled": str(settled).lower()}
            record = await self._transport.send(replace(call, query=query, timeout_s=left + 30))
            if record.waited_for(settled=settled) or time.monotonic() >= deadline:
                return record

    async def proposals(self) -> tuple[ProposalRecord, ...]:
        """Return at most 100 proposals that wait for an evaluation, or whose targets are being confirmed."""
        return await self._transport.send(get_list(f"{self._path}/proposals", ProposalRecord))

    def unlocks(self) -> AsyncIterator[schema.unlocks.UnlockRecord]:
        """Yield the targets that the run reached."""
        return self._transport.items(get_page(f"{self._path}/unlocks", schema.unlocks.UnlockRecord))

    def export(self) -> AsyncIterator[schema.candidates.CandidateDetail]:
        """Yield every candidate with its texts, by number."""
        return self._transport.lines(get(f"{self._path}/export", schema.candidates.CandidateDetail))

    def export_rollouts(self) -> AsyncIterator[schema.candidates.ExportedRollout]:
        """Yield every completion with its prompt, known tokens and the rewards of its answers, for trainers."""
        return self._transport.lines(get(f"{self._path}/rollouts/export", schema.candidates.ExportedRollout))

    async def to_pandas(self) -> Any:
        """Return the candidates as a ``pandas.DataFrame``: one row per candidate, one column per reward, by number."""
        return notebook.frame(notebook.rows([candidate async for candidate in self.candidates()]))

    async def _steer(self, action: str, reason: str | None = None) -> RunRecord:
        body = None if reason is None else {"reason": reason}
        return self._keep(await self._transport.send(post(f"{self._path}:{action}", RunRecord, body)))

    def _keep(self, record: RunRecord) -> RunRecord:
        self.record = record
        return record

    def __repr__(self) -> str:
        return f"<run {self.id} {self.state.value}: {notebook.progress(self.record)}>"

    def _repr_html_(self) -> str:
        return notebook.html(self.record)
