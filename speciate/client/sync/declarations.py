"""Client groups for tournaments and campaigns, with the lifecycle that both share.

Generated from ``aio/declarations.py`` by ``make client``: do not edit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar
from uuid import UUID, uuid4

from speciate.client.calls import LONG_TIMEOUT_S, get, get_page, path_segment, post
from speciate.client.sync.transport import ResourceClient
from speciate.domain.campaign import Campaign
from speciate.domain.declaration import Declaration, DeclarationKind, DeclarationState
from speciate.domain.tournament import Tournament
from speciate.schema.declarations import (
    CampaignRecord,
    DeclarationRecord,
    SliceRecord,
    TournamentRecord,
    TournamentRun,
)
from speciate.tournaments.report.models import Matrix, Report, Standings

D = TypeVar("D", bound=Declaration)
R = TypeVar("R", bound=DeclarationRecord[Any])


class DeclarationsClient(ResourceClient, Generic[D, R]):
    """Lifecycle of one kind of declaration."""

    _kind: ClassVar[DeclarationKind]
    _record: type[R]

    def create(self, declaration: D | Mapping[str, Any], *, idempotency_key: str | None = None) -> R:
        """Declare it; it starts at once. Declaring the same again returns the same record.

        Raises:
            InvalidInputError: The declaration is not valid. The error lists each invalid field.
            NotFoundError: A problem, problem set or policy does not exist.
            ConflictError: The name is taken, or the key was used for another request.
        """
        values = declaration.model_dump(mode="json") if isinstance(declaration, Declaration) else dict(declaration)
        key = idempotency_key or str(uuid4())
        return self._transport.send(
            post(f"/v1/{self._kind}s", self._record, values, timeout_s=LONG_TIMEOUT_S, idempotency_key=key)
        )

    def list(self, state: DeclarationState | str | None = None) -> Iterator[R]:
        """Yield records, newest first, without the problems of a campaign."""
        return self._transport.items(get_page(f"/v1/{self._kind}s", self._record, state=state))

    def get(self, name: str | UUID) -> R:
        """Return the record by id or name, with the progress."""
        return self._transport.send(get(self._path(name), self._record))

    def pause(self, name: str | UUID, reason: str | None = None) -> R:
        """Start no more work and pause the active runs."""
        return self._steer(name, "pause", reason)

    def resume(self, name: str | UUID) -> R:
        """Resume it after a pause."""
        return self._steer(name, "resume")

    def cancel(self, name: str | UUID, reason: str | None = None) -> R:
        """Cancel it and its active runs. Committed results stay."""
        return self._steer(name, "cancel", reason)

    def _steer(self, name: str | UUID, verb: str, reason: str | None = None) -> R:
        body = None if reason is None else {"reason": reason}
        return self._transport.send(post(f"{self._path(name)}:{verb}", self._record, body))

    def _path(self, name: str | UUID) -> str:
        return f"/v1/{self._kind}s/{path_segment(name, self._kind)}"


class TournamentsClient(DeclarationsClient[Tournament, TournamentRecord]):
    """Head-to-head comparisons of policies, declared before the first run."""

    _kind = DeclarationKind.TOURNAMENT
    _record = TournamentRecord

    def standings(self, name: str | UUID) -> Standings:
        """Return the ranking of the entrants."""
        return self._transport.send(get(f"{self._path(name)}/standings", Standings, timeout_s=LONG_TIMEOUT_S))

    def matrix(self, name: str | UUID) -> Matrix:
        """Return successes by problem and entrant."""
        return self._transport.send(get(f"{self._path(name)}/matrix", Matrix, timeout_s=LONG_TIMEOUT_S))

    def report(self, name: str | UUID) -> Report:
        """Return the full report."""
        return self._transport.send(get(f"{self._path(name)}/report", Report, timeout_s=LONG_TIMEOUT_S))

    def export(self, name: str | UUID) -> Iterator[TournamentRun]:
        """Yield every planned run with its result, in the order of the plan."""
        return self._transport.lines(get(f"{self._path(name)}/export", TournamentRun))

    def extend(
        self, name: str | UUID, *, reason: str, problems: Sequence[str] = (), seeds: Sequence[int] = ()
    ) -> TournamentRecord:
        """Add problems or seeds. The extension is recorded as an amendment."""
        body = {"reason": reason, "problems": list(problems), "seeds": list(seeds)}
        return self._transport.send(
            post(f"{self._path(name)}:extend", TournamentRecord, body, timeout_s=LONG_TIMEOUT_S)
        )


class CampaignsClient(DeclarationsClient[Campaign, CampaignRecord]):
    """Searches of many problems that share one budget."""

    _kind = DeclarationKind.CAMPAIGN
    _record = CampaignRecord

    def slices(self, name: str | UUID) -> Iterator[SliceRecord]:
        """Yield the slices it granted, newest first."""
        return self._transport.items(get_page(f"{self._path(name)}/slices", SliceRecord))
