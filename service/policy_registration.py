"""Registering a policy, over REST and from a page: whose key it may use, whether its endpoint answers, what is kept.

Endpoints are asked in threads of their own: a slow one, or a slow name server, holds those that wait for policies, and
never those that answer requests.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace

from anyio import to_thread

from service.api.schemas import PolicySubmission
from service.dependencies import AppState
from service.principal import Principal
from speciate.domain.errors import FieldError, ForbiddenError, InvalidInputError
from speciate.domain.policy import Policy
from speciate.egress.network import AllowedNetworks
from speciate.egress.transport import check_url
from speciate.policies import build_client
from speciate.policies.kind import ClientContext
from speciate.ports.policy import IdentifyingClient, PolicyClient
from speciate.ports.records.policies import PolicyVersion
from speciate.storage.stores import Stores


@dataclass(frozen=True)
class PingResult:
    """A sign of life.

    Attributes:
        message: What was found, in one line.
        seconds: How long it took.
    """

    message: str
    seconds: float


async def register(
    body: PolicySubmission, app_state: AppState, stores: Stores, principal: Principal
) -> tuple[PolicyVersion, bool]:
    """Keep a policy as its endpoint serves it.

    Returns:
        The version, and whether it is a new one.

    Raises:
        ForbiddenError: It names a variable of the workers, and whoever asks is not the operator.
        InvalidInputError: Its client cannot use it, or its address may not be asked.
        UnavailableError: Its endpoint does not serve it, or there is no secret with which its key could be sealed.
    """
    await _allow(body.definition, app_state, principal)
    policy = await to_thread.run_sync(_checked, body, app_state, limiter=app_state.pings)
    return await to_thread.run_sync(_add, body, policy, stores)


async def try_out(body: PolicySubmission, app_state: AppState, principal: Principal) -> PingResult:
    """Look at the endpoint of a policy that is not kept; raises as ``register`` does."""
    await _allow(body.definition, app_state, principal)
    return await _signed(lambda: _ping(*_with_key(body, app_state)), app_state)


async def ping(policy: Policy, app_state: AppState) -> PingResult:
    """Look at the endpoint of a policy that is kept; raises ``UnavailableError`` when it cannot be used."""
    return await _signed(lambda: _ping(policy, _context(app_state)), app_state)


async def _allow(policy: Policy, app_state: AppState, principal: Principal) -> None:
    if (variable := policy.api_key_env) is not None and not principal.all_projects:
        # Its value is the operator's, and goes to whatever address the definition names.
        raise ForbiddenError(
            f"definition.api_key_env: the key in {variable} belongs to whoever runs the workers, and only the"
            " operator's token may have it sent to an endpoint.",
            remedy="Send a key of your own as 'api_key', or ask the operator to register the policy in your project.",
        )
    await to_thread.run_sync(_check_address, policy, app_state.settings.network, limiter=app_state.pings)


def _check_address(policy: Policy, network: AllowedNetworks) -> None:
    if policy.base_url is not None and (wrong := check_url(policy.base_url, network)) is not None:
        flaw = FieldError(wrong, where="definition.base_url")
        raise InvalidInputError(f"The policy is not valid: {flaw}", flaws=(flaw,))


def _checked(body: PolicySubmission, app_state: AppState) -> Policy:
    """Return the policy as its endpoint serves it; its client knows which options and which endpoint the kind needs."""
    policy, context = _with_key(body, app_state)
    with _opened(policy, context) as client:
        return client.identify() if body.check and isinstance(client, IdentifyingClient) else policy


def _add(body: PolicySubmission, policy: Policy, stores: Stores) -> tuple[PolicyVersion, bool]:
    version, new = stores.catalog.add_policy(policy)
    if body.api_key is not None and (kept := version.definition.api_key_id) is not None:
        # Cut off before this, the version has no key: sending the same again stores it.
        stores.policy_keys.store(kept, body.api_key.get_secret_value())
    return version, new


def _with_key(body: PolicySubmission, app_state: AppState) -> tuple[Policy, ClientContext]:
    policy, context = body.definition, _context(app_state)
    if (given := body.api_key) is not None:
        policy = policy.model_copy(update={"api_key_id": app_state.stores.policy_keys.new_id()})
        # Not stored yet: only what is registered has a key.
        context = replace(context, key_of=lambda _: given.get_secret_value())
    return policy, context


def _context(app_state: AppState) -> ClientContext:
    return ClientContext(app_state.settings.network, app_state.stores.policy_keys.open)


async def _signed(ask: Callable[[], str], app_state: AppState) -> PingResult:
    begun = time.monotonic()
    message = await to_thread.run_sync(ask, limiter=app_state.pings)
    return PingResult(message, time.monotonic() - begun)


def _ping(policy: Policy, context: ClientContext) -> str:
    with _opened(policy, context) as client:
        return client.ping()


@contextmanager
def _opened(policy: Policy, context: ClientContext) -> Iterator[PolicyClient]:
    client = build_client(policy, context)
    # Some hold connections, and then close them like a file.
    with client if isinstance(client, AbstractContextManager) else nullcontext():
        yield client
