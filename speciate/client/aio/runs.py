"""Client groups for runs and candidates."""

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import suppress
from typing import Any
from uuid import UUID, uuid4

from pydantic import JsonValue

from speciate import schema
from speciate.client import run_names
from speciate.client.aio.run import AsyncRunHandle
from speciate.client.aio.transport import AsyncHideableClient, AsyncResourceClient
from speciate.client.arguments import (
    BudgetLike,
    PoliciesLike,
    SeedsLike,
    SeedSourcesLike,
    as_tuple,
    run_labels,
    run_spec,
    seed_request,
)
from speciate.client.calls import change_visibility, get, get_list, get_page, path_segment, post
from speciate.domain.errors import NotFoundError
from speciate.domain.run import RunState
from speciate.domain.visibility import Visibility, VisibilityChange, visibility_of
from speciate.schema.estimates import RunEstimate
from speciate.schema.runs import RunOrder, RunRecord


class AsyncRunsClient(AsyncHideableClient[AsyncRunHandle]):
    async def create(
        self,
        problem: str | UUID,
        policy: PoliciesLike,
        *,
        budget: BudgetLike,
        mutator: PoliciesLike | None = None,
        name: str = "",
        tags: Iterable[str] = (),
        note: str = "",
        seeds: SeedsLike = (),
        seed_from: SeedSourcesLike = (),
        idempotency_key: str | None = None,
        estimate: bool = False,
        **spec: Any,
    ) -> AsyncRunHandle:
        """Start a run.

        Args:
            problem: Id, ``slug`` (the newest version) or ``slug@version`` of the problem.
            policy: Id or name of the policy, or an ensemble as ``{name: weight, …}``.
            budget: Number of evaluations, or limits for evaluations, tokens and seconds.
            mutator: Another policy or ensemble that changes parents.
            name: Name of the run, one line.
            tags: Tags shared with other runs.
            note: Free text. Like the name and the tags, not part of the spec.
            seeds: Programs to start from in place of the problem's seed program: texts, or texts by name.
            seed_from: Runs of the same problem to start from: ``"RUN"`` for its Pareto front, ``"RUN:front=N"`` for the
                best N of it, ``"RUN:best"``, or ``SeedSource`` objects. A run is named by its id.
            idempotency_key: Repeating a request with the same key returns the same run. Default: a new key per call.
            estimate: True to keep an estimate of what the run will spend with it.
            spec: Further fields of ``speciate.domain.run.RunSpec``: strategy, strategy_options, seed, lanes, …

        Raises:
            InvalidInputError: A value is not valid.
            NotFoundError: The problem or a policy does not exist.
            ConflictError: The key was used for another request.
        """
        body = _body(problem, policy, budget, mutator=mutator, seeds=seeds, seed_from=seed_from, **spec)
        body |= run_labels(name, tags, note).model_dump(mode="json", exclude_defaults=True)
        if estimate:
            body["estimate"] = True
        # The key makes it safe to repeat the request after a broken connection.
        call = post("/v1/runs", RunRecord, body, idempotency_key=idempotency_key or str(uuid4()))
        return AsyncRunHandle(self._transport, await self._transport.send(call))

    async def estimate(
        self, problem: str | UUID, policy: PoliciesLike, *, budget: BudgetLike, **run: Any
    ) -> RunEstimate:
        """Return what a run would spend. Arguments are those of ``create`` without labels, key and estimate."""
        call = post("/v1/runs:estimate", RunEstimate, _body(problem, policy, budget, **run))
        return await self._transport.send(call)

    async def get(self, run: str | UUID) -> AsyncRunHandle:
        """Return a run.

        Args:
            run: Its id; at least 6 of the id's first or last characters; its name (a visible run's first); the name of
                its answer's directory, such as ``my-problem-7eda984a``; or a problem, for the latest run on it.

        Raises:
            NotFoundError: No run matches.
            InvalidInputError: Several runs match; the message lists them.
        """
        return AsyncRunHandle(self._transport, await self._find(str(run)))

    async def _find(self, name: str, *, hidden: bool = False) -> RunRecord:
        if not name or run_names.is_whole_id(name):
            with suppress(NotFoundError):
                return await self._transport.send(get(f"/v1/runs/{path_segment(name, 'run')}", RunRecord))
        if run_names.may_hold_id(name):
            runs = [run.record async for run in self.list(visibility=Visibility.ALL)]
            if matches := [run for run in runs if run_names.has_id(run, name)]:
                return run_names.only_one(name, matches)
        named = [run.record async for run in self.list(name=name, visibility=Visibility.ALL)]
        if matches := [run for run in named if run.name.lower() == name.lower()]:
            likely = [run for run in matches if (visibility_of(run) is Visibility.VISIBLE) is not hidden]
            return run_names.only_one(name, likely or matches)
        latest = []
        async for run in self.list():
            if run_names.is_on(run.record, name):
                return run.record
            latest.append(run.record)
        raise run_names.unknown_run(name, latest[: run_names.LATEST_RUNS])

    async def list(
        self,
        *,
        problem: str | None = None,
        policy: str | None = None,
        state: RunState | str | None = None,
        tags: Iterable[str] = (),
        name: str | None = None,
        group: str | None = None,
        sort: RunOrder | str | None = None,
        reverse: bool = False,
        visibility: Visibility | str | None = None,
    ) -> AsyncIterator[AsyncRunHandle]:
        """Yield runs, newest first by default.

        Args:
            problem: Limit to a problem version.
            policy: Limit to a policy version.
            state: Limit to a state.
            tags: Limit to runs that have all of these tags.
            name: Limit to runs whose name contains this text.
            group: ``all`` (default), ``own`` for runs that no tournament or campaign started, or the name of one.
            sort: Order: ``started``, ``state``, ``problem``, ``policy``, ``best``, ``duration``, ``evaluations``,
                ``tokens`` or ``cost``.
            reverse: True for the opposite order.
            visibility: ``visible`` (default), ``archived``, ``deleted`` or ``all``.
        """
        call = get_page(
            "/v1/runs", RunRecord, problem=problem, policy=policy, state=state, tag=as_tuple(tags), name=name,
            group=group, sort=sort, reverse=reverse or None, visibility=visibility,
        )  # fmt: skip
        async for record in self._transport.items(call):
            yield AsyncRunHandle(self._transport, record)

    async def _change(self, name: str | UUID, change: VisibilityChange) -> AsyncRunHandle:
        run = await self._find(str(name), hidden=change is VisibilityChange.RESTORE)
        call = change_visibility(f"/v1/runs/{run.id}", change, RunRecord)
        return AsyncRunHandle(self._transport, await self._transport.send(call))


class AsyncCandidatesClient(AsyncResourceClient):
    async def get(self, candidate_id: str | UUID) -> schema.candidates.CandidateDetail:
        """Return a candidate with its texts."""
        return await self._transport.send(get(_candidate(candidate_id), schema.candidates.CandidateDetail))

    async def diff(self, candidate_id: str | UUID) -> dict[str, JsonValue]:
        """Return the changes of a candidate relative to its first parent."""
        return await self._transport.send(get(f"{_candidate(candidate_id)}/diff", dict[str, JsonValue]))

    async def lineage(self, candidate_id: str | UUID) -> tuple[schema.candidates.CandidateRecord, ...]:
        """Return the nearest 100 ancestors of a candidate."""
        call = get_list(f"{_candidate(candidate_id)}/lineage", schema.candidates.CandidateRecord)
        return await self._transport.send(call)


def _body(
    problem: str | UUID,
    policy: PoliciesLike,
    budget: BudgetLike,
    *,
    mutator: PoliciesLike | None = None,
    seeds: SeedsLike = (),
    seed_from: SeedSourcesLike = (),
    **spec: Any,
) -> dict[str, Any]:
    return {
        "problem": str(problem),
        "policy": _policies(policy),
        "mutator": mutator and _policies(mutator),
        **run_spec(budget, **spec).model_dump(mode="json"),
        **seed_request(seeds, seed_from).model_dump(mode="json", exclude_defaults=True),
    }


def _candidate(candidate_id: str | UUID) -> str:
    return f"/v1/candidates/{path_segment(candidate_id, 'candidate')}"


def _policies(policies: PoliciesLike) -> str | dict[str, float]:
    return dict(policies) if isinstance(policies, Mapping) else str(policies)
