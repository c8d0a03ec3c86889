"""The client of a Speciate service.

Generated from ``aio/client.py`` by ``make client``: do not edit.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from types import TracebackType
from typing import Self
from uuid import UUID

from pydantic import JsonValue

from speciate import schema
from speciate.client import sync
from speciate.client.calls import get, get_list, get_page, path_segment
from speciate.client.connection import Connection
from speciate.client.sync.transport import RestTransport
from speciate.domain.target import ClaimState


class Client:
    """Client of a Speciate service. Every method may raise ``speciate.domain.errors.SpeciateError``."""

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
        self._transport = RestTransport(connection)

    @cached_property
    def problems(self) -> sync.catalog.ProblemsClient:
        """Problems and their versions."""
        return sync.catalog.ProblemsClient(self._transport)

    @cached_property
    def problem_sets(self) -> sync.catalog.ProblemSetsClient:
        """Frozen lists of problem versions."""
        return sync.catalog.ProblemSetsClient(self._transport)

    @cached_property
    def policies(self) -> sync.catalog.PoliciesClient:
        """Policies and their versions."""
        return sync.catalog.PoliciesClient(self._transport)

    @cached_property
    def runs(self) -> sync.runs.RunsClient:
        """Runs."""
        return sync.runs.RunsClient(self._transport)

    @cached_property
    def candidates(self) -> sync.runs.CandidatesClient:
        """Candidates by id."""
        return sync.runs.CandidatesClient(self._transport)

    @cached_property
    def evaluations(self) -> sync.evaluations.EvaluationsClient:
        """Leases and results of external evaluators."""
        return sync.evaluations.EvaluationsClient(self._transport)

    @cached_property
    def tournaments(self) -> sync.declarations.TournamentsClient:
        """Head-to-head comparisons of policies."""
        return sync.declarations.TournamentsClient(self._transport)

    @cached_property
    def campaigns(self) -> sync.declarations.CampaignsClient:
        """Searches of many problems that share one budget."""
        return sync.declarations.CampaignsClient(self._transport)

    @cached_property
    def tokens(self) -> sync.administration.TokensClient:
        """Tokens of the project."""
        return sync.administration.TokensClient(self._transport)

    @cached_property
    def webhooks(self) -> sync.administration.WebhooksClient:
        """Webhooks of the project."""
        return sync.administration.WebhooksClient(self._transport)

    @cached_property
    def projects(self) -> sync.administration.ProjectsClient:
        """Projects and their quotas."""
        return sync.administration.ProjectsClient(self._transport)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._transport.close()

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
    ) -> Iterator[schema.unlocks.UnlockRecord]:
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
            schema.unlocks.UnlockRecord,
            run=run,
            problem=problem,
            policy=policy,
            strategy=strategy,
            state=state,
            first=first or None,
            unlocks_only=unlocks_only or None,
        )
        return self._transport.items(call)

    def problem_unlocks(self, name: str | UUID) -> schema.unlocks.ProblemUnlocks:
        """Return which policies unlocked a problem version first, alone or never."""
        return self._transport.send(
            get(f"/v1/problems/{path_segment(name, 'problem')}/unlocks", schema.unlocks.ProblemUnlocks)
        )

    def problem_records(self, name: str | UUID) -> tuple[schema.unlocks.ObjectiveRecord, ...]:
        """Return the record history of a problem version, newest first within an objective."""
        path = f"/v1/problems/{path_segment(name, 'problem')}/records"
        return self._transport.send(get_list(path, schema.unlocks.ObjectiveRecord))

    def rollout(self, rollout_id: str | UUID) -> schema.candidates.RolloutDetail:
        """Return a rollout with its prompt and completion."""
        return self._transport.send(
            get(f"/v1/rollouts/{path_segment(rollout_id, 'rollout')}", schema.candidates.RolloutDetail)
        )

    def strategies(self) -> tuple[schema.runs.StrategyRecord, ...]:
        """Return the strategies with the JSON schemas of their options."""
        return self._transport.send(get_list("/v1/strategies", schema.runs.StrategyRecord))

    def workers(self) -> tuple[schema.runs.WorkerProcess, ...]:
        """Return the worker processes that are alive."""
        return self._transport.send(get_list("/v1/workers", schema.runs.WorkerProcess))

    def whoami(self) -> schema.projects.PrincipalRecord:
        """Return the identity of this client's credentials."""
        return self._transport.send(get("/v1/whoami", schema.projects.PrincipalRecord))

    def audit(self, *, everything: bool = False) -> Iterator[schema.projects.AuditRecord]:
        """Yield the audit log of the project, or of all projects, newest first."""
        return self._transport.items(get_page("/v1/audit", schema.projects.AuditRecord, everything=everything))

    def ready(self) -> dict[str, JsonValue]:
        """Return the readiness of the service and its servers. Raises ``UnavailableError`` if it is not ready."""
        return self._transport.send(get("/readyz", dict[str, JsonValue]))
