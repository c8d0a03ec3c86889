"""Register policies: check permissions and the endpoint, then store the policy and its API key.

Endpoints are contacted in separate threads, so that slow endpoints and name servers do not delay other requests.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace

from anyio import to_thread

from service.api.schemas import PolicySubmission
from service.dependencies import AppState
from service.principal import Principal
from speciate.domain.errors import ForbiddenError, invalid_field
from speciate.domain.policy import Policy
from speciate.egress.transport import check_url
from speciate.policies import build_client
from speciate.policies.kind import ClientContext
from speciate.ports.policy import IdentifyingClient, PolicyClient
from speciate.schema.policies import PolicyVersion
from speciate.storage.stores import Stores


@dataclass(frozen=True)
class PingResult:
    message: str
    verdict: str | None
    seconds: float


async def register(
    body: PolicySubmission, app_state: AppState, stores: Stores, principal: Principal
) -> tuple[PolicyVersion, bool]:
    """Store a policy as its endpoint serves it; return the version, and True if it is new.

    Raises:
        ForbiddenError: The policy names an environment variable of the workers, and the caller is not the operator.
        InvalidInputError: The policy is not valid, or egress rules forbid its URL.
        UnavailableError: The endpoint does not serve the policy, or no secret is set to encrypt its key.
    """
    if body.definition.lineage is not None:
        message = "runs that learn set it: expected a definition without it"
        raise invalid_field("The policy", "definition.lineage", message)
    await _allow(body.definition, app_state, principal)
    policy = await to_thread.run_sync(_checked, body, app_state, limiter=app_state.pings)
    return await to_thread.run_sync(_add, body, policy, stores)


async def try_out(body: PolicySubmission, app_state: AppState, principal: Principal) -> PingResult:
    """Check the endpoint of a policy without storing it. Raises as ``register`` does."""
    await _allow(body.definition, app_state, principal)
    return await _timed(lambda: _ping(*_with_key(body, app_state)), app_state)


async def ping(policy: Policy, app_state: AppState) -> PingResult:
    """Check the endpoint of a stored policy. Raises ``UnavailableError`` if it does not work."""
    return await _timed(lambda: _ping(policy, _context(app_state)), app_state)


async def _allow(policy: Policy, app_state: AppState, principal: Principal) -> None:
    if (variable := policy.api_key_env) is not None and not principal.all_projects:
        # The policy would send a key of the operator to an arbitrary URL.
        raise ForbiddenError(
            f"definition.api_key_env: {variable} holds a key of the operator. Only the operator token may send it to an"
            " endpoint.",
            remedy="Send your own key as 'api_key', or ask the operator to register the policy in your project.",
        )
    if policy.base_url is not None:
        network = app_state.settings.network
        wrong = await to_thread.run_sync(check_url, policy.base_url, network, limiter=app_state.pings)
        if wrong is not None:
            raise invalid_field("The policy", "definition.base_url", wrong)


def _checked(body: PolicySubmission, app_state: AppState) -> Policy:
    """Return the policy as its endpoint serves it. Its client validates the options."""
    policy, context = _with_key(body, app_state)
    with _opened(policy, context) as client:
        return client.identify() if body.check and isinstance(client, IdentifyingClient) else policy


def _add(body: PolicySubmission, policy: Policy, stores: Stores) -> tuple[PolicyVersion, bool]:
    version, new = stores.catalog.add_policy(policy)
    if body.api_key is not None and (key_id := version.definition.api_key_id) is not None:
        # If the process stops before this line, the version has no key. Repeating the request stores it.
        stores.policy_keys.store(key_id, body.api_key.get_secret_value())
    return version, new


def _with_key(body: PolicySubmission, app_state: AppState) -> tuple[Policy, ClientContext]:
    policy, context = body.definition, _context(app_state)
    if (key := body.api_key) is not None:
        policy = policy.model_copy(update={"api_key_id": app_state.stores.policy_keys.new_id()})
        # The key is stored only after registration.
        context = replace(context, key_of=lambda _: key.get_secret_value())
    return policy, context


def _context(app_state: AppState) -> ClientContext:
    return ClientContext.of(app_state.settings, app_state.stores.policy_keys.open)


async def _timed(ask: Callable[[], tuple[str, str | None]], app_state: AppState) -> PingResult:
    started = time.monotonic()
    answer = await to_thread.run_sync(ask, limiter=app_state.pings)
    return PingResult(*answer, time.monotonic() - started)


def _ping(policy: Policy, context: ClientContext) -> tuple[str, str | None]:
    from speciate.policies.openai_compatible import OpenAICompatible

    with _opened(policy, context) as client:
        return client.ping(), client.verdict if isinstance(client, OpenAICompatible) else None


@contextmanager
def _opened(policy: Policy, context: ClientContext) -> Iterator[PolicyClient]:
    client = build_client(policy, context)
    # Clients that hold connections are context managers.
    with client if isinstance(client, AbstractContextManager) else nullcontext():
        yield client
