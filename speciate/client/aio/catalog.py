"""Client groups for problems, problem sets and policies."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from pydantic import JsonValue

from speciate.client.aio.transport import AsyncHideableClient, AsyncResourceClient
from speciate.client.calls import LONG_TIMEOUT_S, ApiCall, change_visibility, get, get_page, path_segment, post
from speciate.domain.policy import Policy
from speciate.domain.problem import Problem
from speciate.domain.visibility import Visibility, VisibilityChange
from speciate.schema.base import Page
from speciate.schema.policies import PolicyVersion
from speciate.schema.problems import ProblemSet, ProblemSummary, ProblemVersion

_PROBLEMS: Final = "/v1/problems"
_SETS: Final = "/v1/problem-sets"
_POLICIES: Final = "/v1/policies"


class AsyncProblemsClient(AsyncHideableClient[tuple[ProblemSummary, ...]]):
    """Problems and their versions."""

    async def add(self, definition: Problem | Mapping[str, Any], *, check: bool = False) -> ProblemVersion:
        """Submit a problem. Submitting the same definition again returns the same version.

        Args:
            definition: The problem.
            check: Score the seed program on a worker first, and refuse the problem if that fails.
        """
        return await self._transport.send(_add_problem(definition, check))

    async def submit(
        self, definition: Problem | Mapping[str, Any], *, check: bool = False
    ) -> tuple[ProblemVersion, bool]:
        """Submit a problem as ``add`` does, and return also True if the version is new."""
        return await self._transport.create(_add_problem(definition, check))

    async def get(self, name: str | UUID) -> ProblemVersion:
        """Return a problem version by id, ``slug`` (the newest version) or ``slug@version``."""
        return await self._transport.send(get(f"{_PROBLEMS}/{path_segment(name, 'problem')}", ProblemVersion))

    def list(
        self, slug: str | None = None, *, visibility: Visibility | str | None = None
    ) -> AsyncIterator[ProblemSummary]:
        """Yield problem versions, newest first, optionally of one slug only.

        Args:
            slug: Name of the problem.
            visibility: ``visible`` (default), ``archived``, ``deleted`` or ``all``.
        """
        path = _PROBLEMS if slug is None else f"{_PROBLEMS}/{path_segment(slug, 'problem')}/versions"
        return self._transport.items(get_page(path, ProblemSummary, visibility=visibility))

    async def _change(self, name: str | UUID, change: VisibilityChange) -> tuple[ProblemSummary, ...]:
        path = f"{_PROBLEMS}/{path_segment(name, 'problem')}"
        return (await self._transport.send(change_visibility(path, change, Page[ProblemSummary]))).items


class AsyncProblemSetsClient(AsyncResourceClient):
    """Frozen lists of problem versions."""

    async def create(self, slug: str, problems: Sequence[str | UUID], *, title: str = "") -> ProblemSet:
        """Freeze a list of problem versions under a name."""
        body = {"slug": slug, "title": title, "problems": [str(name) for name in problems]}
        return await self._transport.send(post(_SETS, ProblemSet, body))

    async def get(self, name: str | UUID) -> ProblemSet:
        """Return a problem set by id or name."""
        return await self._transport.send(get(f"{_SETS}/{path_segment(name, 'problem set')}", ProblemSet))

    def list(self) -> AsyncIterator[ProblemSet]:
        """Yield problem sets, newest first."""
        return self._transport.items(get_page(_SETS, ProblemSet))


class AsyncPoliciesClient(AsyncHideableClient[tuple[PolicyVersion, ...]]):
    """Policies and their versions."""

    async def add(
        self, definition: Policy | Mapping[str, Any], *, api_key: str | None = None, check: bool = True
    ) -> PolicyVersion:
        """Register a policy. The same registration returns the same version; other weights make another version.

        Args:
            definition: The policy.
            api_key: API key of its endpoint. Stored encrypted, never returned; a new key replaces the old one.
            check: Contact the endpoint first to see that it serves the policy, and record which weights it serves.
        """
        values = definition.model_dump(mode="json") if isinstance(definition, Policy) else dict(definition)
        body = {"definition": values, "check": check, **({} if api_key is None else {"api_key": api_key})}
        return await self._transport.send(post(_POLICIES, PolicyVersion, body, timeout_s=LONG_TIMEOUT_S))

    async def get(self, name: str | UUID) -> PolicyVersion:
        """Return a policy version by id, ``slug`` (the newest version) or ``slug@version``."""
        return await self._transport.send(get(f"{_POLICIES}/{path_segment(name, 'policy')}", PolicyVersion))

    def list(
        self, slug: str | None = None, *, visibility: Visibility | str | None = None
    ) -> AsyncIterator[PolicyVersion]:
        """Yield policy versions, newest first, optionally of one slug only; ``visibility`` as in ``problems.list``."""
        return self._transport.items(get_page(_POLICIES, PolicyVersion, slug=slug, visibility=visibility))

    async def _change(self, name: str | UUID, change: VisibilityChange) -> tuple[PolicyVersion, ...]:
        path = f"{_POLICIES}/{path_segment(name, 'policy')}"
        return (await self._transport.send(change_visibility(path, change, Page[PolicyVersion]))).items

    async def ping(self, name: str | UUID) -> dict[str, JsonValue]:
        """Request one completion from a policy to check that its endpoint works."""
        path = f"{_POLICIES}/{path_segment(name, 'policy')}:ping"
        return await self._transport.send(post(path, dict[str, JsonValue], timeout_s=LONG_TIMEOUT_S))


def _add_problem(definition: Problem | Mapping[str, Any], check: bool) -> ApiCall[ProblemVersion]:
    values = definition.model_dump(mode="json") if isinstance(definition, Problem) else dict(definition)
    body = {"definition": values, **({"check": True} if check else {})}
    return post(_PROBLEMS, ProblemVersion, body, timeout_s=LONG_TIMEOUT_S if check else None)
