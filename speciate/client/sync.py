"""The client of the REST service for ordinary programs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self
from uuid import UUID

from pydantic import JsonValue

from speciate.client import access, endpoints
from speciate.client.access import Projects, Tokens
from speciate.client.campaigns import Campaigns
from speciate.client.connection import Connection
from speciate.client.endpoints import StrategyRecord
from speciate.client.requests import BudgetLike, PoliciesLike, run_labels, run_spec, several
from speciate.client.run import RunHandle
from speciate.client.tournaments import Tournaments
from speciate.client.transport import Transport
from speciate.client.webhooks import Webhooks
from speciate.domain.policy import Policy
from speciate.domain.problem import Problem
from speciate.domain.run import RunState
from speciate.domain.target import ClaimState
from speciate.ports.records.candidates import CandidateDetail, CandidateRecord, RolloutDetail
from speciate.ports.records.policies import PolicyVersion
from speciate.ports.records.problems import ProblemSet, ProblemSummary, ProblemVersion
from speciate.ports.records.projects import AuditRecord, PrincipalRecord
from speciate.ports.records.runs import WorkerProcess
from speciate.ports.records.unlocks import ObjectiveRecord, ProblemUnlocks, UnlockRecord


class Client:
    """Speaks with a Speciate service. Every method may raise ``speciate.domain.errors.SpeciateError``.

    Attributes:
        problems: Problems and their versions.
        problem_sets: Frozen lists of problem versions.
        policies: Policies and their versions.
        runs: Runs.
        candidates: Candidates by id.
        tournaments: Head-to-head comparisons.
        campaigns: Searches of many problems that share one budget.
        tokens: Tokens of the project.
        webhooks: Who is told what happens in it.
        projects: Projects and their quotas.
    """

    def __init__(self, url: str | None = None, token: str | None = None, *, project: str | None = None) -> None:
        """Prepare; nothing is sent yet.

        Args:
            url: Address of the service; by default ``SPECIATE_URL`` or this machine.
            token: Bearer token; by default ``SPECIATE_TOKEN``.
            project: The project to work in, where the token does not say; by default ``SPECIATE_PROJECT``.

        Raises:
            ConfigurationError: The address or a setting cannot be used.
        """
        connection = Connection.to(url, token, project)
        self.url = connection.url
        self._transport = Transport(connection)
        self.problems = Problems(self._transport)
        self.problem_sets = ProblemSets(self._transport)
        self.policies = Policies(self._transport)
        self.runs = Runs(self._transport)
        self.candidates = Candidates(self._transport)
        self.tournaments = Tournaments(self._transport)
        self.campaigns = Campaigns(self._transport)
        self.tokens = Tokens(self._transport)
        self.webhooks = Webhooks(self._transport)
        self.projects = Projects(self._transport)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection."""
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
    ) -> Iterator[UnlockRecord]:
        """Yield reached targets, newest run first; confirmed ones unless a state (or ``any``) is named.

        With ``first``, of each problem version, target, policy version and strategy the first confirmed candidate.
        """
        flags = {"first": first, "unlocks_only": unlocks_only}
        call = endpoints.unlocks(run=run, problem=problem, policy=policy, strategy=strategy, state=state, **flags)
        return self._transport.items(call)

    def problem_unlocks(self, name: str | UUID) -> ProblemUnlocks:
        """Return who unlocked a problem version first, who alone and who never."""
        return self._transport.send(endpoints.problem_unlocks(name))

    def problem_records(self, name: str | UUID) -> tuple[ObjectiveRecord, ...]:
        """Return the history of records of a problem version, the newest first within an objective."""
        return self._transport.send(endpoints.problem_records(name))

    def rollout(self, rollout_id: str | UUID) -> RolloutDetail:
        """Return a rollout with its prompt and its completion."""
        return self._transport.send(endpoints.rollout(rollout_id))

    def strategies(self) -> tuple[StrategyRecord, ...]:
        """Return the strategies and the schemas of their options."""
        return self._transport.send(endpoints.strategies())

    def workers(self) -> tuple[WorkerProcess, ...]:
        """Return the worker processes that are there."""
        return self._transport.send(endpoints.workers())

    def whoami(self) -> PrincipalRecord:
        """Return whom the service takes this client for."""
        return self._transport.send(access.whoami())

    def audit(self, *, everything: bool = False) -> Iterator[AuditRecord]:
        """Yield who asked for what, newest first: in the project, or everywhere."""
        return self._transport.items(access.audit(everything))

    def ready(self) -> dict[str, JsonValue]:
        """Return what the service says of itself and the servers behind it; raises when it cannot work."""
        return self._transport.send(endpoints.ready())


class _Group:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport


class Problems(_Group):
    """Problems and their versions."""

    def add(self, definition: Problem | Mapping[str, Any]) -> ProblemVersion:
        """Submit a problem; the same definition again is the same version."""
        return self._transport.send(endpoints.add_problem(definition))

    def submit(self, definition: Problem | Mapping[str, Any]) -> tuple[ProblemVersion, bool]:
        """Do as ``add``, and return as well whether the version is new."""
        return self._transport.make(endpoints.add_problem(definition))

    def add_files(self, toml: str, files: Mapping[str, str], *, file: str = "problem.toml") -> ProblemVersion:
        """Submit the texts of a ``problem.toml`` and of the files beside it; flaws come with files and lines."""
        return self._transport.send(endpoints.add_problem_files(toml, files, file))

    def get(self, name: str | UUID) -> ProblemVersion:
        """Return a problem version by id, ``slug`` (the newest) or ``slug@version``."""
        return self._transport.send(endpoints.problem(name))

    def list(self, slug: str | None = None) -> Iterator[ProblemSummary]:
        """Yield problem versions, newest first; of one slug where it is given."""
        return self._transport.items(endpoints.problems(slug))


class ProblemSets(_Group):
    """Frozen lists of problem versions."""

    def create(self, slug: str, problems: Sequence[str | UUID], *, title: str = "") -> ProblemSet:
        """Freeze a list of problem versions under a name."""
        return self._transport.send(endpoints.create_problem_set(slug, problems, title))

    def get(self, name: str | UUID) -> ProblemSet:
        """Return a problem set by id or name."""
        return self._transport.send(endpoints.problem_set(name))

    def list(self) -> Iterator[ProblemSet]:
        """Yield problem sets, newest first."""
        return self._transport.items(endpoints.problem_sets())


class Policies(_Group):
    """Policies and their versions."""

    def add(
        self, definition: Policy | Mapping[str, Any], *, api_key: str | None = None, check: bool = True
    ) -> PolicyVersion:
        """Register a policy; the same registration again is the same version, and other weights are another one.

        Args:
            definition: Who is asked, and how.
            api_key: Key of its endpoint: kept sealed, never returned; another one takes the place of the first.
            check: Whether its endpoint is looked at first: what it serves, and from which weights.
        """
        return self._transport.send(endpoints.add_policy(definition, api_key, check=check))

    def get(self, name: str | UUID) -> PolicyVersion:
        """Return a policy version by id, ``slug`` (the newest) or ``slug@version``."""
        return self._transport.send(endpoints.policy(name))

    def list(self, slug: str | None = None) -> Iterator[PolicyVersion]:
        """Yield policy versions, newest first; of one slug where it is given."""
        return self._transport.items(endpoints.policies(slug))

    def ping(self, name: str | UUID) -> dict[str, JsonValue]:
        """Ask a policy for one answer, to see that it can be asked."""
        return self._transport.send(endpoints.ping_policy(name))


class Runs(_Group):
    """Runs."""

    def create(
        self,
        problem: str | UUID,
        policy: PoliciesLike,
        *,
        budget: BudgetLike,
        mutator: PoliciesLike | None = None,
        name: str = "",
        tags: Iterable[str] = (),
        note: str = "",
        idempotency_key: str | None = None,
        **spec: Any,
    ) -> RunHandle:
        """Start a run.

        Args:
            problem: Id, ``slug`` (the newest version) or ``slug@version``.
            policy: The same for the policy that is asked; several as ``{name: weight, …}``.
            budget: What it may spend: a number of evaluations, or evaluations, tokens and seconds.
            mutator: Another policy for changing parents, or several, if there is one.
            name: What it is called, one line.
            tags: Words that it shares with other runs.
            note: What is to be known about it; like the name and the tags no part of its spec.
            idempotency_key: Whoever sends the same request with the same key again gets the same run; by default
                every call starts a run of its own.
            spec: Further fields of ``speciate.domain.run.RunSpec``: strategy, strategy_options, seed, lanes, …

        Raises:
            InvalidInputError: A value is not allowed.
            NotFoundError: The problem or a policy is unknown.
            ConflictError: The key was used for another request.
        """
        labels = run_labels(name, tags, note)
        call = endpoints.create_run(problem, policy, mutator, run_spec(budget, **spec), labels, idempotency_key)
        return RunHandle(self._transport, self._transport.send(call))

    def get(self, run_id: str | UUID) -> RunHandle:
        """Return a run."""
        return RunHandle(self._transport, self._transport.send(endpoints.run(run_id)))

    def list(
        self,
        *,
        problem: str | None = None,
        policy: str | None = None,
        state: RunState | str | None = None,
        tags: Iterable[str] = (),
        name: str | None = None,
    ) -> Iterator[RunHandle]:
        """Yield runs, newest first; those with all of the tags, and a text in their name."""
        call = endpoints.runs(problem=problem, policy=policy, state=state, tag=several(tags), name=name)
        for record in self._transport.items(call):
            yield RunHandle(self._transport, record)


class Candidates(_Group):
    """Candidates by id."""

    def get(self, candidate_id: str | UUID) -> CandidateDetail:
        """Return a candidate with its texts."""
        return self._transport.send(endpoints.candidate(candidate_id))

    def diff(self, candidate_id: str | UUID) -> dict[str, JsonValue]:
        """Return what a candidate changed in its first parent."""
        return self._transport.send(endpoints.diff(candidate_id))

    def lineage(self, candidate_id: str | UUID) -> tuple[CandidateRecord, ...]:
        """Return a candidate's ancestors."""
        return self._transport.send(endpoints.lineage(candidate_id))
