"""Codecs for models too small for English. A new codec is one file and one line in ``CODECS``."""

from typing import Final

from speciate.domain.errors import InvalidInputError
from speciate.prompts.codecs.codec import Codec
from speciate.prompts.codecs.maze import MazeCodec
from speciate.prompts.codecs.programs import ProgramsCodec

CODECS: Final[dict[str, Codec]] = {"maze": MazeCodec(), "programs": ProgramsCodec()}
"""Codecs by name."""


def codec_of(name: str) -> Codec:
    if name not in CODECS:
        raise InvalidInputError(f"unknown codec {name!r}.", remedy=f"Codecs: {', '.join(CODECS)}.")
    return CODECS[name]


__all__ = ["CODECS", "Codec", "codec_of"]
