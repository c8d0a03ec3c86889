"""Client groups for tournaments and campaigns."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar
from uuid import UUID, uuid4

from speciate.client.aio.transport import AsyncResourceClient
from speciate.client.calls import LONG_TIMEOUT_S, ApiCall, get, get_page, path_segment, post
from speciate.domain.campaign import Campaign
from speciate.domain.declaration import Declaration, DeclarationState
from speciate.domain.tournament import Tournament
from speciate.schema.base import Record
from speciate.schema.declarations import CampaignRecord, SliceRecord, TournamentRecord, TournamentRun
from speciate.tournaments.report.models import Report

D = TypeVar("D", bound=Declaration)
R = TypeVar("R", bound=Record)


class AsyncDeclarationsClient(AsyncResourceClient, Generic[D, R]):
    """What tournaments and campaigns have in common."""

    _noun: ClassVar[str]
    _record: type[R]

    async def create(self, declaration: D | Mapping[str, Any], *, idempotency_key: str | None = None) -> R:
        """Declare it; it starts at once. Declaring the same again returns the same record.

        Raises:
            InvalidInputError: The declaration is not valid. The error lists each invalid field.
            NotFoundError: A problem, problem set or policy does not exist.
            ConflictError: The name is taken, or the key was used for another request.
        """
        values = declaration.model_dump(mode="json") if isinstance(declaration, Declaration) else dict(declaration)
        key = idempotency_key or str(uuid4())
        call = post(f"/v1/{self._noun}s", self._record, values, timeout_s=LONG_TIMEOUT_S, idempotency_key=key)
        return await self._transport.send(call)

    def list(self, state: DeclarationState | str | None = None) -> AsyncIterator[R]:
        """Yield all, newest first; campaigns without their problems."""
        return self._transport.items(get_page(f"/v1/{self._noun}s", self._record, state=state))

    async def get(self, name: str | UUID) -> R:
        """Return one by id or name, with its progress."""
        return await self._transport.send(get(self._path(name), self._record))

    async def pause(self, name: str | UUID, reason: str | None = None) -> R:
        """Start no more work and pause the active runs."""
        return await self._steer(name, "pause", reason)

    async def resume(self, name: str | UUID) -> R:
        """Resume it after a pause."""
        return await self._steer(name, "resume")

    async def cancel(self, name: str | UUID, reason: str | None = None) -> R:
        """Cancel it and its active runs. Committed results stay."""
        return await self._steer(name, "cancel", reason)

    async def _steer(self, name: str | UUID, action: str, reason: str | None = None) -> R:
        body = None if reason is None else {"reason": reason}
        return await self._transport.send(post(f"{self._path(name)}:{action}", self._record, body))

    def _path(self, name: str | UUID) -> str:
        return f"/v1/{self._noun}s/{path_segment(name, self._noun)}"


class AsyncTournamentsClient(AsyncDeclarationsClient[Tournament, TournamentRecord]):
    """Head-to-head comparisons of policies, declared before the first run."""

    _noun = "tournament"
    _record = TournamentRecord

    async def report(self, name: str | UUID) -> Report:
        """Return the full report."""
        return await self._transport.send(get(f"{self._path(name)}/report", Report, timeout_s=LONG_TIMEOUT_S))

    def export(self, name: str | UUID) -> AsyncIterator[TournamentRun]:
        """Yield every planned run with its result, in the order of the plan."""
        return self._transport.lines(get(f"{self._path(name)}/export", TournamentRun))

    async def bundle(self, name: str | UUID) -> bytes:
        """Return an ended tournament as a signed ZIP archive; ``ConflictError`` before its end."""
        call = ApiCall("GET", f"{self._path(name)}/bundle", bytes, timeout_s=LONG_TIMEOUT_S, binary=True)
        return await self._transport.send(call)

    async def extend(
        self, name: str | UUID, *, reason: str, problems: Sequence[str] = (), seeds: Sequence[int] = ()
    ) -> TournamentRecord:
        """Add problems or seeds. The extension is recorded as an amendment."""
        body = {"reason": reason, "problems": list(problems), "seeds": list(seeds)}
        call = post(f"{self._path(name)}:extend", TournamentRecord, body, timeout_s=LONG_TIMEOUT_S)
        return await self._transport.send(call)


class AsyncCampaignsClient(AsyncDeclarationsClient[Campaign, CampaignRecord]):
    """Searches of many problems that share one budget."""

    _noun = "campaign"
    _record = CampaignRecord

    def slices(self, name: str | UUID) -> AsyncIterator[SliceRecord]:
        """Yield the slices it granted, newest first."""
        return self._transport.items(get_page(f"{self._path(name)}/slices", SliceRecord))
