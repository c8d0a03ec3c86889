"""The client of a Speciate service."""

from collections.abc import AsyncIterator
from functools import cached_property
from typing import Self
from uuid import UUID

from pydantic import JsonValue

from speciate import schema
from speciate.client import aio
from speciate.client.aio.transport import AsyncRestTransport
from speciate.client.calls import get, get_list, get_page, path_segment
from speciate.client.connection import Connection
from speciate.domain.target import ClaimState


class AsyncClient:
    """Client of a Speciate service. Every method may raise ``speciate.domain.errors.SpeciateError``."""

    problems = cached_property(lambda self: aio.catalog.AsyncProblemsClient(self._transport))
    problem_sets = cached_property(lambda self: aio.catalog.AsyncProblemSetsClient(self._transport))
    policies = cached_property(lambda self: aio.catalog.AsyncPoliciesClient(self._transport))
    runs = cached_property(lambda self: aio.runs.AsyncRunsClient(self._transport))
    candidates = cached_property(lambda self: aio.runs.AsyncCandidatesClient(self._transport))
    evaluations = cached_property(lambda self: aio.evaluations.AsyncEvaluationsClient(self._transport))
    engines = cached_property(lambda self: aio.engines.AsyncEnginesClient(self._transport))
    tournaments = cached_property(lambda self: aio.declarations.AsyncTournamentsClient(self._transport))
    campaigns = cached_property(lambda self: aio.declarations.AsyncCampaignsClient(self._transport))
    tokens = cached_property(lambda self: aio.administration.AsyncTokensClient(self._transport))
    webhooks = cached_property(lambda self: aio.administration.AsyncWebhooksClient(self._transport))
    projects = cached_property(lambda self: aio.administration.AsyncProjectsClient(self._transport))

    def __init__(
        self, url: str | None = None, token: str | None = None, *, project: str | None = None, socket: str | None = None
    ) -> None:
        """Configure the client. Nothing is sent yet.

        Args:
            url: Base URL of the service. Default: ``SPECIATE_URL``, else that of the data directory.
            token: Bearer token. Default: ``SPECIATE_TOKEN``.
            project: Project to work in, for tokens that are not bound to one. Default: ``SPECIATE_PROJECT``.
            socket: Path of a Unix socket on which this process serves the API itself.

        Raises:
            ConfigurationError: The URL or a setting is not valid.
        """
        connection = Connection.to(url, token, project, socket)
        self.url = connection.url
        self.in_process = socket is not None
        """True if the process executes its runs itself; see ``speciate.local``."""
        self._transport = AsyncRestTransport(connection)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._transport.close()

    def unlocks(
        self,
        *,
        run: str | UUID | None = None,
        problem: str | UUID | None = None,
        policy: str | UUID | None = None,
        strategy: str | None = None,
        first: bool = False,
        unlocks_only: bool = False,
        state: ClaimState | str | None = None,
    ) -> AsyncIterator[schema.unlocks.UnlockRecord]:
        """Yield reached targets, newest run first.

        Args:
            run: Limit to a run.
            problem: Limit to a problem version.
            policy: Limit to a policy version.
            strategy: Limit to a strategy.
            first: Yield only the first confirmed claim per problem version, target, policy version and strategy.
            unlocks_only: Omit targets that do not unlock.
            state: State of the claims, or ``any``. Default: confirmed.
        """
        call = get_page(
            "/v1/unlocks", schema.unlocks.UnlockRecord, run=run, problem=problem, policy=policy, strategy=strategy,
            state=state, first=first or None, unlocks_only=unlocks_only or None,
        )  # fmt: skip
        return self._transport.items(call)

    async def problem_unlocks(self, name: str | UUID) -> schema.unlocks.ProblemUnlocks:
        """Return which policies unlocked a problem version first, alone or never."""
        call = get(f"/v1/problems/{path_segment(name, 'problem')}/unlocks", schema.unlocks.ProblemUnlocks)
        return await self._transport.send(call)

    async def problem_records(self, name: str | UUID) -> tuple[schema.unlocks.ObjectiveRecord, ...]:
        """Return the record history of a problem version, newest first within an objective."""
        path = f"/v1/problems/{path_segment(name, 'problem')}/records"
        return await self._transport.send(get_list(path, schema.unlocks.ObjectiveRecord))

    async def rollout(self, rollout_id: str | UUID) -> schema.candidates.RolloutDetail:
        """Return a rollout with its prompt and completion."""
        call = get(f"/v1/rollouts/{path_segment(rollout_id, 'rollout')}", schema.candidates.RolloutDetail)
        return await self._transport.send(call)

    async def strategies(self) -> tuple[schema.runs.StrategyRecord, ...]:
        """Return the strategies with the JSON schemas of their options."""
        return await self._transport.send(get_list("/v1/strategies", schema.runs.StrategyRecord))

    async def workers(self) -> tuple[schema.runs.WorkerProcess, ...]:
        """Return the worker processes that are alive."""
        return await self._transport.send(get_list("/v1/workers", schema.runs.WorkerProcess))

    def audit(self, *, everything: bool = False) -> AsyncIterator[schema.projects.AuditRecord]:
        """Yield the audit log of the project, or of all projects, newest first."""
        return self._transport.items(get_page("/v1/audit", schema.projects.AuditRecord, everything=everything))

    async def ready(self) -> dict[str, JsonValue]:
        """Return the readiness of the service and its servers. Raises ``UnavailableError`` if it is not ready."""
        return await self._transport.send(get("/readyz", dict[str, JsonValue]))
