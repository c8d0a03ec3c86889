"""``speciate policies``: register policies and check their endpoints."""

from __future__ import annotations

import getpass
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from speciate.cli import output
from speciate.cli.common import Limit, client, command, command_group, drop_none, first_records, invalid_argument
from speciate.cli.model_options import add_options
from speciate.cli.visibility import Listed, add_visibility_commands, filter_value, hidden_fields, marked
from speciate.domain.errors import InvalidInputError, NotFoundError, PolicyUnavailableError
from speciate.domain.policy import ARGUMENTS, Policy
from speciate.domain.values import SLUG, merged
from speciate.domain.visibility import Visibility, visibility_of
from speciate.policies import KINDS
from speciate.policies.providers import PROVIDERS, environment_key, preset_fields, provider_named
from speciate.settings import load_settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from speciate.schema.policies import PolicyVersion

app = command_group()

_DIGEST_SOURCES: Final = {
    "endpoint": "reported by the endpoint",
    "files": "computed from the files",
    "declared": "as declared, not verified",
}

PolicyName = Annotated[str, typer.Argument(metavar="POLICY", help="Name, name@version or id.")]


@command(
    app,
    "add",
    "speciate policies add gpt --provider openai --model gpt-5.4 --option reasoning_effort=low",
    "speciate policies add qwen --kind openai_compatible --base-url http://127.0.0.1:8000/v1 --model Qwen/Qwen3-8B",
    "speciate policies add my-vpo --checkpoint ./maze-vpo-0 --base-url http://127.0.0.1:8008/v1",
    "speciate policies add my-lora --kind openai_compatible --base-url http://127.0.0.1:8000/v1 --base qwen"
    " --adapter /adapters/my-lora",
    "speciate policies add --bundled",
    "speciate policies add hosted --kind openai_compatible --base-url https://llm.example/v1 --model m"
    " --api-key-file key.txt",
)
@add_options(Policy, without=ARGUMENTS)
def add(
    *,
    slug: Annotated[str | None, typer.Argument(metavar="NAME", help="Name in lower case, with hyphens.")] = None,
    kind: Annotated[str | None, typer.Option(help=f"Policy kind: {', '.join(KINDS)}.")] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Output directory of `speciate train`; its manifest provides the other values.")
    ] = None,
    provider: Annotated[
        str | None,
        typer.Option(help="Preset of address, key, price and request fields; see `speciate policies providers`."),
    ] = None,
    bundled: Annotated[bool, typer.Option("--bundled", help="Register the bundled checkpoints of two tasks.")] = False,
    api_key_file: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="File with the API key of the endpoint, stored encrypted; - prompts or reads a pipe."
        ),
    ] = None,
    adapter: Annotated[
        str | None,
        typer.Option(
            metavar="PATH|NAME",
            help="LoRA adapter: its served name, or its directory on the server, which then loads it.",
        ),
    ] = None,
    base: Annotated[str | None, typer.Option(metavar="NAME", help="Base model of the adapter at the endpoint.")] = None,
    options: dict[str, Any],
    unchecked: Annotated[
        bool, typer.Option("--unchecked", help="Skip the check that the endpoint serves the model.")
    ] = False,
) -> None:
    """Register a policy.

    An unchanged registration keeps its version; a changed one becomes the next version, as do different weights if the
    endpoint reveals them.
    """
    if slug is not None and not re.fullmatch(SLUG, slug):
        raise invalid_argument("NAME", f"is {slug!r}: expected lower-case words joined by hyphens, such as small-model")
    start = _noted_preset(provider, options.get("model"), options.get("sampling", {}))
    base_url = options.get("base_url")
    manifest = _from_checkpoint(slug, start.get("kind", kind), checkpoint, base_url or start.get("base_url"))
    start = merged(merged(start, manifest), _from_adapter(slug, adapter, options.get("checkpoint_digest")))
    prices = (start.get("price") or {}) | options.get("price", {})
    if prices and (missing := {"input", "output"} - prices.keys()):
        raise InvalidInputError(
            f"--price {missing.pop()}=… is missing: the other would count as free.", remedy="Write 0 for a free one."
        )
    registration = options | drop_none(slug=slug, kind=kind, price=prices or None)
    if base is not None:
        registration["options"] = {**registration.get("options", {}), "base_model": base}
    definitions = ([merged(start, registration)] if slug else []) + (_bundled() if bundled else [])
    if (api_key_file or provider) is not None and len(definitions) != 1:
        raise InvalidInputError("--api-key-file and --provider apply to one policy.", remedy="Omit --bundled.")
    if slug is None and (options or kind or checkpoint or adapter or base):
        raise InvalidInputError("these options describe a policy, whose NAME is missing.", remedy="Name it.")
    if not definitions:
        raise InvalidInputError("no policy is given.", remedy="Name a policy, or pass --bundled.")
    api_key = None if api_key_file is None else _read_secret(api_key_file)
    if api_key is None and "api_key_env" not in options:
        api_key = _key_from_environment(provider, base_url)
    service = client()
    for definition in definitions:
        with suppress(NotFoundError):  # --bundled does not restore what a user archived or deleted
            name = definition["slug"]
            if name != slug and visibility_of(service.policies.get(name)) is not Visibility.VISIBLE:
                output.print_note(f"{name} is archived or deleted: `speciate policies restore {name}`.")
                continue
        version = service.policies.add(definition, api_key=api_key, check=not unchecked)
        output.print_result(version, f"{version.name}  {version.definition.kind}{_weights(version.definition)}")


def _noted_preset(name: str | None, model: str | None, sampling: Mapping[str, Any]) -> dict[str, Any]:
    """Return the policy fields of a provider's preset; note the price of the model if a table lists it."""
    if name is None:
        return {}
    fields, listed = preset_fields(name, model, sampling)
    if listed is not None:
        output.print_note(
            f"Price of {model}: ${listed.price.input:g} for prompts and ${listed.price.output:g} for completions per"
            f" million tokens ({listed.origin}); --price sets another."
        )
    return fields


def contact(answer: Mapping[str, Any]) -> str:
    checked = not str(answer.get("message")).endswith("is not checked")
    return "responds" if checked else "was not contacted: its option check is false"


def _key_from_environment(name: str | None, base_url: str | None) -> str | None:
    """Return the key that the user keeps in the provider's variable.

    A key goes only to its provider: with another address it has to be given explicitly.
    """
    provider = None if name is None else provider_named(name)
    if provider is None or name is None or (provider.hosted and base_url is not None):
        return None
    if key := environment_key(provider, name, ", or pass --api-key-file FILE"):
        output.print_note(f"The key in {provider.key_variable} is stored encrypted in the service.")
    return key


def _bundled() -> list[dict[str, Any]]:
    from speciate.policies.bundled import bundled_policies

    return [policy.model_dump(mode="json") for policy in bundled_policies()]


def _read_secret(source: str) -> str:
    """Read a secret from a file, or for ``-`` from a hidden prompt or a pipe. Arguments would show in process lists."""
    try:
        if source != "-":
            secret = Path(source).read_text().strip()
        else:
            secret = (getpass.getpass("API key: ") if sys.stdin.isatty() else sys.stdin.read()).strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a text file"
        raise InvalidInputError(f"{source} cannot be read: {reason}.") from None
    if not secret:
        raise InvalidInputError("API key: the input is empty.")
    return secret


def _weights(policy: Policy) -> str:
    """Return the digest of the served weights and its source; empty if it is unknown."""
    if policy.served is None or policy.served.digest_from is None:
        return ""
    return f"  weights {(policy.checkpoint_digest or '')[:12]} ({_DIGEST_SOURCES[policy.served.digest_from.value]})"


def _from_adapter(slug: str | None, adapter: str | None, digest: str | None) -> dict[str, Any]:
    if slug is None or adapter is None:
        return {}
    from speciate.policies.endpoint_check import adapter_name
    from speciate.policies.manifest import weights_digest

    if "/" not in adapter and not Path(adapter).is_dir():
        return {"model": adapter}
    # The path is on the server. If it also exists on this machine, the digest can be computed.
    path = Path(adapter).absolute() if Path(adapter).is_dir() else Path(adapter)
    with suppress(NotFoundError):
        digest = digest or weights_digest(path)
    digest_field = {} if digest is None else {"checkpoint_digest": digest}
    return {"model": adapter_name(slug, digest), "options": {"adapter_path": str(path)}, **digest_field}


def _from_checkpoint(
    slug: str | None, kind: str | None, checkpoint: Path | None, base_url: str | None
) -> dict[str, Any]:
    """Return policy fields from the manifest of a checkpoint; options override them."""
    if slug is None:
        return {}
    if checkpoint is None:
        if kind is None:
            raise InvalidInputError(
                f"policy {slug!r} has no kind.", remedy="Set --kind, --provider or --checkpoint DIR."
            )
        return {}
    from speciate.policies.manifest import policy_of

    return policy_of(checkpoint, slug, base_url=base_url).model_dump(mode="json")


@command(app, "providers", "speciate policies providers")
def providers() -> None:
    """List the presets of --provider."""
    output.print_records(
        [{"name": name, **vars(provider)} for name, provider in PROVIDERS.items()],
        ("provider", "endpoint", "key", "quirks"),
        lambda row: (row["name"], row["base_url"], row["key_variable"], row["summary"]),
    )


@command(app, "list", "speciate policies list", "speciate policies list qwen --json")
def list_(
    slug: Annotated[str | None, typer.Argument(help="Only the versions of this policy.")] = None,
    visibility: Listed = Visibility.VISIBLE,
    limit: Limit = 50,
) -> None:
    """List policy versions, newest first. Of versions that a run or campaign learned, only the newest is listed.

    With a name or with --json, all versions are listed.
    """
    versions = client().policies.list(slug, visibility=visibility)
    records = first_records(versions if slug or output.wants_json() else _newest_learned(versions), limit)
    output.print_records(
        records,
        ("policy", "latest result", "on", "kind", "model", "endpoint", "training", "registered"),
        lambda p: (marked(p.name, p), output.format_result(p.result), p.result and p.result.problem,
                   p.definition.kind, p.definition.model, p.definition.base_url, p.definition.training_method,
                   output.format_time(p.created_at)),
        empty=output.empty_message(
            "policies", "speciate policies add NAME --kind KIND", name=slug, visibility=filter_value(visibility)
        ),
    )  # fmt: skip


def _newest_learned(versions: Iterable[PolicyVersion]) -> Iterator[PolicyVersion]:
    """Leave out learned versions that a newer one of the same name precedes."""
    seen: set[str] = set()
    for version in versions:
        slug = version.definition.slug
        if version.definition.lineage is None or slug not in seen:
            yield version
        seen.add(slug)


@command(app, "show", "speciate policies show qwen", "speciate policies show qwen@2 --json")
def show(name: PolicyName) -> None:
    """Show a policy version."""
    version = client().policies.get(name)
    output.exit_with_json(version)
    values = version.definition.model_dump(mode="json", exclude={"slug", "sampling", "options", "served", "probe"})
    served = {} if version.definition.served is None else version.definition.served.model_dump(mode="json")
    more = {**served, **version.definition.sampling.model_dump(mode="json"), **version.definition.options}
    head = {"policy": version.name, "id": version.id, "digest": version.digest}
    output.print_fields(*head.items(), *values.items(), *more.items(), *hidden_fields(version))


@command(app, "export", "speciate policies export maze-base-cea406888ef0@3 ./checkpoint", has_json=False)
def export(
    name: PolicyName,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="New folder for the checkpoint.")],
    optimizer: Annotated[
        bool, typer.Option("--optimizer", help="Include the state of the optimizer, to continue the training.")
    ] = False,
) -> None:
    """Copy the checkpoint of a version that a run learned: safetensors or a PEFT adapter, with its manifest.

    Run it on the machine of the learn worker. `speciate serve DIR` and vLLM serve the folder.
    """
    from speciate.policies.export import export_checkpoint

    export_checkpoint(client().policies.get(name).definition, load_settings().checkpoints, folder, optimizer=optimizer)
    output.print_line(str(folder))


@command(app, "ping", "speciate policies ping qwen")
def ping(name: PolicyName) -> None:
    """Check the endpoint of a policy: health, model or adapter, and served weights."""
    answer = client().policies.ping(name)
    output.exit_with_json(answer)
    output.print_line(f"{name} {contact(answer)}.")
    output.print_fields(*answer.items())


@command(
    app,
    "verify",
    "speciate policies verify qwen",
    "speciate policies verify http://127.0.0.1:8000/v1 --checkpoint ./maze-vpo-0",
)
def verify(
    endpoint: Annotated[str, typer.Argument(metavar="URL|POLICY", help="Address of an endpoint, or a policy.")],
    checkpoint: Annotated[
        Path | None, typer.Option(help="Output directory of `speciate train`, to compare an address with.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Model or adapter name at the address.", show_default="the directory's name")
    ] = None,
    api_key_env: Annotated[str | None, typer.Option(help="Variable with the key of the address.")] = None,
) -> None:
    """Verify by log-probabilities that an endpoint samples from the trained weights.

    The trainer stores how the trained weights and their base continue a few prompts. An address needs no service.
    """
    if not endpoint.startswith(("http://", "https://")):
        if checkpoint or model or api_key_env:
            raise InvalidInputError("--checkpoint, --model and --api-key-env are for an address.", remedy="Omit them.")
        _require_probe(client().policies.get(endpoint).definition, endpoint)
        answer = client().policies.ping(endpoint)
        verdict, message = answer.get("verdict"), answer["message"]
    else:
        if checkpoint is None:
            raise InvalidInputError("an address needs the directory to compare with.", remedy="Pass --checkpoint DIR.")
        from speciate.policies.manifest import policy_of
        from speciate.policies.openai_compatible import OpenAICompatible

        policy = policy_of(checkpoint, "verified", base_url=endpoint)
        _require_probe(policy, str(checkpoint))
        changes = drop_none(slug=str(checkpoint), model=model, api_key_env=api_key_env)
        with OpenAICompatible(policy.model_copy(update=changes)) as sampled:
            message, verdict = sampled.ping(), sampled.verdict
        answer = {"endpoint": endpoint, "verdict": verdict}
    if verdict is None:
        raise PolicyUnavailableError(f"nothing is verified: {message}.")
    output.print_result(answer, f"{message}.")
    if verdict != "ok":
        raise typer.Exit(1)


def _require_probe(policy: Policy, where: str) -> None:
    if policy.probe is None:
        raise InvalidInputError(
            f"{where} stores no log-probabilities to compare with.",
            remedy="`speciate train` stores them in the manifest; register the policy with --checkpoint DIR.",
        )


add_visibility_commands(app, "policies", "policy versions, or all versions of a name", "qwen@2", "{0.name}")
