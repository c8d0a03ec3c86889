"""Convert between texts and tokens: the checkpoint's tokenizer, its chat template, and stop strings."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from speciate.domain.errors import ConfigurationError, InvalidInputError
from speciate.inference.checkpoint import EXPORT_AGAIN, read_json

_LEAST_WIDEST: Final = 64
"""Lower bound of the characters per token: some tokenizers drop blanks, or have no long words."""


class TextTokenizer:
    """Tokenizer of a checkpoint.

    ``longest`` is the longest sequence of its model, in tokens. Texts with many more characters are refused before they
    are tokenized: the largest accepted body would take minutes.
    """

    def __init__(self, folder: Path, vocab_size: int, longest: int) -> None:
        path = folder / "tokenizer.json"
        read_json(path)
        try:
            self._tokenizer = Tokenizer.from_file(str(path))
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001 - a panic of the library is no Exception
            raise ConfigurationError(f"{path} is not a tokenizer: {error}.", remedy=EXPORT_AGAIN) from None
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        vocabulary = self._tokenizer.get_vocab()
        largest = max(vocabulary.values(), default=0)
        if largest >= vocab_size:
            raise ConfigurationError(
                f"{path} has the token id {largest}, and the model's vocabulary has {vocab_size} tokens.",
                remedy="Copy the tokenizer that the model was trained with into the folder.",
            )
        self._longest, self._widest = longest, max(_LEAST_WIDEST, *map(len, vocabulary), 0)
        self._name = folder.name
        config = folder / "tokenizer_config.json"
        self._config = read_json(config) if config.exists() else {}
        template = folder / "chat_template.jinja"
        self._template = template.read_text("utf-8") if template.exists() else self._config.get("chat_template")
        self.token = lru_cache(maxsize=1 << 16)(self._token)

    def encode(self, text: str, *, special: bool = True) -> tuple[int, ...]:
        """Return the tokens of a text; ``special`` adds the tokenizer's special tokens around it."""
        if len(text) > (most := self._longest * self._widest):
            raise InvalidInputError(
                f"the prompt has {len(text)} characters: {self._name} reads {self._longest} tokens at most, and"
                f" prompts of {most} characters."
            )
        try:
            return tuple(self._tokenizer.encode(text, add_special_tokens=special).ids)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001 - a panic of the library is no Exception
            raise InvalidInputError(f"the prompt cannot be tokenized by {self._name}: {error}.") from None

    def decode(self, tokens: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(tokens), skip_special_tokens=True))

    def lengths(self, tokens: Sequence[int]) -> list[int]:
        """Return by how many characters each token makes the text longer."""
        stream = DecodeStream(skip_special_tokens=True)
        return [len(stream.step(self._tokenizer, token) or "") for token in tokens]

    def _token(self, token: int) -> str:
        return str(self._tokenizer.decode([token], skip_special_tokens=False)) or f"token_id:{token}"

    def chat(self, messages: Sequence[Mapping[str, str]], opening: str = "") -> tuple[int, ...]:
        """Return the tokens of a conversation, ready for the model's reply or its continuation after ``opening``."""
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        if not isinstance(self._template, str):
            raise InvalidInputError("this model has no chat template: use /v1/completions.")
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        environment.globals["raise_exception"] = _refuse
        named = {name: self._config.get(name) or "" for name in ("bos_token", "eos_token", "pad_token", "unk_token")}
        specials = {name: str(t.get("content", "") if isinstance(t, dict) else t) for name, t in named.items()}
        try:
            template = environment.from_string(self._template)
            text = template.render(messages=list(messages), add_generation_prompt=True, **specials)
        except Exception as error:  # noqa: BLE001 - templates may fail in any way
            raise InvalidInputError(f"the chat template of {self._name} refuses the messages: {error}.") from None
        return self.encode(text + opening, special=False)

    def watch(self, stops: Sequence[str]) -> "StopStringWatcher":
        return StopStringWatcher(self._tokenizer, stops)


class StopStringWatcher:
    """Detector of stop strings in the completions of one prompt; ``cut`` has the text of each stopped one before it."""

    def __init__(self, tokenizer: Tokenizer, stops: Sequence[str]) -> None:
        self._tokenizer = tokenizer
        self._stops = stops
        self._longest = max(map(len, stops))
        self._streams: dict[int, DecodeStream] = {}
        self._texts: dict[int, str] = {}
        self.cut: dict[int, str] = {}

    def __call__(self, index: int, token: int) -> bool:
        piece = self._streams.setdefault(index, DecodeStream(skip_special_tokens=True)).step(self._tokenizer, token)
        if not piece:
            return False
        before = self._texts.get(index, "")
        text = self._texts[index] = before + piece
        begin = max(0, len(before) - self._longest + 1)
        places = [place for stop in self._stops if (place := text.find(stop, begin)) >= 0]
        if places:
            self.cut[index] = text[: min(places)]
        return bool(places)


def _refuse(message: str) -> None:
    raise ValueError(message)
