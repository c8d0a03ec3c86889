"""Client group for tournaments."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final
from uuid import UUID, uuid4

from speciate.client.aio.transport import AsyncResourceClient
from speciate.client.calls import LONG_TIMEOUT_S, get, get_page, path_segment, post
from speciate.domain.tournament import Tournament
from speciate.ports.records.declarations import TournamentRecord, TournamentRun
from speciate.tournaments.report.models import Matrix, Report, Standings

_TOURNAMENTS: Final = "/v1/tournaments"


class AsyncTournamentsClient(AsyncResourceClient):
    """Head-to-head comparisons of policies, declared before the first run."""

    async def create(
        self, declaration: Tournament | Mapping[str, Any], *, idempotency_key: str | None = None
    ) -> TournamentRecord:
        """Declare and start a tournament. Declaring the same again returns the same tournament.

        Raises:
            InvalidInputError: The declaration is not valid. The error lists each invalid field.
            NotFoundError: A problem, problem set or policy does not exist.
            ConflictError: The name is taken, or the key was used for another request.
        """
        values = declaration.model_dump(mode="json") if isinstance(declaration, Tournament) else dict(declaration)
        key = idempotency_key or str(uuid4())
        return await self._transport.send(
            post(_TOURNAMENTS, TournamentRecord, values, timeout_s=LONG_TIMEOUT_S, idempotency_key=key)
        )

    def list(self, state: str | None = None) -> AsyncIterator[TournamentRecord]:
        """Yield tournaments, newest first."""
        return self._transport.items(get_page(_TOURNAMENTS, TournamentRecord, state=state))

    async def get(self, name: str | UUID) -> TournamentRecord:
        """Return a tournament by id or name."""
        return await self._transport.send(get(_path(name), TournamentRecord))

    async def standings(self, name: str | UUID) -> Standings:
        """Return the ranking of the entrants."""
        return await self._transport.send(get(f"{_path(name)}/standings", Standings, timeout_s=LONG_TIMEOUT_S))

    async def matrix(self, name: str | UUID) -> Matrix:
        """Return successes by problem and entrant."""
        return await self._transport.send(get(f"{_path(name)}/matrix", Matrix, timeout_s=LONG_TIMEOUT_S))

    async def report(self, name: str | UUID) -> Report:
        """Return the full report."""
        return await self._transport.send(get(f"{_path(name)}/report", Report, timeout_s=LONG_TIMEOUT_S))

    def export(self, name: str | UUID) -> AsyncIterator[TournamentRun]:
        """Yield every planned run with its result, in the order of the plan."""
        return self._transport.lines(get(f"{_path(name)}/export", TournamentRun))

    async def pause(self, name: str | UUID, reason: str | None = None) -> TournamentRecord:
        """Start no more runs and pause running ones."""
        return await self._steer(name, "pause", reason)

    async def resume(self, name: str | UUID) -> TournamentRecord:
        """Resume a paused tournament."""
        return await self._steer(name, "resume")

    async def cancel(self, name: str | UUID, reason: str | None = None) -> TournamentRecord:
        """Cancel the tournament and its running runs. Finished runs stay."""
        return await self._steer(name, "cancel", reason)

    async def extend(
        self, name: str | UUID, *, reason: str, problems: Sequence[str] = (), seeds: Sequence[int] = ()
    ) -> TournamentRecord:
        """Add problems or seeds. The extension is recorded as an amendment."""
        body = {"reason": reason, "problems": list(problems), "seeds": list(seeds)}
        return await self._transport.send(
            post(f"{_path(name)}:extend", TournamentRecord, body, timeout_s=LONG_TIMEOUT_S)
        )

    async def _steer(self, name: str | UUID, action: str, reason: str | None = None) -> TournamentRecord:
        body = None if reason is None else {"reason": reason}
        return await self._transport.send(post(f"{_path(name)}:{action}", TournamentRecord, body))


def _path(name: str | UUID) -> str:
    return f"{_TOURNAMENTS}/{path_segment(name, 'tournament')}"
