"""Sample the policies of a batch within the budget of tokens and dollars."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from speciate.domain.errors import PolicyUnavailableError
from speciate.domain.policy import Policy, PolicyRole
from speciate.ports.policy import IdentifyingClient, PolicyClient, SampleResult
from speciate.ports.work import Lease, WorkStore
from speciate.runs.prompting import PlannedRequest

ClientFor = Callable[[Policy], PolicyClient]
"""Returns the client of a policy."""


def afford(
    planned: list[PlannedRequest], lease: Lease, work: WorkStore, client_for: ClientFor
) -> list[PlannedRequest] | None:
    """Reserve tokens, and shrink the plan from its end until the budget holds it; None if the lease was lost."""
    while planned:
        ceiling = sum(client_for(plan.policy).token_ceiling(plan.request) for plan in planned)
        budget, polishes = work.context(lease.run_id).spec.budget, planned[0].selection.role is PolicyRole.POLISH
        # Steps of the polisher are free, and requests that cost tokens follow them.
        if ceiling == 0 and not polishes and budget.evaluations is None and budget.seconds is None:
            raise PolicyUnavailableError(
                f"policy {planned[0].policy.slug!r} uses no tokens, so its budget never ends the run.",
                remedy="Set a budget of evaluations or seconds.",
            )
        agent_answers = sum(plan.request.n for plan in planned if plan.policy.bills_afterwards)
        reserve = partial(work.reserve_tokens, lease, agent_answers=agent_answers)
        granted = reserve(ceiling)
        if granted is None:
            return None
        if granted:
            extend = _Reservation(reserve, ceiling).extend
            return [replace(plan, request=replace(plan.request, reserve=extend)) for plan in planned]
        *head, last = planned
        smaller = replace(last, request=replace(last.request, n=last.request.n // 2))
        planned = [*head, smaller] if smaller.request.n else head
    return []


class _Reservation:
    """The tokens that a unit has reserved. Attempts after the first extend it, from the threads of a client."""

    def __init__(self, reserve: Callable[[int], bool | None], tokens: int) -> None:
        self._reserve, self._tokens, self._lock = reserve, tokens, threading.Lock()

    def extend(self, tokens: int) -> bool:
        """Reserve further tokens; False if the budget does not hold them or the lease is lost."""
        with self._lock:
            granted = bool(self._reserve(self._tokens + tokens))
            self._tokens += tokens if granted else 0
            return granted


def sample(planned: Sequence[PlannedRequest], client_for: ClientFor, *, begins: bool) -> list[SampleResult]:
    """Send each policy all of its requests in one call; return the results in the order of the plan.

    ``begins`` is True at the start of a run, when clients check again which weights their endpoints serve. In a
    ``PolicyUnavailableError``, ``spent`` includes all answered requests.
    """
    results: dict[int, SampleResult] = {}
    try:
        for digest in dict.fromkeys(plan.policy.digest for plan in planned):
            requests = {i: plan for i, plan in enumerate(planned) if plan.policy.digest == digest}
            client = client_for(next(iter(requests.values())).policy)
            if begins and isinstance(client, IdentifyingClient):
                client.revalidate()
            _sample_one(client, requests, results)
    except PolicyUnavailableError as error:
        for index, result in results.items():
            error.spent += result.charge(planned[index].policy.price)
        raise
    return [result for _, result in sorted(results.items())]


def _sample_one(client: PolicyClient, planned: Mapping[int, PlannedRequest], results: dict[int, SampleResult]) -> None:
    """Sample one policy; add the results before their check, so that the caller knows what was spent on an error."""
    answers = client.sample([plan.request for plan in planned.values()])
    results |= dict(zip(planned, answers, strict=True))
    for i, plan in planned.items():
        _check(plan, results[i])


def _check(planned: PlannedRequest, result: SampleResult) -> None:
    if not result.completions:
        raise PolicyUnavailableError(f"policy {planned.policy.slug!r} returned no completion.")
    if len(result.completions) > planned.request.n:
        raise PolicyUnavailableError(
            f"policy {planned.policy.slug!r} returned {len(result.completions)} completions to a request for"
            f" {planned.request.n}."
        )
    answered = [completion for completion in result.completions if completion.has_answer]
    if planned.request.keep_tokens and any(c.tokens and c.text and not c.token_ids for c in answered):
        raise PolicyUnavailableError(
            f"policy {planned.policy.slug!r} reports no token ids and log-probabilities, which this run keeps.",
            remedy="Serve it with vLLM or `speciate serve`, or start the run without keep_tokens and learning.",
        )
