"""Client groups for tournaments and campaigns."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, TypeVar
from uuid import UUID, uuid4

from speciate.client.aio.transport import AsyncResourceClient
from speciate.client.calls import LONG_TIMEOUT_S, ApiCall, get, get_page, path_segment, post
from speciate.domain.campaign import Campaign
from speciate.domain.declaration import Declaration, DeclarationState
from speciate.domain.tournament import Tournament
from speciate.schema.base import Record
from speciate.schema.declarations import CampaignRecord, SliceRecord, TournamentRecord, TournamentRun
from speciate.tournaments.report.models import Matrix, Report, Standings

R = TypeVar("R", bound=Record)


class AsyncTournamentsClient(AsyncResourceClient):
    """Head-to-head comparisons of policies, declared before the first run."""

    async def create(
        self, declaration: Tournament | Mapping[str, Any], *, idempotency_key: str | None = None
    ) -> TournamentRecord:
        """Declare a tournament; it starts at once. Declaring the same again returns the same record.

        Raises:
            InvalidInputError: The declaration is not valid. The error lists each invalid field.
            NotFoundError: A problem, problem set or policy does not exist.
            ConflictError: The name is taken, or the key was used for another request.
        """
        return await self._transport.send(_create("/v1/tournaments", TournamentRecord, declaration, idempotency_key))

    def list(self, state: DeclarationState | str | None = None) -> AsyncIterator[TournamentRecord]:
        """Yield tournaments, newest first."""
        return self._transport.items(get_page("/v1/tournaments", TournamentRecord, state=state))

    async def get(self, name: str | UUID) -> TournamentRecord:
        """Return a tournament by id or name, with its progress."""
        return await self._transport.send(get(self._path(name), TournamentRecord))

    async def pause(self, name: str | UUID, reason: str | None = None) -> TournamentRecord:
        """Start no more work and pause the active runs."""
        return await self._transport.send(post(f"{self._path(name)}:pause", TournamentRecord, _steering(reason)))

    async def resume(self, name: str | UUID) -> TournamentRecord:
        """Resume it after a pause."""
        return await self._transport.send(post(f"{self._path(name)}:resume", TournamentRecord))

    async def cancel(self, name: str | UUID, reason: str | None = None) -> TournamentRecord:
        """Cancel it and its active runs. Committed results stay."""
        return await self._transport.send(post(f"{self._path(name)}:cancel", TournamentRecord, _steering(reason)))

    async def standings(self, name: str | UUID) -> Standings:
        """Return the ranking of the entrants."""
        return await self._transport.send(get(f"{self._path(name)}/standings", Standings, timeout_s=LONG_TIMEOUT_S))

    async def matrix(self, name: str | UUID) -> Matrix:
        """Return successes by problem and entrant."""
        return await self._transport.send(get(f"{self._path(name)}/matrix", Matrix, timeout_s=LONG_TIMEOUT_S))

    async def report(self, name: str | UUID) -> Report:
        """Return the full report."""
        return await self._transport.send(get(f"{self._path(name)}/report", Report, timeout_s=LONG_TIMEOUT_S))

    def export(self, name: str | UUID) -> AsyncIterator[TournamentRun]:
        """Yield every planned run with its result, in the order of the plan."""
        return self._transport.lines(get(f"{self._path(name)}/export", TournamentRun))

    async def extend(
        self, name: str | UUID, *, reason: str, problems: Sequence[str] = (), seeds: Sequence[int] = ()
    ) -> TournamentRecord:
        """Add problems or seeds. The extension is recorded as an amendment."""
        body = {"reason": reason, "problems": list(problems), "seeds": list(seeds)}
        return await self._transport.send(
            post(f"{self._path(name)}:extend", TournamentRecord, body, timeout_s=LONG_TIMEOUT_S)
        )

    def _path(self, name: str | UUID) -> str:
        return f"/v1/tournaments/{path_segment(name, 'tournament')}"


class AsyncCampaignsClient(AsyncResourceClient):
    """Searches of many problems that share one budget."""

    async def create(
        self, declaration: Campaign | Mapping[str, Any], *, idempotency_key: str | None = None
    ) -> CampaignRecord:
        """Declare a campaign; it starts at once. Declaring the same again returns the same record.

        Raises:
            InvalidInputError: The declaration is not valid. The error lists each invalid field.
            NotFoundError: A problem, problem set or policy does not exist.
            ConflictError: The name is taken, or the key was used for another request.
        """
        return await self._transport.send(_create("/v1/campaigns", CampaignRecord, declaration, idempotency_key))

    def list(self, state: DeclarationState | str | None = None) -> AsyncIterator[CampaignRecord]:
        """Yield campaigns, newest first, without their problems."""
        return self._transport.items(get_page("/v1/campaigns", CampaignRecord, state=state))

    async def get(self, name: str | UUID) -> CampaignRecord:
        """Return a campaign by id or name, with its progress."""
        return await self._transport.send(get(self._path(name), CampaignRecord))

    async def pause(self, name: str | UUID, reason: str | None = None) -> CampaignRecord:
        """Start no more work and pause the active runs."""
        return await self._transport.send(post(f"{self._path(name)}:pause", CampaignRecord, _steering(reason)))

    async def resume(self, name: str | UUID) -> CampaignRecord:
        """Resume it after a pause."""
        return await self._transport.send(post(f"{self._path(name)}:resume", CampaignRecord))

    async def cancel(self, name: str | UUID, reason: str | None = None) -> CampaignRecord:
        """Cancel it and its active runs. Committed results stay."""
        return await self._transport.send(post(f"{self._path(name)}:cancel", CampaignRecord, _steering(reason)))

    def slices(self, name: str | UUID) -> AsyncIterator[SliceRecord]:
        """Yield the slices it granted, newest first."""
        return self._transport.items(get_page(f"{self._path(name)}/slices", SliceRecord))

    def _path(self, name: str | UUID) -> str:
        return f"/v1/campaigns/{path_segment(name, 'campaign')}"


def _create(
    path: str, record: type[R], declaration: Declaration | Mapping[str, Any], idempotency_key: str | None
) -> ApiCall[R]:
    values = declaration.model_dump(mode="json") if isinstance(declaration, Declaration) else dict(declaration)
    return post(path, record, values, timeout_s=LONG_TIMEOUT_S, idempotency_key=idempotency_key or str(uuid4()))


def _steering(reason: str | None) -> dict[str, str] | None:
    return None if reason is None else {"reason": reason}
