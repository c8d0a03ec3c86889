"""Sample the policies of a batch within the budget of tokens and dollars."""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from speciate.domain.charge import Charge
from speciate.domain.diagnosis import outage_message
from speciate.domain.errors import PolicyUnavailableError
from speciate.domain.policy import Policy, PolicyRole
from speciate.ports.interruption import interrupted
from speciate.ports.policy import IdentifyingClient, PolicyClient, SampleResult
from speciate.ports.work import Lease, WorkStore
from speciate.runs.prompting import PlannedRequest

_log = logging.getLogger(__name__)

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


@dataclass(frozen=True, slots=True)
class Sampled:
    planned: list[PlannedRequest]  # in the order of the plan, each with the policy that answered
    results: list[SampleResult]  # of each request
    outages: Mapping[str, str]  # digests of policies whose requests others answered, with a sentence on each


def sample(
    planned: Sequence[PlannedRequest],
    client_for: ClientFor,
    instead: Callable[[PlannedRequest], PlannedRequest | None],
    *,
    begins: bool,
) -> Sampled:
    """Send each policy all of its requests in one call; another policy answers those of an unavailable one.

    ``instead`` plans a request again, without the policies that it was called for before; what the budget does not hold
    is left out. ``begins`` is True at the start of a run and after a pause, when clients check again what their
    endpoints serve. Without another policy raises ``PolicyUnavailableError``, whose ``spent`` includes all answered
    requests.
    """
    plans, results, outages = dict(enumerate(planned)), dict[int, SampleResult](), dict[str, str]()
    lost, reasons = Charge(), list[str]()  # cost of unavailable policies, and why they are
    try:
        while waiting := [i for i in plans if i not in results]:
            policy = plans[waiting[0]].policy
            requests = {i: plans.pop(i) for i in waiting if plans[i].policy.digest == policy.digest}
            client = client_for(policy)
            try:
                if begins and isinstance(client, IdentifyingClient):
                    client.revalidate()
                answers = client.sample([plan.request for plan in requests.values()])
            except PolicyUnavailableError as error:
                others = None if interrupted() else _replaced(requests, error.spent.tokens, client_for, instead)
                if others is None or (not others and lost + error.spent != Charge()):
                    raise
                lost += error.spent
                plans |= others
                reasons.append(str(error))
                outages[policy.digest] = outage_message(policy.slug, reasons[-1])
                _log.warning(outages[policy.digest])
                continue
            plans |= requests
            results |= dict(zip(requests, answers, strict=True))
            for i, plan in requests.items():
                _check(plan, results[i])
    except PolicyUnavailableError as error:
        charges = [result.charge(plans[i].policy.price) for i, result in results.items()]
        unavailable = PolicyUnavailableError(" ".join([*reasons, str(error)]))
        unavailable.spent = sum(charges, lost + error.spent)
        raise unavailable from None
    if lost != Charge():
        i = next(i for i, plan in plans.items() if plan.selection.role is not PolicyRole.POLISH)
        results[i] = results[i].plus(lost, plans[i].policy.price)
    order = sorted(plans)
    return Sampled([plans[i] for i in order], [results[i] for i in order], outages)


def _replaced(
    planned: Mapping[int, PlannedRequest],
    lost_tokens: int,
    client_for: ClientFor,
    instead: Callable[[PlannedRequest], PlannedRequest | None],
) -> dict[int, PlannedRequest] | None:
    """Plan the requests of an unavailable policy for others, as far as the budget holds them; None without others."""
    others = {}
    for i, plan in planned.items():
        if (other := instead(plan)) is None:
            return None
        ceilings = [client_for(each.policy).token_ceiling(each.request) for each in (plan, other)]
        more = lost_tokens + max(0, ceilings[1] - ceilings[0])
        if not more or plan.request.reserve(more):
            lost_tokens = 0
            others[i] = replace(other, request=replace(other.request, reserve=plan.request.reserve))
    return others


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
