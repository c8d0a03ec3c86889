"""Explain a refused request: find the field that the endpoint names, and the option that fixes it."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, get_args

from speciate.domain.policy import Policy
from speciate.policies.numbers import read_json
from speciate.policies.openai_wire import error_message
from speciate.policies.providers import ANY_SERVER, provider_at
from speciate.policies.request_fields import RequestField

_INSTEAD: Final = re.compile(r"[Uu]se [`'\"]([A-Za-z_]\w{0,60})[`'\"]")
_MOST_READ: Final = 20_000
_SAMPLED: Final = ("temperature", "top_p")
_CONTINUED: Final = ("add_generation_prompt", "continue_final_message")
_PLAIN: Final = frozenset({"n", "seed", "stop", "stream"})
"""Fields that are words, and so are named only where a text marks them as a field."""


def _words(*alternatives: str) -> re.Pattern[str]:
    return re.compile("|".join(alternatives), re.IGNORECASE)


_FILTERED: Final = _words(
    r"content[_ ](?:filter|policy|management|moderation|exists risk)",
    r"responsible ?ai",
    r"data_inspection_failed",
    r"inappropriate",
    r"invalid_prompt|flagged|moderation",
    r"\bsafety\b|prohibited[_ ]content|recitation|block_?reason|(?:prompt|content|request|response) .{0,30}blocked",
    r"usage polic|violat\w+ .{0,40}polic",
    r"sensitive (?:content|words?|information)",
)
_TOO_LONG: Final = _words(
    r"context[_ ](?:length|window|size|limit)(?!_?`)",
    r"maximum context|exceeds? .{0,20}context|context .{0,20}(?:exceed|overflow)",
    r"reduce the length|reduce your (?:prompt|message)",
    r"(?:prompt|input|request|messages?|conversation) (?:\w+ )?(?:is|are|was|too) (?:too )?(?:long|large|big)\b",
    r"prompt contains \d+ tokens|the prompt has \d+ tokens|this model reads \d",
    r"input (?:token count|tokens?|length)|range of input",
    r"too many (?:input |prompt )?tokens|tokens_limit_reached|string_above_max_length|string too long",
    r"request (?:entity |body )?too large|payload too large|tokens? limit|total text bytes|contextwindowexceeded",
    r"(?:less|fewer) than \d+ tokens|exceeds? (?:the )?max\w* \w+ tokens",
)
_STREAM: Final = _words(
    r"\bstream\w*[`'\"]? ?(?:=+|must be|to be|to|is) ?(?:set to )?[`'\"]?(?:true|required|enabled)",
    r"only supports? (?:\w+ )?stream|must (?:be|have|use|set|enable) (?:\w+ )?stream",
    r"non-?[_ ]?stream\w*|without stream|streaming is (?:strongly )?(?:required|recommended)",
    r"(?:enable|requires?) (?:the )?stream",
)
_SYSTEM: Final = _words(
    r"\bsystem[`'\"]? (?:role|messages?|prompts?|instructions?).{0,40}(?:\bno[tn]?\b|n't\b|unsupported|invalid|cannot)",
    r"(?:not support|unsupported|unknown|invalid|unexpected).{0,40}\brole.{0,20}\bsystem",
    r"\brole.{0,60}(?:not support|unsupported).{0,30}\bsystem",
    r"does ?n[o']t support .{0,20}(?:system|developer)|(?:developer|system) instruction is not",
    r"only .{0,20}user.{0,20}(?:assistant|model).{0,20}roles?|(?:roles must|requests) alternate",
    r"role.{0,30}(?:must|should) be .{0,20}(?:user|assistant).{0,20}(?:user|assistant)",
)
_SINGLE: Final = _words(
    r"only one (?:completion|choice|candidate|response|generation)",
    r"(?:multiple|several) (?:completions|choices|candidates|generations|outputs|responses).{0,60}(?:not|unsupported)",
    r"candidate_?count|best_of",
    r"\bn ?(?:=|==|>|<=|!=) ?\d|\bn (?:is|must|should|can)\b|parameter n\b",
)
_LIMIT: Final = _words(r"max[ _](?:completion_|new_|output_)?tokens?|maxOutputTokens|num_predict")
_LIMIT_RULE: Final = _words(
    r"max[ _]?(?:\w+_)?tokens\b.{0,30}\b(?:must be|should be|cannot be|too large|range)"
    r"(?!.*\d input tokens)"  # vLLM: too large beside this prompt
)
_LIMIT_EXCEEDED: Final = _words(
    r"at most|maximum|too (?:large|high|big|many)|exceed|(?:less|greater|larger) than|<=|>|\brange\b|between|up to"
)
_MODEL: Final = _words(
    r"model.{0,80}(?:does not exist|not exist|not found|not available|no longer|not a valid|decommissioned|not served)",
    r"(?:invalid|unknown|unsupported|no such) model|not a valid model|model_not_found|unable to access model",
    r"deploymentnotfound|no models? loaded|failed to load model",
)
_TEMPLATE: Final = _words(r"(?:provide|set|has no|without a|missing) .{0,20}chat[ _]template")
_THINKING: Final = _words(r"not support (?:thinking|reasoning)")
_KEY: Final = _words(r"api[ _-]?key|credentials|unauthorized|authentication", r"user location is not supported")
_CREDIT: Final = _words(
    r"insufficient[_ ](?:quota|balance|credit|funds)|credit balance|exceeded your current quota",
    r"out of credit|no credits|payment required|arrear|overdue|(?<!/)billing|spend(?:ing)?[_ ]limit",
    r"blocked_api_access|account is not active",
)
_FILTER_REMEDY: Final = (
    "The provider's filter refused the prompt: change the words in problem, templates or seed program that it objects"
    " to, or use another model."
)
CREDIT_REMEDY: Final = "Add credit at the provider, then resume the run."


@dataclass(frozen=True, slots=True)
class Refusal:
    remedy: str
    of_prompt: bool = False
    """True if another prompt may be accepted; False if every request of the policy will be refused."""


def explain_refusal(body: bytes, payload: Mapping[str, Any] | None, policy: Policy) -> Refusal | None:
    """Return why an endpoint refused a request and what to do; None if its words are not understood."""
    stated = [*_stated(read_json(body[: 4 * _MOST_READ]))]
    message = error_message(body)[:_MOST_READ]
    text = " ".join([message, *stated])
    if _FILTERED.search(text):
        return Refusal(_FILTER_REMEDY, of_prompt=True)
    for pattern, remedy in _others(payload or {}, policy):
        if pattern.search(text):
            return Refusal(remedy)
    if _TOO_LONG.search(text):
        return Refusal(
            f"{_lower(policy)} Or shorten the prompts with the policy's --prompt-tokens, a limit in bytes (now"
            f" {policy.prompt_tokens}), or serve the model with a longer context.",
            of_prompt=True,
        )
    renamed = {name: field for field, name in _fields(policy).items() if isinstance(name, str)}
    sent = [name for name in payload or {} if name not in ("model", "messages", "prompt", "stream")]
    sent += [name for name in renamed if "." in name]
    name = _named(stated, message, sent)
    if name is None and _LIMIT.search(message):
        name = str(_fields(policy).get("max_tokens", "max_tokens"))
    if name is None:
        # A gateway may refuse a field that it adds itself.
        name = _named(stated, message, [field for field in get_args(RequestField) if field not in sent])
    return None if name is None else Refusal(_remedy(renamed.get(name, name), name, message, policy))


def _others(payload: Mapping[str, Any], policy: Policy) -> Iterator[tuple[re.Pattern[str], str]]:
    if not payload.get("stream"):
        yield _STREAM, f"The endpoint only streams. {_again(policy, '--option', 'stream=true')}"
    if any(message.get("role") == "system" for message in payload.get("messages", ())):
        yield _SYSTEM, f"The model takes no system message. {_again(policy, '--option', 'system_role=user')}"
    yield _SINGLE, _with_fields(policy, {"n": None}, "to send one request for each completion")
    yield _LIMIT_RULE, _lower(policy)
    yield _CREDIT, CREDIT_REMEDY
    yield _MODEL, "Correct the policy's model: `speciate policies ping` lists what the endpoint serves."
    completion = _again(policy, "--prompt-format", "completion")
    yield _TEMPLATE, f"Give the server a chat template, or let the model complete texts. {completion}"
    yield _THINKING, _remedy("reasoning_effort", "reasoning_effort", "", policy)
    yield _KEY, f"{key_remedy(policy)} Check, too, what its account may use."


def _lower(policy: Policy) -> str:
    limit = policy.sampling.max_tokens
    return f"Lower --max-tokens of `speciate evolve`, or --sampling max_tokens=… of the policy (it is {limit})."


def _remedy(field: str, name: str, message: str, policy: Policy) -> str:
    """Return the remedy for a field of the protocol that was sent under a name."""
    instead = _INSTEAD.search(message)
    if field == "max_tokens" and instead is not None and instead[1] != name:
        return _with_fields(policy, {field: instead[1]}, f"to send {name} as {instead[1]}")
    if field == "max_tokens":
        return _lower(policy) if _LIMIT_EXCEEDED.search(message) else "Rename max_tokens with the option fields."
    if field == "n":
        return _with_fields(policy, {"n": None}, "to send one request for each completion")
    if field == "logprobs":
        return _again(policy, "--sampling", "logprobs=false")
    if field == "reasoning_effort" and "reasoning_effort" in policy.options:
        return "Register the policy again without the option reasoning_effort, or with another value, to omit it."
    if field in _SAMPLED:
        return _with_fields(policy, {field: None}, f"to omit {field}, or change --sampling {field}=…")
    if field in _CONTINUED:
        return f"The endpoint does not continue a reply. {_again(policy, '--prompt-style', 'compact')}"
    if field in get_args(RequestField):
        return _with_fields(policy, {field: None}, f"to omit {field}")
    return f"Remove or correct {name} in the policy's options."


def _with_fields(policy: Policy, change: Mapping[str, str | None], purpose: str) -> str:
    fields = json.dumps({**_fields(policy), **change})
    return _again(policy, "--option", f"fields={fields}", f" {purpose}")


def _again(policy: Policy, flag: str, change: str, purpose: str = "") -> str:
    return f"Run `{policy.command_with(flag, change)}`{purpose}, and pass --policy {policy.slug} in place of --model."


def key_remedy(policy: Policy) -> str:
    if policy.api_key_env:
        return f"Check the key in {policy.api_key_env}."
    variable = (provider_at(policy.base_url or "") or ANY_SERVER).key_variable
    return f"Put the right key into {variable} for `speciate evolve`, or register the policy again with --api-key-file."


def _fields(policy: Policy) -> dict[str, Any]:
    fields = policy.options.get("fields")
    return dict(fields) if isinstance(fields, dict) else {}


def _named(stated: Sequence[str], message: str, names: Sequence[str]) -> str | None:
    """Return which of the fields an error names: in a place for it, else first in its text."""
    if (field := next((name for name in stated if name in names), None)) is not None:
        return field
    places = {name: place for name in names if (place := _place(name, message)) is not None}
    if not places:  # a word with an underscore is a field wherever it stands
        places = {name: message.find(name) for name in names if name not in _PLAIN and name in message}
    if places.keys() >= set(_SAMPLED):  # Claude takes one of the two: keep the temperature
        return "top_p"
    return min(places, key=places.__getitem__) if places else None


def _stated(error: object) -> Iterator[str]:
    """Yield the words of an error beside its text: ``param``, ``code``, ``type``, and the end of FastAPI's ``loc``."""
    if isinstance(error, list):
        for item in error[:100]:
            yield from _stated(item)
    if not isinstance(error, dict):
        return
    place = error.get("loc")
    last = place[-1] if isinstance(place, list) and place else None
    words = (error.get("param"), last, error.get("code"), error.get("type"))
    yield from (word[:200] for word in words if isinstance(word, str))
    for key in ("error", "detail", "innererror", "metadata"):
        yield from _stated(error.get(key))


def _place(name: str, message: str) -> int | None:
    word = re.escape(name)
    match = re.search(
        rf"[`'\"]{word}[`'\"]|\bbody\.{word}\b"
        rf"|\b(?:parameters?|params?|fields?|arguments?)(?: supplied)?:? \[?{word}\b"
        rf"|(?:^|[\s(]){word}(?:: | (?:must|is not|should|cannot|and|can only)\b)",
        message,
    )
    return None if match is None else match.start()
