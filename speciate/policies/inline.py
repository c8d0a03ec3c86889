"""Make policies of models and agents that were not registered: ``PROVIDER/NAME``, an address, or a command."""

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import urlsplit

from speciate.domain.errors import InvalidInputError
from speciate.domain.policy import Policy, Sampling
from speciate.domain.suggestions import did_you_mean
from speciate.domain.values import merged, slug_of
from speciate.egress.network import LOOPBACK, PRIVATE, AllowedNetworks
from speciate.policies.prices import price_of
from speciate.policies.providers import ANY_SERVER, PROVIDERS, Provider, environment_key, provider_at, provider_named
from speciate.prompts.text import printable
from speciate.schema.policies import PolicyVersion
from speciate.settings import load_settings

_FORM: Final = "Write PROVIDER/NAME, such as openai/gpt-5-mini, or an address, such as http://127.0.0.1:8000/v1#NAME."
_ADDRESS: Final = re.compile(r"https?://", re.IGNORECASE)
_MOST_SHOWN: Final = 10
_KNOWN_AGENTS: Final = {
    ("claude",): ("anthropic", "claude-opus-5", ("--output-format", "json")),
    ("codex", "exec"): ("openai", "", ("--json", "--skip-git-repo-check")),
    ("gemini",): ("gemini", "", ("--output-format", "json")),
    ("opencode", "run"): ("", "", ("--format", "json")),
}
"""Provider of known agents, the model at whose price dollars are reserved unless another one is named, and arguments
with which they report tokens (Claude Code also dollars) and work outside a git repository."""


class PolicyRegistry(Protocol):
    """``Client.policies``, as far as it is needed here."""

    def add(self, definition: Policy, *, api_key: str | None = None) -> PolicyVersion: ...
    def list(self, slug: str) -> Iterable[PolicyVersion]: ...


class _Source(NamedTuple):
    name: str  # of the preset, or the address
    preset: Provider
    base_url: str
    model: str  # empty to take the only one that is served


def inline_policy(
    model: str, max_tokens: int | None = None, temperature: float | None = None, *, budget: int | None = None
) -> Policy:
    """Return the policy of ``PROVIDER/NAME`` or ``http://HOST:PORT/v1#NAME``, or of a server's only model.

    ``max_tokens`` is the longest completion, by default that of the preset, at most half of what the only model reads,
    and an eighth of a run's ``budget`` of tokens: each request reserves it.
    """
    source = _source(model)
    name, longest = (source.model, None) if source.model else _only_model(source)
    limits = [limit for limit in (longest and longest // 2, budget and budget // 8) if limit]
    if max_tokens is None and limits and source.preset.max_tokens is not None:
        max_tokens = min(source.preset.max_tokens, *limits)
    sampling = {"max_tokens": max_tokens, "temperature": temperature}
    sampling = {name: value for name, value in sampling.items() if value is not None}
    fields = source.preset.policy_fields(sampling) | ({"sampling": sampling} if sampling else {})
    preset = next((key for key, each in PROVIDERS.items() if each is source.preset), "")
    if (listed := price_of(preset, name)) is not None:
        fields["price"] = listed.price.model_dump()
    return Policy.model_validate(merged(fields, {"slug": _slug(model), "base_url": source.base_url, "model": name}))


def agent_policy(command: str) -> Policy:
    """Return the policy of a command such as ``claude -p``; paths of files become absolute: it runs elsewhere."""
    from speciate.policies.command import split_command

    try:
        arguments = split_command(command)
    except ValueError as error:
        raise InvalidInputError(f"--agent: {error}.") from None
    slug, price = _slug(" ".join([Path(arguments[0]).name, *arguments[1:]])), None
    for known, (provider, default, added) in _KNOWN_AGENTS.items():
        if tuple(arguments[: len(known)]) == known:
            words = [word for each in arguments for word in each.split("=", 1)]
            named = [value for name, value in pairwise(words) if name in ("-m", "--model")]
            listed = price_of(provider, [default, *named][-1]) or price_of(provider, default)
            price = price if listed is None else listed.price
            arguments += [each for each in added if (each if each[0] == "-" else added[0]) not in arguments]
    arguments = [_absolute(each, is_program=not place) for place, each in enumerate(arguments)]
    return Policy(
        slug=slug,
        kind="command",
        model=Path(arguments[0]).name,
        sampling=Sampling(max_tokens=32_000),
        timeout_s=900.0,
        price=price,
        options={"command": shlex.join(arguments)},
    )


def register(
    registry: PolicyRegistry, models: Sequence[str], agents: Sequence[str] = (), **sampling: Any
) -> dict[str, float]:
    """Register models given as ``MODEL`` or ``MODEL=WEIGHT``, and agents; return the weights of the policies by name.

    A key is sealed with its policy. Without one in the environment the key of an equal earlier registration is used.
    ``sampling`` and errors as of ``inline_policy``.
    """
    weights: dict[str, float] = {}
    for text in models:
        model, weight = _weighted(text)
        name = _registered(registry, model, sampling).name
        if name in weights:
            raise InvalidInputError(f"--model {printable(model)} is repeated.")
        weights[name] = weight
    return weights | {registry.add(agent_policy(command)).name: 1.0 for command in agents}


def _registered(registry: PolicyRegistry, model: str, sampling: Mapping[str, Any]) -> PolicyVersion:
    policy, source = inline_policy(model, **sampling), _source(model)
    try:
        key = environment_key(source.preset, source.name)
    except InvalidInputError:
        for stored in registry.list(policy.slug):
            keyless = stored.definition.model_copy(update=dict.fromkeys(("api_key_id", "served", "checkpoint_digest")))
            if stored.definition.api_key_id is not None and keyless.digest == policy.digest:
                return stored
        raise
    return registry.add(policy, api_key=key)


def _weighted(text: str) -> tuple[str, float]:
    name, equals, weight = text.rpartition("=")
    if not equals or ("?" in name and "#" not in name):  # the query of an address
        return text, 1.0
    if not re.fullmatch(r"\d*\.?\d+", weight) or float(weight) == 0:
        raise InvalidInputError(f"--model {printable(text)}: expected MODEL or MODEL=WEIGHT, a positive number.")
    return name, float(weight)


def _source(model: str) -> _Source:
    if _ADDRESS.match(model):
        address, _, name = model.partition("#")
        parts = urlsplit(address)
        if parts.username is not None or parts.password is not None:
            raise InvalidInputError(
                "--model: the address holds a password, which others could read.",
                remedy=f"Put the key of the server into {ANY_SERVER.key_variable}.",
            )
        base_url = address if parts.path.strip("/") else f"{address.rstrip('/')}/v1"
        return _Source(base_url, provider_at(base_url) or ANY_SERVER, base_url, name)
    provider, slash, name = model.partition("/")
    if not slash and provider not in PROVIDERS:
        known = [name for name in PROVIDERS if price_of(name, provider) is not None]
        near = f"Did you mean {known[0]}/{provider}?" if known else did_you_mean(provider, PROVIDERS)
        raise InvalidInputError(f"--model {printable(model)}: the provider is missing.", remedy=near or _FORM)
    preset = provider_named(provider)
    return _Source(provider, preset, preset.base_url, name)


def _absolute(argument: str, *, is_program: bool) -> str:
    path = Path(argument)
    named = "/" in argument if is_program else not argument.startswith("-")
    return str(path.absolute()) if named and path.is_file() else argument


def _only_model(source: _Source) -> tuple[str, int | None]:
    """Return the name of a server's model and the most tokens that it reads, if reported."""
    from speciate.policies.http_endpoint import OTHER_SERVICE, HttpEndpoint, TransientError
    from speciate.policies.kind import ClientContext
    from speciate.policies.openai_options import OpenAICompatibleOptions
    from speciate.policies.openai_wire import MalformedResponseError, model_cards

    if source.preset.options.get("check") is False:
        raise InvalidInputError(f"--model {source.name}: the name of the model is missing.", remedy=_FORM)
    key = environment_key(source.preset, source.name)
    policy = Policy(slug=_slug(source.name), kind="openai_compatible", base_url=source.base_url)
    policy = policy.model_copy(update={"api_key_id": None if key is None else "environment"})
    network = AllowedNetworks(load_settings().allowed_networks or (LOOPBACK, PRIVATE))  # as of the local engine
    context = ClientContext(network, key_of=lambda _: key or "")
    endpoint = HttpEndpoint(policy, source.base_url, context, OpenAICompatibleOptions())
    try:
        models = model_cards(endpoint.check("GET", "models", None))
    except TransientError as error:
        raise endpoint.unavailable(str(error), remedy=error.remedy) from None
    except MalformedResponseError as error:
        raise endpoint.unavailable(endpoint.cleaned(str(error)), remedy=OTHER_SERVICE) from None
    finally:
        endpoint.close()
    if len(models) == 1:
        return models[0].id, models[0].max_model_len
    shown = printable(", ".join(card.id for card in models[:_MOST_SHOWN])) or "none"
    raise InvalidInputError(f"--model {source.name}: expected the name of one of its models: {shown}.", remedy=_FORM)


def _slug(text: str) -> str:
    return slug_of(_ADDRESS.sub("", text), "model")
