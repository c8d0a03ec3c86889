"""The client of a Speciate service."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import TracebackType
from typing import Self
from uuid import UUID

from pydantic import JsonValue

from speciate.client.aio.administration import AsyncProjectsClient, AsyncTokensClient, AsyncWebhooksClient
from speciate.client.aio.catalog import AsyncPoliciesClient, AsyncProblemsClient, AsyncProblemSetsClient
from speciate.client.aio.declarations import AsyncCampaignsClient, AsyncTournamentsClient
from speciate.client.aio.runs import AsyncCandidatesClient, AsyncRunsClient
from speciate.client.aio.transport import AsyncRestTransport
from speciate.client.calls import get, get_list, get_page, path_segment
from speciate.client.connection import Connection
from speciate.domain.target import ClaimState
from speciate.ports.records.candidates import RolloutDetail
from speciate.ports.records.projects import AuditRecord, PrincipalRecord
from speciate.ports.records.runs import StrategyRecord, WorkerProcess
from speciate.ports.records.unlocks import ObjectiveRecord, ProblemUnlocks, UnlockRecord


class AsyncClient:
    """Client of a Speciate service. Every method may raise ``speciate.domain.errors.SpeciateError``.

    Attributes:
        problems: Problems and their versions.
        problem_sets: Frozen lists of problem versions.
        policies: Policies and their versions.
        runs: Runs.
        candidates: Candidates by id.
        tournaments: Head-to-head comparisons of policies.
        campaigns: Searches of many problems that share one budget.
        tokens: Tokens of the project.
        webhooks: Webhooks of the project.
        projects: Projects and their quotas.
    """

    def __init__(self, url: str | None = None, token: str | None = None, *, project: str | None = None) -> None:
        """Configure the client. Nothing is sent yet.

        Args:
            url: Base URL of the service. Default: ``SPECIATE_URL``, else this machine.
            token: Bearer token. Default: ``SPECIATE_TOKEN``.
            project: Project to work in, for tokens that are not bound to one. Default: ``SPECIATE_PROJECT``.

        Raises:
            ConfigurationError: The URL or a setting is not valid.
        """
        connection = Connection.to(url, token, project)
        self.url = connection.url
        self._transport = AsyncRestTransport(connection)
        self.problems = AsyncProblemsClient(self._transport)
        self.problem_sets = AsyncProblemSetsClient(self._transport)
        self.policies = AsyncPoliciesClient(self._transport)
        self.runs = AsyncRunsClient(self._transport)
        self.candidates = AsyncCandidatesClient(self._transport)
        self.tournaments = AsyncTournamentsClient(self._transport)
        self.campaigns = AsyncCampaignsClient(self._transport)
        self.tokens = AsyncTokensClient(self._transport)
        self.webhooks = AsyncWebhooksClient(self._transport)
        self.projects = AsyncProjectsClient(self._transport)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
    ) -> AsyncIterator[UnlockRecord]:
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
            "/v1/unlocks",
            UnlockRecord,
            run=run,
            problem=problem,
            policy=policy,
            strategy=strategy,
            state=state,
            first=first or None,
            unlocks_only=unlocks_only or None,
        )
        return self._transport.items(call)

    async def problem_unlocks(self, name: str | UUID) -> ProblemUnlocks:
        """Return which policies unlocked a problem version first, alone or never."""
        return await self._transport.send(get(f"/v1/problems/{path_segment(name, 'problem')}/unlocks", ProblemUnlocks))

    async def problem_records(self, name: str | UUID) -> tuple[ObjectiveRecord, ...]:
        """Return the record history of a problem version, newest first within an objective."""
        path = f"/v1/problems/{path_segment(name, 'problem')}/records"
        return await self._transport.send(get_list(path, ObjectiveRecord))

    async def rollout(self, rollout_id: str | UUID) -> RolloutDetail:
        """Return a rollout with its prompt and completion."""
        return await self._transport.send(get(f"/v1/rollouts/{path_segment(rollout_id, 'rollout')}", RolloutDetail))

    async def strategies(self) -> tuple[StrategyRecord, ...]:
        """Return the strategies with the JSON schemas of their options."""
        return await self._transport.send(get_list("/v1/strategies", StrategyRecord))

    async def workers(self) -> tuple[WorkerProcess, ...]:
        """Return the worker processes that are alive."""
        return await self._transport.send(get_list("/v1/workers", WorkerProcess))

    async def whoami(self) -> PrincipalRecord:
        """Return the identity of this client's credentials."""
        return await self._transport.send(get("/v1/whoami", PrincipalRecord))

    def audit(self, *, everything: bool = False) -> AsyncIterator[AuditRecord]:
        """Yield the audit log of the project, or of all projects, newest first."""
        return self._transport.items(get_page("/v1/audit", AuditRecord, everything=everything))

    async def ready(self) -> dict[str, JsonValue]:
        """Return the readiness of the service and its servers. Raises ``UnavailableError`` if it is not ready."""
        return await self._transport.send(get("/readyz", dict[str, JsonValue]))
