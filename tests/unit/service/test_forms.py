"""Forms: fields, parsing, and errors at their fields."""

from __future__ import annotations

import asyncio

import pytest
from pydantic import ValidationError

from service.dashboard.fields import build_fields, read_values
from service.dashboard.forms import form_errors, read_form
from service.dashboard.pages import macro
from service.dashboard.routes import policies, runs
from service.dashboard.routes.policies import policy_form_errors, read_submission
from speciate.domain.errors import InvalidInputError, NotFoundError
from speciate.domain.policy import Policy, Sampling
from speciate.domain.tournament import Tournament
from speciate.policies import build_client
from speciate.search.strategies import STRATEGIES
from tests.unit.service.figure_samples import sample_request


def test_fields_of_a_config_model_round_trip() -> None:
    for kind in STRATEGIES.values():
        fields = build_fields(kind.Config, "o.", {})
        assert [field.name.removeprefix("o.") for field in fields] == list(kind.Config.model_fields)
        # Browsers omit unticked boxes and send every other field as text.
        sent = {field.name: field.value for field in fields if field.kind != "check" or field.value}
        assert read_values(kind.Config, "o.", sent) == {}
    islands = STRATEGIES["islands_map_elites"].Config
    given = {"o.islands": "7", "o.features": "novelty", "o.crossover": "much"}
    assert read_values(islands, "o.", given) == {"islands": 7, "features": ["novelty"], "crossover": "much"}


def test_options_shown_for_another_strategy_are_dropped() -> None:
    """Both strategies have an ``exploration`` with different defaults."""
    sent = {"strategy": "vector_evolution", "strategy_options.exploration": "0.2", "strategy_options.min_elites": "5"}
    own = {"exploration": 0.2, "min_elites": 5}
    assert runs.FORM.read(sent)["strategy_options"] == own
    assert runs.FORM.read(sent | {"options_of": "vector_evolution"})["strategy_options"] == own
    assert runs.FORM.read(sent | {"options_of": "islands_map_elites"})["strategy_options"] == {}
    unknown = {"strategy": "nonsense", "strategy_options.a": "1"}
    assert runs.FORM.read(unknown) == {"strategy": "nonsense", "strategy_options": {}}
    assert runs.FORM.read({})["strategy"] == "adaptive_evolution"


def test_a_policy_form_has_the_fields_that_its_kind_reads() -> None:
    def names(kind: str) -> set[str]:
        return {field.name.partition(".")[0] for field in policies.FORM.fields({"kind": kind})}

    assert names("program_mutator") == {"slug", "kind", "description", "answers_per_rollout", "check", "options"}
    assert names("external") == {"slug", "kind", "description", "check"}
    assert {"base_url", "api_key", "sampling", "options"} <= names("openai_compatible")
    required = [field.name for field in policies.FORM.fields({"kind": "command"}) if field.required]
    assert required == ["slug", "kind", "options.command"]


POLICY = {
    "slug": "qwen",
    "kind": "openai_compatible",
    "base_url": " http://127.0.0.1:8000/v1 ",
    "model": "m",
    "codec": "",
    "answers_per_rollout": "2",
    "sampling.temperature": "0.5",
    "sampling.logprobs": "on",
    "check": "on",
    "options.check": "on",
    "options.max_retries": "2",
    "options.extra_body": '{"top_k": 20}',
    "options.base_model": "big",
}


def test_a_policy_form_becomes_a_submission_of_the_rest_api() -> None:
    found = read_submission(POLICY | {"api_key": " sk-1 "})
    assert found.api_key is not None
    assert (found.api_key.get_secret_value(), found.check) == ("sk-1", True)
    assert not read_submission(POLICY | {"check": ""}).check
    assert found.definition == Policy(
        slug="qwen",
        kind="openai_compatible",
        base_url="http://127.0.0.1:8000/v1",
        model="m",
        answers_per_rollout=2,
        sampling=Sampling(temperature=0.5, logprobs=True),
        options={"max_retries": 2, "extra_body": {"top_k": 20}, "base_model": "big"},
    )


@pytest.mark.parametrize(
    ("changes", "place", "words"),
    [
        ({"slug": "No Slug"}, "slug", "lower-case words"),
        ({"slug": ""}, "slug", "is missing"),
        ({"timeout_s": "soon"}, "timeout_s", "number"),
        ({"sampling.temperature": "11"}, "sampling.temperature", "less than or equal to 10"),
        ({"codec": "maze"}, "", "needs prompt_format 'completion'"),
        ({"api_key": "two words"}, "api_key", "without spaces"),
        ({"api_key": "k", "api_key_env": "POLICY_KEY_X"}, "api_key", "without api_key_env"),
        ({"api_key_env": "HOME"}, "api_key_env", "begins with POLICY_KEY"),
        ({"options.max_retries": "often"}, "options.max_retries", "integer"),
        ({"options.extra_body": "{"}, "options.extra_body", "dictionary"),
        ({"base_url": ""}, "base_url", "such as http://127.0.0.1:8000/v1"),
        ({"model": ""}, "model", "GET /models"),
    ],
)
def test_errors_of_a_policy_appear_at_their_field(changes: dict[str, str], place: str, words: str) -> None:
    with pytest.raises((InvalidInputError, ValidationError)) as refused:
        build_client(read_submission(POLICY | changes).definition)
    assert words in policy_form_errors(refused.value).for_field(place)


def test_forms_are_parsed_in_both_encodings() -> None:
    own = {"origin": "http://localhost"}
    kind = {"content-type": "application/x-www-form-urlencoded"}
    form = asyncio.run(read_form(sample_request("POST", own | kind, b"a=1%0D%0A2&b=&a=3")))
    assert form.fields == {"a": "3", "b": ""}
    parts = (
        '--x\r\nContent-Disposition: form-data; name="toml"\r\n\r\none\r\ntwo\r\n--x\r\nContent-Disposition: form-data;'
        ' name="files"; filename="../etc/é.py"\r\nContent-Type: text/x-python\r\n\r\nprint("ü")\n\r\n--x\r\n'
        'Content-Disposition: form-data; name="files"; filename=""\r\n\r\n\r\n--x--\r\n'
    )
    kind = {"content-type": "multipart/form-data; boundary=x"}
    form = asyncio.run(read_form(sample_request("POST", own | kind, parts.encode())))
    assert form.fields == {"toml": "one\ntwo"}
    assert form.files == {"é.py": 'print("ü")\n'}
    with pytest.raises(InvalidInputError, match="UTF-8"):
        asyncio.run(read_form(sample_request("POST", own | kind, parts.encode("latin-1"))))


_FIELD = 'Content-Disposition: form-data; name="a"'


@pytest.mark.parametrize(
    ("head", "kind", "part"),
    [
        ('Content-Disposition: form-data; name="a"; ' + "a*0=x; " * 10_000, "boundary=x", "1"),
        ("Content-Disposition: form-data; " + "(" * 3000, "boundary=x", "1"),
        (_FIELD, "boundary=" + "(" * 2000, "1"),
        (_FIELD, "boundary=x; charset=punycode", "1"),
        ("Content-Type: multipart/mixed; boundary=x", "boundary=x", f"--x\r\n{_FIELD}"),
        (_FIELD, "boundary=x", f"1\r\n--x\r\n{_FIELD}\r\n\r\n" * 501),
    ],
    ids=["long header", "parentheses", "boundary", "charset", "nested", "parts"],
)  # fmt: skip
def test_a_hostile_multipart_form_is_refused(head: str, kind: str, part: str) -> None:
    headers = {"origin": "http://localhost", "content-type": f"multipart/form-data; {kind}"}
    body = f"--x\r\n{head}\r\n\r\n{part}\r\n--x--\r\n".encode()
    with pytest.raises(InvalidInputError, match="The form cannot be read"):
        asyncio.run(read_form(sample_request("POST", headers, body)))


def test_form_errors_are_sentences() -> None:
    shown = macro("form_errors", form_errors(NotFoundError("there is no policy 'nope'.")))
    assert "<strong>Not found.</strong> There is no policy &#39;nope&#39;." in shown
    with pytest.raises(ValidationError) as caught:
        Tournament.model_validate({})
    assert "is missing: expected a value" in form_errors(caught.value).for_field("entrants")


def test_a_temperature_that_is_set_is_sent_whatever_a_preset_omits() -> None:
    submission = read_submission(POLICY | {"options.fields": '{"temperature": null, "top_p": null}'})
    assert submission.definition.options["fields"] == {"top_p": None}
