"""Stop strings across token boundaries, chat templates, and texts without tokens."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from speciate.domain.errors import InvalidInputError
from speciate.inference.tokenizer import StopStringWatcher, TextTokenizer
from tests.unit.inference.checkpoints import words

SENTENCE = "naïve café – 日本語 🙂 and so on, naïvely"


@pytest.fixture(scope="module")
def byte_level() -> Tokenizer:
    """Byte-level BPE that splits the characters of SENTENCE into several tokens each."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=270, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(["so on and on and so on"], trainer)
    return tokenizer


def _until_stopped(watch: StopStringWatcher, tokens: list[int], index: int = 0) -> int | None:
    return next((i for i, token in enumerate(tokens) if watch(index, token)), None)


@pytest.mark.parametrize(
    ("stops", "cut"),
    [
        (["日本"], "naïve café – "),
        (["🙂"], "naïve café – 日本語 "),
        (["on,", "so o"], "naïve café – 日本語 🙂 and "),
        (["é – 日"], "naïve caf"),
        (["never"], None),
    ],
)
def test_stop_strings_in_bytes(byte_level: Tokenizer, stops: list[str], cut: str | None) -> None:
    watch = StopStringWatcher(byte_level, stops)
    place = _until_stopped(watch, byte_level.encode(SENTENCE).ids)
    assert (place is None) == (cut is None)
    assert watch.cut.get(0) == cut


def test_stop_strings_in_words_and_side_by_side() -> None:
    watch = StopStringWatcher(words(9), ["w2 w3"])
    assert _until_stopped(watch, [1, 2, 2, 0, 3, 4]) == 4  # the special token is not part of the text
    assert _until_stopped(watch, [1, 2, 4, 3], index=1) is None
    assert watch.cut == {0: "w1 w2 "}


def _text(folder: Path, **config: object) -> TextTokenizer:
    words(9).save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return TextTokenizer(folder, 9, 128)


def test_texts_and_tokens(tmp_path: Path) -> None:
    text = _text(tmp_path)
    assert text.encode("w1 w8") == (1, 8)
    assert text.decode([1, 8, 0]) == "w1 w8"
    assert text.token(0) == "<eos>"


def test_a_word_without_a_token_is_refused(tmp_path: Path) -> None:
    tokenizer = Tokenizer(models.WordLevel({"a": 0}, unk_token="<unk>"))
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(InvalidInputError, match="cannot be tokenized by"):
        TextTokenizer(tmp_path, 9, 128).encode("b")


def test_chat(tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    template = "{% for m in messages %}{{ m.content }} {{ eos_token }} {% endfor %}w3"
    text = _text(tmp_path, chat_template=template, eos_token="<eos>")
    assert text.chat([{"role": "user", "content": "w1"}, {"role": "assistant", "content": "w2"}]) == (1, 0, 2, 0, 3)
    (tmp_path / "chat_template.jinja").write_text("{{ raise_exception('no ' + messages[0].role) }}")
    with pytest.raises(InvalidInputError, match="refuses the messages: no user"):
        _text(tmp_path).chat([{"role": "user", "content": "w1"}])


def test_chat_templates_are_sandboxed(tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    text = _text(tmp_path, chat_template="{{ messages.__class__.__base__.__subclasses__() }}")
    with pytest.raises(InvalidInputError, match="refuses the messages"):
        text.chat([{"role": "user", "content": "w1"}])


def test_chat_without_a_template_names_the_other_route(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="has no chat template: use /v1/completions"):
        _text(tmp_path).chat([{"role": "user", "content": "w1"}])


def test_a_panic_of_the_library_is_a_refusal(tmp_path: Path) -> None:
    tokenizer = words(9)
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("(a+)+$"), "isolated")
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(InvalidInputError, match="cannot be tokenized"):
        TextTokenizer(tmp_path, 9, 1 << 16).encode("a" * 4096 + "!")
