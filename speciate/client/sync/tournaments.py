"""Client group for tournaments.

Generated from ``aio/tournaments.py`` by ``make client``: do not edit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from uuid import UUID, uuid4

from speciate.client.calls import LONG_TIMEOUT_S, get, get_page, path_segment, post
from speciate.client.sync.transport import ResourceClient
from speciate.domain.tournament import Tournament
from speciate.ports.records.declarations import TournamentRecord, TournamentRun
from speciate.tournaments.report.models import Matrix, Report, Standings

_TOURNAMENTS: Final = "/v1/tournaments"


class TournamentsClient(ResourceClient):
    """Head-to-head comparisons of policies, declared before the first run."""

    def create(
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
        return self._transport.send(
            post(_TOURNAMENTS, TournamentRecord, values, timeout_s=LONG_TIMEOUT_S, idempotency_key=key)
        )

    def list(self, state: str | None = None) -> Iterator[TournamentRecord]:
        """Yield tournaments, newest first."""
        return self._transport.items(get_page(_TOURNAMENTS, TournamentRecord, state=state))

    def get(self, name: str | UUID) -> TournamentRecord:
        """Return a tournament by id or name."""
        return self._transport.send(get(_path(name), TournamentRecord))

    def standings(self, name: str | UUID) -> Standings:
        """Return the ranking of the entrants."""
        return self._transport.send(get(f"{_path(name)}/standings", Standings, timeout_s=LONG_TIMEOUT_S))

    def matrix(self, name: str | UUID) -> Matrix:
        """Return successes by problem and entrant."""
        return self._transport.send(get(f"{_path(name)}/matrix", Matrix, timeout_s=LONG_TIMEOUT_S))

    def report(self, name: str | UUID) -> Report:
        """Return the full report."""
        return self._transport.send(get(f"{_path(name)}/report", Report, timeout_s=LONG_TIMEOUT_S))

    def export(self, name: str | UUID) -> Iterator[TournamentRun]:
        """Yield every planned run with its result, in the order of the plan."""
        return self._transport.lines(get(f"{_path(name)}/export", TournamentRun))

    def pause(self, name: str | UUID, reason: str | None = None) -> TournamentRecord:
        """Start no more runs and pause running ones."""
        return self._steer(name, "pause", reason)

    def resume(self, name: str | UUID) -> TournamentRecord:
        """Resume a paused tournament."""
        return self._steer(name, "resume")

    def cancel(self, name: str | UUID, reason: str | None = None) -> TournamentRecord:
        """Cancel the tournament and its running runs. Finished runs stay."""
        return self._steer(name, "cancel", reason)

    def extend(
        self, name: str | UUID, *, reason: str, problems: Sequence[str] = (), seeds: Sequence[int] = ()
    ) -> TournamentRecord:
        """Add problems or seeds. The extension is recorded as an amendment."""
        body = {"reason": reason, "problems": list(problems), "seeds": list(seeds)}
        return self._transport.send(post(f"{_path(name)}:extend", TournamentRecord, body, timeout_s=LONG_TIMEOUT_S))

    def _steer(self, name: str | UUID, action: str, reason: str | None = None) -> TournamentRecord:
        body = None if reason is None else {"reason": reason}
        return self._transport.send(post(f"{_path(name)}:{action}", TournamentRecord, body))


def _path(name: str | UUID) -> str:
    return f"{_TOURNAMENTS}/{path_segment(name, 'tournament')}"
