"""Tournaments of both clients: the calls, and what waits for their answers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final
from uuid import UUID, uuid4

from speciate.client.async_transport import AsyncTransport
from speciate.client.calls import Call, get, post, segment, walk
from speciate.client.transport import Transport
from speciate.domain.tournament import Tournament
from speciate.ports.records.base import Page
from speciate.ports.records.declarations import TournamentRecord, TournamentRun
from speciate.tournaments.report.models import Matrix, Report, Standings

TIMEOUT_S: Final = 120.0
"""Thousands of problems take a while to be pinned, and a large report to be made."""

_LIST: Final = "/v1/tournaments"


def _create(declaration: Tournament | Mapping[str, Any], key: str | None) -> Call[TournamentRecord]:
    values = declaration.model_dump(mode="json") if isinstance(declaration, Tournament) else dict(declaration)
    call = post(_LIST, TournamentRecord, values, timeout_s=TIMEOUT_S)
    return replace(call, idempotency_key=key or str(uuid4()))


def _path(name: str | UUID) -> str:
    return f"{_LIST}/{segment(name, 'tournament')}"


def _all(state: str | None) -> Call[Page[TournamentRecord]]:
    return walk(_LIST, TournamentRecord, state=state)


def _steer(name: str | UUID, action: str, reason: str | None) -> Call[TournamentRecord]:
    return post(f"{_path(name)}:{action}", TournamentRecord, None if reason is None else {"reason": reason})


def _extend(name: str | UUID, reason: str, problems: Sequence[str], seeds: Sequence[int]) -> Call[TournamentRecord]:
    body = {"reason": reason, "problems": list(problems), "seeds": list(seeds)}
    return post(f"{_path(name)}:extend", TournamentRecord, body, timeout_s=TIMEOUT_S)


def _report(name: str | UUID) -> Call[Report]:
    return replace(get(f"{_path(name)}/report", Report), timeout_s=TIMEOUT_S)


def _standings(name: str | UUID) -> Call[Standings]:
    return replace(get(f"{_path(name)}/standings", Standings), timeout_s=TIMEOUT_S)


def _matrix(name: str | UUID) -> Call[Matrix]:
    return replace(get(f"{_path(name)}/matrix", Matrix), timeout_s=TIMEOUT_S)


def _export(name: str | UUID) -> Call[TournamentRun]:
    return get(f"{_path(name)}/export", TournamentRun)


class Tournaments:
    """Head-to-head comparisons, declared before the first run."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def create(
        self, declaration: Tournament | Mapping[str, Any], *, idempotency_key: str | None = None
    ) -> TournamentRecord:
        """Declare a tournament; it begins at once, and the same declaration again is the same tournament.

        Raises:
            InvalidInputError: The declaration is not valid; the flaws say where.
            NotFoundError: A problem, set or policy is unknown.
            ConflictError: The name is taken, or the key was used for another request.
        """
        return self._transport.send(_create(declaration, idempotency_key))

    def list(self, state: str | None = None) -> Iterator[TournamentRecord]:
        """Yield tournaments, newest first."""
        return self._transport.items(_all(state))

    def get(self, name: str | UUID) -> TournamentRecord:
        """Return a tournament by id or name."""
        return self._transport.send(get(_path(name), TournamentRecord))

    def standings(self, name: str | UUID) -> Standings:
        """Return who stands where."""
        return self._transport.send(_standings(name))

    def matrix(self, name: str | UUID) -> Matrix:
        """Return successes by problem and entrant."""
        return self._transport.send(_matrix(name))

    def report(self, name: str | UUID) -> Report:
        """Return the whole report."""
        return self._transport.send(_report(name))

    def export(self, name: str | UUID) -> Iterator[TournamentRun]:
        """Yield every planned run with what it says, in the order of the plan."""
        return self._transport.lines(_export(name))

    def pause(self, name: str | UUID, reason: str | None = None) -> TournamentRecord:
        """Start no more runs and pause those under way."""
        return self._transport.send(_steer(name, "pause", reason))

    def resume(self, name: str | UUID) -> TournamentRecord:
        """Go on."""
        return self._transport.send(_steer(name, "resume", None))

    def cancel(self, name: str | UUID, reason: str | None = None) -> TournamentRecord:
        """End it."""
        return self._transport.send(_steer(name, "cancel", reason))

    def extend(
        self, name: str | UUID, *, reason: str, problems: Sequence[str] = (), seeds: Sequence[int] = ()
    ) -> TournamentRecord:
        """Add problems or seeds; recorded as an amendment."""
        return self._transport.send(_extend(name, reason, problems, seeds))


class AsyncTournaments:
    """The same for asyncio."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def create(
        self, declaration: Tournament | Mapping[str, Any], *, idempotency_key: str | None = None
    ) -> TournamentRecord:
        """Declare a tournament; see ``Tournaments.create``."""
        return await self._transport.send(_create(declaration, idempotency_key))

    def list(self, state: str | None = None) -> AsyncIterator[TournamentRecord]:
        """Yield tournaments, newest first."""
        return self._transport.items(_all(state))

    async def get(self, name: str | UUID) -> TournamentRecord:
        """Return a tournament by id or name."""
        return await self._transport.send(get(_path(name), TournamentRecord))

    async def standings(self, name: str | UUID) -> Standings:
        """Return who stands where."""
        return await self._transport.send(_standings(name))

    async def matrix(self, name: str | UUID) -> Matrix:
        """Return successes by problem and entrant."""
        return await self._transport.send(_matrix(name))

    async def report(self, name: str | UUID) -> Report:
        """Return the whole report."""
        return await self._transport.send(_report(name))

    def export(self, name: str | UUID) -> AsyncIterator[TournamentRun]:
        """Yield every planned run with what it says, in the order of the plan."""
        return self._transport.lines(_export(name))

    async def pause(self, name: str | UUID, reason: str | None = None) -> TournamentRecord:
        """Start no more runs and pause those under way."""
        return await self._transport.send(_steer(name, "pause", reason))

    async def resume(self, name: str | UUID) -> TournamentRecord:
        """Go on."""
        return await self._transport.send(_steer(name, "resume", None))

    async def cancel(self, name: str | UUID, reason: str | None = None) -> TournamentRecord:
        """End it."""
        return await self._transport.send(_steer(name, "cancel", reason))

    async def extend(
        self, name: str | UUID, *, reason: str, problems: Sequence[str] = (), seeds: Sequence[int] = ()
    ) -> TournamentRecord:
        """Add problems or seeds; recorded as an amendment."""
        return await self._transport.send(_extend(name, reason, problems, seeds))
